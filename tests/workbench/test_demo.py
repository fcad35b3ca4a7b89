"""`evalloom demo` shows the bundled examples, and says so when one of them does not behave."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from evalloom.errors import EvalloomError
from evalloom.workbench import demo


def call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "evalloom", "demo", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8")


def test_command_writes_both_reports_and_nothing_else(tmp_path: Path) -> None:
    done = call(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    written = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
    assert written == ["evalloom-demo", "evalloom-demo/report.json", "evalloom-demo/report.md"]
    assert "evalloom-demo/report.md" in done.stdout and "evalloom validate" in done.stdout
    assert "\x1b" not in done.stdout and done.stderr == ""


def test_report_has_every_file_and_conversion(tmp_path: Path) -> None:
    call(tmp_path, "-o", "here")
    report = json.loads((tmp_path / "here/report.json").read_text(encoding="utf-8"))
    faulty = [entry for entry in report["files"] if entry["expected"] == "FAIL"]
    assert report["schema_version"] == 1 and report["as_expected"] is True
    assert [entry["file"] for entry in report["files"]] == [example.file for example in demo.EXAMPLES]
    assert {finding["code"] for entry in faulty for finding in entry["findings"]} == {*demo.FAULTS}
    assert len([entry for entry in report["conversions"] if "back" in entry]) == 25


def test_kept_files_are_never_overwritten(tmp_path: Path) -> None:
    first = call(tmp_path, "--keep", "kept")
    second = call(tmp_path, "--keep", "kept")
    assert first.returncode == 0 and (tmp_path / "kept/examples/README.md").is_file()
    assert (tmp_path / "kept/converted/hop_to_pipeline_and_back.jsonl").is_file()
    assert second.returncode == 2 and "[file_exists]" in second.stderr


def test_a_surprise_is_reported(tmp_path: Path) -> None:
    examples = shutil.copytree(demo.find_examples(), tmp_path / "examples")
    (examples / "replay/rows.jsonl").write_text('{"variables": 1}\n', encoding="utf-8")
    shown = demo.run(examples)
    wrong = [one.example.file for one in shown.seen if not one.as_expected]
    assert wrong == ["replay/rows.jsonl"] and not shown.as_expected
    assert "**no**" in demo.markdown(shown) and demo.document(shown)["as_expected"] is False


def test_missing_examples_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalloom.__file__", str(tmp_path / "evalloom/__init__.py"))
    with pytest.raises(EvalloomError, match="examples_missing"):
        demo.find_examples()
