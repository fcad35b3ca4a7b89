"""Differences of two texts for pages and reports: by line, then within changed lines by word or character.

Alignments are longest common subsequences, as those of Myers' algorithm, from rapidfuzz: 3,000 lines of which 30 %
changed take it 1.3 ms and difflib 15 ms. What is too long to align stays one changed block, and `TextDiff.depth` says
so. Two texts of 1 MB take less than 0.3 s, whether they have 20,000 lines or one, edited, shuffled or unrelated. Only
those of a million one-letter lines take 1 to 2 s, most of it to create the lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from evalloom.core.lazy import lazy_pattern

if TYPE_CHECKING:
    import regex

_MOST_CELLS = 100_000_000
"""Pairs of items that are aligned: 25 ms and 12 MB, as rapidfuzz has a bit for each pair."""
_MOST_INLINE = 200_000
"""Characters of changed lines that are compared further: up to 0.2 s."""
_COST_OF_LINE = 50
"""Characters that take as long as the rest of the work for a line."""
_LEAST_ALIKE = 0.3
"""The share of equal characters below which two blocks of lines count as different texts: marking the few words that
both have by chance makes a diff harder to read."""
_LONGEST_WORD = 100
_LINES, _CONTEXT, _LONGEST_LINE = 12, 3, 1_000
_CHARACTERS = lazy_pattern(r"\s+|\S")


class Span(NamedTuple):
    """A part of a line."""

    text: str
    is_changed: bool


class DiffLine(NamedTuple):
    """A line of one text or of both, with its line break if it has one.

    A changed line without spans is different as a whole. `cut_before` and `cut_after` count left out characters.
    """

    kind: Literal["same", "removed", "added"]
    text: str
    spans: tuple[Span, ...] = ()
    cut_before: int = 0
    cut_after: int = 0

    @property
    def parts(self) -> tuple[Span, ...]:
        """The spans; the whole line as one if it has none."""
        return self.spans or (Span(self.text, self.kind != "same"),)


Row = tuple[DiffLine | None, DiffLine | None]
"""A line of each text side by side: both for an equal line, one None where the other text has more lines."""


class TextDiff(Struct, frozen=True):
    """The difference of two texts, a before b. Without `clamped` it has every line of both."""

    lines: tuple[DiffLine, ...]
    depth: Literal["words", "lines", "block"] = "words"
    """How far it goes: `lines` if changed lines are too long to compare by word, `block` if even lines are too many."""
    empty: Literal["", "a", "b"] = ""
    """The side that is empty while the other is not."""
    is_whitespace_only: bool = False
    """Whether the texts differ, and are equal without whitespace."""
    is_nfkc_equal: bool = False
    """Whether the texts differ, and are equal after Unicode normalization: width, ligatures, composed accents."""
    hidden_before: int = 0
    hidden_after: int = 0
    hidden_changes: int = 0
    """Rows that `clamped` leaves out, and how many of them are changed."""

    @property
    def is_equal(self) -> bool:
        return not self.hidden_changes and all(line.kind == "same" for line in self.lines)

    @property
    def rows(self) -> list[Row]:
        """The lines side by side; the removed and added lines of a block are paired in order."""
        return list(_rows(self.lines))

    def clamped(self, lines: int = _LINES, longest_line: int = _LONGEST_LINE) -> TextDiff:
        """Return at most `lines` lines of each text around the first difference, and the middle of very long ones."""
        rows = self.rows
        first = next((number for number, row in enumerate(rows) if _is_changed(row)), 0)
        start = max(0, min(first - min(_CONTEXT, lines // 4), len(rows) - lines))
        shown = rows[start : start + lines]
        return replace(
            self,
            lines=tuple(_cut(line, longest_line) for line in _unified(shown)),
            hidden_before=start,
            hidden_after=len(rows) - start - len(shown),
            hidden_changes=sum(map(_is_changed, rows)) - sum(map(_is_changed, shown)),
        )


def compare_texts(a: str, b: str) -> TextDiff:
    """Compare two texts by line, and changed lines by word, or by character in scripts without spaces."""
    plain, is_complete = _aligned(a, b)
    inline, lines = _Inline(), list[DiffLine]()
    for is_same, run in groupby(plain, lambda line: line.kind == "same"):
        block = list(run)
        lines += block if is_same else inline.compare(block)
    is_changed = a != b
    return TextDiff(
        tuple(lines),
        "block" if not is_complete else "words" if inline.is_complete else "lines",
        "" if not is_changed else "a" if not a else "b" if not b else "",
        is_whitespace_only=is_changed and _without_spaces(a) == _without_spaces(b),
        is_nfkc_equal=is_changed and _is_nfkc_equal(a, b),
    )


def diff_lines(before: str, after: str) -> Iterator[DiffLine]:
    """Yield the lines of both texts in order; where they differ, the removed lines come before the added ones."""
    return _aligned(before, after)[0]


def _aligned(a: str, b: str) -> tuple[Iterator[DiffLine], bool]:
    """Return the lines of both texts, and whether no shorter diff has them."""
    old, new = _split(a), _split(b)
    blocks, is_complete = changed_blocks(old, new)

    def lines() -> Iterator[DiffLine]:
        at = 0
        for block in blocks:
            yield from (DiffLine("same", line) for line in old[at : block.a_start])
            yield from (DiffLine("removed", line) for line in old[block.a_start : block.a_end])
            yield from (DiffLine("added", line) for line in new[block.b_start : block.b_end])
            at = block.a_end
        yield from (DiffLine("same", line) for line in old[at:])

    return lines(), is_complete


# -- alignment ---------------------------------------------------------------------------------------------


class Block(NamedTuple):
    """Items of `a` that are replaced by items of `b`; one of the two may have none."""

    a_start: int
    a_end: int
    b_start: int
    b_end: int


def changed_blocks(a: Sequence[Hashable], b: Sequence[Hashable]) -> tuple[list[Block], bool]:
    """Return the shortest changes from `a` to `b`, and whether they are: too many items stay one block."""
    numbers: dict[Hashable, int] = {}
    # rapidfuzz compares hashes, so items become numbers, whose hashes are unique.
    old = [numbers.setdefault(item, len(numbers)) for item in a]
    new = [numbers.setdefault(item, len(numbers)) for item in b]
    head = _equal_items(old, new)
    tail = _equal_items(old[head:][::-1], new[head:][::-1])
    pairs, is_complete = _pairs(old[head : len(old) - tail], new[head : len(new) - tail])
    blocks: list[Block] = []
    i = j = head
    for x, y in [*((x + head, y + head) for x, y in pairs), (len(old) - tail, len(new) - tail)]:
        if x > i or y > j:
            blocks.append(Block(i, x, j, y))
        i, j = x + 1, y + 1
    return blocks, is_complete


def increasing(places: Sequence[int]) -> list[int]:
    """Return the positions of a longest increasing subsequence."""
    from bisect import bisect_left

    ends: list[int] = []
    ranks = []
    for place in places:
        rank = bisect_left(ends, place)
        ends[rank : rank + 1] = [place]
        ranks.append(rank)
    positions, wanted = [], len(ends) - 1
    for position in range(len(places) - 1, -1, -1):
        if ranks[position] == wanted:
            positions.append(position)
            wanted -= 1
    return positions[::-1]


def _equal_items(a: list[int], b: list[int]) -> int:
    """Count the equal items at the start."""
    pairs = zip(a, b, strict=False)
    return next((number for number, (old, new) in enumerate(pairs) if old != new), min(len(a), len(b)))


def _pairs(a: list[int], b: list[int]) -> tuple[list[tuple[int, int]], bool]:
    """Return the positions of equal items that an alignment keeps, and whether it is the best one."""
    in_both = set(a) & set(b)
    # Items that one side lacks are in no alignment; without them, texts that share little are small.
    old, new = [x for x, item in enumerate(a) if item in in_both], [y for y, item in enumerate(b) if item in in_both]
    if len(old) * len(new) <= _MOST_CELLS:
        return list(_longest(a, b, old, new)), True
    # As in a patience diff: lines that occur once on both sides divide the texts into parts that are small enough.
    counts, others = Counter(a), Counter(b)
    once = {b[y]: y for y in new if counts[b[y]] == others[b[y]] == 1}
    singles = [x for x in old if a[x] in once]
    anchors = [(singles[at], once[a[singles[at]]]) for at in increasing([once[a[x]] for x in singles])]
    pairs: list[tuple[int, int]] = []
    room, from_x, from_y = _MOST_CELLS, 0, 0
    for x, y in [*anchors, (len(a), len(b))]:
        size = (x - from_x) * (y - from_y)
        if size <= room:
            room -= size
            pairs += _longest(a, b, range(from_x, x), range(from_y, y)) if size else ()
        else:
            room = -1
        pairs.append((x, y))
        from_x, from_y = x + 1, y + 1
    return pairs[:-1], room >= 0


def _longest(a: list[int], b: list[int], xs: Sequence[int], ys: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the longest common subsequence of the items at some positions."""
    # Deferred: the import takes 20 ms, and most commands show no diff.
    from rapidfuzz.distance import Indel

    for match in Indel.editops([a[x] for x in xs], [b[y] for y in ys]).as_matching_blocks():
        yield from ((xs[match.a + step], ys[match.b + step]) for step in range(match.size))


