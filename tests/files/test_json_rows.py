"""JSON rows: however the objects are printed and however the bytes arrive, each is read once, at its place."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evalloom.core.model import Place
from evalloom.files.json_rows import JsonReader
from evalloom.files.jsontext import JsonError, Scan
from evalloom.files.rows import MAX_RECORD_BYTES, Problem, Row

Objects = list[dict[str, Any]]

leaves = st.none() | st.booleans() | st.integers(-1000, 10**18) | st.floats(-1e9, 1e9) | st.text(max_size=8)
inner: st.SearchStrategy[Any] = st.recursive(
    leaves, lambda more: st.lists(more, max_size=3) | st.dictionaries(st.text(max_size=3), more, max_size=3)
)
objects = st.lists(st.dictionaries(st.text(max_size=4), inner, max_size=4), min_size=1, max_size=6)


def plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def indented(value: Any) -> str:
    return "\n".join(f"  {line}" for line in pretty(value).split("\n"))


LAYOUTS: dict[str, Callable[[Objects], str]] = {
    "lines": lambda items: "".join(f"{plain(item)}\n" for item in items),
    "no last line break": lambda items: "\n".join(map(plain, items)),
    "ascii": lambda items: "".join(f"{json.dumps(item)}\n" for item in items),
    "spaces around": lambda items: "".join(f" \t{plain(item)}  \n" for item in items),
    "blank lines": lambda items: "\n\n" + "".join(f"{plain(item)}\n \n\n" for item in items),
    "comments": lambda items: "// first\n" + "".join(f'{plain(item)}\n  // {{ [ " \n' for item in items),
    "glued": lambda items: "".join(map(plain, items)),
    "printed": lambda items: "\n".join(map(pretty, items)),
    "printed, glued": lambda items: "".join(map(pretty, items)),
    "printed, no indent": lambda items: "\n".join(json.dumps(item, indent=0) for item in items),
    "array": plain,
    "array, compact": lambda items: json.dumps(items, separators=(",", ":")),
    "array, printed": pretty,
    "array, line each": lambda items: "[\n" + ",\n".join(map(plain, items)) + "\n]\n",
    "array, bracket first": lambda items: "[" + ",\n".join(map(plain, items)) + "]",
    "array, comma first": lambda items: "[ " + "\n, ".join(map(plain, items)) + "\n]",
    "array, comments": lambda items: "// a\n[ // b\n" + "\n, // c\n".join(map(indented, items)) + "\n] // d",
    "arrays": lambda items: "".join(f"[\n{indented(item)}\n]\n" for item in items),
}


def cut(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    """The bytes in pieces of these sizes, over and over."""
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)] if sizes else len(data)
        yield data[at : at + size]
        at, turn = at + max(size, 0), turn + 1


def read(text: str | bytes, sizes: list[int] | None = None) -> tuple[list[Row], list[Problem], int]:
    data = text.encode() if isinstance(text, str) else text
    reader = JsonReader(cut(data, sizes or []))
    items = list(reader)
    rows = [item for item in items if isinstance(item, Row)]
    return rows, [item for item in items if isinstance(item, Problem)], reader.lines


def after(text: str, place: Place) -> str:
    """What stands in a text from a place on."""
    lines = text.split("\n")
    return "\n".join([lines[place.line - 1][place.column - 1 :], *lines[place.line :]])


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=min(30, settings().max_examples))
@given(items=objects, sizes=st.lists(st.integers(1, 40), max_size=4), crlf=st.booleans())
@example(items=[{"a": 1}, {"b": 2}], sizes=[1], crlf=False)
@example(items=[{}, {"文": "字\u2028"}], sizes=[1], crlf=True)
def test_objects_are_read_once_at_their_places(layout: str, items: Objects, sizes: list[int], crlf: bool) -> None:
    text = LAYOUTS[layout](items)
    text = text.replace("\n", "\r\n") if crlf else text
    rows, problems, lines = read(text, sizes)
    assert problems == []
    assert repr([row.value for row in rows]) == repr(items)
    assert lines == text.count("\n") + (not text.endswith("\n"))
    for row in rows:
        assert json.JSONDecoder().raw_decode(after(text, Place(row.line, row.column)))[0] == row.value


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=min(30, settings().max_examples))
@given(items=objects, sizes=st.lists(st.integers(1, 40), max_size=4))
def test_a_field_stands_where_its_place_says(layout: str, items: Objects, sizes: list[int]) -> None:
    text = LAYOUTS[layout](items)
    for row in read(text, sizes)[0]:
        for name, value in row.value.items():
            assert json.JSONDecoder().raw_decode(after(text, row.place_of((name,))))[0] == value
        assert row.place_of(("not there", 1)) == (row.line, row.column)


COMMENTS = st.lists(st.sampled_from(["// {", '  // " [ }', "\t//", "// // 字", "//{}"]), max_size=2)


@pytest.mark.req("PIPE-1")
@settings(max_examples=min(60, settings().max_examples))
@given(
    items=objects, data=st.data(), sizes=st.lists(st.integers(1, 9), max_size=3), end=st.sampled_from(["\n", "\r\n"])
)
@example(items=[{"a": "// no", "b": ["x // y", {"c": "/"}]}, {}], data=None, sizes=[1], end="\r\n")
def test_comment_lines_inside_an_object_change_nothing(items: Objects, data: Any, sizes: list[int], end: str) -> None:
    lines: list[str] = []
    starts = []
    for item in items:
        starts.append(len(lines) + 1)
        first, *others = pretty(item).split("\n")
        lines.append(first)
        for line in others:
            lines += [*(data.draw(COMMENTS) if data else ["  // c"]), line]
    rows, problems, count = read(end.join(lines), sizes)
    assert problems == [] and count == len(lines)
    assert repr([row.value for row in rows]) == repr(items)
    assert [row.line for row in rows] == starts
    for row in rows:
        for name in row.value:
            place = row.place_of((name,))
            assert lines[place.line - 1][: place.column - 1].strip() == f"{plain(name)}:"


@pytest.mark.req("PIPE-1")
@pytest.mark.parametrize("size", [1, 1 << 16])
def test_faults_beside_comments_stand_where_they_are(size: int) -> None:
    text = '{\n  // one\n  "a": 1,\n  // two "\n  "b": oops\n}\n{"a": 2} // three\n{\n// four\n"a": 3\n}\n{"b": 1,\n// five\n{"a": 4}\n'
    rows, problems, _ = read(text, [size])
    assert [(row.value["a"], row.line) for row in rows] == [(3, 8), (4, 14)]
    assert [problem.place for problem in problems] == [(5, 8), (7, 10), (12, 9)]


BROKEN: dict[str, bytes] = {
    "truncated": b'{"id": 2, "tags": ["a"',
    "truncated behind a comma": b'{"id": 2,',
    "truncated behind a colon": b'{"id":',
    "only a brace": b"{",
    "unterminated string": b'{"id": "2}',
    "backslash at the end": b'{"id": "2\\',
    "garbage": b"oops",
    "garbage behind": b'{"id": 2} oops',
    "NaN": b'{"id": NaN}',
    "trailing comma": b'{"id": 2,}',
    "not UTF-8": b'{"id": "\xe4\xb8"}',
    "lone surrogate": b'{"id": "\\ud800"}',
    "control character": b'{"id": "\x01"}',
    "too deep": b'{"id": ' + b"[" * 300 + b"]" * 300 + b"}",
    "too many braces": b'{"id": 2}}',
    "wrong brace": b'{"id": [2}}',
    "lossy number": b'{"id": 1e-400}',
    "closing brace": b"}",
}


@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.parametrize("size", [1, 7, 1 << 16])
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b" \n\n"])
def test_broken_line_loses_only_itself(fault: str, size: int, ending: bytes) -> None:
    lines = [b'{"id": 1}', BROKEN[fault], b'{"id": 3}', b"// note", b'{"id": 4}', BROKEN[fault]]
    rows, problems, count = read(ending.join(lines), [size])
    step = ending.count(b"\n")
    assert [(row.value["id"], row.line) for row in rows] == [(1, 1), (3, 1 + 2 * step), (4, 1 + 4 * step)]
    assert [problem.place.line for problem in problems] == [1 + step, 1 + 5 * step]
    assert count == 1 + 5 * step


IN_ARRAY = sorted(set(BROKEN) - {"closing brace", "too many braces", "garbage behind", "wrong brace", "garbage"})


@pytest.mark.parametrize("fault", IN_ARRAY)
@pytest.mark.parametrize("opener", [b"[\n", b"["])
@pytest.mark.parametrize("broken", [0, 1, 3])
@pytest.mark.parametrize("size", [1, 1 << 16])
def test_broken_element_loses_only_itself(fault: str, opener: bytes, broken: int, size: int) -> None:
    elements = [b'{"id": %d}' % number for number in range(4)]
    elements[broken] = BROKEN[fault]
    rows, problems, _ = read(opener + b",\n".join(elements) + b"\n]\n", [size])
    assert [row.value["id"] for row in rows] == [number for number in range(4) if number != broken]
    line = broken + len(opener)
    # Where the last element is cut off, its brackets take in the one of the array, which is then not closed.
    assert {problem.place.line for problem in problems} <= ({line, line + 1, 1} if broken == 3 else {line, line + 1})
    assert problems


@pytest.mark.parametrize(
    "bad", ['"b": "open,', '"b": NaN,', '"b": ,', '"b" 1,', "oops", '"b": [1, 2', '"b": "\\ud800",', '"b": "\t",']
)
@pytest.mark.parametrize("style", ["objects", "array", "tight array"])
def test_broken_printed_object_loses_only_itself(bad: str, style: str) -> None:
    printed = [pretty({"id": number, "b": {"c": [{"d": 1}, {"e": 2}]}, "f": 1}) for number in range(4)]
    printed[1] = printed[1].replace('"id": 1,', f'"id": 1,\n  {bad}')
    text = "\n".join(printed) if style == "objects" else "[{}]".format(", ".join(printed))
    if style == "array":
        text = "[\n" + ",\n".join("\n".join(f"  {line}" for line in item.split("\n")) for item in printed) + "\n]\n"
    rows, problems, lines = read(text)
    assert [row.value["id"] for row in rows] == [0, 2, 3]
    first = text[: text.index(bad)].count("\n") + 1
    assert [problem.place.line - first in (0, 1) for problem in problems] == [True]
    assert lines == text.count("\n") + (not text.endswith("\n"))


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ('[{"a": 1},\n]', 2, 1),
        ('[{"a": 1}\n{"b": 1}]', 2, 1),
        ('[{"a": 1},,{"b": 1}]', 1, 11),
        ('[\n,{"a": 1}]', 2, 1),
        ('[{"a": 1}', 1, 1),
        ('[{"a": 1}] x', 1, 12),
        ('{"a":\n1}  x', 2, 5),
    ],
)
def test_what_does_not_belong_is_named_at_its_place(text: str, line: int, column: int) -> None:
    problems = read(text)[1]
    assert [problem.place for problem in problems] == [(line, column)]
    assert problems[0].code == "json_parse_error"


def test_keys_written_twice_are_a_warning_and_the_last_counts() -> None:
    rows, problems, _ = read('{"a": 1}\n{"a": 1,\n "a": 2}\n')
    assert [row.value for row in rows] == [{"a": 1}, {"a": 2}]
    assert [(problem.code, problem.severity, problem.place) for problem in problems] == [
        ("duplicate_key", "warning", (3, 2))
    ]


def test_bytes_that_are_no_text_are_found_inside_a_printed_object() -> None:
    _, (problem,), _ = read(b'{\n  "a": "\xe4\xb8\xad\xff"\n}\n')
    assert (problem.code, problem.place) == ("not_utf8", (2, 10))


@pytest.mark.parametrize("text", ["", "\n", " \n\n", "// only a note", "[]", "[\n]", "[ ]\n"])
def test_nothing_in_it_is_no_row(text: str) -> None:
    rows, problems, lines = read(text)
    assert [row.value for row in rows if row.value != []] == problems == []
    assert lines == text.count("\n") + (bool(text) and not text.endswith("\n"))


def mutated() -> st.SearchStrategy[bytes]:
    """A JSON object with a few bytes changed, taken out or put in."""
    odd = st.sampled_from(
        [b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\xff", b"\x00", b"e-400", b"1" * 17, b" "]
    )
    change = st.tuples(st.integers(0, 200), st.integers(0, 2), odd | st.binary(max_size=2))

    def apply(value: Any, changes: list[tuple[int, int, bytes]]) -> bytes:
        data = plain(value).encode()
        for at, taken, put in changes:
            at %= len(data) + 1
            data = data[:at] + put + data[at + taken :]
        return data.replace(b"\n", b" ")

    values = st.dictionaries(st.text(max_size=3), inner | st.floats() | st.integers(), max_size=3)
    return st.builds(apply, values, st.lists(change, max_size=3))


@given(mutated())
@example(b'{"a":1,"a":1,"\\u0022":1,"\\u0022\\u0022":1}')
@example(b'{"a": 0.00000000000000000000001e-305}')
def test_the_fast_way_accepts_nothing_that_the_exact_way_refuses(data: bytes) -> None:
    try:
        exact = Scan(data.decode())
    except (JsonError, UnicodeDecodeError):
        rows, problems, _ = read(data)
        # Several whole values on one line are several rows; every other fault is told.
        assert problems or not data.strip(b" \t\r") or data.lstrip(b" \t\r").startswith(b"//") or len(rows) > 1
        return
    rows, problems, _ = read(data + b"\n")
    if data.strip(b" \t\r").startswith(b"["):
        return
    assert repr([row.value for row in rows]) == repr([exact.value])
    assert len(problems) == len(exact.repeated)


@given(st.binary(max_size=60) | mutated(), st.lists(st.integers(1, 9), max_size=3))
def test_any_bytes_give_the_same_however_they_arrive(data: bytes, sizes: list[int]) -> None:
    shown = [repr(item) for item in (*read(data)[0], *read(data)[1])]
    again = read(data, sizes)
    assert [repr(item) for item in (*again[0], *again[1])] == shown


@pytest.mark.slow
def test_line_beyond_the_limit_is_refused_and_the_next_is_read() -> None:
    long = b'{"id": "%b"}\n' % (b"x" * MAX_RECORD_BYTES)
    rows, problems, lines = read(b'{"id": 1}\n' + long + b'{"id": 2}\n' + long, [1 << 20])
    assert [row.value["id"] for row in rows] == [1, 2]
    assert [(problem.code, problem.place) for problem in problems] == [
        ("line_too_long", (2, 1)),
        ("line_too_long", (4, 1)),
    ]
    assert lines == 4


def test_long_line_within_the_limit_is_read() -> None:
    text = "字" * (MAX_RECORD_BYTES // 4)
    (row,), problems, _ = read(plain({"id": text}), [1 << 16])
    assert (row.value, problems) == ({"id": text}, [])


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["array", "glued", "array, printed", "printed"])
def test_many_records_take_as_long_as_they_are(layout: str) -> None:
    items: Objects = [{"id": number, "text": "字" * 20} for number in range(20_000)]
    rows, problems, _ = read(LAYOUTS[layout](items), [1 << 16])
    assert (len(rows), problems) == (20_000, [])


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        b" " * 3_000_000,
        b'{"a": "' + b"1" * 3_000_000 + b'"}',
        b'{"a": ' + b"1" * 3_000_000 + b"}",
        b'{"a": [' + b"1," * 500_000 + b"1]} x",
        b"{" + b'"a":1,' * 200_000 + b'"b":1}',
        b"[" + b" " * 3_000_000 + b"{}]",
        b"[" * 1_000_000,
        b'{"a":' * 300_000,
        b'{"a": [\n' * 20_000,
        b'{"a": "\n' * 20_000,
        b'{"a":\n' + b"[\n" * 20_000,
        b'{"a": [\n5,\n' * 10_000,
        b'[{"a": [1,\n' + b'{"a": [1,\n' * 20_000,
        b"// " + b"x" * 3_000_000,
    ],
    ids=lambda data: data[:9].decode(),
)
def test_hostile_text_takes_no_longer_than_its_length(data: bytes) -> None:
    rows, problems, lines = read(data, [1 << 16])
    assert rows or problems or not data.strip() or data.startswith(b"//")
    assert lines == max(data.count(b"\n"), 1)


def test_many_dots_in_a_text_are_no_number() -> None:
    text = '{"input": "Name,.................... Date: ...............", "ideal": "[................."}'
    rows, problems, _ = read(text)
    assert ([row.value for row in rows], problems) == ([json.loads(text)], [])
