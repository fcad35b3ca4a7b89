"""What a case has and the format it is written to does not: noted, so that nothing is dropped in silence."""

from __future__ import annotations

from typing import Any

from evalloom.core.model import Case, Check, Record

_QUESTIONS = ("question", "q", "user_input", "prompt", "input", "text")


class Lost:
    """Collects notes while one case is written in another format."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._notes: list[str] = []

    def add(self, note: str) -> None:
        self._notes.append(note)

    def notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._notes))

    def check(self, check: Check) -> None:
        negated = "not " if check.options.get("negate") else ""
        self.add(f"check: {negated}{check.kind} on {check.where} has no place")

    def inputs_but(self, *kept: str) -> None:
        """Every input that is not kept is lost."""
        for name in self._case.inputs:
            if name not in kept:
                self.add(f"input: {name} has no place")

    def tags_but(self, *kept: str) -> None:
        for tag in self._case.tags:
            if tag not in kept:
                self.add(f"tag: {tag} has no place")

    def meta_but(self, *kept: str) -> None:
        for name in self._case.meta:
            if name not in kept:
                self.add(f"field: {name} has no place")

    def meta_except(self, *names: str) -> Record:
        """The further fields of a case, less those whose names mean something else here."""
        for name in self._case.meta:
            if name in names:
                self.add(f"field: {name} has another meaning here")
        return {name: value for name, value in self._case.meta.items() if name not in names}

    def only_text_input(self, name: str) -> Any:
        """The one text among the inputs that can stand for `name`; the others are lost."""
        texts = [key for key, value in self._case.inputs.items() if isinstance(value, str)]
        texts.sort(key=lambda key: key not in _QUESTIONS)
        if not texts:
            self.add(f"{name}: no input of the case is a text")
            self.inputs_but()
            return ""
        if texts[0] != name:
            self.add(f"{name}: taken from the input {texts[0]}")
        self.inputs_but(texts[0])
        return self._case.inputs[texts[0]]


def _is_special(check: Check) -> bool:
    """Whether a check says the opposite of its kind, or something that cannot be checked here."""
    return bool(check.options.get("negate") or check.options.get("unsupported"))


def is_text_check(check: Check) -> bool:
    """Whether a check asks for texts anywhere in the plain output."""
    if check.kind not in ("contains", "contains_all") or check.where != "output" or _is_special(check):
        return False
    texts = check.expected if isinstance(check.expected, list) else [check.expected]
    return all(isinstance(text, str) for text in texts)


def output_field(check: Check, has_prefixes: bool = False) -> str | None:
    """The output field that a check compares as a whole; plain output is the field `output`.

    `has_prefixes` says that texts such as `contains:…` keep their meaning where the check is written.
    """
    if check.kind not in ("equals", "structural") or _is_special(check):
        return None
    if check.kind == "structural" and not has_prefixes and _has_prefix(check.expected):
        return None
    if check.where == "output":
        return "output"
    return check.where.removeprefix("output.") if check.where.startswith("output.") else None


def _has_prefix(expected: Any) -> bool:
    """Whether a text anywhere in an expected value is a pattern, and not the text itself (PIPE-11)."""
    if isinstance(expected, str):
        return expected.startswith(("contains:", "regex:", "semantic:"))
    below = expected.values() if isinstance(expected, dict) else expected if isinstance(expected, list) else ()
    return any(map(_has_prefix, below))
