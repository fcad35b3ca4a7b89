"""What a hoplet did, step by step: its `execution_path` (HOP-12), and the steps in the observer's log."""

from __future__ import annotations

import math
from typing import Any

from evalloom.core.model import Record
from evalloom.hop.operators.observer import HopletObserver
from evalloom.hop.operators.to_json import as_json, in_words

_LONGEST_TASK = 200


class Tracer:
    """Takes down the steps of one run, in the order in which they end. Whatever it is given, it never raises."""

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
        """Takes down one step. The operators do so by themselves; a hoplet may add steps of its own.

        A duration that is not known is None. `metadata` is any JSON; what is none is told in words.
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
        """Takes down nothing more: what a hoplet does after its run has ended is no part of it."""
        self._is_closed = True


def _number(given: Any) -> float | None:
    try:
        number = float(given)
    except Exception:  # users' code: anything may be passed for a number
        return None
    return round(number, 6) if math.isfinite(number) else None
