"""`evalloom validate` as people run it: flags, folders, stdin, reports, exit codes, and the terminal."""

import json
import os
import re
import shutil
import subprocess
import unicodedata
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from evalloom.catalog import load
from evalloom.cli.validate import command
from evalloom.engine.packages import VALIDATE_FLAGS
from evalloom.reports import LINT_REPORTERS

Evalloom = Callable[..., subprocess.CompletedProcess[str]]

SUFFIXES = ", ".join(reporter.suffix for reporter in LINT_REPORTERS)
GOOD = '{"id": "a", "query": "限速多少？", "expected_sources": ["docs/a.md"], "must_include": ["5 公里"], "bucket": "ambiguous"}\n'
WARNED = GOOD.replace('"ambiguous"', '"ambiguous", "concept_id": ""')
BAD = GOOD.replace("ambiguous", "ambigous")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.jsonl").write_text(GOOD, encoding="utf-8")
    (tmp_path / "warned.jsonl").write_text(WARNED, encoding="utf-8")
    (tmp_path / "bad.jsonl").write_text(BAD, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code", "verdict"),
    [
        (["good.jsonl"], 0, "PASS: 0 errors, 0 warnings in 1 case of 1 file"),
        (["warned.jsonl"], 0, "PASS: 0 errors, 1 warning in 1 case of 1 file"),
        (["--strict", "warned.jsonl"], 2, "FAIL: 0 errors, 1 warning in 1 case of 1 file (--strict: warnings fail)"),
        (["bad.jsonl", "good.jsonl"], 2, "FAIL: 1 error, 0 warnings in 2 cases of 2 files"),
        (["missing.jsonl"], 2, "FAIL: 1 error, 0 warnings in 0 cases of 1 file"),
    ],
)
def test_exit_code_and_verdict(evalloom: Evalloom, arguments: list[str], code: int, verdict: str) -> None:
    done = evalloom("validate", *arguments)
    assert (done.returncode, done.stderr, done.stdout.splitlines()[-1]) == (code, "", verdict)


def test_text_has_place_message_and_code(evalloom: Evalloom) -> None:
    first, second, _ = evalloom("validate", "bad.jsonl").stdout.splitlines()
    column = BAD.index('"ambigous"') + 1
    message = "bucket: expected official, oral or ambiguous, got 'ambigous'. Did you mean 'ambiguous'?"
    assert first == f"bad.jsonl:1:{column}: {message} [invalid_bucket]"
    assert second == "bad.jsonl: rag (it has 'query' and 'expected_sources'), 1 case, 1 error, 0 warnings"


@pytest.mark.parametrize(
    ("name", "start"),
    [("text", "bad.jsonl:1:"), ("json", "{"), ("markdown", "## Summary"), ("sarif", "{"), ("github", "::error ")],
)
def test_formats_on_stdout(evalloom: Evalloom, name: str, start: str) -> None:
    done = evalloom("validate", "bad.jsonl", "--format", name)
    assert done.returncode == 2 and done.stdout.startswith(start) and "invalid_bucket" in done.stdout


@pytest.mark.req("RAG-4")
def test_json_is_the_one_shape_for_every_dialect(evalloom: Evalloom, folder: Path) -> None:
    (folder / "hop.jsonl").write_text('{"id": 1, "tag": "", "text": "x", "expected_output": "y"}\n')
    done = evalloom("validate", "bad.jsonl", "hop.jsonl", "--json")
    report = json.loads(done.stdout)
    assert report["schema_version"] == 2 and report["tool"] == "evalloom validate"
    assert [entry["dialect"] for entry in report["files"]] == ["rag", "hop"]
    assert {tuple(entry) for entry in report["errors"]} == {("code", "message", "loc", "line", "field", "case_id")}
    assert report["generated_at"].endswith("Z") and evalloom("validate", "bad.jsonl", "--format", "xml").returncode == 2


