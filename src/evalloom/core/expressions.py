"""The expression language of filters and conditions: `meta.difficulty == "hard" and len(text) > 20`.

A small parser of our own, which reaches JSON values only, so that an expression cannot run code. Evaluating never
raises: a missing field, a division by zero or a search that was stopped is null.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import Struct

from evalloom.core import patterns
from evalloom.core.lazy import lazy_pattern
from evalloom.core.text import did_you_mean

MAX_LENGTH = 2_000
MAX_NESTING = 50
MAX_PATTERN = 200
MAX_TEXT = 100_000
"""The number of characters that `matches` searches, and the longest text that `+` makes."""
SEARCH_S = 0.3
"""The time limit of `matches`, in seconds; after it the value is null."""

_Names = Mapping[str, Any]
_Node = Callable[[_Names], Any]


class ExpressionError(Exception):
    """A text that is not an expression; `column` counts from 1."""

    def __init__(self, message: str, column: int) -> None:
        super().__init__(message)
        self.message = message
        self.column = column

    def __str__(self) -> str:
        return f"column {self.column}: {self.message}"


class Expression(Struct, frozen=True):
    """A compiled expression; `names` are the variables it uses."""

    text: str
    names: frozenset[str]
    node: _Node

    def value(self, names: _Names) -> Any:
        """Evaluate the expression with these variables."""
        return self.node(names)

    def holds(self, names: _Names) -> bool:
        """Whether the value is true: not false, null, zero or empty."""
        return bool(self.node(names))


def compile(text: str) -> Expression:
    """Compile a text. Raises ExpressionError, and no other exception."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"expected at most {MAX_LENGTH} characters, got {len(text)}", MAX_LENGTH + 1)
    parser = _Parser(text)
    node = parser.expression()
    return Expression(text, frozenset(parser.names), node)


@lru_cache(maxsize=1024)
def compiled(text: str) -> Expression:
    """Compile a text with a cache, because many cases have the same condition."""
    return compile(text)


# -- tokens -------------------------------------------------------------------------------------------


class _Token(NamedTuple):
    kind: str
    text: str
    column: int


_TOKEN = lazy_pattern(
    r"""\s*(?:(?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)
    |(?P<word>[^\W\d]\w*)
    |(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<sign>==|!=|<=|>=|&&|\|\||\*\*|[<>+\-*/%.,()\[\]])
    |(?P<end>$)
    |(?P<other>.))""",
    re.VERBOSE | re.DOTALL,
)
_INSTEAD = {"=": "==", "&&": "and", "||": "or", "!": "not", "&": "and", "|": "or"}
_ESCAPED = lazy_pattern(r"\\([\\\"'ntr])")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_CONSTANTS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_RESERVED = ("and", "or", "not", "in")


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while match := _TOKEN.match(text, at):
        kind = match.lastgroup or "other"
        token = _Token(kind, match[kind], match.start(kind) + 1)
        if token.text in _INSTEAD:
            raise ExpressionError(f"write {_INSTEAD[token.text]!r} in place of {token.text!r}", token.column)
        if kind == "other":
            is_open = token.text in ("'", '"')
            message = "this string does not end" if is_open else f"{token.text!r} has no meaning here"
            raise ExpressionError(message, token.column)
        yield token
        if kind == "end":
            return
        at = match.end()


def _unquoted(written: str) -> str:
    # Only the escapes that a string needs; the others stay for regular expressions.
    return _ESCAPED.sub(lambda escaped: _ESCAPES.get(escaped[1], escaped[1]), written[1:-1])


# -- grammar ------------------------------------------------------------------------------------------


