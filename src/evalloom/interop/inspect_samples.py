"""Inspect samples: an `input`, the `target` answers, and the choices of a multiple-choice question.

A chat becomes the input `messages`, a plain text `input`; the choices are a further input. In tables, `choices` is
written `a,b,c` or as JSON, and `metadata`, `files` and `sandbox` as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evalloom.core.model import Case, Check, Origin, Record, Remark, error, warning
from evalloom.core.text import describe, quote
from evalloom.data import chat
from evalloom.data.cells import as_list, as_object, id_text, is_blank, own_id, text_list
from evalloom.data.dialect import Dialect, Rules, Scorer

_FIELDS = ("id", "input", "target", "choices", "metadata", "files", "setup", "sandbox")
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def sniff(record: Record) -> str:
    return "it has 'input' and 'target'" if "input" in record and "target" in record else ""


def identity(record: Record) -> str | int | None:
    return own_id(record, "id")


def findings(record: Record, rules: Rules) -> Iterator[Remark]:
    """Problems that keep a sample from running, from being read as intended, or from ever failing."""
    if "input" not in record:
        yield error("missing_field", (), "input: missing; every sample needs it")
    else:
        yield from chat.input_findings(_messages(record["input"]), "input")
    yield from _target_findings(record)
    choices = record.get("choices")
    if as_list(choices, ",") is None:
        yield error("bad_choices", ("choices",), f"choices: expected a list, got {describe(choices)}")
    else:
        yield from _stray_targets(record)
    for field in ("metadata", "files"):
        if as_object(record.get(field)) is None:
            expected = "expected an object or one written as JSON"
            yield warning("unreadable_cell", (field,), f"{field}: {expected}, got {describe(record[field])}")


def _messages(value: Any) -> Any:
    """Parse a chat that is JSON in a cell; return any other input unchanged."""
    messages = as_list(value) if isinstance(value, str) and value.lstrip().startswith("[{") else None
    return messages if chat.is_messages(messages) else value


def _target_findings(record: Record) -> Iterator[Remark]:
    target = record.get("target")
    if is_blank(target) or target == []:
        yield warning("no_checks", (), "target: is empty, so nothing is checked and the case cannot fail")
        return
    for number, answer in enumerate(target if isinstance(target, list) else [target]):
        if isinstance(answer, list | dict) or answer is None:
            listed = isinstance(target, list)
            field, path = (f"target[{number}]", ("target", number)) if listed else ("target", ("target",))
            expected = "expected a string" if listed else "expected a string or a list of strings"
            yield error("bad_target", path, f"{field}: {expected}, got {describe(answer)}")


def _stray_targets(record: Record) -> Iterator[Remark]:
    """Warn about targets that are neither the letter nor the text of a choice."""
    choices = [str(choice) for choice in as_list(record.get("choices"), ",") or []]
    letters = _LETTERS[: len(choices)]
    for target in _targets(record) if choices else []:
        # Several letters in one text ("AC") name several choices.
        if target not in choices and not (target and set(target.replace(",", "").replace(" ", "")) <= set(letters)):
            span = "A" if len(choices) == 1 else f"A to {letters[-1]}"
            message = f"target: expected {span} or the text of a choice, got {quote(target)}"
            yield warning("target_not_in_choices", ("target",), message)


def _targets(record: Record) -> list[str]:
    target = record.get("target")
    if is_blank(target):
        return []
    return [str(answer) for answer in (target if isinstance(target, list) else [target])]


def to_case(record: Record, origin: Origin) -> Case:
    """A case whose answer must equal the target, or one of the targets."""
    prompt = _messages(record.get("input"))
    inputs: Record = {"messages" if isinstance(prompt, list) else "input": prompt}
    if choices := as_list(record.get("choices"), ","):
        inputs["choices"] = choices
    metadata = as_object(record.get("metadata"))
    meta = {name: value for name, value in record.items() if name not in _FIELDS}
    for field in ("files", "setup", "sandbox"):
        if not is_blank(record.get(field)):
            meta[field] = _parse_cell(record[field])
    if not is_blank(record.get("metadata")):
        meta["metadata"] = record["metadata"] if metadata is None else metadata
    return Case(
        id=id_text(identity(record)),
        inputs=inputs,
        checks=_checks(record),
        tags=tuple(text_list((metadata or {}).get("tags"))),
        meta=meta,
        raw=record,
        origin=origin,
    )


def _parse_cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        items = as_list(value)
        return value if items is None else items
    parsed = as_object(value)
    return value if parsed is None else parsed


def _checks(record: Record) -> tuple[Check, ...]:
    targets = _targets(record)
    if not targets:
        return ()
    if isinstance(record["target"], list):
        return (Check("one_of", targets, name="target"),)
    return (Check("equals", targets[0], name="target"),)


def _scorers() -> tuple[Scorer, ...]:
    from evalloom.interop.inspect_scorers import SCORERS

    return SCORERS


def _scorer_note(record: Record) -> str:
    if not _targets(record):
        return ""
    scorer = "match" if is_blank(record.get("choices")) else "choice"
    return (
        "the answer must equal the target; in Inspect the scorer of the task decides. "
        f"Name it, such as --dialect inspect:{scorer}"
    )


DIALECT = Dialect(
    name="inspect",
    summary="Inspect samples: input (text or chat), target, choices, metadata",
    sniff=sniff,
    findings=findings,
    to_case=to_case,
    identity=identity,
    expectations=("target",),
    scorers=_scorers,
    scorer_note=_scorer_note,
)
