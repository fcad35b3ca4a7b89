"""Keys of a large file are compared as those of a small one."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.data.validate import keys
from evalloom.data.validate.keys import KeyBuilder, KeyColumn, KeyIndex

KEYS = st.one_of(st.integers(-2, 4), st.sampled_from(["a", "b", "1", "é"]))


def column(block: list[str | int]) -> KeyColumn:
    builder = KeyBuilder()
    builder.keys += block
    builder.lines.extend(range(1, len(block) + 1))
    return builder.column()


@given(st.lists(st.lists(KEYS, max_size=6), max_size=4), st.randoms(use_true_random=False))
def test_many_keys_are_compared_as_few_are(blocks: list[list[str | int]], choices: random.Random) -> None:
    index = KeyIndex()
    for number, block in enumerate(blocks):
        index.extend(column(block), 10 * number)
    sides = bytearray(choices.choice((1, 2)) for _ in range(len(index)))
    few = list(index.repeats()), index.incomplete(sides)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "_DICT_LIMIT", -1)
        assert (list(index.repeats()), index.incomplete(sides)) == few


@given(st.lists(st.one_of(st.integers(-(2**63), 2**64 - 1), st.text(max_size=3)), min_size=1))
def test_hash_of_a_key_does_not_depend_on_the_keys_beside_it(block: list[str | int]) -> None:
    assert column(block).hashes.tolist() == [column([key]).hashes[0] for key in block]