# -- within changed lines ----------------------------------------------------------------------------------


@cache
def _words() -> regex.Pattern[str]:
    import regex

    # A grapheme each in scripts that write no spaces between words; Korean is read syllable by syllable too.
    scripts = ("Han", "Hiragana", "Katakana", "Hangul", "Bopomofo", "Thai", "Lao", "Khmer", "Myanmar")
    unspaced = "".join(rf"\p{{{script}}}" for script in scripts)
    return regex.compile(rf"(?V1)[\w--[{unspaced}]]+|\n|[^\S\n]+|\X")


class _Inline:
    """Compares blocks of changed lines by word, until their characters are too many."""

    def __init__(self) -> None:
        self.is_complete = True
        self._room = _MOST_INLINE

    def compare(self, block: list[DiffLine]) -> list[DiffLine]:
        """Return the lines of a block with their spans."""
        removed = [line for line in block if line.kind == "removed"]
        added = block[len(removed) :]
        if not removed or not added:
            return block
        units: Iterable[tuple[list[DiffLine], list[DiffLine]]] = [(removed, added)]
        if len(block) > 2 and sum(len(line.text) for line in block) > _MOST_INLINE // 4:
            # Then the first lines at least, which are those that a page shows.
            units = (([old], [new]) for old, new in zip(removed, added, strict=False))
        left, right = list[DiffLine](), list[DiffLine]()
        for olds, news in units:
            if self._room < 0:
                self.is_complete = False
                break
            sides = self._spans(*("".join(line.text for line in side) for side in (olds, news)))
            left += _with_spans(olds, sides[0])
            right += _with_spans(news, sides[1])
        return [*left, *removed[len(left) :], *right, *added[len(right) :]]

    def _spans(self, a: str, b: str) -> tuple[list[Span], list[Span]]:
        """Return the spans of two texts; none if they have little in common."""
        head, tail = _equal_ends(a, b)
        before, after = a[head : len(a) - tail], b[head : len(b) - tail]
        self._room -= len(before) + len(after) + _COST_OF_LINE
        blocks, is_by_word = None, False
        if self._room >= 0 and _without_spaces(before) == _without_spaces(after):
            old, new = _CHARACTERS.findall(before), _CHARACTERS.findall(after)
            blocks = list(_changed_spaces(old, new))
        elif self._room >= 0:
            old, new = _words().findall(before), _words().findall(after)
            found, is_by_word = changed_blocks(old, new)
            blocks = list(_joined(old, found)) if is_by_word else None
        if blocks is None:
            # Too long to compare: all between the equal ends is one change, so that a page can show where it begins.
            self.is_complete = False
            old, new, blocks = [before], [after], [Block(0, 1, 0, 1)]
        ends = a[:head], a[len(a) - tail :]
        left = list(_side(old, [(block.a_start, block.a_end) for block in blocks], *ends))
        right = list(_side(new, [(block.b_start, block.b_end) for block in blocks], *ends))
        equal = sum(len(span.text) for side in (left, right) for span in side if not span.is_changed)
        is_chance = is_by_word and equal < _LEAST_ALIKE * (len(a) + len(b))
        return ([], []) if is_chance else (left, right)


