"""The survey: one pass over the datasets before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalloom import catalog
from evalloom.data.dataset import Dataset
from evalloom.engine.evaluate import evaluate
from evalloom.engine.prepare import RunRequest, prepare
from evalloom.files.read import RowReader

CASES = """\
{"id": "a", "tags": ["x"], "question": "1", "expected_output": "contains:1"}
{"id": "b", "tags": ["y"], "question": "2", "expected_output": "contains:2"}
{"id": "c", "tags": ["x"], "question": "3", "expected_output": "contains:3"}
"""


UNNAMED = """\
{"vars": {"question": "1"}, "assert": [{"type": "contains", "value": "1"}]}
{"vars": {"question": "2"}, "assert": [{"type": "contains", "value": "2"}]}
"""
"""Cases that are identified by their content, which no other case of the file may have."""


@pytest.mark.parametrize(
    ("cases", "options"),
    [
        (CASES, {}),
        (CASES, {"tags": ["x"]}),
        (CASES, {"filter": 'id != "a"'}),
        (CASES, {"skip_invalid": True}),
        (UNNAMED, {}),
        (UNNAMED, {"limit": 1}),
    ],
)
def test_a_run_reads_a_dataset_once_before_and_once_during_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cases: str, options: dict[str, object]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cases.jsonl").write_text(cases)
    Path("prompt.md").write_text("{{question}}")
    opened: list[str] = []
    read_rows = RowReader.__init__

    def count(self: RowReader, source: object) -> None:
        opened.append(getattr(source, "name", ""))
        read_rows(self, source)  # type: ignore[arg-type]

    monkeypatch.setattr(RowReader, "__init__", count)
    request = RunRequest(("cases.jsonl",), target="prompt:prompt.md", options={"profiles": ["echo"], **options})
    evaluate(prepare(request, catalog.load()), warn=lambda message: None)
    assert opened.count("cases.jsonl") == 2


def test_every_row_is_linted_though_the_limit_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cases.jsonl").write_text(CASES + "{\n")
    Path("prompt.md").write_text("{{question}}")
    request = RunRequest(("cases.jsonl",), target="prompt:prompt.md", options={"profiles": ["echo"], "limit": 1})
    plan = prepare(request, catalog.load())
    assert plan.survey.report is not None and not plan.survey.report.passed
    assert plan.survey.cases == 1 and isinstance(next(plan.datasets()), Dataset)
