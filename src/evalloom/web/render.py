"""Renders the view of a page as HTML, in the language of the request."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment
from starlette.requests import Request

from evalloom.pages.chinese import PHRASES
from evalloom.pages.page import PageRequest, Section, View, path_part
from evalloom.pages.site import Site
from evalloom.ui import charts
from evalloom.ui.html import page_environment
from evalloom.ui.language import LANGUAGES, Language, language
from evalloom.web.static import StaticFiles

TEMPLATES = Path(__file__).with_name("templates")
SHARED = Path(__file__).parent.parent / "pages" / "templates"


class Renderer:
    """Renders views; every section sees its own templates, those of the engine, and those that pages share."""

    def __init__(self, site: Site, sections: Iterable[Section], static: StaticFiles) -> None:
        self.site = site
        self._sections = tuple(sections)
        self._static = static
        self._environments: dict[tuple[str, str], Environment] = {}

    def render(self, section: Section, view: View, request: PageRequest) -> str:
        """Return the HTML of a view."""
        environment = self.environment(section, request.t.code)
        return environment.get_template(view.template).render(
            view=view.data,
            request=request,
            site=self.site,
            section=section,
            menu=self._menu,
            other_language=next(code for code in LANGUAGES if code != request.t.code),
        )

    def environment(self, section: Section, code: str) -> Environment:
        """Return the templates of a section in one language."""
        key = (section.name, code)
        if key not in self._environments:
            t: Language = language(code).extended(PHRASES).extended(self._titles).extended(section.phrases())
            environment = page_environment((section.templates, TEMPLATES, SHARED), t)
            environment.globals |= {"static": self._static.url, "charts": charts}
            environment.filters |= {"part": path_part, "shell_word": shlex.quote, "file_name": posixpath.basename}
            self._environments[key] = environment
        return self._environments[key]

    def language_of(self, section: Section, code: str) -> Language:
        """Return the language of a section, for what is translated outside templates."""
        t: Any = self.environment(section, code).globals["t"]
        assert isinstance(t, Language)
        return t

    @cached_property
    def _titles(self) -> dict[str, str]:
        """The titles of the sections by the English ones: the pages of every section name the others."""
        pairs = ((section.title, section.phrases().get(section.title)) for section in self._sections)
        return {english: chinese for english, chinese in pairs if chinese}

    @cached_property
    def _menu(self) -> list[tuple[str, str]]:
        """The sections of the systems: path and title."""
        return [(f"/{section.name}", section.title) for section in self._sections if section.name and section.title]


def choose_language(request: Request) -> Language:
    """Return the language that the address names, or else the first that the browser prefers and we have."""
    chosen = request.query_params.get("lang", "")
    if chosen not in LANGUAGES:
        chosen = _preferred(request.headers.get("accept-language", ""))
    return language(chosen).extended(PHRASES)


def _preferred(accepted: str) -> str:
    weighted: list[tuple[float, int, str]] = []
    for position, item in enumerate(accepted.split(",")[:50]):
        tag, _, weight = item.strip().partition(";q=")
        try:
            quality = float(weight) if weight else 1.0
        except ValueError:
            continue
        if (code := tag.split("-")[0].lower()) in LANGUAGES and quality > 0:
            weighted.append((-quality, position, code))
    return min(weighted)[2] if weighted else "en"
