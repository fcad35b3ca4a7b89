"""`evalloom convert` as people run it: there and back, what is lost, files and exit codes."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Evalloom = Callable[..., subprocess.CompletedProcess[str]]

FIXTURES = Path(__file__).parent.parent / "fixtures"
OWN_FILES = {
    "hop": "hop.jsonl",
    "pipeline": "pipeline_basic_v2.jsonl",
    "prompt-eval": "prompt_eval.json",
    "replay": "replay.jsonl",
    "rag": "rag.jsonl",
}
NEIGHBOURS = list(zip(OWN_FILES, [*list(OWN_FILES)[1:], "hop"], strict=True))


def records(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    return list(json.loads(text)) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("dialect", OWN_FILES)
def test_to_its_own_format_keeps_every_field_and_is_idempotent(
    evalloom: Evalloom, dialect: str, tmp_path: Path
) -> None:
    source = FIXTURES / OWN_FILES[dialect]
    first = evalloom("convert", str(source), "--to", dialect, "-o", f"1{source.suffix}")
    second = evalloom("convert", f"1{source.suffix}", "--to", dialect, "-o", f"2{source.suffix}")
    assert first.returncode == second.returncode == 0 and "not carried over" not in first.stderr
    assert records(tmp_path / f"1{source.suffix}") == records(source)
    assert (tmp_path / f"1{source.suffix}").read_bytes() == (tmp_path / f"2{source.suffix}").read_bytes()


@pytest.mark.parametrize(("one", "two"), NEIGHBOURS)
def test_there_and_back_loses_nothing_in_silence(evalloom: Evalloom, one: str, two: str, tmp_path: Path) -> None:
    source = FIXTURES / OWN_FILES[one]
    there = evalloom("convert", str(source), "--to", two, "-o", "there.jsonl")
    back = evalloom("convert", "there.jsonl", "--to", one, "--dialect", two, "-o", "back.jsonl")
    assert there.returncode == back.returncode == 0
    before, after = records(source), records(tmp_path / "back.jsonl")
    told = there.stderr + back.stderr
    lost = {name for was, now in zip(before, after, strict=True) for name in was if f'"{name}"' not in json.dumps(now)}
    # Either a field is there again, or something was said.
    assert not lost or "not carried over" in told, lost


def test_what_is_lost_is_listed_on_stderr(evalloom: Evalloom, tmp_path: Path) -> None:
    done = evalloom("convert", str(FIXTURES / "rag.jsonl"), "--to", "hop")
    cases = len(records(FIXTURES / "rag.jsonl"))
    assert done.returncode == 0 and len(done.stdout.splitlines()) == cases
    assert f"not carried over: check: source_hit on sources has no place ({cases} cases)" in done.stderr
    assert done.stderr.endswith(f"rag → hop: {cases} cases written\n")


def test_array_or_lines_by_the_name_of_the_output(evalloom: Evalloom, tmp_path: Path) -> None:
    source = str(FIXTURES / "rag.jsonl")
    evalloom("convert", source, "--to", "rag", "-o", "a.json")
    evalloom("convert", source, "--to", "rag", "-o", "a.jsonl")
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == records(tmp_path / "a.jsonl")
    assert evalloom("convert", source, "--to", "prompt-eval").stdout.startswith("[\n")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--to", "rga"], "'rga' is not one of"),
        (["--to", "promptfoo"], "'promptfoo' is not one of"),
        (["--to", "rag", "-o", "x.csv"], "-o x.csv: expected a file name ending in .jsonl or .json [unknown_format]"),
        (["--to", "rag", "--dialect", "ragg"], "Did you mean 'rag'? [unknown_dialect]"),
        (["--to", "rag", "--map", "="], "[bad_map]"),
        ([], "Missing option '--to'"),
    ],
)
def test_wrong_usage(evalloom: Evalloom, flags: list[str], message: str) -> None:
    done = evalloom("convert", str(FIXTURES / "rag.jsonl"), *flags)
    assert (done.returncode, done.stdout) == (2, "") and message in done.stderr


def test_broken_records_are_told_and_the_rest_is_written(evalloom: Evalloom, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(
        '{"_id": 1, "_expected": {"equals": 1}}\n{bad}\n[1]\n{"_id": 2, "_expected": {"equals": 2}}\n'
    )
    done = evalloom("convert", "in.jsonl", "--to", "replay", "-o", "out.jsonl")
    assert done.returncode == 2 and [record["_id"] for record in records(tmp_path / "out.jsonl")] == [1, 2]
    assert "in.jsonl:2:" in done.stderr and "in.jsonl:3:1: " in done.stderr


def test_many_broken_records_are_counted(evalloom: Evalloom, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"_expected": {"equals": 1}}\n' + "[1]\n" * 1500)
    done = evalloom("convert", "in.jsonl", "--to", "replay")
    assert done.returncode == 2 and done.stderr.count("expected an object, got a list") == 1000
    assert "… and 500 more findings\n" in done.stderr


@pytest.mark.parametrize("source", ["missing.jsonl", "empty.jsonl", "."])
def test_without_a_case_the_output_is_left_as_it_was(evalloom: Evalloom, source: str, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "out.jsonl").write_text("precious")
    done = evalloom("convert", source, "--to", "rag", "-o", "out.jsonl", "--force")
    assert done.returncode == 2 and done.stderr.endswith("0 cases written, so out.jsonl is left as it was\n")
    assert (tmp_path / "out.jsonl").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.jsonl", "out.jsonl"]


def test_a_conversion_does_not_replace_what_it_reads(evalloom: Evalloom, tmp_path: Path) -> None:
    text = '{"id": "1", "text": "x", "expected_output": "y"}\n'
    (tmp_path / "a.jsonl").write_text(text)
    done = evalloom("convert", "a.jsonl", "--to", "pipeline", "-o", "./a.jsonl")
    assert done.returncode == 2 and "[would_overwrite]" in done.stderr
    assert (tmp_path / "a.jsonl").read_text() == text


def test_stdin_map_and_encoding(evalloom: Evalloom, tmp_path: Path) -> None:
    record = {"id": "1", "question": "限速是多少？", "docs": ["a.md"], "keywords": ["5 公里"]}
    text = json.dumps(record, ensure_ascii=False)
    (tmp_path / "gb.jsonl").write_text(text, encoding="gb18030")
    flags = ("--dialect", "rag", "--map", "query=question,expected_sources=docs,must_include=keywords", "--to", "rag")
    done = evalloom("convert", "-", *flags, stdin=text)
    assert json.loads(done.stdout) == {
        "id": "1",
        "query": "限速是多少？",
        "expected_sources": ["a.md"],
        "must_include": ["5 公里"],
    }
    assert evalloom("convert", "gb.jsonl", *flags, "--encoding", "gb18030").stdout == done.stdout


def test_an_unwritable_output_is_exit_3(evalloom: Evalloom, tmp_path: Path) -> None:
    done = evalloom("convert", str(FIXTURES / "rag.jsonl"), "--to", "rag", "-o", "/proc/out.jsonl")
    assert done.returncode == 3 and done.stderr.endswith("[cannot_write]\n")
