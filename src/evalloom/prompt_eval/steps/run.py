"""Step 3: runs prompt_a on its cases with the engine; the results file is a view of the batch (EVAL-5)."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from evalloom.core.errors import EvalloomError
from evalloom.core.model import Record, Remark, warning
from evalloom.core.text import quote
from evalloom.matchers.base import text_of
from evalloom.prompt_eval.folder import (
    Folder,
    copy_to_backup,
    raise_if_invalid,
    read_object,
    read_records,
    require_artifact,
    write_json,
)
from evalloom.prompt_eval.scores import case_definition
from evalloom.prompt_eval.steps.context import StepContext, as_case
from evalloom.prompt_eval.steps.evaluator import refresh
from evalloom.prompt_eval.steps.provenance import Provenance, load_for_step, mark_batch_used, write_artifact
from evalloom.targets import BuiltTarget

Results = dict[str, str | None]
"""The output of each case, by test_id; None where the run failed."""


class RunResult(Struct, frozen=True):
    """The outcome of the step: `processed` cases were run now, the others already had a result."""

    cases: int
    processed: int
    failures: dict[str, str]
    is_rebuilt: bool = False
    """Whether earlier results were stale and all cases were run again."""


def run(context: StepContext, rerun_failed: bool = False, redo: bool = False) -> RunResult:
    """Run prompt_a on every case that has no result yet, and write the results."""
    folder, target, profile = context.folder, context.prompt.target, context.runner
    cases = read_records(require_artifact(folder.cases, "generate", folder))
    raise_if_invalid(cases.findings, folder.cases)
    # Warn before any call is paid for. The first case is enough: cases of one prompt have the same fields.
    for remark in input_remarks(target, cases.values[0]) if cases.values else ():
        if remark.code == "input_not_sent":
            context.options.warn(f"{context.prompt.name}: {remark.message} [{remark.code}]")
    source = context.source(target, profile)
    artifact = load_for_step(folder, "run", folder.results, source, redo)
    reusable = {} if artifact.needs_rebuild else _reusable_results(folder, cases.values, rerun_failed)
    pending = [record for record in cases.values if record["test_id"] not in reusable]
    batch = context.run_batch(
        artifact, target, profile, [as_case(record["test_id"], record["input"]) for record in pending]
    )
    results: Results = {run.case_id: None if run.error else text_of(run.output.value) for run in batch.runs}
    failures = {run.case_id: run.error for run in batch.runs if run.error}
    if artifact.needs_rebuild and failures and folder.results.is_file():
        if len(failures) == len(pending):
            mark_batch_used(artifact, batch.id)
            why = f"{folder.results.as_posix()} stays as it was: {next(iter(failures.values()))}"
            raise EvalloomError("nothing_answered", f"every call failed, so {why}")
        copy_to_backup(folder.results, "before", context.options.warn)
    results |= reusable
    reasons = {**read_object(folder.failures), **failures}
    failed = {test_id: reasons.get(test_id) or "unknown reason" for test_id in results if results[test_id] is None}
    # Write the reasons first, so that every null result has one.
    write_json(folder.failures, failed)
    rows = [{**case_definition(case), "result_aftertest": results[case["test_id"]]} for case in cases.values]
    provenance = Provenance(source, service=profile.name, batch=batch.id, prompt=target.digest)
    write_artifact(artifact, provenance, rows, context.options.warn)
    # Write prompt_b now, so that it can be edited before the judge is paid for.
    refresh(folder.prompt_b, context.plan, context.options.warn)
    return RunResult(len(rows), len(pending), failed, artifact.is_outdated)


def input_remarks(target: BuiltTarget, record: Record) -> Iterator[Remark]:
    """Compare the input of a case with the variables of the prompt."""
    inputs, takes = record.get("input"), target.takes
    if not isinstance(inputs, dict):
        return
    if unused := [name for name in inputs if name not in takes]:
        has = f"it takes {', '.join(sorted(takes))}" if takes else "it has no {{variable}}"
        message = f"input: {', '.join(map(quote, unused))} is not sent: the prompt does not name it; {has}"
        yield warning("input_not_sent", ("input",), message)
    if missing := sorted(target.variables - inputs.keys()):
        message = f"input: {', '.join(map(quote, missing))} missing, which the prompt needs; the run would fail"
        yield warning("missing_variable", ("input",), message)


def _reusable_results(folder: Folder, cases: list[Record], rerun_failed: bool) -> Results:
    """Return the existing results whose inputs have not changed."""
    if not folder.results.is_file():
        return {}
    existing = read_records(folder.results)
    raise_if_invalid(existing.findings, folder.results)
    inputs = {record["test_id"]: record["input"] for record in cases}
    return {
        record["test_id"]: record["result_aftertest"]
        for record in existing.values
        if "result_aftertest" in record
        and inputs.get(record["test_id"]) == record["input"]
        and not (rerun_failed and record["result_aftertest"] is None)
    }
