"""What a case has and the format it is written to does not: noted, so that nothing is dropped in silence."""

from __future__ import annotations

from typing import Any

from evalloom.model import Case, Check, Record


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
        self.add(f"check: {check.kind} on {check.where} has no place")

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
        if not texts:
            self.add(f"{name}: no input of the case is a text")
            self.inputs_but()
            return ""
        if texts[0] != name:
            self.add(f"{name}: taken from the input {texts[0]}")
        self.inputs_but(texts[0])
        return self._case.inputs[texts[0]]


def is_text_check(check: Check) -> bool:
    """Whether a check asks for texts anywhere in the plain output."""
    if check.kind not in ("contains", "contains_all") or check.where != "output" or check.options.get("negate"):
        return False
    texts = check.expected if isinstance(check.expected, list) else [check.expected]
    return all(isinstance(text, str) for text in texts)


def output_field(check: Check) -> str | None:
    """The output field that a check compares as a whole; plain output is the field `output`."""
    if check.kind not in ("equals", "structural") or check.options.get("negate"):
        return None
    if check.where == "output":
        return "output"
    return check.where.removeprefix("output.") if check.where.startswith("output.") else None
