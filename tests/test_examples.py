"""The bundled examples are what they say: recognised, sound, runnable offline, and convertible there and back."""

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from evalloom import Rules, check, read
from evalloom.catalog import load
from evalloom.core.model import Request
from evalloom.core.ranking import rank, sources_in_order
from evalloom.data.contract import read_contract
from evalloom.data.registry import WRITERS, by_name
from evalloom.demo.run import suites_of
from evalloom.engine.convert import convert
from evalloom.engine.example import COUNTED, Suite
from evalloom.engine.lint import LintOptions, lint, with_pipeline
from evalloom.files.rows import Row
from evalloom.hop.dialect import normalize_audit
from evalloom.llms.delimiters import mostly_chinese
from evalloom.llms.scripted import Scripted
from evalloom.prompt_eval.folder import prompt_text
from evalloom.prompt_eval.plan import read_plan
from evalloom.prompt_eval.steps.draft import draft_plan
from evalloom.prompt_eval.steps.generate import generate
from evalloom.rag.retrieval import open_index

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
HOP = EXAMPLES / "hop/TestCases/hallucination_cases.jsonl"
PIPELINE = EXAMPLES / "pipeline/testsets/review_sentiment_basic_v1.jsonl"
REVIEWS = EXAMPLES / "pipeline/reviews/testsets"
PROMPT_EVAL = EXAMPLES / "prompt-eval/test_cases.json"
REPLAY = EXAMPLES / "replay/rows.jsonl"
RAG = EXAMPLES / "rag/eval_cases.jsonl"
FAULTY = EXAMPLES / "elsewhere/faulty_eval_cases.jsonl"
WITH_SOURCES = Rules(root=EXAMPLES / "rag", check_sources_exist=True, check_must_include_in_sources=True)

# file, dialect, fewest cases, codes of the findings that it has on purpose
INTENDED = [
    (EXAMPLES / "first/cases.jsonl", "pipeline", 5, ["file_name"]),
    (HOP, "hop", 20, []),
    (EXAMPLES / "hop/wrappers/flat_result.jsonl", "hop", 3, []),
    (EXAMPLES / "hop/wrappers/view_result.jsonl", "hop", 3, []),
    (PIPELINE, "pipeline", 12, ["batch_without_aggregation", "intermediate_not_evaluated"]),
    (REVIEWS / "multi_step_sentiment_v2.jsonl", "pipeline", 2, []),
    (REVIEWS / "customer_reviews_batch_v2.jsonl", "pipeline", 6, []),
    (REVIEWS / "customer_feedback_full_v2.jsonl", "pipeline", 1, []),
    (REVIEWS / "customer_feedback_code_v2.jsonl", "pipeline", 1, []),
    (PROMPT_EVAL, "prompt-eval", 36, []),
    (REPLAY, "replay", 12, []),
    (RAG, "rag", 56, []),
    (EXAMPLES / "elsewhere/promptfooconfig.yaml", "promptfoo", 5, None),
    (EXAMPLES / "elsewhere/tests.csv", "promptfoo", 3, []),
    (EXAMPLES / "elsewhere/samples.jsonl", "openai-evals", 4, []),
    (EXAMPLES / "elsewhere/inspect_samples.csv", "inspect", 4, []),
    (EXAMPLES / "elsewhere/goldens.json", "deepeval", 3, []),
    (EXAMPLES / "elsewhere/ragas_testset.csv", "ragas", 3, []),
]
MAIN = {"hop": HOP, "pipeline": PIPELINE, "prompt-eval": PROMPT_EVAL, "replay": REPLAY, "rag": RAG}
ROUTES = [(start, via.name) for start in MAIN for via in WRITERS]


@pytest.mark.parametrize(
    ("path", "dialect", "fewest", "codes"), INTENDED, ids=lambda value: getattr(value, "name", None)
)
def test_file_is_recognised_and_sound(path: Path, dialect: str, fewest: int, codes: list[str] | None) -> None:
    found = check(path)
    assert found.dialect == dialect and found.cases >= fewest
    assert found.count("error") == 0, found.findings
    assert codes is None or sorted(finding.code for finding in found.findings) == codes


def test_every_example_dataset_is_listed_here() -> None:
    companions = {"project.json", "evalloom.yaml", "prompt.yaml"}
    companions |= {"answers.yaml", "judge.yaml", "careful.yaml", "hasty.yaml", "checker.yaml"}
    companions |= {"test_plan.yaml", "evaluator.yaml", "drafts.yaml"}
    files = {path for path in EXAMPLES.rglob("*") if path.suffix in (".jsonl", ".json", ".csv", ".yaml")}
    files -= {path for path in files if {"agents", "pipelines"} & {*path.parts}}
    # Rows that fail on purpose, and a chat that a recipe reads.
    beside = {FAULTY, EXAMPLES / "replay/context/rows.jsonl", EXAMPLES / "replay/context/chats/front-desk.jsonl"}
    assert files - {path for path, *_ in INTENDED} == {path for path in files if path.name in companions} | beside