class _Parser:
    """A recursive-descent parser that builds closures; a chain of one operator is one closure, to save stack depth."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0
        self._depth = 0
        self.names: set[str] = set()

    def expression(self) -> _Node:
        node = self._either()
        if self._next.kind != "end":
            raise self._refusal("an operator such as == or and")
        return node

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _refusal(self, expected: str) -> ExpressionError:
        got = repr(self._next.text) if self._next.kind != "end" else "the end"
        return ExpressionError(f"expected {expected}, got {got}", self._next.column)

    def _take(self, *texts: str) -> str:
        """Consume the next sign or word if it is one of these; otherwise return an empty text."""
        token = self._next
        if token.kind in ("sign", "word") and token.text in texts:
            self._at += 1
            return token.text
        return ""

    def _need(self, text: str) -> None:
        if not self._take(text):
            raise self._refusal(repr(text))

    def _nested(self, parse: Callable[[], _Node]) -> _Node:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise ExpressionError(f"at most {MAX_NESTING} levels of nesting are read", self._next.column)
        node = parse()
        self._depth -= 1
        return node

    def _either(self) -> _Node:
        nodes = [self._both()]
        while self._take("or"):
            nodes.append(self._both())
        return nodes[0] if len(nodes) == 1 else _first(nodes, until=True)

    def _both(self) -> _Node:
        nodes = [self._negation()]
        while self._take("and"):
            nodes.append(self._negation())
        return nodes[0] if len(nodes) == 1 else _first(nodes, until=False)

    def _negation(self) -> _Node:
        if self._take("not"):
            node = self._nested(self._negation)
            return lambda names: not node(names)
        return self._comparison()

    def _comparison(self) -> _Node:
        first = self._sum()
        steps: list[tuple[Callable[[Any, Any], bool], _Node]] = []
        while word := self._comparator():
            steps.append((_COMPARATORS[word], self._sum()))
        if len(steps) == 1:
            compare, second = steps[0]
            return lambda names: compare(first(names), second(names))
        return _chain(first, steps) if steps else first

    def _comparator(self) -> str:
        if self._next.text == "not" and self._next.kind == "word" and self._tokens[self._at + 1].text == "in":
            self._at += 2
            return "not in"
        return self._take("==", "!=", "<", "<=", ">", ">=", "in")

    def _sum(self) -> _Node:
        return self._calculation(self._product, "+", "-")

    def _product(self) -> _Node:
        return self._calculation(self._signed, "*", "/", "%")

    def _calculation(self, operand: Callable[[], _Node], *signs: str) -> _Node:
        first = operand()
        steps: list[tuple[Callable[[Any, Any], Any], _Node]] = []
        while sign := self._take(*signs):
            steps.append((_OPERATORS[sign], operand()))
        return _fold(first, steps) if steps else first

    def _signed(self) -> _Node:
        if self._take("-"):
            node = self._nested(self._signed)
            return lambda names: -value if _is_number(value := node(names)) else None
        return self._path()

    def _path(self) -> _Node:
        node = self._atom()
        steps: list[_Node] = []
        while sign := self._take(".", "["):
            if sign == "[":
                steps.append(self._nested(self._either))
                self._need("]")
            elif self._next.kind == "word":
                steps.append(self._literal(self._next.text))
            else:
                raise self._refusal("the name of a field")
        return _walk(node, steps) if steps else node

    def _atom(self) -> _Node:
        token = self._next
        if token.kind == "number":
            return self._literal(_number(token))
        if token.kind == "string":
            return self._literal(_unquoted(token.text))
        if token.kind == "word" and token.text in _CONSTANTS:
            return self._literal(_CONSTANTS[token.text])
        if token.kind == "word" and token.text not in _RESERVED:
            self._at += 1
            if self._take("("):
                return self._call(token)
            self.names.add(token.text)
            return lambda names: names.get(token.text)
        if self._take("("):
            node = self._nested(self._either)
            self._need(")")
            return node
        if self._take("["):
            nodes = self._listed("]")
            return lambda names: [node(names) for node in nodes]
        raise self._refusal("a value")

    def _literal(self, value: Any) -> _Node:
        self._at += 1
        return lambda names: value

    def _listed(self, end: str) -> list[_Node]:
        """Parse values between commas, up to the closing bracket."""
        nodes: list[_Node] = []
        while not self._take(end):
            if nodes:
                self._need(",")
            nodes.append(self._nested(self._either))
        return nodes

    def _call(self, token: _Token) -> _Node:
        name = token.text
        if name not in _FUNCTIONS:
            hint = did_you_mean(name, _FUNCTIONS) or f". There are {', '.join(_FUNCTIONS)}"
            raise ExpressionError(f"there is no function {name!r}{hint}", token.column)
        fewest, most, function = _FUNCTIONS[name]
        first = self._at
        nodes = self._listed(")")
        if not fewest <= len(nodes) <= most:
            wanted = f"{fewest}" if fewest == most else f"{fewest} or 2" if most == 2 else f"{fewest} or more"
            raise ExpressionError(f"{name}(…): expected {wanted} between the brackets, got {len(nodes)}", token.column)
        if name == "matches":
            return self._search(nodes[0], self._tokens[first : self._at])
        if len(nodes) == 1:
            node = nodes[0]
            return lambda names: function(node(names))
        return lambda names: function(*[node(names) for node in nodes])

    def _search(self, node: _Node, tokens: list[_Token]) -> _Node:
        """Parse `matches`: the pattern must be a literal, so that compiling the expression finds its errors."""
        token = tokens[-2]
        if token.kind != "string" or tokens[-3].text != ",":
            raise ExpressionError("expected a regular expression in quotes as second value", token.column)
        pattern = _unquoted(token.text)
        if len(pattern) > MAX_PATTERN:
            message = f"a regular expression may have {MAX_PATTERN} characters, got {len(pattern)}"
            raise ExpressionError(message, token.column)
        if reason := patterns.pattern_error(pattern):
            raise ExpressionError(f"is not a regular expression: {reason}", token.column)
        return lambda names: isinstance(text := node(names), str) and _matches(text[:MAX_TEXT], pattern)


def _number(token: _Token) -> int | float:
    if token.text.isdigit():
        return int(token.text)
    value = float(token.text)
    if math.isinf(value):
        raise ExpressionError("the number is too large", token.column)
    return value


# -- evaluation ---------------------------------------------------------------------------------------


def _first(nodes: list[_Node], until: bool) -> _Node:
    """Return the first value that is true (`or`) or false (`and`), else the last one."""
    *earlier, last = nodes

    def node(names: _Names) -> Any:
        for operand in earlier:
            value = operand(names)
            if bool(value) is until:
                return value
        return last(names)

    return node


def _chain(first: _Node, steps: list[tuple[Callable[[Any, Any], bool], _Node]]) -> _Node:
    """Evaluate `a < b < c`: compare each operand with the next."""

    def node(names: _Names) -> bool:
        left = first(names)
        for compare, operand in steps:
            right = operand(names)
            if not compare(left, right):
                return False
            left = right
        return True

    return node


def _fold(first: _Node, steps: list[tuple[Callable[[Any, Any], Any], _Node]]) -> _Node:
    def node(names: _Names) -> Any:
        value = first(names)
        for calculate, operand in steps:
            value = calculate(value, operand(names))
        return value

    return node


def _walk(start: _Node, steps: list[_Node]) -> _Node:
    """Evaluate `meta.tags[0]`; a missing field or item is null."""

    def node(names: _Names) -> Any:
        value = start(names)
        for step in steps:
            value = _item(value, step(names))
        return value

    return node


def _item(value: Any, step: Any) -> Any:
    if isinstance(value, Mapping):
        return value.get(step) if isinstance(step, str) else None
    if isinstance(value, list | tuple | str) and _is_integer(step) and -len(value) <= step < len(value):
        return value[step]
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_comparable(left: Any, right: Any) -> bool:
    """Whether two values can be ordered."""
    return (_is_number(left) and _is_number(right)) or (isinstance(left, str) and isinstance(right, str))


def _equal(left: Any, right: Any) -> bool:
    try:
        return _is_same(left, right)
    except RecursionError:
        return False


def _is_same(left: Any, right: Any) -> bool:
    # In Python true equals 1, also inside lists and objects; in JSON it does not.
    if isinstance(left, bool) is not isinstance(right, bool) or left != right:
        return False
    if isinstance(left, list | tuple):
        return all(map(_is_same, left, right))
    if isinstance(left, Mapping):
        return all(_is_same(value, right[key]) for key, value in left.items())
    return True


def _is_in(item: Any, container: Any) -> bool:
    if isinstance(container, str):
        return isinstance(item, str) and item in container
    if isinstance(container, Mapping):
        return isinstance(item, str) and item in container
    return isinstance(container, list | tuple | set | frozenset) and any(_equal(item, member) for member in container)


_COMPARATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": lambda left, right: _are_comparable(left, right) and left < right,
    "<=": lambda left, right: _are_comparable(left, right) and left <= right,
    ">": lambda left, right: _are_comparable(left, right) and left > right,
    ">=": lambda left, right: _are_comparable(left, right) and left >= right,
    "in": _is_in,
    "not in": lambda left, right: not _is_in(left, right),
}


def _calculated(calculate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Restrict an operator to numbers; null if the result is not finite."""

    def calculated(left: Any, right: Any) -> Any:
        return _finite(calculate, left, right) if _is_number(left) and _is_number(right) else None

    return calculated


