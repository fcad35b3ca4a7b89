"""The marks by which evalloom knows its own reports again, so that it never takes one for a user's document."""

from __future__ import annotations

GENERATOR = "evalloom"
"""What the `generator` of an HTML page says."""
MARKDOWN = "<!-- made by evalloom -->"
"""The last line of a Markdown page, which no reader sees."""
_HEAD = 2048


def is_ours(content: bytes) -> bool:
    """Whether a file is a report of evalloom's."""
    in_html = f'name="generator" content="{GENERATOR}"'.encode()
    return in_html in content[:_HEAD] or content.rstrip().endswith(MARKDOWN.encode())
