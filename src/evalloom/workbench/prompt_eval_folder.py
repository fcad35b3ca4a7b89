"""The results folder of prompt-eval: its artifacts, how they are read, and who is asked in its steps (EVAL-1)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from hashlib import blake2b
from os.path import normpath, relpath
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from evalloom import settings
from evalloom.dialects.dataset import Dataset
from evalloom.dialects.prompt_eval_plan import TestPlan, read_plan
from evalloom.errors import BudgetSpent, CallError, EvalloomError, usage_error
from evalloom.files.rows import Row
from evalloom.files.source import source_of
from evalloom.files.write import write_text
from evalloom.llms import LlmOptions, Llms
from evalloom.model import Case, Finding, Llm, Origin, Profile, Record, Remark, Run
from evalloom.record import FOLDER, batches
from evalloom.settings import Settings
from evalloom.targets import BuiltTarget, build
from evalloom.validate import validate
from evalloom.workbench.evaluate import Live, evaluate
from evalloom.workbench.plan import Plan
from evalloom.workbench.prepare import Asked, prepare
from evalloom.workbench.resume import Resume

Drafted = TypeVar("Drafted")
DEFAULT = "prompt-eval-results"
_STATE = ".evalloom/prompt_eval.json"


class Folder(Struct, frozen=True):
    """Where the artifacts of one evaluation lie."""

    path: Path

    @property
    def plan(self) -> Path:
        return self.path / "test_plan.yaml"

    @property
    def cases(self) -> Path:
        return self.path / "test_cases.json"

    @property
    def results(self) -> Path:
        return self.path / "test_cases_with_results.json"

    @property
    def prompt_b(self) -> Path:
        return self.path / "prompt_b.md"

    @property
    def scored(self) -> Path:
        return self.path / "final_scored_results.json"

    @property
    def table(self) -> Path:
        return self.path / "final_scored_results.csv"

    @property
    def sheet(self) -> Path:
        return self.path / "final_scored_results.xlsx"

    @property
    def report(self) -> Path:
        return self.path / "final_report.md"

    @property
    def page(self) -> Path:
        return self.path / "final_report.html"

    @property
    def failures(self) -> Path:
        """Why runs failed, by test_id: the results file has no place for it."""
        return self.path / "run_failures.json"

    @property
    def humans(self) -> Path:
        """What people scored, by test_id."""
        return self.path / "human_scores.json"

    @property
    def repeats(self) -> Path:
        """The scores of a judge that was asked several times, by test_id."""
        return self.path / "judge_repeats.json"

    def __str__(self) -> str:
        return self.path.as_posix()


class Invalid(EvalloomError):
    """An artifact has errors, so the step was not begun; the findings say which."""

    def __init__(self, message: str, findings: list[Finding]) -> None:
        super().__init__("invalid_data", message, exit_code=2)
        self.findings = findings


# -- reading artifacts --------------------------------------------------------------------------------


class Records(Struct, frozen=True):
    """The objects of one artifact, and what is wrong with it."""

    path: Path
    rows: list[Row]
    findings: list[Finding]

    @property
    def values(self) -> list[Record]:
        return [row.value for row in self.rows]

    def placed(self, row: Row, remark: Remark) -> Finding:
        """A remark about one of the objects, at its place."""
        origin = Origin(self.path.as_posix(), *row.place_of(remark.path))
        field = str(remark.path[0]) if remark.path else ""
        return Finding(remark.code, remark.severity, remark.message, origin, field, str(row.value.get("test_id", "")))


def read_records(path: Path) -> Records:
    """The case objects of an artifact of step 2, 3 or 5, with the findings of the linter."""
    checked = validate(Dataset(source_of(path), "prompt-eval"), hints=False)
    rows = [item for item in Dataset(source_of(path), "prompt-eval") if isinstance(item, Row)]
    return Records(path, [row for row in rows if isinstance(row.value, dict)], checked.findings)


def refuse(findings: Iterable[Finding], what: Path) -> None:
    """Raises Invalid where one of the findings is an error."""
    found = list(findings)
    errors = sum(finding.severity == "error" for finding in found)
    if errors:
        told = "an error" if errors == 1 else f"{errors} errors"
        raise Invalid(f"{what.as_posix()}: has {told}, so nothing was done. Mend what is listed above", found)


def the_plan(folder: Folder) -> TestPlan:
    """The plan of a folder, without errors."""
    if not folder.plan.is_file():
        hint = f"'evalloom prompt-eval plan PROMPT_A -o {folder}' drafts one, or write one"
        raise usage_error("no_plan", f"{folder}: there is no {folder.plan.name}. {hint}")
    plan, findings = read_plan(folder.plan)
    refuse(findings, folder.plan)
    assert plan is not None
    return plan


def needed(path: Path, step: str, folder: Folder) -> Path:
    """The artifact that a step reads; where it is not there, the step that makes it is named."""
    if not path.is_file():
        hint = f"'evalloom prompt-eval {step} {folder}' makes it"
        raise usage_error("step_missing", f"there is no {path.as_posix()}. {hint}")
    return path


def read_object(path: Path) -> Record:
    """A JSON object of ours, empty where there is no such file."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as fault:
        raise usage_error("bad_artifact", f"{path.as_posix()}: is not JSON: {fault}") from None
    if not isinstance(found, dict):
        raise usage_error("bad_artifact", f"{path.as_posix()}: expected one JSON object")
    return found


