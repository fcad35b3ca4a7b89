"""What only a close look at all cases shows: copies, contradictions, leaks, slips in tags, checks that cannot fail.

Every remark here is a guess about what somebody meant, so each rule leaves out what is often meant: the two wordings of
one question, cases that differ in a number or a name, minimal pairs, documents and choices in the input, labels.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import lru_cache
from typing import Any

from rapidfuzz.distance import OSA

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Case, Check, Finding, Origin, Path, show_path
from evalloom.core.patterns import BadPattern, search
from evalloom.core.text import quote
from evalloom.data.dataset import Dataset
from evalloom.data.dialect import Dialect, Rules
from evalloom.data.validate.alike import PREFIXED, Alike, leaves, same, texts_of
from evalloom.files.rows import Row


def deep_findings(dataset: Dataset) -> Iterator[Finding]:
    """The warnings about a dataset, which is read to its end; a record with errors is left to those."""
    leaks, tags, dialect = _Leaks(), _Tags(), dataset.dialect
    with closing(Alike()) as alike:
        for case in _sound_cases(dataset):
            for message in _idle(case, dialect):
                yield Finding("check_cannot_fail", "warning", message, case.origin, case_id=case.id)
            leaks.add(case)
            tags.add(case)
            # In a result file one case stands as often as it ran.
            if not dialect.is_result(case.raw):
                alike.add(case, dialect.pairing.of(case.raw) if dialect.pairing else None)
        yield from leaks.findings()
        yield from alike.contradictions()
        yield from alike.duplicates()
    yield from tags.findings()


def _sound_cases(dataset: Dataset) -> Iterator[Case]:
    """The cases of records without errors, since only those are sure to have the types that a case needs."""
    dialect, rules = dataset.dialect, Rules()
    for item in dataset:
        if isinstance(item, Row) and dialect.is_case(item.value):
            if any(remark.severity == "error" for remark in dialect.findings(item.value, rules)):
                continue
            yield dialect.to_case(item.value, dataset.origin(item))


# -- answers that stand in the input --------------------------------------------------------------

_CONTAINS = ("contains", "icontains", "contains_all", "icontains_all")
_ANSWER_FIELDS = ("output", "answer", "final_answer", "response", "reply", "result")
_MATERIAL = lazy_pattern(
    r"context|document|doc|passage|article|source|material|paragraph|retriev|knowledge|evidence|reference|transcript"
    r"|history|choice|option|label|categor|candidate|text|body|email|code|snippet|table|file|image|url|schema"
)
"""Names of inputs that are there to be read: finding the answer in them is the task."""
_NO_ANSWER = lazy_pattern(r"[\W\d_]*[a-z]?[\W\d_]*|true|false|yes|no|none|null|unknown")
_NUMBERED = lazy_pattern(r"(?:^|[\s(])[a-e1-5][).、:]")
_LISTED_BEFORE = lazy_pattern(r"([,/|;、;]|\b(?:or|and|vs)|[和或与及])[\s\"'`“”‘’「」<>\[\]()*]*$")
_LISTED_AFTER = lazy_pattern(r"[\s\"'`“”‘’「」<>\[\]()*]*([,/|;、]|(?:or|and|vs)\b|[和或与及])")
_CUE = lazy_pattern(
    r"(answer|hint|solution|correct|expected|ground truth|答案|提示|正确|标准|结果应)[^.?!。？！]{0,30}$"
)
_ECHO = lazy_pattern(r"\b(?:echo|repeat|say|print|quote|mention|include|contain)|复述|重复|输出|包含|朗读|提到")
"""Words that ask for a part of the input to be given back."""
_CJK = lazy_pattern(r"[⺀-鿿豈-﫿぀-ヿ가-힯]")
_LONGEST_QUESTION = 1000
_LABEL_USES = 3
_READING_SHARE = 0.2


class _Leaks:
    """Answers that the input gives away, or that any echo of the input contains.

    Conservative, since in many tasks the answer is to be found in the input. Looked for only in inputs that are
    neither material by their name or length nor a list of choices, and only as whole words. Nothing is said of numbers,
    of yes and no, of answers that several cases share, as labels are, or of answers that are most of the input, as in
    rewriting. An exact answer must be long, or be announced by a word such as "answer" or "答案". A file where more
    than a fifth of the answers stand in their inputs is a reading task, and nothing is said at all.
    """

    def __init__(self) -> None:
        self._uses: Counter[int] = Counter()
        self._found: list[tuple[int, Finding]] = []
        self._asked = 0

    def add(self, case: Case) -> None:
        asked = [check for check in case.checks if _answers(check)]
        self._asked += bool(asked)
        self._uses.update({hash(text) for check in asked for text in _answers(check)})
        inputs = [(path, same(text)) for path, text in leaves(case.inputs) if isinstance(text, str)] if asked else []
        for check in asked:
            is_part = check.kind in _CONTAINS
            places = [(text, _place_of(text, inputs, is_part)) for text in _answers(check)]
            told = [(text, place) for text, place in places if place]
            if told and (len(told) == len(places) or not is_part):
                text, place = told[0]
                why = "an answer that only repeats the input passes" if is_part else "the input gives it away"
                message = f"the expected {quote(text)} stands in the input {place}: {why}"
                field = re.split(r"[.\[]", place)[0]
                finding = Finding("answer_in_input", "warning", message, case.origin, field, case.id)
                self._found.append((hash(text), finding))
                return

    def findings(self) -> Iterator[Finding]:
        found = [finding for text, finding in self._found if self._uses[text] < _LABEL_USES]
        if len(self._found) <= max(2, self._asked * _READING_SHARE):
            yield from found


def _answers(check: Check) -> list[str]:
    """The texts that a check asks for; none when it asks for a part of the output, or for less than a telling text."""
    if check.options.get("negate") or check.where.rpartition(".")[2] not in _ANSWER_FIELDS:
        return []
    is_reference = check.kind == "judge" and check.options.get("variant") == "reference"
    if not is_reference and check.kind not in ("equals", "structural", "one_of", *_CONTAINS):
        return []
    texts = [same(text) for text in texts_of(check.expected) if text.strip()]
    return texts if all(map(_is_telling, texts)) else []


def _is_telling(text: str) -> bool:
    if _NO_ANSWER.fullmatch(text) or PREFIXED.match(text):
        return False
    return len(text) >= 4 or len(_CJK.findall(text)) >= 2


def _place_of(answer: str, inputs: list[tuple[Path, str]], is_part: bool) -> str:
    """The input that an answer stands in; empty when there is none, or when it stands there to be chosen."""
    if any(answer == text or (answer in text and len(_NUMBERED.findall(text)) > 1) for _, text in inputs):
        return ""
    for path, text in inputs:
        is_material = len(text) > _LONGEST_QUESTION or any(_MATERIAL.search(str(step).lower()) for step in path)
        if not is_material and 3 * len(answer) <= len(text) and _is_told(answer, text, is_part or _is_long(answer)):
            return show_path(path)
    return ""


def _is_long(answer: str) -> bool:
    """Whether a text is too long to stand in a question by chance."""
    return len(answer.split()) >= 4 or len(_CJK.findall(answer)) >= 8


def _is_told(answer: str, text: str, needs_no_cue: bool) -> bool:
    """Whether an answer stands in a text as whole words, in no enumeration, and with a cue where it needs one."""
    if _ECHO.search(text):
        return False
    is_told = False
    at = text.find(answer)
    while at >= 0:
        before, after = text[:at], text[at + len(answer) :]
        if not _joins(before[-1:], answer[0]) and not _joins(answer[-1], after[:1]):
            if _LISTED_BEFORE.search(before[-20:]) or _LISTED_AFTER.match(after[:20]):
                return False
            is_told = is_told or needs_no_cue or bool(_CUE.search(before[-50:]))
        at = text.find(answer, at + 1)
    return is_told


def _joins(left: str, right: str) -> bool:
    """Whether two neighbours are of one word, in scripts that part words by spaces."""
    return bool(left and right) and all(char.isalnum() and not _CJK.match(char) for char in (left, right))


# -- tags -----------------------------------------------------------------------------------------

_COMMON_USES = 3
_MOST_COMPARED = 5_000_000
_CONTRASTS = frozenset(
    "内外男女上下前后高低大小多少单双有无正反负左右新旧入出进买卖增减升降开关早晚长短中英日韩东西南北甲乙丙丁一二三四五六七八九十"
)


class _Tags:
    """How often each tag is used, and where those stand that are used once."""

    def __init__(self) -> None:
        self._uses: Counter[str] = Counter()
        self._once: dict[str, tuple[Origin, str]] = {}

    def add(self, case: Case) -> None:
        for tag in dict.fromkeys(case.tags):
            self._uses[tag] += 1
            if self._uses[tag] == 1:
                self._once[tag] = (case.origin, case.id)
            else:
                self._once.pop(tag, None)

    def findings(self) -> Iterator[Finding]:
        common = [tag for tag, uses in self._uses.most_common() if uses >= _COMMON_USES]
        # Where so many cases have a tag of their own, tags are ids.
        if len(self._once) * len(common) > _MOST_COMPARED:
            return
        for tag, (origin, case_id) in self._once.items():
            if meant := next((other for other in common if _is_slip(tag, other)), None):
                uses = self._uses[meant]
                message = f"the tag {quote(tag)} is used once. Did you mean {quote(meant)}, which {uses} cases have?"
                yield Finding("tag_typo", "warning", message, origin, "tags", case_id)


def _is_slip(tag: str, other: str) -> bool:
    """Whether a tag is another one written differently by accident, not its neighbour, such as `level_a` or `v2`."""
    ours, theirs = _words(tag), _words(other)
    one, two = "".join(ours), "".join(theirs)
    if one == two:
        return True
    if len(ours) == len(theirs):
        different = [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]
        if len(different) != 1:
            return False
        one, two = different[0]
    return _is_misspelt(one, two)


@lru_cache(maxsize=65536)
def _words(tag: str) -> list[str]:
    return [word for word in re.split(r"[\W_]+", unicodedata.normalize("NFKC", tag).casefold()) if word]


def _is_misspelt(one: str, two: str) -> bool:
    # A prefix makes the opposite of a word, and few slips are in the first letter: (un)answerable, in-/external.
    if min(len(one), len(two)) < 4 or one[0] != two[0]:
        return False
    limit = 2 if len(one) >= 10 else 1
    if OSA.distance(one, two, score_cutoff=limit) > limit or re.sub(r"\d", "", one) == re.sub(r"\d", "", two):
        return False
    changed = [pair for pair in zip(one, two, strict=False) if pair[0] != pair[1]] if len(one) == len(two) else []
    if any(_CONTRASTS.issuperset(pair) for pair in changed):
        return False
    # In a short word, one letter for another makes another word: test, text.
    return len(one) >= 5 or len(changed) != 1


# -- checks that cannot fail ----------------------------------------------------------------------

_PROBE_S = 0.1
_PROBES = ("", "x", "\n", "0", "{}", "答案", " the quick\nbrown fox: 42%")
_ANNOTATIONS = {"$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "examples", "default"}
_SCORED = ("similarity", "rouge", "bleu", "gleu", "meteor")
_TRUE = lazy_pattern(r"\s*(return\s+)?(true|1)\s*;?\s*", re.IGNORECASE)


def _idle(case: Case, dialect: Dialect) -> Iterator[str]:
    """What is to be said of checks that hold for every output.

    A case without any expectation is none of this: many formats have such cases.
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
    """A comparison that leaves nothing to compare, or tolerates more than there is."""
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
