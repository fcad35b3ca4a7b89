"""Plays back the journal of power.c: what is on the disk after a loss of power.

A write is safe when its file was synced after it, a name when its folder was. Of what is not safe nothing is left, or
by chance any part: whole writes or halves of them in any order, and the first of the changes of names.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Change(NamedTuple):
    """One line of the journal. `number` is an inode; `place` and `target` are paths."""

    kind: str
    number: int
    place: str = ""
    target: str = ""
    at: int = 0
    data: bytes = b""


class Content:
    """A file: its content as programs see it, and the last one that was synced."""

    def __init__(self, data: bytes = b"") -> None:
        self.now = bytearray(data)
        self.safe = bytes(data)
        self.unsafe: list[Change] = []

    def change(self, change: Change) -> None:
        self.unsafe.append(change)
        _apply(self.now, change)

    def sync(self) -> None:
        self.safe, self.unsafe = bytes(self.now), []

    def left(self, chance: random.Random | None) -> bytes:
        """What is left of it; without `chance` only what was synced."""
        data = bytearray(self.safe)
        for change in self.unsafe if chance else ():
            assert chance is not None
            if chance.random() < 0.5:
                half = change._replace(data=change.data[: len(change.data) // 2])
                _apply(data, half if chance.random() < 0.2 else change)
        return bytes(data)


def _apply(data: bytearray, change: Change) -> None:
    end = change.at if change.kind == "T" else change.at + len(change.data)
    data.extend(bytes(max(0, end - len(data))))
    if change.kind == "T":
        del data[change.at :]
    else:
        data[change.at : end] = change.data


Names = dict[str, Content | None]
"""The paths of files, and of folders, which have no content."""


class Disk:
    """The disk below one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._files: dict[int, Content] = {}
        self._folders: dict[int, str] = {}
        self._safe: Names = {}
        self._unsafe: list[tuple[Change, Content | None]] = []
        """Changes of names, in order."""
        for path in (self._root, *self._root.rglob("*")):
            number = path.stat().st_ino
            if path.is_dir():
                self._folders[number] = str(path)
                self._safe[str(path)] = None
            else:
                self._safe[str(path)] = self._files[number] = Content(path.read_bytes())

    def play(self, journal: Path) -> None:
        """Apply the changes of a journal."""
        for change in read_journal(journal):
            if change.place:
                if change.place.startswith(f"{self._root}/"):
                    self._rename(change)
            elif change.kind != "S":
                if change.number in self._files:
                    self._files[change.number].change(change)
            elif change.number in self._folders:
                self._sync_names(self._folders[change.number])
            elif change.number in self._files:
                self._files[change.number].sync()

    def _rename(self, change: Change) -> None:
        content = None
        if change.kind == "C":
            content = self._files[change.number] = Content()
        elif change.kind == "D":
            self._folders[change.number] = change.place
        elif change.number in self._folders:
            self._folders[change.number] = change.target
        elif change.kind in "RL":
            content = self._files[change.number]
        self._unsafe.append((change, content))

    def _sync_names(self, folder: str) -> None:
        rest = []
        for change, content in self._unsafe:
            if os.path.dirname(change.target or change.place) == folder:
                _apply_name(self._safe, change, content)
            else:
                rest.append((change, content))
        self._unsafe = rest

    def lose_power(self, chance: random.Random | None = None) -> None:
        """Write what is left into the folder."""
        names = dict(self._safe)
        for change, content in self._unsafe[: chance.randint(0, len(self._unsafe)) if chance else 0]:
            _apply_name(names, change, content)
        shutil.rmtree(self._root)
        self._root.mkdir()
        for name in sorted(names):
            path, content = Path(name), names[name]
            # A name in a folder that is not there is lost with it.
            if path.parent.is_dir() and not path.exists():
                path.mkdir() if content is None else path.write_bytes(content.left(chance))


def _apply_name(names: Names, change: Change, content: Content | None) -> None:
    if change.kind in "UR":
        names.pop(change.place, None)
        # With a folder goes what is in it.
        for name in [name for name in names if name.startswith(f"{change.place}/")]:
            inside = names.pop(name)
            if change.kind == "R":
                names[change.target + name.removeprefix(change.place)] = inside
    if change.kind != "U":
        names[change.target or change.place] = content


def read_journal(path: Path) -> Iterator[Change]:
    """Yield the changes; the process may have ended within the last one."""
    with path.open("rb") as stream:
        while (line := stream.readline()).endswith(b"\n"):
            kind, number, rest = line.decode("utf-8", "surrogateescape").rstrip("\n").split(" ", 2)
            if kind in "WTS":
                at, size = map(int, rest.split())
                yield Change(kind, int(number), at=at, data=stream.read(size))
            else:
                place, _, target = rest.partition(" ")[2].partition("\t")
                yield Change(kind, int(number), place, target)
