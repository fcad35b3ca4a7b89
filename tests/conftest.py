"""Rules that hold for every test: what may be skipped, how hypothesis searches; and the fixtures that many use."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import pty
import random
import shutil
import socket
import subprocess
import sys
import termios
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from tests.browser import own_loop

from evalloom.cli import app
from evalloom.core.errors import CallError
from evalloom.core.model import Case, Context, Output, Profile, Record, Request, Response
from evalloom.targets import BuiltTarget

# In a job of GitHub Actions, commands print more; tests that are about it set these themselves.
for _name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
    os.environ.pop(_name, None)

# Set by .ci/run, whose machine has everything: there a skipped test is one that nobody runs.
REQUIRE_ALL = os.environ.get("EVALLOOM_REQUIRE_ALL") == "1"

# The same examples in every run, and no deadline that a busy machine could miss.
settings.register_profile("deterministic", derandomize=True, deadline=None)
# scripts/test --fast takes a tenth of the examples; every test still runs.
settings.register_profile("fast", settings.get_profile("deterministic"), max_examples=10)
# HYPOTHESIS_PROFILE=search looks further, at random.
settings.register_profile("search", max_examples=2_000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "deterministic"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--req", metavar="ID", help="run only the tests of this requirement, e.g. HOP-3")


HERE = Path(__file__).parent
# These start a process or a database for almost every test, or go over whole catalogs.
SLOW_FOLDERS = (
    "cli",
    "conformance",
    "demo",
    "faults",
    "results",
    "sandbox",
    "server",
    "steps",
    "tools",
    "web",
    "pages",
)
SLOW_FILES = (
    *("test_docs.py", "test_examples.py", "test_pytest_plugin.py", "test_repository.py", "test_api.py"),
    *("test_cli.py", "test_compare_cli.py", "test_serve_cli.py", "test_compare.py", "test_resume.py", "test_task.py"),
    *("test_service.py", "test_waiting.py", "test_workflow.py", "test_parallel.py", "test_minilm.py"),
)
SLOW = {*SLOW_FOLDERS, *SLOW_FILES}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        parts = item.path.relative_to(HERE).parts if item.path.is_relative_to(HERE) else ()
        if not SLOW.isdisjoint(parts):
            item.add_marker(pytest.mark.slow)
    wanted = config.getoption("--req")
    if wanted is None:
        return
    chosen = [item for item in items if any(wanted in mark.args for mark in item.iter_markers("req"))]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with own_loop("chromium" in getattr(item, "fixturenames", ())):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # An expected failure is reported as skipped too, but it did run.
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        _fail(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if REQUIRE_ALL and report.skipped:
        _fail(report)
    return report


def _fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason: Any = report.longrepr
    text = reason[2] if isinstance(reason, tuple) else str(reason)
    report.outcome = "failed"
    report.longrepr = f"EVALLOOM_REQUIRE_ALL=1 allows no skipped test. {text}"


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands wrap what they print; tests look for whole sentences."""
    monkeypatch.setenv("COLUMNS", "1000")


@pytest.fixture
def serve() -> Iterator[Callable[..., Any]]:
    """`serve(p429=0.1)` starts a server that speaks like OpenAI and Anthropic and behaves as badly as it is told."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(_serving()(**options))


@pytest.fixture
def unused_port() -> int:
    """A port of loopback that nobody listens at, and that the system gives to no connection."""
    while True:
        port = random.randrange(10_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@pytest.fixture(scope="session")
def llm_server() -> Iterator[Any]:
    """One well-behaved server for all tests of a worker: `llm_server.url`, `llm_server.stats()`."""
    with _serving()() as server:
        yield server


def _serving() -> Any:
    # With --import-mode=importlib the tests are no package, so a helper is loaded by its path.
    spec = importlib.util.spec_from_file_location("serving", HERE / "llms" / "serving.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.serving


@pytest.fixture
def require_tool() -> Callable[[str], str]:
    """`require_tool("git")` gives the command's path, or skips the test where the machine lacks it."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            pytest.skip(f"{name} is not installed")
        return path

    return find


