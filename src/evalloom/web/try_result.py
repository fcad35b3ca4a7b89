"""What a try gave: output, checks and trace of each profile, side by side, from the batch that it wrote."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.core.model import Record
from evalloom.core.text import quote
from evalloom.pages.errors import RequestError
from evalloom.pages.library import TRIES
from evalloom.pages.site import Site
from evalloom.ui.text import as_text

CASE_FILE = "case.jsonl"
TRY_FILE = "try.json"
_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{6}")
_LONGEST = 20_000
_RUNS = """
    SELECT key, profile, model, status, reason, error, output, duration_s, tokens, cost, cached FROM runs
    ORDER BY profile, repeat LIMIT 50
"""
_VERDICTS = "SELECT key, name, status, reason FROM verdicts ORDER BY key, number LIMIT 1000"
_STEPS = "SELECT key, step, type, status, duration_s, error, output FROM steps ORDER BY key, number LIMIT 1000"
_CALLS = "SELECT key, llm, model, duration_s, messages, answer, error FROM llm_calls ORDER BY key, number LIMIT 1000"


class Try(Struct, frozen=True):
    """What was tried, stored beside its case."""

    target: str
    inputs: Record
    profiles: list[str]
    dialect: str
    expect: str
    expected: str
    words: list[str]
    job: str
    data: str = ""
    case: int = 0
    batch: str = ""
    run: str = ""


class TriedVerdict(Struct, frozen=True):
    """The outcome of a check."""

    name: str
    status: str
    reason: str


class TracePart(Struct, frozen=True):
    """A step, or a call of an llm."""

    name: str
    status: str
    duration_s: float | None
    text: str


class TriedRun(Struct, frozen=True):
    """The run of one profile."""

    run: str
    profile: str
    model: str
    status: str
    reason: str
    output: str
    rest: int
    """How many characters of the output are left out."""
    duration_s: float | None
    tokens: int
    cost: float
    is_cached: bool
    verdicts: list[TriedVerdict]
    trace: list[TracePart]


def find_try(site: Site, id: str) -> tuple[str, Try]:
    """Return a try by its id."""
    if not _ID.fullmatch(id):
        raise RequestError("try_not_found", f"there is no try {quote(id, 80)}")
    try:
        return id, msgspec.json.decode((site.home / TRIES / id / TRY_FILE).read_bytes(), type=Try)
    except (OSError, msgspec.DecodeError):
        raise RequestError("try_not_found", f"there is no try {quote(id, 80)}. It may have been deleted") from None


def tried_runs(site: Site, batch: str, order: list[str]) -> list[TriedRun]:
    """Return the runs of the batch of a try, in the order of the chosen profiles."""
    verdicts: dict[str, list[TriedVerdict]] = {}
    for key, name, status, reason in site.library.rows(batch, _VERDICTS):
        verdicts.setdefault(key, []).append(TriedVerdict(name or "", status or "", reason or ""))
    traces: dict[str, list[TracePart]] = {}
    for key, step, kind, status, seconds, error, output in site.library.rows(batch, _STEPS):
        name = " · ".join(filter(None, (step, kind)))
        traces.setdefault(key, []).append(TracePart(name, status or "", seconds, _cut(error or _plain(output))))
    for key, llm, model, seconds, messages, answer, error in site.library.rows(batch, _CALLS):
        name = " · ".join(dict.fromkeys(filter(None, (llm, model))))
        text = f"{_conversation(messages)}\n\n[assistant]\n{error or answer or ''}"
        traces.setdefault(key, []).append(TracePart(name, "error" if error else "", seconds, _cut(text)))
    found = []
    for key, profile, model, status, reason, error, output, seconds, tokens, cost, cached in site.library.rows(
        batch, _RUNS
    ):
        text = error or _plain(output)
        found.append(
            TriedRun(
                key,
                profile or "",
                model or "",
                status or "",
                reason or "",
                text[:_LONGEST],
                max(0, len(text) - _LONGEST),
                seconds,
                tokens or 0,
                cost or 0.0,
                bool(cached),
                verdicts.get(key, []),
                traces.get(key, []),
            )
        )
    return sorted(found, key=lambda run: order.index(run.profile) if run.profile in order else len(order))


def _plain(value: Any) -> str:
    """Return a JSON value of a view as text: a text without its quotation marks."""
    if not value:
        return ""
    decoded = msgspec.json.decode(value)
    return decoded if isinstance(decoded, str) else msgspec.json.format(value.encode()).decode()


def _conversation(messages: Any) -> str:
    listed = msgspec.json.decode(messages) if messages else []
    parts = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    return "\n\n".join(f"[{each.get('role', '')}]\n{as_text(each.get('content'))}" for each in parts)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
