"""`evalloom inspect` as people run it: what is in a file, for eyes and as JSON."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Evalloom = Callable[..., subprocess.CompletedProcess[str]]

FIXTURES = Path(__file__).parent.parent / "fixtures"


def test_text_tells_dialect_cases_tags_fields_sizes_and_a_sample(evalloom: Evalloom) -> None:
    done = evalloom("inspect", str(FIXTURES / "rag.jsonl"))
    told = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert (done.returncode, done.stderr) == (0, "")
    assert list(told)[:8] == ["file", "dialect", "records", "sizes", "checks", "tags", "problems", "fields"]
    assert told["dialect"] == "dialect   rag (it has 'query' and 'expected_sources')"
    assert "3 in 3 lines, 3 cases" in told["records"] and told["sample"].startswith('sample    {"id":')
    assert "query" in told and "must_include" in told


@pytest.mark.parametrize(
    "path", sorted(path for path in FIXTURES.iterdir() if path.is_file()), ids=lambda path: path.name
)
def test_json_for_every_dialect(evalloom: Evalloom, path: Path) -> None:
    done = evalloom("inspect", str(path), "--json")
    contents = json.loads(done.stdout)
    assert done.returncode == 0 and contents["problems"] == 0 and contents["first_problem"] == ""
    assert contents["records"] >= contents["cases"] > 0 and contents["sample"] and contents["fields"]
    sizes = contents["record_bytes"]
    assert 0 < sizes["smallest"] <= sizes["mean"] <= sizes["largest"]


def test_fields_are_counted_with_their_types(evalloom: Evalloom, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"_expected": {}, "x": 1}\n{"_expected": {}, "x": "two"}\n{"_expected": {}}\n')
    fields = {field["name"]: field for field in json.loads(evalloom("inspect", "a.jsonl", "--json").stdout)["fields"]}
    assert fields["x"] == {"name": "x", "count": 2, "types": {"an integer": 1, "a string": 1}, "example": 1}
    assert "  x          integer or string in 2 of 3, e.g. 1\n" in evalloom("inspect", "a.jsonl").stdout


def test_problems_are_counted_and_the_first_is_shown(evalloom: Evalloom, tmp_path: Path) -> None:
    good = (FIXTURES / "rag.jsonl").read_text(encoding="utf-8")
    (tmp_path / "a.jsonl").write_text(good + '{bad\n{"id": "z", "query": 5}\n', encoding="utf-8")
    done = evalloom("inspect", "a.jsonl")
    (told,) = [line for line in done.stdout.splitlines() if line.startswith("problems")]
    assert (
        done.returncode == 0
        and told.startswith("problems  2, the first: a.jsonl:4:")
        and told.endswith("[json_parse_error]")
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("missing.jsonl", "[cases_missing]"),
        ("empty.jsonl", "empty.jsonl: has no record in it"),
        (".", "[is_directory]"),
    ],
)
def test_nothing_to_inspect_is_one_line_and_exit_2(
    evalloom: Evalloom, tmp_path: Path, source: str, message: str
) -> None:
    (tmp_path / "empty.jsonl").touch()
    done = evalloom("inspect", source)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.endswith(f"{message}\n")
    assert json.loads(evalloom("inspect", source, "--json").stdout)["records"] == 0


def test_names_cannot_drive_the_terminal(evalloom: Evalloom, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"_expected": {}, "a\\nb\\u001b[31m": "\\u202e"}\n')
    shown = evalloom("inspect", "a.jsonl").stdout
    assert r"a\nb\x1b[31m" in shown and not set("\x1b\u202e") & set(shown)


def test_dialect_map_and_stdin(evalloom: Evalloom) -> None:
    text = '{"id": "1", "question": "ab?", "docs": ["a"]}'
    done = evalloom(
        "inspect", "-", "--dialect", "rag", "--map", "query=question,expected_sources=docs", "--json", stdin=text
    )
    contents = json.loads(done.stdout)
    assert (contents["file"], contents["dialect"], contents["reason"]) == ("<stdin>", "rag", "as requested")
    assert [field["name"] for field in contents["fields"]] == ["id", "query", "expected_sources"]
    assert "Did you mean 'rag'?" in evalloom("inspect", "-", "--dialect", "ragg", stdin=text).stderr


def test_a_test_that_names_a_file_is_shown_as_written(evalloom: Evalloom, tmp_path: Path) -> None:
    test = {"vars": {"q": "a"}, "assert": [{"type": "equals", "value": "file://expected.txt"}]}
    (tmp_path / "promptfooconfig.json").write_text(json.dumps({"prompts": ["{{q}}"], "tests": [test]}))
    (tmp_path / "expected.txt").write_text("a")
    contents = json.loads(evalloom("inspect", "promptfooconfig.json", "--json").stdout)
    assert contents["sample"] == test
    assert [field["name"] for field in contents["fields"]] == ["vars", "assert"]
