"""Starts a command from a page, for those who may."""

from __future__ import annotations

from collections.abc import Sequence

from evalloom.pages.errors import RequestError
from evalloom.pages.page import PageRequest, Redirect
from evalloom.settings import Settings

_CODE_TARGETS = ("python:", "command:")
"""Targets that run whatever their text names, so that a batch from elsewhere could run anything."""
_WAIT_S = 5.0


def start(request: PageRequest, words: Sequence[str]) -> Redirect:
    """Start a command for somebody who may, and return the page where it can be watched."""
    check_permissions(request, words)
    job = request.site.jobs.start(words, [request.site.token])
    job = request.site.jobs.wait_for_batch(job.id, _WAIT_S)
    return Redirect(f"/b/{job.batch}" if job.batch and job.state != "failed" else f"/jobs/{job.id}")


def check_permissions(request: PageRequest, words: Sequence[str]) -> None:
    """Raise if pages of this server may not start a command."""
    permissions = request.site.permissions
    if not permissions.run:
        message = "pages of this server start nothing. Start it with 'evalloom serve --allow-run' or 'evalloom view'"
        raise RequestError("not_allowed_here", message)
    if permissions.code:
        return
    if "--allow-code" in words:
        message = "--allow-code: this server does not let pages run code. Start it with --allow-code"
        raise RequestError("not_allowed_here", message)
    target = _target(words)
    if target.startswith(_CODE_TARGETS) and target != _own_target(request.site.settings):
        message = (
            f"{target}: is code that evalloom.yaml does not name. Name it there, or start the server with --allow-code"
        )
        raise RequestError("not_allowed_here", message)


def _target(words: Sequence[str]) -> str:
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == "--target":
            return following
        if word.startswith("--target="):
            return word.partition("=")[2]
    return ""


def _own_target(settings: Settings) -> str:
    target = settings.target
    return target if isinstance(target, str) else ""