# code -> line, for every error and warning of RAG-2 and RAG-3 that a line of a file can have
FAULTS = {
    "json_parse_error": 3,
    "json_not_object": 4,
    "missing_field": 5,
    "empty_id": 6,
    "duplicate_id": 7,
    "bad_query": 8,
    "bad_expected_sources": 9,
    "bad_must_include": 10,
    "invalid_bucket": 11,
    "expected_file_missing": 12,
    "expected_dir_missing": 13,
    "source_outside_root": 14,
    "missing_bucket_default": 15,
    "missing_pair_id": 16,
    "empty_pair_id": 17,
    "empty_concept_id": 18,
    "must_include_duplicates": 19,
    "must_include_too_short": 20,
    "must_include_not_in_expected_sources": 21,
    "unpaired_pair_id": 22,
    "blank_must_include_entry": 23,
}


@pytest.mark.req("RAG-2", "RAG-3")
def test_faulty_file_has_each_fault_on_its_own_line() -> None:
    found = check(FAULTY, rules=WITH_SOURCES)
    assert {finding.code: finding.origin.line for finding in found.findings} == FAULTS
    assert set(found.counts.values()) == {1}
    severities = {finding.origin.line: finding.severity for finding in found.findings}
    assert all(severity == ("error" if line < 15 else "warning") for line, severity in severities.items())
    assert all("note" in line for line in FAULTY.read_text(encoding="utf-8").splitlines())


def test_rag_sources_and_anchors_are_there() -> None:
    assert check(RAG, rules=WITH_SOURCES).findings == []
    rows = [json.loads(line) for line in RAG.read_text(encoding="utf-8").splitlines()]
    buckets = Counter(row["bucket"] for row in rows)
    assert buckets["official"] == buckets["oral"] == 22 and buckets["ambiguous"] == 12
    assert any(source.endswith("/") for row in rows for source in row["expected_sources"])


@pytest.mark.req("RAG-7")
def test_rag_wordings_differ_in_what_they_find(tmp_path: Path) -> None:
    index = open_index(EXAMPLES / "rag", tmp_path)
    index.refresh()
    rows = [json.loads(line) for line in RAG.read_text(encoding="utf-8").splitlines()]
    found: dict[str, set[str]] = {"official": set(), "oral": set(), "ambiguous": set()}
    for row in rows:
        sources = sources_in_order(index.search(row["query"], 5))
        if rank(row["expected_sources"], sources).hit(5):
            found[row["bucket"]].add(row.get("pair_id", row["id"]))
    index.close()
    assert found["official"] - found["oral"] == {"P01", "P12", "P14", "P16", "P19", "P21"}
    assert found["oral"] - found["official"] == {"P18"}
    assert [len(ids) for ids in found.values()] == [20, 15, 10]


def files_of(expected: list[str]) -> list[Path]:
    paths = [EXAMPLES / "rag" / name for name in expected]
    return [file for path in paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])]


async def answer_from_expected_sources(llm: Scripted, row: dict[str, Any]) -> str:
    texts = [file.read_text(encoding="utf-8") for file in files_of(row["expected_sources"])]
    sources = "\n\n".join(f"[{place}] {text}" for place, text in enumerate(texts, 1))
    question = "问题：" if mostly_chinese(row["query"]) else "Question: "
    prompt = f"{sources}\n\n{question}{row['query']}\n"
    return (await llm(Request([{"role": "user", "content": prompt}]))).text


def test_rag_model_answers_from_the_sources_and_errs_on_purpose() -> None:
    llm = Scripted(EXAMPLES / "rag/answers.yaml")
    rows = [json.loads(line) for line in RAG.read_text(encoding="utf-8").splitlines()]
    said = {row["id"]: asyncio.run(answer_from_expected_sources(llm, row)) for row in rows}
    incomplete = {row["id"] for row in rows if not all(anchor in said[row["id"]] for anchor in row["must_include"])}
    uncited = {id for id, text in said.items() if not re.search(r"\[[1-8]\]", text)}
    assert incomplete == {"zh-expense-hotel-oral", "en-remote-days-oral", "en-returns-refund-oral"}
    assert uncited == {"en-it-password-oral", "zh-forklift-speed-official"}
    unknown = asyncio.run(answer_from_expected_sources(llm, {"query": "Who won the cup?", "expected_sources": []}))
    assert unknown == "The sources do not hold the answer."


