"""HOP result files through the views of batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalloom import catalog
from evalloom.analysis.views import open_views
from evalloom.hop.results.store import DataStore

pytestmark = pytest.mark.req("WORK-13")
CATALOG = catalog.load()
META = {"_type": "meta", "profile": "p", "run_llm": "m-1", "verify_llm": "m-2", "timestamp": "2026-02-19T10:30:00"}


def result(number: int, value: Any, profile: str = "p", error: str = "") -> Any:
    step = {"step": 1, "op": "hop_get", "task": "find", "status": "OK", "retry_count": 1, "duration": 0.25}
    stats = {"retry_count": 1, "execution_path": [step], "status": "ERROR" if error else "OK"}
    stats |= {"error": error} if error else {}
    case = {"id": number, "tag": "t", "difficulty": "hard", "text": f"input {number}", "expected_score": 3}
    return {**case, "hop_result": json.dumps(value), "hop_stats": stats, "profile": profile}


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_a_result_file_is_read_like_a_batch(tmp_path: Path) -> None:
    rows = [META, result(1, {"score": 3}), result(2, {"score": 4}), result(3, None, error="late"), "broken\n"]
    path = write(tmp_path / "r1.jsonl", *rows, result(1, {"score": 3}), result(1, {"score": 2}, "q"))
    warnings: list[str] = []
    with open_views(path, CATALOG, warnings.append) as views:
        assert views.rows("SELECT batch, system, dataset, created_at::VARCHAR FROM batches") == [
            ("r1", "hop", "r1.jsonl", "2026-02-19 10:30:00")
        ]
        assert views.rows("SELECT case_id, number, profile, repeat, status, passed, model FROM runs ORDER BY line") == [
            ("1", 1, "p", 0, "passed", True, "m-1"),
            ("2", 2, "p", 0, "failed", False, "m-1"),
            ("3", 3, "p", 0, "error", False, "m-1"),
            ("1", 1, "p", 1, "passed", True, "m-1"),
            ("1", 1, "q", 0, "failed", False, None),
        ]
        assert views.rows('SELECT "check", error, key, tokens FROM runs WHERE number > 1 ORDER BY number') == [
            ("equals score", None, "r1.jsonl:3", None),
            (None, "late", "r1.jsonl:4", None),
        ]
        assert views.rows("SELECT name, status, reason FROM verdicts WHERE case_id = '2'") == [
            ("equals score", "failed", "expected 3, got 4")
        ]
        assert views.rows("SELECT input, expected, difficulty, tags FROM cases WHERE number = 1") == [
            ('{"text":"input 1"}', '{"equals score":3}', "hard", ["t"])
        ]
        assert views.rows("SELECT DISTINCT step, type, duration_s, retries FROM steps") == [
            ("find", "hop_get", 0.25, 1)
        ]
    assert len(warnings) == 1 and f"{path.as_posix()}:5" in warnings[0]


@pytest.mark.req("WORK-5")
def test_the_rates_are_those_of_the_store(tmp_path: Path) -> None:
    rows = [result(number, {"score": 3 + number % 2}, error="x" if number % 5 == 0 else "") for number in range(1, 21)]
    view = [{"input": {"id": 50, "text": "v", "expected_score": 3}, "result": '{"score": 3}'}]
    write(tmp_path / "r1.jsonl", META, *rows)
    write(tmp_path / "r2.jsonl", *view, {"input": {"id": 51, "text": "w"}, "error": "late"})
    stats = DataStore(tmp_path).get_stats()
    with open_views(tmp_path, CATALOG) as views:
        [row] = views.rows("""SELECT count(*), count(*) FILTER (status <> 'error'), count(*) FILTER (passed),
            avg(passed::INT) FROM runs""")
    assert row[:3] == (stats["total"], stats["completed"], stats["correct"])
    assert row[3] == pytest.approx(stats["pass_rate"])


def test_the_observers_log_is_a_view(tmp_path: Path) -> None:
    write(tmp_path / "r.jsonl", result(1, {"score": 3}))
    write(
        tmp_path / "observer.jsonl",
        {"type": "run_start", "run_id": "a", "timestamp": 1, "hoplet": "h", "input": {"x": 1}},
        {"type": "step", "run_id": "a", "op": "hop_get", "status": "OK", "duration": "0.5", "retry_count": 2},
        {"type": "run_end", "run_id": "a", "status": "OK", "duration": 0.75, "metadata": {"profile": "p", "cached": 1}},
        '{"run_id": "b"}\n{"type": "st',
    )
    warnings: list[str] = []
    with open_views(tmp_path, CATALOG, warnings.append) as views:
        columns = "type, run_id, op, status, duration, retry_count, profile, cached"
        assert views.rows(f"SELECT {columns} FROM observer") == [
            ("run_start", "a", None, None, None, None, None, None),
            ("step", "a", "hop_get", "OK", 0.5, 2, None, None),
            ("run_end", "a", None, "OK", 0.75, None, "p", 1),
        ]
        assert views.rows("SELECT event->>'$.hoplet' FROM observer WHERE type = 'run_start'") == [("h",)]
        # It is no batch.
        assert views.rows("SELECT batch FROM batches") == [("r",)]
    assert len(warnings) == 2 and all("observer.jsonl:" in warning for warning in warnings)


def test_files_without_results_are_no_batches(tmp_path: Path) -> None:
    cases = write(tmp_path / "cases.jsonl", {"id": 1, "tag": "t", "text": "x"})
    assert CATALOG.result_sources(cases) is None and CATALOG.result_sources(tmp_path) is None
    write(tmp_path / "r.jsonl", result(1, {"score": 3}))
    sources = CATALOG.result_sources(tmp_path)
    assert sources is not None and [source.batch.batch for source in sources] == ["r"]
