"""Sources: a path or stdin, packed or not, in whichever encoding; what cannot be read says why."""

import gzip
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from evalloom.files.read import RowReader
from evalloom.files.rows import Problem, Refused, Row
from evalloom.files.source import CHUNK, is_plain, read_chunks, read_lines, read_range, source_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LINES = '{"id": 1, "q": "一个问题：退款要多久？"}\n{"id": 2, "q": "é 😀"}\n'
CHINESE = "".join(f'{{"id": {number}, "q": "一二三四五，退款流程是什么？"}}\n' for number in range(50))
READ = """
import sys
from evalloom.files.read import RowReader
from evalloom.files.source import source_of
print(*[getattr(item, "value", item) for item in RowReader(source_of("-"))], sep="\\n")
"""


def read(path: Path, encoding: str = "") -> tuple[list[int], list[Problem]]:
    items = list(RowReader(source_of(path, encoding)))
    records = [item.value for item in items if isinstance(item, Row)]
    rows = [record["id"] for record in records if isinstance(record, dict) and "id" in record]
    return rows, [item for item in items if isinstance(item, Problem)]


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize(
    "text", [LINES, CHINESE, LINES.replace("\n", "\r\n"), "[{}]".format(LINES.replace("\n", ",")[:-1])]
)
def test_unicode_is_recognised(tmp_path: Path, encoding: str, text: str) -> None:
    rows, problems = read(written(tmp_path / "a.jsonl", text.encode(encoding)))
    assert rows == (list(range(50)) if text is CHINESE else [1, 2])
    assert problems == []


