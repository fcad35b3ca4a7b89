"""Runs commands on a disk that is full or read-only, inside a mount namespace: `unshare -rm python disks.py …`.

The arguments are a function of this module, the name of a command in harness.py, a folder and the library of moments.c.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.harness import Trial
else:
    from harness import Trial

LEFT = (0.0, 0.5)
"""How much space is left on a full disk, as a share of what the command needs."""
CODES = ("cannot_write", "bad_store", "index_unusable")


def mount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


def used(folder: Path) -> int:
    facts = os.statvfs(folder)
    return (facts.f_blocks - facts.f_bfree) * facts.f_frsize


class SmallDisk:
    """The folder of a trial as a file system of its own."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.folder = trial.new_folder()
        mount(self.folder, "size=64m")
        shutil.copytree(trial.template, self.folder, dirs_exist_ok=True)
        self.before = used(self.folder)

    def close(self) -> None:
        subprocess.run(["umount", self.folder], check=True)


def full(trial: Trial) -> None:
    """On a full disk the command says so, and completes as if undisturbed when there is space again."""
    disk = SmallDisk(trial)
    assert trial.attempt(disk.folder, is_first=True)
    needed = used(disk.folder) - disk.before
    disk.close()
    for share in LEFT:
        disk = SmallDisk(trial)
        remount(disk.folder, f"size={max(4096, disk.before + int(needed * share))}")
        print(f"{share:.0%} of {needed:,} bytes left: {refusal(trial, disk.folder)}")
        remount(disk.folder, "size=64m")
        check_completes(trial, disk, trial.command.finished(disk.folder))


def read_only(trial: Trial) -> None:
    """In a read-only folder the command says so before it does anything; when it can write again, it completes."""
    disk = SmallDisk(trial)
    remount(disk.folder, "ro")
    message = refusal(trial, disk.folder)
    print(message)
    assert not message or "read-only" in message.lower(), message
    remount(disk.folder, "rw")
    check_completes(trial, disk, {})


def refusal(trial: Trial, folder: Path) -> str:
    """What a command says that cannot write, with one of our codes; empty if it does without."""
    if trial.command.drive:
        try:
            assert trial.attempt(folder, is_first=True)
        except AssertionError as error:
            message, is_right_code = str(error), True  # of the service, or of its reply
        else:
            return ""
    else:
        code, message = trial.run(folder, trial.command.first)
        if code == trial.command.code:
            return ""
        is_right_code = code == 3
    assert is_right_code and any(name in message for name in CODES) and "Traceback" not in message, message
    return message.strip()


def check_completes(trial: Trial, disk: SmallDisk, finished: dict[str, object]) -> None:
    result = trial.complete(disk.folder)
    assert result == trial.undisturbed.result, (result, trial.undisturbed.result)
    after = trial.command.finished(disk.folder)
    assert {unit: after.get(unit) for unit in finished} == finished
    disk.close()


if __name__ == "__main__":
    function, name, folder, library = sys.argv[1:]
    {"full": full, "read_only": read_only}[function](Trial(name, Path(folder), Path(library)))