def test_several_reports_by_extension(evalloom: Evalloom, folder: Path) -> None:
    names = ("r.json", "r.md", "r.sarif", "r.txt", "new/r.github")
    done = evalloom("validate", "bad.jsonl", *(word for name in names for word in ("-o", name)))
    assert done.returncode == 2 and done.stdout.startswith("bad.jsonl:1:")
    assert json.loads((folder / "r.json").read_text(encoding="utf-8"))["overall"] == "FAIL"
    assert json.loads((folder / "r.sarif").read_text(encoding="utf-8"))["version"] == "2.1.0"
    starts = [(folder / name).read_text(encoding="utf-8")[:9] for name in ("r.md", "r.txt", "new/r.github")]
    assert starts == ["## Summar"[:9], "bad.jsonl", "::error f"]


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (
            ["-o", "r.docx"],
            2,
            f"-o r.docx: expected a file name ending in {SUFFIXES} [unknown_format]",
        ),
        (["--dialect", "ragg"], 2, "got 'ragg'. Did you mean 'rag'? [unknown_dialect]"),
        (["--map", "query"], 2, "--map: expected new_name=name_in_file, got 'query' [bad_map]"),
        (["--root", "nowhere"], 3, "--root nowhere: there is no such folder [root_missing]"),
        (["--pipeline", "nowhere.yaml"], 2, "[pipeline_missing]"),
        (["--contract", "nowhere.md"], 2, "[contract_unreadable]"),
        (["-o", "good.jsonl/r.json"], 3, "[cannot_write]"),
    ],
)
def test_what_stops_it_is_one_line(evalloom: Evalloom, flags: list[str], code: int, message: str) -> None:
    done = evalloom("validate", "good.jsonl", *flags)
    assert done.returncode == code
    assert bool(done.stdout) == (
        code == 3 and "-o" in flags
    )  # the findings are shown even when a report cannot be written
    assert (
        done.stderr.startswith("evalloom: ") and done.stderr.endswith(f"{message}\n") and done.stderr.count("\n") == 1
    )


def test_a_report_does_not_replace_its_data(evalloom: Evalloom, folder: Path) -> None:
    (folder / "cases.json").write_text(f"[{GOOD}]", encoding="utf-8")
    done = evalloom("validate", "cases.json", "-o", "./cases.json")
    assert done.returncode == 2 and "[would_overwrite]" in done.stderr
    assert (folder / "cases.json").read_text(encoding="utf-8") == f"[{GOOD}]"


def test_a_folder_is_looked_through(evalloom: Evalloom, folder: Path) -> None:
    for name in ("suite/.hidden", "suite/node_modules", "suite/deep"):
        (folder / name).mkdir(parents=True)
        (folder / name / "a.jsonl").write_text(BAD if name != "suite/deep" else GOOD, encoding="utf-8")
    (folder / "suite/notes.txt").write_text("not data")
    (folder / "suite/config.yaml").write_text("model: x\nsettings:\n  depth: 3\n")
    report = json.loads(evalloom("validate", "suite", "--json").stdout)
    assert [entry["file"] for entry in report["files"]] == ["suite/config.yaml", "suite/deep/a.jsonl"]
    assert [(item["key"], item["status_label"]) for item in report["items"]] == [
        ("not_a_dataset", "INFO"),
        ("passed", "PASS"),
    ]


def test_a_file_that_was_named_has_to_hold_cases(evalloom: Evalloom, folder: Path) -> None:
    (folder / "config.yaml").write_text("model: x\nsettings:\n  depth: 3\n")
    done = evalloom("validate", "config.yaml")
    assert done.returncode == 2 and "[not_a_dataset]" in done.stdout


def test_earlier_reports_in_a_folder_are_no_data(evalloom: Evalloom, folder: Path) -> None:
    (folder / "suite").mkdir()
    shutil.move(folder / "bad.jsonl", folder / "suite/a.jsonl")
    first = evalloom("validate", "suite", "-o", "suite/report.json")
    assert evalloom("validate", "suite", "-o", "suite/report.json").stdout == first.stdout
    assert first.stdout.endswith("1 case of 1 file\n")


def test_a_folder_without_data_says_so(evalloom: Evalloom, folder: Path) -> None:
    (folder / "empty").mkdir()
    done = evalloom("validate", "empty")
    assert done.returncode == 2 and done.stderr.endswith("found none [no_files]\n")


def test_stdin(evalloom: Evalloom) -> None:
    done = evalloom("validate", "-", stdin=GOOD + BAD.replace('"a"', '"b"'))
    assert done.returncode == 2 and done.stdout.startswith("<stdin>:2:")
    assert json.loads(evalloom("validate", "-", "--json", stdin=BAD).stdout)["items"][0].get("loc_uri") is None


