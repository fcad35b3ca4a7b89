"""The results folder of prompt-eval: its artifacts, how they are read, and who is asked in its steps (EVAL-1)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from hashlib import blake2b
from itertools import count
from os.path import normpath, relpath
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

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


def json_text(value: Any) -> str:
    """An artifact as text, for people to read and edit."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    # Half of a surrogate pair is valid in JSON, and only as an escape.
    return text.encode("utf-8", "backslashreplace").decode() + "\n"


def write_json(path: Path, value: Any) -> None:
    """Writes an artifact whole or not at all."""
    write_text(path, json_text(value))


def put_aside(path: Path, word: str) -> Path:
    """Gives a file another name, so that nothing of it is lost; says which."""
    names = (path.with_name(f"{path.stem}.{word}{number or ''}{path.suffix}") for number in count())
    aside = next(name for name in names if not name.exists())
    return path.rename(aside)


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


class Purse:
    """What a command has spent so far: its steps share one budget."""

    def __init__(self) -> None:
        self.cost = 0.0
        self.tokens = 0

    def left(self, options: Record) -> Record:
        """The options with what is left of their budget."""
        spent = {"max_cost": self.cost, "max_tokens": self.tokens}
        limits = {name: options[name] - used for name, used in spent.items() if options.get(name) is not None}
        for name, left in limits.items():
            if left <= 0 < spent[name]:
                flag = f"--{name.replace('_', '-')} {options[name]:g}"
                raise EvalloomError("stopped", f"stopped: {flag} is reached. {_GOES_ON}")
        return {**options, **limits}


def _silent(live: Live) -> AbstractContextManager[None]:
    return nullcontext()


_GOES_ON = "What was answered is kept; the same command goes on"


class Asking(Struct, frozen=True):
    """Who drafts, who answers and who scores; what is empty is left to evalloom.yaml. `options` are of RunSettings."""

    llm: str = ""
    judge: str = ""
    profile: str = ""
    config: str = ""
    options: Record = {}
    warn: Callable[[str], None] = print
    showing: Callable[[Live], AbstractContextManager[None]] = _silent
    purse: Purse = msgspec.field(default_factory=Purse)

    def settings(self, folder: Folder, prompt: PromptA | None) -> Settings:
        """The settings that are named, now or before; or those of the folder, or beside the prompt, or here."""
        return settings.load(Path(self.config) if self.config else _settings_file(folder, prompt))

    def drafter(self, known: Settings) -> str:
        """The llm that drafts."""
        return self.llm or known.prompt_eval.llm or self.runner(known).run

    def runner(self, known: Settings, before: str = "") -> Profile:
        """The profile that the prompt is run under; `before` is the one that it was run under last."""
        name = self.profile or known.prompt_eval.profile or before
        return settings.profile(known, name) if name else settings.first_profile(known)

    def scorer(self, known: Settings, before: str = "") -> Profile:
        """The llm that scores, at temperature 0 unless it says otherwise, as a profile to run the evaluator under."""
        name = self.judge or known.prompt_eval.judge or known.judge or before or self.runner(known).run
        found = settings.profile(known, name)
        params = {"temperature": 0, **settings.llm_of(known, found.run).params, **found.params}
        return msgspec.structs.replace(found, params=params)


def _settings_file(folder: Folder, prompt: PromptA | None) -> Path | None:
    named = _state(folder).get("config")
    beside = prompt.path.parent if prompt and prompt.path else folder.path
    places = [folder.path / settings.FILE_NAME, beside / settings.FILE_NAME]
    if isinstance(named, str):
        places.insert(0, Path(normpath(folder.path / named)))
    return next((file for file in places if file.is_file()), None)


class Answered(NamedTuple):
    """What a batch gave: its id, empty where nothing was asked, and its runs in the order of the cases."""

    batch: str = ""
    runs: Sequence[Run] = ()


