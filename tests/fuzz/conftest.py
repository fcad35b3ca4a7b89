"""What the fuzz tests share: how far they search, the corpus they start from, and how they change it.

`EVALLOOM_FUZZ_EXAMPLES=5000 pytest tests/fuzz` runs so many random examples of each property and prints the seed;
`EVALLOOM_FUZZ_SEED` repeats such a run. Otherwise the examples are few, and the same in every run.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import os
import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from evalloom import catalog
from evalloom.core.model import Finding
from evalloom.files.read import RowReader
from evalloom.files.rows import Row
from evalloom.files.source import source_of
from evalloom.reports.formats import LINT_REPORTERS
from evalloom.reports.lint import LintReport

ROOT = Path(__file__).parents[2]
EXAMPLES = int(os.environ.get("EVALLOOM_FUZZ_EXAMPLES", 0))
# Set for the workers of xdist too, which inherit the environment.
SEED = int(os.environ.setdefault("EVALLOOM_FUZZ_SEED", str(random.SystemRandom().randrange(2**32)))) if EXAMPLES else 0
CATALOG = catalog.load()
_UNPRINTABLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def pytest_report_header() -> str | None:
    return f"fuzz: {EXAMPLES} examples each, EVALLOOM_FUZZ_SEED={SEED}" if EXAMPLES else None


def fuzz(share: float = 1, **strategies: Any) -> Callable[[Any], Any]:
    """Make a property of a function. `share` is less than 1 where one example takes long."""
    usual = min(settings().max_examples, 60)
    limits = settings(
        max_examples=max(int((EXAMPLES or usual) * share), 1),
        derandomize=not EXAMPLES,
        database=None,
        print_blob=bool(EXAMPLES),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )

    def decorate(test: Any) -> Any:
        @functools.wraps(test)
        def explained(*given_args: Any, **given_values: Any) -> None:
            try:
                test(*given_args, **given_values)
            except Exception as error:
                shown = "\n".join(f"    {name} = {given_values[name]!r}" for name in strategies)
                error.add_note(f"with\n{shown[:3000]}")
                raise

        property = limits(given(**strategies)(explained))
        return seed(SEED)(property) if EXAMPLES else property

    return decorate


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all examples of a file: each writes its files again."""
    return tmp_path_factory.mktemp("fuzz")


# -- values -------------------------------------------------------------------------------------------

