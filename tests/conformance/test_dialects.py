"""What every dialect must do, asked of the whole shelf: a new dialect adds a fixture and gets these for nothing."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom import catalog
from evalloom.core.model import Case, Origin, Record
from evalloom.data.dataset import Dataset
from evalloom.data.dialect import Dialect, Rules
from evalloom.data.validate import validate
from evalloom.engine.convert import convert
from evalloom.files.rows import Problem, Row
from evalloom.files.source import source_of

DIALECTS = catalog.load().formats.dialects
WRITERS = catalog.load().formats.writers
by_name = catalog.load().formats.by_name

FIXTURES = Path(__file__).parent.parent / "fixtures"


def dialect_of(file: Path) -> str:
    """The dialect that a fixture is named after: `hop_results.jsonl` and `hop.jsonl` are both `hop`."""
    names = [dialect.name for dialect in DIALECTS if file.name.startswith(dialect.name.replace("-", "_"))]
    return max(names, key=len, default="")


FILES = {file.name: dialect for file in sorted(FIXTURES.iterdir()) if file.is_file() and (dialect := dialect_of(file))}
SEEDS = [name for name, dialect in FILES.items() if by_name(dialect) in WRITERS]
each_file = pytest.mark.parametrize("name", FILES)
each_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)


def cases_of(path: Path, dialect: str = "") -> list[Case]:
    return [
        case for case in Dataset(source_of(path), catalog.load().formats, dialect).cases() if isinstance(case, Case)
    ]


def records_of(path: Path) -> list[Record]:
    return [row.value for row in Dataset(source_of(path), catalog.load().formats) if isinstance(row, Row)]


@each_dialect
def test_every_dialect_has_a_fixture(dialect: Dialect) -> None:
    assert dialect.name in FILES.values()
    assert dialect.summary


@pytest.mark.req("HOP-1", "PIPE-2", "EVAL-2", "RAG-2")
@each_file
def test_a_fixture_is_recognised_and_in_order(name: str) -> None:
    dataset = Dataset(source_of(FIXTURES / name), catalog.load().formats)
    assert (dataset.dialect.name, len(dataset.votes) <= 1 or dataset.has_explicit_dialect) == (FILES[name], True)
    assert dataset.reason
    checked = validate(dataset)
    assert [str(finding) for finding in checked.findings if finding.severity != "info"] == []


@each_file
def test_cases_keep_their_record_and_know_their_place(name: str) -> None:
    dataset = Dataset(source_of(FIXTURES / name), catalog.load().formats)
    cases = cases_of(FIXTURES / name)
    assert len(cases) >= 2
    lines = [case.origin.line for case in cases]
    assert lines == sorted(lines) and lines[0] >= 1
    assert all(case.raw and case.id for case in cases)
    assert all(str(case.origin).startswith(dataset.source.name) for case in cases)


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".jsonl")])
def test_a_broken_line_is_a_finding_and_the_rest_is_read(name: str, tmp_path: Path) -> None:
    lines = (FIXTURES / name).read_text(encoding="utf-8").splitlines()
    path = tmp_path / name
    path.write_text("\n".join([lines[0], '{"broken": ', *lines[1:]]), encoding="utf-8")
    dataset = Dataset(source_of(path), catalog.load().formats)
    problems = [item for item in dataset if isinstance(item, Problem)]
    assert [(problem.code, problem.place.line) for problem in problems] == [("json_parse_error", 2)]
    assert len(cases_of(path)) == len(cases_of(FIXTURES / name))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
FIELDS = sorted({field for name in FILES for record in records_of(FIXTURES / name) for field in record})
GOOD = [(name, record) for name in FILES for record in records_of(FIXTURES / name)]


@st.composite
def spoiled(draw: Any) -> Record:
    """A good record with a few fields dropped, replaced or added."""
    _, record = draw(st.sampled_from(GOOD))
    dropped = draw(st.sets(st.sampled_from(sorted(record)), max_size=2))
    changes = draw(st.dictionaries(st.sampled_from([*FIELDS, "x", "_y", "expected_z"]), JSON, max_size=3))
    return {**{name: value for name, value in record.items() if name not in dropped}, **changes}


@each_dialect
@given(record=spoiled())
def test_no_record_breaks_a_dialect(dialect: Dialect, record: Record) -> None:
    list(dialect.findings(record, Rules()))
    dialect.identity(record)
    case = dialect.to_case(record, Origin("f", 1))
    assert case.raw == record
    for writer in WRITERS:
        assert writer.write is not None
        json.dumps(writer.write(case, 1).record)


@each_dialect
@given(record=spoiled())
def test_the_quick_yes_is_never_wrong(dialect: Dialect, record: Record) -> None:
    if dialect.are_clean([record], Rules()):
        assert list(dialect.findings(record, Rules())) == []


@pytest.mark.parametrize("dialect", WRITERS, ids=lambda dialect: dialect.name)
@given(record=spoiled())
def test_the_canonical_shape_is_stable(dialect: Dialect, record: Record) -> None:
    once = dialect.canonical(record)
    assert dialect.canonical(once) == once


@pytest.mark.parametrize("name", SEEDS)
def test_the_schema_accepts_what_the_linter_accepts(name: str) -> None:
    dialect = by_name(FILES[name])
    assert dialect.schema is not None
    schema = dialect.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    for record in records_of(FIXTURES / name):
        if dialect.is_case(record):
            jsonschema.validate(
                dialect.canonical(record) if name != "hop_results.jsonl" else {"id": 1, "tag": "a"}, schema
            )


def converted(path: Path, to: str, out: Path) -> Path:
    dialect = by_name(to)
    with out.open("wb") as stream:
        conversion = convert(Dataset(source_of(path), catalog.load().formats), dialect, stream, out.suffix == ".json")
    assert conversion.unread == []
    return out


@pytest.mark.req("HOP-3", "PIPE-2")
@pytest.mark.parametrize("to", [dialect.name for dialect in WRITERS])
@pytest.mark.parametrize("name", SEEDS)
def test_there_and_back_keeps_the_inputs(name: str, to: str, tmp_path: Path) -> None:
    there = converted(FIXTURES / name, to, tmp_path / f"there_{to.replace('-', '_')}_v1.json")
    assert Dataset(source_of(there), catalog.load().formats, to).dialect.name == to
    back = converted(there, FILES[name], tmp_path / "back_again_v1.jsonl")
    before, after = cases_of(FIXTURES / name), cases_of(back)
    assert len(before) == len(after)
    if to not in ("rag", "replay", FILES[name]):  # a RAG case has one input, and replay makes text of every value
        assert [case.inputs for case in before] == [case.inputs for case in after]


@pytest.mark.req("HOP-3", "PIPE-2", "EVAL-2", "RAG-2")
@pytest.mark.parametrize("name", [name for name in SEEDS if name != "hop_results.jsonl"])
def test_writing_a_format_in_itself_keeps_every_field(name: str, tmp_path: Path) -> None:
    dialect = by_name(FILES[name])
    once = converted(FIXTURES / name, dialect.name, tmp_path / "once_basic_v1.jsonl")
    twice = converted(once, dialect.name, tmp_path / "twice_basic_v1.jsonl")
    assert once.read_bytes() == twice.read_bytes()
    if name != "pipeline_simple_v1.jsonl":
        assert records_of(once) == records_of(FIXTURES / name)


@pytest.mark.parametrize("to", [dialect.name for dialect in WRITERS])
@each_file
def test_everything_can_be_converted_and_what_is_lost_is_told(name: str, to: str) -> None:
    stream = io.BytesIO()
    dataset = Dataset(source_of(FIXTURES / name), catalog.load().formats)
    conversion = convert(dataset, by_name(to), stream, as_array=True)
    written = json.loads(stream.getvalue())
    assert len(written) == conversion.written == len(cases_of(FIXTURES / name))
    if to not in (FILES[name], "replay") and any(case.checks for case in cases_of(FIXTURES / name)):
        told = " ".join(conversion.lost)
        assert told or to in ("hop", "pipeline")
