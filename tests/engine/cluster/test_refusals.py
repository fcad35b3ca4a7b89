"""What cannot run on a cluster is refused with words, and so is a worker that would run something else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from tests.engine.cluster.harness import Batch, Cluster, make_project

import evalloom
from evalloom.core.errors import EvalloomError
from evalloom.engine.cluster import bundle

pytestmark = pytest.mark.req("WORK-40")
Evalloom = Callable[..., CompletedProcess[str]]
NOWHERE = "tcp://127.0.0.1:9"


@pytest.mark.slow
def test_a_worker_with_another_version_is_left_out(cluster: Cluster, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import evalloom\nevalloom.__version__ = '0.0.9'\n")
    cluster.workers[0].kill()
    cluster.workers[1].kill()
    cluster.add_worker(PYTHONPATH=str(other))
    folder = make_project(tmp_path / "project")
    code, _, err = Batch(folder, "--executor", "dask", "--scheduler", cluster.address).end()
    assert code == 3
    assert f"it has evalloom 0.0.9, and this machine {evalloom.__version__}" in err


@pytest.mark.slow
def test_a_worker_with_other_code_is_left_out(cluster: Cluster, tmp_path: Path) -> None:
    for name, answer in (("here", "1"), ("there", "2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "library_of_ours.py").write_text(f"def answer(q):\n    return {answer}\n")
    for worker in cluster.workers:
        worker.kill()
    cluster.add_worker(PYTHONPATH=str(tmp_path / "there"))
    folder = make_project(tmp_path / "project", target="python:library_of_ours:answer")
    batch = Batch(
        folder, "--executor", "dask", "--scheduler", cluster.address, PYTHONPATH=str(tmp_path / "here"), PATH=PATH
    )
    code, _, err = batch.end()
    assert code == 3
    assert "[worker_differs]" in err and "here and" in err


PATH = os.environ["PATH"]


@pytest.mark.parametrize(
    "flags, says",
    [
        (["--workers", "2"], "--workers: goes with --executor dask"),
        (["--scheduler", NOWHERE], "--scheduler: goes with --executor dask"),
        (["--executor", "dask", "--scheduler", NOWHERE, "--workers", "2"], "expected one of them, got both"),
        (["--executor", "dask", "--record", "r.jsonl"], "--record: the file is on this machine"),
    ],
)
def test_flags_that_do_not_go_together(tmp_path: Path, evalloom: Evalloom, flags: list[str], says: str) -> None:
    make_project(tmp_path, 3)
    done = evalloom("run", *flags)
    assert done.returncode == 2 and says in done.stderr


@pytest.mark.slow
def test_a_scheduler_that_is_not_there(tmp_path: Path, evalloom: Evalloom) -> None:
    make_project(tmp_path, 3)
    done = evalloom("run", "--executor", "dask", "--scheduler", NOWHERE)
    assert done.returncode == 3 and "[scheduler_unreachable]" in done.stderr
    assert not list(tmp_path.glob(".evalloom/batches/*"))


def test_a_large_project_is_refused_with_its_largest_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "_MAX_BYTES", 1000)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.bin").write_bytes(bytes(3_000_000))
    with pytest.raises(EvalloomError, match=r"model\.bin \(3 MB\)"):
        bundle.pack([tmp_path], [], [], [])


def test_a_bundle_has_no_hidden_files_and_no_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    for name in ("code.py", "cases.jsonl", ".env", ".evalloom/batches/x", "venv/pyvenv.cfg", "a/b.txt", "run.sh"):
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (project / "run.sh").chmod(0o755)
    monkeypatch.chdir(project)
    packed = bundle.pack([project], [], [project / "cases.jsonl"], [])
    there = tmp_path / "there"
    bundle.unpack(packed.data, there)
    assert {path.relative_to(there).as_posix() for path in there.rglob("*") if path.is_file()} == {
        "code.py",
        "a/b.txt",
        "run.sh",
    }
    assert os.access(there / "run.sh", os.X_OK) and not os.access(there / "code.py", os.X_OK)


@pytest.mark.parametrize("path", ["../out.txt", "/etc/out.txt", "a/../../out.txt"])
def test_a_bundle_writes_only_into_its_folder(tmp_path: Path, path: str) -> None:
    import zlib

    import msgspec

    data = zlib.compress(msgspec.msgpack.encode([[path, False, b"x"]]))
    with pytest.raises(OSError, match="leaves its folder"):
        bundle.unpack(data, tmp_path / "folder")
    assert not list(tmp_path.rglob("out.txt"))
