"""Systems of other packages: what is registered as an entry point is known everywhere, and what is broken is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PACKAGES = Path(__file__).resolve().parent.parent / "fixtures" / "packages"
CASES = '{"ticket": 1, "says": "Help me, please"}\n{"ticket": 2, "says": "Help me now"}\n'
Evalloom = Callable[..., subprocess.CompletedProcess[str]]


def started_with(folder: str, cwd: Path) -> Evalloom:
    """`evalloom` in a process that finds the packages of a folder as if they were installed."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(filter(None, [str(PACKAGES / folder), os.environ.get("PYTHONPATH", "")]))
        command = [sys.executable, "-m", "evalloom", *arguments]
        return subprocess.run(command, cwd=cwd, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)

    return call


@pytest.fixture
def evalloom(tmp_path: Path) -> Evalloom:
    (tmp_path / "cases.jsonl").write_text(CASES, encoding="utf-8")
    return started_with("sound", tmp_path)


def test_files_are_recognised_checked_and_described(evalloom: Evalloom, tmp_path: Path) -> None:
    assert "tickets (it has 'ticket')" in evalloom("validate", "cases.jsonl").stdout
    assert "tickets" in evalloom("inspect", "cases.jsonl").stdout
    assert json.loads(evalloom("schema", "tickets").stdout)["title"] == "Ticket"
    assert '"says":"Help me now"' in evalloom("convert", "cases.jsonl", "--to", "tickets").stdout
    (tmp_path / "cases.jsonl").write_text('{"ticket": 3}\n', encoding="utf-8")
    assert "[ticket_says_nothing]" in evalloom("validate", "cases.jsonl").stdout


def test_cases_are_run_scored_and_reported(evalloom: Evalloom, tmp_path: Path) -> None:
    done = evalloom("run", "cases.jsonl", "--target", "shout:loud", "-o", "out.tickets.txt")
    assert done.returncode == 1 and "nobody says please" in done.stdout
    assert (tmp_path / "out.tickets.txt").read_text("utf-8") == "1 passed\n2 failed\n"
    again = evalloom("score", "latest", "--json")
    assert (json.loads(again.stdout)["passed"], json.loads(again.stdout)["failed"]) == (1, 1)


def test_checks_of_the_settings_may_be_of_its_kind(evalloom: Evalloom, tmp_path: Path) -> None:
    settings = "datasets: [cases.jsonl]\ntarget: shout:loud\nchecks: [{polite: true}]\n"
    (tmp_path / "evalloom.yaml").write_text(settings, encoding="utf-8")
    found = json.loads(evalloom("run", "--json").stdout)
    assert (found["passed"], found["failed"]) == (1, 1)


def test_help_and_doctor_name_its_parts(evalloom: Evalloom) -> None:
    assert "Count the tickets in a file." in evalloom("--help").stdout
    assert evalloom("tickets", "cases.jsonl").stdout == "2 tickets\n"
    shown = " ".join(evalloom("run", "--help").stdout.split())
    assert "shout:HOW" in shown and ".tickets.txt" in shown
    assert "Support tickets, from evalloom-tickets 1.0" in evalloom("doctor", "--offline").stdout


def test_a_broken_package_is_named_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "cases.jsonl").write_text(
        '{"id": "a", "query": "q?", "expected_sources": ["a.md"]}\n', encoding="utf-8"
    )
    evalloom = started_with("broken", tmp_path)
    done = evalloom("inspect", "cases.jsonl")
    assert done.returncode == 0 and "rag" in done.stdout
    warnings = sorted(done.stderr.splitlines())
    assert [line.rpartition(" ")[2] for line in warnings] == ["[system_failed]"] * 3
    assert "'clash' is left out: evalloom-clash 2.0: ValueError: there is a dialect 'rag' already" in warnings[0]
    assert "'no-system' is left out: evalloom-clash 2.0: TypeError: " in warnings[1]
    assert "'unready' is left out: evalloom-unready 0.1: ModuleNotFoundError: " in warnings[2]
    doctor = evalloom("doctor", "--offline")
    assert doctor.returncode == 3 and "system unready" in doctor.stdout


