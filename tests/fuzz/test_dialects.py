"""Dialects: a changed record is a case or a finding, in every layout, and a conversion keeps count and ids."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from tests.fuzz.conftest import (
    CATALOG,
    DATASETS,
    JSON,
    KEYS,
    TEXTS,
    check_findings,
    check_report,
    damaged,
    fuzz,
    mutations,
    written,
)

from evalloom.core.errors import EvalloomError
from evalloom.core.model import Case, Origin, Record
from evalloom.data.dataset import Dataset
from evalloom.data.dialect import Dialect, Rules
from evalloom.data.mapping import parse_mapping
from evalloom.data.validate import validate
from evalloom.engine.convert import convert
from evalloom.engine.lint import LintOptions, lint
from evalloom.files.rows import Problem, Row
from evalloom.files.source import source_of

SUFFIXES = st.sampled_from([".jsonl", ".json", ".yaml", ".csv"])
RULES = Rules(
    check_sources_exist=True,
    check_must_include_in_sources=True,
    strict_bucket=True,
    strict_pair_id=True,
    steps=frozenset(["analyze"]),
)
each_dialect = pytest.mark.parametrize("dialect", CATALOG.formats.dialects, ids=lambda dialect: dialect.name)
each_writer = pytest.mark.parametrize("writer", CATALOG.formats.writers, ids=lambda dialect: dialect.name)
FILES = st.sampled_from([seed.records for seed in DATASETS])
RECORD = st.sampled_from([record for seed in DATASETS for record in seed.records if isinstance(record, dict)])
ANY_RECORD = mutations(RECORD, KEYS).filter(lambda value: isinstance(value, dict)) | st.dictionaries(
    st.sampled_from(KEYS) | TEXTS, JSON, max_size=5
)


def dataset_of(path: Path, dialect: str = "") -> Dataset:
    return Dataset(source_of(path), CATALOG.formats, dialect)


@fuzz(
    records=mutations(FILES, KEYS, most=4),
    suffix=SUFFIXES,
    dialect=st.sampled_from(["", "", *(dialect.name for dialect in CATALOG.formats.dialects)]),
)
def test_changed_files_are_linted(folder: Path, records: Any, suffix: str, dialect: str) -> None:
    path = folder / f"linted{suffix}"
    path.write_bytes(written(records if isinstance(records, list) else [records], suffix))
    report = lint([str(path)], CATALOG, LintOptions(dialect=dialect, rules=RULES, deep=True))
    check_findings(report.checked[0].findings, path.read_bytes())
    check_report(report)


@fuzz(data=damaged(st.sampled_from([seed.data[:4000] for seed in DATASETS])), seed=st.sampled_from(DATASETS))
def test_damaged_files_are_linted(folder: Path, data: bytes, seed: Any) -> None:
    path = folder / f"damaged{Path(seed.name).suffix}"
    path.write_bytes(data)
    report = lint([str(path)], CATALOG, LintOptions(deep=True))
    check_findings(report.checked[0].findings, data)
    check_report(report)


@fuzz(records=mutations(FILES, KEYS), suffix=SUFFIXES)
def test_every_record_is_a_case_or_is_named(folder: Path, records: Any, suffix: str) -> None:
    path = folder / f"counted{suffix}"
    path.write_bytes(written(records if isinstance(records, list) else [records], suffix))
    dataset = dataset_of(path)
    items = list(dataset)
    rows = [item for item in items if isinstance(item, Row)]
    own = [row for row in rows if dataset.dialect.is_case(row.value)]
    checked = validate(dataset_of(path), Rules())
    errors = [item for item in items if isinstance(item, Problem) and item.severity == "error"]
    assert checked.count("error") >= len(errors)
    # A list in the first line is the file's array, not a record.
    if suffix == ".jsonl" and isinstance(records, list) and not (records and isinstance(records[0], list)):
        infos = [item for item in items if isinstance(item, Problem) and item.severity == "info"]
        assert len(rows) + len(errors) + len(infos) >= len(records)
    cases = [case for case in dataset_of(path).cases() if isinstance(case, Case)]
    assert checked.cases == len(cases)
    # A record may stand for several cases, or for none if a list in it is empty.
    assert dataset.dialect.multiply is not None or len(cases) == len(own)
    assert all(case.id and isinstance(case.raw, dict) for case in cases)


@each_writer
@fuzz(share=0.5, records=mutations(FILES, KEYS))
def test_a_conversion_counts_what_it_writes_and_keeps_ids(folder: Path, records: Any, writer: Dialect) -> None:
    path, out = folder / "source.jsonl", folder / f"written_{writer.name}.jsonl"
    path.write_bytes(written(records if isinstance(records, list) else [records], ".jsonl"))
    dataset = dataset_of(path)
    stream = io.BytesIO()
    try:
        conversion = convert(dataset, writer, stream, as_array=False)
    except EvalloomError as error:
        assert error.code and str(error)
        return
    lines = stream.getvalue().splitlines()
    assert len(lines) == conversion.written
    out.write_bytes(stream.getvalue())
    back = [case for case in dataset_of(out, writer.name).cases() if isinstance(case, Case)]
    before = [case for case in dataset_of(path).named_cases() if not isinstance(case, Problem)]
    if dataset.dialect is not writer and writer.multiply is None and len(back) == len(before):
        for one, other in zip(before, back, strict=True):
            assert not one.position or one.case.id == other.id or any("id" in note for note in conversion.lost)


@each_dialect
@fuzz(share=0.5, record=ANY_RECORD)
def test_no_record_breaks_a_function_of_a_dialect(record: Record, dialect: Dialect) -> None:
    before = json.dumps(record)
    remarks = list(dialect.findings(record, RULES))
    assert all(remark.code and remark.message for remark in remarks)
    if dialect.are_clean([record], RULES):
        assert remarks == []
    for one in dialect.multiplied(record):
        case = dialect.to_case(one, Origin("f", 1))
        assert case.raw == one
        for path in dialect.check_paths(one):
            assert isinstance(path, tuple)
        for writer in CATALOG.formats.writers:
            assert writer.write is not None
            json.dumps(writer.write(case, 1).record)
    dialect.identity(record), dialect.optional_id(record), dialect.is_case(record), dialect.is_result(record)
    list(dialect.expand(record) or ())
    list(dialect.problems([record], "json"))
    dialect.lacks_inputs([record]), dialect.mapping_from([record]), dialect.unread_answer([record])
    assert dialect.canonical(dialect.canonical(record)) == dialect.canonical(record)
    assert json.dumps(record) == before, "the record itself was changed"


@fuzz(
    text=TEXTS | st.lists(st.sampled_from(["a", "=", ",", ".", "[]", "query", " ", "b"]), max_size=8).map("".join),
    record=ANY_RECORD,
)
def test_a_mapping_is_applied_or_refused(text: str, record: Record) -> None:
    before = json.dumps(record)
    try:
        mapping = parse_mapping(text)
    except EvalloomError as error:
        assert error.code == "bad_map"
        return
    mapping.apply(record)
    assert json.dumps(record) == before
