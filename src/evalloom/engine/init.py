"""`evalloom init`: a small suite to start from, in the format of one system."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from evalloom.core.errors import usage_error
from evalloom.core.model import Record
from evalloom.files.write import write_text
from evalloom.settings import FILE_NAME


class Starter(Struct, frozen=True):
    """A suite to start from: its files by name; `dataset`, `target` and `checks` go into evalloom.yaml."""

    dataset: str
    target: str
    files: dict[str, str]
    checks: str = ""


def write_suite(folder: Path, suite: Starter) -> list[Path]:
    """Writes a suite and evalloom.yaml into a folder; where one of the files is already there, nothing is written."""
    files = {**suite.files, FILE_NAME: _settings(suite)}
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise usage_error("not_a_folder", f"{folder.as_posix()}: expected a folder, got a file")
    there = [name for name in files if os.path.lexists(folder / name)]
    if there:
        named = ", ".join((folder / name).as_posix() for name in there)
        message = f"{named}: already there and not overwritten; nothing was written. Name another folder"
        raise usage_error("file_exists", message)
    for name, text in files.items():
        write_text(folder / name, text)
    return [folder / name for name in files]


def _settings(suite: Starter) -> str:
    """What evalloom.yaml says: everything that `evalloom run` needs, and what to change for a real model."""
    judge = "  judge: {protocol: scripted, file: judge.yaml}\n" if suite.checks else ""
    return f"""\
# `evalloom run` runs what this file says; `evalloom validate` checks the datasets.
datasets:
  - {suite.dataset}
target: {suite.target}
{suite.checks}
# The llms. This one reads its answers from a file, so it needs no key and no network.
llms:
  offline: {{protocol: scripted, file: answers.yaml}}
{judge}\
  # For a real model, uncomment these lines and the one below, and set HOP_KEY_REAL or OPENAI_API_KEY.
  # real:
  #   base_url: https://api.openai.com/v1
  #   model: gpt-4.1-mini
  #   temperature: 0

# `evalloom run` uses the first profile; `evalloom run --profile real` uses the other.
profiles:
  offline: {{run: offline}}
  # real: {{run: real}}
"""


def jsonl(records: Iterable[Record]) -> str:
    """Records as JSON Lines."""
    return "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records)
