"""The languages of reports: English phrases are the keys, `chinese.py` has the Chinese ones.

The phrases that only a system uses are in the `reports/chinese.py` of its folder.

A phrase is written where it is used, in Python, in a template and in a script alike: `t("{n} of {all}", n=…, all=…)`.
A test finds every such call and requires a Chinese entry with the same placeholders.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from evalloom.core.lazy import lazy_pattern
from evalloom.core.text import percent

_IN_SCRIPT = lazy_pattern(r'\bt(?:\.count)?\(\s*(?:[\w.]+,\s*)?((?:"[^"\n]*"(?:,\s*)?)+)')
_QUOTED = lazy_pattern(r'"([^"\n]*)"')
LANGUAGES = ("en", "zh")


class Language:
    """One language: phrases, numbers, durations and times. A phrase that the table lacks stays English."""

    def __init__(self, code: str, phrases: Mapping[str, str]) -> None:
        self.code = code
        self.tag = {"zh": "zh-Hans"}.get(code, code)
        """The value of `lang` in HTML."""
        self._phrases = phrases

    def extended(self, phrases: Mapping[str, str]) -> Language:
        """Return the same language with the phrases of a system, by the English ones; English needs none."""
        return self if self.code == "en" else Language(self.code, {**self._phrases, **phrases})

    def __call__(self, phrase: str, /, **values: Any) -> str:
        """Translate a phrase and fill its placeholders; it is Markup if one of the values is."""
        text = self._phrases.get(phrase, phrase)
        if not values:
            return text
        markup = next((type(value) for value in values.values() if hasattr(value, "__html__")), None)
        # Markup escapes the other values. Not imported, because every command imports this module for `--lang`.
        return text.format(**values) if markup is None else markup(text).format(**values)

    def count(self, number: int, one: str, many: str, /, **values: Any) -> str:
        """Translate a phrase about `{n}` things; the key is that of many."""
        phrase = one if number == 1 and self.code == "en" else many
        return self(phrase, n=self.number(number), **values)

    def number(self, number: float) -> str:
        """Format a number with thousands separators, a fraction with three significant digits."""
        return f"{number:,}" if isinstance(number, int) else f"{number:.3g}"

    def percent(self, share: float | None, digits: int = 1) -> str:
        """Format a share; one that only rounds to 0 or 100 % says so."""
        if share is None:
            return "–"
        text, mark = percent(share, digits).rstrip("%"), self._percent_mark
        return f"{text[0]} {text[1:]}{mark}" if text[0] in "<>" else f"{text}{mark}"

    def interval(self, low: float | None, high: float | None) -> str:
        """Format a 95 % interval of shares: `37.6–96.4 %`."""
        return "–" if low is None or high is None else f"{100 * low:.1f}–{100 * high:.1f}{self._percent_mark}"

    @property
    def _percent_mark(self) -> str:
        return "%" if self.code == "zh" else " %"

    def points(self, difference: float | None) -> str:
        """Format a difference of shares in percentage points, with its sign."""
        return "–" if difference is None else f"{100 * difference:+.1f}".replace("-", "−")

    def seconds(self, value: float | None) -> str:
        if value is None:
            return "–"
        if value >= 1:
            return self("{n} s", n=f"{value:.0f}" if value >= 100 else f"{value:.3g}")
        return self("{n} ms", n=f"{value * 1000:.3g}" if value >= 1e-6 else "0")

    def time(self, text: str) -> str:
        """Format a stored time to the minute; a text that is not a time stays as it is."""
        from datetime import datetime

        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return text
        zone = "UTC" if moment.tzinfo and not moment.utcoffset() else moment.strftime("%z")
        if self.code == "zh":
            return f"{moment.year}年{moment.month}月{moment.day}日 {moment:%H:%M} {zone}".rstrip()
        return f"{moment:%Y-%m-%d %H:%M} {zone}".rstrip()

    def phrases_of(self, script: Path) -> dict[str, str]:
        """Return the translations that a script needs; a script gets them as data."""
        used = phrases_in_script(script.read_text("utf-8"))
        return {phrase: self._phrases[phrase] for phrase in used if phrase in self._phrases}


ENGLISH = Language("en", {})


def phrase(text: str) -> str:
    """Mark a phrase that is translated where it is shown, not where it is written."""
    return text


def phrases_in_script(code: str) -> list[str]:
    """Return the phrases of the calls `t("…")` and `t.count(n, "…", "…")` in a script; of a count, those of many."""
    return [_QUOTED.findall(call[1])[-1] for call in _IN_SCRIPT.finditer(code)]


@cache
def language(code: str) -> Language:
    """Return a language by its code."""
    if code != "zh":
        return ENGLISH
    from evalloom.ui.chinese import PHRASES

    return Language("zh", PHRASES)


def known_language(code: str) -> str:
    """Return the code of a language; raise bad_option for one that there is not."""
    if code not in LANGUAGES:
        # Deferred: every command imports this module for `--lang`.
        from evalloom.core.errors import usage_error

        raise usage_error("bad_option", f"lang: expected {' or '.join(map(repr, LANGUAGES))}, got {code!r}")
    return code


def language_of(choice: str, environment: Mapping[str, str]) -> str:
    """Return the code of the language that `--lang` names, or else the locale, in the order of POSIX."""
    names = (environment.get(name, "") for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    locale = choice or next((name for name in names if name), "")
    return "zh" if locale.lower().startswith("zh") else "en"
