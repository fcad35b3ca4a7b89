"""`validate_eval_cases` as people run it: flags, every code on its line, the report, files and exit codes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
CASES = "data_processed/eval/eval_cases.jsonl"
REPORT = "data_processed/build_reports/eval_cases_validation"
FLAGS = (
    *("--root", "--cases", "--check-sources-exist", "--check-must-include-in-sources", "--out", "--md-out"),
    *("--skip-if-missing", "--strict-bucket", "--strict-pair-id", "--json"),
)
ALL_CHECKS = ("--check-sources-exist", "--check-must-include-in-sources")


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "evalloom.tools.validate_eval_cases", *arguments]
    done = subprocess.run(command, cwd=root, capture_output=True, encoding="utf-8")
    assert "Traceback" not in done.stderr and "internal_error" not in done.stderr
    return done


def check(root: Path, *arguments: str) -> dict[str, Any]:
    """The report on stdout; no file is written."""
    report: dict[str, Any] = json.loads(run(root, "--json", "--out", "", *arguments).stdout)
    return report


def line(**changes: Any) -> str:
    """A case with nothing to remark, but for the changes; `...` leaves a field out."""
    good = {"id": "x", "query": "限速多少？", "expected_sources": ["docs/a.md"], "must_include": ["5 公里"]}
    fields = {**good, "bucket": "ambiguous", **changes}
    return json.dumps({name: value for name, value in fields.items() if value is not ...}, ensure_ascii=False)


def write_cases(root: Path, *lines: str) -> None:
    (root / CASES).parent.mkdir(parents=True, exist_ok=True)
    (root / CASES).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with two sources and one pair of good cases."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text("叉车限速 5 公里/小时。", encoding="utf-8")
    (tmp_path / "docs/b.md").write_text("另一份文件", encoding="utf-8")
    (tmp_path / "docs/c.md").write_text("38 个工作日，3.8 个点，115 天", encoding="utf-8")
    pair = [line(id="1", bucket="official", pair_id="p"), line(id="2", bucket="oral", pair_id="p")]
    write_cases(tmp_path, *pair)
    return tmp_path


def found(report: dict[str, Any], kind: str) -> list[tuple[int | None, str]]:
    return sorted((entry["line"], entry["code"]) for entry in report[kind])


# RAG-1


@pytest.mark.req("RAG-1")
def test_help_names_every_flag_and_default(root: Path) -> None:
    done = run(root, "--help")
    text = "".join(done.stdout.split())
    assert done.returncode == 0 and [flag for flag in FLAGS if flag not in text] == []
    assert f"default:{CASES}]" in text and f"default:{REPORT}.json]" in text


@pytest.mark.req("RAG-1")
def test_defaults_need_no_flag(root: Path) -> None:
    done = run(root)
    assert done.returncode == 0 and done.stdout.endswith("PASS: 0 errors, 0 warnings in 2 cases of 1 file\n\n")
    assert (root / f"{REPORT}.json").is_file() and (root / f"{REPORT}.md").is_file()


@pytest.mark.req("RAG-1", "RAG-5")
def test_all_paths_are_relative_to_root(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (root / "my.jsonl").write_text(line(query=""), encoding="utf-8")
    flags = ("--cases", "my.jsonl", "--out", "r/out.json", "--md-out", "r/page.md", "--check-sources-exist")
    done = run(elsewhere, "--root", str(root), *flags)
    report = json.loads((root / "r/out.json").read_text(encoding="utf-8"))
    assert done.returncode == 2 and (root / "r/page.md").is_file() and not list(elsewhere.iterdir())
    assert [entry["loc"].rsplit(":", 2)[0] for entry in report["errors"]] == ["my.jsonl"]
    assert report["items"][0]["loc_uri"].startswith(f"vscode://file{root}/my.jsonl:1:")


@pytest.mark.req("RAG-1")
def test_the_script_of_a_checkout_gives_the_same_report(root: Path) -> None:
    # -S -E: a Python that has none of the libraries, so the script has to find those of the checkout.
    script = CHECKOUT / "tools/validate_eval_cases.py"
    command = [sys.executable, "-S", "-E", str(script), "--out", ""]
    done = subprocess.run(command, cwd=root, capture_output=True, encoding="utf-8")
    if not (CHECKOUT / ".venv/bin/python").exists():
        assert done.returncode == 3 and "Run ./scripts/setup" in done.stderr
    else:
        assert (done.returncode, done.stdout) == (0, run(root, "--out", "").stdout)


@pytest.mark.req("RAG-1")
def test_the_script_says_what_to_run_where_nothing_is_installed(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    shutil.copy(CHECKOUT / "tools/validate_eval_cases.py", tmp_path / "tools")
    (tmp_path / "src").symlink_to(CHECKOUT / "src")
    command = [sys.executable, "-S", "-E", "tools/validate_eval_cases.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.endswith("Run ./scripts/setup\n") and done.stderr.count("\n") == 1


@pytest.mark.req("RAG-1")
def test_json_on_stdout_is_the_report_file(root: Path) -> None:
    done = run(root, "--json")
    assert done.stdout == (root / f"{REPORT}.json").read_text(encoding="utf-8")


# RAG-2 and RAG-3: the line of the file, and the codes on it.

ERRORS = [
    ("{bad json}", ["json_parse_error"]),
    ('["a", "list"]', ["json_not_object"]),
    ("3", ["json_not_object"]),
    ("", []),
    ('{"bucket": "ambiguous"}', ["missing_field"] * 4),
    (line(query=..., id="e1"), ["missing_field"]),
    (line(id=" "), ["empty_id"]),
    (line(id=7), ["empty_id"]),
    (line(id=None), ["empty_id"]),
    (line(id="twice"), []),
    (line(id="twice"), ["duplicate_id"]),
    (line(id="e2", query=" 问 "), ["bad_query"]),
    (line(id="e3", query=12345), ["bad_query"]),
    (line(id="e4", query=None), ["bad_query"]),
    (line(id="e5", expected_sources="docs/a.md"), ["bad_expected_sources"]),
    (line(id="e6", expected_sources=[]), ["bad_expected_sources"]),
    (line(id="e7", expected_sources=["docs/a.md", 5, " "]), ["bad_expected_sources"] * 2),
    (line(id="e8", must_include="5 公里"), ["bad_must_include"]),
    (line(id="e9", must_include=[]), ["bad_must_include"]),
    (line(id="e10", must_include=["", "  "]), ["bad_must_include"]),
    (line(id="e11", must_include=["5 公里", 5, None]), ["bad_must_include"] * 2),
    (line(id="e12", bucket="offical"), ["invalid_bucket"]),
    (line(id="e13", bucket=["oral"]), ["invalid_bucket"]),
    (line(id="e14", bucket=""), ["invalid_bucket"]),
    (line(id="e15", pair_id=5), ["bad_pair_id"]),
    (line(id="e16", concept_id=False), ["bad_concept_id"]),
    (line(id="e17", expected_sources=["docs/none.md", "docs"]), ["expected_file_missing"] * 2),
    (line(id="e18", expected_sources=["docs/none/", "docs/a.md/"]), ["expected_dir_missing"] * 2),
    (line(id="e19", expected_sources=["../a.md", "/etc/passwd"]), ["source_outside_root"] * 2),
    (line(id="e20", expected_sources=["docs/../../a.md", "C:\\a.md"]), ["source_outside_root"] * 2),
    (line(id="e21", expected_sources=["..\\a.md", "\\a.md", "docs\\..\\..\\a.md"]), ["source_outside_root"] * 3),
]
LONGER = ["must_include_in_longer_number"]
WARNINGS = [
    ("// a comment", []),
    (line(id="w1", pair_id=None, concept_id=None), []),
    (line(id="w2", expected_sources=["docs/", "./docs/../docs/a.md"]), []),
    (line(id="w3", bucket=..., pair_id="p"), ["missing_bucket_default"]),
    (line(id="w4", bucket=None, pair_id="p"), ["missing_bucket_default"]),
    (line(id="w5", bucket="oral", pair_id="p"), []),
    (line(id="w6", bucket="oral"), ["missing_pair_id"]),
    (line(id="w7", bucket="official", pair_id=None), ["missing_pair_id"]),
    (line(id="w8", bucket=...), ["missing_bucket_default", "missing_pair_id"]),
    (line(id="w9", pair_id=" "), ["empty_pair_id"]),
    (line(id="w10", concept_id=""), ["empty_concept_id"]),
    (line(id="w11", must_include=["5 公里", "5 公里"]), ["must_include_duplicates"]),
    (line(id="w12", must_include=["公"]), ["must_include_too_short"]),
    (line(id="w13", must_include=["80 公里"]), ["must_include_not_in_expected_sources"]),
    (line(id="w14", must_include=["80 公里"], expected_sources=["docs/"]), []),
    (line(id="w15", expected_sources=["docs/b.md", "docs/a.md"]), []),
    (line(id="w16", bucket="oral", pair_id="alone"), ["unpaired_pair_id"]),
    (line(id="w17", bucket="official", pair_id="lonely"), ["unpaired_pair_id"]),
    (line(id="w18", must_include=["5 公里", "", " "]), ["blank_must_include_entry"] * 2),
    (line(id="w19", expected_sources=["docs\\a.md", "docs\\"]), ["path_separator"] * 2),
    (
        line(id="w20", must_include=["5 公里", "８ 个", "１５ 天"], expected_sources=["docs/c.md", "docs/a.md"]),
        LONGER * 2,
    ),
]


def expected(rows: list[tuple[str, list[str]]]) -> list[tuple[int, str]]:
    return sorted((number, code) for number, (_, codes) in enumerate(rows, 1) for code in codes)


@pytest.mark.req("RAG-2", "RAG-5")
def test_every_error_on_its_line(root: Path) -> None:
    write_cases(root, *(text for text, _ in ERRORS))
    done = run(root, *ALL_CHECKS)
    report = json.loads((root / f"{REPORT}.json").read_text(encoding="utf-8"))
    assert found(report, "errors") == expected(ERRORS)
    assert report["warnings"] == [] and report["overall"] == "FAIL" and done.returncode == 2


@pytest.mark.req("RAG-3")
def test_every_warning_on_its_line(root: Path) -> None:
    write_cases(root, *(text for text, _ in WARNINGS))
    report = check(root, *ALL_CHECKS)
    assert found(report, "warnings") == expected(WARNINGS)
    assert report["errors"] == [] and report["overall"] == "PASS"


@pytest.mark.req("RAG-2")
def test_outside_the_root_is_seen_without_any_check(root: Path) -> None:
    write_cases(root, line(expected_sources=["a/../../x.md", "docs/none.md"]))
    assert found(check(root), "errors") == [(1, "source_outside_root")]


@pytest.mark.req("RAG-2")
@pytest.mark.parametrize("flag", ALL_CHECKS)
def test_a_link_that_leads_out_or_in_a_circle(root: Path, flag: str) -> None:
    (root / "docs/out").symlink_to("/etc")
    (root / "docs/circle").symlink_to("circle")
    too_long = "x" * 300
    write_cases(
        root, line(id="1", expected_sources=["docs/out/passwd"]), line(expected_sources=["docs/circle", too_long])
    )
    codes = [code for _, code in found(check(root, flag), "errors")]
    assert codes[:1] == ["source_outside_root"]
    assert codes[1:] == (["expected_file_missing"] * 2 if flag == "--check-sources-exist" else [])


@pytest.mark.req("RAG-2")
@pytest.mark.parametrize(
    ("text", "code"), [("", "no_cases"), ("\n// nothing yet\n\n", "no_cases"), (None, "cases_missing")]
)
def test_a_file_without_a_case(root: Path, text: str | None, code: str) -> None:
    (root / CASES).unlink()
    if text is not None:
        (root / CASES).write_text(text)
    assert [entry["code"] for entry in check(root)["errors"]] == [code]
    assert run(root).returncode == 2


@pytest.mark.req("RAG-3")
def test_a_default_bucket_is_recorded(root: Path) -> None:
    write_cases(root, line(bucket=..., pair_id=" "))
    first, second = check(root)["warnings"]
    assert first["message"] == "bucket: missing; taken as 'official'"
    assert (first["field"], second["field"], first["case_id"]) == ("bucket", "pair_id", "x")


@pytest.mark.req("RAG-3")
@pytest.mark.parametrize(
    ("flag", "codes"),
    [
        ("--strict-bucket", [(1, "missing_bucket_default")]),
        ("--strict-pair-id", [(1, "missing_pair_id"), (2, "empty_pair_id")]),
    ],
)
def test_strict_flags_make_errors_of_their_warnings(root: Path, flag: str, codes: list[tuple[int, str]]) -> None:
    write_cases(root, line(bucket=...), line(id="2", pair_id=""))
    report = check(root, flag)
    assert found(report, "errors") == codes and len(report["warnings"]) == 3 - len(codes)
    assert report["overall"] == "FAIL" and report["summary"]["overall_rc"] == 2


@pytest.mark.req("RAG-3")
def test_sources_in_other_encodings_are_read_and_binary_ones_are_left_alone(root: Path) -> None:
    (root / "docs/gbk.txt").write_bytes("叉车在厂区内的限速是 5 公里每小时，请遵守。".encode("gb18030"))
    (root / "docs/utf16.txt").write_text("叉车限速 5 公里", encoding="utf-16")
    (root / "docs/scan.pdf").write_bytes(b"%PDF-1.7\n\x00\x01")
    names = ("docs/gbk.txt", "docs/utf16.txt", "docs/scan.pdf")
    write_cases(root, *(line(id=name, expected_sources=[name]) for name in names))
    assert check(root, "--check-must-include-in-sources")["warnings"] == []


# RAG-4

TEXT = {"type": "string", "minLength": 1}
LOCATION = {"type": "string", "pattern": r"^[^:\\]+:[1-9]\d*:[1-9]\d*$"}
NUMBER = {"type": "integer", "minimum": 0}


def shape(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


ENTRY = shape(
    code={"type": "string", "pattern": "^[a-z_]+$"},
    message=TEXT,
    loc=LOCATION,
    line={"type": ["integer", "null"], "minimum": 1},
    field={"type": ["string", "null"]},
    case_id={"type": ["string", "null"]},
)
ITEM = shape(
    tool={"const": "validate_eval_cases"},
    key=TEXT,
    title=TEXT,
    status_label={"enum": ["PASS", "INFO", "WARN", "FAIL", "ERROR"]},
    severity_level={"enum": [0, 1, 2, 3, 4]},
    message=TEXT,
    loc=LOCATION,
    loc_uri={"type": "string", "pattern": r"^vscode://file/[^\\]+:[1-9]\d*:[1-9]\d*$"},
    detail={"type": "object"},
)
V2 = shape(
    schema_version={"const": 2},
    generated_at={"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"},
    tool={"const": "validate_eval_cases"},
    root={"type": "string", "pattern": r"^/[^\\]*$"},
    overall={"enum": ["PASS", "FAIL"]},
    summary=shape(
        overall_status={"enum": ["PASS", "INFO", "WARN", "FAIL", "ERROR"]},
        overall_status_label={"enum": ["PASS", "INFO", "WARN", "FAIL", "ERROR"]},
        overall_rc={"enum": [0, 2, 3]},
        max_severity_level={"enum": [0, 1, 2, 3, 4]},
        counts=shape(PASS=NUMBER, INFO=NUMBER, WARN=NUMBER, FAIL=NUMBER, ERROR=NUMBER),
        total_items=NUMBER,
    ),
    counts=shape(lines=NUMBER, cases=NUMBER, errors=NUMBER, warnings=NUMBER),
    files={"type": "array"},
    errors={"type": "array", "items": ENTRY},
    warnings={"type": "array", "items": ENTRY},
    not_listed={"type": "object"},
    items={"type": "array", "items": ITEM},
)


@pytest.mark.req("RAG-4")
@pytest.mark.parametrize("rows", [ERRORS, WARNINGS, [(line(), [])], []], ids=["errors", "warnings", "good", "empty"])
def test_report_has_the_v2_shape(root: Path, rows: list[tuple[str, list[str]]]) -> None:
    write_cases(root, *(text for text, _ in rows))
    report = check(root, *ALL_CHECKS)
    jsonschema.Draft202012Validator(V2).validate(report)
    assert report["summary"]["total_items"] == len(report["items"]) >= 1
    assert report["counts"]["errors"] == len(report["errors"]) == report["summary"]["counts"]["FAIL"]


@pytest.mark.req("RAG-4")
@pytest.mark.parametrize(
    ("changes", "label", "level", "code"),
    [({}, "PASS", 0, 0), ({"concept_id": ""}, "WARN", 2, 0), ({"id": ""}, "FAIL", 3, 2)],
)
def test_summary_says_the_worst(root: Path, changes: dict[str, str], label: str, level: int, code: int) -> None:
    write_cases(root, line(**changes))
    report = check(root)
    summary = report["summary"]
    assert (summary["overall_status_label"], summary["max_severity_level"], summary["overall_rc"]) == (
        label,
        level,
        code,
    )
    assert report["overall"] == ("FAIL" if code else "PASS")
    assert report["counts"] == {"lines": 1, "cases": 1, "errors": int(level == 3), "warnings": int(level == 2)}


@pytest.mark.req("RAG-4")
def test_fields_of_an_entry_and_its_item(root: Path) -> None:
    write_cases(root, line(id="ok"), line(id="b7", bucket="offical"))
    report = check(root)
    (entry,), (item,) = report["errors"], report["items"]
    message = "bucket: expected official, oral or ambiguous, got 'offical'. Did you mean 'official'?"
    column = line(id="b7", bucket="offical").index('"offical"') + 1
    where = {"message": message, "loc": f"{CASES}:2:{column}"}
    assert entry == {"code": "invalid_bucket", **where, "line": 2, "field": "bucket", "case_id": "b7"}
    named = {"tool": "validate_eval_cases", "key": "invalid_bucket", "title": "invalid bucket"}
    detail = {"field": "bucket", "case_id": "b7"}
    uri = f"vscode://file{root}/{CASES}:2:{column}"
    assert item == {**named, "status_label": "FAIL", "severity_level": 3, **where, "loc_uri": uri, "detail": detail}


@pytest.mark.req("RAG-4")
def test_most_severe_first_in_files_and_last_on_the_console(root: Path) -> None:
    write_cases(root, line(id="1", concept_id=""), line(id="2", query=""), line(id="3", concept_id=""), line(id=""))
    shown = [text for text in run(root).stdout.splitlines() if text]
    items = json.loads((root / f"{REPORT}.json").read_text(encoding="utf-8"))["items"]
    page = (root / f"{REPORT}.md").read_text(encoding="utf-8")
    assert [item["severity_level"] for item in items] == [3, 3, 2, 2]
    assert [text.split(":")[1] for text in shown[:4]] == ["1", "3", "2", "4"]
    assert page.rindex("- [FAIL] (sev=3)") < page.index("- [WARN] (sev=2)")


def strings(value: Any) -> list[str]:
    if isinstance(value, dict | list):
        return [text for item in (value.values() if isinstance(value, dict) else value) for text in strings(item)]
    return [value] if isinstance(value, str) else []


@pytest.mark.req("RAG-4")
def test_no_backslash_in_the_root_or_in_any_string_of_an_item(root: Path) -> None:
    odd = root / "a\\b"
    odd.mkdir()
    (odd / "my\\cases.jsonl").write_text(line(id="c\\d", query="\\", bucket="o\\n", expected_sources=["x\\y.md"]))
    report = check(root, "--root", str(odd), "--cases", "my\\cases.jsonl", *ALL_CHECKS)
    codes = {item["key"] for item in report["items"]}
    assert codes == {"bad_query", "invalid_bucket", "expected_file_missing", "path_separator"}
    assert [text for text in strings([report["root"], report["items"]]) if "\\" in text] == []
    assert report["errors"][0]["case_id"] == "c\\d"


@pytest.mark.req("RAG-4")
def test_a_place_that_is_not_known_links_to_the_first_line(root: Path) -> None:
    (root / CASES).unlink()
    (item,) = check(root)["items"]
    assert (item["loc"], item["loc_uri"]) == (f"{CASES}:1:1", f"vscode://file{root}/{CASES}:1:1")


@pytest.mark.req("RAG-4")
def test_markdown_has_a_summary_then_every_item_with_its_link(root: Path) -> None:
    write_cases(root, line(id="1", concept_id=""), line(id="2", query=""))
    run(root)
    page = (root / f"{REPORT}.md").read_text(encoding="utf-8").splitlines()
    items = json.loads((root / f"{REPORT}.json").read_text(encoding="utf-8"))["items"]
    expected = []
    for item in items:
        expected.append(f"- [{item['status_label']}] (sev={item['severity_level']}) {item['title']}")
        expected.append(f"  - loc: [{item['loc']}]({item['loc_uri']})")
    details = page[page.index("## Details") :]
    assert page[0] == "## Summary" and [text for text in details if text.startswith(("- [", "  - loc: "))] == expected
    assert expected[0] == "- [FAIL] (sev=3) bad query" and expected[2] == "- [WARN] (sev=2) empty concept id"


@pytest.mark.req("RAG-4")
@pytest.mark.parametrize("rows", [ERRORS, WARNINGS, ERRORS + WARNINGS, [(line(), [])]])
def test_blank_lines_on_the_console(root: Path, rows: list[tuple[str, list[str]]]) -> None:
    write_cases(root, *(text for text, _ in rows))
    shown = run(root, "--out", "", *ALL_CHECKS).stdout
    assert shown.endswith("\n\n") and not shown.endswith("\n\n\n") and "\n\n\n\n" not in shown
    *found, summary = shown[:-2].replace("\n\n\n", "\n\n").split("\n\n")
    assert summary.splitlines()[-1].startswith(("PASS: ", "FAIL: ")) and not any("\n" in text for text in found)
    groups = [group.split("\n\n") for group in shown[:-2].split("\n\n\n")]
    kinds = [{": warning: " in text for text in group if text != summary} for group in groups]
    assert kinds in ([{True}, {False}], [{True}], [{False}], [set()])


# RAG-5


@pytest.mark.req("RAG-5")
@pytest.mark.parametrize(
    ("flags", "files"),
    [
        (["--out", "r/a.v1.json"], ["r/a.v1.json", "r/a.v1.md"]),
        (["--out", "a.json", "--md-out", "m/b.md"], ["a.json", "m/b.md"]),
        (["--out", ""], []),
        (["--out", "", "--md-out", "b.md"], ["b.md"]),
        (["--out", "plain"], ["plain", "plain.md"]),
    ],
)
def test_which_files_are_written(root: Path, flags: list[str], files: list[str]) -> None:
    before = set(root.rglob("*"))
    done = run(root, *flags)
    written = sorted(path.relative_to(root).as_posix() for path in set(root.rglob("*")) - before if path.is_file())
    assert done.returncode == 0 and written == files
    assert done.stderr == (f"report: {', '.join(files)}\n" if files else "")


@pytest.mark.req("RAG-5")
def test_a_report_replaces_the_one_before_and_leaves_nothing_beside_it(root: Path) -> None:
    run(root)
    first = (root / f"{REPORT}.json").stat()
    write_cases(root, line(id=""))
    run(root)
    report = root / f"{REPORT}.json"
    assert sorted(os.listdir(report.parent)) == ["eval_cases_validation.json", "eval_cases_validation.md"]
    # Atomic: the new report is another file that took the place of the old one.
    assert report.stat().st_ino != first.st_ino and json.loads(report.read_text(encoding="utf-8"))["overall"] == "FAIL"


@pytest.mark.req("RAG-5")
@pytest.mark.parametrize(
    "flags", [["--out", f"{CASES}/r.json"], ["--out", "docs"], ["--out", "."], ["--out", "/proc/r.json"]]
)
def test_what_cannot_be_written_is_exit_3(root: Path, flags: list[str]) -> None:
    before = sorted(root.rglob("*"))
    done = run(root, *flags)
    assert done.returncode == 3 and "[cannot_write]" in done.stderr and len(done.stderr.splitlines()) == 1
    assert sorted(root.rglob("*")) == before


@pytest.mark.req("RAG-5")
def test_without_a_root_the_tool_cannot_run(root: Path) -> None:
    done = run(root, "--root", "nowhere")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "validate_eval_cases: --root nowhere: there is no such folder [root_missing]\n"


@pytest.mark.parametrize("flags", [["--out", CASES], ["--out", "", "--md-out", f"./{CASES}"], ["--out", "report.md"]])
def test_a_report_takes_no_other_file_s_place(root: Path, flags: list[str]) -> None:
    before = (root / CASES).read_bytes()
    done = run(root, *flags)
    assert done.returncode == 2 and "[would_overwrite]" in done.stderr
    assert (root / CASES).read_bytes() == before and not (root / "report.md").exists()


@pytest.mark.req("RAG-5")
def test_skip_if_missing_is_a_warning(root: Path) -> None:
    (root / CASES).unlink()
    done = run(root, "--skip-if-missing")
    report = json.loads((root / f"{REPORT}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(V2).validate(report)
    (item,) = report["items"]
    assert (done.returncode, report["overall"], item["status_label"], item["key"]) == (
        0,
        "PASS",
        "WARN",
        "cases_missing",
    )
    assert run(root).returncode == 2


@pytest.mark.req("RAG-5")
def test_skip_if_missing_still_checks_cases_that_are_there(root: Path) -> None:
    write_cases(root, line(query=""))
    assert run(root, "--skip-if-missing").returncode == 2


@pytest.mark.req("RAG-5")
def test_report_on_stdout_everything_else_on_stderr(root: Path) -> None:
    write_cases(root, line(query=""))
    done = run(root)
    first, _, file, verdict, _ = done.stdout.split("\n", 4)
    assert first.startswith(f"{CASES}:1:") and first.endswith("[bad_query]")
    assert file.startswith(CASES) and verdict == "FAIL: 1 error, 0 warnings in 1 case of 1 file"
    assert done.stderr == f"report: {REPORT}.json, {REPORT}.md\n"


@pytest.mark.req("RAG-5")
def test_paths_in_the_report_use_slashes(root: Path) -> None:
    write_cases(root, line(expected_sources=["docs\\a.md"]))
    report = check(root, "--root", f"{root}/docs/..", *ALL_CHECKS)
    (entry,) = report["warnings"]
    assert entry["loc"].startswith(f"{CASES}:1:") and "\\" not in entry["loc"] and report["root"] == str(root)
    assert entry["message"] == "expected_sources[0]: a backslash is read as /; write 'docs/a.md'"


# RAG-6


@pytest.mark.req("RAG-6")
def test_each_code_lists_a_thousand_and_counts_all(root: Path) -> None:
    bad = [line(id=str(number), query="", concept_id="") for number in range(1500)]
    write_cases(root, *bad, line(id="last", bucket="x"))
    report = check(root)
    codes = [entry["code"] for entry in report["errors"]]
    assert codes.count("bad_query") == 1000 == len(report["warnings"]) and codes.count("invalid_bucket") == 1
    assert [entry["line"] for entry in report["errors"][:1000]] == list(range(1, 1001))
    assert report["counts"] == {"lines": 1501, "cases": 1501, "errors": 1501, "warnings": 1500}
    assert report["summary"]["counts"]["FAIL"] == 1501
    assert report["not_listed"] == {"bad_query": 500, "empty_concept_id": 500}


COUNT_OPENS = """
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
from evalloom.tools.validate_eval_cases import main
try:
    main()
