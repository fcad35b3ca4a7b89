"""Reads a large JSONL file in ranges, in several processes; the findings are the same as in one process."""

from __future__ import annotations

import gc
import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from evalloom.core.memory import is_limited
from evalloom.data.dataset import Dataset
from evalloom.data.validate.checker import Block, Checker
from evalloom.data.validate.shapes import Shapes
from evalloom.files.json_rows import JsonReader
from evalloom.files.rows import Item, Recognizer
from evalloom.files.source import is_plain, read_chunks, read_range

if TYPE_CHECKING:
    from concurrent.futures import Future

RANGE_BYTES = 4 * 1024 * 1024
_WORTH_IT = 4 * RANGE_BYTES
A = TypeVar("A")
R = TypeVar("R")


class NotLines(Exception):
    """The file must be read in one piece: a record spans two ranges, or no process can be started."""


def is_worth_it(dataset: Dataset, checker: Checker) -> bool:
    """Whether a file is worth ranges, and its checks read no source documents."""
    return not checker.rules.check_must_include_in_sources and is_in_lines(dataset)


def is_in_lines(dataset: Dataset) -> bool:
    """Whether a file is large, plain text with one record per line, and processes can be started."""
    path = dataset.source.path
    if path is None or dataset.layout != "json":
        return False
    if not path.is_file() or path.stat().st_size < _WORTH_IT or not is_plain(dataset.source):
        return False
    # Imported here and below: most files are small, and the import takes longer than checking such a file.
    import multiprocessing

    # Where memory is limited, a thread of the pool may not start, and its futures would wait for ever.
    if "fork" not in multiprocessing.get_all_start_methods() or is_limited():
        return False
    head = next(read_chunks(dataset.source), b"")
    # One object alone may be a document with the cases inside it.
    return b"\n{" in head and not JsonReader([head]).starts_array()


def check_ranges(path: Path, checker: Checker, full: Callable[[], Collection[str]]) -> Iterator[Block]:
    """Yield the blocks of a file in order; `full` returns the codes of which no more findings are listed."""

    if not checker.mapping.names:
        checker = msgspec.structs.replace(checker, shapes=Shapes(checker.dialect))

    def check(items: Iterable[Item], codes: Collection[str]) -> Block:
        return checker.check(checker.mapping.apply_rows(items), codes)

    for block, lines in map_ranges(path, check, full, checker.shapes):
        yield msgspec.structs.replace(block, lines=lines)


def map_ranges(
    path: Path,
    task: Callable[[Iterable[Item], A], R],
    argument: Callable[[], A],
    recognizer: Recognizer | None = None,
) -> Iterator[tuple[R, int]]:
    """Yield what a task returns for the rows of each range, in order, and the number of lines of the range.

    The task runs in another process and counts lines from the start of its range. `argument` is called when a range is
    handed out.
    """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    # Imported before the processes are forked, so that none of them has to.
    import numpy  # noqa: F401

    size = path.stat().st_size
    workers = min(os.cpu_count() or 1, 8)
    # Forked processes share the seed of `hash`, and ids and texts of different ranges are compared by hash.
    context = multiprocessing.get_context("fork")
    try:
        with ProcessPoolExecutor(workers, context, initializer=_start, initargs=(path, task, recognizer)) as pool:
            # Never cancel a future: the pool of Python 3.11 can then wait for ever.
            waiting: deque[Future[tuple[R, int]]] = deque()
            for start in chain(range(0, size, RANGE_BYTES), [None] * (workers + 1)):
                if start is not None:
                    waiting.append(pool.submit(_run_range, start, argument()))
                if waiting and (start is None or len(waiting) > workers + 1):
                    yield waiting.popleft().result()
    except (BrokenProcessPool, OSError, NotImplementedError):
        # Small machines lack the memory, and some sandboxes the semaphores, for more processes.
        raise NotLines from None


_path: Path
_task: Callable[[Iterable[Item], Any], Any]
_recognizer: Recognizer | None


def _start(path: Path, task: Callable[[Iterable[Item], Any], Any], recognizer: Recognizer | None) -> None:
    global _path, _task, _recognizer
    _path, _task, _recognizer = path, task, recognizer
    # Records have no reference cycles, so the cycle collector would only cost time.
    gc.disable()


def _run_range(start: int, argument: Any) -> tuple[Any, int]:
    reader = JsonReader(read_range(_path, start, start + RANGE_BYTES), may_be_array=False, recognizer=_recognizer)
    result = _task(reader.blocks(), argument)
    if reader.open_ended and start + RANGE_BYTES < _path.stat().st_size:
        raise NotLines
    return result, reader.lines
