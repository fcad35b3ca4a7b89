"""A context recipe: nodes with templates, edges that order them, variables that fill them.

`read` takes a project's state apart once; `Recipe.assemble` is a pure function of a row, and on the path of every
row of a replay, so whatever does not depend on the row is made beforehand.
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import Any, NamedTuple

from msgspec import Struct

from evalloom.errors import did_you_mean
from evalloom.model import Record, quote, type_name
from evalloom.resolvers import MOST_BYTES, Resolution, clamp
from evalloom.targets.recipe_trace import OUTPUT_STYLE, Answered, Message, RunError, RunStatus, Segment, Trace
from evalloom.variables import RowInvalid, variables_of

KINDS = {
    "system_prompt": "system",
    "user_input": "user",
    "messages": "assistant",
    "tools": "tool",
    "memory": "memory",
    "retrieval": "retrieval",
}
"""The kind of segment that a type of node becomes; any other becomes text."""
_ROLES = ("system", "user", "assistant")
VARIABLE_TYPES = ("static", "dynamic")
_ENDS = ("source", "target")
MOST = {"nodes": 1_000, "edges": 100_000, "variables": 20_000}
"""How much of each a recipe may have."""
MOST_PLACEHOLDERS = 100_000
"""How many names the templates of a recipe may have, each counted once for every node."""
_FEW_PIECES = 64
_MOST_MESSAGES = 1_000
"""How many variables a trace tells of one by one; ten thousand in each of many rows would be gigabytes."""
# Everything up to the next brace: one pass, whatever stands between.
_HOLE = re.compile(r"\{\{([^{}]*)\}\}")
_SURELY_SHORT = MOST_BYTES // 4
"""So many characters are never more than MOST_BYTES."""
_NONE: list[Any] = []


class RecipeFault(Exception):
    """A state that is no recipe: all that is wrong with it, each with its path. `code` is what all of it comes to."""

    def __init__(self, faults: list[tuple[str, str]], code: str = "validation_failed") -> None:
        super().__init__("; ".join(f"{path}: {message}" for path, message in faults[:3]))
        self.code = code
        self.faults = faults


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
        except RowInvalid as fault:
            return failed_row(str(fault))
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
        messages, errors = [], []
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
                errors += [RunError(message, found.error_code, variable.id, node) for node in nodes]
            else:
                values[name] = found.value
                told = (found.value, found.truncated, found.duration_ms)
                messages.append(_told(variable.id, name, "dynamic", "resolver", *told))
        return messages, errors

    def _render(self, values: dict[str, str], errors: list[RunError]) -> tuple[list[Rendered], list[str], set[str]]:
        """Each segment, its part of the text, and the names that nothing has a value for."""
        segments, bodies = [], []
        missing: set[str] = set()
        for node in self._nodes:
            text, has_gaps = node.render(values)
            is_cut = False
            if len(text) > _SURELY_SHORT:
                text, is_cut = clamp(text)
            if not has_gaps:
                segments.append(Rendered(text, _NONE, _NONE, is_cut) if is_cut else Rendered(text))
            else:
                names, messages = self._gaps(node, values, errors)
                missing.update(names)
                segments.append(Rendered(text, names, messages, is_cut))
            bodies.append(node.header + text)
        return segments, bodies, missing

    def _gaps(self, node: _Node, values: dict[str, str], errors: list[RunError]) -> tuple[list[str], list[Message]]:
        """The missing variables of a node, and what there is to tell of them and of those without a value."""
        node_id = node.part.node_id
        broken = [error for error in errors if error.node_id == node_id]
        messages = [
            Message("error", error.error_code, error.message, {"variableId": error.variable_id, "nodeId": node_id})
            for error in broken
        ]
        names = [name for name in node.names if name not in values]
        if broken:
            names = [name for name in names if name not in self.dynamic]
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


# -- reading ------------------------------------------------------------------------------------------


def read(state: Any) -> Recipe:
    """The recipe of a project's state. Raises RecipeFault with all that is wrong with it."""
    faults: list[tuple[str, str]] = []
    if not isinstance(state, dict):
        raise RecipeFault([("state", f"expected an object, got {_got(state)}")])
    lists = {name: _list(state, name, faults) for name in MOST}
    for name, most in MOST.items():
        if len(lists[name]) > most:
            message = f"expected at most {most:,}, got {len(lists[name]):,}"
            raise RecipeFault([(f"state.{name}", message)], "limit_exceeded")
    nodes = [_read_node(one, f"state.nodes[{at}]", faults) for at, one in enumerate(lists["nodes"])]
    edges = [_read_edge(one, f"state.edges[{at}]", faults) for at, one in enumerate(lists["edges"])]
    variables = [_read_variable(one, f"state.variables[{at}]", faults) for at, one in enumerate(lists["variables"])]
    _refuse_twice([node.node_id for node in nodes], "state.nodes", "id", faults)
    _refuse_twice([variable.id for variable in variables], "state.variables", "id", faults)
    _refuse_twice([variable.name for variable in variables], "state.variables", "name", faults)
    if faults:
        raise RecipeFault(faults)
    ordered, cycle = _order(nodes, edges)
    made = Recipe(ordered, variables, cycle)
    if made.placeholders > MOST_PLACEHOLDERS:
        message = f"expected templates with at most {MOST_PLACEHOLDERS:,} names, got {made.placeholders:,}"
        raise RecipeFault([("state.nodes", message)], "limit_exceeded")
    return made


