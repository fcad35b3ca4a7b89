"""The kit for HTML pages: any text stays text in any component, and a page is one file that loads nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from evalloom.ui import html
from evalloom.ui.diff import DiffLine, Span, TextDiff, compare_texts
from evalloom.ui.json_diff import JsonChange, JsonDiff, compare_values
from evalloom.ui.language import language
from evalloom.ui.report_marks import is_ours
from evalloom.ui.text import visible

EVERY_COMPONENT = """\
{% extends "page.html" %}
{% from "components.html" import badge, collapsed, figures, figures_row, flag, head, json_diff, mark, output, section, side_by_side_diff, soft, table, text_diff, texts_row, tile %}
{% block title %}{{ text }}{% endblock %}
{% block header %}{{ head(text, text, [(text, text)], [("anchor", text)], text) }}{% endblock %}
{% block main %}
{% call section("anchor", text, "alarm") %}
{{ soft(text) }}{{ tile(text, text, text, href="#anchor", is_alarm=true) }}
{{ figures((text, text), [(text, text)], text) }}
{% call table((text,), ("",), text) %}{{ figures_row(text, [text], "wrap", true) }}{{ texts_row(text, [text]) }}{% endcall %}
{{ mark(text, "m1", text) }}{{ flag(text, "bad") }}{{ badge(text, "good", text) }}
{% call output(text) %}{{ text | user }}{{ text | breakable }}{{ text | shorten(3) }}{% endcall %}
{% call collapsed(text) %}{{ text_diff(diff, (text, text)) }}{{ side_by_side_diff(diff, (text, text)) }}{{ json_diff(changes, (text, text)) }}{% endcall %}
{% endcall %}
{% endblock %}
"""
HOSTILE = ("</style><img src=x>", "\" onclick='x'", "half \ud800", "a\u202eb", "</title><script>x</script>", "{{ 1 }}")

texts = st.text(max_size=30) | st.sampled_from(HOSTILE)


class Page(HTMLParser):
    """The tags of a page, and its texts with those of attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.texts += [value for _, value in attrs if value]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def folder_with(folder: Path, template: str) -> Path:
    (folder / "report.html").write_text(template, "utf-8")
    return folder