def write_json(path: Path, value: Any) -> None:
    """Writes an artifact whole or not at all, for people to read and edit."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    # Half of a surrogate pair is valid in JSON, and only as an escape.
    write_text(path, text.encode("utf-8", "backslashreplace").decode() + "\n")


# -- the prompt under test ----------------------------------------------------------------------------


class PromptA(Struct, frozen=True):
    """The prompt under test: its text, and how it is run."""

    name: str
    text: str
    target: BuiltTarget
    path: Path | None = None


def prompt_a(plan: TestPlan) -> PromptA:
    """The prompt that a plan names, looked for beside the plan and then in the working folder; or the text in it."""
    written = plan.prompt
    if not written:
        message = f"{plan.path.as_posix()}: prompt: missing. Name the file of prompt_a"
        raise usage_error("prompt_missing", message)
    if "\n" in written or "{{" in written:
        return PromptA(f"the prompt in {plan.path.name}", written, build({"prompt": written}))
    for folder in (plan.path.parent, Path()):
        # `results/../prompt_a.md` is `prompt_a.md` for whoever reads it.
        path = Path(normpath(folder / written))
        if path.is_file():
            return prompt_file(path)
    message = f"{plan.path.as_posix()}: prompt: there is no file {written!r}, neither beside the plan nor here"
    raise usage_error("prompt_missing", message)


def prompt_file(path: Path) -> PromptA:
    """The prompt in a file."""
    target = build({"prompt": path.name}, path.parent)
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as fault:
        raise usage_error("prompt_missing", f"{path.as_posix()}: cannot be read as UTF-8: {fault}") from None
    return PromptA(path.as_posix(), text, target, path)


def path_from(folder: Path, file: Path) -> str:
    """How a file is named from a folder."""
    return Path(relpath(file.resolve(), folder.resolve())).as_posix()


# -- who is asked -------------------------------------------------------------------------------------


def _silent(live: Live) -> AbstractContextManager[None]:
    return nullcontext()


class Asking(Struct, frozen=True):
    """Who drafts, who answers and who scores; what is empty is left to evalloom.yaml. `options` are of RunSettings."""

    llm: str = ""
    judge: str = ""
    profile: str = ""
    config: str = ""
    options: Record = {}
    warn: Callable[[str], None] = print
    showing: Callable[[Live], AbstractContextManager[None]] = _silent

    def settings(self, folder: Folder, prompt: PromptA | None) -> Settings:
        """The settings that are named, or those of the folder, or beside the prompt, or here."""
        return settings.load(Path(self.config) if self.config else _settings_file(folder, prompt))

    def drafter(self, known: Settings) -> str:
        """The llm that drafts."""
        return self.llm or known.prompt_eval.llm or self.runner(known).run

    def runner(self, known: Settings) -> Profile:
        """The profile that the prompt is run under."""
        name = self.profile or known.prompt_eval.profile
        return settings.profile(known, name) if name else settings.first_profile(known)

    def scorer(self, known: Settings) -> Profile:
        """The llm that scores, at temperature 0 unless it says otherwise, as a profile to run the evaluator under."""
        name = self.judge or known.prompt_eval.judge or known.judge or self.runner(known).run
        found = settings.profile(known, name)
        params = {"temperature": 0, **settings.llm_of(known, found.run).params, **found.params}
        return msgspec.structs.replace(found, params=params)


def _settings_file(folder: Folder, prompt: PromptA | None) -> Path | None:
    beside = prompt.path.parent if prompt and prompt.path else folder.path
    places = (folder.path / settings.FILE_NAME, beside / settings.FILE_NAME)
    return next((file for file in places if file.is_file()), None)


class Desk(Struct, frozen=True):
    """Everything that a step works with."""

    folder: Folder
    plan: TestPlan
    prompt: PromptA
    known: Settings
    asking: Asking

    def source(self, target: BuiltTarget, profile: Profile, *more: Any) -> str:
        """What stands for all that the answers of a target under a profile depend on."""
        return digest(target.digest, Plan(target, (profile,), self.known).profile_digests(), more)

    def runs(self, target: BuiltTarget, profile: Profile, given: tuple[Case, ...], **options: Any) -> Iterator[Run]:
        """The runs of a target on these cases, recorded in the folder; those of a batch that was cut off still hold."""
        if not given:
            return
        live = Live()
        with self.asking.showing(live):
            plan = self._batch(target, profile, given, options)
            results = evaluate(plan, live, _cut_off(self.folder, target.name), self.asking.warn)
        if results.stopped:
            message = f"stopped: {results.stopped}. What was answered is kept; the same command goes on"
            raise EvalloomError("stopped", message)
        yield from (run for run, _ in results)

    def _batch(self, target: BuiltTarget, profile: Profile, given: tuple[Case, ...], options: Record) -> Plan:
        """A plan for the engine; nothing is scored there."""
        whole: Record = {"limit": None, "tags": [], "filter": "", "variants": [], "output": [], "repeat": 1}
        options = {**whole, **self.asking.options, **options, "profiles": [profile.name]}
        config = self.known.path.as_posix() if self.known.path else ""
        return msgspec.structs.replace(
            prepare(Asked(config=config, target=target, options=options, given=given)),
            profiles=(profile,),
            known=msgspec.structs.replace(self.known, gates=[]),
            checks=(),
            judge="",
            home=self.folder.path,
        )


def open_desk(folder: Folder, asking: Asking) -> Desk:
    """The plan of a folder, its prompt and the settings."""
    plan = the_plan(folder)
    prompt = prompt_a(plan)
    return Desk(folder, plan, prompt, asking.settings(folder, prompt), asking)


def as_case(test_id: str, inputs: Record) -> Case:
    """A case for the engine, whole in its `raw`, so that a batch can be gone on with."""
    return Case(test_id, inputs, raw={"id": test_id, "inputs": inputs})


def _cut_off(folder: Folder, target: str) -> Resume:
    """Takes over from the newest batch of a target where that one did not come to its end, as after `kill -9`."""
    for path, batch in batches(folder.path / FOLDER):
        if batch.target == target:
            return Resume() if batch.finished_at else Resume(source=path.name, retry_errors=True)
    return Resume()


async def drafted(
    folder: Folder, asking: Asking, known: Settings, work: Callable[[Llm], Awaitable[Drafted]]
) -> Drafted:
    """What comes of work that asks the drafting llm; its answers are kept in the folder's own cache."""
    name = asking.drafter(known)
    settings.key_of(settings.llm_of(known, name))
    limits = {name: value for name, value in asking.options.items() if name in ("max_cost", "max_tokens")}
    options = LlmOptions(use_cache=bool(asking.options.get("cache", True)), home=folder.path, **limits)
    llms = Llms(known, options, asking.warn)
    try:
        return await work(llms.get(name))
    except CallError as fault:
        raise EvalloomError(fault.code, f"llm {name!r}: {fault.message}") from None
    except BudgetSpent as fault:
        raise EvalloomError("stopped", f"{fault}. What was drafted is kept; the same command goes on") from None
    finally:
        await llms.close()


