"""Opens what the user named: a path or stdin, packed or not, in whichever encoding, as chunks of UTF-8."""

from __future__ import annotations

import codecs
import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, cast

from msgspec import Struct

from evalloom.core.lazy import lazy_pattern
from evalloom.core.text import quote
from evalloom.files.rows import NO_TEXT, Refused, refused

CHUNK = 128 * 1024
_SAMPLE = CHUNK
_PACKED_SUFFIXES = (".gz", ".zst")
_FOREIGN = (
    (b"PK\x03\x04", "a zip archive or an Excel workbook. Save the sheet as CSV"),
    (b"PAR1", "a Parquet file. Export it as JSONL"),
    (b"SQLite format 3", "a SQLite database. Export the table as CSV or JSONL"),
    (b"%PDF", "a PDF document"),
    (b"\x89PNG", "a picture"),
)
_CJK = lazy_pattern("[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]")


class Source(Struct, frozen=True):
    """One file to read. `name` is what messages call it; `path` is empty for stdin."""

    name: str
    path: Path | None = None
    encoding: str = ""
    content: bytes | None = None
    """What is in it, where it is no file but has arrived already."""

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
    with _open(source) as stream, _unpacked(stream) as unpacked:
        yield from _as_utf8(_pieces(unpacked), source)


def read_range(path: Path, start: int, stop: int) -> Iterator[bytes]:
    """The lines of a plain file that begin in [start, stop), to their ends."""
    with path.open("rb") as stream:
        at = start
        if start:
            stream.seek(start - 1)
            at = start - 1 + _to_line_end(stream, stop - start)
        while at < stop:
            piece = stream.read(min(CHUNK, stop - at))
            if not piece:
                return
            at += len(piece)
            yield piece
            while at >= stop and piece and not piece.endswith(b"\n"):
                piece = stream.readline(CHUNK)
                yield piece


def _to_line_end(stream: IO[bytes], limit: int) -> int:
    """Moves behind the next line break, or past the limit; how many bytes that was."""
    moved = 0
    while moved <= limit and (piece := stream.readline(CHUNK)):
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


def _open(source: Source) -> io.BufferedReader:
    try:
        if source.content is not None:
            return io.BufferedReader(cast(io.RawIOBase, io.BytesIO(source.content)), CHUNK)
        if source.path is None:
            # None where the program was started without one.
            if sys.stdin is None:
                raise refused("file_unreadable", "cannot be opened: there is no standard input")
            stream: IO[bytes] = sys.stdin.buffer
        elif source.path.is_dir():
            raise refused("is_directory", "expected a file, got a folder. Name a file in it")
        else:
            stream = source.path.open("rb")
        buffered: io.BufferedReader = io.BufferedReader(cast(io.RawIOBase, stream), CHUNK)
        buffered.peek(1)
        return buffered
    except FileNotFoundError:
        raise refused("cases_missing", "there is no such file. Check the path and the working folder") from None
    except (OSError, ValueError) as fault:
        raise refused("file_unreadable", f"cannot be opened: {_reason(fault)}") from None


def _unpacked(stream: io.BufferedReader) -> io.BufferedIOBase:
    unpack = _unpacker(stream.peek(4))
    return cast(io.BufferedIOBase, unpack(stream)) if unpack else stream


def _unpacker(head: bytes) -> Callable[[IO[bytes]], IO[bytes]] | None:
    if head.startswith(b"\x1f\x8b"):
        return lambda stream: cast(IO[bytes], gzip.GzipFile(fileobj=stream))
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return _open_zstd
    return None


def _open_zstd(stream: IO[bytes]) -> IO[bytes]:
    from evalloom.files.zstd import ZstdFile  # deferred: few files are packed

    return cast(IO[bytes], ZstdFile(stream))


def _pieces(stream: io.BufferedIOBase) -> Iterator[bytes]:
    """Chunks of a stream, all of the same size but the last; what came before a fault comes out before it."""
    piece = b""
    try:
        while more := stream.read1(CHUNK - len(piece)):
            piece += more
            if len(piece) == CHUNK:
                yield piece
                piece = b""
    except Exception as fault:
        # The zstd module has its own error class, under two names in two Python versions.
        if not isinstance(fault, (EOFError, OSError, zlib.error)) and type(fault).__name__ != "ZstdError":
            raise
        yield piece
        raise refused("file_truncated", f"breaks off: {_reason(fault)}. What came before was read") from None
    yield piece