@pytest.mark.req("HOP-2")
def test_hop_contract_is_found_beside_the_cases(tmp_path: Path) -> None:
    contract = read_contract(str(EXAMPLES / "hop/Hoplet/metainfo.md"))
    assert list(contract.inputs) == ["context_window", "model_output", "focus"]
    assert contract.outputs["hallucination_detected"].type == "bool"
    (tmp_path / "Hoplet").mkdir()
    (tmp_path / "Hoplet/metainfo.md").write_bytes((EXAMPLES / "hop/Hoplet/metainfo.md").read_bytes())
    bad = tmp_path / "TestCases/bad.jsonl"
    bad.parent.mkdir()
    bad.write_text(
        '{"id": 1, "tag": "x", "context_window": 5, "expected_halucination_detected": true}\n', encoding="utf-8"
    )
    codes = [finding.code for finding in lint([str(bad)]).findings()]
    assert sorted(codes) == ["contract_type_mismatch", "missing_field", "unknown_expected_field"]


@pytest.mark.req("HOP-14")
def test_hop_result_files_are_read_in_both_wrappers() -> None:
    for name, failed in (("flat", "verification failed"), ("view", "timeout")):
        dataset = read(EXAMPLES / f"hop/wrappers/{name}_result.jsonl")
        audits = [normalize_audit(row.value) for row in dataset if isinstance(row, Row)]
        assert audits[0] is None and audits[1] is not None and audits[-1] is not None
        assert isinstance(audits[1]["result"]["hallucination_detected"], bool)
        assert audits[-1]["result"] is None and failed in audits[-1]["error"]


def test_pipeline_steps_are_those_of_the_testset() -> None:
    rules = with_pipeline(Rules(), str(EXAMPLES / "pipeline/pipelines/review_sentiment.yaml"))
    codes = {finding.code for finding in lint([str(PIPELINE)], LintOptions(rules=rules)).findings()}
    assert rules.shape and "analyze_batch" in rules.shape.steps
    assert codes == {"batch_without_aggregation", "intermediate_not_evaluated"}
    assert "unknown_step" in {finding.code for finding in check(PIPELINE, rules=Rules(steps=frozenset("x"))).findings}


@pytest.mark.req("EVAL-2")
def test_prompt_eval_covers_every_category() -> None:
    rows = json.loads(PROMPT_EVAL.read_text(encoding="utf-8"))
    assert len({row["test_category"] for row in rows}) == 7
    assert len({row["test_subcategory"] for row in rows if row["test_category"] == "safety"}) == 5
    prompt = (EXAMPLES / "prompt-eval/prompt_a.md").read_text(encoding="utf-8")
    assert all("{{" + name + "}}" in prompt for row in rows for name in row["input"])


@pytest.mark.req("EVAL-3")
def test_prompt_eval_plan_is_sound_and_the_cases_are_those_it_plans() -> None:
    plan, found = read_plan(PROMPT_EVAL.parent / "test_plan.yaml")
    rows = json.loads(PROMPT_EVAL.read_text(encoding="utf-8"))
    assert plan is not None and found == []
    assert Counter(row["test_category"] for row in rows) == plan.dimensions
    kinds = Counter(row["test_subcategory"] for row in rows)
    assert all(kinds[kind] >= least for kind, least in plan.floors.items()) and len(plan.floors) == 5


@pytest.mark.req("EVAL-3", "EVAL-4")
def test_prompt_eval_drafts_lead_to_the_same_plan_and_cases() -> None:
    folder = PROMPT_EVAL.parent
    prompt = (folder / "prompt_a.md").read_text(encoding="utf-8")
    plan, _ = read_plan(folder / "test_plan.yaml")
    llm = Scripted(folder / "drafts.yaml")
    drafted = asyncio.run(draft_plan(prompt, "prompt_a.md", llm)).plan
    generated = asyncio.run(generate(drafted, prompt_text(prompt), [], llm, lambda cases: None))
    assert plan is not None and (drafted.dimensions, drafted.floors) == (plan.dimensions, plan.floors)
    assert [(one.id, one.name, one.rules) for one in drafted.points] == [
        (one.id, one.name, one.rules) for one in plan.points
    ]
    assert generated.cases == json.loads(PROMPT_EVAL.read_text(encoding="utf-8"))
    assert len(generated.refused) == 1 and "near-duplicate" in generated.refused[0]


def test_replay_project_asks_for_what_the_rows_have() -> None:
    state = json.loads((EXAMPLES / "replay/project.json").read_text(encoding="utf-8"))["state"]
    asked = {name for node in state["nodes"] for name in re.findall(r"{{(\w+)}}", node["data"]["content"])}
    declared = {name for node in state["nodes"] for name in node["data"]["variables"]}
    given = {name for case in read(REPLAY).cases() if not isinstance(case, tuple) for name in case.inputs}
    assert asked == declared
    assert asked - {variable["name"] for variable in state["variables"]} <= given


