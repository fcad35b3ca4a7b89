"""Batch logs and baselines: damage is named, what is whole is read, and nothing is read that was not written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from tests.fuzz.conftest import JSON, damaged, fuzz, mutations

from evalloom.batchlog import (
    Baseline,
    BaselineRun,
    Damage,
    Log,
    RunIndex,
    baseline_runs,
    finished,
    in_order,
    manifest,
    pairs,
    read_baseline,
    save_baseline,
)
from evalloom.batchlog.read import MANIFEST, RUNS, VERDICTS
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Batch, Origin, Output, Run, Scored, Usage, Verdict
from evalloom.llms import cassette

pytestmark = pytest.mark.req("WORK-42")

# Records of users may look like lines of the log.
INNER = {"key": "inner", "case_id": "inner", "status": "passed"}
VALUES: list[Any] = ["text", {"a": [1, 2.5, None]}, INNER, [INNER, INNER], {"x": INNER}, '{"key":"text","case_id":"t"}']
RUN = st.builds(
    Run,
    key=st.sampled_from(["k1", "k2", "k3", "k4"]),
    case_id=st.sampled_from(["c1", "c2", "一"]),
    profile=st.sampled_from(["", "p"]),
    repeat=st.integers(0, 2),
    number=st.integers(0, 5),
    output=st.builds(Output, value=st.sampled_from(VALUES)),
    error=st.sampled_from(["", "", "HTTP 500 [http_error]"]),
    started_at=st.sampled_from(["", "2026-01-05T08:00:00+00:00"]),
    usage=st.just(Usage(1, 2, 0.1)),
    origin=st.just(Origin("a.jsonl", 1)),
    raw=st.sampled_from([{}, INNER, {"x": INNER}, {"list": [INNER, INNER]}]),
)
SCORED = st.builds(
    Scored,
    key=st.sampled_from(["k1", "k2", "k3", "k4"]),
    status=st.sampled_from(["passed", "failed"]),
    verdicts=st.lists(
        st.builds(Verdict, st.just("n"), st.just("equals"), st.just("output"), st.just("passed")), max_size=1
    ),
)


class Written:
    """A log on disk, and the same lines as they were written."""

    def __init__(self, path: Path, runs: list[Run], scored: list[Scored]) -> None:
        self.path, self.runs, self.scored = path, runs, scored
        for name in (RUNS, VERDICTS, MANIFEST):
            (path / name).unlink(missing_ok=True)
        log = Log(path, Batch("b1", "2026-01-05T08:00:00+00:00"))
        for run in runs:
            log.append_run(run)
        for verdicts in scored:
            log.append_scored(verdicts)
        log.close()

    def read(self) -> tuple[list[tuple[Run, Scored | None]], set[tuple[str, int]]]:
        """What every reader of the log gives: the pairs, and the damaged lines."""
        damage: list[Damage] = []
        found = list(pairs(self.path, damage))
        also: list[Damage] = []
        ordered = list(in_order(self.path, ["p"], also))
        assert sorted(map(str, found)) == sorted(map(str, ordered))
        index = RunIndex(self.path)
        assert finished(self.path) <= {run.key for run, _ in found}
        assert all(index.get(key) is not None for key in finished(self.path))
        assert all(line.reason for line in damage)
        return found, {(line.file, line.line) for line in (*damage, *also)}


LOG: dict[str, Any] = {"runs": st.lists(RUN, min_size=1, max_size=5), "scored": st.lists(SCORED, max_size=4)}


@fuzz(share=0.7, **LOG)
def test_a_log_gives_back_its_runs(folder: Path, runs: list[Run], scored: list[Scored]) -> None:
    found, damage = Written(folder, runs, scored).read()
    assert not damage
    assert {run.key: run for run, _ in found} == {run.key: run for run in runs}
    last = {verdicts.key: verdicts for verdicts in scored}
    assert all(verdicts in (None, last.get(run.key)) for run, verdicts in found)


@fuzz(**LOG, name=st.sampled_from([RUNS, VERDICTS]), cuts=st.lists(st.floats(0, 1), max_size=3), swap=st.integers(0, 9))
def test_what_was_not_written_is_not_read(
    folder: Path, runs: list[Run], scored: list[Scored], name: str, cuts: list[float], swap: int
) -> None:
    """Lines are cut off anywhere, joined, swapped and repeated; but no byte is another one."""
    log = Written(folder, runs, scored)
    lines = (folder / name).read_bytes().splitlines(keepends=True)
    for number, cut in enumerate(cuts[: len(lines)]):
        keeps_end = number % 2
        lines[number] = lines[number][: int(cut * len(lines[number]))] + b"\n" * keeps_end
    if lines:
        lines.insert(swap % len(lines), lines[-1])
    (folder / name).write_bytes(b"".join(lines))
    found, _ = log.read()
    assert all(run in runs for run, _ in found)
    assert all(verdicts is None or verdicts in scored for _, verdicts in found)


@st.composite
def damage_of_one_line(draw: st.DrawFn) -> Any:
    return draw(st.floats(0, 1, exclude_max=True)), draw(
        st.sampled_from([b"", b"\x00", b"}", b"\xff", b'"', b"{", b"9" * 30])
    )


@fuzz(**LOG, where=damage_of_one_line())
def test_a_damaged_line_costs_its_own_run_only(
    folder: Path, runs: list[Run], scored: list[Scored], where: tuple[float, bytes]
) -> None:
    runs = list({run.key: run for run in runs}.values())
    log = Written(folder, runs, scored)
    data = (folder / RUNS).read_bytes()
    at = int(where[0] * len(data))
    number = data[:at].count(b"\n")
    (folder / RUNS).write_bytes(data[:at] + where[1] + data[at + 1 :])
    found, damage = log.read()
    read = {run.key: run for run, _ in found}
    for position, run in enumerate(runs):
        if position not in (number, number + (data[at : at + 1] == b"\n")):
            assert read.get(run.key) == run or runs[number].key not in read, (at, data)
    is_last_cut = number == len(runs) - 1 and data[at : at + 1] == b"\n"
    assert runs[number] in read.values() or len(read) == len(runs) or damage or is_last_cut


@fuzz(**LOG, name=st.sampled_from([RUNS, VERDICTS, MANIFEST]), data=st.data())
def test_any_bytes_in_a_log(folder: Path, runs: list[Run], scored: list[Scored], name: str, data: Any) -> None:
    log = Written(folder, runs, scored)
    original = (folder / name).read_bytes()
    (folder / name).write_bytes(data.draw(damaged(st.just(original))))
    log.read()
    try:
        manifest(folder)
    except EvalloomError as error:
        assert error.code in ("bad_batch", "newer_batch", "no_batch")


LINES = st.lists(
    mutations(
        st.sampled_from([{"key": "k1", "case_id": "c", "output": {"value": 1}, "raw": INNER}, INNER]), ["key", "error"]
    )
    | JSON,
    max_size=4,
)


@fuzz(lines=LINES, name=st.sampled_from([RUNS, VERDICTS, MANIFEST]), depth=st.sampled_from([0, 0, 100, 2000]))
def test_any_json_in_a_log(folder: Path, lines: list[Any], name: str, depth: int) -> None:
    log = Written(folder, [], [])
    text = "".join(json.dumps(line) + "\n" for line in lines) + "[" * depth + "]" * depth + "\n"
    (folder / name).write_text(text, encoding="utf-8")
    log.read()
    try:
        manifest(folder)
    except EvalloomError as error:
        assert error.code in ("bad_batch", "newer_batch")


RESULT = st.builds(
    BaselineRun,
    case_id=st.sampled_from(["a", "b", "一"]),
    status=st.sampled_from(["passed", "failed", "error"]),
    repeat=st.integers(0, 3),
    score=st.none() | st.floats(-1, 1),
    tags=st.tuples(st.sampled_from(["t", ""])),
)


def by_key(runs: list[BaselineRun]) -> list[BaselineRun]:
    return sorted({(run.case_id, run.repeat): run for run in runs}.values(), key=lambda run: (run.case_id, run.repeat))


@fuzz(runs=st.lists(RESULT, max_size=5), data=st.data())
def test_a_baseline_is_whole_or_refused(folder: Path, runs: list[BaselineRun], data: Any) -> None:
    runs = by_key(runs)
    head = Baseline(name="good", saved_at="now", runs=len(runs), batch=Batch("b1", "now"))
    file = save_baseline(head, runs, folder)
    assert list(baseline_runs(file)) == runs and read_baseline(file) == head
    lines = file.read_bytes().splitlines(keepends=True)
    kept = data.draw(st.permutations(lines).map(lambda order: order[: data.draw(st.integers(0, len(lines)))]))
    file.write_bytes(b"".join(kept))
    try:
        found = list(baseline_runs(file))
    except EvalloomError as error:
        assert error.code == "bad_baseline" and file.name in str(error)
    else:
        assert (by_key(found) == runs and kept[:1] == lines[:1]) or not kept


@fuzz(runs=st.lists(RESULT, max_size=4), data=st.data())
def test_any_bytes_in_a_baseline(folder: Path, runs: list[BaselineRun], data: Any) -> None:
    runs = by_key(runs)
    head = Baseline(name="good", saved_at="now", runs=len(runs), batch=Batch("b1", "now"))
    file = save_baseline(head, runs, folder)
    file.write_bytes(data.draw(damaged(st.just(file.read_bytes()))))
    for read in (read_baseline, lambda file: list(baseline_runs(file))):
        try:
            read(file)
        except EvalloomError as error:
            assert error.code in ("bad_baseline", "newer_baseline")


RECORDED = (Path(__file__).parents[1] / "fixtures/v0_1/recipe/recorded.jsonl").read_bytes()


@fuzz(data=damaged(st.just(RECORDED)))
def test_a_cassette_is_read_or_refused(folder: Path, data: bytes) -> None:
    (folder / "recorded.jsonl").write_bytes(data)
    try:
        cassette.read(folder / "recorded.jsonl")
    except EvalloomError as error:
        assert error.code and "recorded.jsonl" in str(error)
