"""The store of replays: on disk when it says so, shared by threads and processes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from evalloom.core.digest import sha256_base64
from evalloom.core.errors import EvalloomError
from evalloom.replay.recipe.parse import read_recipe
from evalloom.replay.store.database import ReplayStore
from evalloom.replay.store.records import (
    Counts,
    DatasetDeleted,
    Pack,
    PackDeleted,
    Replay,
    RunFilter,
    StoredDataset,
    StoredProject,
    Window,
)

STATE = {"nodes": [{"id": "n", "data": {"label": "N", "content": "{{q}}"}}]}
RECIPE = read_recipe(STATE)


def keep(store: ReplayStore, number: int, rows: list[object], key: str = "", first: int = 0) -> int:
    """Keeps a replay of some rows under a number; a row that is no object fails."""
    pack = Pack.of(key, map(RECIPE.assemble, rows))
    window = Window(first, f"t{number}", "recipe", Counts.of(pack.outcomes), pack)
    return store.add_window(
        Replay(f"r{number}", "d", f"p{number % 2}", f"t{number}"), window, RECIPE.nodes, True, False
    )


@pytest.mark.req("REPLAY-7")
def test_record_is_whole(tmp_path: Path) -> None:
    store = ReplayStore(tmp_path)
    keep(store, 1, [{"q": "a"}, {"q": "b"}, 3], first=5)
    record = store.run("r1", 6)
    assert record is not None
    assert (record.run_id, record.row_index, record.dataset_id, record.project_id) == ("r1-6", 6, "d", "p1")
    assert record.trace.segments[0].template == "{{q}}"
    assert record.trace.text == "--- N ---\nb"
    assert record.output_digest == sha256_base64(record.trace.text)
    assert store.run("r1", 4) is None and store.run("r1", 8) is None and store.run("r2", 6) is None
    assert [one.status for one in store.records("r1")] == ["succeeded", "succeeded", "failed"]


@pytest.mark.req("REPLAY-13")
def test_runs_are_found_newest_first(tmp_path: Path) -> None:
    store = ReplayStore(tmp_path)
    for number in range(5):
        keep(store, number, [{"q": "a"}, 3, {"q": "b"}])
    ids = [run.run_id for run in store.runs(RunFilter("d"), 100, 0)]
    assert ids == [f"r{number}-{row}" for number in (4, 3, 2, 1, 0) for row in (2, 1, 0)]
    assert [run.run_id for run in store.runs(RunFilter("d"), 4, 2)] == ids[2:6]
    assert [run.run_id for run in store.runs(RunFilter("d", row_index=1), 2, 1)] == ["r3-1", "r2-1"]
    assert [run.run_id for run in store.runs(RunFilter("d", status="failed"), 2, 1)] == ["r3-1", "r2-1"]
    assert store.runs(RunFilter("d", row_index=1, status="succeeded"), 9, 0) == []
    assert [run.run_id for run in store.runs(RunFilter("d", 0, "succeeded", "p1"), 9, 0)] == ["r3-0", "r1-0"]
    assert store.runs(RunFilter("d"), 9, 15) == [] == store.runs(RunFilter("other"), 9, 0)


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
    with pytest.raises(PackDeleted):
        window = Window(0, "", "recipe", Counts(1, 1, 0, 0), pack)
        store.add_window(Replay("r2", "d", "p", ""), window, RECIPE.nodes, True, False)
    assert store.replay("r2") is None


def test_large_rows_are_kept_in_blocks(tmp_path: Path) -> None:
    store = ReplayStore(tmp_path)
    rows: list[object] = [{"q": f"{number}" + "x" * 15_000} for number in range(100)]
    keep(store, 1, rows)
    for number in (0, 7, 8, 9, 99, 50):
        record = store.run("r1", number)
        assert record is not None and record.trace.text.startswith(f"--- N ---\n{number}x")
    assert [record.row_index for record in store.records("r1")] == [*range(100)]


def test_who_removes_runs_hurts_no_reader(tmp_path: Path) -> None:
    store = ReplayStore(tmp_path)
    keep(store, 1, [{"q": "a"}, {"q": "b"}])
    records, runs = store.records("r1"), store._matching_windows(RunFilter("d", 1, "succeeded"))
    next(records), next(runs)
    assert store.delete_dataset("d", with_runs=True) and not store.delete_dataset("d", with_runs=True)
    store._block_cache.clear()
    assert list(records) == [] and store.runs(RunFilter("d", 1, "succeeded"), 9, 0) == []


def test_window_of_a_replay_that_is_gone_is_refused(tmp_path: Path) -> None:
    store = ReplayStore(tmp_path)
    store.put_dataset(StoredDataset("d", "d", 2, ""), [b"{}", b"{}"])
    pack = keep(store, 1, [{"q": "a"}], "key")
    store.delete_dataset("d", with_runs=False)
    window = Window(1, "", "recipe", Counts(1, 1, 0, 0), pack)
    with pytest.raises(DatasetDeleted):
        store.add_window(Replay("r1", "d", "p", ""), window, RECIPE.nodes, False, True)
    with pytest.raises(DatasetDeleted):
        store.add_window(Replay("r9", "d", "p", ""), window, RECIPE.nodes, False, False)


@pytest.mark.req("REPLAY-16")
def test_last_two_are_the_last_that_were_kept(tmp_path: Path) -> None:
    store = ReplayStore(tmp_path)
    for number in (5, 3, 9, 1):
        keep(store, number, [{"q": "a"}])
    assert store.choose_two("d") == ("r9", "r1")
    assert (store.choose_two("d", b="r9"), store.choose_two("d", a="r5")) == (("r3", "r9"), ("r5", "r1"))
    assert store.choose_two("d", a="r1") is None is store.choose_two("d", b="r5")


def keep_asked(store: ReplayStore, number: int, rows: int, asked: int | None) -> None:
    pack = Pack.of("", map(RECIPE.assemble, [{"q": "a"}] * rows))
    window = Window(0, "t", "recipe", Counts.of(pack.outcomes), pack)
    replay = Replay(f"r{number}", "d", "p", "t", rows_requested=asked)
    store.add_window(replay, window, RECIPE.nodes, True, False)


@pytest.mark.req("REPLAY-16")
def test_only_complete_replays_are_chosen_and_the_others_are_named(tmp_path: Path) -> None:
    store = ReplayStore(tmp_path)
    for number, rows, asked in ((1, 2, 2), (2, 1, 2), (3, 2, None), (4, 1, 2)):
        keep_asked(store, number, rows, asked)
    states = [replay.state for replay in store.replays("d", 9, 0)]
    assert states == ["interrupted", "complete", "interrupted", "complete"]
    assert store.choose_two("d") == ("r1", "r3") and store.choose_two("d", b="r4") == ("r3", "r4")
    assert [replay.replay.id for replay in store.left_out("d", ("r1", "r3"))] == ["r4", "r2"]
    assert [replay.replay.id for replay in store.left_out("d", ("r3", "r4"))] == []


@pytest.mark.req("REPLAY-16")
def test_a_replay_runs_as_long_as_its_process_lives(tmp_path: Path) -> None:
    store = ReplayStore(tmp_path)
    keep_asked(store, 1, 1, 2)
    script = (
        "import sys; from pathlib import Path; from evalloom.replay.store.running import RunningMark\n"
        "mark = RunningMark(Path(sys.argv[1]), 'r1'); print('marked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(store.path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "marked\n"
    assert [replay.state for replay in store.replays("d", 9, 0)] == ["running"]
    process.kill()
    process.wait()
    assert [replay.state for replay in store.replays("d", 9, 0)] == ["interrupted"]
    assert not list(store.path.parent.glob("*.running"))


def test_a_store_of_an_earlier_version_opens_and_its_replays_are_complete(tmp_path: Path) -> None:
    store = ReplayStore(tmp_path)
    keep(store, 1, [{"q": "a"}])
    store.close()
    with sqlite3.connect(tmp_path / "store" / "replay.sqlite") as connection:
        connection.execute("ALTER TABLE replays DROP COLUMN rows_requested")
    connection.close()
    store = ReplayStore(tmp_path)
    keep_asked(store, 2, 1, 3)
    assert [(one.replay.rows_requested, one.state) for one in store.replays("d", 9, 0)] == [
        (3, "interrupted"),
        (None, "complete"),
    ]


def test_dataset_beside_a_failing_write_keeps_its_rows(tmp_path: Path) -> None:
    store = ReplayStore(tmp_path)
    begun, held = threading.Event(), threading.Event()
    # While the writer is busy with one, the two others come together into its next transaction.

    def hold(connection: sqlite3.Connection) -> bool:
        begun.set()
        return held.wait(10)

    busy = store._writer.submit(hold)
    begun.wait(10)
    bad = store._writer.submit(lambda connection: connection.execute("nonsense"))
    writing = threading.Thread(target=store.put_dataset, args=(StoredDataset("d", "d", 2, ""), [b"1", b"2"]))
    writing.start()
    for _ in range(200):
        if store._writer._queue.qsize() < 2:
            time.sleep(0.01)
    held.set()
    writing.join()
    assert busy.result() and isinstance(bad.exception(), EvalloomError)
    assert store.rows("d", 0, 9) == [b"1", b"2"]


def test_folder_may_be_opened_by_several_at_once(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from evalloom.replay.store.database import ReplayStore; ReplayStore(Path(sys.argv[1]))"
    started = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(4)]
    assert [process.wait() for process in started] == [0] * 4


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
    assert len(stores[0].runs(RunFilter("d"), 1000, 0)) == 120
    for store in stores:
        store.close()


def test_what_was_kept_survives_a_kill(tmp_path: Path) -> None:
    code = (
        "import sys, os, signal; from pathlib import Path; from evalloom.replay.store.database import *\n"
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
