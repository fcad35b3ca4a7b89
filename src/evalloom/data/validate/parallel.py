"""Checks a large JSONL file in ranges, in several processes; the findings are the same as in one process."""

from __future__ import annotations

import gc
import os
from collections import deque
from collections.abc import Callable, Collection, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from evalloom.core.memory import is_limited
from evalloom.data.dataset import Dataset
from evalloom.data.validate.checker import Block, Checker
from evalloom.files.json_rows import JsonReader
from evalloom.files.source import is_plain, read_chunks, read_range

if TYPE_CHECKING:
    from concurrent.futures import Future

RANGE_BYTES = 4 * 1024 * 1024
_WORTH_IT = 4 * RANGE_BYTES


class NotLines(Exception):
    """The file must be read in one piece: a record spans two ranges, or no process can be started."""


def is_worth_it(dataset: Dataset, checker: Checker) -> bool:
    """Whether a file is large, plain text with one record per line, and its checks read no source documents."""
    path = dataset.source.path
    if path is None or dataset.layout != "json" or checker.rules.check_must_include_in_sources:
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
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    size = path.stat().st_size
    workers = min(os.cpu_count() or 1, 8)
    # Forked processes share the seed of `hash`, and ids of different ranges are compared by hash.
    context = multiprocessing.get_context("fork")
    try:
        with ProcessPoolExecutor(workers, context, initializer=_start, initargs=(path, checker)) as pool:
            # Never cancel a future: the pool of Python 3.11 can then wait for ever.
            waiting: deque[Future[Block]] = deque()
            for start in chain(range(0, size, RANGE_BYTES), [None] * (workers + 1)):
                if start is not None:
                    waiting.append(pool.submit(_check_range, start, full()))
                if waiting and (start is None or len(waiting) > workers + 1):
                    yield waiting.popleft().result()
    except (BrokenProcessPool, OSError, NotImplementedError):
        # Small machines lack the memory, and some sandboxes the semaphores, for more processes.
        raise NotLines from None


_path: Path
_checker: Checker


def _start(path: Path, checker: Checker) -> None:
    global _path, _checker
    _path, _checker = path, checker
    # Records have no reference cycles, so the cycle collector would only cost time.
    gc.disable()


def _check_range(start: int, full: Collection[str]) -> Block:
    reader = JsonReader(read_range(_path, start, start + RANGE_BYTES), may_be_array=False)
    block = _checker.check(_checker.mapping.apply_rows(reader.blocks()), full)
    if reader.open_ended and start + RANGE_BYTES < _path.stat().st_size:
        raise NotLines
    return msgspec.structs.replace(block, lines=reader.lines)
