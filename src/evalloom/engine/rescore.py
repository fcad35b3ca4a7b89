"""`evalloom score`: the runs of a batch through other checks, thresholds or another judge; nothing is run again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from evalloom import settings
from evalloom.analysis.tally import Tally
from evalloom.batchlog import Damage, Rescoring, find, manifest, pairs
from evalloom.core.clock import utc_now
from evalloom.core.errors import usage_error
from evalloom.core.model import Case, Check, Record
from evalloom.core.text import did_you_mean
from evalloom.engine.cases import with_checks
from evalloom.engine.loop import run_loop
from evalloom.engine.plan import scoring_digest
from evalloom.engine.prepare import refuse_without_sandbox
from evalloom.engine.results import Results
from evalloom.engine.resume import case_of, tell_damage
from evalloom.engine.scoring import Scorer, services
from evalloom.engine.system import Catalog
from evalloom.files.read import RowReader
from evalloom.files.rows import Row
from evalloom.files.source import source_of
from evalloom.llms import LlmOptions, Llms
from evalloom.matchers import Matchers
from evalloom.settings import Settings

_PAUSE_EVERY = 500
CASE = "case"
"""The name under which the threshold of whole cases is set."""


class Rescore(Struct, frozen=True):
    """What is to be scored anew, and how. `thresholds` go by the name or kind of a check."""

    batch: str
    config: str = ""
    checks: str = ""
    judge: str = ""
    thresholds: dict[str, float] = {}
    concurrency: int = 16
    allow_code: bool = False
    use_cache: bool = True


def rescore(asked: Rescore, catalog: Catalog, warn: Callable[[str], None]) -> Results:
    """Scores a batch again; the verdicts that it had are kept beside the new ones."""
    known = settings.load(Path(asked.config) if asked.config else None, catalog.sections)
    judge = asked.judge or known.judge
    if judge:
        settings.key_of(settings.llm_of(known, judge))
    if asked.allow_code:
        refuse_without_sandbox()
    return run_loop(_rescore(asked, catalog, known, judge, warn))


async def _rescore(
    asked: Rescore, catalog: Catalog, known: Settings, judge: str, warn: Callable[[str], None]
) -> Results:
    path = find(asked.batch)
    config = manifest(path).config
    matchers = catalog.matchers
    own, further = tuple(map(matchers.parse, known.checks)), read_checks(asked.checks, matchers)
    extra = own + further
    functions = {
        **matchers.functions_of(own, known.folder),
        **matchers.functions_of(further, Path(asked.checks).parent),
    }
    llms = Llms(known, LlmOptions(asked.concurrency, asked.use_cache), warn)
    whom = services(known, llms, judge, asked.allow_code, functions, matchers)
    tally = Tally()
    with Rescoring(path, settings.secrets(known)) as log:
        scorer = Scorer(log, tally, whom, _scoring(asked, extra, judge, config))
        try:
            damage: list[Damage] = []
            named = {CASE}
            for number, (run, _) in enumerate(pairs(path, damage)):
                if number % _PAUSE_EVERY == 0:
                    await asyncio.sleep(0)  # checks that ask nobody never wait, and Ctrl-C would not get through
                case = with_checks(case_of(run, catalog.formats), extra, config, catalog)
                named.update(name for check in case.checks for name in (check.name, check.kind))
                await scorer.take(with_thresholds(case, asked.thresholds), run)
            await scorer.finish()
            tell_damage(damage, path, warn)
            for name in asked.thresholds.keys() - named:
                warn(f"--threshold {name}: no check has this name or kind{did_you_mean(name, named)}")
        finally:
            await llms.close()
        batch = manifest(path)
        summary = tally.summary(batch.id, path.as_posix())
        log.finish(msgspec.structs.replace(batch, scored_at=utc_now(), summary=msgspec.to_builtins(summary)))
    return Results(path, summary, tally, known.gates)


def _scoring(asked: Rescore, extra: tuple[Check, ...], judge: str, config: Record) -> str:
    """The same as a run's, as long as nothing is asked for that a run cannot have."""
    more = [part for part in (config, asked.thresholds) if part]
    return scoring_digest(extra, judge, asked.allow_code, *more)


def with_thresholds(case: Case, thresholds: dict[str, float]) -> Case:
    """A case whose checks, or which itself, must reach other thresholds."""
    if not thresholds:
        return case
    checks = tuple(_with_threshold(check, thresholds) for check in case.checks)
    meta = {**case.meta, "threshold": thresholds[CASE]} if CASE in thresholds else case.meta
    return msgspec.structs.replace(case, checks=checks, meta=meta)


def _with_threshold(check: Check, thresholds: dict[str, float]) -> Check:
    for name in (check.name, check.kind):
        if name in thresholds:
            return msgspec.structs.replace(check, options={**check.options, "threshold": thresholds[name]})
    return check


def read_checks(file: str, matchers: Matchers) -> tuple[Check, ...]:
    """The checks in a YAML or JSON file: a list of them, or an object with `checks`."""
    if not file:
        return ()
    rows = list(RowReader(source_of(file)))
    for item in rows:
        if not isinstance(item, Row):
            where = f"{file}:{item.place.line}" if item.place.line else file
            raise usage_error("bad_checks", f"--checks {where}: {item.message}")
    values = [item.value for item in rows if isinstance(item, Row)]
    if len(values) == 1 and isinstance(values[0], dict) and isinstance(values[0].get("checks"), list):
        values = values[0]["checks"]
    return tuple(map(matchers.parse, values))