def _equal_ends(a: str, b: str) -> tuple[int, int]:
    """Count the equal characters at both ends, up to a space, because a word is compared as a whole."""
    head = _equal_start(a, b)
    head = max(a.rfind(" ", 0, head), a.rfind("\n", 0, head), head - _LONGEST_WORD, 0)
    left, right = a[head:][::-1], b[head:][::-1]
    tail = _equal_start(left, right)
    return head, max(left.rfind(" ", 0, tail), left.rfind("\n", 0, tail), tail - _LONGEST_WORD, 0)


def _equal_start(a: str, b: str) -> int:
    """Count the equal characters at the start by halving: a loop over a million of them would take 50 ms."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[low:middle] == b[low:middle] else (low, middle - 1)
    return low


def _changed_spaces(a: list[str], b: list[str]) -> Iterator[Block]:
    """Yield the runs of whitespace that differ in two lists of characters that are equal otherwise."""
    i = j = 0
    while i < len(a) or j < len(b):
        x, y = i + (a[i : i + 1] or ["-"])[0].isspace(), j + (b[j : j + 1] or ["-"])[0].isspace()
        if a[i:x] != b[j:y]:
            yield Block(i, x, j, y)
        i, j = x + 1, y + 1


def _joined(a: list[str], blocks: list[Block]) -> Iterator[Block]:
    """Yield blocks, as one where only spaces are between two: three words in a row are one change."""
    waiting: Block | None = None
    for block in blocks:
        if waiting and "".join(a[waiting.a_end : block.a_start]).strip(" ") == "":
            waiting = Block(waiting.a_start, block.a_end, waiting.b_start, block.b_end)
            continue
        if waiting:
            yield waiting
        waiting = block
    if waiting:
        yield waiting


def _side(pieces: list[str], changed: list[tuple[int, int]], head: str, tail: str) -> Iterator[Span]:
    """Yield the spans of one text, from its equal beginning to its equal end."""
    yield Span(head, False)
    at = 0
    for start, end in changed:
        yield Span("".join(pieces[at:start]), False)
        yield Span("".join(pieces[start:end]), True)
        at = end
    yield Span("".join(pieces[at:]) + tail, False)


def _with_spans(lines: list[DiffLine], spans: list[Span]) -> Iterator[DiffLine]:
    """Yield lines with their spans, which may begin and end in any of them."""
    if not spans:
        yield from lines
        return
    pieces = [Span(part, span.is_changed) for span in spans for part in _split(span.text)]
    at = 0
    for line in lines:
        start, size = at, 0
        while size < len(line.text):
            size += len(pieces[at].text)
            at += 1
        runs = groupby(pieces[start:at], lambda piece: piece.is_changed)
        yield line._replace(spans=tuple(Span("".join(piece.text for piece in run), key) for key, run in runs))


# -- facts -------------------------------------------------------------------------------------------------


def _split(text: str) -> list[str]:
    """Return the lines with their line breaks. Only a newline ends a line, so other separators stay visible in it."""
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + ([last] if last else [])


def _without_spaces(text: str) -> str:
    return "".join(text.split())


def _is_nfkc_equal(a: str, b: str) -> bool:
    if a.isascii() and b.isascii():
        return False
    import unicodedata

    import regex

    # Python takes quadratic time to order the marks of one letter: 40,000 of them take 1.2 s.
    if any(regex.search(r"\p{M}{1000}", text) for text in (a, b)):
        return False
    return unicodedata.normalize("NFKC", a) == unicodedata.normalize("NFKC", b)


# -- rows and clamping -------------------------------------------------------------------------------------


def _rows(lines: Iterable[DiffLine]) -> Iterator[Row]:
    for is_same, run in groupby(lines, lambda line: line.kind == "same"):
        if is_same:
            yield from ((line, line) for line in run)
            continue
        block = list(run)
        removed = [line for line in block if line.kind == "removed"]
        yield from zip_longest(removed, [line for line in block if line.kind == "added"])


def _is_changed(row: Row) -> bool:
    return row[0] is not row[1]


def _unified(rows: Iterable[Row]) -> Iterator[DiffLine]:
    """Yield the lines of rows: of changed ones in a row the left sides, then the right sides."""
    for is_changed, run in groupby(rows, _is_changed):
        block = list(run)
        for side in (0, 1) if is_changed else (0,):
            yield from (line for row in block if (line := row[side]) is not None)


def _cut(line: DiffLine, longest: int) -> DiffLine:
    """Return a line of at most `longest` characters, with the first changed ones if it has spans."""
    if len(line.text) <= longest:
        return line
    first = 0
    for span in line.spans:
        if span.is_changed:
            break
        first += len(span.text)
    start = max(0, min(first - longest // 5, len(line.text) - longest))
    end = start + longest
    spans, at = [], 0
    for span in line.spans:
        shown = span.text[max(0, start - at) : max(0, end - at)]
        spans += [Span(shown, span.is_changed)] if shown else []
        at += len(span.text)
    return DiffLine(line.kind, line.text[start:end], tuple(spans), start, len(line.text) - end)
