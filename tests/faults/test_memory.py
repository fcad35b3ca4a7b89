"""No more memory: the batch ends with a message and exit code 3, and can be resumed."""

from __future__ import annotations

import json
import resource
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.faults.conftest import Suite

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep RLIMIT_AS")

CODE = """
import os, resource

def answer(q):
    with open("calls.txt", "a") as stream:
        stream.write(q + chr(10))
    if q != "5" or os.path.exists("fixed"):
        return q
    value = "x" * 60_000_000
    with open("/proc/self/statm") as stream:
        used = int(stream.read().split()[0]) * resource.getpagesize()
    # Enough to go on, and too little to write down what this returns.
    resource.setrlimit(resource.RLIMIT_AS, (used + 20_000_000, resource.RLIM_INFINITY))
    return value
"""


def test_an_output_that_does_not_fit_ends_the_batch_and_it_can_be_resumed(suite: Suite) -> None:
    suite.write("own.py", CODE)
    suite.write("cases.jsonl", "".join(json.dumps({"id": f"c{n}", "q": str(n)}) + "\n" for n in range(10)))
    command = ("run", "cases.jsonl", "--target", "python:own:answer", "-j", "1", "--no-checks")
    done = suite.run(*command)
    assert done.returncode == 3 and "[out_of_memory]" in done.stderr and "--resume" in done.stderr, done.stderr
    kept = suite.lines()
    assert [run["case_id"] for run in kept] == [f"c{n}" for n in range(5)]
    suite.write("fixed", "")
    assert suite.run(*command, "--resume").returncode == 0
    assert suite.lines()[:5] == kept and len(suite.lines()) == 10
    assert (suite.folder / "calls.txt").read_text().split() == [*"012345", *"56789"]


@pytest.mark.parametrize("megabytes", [200, 400, 600])
def test_a_large_file_under_a_limit_ends_with_a_message_and_is_resumed(suite: Suite, megabytes: int) -> None:
    suite.write("own.py", "def answer(q):\n    return len(q)\n")
    # Large enough to be checked by several processes, where memory is not limited.
    lines = (json.dumps({"id": f"c{n}", "q": "x" * 20_000}) + "\n" for n in range(1_000))
    suite.write("cases.jsonl", "".join(lines))
    command = ("run", "cases.jsonl", "--target", "python:own:answer", "--no-checks", "--json")
    limit = (megabytes * 1_000_000,) * 2
    done = suite.run(*command, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit))
    # The stacks of threads count too, so what fits differs from machine to machine.
    assert done.returncode == 0 or (done.returncode == 3 and "[out_of_memory]" in done.stderr), done
    completed = suite.run(*command, *["--resume"] * bool(suite.batches()))
    assert json.loads(completed.stdout)["total"] == len({run["key"] for run in suite.lines()}) == 1_000
