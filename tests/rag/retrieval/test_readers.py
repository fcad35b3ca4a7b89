"""Reading documents of every kind, whole and broken."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import docx
import pytest
from docx.opc.constants import RELATIONSHIP_TYPE as RT
from docx.opc.packuri import PackURI
from docx.opc.part import Part
from docx.oxml import parse_xml
from hypothesis import given
from hypothesis import strategies as st

from evalloom.rag.retrieval import readers
from evalloom.rag.retrieval.chunks import chunks
from evalloom.rag.retrieval.readers import READERS, UnreadableDocument, read


def _titles(name: str, content: bytes) -> list[tuple[int, str]]:
    document = read(name[name.rindex(".") :], content)
    assert all(document.text[one.start :].lstrip("# ").startswith(one.title) for one in document.headings)
    return [(one.level, one.title) for one in document.headings]


def test_markdown_headings_of_both_kinds_but_not_in_code_or_front_matter() -> None:
    text = "---\ntitle: x\n---\n\nTop\n===\n\n```\n# no\n```\n\n## Sub ##\n\nLow\n---\n\ntext\n"
    assert _titles("a.md", text.encode()) == [(1, "Top"), (2, "Sub"), (2, "Low")]
    assert _titles("a.md", b"# One\r\n\r\ntext\r\n") == [(1, "One")]
    assert _titles("a.md", b"# C#\n\n# Two ## \n\n# a" + b" " * 5000 + b"b") == [
        (1, "C#"),
        (1, "Two"),
        (1, f"a{' ' * 5000}b"),
    ]


def test_restructured_text_headings_by_the_order_of_their_marks() -> None:
    text = "Top\n***\n\ntext\n\nSub\n~~~\n\ntext\n\nTop 2\n*****\n"
    assert _titles("a.rst", text.encode()) == [(1, "Top"), (2, "Sub"), (1, "Top 2")]


def test_html_is_what_a_reader_sees() -> None:
    page = "<title>T</title><h1>Leave <i>rules</i></h1><p>Ten\n days.</p><script>bad()</script><ul><li>a<li>b</ul>"
    document = read(".html", page.encode())
    assert document.text == "T\nLeave rules\nTen days.\n\na\nb\n\n"
    assert [(one.level, one.title) for one in document.headings] == [(1, "Leave rules")]


@pytest.mark.slow
def test_html_may_nest_as_deep_as_it_likes() -> None:
    page = b"<div>" * 20_000 + b"deep"
    assert "deep" in read(".htm", page).text


@pytest.mark.slow
def test_html_that_would_take_ages_to_parse_is_unread() -> None:
    many = b"".join(b"<p><b id=%d>" % number for number in range(10_000))
    for page in (b"<div>" * 100_000, many):
        with pytest.raises(UnreadableDocument, match="too many nested tags"):
            read(".html", page + b"text")
    closed = b"<div><span id=1><i>a</div>" * 20_000 + b"<a name=x>" * 20_000
    assert "a" in read(".html", closed).text


@pytest.mark.parametrize(("suffix", "content"), [(".html", b"<svg><text>a</text></svg>"), (".html", b"")])
def test_a_page_without_text_is_unread(suffix: str, content: bytes) -> None:
    with pytest.raises(UnreadableDocument, match="has no text"):
        read(suffix, content)


def test_docx_headings_and_tables() -> None:
    made = docx.Document()
    made.add_heading("Leave", 1)
    made.add_paragraph("Ten days.")
    table = made.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "a", "b"
    stream = io.BytesIO()
    made.save(stream)
    document = read(".docx", stream.getvalue())
    assert document.text == "Leave\nTen days.\na\tb\n\n"
    assert [chunk.heading for chunk in chunks(document, 800, 0)] == ["Leave"]


_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def _docx(body: str, notes: str = "") -> bytes:
    """A docx file with this inside of its body."""
    made = docx.Document()
    for one in list(made.element.body):
        made.element.body.remove(one)
    for one in parse_xml(f'<w:body xmlns:w="{_W}">{body}</w:body>'):
        made.element.body.append(one)
    if notes:
        blob = f'<w:footnotes xmlns:w="{_W}"><w:footnote w:id="1">{notes}</w:footnote></w:footnotes>'.encode()
        kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml"
        part = Part(PackURI("/word/footnotes.xml"), kind, blob, made.part.package)
        made.part.relate_to(part, RT.FOOTNOTES)
    stream = io.BytesIO()
    made.save(stream)
    return stream.getvalue()


def _p(text: str, tag: str = "t") -> str:
    return f"<w:p><w:r><w:{tag}>{text}</w:{tag}></w:r></w:p>"


def test_docx_text_in_controls_insertions_and_notes_but_not_deletions() -> None:
    body = f"<w:sdt><w:sdtContent>{_p('control')}</w:sdtContent></w:sdt>{_p('a')}"
    body += (
        "<w:p><w:ins><w:r><w:t>inserted</w:t></w:r></w:ins><w:del><w:r><w:delText>gone</w:delText></w:r></w:del></w:p>"
    )
    assert read(".docx", _docx(body, _p("note"))).text == "control\na\ninserted\n\nnote\n"
    with pytest.raises(UnreadableDocument, match="has no text"):
        read(".docx", _docx("<w:p/>"))


def test_docx_cells_count_once_however_wide_they_are() -> None:
    wide = f"<w:tc><w:tcPr><w:gridSpan w:val='3000000'/></w:tcPr>{_p('wide')}</w:tc>"
    inner = f"<w:tbl><w:tr><w:tc>{_p('in')}</w:tc><w:tc>{_p('ner')}</w:tc></w:tr></w:tbl>"
    body = f"<w:tbl><w:tr>{wide}<w:tc>{inner}<w:p/></w:tc></w:tr></w:tbl>"
    assert read(".docx", _docx(body)).text == "wide\tin\n\tner\n" + "\n"


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
    document = read(".pdf", pdf("Ten days of leave", "", "Sick leave"))
    found = [(chunk.page, chunk.text.strip()) for chunk in chunks(document, 800, 0) if chunk.text.strip()]
    assert found == [(1, "Ten days of leave"), (3, "Sick leave")]


def test_a_pdf_of_pictures_is_unread() -> None:
    with pytest.raises(UnreadableDocument, match="no text"):
        read(".pdf", pdf("", ""))


def test_a_document_that_takes_too_long_is_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "LONGEST_S", -1.0)
    for suffix, content in ((".pdf", pdf("text")), (".html", b"<p>text"), (".docx", _docx(_p("text")))):
        with pytest.raises(UnreadableDocument, match="takes more than"):
            read(suffix, content)


def test_a_pointer_of_git_lfs_is_no_document() -> None:
    with pytest.raises(UnreadableDocument, match="git lfs pull"):
        read(".pdf", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")


@pytest.mark.parametrize("encode", [
    lambda text: text.encode(),
    lambda text: b"\xef\xbb\xbf" + text.encode(),
    lambda text: text.encode("utf-16"),
    lambda text: text.encode("gb18030"),
])  # fmt: skip
def test_text_in_any_of_the_usual_encodings(encode: Callable[[str], bytes]) -> None:
    text = "入职满一年的员工每年享有带薪年假。\n"
    assert read(".txt", encode(text)).text == text


def test_docx_does_not_read_other_files(tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_text("secret")
    entity = f'<!DOCTYPE d [<!ENTITY key SYSTEM "{(tmp_path / "key.txt").as_uri()}">]>'.encode()
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(_docx(_p("before PLACE after")))) as made, zipfile.ZipFile(stream, "w") as changed:
        for name in made.namelist():
            content = made.read(name)
            if name == "word/document.xml":
                head, end, rest = content.partition(b"?>")
                content = head + end + entity + rest.replace(b"PLACE", b"&key;")
            changed.writestr(name, content)
    assert b"&key;" in zipfile.ZipFile(stream).read("word/document.xml")
    text = read(".docx", stream.getvalue()).text
    assert "before" in text and "secret" not in text


@pytest.mark.slow
def test_a_docx_that_unpacks_to_too_much_is_unread() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.xml", "w") as entry:
        for _ in range(201):
            entry.write(bytes(1024 * 1024))
    with pytest.raises(UnreadableDocument, match="unpacks to more than 200 MB"):
        read(".docx", stream.getvalue())


@pytest.mark.parametrize("suffix", READERS)
@given(st.binary(max_size=200))
def test_whatever_the_bytes_a_reader_reads_or_says_why(suffix: str, content: bytes) -> None:
    try:
        assert isinstance(read(suffix, content).text, str)
    except UnreadableDocument as error:
        assert str(error)


def test_what_is_no_tag_neither_hides_nesting_nor_makes_it() -> None:
    with pytest.raises(UnreadableDocument, match="too many nested tags"):
        read(".html", b"<div><!--</div>-->" * 100_000 + b"text")
    script = b"<script>" + b'var a="<div>";' * 70_000 + b"</script><p>hello</p>"
    assert read(".html", script).text.strip() == "hello"