def _list(state: Record, name: str, faults: list[tuple[str, str]]) -> list[Any]:
    # A recipe may well have no edges and no variables; one without nodes is a slip of the pen.
    found = state.get(name, [] if name != "nodes" else None)
    if isinstance(found, list):
        return found
    got = _got(found) if name in state else "none"
    faults.append((f"state.{name}", f"expected a list, got {got}"))
    return []


def _read_node(node: Any, where: str, faults: list[tuple[str, str]]) -> Part:
    if not isinstance(node, dict):
        faults.append((where, f"expected an object with id and data, got {_got(node)}"))
        return Part("", "", "", "")
    id = _text(node, "id", where, faults, is_needed=True)
    data = node.get("data")
    if not isinstance(data, dict):
        got = _got(data) if "data" in node else "none"
        faults.append((f"{where}.data", f"expected an object with label, type and content, got {got}"))
        return Part(id, "", "", "")
    if not isinstance(data.get("variables", []), list):
        faults.append((f"{where}.data.variables", f"expected a list, got {_got(data['variables'])}"))
    label = _text(data, "label", f"{where}.data", faults, id)
    kind = KINDS.get(_text(data, "type", f"{where}.data", faults), "text")
    return Part(id, label, kind, _text(data, "content", f"{where}.data", faults))


def _read_edge(edge: Any, where: str, faults: list[tuple[str, str]]) -> tuple[str, str]:
    if not isinstance(edge, dict):
        faults.append((where, f"expected an object with source and target, got {_got(edge)}"))
        return "", ""
    return _text(edge, "source", where, faults, is_needed=True), _text(edge, "target", where, faults, is_needed=True)


def _read_variable(variable: Any, where: str, faults: list[tuple[str, str]]) -> Variable:
    if not isinstance(variable, dict):
        faults.append((where, f"expected an object with id, name, type and value, got {_got(variable)}"))
        return Variable("", "", "", "", "")
    id = _text(variable, "id", where, faults, is_needed=True)
    name = _text(variable, "name", where, faults, is_needed=True)
    type = _text(variable, "type", where, faults, "static")
    if type not in VARIABLE_TYPES:
        hint = did_you_mean(type, VARIABLE_TYPES)
        faults.append((f"{where}.type", f"expected static or dynamic, got {quote(type)}{hint}"))
    resolver = variable.get("resolver")
    if resolver is not None and not isinstance(resolver, str):
        faults.append((f"{where}.resolver", f"expected a string, got {_got(resolver)}"))
    value = variable.get("value", "")
    try:
        # A query or an argument is text; a value may be any JSON, written as a row's would be.
        return Variable(id, name.strip(), type, variables_of({"value": value})["value"], resolver or "")
    except RowInvalid:
        faults.append((f"{where}.value", "expected a value of at most a few hundred levels, got more"))
        return Variable(id, name, type, "", "")


