"""Starts a replay from a page, and says where its result is shown."""

from __future__ import annotations

from evalloom.core.model import Record
from evalloom.core.text import quote
from evalloom.pages.errors import RequestError
from evalloom.pages.page import PageRequest, Redirect
from evalloom.pages.start import check_permissions
from evalloom.replay.pages import history
from evalloom.replay.pages.mounted import mounted
from evalloom.replay.requests import MOST_ROWS
from evalloom.replay.server.endpoints import list_profiles


def profiles_for(request: PageRequest) -> list[str]:
    """Return the profiles that this page may send contexts to."""
    return list_profiles(request.site.settings) if request.may_write and request.site.permissions.run else []


def start(request: PageRequest, project: str, dataset: str, options: Record, to_comparison: bool = False) -> Redirect:
    """Replay a stored dataset through a stored project; go to the changes if `to_comparison` is set and there are two.

    `options` are those of the HTTP API: `limit`, `offset` and `profile`.
    """
    started = mounted(request).background.start(dataset, {"projectId": project, **options})
    path = f"/replay/{project}/{dataset}"
    if not started.is_running and not started.replay_id:
        message = f"offset: expected a row of the dataset, got {options.get('offset', 0):,}, and it has fewer"
        raise RequestError("validation_failed", message)
    if to_comparison and not started.is_running:
        service = mounted(request).service
        older = history.before(service, history.find_replay(service, dataset, started.replay_id))
        if older is not None:
            return Redirect(request.url(f"{path}/compare", a=older.replay.id, b=started.replay_id))
    return Redirect(request.url(path))


def options_of(request: PageRequest) -> Record:
    """Read the fields of the form *Replay*; a profile costs money and needs the permission to run."""
    options: Record = {}
    for name, least in (("limit", 1), ("offset", 0)):
        text = request.field(name).strip()
        if not text:
            continue
        if not (text.isascii() and text.isdecimal() and least <= int(text[:20]) <= MOST_ROWS):
            message = f"{name}: expected a whole number from {least} to {MOST_ROWS:,}, got {text[:80]!r}"
            raise RequestError("validation_failed", message)
        options[name] = int(text)
    if profile := request.field("profile"):
        check_permissions(request, ("replay", "--profile", profile))
        known = list_profiles(request.site.settings)
        if profile not in known:
            raise RequestError("validation_failed", f"profile: expected {' or '.join(known)}, got {quote(profile)}")
        options["profile"] = profile
    return options
