"""Texts in every encoding: read as they are, or not read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.rag.retrieval.decoding import UnreadableDocument, decode

CHINESE = "入职满一年的员工每年享有十个工作日的带薪年假。\n"
GERMAN = "Straße für Ärzte: § 12, größer als „Café“ – 20 €\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "gb18030", "gbk"])
def test_chinese(encoding: str) -> None:
    assert decode(CHINESE.encode(encoding)) == CHINESE
    late = "plain text\n" * 20_000 + CHINESE
    assert decode(late.encode(encoding)) == late


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-16-be", "cp1252"])
def test_latin(encoding: str) -> None:
    assert decode(GERMAN.encode(encoding)) == GERMAN
    assert decode("It’s “quoted”…".encode(encoding)) == "It’s “quoted”…"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("plain english 帶薪年假為十個工作日", "big5"),
        ("plain english 有給休暇は十日です。", "shift_jis"),
        ("日本語のテキストです", "euc_jp"),
        ("휴가는 연간 십일입니다. 직원은 모두 신청할 수 있습니다.", "euc_kr"),
        ("Привет, это текст", "cp1251"),
        ("Zażółć gęślą jaźń", "cp1250"),
    ],
)
def test_what_is_in_another_encoding_is_not_read_but_as_a_page_that_says_so(text: str, encoding: str) -> None:
    with pytest.raises(UnreadableDocument, match="is not in a known encoding: line 1 is not UTF-8"):
        decode(text.encode(encoding))
    page = f"<html><head><meta charset='{encoding}'></head><p>{text}"
    assert decode(page.encode(encoding), is_html=True) == page


@pytest.mark.parametrize("content", [b"a\0b\0c hello\n", bytes(range(256)), b"caf\xc3\xa9 caf\xc3\xa9 \xc3 x"])
def test_what_is_no_text_or_broken_is_not_read(content: bytes) -> None:
    with pytest.raises(UnreadableDocument, match="is not in a known encoding"):
        decode(content)


def test_a_page_is_utf8_whatever_it_says_and_a_charset_that_is_none_does_not_matter() -> None:
    page = "<meta http-equiv=Content-Type content='text/html; charset=iso-8859-1'>年假"
    assert decode(page.encode(), is_html=True) == page
    page = "<meta charset=punycode><p>Café"
    assert decode(page.encode("cp1252"), is_html=True) == page


def test_lines_that_end_in_cr_alone_are_lines() -> None:
    assert decode(b"# A\rtext\r") == "# A\ntext\n"
    assert decode(b"a\r\nb\r\n") == "a\r\nb\r\n"


@given(st.binary(max_size=100))
def test_no_character_is_ever_lost(content: bytes) -> None:
    try:
        assert (
            "\ufffd" not in decode(content) or b"\xef\xbf\xbd" in content or content[:2] in (b"\xff\xfe", b"\xfe\xff")
        )
    except UnreadableDocument as error:
        assert "Save it as UTF-8" in str(error)