# -- pages: a server process over a folder of its own, and a real browser


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One browser for all tests of a worker."""
    from tests.browser import launched, require_chromium

    with launched(require_chromium()) as browser:
        yield browser


@pytest.fixture
def serve_pages() -> Iterator[Callable[..., Any]]:
    """`serve_pages(folder)` starts `evalloom view` there; further words start another command."""
    from tests.browser import serving

    with ExitStack() as stack:

        def start(folder: Path, *words: str, env: dict[str, str] | None = None) -> Any:
            return stack.enter_context(serving(folder, *words, env=env))

        yield start


@pytest.fixture
def visitor(chromium: Any) -> Iterator[Callable[..., Any]]:
    """`visitor(locale="zh-CN")` is somebody at a browser; no page may have an error or ask another host."""
    from tests.browser import Visitor

    visitors: list[Visitor] = []

    def visit(**options: Any) -> Visitor:
        visitors.append(Visitor(chromium, **options))
        return visitors[-1]

    yield visit
    for one in visitors:
        hosts = {host.split(":")[0] for host in one.hosts}
        one.close()
        assert one.problems == [] and hosts <= {"127.0.0.1", "localhost"}


# -- commands: as people run them, in a process of their own, or in this one


@pytest.fixture
def evalloom(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`evalloom("validate", "a.jsonl")` runs it in the test's folder and expects no traceback, whatever happens."""

    def call(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "evalloom", *arguments]
        done = subprocess.run(command, cwd=tmp_path, input=stdin, capture_output=True, encoding="utf-8")
        assert "Traceback" not in done.stderr and "internal_error" not in done.stderr, done.stderr
        return done

    return call


class Done(NamedTuple):
    """What a command gave that was called in this process."""

    code: int
    out: str
    err: str

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


@pytest.fixture
def in_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """evalloom in this process, which saves the start of another, in the test's folder and without keys."""
    for name in [name for name in os.environ if name.startswith(("OPENAI_", "ANTHROPIC_", "HOP_KEY_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Done:
        code = app.run(list(arguments))
        return Done(code, *capsys.readouterr())

    return call


@pytest.fixture
def on_terminal(tmp_path: Path) -> Callable[..., str]:
    """Runs evalloom under a pseudo-terminal of 80 columns and gives what it shows, colours and all."""

    def call(*arguments: str) -> str:
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 80))
        plain = {
            name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")
        }
        command = [sys.executable, "-m", "evalloom", *arguments]
        with subprocess.Popen(
            command, cwd=tmp_path, stdin=theirs, stdout=theirs, env={**plain, "TERM": "xterm-256color"}
        ):
            os.close(theirs)
            shown = b"".join(iter(lambda: _read(ours), b""))
        os.close(ours)
        return shown.decode().replace("\r\n", "\n")

    return call


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that the other side has gone
        return b""


# -- targets: a context whose llm says what it was asked

Call = Callable[..., Output]


async def echo(request: Request) -> Response:
    """An llm that answers with the request itself."""
    return Response(json.dumps({"messages": request.messages, "params": request.params}, ensure_ascii=False))


@pytest.fixture
def trace() -> list[Record]:
    return []


@pytest.fixture
def call(trace: list[Record]) -> Call:
    """`call(target, inputs)` gives the output; the trace is in the fixture of that name."""

    def now(
        target: BuiltTarget,
        inputs: Record,
        llm: Callable[[Request], Awaitable[Response]] = echo,
        params: Record | None = None,
    ) -> Output:
        context = Context(Case("1", inputs), Profile("p", params=params or {}), llm, llm, trace, repeat=2)

        async def once() -> Output:
            try:
                return await target.call(inputs, context)
            finally:
                await target.close()

        return asyncio.run(once())

    return now


@pytest.fixture
def fault_of(call: Call) -> Callable[..., CallError]:
    """`fault_of(target, inputs)` gives the CallError that the call ends in."""

    def now(target: BuiltTarget, inputs: Record) -> CallError:
        with pytest.raises(CallError) as caught:
            call(target, inputs)
        return caught.value

    return now
