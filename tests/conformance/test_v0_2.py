"""Batches and baselines of version 0.2.0, in which the number of a case without an id is its id.

`tests/fixtures/v0_2/README.md` says how they were made.
"""

import json
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import evalloom

pytestmark = pytest.mark.req("WORK-6")

FIXTURES = Path(__file__).parent.parent / "fixtures" / "v0_2"
FULL, STOPPED = "20261117-234431-5024eff67", "20261117-234431-970aa70dc"
Call = Callable[..., Any]


def unpack(project: str) -> Path:
    """Copy a project into the current folder, and return the folder of its batches."""
    shutil.copytree(FIXTURES / project, ".", dirs_exist_ok=True)
    Path("evalloom_folder").rename(".evalloom")
    return Path(".evalloom/batches")


def lines(batch: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (batch / "runs.jsonl").read_text("utf-8").splitlines()]


def counts(done: Any) -> dict[str, int]:
    """How many cases changed in which way; those that did not change at all are left out."""
    (comparison,) = json.loads(done.out)["comparisons"]
    changed = {kind: number for kind, number in comparison["counts"].items() if number}
    return changed | ({"edited": comparison["edited"]} if comparison["edited"] else {})


def test_a_batch_is_resumed_by_its_old_ids(in_process: Call) -> None:
    batch = unpack("unnamed") / STOPPED
    ahead = json.loads(in_process("run", "--resume", "--dry-run", "--json").out)
    done = in_process("run", "--resume", "--json")
    assert (ahead["there"], ahead["to_run"]) == (3, 2)
    assert json.loads(done.out)["batch"] == STOPPED
    assert sorted(run["case_id"] for run in lines(batch)) == ["1", "2", "3", "4", "5"]
    assert json.loads((batch / "batch.json").read_bytes())["format"] == 1


def test_a_new_batch_reuses_the_runs_of_an_old_one(in_process: Call) -> None:
    folder = unpack("unnamed")
    with Path("tests.yaml").open("a", encoding="utf-8") as stream:
        stream.write("- {vars: {question: Can I send it back?}, assert: [{type: contains, value: Yes}]}\n")
    done = in_process("run", "--resume-from", FULL, "--json")
    old = {run["started_at"] for run in lines(folder / FULL)}
    runs = lines(folder / json.loads(done.out)["batch"])
    assert [run["number"] for run in runs if run["started_at"] not in old] == [6]
    assert [run["case_id"] for run in runs if not run.get("is_unnamed")] == ["lost"]
    assert len({run["key"] for run in runs}) == 6


def test_a_new_batch_is_paired_with_an_old_baseline_and_batch(in_process: Call) -> None:
    unpack("unnamed")
    in_process("run")
    for base in ("good", FULL):
        assert counts(in_process("compare", "latest", "--baseline", base, "--json")) == {"same": 5}


def test_an_old_batch_is_paired_with_a_new_baseline_and_batch(in_process: Call) -> None:
    unpack("unnamed")
    new = json.loads(in_process("run", "--json").out)["batch"]
    in_process("baseline", "save", "new", new)
    for base in ("new", new):
        assert counts(in_process("compare", FULL, "--baseline", base, "--json")) == {"same": 5}


def test_a_baseline_of_an_old_batch_keeps_its_ids(in_process: Call) -> None:
    unpack("unnamed")
    in_process("baseline", "save", "again", FULL)
    good, again = (Path(f".evalloom/baselines/{name}.jsonl").read_text("utf-8") for name in ("good", "again"))
    assert again.splitlines()[1:] == good.splitlines()[1:]
    in_process("run")
    assert counts(in_process("compare", "latest", "--baseline", "again", "--json")) == {"same": 5}


def test_by_number_an_inserted_case_shifts_the_others_and_that_shows(in_process: Call) -> None:
    unpack("unnamed")
    tests = Path("tests.yaml")
    tests.write_text(
        "- {vars: {question: Are you there?}, assert: [{type: contains, value: Yes}]}\n" + tests.read_text()
    )
    in_process("run")
    found = counts(in_process("compare", "latest", "--baseline", "good", "--json"))
    assert (found["new"], found["edited"]) == (1, 5)


def test_cases_from_python_are_paired_and_recognised(in_process: Call) -> None:
    (old,) = unpack("python").iterdir()
    suite = runpy.run_path("suite.py")
    results = evalloom.evaluate(suite["CASES"], suite["answer"])
    before, now = (json.loads((path / "batch.json").read_bytes()) for path in (old, results.path))
    assert now["datasets"] == before["datasets"]
    assert counts(in_process("compare", "latest", "--baseline", old.name, "--json")) == {"same": 3}
