"""Files made to break the reader: no traceback, exit code 2, and a finding that names the place."""

import gzip
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalloom import catalog
from evalloom.core.model import Checked, Origin
from evalloom.data.dataset import Dataset
from evalloom.data.dialect import Rules
from evalloom.data.validate import validate
from evalloom.engine.lint import lint
from evalloom.files.source import source_of

DIALECTS = catalog.load().formats.dialects
WRITERS = catalog.load().formats.writers

FIXTURES = Path(__file__).parent.parent / "fixtures"
RECORD = {"id": "a", "query": "如何退款？", "expected_sources": ["docs/a.md"], "must_include": ["7"]}
UNPRINTABLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
MEMORY = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024, done.returncode)
print(done.stdout + done.stderr)
"""


def command(path: Path | str, *flags: str) -> list[str]:
    return [sys.executable, "-m", "evalloom", "validate", str(path), *flags]


def run(path: Path | str, *flags: str, code: int = 2) -> str:
    """What the real command says; it must end by itself, with this exit code and no traceback."""
    done = subprocess.run(command(path, *flags), capture_output=True, text=True, timeout=120, errors="surrogateescape")
    assert "Traceback" not in done.stderr and "internal_error" not in done.stderr, done.stderr
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def check(path: Path, data: bytes, dialect: str = "") -> Checked:
    path.write_bytes(data)
    return validate(Dataset(source_of(path), catalog.load().formats, dialect))


def replaced(value: Any, new: Any) -> Iterator[Any]:
    """The value with `new` in the place of each value inside it, one at a time."""
    yield new
    if isinstance(value, dict):
        for key in value:
            yield from ({**value, key: inner} for inner in replaced(value[key], new))
    elif isinstance(value, list):
        for at in range(len(value)):
            yield from ([*value[:at], inner, *value[at + 1 :]] for inner in replaced(value[at], new))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.sampled_from(["a.jsonl", "a.json", "a.csv", "a.yaml", "a.jsonl.gz", "a"]))
def test_random_bytes(tmp_path: Path, data: bytes, name: str) -> None:
    checked = check(tmp_path / name, data)
    assert checked.count("error")
    assert all(finding.origin.file.endswith(name) and finding.message.isprintable() for finding in checked.findings)


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.yaml", "a.gz"])
def test_random_bytes_on_the_command_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(bytes(byte for byte in random.Random(name).randbytes(20_000) if byte))
    out = run(path)
    assert f"{path.as_posix()}:" in out and not UNPRINTABLE.search(out)


LAYOUTS = {
    "a.jsonl": "".join(json.dumps({**RECORD, "id": id}, ensure_ascii=False) + "\n" for id in "abc"),
    "array.json": json.dumps([{**RECORD, "id": id} for id in "abc"], ensure_ascii=False),
    "printed.json": json.dumps([{**RECORD, "id": id} for id in "abc"], ensure_ascii=False, indent=2),
    "objects.json": "\n".join(json.dumps({**RECORD, "id": id}, ensure_ascii=False, indent=1) for id in "abc"),
    "a.csv": 'id,query,expected_sources,must_include\na,"如何\n退款？","[""docs/a.md""]","[""7 ""]"\n',
    "a.yaml": "- &a\n  id: a\n  query: 如何退款？\n  expected_sources: [a.md]\n  must_include: [x]\n- {<<: *a, id: b}\n",
    "wrapper.json": json.dumps({"cases": [RECORD]}, ensure_ascii=False),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_prefix_of_a_file(tmp_path: Path, name: str) -> None:
    whole = LAYOUTS[name].encode()
    assert not check(tmp_path / name, whole).count("error")
    lines = whole.count(b"\n") + 1
    for length in range(len(whole)):
        checked = check(tmp_path / name, whole[:length])
        assert checked.cases <= 3
        assert all(finding.origin.line <= lines for finding in checked.findings)


@pytest.mark.parametrize(
    "name",
    [
        "hop.jsonl",
        "pipeline_basic_v2.jsonl",
        "pipeline_simple_v1.jsonl",
        "replay.jsonl",
        "rag.jsonl",
        "prompt_eval.json",
    ],
)
@pytest.mark.parametrize(
    "new", [None, True, 0, -1, 1.5, 2**64 - 1, "", "x", [], [[]], [None], {}, {"": {}}, [{"id": 1}]], ids=repr
)
def test_every_type_at_every_field(tmp_path: Path, name: str, new: Any) -> None:
    dataset = Dataset(source_of(FIXTURES / name), catalog.load().formats)
    records = [record for sample in dataset.sample[:3] for record in replaced(sample, new)]
    checked = check(
        tmp_path / "a.jsonl", b"".join(json.dumps(record).encode() + b"\n" for record in records), dataset.dialect.name
    )
    assert checked.lines == len(records)
    assert checked.findings
    for record in records:
        if isinstance(record, dict):
            catalog.load().formats.recognise(record)[0].to_case(record, Origin("a"))


@settings(max_examples=50)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "id",
                        "input",
                        "inputs",
                        "tags",
                        "query",
                        "messages",
                        "role",
                        "tests",
                        "assert",
                        "steps",
                        "variables",
                    ]
                ),
                inner,
                max_size=3,
            )
        ),
    )
)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_any_record_in_any_dialect(dialect: Any, value: Any) -> None:
    record = value if isinstance(value, dict) else {"id": value}
    for remark in dialect.findings(record, Rules()):
        assert remark.code and remark.message
    dialect.identity(record), dialect.is_case(record), dialect.expand(record), dialect.sniff(record)
    if dialect in WRITERS:
        dialect.to_case(record, Origin("a"))


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("a.jsonl", '{"id": "a", "query": ' + "[" * 100_000 + "]" * 100_000 + "}\n", "nesting_too_deep"),
        ("b.jsonl", '{"a":' * 100_000 + "1" + "}" * 100_000 + "\n", "nesting_too_deep"),
        ("c.jsonl", "[" * 100_000, "nesting_too_deep"),
        ("a.json", "[" + '{"a":' * 100_000, "nesting_too_deep"),
        ("a.yaml", "- " + "[" * 100_000 + "]" * 100_000, "nesting_too_deep"),
        ("b.yaml", "- " + "{a: " * 100_000 + "1" + "}" * 100_000, "nesting_too_deep"),
        ("a.csv", 'id,query,expected_sources\na,"' + "[" * 100_000 + '",x\n', ""),
        (
            "c.yaml",
            "a: &a [x, x, x, x, x, x, x, x, x]\n"
            + "".join(f"b{n}: &a [*a, *a, *a, *a, *a, *a, *a, *a]\n" for n in range(40)),
            "file_too_large",
        ),
        ("d.yaml", "- &a {id: a, query: *a}\n", "yaml_parse_error"),
        ("e.yaml", "- !!python/object/apply:os.system ['touch pwned']\n", "yaml_parse_error"),
    ],
    ids=lambda value: value if len(str(value)) < 30 else "",
)
def test_nesting_and_aliases_without_end(tmp_path: Path, name: str, text: str, code: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    out = run(path)
    assert len(out) < 5_000
    assert not code or re.search(rf"{re.escape(path.as_posix())}:1?\d+:\d+: .*\[{code}\]", out)
    assert not Path("pwned").exists()


ODD = [
    "/../../etc/passwd",
    "a\x00b",
    "\x1b[31mred\x1b[0m",
    "\u202egnirts",
    "\u2066x\u2069",
    "a\nb",
    "a\r\x08b",
    "\x9b31m",
    "\ufeffx",
]


@pytest.mark.parametrize("odd", ODD, ids=ascii)
@pytest.mark.parametrize("form", ["text", "github", "markdown"])
def test_nothing_in_a_file_drives_a_terminal(tmp_path: Path, odd: str, form: str) -> None:
    records = [
        {**RECORD, "id": odd, odd: 1},
        {**RECORD, "id": odd, "query": [odd], "must_include": [{odd: 1}]},
        {"id": odd},
    ]
    records.append({"id": odd, "query": 1, "expected_sources": [odd], "bucket": odd, "pair_id": odd, "concept_id": odd})
    lines = [json.dumps(record) for record in records]
    lines += [
        f'{{"{json.dumps(odd)[1:-1]}": {{"a": 1, "a": 2}}}}',
        json.dumps(odd),
        f"{{{odd}: 1}}",
        f'{{"a": "{odd}'.replace("\n", ""),
    ]
    path = tmp_path / "cases.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    out = run(path, "--check-sources-exist", "--format", form)
    assert not UNPRINTABLE.search(out)


def test_name_of_a_file_drives_no_terminal(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[31m\n::error::x\u202e.jsonl"
    path.write_text("{}\nx\n")
    for form in ("text", "github", "markdown"):
        out = run(path, "--format", form)
        assert not UNPRINTABLE.search(out)
        assert not re.search("^::error::x", out, re.M)


def test_formula_cells_are_only_text(tmp_path: Path) -> None:
    cells = ["=1+1", "@SUM(A1)", "+1", "-1", '=HYPERLINK(""http://x"")', "=cmd|' /C calc'!A0"]
    table = "id,query,expected_sources,must_include\n" + "".join(
        f'{number},"{cell}","[""a.md""]","[""x""]"\n' for number, cell in enumerate(cells)
    )
    checked = check(tmp_path / "a.csv", table.encode())
    assert (checked.cases, checked.count("error")) == (len(cells), 0)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_links_in_a_circle_and_pipes(tmp_path: Path) -> None:
    loop, pipe = tmp_path / "loop.jsonl", tmp_path / "pipe"
    loop.symlink_to(loop)
    assert "[file_unreadable]" in run(loop)
    os.mkfifo(pipe)
    with subprocess.Popen(command(pipe), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reader:
        pipe.write_text(LAYOUTS["a.jsonl"])
        out, _ = reader.communicate(timeout=120)
    assert (reader.returncode, b"3 cases" in out) == (0, True)
    # In a folder a pipe is not opened: nobody may ever write to it.
    (tmp_path / "pipe.jsonl").mkdir()
    os.mkfifo(tmp_path / "in.jsonl")
    (tmp_path / "a.jsonl").write_text(LAYOUTS["a.jsonl"])
    assert lint([str(tmp_path)], catalog.load()).count("error") <= 1


def measured(path: Path) -> tuple[int, int, str]:
    """The most memory that validating took, in MiB; the exit code; what was said."""
    # The measuring process is a small one of its own: a forked child starts with the memory of its parent.
    done = subprocess.run([sys.executable, "-c", MEMORY, *command(path)], capture_output=True, text=True, timeout=300)
    first, _, said = done.stdout.partition("\n")
    assert "Traceback" not in said, said
    peak, code = map(int, first.split())
    return peak, code, said


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["one string", "spaces", "array", "objects", "digits", "comment", "table", "packed"])
def test_line_of_200_megabytes(tmp_path: Path, kind: str) -> None:
    mega = {
        "spaces": b" ",
        "digits": b"1",
        "array": b'{"id": "a", "query": "%b"},' % (b"x" * 2000),
        "objects": b'{"id": "a"}',
    }.get(kind, b"x")
    mega *= (1 << 20) // len(mega)
    heads = {
        "one string": b'{"id": "',
        "array": b"[",
        "digits": b'{"id": ',
        "comment": b"// ",
        "table": b"id,query\n1,",
    }
    tails = {"one string": b'"}', "array": b'{"id": "z"}]', "digits": b"}"}
    path = tmp_path / {"table": "a.csv", "packed": "a.jsonl.gz"}.get(kind, "a.jsonl")
    with gzip.open(path, "wb", 1) if kind == "packed" else path.open("wb") as stream:
        stream.write(heads.get(kind, b""))
        for _ in range(200):
            stream.write(mega)
        stream.write(tails.get(kind, b"") + b"\n")
        stream.write(b"2,b\n" if kind == "table" else b'{"id": "last"}\n')
    peak, code, said = measured(path)
    assert peak < 300 and (code == 2 or kind in ("spaces", "comment", "array"))
    assert "[line_too_long]" in said or kind in ("spaces", "comment", "array")
