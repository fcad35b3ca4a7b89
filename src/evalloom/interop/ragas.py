"""RAGAS test sets: `user_input` with its reference, and the older `question` with its ground truth.

The question is an input under its own name, a conversation the input `messages` up to the last user message. Recorded
answers and contexts (`response`, `retrieved_contexts`, `contexts`) are kept in `meta` and are never inputs. A judge
compares the answer with the reference, as the metrics of RAGAS do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from evalloom.core.model import Case, Check, Origin, Record, Remark, error, warning
from evalloom.core.text import describe
from evalloom.data import chat
from evalloom.data.cells import as_list, as_object, id_text, is_blank, own_id, text_list
from evalloom.data.dialect import Dialect, Rules, Scorer

_MARKS = ("reference", "reference_contexts", "retrieved_contexts", "response", "rubrics", "reference_tool_calls")
_TRUTHS = ("ground_truth", "ground_truths")
_LISTS = (
    "reference_contexts",
    "retrieved_contexts",
    "contexts",
    "ground_truths",
    "reference_tool_calls",
    "reference_topics",
    "reference_context_ids",
    "retrieved_context_ids",
)
_OBSERVED = ("retrieved_contexts", "contexts", "retrieved_context_ids")
_EXPECTED = (
    "reference",
    "ground_truth",
    "ground_truths",
    "reference_contexts",
    "reference_context_ids",
    "reference_tool_calls",
    "reference_topics",
    "rubrics",
)


def sniff(record: Record) -> str:
    if "user_input" in record:
        mark = next((name for name in _MARKS if name in record), "")
        return f"it has 'user_input' and {mark!r}" if mark else ""
    if "question" in record and "contexts" in record:
        truth = next((name for name in _TRUTHS if name in record), "")
        return f"it has 'question', 'contexts' and {truth!r}" if truth else ""
    return ""


def identity(record: Record) -> str | int | None:
    return own_id(record, "id")


def findings(record: Record, rules: Rules) -> Iterator[Remark]:
    """Problems that keep a sample from running, from being read as intended, or from ever failing."""
    field = _question(record)
    if field not in record:
        yield error("missing_field", (), f"{field}: missing; every sample needs it")
    else:
        prompt = _conversation(record[field])
        for remark in chat.input_findings(prompt, field):
            yield remark if prompt is record[field] else replace(remark, path=(field,))
    for name in ("reference", "ground_truth", "response"):
        value = record.get(name)
        if value is not None and not isinstance(value, str):
            yield error(f"bad_{name}", (name,), f"{name}: expected a string, got {describe(value)}")
    for name in _LISTS:
        yield from _list_findings(record, name)
    if as_object(record.get("rubrics")) is None and not isinstance(record["rubrics"], list):
        message = f"rubrics: expected an object of descriptions by score, got {describe(record['rubrics'])}"
        yield error("bad_rubrics", ("rubrics",), message)
    if not _checks(record):
        name = "ground_truth" if field == "question" else "reference"
        yield warning("no_checks", (), f"{name}: missing, so nothing is checked and the case cannot fail")


def _question(record: Record) -> str:
    return "question" if "question" in record and "user_input" not in record else "user_input"


def _conversation(value: Any) -> Any:
    """Parse a conversation that is text in a cell; return any other input unchanged."""
    messages = as_list(value) if isinstance(value, str) and value.lstrip().startswith("[{") else None
    return messages if chat.is_messages(messages) else value


def _list_findings(record: Record, name: str) -> Iterator[Remark]:
    value = record.get(name)
    if as_list(value) is not None:
        return
    if isinstance(value, str):
        message = f"{name}: expected a list such as ['a', 'b'], got {describe(value)}; it is read as one text"
        yield warning("unreadable_cell", (name,), message)
    else:
        yield error(f"bad_{name}", (name,), f"{name}: expected a list, got {describe(value)}")


def _items(record: Record, name: str) -> list[Any]:
    """The items of a list field; a text that is not a list is its only item."""
    value = record.get(name)
    items = as_list(value)
    return [value] if items is None else items


def to_case(record: Record, origin: Origin) -> Case:
    """A case whose answer a judge compares with the reference, and whose sources are checked against the contexts."""
    field = _question(record)
    prompt = _conversation(record.get(field))
    used = ("id", "tags", field, *_EXPECTED)
    meta = {name: value for name, value in record.items() if name not in used and not is_blank(value)}
    return Case(
        id=id_text(identity(record)),
        inputs={"messages": chat.until_last_user(prompt)} if isinstance(prompt, list) else {field: prompt},
        checks=_checks(record),
        tags=tuple(text_list(record.get("tags"))),
        meta={**meta, **{name: _items(record, name) for name in _OBSERVED if name in meta}},
        raw=record,
        origin=origin,
    )


def references(record: Record) -> list[Any]:
    """The expected answer, or the accepted ones."""
    answers = [record[name] for name in ("reference", "ground_truth") if not is_blank(record.get(name))]
    return answers or [truth for truth in _items(record, "ground_truths") if not is_blank(truth)]


def _checks(record: Record) -> tuple[Check, ...]:
    checks = []
    if answers := references(record):
        name = next(name for name in ("reference", *_TRUTHS) if not is_blank(record.get(name)))
        # Several ground truths are alternative wordings of one answer.
        expected = answers[0] if len(answers) == 1 else answers
        checks.append(Check("judge", expected, name=name, options={"variant": "reference"}))
    if contexts := _items(record, "reference_contexts"):
        checks.append(Check("context_recall", contexts, "sources", name="reference_contexts"))
    if ids := _items(record, "reference_context_ids"):
        checks.append(Check("source_hit", ids, "sources", name="reference_context_ids"))
    if calls := _items(record, "reference_tool_calls"):
        checks.append(Check("tool_calls", calls, "steps", name="reference_tool_calls"))
    if topics := _items(record, "reference_topics"):
        checks.append(Check("judge", topics, name="reference_topics", options={"variant": "topics"}))
    if not is_blank(record.get("rubrics")) and record["rubrics"]:
        rubrics = as_object(record["rubrics"]) or record["rubrics"]
        checks.append(Check("judge", rubrics, name="rubrics", options={"variant": "rubrics"}))
    return tuple(checks)


def _scorers() -> tuple[Scorer, ...]:
    from evalloom.interop.ragas_scorers import SCORERS

    return SCORERS


DIALECT = Dialect(
    name="ragas",
    summary="RAGAS test sets: user_input and reference, or question, contexts and ground_truth",
    sniff=sniff,
    findings=findings,
    to_case=to_case,
    identity=identity,
    expectations=("reference", "reference_contexts", "reference_tool_calls", "reference_topics", "rubrics"),
    scorers=_scorers,
)
