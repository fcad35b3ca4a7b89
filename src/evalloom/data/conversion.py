"""Notes on what a case loses in another format, so that a conversion drops nothing silently."""

from __future__ import annotations

from typing import Any

from evalloom.core.model import Case, Check, Record

_QUESTIONS = ("question", "q", "user_input", "prompt", "input", "text")


class ConversionNotes:
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

    def drop_inputs_except(self, *written: str) -> None:
        """Note each input that is not written."""
        for name in self._case.inputs:
            if name not in written:
                self.add(f"input: {name} has no place")

    def drop_tags_except(self, *written: str) -> None:
        for tag in self._case.tags:
            if tag not in written:
                self.add(f"tag: {tag} has no place")

    def drop_meta_except(self, *written: str) -> None:
        for name in self._case.meta:
            if name not in written:
                self.add(f"field: {name} has no place")

    def meta_except(self, *reserved: str) -> Record:
        """Return the meta fields of a case, without those whose names mean something else in the other format."""
        for name in self._case.meta:
            if name in reserved:
                self.add(f"field: {name} has another meaning here")
        return {name: value for name, value in self._case.meta.items() if name not in reserved}

    def only_text_input(self, name: str) -> Any:
        """Return the text input to write as `name`, and note the other inputs."""
        texts = [key for key, value in self._case.inputs.items() if isinstance(value, str)]
        texts.sort(key=lambda key: key not in _QUESTIONS)
        if not texts:
            self.add(f"{name}: no input of the case is a text")
            self.drop_inputs_except()
            return ""
        if texts[0] != name:
            self.add(f"{name}: taken from the input {texts[0]}")
        self.drop_inputs_except(texts[0])
        return self._case.inputs[texts[0]]


def _is_special(check: Check) -> bool:
    """Whether a check is negated or not supported."""
    return bool(check.options.get("negate") or check.options.get("unsupported"))


def is_text_check(check: Check) -> bool:
    """Whether a check expects texts anywhere in the plain output."""
    if check.kind not in ("contains", "contains_all") or check.where != "output" or _is_special(check):
        return False
    texts = check.expected if isinstance(check.expected, list) else [check.expected]
    return all(isinstance(text, str) for text in texts)


def output_field(check: Check, has_prefixes: bool = False) -> str | None:
    """Return the output field that a check compares completely; plain output is the field `output`.

    `has_prefixes` means that the other format also reads texts such as `contains:…` as patterns.
    """
    if check.kind not in ("equals", "structural") or _is_special(check):
        return None
    if check.kind == "structural" and not has_prefixes and _has_prefix(check.expected):
        return None
    if check.where == "output":
        return "output"
    return check.where.removeprefix("output.") if check.where.startswith("output.") else None


def _has_prefix(expected: Any) -> bool:
    """Whether a text anywhere in an expected value is a pattern instead of the text itself (PIPE-11)."""
    if isinstance(expected, str):
        return expected.startswith(("contains:", "regex:", "semantic:"))
    below = expected.values() if isinstance(expected, dict) else expected if isinstance(expected, list) else ()
    return any(map(_has_prefix, below))
