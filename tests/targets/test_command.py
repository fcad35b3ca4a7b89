"""Programs: what they are given, what they print, and that nothing of them is left behind."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalloom.core.errors import CallError, EvalloomError
from evalloom.core.model import Output, Record
from evalloom.targets import TargetOptions, build

Call = Callable[..., Output]
FaultOf = Callable[..., CallError]


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def test_stdin_gets_the_inputs(call: Call, trace: list[Record]) -> None:
    target = build("command:cat")
    assert call(target, {"q": "为什么"}).value == {"q": "为什么"}
    (entry,) = trace
    assert (entry["argv"], entry["exit_code"], entry["stderr"]) == (["cat"], 0, "")
    assert entry["duration_s"] > 0


def test_stdin_may_be_a_template(call: Call) -> None:
    target = build({"command": "cat", "stdin": "Q: {{q}}\n"})
    assert call(target, {"q": "why?"}).value == "Q: why?"
    assert target.variables == {"q"}


def test_a_value_stays_in_its_argument(call: Call) -> None:
    target = build("command:printf '%s|' '<{{q}}>' {{n}}")
    value = 'a b\'; rm -rf / $(id) `id` "c" *'
    assert call(target, {"q": value, "n": [1, 2]}).value == f"<{value}>|[1,2]|"


@pytest.mark.parametrize(
    ("printed", "output", "value"),
    [
        ('{"a": 1}\n', "auto", {"a": 1}),
        ("3\n", "auto", "3"),
        ("two\nlines\n\n", "auto", "two\nlines\n"),
        ("{not json", "auto", "{not json"),
        ('{"a": 1}\n', "text", '{"a": 1}'),
        ("3\n", "json", 3),
        ("", "auto", ""),
    ],
)
def test_what_is_printed_is_the_output(printed: str, output: str, value: Any, call: Call) -> None:
    assert call(build({"command": ["printf", "%s", printed], "output": output}), {}).value == value


def test_a_failing_program_is_an_error_with_its_last_words(fault_of: FaultOf, trace: list[Record]) -> None:
    code = "import sys; print('\\n'.join(f'line {n}' for n in range(9)), file=sys.stderr); sys.exit(7)"
    fault = fault_of(build({"command": python(code)}), {})
    assert fault.code == "command_failed"
    assert fault.message.endswith("ended with exit code 7: line 4 / line 5 / line 6 / line 7 / line 8")
    assert trace[0]["exit_code"] == 7 and trace[0]["stderr"].startswith("line 0\n")


def test_a_program_that_is_killed_says_by_what(fault_of: FaultOf) -> None:
    assert "was ended by SIGTERM" in fault_of(build("command:sh -c 'kill -TERM $$'"), {}).message


def test_output_that_is_no_json_where_json_is_asked_for(fault_of: FaultOf) -> None:
    fault = fault_of(build({"command": "echo oops", "output": "json"}), {})
    assert fault.code == "bad_answer" and "expected JSON on stdout, got 'oops'" in fault.message


def test_too_much_output_is_refused(fault_of: FaultOf) -> None:
    fault = fault_of(build("command:yes"), {})
    assert str(fault) == "expected an answer of at most 16 MiB, got more [answer_too_large]"


def test_a_program_need_not_read_its_stdin_and_may_print_much_meanwhile(call: Call) -> None:
    big = {"q": "x" * 2_000_000}
    assert call(build("command:echo done"), big).value == "done"
    code = "import sys; sys.stderr.write('e' * 500_000); print('o' * 500_000); print(len(sys.stdin.read()))"
    assert call(build({"command": python(code)}), big).value.endswith("o\n2000008")


def test_a_time_out_ends_the_whole_group(tmp_path: Path, fault_of: FaultOf) -> None:
    started = "sleep 60 & echo $! > child; wait"
    fault = fault_of(build({"command": ["sh", "-c", started], "timeout_s": 0.3}, tmp_path), {})
    assert str(fault) == "no answer within 0.3 s [timeout]"
    assert has_ended(int((tmp_path / "child").read_text()))


def test_what_a_program_leaves_running_ends_with_it(tmp_path: Path, call: Call) -> None:
    left = "sleep 60 > /dev/null 2>&1 & echo $! > child; echo done"
    assert call(build({"command": ["sh", "-c", left]}, tmp_path), {}).value == "done"
    assert has_ended(int((tmp_path / "child").read_text()))


def test_what_a_program_leaves_running_cannot_hold_the_output_open(call: Call) -> None:
    started = time.monotonic()
    assert call(build({"command": ["sh", "-c", "sleep 20 & echo done"]}), {}).value == "done"
    assert time.monotonic() - started < 10


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or dead and not yet fetched by who adopted it."""
    for _ in range(100):
        try:
            os.kill(pid, 0)
            if (
                Path(f"/proc/{pid}/stat").exists()
                and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
            ):
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False


def test_keys_are_passed_only_when_named(call: Call) -> None:
    key = "sk-0123456789abcdef"
    environ = {"PATH": os.environ["PATH"], "HOP_KEY_KIMI": "k1", "OPENAI_API_KEY": key, "COLOR": "blue"}
    code = "import os; print(*(name for name in ('COLOR', 'HOP_KEY_KIMI', 'OPENAI_API_KEY') if name in os.environ))"
    options = TargetOptions(environ=environ)
    assert call(build({"command": python(code)}, options=options), {}).value == "COLOR"
    target = build({"command": python(code), "env": ["OPENAI_API_KEY", "COLOR"]}, options=options)
    assert call(target, {}).value == "COLOR OPENAI_API_KEY"
    assert target.secrets == (key,)


def test_inputs_that_no_argument_can_hold(fault_of: FaultOf) -> None:
    target = build("command:echo {{q}}")
    assert fault_of(target, {"q": "a\0b"}).code == "unusable_input"
    assert "Give long inputs through stdin" in fault_of(target, {"q": "x" * 3_000_000}).message


def test_scripts_lie_beside_the_file_that_names_them(tmp_path: Path, call: Call) -> None:
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh\necho $1\n")
    script.chmod(0o755)
    target = build("command:./run.sh {{q}}", tmp_path)
    assert call(target, {"q": "hi"}).value == "hi"
    assert target.watch == (tmp_path / "run.sh",)
    script.write_text("#!/bin/sh\necho edited\n")
    assert build("command:./run.sh {{q}}", tmp_path).digest != target.digest


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"command": "no-such-program-here x"}, "target_missing"),
        ({"command": "./no-such-script"}, "target_missing"),
        ({"command": "echo 'unclosed"}, "bad_target_settings"),
        ({"command": []}, "bad_target_settings"),
        ({"command": {"a": 1}}, "bad_target_settings"),
        ({"command": "cat", "output": "xml"}, "bad_target_settings"),
        ({"command": "cat", "env": ["NOT_SET_ANYWHERE"]}, "variable_missing"),
    ],
)
def test_a_bad_spec_is_refused(spec: Record, code: str, tmp_path: Path) -> None:
    with pytest.raises(EvalloomError) as caught:
        build(spec, tmp_path)
    assert (caught.value.code, caught.value.exit_code) == (code, 2)