def _as_utf8(pieces: Iterator[bytes], source: Source) -> Iterator[bytes]:
    head = next(pieces, b"")
    guess = _guess_encoding(head)
    encoding = _named_encoding(source.encoding) if source.encoding else guess
    if encoding in ("utf-16", "utf-32") and encoding != guess:
        # Without a byte order mark, Python's own decoder can only give up.
        if not guess.startswith(encoding):
            raise refused("wrong_encoding", f"is not {encoding}: there is no byte order mark. Name another --encoding")
        encoding = guess
    _refuse_foreign(head, encoding, is_named=bool(source.encoding))
    if encoding == "utf-8":
        yield head.removeprefix(codecs.BOM_UTF8)
        yield from pieces
        return
    decoder = codecs.getincrementaldecoder(encoding)(_MARK)
    yield decoder.decode(head).removeprefix("\ufeff").encode("utf-8", _MARK)
    for piece in pieces:
        yield decoder.decode(piece).encode("utf-8", _MARK)
    yield decoder.decode(b"", final=True).encode("utf-8", _MARK)


_MARK = "evalloom.mark"


def _mark(fault: UnicodeError) -> tuple[str | bytes, int]:
    """Puts a mark where there is no text, so that the record around it is refused and the next one read."""
    if isinstance(fault, UnicodeDecodeError):
        return "\udcff", fault.end
    if isinstance(fault, UnicodeEncodeError):
        return NO_TEXT, fault.end
    raise fault


codecs.register_error(_MARK, _mark)


def _named_encoding(name: str) -> str:
    try:
        known = codecs.lookup(name).name
        is_text = isinstance(codecs.getincrementaldecoder(known)(_MARK).decode(b""), str)
    except (LookupError, ValueError, TypeError, AttributeError, AssertionError):
        # Python also counts base64 and the like among its encodings; each fails in its own way.
        is_text = False
    if not is_text:
        message = f"--encoding: expected utf-8, utf-16, gbk, gb18030 or another text encoding, got {quote(name)}"
        raise refused("unknown_encoding", message)
    return "utf-8" if known == "utf-8-sig" else known


def _guess_encoding(head: bytes) -> str:
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    sample = head[:_SAMPLE]
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    # A few zeros are on the other side too: every character U+xx00, such as the frequent U+4E00.
    if odd > max(len(sample) // 32, 8 * even, 1):
        return "utf-16-le"
    if even > max(len(sample) // 32, 8 * odd, 1):
        return "utf-16-be"
    return "utf-8"


def _refuse_foreign(head: bytes, encoding: str, is_named: bool) -> None:
    """Says what a file is when it is no text of ours at all."""
    if head.startswith(b"version https://git-lfs.github.com/spec/"):
        raise refused("git_lfs_pointer", "is a Git LFS pointer, not the data. Run 'git lfs pull'")
    for magic, kind in _FOREIGN:
        if head.startswith(magic):
            raise refused("binary_file", f"expected text, got {kind}")
    if encoding != "utf-8":
        return
    sample = head[:_SAMPLE]
    if b"\x00" in sample:
        raise refused("binary_file", "expected text, got binary data (NUL bytes)")
    if not is_named and _looks_like_gb18030(sample):
        raise refused("not_utf8", "is not UTF-8; it looks like Chinese text in GB18030 / GBK. Add --encoding gb18030")


def _looks_like_gb18030(sample: bytes) -> bool:
    as_utf8 = sample.decode("utf-8", "replace")
    bad = as_utf8.count("\ufffd")
    # A broken byte in UTF-8 is no reason to take the file for something else.
    if bad <= 1 or bad <= sum(char > "\x7f" for char in as_utf8) - bad or not _decodes(sample, "gb18030"):
        return False
    text = codecs.getincrementaldecoder("gb18030")().decode(sample)
    foreign = sum(char > "\x7f" for char in text)
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
