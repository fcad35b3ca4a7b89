"""Finds the step of a target that failed first, and the failures that only follow from it."""

from __future__ import annotations

from itertools import chain

from msgspec import structs

from evalloom.core.model import Record, Verdict

_OF_NO_STEP = ("latency", "tokens", "cost", "only_fields")
_KEYS = {"step", "kind", "output_key", "needs", "outputs"}


def blamed(trace: list[Record], verdicts: list[Verdict]) -> tuple[list[Verdict], str]:
    """Mark the verdicts that follow from an earlier failure, and return them with the first step that failed.

    A step failed if a check on it failed, if it failed itself, or if an item of its batch did. A failed check on an
    output counts for the step that produces it.
    """
    steps = steps_in(trace)
    if not steps:
        return verdicts, ""
    blamable = [verdict.status == "failed" and verdict.kind not in _OF_NO_STEP for verdict in verdicts]
    places = [_step_of(verdict.where, steps) if can else "" for verdict, can in zip(verdicts, blamable, strict=True)]
    checked = {step for verdict, step in zip(verdicts, places, strict=True) if not verdict.where.startswith("output")}
    broken = {step for step, entry in steps.items() if entry.get("status") == "failed" or entry.get("failed_items")}
    order = {step: number for number, step in enumerate(steps)}
    # A step begins after those that it needs, so one pass finds all steps before each.
    before: dict[str, set[str]] = {}
    for step, entry in steps.items():
        before[step] = set(entry["needs"]).union(*(before.get(need, ()) for need in entry["needs"]))

    def cause_of(verdict: Verdict, step: str) -> str:
        """Return what failed before a step, or in it where the check is only on the output that it produces."""
        earlier = ({*places} | broken) & before.get(step, set())
        own = {step} & checked if verdict.where.startswith("output") else set()
        return min((earlier | own) - {""}, key=order.__getitem__, default="")

    marked = [
        structs.replace(verdict, follows=cause) if step and (cause := cause_of(verdict, step)) else verdict
        for verdict, step in zip(verdicts, places, strict=True)
    ]
    wrong = {*places} - {""}
    # A step that broke elsewhere, without a check on it, is not the reason.
    wrong |= broken & set().union(*(before[step] for step in wrong)) if wrong else broken
    return marked, min(wrong, key=order.__getitem__, default="")


def steps_in(trace: list[Record]) -> dict[str, Record]:
    """Return the entries of a trace for the steps of a target, by step id."""
    return {entry["step"]: entry for entry in trace if entry.get("type") == "step" and entry.keys() >= _KEYS}


def broken_step(trace: list[Record]) -> str:
    """Return the step that ended a run; empty if none did."""
    steps = steps_in(trace).items()
    return next((step for step, entry in steps if entry.get("status") == "failed" and entry.get("ended_case")), "")


def _step_of(where: str, steps: dict[str, Record]) -> str:
    """Return the step whose output a check reads; empty if there is no single step."""
    root, _, rest = where.partition(".")
    if root == "steps":
        # A step is named by its id, or else by its output key.
        by_id = (step for step in steps if _is_inside(rest, step))
        by_key = (step for step, entry in steps.items() if _is_inside(rest, entry["output_key"]))
        return next(chain(by_id, by_key), "")
    if root.startswith("aggregation"):
        return next((step for step in reversed(steps) if steps[step]["kind"] == "batch_aggregator"), "")
    produced = ((step, key) for step, entry in steps.items() for key in entry["outputs"])
    return next((step for step, key in produced if root == "output" and _is_inside(rest or root, key)), "")


def _is_inside(path: str, name: str) -> bool:
    """Return whether a path is a name, or continues inside it."""
    return path == name or (path.startswith(name) and path[len(name)] in ".[")
