"""Traces the steps of a hoplet: its `execution_path` (HOP-12) and the steps in the observer's log."""

from __future__ import annotations

import math
from typing import Any

from evalloom.core.model import Record
from evalloom.hop.operators.observer import HopletObserver
from evalloom.hop.operators.to_json import as_json, in_words

_LONGEST_TASK = 200


class Tracer:
    """Records the steps of one run, in the order in which they end. Never raises."""

    def __init__(
        self, trace: list[Record] | None = None, observer: HopletObserver | None = None, run_id: str = ""
    ) -> None:
        self.steps: list[Record] = []
        self._trace = trace if trace is not None else []
        self._observer = observer
        self._run_id = run_id
        self._is_closed = False

    def trace_step(
        self,
        op: str,
        task: str = "",
        status: str = "OK",
        duration: float | None = 0.0,
        retry_count: int = 0,
        metadata: Record | None = None,
        step: int | str | None = None,
    ) -> None:
        """Record one step. Operators do this automatically; a hoplet may add its own steps.

        An unknown duration is None. Values in `metadata` that are not JSON are converted to text.
        """
        if self._is_closed:
            return
        taken: Record = as_json(
            {
                "step": len(self.steps) + 1 if step is None else step if isinstance(step, int) else in_words(step),
                "op": in_words(op),
                "task": in_words(task)[:_LONGEST_TASK],
                "status": in_words(status),
                "retry_count": int(_number(retry_count) or 0),
                "duration": _number(duration),
            }
        )
        beside = as_json(metadata)
        self.steps.append(taken)
        self._trace.append({"type": "step", **taken, **({"metadata": beside} if beside else {})})
        if self._observer is not None:
            self._observer.step(self._run_id, taken, beside)

    def close(self) -> None:
        """Stop recording: what a hoplet does after its run has ended is not part of the run."""
        self._is_closed = True


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except Exception:  # users' code: anything may be passed for a number
        return None
    return round(number, 6) if math.isfinite(number) else None
