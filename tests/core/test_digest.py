"""Digests that stand in files of version 0.1 stay the same."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.digest import (
    canonical_json,
    digest_bytes,
    digest_file,
    digest_of,
    digest_text,
    digest_value,
    sha256_base64,
    sha256_hex,
)

VALUE = {"b": [1, "é", None], "a": 2.5}


@pytest.mark.parametrize(
    ("digest", "expected"),
    [
        (digest_of("x", VALUE), "bcc31f6caba43d9d457b93e6ee5c6394"),
        (digest_value(VALUE), "0bc63bc898ef973d62551898a80daf8f"),
        (digest_value({"x": "\ud800", "n": 2**70}), "c01ae8688c23b83167c2a1335e4f9af7"),
        (sha256_base64("é"), "SplVfkAzw1Od4utlRyAXytX5VX96BiWgnxw/biumnEw="),
        (digest_text("\ud800é", 6), "ad5eded6b1d1"),
    ],
)
def test_a_digest_is_that_of_version_0_1(digest: str, expected: str) -> None:
    assert digest == expected


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none()))
def test_the_order_of_keys_does_not_count(value: dict[str, object]) -> None:
    backwards = dict(reversed(value.items()))
    assert canonical_json(value) == canonical_json(backwards) and digest_value(value) == digest_value(backwards)
    assert digest_of(value) == digest_of(backwards)


def test_a_file_has_the_digest_of_its_bytes(tmp_path: Path) -> None:
    content = b"0123456789" * 300_000
    (tmp_path / "large").write_bytes(content)
    assert digest_file(tmp_path / "large") == digest_bytes(content)


def test_digests_have_the_length_that_is_asked_for() -> None:
    assert [len(digest_text("a", size)) for size in (4, 16)] == [8, 32] and len(sha256_hex(b"")) == 64
    assert digest_bytes(b"a", 8, b"salt") != digest_bytes(b"a", 8)
