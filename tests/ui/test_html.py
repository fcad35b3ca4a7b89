"""The kit for HTML pages: any text stays text in any component, and a page is one file that loads nothing."""

from __future__ import annotations

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
from evalloom.ui.diff import DiffLine
from evalloom.ui.report_marks import is_ours
from evalloom.ui.text import visible

EVERY_COMPONENT = """\
{% extends "page.html" %}
{% from "components.html" import badge, collapsed, diff, figures, figures_row, flag, head, mark, output, section, soft, table, texts_row, tile %}
{% block title %}{{ text }}{% endblock %}
{% block header %}{{ head(text, text, [(text, text)], [("anchor", text)], text) }}{% endblock %}
{% block main %}
{% call section("anchor", text, "alarm") %}
{{ soft(text) }}{{ tile(text, text, text, href="#anchor", is_alarm=true) }}
{{ figures((text, text), [(text, text)], text) }}
{% call table((text,), ("",), text) %}{{ figures_row(text, [text], "wrap", true) }}{{ texts_row(text, [text]) }}{% endcall %}
{{ mark(text, "m1", text) }}{{ flag(text, "bad") }}{{ badge(text, "good", text) }}
{% call output(text) %}{{ text | user }}{{ text | breakable }}{{ text | shorten(3) }}{% endcall %}
{% call collapsed(text) %}{{ diff(lines) }}{% endcall %}
{% endcall %}
{% endblock %}
"""
HOSTILE = ("</style><img src=x>", "\" onclick='x'", "half \ud800", "a\u202eb", "</title><script>x</script>", "{{ 1 }}")


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
    lines = [DiffLine(kind, text) for kind in kinds]
    return html.render(folder, "report.html", script=script, text=text, lines=lines)


@given(text=st.text(min_size=1, max_size=30) | st.sampled_from(HOSTILE))
def test_any_text_stays_text_in_any_component(text: str, every_component: Path) -> None:
    page = render(every_component, text)
    page.encode()
    plain = Page(render(every_component, "x"))
    parsed = Page(page)
    assert [tag for tag in parsed.tags if tag != "wbr"] == plain.tags
    assert parsed.attributes - {"lang"} == plain.attributes - {"lang"}
    assert visible(text) in "".join(parsed.texts)


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
