"""The pages of replays, and the HTTP API that stands beside them."""

from __future__ import annotations

from pathlib import Path

from evalloom.pages.page import Section
from evalloom.pages.site import Site
from evalloom.replay.server.app import ReplayApi
from evalloom.replay.service import ReplayService


def _mount(site: Site) -> ReplayApi:
    return ReplayApi(ReplayService(site.data_dir, site.settings, token=site.token), site.open_work, site.token)


SECTION = Section("replay", "", (), Path(__file__).with_name("templates"), mount=_mount)
