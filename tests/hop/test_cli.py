"""`evalloom stats` as people run it: figures, groups, two profiles, single rows, and what it says to wrong questions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def result(number: int, tag: str, expected: str, given: str | None, profile: str, **stats: Any) -> dict[str, Any]:
    told = {"retry_count": 0, "execution_path": [], "status": "OK" if given else "ERROR", **stats}
    packed = json.dumps({"answer": given, "score": 4}) if given else "null"
    case = {"id": number, "tag": tag, "difficulty": "easy", "q": f"q{number}", "expected_answer": expected}
    return {**case, "hop_result": packed, "hop_stats": told, "profile": profile}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two profiles on ten cases: the second is right wherever the first is, and on tag `b` as well."""
    rows = [result(n, "ab"[n > 5], "x", "x" if n <= 5 else "y", "first") for n in range(1, 11)]
    rows += [result(n, "ab"[n > 5], "x", "x", "second", retry_count=n % 2) for n in range(1, 10)]
    rows += [result(10, "b", "x", None, "second", error="timeout")]
    test_cases = tmp_path / "task" / "TestCases"
    test_cases.mkdir(parents=True)
    (test_cases / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return test_cases


@pytest.mark.req("HOP-16")
def test_the_figures_with_the_weakest_group_first(folder: Path, in_process: Run) -> None:
    shown = in_process("stats", "task")
    lines = [line.split() for line in shown.out.splitlines()]
    assert shown.code == 0 and ["all", "20", "10", "95.0%", "73.7%", "70.0%"] in [line[:6] for line in lines]
    by_tag = [line[0] for line in lines if line[:1] in (["a"], ["b"])]
    assert by_tag == ["b", "a"] and "FAIL 1" in shown.out
    assert any(line[:2] == ["answer", "100.0%"] for line in lines)


@pytest.mark.req("HOP-16")
def test_a_group_in_which_everything_crashed_is_the_weakest(folder: Path, in_process: Run) -> None:
    rows = [result(20 + n, "crashed", "x", None, "first", error="timeout") for n in range(3)]
    rows += [{**result(30, "open", "", "x", "first"), "expected_answer": None} | {"q": "?"}]
    del rows[-1]["expected_answer"]
    (folder / "more.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    lines = in_process("stats", "task", "--by", "tag").out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("tag"))
    assert [line.split()[0] for line in lines[at + 1 : at + 5]] == ["crashed", "b", "a", "open"]
    assert "4 errors; nothing is expected of 1" in " ".join(lines)


@pytest.mark.req("HOP-16")
def test_identifiers_are_counted_and_numbers_are_readable(tmp_path: Path, in_process: Run) -> None:
    packed = [
        {"ticket_id": 25_000 + n, "orderId": n, "valid": 1, "price": 25_000.4 + n, "share": 0.125} for n in (1, 2)
    ]
    rows = [{**result(n, "a", "x", "x", "p"), "hop_result": json.dumps(one)} for n, one in enumerate(packed)]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    shown = {line.split()[0]: line for line in in_process("stats", ".").out.splitlines() if line}
    assert "2 distinct values" in shown["ticket_id"] and "2 distinct values" in shown["orderId"]
    assert "mean 25,002, 25,001 to 25,002" in shown["price"] and "mean 0.125" in shown["share"]
    assert "mean 1," in shown["valid"]


@pytest.mark.req("WORK-5", "HOP-16", "HOP-20")
def test_every_surface_shows_the_same_rates(folder: Path, in_process: Run) -> None:
    stats = in_process("stats", "task", "--json").summary
    compared = in_process("stats", "task", "--compare", "first,second", "--json").summary
    for name, side in (("first", "a"), ("second", "b")):
        figures = stats["by_profile"][name]
        assert {rate: figures[rate] for rate in ("completion_rate", "correctness", "pass_rate")} == {
            rate: compared[side][rate] for rate in ("completion_rate", "correctness", "pass_rate")
        }
    assert stats["by_profile"]["second"]["pass_rate"] == 0.9 and stats["by_profile"]["second"]["correctness"] == 1
    shown = in_process("stats", "task", "--compare", "first,second").out
    assert "second       90.0%   100.0%      90.0%" in shown


@pytest.mark.req("WORK-7")
def test_several_profiles_against_one(folder: Path, in_process: Run) -> None:
    rows = [result(n, "a", "x", "x", "third") for n in range(1, 11)]
    (folder / "third.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    shown = in_process("stats", "task", "--compare", "first,second,third").out
    assert "second against first" in shown and "third against first" in shown and "for 2 comparisons" in shown
    found = in_process("stats", "task", "--compare", "first,second,third", "--json").summary
    assert [one["profile_b"] for one in found["comparisons"]] == ["second", "third"]


@pytest.mark.req("HOP-16")
def test_one_profile_and_chosen_groups(folder: Path, in_process: Run) -> None:
    shown = in_process("stats", str(folder), "--profile", "first", "--by", "difficulty")
    assert "difficulty" in shown.out and "\ntag " not in shown.out and "100.0%" in shown.out
    found = in_process("stats", "task", "--profile", "first", "--json").summary
    assert (found["total"], found["correctness"], list(found["by_profile"])) == (10, 0.5, ["first"])
    assert found["performance"]["runs"] == 0


@pytest.mark.req("HOP-20")
def test_two_profiles_side_by_side(folder: Path, in_process: Run) -> None:
    shown = in_process("stats", "task", "--compare", "first,second").out
    assert "10 cases under both" in shown and "second against first: +40.0 points" in shown
    assert "4 better, 0 worse" in shown and "better 6 b" in shown
    assert in_process("stats", "task", "--compare", "first,second", "--json").summary["improved"] == 4


@pytest.mark.req("HOP-19")
def test_single_results(folder: Path, in_process: Run) -> None:
    shown = in_process("stats", "task", "--rows", "2", "--where", "correct=false", "--sort", "-id").out
    assert "2 of 6 results" in shown and shown.splitlines()[1].split()[:2] == ["10", "b"]
    page = in_process("stats", "task", "--rows", "3", "--profile", "second", "--where", "tag=b", "--json").summary
    assert (page["total"], [row["id"] for row in page["rows"]]) == (5, [6, 7, 8])


@pytest.mark.req("HOP-17")
def test_scores_in_bands(folder: Path, in_process: Run) -> None:
    rows = [{**result(n, "a", "x", "x", "first"), "expected_score": 5} for n in (1, 2)]
    (folder / "scores.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    shown = in_process("stats", "task", "--agreement", "score").out
    assert "exact 0.0%, ±1 100.0%, in another band 0.0%" in shown and "GOOD" in shown
    other = in_process("stats", "task", "--agreement", "score", "--bands", "LOW=1-4,HIGH=5").out
    assert "in another band 100.0%" in other


@pytest.mark.req("HOP-18")
def test_how_long_it_took(folder: Path, in_process: Run) -> None:
    ended = [{"type": "run_end", "run_id": "a", "timestamp": n, "duration": n / 10, "status": "OK"} for n in (1, 2, 3)]
    log = folder / "observer.jsonl"
    log.write_text("".join(json.dumps(one) + "\n" for one in ended), encoding="utf-8")
    assert "3 runs observed: mean 200 ms, p50 200 ms, p95 290 ms" in in_process("stats", "task").out
    step = {"type": "step", "run_id": "a", "timestamp": 1, "step": 1, "op": "hop_get", "task": "t", "status": "OK"}
    log.write_text(log.read_text() + json.dumps({**step, "duration": 0.5, "retry_count": 1}) + "\n")
    assert "hop_get" in in_process("stats", "task").out


@pytest.mark.req("HOP-16")
def test_one_file_of_many(folder: Path, in_process: Run) -> None:
    (folder / "other.jsonl").write_text((folder / "r.jsonl").read_text(encoding="utf-8"), encoding="utf-8")
    assert "2 files; outcomes" in in_process("stats", "task").out
    found = in_process("stats", str(folder / "r.jsonl"), "--json").summary
    assert (found["total"], found["by_profile"]["first"]["total"]) == (20, 10)
    assert in_process("stats", str(folder / "r.jsonl"), "--rows", "1", "--json").summary["total"] == 20


@pytest.mark.req("HOP-20")
def test_a_difference_is_sure_only_when_both_say_so(tmp_path: Path, in_process: Run) -> None:
    rows = [result(n, "a", "x", "x" if n > 4 or p == "a" else "y", p) for p in "ab" for n in range(1, 7)]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    shown = in_process("stats", ".", "--compare", "a,b").out
    assert "(95 % CI -99.0 to -1.0, p = 0.125): no difference shown" in shown


@pytest.mark.req("HOP-18")
def test_the_times_of_one_profile(folder: Path, in_process: Run) -> None:
    ended = [
        {"type": "run_end", "run_id": str(n), "timestamp": n, "duration": n, "status": "OK", "metadata": {"profile": p}}
        for n, p in enumerate(("first", "second", "first"), 1)
    ]
    steps = [{"type": "step", "run_id": "2", "timestamp": 1, "step": 1, "op": "hop_get", "status": "OK", "duration": 1}]
    (folder / "observer.jsonl").write_text("".join(json.dumps(one) + "\n" for one in ended + steps), encoding="utf-8")
    found = in_process("stats", "task", "--profile", "first", "--json").summary["performance"]
    assert (found["runs"], found["mean"], found["operators"]) == (2, 2.0, [])


def test_the_files_of_a_folder(folder: Path, in_process: Run) -> None:
    shown = in_process("stats", "task", "--files").out
    assert "r.jsonl" in shown and "first, second" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "there is no batch 'nowhere'"),
        (["task", "--profile", "frist"], "Did you mean 'first'?"),
        (["task", "--by", "tags"], "--by: no group 'tags'. Did you mean 'tag'?"),
        (["task", "--compare", "first"], "--compare: expected two different profiles or more"),
        (["task", "--rows", "1", "--sort", "tagg"], "Did you mean 'tag'?"),
        (["task", "--where", "tagg=a"], "no column 'tagg'. Did you mean 'tag'?"),
        (["task", "--compare", "first,second", "--rows", "1"], "--compare and --rows: expected one of them at a time"),
        (["task", "--compare", "first,second", "--profile", "first"], "--profile: goes with --rows or --agreement"),
        (["task", "--agreement", "answer", "--bands", "A=1-3,B=3-5"], "expected bands that do not overlap"),
        (["task", "--rows", "1", "--where", "tag"], "--where: expected COLUMN=VALUE"),
        (["task", "--rows", "1", "--where", "nothing=1"], "nothing"),
        (["task", "--agreement", "answr"], "Did you mean 'answer'?"),
        (["task", "--agreement", "answer", "--bands", "x"], "--bands: expected bands such as BAD=1-2"),
    ],
)
def test_wrong_questions_get_an_answer_that_helps(
    arguments: list[str], message: str, folder: Path, in_process: Run
) -> None:
    done = in_process("stats", *arguments)
    assert done.code == 2 and message in done.err


def test_a_folder_without_results_says_what_to_do(tmp_path: Path, in_process: Run) -> None:
    assert "No result yet" in in_process("stats", ".").out
