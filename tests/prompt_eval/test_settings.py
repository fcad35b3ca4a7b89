"""The section `prompt_eval` of evalloom.yaml: which llms are asked when no flag says otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalloom import catalog, settings
from evalloom.core.errors import EvalloomError
from evalloom.prompt_eval.settings import SECTION, PromptEvalSettings

LLMS = "llms: {kimi: {model: m}}\nprofiles: {fast: {run: kimi}}\n"


def load(text: str, folder: Path) -> PromptEvalSettings:
    (folder / "evalloom.yaml").write_text(LLMS + text, encoding="utf-8")
    return settings.load(folder / "evalloom.yaml", catalog.load().sections).section(SECTION)


def test_the_section_is_read(tmp_path: Path) -> None:
    assert load("prompt_eval: {llm: kimi, judge: echo, profile: fast}\n", tmp_path) == PromptEvalSettings(
        "kimi", "echo", "fast"
    )
    assert load("prompt_eval: {llm: null, profile: kimi}\n", tmp_path) == PromptEvalSettings(profile="kimi")
    assert load("", tmp_path) == load("prompt_eval:\n", tmp_path) == PromptEvalSettings()


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("{llms: kimi}", "evalloom.yaml:3:21: prompt_eval.llms: unknown key. Did you mean 'llm'?"),
        ("{llm: [kimi]}", "evalloom.yaml:3:20: prompt_eval.llm: expected a string, got a list"),
        ("{llm: kmi}", "evalloom.yaml:3:20: prompt_eval.llm: there is no llm 'kmi'. Did you mean 'kimi'?"),
        ("{judge: fast}", "evalloom.yaml:3:22: prompt_eval.judge: there is no llm 'fast'."),
        ("{profile: fsat}", "evalloom.yaml:3:24: prompt_eval.profile: there is no profile or llm 'fsat'. Did you mean 'fast'?"),
    ],
)  # fmt: skip
def test_every_error_has_its_place(written: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(EvalloomError) as fault:
        load(f"prompt_eval: {written}\n", tmp_path)
    assert fault.value.code == "bad_settings" and told in str(fault.value)


def test_the_schema_names_every_field() -> None:
    keys = settings.schema((SECTION,))["$defs"]["PromptEvalSettings"]["properties"]
    assert list(keys) == list(PromptEvalSettings.__struct_fields__)
    assert all(key["description"] for key in keys.values())
