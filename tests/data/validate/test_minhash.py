"""Signatures of many texts at once are those of each text alone, and similar texts meet."""

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from evalloom.data.validate.duplicates import signs_in_place
from evalloom.data.validate.minhash import LONGEST, SHORTEST, candidates, signatures

TEXTS = st.text(st.sampled_from("abc 退款。\ud800"), max_size=60)


@given(st.lists(TEXTS, max_size=12))
def test_a_signature_does_not_depend_on_the_other_texts(texts: list[str]) -> None:
    together = signatures(texts)
    assert together.shape == (len(texts), 48)
    for text, signature in zip(texts, together, strict=True):
        assert (signatures([text])[0] == signature).all()
        assert signature.any() == (len(text) >= SHORTEST)


def test_a_text_of_any_other_length_has_no_signature() -> None:
    texts = ["x" * (SHORTEST - 1), "x" * LONGEST, "x" * (LONGEST + 1), "x" * SHORTEST]
    assert signatures(texts).any(axis=1).tolist() == [False, True, False, True]


def test_shared_shingles_give_shared_values() -> None:
    text = "how do I reset my password when the mail with the link never comes"
    signed = signatures([text, text.replace("password", "pasword"), "which colour has the sky above the sea at night"])
    similar, different = (signed[0] == signed[1]).mean(), (signed[0] == signed[2]).mean()
    assert similar > 0.6 and different < 0.1


def _pairs(texts: list[str], prints: NDArray[np.int64]) -> list[tuple[int, int]]:
    return candidates(signatures(texts), prints, np.array([len(text) for text in texts], np.int64))


def test_only_texts_of_one_fingerprint_are_candidates() -> None:
    text = "how do I reset my password when the mail with the link never comes"
    texts = [text, "which colour has the sky above the sea at night", text + " again", text]
    assert _pairs(texts, np.array([1, 1, 1, 2])) == [(0, 2)]
    assert _pairs([], np.empty(0, np.int64)) == []


@given(st.text(st.sampled_from("ab(+=\n\r "), max_size=60))
def test_signs_are_found_as_the_pattern_finds_them(text: str) -> None:
    assert signs_in_place(text) == re.findall(r".{0,12}[()\[\]{}+*/=<>^&|~]", text)
