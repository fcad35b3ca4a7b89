"""The Parquet copy of a batch: always what the log says, whatever happens to either."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from evalloom import catalog
from evalloom.analysis.sql import SqlError, SqlSession
from evalloom.analysis.views import open_views
from evalloom.batchlog import Log, manifest, remove
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Batch, DatasetFacts, Origin, Output, Profile, Run, Scored, Usage, Verdict

pytestmark = pytest.mark.req("WORK-13")
CATALOG = catalog.load()


def a_batch(home: Path, id: str = "b1", runs: int = 3, is_finished: bool = True, **more: Any) -> Path:
    """A batch with runs c1, c2 …, of which every second one failed."""
    path = home / ".evalloom" / "batches" / id
    batch = Batch(
        id,
        "2026-01-05T08:00:00+00:00",
        datasets=[DatasetFacts("cases.jsonl", "pipeline", "d")],
        profiles=[Profile("p", "llm")],
        models={"llm": "model-1"},
        finished_at="2026-01-05T08:01:00+00:00" if is_finished else "",
        **more,
    )
    log = Log(path, batch)
    for number in range(1, runs + 1):
        log.append_run(a_run(number))
        log.append_scored(a_score(number))
    log.close()
    return path


def a_run(number: int, **more: Any) -> Run:
    fields: dict[str, Any] = {
        "profile": "p",
        "number": number,
        "output": Output(f"answer {number}"),
        "started_at": "2026-01-05T08:00:00.500+00:00",
        "duration_s": 0.5,
        "usage": Usage(5, 1, 0.25, 1),
        "tags": ("t",),
        "dialect": "pipeline",
        "origin": Origin("cases.jsonl", number),
        "raw": {"id": f"c{number}", "q": "?", "expected_output": "x"},
    }
    return Run(f"k{number}", f"c{number}", **(fields | more))


def a_score(number: int, status: Any = None) -> Scored:
    status = status or ("failed" if number % 2 == 0 else "passed")
    verdict = Verdict("equals", "equals", "output", status, float(status == "passed"), "why")
    return Scored(f"k{number}", status, float(status == "passed"), [verdict], Usage(2, 0, 0.125, 1))


def statuses(*paths: Path, warnings: list[str] | None = None) -> list[tuple[str, str]]:
    with open_views(paths, CATALOG, ([] if warnings is None else warnings).append) as views:
        return views.rows("SELECT case_id, status FROM runs ORDER BY batch, number")


def copied(path: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mtime_ns for file in (path / "copy").iterdir()}


def test_a_run_has_all_its_columns(tmp_path: Path) -> None:
    path = a_batch(tmp_path)
    with open_views(path, CATALOG) as views:
        [run] = views["runs"].filter("number = 2").fetchall()
        row = dict(zip(views["runs"].columns, run, strict=True))
        [case] = views["cases"].filter("number = 2").project("input, expected, record, file, line, tags").fetchall()
        [batch] = views["batches"].project("status, system, dialect, dataset, profiles, models").fetchall()
    assert (row["status"], row["passed"], row["check"], row["reason"]) == ("failed", False, "equals", "why")
    # With those of the judge, as in summaries.
    assert (row["tokens"], row["cost"], row["calls"], row["latency_s"]) == (8, 0.375, 2, 0.5)
    assert (row["model"], row["tags"], row["output"], row["error"]) == ("model-1", ["t"], '"answer 2"', None)
    assert str(row["started_at"]) == "2026-01-05 08:00:00.500000"
    assert case[:2] == ('{"q":"?"}', '{"structural":"x"}') and case[3:] == ("cases.jsonl", 2, ["t"])
    assert json.loads(case[2])["id"] == "c2"
    assert batch == ("finished", "pipeline", "pipeline", "cases.jsonl", ["p"], '{"llm":"model-1"}')


def test_only_the_owner_may_read_it_and_it_goes_with_the_batch(tmp_path: Path) -> None:
    path = a_batch(tmp_path)
    statuses(path)
    assert stat.S_IMODE((path / "copy").stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in (path / "copy").iterdir()} == {0o600}
    remove(path)
    assert not path.exists()


def test_it_is_built_once_and_again_when_the_log_changes(tmp_path: Path) -> None:
    path = a_batch(tmp_path)
    before = statuses(path)
    first = copied(path)
    assert before == [("c1", "passed"), ("c2", "failed"), ("c3", "passed")]
    statuses(path)
    assert {name: time for name, time in copied(path).items() if name != "index.json"} == {
        name: time for name, time in first.items() if name != "index.json"
    }
    log = Log.resume(path)
    log.append_run(a_run(1, error="gone [x]"))
    log.append_scored(a_score(3, "failed"))
    log.close()
    # A run with an error has no verdicts, even if an earlier version had.
    assert statuses(path) == [("c1", "error"), ("c2", "failed"), ("c3", "failed")]
    assert copied(path).keys().isdisjoint(first.keys() - {"index.json"})


def test_a_copied_folder_keeps_its_copy(tmp_path: Path) -> None:
    path = a_batch(tmp_path)
    statuses(path)
    other = tmp_path / "other"
    shutil.copytree(path, other, copy_function=shutil.copyfile)
    before = copied(other)
    for _ in range(2):
        assert len(statuses(other)) == 3
    unchanged = {name: time for name, time in copied(other).items() if name != "index.json"}
    assert unchanged == {name: time for name, time in before.items() if name != "index.json"}


def test_an_edit_of_the_same_size_is_seen(tmp_path: Path) -> None:
    path = a_batch(tmp_path)
    statuses(path)
    file = path / "verdicts.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"status":"failed"', b'"status":"passed"'))
    assert [status for _, status in statuses(path)] == ["passed"] * 3


@pytest.mark.parametrize("damage", ["cut", "flip", "foreign", "no parquet", "index", "other names", "old format"])
def test_a_damaged_or_foreign_copy_is_replaced(tmp_path: Path, damage: str) -> None:
    path = a_batch(tmp_path)
    expected = statuses(path)
    [parquet] = (path / "copy").glob("runs-*.parquet")
    index = path / "copy" / "index.json"
    content = parquet.read_bytes()
    if damage == "cut":
        parquet.write_bytes(content[:-20])
    elif damage == "flip":
        parquet.write_bytes(content[:100] + bytes([content[100] ^ 255]) + content[101:])
    elif damage == "foreign":
        parquet.unlink()
        duckdb.execute(f"COPY (SELECT 1 AS x) TO '{parquet}'")
    elif damage == "no parquet":
        parquet.unlink()
    elif damage == "index":
        index.write_bytes(b"{")
    elif damage == "other names":
        index.write_text(index.read_text().replace(parquet.name, "../../../../other.parquet"))
    else:
        index.write_text(index.read_text().replace('"format":"', '"format":"0 '))
    assert statuses(path) == expected == statuses(path)


def test_a_torn_tail_and_a_damaged_line_are_left_out(tmp_path: Path) -> None:
    path = a_batch(tmp_path)
    lines = (path / "runs.jsonl").read_bytes().splitlines(keepends=True)
    (path / "runs.jsonl").write_bytes(lines[0] + b'{"key": 7}\n' + lines[2] + lines[1][:40])
    for _ in range(2):  # the second time from the copy
        warnings: list[str] = []
        assert statuses(path, warnings=warnings) == [("c1", "passed"), ("c3", "passed")]
        warning, torn = warnings
        assert f"{path.as_posix()}/runs.jsonl:2: Expected `str`, got `int`" in warning and "[log_mended]" in warning
        assert f"{path.as_posix()}/runs.jsonl:4: the last line is cut off" in torn


def test_an_empty_batch_has_no_rows(tmp_path: Path) -> None:
    path = a_batch(tmp_path, runs=0)
    with open_views(path, CATALOG) as views:
        assert views.rows("SELECT (SELECT count(*) FROM batches), (SELECT count(*) FROM runs)") == [(1, 0)]
    (path / "runs.jsonl").unlink()
    assert statuses(path) == []


def test_a_batch_that_is_written_is_read_up_to_the_last_whole_line(tmp_path: Path) -> None:
    path = a_batch(tmp_path, is_finished=False)
    log = Log.resume(path)
    with (path / "runs.jsonl").open("ab") as stream:
        stream.write(b'{"key":"k9","case_id"')
        stream.flush()
        with open_views(path, CATALOG) as views:
            assert views.rows("SELECT status FROM batches") == [("running",)]
            assert len(views["runs"].fetchall()) == 3
    assert not (path / "copy").exists()
    log.close()
    with open_views(path, CATALOG) as views:
        assert views.rows("SELECT status FROM batches") == [("stopped",)]
    assert (path / "copy").exists()


def test_a_folder_that_cannot_be_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = a_batch(tmp_path)
    # A file in its place: unlike a mode, it also stops root.
    (path / "copy").write_text("")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    assert len(statuses(path)) == 3
    assert os.listdir(tmp_path / "temporary") == []


@pytest.mark.slow
def test_an_output_of_60_megabytes(tmp_path: Path) -> None:
    path = a_batch(tmp_path)
    log = Log.resume(path)
    log.append_run(a_run(4, output=Output("é" * 30_000_000)))
    log.append_scored(a_score(4))
    log.close()
    with open_views(path, CATALOG) as views:
        assert views.rows("SELECT max(length(output::VARCHAR)) FROM runs") == [(30_000_002,)]


def test_processes_that_build_at_once_agree(tmp_path: Path) -> None:
    path = a_batch(tmp_path, runs=300)
    code = (
        "import sys; from evalloom import catalog; from evalloom.analysis.views import open_views\n"
        "views = open_views(sys.argv[1], catalog.load())\n"
        "print(views.rows('SELECT count(*), count(DISTINCT key) FROM runs'))"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, path.as_posix()], stdout=subprocess.PIPE) for _ in range(4)
    ]
    assert {process.communicate()[0] for process in started} == {b"[(300, 300)]\n"}
    assert [name for name in os.listdir(path / "copy") if not name.endswith((".parquet", ".json"))] == []


def test_batches_of_several_kinds_at_once(tmp_path: Path) -> None:
    first, second = a_batch(tmp_path, "b1"), a_batch(tmp_path, "b2", runs=1, config={"kind": "rag"})
    results = tmp_path / "results.jsonl"
    results.write_text(
        '{"id": 1, "tag": "t", "x": 1, "expected_y": 2, "hop_result": "{}", "hop_stats": {"status": "OK"}}\n'
    )
    with open_views([first, second, results, first], CATALOG) as views:
        assert views.rows("SELECT batch, system FROM batches ORDER BY 1") == [
            *(("b1", "pipeline"), ("b2", "rag"), ("results", "hop"))
        ]
        assert views.rows("SELECT batch, count(*) FROM runs GROUP BY 1 ORDER BY 1") == [
            *(("b1", 3), ("b2", 1), ("results", 1))
        ]


def test_two_batches_of_one_id_are_refused(tmp_path: Path) -> None:
    path = a_batch(tmp_path)
    shutil.copytree(path, tmp_path / "again")
    with pytest.raises(EvalloomError, match="same_batch_id"):
        statuses(path, tmp_path / "again")


def test_a_batch_that_is_removed_meanwhile(tmp_path: Path) -> None:
    first, second = a_batch(tmp_path, "b1"), a_batch(tmp_path, "b2")
    (second / "batch.json").write_text("{")
    warnings: list[str] = []
    # In a folder, the others can still be read.
    assert len(statuses(tmp_path, warnings=warnings)) == 3 and "bad_batch" in warnings[0]
    with open_views(first, CATALOG) as views:
        session = SqlSession(views, 60)
        remove(first)
        with pytest.raises(SqlError, match="was removed or changed") as error:
            session.rows("SELECT * FROM runs")
    assert error.value.code == "batch_changed"
    with pytest.raises(EvalloomError, match="no_batch"):
        statuses(first)
    assert not first.exists()


def test_a_folder_with_wildcards_in_its_name(tmp_path: Path) -> None:
    path = a_batch(tmp_path / "a[1]*?'x")
    with open_views(path, CATALOG) as views:
        columns, blocks = SqlSession(views, 60).rows("SELECT count(*) FROM runs")
        assert [*blocks] == [[(3,)]] and columns[0].type == "BIGINT"


def test_times_of_other_zones_are_in_utc(tmp_path: Path) -> None:
    path = a_batch(tmp_path, runs=0)
    log = Log.resume(path)
    log.append_run(a_run(1, started_at="2026-01-05T08:00:00+08:00"))
    log.append_run(a_run(2, started_at=""))
    log.close()
    with open_views(path, CATALOG) as views:
        rows = views.rows("SELECT started_at::VARCHAR, status FROM runs ORDER BY number")
    assert rows == [("2026-01-05 00:00:00", "unscored"), (None, "unscored")]
    assert manifest(path).id == "b1"
