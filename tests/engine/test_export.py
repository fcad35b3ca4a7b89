"""What an export has of each run: its profile, repeat and status; no keys, no content where it is not asked for."""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from evalloom import catalog
from evalloom.core.model import Case, Check, Output, Record, Run, Scored, Usage, Verdict
from evalloom.reports.run_report import ReportRow, RunReport
from evalloom.ui.report_marks import is_report

CASES = [
    {"id": "wrong", "inputs": {"q": "x"}, "expected_outputs": {"output": "y"}},
    {"id": "after", "inputs": {"q": "x"}, "expected_outputs": {"output": "x"}, "depends_on": ["wrong"]},
    {"id": "right", "inputs": {"q": "z"}, "expected_outputs": {"output": "z"}},
    {"id": "free", "inputs": {"q": "the secret word"}},
]
SETTINGS = """\
llms: {one: {protocol: echo, model: m-1}, two: {protocol: echo, model: m-2}}
profiles: {one: {run: one}, two: {run: two}}
"""
STATUSES = {"failed": 4, "blocked": 4, "passed": 4, "unscored": 4, "error": 4}
RUN = ("run", "cases.jsonl", "--target", "prompt:p.md", "--profile", "one,two", "--repeat", "2", "--skip-invalid")


@pytest.fixture
def evalloom(in_process: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """The commands, in the folder of a batch with a run of each status, under two profiles and twice each."""
    (tmp_path / "evalloom.yaml").write_text(SETTINGS)
    (tmp_path / "p.md").write_text("{{q}}")
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in CASES) + '{"id": broken\n')
    in_process(*RUN)
    return in_process


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def attributes(of: Record) -> Record:
    return {item["key"]: next(iter(item["value"].values())) for item in of["attributes"]}


def test_promptfoo_shows_each_status_profile_and_repeat(evalloom: Callable[..., Any]) -> None:
    results = json.loads(evalloom("export", "latest", "--as", "promptfoo").out)["results"]
    facts = [result["metadata"]["evalloom"] for result in results["results"]]
    assert Counter(fact["status"] for fact in facts) == STATUSES
    assert len({(fact["case_id"], fact["profile"], fact["repeat"]) for fact in facts}) == 20
    assert [prompt["provider"] for prompt in results["prompts"]] == ["m-1", "m-2"]
    reasons = {
        fact["status"]: (one["failureReason"], one.get("error", ""))
        for fact, one in zip(facts, results["results"], strict=True)
    }
    assert reasons["passed"] == (0, "") and reasons["failed"][0] == 1
    assert reasons["blocked"][0] == reasons["unscored"][0] == reasons["error"][0] == 2
    assert reasons["blocked"][1].startswith("blocked: ") and reasons["unscored"][1].startswith("unscored: ")


def test_a_run_writes_what_the_export_does(evalloom: Callable[..., Any], tmp_path: Path) -> None:
    evalloom(*RUN, "-o", "run.promptfoo.json")
    assert evalloom("export", "latest", "-o", "export.promptfoo.json").code == 0
    assert (tmp_path / "run.promptfoo.json").read_bytes() == (tmp_path / "export.promptfoo.json").read_bytes()
    results = json.loads((tmp_path / "run.promptfoo.json").read_bytes())["results"]["results"]
    asserts = next(one["testCase"]["assert"] for one in results if one["metadata"]["evalloom"]["case_id"] == "right")
    assert [one["value"] for one in asserts] == ["z"]


def test_tests_of_promptfoo_are_numbered_without_gaps(evalloom: Callable[..., Any]) -> None:
    evalloom(
        "run",
        "cases.jsonl",
        "--target",
        "prompt:p.md",
        "--profile",
        "one,two",
        "--filter",
        "id in ['right', 'free']",
        "--skip-invalid",
    )
    results = json.loads(evalloom("export", "latest", "--as", "promptfoo").out)["results"]["results"]
    assert [(one["testIdx"], one["promptIdx"]) for one in results] == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_oaieval_has_no_match_for_what_was_not_scored(evalloom: Callable[..., Any]) -> None:
    _, *events, end = lines(evalloom("export", "latest", "--as", "openai-evals").out)
    ends = Counter(event["type"] for event in events if event["type"] not in ("sampling", "metrics"))
    assert ends == {"match": 8, "extra": 8, "error": 4}
    assert end["final_report"]["accuracy"] == 0.5 and {key: end["final_report"][key] for key in STATUSES} == STATUSES
    assert "right.two.1" in {event["sample_id"] for event in events}


