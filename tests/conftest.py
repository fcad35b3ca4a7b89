"""Rules that hold for every test: what may be skipped, and how hypothesis searches."""

import importlib.util
import os
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Set by .ci/run, whose machine has everything: there a skipped test is one that nobody runs.
REQUIRE_ALL = os.environ.get("EVALLOOM_REQUIRE_ALL") == "1"

# The same examples in every run, and no deadline that a busy machine could miss.
settings.register_profile("deterministic", derandomize=True, deadline=None)
# HYPOTHESIS_PROFILE=search looks further, at random.
settings.register_profile("search", max_examples=2_000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "deterministic"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--req", metavar="ID", help="run only the tests of this requirement, e.g. HOP-3")


# These start a process or a database for almost every test, or go over whole shelves.
HERE = Path(__file__).parent
SLOW_PLACES = ("cli", "conformance", "faults", "server", "tools", "workbench")
SLOW_FILES = (
    *("test_docs.py", "test_examples.py", "test_pytest_plugin.py", "test_repository.py"),
    *("test_hop_copy.py", "test_hop_cube.py", "test_hop_stats.py", "test_hop_store.py"),
)
SLOW = {*SLOW_PLACES, *SLOW_FILES}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        parts = item.path.relative_to(HERE).parts if item.path.is_relative_to(HERE) else ("",)
        if parts[0] in SLOW or parts[-1] in SLOW:
            item.add_marker(pytest.mark.slow)
    wanted = config.getoption("--req")
    if wanted is None:
        return
    chosen = [item for item in items if any(wanted in mark.args for mark in item.iter_markers("req"))]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


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


@pytest.fixture
def serve() -> Iterator[Callable[..., Any]]:
    """`serve(p429=0.1)` starts a server that speaks like OpenAI and Anthropic and behaves as badly as it is told."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(_serving()(**options))


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