class Desk(Struct, frozen=True):
    """Everything that a step works with."""

    folder: Folder
    plan: TestPlan
    prompt: PromptA
    known: Settings
    asking: Asking

    @property
    def runner(self) -> Profile:
        return self.asking.runner(self.known, made(self.folder, "run").who)

    @property
    def scorer(self) -> Profile:
        return self.asking.scorer(self.known, made(self.folder, "score").who)

    @property
    def yardstick(self) -> str:
        """The prompt that the evaluator is shown: the one under test, unless the plan names another."""
        named = self.plan.yardstick
        return prompt_file(self.plan.path.parent / named).text if named else self.prompt.text

    def source(self, target: BuiltTarget, profile: Profile) -> str:
        """What stands for all that the answers of a target under a profile depend on."""
        return digest(target.digest, Plan(target, (profile,), self.known).profile_digests())

    def answers(self, used: str, target: BuiltTarget, profile: Profile, given: Sequence[Case], **more: Any) -> Answered:
        """The runs of a target on these cases, recorded in the folder.

        `used` is the batch that the artifact was made from. A later one was cut off before its step was finished, and
        what it has is not asked for again.
        """
        if not given:
            return Answered(used)
        options = self.asking.purse.left(self.asking.options)
        live = Live()
        with self.asking.showing(live):
            plan = self._batch(target, profile, tuple(given), {**options, **more})
            results = evaluate(plan, live, self._cut_off(used, target.name), self.asking.warn)
        self.asking.purse.cost += results.summary.cost
        self.asking.purse.tokens += results.summary.tokens
        if results.stopped:
            raise EvalloomError("stopped", f"stopped: {results.stopped}. {_GOES_ON}")
        return Answered(results.path.name, [run for run, _ in results])

    def _batch(self, target: BuiltTarget, profile: Profile, given: tuple[Case, ...], options: Record) -> Plan:
        """A plan for the engine; nothing is scored there."""
        whole: Record = {"limit": None, "tags": [], "filter": "", "variants": [], "output": [], "repeat": 1}
        options = {**whole, **options, "profiles": [profile.name]}
        config = self.known.path.as_posix() if self.known.path else ""
        return msgspec.structs.replace(
            prepare(Asked(config=config, target=target, options=options, given=given)),
            profiles=(profile,),
            known=msgspec.structs.replace(self.known, gates=[]),
            checks=(),
            judge="",
            home=self.folder.path,
        )

    def _cut_off(self, used: str, target: str) -> Resume:
        """Takes over from the newest batch of a target where nothing was made of it yet, as after `kill -9`."""
        for path, batch in batches(self.folder.path / FOLDER):
            if batch.target == target:
                return Resume() if path.name == used else Resume(source=path.name, retry_errors=True)
        return Resume()


def open_desk(folder: Folder, asking: Asking) -> Desk:
    """The plan of a folder, its prompt and the settings."""
    plan = the_plan(folder)
    prompt = prompt_a(plan)
    return Desk(folder, plan, prompt, asking.settings(folder, prompt), asking)


def as_case(test_id: str, inputs: Record) -> Case:
    """A case for the engine, whole in its `raw`, so that a batch can be gone on with."""
    return Case(test_id, inputs, raw={"id": test_id, "inputs": inputs})


async def drafted(
    folder: Folder, asking: Asking, known: Settings, work: Callable[[Llm], Awaitable[Drafted]]
) -> Drafted:
    """What comes of work that asks the drafting llm; its answers are kept in the folder's own cache."""
    name = asking.drafter(known)
    settings.key_of(settings.llm_of(known, name))
    limits = {one: left for one, left in asking.purse.left(asking.options).items() if one in ("max_cost", "max_tokens")}
    options = LlmOptions(use_cache=bool(asking.options.get("cache", True)), home=folder.path, **limits)
    llms = Llms(known, options, asking.warn)
    try:
        return await work(llms.get(name))
    except CallError as fault:
        raise EvalloomError(fault.code, f"llm {name!r}: {fault.message}") from None
    except BudgetSpent as fault:
        raise EvalloomError("stopped", f"stopped: {fault}. {_GOES_ON}") from None
    finally:
        asking.purse.cost += llms.budget.cost
        asking.purse.tokens += llms.budget.tokens
        await llms.close()


