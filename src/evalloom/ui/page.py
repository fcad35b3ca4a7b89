"""The frame and the pieces of an HTML report: one file that loads nothing, and runs nothing of what it shows."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from evalloom.ui.markup import Markup, element, joined
from evalloom.ui.report_marks import GENERATOR

_STYLE = Path(__file__).with_name("page.css")
_EAST_ASIAN = re.compile(r"(?P<ja>[\u3041-\u30ff])|(?P<ko>[\uac00-\ud7af])|(?P<zh>[\u3400-\u9fff])")
LONGEST_TEXT = 2_000
"""Characters of an input, a reason or a comment that are shown."""


def page(title: str, *body: Markup, style: Path | None = None, script: Path | None = None) -> str:
    """A whole page that needs nothing beside itself, and may load and run nothing beside its own style and script.

    The file `style` comes on top of the style that all pages share.
    """
    styles = _STYLE.read_text("utf-8") + (style.read_text("utf-8") if style else "")
    code = script.read_text("utf-8") if script else ""
    runs = f"script-src '{_hash(code)}'; " if code else ""
    policy = f"default-src 'none'; style-src '{_hash(styles)}'; {runs}base-uri 'none'; form-action 'none'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name_="generator", content=GENERATOR),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name_="color-scheme", content="light dark"),
        element("title", title),
        element("style", Markup(styles)),
    )
    last = [element("script", Markup(code))] if code else []
    whole = element("html", head, element("body", *body, *last), lang="en")
    return joined(Markup("<!doctype html>\n"), whole) + "\n"


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def section(anchor: str, title: str, *content: Markup | str, kind: str | None = None) -> Markup:
    return element("section", element("h2", title), *content, id=anchor, class_=kind)


def table(heads: Iterable[str], kinds: Iterable[str], rows: Iterable[Markup], kind: str, label: str) -> Markup:
    """A table that scrolls inside its section, by keyboard too."""
    cells = [
        element("th", _breakable(head), scope="col", class_=of or None) for head, of in zip(heads, kinds, strict=True)
    ]
    whole = element("table", element("thead", element("tr", cells)), element("tbody", rows), class_=kind or None)
    return element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=label)


def _breakable(head: str) -> Markup:
    """A name that may go on in the next line after a `_`."""
    first, *rest = head.split("_")
    return joined(first, [joined("_", element("wbr"), part) for part in rest])


def figures(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]], label: str) -> Markup:
    """A table whose first column names a thing and whose others count it."""
    kinds = ("", *("number",) * (len(heads) - 1))
    lines = (
        element("tr", element("th", first, scope="row"), [element("td", one, class_="number") for one in rest])
        for first, *rest in rows
    )
    return table(heads, kinds, lines, "", label)


def said(text: str) -> Markup:
    """A text of the user's as it is: in its own direction, and marked as Chinese, Japanese or Korean for its glyphs."""
    return element("span", text, class_="user", dir="auto", lang=_language(text))


def _language(text: str) -> str | None:
    kinds = {match.lastgroup for match in _EAST_ASIAN.finditer(text[:LONGEST_TEXT])}
    return next((code for code in ("ja", "ko", "zh") if code in kinds), None)
