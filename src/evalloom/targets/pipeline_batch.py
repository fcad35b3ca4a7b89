"""A batch step: a list goes through it item by item, in chunks, and comes out in the same order (PIPE-8)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from evalloom.errors import CallError
from evalloom.model import Record, type_name
from evalloom.targets.pipeline_file import Step

_Each = Callable[[int, Record], Awaitable[Any]]
_Chunk = Callable[[int, list[Record]], Awaitable[list[Any]]]


_WHOLE = ("items", "item")
"""The parameters that mean the items themselves."""


def failed_item(message: str) -> Record:
    """What stands in the slot of an item that failed."""
    return {"error": message}


def items_of(lists: dict[str, Any], shared: Record, spread: set[str], open_name: str) -> Iterator[Record]:
    """The inputs for each item. Several lists go side by side; items of those in `spread` go in field by field.

    The whole of such an item is `item`, and its parameter where it has no field of that name. An item that is no object
    is also the one name that nothing else fills.
    """
    for name, values in lists.items():
        if not isinstance(values, list):
            raise CallError("bad_items", f"{name}: expected a list to go through, got {type_name(values)}")
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise CallError("bad_items", f"expected lists of one length, to go through them side by side; {told}")
    for row in zip(*lists.values(), strict=True):
        values = dict(shared)
        for name, item in zip(lists, row, strict=True):
            if name not in spread:
                values[name] = item
                continue
            values |= {"item": item} if name in _WHOLE else {name: item}
            if isinstance(item, dict):
                values |= item
            elif open_name and name in _WHOLE:
                values[open_name] = item
        yield values


async def run_each(inputs: list[Record], each: _Each, step: Step) -> list[Any]:
    """Every item through `each`, which never raises for a failing one; so many side by side as the step allows."""
    results: list[Any] = [None] * len(inputs)
    for start in range(0, len(inputs), step.batch_size):
        numbers = iter(range(start, min(start + step.batch_size, len(inputs))))

        async def work(numbers: Iterator[int] = numbers) -> None:
            for number in numbers:
                results[number] = await each(number, inputs[number])

        side_by_side = min(step.max_workers, step.batch_size, len(inputs) - start) if step.concurrent else 1
        if side_by_side == 1:
            await work()
        else:
            await all_of(work() for _ in range(side_by_side))
    return results


async def all_of(calls: Iterator[Awaitable[Any]]) -> None:
    """Waits for all; when one raises, the others are given up first."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run_chunks(inputs: list[Record], chunk: _Chunk, step: Step) -> list[Any]:
    """The same in whole chunks, for what is dear to start."""
    results: list[Any] = []
    for start in range(0, len(inputs), step.batch_size):
        results += await chunk(start, inputs[start : start + step.batch_size])
    return results
