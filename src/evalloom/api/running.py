"""`evalloom.evaluate` and `evalloom.score`: run cases against a target, and score the runs of a batch again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import msgspec

from evalloom import catalog
from evalloom.api.cases import Cases, paths_of, python_cases
from evalloom.api.options import AnyBatch, Files, Names, RunFlags, batch_name, names_of, paths_in, settings_of
from evalloom.batchlog import FOLDER, find, manifest
from evalloom.core.errors import usage_error
from evalloom.core.model import Check, Record
from evalloom.core.verbs import Warn, verb, warn_caller
from evalloom.data.mapping import parse_mapping
from evalloom.engine.evaluate import InvalidData
from evalloom.engine.evaluate import evaluate as run_plan
from evalloom.engine.outputs import (
    refuse_claimed,
    refuse_replacing_results,
    reporters_for,
    write_outputs,
)
from evalloom.engine.plan import Reading
from evalloom.engine.prepare import RunRequest, prepare
from evalloom.engine.rescore import RescoreRequest, rescore
from evalloom.engine.results import Results
from evalloom.engine.resume import Resume, resumed_batch
from evalloom.engine.stored_runs import CASE
from evalloom.engine.until_sure import MARGIN, Question
from evalloom.matchers import Matchers
from evalloom.targets import BuiltTarget, build_callable
from evalloom.ui.language import known_language

_SHOWN = 20
"""The number of findings to warn about when the data has errors."""
Checks = Iterable[Check | Record]


Target = str | Record | Callable[..., Any]


@verb(RunFlags.__annotations__)
def evaluate(
    dataset: Cases | None = None,
    target: Target | Sequence[Target] = "",
    checks: Checks = (),
    profiles: Names = (),
    *,
    judge: str = "",
    config: str | Path = "",
    resume: bool = False,
    resume_from: AnyBatch = "",
    retry_errors: bool = False,
    record: str | Path = "",
    replay: str | Path = "",
    dialect: str = "",
    map: str = "",
    encoding: str = "",
    until_sure: bool = False,
    margin: float | None = None,
    against: AnyBatch = "",
    force: bool = False,
    lang: str = "en",
    warn: Warn | None = None,
    **options: Unpack[RunFlags],
) -> Results:
    """Run cases against a target, score them and write a batch, as `evalloom run` does.

    dataset: a file, what `evalloom.read` returns, or a list of cases (`evalloom.Case`, or dicts in any dialect).
    target: a function, or a value of `--target` such as "prompt:prompt.md", or several of them, each a column.
    Both default to those of `config`.
    checks: applied to every case in addition to its own, such as {"length": {"max": 10}}.
    profiles: the profiles or llms to run with. judge: the llm for judge checks.
    config: the settings file; by default evalloom.yaml of the current folder, if there is one.
    warn: called with each warning; without it, they are Python warnings. Nothing is printed.
    force: replace files of `output` that are not reports of evalloom.

    Options are the flags of `evalloom run` with `_` for `-`: repeat=5, pass_if="4/5" or 0.8, limit=20, tags="zh,en",
    filter="len(text) < 80", vary={"temperature": [0, 0.7]}, concurrency=8, no_cache=True, timeout=30, max_cost=2,
    max_tokens=…, max_time=…, fail_under=0.9, skip_invalid, allow_code, allow_unscored, no_checks, quarantine,
    variants, output="report.html", executor="dask" with scheduler="tcp://host:8786" or workers=4.

    >>> results = evalloom.evaluate([{"id": "a", "text": "hi", "expected_output": "HI"}], lambda text: text.upper())
    """
    warn, lang = warn_caller(warn), known_language(lang)
    loaded = catalog.load_for_python()
    values = settings_of(options)
    if names := names_of(profiles):
        if "profiles" in values:
            raise usage_error("bad_option", "evaluate: profile and profiles: expected one of them, got both")
        values["profiles"] = names
    plan = prepare(
        RunRequest(
            datasets=paths_of(dataset),
            config=str(config),
            target=_target(target),
            judge=judge,
            record=str(record),
            replay=str(replay),
            options=values,
            reading=Reading(dialect, parse_mapping(map), encoding),
            python_cases=python_cases(dataset),
            question=_question(until_sure, margin, batch_name(against)),
        ),
        loaded,
    )
    added = _parsed(checks, loaded.matchers)
    functions = {**plan.functions, **loaded.matchers.functions_of(added)}
    plan = msgspec.structs.replace(plan, checks=plan.checks + added, functions=functions)
    outputs = reporters_for(plan.options.output, loaded.reporters)
    earlier = Resume(resume, batch_name(resume_from), retry_errors)
    if outputs:
        refuse_replacing_results(outputs, force, resumed_batch(plan, earlier))
        if not force:
            refuse_claimed((path for path, _ in outputs), plan.home / FOLDER)
    try:
        results = run_plan(plan, resume=earlier, warn=warn)
    except InvalidData as error:
        findings = [finding for dataset_report in error.report.checked for finding in dataset_report.findings]
        for finding in findings[:_SHOWN]:
            warn(str(finding))
        raise
    write_outputs(results, outputs, loaded, lang)
    return results


def _target(target: Target | Sequence[Target]) -> str | Record | BuiltTarget | tuple[str | Record | BuiltTarget, ...]:
    if isinstance(target, list | tuple):
        return tuple(build_callable(one) if callable(one) else one for one in target)
    return build_callable(target) if callable(target) else target  # type: ignore[return-value]


@verb()
def score(
    batch: AnyBatch,
    checks: str | Path | Checks = (),
    *,
    judge: str = "",
    threshold: float | Mapping[str, float] | None = None,
    pass_if: float | str | None = None,
    config: str | Path = "",
    concurrency: int = 16,
    no_cache: bool = False,
    allow_code: bool = False,
    allow_unscored: bool = False,
    output: Files = (),
    force: bool = False,
    executor: str = "",
    scheduler: str = "",
    workers: int | None = None,
    lang: str = "en",
    warn: Warn | None = None,
) -> Results:
    """Score the runs of a batch again without calling its target, as `evalloom score` does.

    batch: results, a path, an id or a unique beginning of one, or "latest". Its earlier verdicts are kept.
    checks: applied to every case in addition to its own: a YAML or JSON file, or a list as for `evaluate`.
    threshold: of whole cases, or by the name or kind of a check: {"similar": 0.8, "case": 0.5}.
    pass_if: the share of its repeats that must pass for a case to pass: 0.8, "80%" or "4/5".
    output: files to write. force: replace files that are not reports of evalloom.
    executor: "dask" to score on the cluster of `scheduler`, or on `workers` that are started here.
    """
    warn, lang = warn_caller(warn), known_language(lang)
    loaded = catalog.load_for_python()
    name = batch_name(batch)
    stored = manifest(find(name))
    outputs = reporters_for(map(str, paths_in(output)), loaded.reporters)
    refuse_replacing_results(outputs, force, stored)
    if not force:
        refuse_claimed(path for path, _ in outputs)
    needed = None
    if pass_if is not None:
        from evalloom.console.run_options import stored_pass_rule  # deferred: it imports the command line

        needed = stored_pass_rule("pass_if", str(pass_if), stored)
    is_file = isinstance(checks, str | Path)
    request = RescoreRequest(
        name,
        str(config),
        str(checks) if is_file else "",
        judge,
        _thresholds(threshold),
        concurrency,
        allow_code,
        not no_cache,
        needed,
        allow_unscored,
        added=() if is_file else _parsed(checks, loaded.matchers),
        executor=executor,
        scheduler=scheduler,
        workers=workers,
    )
    results = rescore(request, loaded, warn)
    write_outputs(results, outputs, loaded, lang)
    return results


def _parsed(checks: str | Path | Checks, matchers: Matchers) -> tuple[Check, ...]:
    assert not isinstance(checks, str | Path)
    return tuple(check if isinstance(check, Check) else matchers.parse(check) for check in checks)


def _thresholds(threshold: float | Mapping[str, float] | None) -> dict[str, float]:
    if threshold is None:
        return {}
    return dict(threshold) if isinstance(threshold, Mapping) else {CASE: float(threshold)}


def _question(until_sure: bool, margin: float | None, against: str) -> Question | None:
    if until_sure:
        return Question(MARGIN if margin is None else margin, against)
    if margin is not None or against:
        raise usage_error("bad_option", "evaluate: margin and against go with until_sure=True")
    return None
