"""The words that search counts."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from evalloom.rag.retrieval import words
from evalloom.rag.retrieval.words import query_words


def test_names_are_found_whole_and_in_parts() -> None:
    assert words("PRO-2026") == ["pro", "2026", "pro-2026"]
    assert words("v1.2") == ["v1", "2", "v1.2"]
    assert words("battery_temperature") == ["battery", "temperature", "battery_temperature"]


def test_plurals_and_possessives_meet_their_word() -> None:
    assert words("Policies, devices and the company's") == ["policy", "device", "company"]
    assert words("class status analysis") == ["class", "status", "analysis"]


def test_chinese_is_words_and_characters() -> None:
    found = words("叉车的限速规定")
    assert {"叉车", "限速", "规定", "叉", "车"} <= set(found)
    assert "的" not in found


def test_width_and_case_do_not_matter() -> None:
    assert words("ＶＰＮ　Ｎ１") == words("vpn n1") == ["vpn", "n1"]


def test_scripts_without_spaces_are_pairs() -> None:
    assert words("カタカナ") == ["カタ", "タカ", "カナ"]
    assert words("한국어") == ["한국", "국어"]
    assert words("हिन्दी") == ["हिन्दी"]


def test_punctuation_is_no_word() -> None:
    assert words("—— … !? 、。「」 | ---") == []


@given(st.text())
def test_any_text_has_words_without_space_in_them(text: str) -> None:
    found = words(text)
    assert found == words(text)
    assert all(word and not any(map(str.isspace, word)) for word in found)


def test_importing_is_light() -> None:
    heavy = "numpy bm25s rjieba pypdf docx selectolax tokenizers"
    code = f"import sys, evalloom.rag.retrieval; print([name for name in {heavy.split()!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_may_be_left_unwritten_makes_no_other_word() -> None:
    assert words("مُحَمَّد") == words("محمد") and words("שָׁלוֹם") == words("שלום")
    assert words("Donau\u00addampf") == ["donaudampf"]
    assert words("İstanbul") == words("istanbul")
    assert words("བོད་ཡིག") == ["བོད", "ཡིག"] and len(words("x̂ŷ")) == 1


def test_a_name_made_of_function_words_is_a_name() -> None:
    assert "at&t" in words("AT&T") and "r&d" in words("R&D")
    assert words("IT support") == ["it", "support"] and words("it is support") == ["support"]
    assert query_words("it") == ["it"] and query_words("is it support") == ["support"]
    assert words("COMPANY'S Company's") == ["company", "company"]


@given(st.text(st.characters(max_codepoint=127)))
def test_ascii_text_has_the_words_that_it_has_beside_others(text: str) -> None:
    assert words(f"{text} ñ") == [*words(text), "ñ"]
