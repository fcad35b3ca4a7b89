"""The pages of prompt-eval: evaluations of a project, their scorecards, one case, and scores by people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from evalloom.pages.page import Section
from evalloom.prompt_eval.pages import case, listing, scorecard
from evalloom.ui.language import phrase

_HERE = Path(__file__).parent


def _phrases() -> Mapping[str, str]:
    from evalloom.prompt_eval.pages.chinese import PHRASES
    from evalloom.prompt_eval.reports.chinese import PHRASES as REPORT_PHRASES

    return {**REPORT_PHRASES, **PHRASES}


SECTION = Section(
    "prompt-eval",
    phrase("Prompts"),
    (*listing.PAGES, *scorecard.PAGES, *case.PAGES),
    _HERE / "templates",
    _HERE / "static",
    _phrases,
)
