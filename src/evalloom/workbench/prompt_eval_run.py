"""Step 3: prompt_a over its cases, on the engine; the results file is a view of the batch (EVAL-5)."""

from __future__ import annotations

from msgspec import Struct

from evalloom.dialects.prompt_eval_scores import definition
from evalloom.matchers.matcher import text_of
from evalloom.model import Record
from evalloom.workbench.prompt_eval_evaluator import refresh
from evalloom.workbench.prompt_eval_folder import (
    Desk,
    Folder,
    Made,
    as_case,
    look_back,
    needed,
    note_made,
    read_object,
    read_records,
    refuse,
    write_json,
)

Results = dict[str, str | None]
"""The output of each case, by test_id; None where the run failed."""


class Ran(Struct, frozen=True):
    """What came of running the prompt: `asked` cases were run now, the others were there already."""

    cases: int
    asked: int
    failures: dict[str, str]


def run(desk: Desk, rerun_failed: bool = False, redo: bool = False) -> Ran:
    """Runs prompt_a on every case that has no result yet, and writes the results."""
    folder = desk.folder
    cases = read_records(needed(folder.cases, "generate", folder))
    refuse(cases.findings, folder.cases)
    profile = desk.asking.runner(desk.known)
    source = desk.source(desk.prompt.target, profile)
    before = look_back(folder, "run", source, folder.results, redo)
    kept = {} if before.is_anew else _kept(folder, cases.values, rerun_failed)
    todo = [record for record in cases.values if record["test_id"] not in kept]
    results, failures = answers(desk, todo)
    results |= kept
    failures |= {one: why for one, why in read_object(folder.failures).items() if results.get(one, "") is None}
    write_json(
        folder.results,
        [{**definition(one), "result_aftertest": results[one["test_id"]]} for one in cases.values],
    )
    write_json(folder.failures, failures)
    note_made(folder, "run", Made(source, who=profile.name, is_edited=before.is_edited), folder.results)
    # Step 4 stands ready to be read and edited before the judge is paid.
    refresh(folder.prompt_b, desk.plan, desk.asking.warn)
    failed = {one: failures.get(one, "nobody wrote down why") for one, text in results.items() if text is None}
    return Ran(len(cases.values), len(todo), failed)


def answers(desk: Desk, records: list[Record]) -> tuple[Results, dict[str, str]]:
    """The outputs of the prompt for these cases, and why there is none where there is none."""
    given = tuple(as_case(record["test_id"], record["input"]) for record in records)
    results: Results = {}
    failures: dict[str, str] = {}
    for one in desk.runs(desk.prompt.target, desk.asking.runner(desk.known), given):
        results[one.case_id] = None if one.error else text_of(one.output.value)
        if one.error:
            failures[one.case_id] = one.error
    return results, failures


def _kept(folder: Folder, cases: list[Record], rerun_failed: bool) -> Results:
    """The results that are there already and belong to the cases as they are now."""
    if not folder.results.is_file():
        return {}
    before = read_records(folder.results)
    refuse(before.findings, folder.results)
    defined = {record["test_id"]: definition(record) for record in cases}
    return {
        record["test_id"]: record["result_aftertest"]
        for record in before.values
        if "result_aftertest" in record
        and defined.get(record["test_id"]) == definition(record)
        and not (rerun_failed and record["result_aftertest"] is None)
    }
