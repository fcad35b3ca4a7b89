"""Prepares users' texts for reports: escapes invisible characters, and detects East Asian languages."""

from __future__ import annotations

import json
from typing import Any

from evalloom.core.lazy import lazy_pattern

_INVISIBLE = lazy_pattern(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Controls, surrogates, and characters that hide text or change its direction."""
_EAST_ASIAN = {
    "ja": lazy_pattern("[\u3041-\u30ff]"),
    "ko": lazy_pattern("[\uac00-\ud7af]"),
    "zh": lazy_pattern("[\u3400-\u9fff]"),
}
_LANGUAGE_SAMPLE = 2_000
_SPACE = lazy_pattern(r"\s")
_SPACE_MARKS = {" ": "·", "\t": "→\t", "\n": "↵\n"}


def visible(text: str) -> str:
    r"""Spell out invisible characters: `a\u202eb` shows the escape instead of turning the text around."""
    return _INVISIBLE.sub(lambda match: repr(match[0])[1:-1], text.replace("\r\n", "\n"))


def visible_spaces(text: str) -> str:
    r"""Show whitespace: a space as `·`, a tab as `→`, a line break as `↵`, any other as its escape, such as `\xa0`."""
    return _SPACE.sub(lambda match: _SPACE_MARKS.get(match[0]) or repr(match[0])[1:-1], text)


def as_text(value: Any) -> str:
    """Return a text as it is, None as an empty text, any other value as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def east_asian_language(text: str) -> str | None:
    """Return `ja`, `ko` or `zh` for a text with such characters, because browsers choose glyphs by language."""
    sample = text[:_LANGUAGE_SAMPLE]
    return next((code for code, characters in _EAST_ASIAN.items() if characters.search(sample)), None)
