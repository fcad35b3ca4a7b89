"""Reading documents of every kind, whole and broken."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable

import docx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.retrieval.chunks import chunks
from evalloom.retrieval.readers import READERS, Unreadable, read


def _titles(name: str, content: bytes) -> list[tuple[int, str]]:
    document = read(name, name[name.rindex(".") :], content)
    assert all(document.text[one.start :].lstrip("# ").startswith(one.title) for one in document.headings)
    return [(one.level, one.title) for one in document.headings]


def test_markdown_headings_of_both_kinds_but_not_in_code_or_front_matter() -> None:
    text = "---\ntitle: x\n---\n\nTop\n===\n\n```\n# no\n```\n\n## Sub ##\n\nLow\n---\n\ntext\n"
    assert _titles("a.md", text.encode()) == [(1, "Top"), (2, "Sub"), (2, "Low")]
    assert _titles("a.md", b"# One\r\n\r\ntext\r\n") == [(1, "One")]


def test_restructured_text_headings_by_the_order_of_their_marks() -> None:
    text = "Top\n***\n\ntext\n\nSub\n~~~\n\ntext\n\nTop 2\n*****\n"
    assert _titles("a.rst", text.encode()) == [(1, "Top"), (2, "Sub"), (1, "Top 2")]


def test_html_is_what_a_reader_sees() -> None:
    page = "<title>T</title><h1>Leave <i>rules</i></h1><p>Ten\n days.</p><script>bad()</script><ul><li>a<li>b</ul>"
    document = read("a.html", ".html", page.encode())
    assert document.text == "T\nLeave rules\nTen days.\n\na\nb\n\n"
    assert [(one.level, one.title) for one in document.headings] == [(1, "Leave rules")]


def test_html_may_nest_as_deep_as_it_likes() -> None:
    page = b"<div>" * 20_000 + b"deep"
    assert "deep" in read("a.htm", ".htm", page).text


def test_docx_headings_and_tables() -> None:
    made = docx.Document()
    made.add_heading("Leave", 1)
    made.add_paragraph("Ten days.")
    table = made.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "a", "b"
    stream = io.BytesIO()
    made.save(stream)
    document = read("a.docx", ".docx", stream.getvalue())
    assert document.text == "Leave\nTen days.\na\tb\n\n"
    assert [chunk.heading for chunk in chunks(document, 800, 0)] == ["Leave"]


def pdf(*pages: str) -> bytes:
    """A PDF file with one line of text on each page."""
    kids = " ".join(f"{4 + 2 * at} 0 R" for at in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for at, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET"
        look = f"/Resources << /Font << /F1 3 0 R >> >> /MediaBox [0 0 300 200] /Contents {5 + 2 * at} 0 R"
        objects.append(f"<< /Type /Page /Parent 2 0 R {look} >>")
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    body, places = "%PDF-1.4\n", []
    for number, one in enumerate(objects, 1):
        places.append(len(body))
        body += f"{number} 0 obj\n{one}\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    head = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    return f"{body}{head}trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(body)}\n%%EOF".encode()


def test_pdf_chunks_know_their_page() -> None:
    document = read("a.pdf", ".pdf", pdf("Ten days of leave", "", "Sick leave"))
    found = [(chunk.page, chunk.text.strip()) for chunk in chunks(document, 800, 0) if chunk.text.strip()]
    assert found == [(1, "Ten days of leave"), (3, "Sick leave")]


def test_a_pdf_of_pictures_is_unread() -> None:
    with pytest.raises(Unreadable, match="no text"):
        read("a.pdf", ".pdf", pdf("", ""))


@pytest.mark.parametrize("encode", [
    lambda text: text.encode(),
    lambda text: b"\xef\xbb\xbf" + text.encode(),
    lambda text: text.encode("utf-16"),
    lambda text: text.encode("gb18030"),
])  # fmt: skip
def test_text_in_any_of_the_usual_encodings(encode: Callable[[str], bytes]) -> None:
    text = "入职满一年的员工每年享有带薪年假。\n"
    assert read("a.txt", ".txt", encode(text)).text == text


def test_a_docx_that_unpacks_to_too_much_is_unread() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.xml", "w") as entry:
        for _ in range(201):
            entry.write(bytes(1024 * 1024))
    with pytest.raises(Unreadable, match="unpacks to more than 200 MB"):
        read("a.docx", ".docx", stream.getvalue())


@pytest.mark.parametrize("suffix", READERS)
@given(st.binary(max_size=200))
def test_whatever_the_bytes_a_reader_reads_or_says_why(suffix: str, content: bytes) -> None:
    try:
        assert isinstance(read(f"a{suffix}", suffix, content).text, str)
    except Unreadable as fault:
        assert str(fault)
