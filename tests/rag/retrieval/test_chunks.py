"""Cutting: nothing is lost, every chunk is at its place, headings are known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from evalloom.rag.retrieval.chunks import ParsedDocument, chunks
from evalloom.rag.retrieval.readers import read

_TEXTS = st.text(alphabet=st.sampled_from("ab 年假。.\n\r#\t-=é\u0301\u200d👩"), max_size=300)


def _markdown(text: str) -> ParsedDocument:
    return read(".md", text.encode())


@given(_TEXTS, st.integers(1, 60))
def test_without_overlap_the_chunks_are_the_text(text: str, size: int) -> None:
    document = _markdown(text)
    cut = list(chunks(document, size, 0))
    assert "".join(chunk.text for chunk in cut) == document.text
    assert all(0 < len(chunk.text) <= size for chunk in cut)


@given(_TEXTS, st.integers(2, 60), st.data())
def test_every_chunk_is_what_stands_at_its_place(text: str, size: int, data: st.DataObject) -> None:
    document = _markdown(text)
    cut = list(chunks(document, size, data.draw(st.integers(0, size // 2))))
    assert all(chunk.text == document.text[chunk.start : chunk.end] for chunk in cut)
    assert all(chunk.line == document.text.count("\n", 0, chunk.start) + 1 for chunk in cut)
    covered = {place for chunk in cut for place in range(chunk.start, chunk.end)}
    assert covered == set(range(len(document.text)))


def test_a_cut_comes_behind_a_sentence() -> None:
    cut = [chunk.text for chunk in chunks(ParsedDocument("一二三四五。六七八九十。甲乙丙"), 13, 0)]
    assert cut == ["一二三四五。六七八九十。", "甲乙丙"]


def test_an_overlap_repeats_the_end_of_the_chunk_before() -> None:
    first, second = chunks(ParsedDocument("one two three. four five six. seven eight."), 30, 15)
    assert first.text.endswith("four five six. ")
    assert second.text.startswith("four five six. ")


def test_headings_are_a_path_and_an_empty_one_joins_the_next() -> None:
    cut = list(
        chunks(_markdown("# Leave\n\n## Carry-over\n\nUntil March.\n\n## Sick\n\nCall.\n\n# Pay\n\nMonthly.\n"), 800, 0)
    )
    assert [chunk.heading for chunk in cut] == ["Leave > Carry-over", "Leave > Sick", "Pay"]
    assert cut[0].text.startswith("# Leave")
    assert [chunk.line for chunk in cut] == [1, 7, 11]


def test_a_character_made_of_several_is_not_cut() -> None:
    cut = [chunk.text for chunk in chunks(ParsedDocument("ae\u0301ae\u0301ae\u0301"), 4, 0)]
    assert all(not text.startswith("\u0301") for text in cut)
    assert "".join(cut) == "ae\u0301ae\u0301ae\u0301"


def test_many_headings_in_a_row_and_a_very_long_one() -> None:
    (*_, last) = chunks(_markdown("# a\n" * 20_000), 800, 0)
    assert last.heading == "a"
    cut = list(chunks(_markdown(f"# {'word ' * 10_000}\n\n{'text. ' * 500}"), 800, 100))
    assert {len(chunk.heading) for chunk in cut} == {200}
