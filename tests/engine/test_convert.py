"""Records that stand for several cases, written in their own format and in another."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from evalloom import catalog
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Record
from evalloom.data.dataset import Dataset
from evalloom.engine.convert import convert
from evalloom.engine.inspect import inspect
from evalloom.files.source import source_of

by_name = catalog.load().formats.by_name

RECORD: Record = {"id": "a", "inputs": {"q": "{x}"}, "tags": ["t{x}"], "parameters": {"x": ["a", "b"]}}


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    (tmp_path / "cases.jsonl").write_text(json.dumps(RECORD) + "\n", encoding="utf-8")
    return Dataset(source_of(tmp_path / "cases.jsonl"), catalog.load().formats)


def converted(dataset: Dataset, to: str) -> list[Record]:
    stream = io.BytesIO()
    convert(dataset, by_name(to), stream, as_array=False)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.req("PIPE-16")
def test_within_the_format_a_record_stays_as_it_is(dataset: Dataset) -> None:
    assert converted(dataset, "pipeline") == [RECORD]


@pytest.mark.req("PIPE-16")
def test_another_format_gets_one_record_for_each_case(dataset: Dataset) -> None:
    assert [record["variables"]["q"] for record in converted(dataset, "replay")] == ["a", "b"]


@pytest.mark.req("PIPE-16")
def test_inspecting_counts_the_cases_and_shows_the_record(dataset: Dataset) -> None:
    contents = inspect(dataset)
    assert (contents.records, contents.cases, contents.tags) == (1, 2, {"ta": 1, "tb": 1})
    assert contents.sample == RECORD


@pytest.mark.req("EVAL-13")
def test_a_table_of_scored_cases_has_no_inputs_to_convert(tmp_path: Path) -> None:
    names = "test_id,test_category,input_summary,result_preview,run_status"
    (tmp_path / "table.csv").write_text(f"{names}\nTC001,happy_path,q=a,b,ok\n", encoding="utf-8")
    with pytest.raises(EvalloomError, match="table_as_source"):
        converted(Dataset(source_of(tmp_path / "table.csv"), catalog.load().formats), "replay")
