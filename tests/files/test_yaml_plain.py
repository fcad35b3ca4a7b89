"""Plain YAML is read without PyYAML, and gives exactly what the events of PyYAML give."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.files.yaml_events import read_rows
from evalloom.files.yaml_plain import MOST_BYTES, read_plain

ROOT = Path(__file__).resolve().parents[2]
FILES = [*ROOT.glob("examples/**/*.y*ml"), *ROOT.glob("tests/**/*.y*ml"), *ROOT.glob("docs/**/*.y*ml")]
PLAIN = """\
# settings
datasets: [cases.jsonl, "b c.jsonl"]
target: prompt:prompt.md  # a comment
llms:
  offline: {protocol: scripted, file: answers.yaml}
  other:
    base_url: https://localhost:8000/v1
    price: -1.50
    keys: ['a: b', 3, 0x10, ~, off]
checks:
- kind: contains
  expected: 七天 # x
-   kind: "# no comment"
    weight: 2
    nested:
    - a
    - [b]
last: (a) {b} #c
"""
SCALARS = ["a", "1", "-2", "0.5", "1e3", ".nan", "~", "null", "no", "true", "a b", "a  b ", "é 七", "b:c", "c :d", "-x"]
SCALARS += ["a: b", "a:", "a#b", "a #b", "# b", "#", "'x'", "'x''y'", '"x"', '"x\\n"', '"x" y', "[a, 1]", "[a, [b]]"]
SCALARS += [
    "{a: 1}",
    "{a: 1, b: 'c, d'}",
    "{a: 1, a: 2}",
    "[]",
    "{}",
    "[a,b]",
    "[a, ]",
    "{a}",
    "[a: b]",
    "|",
    ">-",
    "&x a",
]
SCALARS += [
    "*x",
    "!t a",
    "@a",
    "%a",
    "`a",
    "? a",
    ": a",
    "- a",
    "--- a",
    "...",
    "<<",
    "=",
    "a\tb",
    "\ufeff",
    "\x85",
    "a\r",
]
SCALARS += [
    "99999999999999999999",
    "0o17",
    "2026-01-01",
    "$a",
    "+1",
    "/a",
    ".5",
    "(a)",
    "<a",
    "",
    " ",
    "a,b",
    "a]",
    "a}",
]
STARTS = [
    "",
    "",
    "k: ",
    "j: ",
    "k:",
    "- ",
    "-",
    "-  ",
    "- k: ",
    "- j:",
    "- - ",
    "<<: ",
    "'q': ",
    "k : ",
    "? ",
    "---",
    "--- ",
    "# ",
]
LINES = st.builds(
    lambda indent, start, scalar, end: " " * indent + start + scalar + end,
    st.integers(0, 4),
    st.sampled_from(STARTS),
    st.sampled_from(SCALARS),
    st.sampled_from(["", "", "", " # c", "#c", " "]),
)


def assert_same(data: bytes) -> None:
    if (rows := read_plain(data)) is not None:
        expected = list(read_rows(data))
        assert rows == expected
        assert [list(row.places or {}) for row in rows] == [list(row.places or {}) for row in expected]  # type: ignore[union-attr]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_are_read_as_by_pyyaml(path: Path) -> None:
    assert_same(path.read_bytes())


def test_settings_as_people_write_them_are_plain() -> None:
    assert read_plain(PLAIN.encode()) is not None
    assert_same(PLAIN.encode())


@given(st.lists(LINES, max_size=7), st.sampled_from(["\n", "\n", "\n", "\r\n", "\n\n"]))
def test_any_lines_are_read_as_by_pyyaml(lines: list[str], end: str) -> None:
    assert_same(end.join([*lines, ""]).encode())


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["k: a", "j:", "- a", "- k:", "- k: a", "l: [a]"])), max_size=9
    )
)
def test_any_indentation_is_read_as_by_pyyaml(lines: list[tuple[int, str]]) -> None:
    assert_same("\n".join(" " * indent + line for indent, line in lines).encode())


@given(st.text(max_size=20) | st.binary(max_size=20))
def test_any_text_is_read_as_by_pyyaml(text: str | bytes) -> None:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    assert_same(data)
    assert_same(b"k: " + data)
    assert_same(b"- " + data + b"\n- b")


@pytest.mark.parametrize(
    "text", ["a: 1\na: 2", "a: &x 1", "a: |\n  b", "a:\n", "", "# c", "a", "[a]", "k: " + "x" * MOST_BYTES]
)
def test_what_is_not_plain_is_left_to_pyyaml(text: str) -> None:
    assert read_plain(text.encode()) is None


@pytest.mark.parametrize("name", ["evalloom.yaml", "answers.yaml"])
def test_first_example_is_plain(name: str) -> None:
    assert read_plain((ROOT / "examples/first" / name).read_bytes()) is not None
