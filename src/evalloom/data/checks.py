"""What the readers of data must know about checks (WORK-2, WORK-3); the engine fills it in from the matchers."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

from msgspec import Struct

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Check, Need, Record
from evalloom.core.text import did_you_mean

FIELD = "checks"
"""The field with a list of checks in the form of evalloom.yaml."""
CheckLists = Literal["plain", "mapped", "never"]
"""Which records may have such a list: v1.0 records, all records of a file that is read with --map, or none."""

NEEDS: dict[str, str] = {
    "judge": "a judge: --judge LLM, or 'judge:' in evalloom.yaml",
    "embeddings": "embeddings: 'embeddings:' in evalloom.yaml",
    "judge_or_embeddings": "embeddings or a judge: 'embeddings:' in evalloom.yaml, or --judge LLM",
    "code": "--allow-code, because the file names code to run",
}
"""What to configure for each need."""
_NAMES = ("checks", "assert", "asserts", "assertions", "expect", "expected", "expected_output", "expected_outputs")
_LOOKS = lazy_pattern(r"_*(checks?|assert(ion)?s?|expect(s|ed|ations?)?|expected[_A-Z-].*)_*", 0)
_ALIKE = 0.85
"""How alike a misspelled name must be: 'cheks' and 'asert' are, 'expert' is not."""
_OTHER_WORDS = ("asset", "assets", "aspect", "aspects", "except", "check_in", "chicks")
"""Words that are alike, and mean something else."""
_PLAIN_INPUTS = ("check", "checks")
"""Names that are also ordinary inputs: only a list or an object under them looks like checks."""


class CheckList(Struct, frozen=True):
    """A list read as checks: the checks in it, and the other items by number, with the reason."""

    checks: tuple[Check, ...]
    wrong: tuple[tuple[int, str], ...] = ()
    is_meant: bool = True
    """Whether an item names a kind of check, perhaps misspelled or with a wrong option; otherwise it is an input."""


class CheckRules(Struct, frozen=True):
    """What the engine tells about checks before any of them is applied."""

    read_list: Callable[[list[Any]], CheckList]
    why_unscored: Callable[[Check], str]
    """Why a check can be scored for no output; empty if it can."""
    needs: Callable[[Check], Need]
    """The service without which a check is unscored."""


@lru_cache(4096)
def names_checks(name: str) -> bool:
    """Whether a field is named as if it was meant for checks, or by a misspelling of such a name."""
    return bool(_LOOKS.fullmatch(name) or (name not in _OTHER_WORDS and did_you_mean(name, _NAMES, _ALIKE)))


def looks_like_checks(name: str, value: Any) -> bool:
    """Whether a field of such a name looks like checks by its value, too."""
    if name in _PLAIN_INPUTS or not _LOOKS.fullmatch(name):
        return isinstance(value, list | dict) and bool(value) if "exp" not in name[:4] else value is not None
    return value is not None


def without_list(record: Record) -> Record:
    """Return inputs or other fields without the list of checks."""
    return {name: value for name, value in record.items() if name != FIELD} if FIELD in record else record
