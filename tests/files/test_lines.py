"""Single lines of a file, picked to be shown."""

import gzip
from pathlib import Path

import pytest

from evalloom.files.lines import pick_lines


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_lines_are_picked_by_number(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes("一\r\ntwo\n\nfour".encode(encoding))
    assert pick_lines(str(path), {1, 3, 4, 9}) == {1: "一", 3: "", 4: "four"}
    assert pick_lines(str(path), set()) == {}


def test_lines_over_many_chunks(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(b"%d %b\n" % (number, b"x" * 70_000) for number in range(1, 30))))
    found = pick_lines(str(path), {1, 15, 29})
    assert [text.split()[0] for text in found.values()] == ["1", "15", "29"]
    assert {len(text) for text in found.values()} == {20_000}


@pytest.mark.slow
def test_packed_file_that_grows_without_end_is_not_read_to_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"first\n" + bytes(80 << 20).replace(b"\0", b"0") + b"\nlast\n", 1))
    assert pick_lines(str(path), {1, 3}) == {1: "first"}


@pytest.mark.parametrize(
    "data", [b"\xff\xfe\x00", b"PK\x03\x04", gzip.compress(b"one\ntwo\n")[:-12]], ids=["odd", "zip", "cut"]
)
def test_what_cannot_be_read_shows_nothing_and_raises_nothing(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    assert set(pick_lines(str(path), {1})) <= {1}
    assert pick_lines(str(tmp_path), {1}) == pick_lines("no such file", {1}) == pick_lines("<stdin>", {1}) == {}