def test_replay_prompt_says_what_the_project_says() -> None:
    state = json.loads((EXAMPLES / "replay/project.json").read_text(encoding="utf-8"))["state"]
    prompt = yaml.safe_load((EXAMPLES / "replay/prompt.yaml").read_text(encoding="utf-8"))
    *material, question = [node["data"]["content"] for node in state["nodes"]]
    assert prompt["system"].split("\n\n") == material and prompt["user"] == question
    values = {variable["name"]: variable["value"] for variable in state["variables"]}
    assert prompt["defaults"] == {**values, "user_name": "{{user_name}}"}


def evalloom_run(folder: Path, *arguments: str, **environment: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-B", "-m", "evalloom", "run", "--json", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", env=os.environ | environment)
    # Only what the linter is in doubt about, before anything is run.
    assert all(line.startswith("evalloom: warning: ") for line in done.stderr.splitlines()), done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("suite", suites_of(load()), ids=lambda suite: suite.folder)
def test_suite_runs_in_its_own_folder_one_by_one(suite: Suite, tmp_path: Path) -> None:
    # The demo runs the same sixteen at a time, and expects the same.
    folder = shutil.copytree(EXAMPLES / suite.folder, tmp_path / suite.folder)
    code, summary = evalloom_run(folder, "-j", "1")
    assert code == 1 and (folder / summary["path"]).is_dir()
    assert {status: summary[status] for status in COUNTED} == suite.expected
    assert summary["pass_rate"] > 0.7


def test_first_example_needs_no_settings_file(tmp_path: Path) -> None:
    first = EXAMPLES / "first"
    target, profile = f"prompt:{first / 'prompt.md'}", f"scripted:{first / 'answers.yaml'}"
    code, summary = evalloom_run(tmp_path, str(first / "cases.jsonl"), "--target", target, "--profile", profile)
    assert code == 1 and (summary["passed"], summary["failed"], summary["retries"]) == (4, 1, 1)


class ParcelService(BaseHTTPRequestHandler):
    """A server that speaks OpenAI's chat completions and answers every question alike."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = f"{asked['model']}: call 400-820-1234; 3 working days, 3 个工作日, 7 天."
        body = json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


def test_first_example_runs_against_a_server(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), ParcelService) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        arguments = (str(EXAMPLES / "first/cases.jsonl"), "--target", f"prompt:{EXAMPLES / 'first/prompt.md'}")
        code, summary = evalloom_run(tmp_path, *arguments, OPENAI_BASE_URL=url, OPENAI_MODEL="local")
        server.shutdown()
    assert code == 0 and summary["passed"] == 5 and list(summary["profiles"]) == ["openai:local"]


def test_hop_profiles_can_be_told_apart(tmp_path: Path) -> None:
    _, summary = evalloom_run(tmp_path, "--config", str(EXAMPLES / "hop/evalloom.yaml"))
    careful, hasty = summary["profiles"]["careful"], summary["profiles"]["hasty"]
    assert careful["pass_rate_low"] > hasty["pass_rate"] and (hasty["error"], careful["error"]) == (2, 0)


@pytest.mark.parametrize(("start", "via"), ROUTES)
def test_cases_go_there_and_back(start: str, via: str, tmp_path: Path) -> None:
    there, back = tmp_path / "there.jsonl", tmp_path / "back.jsonl"
    with there.open("wb") as stream:
        first = convert(read(MAIN[start]), by_name(via), stream, as_array=False)
    with back.open("wb") as stream:
        second = convert(read(there), by_name(start), stream, as_array=False)
    assert first.written == second.written == check(MAIN[start]).cases
    assert first.unread == second.unread == [] and first.faulty == 0
    assert start != via or there.read_bytes() == back.read_bytes()


@pytest.mark.parametrize("start", MAIN)
def test_inputs_survive_a_trip_through_the_pipeline_format(start: str, tmp_path: Path) -> None:
    there, back = tmp_path / "there.jsonl", tmp_path / "back.jsonl"
    for source, to, target in ((MAIN[start], "pipeline", there), (there, start, back)):
        with target.open("wb") as stream:
            convert(read(source), by_name(to), stream, as_array=False)
    before = [case.inputs for case in read(MAIN[start]).cases() if not isinstance(case, tuple)]
    after = [case.inputs for case in read(back).cases() if not isinstance(case, tuple)]
    assert before == after


COMMANDS = re.findall(
    r"`evalloom ((?:validate|inspect|convert|run) .+?)`", (EXAMPLES / "README.md").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_the_readme_work(command: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(EXAMPLES)
    arguments = [sys.executable, "-B", "-m", "evalloom", *shlex.split(command)]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, encoding="utf-8")
    expected = 2 if FAULTY.name in command else int(command.startswith("run"))
    assert done.returncode == expected, done.stdout + done.stderr
