"""Renders HTML pages from Jinja2 templates: texts are escaped, and a page is one file that loads nothing.

`templates/page.html` is the frame of a page, `templates/components.html` has its parts, and `templates/style.css` is
the one stylesheet. A system keeps its own templates in its own folder and extends the frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from evalloom.core.digest import sha256_base64
from evalloom.core.lazy import lazy_pattern
from evalloom.core.text import pluralize, shorten
from evalloom.ui.language import ENGLISH, Language
from evalloom.ui.report_marks import GENERATOR
from evalloom.ui.text import east_asian_language, visible, visible_spaces

TEMPLATES = Path(__file__).with_name("templates")
_BREAKS = lazy_pattern(r"[_/:]|@(?!\d)")


def render(
    folder: Path,
    template: str,
    *,
    script: Path | str | None = None,
    style: Path | None = None,
    language: Language = ENGLISH,
    **values: Any,
) -> str:
    """Render a template of `folder` that extends `page.html`; `script`, a file or code, is all that the page may run.

    `style` is added to the stylesheet of all pages. Templates translate their phrases with `t`.
    """
    rules = (TEMPLATES / "style.css").read_text("utf-8") + (style.read_text("utf-8") if style else "")
    code = script.read_text("utf-8") if isinstance(script, Path) else script or ""
    # A second lock behind escaping: the browser applies only this style and runs only this script, known by hash.
    script_source = f"script-src '{_source_hash(code)}'; " if code else ""
    policy = (
        f"default-src 'none'; style-src '{_source_hash(rules)}'; {script_source}base-uri 'none'; form-action 'none'"
    )
    page = {"generator": GENERATOR, "policy": policy, "style": Markup(rules), "script": Markup(code)}
    return _environment(folder, language).get_template(template).render(page=page, **values)


@cache
def _environment(folder: Path, language: Language) -> Environment:
    return page_environment((folder,), language)


def page_environment(folders: Sequence[Path], language: Language) -> Environment:
    """Return the templates of some folders and of this package; they translate their phrases with `t`."""
    environment = Environment(
        loader=FileSystemLoader([*folders, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        # Runs on every printed value before it is escaped, so no template can forget it.
        finalize=lambda value: visible(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    # A global, because macros of another template do not see the values of a page.
    environment.globals["t"] = language
    environment.filters |= {
        "breakable": breakable,
        "lang": lang_attribute,
        "pluralize": pluralize,
        "sentence": sentence,
        "shorten": shorten,
        "thousands": "{:,}".format,
        "user": user_text,
        "visible_spaces": visible_spaces,
    }
    return environment


def sentence(words: str) -> str:
    """Begin words with a capital: a heading made of a term that is lower case in sentences."""
    return words[:1].upper() + words[1:]


def user_text(text: str) -> Markup:
    """A user's text: line breaks stay, and direction and East Asian language are its own."""
    return Markup(f'<span class="user" dir="auto"{lang_attribute(text)}>{escape(visible(text))}</span>')


def lang_attribute(text: str) -> Markup:
    """The attribute `lang` of an element with an East Asian text; empty for any other."""
    language = east_asian_language(text)
    return Markup(f' lang="{language}"' if language else "")


def breakable(name: str) -> Markup:
    """A name that may wrap after each `_`, `/`, `:` and `@`."""
    # Not within `hit@3`, whose number belongs to it.
    return Markup(_BREAKS.sub(r"\g<0><wbr>", str(escape(visible(name)))))


def _source_hash(text: str) -> str:
    return f"sha256-{sha256_base64(text)}"
