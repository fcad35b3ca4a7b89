"""The store of replays: on disk when it says so, shared by threads and processes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from evalloom.errors import EvalloomError
from evalloom.record.replay_store import (
    Chosen,
    Pack,
    PackGone,
    Replay,
    ReplayStore,
    StoredDataset,
    StoredProject,
    Window,
)
from evalloom.targets import recipe

STATE = {"nodes": [{"id": "n", "data": {"label": "N", "content": "{{q}}"}}]}
RECIPE = recipe.read(STATE)


def keep(store: ReplayStore, number: int, rows: list[object], key: str = "", first: int = 0) -> int:
    """Keeps a replay of some rows under a number; a row that is no object fails."""
    made = [RECIPE.assemble(row) for row in rows]
    succeeded = sum(one.status == "succeeded" for one in made)
    window = Window(first, f"t{number}", "recipe", len(rows), succeeded, Pack.of(key, made))
    return store.add_window(Replay(f"r{number}", "d", f"p{number % 2}", f"t{number}"), window, RECIPE.parts, True)


@pytest.mark.req("REPLAY-7")
def test_record_is_whole(tmp_path: Path) -> None:
    store = ReplayStore(tmp_path)
    keep(store, 1, [{"q": "a"}, {"q": "b"}, 3], first=5)
    record = store.run("r1", 6)
    assert record is not None
    assert (record.run_id, record.row_index, record.dataset_id, record.project_id) == ("r1-6", 6, "d", "p1")
    assert record.trace.segments[0].template == "{{q}}"
    assert record.trace.text == "--- N ---\nb"
    assert record.output_digest == recipe.digest_of(record.trace.text)
    assert store.run("r1", 4) is None and store.run("r1", 8) is None and store.run("r2", 6) is None
    assert [one.status for one in store.records("r1")] == ["succeeded", "succeeded", "failed"]


@pytest.mark.req("REPLAY-13")
def test_runs_are_found_newest_first(tmp_path: Path) -> None:
    store = ReplayStore(tmp_path)
    for number in range(5):
        keep(store, number, [{"q": "a"}, 3, {"q": "b"}])
    ids = [run.run_id for run in store.runs(Chosen("d"), 100, 0)]
    assert ids == [f"r{number}-{row}" for number in (4, 3, 2, 1, 0) for row in (2, 1, 0)]
    assert [run.run_id for run in store.runs(Chosen("d"), 4, 2)] == ids[2:6]
    assert [run.run_id for run in store.runs(Chosen("d", row_index=1), 2, 1)] == ["r3-1", "r2-1"]
    assert [run.run_id for run in store.runs(Chosen("d", status="failed"), 2, 1)] == ["r3-1", "r2-1"]
    assert store.runs(Chosen("d", row_index=1, status="succeeded"), 9, 0) == []
    assert [run.run_id for run in store.runs(Chosen("d", 0, "succeeded", "p1"), 9, 0)] == ["r3-0", "r1-0"]
    assert store.runs(Chosen("d"), 9, 15) == [] == store.runs(Chosen("other"), 9, 0)


def test_equal_packs_are_kept_once(tmp_path: Path) -> None:
    store = ReplayStore(tmp_path)
    assert keep(store, 1, [{"q": "a"}], "key") == keep(store, 2, [{"q": "a"}], "key")
    found = store.find_pack("key")
    assert found is not None and found[1][0].digest == RECIPE.assemble({"q": "a"}).digest
    assert store.find_pack("other") is None


def test_runs_may_go_with_their_dataset(tmp_path: Path) -> None:
    store = ReplayStore(tmp_path)
    for _ in range(2):
        store.put_dataset(StoredDataset("d", "d", 1, ""), [b'{"q":"a"}'])
        pack = keep(store, 1, [{"q": "a"}], "key")
        assert store.delete_dataset("d", with_runs=True)
        assert store.run("r1", 0) is None and store.find_pack("key") is None and store.rows("d", 0, 9) == []
    with pytest.raises(PackGone):
        store.add_window(Replay("r2", "d", "p", ""), Window(0, "", "recipe", 1, 1, pack), RECIPE.parts, True)
    assert store.replay("r2") is None


def test_threads_and_stores_share_one_file(tmp_path: Path) -> None:
    stores = [ReplayStore(tmp_path), ReplayStore(tmp_path)]

    def write(thread: int) -> None:
        for number in range(20):
            keep(stores[thread % 2], thread * 100 + number, [{"q": number}])

    threads = [threading.Thread(target=write, args=(thread,)) for thread in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores[0].runs(Chosen("d"), 1000, 0)) == 120
    for store in stores:
        store.close()


def test_what_was_kept_survives_a_kill(tmp_path: Path) -> None:
    code = (
        "import sys, os, signal; from pathlib import Path; from evalloom.record.replay_store import *\n"
        "store = ReplayStore(Path(sys.argv[1]))\n"
        "for number in range(1000):\n"
        "    store.put_project(StoredProject(f'p{number}', 'n', b'{}', 'd', 't'))\n"
        "    print(number, flush=True)\n"
        "    if number == 30: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    told = [int(line) for line in done.stdout.split()]
    store = ReplayStore(tmp_path)
    assert told[-1] == 30
    assert all(store.project(f"p{number}") == StoredProject(f"p{number}", "n", b"{}", "d", "t") for number in told)


def test_foreign_or_newer_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store" / "replay.sqlite"
    path.parent.mkdir()
    path.write_bytes(b"no database at all, but long enough to be taken for one" * 20)
    with pytest.raises(EvalloomError, match="bad_store"):
        ReplayStore(tmp_path)
    path.unlink()
    ReplayStore(tmp_path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(EvalloomError, match="version"):
        ReplayStore(tmp_path)
