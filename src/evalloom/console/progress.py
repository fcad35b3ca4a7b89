"""How far a run has come: a line that changes on a terminal, plain lines elsewhere; always on stderr."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from evalloom.core.text import percent, pluralize
from evalloom.engine.evaluate import Live

_TERMINAL_EVERY_S = 0.2
_PLAIN_EVERY_S = 10.0
_USUAL_WIDTH = 80


@contextmanager
def showing(live: Live, is_quiet: bool = False) -> Iterator[None]:
    """Shows the progress of a run while the block lasts."""
    on_terminal = sys.stderr.isatty()
    if is_quiet and not on_terminal:
        yield
        return
    end = threading.Event()
    every = _TERMINAL_EVERY_S if on_terminal else _PLAIN_EVERY_S
    thread = threading.Thread(target=_show, args=(live, end, every, on_terminal), daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def _show(live: Live, end: threading.Event, every: float, on_terminal: bool) -> None:
    while not end.wait(every):
        line = progress_line(live)
        # A line that wraps could not be taken back as a whole.
        sys.stderr.write(f"\r\x1b[2K{line[: _width() - 1]}" if on_terminal else f"{line}\n")
        sys.stderr.flush()
    if on_terminal:
        sys.stderr.write("\r\x1b[2K")
        sys.stderr.flush()


def _width() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _USUAL_WIDTH
    except OSError:
        return _USUAL_WIDTH


def progress_line(live: Live) -> str:
    """`420/1000 · 93% passed · 38.1/s · 16 in flight · 3 retries · cost 0.12 · 15 s left`."""
    counts, spent, done = live.tally.counts, live.tally.spent, live.done
    counted = counts["passed"] + counts["failed"] + counts["error"]
    rate = (done - live.already) / max(1e-6, perf_counter() - live.running_since)
    parts = [f"{done}/{live.total}" if live.total is not None else f"{done} done"]
    # Where nothing is scored, as in the runs of prompt-eval, only errors count.
    if counts["passed"] or counts["failed"]:
        parts.append(f"{percent(counts['passed'] / counted, 0)} passed")
    elif counts["error"]:
        parts.append(pluralize(counts["error"], "error"))
    parts += [f"{rate:.1f}/s", f"{live.in_flight} in flight"]
    parts += [f"{spent.retries} retries"] * bool(spent.retries)
    parts += [f"cost {spent.cost:.4g}"] * bool(spent.cost)
    if live.total is not None and rate:
        parts.append(f"{_span((live.total - done) / rate)} left")
    return " · ".join(parts)


def _span(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