@pytest.fixture(scope="module")
def every_component(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_with(tmp_path_factory.mktemp("templates"), EVERY_COMPONENT)


def render(folder: Path, text: str, script: Path | None = None) -> str:
    kinds: tuple[Literal["same", "removed", "added"], ...] = ("same", "removed", "added")
    spans = (Span(text, False), Span(f"x{text}", True))
    diff = TextDiff(tuple(DiffLine(kind, text, spans, 1, 1) for kind in kinds), "block", "a", True, True, 1, 1, 1)
    changes = JsonDiff((JsonChange("changed", text, text, text), JsonChange("changed", text, text, text, diff)), 1)
    return html.render(folder, "report.html", script=script, text=text, diff=diff, changes=changes)


@given(text=st.text(min_size=1, max_size=30) | st.sampled_from(HOSTILE))
def test_any_text_stays_text_in_any_component(text: str, every_component: Path) -> None:
    page = render(every_component, text)
    page.encode()
    plain = Page(render(every_component, "x"))
    parsed = Page(page)
    assert [tag for tag in parsed.tags if tag != "wbr"] == plain.tags
    assert parsed.attributes - {"lang"} == plain.attributes - {"lang"}
    assert visible(text) in "".join(parsed.texts)


DIFFS = """\
{% from "components.html" import side_by_side_diff, text_diff, value_diff %}
{{ text_diff(diff, ("A", "B")) }}{{ side_by_side_diff(diff, ("A", "B")) }}{{ value_diff(values, ("A", "B")) }}
"""


def render_diffs(folder: Path, a: str, b: str, code: str = "en") -> str:
    diff, values = compare_texts(a, b), compare_values(a, b)
    return html.render(folder_with(folder, DIFFS), "report.html", language=language(code), diff=diff, values=values)


@given(a=texts, b=texts)
def test_no_text_in_a_diff_becomes_markup(a: str, b: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    page = render_diffs(tmp_path_factory.getbasetemp(), a, b)
    allowed = {"p", "div", "span", "table", "thead", "tbody", "tr", "th", "td", "del", "ins", "ul", "li", "code"}
    page.encode()
    assert set(Page(page).tags) <= allowed and Page(page).attributes <= {
        *("class", "tabindex", "role", "aria-label", "aria-hidden", "scope", "dir", "lang")
    }
    assert page.count("<del") == page.count("</del>") and page.count("<ins") == page.count("</ins>")


def test_a_diff_shows_whitespace_and_tells_what_the_eye_does_not_see(tmp_path: Path) -> None:
    page = render_diffs(tmp_path, "a  b\u00a0c", "a b\tc\n")
    assert "<del>··</del>" in page and "<ins>·</ins>" in page and r"<del>\xa0</del>" in page and "<ins>↵" in page
    assert "Only whitespace differs" in page
    assert "Equal after NFKC" in render_diffs(tmp_path, "ＡＢＣ", "ABC")
    assert "经 NFKC 规范化后相同" in render_diffs(tmp_path, "ＡＢＣ", "ABC", "zh")
    assert "A: (an empty text)" in render_diffs(tmp_path, "", "x")
    assert "Both texts are equal." in render_diffs(tmp_path, "x", "x")


def test_a_diff_of_json_lists_changes_with_their_paths(tmp_path: Path) -> None:
    page = render_diffs(tmp_path, '{"city": "Paris", "n": 1}', '{"n": 1.0, "city": "Lyon"}')
    text = "".join(Page(page[page.index('<ul class="changes">') :]).texts)
    assert "$.city" in text and '"Paris"' in text and "→" in text and '"Lyon"' in text and "$.n" not in text


def luminance(colour: str) -> float:
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4 for channel in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_texts_of_a_diff_have_the_contrast_of_wcag_aa(scheme: int) -> None:
    rules = (html.TEMPLATES / "style.css").read_text("utf-8").split("prefers-color-scheme: dark")[scheme]
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", rules))

    def contrast(one: str, other: str) -> float:
        dark, light = sorted((luminance(colours[one]), luminance(colours[other])))
        return (light + 0.05) / (dark + 0.05)

    assert all(contrast("ink", back) >= 4.5 for back in ("del", "del-line", "ins", "ins-line"))
    assert all(contrast("soft", back) >= 4.5 for back in ("del-line", "ins-line"))
    assert contrast("del-edge", "tint") >= 3 and contrast("ins-edge", "tint") >= 3


def test_a_page_is_known_again_as_ours_and_loads_nothing(every_component: Path) -> None:
    page = render(every_component, "x")
    assert is_ours(page.encode())
    assert "http" not in page.replace("http-equiv", "") and "url(" not in page
    assert "script-src" not in page and "<script" not in page


def test_the_policy_allows_the_given_script_only(tmp_path: Path, every_component: Path) -> None:
    script = tmp_path / "page.js"
    script.write_text('const text = "</b>" && 1;', "utf-8")
    page = render(every_component, "x", script)
    assert '<script>const text = "</b>" && 1;</script>' in page
    digest = b64encode(sha256(script.read_bytes()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in "".join(Page(page).texts)


def test_an_unknown_name_in_a_template_is_an_error(tmp_path: Path) -> None:
    frame = '{% extends "page.html" %}{% block title %}{% endblock %}{% block header %}{% endblock %}'
    with pytest.raises(UndefinedError, match="misspelt"):
        html.render(folder_with(tmp_path, frame + "{% block main %}{{ misspelt }}{% endblock %}"), "report.html")


@pytest.mark.parametrize(
    ("text", "attribute"),
    [("叉车", ' lang="zh"'), ("叉車のフォーク", ' lang="ja"'), ("지게차", ' lang="ko"'), ("truck", "")],
)
def test_texts_of_users_are_marked_with_their_language(text: str, attribute: str) -> None:
    assert html.user_text(text) == f'<span class="user" dir="auto"{attribute}>{text}</span>'


def test_commands_open_without_jinja2() -> None:
    code = "import evalloom.rag.cli, evalloom.prompt_eval.cli, sys; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
