"""Reading a batch back: after a crash, after damage, after retries, and while somebody writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evalloom.batchlog import Damage, Log, RunIndex, find_run, finished, in_order, manifest, pairs, runs
from evalloom.batchlog.read import parts, runs_of
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Batch, Run, Scored


def write(path: Path, *lines: Run | Scored) -> None:
    log = Log(path, Batch("b1", "now"))
    for line in lines:
        log.append_run(line) if isinstance(line, Run) else log.append_scored(line)
    log.close()


def keys(path: Path) -> list[tuple[str, str | None]]:
    return [(run.key, scored.status if scored else None) for run, scored in pairs(path)]


def ok(key: str, case_id: str = "c", **more: Any) -> Run:
    return Run(key, case_id, **more)


def passed(key: str) -> Scored:
    return Scored(key, "passed", 1.0)


def test_runs_and_verdicts_are_paired_by_key_in_any_order(tmp_path: Path) -> None:
    write(tmp_path, ok("a"), ok("b"), ok("c"), passed("c"), passed("a"))
    assert keys(tmp_path) == [("a", "passed"), ("b", None), ("c", "passed")]


def test_an_error_that_was_tried_again_counts_as_it_was_last(tmp_path: Path) -> None:
    write(tmp_path, ok("a", error="HTTP 500"), ok("b"), passed("b"), ok("a"), passed("a"), ok("c", error="no"))
    assert keys(tmp_path) == [("b", "passed"), ("a", "passed"), ("c", None)]
    assert [(run.key, bool(scored)) for run, scored in in_order(tmp_path, [])] == [
        ("b", True),
        ("a", True),
        ("c", False),
    ]
    assert finished(tmp_path) == {"a", "b", "c"}
    assert finished(tmp_path, with_errors=False) == {"a", "b"}


def test_an_answer_that_became_an_error_has_no_verdict(tmp_path: Path) -> None:
    write(tmp_path, ok("a"), passed("a"), ok("a", error="later"))
    assert keys(tmp_path) == [("a", None)]
    assert [scored for _, scored in in_order(tmp_path, [])] == [None]
    assert finished(tmp_path, with_errors=False) == set()


@pytest.mark.parametrize("size", [1, 100, 300, 10_000])
def test_the_parts_of_a_batch_have_its_runs(tmp_path: Path, size: int) -> None:
    write(tmp_path, *(ok(f"k{number % 12}", case_id=f"c{number}") for number in range(20)))
    file = tmp_path / "runs.jsonl"
    lines = file.read_bytes().split(b"\n")
    # The last version of k3 is damaged, and k5 lost the end of its line.
    lines[15] = lines[15][:20]
    lines[5] = lines[5][:9] + lines[6]
    file.write_bytes(b"\n".join(lines) + b'{"key":"torn')
    damage: list[Damage] = []
    runs_of_parts, damage_of_parts = [], list[Damage]()
    for part in parts(tmp_path, size):
        runs_of_parts += [run for _, _, run in runs_of(tmp_path, part, damage_of_parts)]
    assert runs_of_parts == list(runs(tmp_path, damage)) and damage_of_parts == damage and len(damage) == 2
    assert [run.case_id for run in runs_of_parts if run.key == "k3"] == ["c3"]
    assert {len(parts(tmp_path, size)) for size in (1, 10_000)} == {20, 1}


def test_the_last_verdict_of_a_key_wins(tmp_path: Path) -> None:
    write(tmp_path, Scored("a", "failed"), ok("b"), passed("b"), ok("a"), passed("a"))
    assert keys(tmp_path) == [("b", "passed"), ("a", "passed")]
    assert [scored and scored.status for _, scored in in_order(tmp_path, [])] == ["passed", "passed"]


def test_runs_come_in_order_of_profile_case_and_repeat(tmp_path: Path) -> None:
    places = [("q", 1, 0), ("p", 2, 0), ("p", 1, 1), ("gone", 1, 0), ("p", 1, 0)]
    write(tmp_path, *(Run(f"{place}", "c", place[0], place[2], place[1]) for place in places))
    found = [(run.profile, run.number, run.repeat) for run, _ in in_order(tmp_path, ["p", "q"])]
    assert found == [("p", 1, 0), ("p", 1, 1), ("p", 2, 0), ("q", 1, 0), ("gone", 1, 0)]


@pytest.mark.parametrize(
    "broken",
    [
        b"garbage",
        b"",
        b"\xff\xfe",
        b'{"key":"b","case_id":"\xff"}',
        b'{"key":"b"}',
        b'{"key":"b","case_id":"c","outcome":"MAYBE"}',
        b'["b"]',
        b'{"key":"b","case_id":"c","raw":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
    ],
)
def test_a_broken_line_in_the_middle_is_told_and_the_rest_is_read(tmp_path: Path, broken: bytes) -> None:
    write(tmp_path, ok("a"), passed("a"), ok("b"), passed("b"), ok("c"), passed("c"))
    first, _, last = (tmp_path / "runs.jsonl").read_bytes().splitlines()
    (tmp_path / "runs.jsonl").write_bytes(b"\n".join([first, broken, last, b""]))
    damage: list[Damage] = []
    assert [run.key for run, _ in pairs(tmp_path, damage)] == ["a", "c"]
    assert [(one.file, one.line) for one in damage] == [("runs.jsonl", 2)]
    assert [run.key for run, _ in in_order(tmp_path, [])] == ["a", "c"]
    # So that a resumed batch runs it again.
    assert finished(tmp_path) == {"a", "c"}
    assert RunIndex(tmp_path).get("b") is None and RunIndex(tmp_path).get("c") == ok("c")


@pytest.mark.req("WORK-42")
@pytest.mark.parametrize("raw", [{"key": "x", "case_id": "x"}, {"list": [{}, {"key": "x", "case_id": "x"}]}])
def test_a_record_inside_a_broken_line_is_not_a_run(tmp_path: Path, raw: dict[str, Any]) -> None:
    write(tmp_path, ok("a", raw=raw), ok("b"))
    first, last = (tmp_path / "runs.jsonl").read_bytes().splitlines()
    whole = first[: first.rindex(b'"x"}') + len(b'"x"}')]
    (tmp_path / "runs.jsonl").write_bytes(b"\n".join([whole, last, b""]))
    damage: list[Damage] = []
    assert [run.key for run, _ in pairs(tmp_path, damage)] == ["b"]
    assert [line.line for line in damage] == [1] and finished(tmp_path) == {"b"}


@pytest.mark.req("WORK-42")
@pytest.mark.parametrize("end", [b"*", b",", b":", b""])
def test_a_line_is_read_although_the_end_of_the_one_before_is_broken(tmp_path: Path, end: bytes) -> None:
    write(tmp_path, ok("a", raw={"key": "x"}), ok("b"))
    (tmp_path / "runs.jsonl").write_bytes((tmp_path / "runs.jsonl").read_bytes().replace(b"\n", end, 1))
    damage: list[Damage] = []
    assert [run.key for run, _ in pairs(tmp_path, damage)] == ["b"] and len(damage) == 1


def test_a_broken_verdict_leaves_its_run_without_one(tmp_path: Path) -> None:
    write(tmp_path, ok("a"), passed("a"), ok("b"), passed("b"))
    verdicts = (tmp_path / "verdicts.jsonl").read_bytes()
    (tmp_path / "verdicts.jsonl").write_bytes(verdicts.replace(b'"passed"', b'"perhaps"', 1))
    assert keys(tmp_path) == [("a", None), ("b", "passed")]
    assert [bool(scored) for _, scored in in_order(tmp_path, [])] == [False, True]


def test_files_that_are_missing_are_empty(tmp_path: Path) -> None:
    assert (list(pairs(tmp_path)), list(in_order(tmp_path, [])), finished(tmp_path)) == ([], [], set())
    write(tmp_path, ok("a"), passed("a"))
    (tmp_path / "verdicts.jsonl").unlink()
    assert keys(tmp_path) == [("a", None)]
    assert [run.key for run, _ in in_order(tmp_path, [])] == ["a"]


def test_the_index_gives_the_last_line_of_a_key(tmp_path: Path) -> None:
    write(tmp_path, ok("a", error="no"), ok("b", error="no"), ok("a", number=5))
    assert RunIndex(tmp_path).get("a") == ok("a", number=5)
    assert RunIndex(tmp_path).get("b") == ok("b", error="no")
    assert RunIndex(tmp_path, with_errors=False).get("b") is None
    assert RunIndex(tmp_path).get("z") is None


def blocked(key: str) -> Scored:
    return Scored(key, "blocked")


def test_what_was_skipped_or_blocked_is_looked_at_again(tmp_path: Path) -> None:
    write(tmp_path, ok("a", blocked="b"), blocked("a"), ok("b", error="no"), ok("c", skipped="c"), ok("d"))
    assert finished(tmp_path) == {"b", "d"}
    assert finished(tmp_path, with_errors=False) == {"d"}
    # Whether a case is still to be skipped, or still blocked, is not for another batch to say.
    index = RunIndex(tmp_path)
    assert [key for key in "abcd" if index.get(key)] == ["b", "d"]


def test_the_verdict_of_a_run_that_was_blocked_is_none_of_the_next(tmp_path: Path) -> None:
    write(
        tmp_path, ok("a", blocked="b"), blocked("a"), ok("a"), ok("b", blocked="x"), blocked("b"), ok("b", error="no")
    )
    assert keys(tmp_path) == [("a", None), ("b", None)]
    assert [scored for _, scored in in_order(tmp_path, [])] == [None, None]
    write(tmp_path, passed("a"), ok("c", blocked="x"), blocked("c"))
    assert keys(tmp_path) == [("a", "passed"), ("b", None), ("c", "blocked")]


@pytest.mark.parametrize("version", ["3", "99", '"1"', "null"])
def test_a_batch_of_a_newer_version_is_refused(tmp_path: Path, version: str) -> None:
    (tmp_path / "batch.json").write_text(f'{{"format": {version}, "something": "new"}}', encoding="utf-8")
    with pytest.raises(EvalloomError, match=r"this evalloom reads up to 2. Upgrade evalloom") as caught:
        manifest(tmp_path)
    assert (caught.value.code, caught.value.exit_code) == ("newer_batch", 2)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"format": 1}', b"\xff", b'{"format": 1, "id": "\xff"}'])
def test_what_is_no_manifest_is_said(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "batch.json").write_bytes(text)
    with pytest.raises(EvalloomError, match=r"batch.json: is not a batch manifest") as caught:
        manifest(tmp_path)
    assert (caught.value.code, caught.value.exit_code) == ("bad_batch", 2)


def test_no_batch_is_there(tmp_path: Path) -> None:
    with pytest.raises(EvalloomError, match=r"gone/batch.json: expected a batch, got: no such file") as caught:
        manifest(tmp_path / "gone")
    assert (caught.value.code, caught.value.exit_code) == ("no_batch", 2)


def test_what_is_written_while_a_reader_reads_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, ok("a"), passed("a"), ok("b", error="no"))
    reading = pairs(tmp_path)
    assert next(reading)[0].key == "a"
    write(tmp_path, ok("b"), passed("b"), ok("c"), passed("c"))
    assert [run.key for run, _ in reading] == ["b"]


WRITER = """
import sys
from pathlib import Path
from evalloom.core.model import Batch, Output, Run, Scored
from evalloom.batchlog import Log
log = Log(Path(sys.argv[1]), Batch("b1", "now"))
print("ready", flush=True)
for number in range(3000):
    log.append_run(Run(str(number), "c", output=Output("x" * (number % 500))))
    log.append_scored(Scored(str(number), "passed"))
