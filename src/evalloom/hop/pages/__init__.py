"""The pages of HOP: run one case in a conversation, run a batch, and read the results of a task (HOP-21)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from evalloom.hop.pages import batch, execute, history, overview, perf, stats
from evalloom.hop.pages.conversations import mount
from evalloom.pages.page import Section


def _phrases() -> Mapping[str, str]:
    from evalloom.hop.pages.chinese import PHRASES

    return PHRASES


_HERE = Path(__file__).parent
SECTION = Section(
    "hop",
    "HOP",
    # The first that fits is taken, and the path of a task may be anything: overview has the most general one.
    (*execute.PAGES, *batch.PAGES, *history.PAGES, *stats.PAGES, *perf.PAGES, *overview.PAGES),
    _HERE / "templates",
    _HERE / "static",
    _phrases,
    mount=mount,
)
