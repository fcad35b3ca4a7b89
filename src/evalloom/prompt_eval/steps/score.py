"""Step 5: scores the outputs with rules and the evaluator; the scored results are a view of the batch (EVAL-6).

A complete mark stays, whether the evaluator, a rule or a person gave it, unless its sources have changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Case, Record, Run
from evalloom.llms.retry_until_valid import Best
from evalloom.prompt_eval.folder import (
    Folder,
    copy_to_backup,
    raise_if_invalid,
    read_object,
    read_records,
    require_artifact,
    write_json,
)
from evalloom.prompt_eval.plan import TestPlan, TestPoint
from evalloom.prompt_eval.scores import Mark, ScoredCase, case_definition, output_digest, read_scored, write_scored
from evalloom.prompt_eval.steps import provenance
from evalloom.prompt_eval.steps.context import BatchRuns, StepContext, as_case
from evalloom.prompt_eval.steps.evaluator import Judgement, evaluator, judgement_of, refresh
from evalloom.prompt_eval.steps.provenance import (
    Provenance,
    digest,
    load_for_step,
    mark_batch_used,
    write_artifact,
)
from evalloom.prompt_eval.steps.rules import score_by_rules, unused_rules, validate_rules
from evalloom.prompt_eval.steps.table import TableOptions, write_own
from evalloom.ui.workbook import require_openpyxl


class ScoreResult(Struct, frozen=True):
    """The outcome of the step: the scored cases in order, how many were scored now, and errors of the answers."""

    cases: list[ScoredCase]
    processed: int = 0
    answer_errors: dict[str, str] = {}
    """Errors of the evaluator's final answers, by test_id."""
    is_rebuilt: bool = False
    """Whether earlier scores were stale and all cases were scored again."""

    @property
    def incomplete(self) -> list[ScoredCase]:
        return [case for case in self.cases if case.missing]


def score(
    context: StepContext, redo: bool = False, repeat: int = 1, excel: bool = False, xlsx: bool = False
) -> ScoreResult:
    """Score every output that has no complete score yet, and write the scored results and the CSV."""
    folder, plan = context.folder, context.plan
    validate_rules(plan)
    tables = _tables(folder, xlsx)
    results = read_records(require_artifact(folder.results, "run", folder))
    raise_if_invalid([*results.findings, *results.not_run()], folder.results)
    require_unchanged_prompt(context)
    for warning in _warnings(context, results.values):
        context.options.warn(warning)
    scorer = _Scorer(context, redo)
    batch = scorer.ask(results.values, repeat)
    judgements = {run.case_id: _judgement(run, plan) for run in batch.runs if not run.repeat}
    failures = read_object(folder.failures)
    cases = [scorer.scored(record, judgements.get(record["test_id"]), failures) for record in results.values]
    scorer.protect_existing(cases, judgements, batch.id)
    scorer.write(cases, batch)
    if repeat > 1 and any(not judgement.answer.has_no_marks for judgement in judgements.values()):
        write_json(folder.repeats, _repeats(batch, cases, scorer.source, plan))
    for path in tables:
        for finding in write_own(folder, path, cases, plan.ids, TableOptions(excel=excel)):
            context.options.warn(str(finding))
    errors = {test_id: "; ".join(judgement.errors) for test_id, judgement in judgements.items() if judgement.errors}
    return ScoreResult(cases, scorer.count, errors, scorer.artifact.is_outdated)


def _tables(folder: Folder, xlsx: bool) -> list[Path]:
    """Return the tables to write; an existing workbook is updated too."""
    if not xlsx and not folder.sheet.is_file():
        return [folder.table]
    require_openpyxl()
    return [folder.table, folder.sheet]


def require_unchanged_prompt(context: StepContext) -> None:
    """Raise if the prompt has changed since its outputs were made: they would be scored against another prompt.

    Only warns if the outputs have edits by hand.
    """
    results = provenance.load(context.folder, "run", context.folder.results)
    if results.provenance.prompt in ("", context.prompt.target.digest):
        return
    message = f"{context.prompt.name}: has changed since {context.folder.results.as_posix()} was made"
    if results.state != "edited":
        raise usage_error("prompt_changed", f"{message}. First: evalloom prompt-eval run {context.folder}")
    context.options.warn(f"{message}; there are edits in it, so it is used as it is [prompt_changed]")


