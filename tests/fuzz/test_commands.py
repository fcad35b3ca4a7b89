"""The commands themselves: a changed file gives an exit code and messages, never a traceback or a bug report."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import note
from hypothesis import strategies as st
from tests.fuzz.conftest import (
    DATASETS,
    DOCUMENTS,
    KEYS,
    ROOT,
    TEXTS,
    damaged,
    fuzz,
    mutations,
    seed_of,
    seeds,
    written,
)

from evalloom.cli import app

SETTINGS = seeds("examples/*/evalloom.yaml")
FILES = [*DATASETS, *DOCUMENTS]
WRITERS = st.sampled_from(["hop", "pipeline", "replay", "rag", "prompt-eval"])


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a prompt, and nothing of an earlier example."""
    yield tmp_path_factory.mktemp("project")


@st.composite
def files(draw: st.DrawFn) -> tuple[str, bytes]:
    """The name and the bytes of a changed file."""
    seed = draw(st.sampled_from(FILES))
    if draw(st.booleans()):
        return seed.name, draw(damaged(st.just(seed.data)))
    suffix = draw(st.sampled_from([".jsonl", ".json", ".yaml", ".csv"]))
    records = draw(mutations(st.just(seed.records), KEYS))
    return Path(seed.name).stem + suffix, written(records if isinstance(records, list) else [records], suffix)


def call(project: Path, *arguments: str) -> str:
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with chdir(project), redirect_stdout(out), redirect_stderr(err):
        code = app.run(arguments)
    shown = "".join(stream.buffer.getvalue().decode() for stream in (out, err))
    check_end(code, shown)
    return shown


def check_end(code: int, shown: str) -> None:
    assert code in (0, 1, 2, 3), (code, shown)
    assert "internal_error" not in shown and "this is a bug" not in shown and "Traceback" not in shown, shown
    assert code == 0 or shown.strip()


def prepare(project: Path, file: tuple[str, bytes]) -> str:
    for path in project.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (project / "prompt.md").write_text("{{q}}")
    (project / file[0]).write_bytes(file[1])
    return file[0]


COMMANDS: list[Any] = [
    ("validate",),
    ("validate", "--deep", "--strict", "--json"),
    ("validate", "--format", "markdown"),
    ("validate", "--check-sources-exist", "--check-must-include-in-sources"),
    ("inspect",),
]


@fuzz(share=0.6, file=files(), command=st.sampled_from(COMMANDS))
def test_commands_that_read_a_file(project: Path, file: tuple[str, bytes], command: tuple[str, ...]) -> None:
    name = prepare(project, file)
    call(project, command[0], name, *command[1:])


@fuzz(share=0.4, file=files(), to=WRITERS)
def test_convert(project: Path, file: tuple[str, bytes], to: str) -> None:
    name = prepare(project, file)
    call(project, "convert", name, "--to", to, "-o", "out.jsonl")


@fuzz(share=0.3, file=files(), skips=st.booleans())
def test_run_then_show_and_score(project: Path, file: tuple[str, bytes], skips: bool) -> None:
    name = prepare(project, file)
    flags = ("--skip-invalid",) if skips else ()
    call(
        project,
        "run",
        name,
        "--target",
        "prompt:prompt.md",
        "--profile",
        "echo",
        *flags,
        "-o",
        "out.xml",
        "-o",
        "out.csv",
    )
    if (project / ".evalloom" / "batches").exists():
        call(project, "batches", "show", "latest")
        call(project, "score", "latest")
        call(project, "compare", "latest", "--against", "latest")


@fuzz(
    share=0.4,
    data=mutations(st.sampled_from([seed.records[0] for seed in SETTINGS]), ["llms", "checks", "run"]).map(
        lambda value: written([value], ".yaml")
    )
    | damaged(st.sampled_from([seed.data for seed in SETTINGS])),
    command=st.sampled_from(
        [("validate",), ("run", "--dry-run"), ("doctor",), ("batches", "list"), ("schema", "settings")]
    ),
)
def test_commands_with_any_settings(project: Path, data: bytes, command: tuple[str, ...]) -> None:
    prepare(project, ("evalloom.yaml", data))
    (project / "cases.jsonl").write_text('{"id": "a", "q": "x"}\n')
    call(project, *command)


class Scenario(NamedTuple):
    """A folder of the repository, the files in it that change, and the commands that read them."""

    folder: str
    changed: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]


