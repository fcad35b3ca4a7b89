"""A file checked in ranges gives exactly what it gives in one piece."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalloom import catalog
from evalloom.core.model import Checked
from evalloom.data.dataset import Dataset
from evalloom.data.mapping import parse_mapping
from evalloom.data.validate import parallel, validate
from evalloom.data.validate.checker import LISTED_PER_CODE, Block
from evalloom.files.source import source_of

MEMORY = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
"""


def record(id: object, **fields: object) -> str:
    base = {
        "id": str(id),
        "query": "如何退款？",
        "expected_sources": ["docs/a.md"],
        "must_include": ["7"],
        "bucket": "oral",
    }
    return json.dumps(base | fields, ensure_ascii=False)


def both(path: Path, size: int, monkeypatch: pytest.MonkeyPatch, **how: Any) -> tuple[Checked, Checked, bool]:
    """What ranges of this size give, what one piece gives, and whether the ranges were good for it."""
    in_ranges: list[bool] = []
    check_ranges: Callable[..., Iterator[Block]] = parallel.check_ranges

    def watched(*arguments: object) -> Iterator[Block]:
        in_ranges.append(True)
        try:
            yield from check_ranges(*arguments)
        except parallel.NotLines:
            in_ranges.append(False)
            raise

    with monkeypatch.context() as patch:
        patch.setattr(parallel, "RANGE_BYTES", size)
        patch.setattr(parallel, "_WORTH_IT", 0)
        patch.setattr(parallel, "check_ranges", watched)
        ranged = validate(Dataset(source_of(path), catalog.load().formats, **how))
    whole = validate(Dataset(source_of(path), catalog.load().formats, **how))
    return ranged, whole, in_ranges == [True]


LINES = [record(number, pair_id=f"p{number % 7}") for number in range(12)]
FILES: dict[str, tuple[str, bool]] = {
    "plain": ("\n".join(LINES) + "\n", True),
    "no last line break": ("\n".join(LINES), True),
    "crlf": ("\r\n".join(LINES) + "\r\n", True),
    "blank lines and comments": ("// { first\n" + "\n\n// note\n \n".join(LINES) + "\n", True),
    "the same id far apart": ("\n".join([*LINES, record(0), record(11), record(0)]) + "\n", True),
    "findings": (
        "\n".join(record(n, bucket="ofical", query="", tags=3, expected_sources=[n]) for n in range(12)),
        True,
    ),
    "no objects": ("\n".join([*LINES, "3", '"x"', "[]", "null", *LINES]), True),
    "broken lines": ("\n".join([*LINES, '{"id": "x', "oops", '{"id": NaN}', *LINES, '{"a": 1} x', "}", *LINES]), True),
    "a key twice": ("\n".join([*LINES, '{"id": 1, "id": 2}', *LINES]), True),
    "glued": ("".join(LINES) + "\n" + "\n".join(LINES), True),
    "several to a line": ("\n".join(["".join(LINES[:3]), *LINES, " ".join(LINES[3:6])]), True),
    "cut off": ("\n".join([*LINES, '{"id": 1, "tags": [', *LINES, '{"id": [1,', *LINES]), False),
    "printed": ("\n".join(json.dumps(json.loads(line), indent=2) for line in LINES), False),
    "printed and broken": ("\n".join([*LINES, '{\n  "id": "x\n  "b": {\n  },\n', *LINES]), False),
    "long line": ("\n".join([*LINES, record("long", query="x" * 5_000), *LINES]), True),
    "array": ("[\n" + ",\n".join(LINES) + "\n]\n", False),
    "array behind a comment": ("// cases\n[\n" + ",\n".join(LINES) + "\n]\n", False),
    "indented": ("\n".join(f"  {line}" for line in LINES), False),
}


@pytest.mark.parametrize("size", [64, 150, 997, 100_000])
@pytest.mark.parametrize("kind", FILES)
def test_ranges_give_what_one_piece_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, size: int
) -> None:
    text, is_lines = FILES[kind]
    path = tmp_path / "a.jsonl"
    path.write_text(text, encoding="utf-8", newline="")
    ranged, whole, in_ranges = both(path, size, monkeypatch)
    assert ranged == whole
    assert whole.lines == text.count("\n") + (not text.endswith("\n"))
    assert in_ranges or not is_lines


