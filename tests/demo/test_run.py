"""`evalloom demo` runs and shows the bundled examples, and reports those that do not work."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rich.cells import cell_len

from evalloom.catalog import load
from evalloom.core.errors import EvalloomError
from evalloom.demo import report as demo_report
from evalloom.demo.run import examples_of, files_of, find_examples, run, unchanged_copy
from evalloom.engine.system import Catalog

CATALOG = load()
COUNTS = Path(__file__).parent / "example_counts.json"


def call(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "evalloom", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", env=os.environ | environment)


class Shown(NamedTuple):
    """One call of the command: the folder it was typed in, what it printed, and its report."""

    folder: Path
    stdout: str
    report: dict[str, Any]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    folder = tmp_path_factory.mktemp("demo")
    done = call(folder, "demo", COLUMNS="1000")
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr
    return Shown(folder, done.stdout, json.loads((folder / "evalloom-demo/report.json").read_text(encoding="utf-8")))


def test_command_writes_reports_batches_and_examples_and_nothing_else(shown: Shown) -> None:
    assert [path.name for path in shown.folder.iterdir()] == ["evalloom-demo"]
    written = sorted(path.name for path in (shown.folder / "evalloom-demo").iterdir())
    assert written == [".evalloom", "examples", "report.json", "report.md"]
    assert "evalloom-demo/report.md" in shown.stdout and "evalloom validate" in shown.stdout
    assert "\x1b" not in shown.stdout


def test_results_name_the_copied_examples_unless_a_user_changed_them(shown: Shown, tmp_path: Path) -> None:
    batches = (shown.folder / "evalloom-demo/.evalloom/batches").glob("*/batch.json")
    paths = [dataset["path"] for batch in batches for dataset in json.loads(batch.read_bytes())["datasets"]]
    assert paths and all(path.startswith("evalloom-demo/examples/") for path in paths), paths
    copy = unchanged_copy(CATALOG, tmp_path)
    (copy / "hop/TestCases/result_of_a_batch.jsonl").write_text("{}\n", encoding="utf-8")
    assert unchanged_copy(CATALOG, tmp_path) == copy == tmp_path / "examples"
    (copy / "first/cases.jsonl").write_text("{}\n", encoding="utf-8")
    assert unchanged_copy(CATALOG, tmp_path) == find_examples(CATALOG)


def test_report_has_every_file_and_conversion(shown: Shown) -> None:
    report = shown.report
    faulty = [entry for entry in report["files"] if entry["expected"] == "FAIL"]
    assert report["schema_version"] == 1 and report["as_expected"] is True
    assert [entry["file"] for entry in report["files"]] == [example.file for example in files_of(CATALOG)]
    assert [entry["errors"] for entry in faulty] == [12] and [entry["warnings"] for entry in faulty] == [11]
    assert len([entry for entry in report["conversions"] if "back" in entry]) == 25


def test_every_example_is_run_and_told(shown: Shown) -> None:
    runs = {entry["example"]: entry for entry in shown.report["runs"]}
    assert {*runs, *(entry["example"] for entry in shown.report["replays"])} == {
        path.parent.relative_to(find_examples(CATALOG)).as_posix()
        for path in find_examples(CATALOG).rglob("evalloom.yaml")
    }
    assert all(entry["as_expected"] for entry in runs.values())
    counts = json.loads(COUNTS.read_text(encoding="utf-8"))
    assert {name: {status: run["summary"][status] for status in counts[name]} for name, run in runs.items()} == counts
    assert "unknown_en" in runs["first"]["failures"][0] and any(run["summary"]["retries"] for run in runs.values())
    assert "first: unknown_en: contains: expected 'call'" in shown.stdout


def test_recipe_is_replayed_and_told(shown: Shown) -> None:
    [entry] = shown.report["replays"]
    assert (entry["succeeded"], entry["failed"], entry["same_digests_twice"]) == (27, 3, True)
    assert "30 rows twice, 27 succeeded, 3 failed, the same digests both times" in shown.stdout
    data_dir = shown.folder / "evalloom-demo/.evalloom"
    done = call(shown.folder, "replay", "show", f"{entry['replay']}-18", "--data-dir", str(data_dir))
    assert done.returncode == 0 and "connect_failed" in done.stdout, done.stdout + done.stderr


def test_handbook_is_searched(shown: Shown) -> None:
    [entry] = shown.report["retrievals"]
    assert entry["found"] == {"official": [20, 22], "oral": [15, 22], "ambiguous": [10, 12]}
    assert len(entry["only_official"]) == 5 and "found 20 of 22 official" in shown.stdout


def test_fits_a_terminal_of_80_columns(tmp_path: Path) -> None:
    (tmp_path / "evalloom").symlink_to(Path(sys.executable))
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = call(tmp_path, "demo", COLUMNS="80", PATH=path)
    wide = [line for line in done.stdout.splitlines() if cell_len(line) > 80]
    # A path or a value without spaces sticks out.
    assert all(max(map(cell_len, line.split())) > 40 for line in wide), wide


def test_records_can_be_looked_at(shown: Shown) -> None:
    (record,) = [entry["record"] for entry in shown.report["runs"] if entry["example"] == "first"]
    done = call(shown.folder, "batches", "show", record)
    assert done.returncode == 0 and "unknown_en" in done.stdout, done.stdout + done.stderr
    assert f"batches show {record}" in shown.stdout


def test_commands_to_type_next_work(shown: Shown, tmp_path: Path) -> None:
    shutil.copytree(shown.folder / "evalloom-demo/examples", tmp_path / "evalloom-demo/examples")
    typed = [command for example in examples_of(CATALOG) for command in example.commands]
    lines = [command.replace("{examples}", "evalloom-demo/examples") for command in typed]
    assert all(f"evalloom {line}\n" in shown.stdout for line in lines)
    codes = {line.split()[0]: call(tmp_path, *line.split()).returncode for line in lines}
    assert codes == {"run": 1, "validate": 2, "inspect": 0, "convert": 0}


def test_only_systems_of_the_catalog_are_shown(tmp_path: Path) -> None:
    [pipeline] = [system for system in CATALOG.systems if system.name == "pipeline"]
    demo = run(Catalog((pipeline,)), find_examples(CATALOG), tmp_path)
    assert demo.as_expected and not demo.parts and not demo.imports
    assert [result.folder for result in demo.suites] == ["first", "pipeline", "pipeline/reviews"]
    assert {result.example.dialect for result in demo.files} == {"pipeline"} and len(demo.round_trips) == 1
    assert not {"replays", "retrievals"} & {*demo_report.document(demo)}


def test_examples_are_left_as_they_are(tmp_path: Path) -> None:
    examples = shutil.copytree(
        find_examples(CATALOG), tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__")
    )
    before = sorted(examples.rglob("*"))
    assert run(CATALOG, examples, tmp_path / "home").as_expected
    assert sorted(examples.rglob("*")) == before


def test_kept_files_are_never_overwritten(tmp_path: Path) -> None:
    first = call(tmp_path, "demo", "--keep", "kept")
    second = call(tmp_path, "demo", "--keep", "kept")
    assert first.returncode == 0 and (tmp_path / "kept/examples/README.md").is_file()
    assert (tmp_path / "kept/converted/hop_to_pipeline_and_back.jsonl").is_file()
    assert second.returncode == 2 and "[file_exists]" in second.stderr


def test_an_example_that_does_not_work_is_reported(tmp_path: Path) -> None:
    examples = shutil.copytree(find_examples(CATALOG), tmp_path / "examples")
    (examples / "replay/rows.jsonl").write_text('{"variables": 1}\n', encoding="utf-8")
    demo = run(CATALOG, examples, tmp_path)
    assert [one.example.file for one in demo.files if not one.as_expected] == ["replay/rows.jsonl"]
    [replay] = [suite for suite in demo.suites if not suite.as_expected]
    (error,) = replay.failures()
    assert replay.folder == "replay" and "[invalid_data]" in error and error in demo_report.markdown(demo)
    assert "**no**" in demo_report.markdown(demo) and demo_report.document(demo)["as_expected"] is False


def test_missing_examples_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalloom.__file__", str(tmp_path / "evalloom/__init__.py"))
    with pytest.raises(EvalloomError, match="examples_missing"):
        find_examples(CATALOG)
