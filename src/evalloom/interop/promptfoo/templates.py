"""Templates of promptfoo files, with limits.

A template reaches its variables and nothing else: no attribute of a Python object, no file, no other template. It may
come from a stranger, so loops, calls and the size of texts are counted, and a template that exceeds a limit fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Record
from evalloom.interop.promptfoo import javascript_values as js

LONGEST = 4_000_000
"""Characters of a text that a template makes, and of the template."""
_MARKS = lazy_pattern(r"\{\{|\{%|\{#")
_PLAIN = lazy_pattern(r"\{\{\s*([A-Za-z_$][\w$]*)\s*\}\}")
_WORDS = {"true", "false", "none", "null", "True", "False", "None", "loop", "range"}
"""Words of the language, which name no variable: `{{ true }}`."""

own_filters: ContextVar[Mapping[str, Callable[..., Any]]] = ContextVar("own_filters")
"""The filters that a config adds to those of the language."""


class TemplateError(Exception):
    """A template that cannot be rendered; the text says why."""


text_of = js.text_of


def has_marks(text: str) -> bool:
    """Whether a text is a template at all."""
    return bool(_MARKS.search(text))


def render(text: str, variables: Record) -> str:
    """Fill in a template. A variable that is not there is empty, as in promptfoo. Raises TemplateError."""
    if "{" not in text or not has_marks(text):
        return text
    return renderer(text)(variables)


def render_texts(value: Any, variables: Record) -> Any:
    """Fill in every text of a JSON value. Raises TemplateError."""
    if isinstance(value, str):
        return render(value, variables)
    if isinstance(value, list):
        return [render_texts(item, variables) for item in value]
    if isinstance(value, dict):
        return {name: render_texts(inner, variables) for name, inner in value.items()}
    return value


@lru_cache(maxsize=512)
def renderer(text: str) -> Callable[[Record], str]:
    """Compile a template into a function. Raises TemplateError."""
    if len(text) > LONGEST:
        raise TemplateError(f"expected a template of at most {LONGEST:,} characters, got {len(text):,}")
    if pieces := _plain_pieces(text):
        return _Filled(pieces)
    from evalloom.interop.promptfoo import nunjucks  # deferred: most templates need no parser

    return nunjucks.renderer(text)


def names_in(text: str) -> frozenset[str]:
    """Return the variables that a template uses and does not set itself. Raises TemplateError."""
    if not has_marks(text):
        return frozenset()
    if pieces := _plain_pieces(text):
        return frozenset(pieces[1::2])
    renderer(text)
    from evalloom.interop.promptfoo import nunjucks  # deferred, as above

    return nunjucks.names_in(text)


def _plain_pieces(text: str) -> list[str]:
    """Return texts and names of variables in turn, if a template consists of nothing else; otherwise nothing."""
    pieces = _PLAIN.split(text)
    is_plain = not any(map(has_marks, pieces[::2])) and _WORDS.isdisjoint(pieces[1::2])
    return pieces if is_plain else []


class _Filled:
    """A template of nothing but variables."""

    def __init__(self, pieces: list[str]) -> None:
        self._pieces = pieces

    def __call__(self, variables: Record) -> str:
        pieces = self._pieces.copy()
        for at in range(1, len(pieces), 2):
            pieces[at] = js.text_of(variables.get(pieces[at]))
        return "".join(pieces)
