"""Conditions of a case on the profile, the environment and itself: they decide whether it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from evalloom.core.errors import usage_error
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Case, Profile, Record
from evalloom.data.cells import texts_of

if TYPE_CHECKING:
    from evalloom.core.expressions import Expression

_STRING = lazy_pattern(r"""\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'""")
_PATH = lazy_pattern(r"(?<![\w.])(?:inputs|env)(?:\.[^\W\d]\w*)+")
"""A field of a case or an environment variable in an expression."""


class Conditions(Struct, frozen=True):
    """Evaluates the conditions of cases (PIPE-15); `env` holds no secrets."""

    env: Mapping[str, str] = {}
    dialects: frozenset[str] = frozenset()
    """The dialects whose `conditions` are evaluated; those of cases from Python always are."""
    excludes: Callable[[Case, Profile], str] | None = None
    """Returns why the target does not run a case under a profile."""

    def why_not(self, case: Case, profile: Profile, dialect: str) -> str:
        """Return why a case is skipped under a profile; empty when it runs."""
        if self.excludes is not None and case.meta and (why := self.excludes(case, profile)):
            return why
        if not case.meta or "conditions" not in case.meta or (dialect and dialect not in self.dialects):
            return ""
        names = {
            "profile": profile.name,
            "variant": profile.variant,
            "tags": list(case.tags),
            "id": case.id,
            "env": self.env,
            "inputs": case.inputs,
        }
        texts = texts_of(case.meta["conditions"])
        failing = next((text for text in texts if not _expression(text, case).holds(names)), None)
        return "" if failing is None else f"conditions: {failing} does not hold{_nulls(failing, names)}"


def _nulls(text: str, names: Record) -> str:
    """List what a condition names and is null: most often that is why it is false."""
    from evalloom.core.expressions import compiled

    paths = dict.fromkeys(_PATH.findall(_STRING.sub("''", text)))
    nulls = [path for path in paths if compiled(path).value(names) is None]
    return f" ({', '.join(nulls)} {'are' if len(nulls) > 1 else 'is'} null)" if nulls else ""


def _expression(text: str, case: Case) -> Expression:
    from evalloom.core.expressions import ExpressionError, compiled  # deferred: few cases have conditions

    try:
        return compiled(text)
    except ExpressionError as error:
        # The linter refuses a file with such a condition; cases from Python are not linted.
        raise usage_error("bad_conditions", f"case {case.id!r}: conditions: {text!r}: {error}") from None