def _warnings(context: StepContext, results: list[Record]) -> Iterator[str]:
    """Warn before the judge is paid for: cases without a run, and rules that apply to no case."""
    if context.folder.cases.is_file():
        ids = {record["test_id"] for record in results}
        cases = [record.get("test_id") for record in read_records(context.folder.cases).values]
        if not_run := [test_id for test_id in cases if test_id not in ids]:
            message = f"{context.folder.cases.as_posix()}: {', '.join(map(str, not_run[:5]))}"
            message += f" and {len(not_run) - 5} more" if len(not_run) > 5 else ""
            yield f"{message} not run yet. First: evalloom prompt-eval run {context.folder} [case_not_run]"
    outputs = [(record, record["result_aftertest"]) for record in results if record["result_aftertest"] is not None]
    yield from (
        f"{context.plan.path.as_posix()}: {message} [rule_never_asked]"
        for message in unused_rules(context.plan, outputs)
    )


class _Scorer:
    """Joins existing marks, rules and judgements into scored cases."""

    def __init__(self, context: StepContext, redo: bool) -> None:
        self._context = context
        self._target = evaluator(
            context.plan, context.yardstick, refresh(context.folder.prompt_b, context.plan, context.options.warn)
        )
        # Rules need no llm, so no profile is required.
        self.source = context.source(self._target, context.scorer) if context.plan.judged else digest("rules alone")
        self.artifact = load_for_step(context.folder, "score", context.folder.scored, self.source, redo)
        self._rules = {
            point.id: digest(msgspec.to_builtins(point.rules)) for point in context.plan.points if point.rules
        }
        self._earlier: dict[str, ScoredCase] = {}
        self.count = 0
        if context.folder.scored.is_file():
            records = read_records(context.folder.scored)
            if not self.artifact.needs_rebuild:
                raise_if_invalid(records.findings, context.folder.scored)
            earlier = (read_scored(record, context.plan.ids) for record in records.values)
            self._earlier = {case.id: case for case in earlier}

    def _existing(self, record: Record) -> ScoredCase | None:
        """Return the existing marks of a case if it and its output have not changed."""
        case = None if self.artifact.needs_rebuild else self._earlier.get(record["test_id"])
        is_same = case is not None and all(case.record.get(name) == record.get(name) for name in _IDENTIFYING_FIELDS)
        return case if is_same else None

    def ask(self, records: list[Record], repeat: int) -> BatchRuns:
        """Run the evaluator on every output that lacks a mark, or on all outputs to measure its noise."""
        judged = [point.id for point in self._context.plan.judged]
        cases_to_judge: list[Case] = []
        has_incomplete = False
        for record in records:
            if record["result_aftertest"] is None:
                continue
            existing = self._existing(record)
            lacks_marks = existing is None or not all(existing.marks[point].is_complete for point in judged)
            self.count += lacks_marks or any(self._is_due(existing, point) for point in self._context.plan.points)
            has_incomplete |= lacks_marks and existing is not None
            if judged and (lacks_marks or repeat > 1):
                inputs = {"test_case": case_definition(record), "result_aftertest": record["result_aftertest"]}
                cases_to_judge.append(as_case(record["test_id"], inputs))
        if not cases_to_judge:
            return BatchRuns(self.artifact.provenance.batch)
        # Bypass the cache for incomplete cases: it would return the same answer.
        options = {"repeat": repeat, **({"cache": False} if has_incomplete else {})}
        return self._context.run_batch(self.artifact, self._target, self._context.scorer, cases_to_judge, **options)

    def _is_due(self, existing: ScoredCase | None, point: TestPoint) -> bool:
        """Whether rules must score a test point: its mark is missing, or the rules have changed."""
        if not point.rules:
            return False
        is_same = self.artifact.provenance.rules.get(point.id, self._rules[point.id]) == self._rules[point.id]
        return existing is None or not existing.marks[point.id].is_complete or not is_same

    def scored(self, record: Record, judgement: Best[Judgement] | None, failures: Record) -> ScoredCase:
        """Build a scored case: existing marks first, then those of rules and of the evaluator."""
        plan, existing = self._context.plan, self._existing(record)
        if record["result_aftertest"] is None:
            failure = failures.get(record["test_id"], "")
            return ScoredCase(
                record, {point: Mark() for point in plan.ids}, f"run failed: {failure}" if failure else ""
            )
        marks = {point.id: self._mark(point, record, judgement, existing) for point in plan.points}
        new_comment = judgement.answer.comment if judgement else "" if plan.judged else _summarize(marks)
        written = existing.remark if existing and not existing.remark.startswith(_GENERATED_COMMENTS) else ""
        # Keep the fields and the comment that users added to the case.
        custom_fields = case_definition(existing.record) if existing else {}
        return ScoredCase(
            {**custom_fields, **record}, marks, written or new_comment or (existing.remark if existing else "")
        )

    def _mark(
        self, point: TestPoint, record: Record, judgement: Best[Judgement] | None, existing: ScoredCase | None
    ) -> Mark:
        earlier = existing.marks[point.id] if existing else Mark()
        if point.rules:
            return (
                score_by_rules(point, record, record["result_aftertest"]) if self._is_due(existing, point) else earlier
            )
        if earlier.is_complete or judgement is None:
            return earlier
        judged = judgement.answer.marks.get(point.id, Mark())
        # Never replace a score with a missing one: a score without a reason is still a score.
        return judged if judged.score is not None or earlier.score is None else earlier

    def protect_existing(self, cases: list[ScoredCase], judgements: dict[str, Best[Judgement]], batch: str) -> None:
        """Protect existing scores from replacement: raise if there are no new scores, back up if some are missing."""
        path = self._context.folder.scored
        if not self.artifact.needs_rebuild or not judgements or not path.is_file():
            return
        if all(judgement.answer.has_no_marks for judgement in judgements.values()):
            mark_batch_used(self.artifact, batch)
            message = f"no answer had a score, so {path.as_posix()} stays as it was"
            raise EvalloomError("nothing_answered", f"{message}: {next(iter(judgements.values())).errors[0]}")
        if any(case.missing and self._loses_marks(case) for case in cases):
            copy_to_backup(path, "before", self._context.options.warn)

    def _loses_marks(self, case: ScoredCase) -> bool:
        """Whether a complete mark of the earlier results is missing or different now."""
        earlier = self._earlier.get(case.id)
        return earlier is not None and any(
            mark.is_complete and case.marks.get(point) != mark for point, mark in earlier.marks.items()
        )

    def write(self, cases: list[ScoredCase], batch: BatchRuns) -> None:
        """Write the scored results and their provenance."""
        judge = self._context.scorer.name if self._context.plan.judged else ""
        source = Provenance(self.source, service=judge, batch=batch.id, rules=self._rules)
        rows = [write_scored(case) for case in cases]
        write_artifact(self.artifact, source, rows, self._context.options.warn)