# -- what a step was made from ------------------------------------------------------------------------


def digest(*parts: Any) -> str:
    """What stands for values that a step depends on."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str)
    return blake2b(text.encode(), digest_size=12).hexdigest()


class Made(Struct, frozen=True):
    """What an artifact was made from and by whom, and what it was like when it was made."""

    source: str = ""
    content: str = ""
    who: str = ""
    is_edited: bool = False
    """Whether something in it was written by a hand or another tool."""


def made(folder: Folder, step: str) -> Made:
    """What is known of how a step's artifact was made; nothing where another tool or a hand made it."""
    found = read_object(folder.path / _STATE).get(step)
    return msgspec.convert(found, Made) if isinstance(found, dict) else Made()


class Before(Struct, frozen=True):
    """How a step finds its artifact: whether it is made anew as a whole, and whether there are edits in it to keep."""

    is_anew: bool
    is_edited: bool


def look_back(folder: Folder, step: str, source: str, artifact: Path, redo: bool) -> Before:
    """Whether what an artifact was made from has changed; then edits in it are not thrown away unasked."""
    if redo or not artifact.is_file():
        return Before(is_anew=True, is_edited=False)
    was = made(folder, step)
    is_edited = was.is_edited or was.content != _content(artifact)
    if not was.source or was.source == source:
        return Before(is_anew=False, is_edited=is_edited)
    if is_edited:
        message = f"{artifact.as_posix()}: what it was made from has changed, and it was edited by hand since"
        raise usage_error("edited_by_hand", f"{message}. --redo makes it anew and drops the edits")
    return Before(is_anew=True, is_edited=False)


def note_made(folder: Folder, step: str, how: Made, artifact: Path) -> None:
    """Remembers what a step's artifact was made from."""
    file = folder.path / _STATE
    noted = msgspec.structs.replace(how, content=_content(artifact))
    write_json(file, {**read_object(file), step: msgspec.to_builtins(noted)})


def _content(artifact: Path) -> str:
    return blake2b(artifact.read_bytes(), digest_size=12).hexdigest()
