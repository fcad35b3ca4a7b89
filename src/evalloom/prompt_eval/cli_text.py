"""What `evalloom prompt-eval` prints: what each step came to, and what to type next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote

import msgspec

from evalloom.console.run_text import Line, short
from evalloom.core.model import Finding, Record
from evalloom.prompt_eval.folder import Folder
from evalloom.prompt_eval.reports.content import STATUS_WORDS, average, interval, rate
from evalloom.prompt_eval.scores import ScoredCase
from evalloom.prompt_eval.steps.check import ArtifactFindings
from evalloom.prompt_eval.steps.context import StepContext
from evalloom.prompt_eval.steps.generate import GenerateResult
from evalloom.prompt_eval.steps.improve import Attempt
from evalloom.prompt_eval.steps.review import ReviewResult
from evalloom.prompt_eval.steps.run import RunResult
from evalloom.prompt_eval.steps.score import ScoreResult
from evalloom.prompt_eval.steps.table import TableResult
from evalloom.prompt_eval.workflow import PlanResult, ReportResult
from evalloom.reports.lint import printable, tell

_STYLES = {"error": "red", "warning": "yellow", "info": "dim"}
_SHOWN = 5
_NEXT = {
    "generate": "look at {dir}/test_plan.yaml, change what you like, then: evalloom prompt-eval generate {dir}",
    "generate again": "evalloom prompt-eval generate {dir} asks for what is missing; or change the plan",
    "run": "look at {dir}/test_cases.json, then: evalloom prompt-eval run {dir}",
    "score": "look at {dir}/prompt_b.md, which the judge is asked with, then: evalloom prompt-eval score {dir}",
    "score again": "evalloom prompt-eval score {dir} asks again for the scores that are missing",
    "report": "open {dir}/final_scored_results.csv, then: evalloom prompt-eval report {dir}",
    "improve": "open {dir}/final_report.html. For a better prompt: evalloom prompt-eval improve {dir}",
    "look": "open {dir}/final_report.html",
    "report again": "evalloom prompt-eval report {dir}, which now says how far the judge can be trusted",
}


def next_step(name: str, folder: Folder) -> Line:
    return f"Next: {_NEXT[name].format(dir=_typed(folder))}", "bold"


def _typed(path: object) -> str:
    """A path as a shell takes it."""
    return printable(quote(str(path)))


def after_scoring(cases: Sequence[ScoredCase], otherwise: str) -> str:
    """The step that comes next: first of all, scores that are missing are asked for."""
    return "score again" if any(case.missing for case in cases) else otherwise


def after_report(found: ReportResult) -> str:
    can_improve = any(case.is_bad and not case.is_failed for case in found.cases)
    return after_scoring(found.cases, "improve" if can_improve else "look")


def _line(step: str, told: str) -> Line:
    return f"{step:<9} {printable(told)}", ""


def _more(told: str, style: str = "") -> Line:
    return f"          {short(told, 300)}", style


def _some(told: Sequence[str], style: str = "yellow") -> Iterator[Line]:
    """The first few of several lines, and how many more there are."""
    yield from (_more(one, style) for one in told[:_SHOWN])
    if len(told) > _SHOWN:
        yield _more(f"… and {len(told) - _SHOWN} more", "dim")


def shown(one: Finding) -> str:
    """A finding with the case that it is about, wherever that stands in the file."""
    named = f"{one.case_id}: {one.message}" if one.case_id else one.message
    return printable(str(msgspec.structs.replace(one, message=named)))


def shown_json(one: Finding) -> str:
    return msgspec.json.encode(one).decode()


# -- steps --------------------------------------------------------------------------------------------


def planned(folder: Folder, found: PlanResult) -> Iterator[Line]:
    """What became of the plan."""
    plan = found.plan
    core = sum(point.is_core for point in plan.points)
    by_rule = len(plan.points) - len(plan.judged)
    cases = sum(plan.dimensions.values())
    how = {"kept": "as it was", "drafted": "drafted"}.get(found.how, f"taken from {found.how}")
    told = f"{tell(len(plan.points), 'test point')}, {core} core, {by_rule} scored by rules; "
    yield _line("plan", f"{folder.plan.as_posix()}: {told}{tell(cases, 'case')} planned; {how}")
    if found.differs:
        yield _more(f"{found.differs} says something else; 'plan --redo' takes it over", "yellow")


def plan_facts(found: PlanResult) -> Record:
    return {
        "plan": found.plan.path.as_posix(),
        "prompt": found.prompt,
        "test_points": list(found.plan.ids),
        "cases_planned": sum(found.plan.dimensions.values()),
        "how": found.how,
    }


def generated(folder: Folder, found: GenerateResult) -> Iterator[Line]:
    """What became of the cases."""
    refused = f", {tell(len(found.refused), 'proposal')} refused" if found.refused else ""
    yield _line("generate", f"{folder.cases.as_posix()}: {tell(len(found.cases), 'case')}, {found.added} new{refused}")
    yield from _some(found.messages)
    yield from _some(found.refused, "dim")


def case_facts(folder: Folder, found: GenerateResult) -> Record:
    return {
        "files": [folder.cases.as_posix()],
        "cases": len(found.cases),
        "added": found.added,
        "refused": found.refused,
        "shortfalls": found.shortfalls,
        "below_floor": found.below_floor,
    }


def ran(folder: Folder, found: RunResult) -> Iterator[Line]:
    """What became of the runs."""
    failed = f", {tell(len(found.failures), 'run')} failed" if found.failures else ""
    told = f"{tell(found.cases, 'case')}, {found.processed} run now{failed}"
    yield _line("run", f"{folder.results.as_posix()}: {told}")
    if found.is_rebuilt:
        yield _more("the prompt or the profile has changed, so all cases were run anew", "yellow")
    yield from _some([f"{one}: {why}" for one, why in found.failures.items()])
    if found.failures:
        yield _more(f"evalloom prompt-eval run {_typed(folder)} --rerun-failed runs them again", "dim")


def run_facts(folder: Folder, found: RunResult) -> Record:
    files = [folder.results.as_posix(), folder.failures.as_posix(), folder.prompt_b.as_posix()]
    return {"files": files, "cases": found.cases, "asked": found.processed, "failures": found.failures}


def scored(folder: Folder, found: ScoreResult) -> Iterator[Line]:
    """What became of the scores."""
    failed = sum(case.is_failed for case in found.cases)
    done = len(found.cases) - failed - len(found.incomplete)
    told = f"{tell(done, 'case')} scored, {found.processed} now, {_bad(found.cases)} bad"
    told += f", {tell(failed, 'failed run')}" if failed else ""
    told += f", {len(found.incomplete)} incomplete" if found.incomplete else ""
    yield _line("score", f"{folder.table.as_posix()}: {told}")
    if found.is_rebuilt:
        yield _more("the plan, prompt_b or the judge has changed, so all cases were scored anew", "yellow")
    yield from _some([_incomplete(case, found.faults.get(case.id, "")) for case in found.incomplete])
    missing = {case.id for case in found.incomplete}
    yield from _some([f"{one}: {fault}" for one, fault in found.faults.items() if one not in missing], "dim")


def _incomplete(case: ScoredCase, fault: str) -> str:
    why = f" ({fault})" if fault else ""
    return f"{case.id}: scoring incomplete: {', '.join(case.missing)}{why}"


def _bad(cases: Sequence[ScoredCase]) -> int:
    return sum(case.is_bad is True for case in cases)


def score_facts(folder: Folder, found: ScoreResult) -> Record:
    return {
        "files": [folder.table.as_posix(), folder.scored.as_posix(), folder.prompt_b.as_posix()],
        "cases": len(found.cases),
        "asked": found.processed,
        "bad": _bad(found.cases),
        "failed_runs": sum(case.is_failed for case in found.cases),
        "incomplete": {case.id: list(case.missing) for case in found.incomplete},
    }


def score_exit(cases: Sequence[ScoredCase], least: float | None) -> int:
    """2 where a scoring is incomplete (EVAL-6), 1 below the least pass rate."""
    if any(case.missing for case in cases):
        return 2
    passed = sum(case.is_passed is True for case in cases)
    return int(least is not None and (not cases or passed < least * len(cases)))


def below(cases: Sequence[ScoredCase], least: float | None) -> Iterator[Line]:
    """Says so where the pass rate is too low."""
    if least is not None and score_exit(cases, least) == 1:
        passed = sum(case.is_passed is True for case in cases)
        yield f"FAILED    pass rate {rate(passed, len(cases))} is below --fail-under {least:.0%}", "bold red"


def reported(folder: Folder, found: ReportResult) -> Iterator[Line]:
    """The report in a few lines, with the figures as it shows them."""
    card = found.scorecard
    told = f"pass rate {rate(card.passed, card.rated)}" if card.rated else "no case is scored completely"
    if card.pass_interval is not None:
        told += f" (95 % interval {interval(card.pass_interval)})"
    told += f", {tell(card.bad, 'bad case')}"
    told += f", {tell(card.failed, 'failed run')}" if card.failed else ""
    told += f", {card.incomplete} incomplete" if card.incomplete else ""
    yield _line("report", f"{folder.page.as_posix()} and .md: {told}")
    if card.safety:
        yield _more(f"safety: {', '.join(one.case.id for one in card.safety)}", "bold red")
    for one in card.points:
        style = {"good": "green", "fair": "yellow", "bad": "red"}.get(one.status, "")
        ones, twos, threes = one.tally.counts
        figures = f"{average(one.tally):>5}   1: {ones:<4} 2: {twos:<4} 3: {threes:<4}"
        yield f"          {printable(f'{one.id:<24} {figures} {STATUS_WORDS[one.status]:<10} {one.point.name}')}", style
    yield from (_more(remark, "yellow") for remark in found.remarks)


def report_facts(folder: Folder, found: ReportResult) -> Record:
    card = found.scorecard
    return {
        "files": [folder.page.as_posix(), folder.report.as_posix()],
        "cases": card.cases,
        "scored": card.scored,
        "failed_runs": card.failed,
        "incomplete": card.incomplete,
        "bad": card.bad,
        "pass_rate": card.pass_rate,
        "pass_interval": card.pass_interval,
        "test_points": {one.id: {"average": one.tally.average, "status": one.status} for one in card.points},
        "remarks": list(found.remarks),
    }


def attempted(context: StepContext, attempt: Attempt) -> Iterator[Line]:
    """What became of a candidate."""
    folder = attempt.folder.as_posix()
    yield _line("improve", f"{folder}: {tell(len(attempt.candidate.edits), 'change')}, tried on {attempt.cases} cases")
    for edit in attempt.candidate.edits:
        yield _more(f"{edit.change} ({', '.join(edit.evidence)})")
    for gate in attempt.improvement.gates:
        yield _more(
            f"{'holds' if gate.holds else 'does not hold'}: {gate.requirement}: {gate.observed}", _GATE[gate.holds]
        )
    if attempt.is_promoted:
        yield f"PROMOTED  {printable(attempt.prompt.as_posix())}", "bold green"
        copy = f"cp {_typed(attempt.prompt)} {_typed(context.prompt.name)}"
        yield f"Next: read {_typed(attempt.folder / 'improvement.md')}; to adopt the candidate: {copy}", "bold"
    else:
        yield f"REJECTED  {printable(attempt.prompt.as_posix())}", "bold red"
        again = f"evalloom prompt-eval improve {_typed(context.folder)} tries again"
        yield f"Next: read {_typed(attempt.folder / 'improvement.md')}; {again}", "bold"


_GATE = {True: "green", False: "red"}


def attempt_facts(attempt: Attempt) -> Record:
    return {
        "folder": attempt.folder.as_posix(),
        "prompt": attempt.prompt.as_posix(),
        "promoted": attempt.is_promoted,
        "cases": attempt.cases,
        "gates": {gate.name: gate.holds for gate in attempt.improvement.gates},
    }


# -- tables, checks, reviews --------------------------------------------------------------------------


def tabled(source: Path, found: TableResult) -> Iterator[Line]:
    """What became of a table."""
    if not found.paths:
        yield f"{printable(source.as_posix())}: no table was written", "bold red"
        return
    where = " and ".join(path.as_posix() for path in found.paths)
    told = f"{tell(found.cases, 'case')}, {tell(len(found.points), 'test point')}, {found.bad} bad"
    told += f", {tell(found.failed, 'failed run')}" if found.failed else ""
    told += f", {found.incomplete} incomplete" if found.incomplete else ""
    told += f", {tell(found.unreadable, 'case')} left out that cannot be read" if found.unreadable else ""
    yield printable(f"{where}: {told}"), "bold"


def table_facts(found: TableResult) -> Record:
    return {
        "files": [path.as_posix() for path in found.paths],
        "test_points": list(found.points),
        "cases": found.cases,
        "bad": found.bad,
        "failed_runs": found.failed,
        "incomplete": found.incomplete,
        "unreadable": found.unreadable,
        "errors": found.checked.count("error"),
        "warnings": found.checked.count("warning"),
    }


def checked(artifact: ArtifactFindings) -> Iterator[Line]:
    """What is wrong with one artifact, and how much of it."""
    counted = Counter((one.code, one.message) for one in artifact.findings)
    for one in artifact.findings:
        number = counted.pop((one.code, one.message), 0)
        if number >= max(_SHOWN, artifact.cases // 2):
            # The plan has changed, and not every case is wrong: said once.
            told = f"{one.message} (and so in {number - 1} more cases). Where the plan has changed, score again"
            yield shown(msgspec.structs.replace(one, message=told, case_id="")), _STYLES[one.severity]
        elif number:
            counted[one.code, one.message] = number
            yield shown(one), _STYLES[one.severity]
    cases = f"{tell(artifact.cases, 'case')}, " if artifact.cases else ""
    told = f"{cases}{tell(artifact.count('error'), 'error')}, {tell(artifact.count('warning'), 'warning')}"
    yield f"{printable(artifact.path.as_posix())}: {told}", "bold"


def reviewed(found: ReviewResult) -> Iterator[Line]:
    """What became of a review."""
    told = f"{tell(found.scores, 'score')} of {tell(found.cases, 'case')}, {found.added} new, {found.replaced} replaced"
    told += f", {found.dropped} dropped that were about former outputs" if found.dropped else ""
    yield f"{printable(found.path.as_posix())}: {told}", "bold"


def review_facts(found: ReviewResult) -> Record:
    return {
        "file": found.path.as_posix(),
        "cases": found.cases,
        "scores": found.scores,
        "added": found.added,
        "replaced": found.replaced,
        "dropped": found.dropped,
    }
