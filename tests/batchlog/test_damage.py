"""One flipped byte in any file of a batch: the line is named and set aside, all other runs are used."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.batchlog import find, manifest
from evalloom.cli import app

pytestmark = pytest.mark.req("WORK-42")

FILES = ("runs.jsonl", "verdicts.jsonl", "batch.json")
RUN = ("run", "cases.jsonl", "--target", "prompt:prompt.md", "--profile", "echo", "--repeat", "2")


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Folder:
    """A project with one batch of eight runs and a baseline of it; `call` runs a command in it."""

    def __init__(self, path: Path) -> None:
        self.path = path / "project"
        self.path.mkdir()
        (self.path / "prompt.md").write_text("{{q}}")
        cases = [{"id": f"c{n}", "q": f"x{n}", "expected_output": f"x{n % 3}", "tags": ["t"]} for n in range(4)]
        (self.path / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
        assert self.call(*RUN).code == 1 and self.call("baseline", "save", "good").code == 0
        [self.batch] = (self.path / ".evalloom" / "batches").iterdir()
        self._copy = shutil.copytree(self.path / ".evalloom", path / "copy")

    def restore(self) -> None:
        shutil.rmtree(self.path / ".evalloom")
        shutil.copytree(self._copy, self.path / ".evalloom")

    def call(self, *arguments: str) -> Done:
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        with chdir(self.path), redirect_stdout(out), redirect_stderr(err):
            code = app.run(arguments)
        done = Done(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))
        assert "internal_error" not in done.err and "Traceback" not in done.err, done.err
        return done

    def runs(self) -> list[tuple[str, int, str]]:
        """The case, the repeat and the status of every run that `batches show` knows."""
        shown = self.call("batches", "show", self.batch.name, "--json")
        pairs = [json.loads(line) for line in shown.out.splitlines()]
        return [(one["run"]["case_id"], one["run"].get("repeat", 0), one["scored"]["status"]) for one in pairs]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    yield Folder(tmp_path_factory.mktemp("damage"))


@given(name=st.sampled_from(FILES), place=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255))
def test_one_flipped_byte_costs_at_most_its_run(folder: Folder, name: str, place: float, mask: int) -> None:
    folder.restore()
    before = folder.runs()
    file = folder.batch / name
    content = bytearray(file.read_bytes())
    at = int(place * len(content))
    content[at] ^= mask
    file.write_bytes(content)
    number = content[:at].count(b"\n")
    touched = (
        ""
        if name == "batch.json"
        else json.loads((folder._copy / "batches" / folder.batch.name / name).read_bytes().splitlines()[number])["key"]
    )
    folder.call("batches", "list")
    if "bad_batch" in folder.call("batches", "show", "latest").err:
        assert folder.call("batches", "repair", folder.batch.name).code == 0
        assert folder.runs() == before
    after = folder.runs()
    lost = [run for run in before if run not in after]
    assert len(lost) <= 1 and (touched or not lost)
    for arguments in (
        ("batches", "show", "latest", "--case", "c1"),
        ("compare", "latest", "--against", "good"),
        ("score", "latest"),
        (*RUN, "--resume-from", folder.batch.name),
    ):
        folder.call(*arguments)


@pytest.mark.parametrize(
    "damage", [(b'"repeat":1', b'"repeat":x'), (b'"key":"', b'"kez":"'), (b'"raw":{', b'"raw":0,"r":{')]
)
def test_a_line_that_is_not_a_run_is_named_and_its_run_is_repeated(folder: Folder, damage: tuple[bytes, bytes]) -> None:
    folder.restore()
    file = folder.batch / "runs.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    number = next(number for number, line in enumerate(lines) if damage[0] in line)
    lines[number] = lines[number].replace(*damage)
    file.write_bytes(b"".join(lines))
    for arguments in (("batches", "show", "latest"), ("compare", "latest", "--against", "good"), ("score", "latest")):
        assert f"runs.jsonl:{number + 1}: " in folder.call(*arguments).err
    assert len(folder.runs()) == 7
    folder.call(*RUN, "--resume")
    assert len(folder.runs()) == 8


def test_a_run_without_its_dialect_is_set_aside_and_repeated(folder: Folder) -> None:
    folder.restore()
    file = folder.batch / "runs.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"dialect"', b'"dialecu"', 1))
    scored = folder.call("score", "latest")
    assert "runs.jsonl:1: the run has no readable case" in scored.err and " 7 " in scored.out
    resumed = folder.call(*RUN, "--resume", "--json")
    assert json.loads(resumed.out)["total"] == 8 and "runs.jsonl:1" in resumed.err


@pytest.mark.parametrize("damage", ["torn", "flipped", "missing", "empty"])
def test_a_damaged_manifest_is_rebuilt_from_what_is_left_and_from_the_runs(folder: Folder, damage: str) -> None:
    folder.restore()
    before = folder.runs()
    file = folder.batch / "batch.json"
    whole, text = manifest(folder.batch), file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes({"torn": text[: len(text) // 2], "flipped": text.replace(b"{", b"[", 1), "empty": b""}[damage])
    refused = folder.call("batches", "show", "latest")
    assert refused.code == 2 and f"evalloom batches repair {folder.batch.name}" in refused.err
    assert "[bad_batch]" in folder.call("batches", "list").err
    done = folder.call("batches", "repair", folder.batch.name)
    assert done.code == 0 and "8 runs" in done.out and ("lost" in done.out) == (damage in ("torn", "missing", "empty"))
    assert folder.runs() == before and folder.call("score", "latest").code == 1
    rebuilt = manifest(folder.batch)
    assert rebuilt.summary["total"] == 8 and [profile.name for profile in rebuilt.profiles] == ["echo"]
    assert (rebuilt == whole) == (damage == "flipped") or rebuilt.scored_at


def test_a_sound_manifest_is_not_touched(folder: Folder) -> None:
    folder.restore()
    file = folder.batch / "batch.json"
    text = file.read_bytes()
    done = folder.call("batches", "repair", "latest")
    assert done.code == 0 and "nothing to repair" in done.out and file.read_bytes() == text
    assert os.listdir(find(str(folder.batch))) == os.listdir(folder.batch)
