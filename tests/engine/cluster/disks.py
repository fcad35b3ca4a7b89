"""A batch on a disk that gets full, inside a mount namespace: `unshare -rm python -m tests.engine.cluster.disks …`.

The arguments are a folder and the flags of the run. The last line printed has the messages without and with the flags.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.engine.cluster.harness import Batch, content, local, make_project

CASES = 1500


def mount(folder: Path, size: str) -> None:
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)


def resize(folder: Path, size: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", folder], check=True)


def used(folder: Path) -> int:
    facts = os.statvfs(folder)
    return (facts.f_blocks - facts.f_bfree) * facts.f_frsize


def run_until_full(folder: Path, flags: list[str], size: int) -> str:
    """Return what a run says whose disk gets full."""
    shutil.rmtree(folder / ".evalloom", ignore_errors=True)
    resize(folder, size)
    batch = Batch(folder, *flags)
    code, out, err = batch.end()
    assert code == 3, (code, out, err)
    runs, _ = (batch.path() / name for name in ("runs.jsonl", "verdicts.jsonl"))
    assert 0 < runs.read_bytes().count(b"\n") < CASES
    return err.replace(batch.path().name, "ID").strip()


def main() -> None:
    folder, *flags = sys.argv[1:]
    disk = Path(folder)
    mount(disk, "64m")
    make_project(disk, CASES, "python:code.py:quick")
    before = used(disk)
    code, expected = local(disk)
    size = before + (used(disk) - before) // 2
    messages = [run_until_full(disk, own, size) for own in ([], flags)]
    resize(disk, 64 << 20)
    resumed = Batch(disk, "--resume", *flags)
    assert resumed.end()[0] == code
    assert content(resumed.path()) == expected
    print(json.dumps(messages))


if __name__ == "__main__":
    main()
