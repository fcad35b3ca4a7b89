"""The section `prompt_eval` of evalloom.yaml: the default llms and profile of `evalloom prompt-eval`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from evalloom.settings.section import Section


class PromptEvalSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The default llms and profile of `evalloom prompt-eval`; the rest of the file fills what is empty."""

    llm: Annotated[str, Meta(description="The llm that drafts plans, test cases and better prompts.")] = ""
    judge: Annotated[str, Meta(description="The llm that scores; `judge` of the whole file by default.")] = ""
    profile: Annotated[str, Meta(description="The profile or llm that runs the prompt.")] = ""


SECTION = Section(
    name="prompt_eval",
    description="The default llms of `evalloom prompt-eval`.",
    struct=PromptEvalSettings,
    llms=("llm", "judge"),
    profiles=("profile",),
)
