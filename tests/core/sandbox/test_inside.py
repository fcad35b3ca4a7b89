"""The process itself: where a step of the isolation fails, it runs nothing."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evalloom.core.sandbox import system_calls
from evalloom.core.sandbox.system_calls import filter_for

pytestmark = pytest.mark.req("PIPE-12")

INSIDE = Path(system_calls.__file__).with_name("inside.py")
ANYTHING = (0x7FFF000000000006).to_bytes(8, "little").hex()
"""A filter that lets everything through."""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"parent": 1}, "the process that started it has ended"),
        ({"filter": ""}, "prctl 22: Invalid argument"),
        ({"filter": ANYTHING}, "sockets can still be opened"),
        ({"read": ["/"]}, "files outside can still be opened"),
        ({"read": ["/nowhere"]}, "/nowhere: No such file or directory"),
        ({"scratch": "/nowhere"}, "/nowhere: No such file or directory"),
        ({"limits": {"cpu_s": 1, "memory_bytes": -(2**70), "file_bytes": 1}}, "a limit cannot be set"),
    ],
)
def test_where_a_step_fails_nothing_runs(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    told = {
        "limits": {"cpu_s": 1, "memory_bytes": 2**28, "file_bytes": 2**20},
        "scratch": str(tmp_path),
        "read": [os.path.dirname(os.__file__)],
        "list": [],
        "parent": os.getpid(),
        "filter": filter_for(platform.machine()).hex(),
    }
    command = [sys.executable, "-I", "-S", "-B", str(INSIDE), json.dumps(told | change)]
    done = subprocess.run(command, input=b"never read", capture_output=True, env={})
    assert list(json.loads(done.stdout)) == ["refused"] and said in done.stdout.decode()
    assert done.returncode == 1
