"""Why a file is read as its dialect, in the language of a page: dialects say it in English."""

from __future__ import annotations

from evalloom.core.lazy import lazy_pattern
from evalloom.ui.language import Language, phrase

_NAME = lazy_pattern(r"'[^']*'|[\w-]+(?= document)")
PHRASES = (
    phrase("as requested"),
    phrase("it has no records"),
    phrase("it has {a}"),
    phrase("it has {a}: {b}"),
    phrase("it has {a} and {b}"),
    phrase("it has {a} and {b} or {c}"),
    phrase("it has {a}, {b} and {c}"),
    phrase("it has {a} with {b}"),
    phrase("it has {a} beside {b} or {c}"),
    phrase("it has {a}, a list of asserts"),
    phrase("it has the column {a}"),
    phrase("it has a {a} object"),
    phrase("it has an integer {a} and a {b}"),
    phrase("it has an {a} and other fields, as pipeline testsets v1.0"),
    phrase("it has {a}, a field of pipeline testsets v2.0"),
    phrase("it is a {a} document"),
    phrase("it is an {a} document"),
    phrase("it is an object with none of the marks of another dialect"),
)
"""What the dialects of evalloom say; that of another package stays as it is."""


def translate(reason: str, t: Language) -> str:
    """Translate a reason; the names of fields in it stay."""
    names = dict(zip("abc", _NAME.findall(reason), strict=False))
    letters = iter(names)
    key = _NAME.sub(lambda name: f"{{{letter}}}" if (letter := next(letters, "")) else name[0], reason)
    return t(key, **names) if key in PHRASES else reason
