"""Every command that runs or scores cases takes a cluster, and gives what it gives on one machine."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engine.cluster.harness import EVALLOOM, SECONDS, Cluster, content, make_project

pytestmark = [pytest.mark.req("WORK-40"), pytest.mark.slow]
EXAMPLES = Path(__file__).parents[3] / "examples"
BATCHHOPTEST = [sys.executable, "-m", "evalloom.tools.batchhoptest"]


def call(folder: Path, *words: str, command: list[str] = EVALLOOM) -> int:
    done = subprocess.run([*command, *words], cwd=folder, capture_output=True, encoding="utf-8", timeout=SECONDS)
    assert "Traceback" not in done.stderr and done.returncode in (0, 1), done.stderr
    return done.returncode


def newest(folder: Path) -> object:
    """Return the newest batch without times, also those in traces and usages."""
    path = max(folder.glob("**/.evalloom/batches/*"))
    runs, verdicts = content(path)
    kept = {key: (run.get("output"), run.get("error"), run["raw"], run["case_id"]) for key, run in runs.items()}
    plain = {key: [line["status"], line.get("verdicts")] for key, line in verdicts.items()}
    return [kept, plain]


@pytest.mark.parametrize(
    "example, words",
    [
        ("pipeline", ["run"]),
        ("replay", ["run"]),
        ("promptfoo", ["run", "promptfooconfig.yaml"]),
        ("rag", ["rag", "retrieve", "eval_cases.jsonl"]),
        ("rag", ["rag", "answer", "eval_cases.jsonl"]),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else value,
)
def test_the_examples(cluster: Cluster, tmp_path: Path, example: str, words: list[str]) -> None:
    folder = Path(shutil.copytree(EXAMPLES / example, tmp_path / "project"))
    code = call(folder, *words)
    expected = newest(folder)
    shutil.rmtree(folder / ".evalloom")
    assert call(folder, *words, "--executor", "dask", "--scheduler", cluster.address) == code
    assert newest(folder) == expected


def test_batchhoptest(cluster: Cluster, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(EXAMPLES / "hop", tmp_path / "project"))
    code = call(folder, "--task", ".", "--out", "here.jsonl", command=BATCHHOPTEST)
    words = ("--executor", "dask", "--scheduler", cluster.address)
    assert call(folder, "--task", ".", "--out", "there.jsonl", *words, command=BATCHHOPTEST) == code
    here, there = (rows(folder / f"{name}.jsonl") for name in ("here", "there"))
    assert here == there and len(here) > 10


def rows(path: Path) -> list[object]:
    """Return the rows of a result file without durations."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [[row.get("hop_result"), row.get("id"), row.get("hop_status")] for row in lines]


def test_prompt_eval(cluster: Cluster, tmp_path: Path) -> None:
    tables = []
    for name, words in (("here", ()), ("there", ("--executor", "dask", "--scheduler", cluster.address))):
        folder = Path(shutil.copytree(EXAMPLES / "prompt-eval", tmp_path / name))
        call(folder, "prompt-eval", "all", "prompt_a.md", *words)
        tables.append((folder / "prompt-eval-results" / "final_scored_results.csv").read_text("utf-8-sig"))
    assert tables[0] == tables[1]


def test_score(cluster: Cluster, tmp_path: Path) -> None:
    folder = make_project(tmp_path / "project", 40, "python:code.py:quick")
    (folder / "more.yaml").write_text('- python: "code.py:is_short"\n- length: {max: 1}\n')
    with (folder / "code.py").open("a") as stream:
        stream.write("\ndef is_short(output):\n    return len(output) < 2\n")
    call(folder, "run")
    verdicts = []
    for words in ((), ("--executor", "dask", "--scheduler", cluster.address), ("--executor", "dask", "--workers", "1")):
        assert call(folder, "score", "latest", "--checks", "more.yaml", *words) == 1
        verdicts.append(content(max(folder.glob(".evalloom/batches/*")))[1])
    assert verdicts[0] == verdicts[1] == verdicts[2]
    assert {verdict["name"] for verdict in next(iter(verdicts[0].values()))["verdicts"]} >= {"length"}


SCRIPT = """\
import sys
import evalloom
from our_code import shout

cases = [{"id": str(n), "text": f"t{n}", "expected_output": f"T{n}"} for n in range(20)]
results = evalloom.evaluate(cases, shout, executor="dask", workers=1)
print(results.summary.passed)
try:
    evalloom.evaluate(cases, lambda text: text, executor="dask", workers=1)
except evalloom.EvalloomError as error:
    print(error)
"""


def test_python(tmp_path: Path) -> None:
    (tmp_path / "our_code.py").write_text("def shout(text):\n    return text.upper()\n")
    # Without `if __name__ == "__main__"`, as in a notebook.
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=SECONDS
    )
    assert done.stdout.startswith("20\n"), done.stderr
    assert "<lambda>() is defined in a script or a notebook" in done.stdout
    assert "[not_portable]" in done.stdout
