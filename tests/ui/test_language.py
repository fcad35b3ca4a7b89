"""The two languages of reports: every phrase has a Chinese entry with the same placeholders, numbers are formatted."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from jinja2 import Environment, nodes
from markupsafe import Markup

import evalloom
from evalloom.ui.chinese import PHRASES
from evalloom.ui.language import language, language_of, phrases_in_script

pytestmark = pytest.mark.req("WORK-14")
SOURCE = Path(evalloom.__file__).parent
PARTS = {"pages": ("pages", "web")}
"""The folders that use the phrases of a folder, where it is not the only one."""


def own_phrases() -> dict[str, dict[str, str]]:
    """The phrases that a folder has beside those of all reports: of pages, and of each system."""
    found: dict[str, dict[str, str]] = {}
    for file in sorted(SOURCE.glob("*/**/chinese.py")):
        folder, *_ = parts = file.relative_to(SOURCE).with_suffix("").parts
        if folder != "ui":
            module = import_module(".".join(["evalloom", *parts]))
            assert not found.get(folder, {}).keys() & module.PHRASES.keys()
            found[folder] = {**found.get(folder, {}), **module.PHRASES}
    return found


SYSTEMS = own_phrases()
PLACEHOLDER = re.compile(r"\{(\w+)\}")


def in_python(file: Path) -> Iterator[str]:
    """The literals of `t("…")`, `t.count(n, "…", "…")` and `phrase("…")`; of a count, that of many."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        literals = [item.value for item in node.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
        if called in ("t", "phrase") or called.endswith(".t") or called == "t.count":
            yield from literals[-1:]


def in_template(file: Path) -> Iterator[str]:
    for call in Environment().parse(file.read_text("utf-8")).find_all(nodes.Call):
        name = call.node.name if isinstance(call.node, nodes.Name) else ""
        is_count = isinstance(call.node, nodes.Getattr) and call.node.attr == "count"
        if name == "t" or is_count:
            yield from [
                item.value for item in call.args if isinstance(item, nodes.Const) and isinstance(item.value, str)
            ][-1:]


def used(folder: Path = SOURCE) -> set[str]:
    phrases: set[str] = set()
    for file in folder.rglob("*.py"):
        phrases |= set(in_python(file))
    for file in folder.rglob("templates/*.html"):
        phrases |= set(in_template(file))
    for file in folder.rglob("templates/*.js"):
        phrases |= set(phrases_in_script(file.read_text("utf-8")))
    return phrases


def test_every_phrase_has_a_chinese_entry_and_no_entry_is_left_over() -> None:
    assert len(used()) > 100
    known = set(PHRASES).union(*SYSTEMS.values())
    assert sorted(used() - known) == []
    assert sorted(known - used()) == []


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_phrases_of_a_system_are_those_that_only_its_folder_uses(system: str) -> None:
    shared = PHRASES if system == "pages" else {**PHRASES, **SYSTEMS["pages"]}
    phrases = set().union(*(used(SOURCE / folder) for folder in PARTS.get(system, (system,))))
    assert sorted(phrases - shared.keys() - SYSTEMS[system].keys()) == []
    assert sorted(SYSTEMS[system].keys() - phrases) == [] and sorted(SYSTEMS[system].keys() & shared.keys()) == []


@pytest.mark.parametrize("phrases", [PHRASES, *SYSTEMS.values()], ids=["all", *SYSTEMS])
def test_an_entry_has_the_placeholders_of_its_phrase(phrases: dict[str, str]) -> None:
    for english, chinese in phrases.items():
        assert sorted(set(PLACEHOLDER.findall(english))) == sorted(set(PLACEHOLDER.findall(chinese))), english


def test_a_phrase_of_a_script_is_found_in_any_call() -> None:
    code = 't("One"); t("Two {n}", {n: 1}); t.count(list.length, "{n} run", "{n} runs"); at("no"); [t("A"), t("B")]'
    assert phrases_in_script(code) == ["One", "Two {n}", "{n} runs", "A", "B"]


def test_what_has_no_entry_stays_english() -> None:
    assert language("zh")("No such phrase {n}", n=1) == "No such phrase 1"


def test_a_value_that_is_markup_stays_markup_and_others_are_escaped() -> None:
    filled = language("en")("{a} and {b}", a=Markup("<b>x</b>"), b="<i>")
    assert isinstance(filled, Markup) and filled == "<b>x</b> and &lt;i&gt;"


def test_numbers_follow_the_language() -> None:
    english, chinese = language("en"), language("zh")
    assert (english.percent(0.6667), chinese.percent(0.6667)) == ("66.7 %", "66.7%")
    assert (english.percent(0.0001), english.percent(0.99999), english.percent(None)) == ("< 0.1 %", "> 99.9 %", "–")
    assert (english.seconds(0.25), english.seconds(1.234), chinese.seconds(1.234)) == ("250 ms", "1.23 s", "1.23 秒")
    assert english.points(-0.023) == "−2.3"
    assert english.time("2026-01-05T08:00:00+00:00") == "2026-01-05 08:00 UTC"
    assert chinese.time("2026-01-05T08:00:00+00:00") == "2026年1月5日 08:00 UTC"
    assert english.time("some day") == "some day"


def test_one_and_many() -> None:
    assert [language("en").count(n, "{n} run", "{n} runs") for n in (0, 1, 1234)] == ["0 runs", "1 run", "1,234 runs"]


@pytest.mark.parametrize(
    ("choice", "environment", "expected"),
    [
        ("", {}, "en"),
        ("", {"LANG": "zh_CN.UTF-8"}, "zh"),
        ("", {"LC_ALL": "C.UTF-8", "LANG": "zh_CN.UTF-8"}, "en"),
        ("", {"LC_MESSAGES": "zh_TW", "LANG": "en_US"}, "zh"),
        ("en", {"LC_ALL": "zh_CN"}, "en"),
        ("zh", {"LC_ALL": "en_US"}, "zh"),
    ],
)
def test_the_language_is_the_chosen_one_or_that_of_the_locale(
    choice: str, environment: dict[str, str], expected: str
) -> None:
    assert language_of(choice, environment) == expected
