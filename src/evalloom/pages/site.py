"""What a page may use: the batches on disk, the settings, the jobs that pages started, and live progress."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from evalloom.pages.jobs import Jobs
from evalloom.pages.library import Library
from evalloom.pages.live import LiveBatches
from evalloom.pages.stopping import OpenWork
from evalloom.settings import Settings

if TYPE_CHECKING:
    from evalloom.engine.system import Catalog


class Permissions(Struct, frozen=True):
    """What those who have a session may start."""

    run: bool = False
    """Start batches, which may cost money."""
    code: bool = False
    """Start what runs code: `--allow-code`, and targets that are code and that the settings do not name."""


READING = Permissions()


class Site:
    """One folder of a project, served as pages."""

    def __init__(
        self,
        catalog: Catalog,
        settings: Settings,
        data_dir: Path = Path(".evalloom"),
        permissions: Permissions = READING,
        token: str = "",
        home: Path = Path(),
    ) -> None:
        self.catalog = catalog
        self.settings = settings
        self.data_dir = data_dir
        self.permissions = permissions
        self.token = token
        self.home = home
        """The folder of the project: jobs run in it, and files below it can be looked at."""
        self.library = Library(home, catalog)
        self.live = LiveBatches(self.library)
        self.jobs = Jobs(home, self.library)
        self.open_work = OpenWork()
        self.services: dict[str, Any] = {}
        """What a section mounted for its own pages, by the name of the section."""

    def stop(self) -> None:
        """Stop the jobs and answer the requests that are still open."""
        self.jobs.stop()
        self.open_work.end()

    def close(self) -> None:
        self.jobs.close()
        self.library.close()