finally:
    for name in ("a.md", "b.md"):
        print(name, sum(path.endswith("/" + name) for path in opened), file=sys.stderr)
"""


@pytest.mark.req("RAG-6")
def test_every_source_is_read_once(root: Path) -> None:
    names = ("docs/a.md", "./docs/a.md", "docs/../docs/a.md", "docs//a.md")
    write_cases(root, *(line(id=str(n), expected_sources=[names[n % 4], "docs/b.md"]) for n in range(200)))
    command = [sys.executable, "-c", COUNT_OPENS, "--out", "", *ALL_CHECKS]
    done = subprocess.run(command, cwd=root, capture_output=True, encoding="utf-8")
    assert done.returncode == 0 and done.stderr.splitlines() == ["a.md 1", "b.md 1"]


PEAK = """
import resource, sys
from evalloom.tools.validate_eval_cases import main
try:
    main()
finally:
    whole = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(max(whole) // 1024, file=sys.stderr)
"""


@pytest.mark.slow
@pytest.mark.req("RAG-6")
def test_memory_does_not_grow_with_the_file(root: Path) -> None:
    peaks = []
    for megabytes in (10, 60):
        with (root / "big.jsonl").open("w", encoding="utf-8") as stream:
            for number in range(megabytes * 1000):
                stream.write(line(id=str(number), note="长" * 300, concept_id="") + "\n")
        command = [sys.executable, "-c", PEAK, "--out", "", "--cases", "big.jsonl"]
        done = subprocess.run(command, cwd=root, capture_output=True, encoding="utf-8")
        peaks.append(int(done.stderr))
    assert peaks[1] - peaks[0] < 30, peaks