def test_without_a_path_the_datasets_of_evalloom_yaml(evalloom: Evalloom, folder: Path) -> None:
    assert evalloom("validate").stderr.endswith("[no_paths]\n")
    (folder / "evalloom.yaml").write_text("datasets: [good.jsonl, warned.jsonl]\n")
    assert evalloom("validate").stdout.endswith("in 2 cases of 2 files\n")
    (folder / "evalloom.yaml").write_text("datasets: 5\n")
    done = evalloom("validate")
    assert done.returncode == 2 and "evalloom.yaml:1:11: datasets: expected a list" in done.stderr


def test_map_also_with_dotted_names(evalloom: Evalloom, folder: Path) -> None:
    record = {
        "id": "a",
        "ask": {"text": "限速多少？"},
        "docs": ["a.md", ""],
        "must_include": ["5 公里"],
        "bucket": "oral",
        "pair_id": "p",
    }
    (folder / "mine.jsonl").write_text(json.dumps(record), encoding="utf-8")
    report = json.loads(
        evalloom("validate", "mine.jsonl", "--json", "--map", "query=ask.text,expected_sources=docs").stdout
    )
    (error,) = report["errors"]
    column = json.dumps(record).index('""') + 1
    assert (error["code"], error["loc"]) == ("bad_expected_sources", f"mine.jsonl:1:{column}")


def test_map_of_a_field_that_is_nowhere(evalloom: Evalloom) -> None:
    done = evalloom("validate", "good.jsonl", "--map", "query=qurey")
    assert done.returncode == 2
    assert "--map query=qurey: no record has 'qurey'. Did you mean 'query'? [map_unknown_field]" in done.stdout


def test_a_mapping_is_proposed_and_works(evalloom: Evalloom, folder: Path) -> None:
    renamed = GOOD.replace("query", "question").replace("expected_sources", "docs").replace("must_include", "keywords")
    (folder / "mine.jsonl").write_text(renamed, encoding="utf-8")
    proposed = re.search(r"Try (--dialect rag --map \S+)", evalloom("validate", "mine.jsonl").stdout)
    assert proposed is not None
    assert evalloom("validate", "mine.jsonl", *proposed[1].split()).returncode == 0


def test_encoding(evalloom: Evalloom, folder: Path) -> None:
    (folder / "gb.jsonl").write_text(BAD, encoding="gb18030")
    refused = evalloom("validate", "gb.jsonl")
    assert refused.returncode == 2 and "Add --encoding gb18030" in refused.stdout
    assert "[invalid_bucket]" in evalloom("validate", "gb.jsonl", "--encoding", "gb18030").stdout
    assert "[unknown_encoding]" in evalloom("validate", "gb.jsonl", "--encoding", "klingon").stdout


def test_pipeline_tells_the_steps(evalloom: Evalloom, folder: Path) -> None:
    (folder / "pipeline.yaml").write_text("id: p\nsteps:\n  - {id: clean, prompt: x}\n")
    record = {"id": "a", "inputs": {"x": 1}, "step_inputs": {"claen": {"y": 2}}, "expected_outputs": {"output": "z"}}
    (folder / "set_basic_v1.jsonl").write_text(json.dumps(record))
    done = evalloom("validate", "set_basic_v1.jsonl", "--pipeline", "pipeline.yaml")
    assert "claen" in done.stdout and "PASS: 0 errors, 1 warning" in done.stdout
    assert "claen" not in evalloom("validate", "set_basic_v1.jsonl").stdout


def test_contract_tells_the_types(evalloom: Evalloom, folder: Path) -> None:
    (folder / "target.py").write_text("def check(text: str) -> bool: ...\n")
    (folder / "hop.jsonl").write_text('{"id": 1, "tag": "t", "text": 5}\n')
    done = evalloom("validate", "hop.jsonl", "--contract", "target.py:check")
    assert done.returncode == 2 and "hop.jsonl:1:" in done.stdout
    assert evalloom("validate", "hop.jsonl").returncode == 0


def test_sources_are_under_root_and_files_under_the_working_folder(evalloom: Evalloom, folder: Path) -> None:
    (folder / "kb/docs").mkdir(parents=True)
    (folder / "kb/docs/a.md").write_text("80 公里", encoding="utf-8")
    checks = ("--root", "kb", "--check-sources-exist", "--check-must-include-in-sources", "--json")
    report = json.loads(evalloom("validate", "good.jsonl", *checks).stdout)
    assert [entry["code"] for entry in report["warnings"]] == ["must_include_not_in_expected_sources"]
    assert report["errors"] == [] and report["items"][0]["loc_uri"] == f"vscode://file{folder}/good.jsonl:1:83"


