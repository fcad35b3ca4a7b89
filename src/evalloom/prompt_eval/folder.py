"""The results folder of prompt-eval: paths of its artifacts, reading and writing them, and the prompt (EVAL-1)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import count
from os.path import normpath, relpath
from pathlib import Path
from typing import Any

from msgspec import Struct

from evalloom.core.digest import digest_file
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Checked, Finding, Origin, Record, Remark, error
from evalloom.core.text import pluralize
from evalloom.data.dataset import Dataset
from evalloom.data.validate import validate
from evalloom.files.rows import Problem, Row
from evalloom.files.source import source_of
from evalloom.files.write import write_text
from evalloom.prompt_eval.dialect import DIALECT, FORMATS, is_table_row
from evalloom.prompt_eval.plan import TestPlan, read_plan
from evalloom.targets import BuiltTarget, build

DEFAULT = "prompt-eval-results"
Warn = Callable[[str], None]


class Folder(Struct, frozen=True):
    """The paths of the artifacts of one evaluation."""

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
        """The errors of failed runs by test_id, which the results file has no field for."""
        return self.path / "run_failures.json"

    @property
    def humans(self) -> Path:
        """Human scores by test_id."""
        return self.path / "human_scores.json"

    @property
    def repeats(self) -> Path:
        """The scores of each repeat of the judge, by test_id."""
        return self.path / "judge_repeats.json"

    def __str__(self) -> str:
        return self.path.as_posix()


class InvalidArtifact(EvalloomError):
    """An artifact has errors, so the step does not start; `findings` lists them."""

    def __init__(self, message: str, findings: list[Finding]) -> None:
        super().__init__("invalid_data", message, exit_code=2)
        self.findings = findings


# -- reading artifacts --------------------------------------------------------------------------------


class Records(Struct, frozen=True):
    """The rows of one artifact, and its findings."""

    path: Path
    rows: list[Row]
    findings: list[Finding]

    @property
    def values(self) -> list[Record]:
        return [row.value for row in self.rows]

    def finding_at(self, row: Row, remark: Remark) -> Finding:
        """Turn a remark about a row into a finding with its position."""
        origin = Origin(self.path.as_posix(), *row.place_of(remark.path))
        field = str(remark.path[0]) if remark.path else ""
        return Finding(remark.code, remark.severity, remark.message, origin, field, str(row.value.get("test_id", "")))

    def not_run(self) -> list[Finding]:
        """A finding for each case without a result; a failed run has the result null."""
        remark = error("no_result_yet", (), "result_aftertest: missing; this case was not run yet")
        return [self.finding_at(row, remark) for row in self.rows if "result_aftertest" not in row.value]


def read_records(path: Path) -> Records:
    """Read the cases of an artifact of step 2, 3 or 5, with the findings of the linter.

    A file that several steps of a command need is parsed once, until its content changes.
    """
    try:
        content = digest_file(path)
    except OSError:
        content = ""  # the parser raises the error with its message
    return _parse_records(path, content)


# Four: the cases, their results and scores, and the cases beside the prompt.
@lru_cache(maxsize=4)
def _parse_records(path: Path, _content: str) -> Records:
    checked, items = read_checked(path)
    rows = [item for item in items if isinstance(item, Row) and isinstance(item.value, dict)]
    records = Records(path, rows, list(checked.findings))
    # The linter accepts rows of the table without input; the steps need it.
    bare = [row for row in records.rows if is_table_row(row.value)]
    remark = error("missing_field", (), "input: missing; every case needs it")
    records.findings.extend(records.finding_at(row, remark) for row in bare)
    return records


class _RecordingDataset(Dataset):
    """A dataset that keeps its items, so that one pass both lints and reads it."""

    def __init__(self, path: Path) -> None:
        super().__init__(source_of(path), FORMATS, DIALECT.name)
        self.items: list[Row | Problem] = []

    def __iter__(self) -> Iterator[Row | Problem]:
        for item in super().__iter__():
            self.items.append(item)
            yield item


def read_checked(path: Path) -> tuple[Checked, list[Row | Problem]]:
    """Read the rows and problems of a file of cases, with the findings of the linter."""
    dataset = _RecordingDataset(path)
    checked = validate(dataset, hints=False)
    # The linter reads large JSONL files in other processes; their items are read here then.
    return checked, dataset.items or list(Dataset(source_of(path), FORMATS, DIALECT.name))


def raise_if_invalid(findings: Iterable[Finding], path: Path) -> None:
    """Raise InvalidArtifact if one of the findings is an error."""
    listed = list(findings)
    errors = sum(finding.severity == "error" for finding in listed)
    if errors:
        message = f"{path.as_posix()}: found {pluralize(errors, 'error')}; nothing was done"
        raise InvalidArtifact(f"{message}. Fix what is listed above", listed)


def load_plan(folder: Folder) -> TestPlan:
    """Load the plan of a folder; raise if it is missing or has errors."""
    if not folder.plan.is_file():
        hint = f"'evalloom prompt-eval plan PROMPT_A -o {folder}' drafts one, or write one"
        raise usage_error("no_plan", f"{folder}: there is no {folder.plan.name}. {hint}")
    plan, findings = read_plan(folder.plan)
    raise_if_invalid(findings, folder.plan)
    assert plan is not None
    return plan


def require_artifact(path: Path, step: str, folder: Folder) -> Path:
    """Return the path of an artifact; if the file is missing, raise an error that names the step that writes it."""
    if not path.is_file():
        if step == "score" and not folder.results.is_file():
            hint = f"'evalloom prompt-eval run {folder}' comes first"
        else:
            hint = f"'evalloom prompt-eval {step} {folder}' writes it"
        raise usage_error("step_missing", f"there is no {path.as_posix()}. {hint}")
    return path


def read_object(path: Path) -> Record:
    """Read a JSON object that evalloom wrote; empty if there is no such file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as exc:
        raise usage_error("bad_artifact", f"{path.as_posix()}: is not JSON: {exc}") from None
    if not isinstance(value, dict):
        raise usage_error("bad_artifact", f"{path.as_posix()}: expected one JSON object")
    return value


