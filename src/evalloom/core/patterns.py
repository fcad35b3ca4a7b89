r"""Regular expressions that users write: in the dialect of `re`, searched by `regex`, which can stop a search.

`re` parses a pattern, so that the dialect and the errors are those of Python. `regex` differs from it: `\w`, `\s`, `\b`
and `[[:alpha:]]` match other characters, and `a{e}` is a fuzzy match. So `regex` gets the pattern in another spelling,
which is written from the parse tree of `re` and means the same in both. docs/decisions/0011-regex.md has the numbers.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from importlib import import_module
from time import thread_time
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from evalloom.core.text import quote

if TYPE_CHECKING:
    import regex

# The parse tree of `re` is not public, so type checkers do not know it.
ops: Any = import_module("re._constants")
_parser: Any = import_module("re._parser")

SECONDS = 1.0
"""The default limit of a search, in seconds of processor time."""
_LARGEST = 100_000
"""The largest pattern. `regex` writes out repeats: a million characters take 270 MB and 0.5 s to compile."""
_MOST_STEPS = 1_000_000
"""`re` takes about 5 ns for a step, and cannot be stopped."""
_TYPES = re.ASCII | re.LOCALE | re.UNICODE
_FOUR_I = "iIİı"
"""All four are one letter to `re` where case is ignored; `regex` keeps some of them apart."""
_WORD, _ASCII_WORD = r"\p{L}\p{N}_", "a-zA-Z0-9_"
_CLASSES = {
    ops.CATEGORY_DIGIT: (r"\p{Nd}", "0-9"),
    ops.CATEGORY_SPACE: (r"\s\x1c-\x1f", r" \t\n\r\f\v"),
    ops.CATEGORY_WORD: (_WORD, _ASCII_WORD),
}
_NEGATED = {
    ops.CATEGORY_NOT_DIGIT: ops.CATEGORY_DIGIT,
    ops.CATEGORY_NOT_SPACE: ops.CATEGORY_SPACE,
    ops.CATEGORY_NOT_WORD: ops.CATEGORY_WORD,
}
_REPEATS = {ops.MAX_REPEAT: "", ops.MIN_REPEAT: "?", ops.POSSESSIVE_REPEAT: "+"}
_ANY = "(?s:.)"


class BadPattern(Exception):
    """The pattern is not valid, or its search was stopped; the message says which."""


class PatternMatch(Struct, frozen=True):
    """The first match of a pattern: the whole of it, and its groups by position and by name."""

    whole: str
    groups: tuple[str | None, ...]
    named: dict[str, str | None]

    def by_number(self, number: int) -> str | None:
        """Return a group by its number, or the whole match for 0."""
        return self.groups[number - 1] if number else self.whole


@lru_cache(maxsize=4096)
def pattern_error(pattern: str, flags: int = 0) -> str:
    """Return why a pattern is not valid, in the words of `re`; empty if it is."""
    try:
        if _size(_parse(pattern, flags)) > _LARGEST:
            return f"repeats too much: more than {_LARGEST:,} characters when written out"
        _compile(pattern, flags)
    except (re.error, RecursionError, OverflowError, ValueError) as error:
        return str(error) or type(error).__name__
    return ""


def search(pattern: str, text: str, flags: int = 0, seconds: float = SECONDS) -> bool:
    """Whether the pattern matches anywhere in the text. Raises BadPattern."""
    return _search(pattern, text, flags, seconds) is not None


def find(pattern: str, text: str, flags: int = 0, seconds: float = SECONDS) -> PatternMatch | None:
    """Return the first match of the pattern in the text. Raises BadPattern."""
    match = _search(pattern, text, flags, seconds)
    return None if match is None else PatternMatch(match[0], match.groups(), match.groupdict())


def _search(pattern: str, text: str, flags: int, seconds: float) -> re.Match[str] | regex.Match[str] | None:
    if (quick := _compile_if_quick(pattern, flags, len(text).bit_length())) is not None:
        return quick.search(text)
    searchable = _compile_with_limit(pattern, flags)
    started, limit = thread_time(), seconds
    while True:
        try:
            return searchable.search(text, timeout=limit, concurrent=True)
        except TimeoutError:
            # The clock of `regex` counts what all threads of the process use, so a busy one stops a search too early.
            if thread_time() - started >= seconds * 0.9:
                raise BadPattern(f"the search for {quote(pattern)} was stopped after {seconds:g} s") from None
            limit *= 2


def _parse(pattern: str, flags: int) -> Any:
    with warnings.catch_warnings():
        # Python warns of sets that may mean something else one day; the user cannot see where.
        warnings.simplefilter("ignore")
        return _parser.parse(pattern, flags)


@lru_cache(maxsize=4096)
def _compile(pattern: str, flags: int) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.compile(pattern, flags)


@lru_cache(maxsize=4096)
def _compile_with_limit(pattern: str, flags: int) -> regex.Pattern[str]:
    """Compile a valid pattern with `regex`. Raises BadPattern."""
    # Imported here: it takes 9 ms, and most commands do not need it.
    import regex

    tree = _parse(pattern, flags)
    ignores_case = regex.IGNORECASE if tree.state.flags & re.IGNORECASE else 0
    is_ascii = regex.ASCII if tree.state.flags & re.ASCII else 0
    try:
        return regex.compile(_Writer(tree.state).sequence(tree, tree.state.flags), regex.V0 | ignores_case | is_ascii)
    except (regex.error, RecursionError, OverflowError, ValueError, MemoryError) as error:
        raise BadPattern(f"cannot search for {quote(pattern)}: {error or type(error).__name__}") from None


@lru_cache(maxsize=4096)
def _compile_if_quick(pattern: str, flags: int, length_bits: int) -> re.Pattern[str] | None:
    """Compile a pattern if `re` ends a search within milliseconds in any text of such a length. Raises BadPattern."""
    if reason := pattern_error(pattern, flags):
        raise BadPattern(f"expected a regular expression, got {quote(pattern)}: {reason}")
    return _compile(pattern, flags) if _is_quick(pattern, flags, 1 << length_bits) else None


def _is_quick(pattern: str, flags: int, length: int) -> bool:
    """Whether `re` ends a search in a text of this length within milliseconds, whatever the text is."""
    return length * _ways(_parse(pattern, flags), length) <= _MOST_STEPS


def _ways(tree: Any, length: int) -> int:
    """Return an upper bound for the number of ways in which a pattern can match from one place."""
    ways = 1
    for op, value in tree:
        if op in _REPEATS:
            least, most, inner = value
            most = min(most, length)
            # 64 choices of two are beyond every limit already.
            ways *= max(most - least + 1, 1) * _ways(inner, length) ** min(most, 64)
        elif op is ops.BRANCH:
            ways *= sum(_ways(branch, length) for branch in value[1])
        elif op in (ops.SUBPATTERN, ops.ASSERT, ops.ASSERT_NOT):
            ways *= _ways(value[-1], length)
        elif op is ops.ATOMIC_GROUP:
            ways *= _ways(value, length)
        elif op is ops.GROUPREF_EXISTS:
            ways *= _ways(value[1], length) + _ways(value[2] or (), length)
        elif op is ops.GROUPREF:
            ways *= length
        if ways > _MOST_STEPS:
            return ways
    return ways


def _size(tree: Any) -> int:
    """Return the number of characters in a pattern after its required repeats are written out."""
    size = 0
    for op, value in tree:
        if op in _REPEATS:
            size += max(value[0], 1) * _size(value[2])
        elif op is ops.BRANCH:
            size += sum(map(_size, value[1]))
        elif op in (ops.SUBPATTERN, ops.ASSERT, ops.ASSERT_NOT):
            size += _size(value[-1])
        elif op is ops.ATOMIC_GROUP:
            size += _size(value)
        elif op is ops.GROUPREF_EXISTS:
            size += _size(value[1]) + _size(value[2] or ())
        else:
            size += 1
    return size


class _Writer:
    """Writes the parse tree of `re` as a pattern for `regex`.

    Only whether case counts is left to flags of `regex`: what else a flag changes is written out.
    """

    def __init__(self, state: Any) -> None:
        self._names = {number: name for name, number in state.groupdict.items()}

    def sequence(self, tree: Any, flags: int) -> str:
        return "".join(self._node(op, value, flags) for op, value in tree)

    def _node(self, op: Any, value: Any, flags: int) -> str:
        if op is ops.LITERAL:
            return self._set([(op, value)], flags, False) if chr(value) in _FOUR_I else _escape(value)
        if op is ops.NOT_LITERAL:
            return self._set([(ops.LITERAL, value)], flags, True)
        if op is ops.IN:
            categories = {category for kind, category in value if kind is ops.CATEGORY}
            if any(negated in categories and category in categories for negated, category in _NEGATED.items()):
                # [\s\S] is the usual way to say any character; as a choice it would be ten times slower.
                return "(?!)" if value[0][0] is ops.NEGATE else _ANY
            is_negated = value[0][0] is ops.NEGATE
            return self._set(value[is_negated:], flags, is_negated)
        if op is ops.ANY:
            return _ANY if flags & re.DOTALL else r"[^\n]"
        if op is ops.AT:
            return self._position(value, flags)
        if op in _REPEATS:
            least, most, inner = value
            limit = "" if most is ops.MAXREPEAT else most
            return f"(?:{self.sequence(inner, flags)}){{{least},{limit}}}{_REPEATS[op]}"
        if op is ops.BRANCH:
            return f"(?:{'|'.join(self.sequence(branch, flags) for branch in value[1])})"
        if op is ops.SUBPATTERN:
            return self._group(flags, *value)
        if op is ops.ATOMIC_GROUP:
            return f"(?>{self.sequence(value, flags)})"
        if op in (ops.ASSERT, ops.ASSERT_NOT):
            direction, inner = value
            return f"(?{'<' if direction < 0 else ''}{'=' if op is ops.ASSERT else '!'}{self.sequence(inner, flags)})"
        if op is ops.GROUPREF:
            return f"\\g<{value}>"
        if op is ops.GROUPREF_EXISTS:
            number, yes, no = value
            return f"(?({number}){self.sequence(yes, flags)}|{self.sequence(no or (), flags)})"
        raise ValueError(f"{op} is not supported")  # nothing of Python 3.11 to 3.14 gets here

    def _group(self, flags: int, number: int | None, added: int, removed: int, inner: Any) -> str:
        flags = ((flags & ~_TYPES if added & _TYPES else flags) | added) & ~removed
        content = self.sequence(inner, flags)
        if added or removed:
            letters = "a" if flags & re.ASCII else "u"
            content = f"(?{letters}{'i' if flags & re.IGNORECASE else '-i'}:{content})"
        if number is None:
            return f"(?:{content})"
        return f"(?P<{self._names[number]}>{content})" if number in self._names else f"({content})"

    def _position(self, position: Any, flags: int) -> str:
        if position in (ops.AT_BOUNDARY, ops.AT_NON_BOUNDARY):
            word = f"(?-i:[{_ASCII_WORD if flags & re.ASCII else _WORD}])"
            if position is ops.AT_BOUNDARY:
                return f"(?:(?<={word})(?!{word})|(?<!{word})(?={word}))"
            # Python before 3.14 finds no \B in an empty text.
            empty = "" if re.search(r"\B", "") else r"(?!\A\Z)"
            return f"(?:(?<={word})(?={word})|{empty}(?<!{word})(?!{word}))"
        if position is ops.AT_BEGINNING:
            return "(?m:^)" if flags & re.MULTILINE else r"\A"
        if position is ops.AT_END:
            return "(?m:$)" if flags & re.MULTILINE else r"(?=\n?\Z)"
        return r"\A" if position is ops.AT_BEGINNING_STRING else r"\Z"

    def _set(self, items: Any, flags: int, is_negated: bool) -> str:
        is_ascii, ignores_case = bool(flags & re.ASCII), bool(flags & re.IGNORECASE)
        ranges, classes = "", []
        for op, value in items:
            if op is ops.CATEGORY:
                name = _NEGATED.get(value, value)
                if name is value and not ignores_case:
                    ranges += _CLASSES[name][is_ascii]
                else:
                    # With case ignored, \p{L} would match U+0345, a mark whose upper case is a letter.
                    classes.append(f"(?-i:[{'' if name is value else '^'}{_CLASSES[name][is_ascii]}])")
            else:
                first, last = (value, value) if op is ops.LITERAL else value
                ranges += _escape(first) if first == last else f"{_escape(first)}-{_escape(last)}"
                if ignores_case and not is_ascii and any(first <= ord(letter) <= last for letter in _FOUR_I):
                    ranges += _FOUR_I
        if not classes:
            return f"[{'^' if is_negated else ''}{ranges}]"
        # A class such as \W has no form inside of brackets, so the set becomes a choice.
        choice = "|".join([*([f"[{ranges}]"] if ranges else []), *classes])
        return f"(?!{choice}){_ANY}" if is_negated else f"(?:{choice})"


def _escape(code: int) -> str:
    return f"\\U{code:08x}"