_IDENTIFYING_FIELDS = ("input", "test_category", "test_subcategory", "eval_type", "result_aftertest")
"""The fields that identify a case and its output; a description may be reworded."""
_NO_ANSWER, _ALL_HOLD, _BELOW = "The evaluator gave no answer: ", "Every rule holds.", "Below 3: "
_GENERATED_COMMENTS = (_NO_ANSWER, _ALL_HOLD, _BELOW)
"""Prefixes of comments that are generated here, and so generated again."""


def _judgement(run: Run, plan: TestPlan) -> Best[Judgement]:
    if run.error:
        # Nothing is guessed without an answer: every mark is missing, and the comment gives the reason.
        missing = {point.id: Mark() for point in plan.judged}
        return Best(Judgement(missing, f"{_NO_ANSWER}{run.error}"), (run.error,))
    return judgement_of(run.output.value)


def _summarize(marks: dict[str, Mark]) -> str:
    """Summarize the marks of rules in one sentence."""
    below = [f"{point} {mark.score}" for point, mark in marks.items() if mark.score in (1, 2)]
    return f"{_BELOW}{', '.join(below)}." if below else _ALL_HOLD


def _repeats(batch: BatchRuns, cases: list[ScoredCase], source: str, plan: TestPlan) -> Record:
    """Return the scores of each repeat by test_id, with the digests of the judge and of the output."""
    outputs = {case.id: output_digest(case.record["result_aftertest"]) for case in cases}
    repeats: Record = {}
    for run in sorted(batch.runs, key=lambda run: run.repeat):
        about = {"judge": source, "result": outputs[run.case_id], "scores": []}
        marks = _judgement(run, plan).answer.marks
        repeats.setdefault(run.case_id, about)["scores"].append({one: mark.score for one, mark in marks.items()})
    return repeats
