"""What must hold between the cases of a file that depend on one another: they are there, and none waits for itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from evalloom.core.model import Finding, Origin
from evalloom.core.text import did_you_mean, quote
from evalloom.data.validate.keys import Keys
from evalloom.data.validate.tally import Dependent

_SHOWN = 50
"""How many cases of a long cycle are named."""
_MOST_CYCLES = 1_000
_COMPARED = 10_000
"""Up to so many ids are looked through for one that was meant."""


def dependency_findings(file: str, dependents: list[Dependent], bases: set[str], ids: Keys) -> Iterator[Finding]:
    """The findings about all dependencies of a file; `bases` are the ids of records with parameters."""
    if dependents:
        known = ids.among({need for one in dependents for need in one.needs})
        yield from _unknown(file, dependents, known | bases, ids)
        yield from _cycles(file, dependents, known)


def _unknown(file: str, dependents: list[Dependent], known: set[str], ids: Keys) -> Iterator[Finding]:
    all_ids: list[str] | None = None
    for one in dependents:
        for need in one.needs:
            if need not in known:
                if all_ids is None:
                    all_ids = [*map(str, ids.texts()), *known] if len(ids) <= _COMPARED else []
                message = f"depends_on: no case of this file has the id {quote(need)}{did_you_mean(need, all_ids)}"
                yield _finding("unknown_dependency", message, file, one)


def _cycles(file: str, dependents: list[Dependent], known: set[str]) -> Iterator[Finding]:
    nodes = {one.id: one for one in dependents}
    edges: dict[str, list[str]] = {one.id: list(one.needs) for one in dependents}
    for one in dependents:
        # The id of a record with parameters stands for all its cases, unless a case has that very id.
        if one.base != one.id and one.base not in known:
            edges.setdefault(one.base, []).append(one.id)
    told: set[frozenset[int]] = set()
    for cycle in islice(_loops(edges), _MOST_CYCLES):
        members = [nodes[id] for id in cycle if id in nodes]
        lines = frozenset(one.line for one in members)
        # Every case of one record may be in a cycle of its own; the record is told of once.
        if lines not in told:
            told.add(lines)
            first = min(range(len(members)), key=lambda index: members[index].line)
            yield _finding("dependency_cycle", _cycle_message(members[first:] + members[:first]), file, members[first])


def _loops(edges: Mapping[str, list[str]]) -> Iterator[list[str]]:
    """The cycles that a walk over all nodes meets: at least one where there is any."""
    done: set[str] = set()
    for start in edges:
        path: dict[str, Iterator[str]] = {} if start in done else {start: iter(edges[start])}
        while path:
            node, ahead = next(reversed(path.items()))
            following = next((one for one in ahead if one in edges and one not in done), None)
            if following is None:
                done.add(node)
                del path[node]
            elif following in path:
                yield list(path)[list(path).index(following) :]
            else:
                path[following] = iter(edges[following])


def _cycle_message(members: list[Dependent]) -> str:
    if len(members) == 1:
        return f"depends_on: {quote(members[0].id)} on line {members[0].line} depends on itself, so it can never run"
    named = [f"{quote(member.id)} (line {member.line})" for member in members]
    if len(named) > _SHOWN:
        named[_SHOWN - 1 : -1] = [f"{len(named) - _SHOWN} more"]
    return f"depends_on: these cases wait for each other in a cycle: {' → '.join([*named, quote(members[0].id)])}"


def _finding(code: str, message: str, file: str, case: Dependent) -> Finding:
    return Finding(code, "error", message, Origin(file, case.line, case.column), "depends_on", case.id)


def moved(dependents: Iterable[Dependent], lines: int) -> Iterator[Dependent]:
    """Return the same dependents, `lines` lines further down."""
    return (one._replace(line=one.line + lines) for one in dependents)
