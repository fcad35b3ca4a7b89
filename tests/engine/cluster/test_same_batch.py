"""A batch on a cluster is the batch of one machine: its log, its figures and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.engine.cluster.harness import Batch, Cluster, content, local, make_project

pytestmark = [pytest.mark.req("WORK-40"), pytest.mark.slow]


def manifest(path: Path) -> object:
    written = json.loads((path / "batch.json").read_text())
    summary = {name: value for name, value in written.pop("summary").items() if not name.endswith("_s")}
    volatile = ("id", "created_at", "finished_at", "command")
    kept = {name: value for name, value in written.items() if name not in volatile}
    return kept, {name: summary[name] for name in ("passed", "failed", "error", "total")}


def test_the_log_is_that_of_one_machine(cluster: Cluster, tmp_path: Path) -> None:
    folder = make_project(tmp_path / "project")
    here = Batch(folder)
    code, _, _ = here.end()
    there = Batch(folder, "--executor", "dask", "--scheduler", cluster.address)
    assert there.end()[0] == code == 1
    assert content(there.path()) == content(here.path())
    assert manifest(there.path()) == manifest(here.path())


def test_workers_of_this_machine(tmp_path: Path) -> None:
    folder = make_project(tmp_path / "project")
    code, expected = local(folder)
    batch = Batch(folder, "--executor", "dask", "--workers", "2")
    assert batch.end()[0] == code
    assert content(batch.path()) == expected


def test_the_settings_name_the_executor(cluster: Cluster, tmp_path: Path) -> None:
    more = f"run: {{executor: dask, scheduler: '{cluster.address}'}}\n"
    folder = make_project(tmp_path / "project", target="python:code.py:where", more=more)
    cluster.add_worker(WORKER_NAME="third")
    batch = Batch(folder, "--no-checks")
    batch.end()
    assert {run["output"]["value"] for run in content(batch.path())[0].values()} == {"", "third"}


def test_files_beside_the_code_are_there(cluster: Cluster, tmp_path: Path) -> None:
    folder = make_project(tmp_path / "project", 20, "python:code.py:reads")
    (folder / "texts").mkdir()
    (folder / "texts" / "greeting.txt").write_text("hello ")
    _, expected = local(folder)
    batch = Batch(folder, "--executor", "dask", "--scheduler", cluster.address)
    batch.end()
    assert content(batch.path()) == expected


def test_edited_code_is_never_stale(cluster: Cluster, tmp_path: Path) -> None:
    folder = make_project(tmp_path / "project", 20, "python:code.py:quick")
    words = ("--executor", "dask", "--scheduler", cluster.address)
    assert Batch(folder, *words).end()[0] == 1
    code = (folder / "code.py").read_text()
    (folder / "code.py").write_text(code.replace('"wrong" if q == "7" else q', "q"))
    assert Batch(folder, *words).end()[0] == 0


def test_a_prompt_with_a_scripted_llm_and_judge(cluster: Cluster, tmp_path: Path) -> None:
    more = 'llms: {a: {protocol: scripted, file: rules.yaml}}\njudge: a\nchecks: [{judge: "It is a number"}]\n'
    folder = make_project(tmp_path / "project", 20, "prompt:prompt.md", more)
    (folder / "prompt.md").write_text("Say {{q}}")
    (folder / "rules.yaml").write_text('rules:\n  - answer: \'{"passed": true, "score": 1, "reason": "so"}\'\n')
    code, expected = local(folder)
    batch = Batch(folder, "--executor", "dask", "--scheduler", cluster.address)
    assert batch.end()[0] == code
    assert strip(content(batch.path())) == strip(expected)


def strip(files: list[dict[str, dict[str, object]]]) -> object:
    """Leave out the durations in the trace."""
    return [{key: {**line, "trace": None} for key, line in lines.items()} for lines in files]