pieces = st.sampled_from(
    [
        *LINES[:3],
        record(1, query=""),
        "",
        "// x",
        "oops",
        "{",
        "}",
        '{"id": "x',
        '{"id": 1,',
        "[",
        "]",
        "[{",
        "}]",
        "3",
        " {}",
        "{\n",
        '  "a": 1',
        '  "b": [\n  {\n',
    ]
)


@settings(max_examples=min(40, settings().max_examples), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(pieces, max_size=12), st.integers(20, 300))
def test_any_lines_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], size: int) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join([LINES[0], *lines]), encoding="utf-8")
    ranged, whole, _ = both(path, size, monkeypatch)
    assert ranged == whole


def test_mapped_fields_are_found_in_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    lines = [json.dumps({"id": n, "question": "", "docs": ["a"], "must_include": [3]}) for n in range(20)]
    path.write_text("\n".join(lines))
    ranged, whole, in_ranges = both(
        path, 100, monkeypatch, mapping=parse_mapping("query=question,expected_sources=docs")
    )
    assert in_ranges and ranged == whole and whole.count("error")


@pytest.mark.parametrize(
    "text", [json.dumps({"cases": [json.loads(line) for line in LINES]}), json.dumps({"name": "x", "list": [1]})]
)
def test_document_is_taken_apart_however_large_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    ranged, whole, _ = both(path, 100, monkeypatch)
    assert ranged == whole


@pytest.mark.parametrize("size", [3_000, 10**9])
def test_each_code_lists_its_first_thousand_and_counts_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        "".join(f"{record('same', query='')}\noops {number}\n" for number in range(3_000)), encoding="utf-8"
    )
    ranged, whole, in_ranges = both(path, size, monkeypatch)
    assert in_ranges and ranged == whole
    assert ranged.counts["json_parse_error", "error"] == 3_000 and ranged.counts["duplicate_id", "error"] == 2_999
    listed = [finding for finding in ranged.findings if finding.code == "json_parse_error"]
    assert [finding.origin.line for finding in listed] == list(range(2, 2 * LISTED_PER_CODE + 1, 2))


def test_ids_that_are_numbers_are_compared_over_all_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    # -1 and -2 have the same hash, and so have 1 and 2**61.
    path.write_text("".join(f'{{"id": {id}, "text": "x"}}\n' for id in (-2, -1, 1, 5, 4, 2**61, 5)))
    ranged, whole, in_ranges = both(path, 30, monkeypatch, dialect="hop")
    assert in_ranges and ranged == whole
    lines = {code: [found.origin.line for found in ranged.findings if found.code == code] for code, _ in ranged.counts}
    assert (lines["duplicate_id"], lines["id_not_increasing"]) == ([7], [5, 7])


def test_machine_without_more_processes_reads_in_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_pool(*arguments: object, **options: object) -> None:
        raise OSError("no semaphores here")

    path = tmp_path / "a.jsonl"
    path.write_text(FILES["plain"][0], encoding="utf-8")
    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", no_pool)
    ranged, whole, in_ranges = both(path, 100, monkeypatch)
    assert ranged == whole and not in_ranges


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["lines", "array", "csv"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, layout: str) -> None:
    peaks = []
    for megabytes in (20, 100):
        path = tmp_path / ("a.csv" if layout == "csv" else "a.json")
        with path.open("w", encoding="utf-8") as stream:
            stream.write({"lines": "", "array": "[", "csv": "id,query,expected_sources,must_include\n"}[layout])
            for number in range(megabytes * 50):
                text = "x" * 20_000
                row = f'{number},{text},"[""a""]","[""b""]"\n' if layout == "csv" else record(number, query=text)
                stream.write(row + {"lines": "\n", "array": ",\n", "csv": ""}[layout])
            stream.write({"lines": "", "array": record("last") + "]", "csv": ""}[layout])
        command = [sys.executable, "-c", MEMORY, sys.executable, "-m", "evalloom", "validate", str(path)]
        peaks.append(int(subprocess.run(command, capture_output=True, check=True, timeout=300).stdout))
    assert peaks[1] < peaks[0] * 1.25 + 10 and peaks[1] < 300


def test_one_process_checks_the_file_where_memory_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(record(number) for number in range(50)), encoding="utf-8")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2**46, hard))
    try:
        assert not both(path, 500, monkeypatch)[2]
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert both(path, 500, monkeypatch)[2]