def _finite(calculate: Callable[..., Any], *values: Any) -> Any:
    try:
        result = calculate(*values)
    except (ArithmeticError, ValueError):
        return None
    return result if _is_integer(result) or math.isfinite(result) else None


def _plus(left: Any, right: Any) -> Any:
    if isinstance(left, str) and isinstance(right, str):
        return left + right if len(left) + len(right) <= MAX_TEXT else None
    return _add(left, right)


_add = _calculated(lambda left, right: left + right)
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": _plus,
    "-": _calculated(lambda left, right: left - right),
    "*": _calculated(lambda left, right: left * right),
    "/": _calculated(lambda left, right: left / right),
    "%": _calculated(lambda left, right: left % right),
}


def _matches(text: str, pattern: str) -> bool | None:
    try:
        return patterns.search(pattern, text, seconds=SEARCH_S)
    except patterns.BadPattern:
        return None


def _of_text(function: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: function(value) if isinstance(value, str) else None


def _extreme(choose: Callable[[Iterable[Any]], Any]) -> Callable[..., Any]:
    """Return the minimum or maximum of the values, or of one list; null if they cannot be compared."""

    def extreme(*values: Any) -> Any:
        items = values[0] if len(values) == 1 and isinstance(values[0], list | tuple) else values
        return choose(items) if items and all(_are_comparable(items[0], item) for item in items) else None

    return extreme


def _round(value: Any, digits: Any = 0) -> Any:
    if not _is_number(value) or not _is_integer(digits) or abs(digits) > 30:
        return None
    return _finite(round, value, digits) if digits else _finite(round, value)


def _both_texts(function: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    return lambda text, part: isinstance(text, str) and isinstance(part, str) and function(text, part)


_FUNCTIONS: dict[str, tuple[int, int, Callable[..., Any]]] = {
    "len": (1, 1, lambda value: len(value) if isinstance(value, str | list | tuple | Mapping) else None),
    "lower": (1, 1, _of_text(str.lower)),
    "upper": (1, 1, _of_text(str.upper)),
    "abs": (1, 1, lambda value: abs(value) if _is_number(value) else None),
    "min": (1, MAX_LENGTH, _extreme(min)),
    "max": (1, MAX_LENGTH, _extreme(max)),
    "round": (1, 2, _round),
    "contains": (2, 2, lambda container, item: _is_in(item, container)),
    "starts_with": (2, 2, _both_texts(str.startswith)),
    "ends_with": (2, 2, _both_texts(str.endswith)),
    # Never called: the parser compiles `matches` itself.
    "matches": (2, 2, _is_in),
    "exists": (1, 1, lambda value: value is not None),
}
"""The minimum and maximum number of arguments, and the function."""
