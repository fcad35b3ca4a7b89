"""Standard streams that are closed, full or no longer read, and too few open files: in processes of their own."""

from __future__ import annotations

import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.faults.conftest import Suite

pytestmark = [pytest.mark.slow, pytest.mark.req("WORK-42")]

RUN = ("run", "cases.jsonl", "--target", "prompt:prompt.md", "--profile", "echo")
CLOSED = ("<&-", ">&-", "2>&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-")
COMMANDS = {
    ("--version",): 0,
    ("--help",): 0,
    ("run", "--help"): 0,
    ("batches", "list"): 0,
    RUN: 1,
    (*RUN, "--json"): 1,
    ("score", "latest"): 1,
    ("validate", "cases.jsonl"): 0,
    ("run", "missing.jsonl", *RUN[2:]): 2,
}


def shell(suite: Suite, arguments: tuple[str, ...], rest: str, module: str = "evalloom") -> tuple[int, str]:
    """The exit code and all output of evalloom with redirections or a pipe behind it."""
    line = f'"$0" -m {module} "$@" {rest}'
    command = ["bash", "-c", line, sys.executable, *arguments]
    done = subprocess.run(command, cwd=suite.folder, capture_output=True, encoding="utf-8", timeout=60)
    output = done.stdout + done.stderr
    for sign in ("Traceback", "internal_error", "Assertion", "Exception ignored", "RuntimeWarning"):
        assert sign not in output, output
    return done.returncode, output


@pytest.fixture
def batch(suite: Suite) -> Suite:
    """A suite with a batch in which one of two cases failed."""
    suite.write("cases.jsonl", '{"id":"a","q":"x","expected_output":"x"}\n{"id":"b","q":"x","expected_output":"y"}\n')
    assert suite.run(*RUN).returncode == 1
    return suite


@pytest.mark.parametrize("arguments", COMMANDS)
def test_closed_streams_change_no_exit_code(batch: Suite, arguments: tuple[str, ...]) -> None:
    codes = {redirects: shell(batch, arguments, redirects)[0] for redirects in CLOSED}
    assert codes == dict.fromkeys(CLOSED, COMMANDS[arguments])


@pytest.mark.parametrize("arguments", [arguments for arguments, code in COMMANDS.items() if code != 2])
@pytest.mark.parametrize("unbuffered", ["", "PYTHONUNBUFFERED=1 "])
def test_a_full_stdout_is_an_error_and_a_full_stderr_is_not(
    batch: Suite, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], unbuffered: str
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "1" if unbuffered else "")
    code, output = shell(batch, arguments, ">/dev/full")
    assert code == 3 and "stdout: cannot be written: no space left on device [cannot_write]" in output
    assert shell(batch, arguments, "2>/dev/full")[0] == COMMANDS[arguments]


@pytest.mark.parametrize("arguments", [("--help",), (*RUN, "--json"), ("batches", "show", "latest"), ("schema",)])
def test_a_reader_that_goes_away_ends_it_like_other_tools(batch: Suite, arguments: tuple[str, ...]) -> None:
    # `true` reads nothing; whether it is gone before the first byte is a race, so both ends are right.
    code, output = shell(batch, arguments, "| true; exit ${PIPESTATUS[0]}")
    assert code in (141, COMMANDS.get(arguments, 0)) and not output


def test_the_exit_code_of_a_broken_pipe_is_141(batch: Suite) -> None:
    code, output = shell(batch, ("batches", "show", "latest"), "> >(exec 0<&-; sleep 5)")
    assert (code, output) == (141, "")


def test_a_batch_goes_on_when_nobody_reads_its_warnings(batch: Suite) -> None:
    assert shell(batch, RUN, "2> >(exec 0<&-; sleep 5) >/dev/null")[0] == 1
    assert len(batch.batches()) == 2 and len(batch.lines()) == 2


@pytest.mark.parametrize("module", ["evalloom.tools.batchhoptest", "evalloom.tools.validate_eval_cases"])
def test_the_other_tools_take_closed_streams_too(suite: Suite, module: str) -> None:
    assert shell(suite, ("--help",), "<&- >&- 2>&-", module)[0] == 0
    assert shell(suite, ("--help",), ">/dev/full", module)[0] == 3


@pytest.mark.parametrize("number", [5, 12, 31])
def test_too_few_open_files_are_told_in_one_line(batch: Suite, number: int) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))

    done = batch.run(*RUN, preexec_fn=limit)
    assert done.returncode == 3 and done.stderr.count("\n") == 1
    assert f"got {number}" in done.stderr and "ulimit -n" in done.stderr and "[too_many_open_files]" in done.stderr
    assert len(batch.batches()) == 1


def test_as_many_open_files_as_it_asks_for_are_enough(batch: Suite) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))

    assert batch.run(*RUN, preexec_fn=limit).returncode == 1
