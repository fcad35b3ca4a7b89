"""HTML for the cells of notebooks: small tables and charts in the colours of reports, without a script.

The stylesheet applies to what is inside a cell only, because a notebook is one page. All texts are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from markupsafe import Markup, escape

from evalloom.ui.html import TEMPLATES, user_text
from evalloom.ui.text import visible

_COLOURS = re.compile(r":root\s*\{([^}]*)\}")
_NUMBER = re.compile(r"[-+]?[\d.,]+(?:e[-+]?\d+)?(?: ?%| s| ms)?|-")
_RULES = """
.evalloom { background: var(--card); color: var(--ink); border: 1px solid var(--line); border-radius: 10px;
  padding: .8rem 1rem; max-width: 60rem; font: 14px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "PingFang SC",
  "Microsoft YaHei", "Noto Sans CJK SC", "Noto Sans", sans-serif; }
.evalloom p { margin: .2rem 0; } .evalloom .soft { color: var(--soft); } .evalloom .bad { color: var(--one); }
.evalloom .good { color: var(--three); } .evalloom .lead { font-size: 1.1em; font-weight: 600; }
.evalloom table { border-collapse: collapse; margin: .6rem 0 0; font-size: .93em; }
.evalloom th, .evalloom td { text-align: left; padding: .3rem .6rem; border: 0; border-bottom: 1px solid var(--line);
  background: none; color: inherit; vertical-align: top; overflow-wrap: anywhere; white-space: normal; }
.evalloom thead th { color: var(--soft); font-weight: 600; }
.evalloom td.number, .evalloom th.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.evalloom .user { white-space: pre-wrap; unicode-bidi: isolate; }
.evalloom svg { display: block; width: 100%; max-width: 40rem; overflow: visible; margin: .6rem 0; }
.evalloom svg text { font: 600 12px system-ui, sans-serif; }
.evalloom svg .light { fill: var(--soft); font-weight: 400; }
.evalloom .interval svg { height: 14px; max-width: 20rem; } .evalloom .ink { fill: var(--ink); }
.evalloom .axis { stroke: var(--line); } .evalloom .track { fill: var(--line); } .evalloom .dot { fill: var(--three); }
.evalloom .band { fill: var(--three); opacity: .4; } .evalloom .rate { fill: var(--three); opacity: .28; }
.evalloom .between { fill: var(--three); opacity: .55; }
.evalloom .at { fill: var(--three); stroke: var(--card); stroke-width: 2; }
"""


def cell(*parts: Markup) -> str:
    """Return the HTML of a cell."""
    return str(
        Markup('<div class="evalloom"><style>{}</style>{}</div>').format(Markup(_style()), Markup("").join(parts))
    )


def paragraph(text: str, kind: str = "") -> Markup:
    """Return a sentence; `kind` is `lead`, `soft`, `good`, `bad`, or several of them."""
    return Markup('<p class="{}">{}</p>').format(kind, visible(text))


def interval_chart(chart: Markup) -> Markup:
    """Return the chart of a rate, as high as a line of text."""
    return Markup('<div class="interval">{}</div>').format(chart)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    """Return a table; columns of numbers are aligned right, and columns without any text are left out."""
    shown = [at for at in range(len(header)) if at == 0 or any(row[at] for row in rows)]
    header, rows = [header[at] for at in shown], [[row[at] for at in shown] for row in rows]
    numeric = [
        bool(rows) and all(_NUMBER.fullmatch(row[at]) for row in rows) and any(row[at] != "-" for row in rows)
        for at in range(len(header))
    ]
    names = [
        Markup('<th class="{}">{}</th>').format("number" if is_number else "", visible(name))
        for name, is_number in zip(header, numeric, strict=True)
    ]
    body = [Markup("<tr>{}</tr>").format(Markup("").join(map(_table_cell, row, numeric))) for row in rows]
    html = "<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>"
    return Markup(html).format(Markup("").join(names), Markup("").join(body))


def _table_cell(text: str, is_number: bool) -> Markup:
    if is_number:
        return Markup('<td class="number">{}</td>').format(escape(text))
    return Markup("<td>{}</td>").format(user_text(text))


@cache
def _style() -> str:
    """Return the rules with the colours of reports, by the theme of JupyterLab and VS Code or else of the system."""
    light, dark = _COLOURS.findall((TEMPLATES / "style.css").read_text("utf-8"))[:2]
    light_themes = '[data-jp-theme-light="true"] .evalloom, .vscode-light .evalloom'
    dark_themes = '[data-jp-theme-light="false"] .evalloom, .vscode-dark .evalloom'
    return (
        f".evalloom {{{light}}}\n@media (prefers-color-scheme: dark) {{ .evalloom {{{dark}}} }}\n"
        f"{light_themes} {{{light}}}\n{dark_themes} {{{dark}}}\n{_RULES}"
    )