def test_python_code_is_warned_of_a_broken_package(tmp_path: Path) -> None:
    (tmp_path / "cases.jsonl").write_text(CASES, encoding="utf-8")
    code = "import evalloom; print(evalloom.check('cases.jsonl').dialect)"
    path = os.pathsep.join([str(PACKAGES / "broken"), str(PACKAGES / "sound")])
    command = [sys.executable, "-W", "always", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.stdout == "tickets\n"
    assert done.stderr.count("[system_failed]") == 3 and "the system 'unready' is left out" in done.stderr


PARTS = """
import sys
import click
from msgspec import Struct
from evalloom.core.model import Case, Check
from evalloom.data.dialect import Dialect
from evalloom.data.formats import Document
from evalloom.engine.batch_kind import BatchKind
from evalloom.engine.system import Command, Parts, RuleFlag, System
from evalloom.matchers.base import Matcher
from evalloom.reports.lazy import LazyReporter
from evalloom.settings.section import Section
from evalloom.targets.base import Kind

def boom(*args):
    raise ValueError("boom")

def dialect(**more):
    parts = dict(name="bad", summary="bad", sniff=lambda record: "", findings=lambda record, rules: ())
    return Dialect(**{**parts, "to_case": lambda record, origin: Case("", {}), **more})

def system(commands=(), **parts):
    return System("bad", "Bad", lambda: Parts(**parts), commands)

@click.command("bad")
def command():
    raise ValueError("boom")
"""
LEFT_OUT = {
    "exits": "sys.exit(5)",
    "kind of batch": 'SYSTEM = system(batch_kinds=lambda: (BatchKind("rag"),))',
    "engine command": 'SYSTEM = system(commands=(Command("run", "x", lambda: command),))',
    "engine check": 'SYSTEM = system(matchers=(Matcher("similar", "x", boom),))',
    "flag of validate": 'SYSTEM = system(rule_flags=(RuleFlag("--strict", "x", boom),))',
    "flag in capitals": 'SYSTEM = system(rule_flags=(RuleFlag("--Loud", "x", boom),))',
    "section of the engine": 'SYSTEM = system(sections=lambda: (Section("llms", "x", Struct),))',
    "starter alone": "SYSTEM = system(starter=boom)",
    "no rank": 'SYSTEM = system(dialects=(dialect(rank="high"),))',
    "no summary": 'SYSTEM = system(commands=(Command("bad", None, lambda: command),))',
    "twice": "SYSTEM = system(dialects=(dialect(), dialect()))",
    "untypable name": 'SYSTEM = system(dialects=(dialect(name="My_Format"),))',
    "untypable suffix": 'SYSTEM = system(reporters=(LazyReporter("tsv", ".TSV", boom),))',
    "another fallback": "SYSTEM = system(dialects=(dialect(is_fallback=True),))",
}
FAILING = {
    "sniff": "SYSTEM = system(dialects=(dialect(sniff=boom, rank=1),))",
    "expand": "SYSTEM = system(dialects=(dialect(expand=boom),))",
    "document": 'SYSTEM = system(documents=(Document("a thing", "it is", boom, boom, is_never_case=True),))',
}


def packaged(folder: Path, code: str, entry_points: bytes = b"[evalloom.systems]\nbad = badpkg:SYSTEM\n") -> Path:
    """A folder with one package in it, as if it were installed there."""
    (folder / "badpkg-0.1.dist-info").mkdir(parents=True)
    (folder / "badpkg-0.1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: badpkg\nVersion: 0.1\n")
    (folder / "badpkg-0.1.dist-info/entry_points.txt").write_bytes(entry_points)
    (folder / "badpkg.py").write_text(PARTS + code + "\n", encoding="utf-8")
    return folder


def inspected(tmp_path: Path, code: str, **more: bytes) -> subprocess.CompletedProcess[str]:
    """What becomes of a RAG file where such a package is installed."""
    (tmp_path / "cases.json").write_text('{"query": "q?", "expected_sources": ["a.md"]}', encoding="utf-8")
    done = started_with(str(packaged(tmp_path / "packages", code, **more)), tmp_path)("inspect", "cases.json")
    assert done.returncode == 0 and "rag" in done.stdout and "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_system_that_cannot_be_let_in_is_named(name: str, tmp_path: Path) -> None:
    done = inspected(tmp_path, LEFT_OUT[name])
    assert "the system 'bad' is left out: badpkg 0.1: " in done.stderr and "[system_failed]" in done.stderr


@pytest.mark.parametrize("name", FAILING)
def test_questions_to_all_files_cannot_break_the_files_of_others(name: str, tmp_path: Path) -> None:
    assert "badpkg 0.1: boom fails: ValueError: boom [system_failed]" in inspected(tmp_path, FAILING[name]).stderr


@pytest.mark.parametrize("content", [b"[evalloom.systems]\nbad = no module\n", b"[evalloom.systems]\nbad = \xff\xfe\n"])
def test_entry_points_that_cannot_be_read_stop_nothing(content: bytes, tmp_path: Path) -> None:
    done = inspected(tmp_path, "", entry_points=content)
    assert "[system_failed]" in done.stderr


def test_a_command_that_raises_is_told_as_a_bug_of_its_package(tmp_path: Path) -> None:
    folder = packaged(tmp_path / "packages", 'SYSTEM = system(commands=(Command("bad", "x", lambda: command),))')
    done = started_with(str(folder), tmp_path)("bad")
    assert (done.returncode, done.stdout) == (3, "")
    assert "this is a bug in the package badpkg 0.1: ValueError: boom" in done.stderr
