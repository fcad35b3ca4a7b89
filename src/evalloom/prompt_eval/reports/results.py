"""Exports a batch of prompt-eval cases as their results (EVAL-1): with scores where a judge gave marks from 1 to 3."""

from __future__ import annotations

from typing import IO

from evalloom.core.model import Case, Record, Run, Scored, Verdict
from evalloom.core.text import quote
from evalloom.matchers.base import text_of
from evalloom.prompt_eval.dialect import FIELDS
from evalloom.prompt_eval.plan import SCORES, safety_last
from evalloom.prompt_eval.scores import Mark, ScoredCase, case_definition, write_scored
from evalloom.reports.exporters import cannot_export
from evalloom.reports.run_report import RunReport, encode

name = "prompt-eval"
suffix = ".prompt-eval.json"
_SCALE = [SCORES[0], SCORES[-1]]


def render(report: RunReport, stream: IO[bytes]) -> None:
    points: dict[str, None] = {}
    for run, scored in report.rows:
        if run.raw:
            _refuse_other_case(run)
            points.update(dict.fromkeys(verdict.name for verdict in scored.verdicts if _is_point(verdict)))
    ordered = safety_last(list(points))
    before = b"[\n"
    for run, scored in report.rows:
        if run.raw:
            stream.write(before + encode(_row(run, scored, report.case_of(run), ordered)))
            before = b",\n"
    stream.write(b"\n]\n" if before == b",\n" else b"[]\n")


def _refuse_other_case(run: Run) -> None:
    missing = [field for field in FIELDS if field not in run.raw]
    if missing:
        message = f"the case {quote(run.case_id)} is not a prompt-eval test case: it has no {', '.join(missing)}"
        hint = "Convert the dataset with 'evalloom convert FILE --to prompt-eval', and run that"
        if not run.dialect:  # a step of ours, or Python, which pass inputs only
            hint = "The results of 'evalloom prompt-eval' are in its folder: final_scored_results.json"
        raise cannot_export(name, f"{message}. {hint}")


def _row(run: Run, scored: Scored, case: Case | None, points: list[str]) -> Record:
    # The format has one result for a test_id. What it has no field for goes into one that its readers keep.
    kept = {"profile": run.profile, "repeat": run.repeat, "status": scored.status}
    why = run.error or run.skipped or run.blocked
    record = {
        **case_definition(run.raw),
        "result_aftertest": None if why else text_of(run.output.value),
        "evalloom": {**kept, "error": why} if why else kept,
    }
    if not points:
        return record
    marks = {point: Mark() for point in points}
    checks = case.checks if case else ()
    scales = {check.name: check.options.get("scale") for check in checks if check.kind == "judge"}
    for verdict in scored.verdicts:
        if _is_point(verdict) and scales.get(verdict.name) == _SCALE and verdict.score in SCORES:
            marks[verdict.name] = Mark(int(verdict.score), verdict.reason)
    return write_scored(ScoredCase(record, marks, f"run failed: {why}" if why else ""))


def _is_point(verdict: Verdict) -> bool:
    return verdict.kind == "judge" and verdict.name.startswith("TP")