log.close()
"""


def test_a_batch_can_be_read_while_another_process_writes_it(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
    assert writer.stdout and writer.stdout.readline() == b"ready\n"
    seen = 0
    while seen < 3000:
        is_over = writer.poll() is not None
        damage: list[Damage] = []
        found = [run.key for run, _ in pairs(tmp_path, damage)]
        assert found == [str(number) for number in range(len(found))] and damage == []
        assert len(found) >= seen
        seen = len(found)
        assert seen == 3000 or not is_over
    writer.communicate()


def test_an_error_of_one_code_may_be_tried_again(tmp_path: Path) -> None:
    write(tmp_path, ok("a", error="it is off [off]"), ok("b", error="off [else]"), ok("c"))
    assert finished(tmp_path, retried_codes={"off"}) == {"b", "c"}
    index = RunIndex(tmp_path, retried_codes={"off"})
    assert [key for key in "abc" if index.get(key)] == ["b", "c"]


def test_the_repeats_of_a_case_stand_together_though_many_share_a_number(tmp_path: Path) -> None:
    write(tmp_path, *(Run(f"{case}{repeat}", case, "p", repeat) for repeat in range(2) for case in "ba"))
    assert [run.key for run, _ in in_order(tmp_path, ["p"])] == ["a0", "a1", "b0", "b1"]


@pytest.mark.req("WORK-42")
def test_where_the_last_line_of_a_run_is_damaged_the_one_before_it_counts(tmp_path: Path) -> None:
    lines = [
        '{"key":"a","case_id":"1","error":"first"}',
        '{"key":"b","case_id":"2"}',
        '{"key":"a","case_id":"1","tags":5}',
    ]
    (tmp_path / "runs.jsonl").write_text("\n".join(lines) + "\n")
    for read in (pairs(tmp_path), in_order(tmp_path, [])):
        assert [(run.case_id, run.error) for run, _ in read] == [("1", "first"), ("2", "")]
    damage: list[Damage] = []
    list(in_order(tmp_path, [], damage))
    assert {str(line).partition(" ")[0] for line in damage} == {"runs.jsonl:3:"}


def test_one_run_is_found_without_the_others(tmp_path: Path) -> None:
    named = ok("b", raw={"note": '{"key":"a"', "key": "a"})
    write(tmp_path, ok("a", duration_s=1.0), passed("a"), ok("a", duration_s=2.0), named)
    (tmp_path / "runs.jsonl").open("ab").write(b'{"key":"a","case_id":\n')
    run, scored = find_run(tmp_path, "a") or pytest.fail()
    assert run.duration_s == 2.0 and scored.status == "passed"
    assert find_run(tmp_path, "c") is None and find_run(tmp_path / "none", "a") is None
    run, scored = find_run(tmp_path, "b") or pytest.fail()
    assert run.key == "b" and scored.status == "unscored"
