"""The `evalloom` command itself: help, version, guesses, and what happens when nothing works."""

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

import evalloom as package
from evalloom import catalog
from evalloom.cli import app
from evalloom.cli.commands import FILES, OPTIONS, RUNNING, commands, help_text
from evalloom.engine.system import COMMANDS

Evalloom = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize("command", commands())
def test_every_command_has_help(evalloom: Evalloom, command: str) -> None:
    done = evalloom(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"evalloom {command}" in done.stdout


def test_help_names_every_command(evalloom: Evalloom) -> None:
    done = evalloom("--help")
    assert done.returncode == 0 and [name for name in commands() if f"\n  {name} " not in done.stdout] == []
    assert evalloom("-h").stdout == done.stdout and evalloom().returncode == 2


def test_version_needs_no_library(evalloom: Evalloom) -> None:
    assert evalloom("--version").stdout == f"evalloom {package.__version__}\n"
    source = str(Path(package.__file__).parent.parent)
    code = f"import sys; sys.path.insert(0, {source!r}); sys.argv = ['evalloom', '--version']; import evalloom.__main__ as m; m.main()"
    bare = subprocess.run([sys.executable, "-S", "-E", "-c", code], capture_output=True, encoding="utf-8")
    assert (bare.returncode, bare.stdout) == (0, f"evalloom {package.__version__}\n")


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("validat", "Did you mean 'validate'?"),
        (
            "zzz",
            "Commands: run, score, compare, history, report, baseline, batches, stats, sql, view, serve, export, pipeline",
        ),
        ("shcema", "Did you mean 'schema'?"),
    ],
)
def test_an_unknown_command_is_answered_with_a_guess(evalloom: Evalloom, typed: str, hint: str) -> None:
    done = evalloom(typed, "x.jsonl")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"there is no command {typed!r}" in done.stderr and hint in done.stderr


@pytest.mark.parametrize("flags", [["validate", "--nope"], ["--nope"], ["convert"], ["inspect"], ["inspect", "a", "b"]])
def test_wrong_usage_is_exit_2(evalloom: Evalloom, flags: list[str]) -> None:
    done = evalloom(*flags)
    assert (done.returncode, done.stdout) == (2, "") and "Usage: evalloom" in done.stderr


def test_a_reader_that_has_gone_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"_id": 1, "_expected": 5}\n' * 3000)
    shell = f"'{sys.executable}' -m evalloom convert a.jsonl --to replay | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], cwd=tmp_path, capture_output=True, encoding="utf-8")
    assert (done.returncode, done.stdout) == (141, "{") and "Traceback" not in done.stderr


def test_no_system_may_take_the_name_of_an_engine_command() -> None:
    assert tuple(command.name for command in (*RUNNING, *FILES)) == COMMANDS
    assert {command.name for command in catalog.load().commands}.isdisjoint(COMMANDS)


@pytest.mark.parametrize("columns", ["40", "60", "80", "200"])
def test_help_without_click_is_that_of_click(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    # As `main` makes it: click keeps the help option of the first context that asks for it.
    context = click.Context(app.main, info_name="evalloom", **app.main.context_settings)
    lines = help_text().splitlines()
    assert app.main.get_help(context) == help_text()
    assert [parameter.get_help_record(context) for parameter in app.main.get_params(context)] == [
        ("--version", OPTIONS["--version"]),
        ("--debug", OPTIONS["--debug"]),
        ("-h, --help", OPTIONS["-h, --help"]),
    ]
    assert all(len(line) <= max(int(columns) - 2, 50) for line in lines if not line.startswith("  evalloom "))
    words = " ".join(" ".join(lines).split())
    assert all(command.summary in words for command in commands().values())


def test_help_ends_quietly_when_nobody_reads_it() -> None:
    command = f"{shlex.quote(sys.executable)} -m evalloom --help | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["run", "c.jsonl", "--config", "a.yaml", "--config=b.yaml"], "--config"),
        (["run", "c.jsonl", "--judge", "a", "--judge", "b"], "--judge"),
        (["run", "-j", "1", "--concurrency", "2"], "--concurrency"),
        (["validate", "c.jsonl", "--map", "a=b", "--map", "c=d"], "--map"),
        (["batches", "show", "latest", "--case", "a", "--case", "b"], "--case"),
    ],
)
def test_an_option_of_one_value_is_not_given_twice(in_process: Any, arguments: list[str], name: str) -> None:
    done = in_process(*arguments)
    assert done.code == 2 and f"{name}: expected one value, got 2. Keep one of them [bad_option]" in done.err


def test_options_that_may_be_repeated_stay_so(in_process: Any) -> None:
    Path("c.jsonl").write_text('{"id": "a", "q": "x", "expected_output": "x"}\n')
    Path("p.md").write_text("{{q}}")
    more = ["--tags", "a", "--tags", "b", "--json", "--json", "--profile", "echo", "--profile", "echo", "--", "c.jsonl"]
    assert in_process("run", "--target", "prompt:p.md", *more).err.endswith("shows what there is [no_case_chosen]\n")
