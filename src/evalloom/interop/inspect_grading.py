"""Decides as the scorers of Inspect do. Of several targets, one is enough.

Where Inspect accepts any output, because a target has no letter or digit, the check is unscored.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Check
from evalloom.core.patterns import BadPattern, find
from evalloom.interop.inspect_numbers import number_in
from evalloom.matchers.base import (
    PASSED,
    CheckResult,
    MatchContext,
    bad_option,
    failed,
    graded,
    show,
    text_of,
    threshold_of,
    unscored,
)

_EDGES = string.whitespace + string.punctuation
_AROUND_NUMBERS = "!?:;()[]{}'\"`"
_MONEY = lazy_pattern(r"\\?[$£€,*_]")
_FULL_STOP = lazy_pattern(r"\.(?!\d)")
_ARTICLE = lazy_pattern(r"\b(?:a|an|the)\b")
_DIGITS = 5
"""Numbers are equal if they are when rounded to this many significant digits."""


def _targets(check: Check) -> list[str]:
    targets = check.expected if isinstance(check.expected, list) else [check.expected]
    return [target for target in targets if isinstance(target, str)]


def _ignores_case(check: Check) -> bool:
    return check.options.get("ignore_case") is not False


def match(check: Check, context: MatchContext) -> CheckResult:
    """A target is at the end of the output, or at another place."""
    options = check.options
    location = str(options.get("location", "end"))
    text = text_of(context.value).strip()
    folded = text.casefold() if _ignores_case(check) else text
    for target in _targets(check):
        wanted = target.strip()
        wanted = wanted.casefold() if _ignores_case(check) else wanted
        if options.get("numeric") is True:
            wanted = _bare_number(wanted)
        if options.get("numeric") is True and (number := _number(wanted)) is not None:
            is_match = _has_number(_bare_number(folded), number, location)
        elif part := wanted.strip(_EDGES):
            is_match = _stands_at(folded.strip(_EDGES), part, location)
        else:
            return _nothing_to_find(target)
        if is_match:
            return PASSED
    what = {"begin": "at the beginning of", "end": "at the end of", "any": "in"}.get(location, "as the whole of")
    return failed(f"expected {_any_of(check)} {what} {show(context.value)}")


def _nothing_to_find(target: str) -> CheckResult:
    return unscored(f"target: {show(target)} has no letter or digit, so it would match any output")


def _any_of(check: Check) -> str:
    targets = _targets(check)
    return show(targets[0]) if len(targets) == 1 else f"one of {show(targets, 120)}"


def _stands_at(text: str, part: str, location: str) -> bool:
    if location == "begin":
        return text.startswith(part)
    if location == "end":
        return text.endswith(part)
    return text == part if location == "exact" else part in text


def _bare_number(text: str) -> str:
    """Return a text without the signs of money, thousands separators, marks of emphasis, and full stops."""
    return _FULL_STOP.sub("", _MONEY.sub("", text))


def _number(word: str, is_trimmed: bool = True) -> str | None:
    """Return the number that a word is, rounded; None if it is none."""
    number = number_in(word.strip(_AROUND_NUMBERS) if is_trimmed else word)
    return None if number is None else f"{number:.{_DIGITS}g}"


def _has_number(text: str, wanted: str, location: str) -> bool:
    if location == "exact":
        return (_number(text, is_trimmed=False) or text) == wanted
    words = text.split()
    numbers = (number for word in (words if location != "end" else reversed(words)) if (number := _number(word)))
    return wanted in numbers if location == "any" else next(numbers, "") == wanted


def includes(check: Check, context: MatchContext) -> CheckResult:
    """A target is in the output."""
    text = text_of(context.value)
    fold = str.casefold if _ignores_case(check) else str
    for target in _targets(check):
        if not target:
            return _nothing_to_find(target)
        if fold(target) in fold(text):
            return PASSED
    return failed(f"expected {_any_of(check)} in {show(text)}")


def exact(check: Check, context: MatchContext) -> CheckResult:
    """The output equals a target, both without case, punctuation and articles."""
    targets = [bare for target in _targets(check) if (bare := _bare(target))]
    if not targets:
        return unscored("target: has no word to compare")
    return PASSED if _bare(text_of(context.value)) in targets else failed(_got(check, context))


def _got(check: Check, context: MatchContext) -> str:
    return f"expected {_any_of(check)}, got {show(context.value)}"


def f1(check: Check, context: MatchContext) -> CheckResult:
    """F1 over words, of the target that fits best, reaches the threshold."""
    stop_words = str(check.options.get("stop_words") or "").split()
    threshold = threshold_of(check, 0.5)
    if threshold is None:
        return bad_option("threshold", "a number", check.options.get("threshold"))
    targets = [words for target in _targets(check) if (words := Counter(_bare(target, stop_words).split()))]
    if not targets:
        return unscored("target: has no word to compare")
    answer = Counter(_bare(text_of(context.value), stop_words).split())
    return graded(max(round(_f1(answer, words), 2) for words in targets), threshold, "F1")


def _f1(answer: Counter[str], target: Counter[str]) -> float:
    hits = (answer & target).total()
    return 2 * hits / (answer.total() + target.total()) if hits else 0.0


def _bare(text: str, stop_words: Iterable[str] = ()) -> str:
    """Return the words of a text: lower case, numbers in one form, without punctuation, articles and stop words."""
    dropped = {_bare_token(word) for word in stop_words}
    tokens = (_bare_token(token) for token in re.split("[ -]", text))
    return " ".join(token for token in tokens if token and token not in dropped)


def _bare_token(token: str) -> str:
    token = token.casefold()
    if not _is_float(token):
        inner = token.strip(_EDGES)
        token = inner if _is_float(inner) else "".join(sign for sign in token if sign not in string.punctuation)
    if _is_float(token):
        token = str(float(token))
    return " ".join(_ARTICLE.sub(" ", token).split())


def _is_float(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def pattern(check: Check, context: MatchContext) -> CheckResult:
    """A group of a regular expression, or all groups, equal a target."""
    written = check.options.get("pattern")
    if not isinstance(written, str):
        return bad_option("pattern", "a regular expression", written)
    folds = _ignores_case(check)
    try:
        match = find(written, text_of(context.value), re.IGNORECASE if folds else 0)
    except BadPattern as error:
        return unscored(str(error))
    if match is None:
        return failed(f"expected a match of {show(written)} in {show(context.value)}")
    groups = [group for group in match.groups or (match.whole,) if group is not None]
    targets = [target.lower() if folds else target for target in _targets(check)]
    hits = [group for group in groups if (group.lower() if folds else group) in targets]
    # An empty group is no answer, even where a target is empty.
    if check.options.get("match_all") is True:
        is_match = bool(groups) and len(hits) == len(groups) and any(targets)
    else:
        is_match = bool(hits and hits[0])
    return (
        PASSED if is_match else failed(f"expected {_any_of(check)}, got {show(groups, 120)} in {show(context.value)}")
    )


_ANSWER = lazy_pattern(r"answer\s*:", re.IGNORECASE)
_LETTER = lazy_pattern(r"\s*([a-z])(?:\W|\Z)", re.IGNORECASE)
_WORD = lazy_pattern(r"\s*(\S+?)(?=[.,;:!?]?\s*(?:\n|\Z))")


def answer(check: Check, context: MatchContext) -> CheckResult:
    """What follows `ANSWER:` equals a target: a letter, a word that ends its line, or the rest of the last line."""
    form = check.options.get("pattern")
    text = text_of(context.value)
    answers = _LINES_OF.get(str(form))
    if answers is None:
        return bad_option("pattern", "letter, word or line", form)
    written = next(answers(text), None)
    if written is None:
        return failed(f"expected ANSWER: and a {form}, got {show(text)}")
    if written.lower() in [target.lower() for target in _targets(check)]:
        return PASSED
    return failed(f"expected {_any_of(check)} as the answer, got {show(written)}")


def _last(form: re.Pattern[str]) -> Callable[[str], Iterator[str]]:
    """Return what yields an answer of a form after which there is no other `ANSWER:`."""

    def answers(text: str) -> Iterator[str]:
        starts = [match.span() for match in _ANSWER.finditer(text)]
        for number, (_, end) in enumerate(starts):
            match = form.match(text, end)
            if match and all(start < match.end() for start, _ in starts[number + 1 :]):
                yield match[1]

    return answers


def _last_line(text: str) -> Iterator[str]:
    for match in _ANSWER.finditer(text):
        rest = text[match.end() :]
        line = rest.strip()
        if "\n" in line:
            continue
        if line:
            # Blanks at the end of the line are part of the answer, as in Inspect.
            start = rest.index(line)
            yield rest[start:].partition("\n")[0]
        elif blanks := max(rest.split("\n"), key=len):
            yield blanks


_LINES_OF: dict[str, Callable[[str], Iterator[str]]] = {
    "letter": _last(_LETTER),
    "word": _last(_WORD),
    "line": _last_line,
}


_MARKED = (
    (lazy_pattern(r"\$\s*([A-Za-z\d](?:[A-Za-z\d ,]*?))\s*\$"), r"\1"),
    (lazy_pattern(r"\*\*\s*([A-Za-z\d](?:[A-Za-z\d ,]*?))\s*\*\*"), r"\1"),
    (lazy_pattern(r"(\A|[:,])(\s*)\(([A-Za-z\d])\)(?=\s*(?:[,.\n]|\Z))"), r"\1\2\3"),
)
_CHOSEN = lazy_pattern(r"^answer\s*:\s*([a-z\d ,]+)\s*(?:$|\n|\.)", re.IGNORECASE | re.MULTILINE)
_CHOSEN_ANYWHERE = lazy_pattern(r"answer\s*:\s*([a-z\d ,]+)(?:\W|\Z)", re.IGNORECASE)


def choice(check: Check, context: MatchContext) -> CheckResult:
    """The choices that the output names after `ANSWER:` are those of the target."""
    choices: Any = check.options.get("choices")
    if not isinstance(choices, list) or not choices:
        return unscored("choices: the sample has none, which the scorer choice needs")
    wanted = _positions(_targets(check), list(map(str, choices)))
    if wanted is None:
        return unscored(f"target: {_any_of(check)} is neither the letter nor the text of one of {len(choices)} choices")
    several = check.options.get("multiple_correct")
    chosen = _chosen(text_of(context.value), len(choices), len(wanted) > 1 if several is None else several is True)
    if chosen is None:
        return failed(f"expected ANSWER: and a letter, got {show(context.value)}")
    if chosen == wanted:
        return PASSED
    return failed(f"expected {_letters(wanted)}, got {_letters(chosen)}")


def _letter(position: int) -> str:
    return chr(ord("A") + position) if position < 26 else str(position - 25)


def _letters(positions: Iterable[int]) -> str:
    return ", ".join(map(_letter, positions)) or "no choice"


def _positions(targets: list[str], choices: list[str]) -> list[int] | None:
    """Return the positions of the choices that targets name by letter, or else by their text."""
    positions: list[int] = []
    for target in targets:
        names = [
            name for word in target.replace(",", " ").split() for name in ([word] if word.isnumeric() else word.upper())
        ]
        named = [_position(name) for name in names]
        if named and all(0 <= position < len(choices) for position in named):
            positions += named
        elif target in choices:
            positions.append(choices.index(target))
        else:
            return None
    return sorted(positions)


def _position(name: str) -> int:
    if len(name) == 1 and "A" <= name <= "Z":
        return ord(name) - ord("A")
    return 25 + int(name) if name.isdecimal() and int(name) > 0 else -1


def _chosen(text: str, count: int, several: bool) -> list[int] | None:
    """Return the positions of the choices that an output names; None if it names none in the expected form."""
    for marks, bare in _MARKED:
        text = marks.sub(bare, text)
    answers = _CHOSEN.findall(text) or _CHOSEN_ANYWHERE.findall(text)
    if not answers:
        return None
    names = answers[-1].strip().upper()
    positions = {_letter(position): position for position in range(count)}
    if several:
        names = names.replace(" AND ", ",").replace(" ", "")
        parts = {part for part in names.split(",") if part}
        if not parts.issubset(positions):
            parts = set(names)
        return sorted(positions[part] for part in parts) if parts and parts.issubset(positions) else None
    single = [part for part in names.split(",") if part]
    return [positions[single[0]]] if len(single) == 1 and single[0] in positions else None