@pytest.mark.req("HOP-6")
def test_hop_says_which_rows_have_no_result_and_which_lines_no_record(evalloom: Callable[..., Any]) -> None:
    done = evalloom("export", "latest", "--as", "hop")
    rows = [row for row in lines(done.out) if "_type" not in row]
    assert len(rows) == 16 and "without 4 runs of lines" in done.err and "[records_missing]" in done.err
    blocked = [row["hop_stats"] for row in rows if row["id"] == "after"]
    assert {(stats["status"], stats["hop_status"]) for stats in blocked} == {("ERROR", "FAIL")}
    assert all(stats["error"].startswith("blocked: ") for stats in blocked)


def test_spans_have_no_content_unless_it_is_asked_for(evalloom: Callable[..., Any]) -> None:
    without = evalloom("export", "latest", "--as", "otel").out
    assert "secret word" not in without and "broken" not in without and "expected" not in without
    roots = [line["resourceSpans"][0]["scopeSpans"][0]["spans"][0] for line in lines(without)]
    assert Counter(attributes(root)["evalloom.status"] for root in roots) == STATUSES
    assert {root["status"]["message"] for root in roots if root["status"]} == {"json_parse_error"}
    spans = [
        span
        for line in lines(evalloom("export", "latest", "--as", "otel", "--with-content").out)
        for span in line["resourceSpans"][0]["scopeSpans"][0]["spans"]
    ]
    chats = [attributes(span) for span in spans if span["name"] == "chat m-2"]
    message = {"role": "user", "parts": [{"type": "text", "content": "the secret word"}]}
    assert [message] in [json.loads(chat["gen_ai.input.messages"]) for chat in chats]
    assert {chat["gen_ai.provider.name"] for chat in chats} == {"two"}
    assert all(int(chat["gen_ai.usage.input_tokens"]) > 0 for chat in chats)