def _text(
    found: Record, name: str, where: str, faults: list[tuple[str, str]], default: str = "", is_needed: bool = False
) -> str:
    """The text under a name; null is no text, and what is needed may not be blank."""
    value = found.get(name, None if is_needed else default)
    if isinstance(value, str) and (value.strip() or not is_needed):
        return value
    got = _got(value) if name in found else "none"
    faults.append((f"{where}.{name}", f"expected a {'name' if is_needed else 'string'}, got {got}"))
    return ""


def _refuse_twice(found: list[str], where: str, name: str, faults: list[tuple[str, str]]) -> None:
    first: dict[str, int] = {}
    for at, value in enumerate(found):
        if value and first.setdefault(value, at) != at:
            message = f"expected one of its own, got {quote(value)}, which {where}[{first[value]}] has"
            faults.append((f"{where}[{at}].{name}", message))


def _got(value: object) -> str:
    return quote(value) if isinstance(value, str) else type_name(value)


def doubts(state: Any) -> Iterator[tuple[str, str]]:
    """What may be a slip of the pen in a state that can be read: unknown fields are kept, and so go unnoticed."""
    nodes, ids = state["nodes"], {node["id"] for node in state["nodes"]}
    if not nodes:
        yield "state.nodes", "there is no node, so every context is empty"
    for at, node in enumerate(nodes):
        where, data = f"state.nodes[{at}].data", node["data"]
        # A group, or a note without a type, may well be empty.
        if "content" not in data and "type" in data:
            yield where, f"there is no content, so the segment is empty{did_you_mean('content', data)}"
        type = data.get("type", "")
        if type not in KINDS and (hint := did_you_mean(type, KINDS, 0.8)):
            yield f"{where}.type", f"{quote(type)} is no known type, so the segment is plain text{hint}"
    lost = [(at, end) for at, edge in enumerate(state.get("edges", [])) for end in _ENDS if edge[end] not in ids]
    for at, end in lost[:1]:
        more = f" (and {len(lost) - 1:,} more such ends)" if len(lost) > 1 else ""
        node = state["edges"][at][end]
        yield f"state.edges[{at}].{end}", f"there is no node {quote(node)}, so the edge has no effect{more}"
    for at, variable in enumerate(state.get("variables", [])):
        if variable.get("resolver") and variable.get("type", "static") == "static":
            yield f"state.variables[{at}]", "a static variable has no use for a resolver. Did you mean type dynamic?"


# -- order --------------------------------------------------------------------------------------------


def _order(nodes: list[Part], edges: list[tuple[str, str]]) -> tuple[list[Part], list[str]]:
    """REPLAY-2: as given without edges, else by the edges and then by id; or the nodes of a cycle."""
    by_id = {node.node_id: node for node in nodes}
    known = {(source, target) for source, target in edges if source in by_id and target in by_id}
    if not known:
        return nodes, []
    after: dict[str, list[str]] = {}
    waiting = dict.fromkeys(by_id, 0)
    for source, target in known:
        after.setdefault(source, []).append(target)
        waiting[target] += 1
    ready = [id for id, count in waiting.items() if not count]
    heapify(ready)
    ordered: list[str] = []
    while ready:
        ordered.append(id := heappop(ready))
        for target in after.get(id, ()):
            waiting[target] -= 1
            if not waiting[target]:
                heappush(ready, target)
    left = set(by_id) - set(ordered)
    return [by_id[id] for id in ordered], _cycle(known, left) if left else []


def _cycle(edges: set[tuple[str, str]], left: set[str]) -> list[str]:
    """One cycle among nodes of which each waits for another, from its smallest id on."""
    before = {target: source for source, target in sorted(edges, reverse=True) if source in left and target in left}
    walked: dict[str, int] = {}
    at = min(left)
    while at not in walked:
        walked[at] = len(walked)
        at = before[at]
    found = [*walked][walked[at] :][::-1]
    first = found.index(min(found))
    return found[first:] + found[:first]
