"""The steps of prompt-eval in order: plan, generate, run, score, report. Each reads the artifact of the previous one.

A finished step is skipped unless --redo is given or its sources have changed (EVAL-1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from os.path import normpath
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from msgspec import Struct

from evalloom.core.clock import utc_now
from evalloom.core.errors import CallError, EvalloomError, usage_error
from evalloom.core.model import Record, Request, Response
from evalloom.engine.loop import run_loop
from evalloom.files.write import write_text
from evalloom.prompt_eval.analysis.agreement import agreement, noise
from evalloom.prompt_eval.analysis.scorecard import Scorecard, scorecard, unknown_points
from evalloom.prompt_eval.citing import uncited_reasons
from evalloom.prompt_eval.folder import (
    Folder,
    load_plan,
    move_to_backup,
    path_from,
    prompt_a,
    prompt_file,
    raise_if_invalid,
    read_object,
    read_records,
    require_artifact,
    write_json,
)
from evalloom.prompt_eval.plan import TestPlan, TestPoint, read_plan, replace_prompt
from evalloom.prompt_eval.reports import html as prompt_eval_html
from evalloom.prompt_eval.reports import markdown as prompt_eval_markdown
from evalloom.prompt_eval.reports.content import PromptEvalReport, remarks, report_language
from evalloom.prompt_eval.scores import ScoredCase, output_digest, points_in, read_scored
from evalloom.prompt_eval.steps import provenance
from evalloom.prompt_eval.steps.context import StepContext, StepOptions, with_drafter
from evalloom.prompt_eval.steps.draft import draft_plan, plan_text
from evalloom.prompt_eval.steps.generate import GenerateResult, generate
from evalloom.prompt_eval.steps.review import current_scores, read_reviews
from evalloom.ui.language import ENGLISH, Language, phrase


class PlanResult(Struct, frozen=True):
    """The plan of a folder, and its source: `drafted`, `kept`, or the path of the file it was copied from."""

    plan: TestPlan
    prompt: str
    how: str
    differs: str = ""
    """The path of a plan beside the prompt that differs from this one."""


def plan(
    prompt: Path, folder: Folder, options: StepOptions, cases: int | None = None, redo: bool = False
) -> PlanResult:
    """Step 1: copy the plan beside the prompt, or let a model draft one."""
    if not prompt.is_file():
        raise usage_error("prompt_missing", f"there is no file {prompt.as_posix()!r}. Name the prompt to be tested")
    beside = prompt.parent / folder.plan.name
    has_other = beside.is_file() and beside.resolve() != folder.plan.resolve()
    prompt_path = path_from(folder.path, prompt)
    if folder.plan.is_file() and not redo:
        current = load_plan(folder)
        _require_same_prompt(current, prompt, folder)
        differs = has_other and _copied_plan_text(beside, folder, prompt_path) != _text(folder.plan)
        return PlanResult(current, prompt.as_posix(), "kept", beside.as_posix() if differs else "")
    if has_other:
        text = _copied_plan_text(beside, folder, prompt_path)
    else:
        tested = prompt_file(prompt)
        settings = options.load_settings(folder, tested)
        text = run_loop(
            with_drafter(folder, options, settings, lambda llm: draft_plan(tested.text, prompt_path, llm, cases))
        ).text
    if folder.plan.is_file() and _text(folder.plan) != text:
        backup = move_to_backup(folder.plan, "old")
        options.warn(f"{folder.plan.as_posix()}: the previous plan is now {backup.name}")
    write_text(folder.plan, text)
    return PlanResult(load_plan(folder), prompt.as_posix(), beside.as_posix() if has_other else "drafted")


def _require_same_prompt(current: TestPlan, prompt: Path, folder: Folder) -> None:
    """Raise if the folder belongs to another prompt."""
    about = prompt_a(current)
    if about.path is None or about.path.resolve() != prompt.resolve():
        hint = "Give this prompt a folder of its own with -o"
        message = f"{folder}: is about {about.name}, not about {prompt.as_posix()}. {hint}"
        raise usage_error("other_prompt", f"{message}, or start over here with 'plan --redo'")


def _copied_plan_text(beside: Path, folder: Folder, prompt_path: str) -> str:
    """Return the text of the plan beside the prompt, with paths relative to the folder; keep the layout if possible."""
    original, findings = read_plan(beside)
    raise_if_invalid(findings, beside)
    assert original is not None
    yardstick = path_from(folder.path, beside.parent / original.yardstick) if original.yardstick else ""
    wanted = msgspec.structs.replace(original, prompt=prompt_path, yardstick=yardstick)
    text = replace_prompt(_text(beside), prompt_path)
    with TemporaryDirectory(prefix="evalloom-") as scratch:
        copy = Path(scratch) / beside.name
        copy.write_text(text, "utf-8")
        copied = read_plan(copy)[0]
    is_same = copied is not None and msgspec.structs.replace(copied, path=wanted.path) == wanted
    return text if is_same else plan_text(wanted, is_draft=False)


def _text(path: Path) -> str:
    return path.read_text("utf-8-sig")


def make_cases(context: StepContext, redo: bool = False) -> GenerateResult:
    """Step 2: keep the existing cases or copy those beside the prompt, and generate the missing ones."""
    folder = context.folder
    existing = _existing_cases(context, redo)
    counts = Counter(record.get("test_category") for record in existing)
    save = _CaseWriter(context, redo)
    if all(counts[name] >= planned for name, planned in context.plan.dimensions.items()):
        result = run_loop(generate(context.plan, context.prompt, existing, _no_llm, save))
    else:
        work = lambda llm: generate(context.plan, context.prompt, existing, llm, save)  # noqa: E731
        result = run_loop(with_drafter(folder, context.options, context.settings, work))
    # Never replace existing cases with none.
    if result.cases and (not folder.cases.is_file() or read_records(folder.cases).values != result.cases):
        save(result.cases)
    return result


class _CaseWriter:
    """Writes the cases to their file; with `--redo`, the first write moves the previous file to a backup."""

    def __init__(self, context: StepContext, redo: bool) -> None:
        self._context = context
        self._redo = redo

    def __call__(self, cases: list[Record]) -> None:
        path = self._context.folder.cases
        if self._redo and path.is_file():
            backup = move_to_backup(path, "old")
            self._context.options.warn(f"{path.as_posix()}: the previous cases are now in {backup.name}")
        self._redo = False
        write_json(path, cases)


def _existing_cases(context: StepContext, redo: bool) -> list[Record]:
    own = context.folder.cases
    beside = context.prompt.path.parent / own.name if context.prompt.path else own
    places = ([] if redo else [own]) + ([beside] if beside.resolve() != own.resolve() else [])
    for path in places:
        if path.is_file():
            cases = _cases_in(path)
            if path is own and beside in places and any(case not in cases for case in _cases_in(beside)):
                message = f"{beside.as_posix()}: has cases that are missing or different in {own.as_posix()}"
                context.options.warn(f"{message}, which is used. 'generate --redo' copies them")
            return cases
    return []


def _cases_in(path: Path) -> list[Record]:
    """Read the cases of a file, none if it does not exist; raise if it has errors."""
    if not path.is_file():
        return []
    records = read_records(path)
    raise_if_invalid([finding for finding in records.findings if finding.code != "no_cases"], path)
    return records.values


async def _no_llm(request: Request) -> Response:
    raise CallError("no_llm", "every case exists, so no llm is called")


class ReportResult(Struct, frozen=True):
    """The outcome of `report`: the scored cases and their figures."""

    cases: list[ScoredCase]
    scorecard: Scorecard
    remarks: tuple[str, ...] = ()
    """Caveats about the figures."""


_COUNTED_IN_REPORT = ("bad_score", "missing_reason", "bad_result")
"""Findings that do not stop the report, because it counts these cases as incomplete."""


def report(folder: Folder, language: str = "en") -> ReportResult:
    """Write the report as Markdown and as one HTML file from the scored results; the plan is optional."""
    page, caveats = _report_content(folder, report_language(language))
    write_text(folder.report, prompt_eval_markdown.render(page, language))
    write_text(folder.page, prompt_eval_html.render(page, language))
    in_english = msgspec.structs.replace(page, remarks=tuple(caveats.texts(ENGLISH)))
    return ReportResult(list(page.cases), page.scorecard, tuple(remarks(in_english)))


def read_report(folder: Folder, language: str = "en") -> PromptEvalReport:
    """Return the content of the report as of now; nothing is written."""
    return _report_content(folder, report_language(language))[0]


def _report_content(folder: Folder, t: Language) -> tuple[PromptEvalReport, _Caveats]:
    scored = read_records(require_artifact(folder.scored, "score", folder))
    raise_if_invalid([finding for finding in scored.findings if finding.code not in _COUNTED_IN_REPORT], folder.scored)
    test_plan = load_plan(folder) if folder.plan.is_file() else None
    if test_plan:
        points = test_plan.points
    else:
        points = tuple(TestPoint(point, point, criticality="") for point in points_in(scored.values))
    ids = [point.id for point in points]
    cases = [read_scored(record, ids) for record in scored.values]
    humans, outdated = current_scores(read_reviews(folder.path), cases)
    outputs = provenance.load(folder, "run", folder.results).provenance
    scores = provenance.load(folder, "score", folder.scored).provenance
    repeats, old_repeats = _repeats(folder, cases, scores.source)
    prompt = _prompt_name(test_plan) if test_plan else ""
    services = {phrase("profile"): outputs.service, phrase("judge"): scores.service}
    caveats = _caveats(cases, outdated, old_repeats, _is_prompt_changed(outputs.prompt, test_plan))
    page = PromptEvalReport(
        title=t("Prompt evaluation: {name}", name=Path(prompt or "prompt_a").name),
        prompt=prompt,
        cases=cases,
        points=points,
        scorecard=scorecard(cases, points),
        agreement=agreement(cases, humans, ids),
        noise=noise(repeats, ids),
        remarks=tuple(caveats.texts(t)),
        unknown=unknown_points(cases, points),
        facts={name: service for name, service in services.items() if service},
        folder=str(folder),
        source=folder.scored.name,
        generated_at=utc_now(),
    )
    return page, caveats


def _is_prompt_changed(digest: str, plan: TestPlan | None) -> bool:
    """Whether the prompt has changed since the outputs were made; `digest` is that of the prompt then."""
    with suppress(EvalloomError):  # The report does not need the prompt.
        return bool(digest and plan and digest != prompt_a(plan).target.digest)
    return False


def _prompt_name(plan: TestPlan) -> str:
    """Return the path of the prompt, which may no longer exist; empty if the plan contains the prompt itself."""
    is_text = "\n" in plan.prompt or "{{" in plan.prompt
    return "" if is_text or not plan.prompt else Path(normpath(plan.path.parent / plan.prompt)).as_posix()


class _Repeat(Struct, frozen=True):
    """The scores of each repeat of a case, the judge that gave them, and the output they are about."""

    judge: str
    result: str
    scores: list[dict[str, int | None]]


def _repeats(folder: Folder, cases: list[ScoredCase], judge: str) -> tuple[dict[str, list[dict[str, int | None]]], int]:
    """Return repeated scores of the current judge for the current outputs, and the number of outdated ones."""
    try:
        repeats = msgspec.convert(read_object(folder.repeats), dict[str, _Repeat])
    except msgspec.ValidationError as error:
        message = f"{folder.repeats.as_posix()}: {error}. Delete it, and score again with --repeat"
        raise usage_error("bad_artifact", message) from None
    sources = {case.id: (judge, output_digest(case.record.get("result_aftertest"))) for case in cases}
    current = {
        test_id: repeat.scores
        for test_id, repeat in repeats.items()
        if (repeat.judge, repeat.result) == sources.get(test_id)
    }
    return current, len(repeats) - len(current)


class _Caveats(Struct, frozen=True):
    """What a reader of the figures must know: whether the prompt has changed, and numbers of reasons and cases."""

    is_prompt_changed: bool
    uncited: int
    earlier: int
    unknown: int
    old_repeats: int

    def texts(self, t: Language) -> Iterator[str]:
        if self.is_prompt_changed:
            yield t("the prompt has changed since these outputs were made")
        if self.uncited:
            yield t.count(
                self.uncited, "{n} reason quotes nothing of the output", "{n} reasons quote nothing of the output"
            )
        if self.earlier:
            cases = t.count(self.earlier, "{n} case", "{n} cases")
            yield t("human scores of {cases} are about earlier outputs, and are left out", cases=cases)
        if self.unknown:
            cases = t.count(self.unknown, "{n} case", "{n} cases")
            yield t("human scores of {cases} without results are left out", cases=cases)
        if self.old_repeats:
            cases = t.count(self.old_repeats, "{n} case", "{n} cases")
            yield t("repeated scores of {cases} are of an earlier output or judge, and are left out", cases=cases)


def _caveats(cases: list[ScoredCase], outdated: list[str], old_repeats: int, is_prompt_changed: bool) -> _Caveats:
    uncited = sum(len(list(uncited_reasons(case))) for case in cases)
    ids = {case.id for case in cases}
    earlier = sum(test_id in ids for test_id in outdated)
    return _Caveats(is_prompt_changed, uncited, earlier, len(outdated) - earlier, old_repeats)
