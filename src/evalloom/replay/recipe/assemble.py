"""A context recipe: nodes with templates, edges that order them, variables that fill them.

`Recipe.assemble` is a pure function of a row and runs for every row of a replay, so whatever does not depend on
the row is computed once in advance. recipe/parse.py builds a recipe from the state of a project.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from msgspec import Struct

from evalloom.core.digest import sha256_base64
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Record
from evalloom.core.text import quote
from evalloom.replay.recipe.trace import OUTPUT_STYLE, Answered, Message, RunError, RunStatus, Segment, Trace
from evalloom.replay.resolvers import MOST_BYTES, Resolution, clamp
from evalloom.replay.variables import RowInvalid, variables_of

_ROLES = ("system", "user", "assistant")
_MAX_PIECES = 64
_MAX_MESSAGES = 1_000
"""Messages per trace at most; ten thousand variables in each of many rows would take gigabytes."""
# Matches up to the next brace, so splitting takes linear time.
_PLACEHOLDER = lazy_pattern(r"\{\{([^{}]*)\}\}")
_SHORT_ENOUGH = MOST_BYTES // 4
"""A text of this many characters never exceeds MOST_BYTES."""
_EMPTY: list[Any] = []


class Variable(NamedTuple):
    """A variable that the project declares."""

    id: str
    name: str
    type: str
    value: str
    resolver: str


class RecipeNode(Struct, frozen=True, gc=False):
    """A node as it appears in every trace of the recipe."""

    node_id: str
    label: str
    kind: str
    template: str


class RenderedNode(Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A node filled with the variables of a row."""

    text: str
    missing: list[str] = []
    messages: list[Message] = []
    truncated: bool = False


