"""Batch steps: processes a list item by item, in chunks, and keeps the order (PIPE-8)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from evalloom.core.errors import CallError
from evalloom.core.model import Record
from evalloom.core.text import type_name
from evalloom.pipeline.aggregate import FailedItem
from evalloom.pipeline.file import Step
from evalloom.pipeline.steps import Part

WHOLE = ("items", "item")
"""The parameters that receive whole items."""
_Each = Callable[[int, Record], Awaitable[Any]]
_Chunk = Callable[[list[tuple[int, Record]]], Awaitable[list[Any]]]


def rows_of(lists: Record) -> Iterator[tuple[Any, ...]]:
    """Yield rows with one item from each list."""
    for name, values in lists.items():
        if not isinstance(values, list):
            raise CallError("bad_items", f"{name}: expected a list to iterate over, got {type_name(values)}")
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        sizes = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise CallError("bad_items", f"expected lists of the same length to iterate over together; {sizes}")
    return zip(*lists.values(), strict=True)


def spread_of(named: Iterable[tuple[str, Any]], spread: set[str], part: Part, weak: Record, strong: Record) -> Record:
    """Return the inputs from the items of one row. Items of the lists in `spread` are spread into fields.

    Such an item is also passed whole as `item`, or as its own parameter.
    """
    fields: Record = {}
    mapped: Record = {}
    for name, item in named:
        if name not in spread:
            mapped[name] = item
            continue
        fields |= {("item" if name in WHOLE else name): item, **(item if isinstance(item, dict) else {})}
        if name in WHOLE and (meant := _meant_by(item, part, weak, strong)):
            fields[meant] = item
    return {**fields, **mapped}


def _meant_by(item: Any, part: Part, weak: Record, strong: Record) -> str:
    """Return the only parameter that can mean a whole item, or an empty string."""
    if "item" in part.needs:
        return ""
    open_names = [name for name in part.needs if name not in strong]
    if isinstance(item, dict):
        # An object with some of the names is meant to provide all of them.
        if not part.needs.isdisjoint(item):
            return ""
        open_names = [name for name in open_names if name not in weak]
    elif len(open_names) > 1:
        open_names = [name for name in open_names if name not in weak]
    return open_names[0] if len(open_names) == 1 else ""


async def run_each(inputs: list[Record | FailedItem], each: _Each, step: Step) -> list[Any]:
    """Run `each` for every item, with the concurrency of the step; `each` does not raise for a failed item.

    Items that failed in an earlier step are passed through.
    """
    results: list[Any] = list(inputs)
    waiting = [number for number, item in enumerate(inputs) if not isinstance(item, FailedItem)]
    for start in range(0, len(waiting), step.batch_size):
        chunk = waiting[start : start + step.batch_size]
        numbers = iter(chunk)

        async def work(numbers: Iterator[int] = numbers) -> None:
            for number in numbers:
                results[number] = await each(number, inputs[number])

        side_by_side = min(step.max_workers, len(chunk)) if step.concurrent else 1
        if side_by_side == 1:
            await work()
        else:
            await _all_of(work() for _ in range(side_by_side))
    return results


async def run_chunks(inputs: list[Record | FailedItem], run: _Chunk, step: Step) -> list[Any]:
    """Run whole chunks, for code that is expensive to start."""
    results: list[Any] = list(inputs)
    waiting = [(number, item) for number, item in enumerate(inputs) if not isinstance(item, FailedItem)]
    for start in range(0, len(waiting), step.batch_size):
        chunk = waiting[start : start + step.batch_size]
        for (number, _), result in zip(chunk, await run(chunk), strict=True):
            results[number] = result
    return results


async def _all_of(calls: Iterable[Awaitable[Any]]) -> None:
    """Wait for all calls; if one raises, cancel the others."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
