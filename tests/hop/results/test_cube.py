"""The cube gives the figures that the copy gives, and stands back where it cannot."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalloom.core.model import Record
from evalloom.hop import DataStore

pytestmark = pytest.mark.req("HOP-15", "HOP-16")

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 7),
    st.sampled_from(["a", "b", "ä 中", '"', ""]),
    st.just([1, "x"]),
    st.just({"k": []}),
)
FIELDS = st.dictionaries(st.sampled_from(["score", "kind", "ok", "output"]), VALUES, max_size=3)


@st.composite
def rows(draw: st.DrawFn) -> Record:
    """A row of the flat wrapper: with what is expected, retries and outcomes of every kind."""
    case: Record = {"id": draw(st.integers(1, 9)), "tag": draw(st.sampled_from(["t", "u", ""]))}
    if draw(st.booleans()):
        case["difficulty"] = draw(st.sampled_from(["easy", "hard"]))
    case |= {f"expected_{name}": value for name, value in draw(FIELDS).items() if value is not None}
    stats = {"status": draw(st.sampled_from(["OK", "OK", "ERROR"])), "retry_count": draw(st.integers(0, 2))}
    if draw(st.booleans()):
        stats["hop_status"] = draw(st.sampled_from(["OK", "UNCERTAIN", "LACK_OF_INFO", "FAIL"]))
    packed = json.dumps(draw(FIELDS), separators=draw(st.sampled_from([(",", ":"), (", ", ": ")])))
    profile = draw(st.sampled_from(["p", "q", None]))
    return {**case, "hop_result": packed, "hop_stats": stats, **({"profile": profile} if profile else {})}


def write(folder: Path, found: list[Record]) -> None:
    (folder / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")


def by_copy(folder: Path, profile: str | None = None) -> Record:
    """The figures as the copy gives them, in a folder where there is no cube."""
    with tempfile.TemporaryDirectory() as other:
        shutil.copy(folder / "r.jsonl", other)
        DataStore(other).query_results(limit=0)
        return DataStore(other).get_stats(profile)


def has_cube(folder: Path) -> bool:
    return (folder / ".evalloom/hop-store/cube.json").is_file()


@settings(max_examples=25)
@given(st.lists(rows(), min_size=1, max_size=12))
def test_cube_and_copy_agree(found: list[Record]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, found)
        assert DataStore(folder).get_stats() == by_copy(folder)
        for profile in {row.get("profile", "no profile") for row in found}:
            assert DataStore(folder).get_stats(profile) == by_copy(folder, profile)


def flat(number: int, **result: Any) -> Record:
    return {"id": number, "tag": "t", "hop_result": json.dumps(result), "hop_stats": {"status": "OK"}, "profile": "p"}


def test_fields_with_many_texts_are_told_by_their_type(tmp_path: Path) -> None:
    found = [flat(n, text=f"answer {n}", items=list(range(n % 30)), kind="ab"[n % 2]) for n in range(100)]
    write(tmp_path, found)
    stats = DataStore(tmp_path).get_stats()
    assert has_cube(tmp_path) and stats == by_copy(tmp_path)
    assert "distribution" not in stats["fields"]["text"] and stats["fields"]["kind"]["distribution"] == {
        "a": 50,
        "b": 50,
    }
    assert DataStore(tmp_path).get_stats("p")["fields"] == stats["fields"]


@pytest.mark.parametrize(
    "odd",
    [
        flat(2, share=0.25),
        {**flat(2), "expected_late": None},
        {"input": {"q": 1}, "result": "{}"},
        {"id": 3, "tag": "t", "q": "only a case"},
        {**flat(2), "hop_result": '"{\\"a\\": 1}"'},
    ],
)
def test_what_it_cannot_tell_is_left_to_the_copy(odd: Record, tmp_path: Path) -> None:
    write(tmp_path, [flat(1, a=1), odd])
    assert DataStore(tmp_path).get_stats() == by_copy(tmp_path) and not has_cube(tmp_path)


def test_a_field_that_appears_late_is_not_lost(tmp_path: Path) -> None:
    late = {**flat(30_000, a=1, late=True), "expected_late": True}
    write(tmp_path, [*(flat(n, a=1) for n in range(30_000)), late])
    stats = DataStore(tmp_path).get_stats()
    assert (stats["fields"]["late"]["count"], stats["judged"], stats["correct"]) == (1, 1, 1)


@pytest.mark.req("HOP-17")
@pytest.mark.parametrize(
    "odd", [flat(2, score=5.0), flat(2, score="n/a"), {**flat(2, score=0), "hop_stats": {"status": "ERROR"}}]
)
def test_scores_are_found_whatever_stands_beside_them(odd: Record, tmp_path: Path) -> None:
    write(tmp_path, [{**flat(1, score=4), "expected_score": 5}, {**odd, "expected_score": 5}])
    assert DataStore(tmp_path).get_stats() == by_copy(tmp_path)
    assert DataStore(tmp_path).get_stats()["fields"]["score"]["agreement"]["n"] >= 1


def test_a_change_makes_it_anew(tmp_path: Path) -> None:
    for count in (1, 2, 3):
        write(tmp_path, [flat(n) for n in range(count)])
        assert DataStore(tmp_path).get_stats()["total"] == count
