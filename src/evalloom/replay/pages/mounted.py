"""What the pages of replays share: the service that the HTTP API uses too, and the replays that pages started."""

from __future__ import annotations

from evalloom.pages.page import PageRequest
from evalloom.pages.site import Site
from evalloom.replay.pages.background import BackgroundReplays
from evalloom.replay.pages.history import RowHistory
from evalloom.replay.server.app import ReplayApi
from evalloom.replay.service import ReplayService

NAME = "replay"


class MountedReplays:
    """The service of one site, created once; `routes` are those of the HTTP API."""

    def __init__(self, site: Site) -> None:
        self.service = ReplayService(site.data_dir, site.settings, token=site.token)
        self.background = BackgroundReplays(self.service)
        self.history = RowHistory(self.service)
        self._api = ReplayApi(self.service, site.open_work, site.token)
        self.routes = self._api.routes
        site.services[NAME] = self

    def close(self) -> None:
        self.background.close()
        self._api.close()


def mounted(request: PageRequest) -> MountedReplays:
    """Return what was mounted for the site of a request."""
    found = request.site.services[NAME]
    assert isinstance(found, MountedReplays)
    return found


def service_of(request: PageRequest) -> ReplayService:
    """Return the service of the site of a request."""
    return mounted(request).service
