"""A context recipe: nodes with templates, edges that order them, variables that fill them.

`Recipe.assemble` is a pure function of a row, and on the path of every row of a replay, so whatever does not depend on
the row is made beforehand. recipe_reading.py makes a recipe of a project's state.
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import accumulate
from typing import Any, NamedTuple

from msgspec import Struct

from evalloom.core.model import Record, quote
from evalloom.replay.recipe.trace import OUTPUT_STYLE, Answered, Message, RunError, RunStatus, Segment, Trace
from evalloom.replay.resolvers import MOST_BYTES, Resolution, clamp
from evalloom.replay.variables import RowInvalid, variables_of

_ROLES = ("system", "user", "assistant")
_FEW_PIECES = 64
_MOST_MESSAGES = 1_000
"""How many variables a trace tells of one by one; ten thousand in each of many rows would be gigabytes."""
# Everything up to the next brace: one pass, whatever stands between.
_HOLE = re.compile(r"\{\{([^{}]*)\}\}")
_SURELY_SHORT = MOST_BYTES // 4
"""So many characters are never more than MOST_BYTES."""
_NONE: list[Any] = []


class Variable(NamedTuple):
    """A variable that the project declares."""

    id: str
    name: str
    type: str
    value: str
    resolver: str


class Part(Struct, frozen=True, gc=False):
    """What every trace of a recipe tells of a node."""

    node_id: str
    label: str
    kind: str
    template: str


class Rendered(Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """What a row made of a node."""

    text: str
    missing: list[str] = []
    messages: list[Message] = []
    truncated: bool = False


class Assembled(Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """What a row made of a recipe: the part of its record that depends on nothing but the two."""

    status: RunStatus
    digest: str
    missing: int
    text: str
    segments: list[Rendered]
    messages: list[Message]
    errors: list[RunError] = []
    truncated: bool = False
    model: Answered | None = None


def digest_of(text: str) -> str:
    """REPLAY-8: base64 of the SHA-256 of a text."""
    return b2a_base64(sha256(text.encode()).digest(), newline=False).decode()


def trace_of(parts: Sequence[Part], made: Assembled, run_id: str, created_at: str) -> Trace:
    """The whole trace of a run, from what every run of the recipe has and what this one made of it."""
    segments = [
        Segment(
            part.node_id,
            part.label,
            part.kind,
            part.template,
            rendered.text,
            rendered.missing,
            rendered.messages,
            rendered.truncated,
        )
        # A row that could not be assembled has no segments.
        for part, rendered in zip(parts, made.segments, strict=False)
    ]
    return Trace(run_id, created_at, OUTPUT_STYLE, made.text, segments, made.messages, made.truncated, made.model)


def messages_of(parts: Sequence[Part], made: Assembled) -> list[Record]:
    """The context as messages for a model: each segment below its label, neighbours of one role in one message."""
    messages: list[Record] = []
    for part, rendered in zip(parts, made.segments, strict=True):
        role = part.kind if part.kind in _ROLES else "system"
        content = f"--- {part.label} ---\n{rendered.text}"
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += f"\n\n{content}"
        else:
            messages.append({"role": role, "content": content})
    # A model answers to somebody: where nobody asks, the whole context is the question.
    is_asked = any(message["role"] == "user" for message in messages)
    return messages if is_asked else [{"role": "user", "content": made.text}]


class _Node:
    """A node, its template cut at the holes."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.header = f"--- {part.label} ---\n"
        cut = _HOLE.split(part.template)
        self.pieces = cut
        self.holes: list[tuple[int, str]] = []
        for at in range(1, len(cut), 2):
            name = cut[at].strip()
            cut[at] = f"{{{{{cut[at]}}}}}"
            if name:
                self.holes.append((at, name))
        self.names = sorted({name for _, name in self.holes})

    def render(self, values: Mapping[str, str]) -> tuple[str, bool]:
        """The template with the values in it, and whether one was missing; no value is looked into again."""
        pieces, is_missing = self.pieces.copy(), False
        for at, name in self.holes:
            value = values.get(name)
            if value is None:
                is_missing = True
            else:
                pieces[at] = value
        if len(pieces) > _FEW_PIECES:
            # The rest would be cut off anyway, and a hundred thousand full values are gigabytes.
            lengths = accumulate(map(len, pieces))
            pieces = pieces[: next((at for at, length in enumerate(lengths, 1) if length > MOST_BYTES), None)]
        return "".join(pieces), is_missing


