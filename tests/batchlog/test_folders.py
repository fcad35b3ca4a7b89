"""The folder of batches: which one is meant, and what is said when none is."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalloom.batchlog import Log, batches, find, new_id, remove
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Batch


def make(folder: Path, *ids: str) -> None:
    for id in ids:
        Log(folder / id, Batch(id, "now")).close()


def test_ids_sort_by_time_and_differ() -> None:
    ids = [new_id() for _ in range(10)]
    assert len(set(ids)) == 10
    assert [id[:19] for id in ids] == sorted(id[:19] for id in ids)


def test_ids_sort_after_those_of_a_clock_that_was_ahead(tmp_path: Path) -> None:
    make(tmp_path, "29991231-235959-999abcdef", "zzz", "99999999-000000-000-copy")
    ids = []
    for _ in range(3):
        ids.append(new_id(tmp_path))
        make(tmp_path, ids[-1])
    assert [id[:19] for id in ids] == ["30000101-000000-000", "30000101-000000-001", "30000101-000000-002"]
    make(tmp_path, "99999999-000000-000abcdef")
    assert new_id(tmp_path) < "2999"


def test_batches_come_newest_first_and_others_with_a_warning(tmp_path: Path) -> None:
    make(tmp_path, "20260101-000000-aa", "20260102-000000-aa", "20260103-000000-aa")
    (tmp_path / "20260102-000000-aa" / "batch.json").write_text('{"format": 9}', encoding="utf-8")
    (tmp_path / "no batch").mkdir()
    warned: list[str] = []
    assert [batch.id for _, batch in batches(tmp_path, warned.append)] == ["20260103-000000-aa", "20260101-000000-aa"]
    assert len(warned) == 1 and "[newer_batch]" in warned[0]
    assert list(batches(tmp_path / "gone")) == []


def test_a_batch_is_found_by_id_beginning_path_or_as_the_latest(tmp_path: Path) -> None:
    make(tmp_path, "20260101-000000-aa", "20260102-000000-bb")
    newest = tmp_path / "20260102-000000-bb"
    for name in ("20260102-000000-bb", "20260102", "latest", str(newest)):
        assert find(name, tmp_path) == newest


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("20260101-000000-ab", "Did you mean '20260101-000000-aa'"),
        ("nothing", "'evalloom batches list' shows what there is"),
        ("../x", "there is no batch '../x'"),
        ("", "there is no batch ''"),
    ],
)
def test_what_is_not_found_is_said(tmp_path: Path, name: str, message: str) -> None:
    make(tmp_path, "20260101-000000-aa", "20260102-000000-bb")
    with pytest.raises(EvalloomError, match=message.replace("[", r"\[")) as caught:
        find(name, tmp_path)
    assert (caught.value.code, caught.value.exit_code) == ("no_batch", 2)


def test_a_beginning_that_batches_share_names_them(tmp_path: Path) -> None:
    make(tmp_path, "20260101-000000-aa", "20260102-000000-bb")
    shared = "'2026' is the beginning of 2 batches: 20260101-000000-aa, 20260102-000000-bb"
    with pytest.raises(EvalloomError, match=rf"{shared} \[ambiguous_batch\]"):
        find("2026", tmp_path)


def test_there_is_no_latest_of_none(tmp_path: Path) -> None:
    with pytest.raises(EvalloomError, match="there is no batch yet"):
        find("latest", tmp_path)


def test_a_removed_batch_is_gone(tmp_path: Path) -> None:
    make(tmp_path, "a", "b")
    remove(tmp_path / "a")
    assert [path.name for path, _ in batches(tmp_path)] == ["b"]
    with pytest.raises(EvalloomError) as caught:
        remove(tmp_path / "a")
    assert caught.value.code == "cannot_write"