def test_a_name_that_is_not_utf8(evalloom: Evalloom, folder: Path) -> None:
    (folder / "n").mkdir()
    try:
        Path(os.fsdecode(os.fsencode(folder / "n") + b"/\xff.jsonl")).write_text(BAD, encoding="utf-8")
    except OSError:
        return  # this file system has no such names
    outputs = ("-o", "r.json", "-o", "r.sarif", "-o", "r.md", "-o", "r.txt", "-o", "r.github")
    assert evalloom("validate", "n", *outputs).returncode == 2
    assert json.loads((folder / "r.json").read_text(encoding="utf-8"))["errors"][0]["loc"].startswith(
        "n/\udcff.jsonl:1:"
    )


# On a terminal.

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def cells(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def under_the_caret(shown: str) -> str:
    """What stands above the first caret, to the end of its line."""
    lines = COLOUR.sub("", shown).splitlines()
    at = next(number for number, line in enumerate(lines) if line.strip() == "^")
    column = lines[at].index("^")
    return next(lines[at - 1][n:] for n in range(len(lines[at - 1])) if cells(lines[at - 1][:n]) == column)


def test_terminal_shows_colour_and_the_line(on_terminal: Callable[..., str]) -> None:
    shown = on_terminal("validate", "bad.jsonl")
    assert "\x1b[31m\x1b[1merror\x1b[0m" in shown and under_the_caret(shown).startswith('"ambigous"')


@pytest.mark.parametrize("wide", ["", "多", "多" * 15, "多" * 60, "ﾃ🚚é" * 20])
@pytest.mark.parametrize("after", ["", "后" * 100])
def test_the_caret_stands_under_wide_characters(
    on_terminal: Callable[..., str], folder: Path, wide: str, after: str
) -> None:
    record = {
        "id": f"x{wide}",
        "query": 5,
        "expected_sources": ["a.md"],
        "must_include": ["ab"],
        "bucket": "ambiguous",
        "note": after,
    }
    (folder / "wide.jsonl").write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")
    shown = on_terminal("validate", "wide.jsonl")
    assert under_the_caret(shown).startswith("5, ")
    lines = COLOUR.sub("", shown).splitlines()
    assert all(cells(line) <= 80 for line in lines if line.startswith("    "))


def test_nothing_in_the_data_drives_the_terminal(on_terminal: Callable[..., str], folder: Path) -> None:
    (folder / "evil.jsonl").write_text(BAD.replace("ambigous", "\x7f\u202e\u009b31m[bold red]"), encoding="utf-8")
    shown = COLOUR.sub("", on_terminal("validate", "evil.jsonl"))
    assert not set("\x1b\x7f\u202e\u009b") & set(shown) and "[bold red]" in shown


def test_other_formats_are_the_same_on_a_terminal(on_terminal: Callable[..., str]) -> None:
    shown = on_terminal("validate", "bad.jsonl", "--format", "json")
    assert json.loads(shown)["overall"] == "FAIL"


def test_no_system_may_take_a_flag_of_validate() -> None:
    options = (option for option in command.params if isinstance(option, click.Option))
    own = {name for option in options for name in option.opts if name.startswith("--")}
    assert own - {flag.name for flag in load().rule_flags} == VALIDATE_FLAGS - {"--help"}


@pytest.mark.req("WORK-1", "WORK-2")
def test_a_dataset_that_expects_nothing_is_told_beforehand(evalloom: Evalloom, folder: Path) -> None:
    (folder / "free_v1.jsonl").write_text('{"id": "a", "question": "x"}\n' * 1, encoding="utf-8")
    done = evalloom("validate", "free_v1.jsonl")
    assert done.returncode == 0 and "info: nothing is expected of any case: 'evalloom run' will end" in done.stdout
    assert "[nothing_expected]" not in evalloom("validate", "good.jsonl").stdout
    (folder / "evalloom.yaml").write_text("checks: [{contains: x}]\n", encoding="utf-8")
    assert "[nothing_expected]" not in evalloom("validate", "free_v1.jsonl").stdout