class AssembledRow(Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The context of a row: the part of its record that depends only on recipe and row."""

    status: RunStatus
    digest: str
    missing: int
    text: str
    segments: list[RenderedNode]
    messages: list[Message]
    errors: list[RunError] = []
    truncated: bool = False
    model: Answered | None = None


def trace_of(nodes: Sequence[RecipeNode], assembled: AssembledRow, run_id: str, created_at: str) -> Trace:
    """Build the full trace of a run from the nodes of the recipe and the assembled row."""
    segments = [
        Segment(
            node.node_id,
            node.label,
            node.kind,
            node.template,
            rendered.text,
            rendered.missing,
            rendered.messages,
            rendered.truncated,
        )
        # A row that could not be assembled has no segments.
        for node, rendered in zip(nodes, assembled.segments, strict=False)
    ]
    return Trace(
        run_id,
        created_at,
        OUTPUT_STYLE,
        assembled.text,
        segments,
        assembled.messages,
        assembled.truncated,
        assembled.model,
    )


def messages_of(nodes: Sequence[RecipeNode], assembled: AssembledRow) -> list[Record]:
    """Convert the context to chat messages: each segment below its label, adjacent ones of a role joined."""
    messages: list[Record] = []
    for node, rendered in zip(nodes, assembled.segments, strict=True):
        role = node.kind if node.kind in _ROLES else "system"
        content = f"--- {node.label} ---\n{rendered.text}"
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += f"\n\n{content}"
        else:
            messages.append({"role": role, "content": content})
    # A model needs a user message: without one, the whole context is sent as the user.
    has_user_message = any(message["role"] == "user" for message in messages)
    return messages if has_user_message else [{"role": "user", "content": assembled.text}]


class TemplatePart(NamedTuple):
    """A part of a template: text, or a placeholder with the name in it."""

    text: str
    name: str = ""


def template_parts(template: str) -> list[TemplatePart]:
    """Split a template at its placeholders."""
    cut = _PLACEHOLDER.split(template)
    parts = [
        TemplatePart(f"{{{{{piece}}}}}", piece.strip()) if at % 2 else TemplatePart(piece)
        for at, piece in enumerate(cut)
    ]
    return [part for part in parts if part.text]


class _NodeTemplate:
    """A node with its template split at the placeholders."""

    def __init__(self, node: RecipeNode) -> None:
        self.node = node
        self.header = f"--- {node.label} ---\n"
        cut = _PLACEHOLDER.split(node.template)
        self.pieces = cut
        self.placeholders: list[tuple[int, str]] = []
        for at in range(1, len(cut), 2):
            name = cut[at].strip()
            cut[at] = f"{{{{{cut[at]}}}}}"
            if name:
                self.placeholders.append((at, name))
        self.names = sorted({name for _, name in self.placeholders})

    def render(self, values: Mapping[str, str]) -> tuple[str, bool]:
        """Fill the template in one pass; return the text and whether a value is missing."""
        pieces, is_missing = self.pieces.copy(), False
        for at, name in self.placeholders:
            value = values.get(name)
            if value is None:
                is_missing = True
            else:
                pieces[at] = value
        if len(pieces) > _MAX_PIECES:
            # The rest would be truncated anyway, and a hundred thousand long values take gigabytes.
            lengths = accumulate(map(len, pieces))
            pieces = pieces[: next((at for at, length in enumerate(lengths, 1) if length > MOST_BYTES), None)]
        return "".join(pieces), is_missing


class Recipe:
    """A parsed recipe. `nodes` are in order; `cycle` lists nodes that depend on each other."""

    def __init__(self, nodes: list[RecipeNode], variables: list[Variable], cycle: list[str]) -> None:
        self.nodes = nodes
        self.cycle = cycle
        self.variables = variables
        self._templates = [_NodeTemplate(node) for node in nodes]
        self._users: dict[str, list[str]] = {}
        for template in self._templates:
            for name in template.names:
                self._users.setdefault(name, []).append(template.node.node_id)
        self._by_name = {variable.name: variable for variable in variables}
        self.names = frozenset(self._users)
        self.placeholders = sum(len(template.names) for template in self._templates)
        self.declared = frozenset(self._by_name)
        self.dynamic = {
            variable.name: variable
            for variable in variables
            if variable.type == "dynamic" and variable.name in self._users
        }
        """The dynamic variables that a template uses; others are not resolved."""
        self._fixed = {variable.name: clamp(variable.value) for variable in variables if variable.type == "static"}
        self._values = {name: value for name, (value, _) in self._fixed.items()}
        self._fixed_messages = [self._fixed_message(variable) for variable in variables]

    def assemble(self, row: Any, resolved: Mapping[str, Resolution] = {}) -> AssembledRow:
        """Assemble the context of a row. `resolved` has every variable of `needs([row])`."""
        if self.cycle:
            return _failed("dependency_cycle", cycle_message(self.cycle), self.cycle)
        try:
            row_variables = variables_of(row)
        except RowInvalid as error:
            return failed_row(str(error))
        values, messages, errors = self._fill(row_variables, resolved)
        segments, bodies, missing = self._render(values, errors)
        left = 0
        if missing:
            missing_messages = [_missing_message(name, self._users[name]) for name in sorted(missing)[:_MAX_MESSAGES]]
            messages, left = messages + missing_messages, len(missing) - len(missing_messages)
        if len(messages) > _MAX_MESSAGES or left:
            messages = self._shortened(messages, left)
        text = "\n\n".join(bodies).strip()
        text, is_cut = clamp(text) if len(text) > _SHORT_ENOUGH else (text, False)
        return AssembledRow(
            "failed" if errors else "succeeded",
            sha256_base64(text),
            len(missing),
            text,
            segments,
            messages,
            errors,
            is_cut,
        )

    def needs(self, rows: Iterable[Any]) -> set[str]:
        """Return the dynamic variables that at least one of these rows does not define itself."""
        needed: set[str] = set()
        for row in rows if self.dynamic and not self.cycle else ():
            row_variables = row.get("variables", row) if isinstance(row, dict) else None
            if isinstance(row_variables, dict):
                needed.update(name for name in self.dynamic if name not in row_variables or name.startswith("_"))
            if len(needed) == len(self.dynamic):
                break
        return needed

    def _fill(
        self, row_variables: dict[str, str], resolved: Mapping[str, Resolution]
    ) -> tuple[dict[str, str], list[Message], list[RunError]]:
        """Return the values of all variables, a message for each, and the errors of those without a value."""
        values, messages, errors = self._values.copy(), self._fixed_messages, _EMPTY
        if self.dynamic or any(name in self._by_name for name in row_variables):
            messages, errors = self._variable_messages(row_variables, resolved, values)
        own: list[Message] = []
        for name, value in row_variables.items():
            is_cut = False
            if len(value) > _SHORT_ENOUGH:
                value, is_cut = clamp(value)
            values[name] = value
            if name not in self._by_name:
                own.append(_value_message(name, name, "static", "row", value, is_cut))
        return values, messages + own, errors

    def _variable_messages(
        self, row_variables: dict[str, str], resolved: Mapping[str, Resolution], values: dict[str, str]
    ) -> tuple[list[Message], list[RunError]]:
        """Return a message for every declared variable; add resolved values to `values`."""
        messages: list[Message] = []
        errors: list[RunError] = []
        for variable, fixed in zip(self.variables, self._fixed_messages, strict=True):
            name = variable.name
            if name in row_variables:
                value, is_cut = clamp(row_variables[name])
                messages.append(_value_message(variable.id, name, variable.type, "row", value, is_cut))
            elif name not in self.dynamic:
                messages.append(fixed)
            elif (resolution := resolved[name]).error_code:
                nodes = self._users[name]
                messages.append(_unresolved_message(variable, resolution, nodes))
                message = f"{name}: {resolution.message}"
                # One error per node, up to the limit.
                places = nodes[: _MAX_MESSAGES - len(errors)]
                errors += [RunError(message, resolution.error_code, variable.id, node) for node in places]
            else:
                values[name] = resolution.value
                details = (resolution.value, resolution.truncated, resolution.duration_ms)
                messages.append(_value_message(variable.id, name, "dynamic", "resolver", *details))
        return messages, errors

    def _render(self, values: dict[str, str], errors: list[RunError]) -> tuple[list[RenderedNode], list[str], set[str]]:
        """Return the segments, their texts, and the names without a value."""
        segments, bodies = [], []
        missing: set[str] = set()
        broken: dict[str, list[RunError]] = {}
        for error in errors:
            broken.setdefault(error.node_id, []).append(error)
        for template in self._templates:
            text, is_missing = template.render(values)
            is_cut = False
            if len(text) > _SHORT_ENOUGH:
                text, is_cut = clamp(text)
            if not is_missing:
                segments.append(RenderedNode(text, _EMPTY, _EMPTY, is_cut) if is_cut else RenderedNode(text))
            else:
                names, messages = self._missing_variables(template, values, broken.get(template.node.node_id, _EMPTY))
                missing.update(names)
                segments.append(RenderedNode(text, names, messages, is_cut))
            bodies.append(template.header + text)
        return segments, bodies, missing

    def _missing_variables(
        self, template: _NodeTemplate, values: dict[str, str], broken: list[RunError]
    ) -> tuple[list[str], list[Message]]:
        """Return the missing variables of a node, and messages for them and for the unresolved ones."""
        node_id = template.node.node_id
        messages = [
            _error_message(error.error_code, error.message, {"variableId": error.variable_id, "nodeId": node_id})
            for error in broken
        ]
        # A dynamic variable without a value is an error, not a missing variable.
        names = [name for name in template.names if name not in values and name not in self.dynamic]
        return names, messages + [_missing_message(name, [node_id]) for name in names[:_MAX_MESSAGES]]

    def _shortened(self, messages: list[Message], left: int) -> list[Message]:
        """Limit the messages, preferring errors, then warnings, then variables that a template uses.

        `left` is the number of messages already left out.
        """
        ranks = {"error": 0, "warn": 1}
        order = [
            ranks.get(message.severity, 2 if message.details.get("variableName") in self._users else 3)
            for message in messages
        ]
        shown = sorted(range(len(messages)), key=order.__getitem__)[: _MAX_MESSAGES - 1]
        left += len(messages) - len(shown)
        last = Message("info", "messages_left_out", f"{left:,} more messages are left out")
        return [*(messages[at] for at in sorted(shown)), last]

    def _fixed_message(self, variable: Variable) -> Message:
        """Return the message for a declared variable that the row does not define."""
        if variable.type == "static":
            value, is_cut = self._fixed[variable.name]
            return _value_message(variable.id, variable.name, "static", "project", value, is_cut)
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


def _value_message(
    id: str, name: str, type: str, source: str, value: str, is_cut: bool, duration_ms: float = 0.0
) -> Message:
    """Return the message for a variable that has a value."""
    size = len(value) if value.isascii() else len(value.encode())
    details = _details(id, name, type, size, is_cut, duration_ms)
    if is_cut:
        return Message("warn", "value_truncated", f"{name}: only the first {MOST_BYTES:,} bytes are used", details)
    return Message("info", "variable_resolved", f"{name}: from the {source}", details)


def _unresolved_message(variable: Variable, resolution: Resolution, nodes: list[str]) -> Message:
    details = _details(variable.id, variable.name, "dynamic", 0, False, resolution.duration_ms)
    message = f"{variable.name}: {resolution.message}"
    return _error_message(resolution.error_code, message, {**details, "nodeId": nodes[0], "nodeIds": nodes})


def _error_message(code: str, message: str, details: Record) -> Message:
    """Return the message of an error; its details name the code, as the errors of the run do (REPLAY-6)."""
    return Message("error", code, message, {"errorCode": code, **details})


def _missing_message(name: str, nodes: list[str]) -> Message:
    message = f"{{{{{name}}}}}: no variable has this name, so it stays as it is written"
    return Message("warn", "missing_variable", message, {"variableName": name, "nodeIds": nodes})


def failed_row(message: str) -> AssembledRow:
    """Return the result for a row that is not an object (REPLAY-4)."""
    return _failed("row_invalid", message)


def _failed(code: str, message: str, nodes: Sequence[str] = ()) -> AssembledRow:
    """Return the result for a row that cannot be assembled."""
    node_id = nodes[0] if nodes else ""
    error_message = _error_message(code, message, {"nodeId": node_id, "nodeIds": nodes} if nodes else {})
    return AssembledRow("failed", sha256_base64(""), 0, "", [], [error_message], [RunError(message, code, "", node_id)])


def cycle_message(cycle: list[str]) -> str:
    """Describe a dependency cycle."""
    shown = " → ".join(map(quote, [*cycle[:20], *(["…"] if len(cycle) > 20 else []), cycle[0]]))
    return f"the nodes wait for each other: {shown}. Remove one of these edges"
