"""The whole site: every link of every page leads somewhere, every page has its twin, and no text of users is markup."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.error
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[2]
MOST_PAGES = 400
MENU = {
    "en": ["Batches", "Compare", "History", "Files", "Try one", "HOP", "Pipelines", "Prompts", "RAG", "Replay"],
    "zh": ["批次", "比较", "历史", "文件", "试运行", "HOP", "流水线", "提示词", "RAG", "回放"],
}
NAUGHTY = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "a\u202eb\u0000\u2028\ufeff",
    "' OR 1=1 --",
    "字" * 300,
    "w" * 3000,
    "../../../etc/passwd",
    "</textarea></title></style>",
]


class Links(HTMLParser):
    """The links and forms of a page, and what must not be in it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.inline: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "a" and values.get("href"):
            self.links.append(str(values["href"]))
        if tag == "script" and not values.get("src"):
            self.inline.append(tag)
        self.inline += [name for name in values if name.startswith("on") or name == "style"]
        if tag in ("img", "iframe", "object", "embed", "base"):
            self.inline.append(tag)


def crawl(server: Any, language: str) -> set[str]:
    """Read every page that links lead to, without a script; return their paths, without those of downloads."""
    to_read, seen, pages = [f"/?lang={language}"], set[str](), set[str]()
    kinds: dict[str, int] = {}
    while to_read and len(seen) < MOST_PAGES:
        link = to_read.pop(0)
        address = urlsplit(link)
        assert not address.netloc, link
        key = f"{address.path}?{address.query}"
        # A few of each kind of page: links with other filters lead to the same one.
        kind = "/".join("*" if any(c.isdigit() for c in part) else part for part in address.path.split("/"))
        if key in seen or kinds.get(kind, 0) >= 12:
            continue
        seen.add(key)
        kinds[kind] = kinds.get(kind, 0) + 1
        try:
            page = server.get(key, Accept="text/html")
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{key}: {error.code} {error.read().decode()[-2000:]}") from None
        if not page.lstrip().startswith("<!doctype html>"):
            continue
        pages.add(address.path)
        found = Links(page)
        assert found.inline == [], key
        for title in MENU[language]:
            assert f">{title}</a>" in page, f"{key}: the menu has no {title}"
        assert f'lang="{"zh-Hans" if language == "zh" else "en"}"' in page, f"{key}: the language is lost"
        twin = f"/api{address.path.rstrip('/')}?{address.query}"
        if address.path != "/login":
            json.loads(server.get(twin))
        to_read += [item for item in found.links if item.startswith("/") and f"lang={language}" in item]
        others = [item for item in found.links if item.startswith("/") and "lang=" not in item]
        assert others == [], f"{key}: links without the language: {others[:5]}"
    return pages


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled examples of all systems, run."""
    folder = tmp_path_factory.mktemp("demo")
    subprocess.run(
        [sys.executable, "-m", "evalloom", "demo", "--keep", "."], cwd=folder, check=True, capture_output=True
    )
    return folder


@pytest.mark.req("WORK-20", "WORK-21", "WORK-23")
@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_link_leads_to_a_page_with_a_twin(serve_pages: Callable[..., Any], demo: Path, language: str) -> None:
    paths = crawl(serve_pages(demo), language)
    for start in ("/compare", "/history", "/data", "/try", "/hop", "/replay", "/pipeline", "/prompt-eval", "/rag"):
        assert start in paths
    assert sum(path.startswith("/b/") for path in paths) > 10


@pytest.fixture(scope="module")
def naughty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite whose ids, inputs, expectations, tags, answers and errors are what attackers write."""
    folder = tmp_path_factory.mktemp("naughty")
    (folder / "answers.py").write_text(
        "def answer(q):\n    if 'img' in q:\n        raise ValueError(q)\n    return q\n"
    )
    cases = [
        {"id": f"{n} {text}", "q": text, "expected_output": text[::-1], "tags": [text[:80]], "description": text}
        for n, text in enumerate(NAUGHTY)
    ]
    (folder / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    name = '"><script>alert(1)</script>.jsonl'.replace("/", "_")
    shutil.copy(folder / "cases.jsonl", folder / name)
    for data in ("cases.jsonl", f"./{name}"):
        command = [sys.executable, "-m", "evalloom", "run", data, "--target", "python:answers:answer"]
        subprocess.run(command, cwd=folder, capture_output=True)
    return folder


@pytest.mark.req("WORK-24")
def test_no_text_of_users_runs_or_breaks_a_page(
    serve_pages: Callable[..., Any], visitor: Callable[..., Any], naughty: Path
) -> None:
    server, somebody = serve_pages(naughty), visitor()
    paths = sorted(crawl(server, "en"))
    assert sum("/r/" in path for path in paths) >= 5
    shown = [path for path in paths if "/r/" in path][:6] + [path for path in paths if "/r/" not in path][:14]
    for path in shown:
        somebody.page.goto(server.url + path)
        width = somebody.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert width[0] <= width[1], f"{path}: wider than the window"
        assert somebody.page.locator("img, iframe").count() == 0