ODD_TEXTS = [
    *("", " ", "\x00", "\ufeff", "\r\n", "\u2028", "\x1b[31m", "'", '"', "\\", "\U0001f600", "é", "e\u0301", "一"),
    *("null", "true", "NaN", "-0", "1e999", "0x10", "9" * 30, "[", "{", "{{x}}", "{% if x %}", "${HOME}", "$.a[*]"),
    *("=1+1", "regex:(", "contains:", "semantic:", "file://x.yaml", "../../etc/passwd", "a.b[0]", "a,b;c|d", "<<"),
    *("a\0b.yaml", "file://a\0b.yaml", "x" * 300 + ".md", "file://" + "x/" * 3000, "steps\0:f", "/dev/null", "..", "~"),
    *("2026-01-01", "latest", "a" * 300, "[1, 2", "['a' 'b']", '{"a": 1}', "- x", "#", "*a", "&a", "!!python/name:os"),
]
TEXTS = st.sampled_from(ODD_TEXTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = (
    st.sampled_from([0, -1, 1, 2**53 + 1, 2**63, 2**64 - 1, 10**25, -0.0, 1e-320, 1.7e308, 0.1])
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False, allow_infinity=False)
)
LEAVES = st.none() | st.booleans() | NUMBERS | TEXTS
JSON: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def nested(value: Any, depth: int) -> Any:
    """The value inside so many lists and objects."""
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def paths_in(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The path of every value inside a value, and of itself."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(inner for key, item in below for inner in paths_in(item, (*path, key)))]


@st.composite
def mutations(draw: st.DrawFn, values: st.SearchStrategy[Any], keys: list[str], most: int = 3) -> Any:
    """A value with some of its parts dropped, duplicated, given another type, nested, renamed or swapped."""
    value = json.loads(json.dumps(draw(values)))
    for _ in range(draw(st.integers(1, most))):
        paths = paths_in(value)
        path = draw(st.sampled_from(paths[1:] or paths))
        if not path:
            return draw(JSON)
        parent: Any = value
        last: Any = path[-1]
        for step in path[:-1]:
            parent = parent[step]
        change = draw(st.sampled_from(["drop", "retype", "retype", "nest", "rename", "duplicate", "graft", "wrap"]))
        if change == "drop":
            del parent[last]
        elif change == "retype":
            parent[last] = draw(JSON)
        elif change == "nest":
            parent[last] = nested(parent[last], draw(st.sampled_from([1, 2, 60, 150])))
        elif change == "wrap":
            parent[last] = json.dumps(parent[last])
        elif change == "graft":
            other: Any = value
            for step in draw(st.sampled_from(paths)):
                other = other[step]
            parent[last] = json.loads(json.dumps(other))
        elif isinstance(parent, list):
            parent.insert(draw(st.integers(0, len(parent))), parent[last])
        elif change == "duplicate":
            parent[draw(st.sampled_from(keys) | TEXTS)] = parent[last]
        else:
            parent[draw(st.sampled_from(keys) | TEXTS)] = parent.pop(last)
    return value


_PIECES = [
    *(b"\x00", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"\r\n", b"\r", b"\n", b"\xed\xa0\x80", b"\\ud800", b"\\u0000"),
    *(
        b'"',
        b"'",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\t",
        b"- ",
        b"#",
        b"&a ",
        b"*a",
        b"<<: *a\n",
        b"!!set ",
        b"---\n",
    ),
    *(b"1e999", b"-", b"9" * 40, b"NaN", b"//", b"\xe2\x80\xa8", b"[" * 300, b'{"a":' * 300, b"null", b"0" * 20),
]


@st.composite
def damaged(draw: st.DrawFn, texts: st.SearchStrategy[bytes], most: int = 3) -> bytes:
    """A text with bits flipped, bytes cut off or put in, and lines swapped, repeated, joined or left out."""
    data = draw(texts)
    for _ in range(draw(st.integers(1, most))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        change = draw(st.sampled_from(["flip", "cut", "insert", "delete", "lines", "crlf", "copy"]))
        if change == "flip" and data:
            data = data[:at] + bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) + data[at + 1 :]
        elif change == "cut":
            data = data[:at]
        elif change == "insert":
            data = data[:at] + draw(st.sampled_from(_PIECES)) + data[at:]
        elif change == "delete":
            data = data[:at] + data[at + draw(st.integers(1, 20)) :]
        elif change == "crlf":
            data = data.replace(b"\n", b"\r\n")
        elif change == "copy":
            data = data[:at] + data[at : at + draw(st.integers(1, 200))] + data[at:]
        else:
            lines = data.splitlines(keepends=True)
            if lines:
                first, second = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
                lines[first], lines[second] = lines[second], lines[first]
                data = b"".join(lines)
    return data


# -- the corpus ---------------------------------------------------------------------------------------


class Seed(NamedTuple):
    """A valid file, small enough to be changed often."""

    name: str
    data: bytes
    records: list[Any]


def seed_of(path: Path) -> Seed:
    records = [item.value for item in RowReader(source_of(path)) if isinstance(item, Row)]
    return Seed(path.name, path.read_bytes(), records)


def seeds(*patterns: str) -> list[Seed]:
    """The files below the repository that match, cut to a few records where they are long."""
    files = sorted(path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file())
    assert files
    found = [seed_of(path) for path in files]
    return [
        Seed(name, b"".join(data.splitlines(keepends=True)[:6]) if name.endswith(".jsonl") else data, records[:6])
        for name, data, records in found
    ]


DATASETS = seeds(
    *("tests/fixtures/*.*", "examples/*/*.jsonl", "examples/*/*.csv", "examples/hop/*/*.jsonl"),
    *("examples/pipeline/**/testsets/*.jsonl", "examples/elsewhere/*.json", "examples/elsewhere/promptfoo*.yaml"),
    "examples/prompt-eval/test_cases.json",
)
DOCUMENTS = seeds(
    *("examples/pipeline/**/pipelines/*.yaml", "examples/prompt-eval/test_plan.yaml"),
    *("examples/replay/**/project.json",),
)
KEYS = sorted(
    {
        step
        for one in (*DATASETS, *DOCUMENTS)
        for path in paths_in(one.records)
        for step in path
        if isinstance(step, str)
    }
    | {"prompt_file", "code_file", "code_ref", "file", "checks"}
)


def written(records: list[Any], suffix: str) -> bytes:
    """The records as a file of this kind; what a table cannot hold is JSON in its cell."""
    if suffix == ".jsonl":
        return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
    if suffix == ".json":
        return json.dumps(records[0] if len(records) == 1 else records, ensure_ascii=False, indent=1).encode()
    if suffix == ".yaml":
        return yaml.safe_dump(
            records[0] if len(records) == 1 else records, allow_unicode=True, sort_keys=False
        ).encode()
    rows = [record if isinstance(record, dict) else {"id": record} for record in records]
    header = list(dict.fromkeys(key for row in rows for key in row))
    stream = io.StringIO()
    table = csv.writer(stream)
    table.writerow(header)
    for row in rows:
        cells = [row.get(key, "") for key in header]
        table.writerow([cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False) for cell in cells])
    return stream.getvalue().encode()


# -- claims -------------------------------------------------------------------------------------------


def check_findings(findings: Iterable[Finding], data: bytes) -> None:
    """Each finding says what is wrong, and where in the file."""
    lines = data.count(b"\n") + data.count(b"\r") + 2
    for finding in findings:
        assert finding.code and finding.message and finding.severity in ("error", "warning", "info"), finding
        assert finding.origin.file and 0 <= finding.origin.line <= lines, (finding, lines)


def check_report(report: LintReport) -> None:
    """Every reporter can show the findings, and none of them drives a terminal."""
    for reporter in LINT_REPORTERS:
        shown = reporter.render(report)
        shown.encode()
        if reporter.name in ("text", "github"):
            assert not _UNPRINTABLE.search(shown), shown
