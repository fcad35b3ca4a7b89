"""The data store: files, pages of results, performance, and two profiles side by side."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from evalloom.analysis.statistics import paired_mean_interval, paired_test
from evalloom.core.errors import EvalloomError
from evalloom.hop.results.store import DataStore


def result(number: int, value: Any, profile: str = "p", status: str = "OK", **case: Any) -> Any:
    """A result row of the flat wrapper."""
    path = [{"step": 1, "op": "hop_get", "task": "t", "status": status, "retry_count": 0, "duration": 0.1}]
    stats = {"retry_count": number % 2, "execution_path": path, "status": status}
    own = {"id": number, "tag": f"t{number % 2}", "text": f"input {number}", **case}
    return {**own, "hop_result": json.dumps(value), "hop_stats": stats, "profile": profile}


def view(number: int, value: Any, **case: Any) -> Any:
    """A result row of the web page's wrapper."""
    return {"input": {"id": number, "tag": "v", "text": f"input {number}", **case}, "result": json.dumps(value)}


def write(path: Path, *rows: Any, age: int = 0) -> Path:
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows), "utf-8")
    os.utime(path, (1_700_000_000 - age, 1_700_000_000 - age))
    return path


@pytest.mark.req("HOP-15", "HOP-16")
def test_files_with_what_is_in_them(tmp_path: Path) -> None:
    folder = tmp_path / "TestCases"
    folder.mkdir()
    meta = {"_type": "meta", "profile": "p"}
    write(folder / "a.jsonl", meta, result(1, {}), "\n", result(2, {}, "q"), '{"id": 3, "hop_res')
    write(folder / "b.jsonl", {"id": 1, "tag": "x", "text": "only an input"})
    write(folder / "observer.jsonl", {"type": "run_start"})
    write(folder / ".hidden.jsonl", result(1, {}))
    told: list[str] = []
    store = DataStore(tmp_path, told.append)
    first, second = store.list_files()
    assert (first["name"], first["rows"], first["meta"], first["unreadable"]) == ("a.jsonl", 2, 1, 1)
    assert first["profiles"] == ["p", "q"] and first["modified"] == "2023-11-14T22:13:20+00:00"
    assert (second["name"], second["rows"], second["inputs"]) == ("b.jsonl", 0, 1)
    assert len(told) == 1 and "a.jsonl:5: skipped" in told[0] and "[unreadable_result_line]" in told[0]
    assert store.get_stats()["total"] == 2 and len(told) == 1


@pytest.mark.req("HOP-15")
def test_a_file_that_grows_is_seen_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    store = DataStore(tmp_path)
    for number in range(1, 4):
        with path.open("a") as stream:
            stream.write(json.dumps(result(number, {"n": number})) + "\n")
        assert store.get_stats()["total"] == number


def test_no_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(EvalloomError, match="got nothing there"):
        DataStore(tmp_path / "nowhere")