def json_text(value: Any) -> str:
    """Format an artifact as indented JSON, for people to read and edit."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    # JSON allows a lone surrogate only as an escape.
    return text.encode("utf-8", "backslashreplace").decode() + "\n"


def write_json(path: Path, value: Any) -> None:
    """Write an artifact atomically."""
    write_text(path, json_text(value))


def move_to_backup(path: Path, word: str) -> Path:
    """Rename a file to a free backup name, and return that name."""
    return path.rename(_free_name(path, word))


def copy_to_backup(path: Path, word: str, warn: Warn) -> None:
    """Copy a file that is about to be replaced, unless a backup with the same content exists."""
    data, backup = path.read_bytes(), _free_name(path, word)
    backups = path.parent.glob(f"{path.stem}.{word}*{path.suffix}")
    if not any(other.read_bytes() == data for other in backups):
        backup.write_bytes(data)
        warn(f"{path.as_posix()}: the previous file is saved as {backup.name} [kept_beside]")


def _free_name(path: Path, word: str) -> Path:
    names = (path.with_name(f"{path.stem}.{word}{number or ''}{path.suffix}") for number in count())
    return next(name for name in names if not name.exists())


# -- the prompt under test ----------------------------------------------------------------------------


class PromptA(Struct, frozen=True):
    """The prompt under test: its text, and how it is run."""

    name: str
    text: str
    target: BuiltTarget
    path: Path | None = None


def prompt_a(plan: TestPlan) -> PromptA:
    """Load the prompt that a plan names, from beside the plan or the working folder, or the text in the plan."""
    written = plan.prompt
    if not written:
        message = f"{plan.path.as_posix()}: prompt: missing. Name the file of prompt_a"
        raise usage_error("prompt_missing", message)
    if "\n" in written or "{{" in written:
        return prompt_text(written, f"the prompt in {plan.path.name}")
    for folder in (plan.path.parent, Path()):
        # Messages show `prompt_a.md` instead of `results/../prompt_a.md`.
        path = Path(normpath(folder / written))
        if path.is_file():
            return prompt_file(path)
    message = f"{plan.path.as_posix()}: prompt: there is no file {written!r}, neither beside the plan nor here"
    raise usage_error("prompt_missing", message)


def prompt_text(text: str, name: str = "prompt_a") -> PromptA:
    """Build a prompt from text that has no file of its own."""
    return PromptA(name, text, build({"template": text}))


def prompt_file(path: Path) -> PromptA:
    """Load the prompt in a file."""
    target = build({"prompt": path.name}, path.parent)
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as exc:
        raise usage_error("prompt_missing", f"{path.as_posix()}: cannot be read as UTF-8: {exc}") from None
    return PromptA(path.as_posix(), text, target, path)


def path_from(folder: Path, file: Path) -> str:
    """Return the path of a file relative to a folder."""
    return Path(relpath(file.resolve(), folder.resolve())).as_posix()
