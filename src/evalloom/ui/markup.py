"""HTML that cannot be broken by what is shown in it: whatever is not markup already is escaped, and hides nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

_VOID = frozenset({"input", "meta", "wbr"})
_LINES = frozenset(
    {"details", "div", "dl", "head", "header", "h2", "h3", "h4", "li", "meta", "section", "summary", "tr", "ul"}
)
"""After these a new line begins, so that two versions of a page can be compared; browsers do not show it."""

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Controls, half characters, and what hides or turns round text: nobody sees them unless they are spelled out."""


class Markup(str):
    """Text that is HTML. Only this module and fixed texts of ours make one."""

    __slots__ = ()


Content = str | Iterable[str]


def element(name: str, *content: Content, **attributes: str | bool | None) -> Markup:
    """`element("td", text, class_="x")`: a trailing `_` is dropped, `_` becomes `-`; None and False leave it out."""
    written = "".join(_attribute(key, value) for key, value in attributes.items() if value not in (None, False))
    end = "\n" if name in _LINES else ""
    if name in _VOID:
        return Markup(f"<{name}{written}>{end}")
    return Markup(f"<{name}{written}>{joined(*content)}</{name}>{end}")


def joined(*content: Content) -> Markup:
    """Pieces one after another, texts among them escaped."""
    return Markup("".join(_safe(piece) for piece in content))


def _safe(piece: Content) -> str:
    if isinstance(piece, Markup):
        return str(piece)
    return escape(visible(piece)) if isinstance(piece, str) else joined(*piece)


def _attribute(key: str, value: str | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(visible(str(value)))}"'


def visible(text: str) -> str:
    """A text in which nothing is hidden: what has no shape, or is no character, is spelled out."""
    return _UNSEEN.sub(lambda found: repr(found[0])[1:-1], text.replace("\r\n", "\n"))
