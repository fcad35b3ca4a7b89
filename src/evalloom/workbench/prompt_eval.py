"""The steps of prompt-eval in order: plan, generate, run, score, report. Each reads the artifact of the one before.

A finished step is not redone unless it is asked for, or what it was made from has changed (EVAL-1).
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

from msgspec import Struct

from evalloom.analyse.agreement import agreement, noise
from evalloom.analyse.prompt_eval import Scorecard, scorecard
from evalloom.dialects.prompt_eval_citing import uncited
from evalloom.dialects.prompt_eval_plan import TestPlan, TestPoint, read_plan, with_prompt_named
from evalloom.dialects.prompt_eval_scores import ScoredCase, points_in, read_scored
from evalloom.errors import CallError, usage_error
from evalloom.files.write import write_text
from evalloom.model import Record, Request, Response
from evalloom.reports import prompt_eval_html, prompt_eval_markdown
from evalloom.reports.lint import tell
from evalloom.reports.prompt_eval_report import PromptEvalReport
from evalloom.workbench.loop import run_loop
from evalloom.workbench.plan import now
from evalloom.workbench.prompt_eval_draft import draft_plan
from evalloom.workbench.prompt_eval_folder import (
    Asking,
    Desk,
    Folder,
    drafted,
    made,
    needed,
    path_from,
    prompt_file,
    read_object,
    read_records,
    refuse,
    the_plan,
    write_json,
)
from evalloom.workbench.prompt_eval_generate import Generated, generate
from evalloom.workbench.prompt_eval_review import read_reviews


class Planned(Struct, frozen=True):
    """The plan of a folder, and how it came there: `drafted`, `kept` as it was, or taken from a file."""

    plan: TestPlan
    how: str
    differs: str = ""
    """A plan beside the prompt that says something else."""


def plan(prompt: Path, folder: Folder, asking: Asking, cases: int | None = None, redo: bool = False) -> Planned:
    """Step 1: the plan beside the prompt, or one that a model drafts."""
    if not prompt.is_file():
        raise usage_error("prompt_missing", f"there is no file {prompt.as_posix()!r}. Name the prompt to be tested")
    beside = prompt.parent / folder.plan.name
    is_other = beside.is_file() and beside.resolve() != folder.plan.resolve()
    named = path_from(folder.path, prompt)
    if folder.plan.is_file() and not redo:
        differs = is_other and with_prompt_named(_text(beside), named) != _text(folder.plan)
        return Planned(the_plan(folder), "kept", beside.as_posix() if differs else "")
    if is_other:
        refuse(read_plan(beside)[1], beside)
        write_text(folder.plan, with_prompt_named(_text(beside), named))
        return Planned(the_plan(folder), beside.as_posix())
    tested = prompt_file(prompt)
    known = asking.settings(folder, tested)
    draft = run_loop(drafted(folder, asking, known, lambda llm: draft_plan(tested.text, named, llm, cases)))
    write_text(folder.plan, draft.text)
    return Planned(the_plan(folder), "drafted")


def _text(path: Path) -> str:
    return path.read_text("utf-8-sig")


def make_cases(desk: Desk, redo: bool = False) -> Generated:
    """Step 2: the cases there are, or those beside the prompt, and as many new ones as the plan asks for."""
    folder = desk.folder
    have = _cases_there(desk, redo)
    there = Counter(record.get("test_category") for record in have)
    keep = partial(write_json, folder.cases)
    if all(there[name] >= planned for name, planned in desk.plan.dimensions.items()):
        found = run_loop(generate(desk.plan, desk.prompt.text, have, _nobody, keep))
    else:
        ask = lambda llm: generate(desk.plan, desk.prompt.text, have, llm, keep)  # noqa: E731
        found = run_loop(drafted(folder, desk.asking, desk.known, ask))
    if not folder.cases.is_file() or read_records(folder.cases).values != found.cases:
        keep(found.cases)
    return found


def _cases_there(desk: Desk, redo: bool) -> list[Record]:
    own = desk.folder.cases
    beside = desk.prompt.path.parent / own.name if desk.prompt.path else own
    places = ([] if redo else [own]) + ([beside] if beside.resolve() != own.resolve() else [])
    for path in places:
        if path.is_file():
            found = read_records(path)
            refuse(found.findings, path)
            return found.values
    return []


async def _nobody(request: Request) -> Response:
    raise CallError("no_llm", "every case is there, so nobody is asked")


class Reported(Struct, frozen=True):
    """What the report says, in figures."""

    cases: list[ScoredCase]
    scorecard: Scorecard
    uncited: int


def report(folder: Folder) -> Reported:
    """The report as Markdown and as one HTML file, from the scored results; a plan is not needed."""
    scored = read_records(needed(folder.scored, "score", folder))
    # Scores that are missing or wrong are counted and told in the report; only what is no case at all stops it.
    refuse([one for one in scored.findings if one.code not in _TOLD_IN_REPORT], folder.scored)
    points = _points(folder, scored.values)
    cases = [read_scored(record, [point.id for point in points]) for record in scored.values]
    found = Reported(cases, scorecard(cases, points), sum(len(list(uncited(case))) for case in cases))
    ids = [point.id for point in points]
    humans = {one: review.scores for one, review in read_reviews(folder.path).items()}
    page = PromptEvalReport(
        title=f"Prompt evaluation: {Path(_prompt_name(folder)).name}",
        prompt=_prompt_name(folder),
        cases=cases,
        points=points,
        scorecard=found.scorecard,
        agreement=agreement(cases, humans, ids),
        noise=noise(read_object(folder.repeats), ids),
        remarks=tuple(_remarks(found)),
        facts={name: who for name, step in (("profile", "run"), ("judge", "score")) if (who := made(folder, step).who)},
        folder=str(folder),
        source=folder.scored.name,
        generated_at=now(),
    )
    write_text(folder.report, prompt_eval_markdown.render(page))
    write_text(folder.page, prompt_eval_html.render(page))
    return found


_TOLD_IN_REPORT = ("bad_score", "missing_reason", "bad_result")


def _points(folder: Folder, records: list[Record]) -> tuple[TestPoint, ...]:
    if folder.plan.is_file():
        return the_plan(folder).points
    return tuple(TestPoint(one, one) for one in points_in(records))


def _prompt_name(folder: Folder) -> str:
    named = the_plan(folder).prompt if folder.plan.is_file() else ""
    return "prompt_a" if "\n" in named else named or "prompt_a"


def _remarks(found: Reported) -> list[str]:
    if not found.uncited:
        return []
    return [f"{tell(found.uncited, 'reason')} quote nothing of the output they are about"]
