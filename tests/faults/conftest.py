"""A folder with a suite in it, evalloom in processes of its own, and a server that behaves as badly as it is told."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

SETTINGS = """\
llms:
  far: {{base_url: {url}, model: test-model, {more}}}
profiles:
  main: {{run: far}}
target: prompt:prompt.md
datasets: [cases.jsonl]
"""


class Suite:
    """The files of one test, and evalloom run on them as people run it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("prompt.md", "{{q}}")

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def settings(self, url: str, more: str = "retries: 5", rest: str = "") -> None:
        """An evalloom.yaml with one llm behind a URL."""
        self.write("evalloom.yaml", SETTINGS.format(url=url, more=more) + rest)

    def cases(self, prompts: Iterable[str]) -> None:
        """One case per prompt, named c0, c1, …; what follows `say: ` is expected."""
        lines = []
        for number, prompt in enumerate(prompts):
            expected = {"expected_output": prompt.partition("say: ")[2]} if "say: " in prompt else {}
            lines.append(json.dumps({"id": f"c{number}", "q": prompt, **expected}))
        self.write("cases.jsonl", "\n".join(lines) + "\n")

    def start(self, *arguments: str, **more: Any) -> subprocess.Popen[str]:
        """evalloom in a process of its own, not waited for."""
        command = [sys.executable, "-m", "evalloom", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.folder, stdout=pipe, stderr=pipe, encoding="utf-8", **more)

    def run(self, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """evalloom to its end, without a traceback whatever happens."""
        process = self.start(*arguments, **more)
        out, err = process.communicate(timeout=120)
        assert "Traceback" not in err and "internal_error" not in err, err
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def summary(self, *arguments: str) -> dict[str, Any]:
        """What `--json` prints."""
        done = self.run("run", *arguments, "--json")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def batches(self) -> list[Path]:
        """The batches, oldest first."""
        return sorted(self.folder.glob(".evalloom/batches/*"))

    def lines(self, name: str = "runs.jsonl") -> list[dict[str, Any]]:
        """The whole lines of a file of the newest batch, which may be written just now."""
        text = (self.batches()[-1] / name).read_bytes()
        return [json.loads(line) for line in text.split(b"\n")[:-1]]

    def wait_for_runs(self, number: int, process: subprocess.Popen[str]) -> None:
        """Waits until so many runs are in the newest batch."""
        end = time.monotonic() + 30
        while not (self.batches() and _count(self.batches()[-1] / "runs.jsonl") >= number):
            assert process.poll() is None and time.monotonic() < end, "the run ended, or did not get so far"
            time.sleep(0.005)


def _count(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """An empty suite, without keys from the environment."""
    for name in [name for name in os.environ if name.startswith(("OPENAI_", "ANTHROPIC_", "HOP_KEY_"))]:
        monkeypatch.delenv(name)
    return Suite(tmp_path)


def pytest_report_header() -> str:
    return f"random kills: EVALLOOM_SEED={os.environ.get('EVALLOOM_SEED', '2026')}"


@pytest.fixture(scope="session")
def harness() -> Any:
    """The module harness.py."""
    return _module("harness")


@pytest.fixture(scope="session")
def power() -> Any:
    """The module power.py."""
    return _module("power")


def _module(name: str) -> Any:
    # With --import-mode=importlib the tests are no package, so it is loaded by its path.
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def moments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of moments.c."""
    return _library("moments", tmp_path_factory.mktemp("moments"))


def _library(name: str, folder: Path) -> Path:
    if sys.platform != "linux" or not shutil.which("cc"):
        pytest.skip(f"{name}.c needs Linux and a C compiler")
    library, source = folder / f"{name}.so", Path(__file__).with_name(f"{name}.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.fixture(scope="session")
def trial(harness: Any, moments: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """`trial("score")` gives the Trial of a command, one for all tests of a worker."""

    @cache
    def trial_of(name: str) -> Any:
        return harness.Trial(name, tmp_path_factory.mktemp(name), moments)

    return trial_of


@pytest.fixture(scope="session")
def powered_trial(harness: Any, moments: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """The same with a journal of its changes of the disk."""
    library = _library("power", tmp_path_factory.mktemp("power"))

    @cache
    def trial_of(name: str) -> Any:
        return harness.Trial(name, tmp_path_factory.mktemp(name), library, moments)

    return trial_of
