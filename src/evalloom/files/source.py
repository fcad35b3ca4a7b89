"""Opens what the user named: a path or stdin, packed or not, in whichever encoding, as chunks of UTF-8."""

from __future__ import annotations

import codecs
import gzip
import io
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, cast

from msgspec import Struct

from evalloom.files.rows import Refused, refused
from evalloom.model import quote

CHUNK = 64 * 1024
_SAMPLE = CHUNK
_PACKED_SUFFIXES = (".gz", ".zst")
_FOREIGN = (
    (b"PK\x03\x04", "a zip archive or an Excel workbook. Save the sheet as CSV"),
    (b"PAR1", "a Parquet file. Export it as JSONL"),
    (b"SQLite format 3", "a SQLite database. Export the table as CSV or JSONL"),
    (b"%PDF", "a PDF document"),
    (b"\x89PNG", "a picture"),
)
_CJK = re.compile("[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]")


class Source(Struct, frozen=True):
    """One file to read. `name` is what messages call it; `path` is empty for stdin."""

    name: str
    path: Path | None = None
    encoding: str = ""

    @property
    def suffix(self) -> str:
        """The extension that tells the layout: `.jsonl` for `cases.jsonl.gz`."""
        name = Path(self.name)
        return Path(name.stem).suffix.lower() if name.suffix.lower() in _PACKED_SUFFIXES else name.suffix.lower()


def source_of(given: str | Path, encoding: str = "") -> Source:
    """The source a user names on the command line; `-` is stdin."""
    if str(given) == "-":
        return Source("<stdin>", None, encoding)
    return Source(Path(given).as_posix(), Path(given), encoding)


def read_chunks(source: Source) -> Iterator[bytes]:
    """The text of a source as UTF-8 without BOM. Raises Refused where nothing (more) can be read."""
    with _open(source) as stream:
        yield from _as_utf8(stream, source)


def read_range(path: Path, start: int, stop: int) -> Iterator[bytes]:
    """The lines of a plain file that begin in [start, stop), to their ends."""
    with path.open("rb") as stream:
        at = start
        if start:
            stream.seek(start - 1)
            at = start - 1 + _to_line_end(stream)
        while at < stop:
            piece = stream.read(min(CHUNK, stop - at))
            if not piece:
                return
            at += len(piece)
            yield piece
            while at >= stop and piece and not piece.endswith(b"\n"):
                piece = stream.readline(CHUNK)
                yield piece


def _to_line_end(stream: IO[bytes]) -> int:
    """Moves behind the next line break; how many bytes that was."""
    moved = 0
    while piece := stream.readline(CHUNK):
        moved += len(piece)
        if piece.endswith(b"\n"):
            break
    return moved


def is_plain(source: Source) -> bool:
    """Whether the bytes on disk are the UTF-8 text itself, so that the file may be read in pieces."""
    if source.path is None or source.encoding or not source.path.is_file():
        return False
    with source.path.open("rb") as stream:
        head = stream.read(_SAMPLE)
    return not _unpacker(head) and not head.startswith(codecs.BOM_UTF8) and _guess_encoding(head) == "utf-8"


def _open(source: Source) -> IO[bytes]:
    try:
        if source.path is None:
            stream: IO[bytes] = sys.stdin.buffer
        elif source.path.is_dir():
            raise refused("is_directory", "expected a file, got a folder. Name a file in it")
        else:
            stream = source.path.open("rb")
    except FileNotFoundError:
        raise refused("cases_missing", "there is no such file. Check the path and the working folder") from None
    except (OSError, ValueError) as fault:
        raise refused("file_unreadable", f"cannot be opened: {_reason(fault)}") from None
    buffered = io.BufferedReader(cast(io.RawIOBase, stream), CHUNK)
    unpack = _unpacker(buffered.peek(4))
    return unpack(buffered) if unpack else buffered


def _unpacker(head: bytes) -> Callable[[IO[bytes]], IO[bytes]] | None:
    if head.startswith(b"\x1f\x8b"):
        return lambda stream: cast(IO[bytes], gzip.GzipFile(fileobj=stream))
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return _open_zstd
    return None