SCENARIOS = {
    "hop": Scenario(
        "examples/hop/wrappers",
        ("view_result.jsonl", "flat_result.jsonl"),
        (
            ("stats", "."),
            ("stats", ".", "--rows", "3", "--sort", "-retry_count", "--json"),
            ("stats", ".", "--agreement", "score", "--by", "tag,profile"),
            ("stats", "view_result.jsonl", "--files"),
        ),
    ),
    "replay": Scenario(
        "examples/replay",
        ("project.json", "rows.jsonl", "evalloom.yaml"),
        (
            ("replay", "--project", "project.json", "--dataset", "rows.jsonl"),
            ("replay", "list"),
            ("run", "rows.jsonl", "--target", "recipe:project.json"),
        ),
    ),
    "pipeline": Scenario(
        "examples/pipeline",
        (
            "pipelines/review_sentiment.yaml",
            "testsets/review_sentiment_basic_v1.jsonl",
            "answers.yaml",
            "evalloom.yaml",
        ),
        (
            ("pipeline", "check", "pipelines/review_sentiment.yaml"),
            ("pipeline", "graph", "pipelines/review_sentiment.yaml"),
            ("run", "--json"),
        ),
    ),
    "prompt-eval": Scenario(
        "tests/fixtures/v0_1/prompt_eval/results",
        ("test_plan.yaml", "test_cases_with_results.json", "final_scored_results.json", "final_scored_results.csv"),
        (
            ("prompt-eval", "check", "."),
            ("prompt-eval", "table", "final_scored_results.json", "-o", "new.csv"),
            ("prompt-eval", "report", "."),
            ("prompt-eval", "import-review", "final_scored_results.csv", "."),
        ),
    ),
    "rag": Scenario(
        "examples/rag",
        ("eval_cases.jsonl", "docs/en/leave.md", "docs/en/data_protection.html", "evalloom.yaml"),
        (("rag", "retrieve", "eval_cases.jsonl", "--root", "docs"), ("validate",)),
    ),
}


def copy(scenario: Scenario, project: Path) -> None:
    shutil.rmtree(project)
    shutil.copytree(ROOT / scenario.folder, project)
    if (project / "evalloom_folder").exists():
        (project / "evalloom_folder").rename(project / ".evalloom")


@pytest.mark.parametrize("system", SCENARIOS)
def test_the_commands_take_the_files_as_they_are(project: Path, system: str) -> None:
    copy(SCENARIOS[system], project)
    for command in SCENARIOS[system].commands:
        shown = call(project, *command)
        assert "No such option" not in shown and "[bad_option]" not in shown and "Usage:" not in shown, shown


@pytest.mark.parametrize("system", SCENARIOS)
@fuzz(share=0.08, data=st.data())
def test_commands_of_a_system(project: Path, system: str, data: Any) -> None:
    scenario = SCENARIOS[system]
    copy(scenario, project)
    name = data.draw(st.sampled_from(scenario.changed))
    records = seed_of(project / name).records if Path(name).suffix in (".jsonl", ".json", ".yaml") else []
    if records and data.draw(st.booleans()):
        changed = data.draw(mutations(st.just(records), KEYS))
        content = written(changed if isinstance(changed, list) else [changed], Path(name).suffix)
    else:
        content = data.draw(damaged(st.just((project / name).read_bytes())))
    (project / name).write_bytes(content)
    note(f"{name}: {content!r}")
    for command in scenario.commands:
        call(project, *command)


COLUMN = st.sampled_from(
    ["correct", "tag", "retry_count", "expected_x", "x", "", "id", "profile", "input.q", "a b", '"']
)


@fuzz(share=0.1, column=COLUMN, value=TEXTS, sort=COLUMN, by=st.lists(COLUMN, max_size=2).map(",".join), bands=TEXTS)
def test_filters_of_stats(project: Path, column: str, value: str, sort: str, by: str, bands: str) -> None:
    copy(SCENARIOS["hop"], project)
    call(project, "stats", ".", "--rows", "2", "--where", f"{column}={value}", f"--sort={sort}")
    call(project, "stats", ".", f"--by={by}", "--agreement", column, f"--bands={bands}")


@pytest.mark.slow
@fuzz(share=0.05, file=files())
def test_the_real_process(project: Path, file: tuple[str, bytes]) -> None:
    name = prepare(project, file)
    done = subprocess.run(
        [sys.executable, "-m", "evalloom", "validate", name], cwd=project, capture_output=True, timeout=120
    )
    check_end(done.returncode, (done.stdout + done.stderr).decode("utf-8", "surrogateescape"))
