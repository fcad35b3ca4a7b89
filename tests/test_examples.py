"""The bundled examples are what they say: recognised, sound, runnable offline, and convertible there and back."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from evalloom import catalog, check, read
from evalloom.catalog import load
from evalloom.core.model import Case
from evalloom.demo.run import suites_of
from evalloom.engine.convert import convert

WRITERS = catalog.load().formats.writers
by_name = catalog.load().formats.by_name

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
HOP = EXAMPLES / "hop/TestCases/hallucination_cases.jsonl"
PIPELINE = EXAMPLES / "pipeline/testsets/review_sentiment_basic_v1.jsonl"
REVIEWS = EXAMPLES / "pipeline/reviews/testsets"
PROMPT_EVAL = EXAMPLES / "prompt-eval/test_cases.json"
REPLAY = EXAMPLES / "replay/rows.jsonl"
RAG = EXAMPLES / "rag/eval_cases.jsonl"
FAULTY = EXAMPLES / "elsewhere/faulty_eval_cases.jsonl"

# How the runs of each suite end.
COUNTS = json.loads((Path(__file__).parent / "demo/example_counts.json").read_text(encoding="utf-8"))

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
    (EXAMPLES / "promptfoo/promptfooconfig.yaml", "promptfoo", 5, []),
    (EXAMPLES / "promptfoo/tests.csv", "promptfoo", 2, []),
    (EXAMPLES / "elsewhere/samples.jsonl", "openai-evals", 4, ["scorer_not_named"]),
    (EXAMPLES / "elsewhere/inspect_samples.csv", "inspect", 4, ["scorer_not_named"]),
    (EXAMPLES / "elsewhere/goldens.json", "deepeval", 3, ["needs_judge"]),
    (EXAMPLES / "elsewhere/ragas_testset.csv", "ragas", 3, ["needs_judge"]),
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
    # What a config names.
    beside |= {EXAMPLES / "promptfoo/facts.yaml", EXAMPLES / "promptfoo/prompts/chat.json"}
    assert files - {path for path, *_ in INTENDED} == {path for path in files if path.name in companions} | beside


def evalloom_run(folder: Path, *arguments: str, **environment: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-B", "-m", "evalloom", "run", "--json", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", env=os.environ | environment)
    # Only what the linter is in doubt about, before anything is run, and what the scripted judge leaves open.
    lines = [line for line in done.stderr.splitlines() if not line.endswith("[unscored]")]
    assert all(line.startswith("evalloom: warning: ") for line in lines), done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("suite", suites_of(load()))
def test_suite_runs_in_its_own_folder_one_by_one(suite: str, tmp_path: Path) -> None:
    # The demo runs the same suites with 16 runs at a time, and has the same counts.
    folder = shutil.copytree(EXAMPLES / suite, tmp_path / suite)
    code, summary = evalloom_run(folder, "-j", "1")
    assert code == 1 and (folder / summary["path"]).is_dir()
    assert {status: summary[status] for status in COUNTS[suite]} == COUNTS[suite]
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
    before = [case.inputs for case in read(MAIN[start]).cases() if isinstance(case, Case)]
    after = [case.inputs for case in read(back).cases() if isinstance(case, Case)]
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
