"""`evalloom run` as one of the programs that are measured."""

from __future__ import annotations

import sys
from pathlib import Path

from contest import Measured, Task, cases, measure, refuse, rows, watch, write_lines, wrong

_SETTINGS = """
datasets: [cases.jsonl]
target: prompt:prompt.md
llms:
  mock: {{base_url: "{url}", model: mock, key_env: none{more}}}
"""
PROGRAM = Path(sys.executable).parent / "evalloom"


def prepare(task: Task, is_cached: bool = False) -> list[str]:
    """Write the files of a run and return its command. Answers are cached only at temperature 0."""
    more = ", temperature: 0" if is_cached else ""
    (task.folder / "evalloom.yaml").write_text(_SETTINGS.format(url=task.url, more=more))
    (task.folder / "prompt.md").write_text("Answer question number {{question}} with one token.\n")
    checked = (
        {"id": row["id"], "question": row["question"], "expected_output": f"contains:{row['expected']}"}
        for row in cases(task.count)
    )
    write_lines(task.cases, checked)
    return [str(PROGRAM), "run", "-j", str(task.concurrency), "--json"]


def run(task: Task, is_cached: bool = False) -> Measured:
    """Measures a run, and makes sure that exactly the wrong expectations failed."""
    measured = measure(prepare(task, is_cached), task.folder)
    check(task)
    return measured


def peak_mb(task: Task) -> float:
    """How much memory a run takes at most, with the processes that it starts."""
    peak = watch(prepare(task), task.folder)
    check(task)
    return peak


def check(task: Task) -> None:
    """Refuses a run in which other cases failed than those with a wrong expectation."""
    runs, statuses = _log(task)
    names = dict(runs)
    failed = {names[key] for key, status in statuses if status == "failed"}
    passed = sum(status == "passed" for _, status in statuses)
    if failed != wrong(task.count) or passed != task.passes:
        refuse(task, "evalloom", f"{passed} passed, {len(failed)} failed", f"{task.passes} passed, every tenth failed")


def lost_and_double(task: Task, answered: int) -> tuple[int, int]:
    """How many cases have no verdict on an answer, and how many were recorded, scored or answered more than once."""
    runs, statuses = _log(task)
    scored = [key for key, status in statuses if status in ("passed", "failed")]
    double = len(runs) - len(dict(runs)) + len(scored) - len(set(scored)) + max(0, answered - task.count)
    return task.count - len(set(scored)), double


def _log(task: Task) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Key and case of every run, key and status of every verdict."""
    batches = list(task.folder.glob(".evalloom/batches/*"))
    if len(batches) != 1:
        refuse(task, "evalloom", f"{len(batches)} batches", "one batch")
    runs = [(row["key"], row["case_id"]) for row in rows(batches[0] / "runs.jsonl")]
    return runs, [(row["key"], row["status"]) for row in rows(batches[0] / "verdicts.jsonl")]