class Recipe:
    """A recipe ready to be filled. `parts` are its nodes in order; `cycle` are nodes that wait for each other."""

    def __init__(self, nodes: list[Part], variables: list[Variable], cycle: list[str]) -> None:
        self.parts = nodes
        self.cycle = cycle
        self.variables = variables
        self._nodes = [_Node(part) for part in nodes]
        self._users: dict[str, list[str]] = {}
        for node in self._nodes:
            for name in node.names:
                self._users.setdefault(name, []).append(node.part.node_id)
        self._by_name = {one.name: one for one in variables}
        self.names = frozenset(self._users)
        self.placeholders = sum(len(node.names) for node in self._nodes)
        self.declared = frozenset(self._by_name)
        self.dynamic = {one.name: one for one in variables if one.type == "dynamic" and one.name in self._users}
        """The dynamic variables that a template uses: the others need not be resolved."""
        self._fixed = {one.name: clamp(one.value) for one in variables if one.type == "static"}
        self._values = {name: value for name, (value, _) in self._fixed.items()}
        self._told = [self._tell_fixed(one) for one in variables]

    def assemble(self, row: Any, resolved: Mapping[str, Resolution] = {}) -> Assembled:
        """What becomes of a row. `resolved` holds each of `dynamic` that the row does not give itself."""
        if self.cycle:
            return _failed("dependency_cycle", cycle_message(self.cycle), self.cycle)
        try:
            given = variables_of(row)
        except RowInvalid as error:
            return failed_row(str(error))
        values, messages, errors = self._fill(given, resolved)
        segments, bodies, missing = self._render(values, errors)
        left = 0
        if missing:
            told = [_missing(name, self._users[name]) for name in sorted(missing)[:_MOST_MESSAGES]]
            messages, left = messages + told, len(missing) - len(told)
        if len(messages) > _MOST_MESSAGES or left:
            messages = self._shortened(messages, left)
        text, is_cut = _text_of(bodies)
        return Assembled(
            "failed" if errors else "succeeded",
            digest_of(text),
            len(missing),
            text,
            segments,
            messages,
            errors,
            is_cut,
        )

    def needs(self, rows: Iterable[Any]) -> set[str]:
        """The dynamic variables that some of these rows do not give themselves."""
        needed: set[str] = set()
        for row in rows if self.dynamic and not self.cycle else ():
            given = row.get("variables", row) if isinstance(row, dict) else None
            if isinstance(given, dict):
                needed.update(name for name in self.dynamic if name not in given or name.startswith("_"))
            if len(needed) == len(self.dynamic):
                break
        return needed

    def _fill(
        self, given: dict[str, str], resolved: Mapping[str, Resolution]
    ) -> tuple[dict[str, str], list[Message], list[RunError]]:
        """The value of every variable, what there is to tell of each, and why some have none."""
        values, messages, errors = self._values.copy(), self._told, _NONE
        if self.dynamic or any(name in self._by_name for name in given):
            messages, errors = self._tell(given, resolved, values)
        own: list[Message] = []
        for name, value in given.items():
            is_cut = False
            if len(value) > _SURELY_SHORT:
                value, is_cut = clamp(value)
            values[name] = value
            if name not in self._by_name:
                own.append(_told(name, name, "static", "row", value, is_cut))
        return values, messages + own, errors

    def _tell(
        self, given: dict[str, str], resolved: Mapping[str, Resolution], values: dict[str, str]
    ) -> tuple[list[Message], list[RunError]]:
        """A message for every declared variable; what was resolved goes into `values`."""
        messages: list[Message] = []
        errors: list[RunError] = []
        for variable, fixed in zip(self.variables, self._told, strict=True):
            name = variable.name
            if name in given:
                value, is_cut = clamp(given[name])
                messages.append(_told(variable.id, name, variable.type, "row", value, is_cut))
            elif name not in self.dynamic:
                messages.append(fixed)
            elif (found := resolved[name]).error_code:
                nodes = self._users[name]
                messages.append(_unresolved(variable, found, nodes))
                message = f"{name}: {found.message}"
                # One for every node, but no more than anybody reads.
                places = nodes[: _MOST_MESSAGES - len(errors)]
                errors += [RunError(message, found.error_code, variable.id, node) for node in places]
            else:
                values[name] = found.value
                told = (found.value, found.truncated, found.duration_ms)
                messages.append(_told(variable.id, name, "dynamic", "resolver", *told))
        return messages, errors

    def _render(self, values: dict[str, str], errors: list[RunError]) -> tuple[list[Rendered], list[str], set[str]]:
        """Each segment, its part of the text, and the names that nothing has a value for."""
        segments, bodies = [], []
        missing: set[str] = set()
        broken: dict[str, list[RunError]] = {}
        for error in errors:
            broken.setdefault(error.node_id, []).append(error)
        for node in self._nodes:
            text, has_gaps = node.render(values)
            is_cut = False
            if len(text) > _SURELY_SHORT:
                text, is_cut = clamp(text)
            if not has_gaps:
                segments.append(Rendered(text, _NONE, _NONE, is_cut) if is_cut else Rendered(text))
            else:
                names, messages = self._gaps(node, values, broken.get(node.part.node_id, _NONE))
                missing.update(names)
                segments.append(Rendered(text, names, messages, is_cut))
            bodies.append(node.header + text)
        return segments, bodies, missing

    def _gaps(self, node: _Node, values: dict[str, str], broken: list[RunError]) -> tuple[list[str], list[Message]]:
        """The missing variables of a node, and what there is to tell of them and of those that are broken."""
        node_id = node.part.node_id
        messages = [
            Message("error", error.error_code, error.message, {"variableId": error.variable_id, "nodeId": node_id})
            for error in broken
        ]
        # A dynamic variable without a value is broken, and not missing.
        names = [name for name in node.names if name not in values and name not in self.dynamic]
        return names, messages + [_missing(name, [node_id]) for name in names[:_MOST_MESSAGES]]

    def _shortened(self, messages: list[Message], left: int) -> list[Message]:
        """As many messages as anybody reads: errors, warnings, variables that a template uses, then the others.

        `left` is how many have been left out already.
        """
        ranks = {"error": 0, "warn": 1}
        order = [
            ranks.get(one.severity, 2 if one.details.get("variableName") in self._users else 3) for one in messages
        ]
        kept = sorted(range(len(messages)), key=order.__getitem__)[: _MOST_MESSAGES - 1]
        left += len(messages) - len(kept)
        last = Message("info", "messages_left_out", f"{left:,} more messages are left out")
        return [*(messages[at] for at in sorted(kept)), last]

    def _tell_fixed(self, variable: Variable) -> Message:
        """What there is to tell of a variable that no row gives."""
        if variable.type == "static":
            value, is_cut = self._fixed[variable.name]
            return _told(variable.id, variable.name, "static", "project", value, is_cut)
        details = _details(variable.id, variable.name, "dynamic", 0, False, 0.0)
        return Message(
            "info", "variable_unused", f"{variable.name}: no template uses it, so it is not resolved", details
        )


