"""Whether a case is to be run at all: what its conditions say about the profile, the environment and itself."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from evalloom.core.errors import usage_error
from evalloom.core.expressions import Expression, ExpressionError, compiled
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Case, Profile, Record
from evalloom.data.cells import texts_of

_STRING = lazy_pattern(r"""\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'""")
_PATH = lazy_pattern(r"(?<![\w.])(?:inputs|env)(?:\.[^\W\d]\w*)+")
"""Something of a case or of the environment that an expression asks for by its name."""


class Conditions(Struct, frozen=True):
    """Holds cases against their conditions (PIPE-15); `env` has no secrets in it."""

    env: Mapping[str, str] = {}
    dialects: frozenset[str] = frozenset()
    """Those in which `conditions` means this; cases from Python have no dialect, and always mean it."""

    def why_not(self, case: Case, profile: Profile, dialect: str) -> str:
        """Why a case is not to be run under a profile; empty when it is."""
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
    """What a condition asks for and is not there: most often that is why it does not hold."""
    paths = dict.fromkeys(_PATH.findall(_STRING.sub("''", text)))
    found = [path for path in paths if compiled(path).value(names) is None]
    return f" ({', '.join(found)} {'are' if len(found) > 1 else 'is'} null)" if found else ""


def _expression(text: str, case: Case) -> Expression:
    try:
        return compiled(text)
    except ExpressionError as fault:
        # A file with such a condition is refused by the linter; cases from Python come without one.
        raise usage_error("bad_conditions", f"case {case.id!r}: conditions: {text!r}: {fault}") from None
