"""`evalloom init` writes a suite that `evalloom validate` passes and `evalloom run` runs, and overwrites nothing."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from evalloom import Rules, check
from evalloom.catalog import load as load_catalog
from evalloom.settings import find_datasets, first_profile, key_names, llm_of, load, profile

STARTERS = load_catalog().starters


def call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "evalloom", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8")


@pytest.mark.parametrize("dialect", STARTERS)
def test_suite_passes_its_own_validation(dialect: str, tmp_path: Path) -> None:
    written = call(tmp_path, "init", "a suite", "--dialect", dialect)
    checked = call(tmp_path / "a suite", "validate", "--strict")
    assert written.returncode == 0 and "cd 'a suite' && evalloom run" in written.stdout
    assert checked.returncode == 0, checked.stdout
    assert f": {dialect} (" in checked.stdout


@pytest.mark.parametrize("dialect", STARTERS)
def test_suite_runs_offline_at_once(dialect: str, tmp_path: Path) -> None:
    call(tmp_path, "init", "--dialect", dialect)
    done = call(tmp_path, "run", "--json")
    summary = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert summary["passed"] == summary["total"] >= 3 and list(summary["profiles"]) == ["offline"]


@pytest.mark.parametrize("dialect", STARTERS)
def test_a_real_model_is_a_matter_of_taking_marks_away(dialect: str, tmp_path: Path) -> None:
    call(tmp_path, "init", "--dialect", dialect)
    path = tmp_path / "evalloom.yaml"
    path.write_text(re.sub(r"^  # (?=real:|  )", "  ", path.read_text(encoding="utf-8"), flags=re.M), encoding="utf-8")
    known = load(path)
    real = llm_of(known, profile(known, "real").run)
    assert real.model and real.base_url.startswith("https://") and "HOP_KEY_REAL" in key_names(real)
    assert first_profile(known).run == "offline"


@pytest.mark.parametrize("dialect", STARTERS)
def test_dataset_has_a_handful_of_cases(dialect: str, tmp_path: Path) -> None:
    call(tmp_path, "init", "--dialect", dialect)
    (dataset,) = find_datasets(tmp_path)
    rules = Rules(root=tmp_path, check_sources_exist=True, check_must_include_in_sources=True)
    found = check(dataset, rules=rules)
    assert 3 <= found.cases <= 5
    assert found.dialect == dialect and found.findings == []


def test_code_imports_what_users_import() -> None:
    files = [text for load in STARTERS.values() for name, text in load().files.items() if name.endswith(".py")]
    imported = {name for text in files for name in re.findall(r"^from (evalloom\S*) import", text, flags=re.M)}
    assert imported == {"evalloom.hop", "evalloom.model"}


def test_default_is_a_pipeline_testset_here(tmp_path: Path) -> None:
    done = call(tmp_path, "init")
    assert done.stdout.splitlines()[-1] == "Next: evalloom run"
    assert (tmp_path / STARTERS["pipeline"]().dataset).is_file() and (tmp_path / "evalloom.yaml").is_file()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "evalloom.yaml").write_text("mine", encoding="utf-8")
    done = call(tmp_path, "init")
    assert done.returncode == 2 and "evalloom.yaml" in done.stderr and "[file_exists]" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["evalloom.yaml"]
    assert (tmp_path / "evalloom.yaml").read_text(encoding="utf-8") == "mine"


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "suite").touch()
    done = call(tmp_path, "init", "suite")
    assert done.returncode == 2 and "[not_a_folder]" in done.stderr
