"""The trace entry of a step: inputs, calls, output, repairs, duration and tokens."""

from __future__ import annotations

import json
from time import perf_counter
from typing import Any

import orjson

from evalloom.core.errors import CallError
from evalloom.core.model import NO_USAGE, Record, Response, Usage
from evalloom.core.text import CLAMP
from evalloom.pipeline.file import Step
from evalloom.pipeline.flow import Flow, WiredStep

MIB = 1024 * 1024
MAX_BATCH_OUTPUT = 16 * MIB
"""The maximum total output of a batch."""
MAX_OUTPUTS = 64 * MIB
"""The maximum total output of a case, which the batch log stores on one line."""
_TRACED_ITEMS = 50
"""The maximum number of batch items, and of failed ones, whose calls are traced; this bounds memory."""


def entry_head(wired: WiredStep, flow: Flow) -> Record:
    """Return the fields of a trace entry that are the same in every case."""
    step = wired.step
    outputs = [key for key, source in flow.outputs.items() if source.kind == "step" and source.name == step.id]
    is_plain = flow.plain_output in (f"steps.{step.id}", *(f"output.{key}" for key in outputs))
    return {
        "type": "step",
        "step": step.id,
        "kind": step.kind,
        "output_key": step.output_key,
        "needs": list(wired.needs),
        "outputs": [*outputs, *(["output"] if is_plain and "output" not in flow.outputs else [])],
    }


class StepEntry:
    """The trace entry of one step; it is added to the trace when the step starts."""

    def __init__(self, head: Record, trace: list[Record]) -> None:
        self._entry = dict(head)
        self._usage: Usage = NO_USAGE
        self._llm_calls = 0
        self._repaired = 0
        self._traced_failures = 0
        self._start = perf_counter()
        self.failed_items = 0
        trace.append(self._entry)

    def begin(self, inputs: Record) -> list[Record]:
        """Record the inputs, and return the list to record calls in."""
        calls: list[Record] = []
        self._entry |= {"inputs": clamped(inputs), "calls": calls}
        return calls

    def begin_batch(self, shared: Record, items: list[Record]) -> None:
        first = {"first_item": clamped(items[0])} if items else {}
        self._entry |= {"inputs": clamped(shared), "items": len(items), **first, "calls": []}

    def end_item(self, number: int, calls: list[Record], has_failed: bool) -> None:
        """Count one batch item, and keep its calls if it is among the first items or the first failures."""
        self._count(calls)
        self._repaired += any(call["type"] == "repair" for call in calls)
        self.failed_items += has_failed
        if number < _TRACED_ITEMS or (has_failed and self._traced_failures < _TRACED_ITEMS):
            self._traced_failures += has_failed
            self._entry["calls"] += [{**call, "item": number} for call in calls]

    def end(self, status: str, **more: Any) -> None:
        """Record the status and totals of the step."""
        if "items" not in self._entry:
            calls = self._entry.get("calls", [])
            self._count(calls)
            repairs = [call["text"] for call in calls if call["type"] == "repair"]
            more |= {"repairs": repairs} if repairs else {}
        more |= {"failed_items": self.failed_items} if self.failed_items else {}
        more |= {"repaired_items": self._repaired} if self._repaired else {}
        more |= {"tokens": self._usage.tokens, "llm_calls": self._llm_calls} if self._llm_calls else {}
        self._entry |= {"status": status, **more, "duration_s": round(perf_counter() - self._start, 6)}

    def _count(self, calls: list[Record]) -> None:
        for call in calls:
            self._llm_calls += call["type"] == "llm"
            if isinstance(response := call.get("response"), Response):
                self._usage += response.usage


def check_size(size: int, limit: int, step: Step, what: str = "") -> None:
    """Raise CallError if outputs exceed a size limit."""
    if size > limit:
        expected = f"expected at most {limit // MIB} MiB of JSON{what}, got {size / MIB:.1f} MiB"
        message = f"output {step.output_key!r}: {expected}. Return less, or a path to a file"
        raise CallError("output_too_large", message)


def clamped(value: Any) -> Any:
    """Return a value for the trace: itself if small, else its truncated JSON."""
    return measured(value)[0]


def measured(value: Any) -> tuple[Any, int]:
    """Return a value for the trace, and its size in bytes of JSON."""
    try:
        text = orjson.dumps(value)
    except TypeError:
        # orjson rejects integers of more than 64 bits and lone surrogates.
        text = json.dumps(value, default=str).encode()
    if len(text) <= CLAMP:
        return value, len(text)
    return f"{text[:CLAMP].decode('utf-8', 'ignore')}… ({len(text) - CLAMP} bytes more)", len(text)
