"""Formats the output of `evalloom run`: figures, the worst failures, gates, the conclusion and the next command."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from evalloom.analysis.tally import STATUSES, Figures, Summary
from evalloom.console.layout import Line, command_lines, percent_interval, seconds, table_lines
from evalloom.console.outcome import exit_code
from evalloom.core.errors import TargetUnavailable
from evalloom.core.model import ABSENT, Batch, Run, Scored, Verdict
from evalloom.core.repeats import Count
from evalloom.core.text import list_names, one_line, percent, pluralize, printable

if TYPE_CHECKING:
    from evalloom.engine.dry_run import DryRun
    from evalloom.engine.quarantine import QuarantineSummary
    from evalloom.engine.results import Results
    from evalloom.engine.until_sure import Answer, ProfileAnswer, Question

_SHOWN = 5
_SHOWN_MISMATCHES = 3
_MESSAGE_WIDTH = 400
_NAME_WIDTH = 60
STYLES = {"passed": "green", "failed": "red", "error": "magenta"}
_ENDINGS = {status: status for status in STATUSES} | {"error": "met an error"}


def result_lines(
    results: Results, next_step: str = "", more_lines: Iterable[Line] = (), fail_under: float | None = None
) -> Iterator[Line]:
    """Yield the results of a batch, then the command `next_step`, or else the one that usually follows.

    `more_lines` are printed below the table. `fail_under` is the pass rate that the conclusion asks for.
    """
    summary = results.summary
    yield from _table(results)
    yield from _repeat_lines(summary)
    if results.answer is not None:
        yield from _answer_lines(results.answer)
    if results.quarantine is not None:
        yield from _quarantine_lines(results.quarantine)
    yield from more_lines
    yield from _spent(summary)
    yield "", ""
    # What decides comes first.
    failures = sorted(results.worst(), key=lambda pair: results.is_quarantined(pair[0]))[:_SHOWN]
    for run, scored in failures:
        yield from run_lines(run, scored, results.count_of(run))
        if results.is_quarantined(run):
            yield "    quarantined: it does not decide the exit code", "yellow"
    if summary.failing > len(failures):
        yield f"… and {summary.failing - len(failures):,} more that failed", "dim"
    if failures:
        yield "", ""
    for (status, reason), number in list(results.not_scored().items())[:_SHOWN]:
        yield f"{status} {number}: {one_line(reason, _MESSAGE_WIDTH)}", "yellow"
    for gate in results.gates:
        word, style = ("holds", "green") if gate.holds else ("does not hold", "bold red")
        yield printable(f"gate {gate.text}: {word} ({gate.reason})"), style
    yield _batch_conclusion(results, fail_under)
    yield from _closing(results, next_step)


def _batch_conclusion(results: Results, fail_under: float | None) -> Line:
    """State how the batch ended, as its exit code does, with the counts that led to it."""
    summary = results.summary
    number = pluralize(summary.total, _unit(summary))
    counts = [f"{getattr(summary, status):,} {_ENDINGS[status]}" for status in STATUSES if getattr(summary, status)]
    parts = [f"of {number} {', '.join(counts)}" if counts else "nothing was run"]
    if len(counts) == 1:
        ending = counts[0].partition(" ")[2]
        parts = [f"{number} {ending}" if summary.total == 1 else f"all {number} {ending}"]
    # WORK-5: what the rate leaves out is named beside it.
    counted = summary.passed + summary.failed + summary.error
    if counted and counted != summary.total:
        parts.append(f"the pass rate is over {pluralize(summary.cases, 'case')}")
    # With --until-sure, the threshold is part of its question, which has an answer above.
    is_answered = results.answer is not None and results.answer.decides
    if fail_under is not None and results.deciding_rate is not None and not is_answered:
        is_below = round(results.deciding_rate, 9) < fail_under
        parts.append(f"the pass rate {'is below' if is_below else 'meets'} {fail_under:.4g}")
    if results.quarantine is not None:
        failing = len(results.quarantine.failing)
        parts.append(f"{pluralize(failing, 'failing case')} {'is' if failing == 1 else 'are'} in quarantine")
    if broken := sum(not gate.holds for gate in results.gates):
        parts.append(f"{pluralize(broken, 'gate')} {'does' if broken == 1 else 'do'} not hold")
    if results.stopped:
        return f"STOPPED: {'; '.join(parts)}", "bold yellow"
    is_undecided = results.problem is not None and results.problem.code in ("not_sure", "all_quarantined")
    unfinished = "NOT DECIDED" if is_undecided else "NOT SCORED"
    words = {0: ("PASSED", "bold green"), 1: ("FAILED", "bold red"), 3: (unfinished, "bold yellow")}
    word, style = words[exit_code(results, fail_under)]
    return f"{word}: {'; '.join(parts)}", style


def _unit(summary: Summary) -> str:
    """Return what the statuses count: cases, unless a case has several runs, or none that is in the pass rate.

    `cases` is the number that the pass rate is over, here as in `stats`, reports and gates (WORK-5).
    """
    return "case" if summary.total == summary.cases and len(summary.profiles) <= 1 else "run"


def run_lines(run: Run, scored: Scored, count: Count = (0, 0)) -> Iterator[Line]:
    """Yield one run: its status, the failed checks and the output.

    `count` tells how many repeats of its case passed, of how many.
    """
    repeat = f" · repeat {run.repeat + 1}" if run.repeat else ""
    if count[1] > 1:
        repeat = f": {count[0]} of {count[1]} passed"
    yield head_line(run, scored, repeat)
    if run.error:
        yield f"    {one_line(run.error, _MESSAGE_WIDTH)}", ""
    if scored.step:
        error = next(
            (entry["error"] for entry in run.trace if entry.get("step") == scored.step and "error" in entry), ""
        )
        reason = f": {one_line(error, _MESSAGE_WIDTH)}" if error else ""
        yield f"    first failing step: {printable(repr(scored.step))}{reason}", "bold"
    for verdict in scored.verdicts:
        if verdict.status != "passed":
            yield f"    {verdict_line(verdict)}", ""
            yield from _mismatch_lines(verdict)
    if scored.status == "failed" and scored.score is not None and all(v.status != "failed" for v in scored.verdicts):
        yield f"    the score of the case, {scored.score:.3g}, is below its threshold", ""
    if not (run.error or run.skipped or run.blocked):
        yield f"    output: {_value(run.output.value)}", "dim"


def head_line(run: Run, scored: Scored, repeat: str) -> Line:
    """Return the status and the case of a run, its profile, which repeat it is, and where the case is."""
    profile = f" · {run.profile}" if run.profile else ""
    head = (
        f"{scored.status.upper()} {case_name(run.case_id)}{printable(profile)}{repeat}   {printable(str(run.origin))}"
    )
    return head, STYLES.get(scored.status, "yellow")


def case_name(id: str) -> str:
    """Return the id of a case for a line of text; a description may be long."""
    return one_line(id, _NAME_WIDTH)


def verdict_line(verdict: Verdict, always_says_status: bool = False) -> str:
    """Return how a check ended, and why."""
    # What decides the case needs no word: it is shown because it failed. A check that only reports says how it ended.
    is_plain = verdict.status == "failed" and verdict.weight and not always_says_status
    word = "" if is_plain else f" {verdict.status}"
    follows = f" (follows from step {verdict.follows!r})" if verdict.follows else ""
    differences = len(verdict.mismatches)
    reason = f"{differences} differences" if differences > 1 else one_line(verdict.reason)
    return f"{printable(verdict.name)}{word}{printable(follows)}: {reason or _reason_by_score(verdict)}"


def _mismatch_lines(verdict: Verdict) -> Iterator[Line]:
    differences = len(verdict.mismatches)
    if differences > 1:
        for mismatch in verdict.mismatches[:_SHOWN_MISMATCHES]:
            where = f"{printable(mismatch.path)}: " if mismatch.path else ""
            yield f"      {where}expected {_value(mismatch.expected)}, got {_value(mismatch.actual)}", ""
    if differences > _SHOWN_MISMATCHES:
        yield f"      … and {differences - _SHOWN_MISMATCHES} more differences", "dim"


def _reason_by_score(verdict: Verdict) -> str:
    """Return what the score says, for a verdict without a reason; a part of a score is not `as expected`."""
    score = "" if verdict.score is None else f"score {verdict.score:.3g}"
    if verdict.status == "passed":
        return "as expected" if verdict.score in (None, 1) else score
    return score or verdict.status


def _table(results: Results) -> Iterator[Line]:
    """Yield one row per profile, and their total; statuses that no run has are left out."""
    summary = results.summary
    shown = [status for status in STATUSES if status in ("passed", "failed") or getattr(summary, status)]
    # With one profile, the line below the table has its tokens and cost.
    with_spent = len(summary.profiles) > 1
    rows = [
        _row(name or "-", figures, shown, (figures.p50_latency_s, figures.p95_latency_s), with_spent)
        for name, figures in summary.profiles.items()
    ]
    header = ["profile", f"{_unit(summary)}s", *shown, "pass rate", "95 % CI", "p50", "p95"]
    if with_spent:
        rows.append(_row("total", summary, shown, results.latencies(0.5, 0.95), with_spent))
        header += ["tokens", "cost"]
    yield from table_lines(header, rows, second="p50")


def _row(
    name: str, figures: Figures, statuses: Sequence[str], latencies: Sequence[float | None], with_spent: bool
) -> list[str]:
    return [
        name,
        f"{figures.total:,}",
        *(f"{getattr(figures, status):,}" for status in statuses),
        *_rates(figures),
        *map(seconds, latencies),
        *([f"{figures.tokens:,}", _cost(figures)] if with_spent else []),
    ]


def _cost(figures: Figures) -> str:
    return f"{figures.cost:.4g}" if figures.cost or not figures.unpriced else "?"


def _repeat_lines(summary: Summary) -> Iterator[Line]:
    """Yield pass@k and pass^k of each profile whose cases were repeated, and the pass rule."""
    if summary.pass_if is not None:
        needed = f"{100 * summary.pass_if:.4g}%"
        yield f"A case passes if {needed} of its repeats do; the pass rate is the share of such cases", ""
        for name, figures in summary.profiles.items():
            yield f"{printable(name)}: {figures.cases - figures.failing:,} of {figures.cases:,} cases pass", ""
    for name, figures in summary.profiles.items():
        if figures.pass_at:
            k = max(figures.pass_at)
            prefix = f"{printable(name)}: " if len(summary.profiles) > 1 else ""
            some, every = f"pass@{k} {figures.pass_at[k]:.1%}", f"pass^{k} {figures.pass_hat[k]:.1%}"
            cases = f"{pluralize(figures.cases, 'case')}, {figures.flaky:,} flaky"
            yield f"{prefix}{cases} · {some} (at least one of {k} runs passes) · {every} (all {k} pass)", ""


def _answer_lines(answer: Answer) -> Iterator[Line]:
    """Yield what --until-sure decided, and after how many cases."""
    ran = f"{answer.started:,} of {pluralize(answer.cases, 'case')} in random order"
    saved = f"; {answer.cases - answer.started:,} saved" if answer.cases > answer.started else ""
    yield f"{'Sure' if answer.is_sure else 'Not sure'} after {ran}{saved}", "bold"
    for profile in answer.profiles:
        name = f"{printable(profile.profile)}: " if len(answer.profiles) > 1 else ""
        style = "red" if profile.conclusion in ("below", "worse") else ""
        yield f"{name}{_conclusion(answer.question, profile)}", style


def _conclusion(question: Question, profile: ProfileAnswer) -> str:
    base, margin = printable(question.baseline), f"{100 * question.margin:.4g} points"
    threshold = f"{100 * (question.threshold or 0):.4g}%"
    if base:
        interval = f"95 % CI of the difference {100 * profile.low:+.1f} to {100 * profile.high:+.1f} points"
    else:
        interval = f"95 % CI {percent_interval(profile.low, profile.high)}"
    conclusion = {
        "at_least": f"the pass rate is at least {threshold}, or less than {margin} below",
        "below": f"the pass rate is below {threshold}",
        "not_worse": f"the pass rate is not {margin} below {base}",
        "worse": f"the pass rate is below {base}",
        "known": f"the pass rate is known to ±{margin}",
        "open": "the cases do not decide it",
    }[profile.conclusion]
    return f"{conclusion} ({interval}, {pluralize(profile.cases, 'case')})"


def _quarantine_lines(quarantine: QuarantineSummary) -> Iterator[Line]:
    """Yield which quarantined cases failed, and the pass rate of the others."""
    failing = quarantine.failing
    failed = f"{len(failing):,} failed: {list_names(map(case_name, failing))}" if failing else "none failed"
    rate = "no case counted"
    if quarantine.pass_rate is not None:
        interval = percent_interval(quarantine.pass_rate_low, quarantine.pass_rate_high)
        rate = f"pass rate {percent(quarantine.pass_rate)} over {pluralize(quarantine.deciding_cases, 'case')}"
        rate += f" (95 % CI {interval})"
    ids = dict.fromkeys(case.case_id for case in quarantine.cases)
    yield f"Quarantined: {pluralize(len(ids), 'case')}, {failed}", "yellow"
    yield f"Without them: {rate}. This decides the exit code, gates and --fail-under", ""


def _rates(figures: Figures) -> tuple[str, str]:
    if figures.pass_rate is None:
        return "-", "-"
    return percent(figures.pass_rate), percent_interval(figures.pass_rate_low, figures.pass_rate_high)


def _spent(figures: Figures) -> Iterator[Line]:
    parts = [f"{figures.duration_s:.1f} s", pluralize(figures.tokens, "token")]
    if figures.cost or not figures.unpriced:
        parts.append(f"cost {figures.cost:.4g}")
    if figures.unpriced:
        parts.append(f"{pluralize(figures.unpriced, 'call')} without a price")
    if figures.cached:
        parts.append(f"{figures.cached} from the cache")
    if figures.retries:
        parts.append(f"{pluralize(figures.retries, 'call')} retried")
    yield " · ".join(parts), "dim"
    if figures.estimated:
        calls = pluralize(figures.estimated, "call")
        yield f"The tokens of {calls} are estimated: the server sent no usage", "yellow"


def _closing(results: Results, next_step: str) -> Iterator[Line]:
    batch, summary = results.summary.batch, results.summary
    yield f"Batch: {results.path.as_posix()}", ""
    if results.stopped:
        problem = results.problem
        # A problem is printed on its own, with its code.
        absent = "the target" if problem and problem.code == TargetUnavailable.code else "an llm"
        why = f"{absent} does not answer" if problem and problem.message == results.stopped else results.stopped
        yield f"Stopped: {why}. Finished runs are stored; --resume continues with the others", ""
    elif next_step:
        yield from command_lines(next_step, "Next: ")
    elif summary.error:
        yield "Next: the same command with --resume --retry-errors repeats the runs that ended in an error", ""
    elif summary.failed:
        yield from command_lines(f"evalloom batches show {batch} --status failed", "Next: ")
    elif results.could_not_score:
        yield "Nothing could be scored, for the reasons above. Score the batch again when they are resolved:", ""
        yield from command_lines(_score_command(results), "Next: ")
    elif results.problem and results.problem.code == "unscored":
        yield "Not everything could be scored. Score the batch again when the reasons above are resolved:", ""
        yield from command_lines(_score_command(results), "Next: ")
    elif summary.unscored and not summary.passed:
        yield "These cases have no expectations. Add some to the dataset, or score the batch with other checks:", ""
        yield from command_lines(f"evalloom score {batch} --checks FILE", "Next: ")
    else:
        yield from command_lines(f"evalloom batches show {batch}", "Next: ")


def _score_command(results: Results) -> str:
    needs_judge = any(reason.startswith("no judge") for reason in results.unscored())
    return f"evalloom score {results.summary.batch}{' --judge LLM' if needs_judge else ''}"


def batch_lines(batch: Batch) -> Iterator[Line]:
    """Yield what a batch ran: target, datasets, and profiles with their models."""
    datasets = ", ".join(f"{dataset.path} ({dataset.dialect})" for dataset in batch.datasets)
    models = [f"{one.name} ({batch.models.get(one.run) or one.run or 'no llm'})" for one in batch.profiles]
    yield f"target    {printable(batch.target)}", ""
    yield f"datasets  {printable(datasets)}", ""
    yield f"profiles  {printable(', '.join(models))}", ""


def dry_run_lines(ahead: DryRun) -> Iterator[Line]:
    """Yield what a run would do: its target, number of runs, tokens and cost."""
    yield f"target    {printable(ahead.target)}", ""
    yield f"profiles  {printable(', '.join(ahead.profiles))}", ""
    stored = f", {ahead.done_before} of them in {ahead.batch} already" if ahead.done_before else ""
    yield f"runs      {ahead.total}{stored}; {ahead.to_run} to run", "bold"
    if ahead.skipped:
        yield f"skipped   {ahead.skipped} of them, by their conditions", ""
    if ahead.errors:
        yield f"errors    {ahead.errors} of them before anything is sent: {one_line(ahead.first_error)}", "red"
    if ahead.tokens_low is None:
        yield "cost      unknown: only a prompt can be estimated without calling it", ""
        return
    yield f"tokens    {ahead.tokens_low} to {ahead.tokens_high}, estimated", ""
    if ahead.cost_low is None:
        yield "cost      unknown: give the llm a price in evalloom.yaml", ""
    else:
        yield f"cost      {ahead.cost_low:.4g} to {ahead.cost_high:.4g}, estimated", ""


def _value(value: Any) -> str:
    if isinstance(value, str):
        return "nothing" if value == ABSENT else one_line(repr(value))
    return one_line(json.dumps(value, ensure_ascii=False, default=str))
