"""Runs eval cases through a retriever, or through a model that answers from its passages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec
from msgspec import Struct

from evalloom.analysis import gates
from evalloom.analysis.gates import GateResult
from evalloom.analysis.tally import Tally
from evalloom.batchlog import find, manifest
from evalloom.core.digest import digest_of
from evalloom.core.errors import usage_error
from evalloom.core.model import Batch
from evalloom.core.ranking import is_hit
from evalloom.core.text import did_you_mean, pluralize, quote
from evalloom.data.dialect import Rules
from evalloom.engine.plan import BatchMetadata, Plan, Reading
from evalloom.engine.prepare import RunRequest, prepare
from evalloom.engine.results import (
    NOTHING_ACCEPTED,
    NOTHING_CHECKED,
    Accepted,
    BatchProblem,
    stored_runs,
    unscored_problem,
)
from evalloom.engine.system import Catalog
from evalloom.files.write import write_text
from evalloom.llms import LlmOptions
from evalloom.rag.analysis.measures import RagResults, analyse_all
from evalloom.rag.batches import FAITHFULNESS, KIND
from evalloom.rag.reports import RAG_REPORTERS
from evalloom.rag.retriever import Listener, Retriever, SearchOptions, open_retriever
from evalloom.rag.target import answer_target, default_digest, load_prompt, retrieval_target
from evalloom.reports import by_suffix
from evalloom.settings import RunSettings, Settings, environment, llm_of, secrets
from evalloom.targets import BuiltTarget, TargetOptions
from evalloom.targets.base import TIMEOUT_S, within

REQUIRED_FIELDS = frozenset({"query"})
"""Fields that every case needs; a case that lacks others is counted separately."""


class AnswerOptions(Struct, frozen=True):
    """The prompt for answers, and the checks in addition to `must_include`."""

    prompt: str = ""
    normalise: bool = False
    faithfulness: bool = False
    require: tuple[str, ...] = ()


class RagRun(Struct, frozen=True):
    """A RAG run that is ready to start."""

    plan: Plan
    retriever: Retriever

    def fill(self) -> tuple[int, Plan]:
        """Embed documents and queries that lack vectors; return their number and the plan with the remaining budget."""
        usage = self.retriever.fill(str(planned.case.inputs.get("query") or "") for planned in self.plan.cases())
        options = self.plan.options
        if usage.vectors and options.max_cost is not None:
            options = msgspec.structs.replace(options, max_cost=max(0.0, options.max_cost - usage.cost))
        if usage.vectors and options.max_tokens is not None:
            options = msgspec.structs.replace(options, max_tokens=max(0, options.max_tokens - usage.tokens))
        return usage.vectors, msgspec.structs.replace(self.plan, options=options)


def prepare_run(
    request: RunRequest,
    catalog: Catalog,
    settings: Settings,
    search: SearchOptions,
    answers: AnswerOptions | None,
    listener: Listener,
    home: Path = Path(),
) -> RagRun:
    """Update the index and build the plan; without `answers` the run only retrieves."""
    if answers and FAITHFULNESS in answers.require and not answers.faithfulness:
        raise usage_error("bad_option", f"--require {FAITHFULNESS}: goes with --{FAITHFULNESS}")
    if answers and answers.faithfulness and not (request.judge or settings.judge):
        raise usage_error("bad_option", f"--{FAITHFULNESS}: needs a judge: --judge LLM, or 'judge:' in evalloom.yaml")
    settings = msgspec.structs.replace(settings, run=msgspec.structs.replace(settings.run, **request.options))
    run = settings.run
    options = LlmOptions(run.concurrency, True, request.record, request.replay, run.max_cost, run.max_tokens, home)
    retriever = open_retriever(search, settings, listener, options)
    target, config = _target(retriever, search, answers, settings, request.judge or settings.judge)
    documents = retriever.named_documents()
    reading = request.reading
    unused = "expected_sources" if answers else "must_include"
    rules = Rules(root=Path(search.root), required=REQUIRED_FIELDS, unused=frozenset({unused}))
    plan = prepare(
        msgspec.structs.replace(
            request,
            target=target,
            reading=Reading(KIND, reading.mapping, reading.encoding, rules),
            metadata=BatchMetadata(config, documents, {"searching": msgspec.to_builtins(search)}),
        ),
        catalog,
    )
    for warning in _unindexed_warnings(plan, retriever):
        listener.warn(warning)
    return RagRun(msgspec.structs.replace(plan, home=home), retriever)


def _target(
    retriever: Retriever, search: SearchOptions, answers: AnswerOptions | None, settings: Settings, judge: str
) -> tuple[BuiltTarget, dict[str, object]]:
    """The target, and the configuration that two batches must share to be compared."""
    config: dict[str, object] = {"kind": KIND, "purpose": "answer" if answers else "retrieve", "k": search.k}
    config |= retriever.config
    limit = settings.run.timeout_s
    watch = retriever.watch
    if answers is None:
        call = within(retrieval_target(retriever.retrieve, search.k), limit or TIMEOUT_S)
    else:
        options = TargetOptions(limit, environment(settings.folder), tuple(secrets(settings)))
        own = load_prompt(answers.prompt, options) if answers.prompt else None
        watch += own.watch if own else ()
        config["prompt"] = (own.digest if own else default_digest())[:8]
        config |= {"normalise": answers.normalise, "require": sorted(set(answers.require))}
        config[FAITHFULNESS] = answers.faithfulness
        if answers.faithfulness:
            llm = llm_of(settings, judge)
            config["judge"] = " ".join(filter(None, (judge, llm.model, llm.base_url)))
        if settings.checks:
            config["checks"] = digest_of(settings.checks)[:8]
        call = answer_target(retriever.retrieve, search.k, own, options)
        call = within(call, limit) if limit else call
    mode = f" {retriever.config['mode']}" if "mode" in retriever.config else ""
    target = BuiltTarget(
        name=f"rag {config['purpose']}: {retriever.config['retriever']}{mode}, k={search.k}",
        kind=KIND,
        digest=digest_of(config, retriever.digest),
        call=call,
        watch=watch,
        secrets=retriever.secrets,
        closing=retriever.closing,
        needs_llm=answers is not None,
        may_ask=answers is not None,
        folders=(Path(search.root),) if retriever.index is not None else (),
        # The vectors of an index are not made again on each worker, because they cost money.
        rebuild=partial(_rebuild, search, answers, settings.run, judge) if search.mode == "bm25" else None,
    )
    return target, config


def _rebuild(
    search: SearchOptions, answers: AnswerOptions | None, run: RunSettings, judge: str, options: TargetOptions
) -> BuiltTarget:
    """Build the target on another machine, with an index of its own."""
    assert options.settings is not None
    settings = msgspec.structs.replace(options.settings, run=run)
    retriever = open_retriever(msgspec.structs.replace(search, is_frozen=False), settings, Listener(lambda line: None))
    return _target(retriever, search, answers, settings, judge)[0]


def _unindexed_warnings(plan: Plan, retriever: Retriever) -> list[str]:
    """A warning when expected sources are not in the index, because those cases can only miss."""
    if retriever.index is None:
        return []
    documents = _DocumentLookup(list(retriever.documents))
    expected: dict[str, str] = {}
    for planned in plan.cases():
        sources = planned.case.raw.get("expected_sources")
        for name in sources if isinstance(sources, list) else ():
            if isinstance(name, str):
                expected.setdefault(name, planned.case.id)
    lacking = [name for name in expected if not documents.has(name)]
    if not lacking:
        return []
    first = f"expected_sources: {quote(lacking[0])} of {quote(expected[lacking[0]])} is not in the index"
    more = f" (and {len(lacking) - 1:,} more of these)" if len(lacking) > 1 else ""
    hint = _hint(lacking[0], list(retriever.documents))
    return [f"{first}, so a case that expects it can only miss{more}{hint} [expected_not_indexed]"]


def _hint(expected: str, documents: list[str]) -> str:
    """A hint at the document that a missing source may mean."""
    if shorter := next((path for path in documents if is_hit(path, expected)), ""):
        return f". There is {quote(shorter)}: paths are relative to --root, so name a folder further up"
    if any(is_hit(f"{expected}/", path) for path in documents):
        return ". It is a folder: write / at its end"
    return did_you_mean(expected, documents)


class _DocumentLookup:
    """The documents of an index by file name, for fast lookups."""

    def __init__(self, paths: list[str]) -> None:
        self._paths = paths
        self._by_name: dict[str, list[str]] = {}
        for path in paths:
            self._by_name.setdefault(PurePosixPath(path).name, []).append(path)

    def has(self, expected: str) -> bool:
        is_folder = expected.endswith(("/", "\\"))
        name = PurePosixPath(expected.replace("\\", "/").partition("#")[0]).name
        among = self._paths if is_folder or "#" in expected else self._by_name.get(name, [])
        return any(is_hit(expected, path) for path in among)


class ExitStatus(NamedTuple):
    """The exit code of a RAG batch, and the reasons for it other than misses."""

    code: int
    reasons: list[str]


def exit_status(
    profiles: list[RagResults],
    gates: list[GateResult],
    fail_under: float | None,
    stopped: str,
    accepted: Accepted = NOTHING_ACCEPTED,
) -> ExitStatus:
    """0 all found, 1 a miss, an error, a gate or too low a rate, 3 unfinished, unscored or nothing measured.

    Errors are in no rate (RAG-7), so no rate can make up for them: they always give 1. Unscored cases that are not
    accepted give 3 where nothing failed, whatever the gates say (WORK-1).
    """
    if stopped:
        return ExitStatus(3, [])
    problem = problem_of(profiles, accepted)
    empty = next((result for result in profiles if not result.overall.cases), None)
    if empty is not None:
        if problem is None and not any(empty.apart[name] for name in ("error", "skipped", "blocked")):
            return ExitStatus(0, [])
        where = f" under {empty.profile}" if len(profiles) > 1 else ""
        reason = f"nothing was measured{where}: no case has a result that can be checked against what it expects"
        return ExitStatus(3, [reason])
    words = {"error": "ended in an error", "part_error": "had a repeat that ended in an error"}
    counted = [(result.apart[name], reason) for result in profiles for name, reason in words.items()]
    reasons = [f"{pluralize(number, 'case')} {reason}" for number, reason in counted if number]
    for result in profiles:
        rate = result.overall.measure(result.deciding).mean
        if fail_under is not None and (rate is None or round(rate, 9) < fail_under):
            reasons.append(f"{result.deciding} is {rate or 0.0:.1%}, and --fail-under asks for {fail_under:.1%}")
    has_missed = fail_under is None and any(result.overall.failing for result in profiles)
    has_failed = bool(reasons) or has_missed
    reasons += [f"the gate {gate.text} does not hold" for gate in gates if not gate.holds]
    if problem and not has_failed:
        return ExitStatus(3, reasons)
    return ExitStatus(int(bool(reasons) or has_missed), reasons)


def problem_of(profiles: list[RagResults], accepted: Accepted) -> BatchProblem | None:
    """Return what was left open and is not accepted: unscored cases, or that nothing is expected of any case."""
    cases = sum(len(result.cases) for result in profiles)
    unscored = sum(result.apart["unscored"] for result in profiles)
    if unscored:
        reasons = Counter(row.reason for result in profiles for row in result.cases if row.status == "unscored")
        problem = unscored_problem(unscored, cases, dict(reasons.most_common()), "case")
        return None if accepted.allow_unscored else problem
    if cases and sum(result.apart["no_expected"] for result in profiles) == cases:
        return None if accepted.no_checks else NOTHING_CHECKED
    return None


def check_gates(path: Path, settings: Settings) -> list[GateResult]:
    """Check the gates of the settings against a stored batch."""
    tally = Tally(manifest(path).options.get("pass_if"))
    for run, scored in stored_runs(path) if settings.gates else ():
        tally.add(run, scored)
    return [gates.parse(text).check(tally) for text in settings.gates]


def load_results(
    batch: str, warn: Callable[[str], None] = lambda message: None
) -> tuple[Path, Batch, list[RagResults]]:
    """Load the results of a stored RAG batch, and warn about what its log lost; nothing is run."""
    path = find(batch)
    batch_manifest = manifest(path)
    if batch_manifest.config.get("kind") != KIND:
        message = f"{path.as_posix()} is not a RAG batch. 'evalloom rag retrieve' and 'evalloom rag answer' make one"
        raise usage_error("no_rag_batch", message)
    return path, batch_manifest, analyse_all(batch_manifest, stored_runs(path, warn))


def write_reports(
    files: list[Path], batch: Batch, profiles: list[RagResults], exit_code: int, language: str = "en"
) -> None:
    """Write each report atomically; the extension gives the format."""
    root = Path(batch.options["searching"]["root"])
    for path, reporter in [(path, by_suffix(path, RAG_REPORTERS)) for path in files]:
        write_text(path, reporter.render(profiles, root, exit_code=exit_code, language=language))
