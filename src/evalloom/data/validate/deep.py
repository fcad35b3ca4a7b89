"""Warnings that need a look at all cases: duplicates, contradictions, leaked answers, misspelt tags, idle checks.

Each warning is a guess about intent, so each rule leaves out what people often intend: the two wordings of one
question, cases that differ in a number or a name, minimal pairs, documents and choices in the input, labels.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import lru_cache
from itertools import islice
from pathlib import Path as FilePath
from typing import Any

import msgspec
from rapidfuzz.distance import OSA

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Case, Check, Finding, Origin, Path, show_path
from evalloom.core.patterns import BadPattern, search
from evalloom.core.text import quote
from evalloom.data.dataset import Dataset
from evalloom.data.dialect import Dialect, Rules
from evalloom.data.validate import parallel
from evalloom.data.validate.duplicates import PREFIXED, CaseColumns, DuplicateIndex, leaves, normalize, texts_of
from evalloom.files.rows import Item, Row, split_blocks

_BLOCK_ROWS = 2_000
_BATCH = 64
"""The number of records per call of `are_clean`."""


def deep_findings(dataset: Dataset) -> Iterator[Finding]:
    """Read a whole dataset and yield warnings about the cases without errors."""
    count = 0
    if dataset.source.path is not None and parallel.is_in_lines(dataset):
        try:
            for finding in _findings(_scan_ranges(dataset, dataset.source.path)):
                count += 1
                yield finding
            return
        except parallel.NotLines:
            pass  # in one piece it gives the findings so far again
    yield from islice(_findings(_scan_rows(dataset)), count, None)


def _findings(blocks: Iterable[tuple[_Block, int]]) -> Iterator[Finding]:
    """Yield the findings of all blocks, each with the number of its lines, and what they show together."""
    leaks, tags, lines = _Leaks(), _Tags(), 0
    with closing(DuplicateIndex()) as index:
        for block, count in blocks:
            yield from (_moved(finding, lines) for finding in block.idle)
            leaks.extend(block.leaks, lines)
            tags.extend(block.tags, lines)
            index.extend(block.cases, lines)
            lines += count
        yield from leaks.findings()
        yield from index.contradictions()
        yield from index.duplicates()
    yield from tags.findings()


def _scan_ranges(dataset: Dataset, path: FilePath) -> Iterator[tuple[_Block, int]]:
    """Yield the blocks of a large file, scanned in several processes."""

    def scan(items: Iterable[Item], _: None) -> _Block:
        return _Block(dataset, dataset.mapping.apply_rows(items))

    return parallel.map_ranges(path, scan, lambda: None)


def _scan_rows(dataset: Dataset) -> Iterator[tuple[_Block, int]]:
    """Yield blocks of a dataset, whose rows know their lines."""
    items = iter(dataset)
    while rows := list(islice(items, _BLOCK_ROWS)):
        yield _Block(dataset, rows), 0


class _Block:
    """What each rule remembers of some of the cases."""

    def __init__(self, dataset: Dataset, items: Iterable[Item]) -> None:
        self.idle: list[Finding] = []
        self.leaks, self.tags, self.cases = _Leaks(), _Tags(), CaseColumns()
        dialect = dataset.dialect
        for case in _valid_cases(dataset, items):
            for message in _idle(case, dialect):
                self.idle.append(Finding("check_cannot_fail", "warning", message, case.origin, case_id=case.id))
            self.leaks.add(case)
            self.tags.add(case)
            # A result file repeats a case for each run.
            if not dialect.is_result(case.raw):
                self.cases.add(case, dialect.pairing.of(case.raw) if dialect.pairing else None)


def _valid_cases(dataset: Dataset, items: Iterable[Item]) -> Iterator[Case]:
    """Yield the cases of records without errors: only those have the types that a case needs."""
    dialect, rules = dataset.dialect, Rules()
    rows = (item for item in split_blocks(items) if isinstance(item, Row) and isinstance(item.value, dict))
    while batch := list(islice(rows, _BATCH)):
        is_clean = dialect.are_clean([row.value for row in batch], rules)
        for row in batch:
            if not dialect.is_case(row.value):
                continue
            if is_clean or all(remark.severity != "error" for remark in dialect.findings(row.value, rules)):
                yield dataset.case(row.value, dataset.origin(row))


def _moved(finding: Finding, lines: int) -> Finding:
    """Return a finding of a block that begins after `lines` lines."""
    return msgspec.structs.replace(finding, origin=_moved_origin(finding.origin, lines)) if lines else finding


def _moved_origin(origin: Origin, lines: int) -> Origin:
    return msgspec.structs.replace(origin, line=origin.line + lines) if lines else origin


# -- answers in the input -------------------------------------------------------------------------

_CONTAINS = ("contains", "icontains", "contains_all", "icontains_all")
_ANSWER_FIELDS = ("output", "answer", "final_answer", "response", "reply", "result")
_MATERIAL = lazy_pattern(
    r"context|document|doc|passage|article|source|material|paragraph|retriev|knowledge|evidence|reference|transcript"
    r"|history|choice|option|label|categor|candidate|text|body|email|code|snippet|table|file|image|url|schema"
)
"""Names of inputs that are material to read: to find the answer in them is the task."""
_NO_ANSWER = lazy_pattern(r"[\W\d_]*[a-z]?[\W\d_]*|true|false|yes|no|none|null|unknown")
_NUMBERED = lazy_pattern(r"(?:^|[\s(])[a-e1-5][).、:]")
_LISTED_BEFORE = lazy_pattern(r"([,/|;、;]|\b(?:or|and|vs)|[和或与及])[\s\"'`“”‘’「」<>\[\]()*]*$")
_LISTED_AFTER = lazy_pattern(r"[\s\"'`“”‘’「」<>\[\]()*]*([,/|;、]|(?:or|and|vs)\b|[和或与及])")
_CUE = lazy_pattern(
    r"(answer|hint|solution|correct|expected|ground truth|答案|提示|正确|标准|结果应)[^.?!。？！]{0,30}$"
)
_ECHO = lazy_pattern(r"\b(?:echo|repeat|say|print|quote|mention|include|contain)|复述|重复|输出|包含|朗读|提到")
"""Words that ask the target to repeat a part of the input."""
_CJK = lazy_pattern(r"[⺀-鿿豈-﫿぀-ヿ가-힯]")
_LONGEST_QUESTION = 1000
_LABEL_USES = 3
_READING_SHARE = 0.2


class _Leaks:
    """Finds inputs that contain the expected answer.

    Conservative, because in many tasks the input contains the answer on purpose. It searches for whole words, in inputs
    that are neither material (by name or length) nor a list of choices. It ignores numbers, yes and no, answers that
    several cases share (labels), and answers that are most of the input (rewriting). An exact answer must be long, or
    follow a word such as "answer" or "答案". A file with more than a fifth of its answers in the inputs is a reading
    task and gets no warning.
    """

    def __init__(self) -> None:
        self._uses = array("q")
        """The hashes of the answers of each case."""
        self._leaks: list[tuple[int, Finding]] = []
        self._cases_with_answers = 0

    def add(self, case: Case) -> None:
        expected = [(check, answers) for check in case.checks if (answers := _answers(check))]
        if not expected:
            return
        self._cases_with_answers += 1
        self._uses.extend({hash(text) for _, answers in expected for text in answers})
        inputs = [(path, normalize(text)) for path, text in leaves(case.inputs) if isinstance(text, str)]
        for check, answers in expected:
            is_part = check.kind in _CONTAINS
            places = [(text, _place_of(text, inputs, is_part)) for text in answers]
            leaked = [(text, place) for text, place in places if place]
            if leaked and (len(leaked) == len(places) or not is_part):
                text, place = leaked[0]
                why = "an answer that only repeats the input passes" if is_part else "the input gives it away"
                message = f"the expected {quote(text)} is in the input {place}: {why}"
                field = re.split(r"[.\[]", place)[0]
                finding = Finding("answer_in_input", "warning", message, case.origin, field, case.id)
                self._leaks.append((hash(text), finding))
                return

    def extend(self, block: _Leaks, lines: int) -> None:
        """Add the answers and leaks of a block that begins after `lines` lines."""
        self._uses += block._uses
        self._leaks += ((text, _moved(finding, lines)) for text, finding in block._leaks)
        self._cases_with_answers += block._cases_with_answers

    def findings(self) -> Iterator[Finding]:
        if len(self._leaks) <= max(2, self._cases_with_answers * _READING_SHARE):
            leaked = {text for text, _ in self._leaks}
            uses = Counter(text for text in self._uses if text in leaked)
            yield from (finding for text, finding in self._leaks if uses[text] < _LABEL_USES)


def _answers(check: Check) -> list[str]:
    """Return the texts that a check expects; none if it checks a part of the output, or if a text is too common."""
    if check.options.get("negate") or check.where.rpartition(".")[2] not in _ANSWER_FIELDS:
        return []
    is_reference = check.kind == "judge" and check.options.get("variant") == "reference"
    if not is_reference and check.kind not in ("equals", "structural", "one_of", *_CONTAINS):
        return []
    texts = [normalize(text) for text in texts_of(check.expected) if text.strip()]
    return texts if all(map(_is_specific, texts)) else []


def _is_specific(text: str) -> bool:
    if _NO_ANSWER.fullmatch(text) or PREFIXED.match(text):
        return False
    return len(text) >= 4 or len(_CJK.findall(text)) >= 2


def _place_of(answer: str, inputs: list[tuple[Path, str]], is_part: bool) -> str:
    """Return the path of the input that contains an answer; empty if none does, or if the answer is a choice there."""
    if not any(answer in text for _, text in inputs):
        return ""
    if any(answer == text or (answer in text and len(_NUMBERED.findall(text)) > 1) for _, text in inputs):
        return ""
    for path, text in inputs:
        is_material = len(text) > _LONGEST_QUESTION or any(_MATERIAL.search(str(step).lower()) for step in path)
        # A long answer is not in a question by chance, so it needs no cue such as "answer:".
        is_long = len(answer.split()) >= 4 or len(_CJK.findall(answer)) >= 8
        if not is_material and 3 * len(answer) <= len(text) and _is_leaked(answer, text, is_part or is_long):
            return show_path(path)
    return ""


def _is_leaked(answer: str, text: str, needs_no_cue: bool) -> bool:
    """Whether a text contains an answer as whole words, not in an enumeration, and after a cue if it needs one."""
    if _ECHO.search(text):
        return False
    is_leaked = False
    at = text.find(answer)
    while at >= 0:
        before, after = text[:at], text[at + len(answer) :]
        if not _joins(before[-1:], answer[0]) and not _joins(answer[-1], after[:1]):
            if _LISTED_BEFORE.search(before[-20:]) or _LISTED_AFTER.match(after[:20]):
                return False
            is_leaked = is_leaked or needs_no_cue or bool(_CUE.search(before[-50:]))
        at = text.find(answer, at + 1)
    return is_leaked


def _joins(left: str, right: str) -> bool:
    """Whether two adjacent characters belong to one word, in scripts that separate words by spaces."""
    return bool(left and right) and all(char.isalnum() and not _CJK.match(char) for char in (left, right))


# -- tags -----------------------------------------------------------------------------------------

_COMMON_USES = 3
_MOST_COMPARED = 5_000_000
_CONTRASTS = frozenset(
    "内外男女上下前后高低大小多少单双有无正反负左右新旧入出进买卖增减升降开关早晚长短中英日韩东西南北甲乙丙丁一二三四五六七八九十"
)


class _Tags:
    """Finds tags that are used once and look like a misspelling of a common tag."""

    def __init__(self) -> None:
        self._uses: Counter[str] = Counter()
        self._once: dict[str, tuple[Origin, str]] = {}

    def add(self, case: Case) -> None:
        uses = self._uses
        for tag in dict.fromkeys(case.tags):
            if tag in uses:
                self._once.pop(tag, None)
            else:
                self._once[tag] = (case.origin, case.id)
            uses[tag] += 1

    def extend(self, block: _Tags, lines: int) -> None:
        """Add the tags of a block that begins after `lines` lines."""
        for tag, uses in block._uses.items():
            if tag in self._uses:
                self._once.pop(tag, None)
            elif uses == 1:
                origin, case_id = block._once[tag]
                self._once[tag] = (_moved_origin(origin, lines), case_id)
            self._uses[tag] += uses

    def findings(self) -> Iterator[Finding]:
        common = [tag for tag, uses in self._uses.most_common() if uses >= _COMMON_USES]
        # With this many unique tags, tags are ids.
        if len(self._once) * len(common) > _MOST_COMPARED:
            return
        for tag, (origin, case_id) in self._once.items():
            if meant := next((candidate for candidate in common if _is_typo(tag, candidate)), None):
                uses = self._uses[meant]
                message = f"the tag {quote(tag)} is used once. Did you mean {quote(meant)}, which {uses} cases have?"
                yield Finding("tag_typo", "warning", message, origin, "tags", case_id)


def _is_typo(tag: str, common: str) -> bool:
    """Whether a tag is a misspelling of a common one, and not a sibling of it such as `level_a` or `v2`."""
    tag_words, common_words = _words(tag), _words(common)
    word, correct = "".join(tag_words), "".join(common_words)
    if word == correct:
        return True
    if len(tag_words) == len(common_words):
        different = [pair for pair in zip(tag_words, common_words, strict=True) if pair[0] != pair[1]]
        if len(different) != 1:
            return False
        word, correct = different[0]
    return _is_misspelt(word, correct)


@lru_cache(maxsize=65536)
def _words(tag: str) -> list[str]:
    return [word for word in re.split(r"[\W_]+", unicodedata.normalize("NFKC", tag).casefold()) if word]


def _is_misspelt(word: str, correct: str) -> bool:
    # A prefix makes the opposite of a word, and few typos are in the first letter: (un)answerable, in-/external.
    if min(len(word), len(correct)) < 4 or word[0] != correct[0]:
        return False
    limit = 2 if len(word) >= 10 else 1
    if OSA.distance(word, correct, score_cutoff=limit) > limit:
        return False
    if re.sub(r"\d", "", word) == re.sub(r"\d", "", correct):
        return False
    is_same_length = len(word) == len(correct)
    changed = [pair for pair in zip(word, correct, strict=False) if pair[0] != pair[1]] if is_same_length else []
    if any(_CONTRASTS.issuperset(pair) for pair in changed):
        return False
    # In a short word, a changed letter makes a different word: test, text.
    return len(word) >= 5 or len(changed) != 1


# -- checks that cannot fail ----------------------------------------------------------------------

_PROBE_S = 0.1
_PROBES = ("", "x", "\n", "0", "{}", "答案", " the quick\nbrown fox: 42%")
_ANNOTATIONS = {"$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "examples", "default"}
_SCORED = ("similarity", "rouge", "bleu", "gleu", "meteor")
_TRUE = lazy_pattern(r"\s*(return\s+)?(true|1)\s*;?\s*", re.IGNORECASE)


def _idle(case: Case, dialect: Dialect) -> Iterator[str]:
    """Yield a message for each check that passes for every output.

    A case without checks is not reported: many formats have such cases.
    """
    for check in case.checks:
        if why := _why_idle(check):
            yield f"the check {check.kind!r} on {check.where} cannot fail: {why}"
    if dialect.is_switched_off(case):
        yield "nothing is checked: evaluation_config switches off all that the case expects"


def _why_idle(check: Check) -> str:
    kind, expected = check.kind.removeprefix("i") if check.kind in _ANY_CASE else check.kind, check.expected
    why = ""
    if check.options.get("negate"):
        if kind == "contains_any" and expected == []:
            why = "it forbids nothing"
    elif kind in ("contains", "starts_with", "ends_with") and expected == "":
        why = "every text has the empty text in it"
    elif kind == "contains_all" and isinstance(expected, list) and not any(expected):
        why = "it asks for no text"
    elif kind == "contains_any" and isinstance(expected, list) and "" in expected:
        why = "every text has the empty text in it"
    elif kind == "regex" and isinstance(expected, str) and _matches_all(expected):
        why = f"{quote(expected)} matches every text"
    elif kind == "json_schema" and (
        expected is True or (isinstance(expected, dict) and expected.keys() <= _ANNOTATIONS)
    ):
        why = "the schema asks for nothing"
    elif kind in _SCORED and check.options.get("threshold") == 0:
        why = "its threshold is 0"
    elif kind in ("python", "javascript") and isinstance(expected, str) and _TRUE.fullmatch(expected):
        why = f"{quote(expected)} is always true"
    elif kind == "structural":
        why = _why_structure_idle(check)
    return why


_ANY_CASE = ("icontains", "icontains_all", "icontains_any")


@lru_cache(maxsize=4096)
def _matches_all(pattern: str) -> bool:
    try:
        return all(search(pattern, probe, seconds=_PROBE_S) for probe in _PROBES)
    except BadPattern:
        return False


def _why_structure_idle(check: Check) -> str:
    """Say why a structural comparison cannot fail: nothing to compare, or a tolerance above the value."""
    ignored = set(texts_of(check.options.get("ignore_fields")))
    field = check.where.partition(".")[2]
    if field in ignored:
        return f"evaluation_config.ignore_fields names {quote(field)}"
    if check.options.get("strict"):
        return ""
    expected = list(leaves(check.expected))
    compared = [value for path, value in expected if ignored.isdisjoint(path) and not _is_idle_value(value)]
    if not compared:
        return "all it compares is ignored" if ignored else f"{quote(check.expected)} leaves nothing to compare"
    tolerance = check.options.get("tolerance", 0)
    sizes = [abs(value) for value in compared if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(sizes) == len(compared) and tolerance > max(sizes) > 0:
        return f"the tolerance of {tolerance} is more than the expected {quote(check.expected)} itself"
    return ""


def _is_idle_value(value: Any) -> bool:
    if not isinstance(value, str):
        return bool(value == {})
    return value == "contains:" or (value.startswith("regex:") and _matches_all(value.removeprefix("regex:")))
