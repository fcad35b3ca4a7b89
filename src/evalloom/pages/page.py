"""A page and what it returns; a section is the pages of one system, and the menu entry that leads to them.

A page computes one value. The HTML of its template and the JSON of its twin under `/api` show the same value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, urlencode

from msgspec import Struct
from starlette.datastructures import QueryParams
from starlette.responses import Response
from starlette.routing import Route

from evalloom.core.model import Batch
from evalloom.pages.errors import RequestError
from evalloom.ui.language import Language

if TYPE_CHECKING:
    from evalloom.pages.site import Site


class View(Struct, frozen=True):
    """What a page shows: `data` is a struct, which the template sees as `view` and the JSON twin returns."""

    template: str
    data: Any
    status: int = 200


class Redirect(Struct, frozen=True):
    """The answer to a write: where to go next. The JSON twin answers `{"location": …}`."""

    path: str


class PageRequest(Struct, frozen=True):
    """A request to a page."""

    site: Site
    path: str
    """The path without `/api`."""
    ids: dict[str, str]
    """The parts of the path that its pattern names."""
    query: QueryParams
    t: Language
    may_write: bool
    """Whether the sender has a session: without one, a page offers no buttons and every write is refused."""
    form: Mapping[str, list[str]] = {}
    """The fields of a write, from a form or from a JSON object."""

    def field(self, name: str, default: str = "") -> str:
        """Return a field of the form, the first if there are several."""
        values = self.form.get(name)
        return values[0] if values else default

    def number(self, name: str, default: int, least: int = 1, most: int = 1_000_000) -> int:
        """Return a whole number of the query; raise for anything else."""
        text = self.query.get(name, "")
        if not text:
            return default
        if not (text.isascii() and text.isdecimal() and least <= int(text[:20]) <= most):
            message = f"{name}: expected a whole number from {least:,} to {most:,}, got {text[:80]!r}"
            raise RequestError("validation_failed", message)
        return int(text)

    def choice(self, name: str, choices: tuple[str, ...], default: str = "") -> str:
        """Return one of some words of the query; raise for any other."""
        text = self.query.get(name, "") or default
        if text and text not in choices:
            raise RequestError("validation_failed", f"{name}: expected {' or '.join(choices)}, got {text[:80]!r}")
        return text

    def url(self, path: str, /, **query: Any) -> str:
        """Return a link: the language stays if it was chosen, and empty values are left out."""
        return link(path, {**({"lang": self.query["lang"]} if self.query.get("lang") else {}), **query})

    def here(self, **changes: Any) -> str:
        """Return a link to this page with some values of the query changed; None and an empty text remove one."""
        pairs = [(name, value) for name, value in self.query.multi_items() if name not in changes]
        return link(self.path, pairs + [(name, value) for name, value in changes.items()])


def link(path: str, query: Mapping[str, Any] | list[tuple[str, Any]]) -> str:
    """Return a path with a query; values that are None or empty are left out, and lists give one value each."""
    pairs = query.items() if isinstance(query, Mapping) else query
    flat = [(name, item) for name, value in pairs for item in (value if isinstance(value, list | tuple) else [value])]
    text = urlencode([(name, str(item)) for name, item in flat if item not in (None, "")])
    return quote(path, safe="/%:@~-._!$&'()*+,;=") + (f"?{text}" if text else "")


def path_part(text: str) -> str:
    """Return a text as one part of a path."""
    return quote(text, safe="")


Handler = Callable[[PageRequest], View | Redirect | Response]


class Page(Struct, frozen=True):
    """One page or action; `handler` runs in a thread. A POST needs a session."""

    path: str
    handler: Handler
    method: str = "GET"
    has_twin: bool = True
    """Whether `/api` + path returns its value as JSON."""


class Mounted(Protocol):
    """Routes of a system that are not pages, such as an API of its own."""

    routes: list[Route]

    def close(self) -> None: ...


class Section(Struct, frozen=True):
    """The pages of a system."""

    name: str
    """Its path is `/name`; so is the first page of it."""
    title: str
    """A phrase, for the menu."""
    pages: tuple[Page, ...]
    templates: Path
    static: Path | None = None
    """The folder of its scripts, served as `/static/…/<name>/<file>`."""
    phrases: Callable[[], Mapping[str, str]] = dict
    """The Chinese phrases that only its pages use."""
    has_batch: Callable[[Batch], bool] | None = None
    """Whether it has a view of its own of a batch."""
    batch_page: str = ""
    """The path of that view, with `{batch}`; the page of such a batch links to it."""
    run_page: str = ""
    """The path of its own view of a run, with `{batch}` and `{run}`."""
    mount: Callable[[Site], Mounted] | None = None
