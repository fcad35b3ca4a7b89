"""Lines that are recognized by their shape give exactly what decoding them gives."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom import catalog
from evalloom.data.dialect import Dialect, Rules
from evalloom.data.mapping import Mapping
from evalloom.data.validate import shapes
from evalloom.data.validate.checker import Block, Checker
from evalloom.data.validate.shapes import Shapes
from evalloom.files.json_rows import JsonReader

FORMATS = catalog.load().formats
RAG = {
    "id": "c-1",
    "query": "如何退款？",
    "expected_sources": ["docs/a.md", "docs/b.md"],
    "must_include": ["七天", "full refund"],
    "bucket": "oral",
    "pair_id": "p1",
    "concept_id": "refund",
    "note": "see [1], and ask",
    "tags": ["zh"],
}
HOP = {"id": 7, "tag": "date", "description": "a", "difficulty": "easy", "text": "x, y", "expected_ok": True, "n": 0.5}
PIPELINE = {
    "id": "review_1",
    "tags": ["a", "b"],
    "inputs": {"text": "so good", "language": "zh", "n": 12, "deep": {"on": False, "none": None}},
    "step_inputs": {"clean": {"mode": "strict"}, "pick": {"labels": ["x"], "top_k": 3, "rows": [{"a": 1}]}},
    "intermediate_expectations": {"clean": {"text": "good"}},
    "expected_outputs": {"sentiment": "positive", "score": -0.25},
    "evaluation_config": {"evaluate_intermediate": True, "tolerance": 0.05},
}
ROW = {"_id": "a", "question": "what?", "context": ["x", "y"], "n": 3, "meta": {"k": []}}
RECORDS: dict[str, dict[str, Any]] = {"rag": RAG, "hop": HOP, "pipeline": PIPELINE, "replay": ROW}


def line_of(record: dict[str, Any], separators: tuple[str, str] = (", ", ": "), ascii: bool = False) -> bytes:
    return json.dumps(record, ensure_ascii=ascii, separators=separators).encode("utf-8", "surrogatepass")


def check(dialect: Dialect, text: bytes, chunk: int, recognizer: Shapes | None) -> tuple[Block, int]:
    """The block of a text that arrives in chunks, and its lines."""
    reader = JsonReader((text[at : at + chunk] for at in range(0, len(text), chunk)), False, recognizer)
    checker = Checker("a.jsonl", dialect, Rules(), Mapping(), FORMATS, shapes=recognizer)
    return checker.check(reader.blocks()), reader.lines


def assert_same(name: str, text: bytes, chunk: int, learned: bytes) -> None:
    dialect = FORMATS.by_name(name)
    recognizer = Shapes(dialect)
    recognizer.learn(json.loads(learned), learned)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "_FEWEST_LINES", 1)
        patch.setattr(shapes, "_FIRST_WAIT", 1)
        recognizer.wait = 1
        assert check(dialect, text, chunk, recognizer) == check(dialect, text, chunk, None)


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
@pytest.mark.parametrize("name", RECORDS)
def test_lines_of_one_shape_are_not_decoded(name: str, separators: tuple[str, str]) -> None:
    dialect, line = FORMATS.by_name(name), line_of(RECORDS[name], separators)
    recognizer = Shapes(dialect)
    check(dialect, line + b"\n", 1000, recognizer)
    recognized = recognizer.recognize((line + b"\n") * 20, 3)
    assert recognized is not None and (recognized.count, recognized.line) == (20, 3)
    assert [row.value for row in recognized.decoded().rows()] == [RECORDS[name]] * 20
    assert recognizer.recognize((line + b" \n") * 20, 3) is None


NAUGHTY = [
    *("", " ", "　x", "x ", "\u00a0", "\x85y", "\u2028", "x\u2029", "a\tb", 'say "no"', "back\\slash", "\x7f", "\x00"),
    *("../up", "/etc/passwd", "C:/x", "~/x", "a//b", "http://x", "regex:a+", "semantic:hm", "x regex:y", "𝒳", "\ufeff"),
    *("é", "\ud800", "oral", "official", "ambiguous", "Oral", "easy", "hard", "-", "a b", "a\nb", "x, y", '", "'),
    *("expected", "{", "}", "]", "[1]", "null", "true", "\r", "İ", "ß" * 40, "p1", " p1"),
]
NUMBERS = [0, -1, 1, 2**53, 2**61, 10**14, 10**15, 2**63, 2**64, 2**70, 0.1, 1.5, 1e-7, 1e22, 0.1234567890123456, -0.0]
scalars = st.one_of(st.sampled_from(NAUGHTY), st.sampled_from(NUMBERS), st.none(), st.booleans(), st.text(max_size=5))
values = st.one_of(
    scalars,
    st.lists(scalars, max_size=3),
    st.dictionaries(st.sampled_from(["a", "expected", "x y"]), scalars, max_size=2),
)
EXTRA = ["checks", "check", "expected_answer", "depends_on", "parameters", "hop_result", "_type", "variables", "input"]


def changed(record: dict[str, Any], path: list[int], value: Any) -> dict[str, Any]:
    """The record with one value, perhaps inside another, replaced."""
    copied: Any = json.loads(json.dumps(record))
    node, (first, *further) = copied, path
    key: Any = list(node)[first % len(node)]
    for step in further:
        if not isinstance(node[key], dict | list) or not node[key]:
            break
        node = node[key]
        key = list(node)[step % len(node)] if isinstance(node, dict) else step % len(node)
    node[key] = value
    return copied  # type: ignore[no-any-return]


@st.composite
def lines(draw: st.DrawFn, record: dict[str, Any]) -> bytes:
    """A line like the record, with a value, a key or some bytes changed."""
    kind = draw(
        st.sampled_from(["same", "value", "value", "value", "key", "twice", "bytes", "spacing", "order", "glue"])
    )
    line = line_of(record)
    if kind == "value":
        path = draw(st.lists(st.integers(0, 9), min_size=1, max_size=3))
        return line_of(changed(record, path, draw(values)), ascii=draw(st.booleans()))
    if kind == "key":
        return line_of({**record, draw(st.sampled_from([*EXTRA, *NAUGHTY])): draw(values)})
    if kind == "twice":
        name = draw(st.sampled_from(list(record)))
        at = draw(st.sampled_from([place for place in range(len(line)) if line[place : place + 1] == b"{"]))
        comma = b"" if line[at + 1 : at + 2] == b"}" else b", "
        return line[: at + 1] + line_of({name: draw(values)})[1:-1] + comma + line[at + 1 :]
    if kind == "bytes":
        at, size = draw(st.integers(0, len(line))), draw(st.integers(0, 3))
        inserted = draw(st.one_of(st.binary(max_size=3), st.sampled_from([b"\\", b'"', b"\\u0022", b"\\u0041", b"\n"])))
        return line[:at] + inserted + line[at + size :]
    if kind == "spacing":
        spaced = line_of(record, (",", ":")) if draw(st.booleans()) else b" " + line
        return draw(st.sampled_from([spaced, line + b"\r", line + b" ", b"\xef\xbb\xbf" + line, b"", b"// x"]))
    if kind == "order":
        return line_of(dict(draw(st.permutations(list(record.items())))))
    if kind == "glue":
        cut = draw(st.integers(1, len(line)))
        return draw(st.sampled_from([line + line, line[:cut], line[cut:], line + b",", b"[" + line, line + b"\n}"]))
    return line


@pytest.mark.parametrize("name", RECORDS)
@given(st.data())
def test_findings_are_those_of_the_exact_reader(name: str, data: st.DataObject) -> None:
    record = RECORDS[name]
    mutated = data.draw(st.lists(lines(record), min_size=1, max_size=8))
    mixed = data.draw(st.permutations([*mutated, *[line_of(record)] * 3]))
    text = b"\n".join(mixed) + data.draw(st.sampled_from([b"\n", b""]))
    assert_same(name, text, data.draw(st.integers(50, 4000)), line_of(record))


@pytest.mark.parametrize("name", RECORDS)
@given(st.data())
def test_shape_of_any_record_is_exact(name: str, data: st.DataObject) -> None:
    path, value = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=3)), data.draw(values)
    record = changed(RECORDS[name], path, value)
    text = b"\n".join([line_of(record)] * 2 + data.draw(st.lists(lines(record), min_size=1, max_size=6)) + [b""])
    dialect, chunk = FORMATS.by_name(name), data.draw(st.integers(50, 4000))
    recognizer = Shapes(dialect)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "_FEWEST_LINES", 1)
        patch.setattr(shapes, "_FIRST_WAIT", 1)
        recognizer.wait = 1
        assert check(dialect, text, chunk, recognizer) == check(dialect, text, chunk, None)