@pytest.mark.req("HOP-19")
def test_a_row_has_everything_about_a_result(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", "\n", result(1, {"ok": True}, expected_ok=False, difficulty="hard"))
    write(tmp_path / "b.jsonl", "rubbish\n", view(7, {"ok": True}, expected_ok=True))
    page = DataStore(tmp_path).query_results()
    first, second = page["rows"]
    assert page["total"] == 2
    assert first == {
        "file": "a.jsonl", "line": 2, "id": 1, "tag": "t1", "difficulty": "hard", "profile": "p", "status": "OK",
        "outcome": "OK", "correct": False, "retry_count": 1, "error": None, "result": {"ok": True},
        "expected": {"ok": False}, "input": {"text": "input 1"},
        "execution_path": [{"step": 1, "op": "hop_get", "task": "t", "status": "OK", "retry_count": 0, "duration": 0.1}],
    }  # fmt: skip
    assert (second["file"], second["line"], second["id"], second["correct"]) == ("b.jsonl", 2, 7, True)
    assert second["profile"] is None and second["input"] == {"text": "input 7"}


@pytest.mark.req("HOP-19")
def test_sorting_by_known_columns_only(tmp_path: Path) -> None:
    rows = [result(number, {"score": number % 3, "label": "abc"[number % 3]}) for number in (10, 9, 2, 1)]
    store = DataStore(write(tmp_path / "a.jsonl", *rows).parent)

    def ids(sort_by: str) -> list[int]:
        return [row["id"] for row in store.query_results(sort_by=sort_by)["rows"]]

    assert (ids(""), ids("id"), ids("-id")) == ([10, 9, 2, 1], [1, 2, 9, 10], [10, 9, 2, 1])
    assert (ids("score"), ids("-label")) == ([9, 10, 1, 2], [2, 10, 1, 9])
    with pytest.raises(EvalloomError, match=r"no column 'scor'. Did you mean 'score'\?.*unknown_result_column"):
        ids("scor")
    with pytest.raises(EvalloomError, match=r"Known are file, id.*label, score"):
        ids("1; DROP TABLE results")


@pytest.mark.req("HOP-19")
def test_filters_bind_their_values(tmp_path: Path) -> None:
    odd = "it's; DROP TABLE x; --\""
    rows = [result(1, {"n": 1}, tag=odd), result(2, {"n": odd}), result(3, None, status="ERROR", expected_n=1)]
    store = DataStore(write(tmp_path / "a.jsonl", *rows).parent)

    def ids(**filters: Any) -> list[int]:
        return [row["id"] for row in store.query_results(filters=filters)["rows"]]

    assert (ids(tag=odd), ids(n=odd), ids(n=1), ids(n="1")) == ([1], [2], [1], [1])
    assert (ids(status="ERROR"), ids(correct=False), ids(correct=None)) == ([3], [3], [1, 2])
    assert (ids(id=[1, "3"]), ids(retry_count=1), ids(id=1, n=2), ids(tag=[])) == ([1, 3], [1, 3], [], [])
    with pytest.raises(EvalloomError, match="unknown_result_column"):
        ids(**{"tag = 'a' OR true --": 1})


@pytest.mark.req("HOP-19")
def test_pages(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", *(result(number, {}) for number in range(5)))
    write(tmp_path / "b.jsonl", *(result(number, {}) for number in range(5, 8)))
    store = DataStore(tmp_path)
    page = store.query_results(offset=4, limit=2)
    assert (page["total"], [row["id"] for row in page["rows"]]) == (8, [4, 5])
    assert store.query_results(offset=99)["rows"] == []
    with pytest.raises(EvalloomError, match="limit: expected a whole number from 0 on, got -1"):
        store.query_results(limit=-1)


@pytest.mark.req("HOP-18")
def test_performance_by_hand(tmp_path: Path) -> None:
    def step(op: str, status: str, duration: Any, **more: Any) -> Any:
        return {
            "type": "step",
            "run_id": "r",
            "timestamp": 1.5,
            "op": op,
            "status": status,
            "duration": duration,
            **more,
        }

    ends = [
        {"type": "run_end", "run_id": "r", "timestamp": "2026-01-01T00:00:00", "duration": n} for n in (1, 2, 3, "4")
    ]
    steps = [step("get", "OK", 1, retry_count=2), step("get", "FAIL", 2.0), step("judge", "OK", None)]
    told: list[str] = []
    write(tmp_path / "observer.jsonl", {"type": "run_start"}, *ends, *steps, '{"type": "run_en')
    found = DataStore(tmp_path, told.append).get_perf_summary()
    assert (found["runs"], found["mean"], found["p50"], found["p95"]) == (4, 2.5, 2.5, pytest.approx(3.85))
    assert found["operators"] == [
        {"op": "get", "calls": 2, "cached": 0, "success_rate": 0.5, "mean_duration": 1.5, "mean_retries": 1.0},
        {"op": "judge", "calls": 1, "cached": 0, "success_rate": 1.0, "mean_duration": None, "mean_retries": 0.0},
    ]
    assert found["unreadable"] == 1 and "unreadable_observer_line" in told[0]


@pytest.mark.req("HOP-18")
def test_answers_from_the_cache_do_not_count_in_the_times(tmp_path: Path) -> None:
    def line(kind: str, duration: float, metadata: Any) -> Any:
        return {"type": kind, "run_id": "r", "op": "get", "status": "OK", "duration": duration, "metadata": metadata}

    runs = [line("run_end", 2, {"profile": "p"}), line("run_end", 0, {"cached": 2}), line("run_end", 4, "a text")]
    steps = [line("step", 0, {"cached": 1}), line("step", 3, None)]
    write(tmp_path / "observer.jsonl", *runs, *steps)
    found = DataStore(tmp_path).get_perf_summary()
    assert (found["runs"], found["cached"], found["mean"], found["p50"]) == (3, 1, 3, 3)
    [operator] = found["operators"]
    assert (operator["calls"], operator["cached"], operator["mean_duration"]) == (2, 1, 3)


@pytest.mark.req("HOP-18")
def test_a_log_without_steps_and_no_log_at_all(tmp_path: Path) -> None:
    nothing = DataStore(tmp_path).get_perf_summary()
    assert (nothing["runs"], nothing["mean"], nothing["operators"]) == (0, None, [])
    write(tmp_path / "observer.jsonl", {"type": "run_end", "run_id": "r", "duration": 2, "status": "OK"})
    found = DataStore(tmp_path).get_perf_summary()
    assert (found["runs"], found["p95"], found["operators"]) == (1, 2, [])


@pytest.mark.req("HOP-18", "WORK-42")
@pytest.mark.parametrize("long", ["result", "metadata"])
def test_a_log_with_an_answer_of_20_mb_is_read_as_any_other(tmp_path: Path, long: str) -> None:
    runs = [{"type": "run_end", "run_id": "r", "duration": n, "metadata": {"profile": "p"}} for n in (1, 3)]
    answer = "x" * 20_000_000
    runs[1][long] = answer if long == "result" else {"profile": "p", "answer": answer}
    write(tmp_path / "observer.jsonl", *runs, '{"type": "' + answer)
    told: list[str] = []
    found = DataStore(tmp_path, told.append).get_perf_summary("p")
    assert (found["runs"], found["mean"], found["unreadable"]) == (2, 2, 1) and "1 line skipped" in told[0]


@pytest.mark.req("HOP-20")
def test_two_profiles_side_by_side(tmp_path: Path) -> None:
    right, wrong = {"ok": True}, {"ok": False}
    under_a = [result(n, right if n < 4 else wrong, "a", expected_ok=True) for n in range(8)]
    under_b = [result(n, wrong if n == 0 else right, "b", expected_ok=True) for n in range(1, 9)]
    under_b[0] = result(1, None, "b", "ERROR", expected_ok=True)
    write(tmp_path / "a.jsonl", *under_a)
    write(tmp_path / "b.jsonl", *under_b, "not JSON\n")
    found = DataStore(tmp_path).compare("a", "b")
    assert (found["cases"], found["only_a"], found["only_b"], found["repeated"]) == (7, 1, 1, 0)
    assert (found["improved"], found["worsened"], found["difference"]) == (4, 1, pytest.approx(3 / 7))
    assert found["p_value"] == pytest.approx(0.375) and found["interval"][0] < 3 / 7 < found["interval"][1]
    assert found["b"] == {"completion_rate": 6 / 7, "correctness": 1.0, "pass_rate": 6 / 7, "correct_rate": 6 / 7}
    assert [(one["id"], one["change"]) for one in found["flipped"]] == [
        (1, "worse"), (4, "better"), (5, "better"), (6, "better"), (7, "better")
    ]  # fmt: skip
    assert found["flipped"][1]["a"]["result"] == wrong and found["flipped"][1]["b"]["result"] == right
    assert len(found["rows"]) == 7


@pytest.mark.req("HOP-20")
def test_a_case_is_known_again_in_either_wrapper_and_its_results_are_averaged(tmp_path: Path) -> None:
    own = {"id": 1, "tag": "v", "text": "input 1", "expected_ok": True}
    beside = {"hop_stats": {"status": "OK"}, "profile": "a"}
    write(tmp_path / "new.jsonl", {**own, "hop_result": '{"ok": true}', **beside})
    write(tmp_path / "old.jsonl", {**own, "hop_result": '{"ok": false}', **beside}, age=100)
    write(tmp_path / "page.jsonl", view(1, {"ok": True}, expected_ok=True))
    found = DataStore(tmp_path).compare("a", "no profile")
    assert (found["cases"], found["repeated"], found["difference"]) == (1, 1, 0.5)
    [pair] = found["flipped"]
    assert (pair["a"]["runs"], pair["a"]["share"], pair["a"]["file"], pair["b"]["share"]) == (2, 0.5, "new.jsonl", 1)


@pytest.mark.req("HOP-20", "WORK-4", "WORK-7")
def test_copies_of_the_results_make_no_difference_sure(tmp_path: Path) -> None:
    rows = [result(n, {"ok": profile == "b"}, profile, expected_ok=True) for n in range(4) for profile in "ab"]
    for number in range(5):
        write(tmp_path / f"copy{number}.jsonl", *rows)
        found = DataStore(tmp_path).compare("a", "b")
        assert (found["judged"], found["improved"], found["difference"]) == (4, 4, 1)
        assert found["p_value"] == pytest.approx(0.125) and found["conclusion"] == "no difference shown"


@pytest.mark.req("WORK-7")
def test_profiles_with_unequal_numbers_of_results_are_compared_by_their_means(tmp_path: Path) -> None:
    once = [result(n, {"ok": True}, "a", expected_ok=True) for n in range(6)]
    often = [result(n, {"ok": turn > 0}, "b", expected_ok=True) for n in range(6) for turn in range(5)]
    found = DataStore(write(tmp_path / "r.jsonl", *once, *often).parent).compare("a", "b")
    total, squares = 6 * -0.2, 6 * 0.04
    assert (found["judged"], found["worsened"], found["repeated"]) == (6, 6, 24)
    assert found["p_value"] == pytest.approx(paired_test(total, squares, 6))
    assert found["interval"] == pytest.approx(list(paired_mean_interval(total, squares, 6)))
    assert found["conclusion"] == "no difference shown"


@pytest.mark.req("WORK-7")
def test_several_profiles_at_once_are_corrected_for_their_number(tmp_path: Path) -> None:
    rows = [result(n, {"ok": profile != "a"}, profile, expected_ok=True) for n in range(6) for profile in "abc"]
    store = DataStore(write(tmp_path / "r.jsonl", *rows).parent)
    alone = store.compare("a", "b")
    assert alone["p_value"] == pytest.approx(0.03125) and alone["conclusion"] == "better"
    both = store.compare_all("a", ["b", "c"])
    assert [(one["p_adjusted"], one["conclusion"]) for one in both] == [
        (pytest.approx(0.0625), "no difference shown")
    ] * 2


@pytest.mark.req("HOP-20")
def test_profiles_without_a_shared_case(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", result(1, {}, "a"), result(2, {}, "b"))
    store = DataStore(tmp_path)
    found = store.compare("a", "b")
    assert (found["cases"], found["difference"], found["interval"], found["p_value"]) == (0, None, None, None)
    with pytest.raises(EvalloomError, match="unknown_profile_in_store"):
        store.compare("a", "c")


def flat_row(number: int, given: Any, profile: str = "p", **more: Any) -> dict[str, Any]:
    told = {"hop_result": json.dumps(given), "hop_stats": {"status": "OK"}, "profile": profile}
    return {"id": number, "tag": "t", "q": f"q{number}", **more, **told}


def put(path: Path, *rows: Any) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    os.utime(path, ns=(1, 1_700_000_000_000_000_000))


@pytest.mark.req("HOP-14", "HOP-16")
@pytest.mark.parametrize("odd", [{"hop_result": None}, {"hop_stats": None}, {"hop_result": None, "hop_stats": None}])
def test_a_result_without_a_value_is_a_result(odd: dict[str, Any], tmp_path: Path) -> None:
    put(tmp_path / "a.jsonl", {"id": 1, "tag": "a", "profile": "p", **odd})
    put(tmp_path / "b.jsonl", flat_row(1, {"s": 1}))
    store = DataStore(tmp_path)
    assert store.get_stats()["total"] == store.query_results()["total"] == store.get_stats()["total"] == 2


@pytest.mark.req("HOP-19")
def test_rows_of_one_line_are_not_mixed_up(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps([flat_row(n, {"s": n}) for n in range(3)]))
    rows = DataStore(tmp_path).query_results()["rows"]
    assert [(row["id"], row["result"]) for row in rows] == [(n, {"s": n}) for n in range(3)]


@pytest.mark.req("HOP-19")
def test_a_number_that_is_none_hides_no_other_row(tmp_path: Path) -> None:
    put(tmp_path / "a.jsonl", flat_row(0, {"s": 0}), flat_row(1, {"s": 1}, x=float("nan")), flat_row(2, {"s": 2}))
    rows = DataStore(tmp_path).query_results()["rows"]
    assert [row["result"] for row in rows] == [{"s": 0}, {"s": 1}, {"s": 2}]


@pytest.mark.req("HOP-20")
def test_a_file_that_was_just_written_counts(tmp_path: Path) -> None:
    put(tmp_path / "b.jsonl", flat_row(1, 1, expected_output=1), flat_row(1, 1, "q", expected_output=1))
    for ahead in (0, 3600):
        late = tmp_path / "a.jsonl"
        late.write_text(json.dumps(flat_row(1, 2, "q", expected_output=1)) + "\n")
        os.utime(late, (time.time() + ahead, time.time() + ahead))
        assert [DataStore(tmp_path).compare("p", "q")["worsened"] for _ in range(4)] == [1] * 4


@pytest.mark.req("HOP-20")
def test_a_case_is_its_id_and_its_inputs_however_they_are_written(tmp_path: Path) -> None:
    turned = dict(reversed(flat_row(1, {"s": 2}, "q", x=1e22, expected_s=2).items()))
    put(tmp_path / "a.jsonl", flat_row(1, {"s": 1}, x=1e22, expected_s=1), flat_row(2, {"s": 1}))
    put(tmp_path / "b.jsonl", turned, flat_row(2, {"s": 1}, "q"), flat_row(3, "plain", "q"))
    found = DataStore(tmp_path).compare("p", "q")
    assert (found["cases"], found["only_a"], found["only_b"]) == (2, 0, 1)


@pytest.mark.req("HOP-19")
@pytest.mark.parametrize("page", [{"offset": "0; DROP"}, {"limit": -1}, {"offset": 10**30}, {"limit": True}])
def test_a_page_is_two_whole_numbers(page: dict[str, Any], tmp_path: Path) -> None:
    put(tmp_path / "a.jsonl", flat_row(1, 1))
    for ask in (DataStore(tmp_path).query_results, lambda **page: DataStore(tmp_path).compare("p", "p", **page)):
        with pytest.raises(EvalloomError, match="expected a whole number from 0 on"):
            ask(**page)


@pytest.mark.req("HOP-15")
def test_whatever_is_damaged_is_made_again(tmp_path: Path) -> None:
    put(tmp_path / "a.jsonl", *(flat_row(n, {"s": n}, p) for n in range(50) for p in "pq"))
    first = DataStore(tmp_path).compare("p", "q")
    for path in (tmp_path / ".evalloom/hop-store").glob("*.parquet"):
        kept = path.read_bytes()
        path.write_bytes(kept[: len(kept) // 2] + b"\xff" * 40 + kept[len(kept) // 2 + 40 :])
        assert DataStore(tmp_path).compare("p", "q") == first
        path.write_bytes(b"")
        assert DataStore(tmp_path).compare("p", "q") == first


def test_a_line_nested_too_deep_is_no_stumbling_block(tmp_path: Path) -> None:
    deep = "[" * 1100 + "]" * 1100
    put(tmp_path / "a.jsonl", flat_row(1, {"s": 1}))
    with (tmp_path / "a.jsonl").open("a") as stream:
        stream.write(json.dumps(flat_row(2, {"s": 2}))[:-1] + f', "x": {deep}}}\n')
    store = DataStore(tmp_path)
    assert store.get_stats()["total"] >= 1 and store.query_results()["rows"][0]["result"] == {"s": 1}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such file names")
def test_a_file_name_that_is_not_utf8_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xe4.jsonl")).write_text("{}\n")
    with pytest.raises(EvalloomError, match=r"udce4.jsonl' is not UTF-8. Rename"):
        DataStore(tmp_path).get_stats()
    with pytest.raises(EvalloomError, match="got nothing there"):
        DataStore(tmp_path / ("x" * 300))
