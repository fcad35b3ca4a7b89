"""The exact JSON reader: the same values as Python's, and for whatever it refuses a code and a place."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.model import Place
from evalloom.files.json_rows import JsonReader
from evalloom.files.jsontext import MAX_DEPTH, JsonError, Scan, all_places, offset_place, places_of
from evalloom.files.rows import Row

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


def fault_of(text: str) -> JsonError:
    with pytest.raises(JsonError) as raised:
        Scan(text)
    return raised.value


@given(values, st.sampled_from([None, 0, 2]), st.booleans())
def test_same_value_as_the_standard_library(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    read = Scan(f" {text}\n").value
    assert read == json.loads(text)
    assert repr(read) == repr(json.loads(text))


@given(values)
def test_every_value_stands_where_its_place_says(value: Any) -> None:
    text = json.dumps(value, indent=1, ensure_ascii=False)
    starts = text.split("\n")
    for path, place in all_places(text.encode(), 1, 1).items():
        inner = value
        for step in path:
            inner = inner[step]
        rest = "\n".join([starts[place.line - 1][place.column - 1 :], *starts[place.line :]])
        assert json.JSONDecoder().raw_decode(rest)[0] == inner


@given(st.text("ab\n"), st.lists(st.integers(0, 30)))
def test_places_of_many_offsets_are_the_places_of_each(text: str, offsets: list[int]) -> None:
    inside = [min(offset, len(text)) for offset in offsets]
    assert list(places_of(text, inside, 5, 3)) == [offset_place(text, offset, 5, 3) for offset in inside]


@pytest.mark.parametrize(
    ("text", "offset", "word"),
    [
        ("", 0, "end of the text"),
        ('{"a": 1', 7, "end of the text"),
        ('{"a": 1,}', 7, "comma before '}'"),
        ("[1, 2,]", 5, "comma before ']'"),
        ("[1 2]", 3, "',' or ']'"),
        ('{"a" 1}', 5, "':'"),
        ("{a: 1}", 1, "a key in double quotes"),
        ("{'a': 1}", 1, "Use double quotes"),
        ('{"a": NaN}', 6, "Write null or a string"),
        ('{"a": -Infinity}', 6, "Write null or a string"),
        ('{"a": None}', 6, "Write null or a string"),
        ('{"a": undefined}', 6, "Write null or a string"),
        ('{"a": 01}', 6, "a JSON value"),
        ('{"a": +1}', 6, "a JSON value"),
        ('{"a": 1.}', 7, "',' or '}'"),
        ('{"a": "b', 6, "inside a string"),
        ('{"a": "b\tc"}', 8, r"'\t'"),
        (r'{"a": "\x"}', 7, "bad escape"),
        (r'{"a": "\u12"}', 7, "bad escape"),
        ('{"a": 1} x', 9, "nothing more expected"),
        ('{"a": 1}{"b": 2}', 8, "nothing more expected"),
        ("nul", 0, "a JSON value"),
    ],
)
def test_broken_text_is_refused_at_its_place(text: str, offset: int, word: str) -> None:
    fault = fault_of(text)
    assert fault.code == "json_parse_error"
    assert abs(fault.offset - offset) <= (1 if "escape" in word else 0)
    assert word in fault.message


@pytest.mark.parametrize("text", [r'["\ud800"]', r'["\udc00\ud800"]', r'{"\ud83d": 1}', r'["\ud83dx\ude00"]'])
def test_half_a_surrogate_pair_is_refused(text: str) -> None:
    assert (fault_of(text).code, fault_of(text).offset) == ("lone_surrogate", 1)


def test_both_halves_are_one_character() -> None:
    assert Scan(r'"\ud83d\ude00"').value == "😀"


@pytest.mark.parametrize("text", ["", "{", '{"a"', '{"a":', "[1,", '{"a": tr', '["x', '{"a": {'])
def test_text_that_more_text_could_complete_says_so(text: str) -> None:
    assert fault_of(text).incomplete


@pytest.mark.parametrize("text", ['{"a": x', "[1}", '{"a",', '{"a": 1, {', "[1,]", "[1 2"])
def test_text_that_nothing_can_complete_says_so(text: str) -> None:
    assert not fault_of(text).incomplete


EXACT = ["0.1", "0.10000000000000001", "1e308", "-0.0", "0e-999", "5e-324", "1e-310", "123456789012345.6", "1.50"]
EXACT += [
    "0.30000000000000004",
    "5.960464477539063e-08",
    "1e22",
    "100000000000000000000.0",
    "18446744073709551615",
    "-9223372036854775808",
]
LOSSY = ["1e400", "-1e400", "2e-324", "3e-324", "1e-400", "1e-0400", "1e-1000", "1E-5000", "18446744073709551616"]
LOSSY += ["-9223372036854775809", "0.12345678901234567890", "9007199254740993.0", "1" * 5000, "0." + "1" * 900]


@pytest.mark.parametrize("written", EXACT)
def test_number_that_keeps_its_digits_is_read(written: str) -> None:
    assert Scan(written).value == json.loads(written)
    (row,) = JsonReader([f'{{"n": {written}}}'.encode()])
    assert isinstance(row, Row) and row.value == {"n": json.loads(written)}


@pytest.mark.parametrize("written", LOSSY)
@pytest.mark.parametrize("around", ['{"a": {"n": %s}}', '{"n": [1,%s]}', '{"n":%s ,"b":1}', "%s"])
def test_number_that_would_lose_digits_is_refused(written: str, around: str) -> None:
    text = around % written
    fault = fault_of(text)
    assert (fault.code, fault.offset) == ("number_loses_precision", text.index(written))
    (problem,) = JsonReader([text.encode()])
    assert not isinstance(problem, Row) and problem.place == Place(1, fault.offset + 1)


def test_keys_written_twice_are_found_at_any_depth() -> None:
    scan = Scan('{"a": [{"b": 1, "b": 2}], "a": 3, "\\u0061": 4}')
    assert scan.value == {"a": 4}
    assert scan.repeated == [(("a", 0, "b"), 16), (("a",), 26), (("a",), 34)]


@pytest.mark.parametrize(("opener", "closer"), [("[", "]"), ('{"a":', "}")])
def test_depth_has_one_limit_on_the_fast_and_the_exact_way(opener: str, closer: str) -> None:
    fits = opener * MAX_DEPTH + "1" + closer * MAX_DEPTH
    (row,) = JsonReader([fits.encode()], may_be_array=False)
    assert isinstance(row, Row) and row.value == Scan(fits).value == json.loads(fits)
    deeper = f"{opener}{fits}{closer}"
    (problem,) = JsonReader([deeper.encode()], may_be_array=False)
    assert not isinstance(problem, Row) and problem.code == fault_of(deeper).code == "nesting_too_deep"
