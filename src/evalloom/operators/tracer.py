"""What a hoplet did, step by step: its `execution_path` (HOP-12), and the steps in the observer's log."""

from __future__ import annotations

from evalloom.model import Record
from evalloom.operators.observer import HopletObserver

_LONGEST_TASK = 200


class Tracer:
    """Takes down the steps of one run, in the order in which they end."""

    def __init__(
        self, trace: list[Record] | None = None, observer: HopletObserver | None = None, run_id: str = ""
    ) -> None:
        self.steps: list[Record] = []
        self._trace = trace if trace is not None else []
        self._observer = observer
        self._run_id = run_id

    def trace_step(
        self,
        op: str,
        task: str = "",
        status: str = "OK",
        duration: float = 0.0,
        retry_count: int = 0,
        metadata: Record | None = None,
        step: int | str | None = None,
    ) -> None:
        """Takes down one step. The operators do so by themselves; a hoplet may add steps of its own."""
        taken: Record = {
            "step": len(self.steps) + 1 if step is None else step,
            "op": str(op),
            "task": str(task)[:_LONGEST_TASK],
            "status": str(status),
            "retry_count": retry_count,
            "duration": round(duration, 6),
        }
        self.steps.append(taken)
        self._trace.append({"type": "step", **taken, **({"metadata": metadata} if metadata else {})})
        if self._observer is not None:
            self._observer.step(self._run_id, taken, metadata)
