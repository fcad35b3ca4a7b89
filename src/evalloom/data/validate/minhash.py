"""MinHash with banding: finds the texts that share many shingles without comparing every pair.

Texts whose shingles overlap by 0.6 share at least one of 16 bands of 3 rows with a probability of 0.98, unrelated texts
almost never.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

SHORTEST, LONGEST = 10, 20_000
"""Texts of other lengths have no signature."""
_BANDS, _ROWS = 16, 3
SIGNATURE_SIZE = _BANDS * _ROWS
_LARGEST_BUCKET = 32
"""A larger bucket is a prompt that many cases share; cases that are similar otherwise share another band."""
_LEAST_OVERLAP = 0.45
_RANDOM = np.random.default_rng(20)
_FACTORS = _RANDOM.integers(0, 2**63, _BANDS * _ROWS, np.uint64) * np.uint64(2) + np.uint64(1)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_CACHED_CHARACTERS = 16_384
"""The shingles of this many characters stay in the processor's cache while 48 hashes of each are computed."""


def signatures(texts: Sequence[str]) -> NDArray[np.uint32]:
    """Return a row for each text: the MinHash of its shingles, all zeros if it is too short or too long.

    A shingle has five characters, or three in scripts of syllables or words.
    """
    rows = np.zeros((len(texts), _BANDS * _ROWS), np.uint32)
    for numbers in _batches(texts):
        batch = [texts[number] for number in numbers]
        sizes = np.array([len(text) for text in batch], np.int64)
        codes = np.frombuffer("".join(batch).encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
        is_east_asian = np.add.reduceat(codes > 0x2E80, _starts(sizes), dtype=np.int64) * 3 > sizes
        for width, chosen in ((3, is_east_asian), (5, ~is_east_asian)):
            if chosen.any():
                rows[np.array(numbers)[chosen]] = _lowest(codes[np.repeat(chosen, sizes)], sizes[chosen], width)
    return rows


def _batches(texts: Sequence[str]) -> Iterator[list[int]]:
    """Yield the numbers of the texts to hash, few enough at a time for the cache."""
    batch: list[int] = []
    size = 0
    for number, text in enumerate(texts):
        if SHORTEST <= len(text) <= LONGEST:
            batch.append(number)
            size += len(text)
            if size >= _CACHED_CHARACTERS:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


def _starts(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    starts: NDArray[np.int64] = np.cumsum(sizes) - sizes
    return starts


def _lowest(codes: NDArray[np.uint64], sizes: NDArray[np.int64], width: int) -> NDArray[np.uint32]:
    """Return the lowest value of each hash over the shingles of each text; `codes` are all texts in one."""
    count = len(codes) - width + 1
    shingles = codes[:count].copy()
    for at in range(1, width):
        shingles *= _MIX
        shingles ^= codes[at : at + count]
    shingles *= _MIX
    shingles ^= shingles >> np.uint64(29)
    # The last characters of a text begin no shingle of it: those would reach into the next text.
    is_inside = np.ones(len(codes), np.bool_)
    ends = np.cumsum(sizes)
    for back in range(1, width):
        is_inside[ends - back] = False
    shingles = shingles[is_inside[:count]]
    starts = _starts(sizes - width + 1)
    hashes = np.empty_like(shingles)
    lowest = np.empty((len(sizes), len(_FACTORS)), np.uint64)
    for column, factor in enumerate(_FACTORS):
        np.multiply(shingles, factor, out=hashes)
        lowest[:, column] = np.minimum.reduceat(hashes, starts)
    return (lowest >> np.uint64(32)).astype(np.uint32)


def candidates(
    signatures: NDArray[np.uint32], fingerprints: NDArray[np.int64], sizes: NDArray[np.int64]
) -> list[tuple[int, int]]:
    """Return (earlier, later) pairs of one fingerprint and similar size that share a band and enough shingles."""
    count = len(signatures)
    pairs = [np.empty(0, np.int64)]
    for band in range(_BANDS):
        keys = fingerprints.astype(np.uint64)
        for row in range(band * _ROWS, (band + 1) * _ROWS):
            keys = (keys ^ signatures[:, row]) * _MIX
            keys ^= keys >> np.uint64(31)
        order = np.argsort(keys, kind="stable")
        _, members = runs(keys[order])
        order = order[np.repeat((members > 1) & (members <= _LARGEST_BUCKET), members)]
        ordered = keys[order]
        for step in range(1, min(_LARGEST_BUCKET, len(order))):
            meet = np.flatnonzero(ordered[step:] == ordered[:-step])
            if not len(meet):
                break
            earlier, later = order[meet], order[meet + step]
            # Texts whose sizes differ by a quarter cannot reach a similarity of 0.9.
            near = np.abs(sizes[earlier] - sizes[later]) * 4 <= np.maximum(sizes[earlier], sizes[later])
            earlier, later = earlier[near], later[near]
            overlap = (signatures[earlier] == signatures[later]).mean(axis=1)
            pairs.append((earlier * count + later)[overlap >= _LEAST_OVERLAP])
    codes = np.unique(np.concatenate(pairs))
    return list(zip((codes // max(count, 1)).tolist(), (codes % max(count, 1)).tolist(), strict=True))


def runs(ordered: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the start and the length of each run of equal keys."""
    starts = np.flatnonzero(np.concatenate((ordered[:1] == ordered[:1], ordered[1:] != ordered[:-1])))
    return starts, np.diff(np.append(starts, len(ordered)))