# -- what a step was made from ------------------------------------------------------------------------


def digest(*parts: Any) -> str:
    """What stands for values that a step depends on."""
    return _content(json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str).encode())


def _content(data: bytes) -> str:
    return blake2b(data, digest_size=12).hexdigest()


class Made(Struct, frozen=True, omit_defaults=True):
    """What an artifact was made from and by whom, and what it was like when it was made."""

    source: str = ""
    content: str = ""
    who: str = ""
    batch: str = ""
    prompt: str = ""
    """The prompt that was run, as a digest."""
    rules: dict[str, str] = {}
    """The rules that scored, as a digest for each test point."""
    is_edited: bool = False
    """Whether something in it was written by a hand or another tool."""


def _state(folder: Folder) -> Record:
    """What is known of how artifacts were made; nothing where another tool or a hand made them."""
    try:
        return read_object(folder.path / _STATE)
    except EvalloomError:
        return {}  # our own notes, damaged: as if nothing had been noted


def _entries(folder: Folder, step: str) -> list[Made]:
    """How a step's artifact was made: twice while it is being written, since it may be the old or the new one."""
    try:
        return msgspec.convert(_state(folder).get(step, []), list[Made])
    except msgspec.ValidationError:
        return []


def made(folder: Folder, step: str) -> Made:
    """How a step's artifact was made last."""
    return next(reversed(_entries(folder, step)), Made())


class Before(Struct, frozen=True):
    """How a step finds its artifact: what it was made from, and whether it is to be made anew as a whole."""

    was: Made = Made()
    is_anew: bool = True
    is_edited: bool = False
    """Whether there is something in it that a hand or another tool wrote."""


def look_back(folder: Folder, step: str, source: str, artifact: Path, redo: bool) -> Before:
    """Whether what an artifact was made from has changed; then edits in it are not thrown away unasked."""
    if not artifact.is_file():
        return Before()
    content, entries = _content(artifact.read_bytes()), _entries(folder, step)
    same = next((one for one in reversed(entries) if one.content == content), None)
    was = same or next(iter(entries), Made())
    is_edited = was.is_edited or same is None
    if redo:
        return Before(was, is_edited=is_edited)
    if not was.source or was.source == source:
        return Before(was, is_anew=False, is_edited=is_edited)
    if is_edited:
        message = f"{artifact.as_posix()}: the prompt, the plan, prompt_b or who is asked has changed since it was made"
        hint = f"--redo makes it anew and keeps the edited one as {artifact.stem}.edited{artifact.suffix}"
        raise usage_error("edited_by_hand", f"{message}, and there are edits by hand in it. {hint}")
    return Before(was)


def write_made(desk: Desk, step: str, how: Made, artifact: Path, text: str) -> None:
    """Writes an artifact, and remembers what it was made from.

    That is noted before and after: whenever we are killed, it can be told which of the two the file is.
    """
    noted = msgspec.structs.replace(how, content=_content(text.encode()))
    _note(desk, step, [*_entries(desk.folder, step)[-1:], noted])
    write_text(artifact, text)
    _note(desk, step, [noted])


def note_written(desk: Desk, step: str, artifact: Path) -> None:
    """Remembers what a file was like that is only a view of another artifact."""
    _note(desk, step, [Made(content=_content(artifact.read_bytes()))])


def _note(desk: Desk, step: str, entries: list[Made]) -> None:
    config = desk.asking.config
    named = {"config": path_from(desk.folder.path, Path(config))} if config else {}
    write_json(desk.folder.path / _STATE, {**_state(desk.folder), **named, step: msgspec.to_builtins(entries)})
