"""The files that pages may show: everything else is refused, whatever its name."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from evalloom.catalog import load
from evalloom.files.source import Source
from evalloom.pages.errors import RequestError
from evalloom.pages.file_lines import count_lines, read_page
from evalloom.pages.file_reports import FileReports
from evalloom.pages.files import Files
from evalloom.settings import Settings

pytestmark = pytest.mark.req("WORK-20")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A project with a file that is to be shown, and many that are not."""
    home = tmp_path / "home"
    for name in ("cases.jsonl", ".env", ".evalloom/x.jsonl", "node_modules/a.json", "venv/lib/b.json", "sub/c.csv"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("{}")
    (home / "venv/pyvenv.cfg").write_text("")
    (tmp_path / "secret.jsonl").write_text("{}")
    (home / "out.jsonl").symlink_to(tmp_path / "secret.jsonl")
    (home / "env.jsonl").symlink_to(home / ".env")
    (home / "loop.jsonl").symlink_to(home / "loop.jsonl")
    (home / "up").symlink_to(tmp_path)
    os.mkfifo(home / "pipe.jsonl")
    return home


@pytest.mark.req("WORK-24")
@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../secret.jsonl", "sub/../../secret.jsonl", "sub/../cases.jsonl", "/etc/passwd", "//etc"),
        *("out.jsonl", "env.jsonl", "loop.jsonl", "up/secret.jsonl", "pipe.jsonl", ".env", ".evalloom/x.jsonl"),
        *("cases.jsonl\0", "a" * 300, "a/" * 5000, "cases.jsonl/x", "sub\\c.csv", "C:\\x", "node_modules/a.json"),
        *("missing.jsonl", "\udcff.jsonl", "sub//c.csv", "./cases.jsonl", "sub/", "%2e%2e/secret.jsonl"),
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(home: Path, name: str) -> None:
    with pytest.raises(RequestError) as raised:
        Files(home).path(name)
    assert raised.value.code == "file_not_found"


def test_a_dataset_is_found_as_a_command_in_a_folder_above_named_it(tmp_path: Path) -> None:
    home = tmp_path / "demo"
    (home / "data").mkdir(parents=True)
    (home / "data/cases.jsonl").touch()
    (tmp_path / "cases.jsonl").touch()
    files = Files(home)
    for name in ("data/cases.jsonl", "demo/data/cases.jsonl", str(home / "data/cases.jsonl")):
        assert files.shown_name(name) == "data/cases.jsonl"
    assert files.shown_name("cases.jsonl") == files.shown_name("../cases.jsonl") == files.shown_name("demo") == ""


def test_hidden_files_links_out_and_environments_are_not_listed(home: Path) -> None:
    (home / os.fsdecode(b"\xff.jsonl")).write_text("{}")
    found = Files(home).search()
    assert [file.path for file in found.files] == ["cases.jsonl", "sub/c.csv"] and not found.is_cut
    assert not Files(home).contains("../secret.jsonl") and not Files(home).contains(".env")


def test_only_data_and_prompts_are_opened(home: Path) -> None:
    (home / "code.py").write_text("print(1)")
    with pytest.raises(RequestError):
        Files(home).source("code.py")
    assert Files(home).source("cases.jsonl").name == "cases.jsonl"


def lines(path: Path, first: int, count: int, longest: int = 100) -> list[tuple[int, str, int]]:
    page = read_page(Source(path.name, path), first, count, longest)
    return [(line.number, line.text, line.rest) for line in page.lines]


def test_any_page_of_lines_is_the_same_whether_read_from_the_middle_or_unpacked(tmp_path: Path) -> None:
    texts = [f"{number} " + "字" * (number % 700) for number in range(1, 6000)]
    plain, packed = tmp_path / "a.jsonl", tmp_path / "a.jsonl.gz"
    plain.write_text("\n".join(texts))
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert plain.stat().st_size > 3_000_000 and count_lines(plain) == 5999
    for first in (1, 2, 2999, 4500, 5998, 5999):
        read = lines(plain, first, 3, 100_000)
        assert read == [(number, texts[number - 1], 0) for number in range(first, min(first + 3, 6000))]
        assert read == lines(packed, first, 3, 100_000)
    assert lines(plain, 6000, 3) == []


def test_a_long_line_is_cut_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    path.write_bytes(b"x" * 300_000 + b"\r\nend\n")
    for form in (path, tmp_path / "long.jsonl.gz"):
        if form is not path:
            form.write_bytes(gzip.compress(path.read_bytes()))
        (_, text, rest), last = lines(form, 1, 5)
        assert len(text) == 100 and rest >= 299_900 and last[1] == "end"


@pytest.mark.parametrize(
    "content", [b"PK\x03\x04abc", b"\x00\x01\x02" * 9, "下单以后多久能收到".encode("gb18030") * 20]
)
def test_what_is_not_text_is_refused_as_the_readers_do(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.jsonl").write_bytes(content)
    page = read_page(Source("x.jsonl", tmp_path / "x.jsonl"), 1, 5, 100)
    assert page.refusal and not page.lines


@pytest.mark.parametrize("size", [100, 30_000])
def test_a_report_has_what_validate_and_inspect_say(tmp_path: Path, size: int) -> None:
    rows = [
        {"id": f"c{n}", "tags": [f"t{n % 2}"], "question": "q" * 60, "expected_output": "contains:x"}
        for n in range(size)
    ]
    rows[7]["id"] = "c3"
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "{broken\n")
    reports = FileReports(Files(tmp_path), load(), Settings())
    report = reports.get("cases.jsonl", wait_s=60)
    assert report is not None and (report.kind, report.cases, report.errors) == ("pipeline", size, 2)
    assert {finding.code: finding.line for finding in report.findings if finding.severity == "error"} == {
        "duplicate_id": 8,
        "json_parse_error": size + 1,
    }
    assert report.tags == {"t0": size // 2, "t1": size // 2} and [field.name for field in report.fields][:2] == [
        "id",
        "tags",
    ]
    assert reports.get("cases.jsonl") is report
    reports.close()


def test_a_large_file_is_not_begun_for_a_list(tmp_path: Path) -> None:
    (tmp_path / "big.jsonl").write_bytes(b'{"id": "a", "question": "b"}\n' * 90_000)
    reports = FileReports(Files(tmp_path), load(), Settings())
    assert reports.get("big.jsonl") is None and reports.get("big.jsonl", wait_s=0.001) is None
    reports.close()
