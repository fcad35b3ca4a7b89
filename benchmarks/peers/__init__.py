"""Other programs that do the same work: how each is installed, started and checked.

The scripts beside this file run inside the peer's own environment, as `python -P SCRIPT CASES BASE_URL CONCURRENCY
PASSES`, and write the number of passes into the last. (`-P` keeps this folder, where they are named like the packages
that they import, out of Python's path.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import environments
from contest import Task, cases, write_lines

from peers.promptfoo import Promptfoo


class Peer(Protocol):
    """A program that is measured."""

    @property
    def name(self) -> str: ...

    def install(self) -> str:
        """Makes its environment and says which version is in it."""

    def prepare(self, task: Task) -> list[str]:
        """Writes what the program reads and gives the command."""

    def variables(self, task: Task) -> Mapping[str, str]:
        """What is set in its environment: no telemetry, no cloud, files in the folder of the task."""

    def passes(self, task: Task) -> int:
        """How many cases passed, as the program says."""


@dataclass(frozen=True)
class InPython:
    """A peer that is a Python package, used by the script of the same name."""

    name: str
    package: str
    settings: dict[str, str] = field(default_factory=dict)

    def install(self) -> str:
        return environments.version(self._python(), self.package)

    def prepare(self, task: Task) -> list[str]:
        write_lines(task.cases, cases(task.count))
        script = Path(__file__).with_name(f"{self.name}.py")
        arguments = [task.cases, task.url, task.concurrency, task.folder / "passes"]
        return [str(part) for part in (self._python(), "-P", script, *arguments)]

    def variables(self, task: Task) -> Mapping[str, str]:
        # Some write to a folder in the user's home.
        return {**self.settings, "HOME": str(task.folder), "OPENAI_API_KEY": "none"}

    def passes(self, task: Task) -> int:
        written = task.folder / "passes"
        return int(written.read_text()) if written.exists() else 0

    def _python(self) -> Path:
        # None of them calls a model without OpenAI's package.
        return environments.python(self.name, self.package, "openai")


_QUIET_DEEPEVAL = {
    "DEEPEVAL_TELEMETRY_OPT_OUT": "1",
    "DEEPEVAL_DISABLE_DOTENV": "1",
    "DEEPEVAL_UPDATE_WARNING_OPT_IN": "0",
    "DEEPEVAL_NO_INSPECT_PROMPT": "1",
    "ERROR_REPORTING": "0",
}

PEERS: tuple[Peer, ...] = (
    InPython("pydantic_evals", "pydantic-evals"),
    InPython("deepeval", "deepeval", _QUIET_DEEPEVAL),
    Promptfoo(),
    InPython("inspect_ai", "inspect-ai"),
)