def test_utf_16_with_a_byte_order_mark_of_the_other_end(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", b"\xfe\xff" + LINES.encode("utf-16-be"))
    assert read(path) == ([1, 2], [])


@pytest.mark.parametrize("encoding", ["gb18030", "GBK", "big5", "utf-8", "utf-16", "utf_8_sig", "utf-7"])
def test_named_encoding_is_used(tmp_path: Path, encoding: str) -> None:
    text = CHINESE if encoding != "big5" else '{"id": 0, "q": "問題"}\n'
    rows, problems = read(written(tmp_path / "a.jsonl", text.encode(encoding)), encoding)
    assert rows == list(range(text.count("\n")))
    assert problems == []


@pytest.mark.parametrize("encoding", ["gb18030", "gbk"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.yaml"])
def test_gb18030_is_named_by_the_message(tmp_path: Path, encoding: str, name: str) -> None:
    rows, (problem,) = read(written(tmp_path / name, CHINESE.encode(encoding)))
    assert (rows, problem.code) == ([], "not_utf8")
    assert "--encoding gb18030" in problem.message


def test_one_broken_character_does_not_make_utf_8_gb18030(tmp_path: Path) -> None:
    data = '{"id": 1, "q": "中文"}\n{"id": 2, "q": "XX"}\n{"id": 3, "q": "问题答案"}\n'.encode().replace(
        b"XX", b"\xe4\xb8"
    )
    rows, (problem,) = read(written(tmp_path / "a.jsonl", data))
    assert rows == [1, 3]
    assert (problem.code, problem.place) == ("not_utf8", (2, 17))


@pytest.mark.parametrize("encoding", ["", "utf-8"])
def test_latin_1_is_reported_for_each_record(tmp_path: Path, encoding: str) -> None:
    data = '{"id": 1}\n{"id": 2, "q": "café"}\n{"id": 3}\n'.encode("latin-1")
    rows, (problem,) = read(written(tmp_path / "a.jsonl", data), encoding)
    assert (rows, problem.code, problem.place.line) == ([1, 3], "not_utf8", 2)
    assert read(tmp_path / "a.jsonl", "latin-1") == ([1, 2, 3], [])


@pytest.mark.parametrize("encoding", ["gb18030", "utf-16-le", "ascii"])
def test_bytes_that_do_not_fit_the_named_encoding_lose_only_their_record(tmp_path: Path, encoding: str) -> None:
    good = [f'{{"id": {number}, "q": "x"}}\n'.encode(encoding) for number in range(4)]
    odd = {"gb18030": b"\xff", "utf-16-le": b"\x00\xd8", "ascii": b"\xe9"}[encoding]
    good[2] = good[2].replace("x".encode(encoding), odd)
    rows, (problem,) = read(written(tmp_path / "a.jsonl", b"".join(good)), encoding)
    assert rows == [0, 1, 3]
    assert (problem.code, problem.place) == ("wrong_encoding", (3, 17))


@pytest.mark.parametrize("encoding", ["klingon", "base64", "rot13", "hex", "idna", "punycode", "undefined", "utf\0"])
def test_what_is_no_text_encoding_is_refused(tmp_path: Path, encoding: str) -> None:
    _, (problem,) = read(written(tmp_path / "a.jsonl", LINES.encode()), encoding)
    assert problem.code == "unknown_encoding"


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.JSONL.GZ", "a.jsonl", "a"])
def test_packed_files_are_known_by_their_bytes(tmp_path: Path, name: str) -> None:
    assert read(written(tmp_path / name, gzip.compress(LINES.encode("utf-16")))) == ([1, 2], [])
    assert read(written(tmp_path / name, zstd.compress(LINES.encode("utf-8-sig")))) == ([1, 2], [])


def test_parts_packed_one_after_another_are_one_text(tmp_path: Path) -> None:
    parts = [line.encode() + b"\n" for line in LINES.splitlines()]
    assert read(written(tmp_path / "a.jsonl.gz", b"".join(map(gzip.compress, parts)))) == ([1, 2], [])
    assert read(written(tmp_path / "a.jsonl.zst", b"".join(map(zstd.compress, parts)))) == ([1, 2], [])


@pytest.mark.parametrize(("suffix", "damage"), [(".gz", "cut"), (".gz", "changed"), (".zst", "cut")])
def test_what_came_before_damage_in_a_packed_file_is_read(tmp_path: Path, suffix: str, damage: str) -> None:
    text = "".join(f'{{"id": {number}, "q": "{Random(number).random()}"}}\n' for number in range(20_000)).encode()
    packed = bytearray(gzip.compress(text, mtime=0) if suffix == ".gz" else zstd.compress(text))
    if damage == "cut":
        del packed[len(packed) // 2 :]
    else:
        packed[len(packed) // 2] ^= 0xFF
    rows, problems = read(written(tmp_path / f"a.jsonl{suffix}", bytes(packed)))
    assert rows[:1000] == list(range(1000))
    assert problems[-1].code == "file_truncated"


@pytest.mark.parametrize("packed", [gzip.compress(LINES.encode()), zstd.compress(LINES.encode())], ids=["gz", "zst"])
def test_a_truncated_compressed_file_is_reported(tmp_path: Path, packed: bytes) -> None:
    for length in range(4, len(packed)):
        _, problems = read(written(tmp_path / "a.jsonl", packed[:length]))
        assert problems[-1].code == "file_truncated"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "git_lfs_pointer"),
        (b"PK\x03\x04rest", "binary_file"),
        (b"PAR1rest", "binary_file"),
        (b"SQLite format 3\x00", "binary_file"),
        (b"%PDF-1.7\n", "binary_file"),
        (b"\x89PNG\r\n", "binary_file"),
        (b'{"id": 1}\n\x00\x00\x01', "binary_file"),
        (bytes(range(256)) * 10, "binary_file"),
    ],
)
def test_what_is_no_text_says_what_it_is(tmp_path: Path, data: bytes, code: str) -> None:
    rows, (problem,) = read(written(tmp_path / "a.jsonl", data))
    assert (rows, problem.code, problem.place.line) == ([], code, 0)
    assert [problem.code for problem in read(written(tmp_path / "a.gz", gzip.compress(data)))[1]] == [code]


def test_what_is_not_there_or_no_file(tmp_path: Path) -> None:
    loop = tmp_path / "loop.jsonl"
    loop.symlink_to(loop)
    long = tmp_path / ("x" * 300)
    found = {
        path: read(path)[1][0].code for path in (tmp_path, tmp_path / "no.jsonl", loop, long, Path("/proc/self/mem"))
    }
    assert list(found.values()) == ["is_directory", "cases_missing", *["file_unreadable"] * 3]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.yaml", "a", "a.jsonl.gz"])
@pytest.mark.parametrize("data", [b"", b"\n", b"\xef\xbb\xbf", gzip.compress(b"")], ids=["", "line", "bom", "gz"])
def test_an_empty_file_has_no_rows_and_no_errors(tmp_path: Path, name: str, data: bytes) -> None:
    assert read(written(tmp_path / name, data)) == ([], [])


def test_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = written(tmp_path / "a.jsonl", b"{}")
    # Not by the mode of the file: root may read everything.
    monkeypatch.setattr(Path, "open", forbidden)
    _, (problem,) = read(path)
    assert (problem.code, problem.message) == ("file_unreadable", "cannot be opened: permission denied")


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd.compress], ids=["plain", "gz", "zst"])
@pytest.mark.parametrize("text", [LINES, "id,q\n1,a\n", "- id: 1\n", f"[{LINES.splitlines()[0]}]"])
def test_stdin_is_read_like_a_file(pack: object, text: str) -> None:
    assert callable(pack)
    done = subprocess.run([sys.executable, "-c", READ], input=pack(text.encode()), capture_output=True, check=True)
    assert done.stdout.decode().startswith(("{'id': 1", "{'id': '1'"))
    assert done.stderr == b""


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
def test_missing_stdin_is_reported() -> None:
    done = subprocess.run(["sh", "-c", '"$0" -c "$1" <&-', sys.executable, READ], capture_output=True, check=True)
    assert b"file_unreadable" in done.stdout and done.stderr == b""