def _open_zstd(stream: IO[bytes]) -> IO[bytes]:
    if sys.version_info >= (3, 14):
        from compression.zstd import ZstdFile
    else:
        from backports.zstd import ZstdFile
    return cast(IO[bytes], ZstdFile(stream))


def _pieces(stream: IO[bytes]) -> Iterator[bytes]:
    try:
        while piece := stream.read(CHUNK):
            yield piece
    except (EOFError, OSError, zlib.error) as fault:
        message = f"breaks off: {_reason(fault)}. What came before was read"
        raise refused("file_truncated", message) from None
    except Exception as fault:
        # The zstd module has its own error class, under two names in two Python versions.
        if type(fault).__name__ != "ZstdError":
            raise
        raise refused("file_truncated", f"breaks off: {_reason(fault)}. What came before was read") from None


def _as_utf8(stream: IO[bytes], source: Source) -> Iterator[bytes]:
    pieces = _pieces(stream)
    head = next(pieces, b"")
    encoding = _checked_encoding(source.encoding) if source.encoding else _guess_encoding(head)
    _refuse_foreign(head, encoding)
    if encoding == "utf-8":
        yield head.removeprefix(codecs.BOM_UTF8)
        yield from pieces
        return
    decoder = codecs.getincrementaldecoder(encoding)()
    line = 1
    try:
        text = decoder.decode(head).removeprefix("\ufeff")
        yield text.encode()
        for piece in pieces:
            line += text.count("\n")
            text = decoder.decode(piece)
            yield text.encode()
        yield decoder.decode(b"", final=True).encode()
    except UnicodeError as fault:
        message = f"is not {encoding} from about line {line} on: {_reason(fault)}. Try another --encoding"
        raise refused("wrong_encoding", message) from None


def _checked_encoding(name: str) -> str:
    try:
        known = codecs.lookup(name).name
        codecs.getincrementaldecoder(known)().decode(b"")
    except (LookupError, ValueError, TypeError, AttributeError):
        message = f"--encoding: expected utf-8, utf-16, gbk, gb18030 or another text encoding, got {quote(name)}"
        raise refused("unknown_encoding", message) from None
    # A BOM in front of declared UTF-8 is not part of the text.
    return "utf-8-sig" if known == "utf-8" else known


def _guess_encoding(head: bytes) -> str:
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    sample = head[:_SAMPLE]
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if len(sample) >= 4 and odd > len(sample) // 8 and not even:
        return "utf-16-le"
    if len(sample) >= 4 and even > len(sample) // 8 and not odd:
        return "utf-16-be"
    return "utf-8"


def _refuse_foreign(head: bytes, encoding: str) -> None:
    """Says what a file is when it is no text of ours at all."""
    if head.startswith(b"version https://git-lfs.github.com/spec/"):
        raise refused("git_lfs_pointer", "is a Git LFS pointer, not the data. Run 'git lfs pull'")
    for magic, kind in _FOREIGN:
        if head.startswith(magic):
            raise refused("binary_file", f"expected text, got {kind}")
    if not encoding.startswith("utf-8"):
        return
    sample = head[:_SAMPLE]
    if b"\x00" in sample:
        raise refused("binary_file", "expected text, got binary data (NUL bytes)")
    if _looks_like_gb18030(sample):
        raise refused("not_utf8", "is not UTF-8; it looks like Chinese text in GB18030 / GBK. Add --encoding gb18030")


def _looks_like_gb18030(sample: bytes) -> bool:
    if _decodes(sample, "utf-8"):
        return False
    if not _decodes(sample, "gb18030"):
        return False
    text = codecs.getincrementaldecoder("gb18030")().decode(sample)
    foreign = sum(1 for char in text if ord(char) > 127)
    return len(_CJK.findall(text)) * 10 >= foreign * 9 and foreign > 3


def _decodes(sample: bytes, encoding: str) -> bool:
    try:
        codecs.getincrementaldecoder(encoding)().decode(sample)
    except UnicodeDecodeError:
        return False
    return True


def _reason(fault: Exception) -> str:
    return (getattr(fault, "strerror", None) or str(fault) or type(fault).__name__).lower()


__all__ = ["CHUNK", "Refused", "Source", "is_plain", "read_chunks", "source_of"]
