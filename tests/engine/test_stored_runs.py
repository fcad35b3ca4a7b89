"""Scoring a stored batch again, in one process and in several."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalloom.batchlog import Log
from evalloom.core.model import Batch, Origin, Output, Profile, Run, Usage

pytestmark = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core")
SCORE = """
import json, resource, sys, evalloom
results = evalloom.score("latest", **json.loads(sys.argv[1]))
print(json.dumps({"results": repr(results), "copies": resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime > 0}))
"""
SLOW = "".join(f"- {{kind: regex, expected: 'days (\\w+ )*{number}'}}\n" for number in range(500))
WORDS = ("parcel", "days", "weeks", "第三件", "cannot", "naïve")


def run_of(number: int, random: random.Random, repeat: int = 0, **more: Any) -> Run:
    text = " ".join(random.choices(WORDS, k=6))
    checks: list[dict[str, Any]] = [
        {"kind": "contains", "expected": random.choice(WORDS)},
        {"kind": "not_regex", "expected": r"(days|weeks) \w+"},
        {"kind": "length", "min": random.randrange(40), "weight": random.choice([0, 1, 2])},
    ]
    if number % 7 == 0:
        checks.append({"kind": "contains", "expected": "x", "where": "nowhere"})
    return Run(
        f"k{number}-{repeat}",
        f"c{number}",
        random.choice(["small", "large"]),
        repeat,
        number,
        **{"output": Output(text), **more},
        started_at=f"2026-01-05T08:00:{number % 60:02}+00:00",
        duration_s=0.25,
        usage=Usage(10, 5, 0.001, 1),
        trace=[{"type": "llm", "note": "n" * 700}],
        tags=tuple(random.choices("ab", k=1)),
        dialect="pipeline",
        origin=Origin("cases.jsonl", number),
        raw={"id": f"c{number}", "text": text, "checks": checks},
    )


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a batch of 10 MB: repeats, errors that ran again, damage, runs that did not take place."""
    folder, dice = tmp_path_factory.mktemp("stored"), random.Random(7)
    path = folder / ".evalloom" / "batches" / "20260105-080000-aaaaaaaaa"
    log = Log(path, Batch(path.name, "2026-01-05T08:00:00Z", profiles=[Profile("small"), Profile("large")]))
    for number in range(4000):
        log.append_run(run_of(number, dice, error="no answer [http]" if number % 11 == 0 else ""))
    for number in range(4000):
        log.append_run(run_of(number, dice, 1, **{"skipped": "conditions: no"} if number % 13 == 0 else {}))
    for number in range(0, 4000, 22):
        log.append_run(run_of(number, dice))
    log.close()
    lines = (path / "runs.jsonl").read_bytes().split(b"\n")
    lines[50] = lines[50][:300] + lines[51]
    lines[6000] = lines[6000][:200]
    lines[7000] = lines[7000].replace(b'"dialect":"pipeline"', b'"dialect":"nonesuch"')
    (path / "runs.jsonl").write_bytes(b"\n".join(lines))
    assert (path / "runs.jsonl").stat().st_size > 8 * 1024 * 1024
    return folder


def limit_memory() -> None:
    """Let the process score alone: it cannot know whether there is memory for copies of it."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 45, 1 << 45))


def score(
    folder: Path, prepare: Callable[[], None] | None = None, **options: Any
) -> tuple[list[bytes], dict[str, Any], bool, str]:
    """Return the verdicts, the manifest, whether there were copies of the process, and the warnings."""
    command = [sys.executable, "-c", SCORE, json.dumps(options)]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, preexec_fn=prepare, check=True)
    path = next((folder / ".evalloom/batches").iterdir())
    batch = json.loads((path / "batch.json").read_text())
    del batch["scored_at"]
    lines = (path / "verdicts.jsonl").read_bytes().splitlines()
    return lines, batch, json.loads(ended.stdout)["copies"], ended.stderr


@pytest.mark.parametrize(
    "options", [{}, {"threshold": {"case": 0.5, "length": 3}, "pass_if": 0.5}, {"checks": "more.yaml"}]
)
def test_several_processes_write_what_one_writes(stored: Path, options: dict[str, Any]) -> None:
    (stored / "more.yaml").write_text("- {kind: contains, expected: days, name: mine}\n")
    alone, together = score(stored, limit_memory, **options), score(stored, **options)
    assert (alone[2], together[2]) == (False, True)
    assert alone[:2] == together[:2] and alone[3] == together[3]
    statuses = {json.loads(line)["status"] for line in alone[0]}
    assert statuses == {"passed", "failed", "unscored", "skipped"} and alone[1]["summary"]["error"] > 0
    assert "runs.jsonl:6001" in alone[3] and "runs.jsonl:7001: the run has no readable case" in alone[3]


def test_what_waits_for_an_llm_is_scored_by_the_first_process(stored: Path) -> None:
    (stored / "judged.yaml").write_text("- {kind: judge, expected: it is about parcels}\n")
    settings = stored / "evalloom.yaml"
    settings.write_text("llms: {fake: {protocol: scripted, file: judge.yaml}}\n")
    (stored / "judge.yaml").write_text('default: \'{"reason": "it is", "score": 1}\'\n')
    options: dict[str, Any] = {"judge": "fake", "checks": "judged.yaml", "no_cache": True}
    try:
        alone, together = score(stored, limit_memory, **options), score(stored, **options)
    finally:
        settings.unlink()
    assert together[2] and sorted(alone[0]) == sorted(together[0]) and alone[1] == together[1]
    assert any(verdict["kind"] == "judge" for line in alone[0] for verdict in json.loads(line).get("verdicts", []))


def test_ctrl_c_ends_all_processes_and_keeps_the_verdicts(stored: Path) -> None:
    score(stored)
    path = next((stored / ".evalloom/batches").iterdir())
    before = (path / "verdicts.jsonl").read_bytes()
    (stored / "slow.yaml").write_text(SLOW)
    command = [sys.executable, "-m", "evalloom", "score", "latest", "--checks", "slow.yaml"]
    process = subprocess.Popen(
        command, cwd=stored, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    while not (path / "verdicts.new.jsonl").exists() and process.poll() is None:
        time.sleep(0.02)
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode != 0 and b"Traceback" not in err
    assert (path / "verdicts.jsonl").read_bytes() == before and not (path / "verdicts.new.jsonl").exists()
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_a_killed_process_leaves_no_copies(stored: Path) -> None:
    (stored / "slow.yaml").write_text(SLOW)
    command = [sys.executable, "-m", "evalloom", "score", "latest", "--checks", "slow.yaml"]
    process = subprocess.Popen(command, cwd=stored, start_new_session=True)
    path = next((stored / ".evalloom/batches").iterdir())
    while not (path / "verdicts.new.jsonl").exists() and process.poll() is None:
        time.sleep(0.02)
    process.kill()
    process.wait()
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError("a copy is still there")
