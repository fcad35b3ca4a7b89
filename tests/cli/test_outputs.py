"""Files of `-o` and `--out`: reports of ours are replaced, other files only with --force, all tried before a call."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.reports import LINT_REPORTERS
from evalloom.ui.report_marks import is_report

pytestmark = pytest.mark.req("WORK-42")

Evalloom = Callable[..., subprocess.CompletedProcess[str]]
RUN = ("run", "cases.jsonl", "--target", "prompt:prompt.md", "--profile", "echo")
RESULTS = (".json", ".jsonl", ".csv", ".xml", ".html")
FINDINGS = tuple(reporter.suffix for reporter in LINT_REPORTERS)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "prompt.md").write_text("{{q}}")
    cases = [{"id": f'"c,{n}\n', "q": "x", "expected_output": "x", "checks": [{"contains": "x, y"}]} for n in range(2)]
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    return tmp_path


def commands(name: str) -> list[tuple[str, ...]]:
    """The commands that write a file of this name."""
    found = (
        [(*RUN, "-o", name), *((one, "latest", "-o", name) for one in ("score", "report"))]
        if name.endswith(RESULTS)
        else []
    )
    return found + ([("validate", "cases.jsonl", "-o", name)] if name.endswith(FINDINGS) else [])


@pytest.mark.parametrize("suffix", sorted({*RESULTS, *FINDINGS}))
def test_a_report_of_ours_is_replaced_and_another_file_only_by_force(
    evalloom: Evalloom, project: Path, suffix: str
) -> None:
    evalloom(*RUN)
    for arguments in commands(f"report{suffix}"):
        for _ in range(2):
            assert "would_overwrite" not in evalloom(*arguments).stderr and is_report(project / f"report{suffix}")
    (project / f"mine{suffix}").write_text("precious\n")
    for arguments in commands(f"mine{suffix}"):
        done = evalloom(*arguments)
        assert done.returncode == 2 and f"mine{suffix}: exists" in done.stderr and "--force" in done.stderr
        assert (project / f"mine{suffix}").read_text() == "precious\n"
    for arguments in commands(f"mine{suffix}"):
        assert "would_overwrite" not in evalloom(*arguments, "--force").stderr
        assert (project / f"mine{suffix}").read_text() != "precious\n"


@given(
    st.binary(min_size=1, max_size=100), st.sampled_from([b'{"schema_version": 1, "tool": "x"}', b"case_id,profile,"])
)
def test_what_somebody_else_wrote_is_not_a_report(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, start: bytes
) -> None:
    file = tmp_path_factory.mktemp("foreign") / "file"
    for content in (text, start + text):
        file.write_bytes(content)
        assert not is_report(file)


def test_a_table_with_a_column_of_the_user_is_not_replaced(evalloom: Evalloom, project: Path) -> None:
    evalloom(*RUN, "-o", "runs.csv")
    file = project / "runs.csv"
    head, _, rest = file.read_text("utf-8").partition("\n")
    file.write_text(f"{head},my notes\n{rest}", "utf-8")
    assert "[would_overwrite]" in evalloom(*RUN, "-o", "runs.csv").stderr


def test_empty_files_and_pipes_are_written(evalloom: Evalloom, project: Path) -> None:
    (project / "empty.json").touch()
    assert "would_overwrite" not in evalloom(*RUN, "-o", "empty.json").stderr
    assert json.loads((project / "empty.json").read_text("utf-8"))["tool"] == "evalloom run"
    os.mkfifo(project / "pipe.jsonl")
    reader = subprocess.Popen(["cat", "pipe.jsonl"], cwd=project, stdout=subprocess.PIPE, text=True)
    evalloom(*RUN, "-o", "pipe.jsonl")
    assert len(reader.communicate(timeout=30)[0].splitlines()) == 2


def test_resuming_writes_the_same_files_again(evalloom: Evalloom, project: Path) -> None:
    outputs = ("-o", "r.json", "-o", "r.hop.jsonl")
    first, again = evalloom(*RUN, *outputs), evalloom(*RUN, *outputs, "--resume")
    assert "would_overwrite" not in first.stderr + again.stderr
    assert "of another batch" in evalloom(*RUN, *outputs).stderr


@pytest.mark.parametrize("name", ["cases.jsonl/r.json", "folder.json", "x" * 300 + ".json"])
def test_an_output_that_cannot_be_written_is_told_before_the_batch(
    evalloom: Evalloom, project: Path, name: str
) -> None:
    (project / "folder.json").mkdir()
    done = evalloom(*RUN, "-o", "good.json", "-o", name)
    assert done.returncode == 3 and f"{name}: cannot be written" in done.stderr and "[cannot_write]" in done.stderr
    assert not (project / ".evalloom/batches").exists() and not (project / "good.json").exists()


def test_a_conversion_replaces_no_file_without_force(evalloom: Evalloom, project: Path) -> None:
    convert = ("convert", "cases.jsonl", "--to", "hop", "-o", "out.jsonl")
    assert evalloom(*convert).returncode == 0
    done = evalloom(*convert)
    assert done.returncode == 2 and "out.jsonl: exists. Choose another name, or pass --force" in done.stderr
    assert evalloom(*convert, "--force").returncode == 0
