"""A phrase about cases that a report translates where it shows it."""

from __future__ import annotations

from msgspec import Struct

from evalloom.ui.language import ENGLISH, Language


class Wording(Struct, frozen=True):
    """An English phrase, and the values of its placeholders."""

    phrase: str
    values: tuple[tuple[str, str], ...] = ()

    def text(self, t: Language = ENGLISH) -> str:
        return t(self.phrase, **dict(self.values))
