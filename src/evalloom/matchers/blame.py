"""Which step of a target went wrong first, and which failures only follow from it."""

from __future__ import annotations

from msgspec import structs

from evalloom.core.model import Record, Verdict

_OF_NO_STEP = ("latency", "tokens", "cost")
_KEYS = {"step", "kind", "output_key", "needs", "outputs"}


def blamed(trace: list[Record], verdicts: list[Verdict]) -> tuple[list[Verdict], str]:
    """The verdicts, those marked that follow from an earlier failure, and the first step that went wrong.

    A step went wrong when a check on it failed, when it failed itself, or when an item of its batch did. A failed check
    on an output is one on the step that makes it.
    """
    steps = steps_in(trace)
    blamable = [one.status == "failed" and one.kind not in _OF_NO_STEP for one in verdicts]
    places = [_step_of(one.where, steps) if can else "" for one, can in zip(verdicts, blamable, strict=True)]
    checked = {step for one, step in zip(verdicts, places, strict=True) if not one.where.startswith("output")}
    broken = {step for step, entry in steps.items() if entry.get("status") == "failed" or entry.get("failed_items")}
    order = {step: number for number, step in enumerate(steps)}
    # What a step waits for has begun before it, so one pass finds all that stands before each.
    before: dict[str, set[str]] = {}
    for step, entry in steps.items():
        before[step] = set(entry["needs"]).union(*(before.get(need, ()) for need in entry["needs"]))

    checked = {step for one, step in zip(verdicts, places, strict=True) if not one.where.startswith("output")}

    def cause_of(verdict: Verdict, step: str) -> str:
        """What failed before a step; and what failed in it, where the check is only on the output that it makes."""
        earlier = ({*places} | broken) & before.get(step, set())
        own = {step} & checked if verdict.where.startswith("output") else set()
        return min((earlier | own) - {""}, key=order.__getitem__, default="")

    marked = [
        structs.replace(one, follows=cause) if step and (cause := cause_of(one, step)) else one
        for one, step in zip(verdicts, places, strict=True)
    ]
    wrong = {*places} - {""}
    # What broke elsewhere, and nobody looked at, is not why this failed.
    wrong |= broken & set().union(*(before[step] for step in wrong)) if wrong else broken
    return marked, min(wrong, key=order.__getitem__, default="")


def steps_in(trace: list[Record]) -> dict[str, Record]:
    """The entries of a trace that are about the steps of a target, by step id."""
    return {entry["step"]: entry for entry in trace if entry.get("type") == "step" and entry.keys() >= _KEYS}


def broken_step(trace: list[Record]) -> str:
    """The step that a run came to its end at; empty when it was none."""
    steps = steps_in(trace).items()
    return next((step for step, entry in steps if entry.get("status") == "failed" and entry.get("ended_case")), "")


def _step_of(where: str, steps: dict[str, Record]) -> str:
    """The step whose output a check looks at; empty when it is none in particular."""
    root, _, rest = where.partition(".")
    if root == "steps":
        return next((step for step in steps if _is_inside(rest, step)), "") or _maker(rest, steps)
    if root.startswith("aggregation"):
        return next((step for step in reversed(steps) if steps[step]["kind"] == "batch_aggregator"), "")
    made = ((step, key) for step, entry in steps.items() for key in entry["outputs"])
    return next((step for step, key in made if root == "output" and _is_inside(rest or root, key)), "")


def _maker(path: str, steps: dict[str, Record]) -> str:
    return next((step for step, entry in steps.items() if _is_inside(path, entry["output_key"])), "")


def _is_inside(path: str, name: str) -> bool:
    """Whether a path is a name, or leads further into what it stands for."""
    return path == name or (path.startswith(name) and path[len(name)] in ".[")
