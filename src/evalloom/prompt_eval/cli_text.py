"""Formats the output of `evalloom prompt-eval`: the outcome of each step, and the next command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote

import msgspec

from evalloom.console.layout import Line, table_lines, unbroken
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Finding, Record
from evalloom.core.text import one_line, pluralize, printable
from evalloom.prompt_eval.analysis.scorecard import PointFigures, Scorecard, count_bad_but_passed
from evalloom.prompt_eval.folder import Folder
from evalloom.prompt_eval.reports.content import average, bad_cases, interval, rate, safety_note, status
from evalloom.prompt_eval.scores import ScoredCase
from evalloom.prompt_eval.steps.check import ArtifactFindings
from evalloom.prompt_eval.steps.context import StepContext
from evalloom.prompt_eval.steps.generate import GenerateResult
from evalloom.prompt_eval.steps.improve import ImprovementAttempt
from evalloom.prompt_eval.steps.review import ReviewResult
from evalloom.prompt_eval.steps.run import RunResult
from evalloom.prompt_eval.steps.score import ScoreResult
from evalloom.prompt_eval.steps.table import TableResult
from evalloom.prompt_eval.workflow import PlanResult, ReportResult

_STYLES = {"error": "red", "warning": "yellow", "info": "dim"}
_SHOWN = 5
_NEXT = {
    "generate": "review and edit {dir}/test_plan.yaml, then: {command} generate {dir}",
    "generate again": "{command} generate {dir} generates the missing cases; or change the plan",
    "run": "review {dir}/test_cases.json, then: {command} run {dir}",
    "score": "review {dir}/prompt_b.md, the prompt of the judge, then: {command} score {dir}",
    "score again": "{command} score {dir} scores the incomplete cases again",
    "report": "open {dir}/final_scored_results.csv, then: {command} report {dir}",
    "improve": "open {dir}/final_report.html. For a better prompt: {command} improve {dir}",
    "read report": "open {dir}/final_report.html",
    "report again": "{command} report {dir}, which now shows how well the judge agrees with people",
}
_COMMAND = lazy_pattern(r"{command} \w+ {dir}")


def next_step(name: str, folder: Folder) -> Line:
    """Return the line that names the next command."""
    sentence = _COMMAND.sub(lambda match: unbroken(match[0]), _NEXT[name])
    return f"Next: {sentence.format(command=unbroken('evalloom prompt-eval'), dir=_shell_path(folder))}", "bold"


def _shell_path(path: object) -> str:
    """Quote a path for a shell."""
    return printable(quote(str(path)))


def after_scoring(cases: Sequence[ScoredCase], otherwise: str) -> str:
    """Return the next step; missing scores come first."""
    return "score again" if any(case.missing for case in cases) else otherwise


def after_report(result: ReportResult) -> str:
    can_improve = any(case.is_bad and not case.is_failed for case in result.cases)
    return after_scoring(result.cases, "improve" if can_improve else "read report")


def _step_line(step: str, summary: str) -> Line:
    return f"{step:<9} {printable(summary)}", ""


def _detail_line(summary: str, style: str = "") -> Line:
    return f"          {one_line(summary, 300)}", style


def _first_lines(lines: Sequence[str], style: str = "yellow") -> Iterator[Line]:
    """Yield the first lines, and how many more there are."""
    yield from (_detail_line(line, style) for line in lines[:_SHOWN])
    if len(lines) > _SHOWN:
        yield _detail_line(f"… and {len(lines) - _SHOWN} more", "dim")


def finding_line(finding: Finding) -> str:
    """Format a finding, with the id of its case."""
    message = f"{finding.case_id}: {finding.message}" if finding.case_id else finding.message
    return printable(str(msgspec.structs.replace(finding, message=message)))


def finding_json(finding: Finding) -> str:
    return msgspec.json.encode(finding).decode()


# -- steps --------------------------------------------------------------------------------------------


def plan_lines(folder: Folder, result: PlanResult) -> Iterator[Line]:
    """Yield the outcome of `plan`."""
    plan = result.plan
    core = sum(point.is_core for point in plan.points)
    by_rule = len(plan.points) - len(plan.judged)
    cases = sum(plan.dimensions.values())
    how = {"kept": "as it was", "drafted": "drafted"}.get(result.how, f"taken from {result.how}")
    summary = f"{pluralize(len(plan.points), 'test point')}, {core} core, {by_rule} scored by rules; "
    yield _step_line("plan", f"{folder.plan.as_posix()}: {summary}{pluralize(cases, 'case')} planned; {how}")
    if result.differs:
        yield _detail_line(f"{result.differs} differs; 'plan --redo' copies it into the folder", "yellow")


def plan_json(result: PlanResult) -> Record:
    return {
        "plan": result.plan.path.as_posix(),
        "prompt": result.prompt,
        "test_points": list(result.plan.ids),
        "cases_planned": sum(result.plan.dimensions.values()),
        "how": result.how,
    }


def generate_lines(folder: Folder, result: GenerateResult) -> Iterator[Line]:
    """Yield the outcome of `generate`."""
    refused = f", {pluralize(len(result.refused), 'proposal')} refused" if result.refused else ""
    yield _step_line(
        "generate", f"{folder.cases.as_posix()}: {pluralize(len(result.cases), 'case')}, {result.added} new{refused}"
    )
    yield from _first_lines(result.messages)
    yield from _first_lines(result.refused, "dim")


def generate_json(folder: Folder, result: GenerateResult) -> Record:
    return {
        "files": [folder.cases.as_posix()],
        "cases": len(result.cases),
        "added": result.added,
        "refused": result.refused,
        "shortfalls": result.shortfalls,
        "below_floor": result.below_floor,
    }


def run_lines(folder: Folder, result: RunResult) -> Iterator[Line]:
    """Yield the outcome of `run`."""
    failed = f", {pluralize(len(result.failures), 'run')} failed" if result.failures else ""
    summary = f"{pluralize(result.cases, 'case')}, {result.processed} run now{failed}"
    yield _step_line("run", f"{folder.results.as_posix()}: {summary}")
    if result.is_rebuilt:
        yield _detail_line("the prompt or the profile has changed, so all cases were run again", "yellow")
    yield from _first_lines([f"{test_id}: {why}" for test_id, why in result.failures.items()])
    if result.failures:
        rerun = unbroken(f"evalloom prompt-eval run {_shell_path(folder)} --rerun-failed")
        yield f"          {rerun} runs them again", "dim"


def run_json(folder: Folder, result: RunResult) -> Record:
    files = [folder.results.as_posix(), folder.failures.as_posix(), folder.prompt_b.as_posix()]
    return {"files": files, "cases": result.cases, "asked": result.processed, "failures": result.failures}


def score_lines(folder: Folder, result: ScoreResult) -> Iterator[Line]:
    """Yield the outcome of `score`."""
    failed = sum(case.is_failed for case in result.cases)
    done = len(result.cases) - failed - len(result.incomplete)
    bad = bad_cases(_bad(result.cases), count_bad_but_passed(result.cases), failed)
    summary = f"{pluralize(done, 'case')} scored, {result.processed} now, {bad}"
    summary += f", {len(result.incomplete)} incomplete" if result.incomplete else ""
    yield _step_line("score", f"{folder.table.as_posix()}: {summary}")
    if result.is_rebuilt:
        yield _detail_line("the plan, prompt_b or the judge has changed, so all cases were scored again", "yellow")
    yield from _first_lines([_incomplete(case, result.answer_errors.get(case.id, "")) for case in result.incomplete])
    missing = {case.id for case in result.incomplete}
    yield from _first_lines(
        [f"{test_id}: {error}" for test_id, error in result.answer_errors.items() if test_id not in missing], "dim"
    )


def _incomplete(case: ScoredCase, error: str) -> str:
    why = f" ({error})" if error else ""
    return f"{case.id}: scoring incomplete: {', '.join(case.missing)}{why}"


def _bad(cases: Sequence[ScoredCase]) -> int:
    return sum(case.is_bad is True for case in cases)


def score_json(folder: Folder, result: ScoreResult) -> Record:
    return {
        "files": [folder.table.as_posix(), folder.scored.as_posix(), folder.prompt_b.as_posix()],
        "cases": len(result.cases),
        "asked": result.processed,
        "bad": _bad(result.cases),
        "bad_but_passed": count_bad_but_passed(result.cases),
        "failed_runs": sum(case.is_failed for case in result.cases),
        "incomplete": {case.id: list(case.missing) for case in result.incomplete},
    }


def score_exit(cases: Sequence[ScoredCase], min_rate: float | None) -> int:
    """Return the exit code: 2 if a scoring is incomplete (EVAL-6), 1 below the minimum pass rate."""
    if any(case.missing for case in cases):
        return 2
    passed = sum(case.is_passed is True for case in cases)
    return int(min_rate is not None and (not cases or passed < min_rate * len(cases)))


def below(cases: Sequence[ScoredCase], min_rate: float | None) -> Iterator[Line]:
    """Yield a line if the pass rate is too low."""
    if min_rate is not None and score_exit(cases, min_rate) == 1:
        passed = sum(case.is_passed is True for case in cases)
        yield f"FAILED    pass rate {rate(passed, len(cases))} is below --fail-under {min_rate:.0%}", "bold red"


def report_lines(folder: Folder, result: ReportResult) -> Iterator[Line]:
    """Yield the figures of the report in a few lines."""
    card = result.scorecard
    summary = f"pass rate {rate(card.passed, card.rated)}" if card.rated else "no case is scored completely"
    if card.pass_interval is not None:
        summary += f" ({card.passed} of {card.rated} cases, 95 % CI {interval(card.pass_interval)})"
    summary += f", {bad_cases(card.bad, card.bad_but_passed, card.failed)}"
    summary += f", {card.incomplete} incomplete" if card.incomplete else ""
    yield _step_line("report", f"{folder.page.as_posix()} and .md: {summary}")
    if card.safety:
        yield _detail_line(f"safety failures: {', '.join(failure.case.id for failure in card.safety)}", "bold red")
    rows = [
        [point.id, average(point.tally), *map(str, point.tally.counts), _status(card, point), point.point.name]
        for point in card.points
    ]
    colors = {"good": "green", "fair": "yellow", "bad": "red"}
    styles = ["red" if safety_note(card, point) else colors.get(point.status, "") for point in card.points]
    yield from table_lines(["test point", "mean", "1s", "2s", "3s", "status", "name"], rows, styles, indent=10)
    yield from (_detail_line(remark, "yellow") for remark in result.remarks)


def _status(card: Scorecard, point: PointFigures) -> str:
    return ", ".join(filter(None, (status(point), safety_note(card, point))))


def report_json(folder: Folder, result: ReportResult) -> Record:
    card = result.scorecard
    return {
        "files": [folder.page.as_posix(), folder.report.as_posix()],
        "cases": card.cases,
        "scored": card.scored,
        "failed_runs": card.failed,
        "incomplete": card.incomplete,
        "bad": card.bad,
        "bad_but_passed": card.bad_but_passed,
        "safety_failures": [failure.case.id for failure in card.safety],
        "passed": card.passed,
        "rated": card.rated,
        "pass_rate": card.pass_rate,
        "pass_interval": card.pass_interval,
        "test_points": {
            point.id: {"average": point.tally.average, "status": point.status, "ones": point.tally.ones}
            for point in card.points
        },
        "remarks": list(result.remarks),
    }


def attempt_lines(context: StepContext, attempt: ImprovementAttempt) -> Iterator[Line]:
    """Yield the outcome of one attempt to improve the prompt."""
    folder = attempt.folder.as_posix()
    where = f"all {attempt.cases}" if attempt.cases == attempt.all_cases else f"{attempt.cases} of {attempt.all_cases}"
    summary = f"{pluralize(len(attempt.candidate.edits), 'change')}, tried on {where} cases"
    yield _step_line("improve", f"{folder}: {summary}")
    for edit in attempt.candidate.edits:
        yield _detail_line(f"{edit.change} ({', '.join(edit.evidence)})")
    for gate in attempt.improvement.gates:
        yield _detail_line(
            f"{'holds' if gate.holds else 'does not hold'}: {gate.requirement}: {gate.observed}", _GATE[gate.holds]
        )
    if attempt.is_promoted:
        yield f"PROMOTED  {printable(attempt.prompt.as_posix())}", "bold green"
        copy = f"cp {_shell_path(attempt.prompt)} {_shell_path(context.prompt.name)}"
        read = _shell_path(attempt.folder / "improvement.md")
        yield f"Next: read {read}; to adopt the candidate: {unbroken(copy)}", "bold"
    else:
        yield f"REJECTED  {printable(attempt.prompt.as_posix())}", "bold red"
        retry = f"{unbroken(f'evalloom prompt-eval improve {_shell_path(context.folder)}')} tries again"
        yield f"Next: read {_shell_path(attempt.folder / 'improvement.md')}; {retry}", "bold"


_GATE = {True: "green", False: "red"}


def attempt_json(attempt: ImprovementAttempt) -> Record:
    return {
        "folder": attempt.folder.as_posix(),
        "prompt": attempt.prompt.as_posix(),
        "promoted": attempt.is_promoted,
        "cases": attempt.cases,
        "all_cases": attempt.all_cases,
        "gates": {gate.name: gate.holds for gate in attempt.improvement.gates},
    }


# -- tables, checks, reviews --------------------------------------------------------------------------


def scored_table_lines(source: Path, result: TableResult) -> Iterator[Line]:
    """Yield the outcome of `table`."""
    if not result.paths:
        yield f"{printable(source.as_posix())}: no table was written", "bold red"
        return
    where = " and ".join(path.as_posix() for path in result.paths)
    summary = f"{pluralize(result.cases, 'case')}, {pluralize(len(result.points), 'test point')}"
    summary += f", {bad_cases(result.bad, result.bad_but_passed, result.failed)}"
    summary += f", {result.incomplete} incomplete" if result.incomplete else ""
    summary += f", {pluralize(result.unreadable, 'case')} left out that cannot be read" if result.unreadable else ""
    yield printable(f"{where}: {summary}"), "bold"


def table_json(result: TableResult) -> Record:
    return {
        "files": [path.as_posix() for path in result.paths],
        "test_points": list(result.points),
        "cases": result.cases,
        "bad": result.bad,
        "bad_but_passed": result.bad_but_passed,
        "failed_runs": result.failed,
        "incomplete": result.incomplete,
        "unreadable": result.unreadable,
        "errors": result.checked.count("error"),
        "warnings": result.checked.count("warning"),
    }


def check_lines(artifact: ArtifactFindings) -> Iterator[Line]:
    """Yield the findings of one artifact, and their number."""
    counted = Counter((finding.code, finding.message) for finding in artifact.findings)
    for finding in artifact.findings:
        number = counted.pop((finding.code, finding.message), 0)
        if number >= max(_SHOWN, artifact.cases // 2):
            # Usually the plan has changed and the cases are fine: print the finding once.
            summary = f"{finding.message} (also in {number - 1} more cases). If the plan has changed, score again"
            yield finding_line(msgspec.structs.replace(finding, message=summary, case_id="")), _STYLES[finding.severity]
        elif number:
            counted[finding.code, finding.message] = number
            yield finding_line(finding), _STYLES[finding.severity]
    cases = f"{pluralize(artifact.cases, 'case')}, " if artifact.cases else ""
    summary = f"{cases}{pluralize(artifact.count('error'), 'error')}, {pluralize(artifact.count('warning'), 'warning')}"
    yield f"{printable(artifact.path.as_posix())}: {summary}", "bold"


def review_lines(result: ReviewResult) -> Iterator[Line]:
    """Yield the outcome of `import-review`."""
    summary = f"{pluralize(result.scores, 'score')} of {pluralize(result.cases, 'case')}"
    summary += f", {result.added} new, {result.replaced} replaced"
    summary += f", {result.dropped} dropped that were about earlier outputs" if result.dropped else ""
    yield f"{printable(result.path.as_posix())}: {summary}", "bold"


def review_json(result: ReviewResult) -> Record:
    return {
        "file": result.path.as_posix(),
        "cases": result.cases,
        "scores": result.scores,
        "added": result.added,
        "replaced": result.replaced,
        "dropped": result.dropped,
    }
