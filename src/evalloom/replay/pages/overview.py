"""`/replay`: the projects, the datasets and the last replays; new projects and datasets are created here."""

from __future__ import annotations

from msgspec import Struct

from evalloom.pages.errors import RequestError
from evalloom.pages.page import Page, PageRequest, Redirect, View
from evalloom.replay.pages.history import NO_PROJECT
from evalloom.replay.pages.ingest import RECIPES, ROWS, file_names, read_dataset, read_project
from evalloom.replay.pages.mounted import service_of
from evalloom.replay.requests import MOST_IN_LIST
from evalloom.replay.service import DatasetSummary, ReplayService, ReplaySummary

_MOST_SHOWN = 100
_PAGE_SIZE = 25


class ListedProject(Struct, frozen=True):
    """A project in the list."""

    id: str
    name: str
    updated_at: str
    nodes: int
    variables: int


class ListedDataset(Struct, frozen=True):
    """A dataset in the list, with the project that its page opens with."""

    dataset: DatasetSummary
    project_id: str
    last: ReplaySummary | None = None


class ListedReplay(Struct, frozen=True):
    """A replay in the list; the names are empty for what is in files, or was deleted."""

    replay: ReplaySummary
    project_name: str
    dataset_name: str


class Overview(Struct, frozen=True):
    """The first page of replays."""

    projects: list[ListedProject]
    datasets: list[ListedDataset]
    replays: list[ListedReplay]
    search: str
    project_total: int
    dataset_total: int
    page: int
    has_more: bool
    """Whether there are older replays."""
    creates: str
    """`project` or `dataset` if the form to create one is open."""
    files: list[str]
    """Files in the folder that it could be made from."""


def _show(request: PageRequest) -> View:
    service, search = service_of(request), request.query.get("q", "").strip()
    page, creates = request.number("page", 1), request.choice("new", ("project", "dataset"))
    projects, datasets = service.projects(MOST_IN_LIST), service.datasets(MOST_IN_LIST)
    project_names = {project.id: project.name for project in projects}
    dataset_names = {dataset.id: dataset.name for dataset in datasets}
    replays = service.replays(limit=_PAGE_SIZE + 1, offset=(page - 1) * _PAGE_SIZE)
    shown_projects = [one for one in projects if _matches(search, one.id, one.name)]
    shown_datasets = [one for one in datasets if _matches(search, one.id, one.name)]
    newest = projects[0].id if projects else NO_PROJECT
    suffixes = {"project": RECIPES, "dataset": ROWS}.get(creates, ())
    data = Overview(
        [_project(service, one.id) for one in shown_projects[:_MOST_SHOWN]],
        [_dataset(service, one, newest) for one in shown_datasets[:_MOST_SHOWN]],
        [
            ListedReplay(one, project_names.get(one.project_id, ""), dataset_names.get(one.dataset_id, ""))
            for one in replays[:_PAGE_SIZE]
        ],
        search,
        len(shown_projects),
        len(shown_datasets),
        page,
        len(replays) > _PAGE_SIZE,
        creates,
        file_names(request.site.home, suffixes) if suffixes else [],
    )
    return View("overview.html", data)


def _matches(search: str, *texts: str) -> bool:
    return any(search.lower() in text.lower() for text in texts)


def _project(service: ReplayService, id: str) -> ListedProject:
    project = service.project(id)
    nodes, variables = project.state.get("nodes", []), project.state.get("variables", [])
    return ListedProject(project.id, project.name, project.updated_at, len(nodes), len(variables))


def _dataset(service: ReplayService, dataset: DatasetSummary, newest: str) -> ListedDataset:
    """Return a dataset with its last replay, and the project of that or else the newest project."""
    last = next(iter(service.replays(dataset.id, limit=1)), None)
    return ListedDataset(dataset, last.project_id if last else newest, last)


def _create(request: PageRequest) -> Redirect:
    service, what = service_of(request), request.field("create")
    if what == "project":
        return Redirect(request.url(f"/replay/{service.create_project(read_project(request)).id}"))
    if what == "dataset":
        dataset = service.create_dataset(read_dataset(request))
        project = next(iter(service.projects(1)), None)
        return Redirect(request.url(f"/replay/{project.id if project else NO_PROJECT}/{dataset.id}", tab="preview"))
    raise RequestError("validation_failed", f"create: expected project or dataset, got {what[:80]!r}")


PAGES = (Page("/replay", _show), Page("/replay", _create, "POST"))
