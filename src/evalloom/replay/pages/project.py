"""`/replay/{project}`: the recipe of a project; a template can be edited, saved, and replayed at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.core.digest import sha256_hex
from evalloom.core.model import Record
from evalloom.core.text import quote
from evalloom.pages.errors import RequestError
from evalloom.pages.page import Page, PageRequest, Redirect, View
from evalloom.pages.site import Site
from evalloom.replay.pages import replaying
from evalloom.replay.pages.command import replay_command
from evalloom.replay.pages.mounted import service_of
from evalloom.replay.recipe.assemble import Recipe, TemplatePart, cycle_message, template_parts
from evalloom.replay.recipe.parse import read_recipe, recipe_warnings
from evalloom.replay.requests import MOST_IN_LIST, check_id, not_found
from evalloom.replay.service import DatasetSummary, Project, ReplayService, ReplaySummary
from evalloom.replay.store.database import MAX_CANDIDATES
from evalloom.replay.variables import RowInvalid, variables_of

_SAMPLE = 200
_REPLAYS_SHOWN = 10
_LONGEST_TEMPLATE = 2_000_000


class UsedVariable(Struct, frozen=True):
    """A name in a template."""

    name: str
    source: str
    """`static` or `dynamic` if the project declares it, else `row`."""
    missing_rows: int = 0
    """Rows of the chosen dataset that lack it, of those that were looked at."""


class RecipeNode(Struct, frozen=True):
    """A node in the order of assembly."""

    id: str
    label: str
    kind: str
    template: str
    parts: list[TemplatePart]
    variables: list[UsedVariable]
    is_editable: bool
    """Whether a field of a form keeps the template as it is."""


class RecipeFinding(Struct, frozen=True):
    """An error or a likely mistake, as `evalloom validate` reports it."""

    severity: str
    code: str
    message: str


class DeclaredVariable(Struct, frozen=True):
    """A variable of the project."""

    id: str
    name: str
    type: str
    value: str
    resolver: str
    is_used: bool


class ProjectView(Struct, frozen=True):
    """The page of a project. One that is only in a file has no name, and the nodes of its last replay."""

    id: str
    name: str
    updated_at: str
    is_stored: bool
    digest: str
    """Of the state that the page shows; an edit of another state is refused."""
    nodes: list[RecipeNode]
    variables: list[DeclaredVariable]
    findings: list[RecipeFinding]
    edits: str
    """The node whose template is being edited."""
    dataset_id: str
    """The dataset that is replayed after an edit."""
    datasets: list[DatasetSummary]
    rows_sampled: int
    replays: list[ReplaySummary]
    dataset_names: dict[str, str]
    command: str = ""
    """The command that replays its files again, if they are in this folder."""


def show(request: PageRequest) -> View:
    """Show the recipe of a project."""
    service, id = service_of(request), check_id(request.ids["project"], "project")
    replays = [one for one in service.replays(limit=MAX_CANDIDATES) if one.project_id == id]
    if not service.store.has_project(id):
        return View("project.html", _unstored(request.site, service, id, replays))
    project, datasets = service.project(id), service.datasets(MOST_IN_LIST)
    dataset_id = request.query.get("dataset", "") or _usual_dataset(replays, datasets)
    recipe = read_recipe(project.state)
    missing, sampled = _missing_rows(service, recipe, dataset_id)
    edits = request.query.get("edit", "")
    if edits and edits not in {node["id"] for node in project.state["nodes"]}:
        raise RequestError("not_found", f"the recipe has no node {quote(edits)}")
    data = ProjectView(
        id,
        project.name,
        project.updated_at,
        True,
        _digest(project),
        _nodes(recipe, project.state, missing),
        [
            DeclaredVariable(
                one.id, one.name, one.type, one.value[:_LONGEST_TEMPLATE], one.resolver, one.name in recipe.names
            )
            for one in recipe.variables
        ],
        list(_findings(recipe, project.state)),
        edits,
        dataset_id,
        datasets,
        sampled,
        replays[:_REPLAYS_SHOWN],
        {dataset.id: dataset.name for dataset in datasets},
    )
    return View("project.html", data)


def _unstored(site: Site, service: ReplayService, id: str, replays: list[ReplaySummary]) -> ProjectView:
    """Return the view of a project that only replays know: its recipe is in a file, or was deleted."""
    if not replays:
        raise not_found("project", id)
    first = replays[0]
    record = service.store.run(first.replay_id, first.offset)
    segments = record.trace.segments if record else []
    nodes = [
        RecipeNode(
            segment.node_id,
            segment.label,
            segment.kind,
            segment.template,
            template_parts(segment.template),
            [UsedVariable(name, "") for name in _names(segment.template)],
            False,
        )
        for segment in segments
    ]
    names = {dataset.id: dataset.name for dataset in service.datasets(MOST_IN_LIST)}
    empty: list[Any] = []
    command = replay_command(site, first)
    return ProjectView(
        id, "", "", False, "", nodes, empty, empty, "", "", empty, 0, replays[:_REPLAYS_SHOWN], names, command
    )


def _usual_dataset(replays: list[ReplaySummary], datasets: list[DatasetSummary]) -> str:
    """Return the stored dataset that was replayed last through this project, or else the newest one."""
    stored = {dataset.id for dataset in datasets}
    replayed = next((one.dataset_id for one in replays if one.dataset_id in stored), "")
    return replayed or (datasets[0].id if datasets else "")


def _nodes(recipe: Recipe, state: Record, missing: Counter[str]) -> list[RecipeNode]:
    types = {variable.name: variable.type for variable in recipe.variables}
    ordered = {node.node_id for node in recipe.nodes}
    # Nodes of a cycle have no place in the order; they are shown last, and can be edited.
    rest = [node for node in read_recipe({"nodes": state["nodes"]}).nodes if node.node_id not in ordered]
    return [
        RecipeNode(
            node.node_id,
            node.label,
            node.kind,
            node.template,
            template_parts(node.template),
            [UsedVariable(name, types.get(name, "row"), missing[name]) for name in _names(node.template)],
            _is_editable(node.template),
        )
        for node in (*recipe.nodes, *rest)
    ]


def _names(template: str) -> list[str]:
    return sorted({part.name for part in template_parts(template) if part.name})


def _is_editable(template: str) -> bool:
    # HTML has no NUL and turns every line break into one of a kind.
    return "\0" not in template and "\r" not in template.replace("\r\n", "") and len(template) < _LONGEST_TEMPLATE


def _missing_rows(service: ReplayService, recipe: Recipe, dataset_id: str) -> tuple[Counter[str], int]:
    """Count for each name the first rows of a dataset that give it no value, and those rows."""
    rows = service.store.rows(check_id(dataset_id, "dataset"), 0, _SAMPLE) if dataset_id else []
    needed = recipe.names - recipe.declared
    missing: Counter[str] = Counter()
    for row in rows:
        try:
            missing.update(needed - variables_of(msgspec.json.decode(row)).keys())
        except RowInvalid:
            continue
    return missing, len(rows)


def _findings(recipe: Recipe, state: Record) -> Iterator[RecipeFinding]:
    """Yield the errors and warnings of `evalloom validate`, without the lines of a file."""
    if recipe.cycle:
        yield RecipeFinding("error", "dependency_cycle", f"state.edges: {cycle_message(recipe.cycle)}")
    for path, message in recipe_warnings(state):
        yield RecipeFinding("warning", "recipe_doubt", f"{path}: {message}")


def _digest(project: Project) -> str:
    return sha256_hex(msgspec.json.encode(project.state))[:16]


# -- writes ------------------------------------------------------------------------------------------------


def _write(request: PageRequest) -> Redirect:
    service, action = service_of(request), request.field("do")
    id = check_id(request.ids["project"], "project")
    if action == "delete":
        service.delete_project(id)
        return Redirect(request.url("/replay"))
    if action not in ("save", "replay"):
        raise RequestError("validation_failed", f"do: expected save, replay or delete, got {action[:80]!r}")
    _save_template(request, service, id)
    dataset = request.field("dataset")
    if action == "save" or not dataset:
        return Redirect(request.url(f"/replay/{id}", dataset=dataset))
    return replaying.start(request, id, dataset, {}, to_comparison=True)


def _save_template(request: PageRequest, service: ReplayService, id: str) -> None:
    """Replace the template of one node; refuse if the recipe has changed since the form was shown."""
    project, node_id = service.project(id), request.field("node")
    digest = request.field("digest")
    if digest and digest != _digest(project):
        message = (
            "the recipe was changed by somebody else since this form was opened. Open it again, and repeat the edit"
        )
        raise RequestError("project_changed", message)
    node = next((node for node in project.state["nodes"] if node["id"] == node_id), None)
    if node is None:
        raise RequestError("not_found", f"the recipe has no node {quote(node_id)}")
    before = node["data"].get("content", "")
    # Forms send every line break as CR LF.
    content = request.field("content").replace("\r\n", "\n")
    is_crlf = "\r\n" in before and "\n" not in before.replace("\r\n", "")
    node["data"]["content"] = content.replace("\n", "\r\n") if is_crlf else content
    service.replace_project(id, {"name": project.name, "state": project.state})


PAGES = (Page("/replay/{project}", show), Page("/replay/{project}", _write, "POST"))
