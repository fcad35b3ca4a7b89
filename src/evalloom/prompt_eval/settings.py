"""The section `prompt_eval` of evalloom.yaml: the default llms and profile of `evalloom prompt-eval`."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from evalloom.core.model import Record
from evalloom.settings.form import TEXT
from evalloom.settings.section import Section


class PromptEvalSettings(Struct, frozen=True):
    """The default llms and profile of `evalloom prompt-eval`; the rest of the file fills what is empty."""

    llm: str = ""
    judge: str = ""
    profile: str = ""


def _load(written: Record, folder: Path) -> PromptEvalSettings:
    return msgspec.convert(written, PromptEvalSettings)


SECTION = Section(
    name="prompt_eval",
    description="Whom `evalloom prompt-eval` asks.",
    keys={
        "llm": TEXT | {"description": "The llm that drafts plans, test cases and better prompts."},
        "judge": TEXT | {"description": "The llm that scores; `judge` of the whole file when left out."},
        "profile": TEXT | {"description": "The profile or llm that the prompt is run under."},
    },
    load=_load,
    llms=("llm", "judge"),
    profiles=("profile",),
)
