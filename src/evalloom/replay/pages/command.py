"""The command that replays files again. Their paths are not stored: the files are found by the ids of their replays."""

from __future__ import annotations

from pathlib import Path
from shlex import join

from evalloom.core.errors import EvalloomError
from evalloom.pages.errors import RequestError
from evalloom.pages.site import Site
from evalloom.replay.files import id_of, project_id
from evalloom.replay.recipe.document import RecipeFile
from evalloom.replay.service import ReplaySummary

_RECIPE = "a context recipe"
_DATA_DIR = Path(".evalloom")


def replay_command(site: Site, replay: ReplaySummary | None) -> str:
    """Return the command that makes a replay again; empty if its files are not in this folder, or not only there."""
    if replay is None:
        return ""
    paths = [file.path for file in site.files.search().files]
    datasets = [path for path in paths if id_of(path, "rows") == replay.dataset_id]
    projects = [path for path in paths if _is_recipe(site, path, replay.project_id)] if len(datasets) == 1 else []
    if len(projects) != 1:
        return ""
    words = ["evalloom", "replay", "--project", projects[0], "--dataset", datasets[0]]
    words += ["--profile", replay.profile] if replay.profile else []
    words += ["--data-dir", str(site.data_dir)] if site.data_dir != _DATA_DIR else []
    return join(words)


def _is_recipe(site: Site, path: str, id: str) -> bool:
    try:
        report = site.file_reports.get(path)
        return report is not None and report.kind == _RECIPE and project_id(RecipeFile(site.files.path(path))) == id
    except (EvalloomError, RequestError):
        return False