def _details(id: str, name: str, type: str, size: int, is_cut: bool, duration_ms: float) -> Record:
    return {
        "variableId": id,
        "variableName": name,
        "type": type,
        "durationMs": duration_ms,
        "valueBytes": size,
        "truncated": is_cut,
    }


def _told(id: str, name: str, type: str, source: str, value: str, is_cut: bool, duration_ms: float = 0.0) -> Message:
    """What there is to tell of a variable that has a value."""
    size = len(value) if value.isascii() else len(value.encode())
    details = _details(id, name, type, size, is_cut, duration_ms)
    if is_cut:
        return Message("warn", "value_truncated", f"{name}: only the first {MOST_BYTES:,} bytes are used", details)
    return Message("info", "variable_resolved", f"{name}: from the {source}", details)


def _unresolved(variable: Variable, found: Resolution, nodes: list[str]) -> Message:
    details = _details(variable.id, variable.name, "dynamic", 0, False, found.duration_ms)
    message = f"{variable.name}: {found.message}"
    return Message("error", found.error_code, message, {**details, "nodeIds": nodes})


def _missing(name: str, nodes: list[str]) -> Message:
    message = f"{{{{{name}}}}}: no variable has this name, so it stays as it is written"
    return Message("warn", "missing_variable", message, {"variableName": name, "nodeIds": nodes})


def failed_row(message: str) -> Assembled:
    """What comes of a row that is none (REPLAY-4)."""
    return _failed("row_invalid", message)


def _failed(code: str, message: str, nodes: Sequence[str] = ()) -> Assembled:
    """A row of which nothing could be assembled."""
    node_id = nodes[0] if nodes else ""
    told = Message("error", code, message, {"nodeIds": nodes} if nodes else {})
    return Assembled("failed", digest_of(""), 0, "", [], [told], [RunError(message, code, "", node_id)])


def _text_of(bodies: Iterable[str]) -> tuple[str, bool]:
    text = "\n\n".join(bodies).strip()
    return clamp(text) if len(text) > _SURELY_SHORT else (text, False)


def cycle_message(cycle: list[str]) -> str:
    """What is wrong with nodes that wait for each other."""
    shown = " → ".join(map(quote, [*cycle[:20], *(["…"] if len(cycle) > 20 else []), cycle[0]]))
    return f"the nodes wait for each other: {shown}. Remove one of these edges"
