"""OpenAI evals samples: an `input`, and the `ideal` answer or a list of accepted ones.

A chat becomes the input `messages`; plain text becomes `input`. A sample does not name the class of its eval (match,
includes, fuzzy match), so the answer must equal the ideal, unless a registry or the user names the class.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from evalloom.core.model import Case, Check, Origin, Record, Remark, error, warning
from evalloom.core.text import describe
from evalloom.data import chat
from evalloom.data.cells import id_text, own_id, text_list
from evalloom.data.dialect import Dialect, Expanded, Rules, Scorer, Surroundings
from evalloom.interop.evals_registry import FIELD, is_registry, samples, spec_of

_FIELDS = ("id", "input", "ideal", "tags", FIELD)


def sniff(record: Record) -> str:
    return "it has 'input' and 'ideal'" if "input" in record and "ideal" in record else ""


def identity(record: Record) -> str | int | None:
    return own_id(record, "id")


def findings(record: Record, rules: Rules) -> Iterator[Remark]:
    """Problems that keep a sample from running or from ever failing."""
    if "input" not in record:
        yield error("missing_field", (), "input: missing; every sample needs it")
    else:
        yield from chat.input_findings(record["input"], "input")
    if "ideal" in record:
        yield from _ideal_findings(record["ideal"])
    elif spec_of(record) is None or not to_case(record, Origin("")).checks:
        yield warning("no_checks", (), "ideal: missing, so nothing is checked and the case cannot fail")


def _ideal_findings(ideal: Any) -> Iterator[Remark]:
    is_single = not isinstance(ideal, list)
    answers = [ideal] if is_single else ideal
    if not answers:
        yield error("bad_ideal", ("ideal",), "ideal: expected at least one answer, got an empty list")
    for number, answer in enumerate(answers):
        field, path = ("ideal", ("ideal",)) if is_single else (f"ideal[{number}]", ("ideal", number))
        if not isinstance(answer, str):
            expected = "a string or a list of strings" if is_single else "a string"
            yield error("bad_ideal", path, f"{field}: expected {expected}, got {describe(answer)}")
        elif not answer.strip():
            yield warning("empty_expected", path, f"{field}: is empty; was the answer forgotten?")


def to_case(record: Record, origin: Origin) -> Case:
    """A case whose answer must equal an ideal, or be as the class of its eval says."""
    prompt, ideal = record.get("input"), record.get("ideal")
    check = Check("one_of" if isinstance(ideal, list) else "equals", ideal, name="ideal")
    case = Case(
        id=id_text(identity(record)),
        inputs={"messages" if isinstance(prompt, list) else "input": prompt},
        checks=(check,) if "ideal" in record else (),
        tags=tuple(text_list(record.get("tags"))),
        meta={name: value for name, value in record.items() if name not in _FIELDS},
        raw=record,
        origin=origin,
    )
    if (spec := spec_of(record)) is None:
        return case
    from evalloom.interop.evals_scorers import checks_of  # deferred: few files are of a registry

    return replace(case, checks=checks_of(case, spec["class"], spec["args"]), tags=(*case.tags, spec["name"]))


def expand_in(document: Record, surroundings: Surroundings) -> Expanded | None:
    """The samples of the evals that a registry names."""
    return samples(document, surroundings) if is_registry(document) else None


def _scorers() -> tuple[Scorer, ...]:
    from evalloom.interop.evals_scorers import SCORERS

    return SCORERS


def _scorer_note(record: Record) -> str:
    if "ideal" not in record or spec_of(record) is not None:
        return ""
    return (
        "the answer must equal the ideal; in OpenAI evals the class of the eval decides. "
        "Name it, such as --dialect openai-evals:match"
    )


DIALECT = Dialect(
    name="openai-evals",
    summary="OpenAI evals samples: input (text or chat) and ideal",
    sniff=sniff,
    findings=findings,
    to_case=to_case,
    identity=identity,
    expand_in=expand_in,
    added_fields=(FIELD,),
    expectations=("ideal",),
    scorers=_scorers,
    scorer_note=_scorer_note,
)
