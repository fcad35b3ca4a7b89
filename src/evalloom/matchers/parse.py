"""Parses checks as users write them: in evalloom.yaml, in a file of checks, and in Python."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from evalloom.core.errors import usage_error
from evalloom.core.model import Check, Record
from evalloom.core.text import did_you_mean
from evalloom.matchers.base import number_of, show

_OWN = ("kind", "type", "expected", "value", "where", "name", "metric")
OPTIONS = (
    *("weight", "negate", "case_sensitive", "normalise", "punctuation", "threshold"),
    *("tolerance", "relative", "ignore_fields", "strict", "semantic_threshold"),
    *("min", "max", "unit", "pick", "variant", "n", "all", "top_k", "ordered", "exact", "whole_numbers"),
    *("check", "match", "scale", "reference", "function", "timeout_s", "config"),
    *("set_id", "set_threshold", "set_weight", "set_metric"),
)
"""The options of all checks. Checks in data files are not parsed here and may have others."""
_MOST_WRITTEN = {"kind", "expected"}
_BOUNDED = ("length", "word_count", "numeric")
_COMPARED = ("equals", "iequals", "one_of", "structural")
_NOTHING: Any = object()


class Kinds:
    """The kinds of checks that can be written."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.named = lru_cache(4096)(self._named)

    def _named(self, written: str) -> tuple[str, bool] | None:
        """Return the kind that a word names, and whether `not` precedes it; None if it names none."""
        word = written.strip().replace("-", "_")
        if word in self.names:
            return word, False
        bare = word.removeprefix("not_")
        return (bare, True) if bare != word and bare in self.names else None


def parse(written: Any, kinds: Kinds) -> Check:
    """Return the check of an object: `{kind, expected, …}`, or in short `{contains: "x", …}`."""
    if type(written) is dict and written.keys() == _MOST_WRITTEN and (check := _parse_plain(written, kinds)):
        return check
    if not isinstance(written, dict) or not all(isinstance(name, str) for name in written):
        raise usage_error("bad_check", f"check: expected an object such as {{contains: text}}, got {show(written)}")
    word, expected, options = _parts(written, kinds)
    kind = kinds.named(word)
    if kind is None:
        hint = did_you_mean(word.replace("-", "_"), kinds.names) or f"; known are {', '.join(kinds.names)}"
        raise usage_error("unknown_check", f"check: expected a known kind, got {word!r}{hint}")
    if kind[1]:
        options["negate"] = options.get("negate") is not True
    if callable(expected):
        options["function"], expected = expected, getattr(expected, "__qualname__", None)
    _refuse_unknown(kind[0], expected, options)
    _refuse_bad(written, options)
    name = written["name"] if "name" in written else written.get("metric", "")
    expected = None if expected is _NOTHING else expected
    return Check(kind[0], expected, written.get("where", "output"), name, options)


def _parse_plain(written: Record, kinds: Kinds) -> Check | None:
    """Return the check of an object with a kind and an expected value, like most checks of data; None if it is none.

    It takes a fifth of the time of parsing any object.
    """
    word, expected = written["kind"], written["expected"]
    kind = kinds.named(word) if type(word) is str else None
    if kind is None or callable(expected) or (type(expected) is dict and kind[0] in _BOUNDED):
        return None
    return Check(kind[0], expected, options={"negate": True} if kind[1] else {})


def _parts(written: Record, kinds: Kinds) -> tuple[str, Any, Record]:
    """Return the kind as written, the expected value, and the options, which may also stand under `options`."""
    if isinstance(inner := written.get("options"), dict):
        written = {**{name: value for name, value in written.items() if name != "options"}, **inner}
    word = written.get("kind", written.get("type"))
    if word is not None:
        if not isinstance(word, str):
            raise usage_error("bad_check", f"check: kind: expected a word, got {show(word)}")
        expected = written.get("expected", written.get("value", _NOTHING))
        return word, expected, {name: value for name, value in written.items() if name not in _OWN}
    named = [name for name in written if kinds.named(name)]
    if len(named) > 1:
        raise usage_error("bad_check", f"check: expected one kind, got {' and '.join(named)}; write one check for each")
    others = [name for name in written if name not in _OWN]
    if not others:
        raise usage_error("bad_check", f"check: expected a kind, got {show(written)}")
    word = named[0] if named else others[0]
    rest = {name: value for name, value in written.items() if name not in (*_OWN, word)}
    return word, written[word], rest


def _refuse_unknown(kind: str, expected: Any, options: Record) -> None:
    """Refuse unknown options: a misspelled option would leave a check weaker than it looks."""
    for name in options:
        if name not in OPTIONS:
            hint = did_you_mean(name, (*OPTIONS, *_OWN)) or f"; known are {', '.join(OPTIONS)}"
            raise usage_error("bad_check", f"check {kind!r}: expected an option that checks have, got {name!r}{hint}")
    if kind in _BOUNDED and isinstance(expected, dict):
        for name in expected:
            if name not in ("min", "max"):
                hint = did_you_mean(str(name), ("min", "max"))
                raise usage_error("bad_check", f"check {kind!r}: expected min or max inside, got {name!r}{hint}")
    if kind in _COMPARED and expected is _NOTHING:
        raise usage_error("bad_check", f"check {kind!r}: expected something to compare with; give it as 'expected'")


def _refuse_bad(written: Record, options: Record) -> None:
    for name in ("where", "name", "metric"):
        if name in written and not isinstance(written[name], str):
            raise usage_error("bad_check", f"check: {name}: expected a text, got {show(written[name])}")
    for name in ("weight", "threshold"):
        if name in options and number_of(options[name]) is None:
            raise usage_error("bad_check", f"check: {name}: expected a number, got {show(options[name])}")
    if options.get("weight", 1) < 0:
        raise usage_error("bad_check", f"check: weight: expected a number from 0 up, got {show(options['weight'])}")
    if not isinstance(options.get("negate", False), bool):
        raise usage_error("bad_check", f"check: negate: expected true or false, got {show(options['negate'])}")
