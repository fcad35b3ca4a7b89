"""`evalloom export`: every bundled example in every format, read back by the readers there are."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from evalloom import catalog, check, read
from evalloom.batchlog import find
from evalloom.cli import app
from evalloom.core.model import Case, Run, Scored
from evalloom.demo.run import suites_of
from evalloom.engine.results import stored_runs
from evalloom.hop.results.store import DataStore

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FORMATS = [exporter.name for exporter in catalog.load().exporters]
RAG = {"rag retrieve": ["rag", "retrieve", "eval_cases.jsonl"], "rag answer": ["rag", "answer", "eval_cases.jsonl"]}
EXPECTED = {
    "prompt-eval": {"prompt-eval"},
    "rag": set(RAG),
}
"""The examples that a format can express; the others can express all."""


Export = Callable[[str, str], "Exported"]


class Exported(NamedTuple):
    """One example's batch, and how its export went."""

    rows: list[tuple[Run, Scored]]
    file: Path
    code: int
    err: str

    @property
    def statuses(self) -> Counter[str]:
        return Counter(scored.status for _, scored in self.rows)


@pytest.fixture(scope="module")
def batch_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Runs an example in a copy of the examples, once for all tests, and returns its batch."""
    examples = shutil.copytree(EXAMPLES, tmp_path_factory.mktemp("export") / "examples")

    @cache
    def run(example: str) -> Path:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(examples / example.split()[0])
            app.run(RAG.get(example) or ["run"])
            return find("latest").absolute()

    return run


@pytest.fixture
def export(batch_of: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Export:
    def export_as(example: str, format: str) -> Exported:
        batch, file = batch_of(example), tmp_path / "exported"
        capsys.readouterr()
        code = app.run(["export", str(batch), "--as", format, "-o", str(file)])
        return Exported(list(stored_runs(batch)), file, code, capsys.readouterr().err)

    return export_as


ALL = [*suites_of(catalog.load()), *RAG]


def lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("example", ALL)
def test_every_example_is_exported_or_refused_with_a_reason(export: Export, example: str, format: str) -> None:
    done = export(example, format)
    if example in EXPECTED.get(format, ALL):
        assert done.code == 0 and f"{len(done.rows)} runs written" in done.err, done.err
        assert done.rows and done.file.stat().st_size
    else:
        assert done.code == 2 and "[cannot_export]" in done.err
        assert not done.file.exists()


@pytest.mark.req("HOP-6", "HOP-16")
@pytest.mark.parametrize("example", ALL)
def test_a_hop_file_is_read_back_by_stats(export: Export, example: str, tmp_path: Path) -> None:
    done = export(example, "hop")
    (tmp_path / "data").mkdir()
    shutil.copy(done.file, tmp_path / "data" / "out.jsonl")
    assert DataStore(tmp_path / "data").get_stats()["total"] == len(done.rows)
    rows = [row for row in lines(done.file) if row.get("_type") != "meta"]
    assert [row["profile"] for row in rows] == [run.profile for run, _ in done.rows]
    for row, (run, scored) in zip(rows, done.rows, strict=True):
        assert row["hop_stats"]["status"] == ("ERROR" if scored.status in ("error", "skipped", "blocked") else "OK")
        assert json.loads(row["hop_result"]) == (None if run.error else run.output.value)


@pytest.mark.req("EVAL-2", "EVAL-5")
def test_prompt_eval_results_are_valid_cases_with_their_outputs(export: Export) -> None:
    done = export("prompt-eval", "prompt-eval")
    found = check(done.file)
    assert found.dialect == "prompt-eval" and found.cases == len(done.rows) and not found.count("error")
    records = json.loads(done.file.read_text(encoding="utf-8"))
    assert Counter(record["evalloom"]["status"] for record in records) == done.statuses
    assert sum(record["result_aftertest"] is None for record in records) == done.statuses["error"] > 0
    assert [record["test_id"] for record in records] == [run.case_id for run, _ in done.rows]


@pytest.mark.req("RAG-4")
@pytest.mark.parametrize("example", list(RAG))
def test_a_rag_batch_is_exported_as_its_report(export: Export, example: str) -> None:
    done = export(example, "rag")
    report = json.loads(done.file.read_bytes())
    assert report["tool"] == f"evalloom {example}" and report["summary"]["total_items"] == len(done.rows)
    assert Counter(item["detail"]["status"] for item in report["items"]) == done.statuses


@pytest.mark.parametrize("example", ALL)
def test_promptfoo_results_agree_with_the_batch_and_are_read_as_tests(
    export: Export, example: str, tmp_path: Path
) -> None:
    done = export(example, "promptfoo")
    document = json.loads(done.file.read_bytes())
    results, stats = document["results"]["results"], document["results"]["stats"]
    assert document["results"]["version"] == 3 and document["shareableUrl"] is None
    assert (stats["successes"], stats["failures"]) == (done.statuses["passed"], done.statuses["failed"])
    assert stats["errors"] == len(done.rows) - stats["successes"] - stats["failures"]
    assert len({(result["testIdx"], result["promptIdx"]) for result in results}) == len(results)
    for result, (run, scored) in zip(results, done.rows, strict=True):
        assert result["success"] is (scored.status == "passed")
        assert result["response"].get("output") == (
            None if run.error or run.skipped or run.blocked else run.output.value
        )
        components = result.get("gradingResult", {"componentResults": []})["componentResults"]
        assert [part["pass"] for part in components] == [verdict.status == "passed" for verdict in scored.verdicts]
    tests = tmp_path / "tests.jsonl"
    tests.write_text("".join(json.dumps(result["testCase"]) + "\n" for result in results), encoding="utf-8")
    cases = list(read(tests, dialect="promptfoo").cases())
    assert [case.inputs for case in cases if isinstance(case, Case)] == [result["vars"] for result in results]


@pytest.mark.parametrize("example", ALL)
def test_a_log_of_oaieval_has_the_events_of_every_run(export: Export, example: str) -> None:
    done = export(example, "openai-evals")
    spec, *events, end = lines(done.file)
    assert spec["spec"]["run_id"] and [event["event_id"] for event in events] == list(range(len(events)))
    matches = [event["data"]["correct"] for event in events if event["type"] == "match"]
    assert (sum(matches), len(matches) - sum(matches)) == (done.statuses["passed"], done.statuses["failed"])
    assert len({event["sample_id"] for event in events}) == len(done.rows)
    assert sum(event["type"] == "error" for event in events) == done.statuses["error"]
    others = Counter(event["data"]["status"] for event in events if event["type"] == "extra")
    assert others == {status: n for status, n in done.statuses.items() if status in ("unscored", "skipped", "blocked")}
    assert end["final_report"]["accuracy"] == pytest.approx(sum(matches) / len(matches))


@pytest.mark.parametrize("example", ALL)
def test_spans_are_otlp_of_one_trace_per_run(export: Export, example: str) -> None:
    from google.protobuf import json_format
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    done = export(example, "otel")
    requests = lines(done.file)
    assert len(requests) == len(done.rows)
    for request, (run, scored) in zip(requests, done.rows, strict=True):
        message = json_format.ParseDict(base64_ids(request), ExportTraceServiceRequest())
        root, *children = message.resource_spans[0].scope_spans[0].spans
        assert not root.parent_span_id and len(root.trace_id) == 16 and len(root.span_id) == 8
        ids = {span.span_id for span in (root, *children)}
        assert len(ids) == 1 + len(children) and all(span.parent_span_id in ids for span in children)
        assert all(root.start_time_unix_nano <= span.start_time_unix_nano for span in children)
        assert all(span.start_time_unix_nano <= span.end_time_unix_nano <= root.end_time_unix_nano for span in children)
        results = [event for event in root.events if event.name == "gen_ai.evaluation.result"]
        assert len(results) == len(scored.verdicts)
        assert attributes(root)["evalloom.status"].string_value == scored.status
        assert (root.status.code == 2) is bool(run.error)


def attributes(span: Any) -> dict[str, Any]:
    return {attribute.key: attribute.value for attribute in span.attributes}


def base64_ids(value: Any) -> Any:
    """Turn the ids, which OTLP/JSON writes in hex, to the base64 of protobuf's own JSON."""
    from base64 import b64encode

    if isinstance(value, list):
        return [base64_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    names = ("traceId", "spanId", "parentSpanId")
    return {
        key: b64encode(bytes.fromhex(item)).decode() if key in names else base64_ids(item)
        for key, item in value.items()
    }