def test_pipe_that_is_written_slowly_is_read_to_its_end(tmp_path: Path) -> None:
    script = f"import sys, time\nfor byte in {gzip.compress(LINES.encode())!r}:\n    sys.stdout.buffer.write(bytes([byte])); sys.stdout.flush()"
    writer = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    done = subprocess.run([sys.executable, "-c", READ], stdin=writer.stdout, capture_output=True, check=True)
    assert writer.wait() == 0
    assert done.stdout.decode().count("'id'") == 2


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
@pytest.mark.parametrize("text", ["a\nbb\n\nccc\n", "a", "\n\n\n", "aaaa\nb", "aaaaaaaaaaaaaaaaaaaaaaaaaa\nb\n"])
def test_ranges_part_a_file_into_its_lines(tmp_path: Path, size: int, text: str) -> None:
    path = written(tmp_path / "a", text.encode())
    parts = [b"".join(read_range(path, start, start + size)) for start in range(0, len(text), size)]
    assert b"".join(parts) == text.encode()
    assert all(part.endswith(b"\n") for part in parts if part and not text.encode().endswith(part))


def test_range_inside_a_long_line_looks_no_further_than_itself(tmp_path: Path) -> None:
    path = written(tmp_path / "a", b"x" * (4 * CHUNK) + b"\ny\n")
    assert list(read_range(path, CHUNK, 2 * CHUNK)) == []
    assert b"".join(read_range(path, 0, CHUNK)).endswith(b"x\n")


@pytest.mark.parametrize(
    ("data", "plain"),
    [
        (LINES.encode(), True),
        (LINES.encode("utf-16"), False),
        (gzip.compress(b"{}"), False),
        (b"\xef\xbb\xbf{}", False),
    ],
    ids=["utf-8", "utf-16", "gz", "bom"],
)
def test_only_utf_8_itself_may_be_read_in_ranges(tmp_path: Path, data: bytes, plain: bool) -> None:
    path = written(tmp_path / "a.jsonl", data)
    assert is_plain(source_of(path)) is plain
    assert not is_plain(source_of(path, "utf-8")) and not is_plain(source_of("-"))


@pytest.mark.parametrize(
    ("name", "data", "layout"),
    [
        *[("a.csv", b"{}", "csv"), ("a.tsv.gz", b"a", "csv"), ("a.yml", b"{}", "yaml"), ("a.ndjson", b"a: 1", "json")],
        *[("a", b"\n [", "json"), ("a", b"// x", "json"), ("a", b"a: 1", "yaml"), ("a", b"- a", "yaml")],
        *[("a", b"id;q\n", "csv"), ("a.txt", b"words", "json"), ("a", b"", "json")],
    ],
)
def test_layout_by_name_and_else_by_content(tmp_path: Path, name: str, data: bytes, layout: str) -> None:
    reader = RowReader(source_of(written(tmp_path / name, data)))
    list(reader)
    assert reader.layout == layout


def test_utf_16_by_name_needs_no_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_bytes('{"id": "中"}\n'.encode("utf-16-le"))
    assert b"".join(read_chunks(source_of(path, "utf-16"))).decode() == '{"id": "中"}\n'
    path.write_text('{"id": "a"}\n')
    with pytest.raises(Refused, match="no byte order mark"):
        list(read_chunks(source_of(path, "utf-16")))


# -- single lines ---------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_lines_are_picked_by_number(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes("一\r\ntwo\n\nfour".encode(encoding))
    assert read_lines(str(path), {1, 3, 4, 9}) == {1: "一", 3: "", 4: "four"}
    assert read_lines(str(path), set()) == {}


def test_lines_over_many_chunks(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(b"%d %b\n" % (number, b"x" * 70_000) for number in range(1, 30))))
    found = read_lines(str(path), {1, 15, 29})
    assert [text.split()[0] for text in found.values()] == ["1", "15", "29"]
    assert {len(text) for text in found.values()} == {20_000}


@pytest.mark.slow
def test_packed_file_that_grows_without_end_is_not_read_to_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"first\n" + bytes(80 << 20).replace(b"\0", b"0") + b"\nlast\n", 1))
    assert read_lines(str(path), {1, 3}) == {1: "first"}


@pytest.mark.parametrize(
    "data", [b"\xff\xfe\x00", b"PK\x03\x04", gzip.compress(b"one\ntwo\n")[:-12]], ids=["odd", "zip", "cut"]
)
def test_what_cannot_be_read_shows_nothing_and_raises_nothing(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    assert set(read_lines(str(path), {1})) <= {1}
    assert read_lines(str(tmp_path), {1}) == read_lines("no such file", {1}) == read_lines("<stdin>", {1}) == {}
