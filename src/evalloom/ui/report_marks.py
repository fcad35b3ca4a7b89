"""Marks in the reports of evalloom, so that it never indexes one as a user's document."""

from __future__ import annotations

GENERATOR = "evalloom"
"""The `generator` of an HTML page."""
MARKDOWN = "<!-- made by evalloom -->"
"""The last line of a Markdown page, an invisible comment."""
_HEAD = 2048


def is_ours(content: bytes) -> bool:
    """Whether the content of a file is a report of evalloom."""
    in_html = f'name="generator" content="{GENERATOR}"'.encode()
    return in_html in content[:_HEAD] or content.rstrip().endswith(MARKDOWN.encode())
