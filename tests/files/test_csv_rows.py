"""CSV rows: cells are the text they are, at their places, and a broken row loses only itself."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.files.csv_rows import CsvReader
from evalloom.files.rows import MAX_RECORD_BYTES, Problem, Row

cells = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=6)
tables = st.lists(st.tuples(cells, cells, cells), max_size=5)


def read(data: bytes, size: int = 1 << 16) -> tuple[list[Row], list[Problem], int]:
    reader = CsvReader(data[at : at + size] for at in range(0, len(data), size))
    items = list(reader)
    rows = [item for item in items if isinstance(item, Row)]
    return rows, [item for item in items if isinstance(item, Problem)], reader.lines


@given(tables, st.sampled_from(",;\t"), st.sampled_from(["\n", "\r\n"]), st.integers(1, 9))
def test_cells_are_read_as_they_were_written(table: list[tuple[str, ...]], comma: str, ending: str, size: int) -> None:
    out = io.StringIO()
    csv.writer(out, delimiter=comma, lineterminator=ending).writerows([("id", "文", "c"), *table])
    rows, problems, lines = read(out.getvalue().encode(), size)
    written = [dict(zip(("id", "文", "c"), row, strict=True)) for row in table if any(row)]
    assert [row.value for row in rows] == written
    assert {problem.code for problem in problems} <= {"blank_row"}
    assert lines == out.getvalue().count("\n")


def test_every_cell_has_its_place() -> None:
    (first, second), _, _ = read('id,q,"t"\n\n1,"a ""b"",\nc",5" x\n"2","字",\n'.encode())
    assert (first.value, first.line) == ({"id": "1", "q": 'a "b",\nc', "t": '5" x'}, 3)
    assert [first.place_of((name,)) for name in ("id", "q", "t")] == [(3, 1), (3, 3), (4, 4)]
    assert [second.place_of((name,)) for name in ("id", "q", "t", "no")] == [(5, 1), (5, 5), (5, 9), (5, 1)]


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (b'2,"open', "csv_parse_error"),
        (b'2,"closed"x', "csv_parse_error"),
        (b"2,a\rb", "csv_parse_error"),
        (b"2,\xff", "not_utf8"),
        (b"2,a,b", "ragged_row"),
        (b"2," + b"x" * (MAX_RECORD_BYTES + 1), "line_too_long"),
    ],
    ids=lambda value: value[:12] if isinstance(value, bytes) else value,
)
@pytest.mark.parametrize("size", [1 << 20, 5])
def test_broken_row_loses_only_itself(broken: bytes, code: str, size: int) -> None:
    rows, problems, lines = read(b"id,q\n1,a\n" + broken + b"\n3,c\n" + b"4,d", max(size, len(broken) // 50))
    assert [(row.value["id"], row.line) for row in rows] == [("1", 2), ("3", 4), ("4", 5)]
    assert [(problem.code, problem.place.line) for problem in problems] == [(code, 3)]
    assert lines == 5


@pytest.mark.parametrize(
    ("broken", "advice"), [(b'"open', "Close it"), (b'"closed"x', "for a quote"), (b"a\rb", "LF or CRLF")]
)
def test_a_broken_row_is_told_in_words_for_who_wrote_it(broken: bytes, advice: str) -> None:
    _, (problem,), _ = read(b"id\n" + broken + b"\n")
    assert problem.message.startswith("is not CSV: ") and advice in problem.message
    assert "universal-newline" not in problem.message


def test_each_open_quote_is_reported_once_and_the_rows_between_are_read() -> None:
    rows, problems, _ = read(b'id,q\n1,"a\n2,b\n3,"\xff\n4,d\n')
    assert [row.value["id"] for row in rows] == ["2", "4"]
    assert [(problem.code, problem.place) for problem in problems] == [
        ("csv_parse_error", (2, 1)),
        ("not_utf8", (4, 4)),
        ("csv_parse_error", (4, 1)),
    ]


def test_bad_bytes_inside_a_long_cell_refuse_the_row_not_a_part_of_it() -> None:
    rows, (problem,), _ = read(b'id,q\n1,"a\n\xe4\xb8\nb"\n2,c\n')
    assert [row.value["id"] for row in rows] == ["2"]
    assert (problem.code, problem.place) == ("not_utf8", (3, 1))


def test_short_row_is_a_warning_and_a_blank_one_no_case() -> None:
    rows, problems, _ = read(b"id,q,t\n1,a\n,,\n\n")
    assert [row.value for row in rows] == [{"id": "1", "q": "a"}]
    assert [(problem.code, problem.severity) for problem in problems] == [
        ("ragged_row", "warning"),
        ("blank_row", "info"),
    ]


def test_header_without_names_and_with_a_name_twice() -> None:
    (row,), problems, _ = read(b"\n\nid,,id\n1,2,3\n")
    assert row.value == {"id": "3", "_column2": "2"}
    assert row.place_of(("id",)) == (4, 5)
    assert [(problem.code, problem.place.line) for problem in problems] == [("blank_column", 3), ("duplicate_key", 3)]


@pytest.mark.parametrize("data", [b"", b"\n \n", b"id,q\n", b'"id', b"\xff\n", b"\xff"])
def test_table_without_rows_has_none(data: bytes) -> None:
    rows, problems, lines = read(data)
    assert rows == []
    assert {problem.code for problem in problems} <= {"csv_parse_error", "not_utf8"}
    assert lines == data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


@given(st.binary(max_size=80), st.integers(1, 9))
def test_any_bytes_give_the_same_however_they_arrive(data: bytes, size: int) -> None:
    (rows, *rest), (again, *others) = read(data), read(data, size)
    assert [(row.value, row.line) for row in rows] == [(row.value, row.line) for row in again]
    assert rest == others


@pytest.mark.slow
@pytest.mark.parametrize("line", [b'1,"a\n', b'"\n', b'1,"a"b\n', b"x" * 50 + b"\n"])
def test_hostile_table_takes_no_longer_than_its_length(line: bytes) -> None:
    assert read(b"id,q\n" + line * 20_000)[2] == 20_001
