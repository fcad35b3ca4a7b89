"""Dependencies between the cases of a file: those that are not there, and those that go round in a circle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom import catalog
from evalloom.core.model import Checked, Finding
from evalloom.data.dataset import Dataset
from evalloom.data.validate import parallel, validate
from evalloom.files.source import source_of

pytestmark = pytest.mark.req("PIPE-14")


def check(folder: Path, records: list[dict[str, object]]) -> Checked:
    path = folder / "waits_basic_v1.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return validate(Dataset(source_of(path), catalog.load().formats))


def case(id: str, *needs: str, **more: object) -> dict[str, object]:
    return {"id": id, "inputs": {}, **({"depends_on": list(needs)} if needs else {}), **more}


def codes(findings: list[Finding]) -> list[tuple[str, int]]:
    return [(finding.code, finding.origin.line) for finding in findings]


def test_cases_may_wait_for_any_other_case_of_the_file(tmp_path: Path) -> None:
    records = [case("last", "first", "t", "t[x=1]"), case("first"), case("t", "first", parameters={"x": [1, 2]})]
    assert check(tmp_path, records).findings == []


def test_an_unknown_dependency_gets_a_suggestion(tmp_path: Path) -> None:
    checked = check(tmp_path, [case("login"), case("cart", "logn", "t[x=3]"), case("t", parameters={"x": [1]})])
    assert codes(checked.findings) == [("unknown_dependency", 2)] * 2
    assert checked.findings[0].message == ("depends_on: no case of this file has the id 'logn'. Did you mean 'login'?")
    assert (checked.findings[0].severity, checked.findings[0].case_id) == ("error", "cart")


def test_a_cycle_is_named_whole_with_its_lines(tmp_path: Path) -> None:
    checked = check(tmp_path, [case("x", "a"), case("a", "c"), case("b", "a"), case("c", "b"), case("self", "self")])
    assert codes(checked.findings) == [("dependency_cycle", 2), ("dependency_cycle", 5)]
    assert checked.findings[0].message == (
        "depends_on: these cases wait for each other in a cycle: 'a' (line 2) → 'c' (line 4) → 'b' (line 3) → 'a'"
    )
    assert "'self' on line 5 depends on itself" in checked.findings[1].message


def test_cases_of_one_record_wait_for_each_other_only_when_it_says_so(tmp_path: Path) -> None:
    parameters = {"x": [1, 2, 3]}
    assert codes(check(tmp_path, [case("t", "t", parameters=parameters)]).findings) == [("dependency_cycle", 1)]
    round_trip = [case("t", "u", parameters=parameters), case("u", "t", parameters=parameters)]
    assert codes(check(tmp_path, round_trip).findings) == [("dependency_cycle", 1)]
    side_by_side = [case("t", "u[x={x}]", parameters=parameters), case("u", parameters=parameters)]
    assert check(tmp_path, side_by_side).findings == []


def test_a_very_long_cycle_is_cut_short_in_its_message(tmp_path: Path) -> None:
    records = [case(f"c{number}", f"c{(number + 1) % 5000}") for number in range(5000)]
    (finding,) = check(tmp_path, records).findings
    assert "4950 more" in finding.message and len(finding.message) < 2000


@given(st.lists(st.sets(st.integers(0, 7)), min_size=8, max_size=8))
def test_a_cycle_is_found_exactly_when_there_is_one(
    tmp_path_factory: pytest.TempPathFactory, graph: list[set[int]]
) -> None:
    waiting = {node: set(needs) for node, needs in enumerate(graph)}
    while free := [node for node, needs in waiting.items() if not needs & waiting.keys()]:
        for node in free:
            del waiting[node]
    records = [case(f"c{node}", *(f"c{need}" for need in sorted(needs))) for node, needs in enumerate(graph)]
    found = check(tmp_path_factory.mktemp("graph"), records).findings
    assert {finding.code for finding in found} == ({"dependency_cycle"} if waiting else set())


def test_several_processes_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [case(f"c{number}", f"c{number + 1}", text="x" * 200) for number in range(2000)]
    records += [case("c2000", "c1990", "gone")]
    alone = check(tmp_path, records)
    monkeypatch.setattr(parallel, "RANGE_BYTES", 64 * 1024)
    monkeypatch.setattr(parallel, "_WORTH_IT", 0)
    assert check(tmp_path, records) == alone
    assert codes(alone.findings) == [("unknown_dependency", 2001), ("dependency_cycle", 1991)]
