"""Parses context recipes: validates the state of a project, warns about likely mistakes, and orders its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from evalloom.core.model import Record
from evalloom.core.text import describe, did_you_mean, quote
from evalloom.replay.recipe.assemble import Recipe, RecipeNode, Variable
from evalloom.replay.variables import RowInvalid, variables_of

KINDS = {
    "system_prompt": "system",
    "user_input": "user",
    "messages": "assistant",
    "tools": "tool",
    "memory": "memory",
    "retrieval": "retrieval",
}
"""The segment kind for each node type; any other type is text."""
VARIABLE_TYPES = ("static", "dynamic")
_ENDS = ("source", "target")
MOST = {"nodes": 1_000, "edges": 100_000, "variables": 20_000}
"""Maximum sizes of the lists of a recipe."""
MOST_PLACEHOLDERS = 100_000
"""Maximum number of names in the templates of a recipe, counted once per node."""


class RecipeError(Exception):
    """A state that is not a valid recipe; `errors` are pairs of path and message."""

    def __init__(self, errors: list[tuple[str, str]], code: str = "validation_failed") -> None:
        super().__init__("; ".join(f"{path}: {message}" for path, message in errors[:3]))
        self.code = code
        self.errors = errors


def read_recipe(state: Any) -> Recipe:
    """Parse the state of a project; raise RecipeError with all its errors."""
    errors: list[tuple[str, str]] = []
    if not isinstance(state, dict):
        raise RecipeError([("state", f"expected an object, got {describe(state)}")])
    lists = {name: _list(state, name, errors) for name in MOST}
    for name, most in MOST.items():
        if len(lists[name]) > most:
            message = f"expected at most {most:,}, got {len(lists[name]):,}"
            raise RecipeError([(f"state.{name}", message)], "limit_exceeded")
    nodes = [_read_node(item, f"state.nodes[{at}]", errors) for at, item in enumerate(lists["nodes"])]
    edges = [_read_edge(item, f"state.edges[{at}]", errors) for at, item in enumerate(lists["edges"])]
    variables = [_read_variable(item, f"state.variables[{at}]", errors) for at, item in enumerate(lists["variables"])]
    _require_unique([node.node_id for node in nodes], "state.nodes", "id", errors)
    _require_unique([variable.id for variable in variables], "state.variables", "id", errors)
    _require_unique([variable.name for variable in variables], "state.variables", "name", errors)
    if errors:
        raise RecipeError(errors)
    ordered, cycle = _order(nodes, edges)
    recipe = Recipe(ordered, variables, cycle)
    if recipe.placeholders > MOST_PLACEHOLDERS:
        message = f"expected templates with at most {MOST_PLACEHOLDERS:,} names, got {recipe.placeholders:,}"
        raise RecipeError([("state.nodes", message)], "limit_exceeded")
    return recipe


def _list(state: Record, name: str, errors: list[tuple[str, str]]) -> list[Any]:
    # Edges and variables are optional; a recipe without nodes is likely a mistake.
    items = state.get(name, [] if name != "nodes" else None)
    if isinstance(items, list):
        return items
    shown = describe(items) if name in state else "none"
    errors.append((f"state.{name}", f"expected a list, got {shown}"))
    return []


def _read_node(node: Any, where: str, errors: list[tuple[str, str]]) -> RecipeNode:
    if not isinstance(node, dict):
        errors.append((where, f"expected an object with id and data, got {describe(node)}"))
        return RecipeNode("", "", "", "")
    id = _text(node, "id", where, errors, is_required=True)
    data = node.get("data")
    if not isinstance(data, dict):
        shown = describe(data) if "data" in node else "none"
        errors.append((f"{where}.data", f"expected an object with label, type and content, got {shown}"))
        return RecipeNode(id, "", "", "")
    if not isinstance(data.get("variables", []), list):
        errors.append((f"{where}.data.variables", f"expected a list, got {describe(data['variables'])}"))
    label = _text(data, "label", f"{where}.data", errors, id)
    kind = KINDS.get(_text(data, "type", f"{where}.data", errors), "text")
    return RecipeNode(id, label, kind, _text(data, "content", f"{where}.data", errors))


def _read_edge(edge: Any, where: str, errors: list[tuple[str, str]]) -> tuple[str, str]:
    if not isinstance(edge, dict):
        errors.append((where, f"expected an object with source and target, got {describe(edge)}"))
        return "", ""
    return _text(edge, "source", where, errors, is_required=True), _text(
        edge, "target", where, errors, is_required=True
    )


def _read_variable(variable: Any, where: str, errors: list[tuple[str, str]]) -> Variable:
    if not isinstance(variable, dict):
        errors.append((where, f"expected an object with id, name, type and value, got {describe(variable)}"))
        return Variable("", "", "", "", "")
    id = _text(variable, "id", where, errors, is_required=True)
    name = _text(variable, "name", where, errors, is_required=True)
    type = _text(variable, "type", where, errors, "static")
    if type not in VARIABLE_TYPES:
        hint = did_you_mean(type, VARIABLE_TYPES)
        errors.append((f"{where}.type", f"expected static or dynamic, got {quote(type)}{hint}"))
    resolver = variable.get("resolver")
    if resolver is not None and not isinstance(resolver, str):
        errors.append((f"{where}.resolver", f"expected a string, got {describe(resolver)}"))
    value = variable.get("value", "")
    try:
        # A value may be any JSON; it becomes text the same way as the values of a row.
        return Variable(id, name.strip(), type, variables_of({"value": value})["value"], resolver or "")
    except RowInvalid:
        errors.append((f"{where}.value", "expected a value of at most a few hundred levels, got more"))
        return Variable(id, name, type, "", "")


def _text(
    fields: Record, name: str, where: str, errors: list[tuple[str, str]], default: str = "", is_required: bool = False
) -> str:
    """Return a string field; null is not accepted, and a required field must not be blank."""
    value = fields.get(name, None if is_required else default)
    if isinstance(value, str) and (value.strip() or not is_required):
        return value
    shown = describe(value) if name in fields else "none"
    errors.append((f"{where}.{name}", f"expected a {'name' if is_required else 'string'}, got {shown}"))
    return ""


def _require_unique(values: list[str], where: str, name: str, errors: list[tuple[str, str]]) -> None:
    first: dict[str, int] = {}
    for at, value in enumerate(values):
        if value and first.setdefault(value, at) != at:
            message = f"expected one of its own, got {quote(value)}, which {where}[{first[value]}] has"
            errors.append((f"{where}[{at}].{name}", message))


def recipe_warnings(state: Any) -> Iterator[tuple[str, str]]:
    """Yield likely mistakes in a valid state, as pairs of path and message; unknown fields raise no error."""
    nodes, ids = state["nodes"], {node["id"] for node in state["nodes"]}
    if not nodes:
        yield "state.nodes", "there is no node, so every context is empty"
    for at, node in enumerate(nodes):
        where, data = f"state.nodes[{at}].data", node["data"]
        # A group, or a note without a type, may be empty.
        if "content" not in data and "type" in data:
            yield where, f"there is no content, so the segment is empty{did_you_mean('content', data)}"
        type = data.get("type", "")
        if type not in KINDS and (hint := did_you_mean(type, KINDS, 0.8)):
            yield f"{where}.type", f"{quote(type)} is no known type, so the segment is plain text{hint}"
    dangling = [(at, end) for at, edge in enumerate(state.get("edges", [])) for end in _ENDS if edge[end] not in ids]
    for at, end in dangling[:1]:
        more = f" (and {len(dangling) - 1:,} more such ends)" if len(dangling) > 1 else ""
        node = state["edges"][at][end]
        yield f"state.edges[{at}].{end}", f"there is no node {quote(node)}, so the edge has no effect{more}"
    for at, variable in enumerate(state.get("variables", [])):
        if variable.get("resolver") and variable.get("type", "static") == "static":
            yield f"state.variables[{at}]", "a static variable has no use for a resolver. Did you mean type dynamic?"


# -- order --------------------------------------------------------------------------------------------


def _order(nodes: list[RecipeNode], edges: list[tuple[str, str]]) -> tuple[list[RecipeNode], list[str]]:
    """Sort nodes topologically, ties by id, or keep their order without edges; also return a cycle (REPLAY-2)."""
    by_id = {node.node_id: node for node in nodes}
    valid = {(source, target) for source, target in edges if source in by_id and target in by_id}
    if not valid:
        return nodes, []
    after: dict[str, list[str]] = {}
    waiting = dict.fromkeys(by_id, 0)
    for source, target in valid:
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
    return [by_id[id] for id in ordered], _cycle(valid, left) if left else []


def _cycle(edges: set[tuple[str, str]], left: set[str]) -> list[str]:
    """Return one cycle among nodes that depend on each other, starting at its smallest id."""
    before = {target: source for source, target in sorted(edges, reverse=True) if source in left and target in left}
    walked: dict[str, int] = {}
    at = min(left)
    while at not in walked:
        walked[at] = len(walked)
        at = before[at]
    cycle = [*walked][walked[at] :][::-1]
    first = cycle.index(min(cycle))
    return cycle[first:] + cycle[:first]
