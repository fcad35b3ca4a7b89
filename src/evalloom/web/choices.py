"""What a form offers to run: targets found in the project, profiles and llms of the settings; and what it accepts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from time import monotonic

from msgspec import Struct

from evalloom.core.errors import EvalloomError
from evalloom.core.text import quote
from evalloom.engine.suite import SUITE, Suite, SuiteOptions
from evalloom.pages.errors import RequestError
from evalloom.pages.files import FoundFile, prompt_suffixes
from evalloom.pages.site import Site
from evalloom.targets import TargetOptions, forms

ECHO = "echo"
_SEARCH_S = 1.0
_MOST_TARGETS = 100
_LARGEST_PROMPT = 200_000
_PROMPT = re.compile(
    rb"""^["']?(system|system_prompt|user|user_template|template|prompt|messages)["']?\s*:|^-\s*role:|"(system|role)"\s*:""",
    re.MULTILINE,
)
"""What makes a prompt of YAML or JSON."""
_DOCUMENTS = {"a pipeline": "pipeline", "a context recipe": "recipe"}
"""The kind of target by the kind of document."""
_ELSEWHERE = ("http", "https", "python", "command")
"""Kinds of targets that are not files."""


class ProfileChoice(Struct, frozen=True):
    """A profile that can be ticked."""

    name: str
    model: str
    is_chosen: bool
    problem: str = ""
    """Why it cannot run."""


def targets(site: Site) -> list[str]:
    """Return the targets that the project has: that of evalloom.yaml, prompts, pipelines and recipes."""
    own = site.file_reports.settings().target
    found = [own] if isinstance(own, str) and own else []
    end = monotonic() + _SEARCH_S
    for file in site.files.search(suffixes=prompt_suffixes()).files:
        if len(found) >= _MOST_TARGETS or monotonic() > end:
            break
        if (target := _target_of(site, file)) and target not in found:
            found.append(target)
    return found


def _target_of(site: Site, file: FoundFile) -> str:
    if file.size > _LARGEST_PROMPT:
        return ""
    try:
        if file.path.endswith((".yaml", ".yml", ".json")):
            report = site.file_reports.get(file.path)
            if report is not None and report.kind in _DOCUMENTS:
                return f"{_DOCUMENTS[report.kind]}:{file.path}"
            if report is not None and report.is_dataset:
                return f"{SUITE}{file.path}" if _is_suite(site, file.path) else ""
            if report is None or report.is_document:
                return ""
        text = site.files.path(file.path).read_bytes()
    except (RequestError, OSError):
        return ""
    # Other YAML has placeholders too, such as the answers of a scripted model.
    is_prompt = b"{{" in text and (file.path.endswith((".md", ".txt", ".j2")) or _PROMPT.search(text) is not None)
    return f"prompt:{file.path}" if is_prompt else ""


def _is_suite(site: Site, path: str) -> bool:
    try:
        return suite_of(site, "", f"{SUITE}{path}", []) is not None
    except (RequestError, EvalloomError):
        return False


def suite_of(site: Site, data: str, target: str, profiles: list[str]) -> Suite | None:
    """Return the suite that a target or else a test file names; None if it is no suite, or another target is named.

    No code of the file runs for that.
    """
    settings = site.file_reports.settings()
    path = target.removeprefix(SUITE) if target.startswith(SUITE) else data
    if not path or (path is data and (target or settings.target or settings.targets)):
        return None
    allow_code = site.permissions.code or settings.run.allow_code
    options = TargetOptions(settings=settings, kinds=site.catalog.targets, allow_code=allow_code)
    suite = site.catalog.suite(site.files.path(path), SuiteOptions(settings, options, tuple(profiles)))
    if suite is not None:
        asyncio.run(_close(suite))
    return suite


async def _close(suite: Suite) -> None:
    await suite.target.close()


def providers(suite: Suite) -> list[ProfileChoice]:
    """Return what `--profile` calls the providers of a suite: one by its name, if that is understood."""
    choices: dict[str, str] = {}
    for column in suite.columns:
        provider = column.variant.rpartition("@")[0]
        is_understood = provider in (column.name, column.run, column.name.split("@")[0])
        llm = suite.llms.get(column.run)
        choices[provider if is_understood else column.name] = llm.model if llm else ""
    return [ProfileChoice(name, model, False) for name, model in choices.items()]


def columns(suite: Suite, chosen: list[str]) -> list[ProfileChoice]:
    """Return the columns of a suite, prompt × provider, with why one cannot run."""
    choices = []
    for column in suite.columns:
        llm = suite.llms.get(column.run)
        problem = suite.unusable.get(column.name, "")
        choices.append(ProfileChoice(column.name, llm.model if llm else "", column.name in chosen, problem))
    return choices


def profiles(site: Site, chosen: list[str], own: Collection[ProfileChoice] = ()) -> list[ProfileChoice]:
    """Return those of a file, the profiles and llms of the settings, and `echo`, which needs no key."""
    settings = site.file_reports.settings()
    models = {
        name: settings.llms[profile.run].model
        for name, profile in settings.profiles.items()
        if profile.run in settings.llms
    }
    models |= {name: llm.model for name, llm in settings.llms.items() if name not in settings.profiles}
    models |= {choice.name: choice.model for choice in own}
    names = dict.fromkeys([*(choice.name for choice in own), *settings.profiles, *models, ECHO])
    return [ProfileChoice(name, models.get(name, ""), name in chosen) for name in names]


def llms(site: Site) -> list[str]:
    """Return the llms that can judge."""
    return list(site.file_reports.settings().llms)


def check_target(site: Site, target: str) -> None:
    """Raise for a target that is none, or that is a file outside of the project."""
    own = site.settings.target
    if not target or target == own:
        return
    name, colon, what = target.partition(":")
    kind = name.strip().lower()
    kinds = [kind.name for kind in site.catalog.all_targets]
    if not colon or not what.strip() or kind not in (*kinds, "https", "suite") or not target.isprintable():
        expected = f"{forms(site.catalog.all_targets)}, {SUITE}FILE"
        raise RequestError("validation_failed", f"target: expected {expected}, got {quote(target, 100)}")
    is_text = kind == "prompt" and ("{{" in what or "{%" in what)
    if kind not in _ELSEWHERE and not is_text and not site.files.contains(what.strip()):
        message = f"target: {quote(what, 100)} is outside of this folder, and pages run only what is in it"
        raise RequestError("not_allowed_here", message)


def check_profiles(site: Site, names: list[str], own: Collection[ProfileChoice] = ()) -> None:
    """Raise for a profile that the form does not offer."""
    known = [profile.name for profile in profiles(site, [], own)]
    for name in names:
        if name not in known:
            raise RequestError("validation_failed", f"profile: expected {', '.join(known)}, got {quote(name, 100)}")


def option(name: str, value: str) -> list[str]:
    """Return an option as words; a value that begins with `-` cannot be taken for another option."""
    return [f"{name}={value}"] if value.startswith("-") else [name, value]


def file_word(path: str) -> str:
    """Return the path of a file as a word that cannot be taken for an option."""
    return f"./{path}" if path.startswith("-") else path