def test_spans_nest_calls_in_their_steps_with_parameters_of_the_conventions() -> None:
    call: Record = {
        **{"type": "llm", "llm": "m", "duration_s": 0.25, "error": "HTTP 500: 'the words' [http_500]"},
        "request": {"messages": [{"role": "user", "content": "q"}], "params": {"temperature": 0, "stop": "END"}},
    }
    step = {"type": "step", "step": "ask", "kind": "prompt", "status": "error", "duration_s": 0.5, "calls": [call]}
    run = Run("k", "c", "p", 0, 1, started_at="2026-01-31T09:30:00.250+00:00", duration_s=1.0, trace=[step])
    (line,) = lines(exported("otel", [(run, Scored("k", "passed", 1.0))]).decode())
    root, asked, chat = line["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert (asked["parentSpanId"], chat["parentSpanId"]) == (root["spanId"], asked["spanId"])
    assert [span["name"] for span in (root, asked, chat)] == ["invoke_workflow t", "step ask", "chat m"]
    assert [int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"]) for span in (root, asked, chat)] == [
        10**9,
        5 * 10**8,
        25 * 10**7,
    ]
    assert root["startTimeUnixNano"] == "1769851800250000000"
    found = attributes(chat)
    assert found["gen_ai.request.temperature"] == 0.0 and found["gen_ai.request.stop_sequences"] == {
        "values": [{"stringValue": "END"}]
    }
    assert chat["status"] == {"code": 2, "message": "http_500"} and found["error.type"] == "http_500"


@pytest.mark.parametrize(
    "format", [exporter.name for exporter in catalog.load().exporters if exporter.name not in ("prompt-eval", "rag")]
)
def test_an_export_is_stable_and_replaces_only_itself(
    evalloom: Callable[..., Any], format: str, tmp_path: Path
) -> None:
    write = ("export", "latest", "--as", format, "-o", "out")
    assert evalloom(*write).code == 0
    first = (tmp_path / "out").read_bytes()
    assert evalloom(*write).code == 0 and (tmp_path / "out").read_bytes() == first
    assert is_report(tmp_path / "out") or format == "hop"
    (tmp_path / "out").write_text("precious")
    refused = evalloom(*write)
    assert refused.code == 2 and "[would_overwrite]" in refused.err and (tmp_path / "out").read_text() == "precious"
    assert evalloom(*write, "--force").code == 0 and (tmp_path / "out").read_bytes() == first
    assert "is an input file" in evalloom("export", "latest", "--as", format, "-o", "cases.jsonl", "--force").err


def test_the_extension_selects_the_format_and_a_wrong_one_is_told(evalloom: Callable[..., Any], tmp_path: Path) -> None:
    for exporter in catalog.load().exporters:
        done = evalloom("export", "latest", "-o", f"x{exporter.suffix}")
        assert f"{exporter.name}: " in done.err
    assert "expected a file name ending in" in evalloom("export", "latest", "-o", "x.doc").err
    assert "Did you mean 'promptfoo'?" in evalloom("export", "latest", "--as", "promptfo").err
    assert "[unknown_format]" in evalloom("export", "latest").err
    assert "goes with --as otel" in evalloom("export", "latest", "--as", "hop", "--with-content").err
    assert "[no_batch]" in evalloom("export", "nothing", "--as", "hop").err


def test_a_key_is_in_no_export(in_process: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evalloom.yaml").write_text(SETTINGS)
    (tmp_path / "p.md").write_text("{{q}}")
    (tmp_path / "cases.jsonl").write_text('{"id": "a", "inputs": {"q": "sk-very-secret-key-1234"}}\n')
    monkeypatch.setenv("HOP_KEY_ONE", "sk-very-secret-key-1234")
    in_process("run", "cases.jsonl", "--target", "prompt:p.md", "--profile", "one", "--no-checks")
    for exporter in catalog.load().exporters:
        flags = ["--with-content"] if exporter.name == "otel" else []
        assert "very-secret" not in in_process("export", "latest", "--as", exporter.name, *flags).out


# -- prompt-eval: marks of judges --------------------------------------------------------------------

TEST_CASE = {
    **{"test_id": "TC001", "test_category": "happy_path", "test_subcategory": "", "eval_type": "quantitative"},
    **{"test_description": "A greeting.", "input": {"q": "hi"}},
}


def judged(name: str, score: float | None, reason: str) -> Verdict:
    return Verdict(name, "judge", "output", "passed" if score else "unscored", score, reason)


def exported(format: str, rows: Any, case: Case | None = None, stream: BytesIO | None = None) -> bytes:
    batch = {
        **{"id": "b", "created_at": "2026-01-31T09:30:00+00:00", "target": "t", "datasets": [], "config": {}},
        **{"profiles": [{"name": "p", "run": "m", "verify": "m"}], "models": {}, "params": {}, "options": {}},
    }
    stream = stream or BytesIO()
    exporter = next(one for one in catalog.load().exporters if one.name == format)
    exporter.render(RunReport(batch, {}, [], rows, case_of=lambda run: case or Case(run.case_id, {})), stream)
    return stream.getvalue()


@pytest.mark.req("EVAL-6", "EVAL-7")
def test_marks_of_a_judge_are_the_scores_of_test_points_and_a_missing_one_is_told() -> None:
    run = Run("k", "TC001", "p", 0, 1, output=Output("hello"), raw=TEST_CASE, dialect="prompt-eval")
    verdicts = [
        judged("TP_safety", 3.0, "polite"),
        judged("TP1", 2.0, "'hello' greets"),
        judged("TP2", None, "no answer"),
    ]
    checks = tuple(Check("judge", name=point, options={"scale": [1, 3]}) for point in ("TP1", "TP2", "TP_safety"))
    case = Case("TC001", {"q": "hi"}, checks)
    (row,) = json.loads(exported("prompt-eval", [(run, Scored("k", "unscored", None, verdicts))], case))
    assert [key for key in row if key.endswith("_score")] == [
        "TP1_score",
        "TP2_score",
        "TP_safety_score",
        "total_score",
        "avg_tp_score",
    ]
    assert (row["TP1_score"], row["TP2_score"], row["TP_safety_score"], row["total_score"]) == (2, None, 3, None)
    assert row["result_aftertest"] == "hello" and row["overall_comment"] == "[scoring incomplete: TP2]"


# -- size ----------------------------------------------------------------------------------------------


class ManyRows:
    """Runs that are made as they are read: 40 MB of them."""

    def __iter__(self) -> Iterator[ReportRow]:
        for number in range(2_000):
            output = Output(f"{number} " + "x" * 20_000)
            run = Run(f"k{number}", f"c{number}", "p", 0, number, output=output, usage=Usage(1, 1), raw=TEST_CASE)
            yield run, Scored(run.key, "passed", 1.0, [Verdict("is", "equals", "output", "passed", 1.0)])


class Null(BytesIO):
    """A file that keeps nothing."""

    size = 0

    def write(self, data: Any, /) -> int:
        self.size += len(data)
        return len(data)


@pytest.mark.req("WORK-41")
@pytest.mark.parametrize("format", ["hop", "prompt-eval", "promptfoo", "openai-evals", "otel"])
def test_memory_does_not_grow_with_the_batch(format: str) -> None:
    exported(format, [next(iter(ManyRows()))])  # imports
    sink = Null()
    tracemalloc.start()
    try:
        exported(format, ManyRows(), stream=sink)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sink.size > 1_000_000 and peak < 2_000_000
