"""Step 5: the evaluator over the outputs, on the engine; the scored results are a view of the batch (EVAL-6)."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import msgspec
from msgspec import Struct

from evalloom.asking.again import Best
from evalloom.dialects.prompt_eval_citing import uncited
from evalloom.dialects.prompt_eval_plan import TestPlan
from evalloom.dialects.prompt_eval_scores import Mark, ScoredCase, definition, read_scored, write_scored
from evalloom.dialects.prompt_eval_table import holds_review, need_openpyxl
from evalloom.model import Finding, Record, Run, error
from evalloom.workbench.prompt_eval_evaluator import (
    Judgement,
    evaluator,
    judgement_of,
    refresh,
)
from evalloom.workbench.prompt_eval_folder import (
    Desk,
    Folder,
    Made,
    Records,
    as_case,
    digest,
    look_back,
    needed,
    note_made,
    read_object,
    read_records,
    refuse,
    write_json,
)
from evalloom.workbench.prompt_eval_rules import refuse_bad_rules, score_by_rules
from evalloom.workbench.prompt_eval_table import TableOptions, write_file


class Scoring(Struct, frozen=True):
    """How outputs are scored, and what came of it: cases in order, what was wrong with answers, and repeated scores."""

    cases: list[ScoredCase]
    asked: int = 0
    faults: dict[str, str] = {}
    """What was wrong with the answers of the evaluator that count, by test_id."""
    repeats: dict[str, list[dict[str, int | None]]] = {}
    """The scores of each time that a case was scored, where it was several times."""

    @property
    def incomplete(self) -> list[ScoredCase]:
        return [case for case in self.cases if case.missing]


def score(desk: Desk, redo: bool = False, repeat: int = 1, excel: bool = False, xlsx: bool = False) -> Scoring:
    """Scores every output that has no complete score yet, and writes the scored results and the one CSV."""
    folder, plan = desk.folder, desk.plan
    refuse_bad_rules(plan)
    tables = [folder.table]
    if xlsx or folder.sheet.is_file():
        need_openpyxl()
        tables.append(folder.sheet)
    results = read_records(needed(folder.results, "run", folder))
    refuse([*results.findings, *_not_run(results)], folder.results)
    prompt_b = refresh(folder.prompt_b, plan, desk.asking.warn)
    source = _source(desk, prompt_b)
    before = look_back(folder, "score", source, folder.scored, redo)
    kept = {} if before.is_anew else _kept(folder, results.values, plan)
    # Several scores of each case show the judge's noise; what is scored already keeps its score all the same.
    todo = [record for record in results.values if repeat > 1 or record["test_id"] not in kept]
    failures = read_object(folder.failures)
    # What came out incomplete is asked again in earnest: the cache would give the same answer.
    options = {} if before.is_anew else {"cache": False}
    found = judge(desk, prompt_b, todo, failures, repeat=repeat, **options)
    by_id = {case.id: case for case in found.cases} | kept
    scoring = msgspec.structs.replace(found, cases=[by_id[record["test_id"]] for record in results.values])
    write_json(folder.scored, [write_scored(case) for case in scoring.cases])
    _write_tables(desk, scoring.cases, tables, excel)
    if repeat > 1:
        write_json(folder.repeats, scoring.repeats)
    who = desk.asking.scorer(desk.known).name if plan.judged else ""
    note_made(folder, "score", Made(source, who=who, is_edited=before.is_edited), folder.scored)
    return scoring


def _write_tables(desk: Desk, cases: list[ScoredCase], paths: list[Path], excel: bool) -> None:
    """Writes the one CSV, and the workbook where it is wanted; a table that people have written in is put aside."""
    for path in paths:
        if holds_review(path):
            aside = _free_name(path)
            path.rename(aside)
            told = f"{path.as_posix()}: has scores of people in it; it is now {aside.name}"
            desk.asking.warn(f"{told} [review_put_aside]")
        for finding in write_file(path, cases, desk.plan.ids, TableOptions(excel=excel)):
            desk.asking.warn(str(finding))


def _free_name(path: Path) -> Path:
    names = (path.with_name(f"{path.stem}.reviewed{number or ''}{path.suffix}") for number in count())
    return next(name for name in names if not name.exists())


def _source(desk: Desk, prompt_b: str) -> str:
    rules = msgspec.to_builtins([point.rules for point in desk.plan.points])
    target = evaluator(desk.plan, desk.prompt.text, prompt_b)
    # Rules alone need no llm, so none is asked for.
    return desk.source(target, desk.asking.scorer(desk.known), rules) if desk.plan.judged else digest(rules)


def _not_run(results: Records) -> list[Finding]:
    """Cases that nobody has run; a run that failed has a null there."""
    remark = error("no_result_yet", (), "result_aftertest: missing; this case was not run yet")
    return [results.placed(row, remark) for row in results.rows if "result_aftertest" not in row.value]


def _kept(folder: Folder, results: list[Record], plan: TestPlan) -> dict[str, ScoredCase]:
    """The cases that are scored already, completely, and whose output is what it was then."""
    if not folder.scored.is_file():
        return {}
    scored = read_records(folder.scored)
    refuse(scored.findings, folder.scored)
    outputs = {one["test_id"]: (definition(one), one["result_aftertest"]) for one in results}
    before = [read_scored(one, plan.ids) for one in scored.values]
    return {
        case.id: case
        for case in before
        if case.is_complete and outputs.get(case.id) == (definition(case.record), case.record["result_aftertest"])
    }


def judge(
    desk: Desk, prompt_b: str, records: list[Record], failures: dict[str, str], repeat: int = 1, **options: object
) -> Scoring:
    """The marks of these outputs: from rules where a test point has some, else from the evaluator."""
    target = evaluator(desk.plan, desk.prompt.text, prompt_b)
    scored = [one for one in records if one["result_aftertest"] is not None] if desk.plan.judged else []
    given = tuple(
        as_case(one["test_id"], {"test_case": definition(one), "result_aftertest": one["result_aftertest"]})
        for one in scored
    )
    runs: dict[str, list[Run]] = {one["test_id"]: [] for one in scored}
    if given:
        for run in desk.runs(target, desk.asking.scorer(desk.known), given, repeat=repeat, **options):
            runs[run.case_id].append(run)
    cases: list[ScoredCase] = []
    faults: dict[str, str] = {}
    for one in records:
        answers = [_judgement(run, desk.plan) for run in runs.get(one["test_id"], [])[:1]]
        first = answers[0] if answers else Best(Judgement())
        cases.append(_scored(desk.plan, one, first, failures.get(one["test_id"], "")))
        if first.faults:
            faults[one["test_id"]] = "; ".join(first.faults)
    repeats = {name: _scores(found, desk.plan) for name, found in runs.items()} if repeat > 1 else {}
    return Scoring(cases, sum(not case.is_failed for case in cases), faults, repeats)


def _judgement(run: Run, plan: TestPlan) -> Best[Judgement]:
    if run.error:
        # Nothing is guessed where nobody answered: every mark is missing, and the comment says why.
        missing = {point.id: Mark() for point in plan.judged}
        return Best(Judgement(missing, f"The evaluator gave no answer: {run.error}"), (run.error,))
    return judgement_of(run.output.value)


def _scored(plan: TestPlan, record: Record, judgement: Best[Judgement], failure: str) -> ScoredCase:
    result = record["result_aftertest"]
    if result is None:
        return ScoredCase(record, {one: Mark() for one in plan.ids}, f"run failed: {failure}" if failure else "")
    marks = {
        point.id: score_by_rules(point, record, result) if point.rules else judgement.answer.marks.get(point.id, Mark())
        for point in plan.points
    }
    comment = judgement.answer.comment if plan.judged else _summed_up(plan, marks)
    return ScoredCase(record, marks, comment)


def _summed_up(plan: TestPlan, marks: dict[str, Mark]) -> str:
    """What rules alone come to, in one sentence."""
    below = [f"{point.id} {marks[point.id].score}" for point in plan.points if marks[point.id].score in (1, 2)]
    return f"Below 3: {', '.join(below)}." if below else "Every rule holds."


def _scores(runs: list[Run], plan: TestPlan) -> list[dict[str, int | None]]:
    """What the test points got each time."""
    answers = [_judgement(run, plan).answer for run in sorted(runs, key=lambda run: run.repeat)]
    return [{one: mark.score for one, mark in answer.marks.items()} for answer in answers]


def uncited_reasons(cases: list[ScoredCase]) -> dict[str, list[str]]:
    """The reasons that quote nothing of the output, by test_id (EVAL-10)."""
    found = {case.id: [remark.message for remark in uncited(case)] for case in cases}
    return {one: messages for one, messages in found.items() if messages}
