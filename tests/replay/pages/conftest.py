"""A site with pages of replays, called without a server, and a server over the same example."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import QueryParams
from starlette.routing import compile_path

from evalloom.catalog import load as load_catalog
from evalloom.pages.page import PageRequest
from evalloom.pages.site import Permissions, Site
from evalloom.replay.pages import SECTION
from evalloom.replay.pages.mounted import MountedReplays
from evalloom.settings import load
from evalloom.ui.language import language

EXAMPLE = Path(__file__).parents[3] / "examples" / "replay" / "context"


class Pages:
    """Calls the handlers of pages as the app does: the first path that fits."""

    def __init__(self, site: Site, mounted: MountedReplays) -> None:
        self.site = site
        self.service = mounted.service
        self.mounted = mounted

    def get(self, path: str, **query: Any) -> Any:
        """Return the data of a page."""
        return self._call("GET", path, query, {}).data

    def post(self, path: str, **form: str) -> str:
        """Return where a write leads to."""
        where: str = self._call("POST", path, {}, form).path
        return where

    def _call(self, method: str, path: str, query: dict[str, Any], form: dict[str, str]) -> Any:
        for page in SECTION.pages:
            if page.method == method and (match := compile_path(page.path)[0].match(path)):
                fields = {name: [value] for name, value in form.items()}
                items = [(name, str(each)) for name, value in query.items() for each in _each(value)]
                ids = match.groupdict()
                asked = PageRequest(self.site, path, ids, QueryParams(items), language("en"), True, fields)
                return page.handler(asked)
        raise AssertionError(path)


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLE, tmp_path / "suite")
    return tmp_path / "suite"


@pytest.fixture
def pages(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pages]:
    """The pages of the example; whoever calls them has a session and may run."""
    monkeypatch.chdir(folder)
    catalog = load_catalog()
    site = Site(catalog, load(None, catalog.sections), permissions=Permissions(run=True))
    mounted = MountedReplays(site)
    yield Pages(site, mounted)
    mounted.close()
    site.close()


@pytest.fixture
def stored(pages: Pages) -> tuple[str, str]:
    """The ids of a project and a dataset, created from files of the folder."""
    project = pages.post("/replay", create="project", file="project.json").rpartition("/")[2]
    dataset = pages.post("/replay", create="dataset", file="rows.jsonl").partition("?")[0].rpartition("/")[2]
    return project, dataset
