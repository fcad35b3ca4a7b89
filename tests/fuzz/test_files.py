"""Readers of files: whatever the bytes are, there are rows and problems with places, and no row gets lost."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume
from hypothesis import strategies as st
from tests.fuzz.conftest import DATASETS, DOCUMENTS, JSON, TEXTS, damaged, fuzz, mutations, written

from evalloom.files.json_rows import JsonReader
from evalloom.files.read import RowReader
from evalloom.files.rows import Problem, Row
from evalloom.files.source import Source, read_lines

NAMES = ["a.jsonl", "a.json", "a.csv", "a.tsv", "a.yaml", "a", "a.jsonl.gz"]
BYTES = damaged(st.sampled_from([seed.data[:3000] for seed in (*DATASETS, *DOCUMENTS)])) | st.binary(max_size=60)
RECORDS = st.lists(st.dictionaries(TEXTS, JSON, max_size=4), max_size=5)


def read(data: bytes, name: str, encoding: str = "") -> tuple[list[Row], list[Problem]]:
    items = list(RowReader(Source(name, content=data, encoding=encoding)))
    rows = [item for item in items if isinstance(item, Row)]
    return rows, [item for item in items if isinstance(item, Problem)]


def lines_in(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r") + 2


@fuzz(data=BYTES, name=st.sampled_from(NAMES), encoding=st.sampled_from(["", "", "utf-8", "utf-16", "gb18030", "x"]))
def test_any_bytes_are_rows_and_problems(data: bytes, name: str, encoding: str) -> None:
    rows, problems = read(gzip.compress(data) if name.endswith(".gz") else data, name, encoding)
    for problem in problems:
        assert problem.code and problem.message and problem.severity in ("error", "warning", "info")
        assert 0 <= problem.place.line <= lines_in(data)
    for row in rows:
        assert 1 <= row.line <= lines_in(data)
        json.dumps(row.value, allow_nan=False).encode()
        assert row.place_of(("x", 0)).line >= row.line


@fuzz(data=BYTES, cut=st.integers(0, 100))
def test_a_compressed_file_that_breaks_off_says_so(data: bytes, cut: int) -> None:
    packed = gzip.compress(data)
    _, problems = read(packed[: max(len(packed) - 1 - cut, 2)], "a.jsonl.gz")
    assert any(problem.severity == "error" for problem in problems)


@fuzz(records=RECORDS, name=st.sampled_from(["a.jsonl", "a.json", "b.json", "a.yaml"]))
def test_what_is_written_is_read_again(records: list[Any], name: str) -> None:
    # JSON is YAML too, except for characters that YAML forbids, so they are escaped; in two halves, they are refused.
    assume(name != "a.yaml" or max(json.dumps(records, ensure_ascii=False), default="") <= "\uffff")
    as_lines = "".join(json.dumps(record, ensure_ascii=name == "a.yaml") + "\n" for record in records)
    as_array = json.dumps(records, indent=1 if name == "b.json" else None, ensure_ascii=name == "a.yaml")
    rows, problems = read((as_lines if name == "a.jsonl" else as_array).encode(), name)
    if all(map(fits, records)):
        assert [row.value for row in rows] == records and not problems
    elif name == "a.yaml":
        # An integer of more than 64 bits is an id without quotes there, and keeps its digits as a text.
        assert json.loads(json.dumps(records), parse_int=as_id) == [row.value for row in rows]
    else:
        assert {problem.code for problem in problems} == {"number_loses_precision"}
        assert [row.value for row in rows] == [record for record in records if fits(record)]


def fits(value: Any) -> bool:
    """Whether all integers have at most 64 bits."""
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(map(fits, below)) and (not isinstance(value, int) or -(2**63) <= value < 2**64)


def as_id(digits: str) -> int | str:
    return int(digits) if fits(int(digits)) else digits


@fuzz(rows=st.lists(st.lists(TEXTS, min_size=2, max_size=2), min_size=1, max_size=6), crlf=st.booleans())
def test_a_table_keeps_every_cell(rows: list[list[str]], crlf: bool) -> None:
    assume(all(any(row) for row in rows))
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\r\n" if crlf else "\n", quoting=csv.QUOTE_ALL).writerows([["x", "y"], *rows])
    assume("\x00" not in stream.getvalue())
    read_rows, problems = read(stream.getvalue().encode(), "a.csv")
    assert [problem for problem in problems if problem.severity == "error"] == []
    assert [list(row.value.values()) for row in read_rows] == rows


@fuzz(records=RECORDS, encoding=st.sampled_from(["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "gb18030"]))
def test_the_encoding_makes_no_difference(records: list[Any], encoding: str) -> None:
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    rows, problems = read(text.encode(encoding), "a.jsonl", encoding)
    expected, expected_problems = read(text.encode(), "a.jsonl")
    assert [row.value for row in rows] == [row.value for row in expected]
    assert [problem.code for problem in problems] == [problem.code for problem in expected_problems]


@fuzz(data=BYTES, size=st.integers(1, 40))
def test_the_size_of_chunks_makes_no_difference(data: bytes, size: int) -> None:
    data = data.removeprefix(codecs.BOM_UTF8)
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    whole, in_chunks = (
        [item if isinstance(item, Problem) else (item.value, item.line, item.column) for item in JsonReader(pieces)]
        for pieces in ([data], chunks)
    )
    assert in_chunks == whole


LINE = st.sampled_from(
    [
        json.dumps(record, ensure_ascii=False).encode()
        for seed in DATASETS
        for record in seed.records[:2]
        if isinstance(record, dict)
    ]
)


@fuzz(
    lines=st.lists(LINE.map(lambda line: (line, True)) | damaged(LINE, 2).map(lambda line: (line, False)), max_size=6)
)
def test_every_line_of_jsonl_is_a_row_or_is_named(lines: list[tuple[bytes, bool]]) -> None:
    assume(all(b"\n" not in line and b"\x00" not in line for line, _ in lines))
    assume(not lines or not lines[0][0].startswith((b"\xff\xfe", b"[", b"\xef\xbb\xbf")))
    data = b"".join(line + b"\n" for line, _ in lines)
    rows, problems = read(data, "a.jsonl")
    named = {row.line for row in rows} | {problem.place.line for problem in problems}
    if any(problem.code in ("not_utf8", "binary_file") and not problem.place.line for problem in problems):
        return  # the file as a whole
    values = {row.line: row.value for row in rows}
    unnamed: list[int] = []
    for number, (line, is_sound) in enumerate([*lines, (b"{}", False)], 1):
        if is_sound:
            assert values.get(number) == json.loads(line), (number, data)
        # Damaged lines next to each other may be one value of several lines, with one problem.
        if is_sound or number > len(lines):
            assert not unnamed, (unnamed, data)
        elif number in named:
            unnamed = []
        elif line.strip() and not line.lstrip().startswith(b"//"):
            unnamed.append(number)


@fuzz(data=BYTES, numbers=st.sets(st.integers(0, 30), max_size=4))
def test_lines_to_show_are_lines_of_the_file(folder: Path, data: bytes, numbers: set[int]) -> None:
    path = folder / "shown.jsonl"
    path.write_bytes(data)
    assert set(read_lines(str(path), numbers)) <= numbers


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".yaml", ".csv"])
@fuzz(share=0.5, records=mutations(st.sampled_from([seed.records for seed in DATASETS]), ["id", "a"]))
def test_records_of_every_layout_are_read(records: Any, suffix: str) -> None:
    records = records if isinstance(records, list) else [records]
    rows, problems = read(written(records, suffix), f"a{suffix}")
    errors = [problem for problem in problems if problem.severity in ("error", "info")]
    # A list in the first line is the file's array, not a record.
    if suffix == ".jsonl" and records and not isinstance(records[0], list):
        assert len(rows) + len(errors) == len(records)
