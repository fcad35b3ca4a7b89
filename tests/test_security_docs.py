"""docs/security.md: each promise names a test that exists, and its figures are those of the code."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import evalloom
from evalloom.core import expressions, patterns
from evalloom.core.sandbox import DEFAULT_LIMITS
from evalloom.core.sandbox import run as sandbox
from evalloom.pipeline.steps import MAX_OUTPUT
from evalloom.settings.vendors import VENDORS

HERE = Path(__file__).parent
PAGE = (HERE.parent / "docs/security.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ")]
MIB = 2**20


@pytest.mark.parametrize(("file", "test"), sorted(set(NAMED.findall(PAGE))))
def test_a_test_that_the_page_names_exists(file: str, test: str) -> None:
    assert re.search(rf"^(async )?def {test}\(", (HERE / file).read_text(encoding="utf-8"), re.MULTILINE)


def test_every_promise_names_a_test() -> None:
    heads = [row for row in ROWS if row.endswith("| test |")]
    assert len(heads) == 8 and len(ROWS) > 60
    assert [row for row in ROWS if row not in heads and not NAMED.search(row.rsplit("|", 2)[1])] == []


def test_the_default_limits() -> None:
    limits = DEFAULT_LIMITS
    assert (limits.cpu_s, limits.wall_s) == (10, 20) and "10 s and 20 s" in PAGE
    assert limits.memory_bytes == 512 * MIB and limits.scratch_bytes == 64 * MIB
    assert (limits.output_bytes, limits.file_bytes, MAX_OUTPUT) == (16 * MIB, 16 * MIB, 4 * MIB)
    assert (sandbox._PRINTED, sandbox._MOST_FILES, sandbox._SCRATCH_CHECK_S) == (8_000, 1_000, 0.1)
    for said in ("512 MiB", "64 MiB and 1,000", "16 MiB, of a single step 4 MiB", "8,000 characters", "every 0.1 s"):
        assert said in PAGE


def test_the_limits_of_a_search() -> None:
    assert (expressions.SEARCH_S, patterns.SECONDS) == (0.3, 1)
    assert "0.3 seconds in an expression" in PAGE and "1 second in a check" in PAGE


DEFAULTS = {"api.openai.com", "api.anthropic.com"}
PROVIDERS = {urlsplit(vendor.base_url).hostname for vendor in VENDORS}
# Names of schemas and of this project; nothing is sent there.
NAMES = {"json-schema.org", "json.schemastore.org", "schemas.openxmlformats.org", "git-lfs.github.com", "github.com"}


def test_the_package_names_no_other_server() -> None:
    sources = [path.read_text(encoding="utf-8") for path in Path(evalloom.__file__).parent.rglob("*.py")]
    urls = [url for source in sources for url in re.findall(r"https?://[\w.-]+\.[a-z]{2,}", source)]
    hosts = {urlsplit(url).hostname for url in urls}
    assert {
        host for host in hosts if host and not host.endswith((".example", "example.com"))
    } <= DEFAULTS | PROVIDERS | NAMES
