"""Filters of runs: `score > 0.9 and tag = "billing"` as a condition of SQL with its values apart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from evalloom.core.errors import usage_error
from evalloom.core.text import did_you_mean

_TOKEN = re.compile(
    r"""\s*(?: (?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)
             | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
             | (?P<sign>==|!=|<>|<=|>=|[=<>(),])
             | (?P<word>[^\W\d][\w.\-]*) )""",
    re.VERBOSE,
)
_WORDS = frozenset({"and", "or", "not", "in", "is", "contains", "null", "true", "false"})
_SIGNS = {"=": "=", "==": "=", "!=": "<>", "<>": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_ALIASES = {"case": "case_id", "latency": "latency_s", "duration": "duration_s", "pass": "passed", "id": "case_id"}
_TAG, _OUTPUT = "tag", "output"
_NUMBERS = frozenset({"BIGINT", "DOUBLE"})


class Where(NamedTuple):
    """A condition of SQL, and the values of its parameters."""

    sql: str
    values: list[Any]


EVERYTHING = Where("true", [])


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def parse_where(text: str, columns: Mapping[str, str]) -> Where:
    """Parse a filter over columns with their SQL types.

    Names are columns, `tag` for any of a run's tags, and `output.field` for a part of the output. The comparisons are
    = != < <= > >=, `contains`, `in (…)` and `is null`; `and`, `or`, `not` and parentheses combine them.
    """
    parser = _Parser(text, columns)
    sql = parser.alternatives()
    if parser.current.kind != "end":
        raise parser.unexpected("'and' or 'or'")
    return Where(sql, parser.values)


class _Parser:
    def __init__(self, text: str, columns: Mapping[str, str]) -> None:
        self._text = text
        self._columns = columns
        self.values: list[Any] = []
        self._tokens = self._tokenize()
        self._next = 0

    def _tokenize(self) -> list[_Token]:
        tokens, at = [], 0
        while self._text[at:].strip():
            match = _TOKEN.match(self._text, at)
            if match is None:
                start = len(self._text) - len(self._text[at:].lstrip())
                raise self._unexpected_at(
                    start, "a name, a number, a text in quotes or a comparison", self._text[start]
                )
            kind = match.lastgroup or ""
            word = match[kind]
            if kind == "word" and word.lower() in _WORDS:
                kind, word = "keyword", word.lower()
            tokens.append(_Token(kind, word, match.start(match.lastgroup or 0)))
            at = match.end()
        return [*tokens, _Token("end", "the end", len(self._text))]

    @property
    def current(self) -> _Token:
        return self._tokens[self._next]

    def unexpected(self, expected: str) -> Exception:
        return self._unexpected_at(self.current.at, expected, self.current.text)

    def _unexpected_at(self, at: int, expected: str, got: str) -> Exception:
        message = f"--where {self._text!r}: column {at + 1}: expected {expected}, got {got}"
        return usage_error("bad_filter", message)

    def _take(self, *texts: str) -> str:
        """Return the current sign or keyword and go on if it is one of these; otherwise nothing."""
        token = self.current
        if token.kind in ("sign", "keyword") and token.text in texts:
            self._next += 1
            return token.text
        return ""

    def _require(self, text: str) -> None:
        if not self._take(text):
            raise self.unexpected(repr(text))

    def alternatives(self) -> str:
        parts = [self._conjunction()]
        while self._take("or"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"

    def _conjunction(self) -> str:
        parts = [self._negation()]
        while self._take("and"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else f"({' AND '.join(parts)})"

    def _negation(self) -> str:
        if self._take("not"):
            # A value that is not there does not fulfil the condition.
            return f"NOT coalesce({self._negation()}, false)"
        if self._take("("):
            inner = self.alternatives()
            self._require(")")
            return inner
        return self._comparison()

    def _comparison(self) -> str:
        token = self.current
        if token.kind != "word":
            raise self.unexpected("a column such as score, status or tag")
        self._next += 1
        name = _ALIASES.get(token.text, token.text)
        if self._take("is"):
            negation = " NOT" if self._take("not") else ""
            self._require("null")
            return f"{self._column(token, name, '')} IS{negation} NULL"
        if self._take("in"):
            return self._membership(token, name)
        if self._take("contains"):
            return self._condition(token, name, "contains", self._value())
        sign = self._take(*_SIGNS)
        if not sign:
            raise self.unexpected("a comparison: = != < <= > >= contains, in, or is null")
        return self._condition(token, name, _SIGNS[sign], self._value())

    def _membership(self, token: _Token, name: str) -> str:
        self._require("(")
        conditions = [self._condition(token, name, "=", self._value())]
        while self._take(","):
            conditions.append(self._condition(token, name, "=", self._value()))
        self._require(")")
        return f"({' OR '.join(conditions)})"

    def _value(self) -> Any:
        token = self.current
        self._next += 1
        if token.kind == "number":
            return float(token.text)
        if token.kind == "text":
            return token.text[1:-1].replace(f"\\{token.text[0]}", token.text[0]).replace("\\\\", "\\")
        if token.kind == "keyword" and token.text in ("true", "false"):
            return token.text == "true"
        if token.kind == "word":
            return token.text
        self._next -= 1
        raise self.unexpected("a number, true, false, or a text, in quotes unless it is one word")

    def _condition(self, token: _Token, name: str, sign: str, value: Any) -> str:
        if name == _TAG:
            if not isinstance(value, str):
                raise self._unexpected_at(token.at, "a text in quotes for tag", repr(value))
            if sign == "contains":
                self.values.append(value)
                return "len(list_filter(tags, lambda one: contains(one, ?))) > 0"
            if sign not in ("=", "<>"):
                raise self._unexpected_at(token.at, "tag = or tag !=", f"tag {sign}")
            self.values.append(value)
            return f"{'NOT ' if sign == '<>' else ''}list_contains(tags, ?)"
        wanted = "number" if isinstance(value, float) else "truth" if isinstance(value, bool) else "text"
        column = self._column(token, name, "text" if sign == "contains" else wanted)
        self.values.append(value)
        return f"contains({column}, ?)" if sign == "contains" else f"{column} {sign} ?"

    def _column(self, token: _Token, name: str, wanted: str) -> str:
        """Return a column for a comparison with a number, a text or a truth value; with nothing, as it is."""
        if name.startswith(f"{_OUTPUT}."):
            self.values.append("/" + name.removeprefix(f"{_OUTPUT}.").replace(".", "/"))
            text = "json_extract_string(output, ?)"
            kind = {"number": "DOUBLE", "truth": "BOOLEAN"}.get(wanted)
            return f"TRY_CAST({text} AS {kind})" if kind else text
        type = self._columns.get(name)
        if type is None or type.endswith("[]"):
            names = [*self._columns, _TAG, *_ALIASES]
            hint = did_you_mean(token.text, names) or f". There is {', '.join(self._columns)}, {_TAG} and output.FIELD"
            raise usage_error(
                "bad_filter", f"--where {self._text!r}: column {token.at + 1}: no column {token.text!r}{hint}"
            )
        is_number, is_truth = type in _NUMBERS, type == "BOOLEAN"
        if wanted and (is_number, is_truth) != (wanted == "number", wanted == "truth"):
            expected = "a number" if is_number else "true or false" if is_truth else "a text in quotes"
            raise self._unexpected_at(token.at, f"{expected} for {token.text}", f"a {wanted} value")
        # A JSON or time column is compared by its text.
        return f'"{name}"' if is_number or is_truth or type == "VARCHAR" else f'"{name}"::VARCHAR'
