"""A large folder of documents is read by several processes, with the index that one makes."""

from __future__ import annotations

import hashlib
import os
import random
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core")
INDEX = """
import resource, sys
from pathlib import Path
from evalloom.rag.retrieval import open_index
index = open_index(Path("docs"), Path(sys.argv[1]))
print(index.refresh())
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime > 0)
index.close()
"""
WORDS = ["parcel", "devices", "IT", "it", "PRO-2026", "naïve", "报销流程", "年假", "的", "ひらがな", "customer's"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, dice = tmp_path_factory.mktemp("many"), random.Random(5)
    (folder / "docs").mkdir()
    for number in range(60):
        lines = [f"# Part {number}"]
        lines += [" ".join(dice.choices([*WORDS, f"w{dice.randrange(900)}"], k=12)) + "。" for _ in range(900)]
        (folder / "docs" / f"d{number:02}.md").write_text("\n".join(lines), encoding="utf-8")
    (folder / "docs" / "broken.md").write_bytes(b"\x00\xff\xfe\x81" * 500)
    (folder / "docs" / "empty.txt").write_text("")
    return folder


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (1 << 45, 1 << 45))


def index(folder: Path, name: str, prepare: Callable[[], None] | None = None) -> tuple[str, bool, str]:
    """Return what the refresh says, whether there were copies of the process, and a digest of the index."""
    command = [sys.executable, "-c", INDEX, name]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, preexec_fn=prepare, check=True)
    refreshed, copies = ended.stdout.splitlines()
    digest = hashlib.sha256()
    (file,) = (folder / name).rglob("index.sqlite")
    with sqlite3.connect(file) as database:
        for table in ("documents", "chunks", "terms"):
            for row in database.execute(f"SELECT * FROM {table} ORDER BY 1"):
                digest.update(repr(row).encode())
    for array in sorted((folder / name).rglob("*.npy")):
        digest.update(array.name.encode() + array.read_bytes())
    return refreshed, copies == "True", digest.hexdigest()


def test_several_processes_make_the_index_that_one_makes(folder: Path) -> None:
    assert sum(file.stat().st_size for file in (folder / "docs").iterdir()) > 4 * 1024 * 1024
    alone, together = index(folder, "alone", limit_memory), index(folder, "together")
    assert (alone[1], together[1]) == (False, True)
    assert alone[0] == together[0] and alone[2] == together[2] and "broken.md" in alone[0]
    for number in range(0, 60, 3):
        (folder / "docs" / f"d{number:02}.md").unlink()
    for number in range(1, 60, 3):
        os.utime(folder / "docs" / f"d{number:02}.md", (1, 1))
    with (folder / "docs" / "d02.md").open("a", encoding="utf-8") as stream:
        stream.write("a new line")
    assert index(folder, "alone", limit_memory)[0] == index(folder, "together")[0]
