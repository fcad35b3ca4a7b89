"""The pages of replays, and the HTTP API that stands beside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from evalloom.pages.page import Section
from evalloom.replay.pages import comparison, dataset, overview, project, run
from evalloom.replay.pages.mounted import NAME, MountedReplays
from evalloom.ui.language import phrase


def _phrases() -> Mapping[str, str]:
    from evalloom.replay.pages.chinese import PHRASES

    return PHRASES


SECTION = Section(
    NAME,
    phrase("Replay"),
    # In this order: the first path that fits is taken, and `run` and `compare` are words that a project may have as id.
    (*overview.PAGES, *run.PAGES, *comparison.PAGES, *dataset.PAGES, *project.PAGES),
    Path(__file__).with_name("templates"),
    Path(__file__).with_name("static"),
    _phrases,
    mount=MountedReplays,
)
