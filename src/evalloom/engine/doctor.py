"""`evalloom doctor`: check versions, settings, keys and endpoints."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
from msgspec import Struct

import evalloom
from evalloom.analysis import gates
from evalloom.batchlog import FOLDER
from evalloom.core.errors import CallError, EvalloomError
from evalloom.core.http import display_url
from evalloom.core.model import Request
from evalloom.engine.loop import run_loop
from evalloom.engine.prepare import refuse_without_sandbox
from evalloom.engine.system import Catalog
from evalloom.llms import OFFLINE, LlmOptions, Llms
from evalloom.settings import FILE_NAME, Settings, environment, key_of, keys, llm_of
from evalloom.settings import load as load_settings
from evalloom.settings import secrets as secrets_of
from evalloom.targets import BuiltTarget, TargetOptions, build

_PACKAGES = ("httptools", "uvloop", "msgspec", "orjson", "click", "rich", "numpy", "rapidfuzz", "PyYAML")
_ANSWER_S = 30.0
_QUESTION = Request([{"role": "user", "content": "Say ok."}])
_ADVICE = {
    "http_401": "the key is not accepted: correct the variable that holds it",
    "http_402": "the account has no credit left",
    "http_403": "the key has no permission for this model or from this place",
    "http_404": "there is no such model or path: correct model or base_url",
    "http_429": "too many requests, or no quota left: try again later",
    "timeout": "the server is slow or overloaded: try again, or raise timeout_s",
    "cannot_connect": "start the server, or correct base_url",
    "bad_answer": "base_url or protocol may be another server's: it does not answer as an llm does",
}
"""What to do about an error of an endpoint, by its code."""


class Diagnosis(Struct, frozen=True, rename={"message": "told"}):
    """The state of one thing that a run needs: ok, warning or error. `hint` says what to do about it."""

    subject: str
    state: str
    message: str
    hint: str = ""


def examine(catalog: Catalog, config: str = "", is_offline: bool = False) -> list[Diagnosis]:
    """Check versions, settings, keys and endpoints: asks each llm one short question. Shows no key."""
    diagnoses = [*_versions(), *_systems(catalog), _batch_folder()]
    try:
        settings = load_settings(Path(config) if config else None, catalog.sections)
    except EvalloomError as error:
        return [
            *diagnoses,
            Diagnosis("settings", "error", str(error), "fix the file; docs/settings.md describes every key"),
        ]
    where = settings.path.as_posix() if settings.path else f"no {FILE_NAME} here"
    diagnoses.append(Diagnosis("settings", "ok", where))
    target = _target(settings, catalog) if settings.target else None
    diagnoses += _profiles(settings, needs_llm=not isinstance(target, BuiltTarget) or target.needs_llm)
    diagnoses += _provider_keys(settings)
    diagnoses += [_key(settings, name) for name in _llm_names(settings)]
    if target is not None:
        diagnoses.append(Diagnosis("target", "ok", target.name) if isinstance(target, BuiltTarget) else target)
    diagnoses += _checks(settings, catalog)
    if not is_offline:
        diagnoses += run_loop(_endpoints(settings))
    secrets = secrets_of(settings)
    return [msgspec.structs.replace(item, message=keys.hidden(item.message, secrets)) for item in diagnoses]


def _versions() -> Iterator[Diagnosis]:
    yield Diagnosis("evalloom", "ok", evalloom.__version__)
    yield Diagnosis("python", "ok", f"{platform.python_version()} on {sys.platform}")
    for name in _PACKAGES:
        try:
            yield Diagnosis(name, "ok", version(name))
        except PackageNotFoundError:
            yield Diagnosis(name, "warning", "not installed", f"pip install {name}")


def _systems(catalog: Catalog) -> Iterator[Diagnosis]:
    """Systems of other packages, and those that could not be loaded."""
    for system in catalog.systems:
        if system.package:
            yield Diagnosis(f"system {system.name}", "ok", f"{system.title}, from {system.package}")
    for failure in catalog.failures:
        hint = "fix or remove that package; everything else works without it"
        yield Diagnosis(f"system {failure.name}", "error", failure.reason, hint)


def _batch_folder() -> Diagnosis:
    folder = next(path for path in (FOLDER, *FOLDER.parents) if path.exists())
    if folder.is_dir() and os.access(folder, os.W_OK):
        return Diagnosis("batches", "ok", f"{FOLDER.as_posix()} can be written")
    return Diagnosis(
        "batches", "error", f"{folder.absolute().as_posix()} cannot be written", "run in a folder of your own"
    )


def _profiles(settings: Settings, needs_llm: bool) -> Iterator[Diagnosis]:
    for name, profile in settings.profiles.items():
        verify = f", verify {profile.verify}" if profile.verify != profile.run else ""
        yield Diagnosis(f"profile {name}", "ok", f"run {profile.run}{verify}")
    if not settings.profiles and not settings.llms and not needs_llm:
        yield Diagnosis("profiles", "ok", "none, and the target needs none")
    elif not settings.profiles and not settings.llms:
        hint = "add llms and profiles to evalloom.yaml, or name one: --profile echo"
        yield Diagnosis("profiles", "warning", "none in the settings", hint)


def _llm_names(settings: Settings) -> list[str]:
    """The llms of the settings: those declared, and those that a profile, the judge or the embeddings name."""
    profiles = [name for profile in settings.profiles.values() for name in (profile.run, profile.verify)]
    names = [*settings.llms, *profiles, settings.judge, settings.embeddings]
    return [name for name in dict.fromkeys(names) if name]


def _provider_keys(settings: Settings) -> Iterator[Diagnosis]:
    """The providers whose key is in the environment, so that a name such as groq:MODEL can be used."""
    from evalloom.settings.vendors import VENDORS  # deferred: other commands need no table

    variables = environment(settings.folder)
    present = {
        vendor.name: name for vendor in VENDORS for name in reversed(vendor.keys) if variables.get(name, "").strip()
    }
    if present:
        yield Diagnosis("providers", "ok", ", ".join(f"{vendor} ({name})" for vendor, name in present.items()))


def _key(settings: Settings, name: str) -> Diagnosis:
    try:
        key = key_of(settings.llms.get(name) or llm_of(settings, name))
    except EvalloomError as error:
        return Diagnosis(f"key of {name}", "error", error.args[0])
    return Diagnosis(f"key of {name}", "ok", "present" if key else "none needed")


def _target(settings: Settings, catalog: Catalog) -> BuiltTarget | Diagnosis:
    """Return the target of the settings, or why it cannot be built."""
    run = settings.run
    options = TargetOptions(
        allow_code=run.allow_code, settings=settings, kinds=catalog.targets, variants=tuple(run.variants)
    )
    try:
        if run.allow_code:
            refuse_without_sandbox()
        return build(settings.target, settings.folder, options)
    except EvalloomError as error:
        return Diagnosis("target", "error", str(error))


def _checks(settings: Settings, catalog: Catalog) -> Iterator[Diagnosis]:
    """Checks and gates that are invalid."""
    parsers: list[Callable[[], object]] = [partial(catalog.matchers.parse, check) for check in settings.checks]
    parsers += [partial(gates.parse, gate) for gate in settings.gates]
    for parse in parsers:
        try:
            parse()
        except EvalloomError as error:
            yield Diagnosis("checks and gates", "error", str(error))


async def _endpoints(settings: Settings) -> list[Diagnosis]:
    return list(
        await asyncio.gather(*(_ask(settings, name) for name in _llm_names(settings) if _is_remote(settings, name)))
    )


def _is_remote(settings: Settings, name: str) -> bool:
    try:
        return llm_of(settings, name).protocol not in OFFLINE
    except EvalloomError:
        return True  # the answer to the question says why


async def _ask(settings: Settings, name: str) -> Diagnosis:
    """Ask an llm one cheap question, with its key, as a run would."""
    subject = f"endpoint of {name}"
    try:
        llm = llm_of(settings, name)
        key_of(llm)
    except EvalloomError as error:
        return Diagnosis(subject, "error", f"not asked: {error}")
    once = msgspec.structs.replace(llm, retries=0, timeout_s=min(llm.timeout_s, _ANSWER_S))
    llms = Llms(msgspec.structs.replace(settings, llms={name: once}), LlmOptions(use_cache=False))
    shown = display_url(llm.base_url)
    try:
        if _only_embeds(settings, name):
            await llms.embedder(name)(["ok"])
        else:
            await _question(llms, name)
    except CallError as error:
        is_failing = error.code.startswith("http_5")
        hint = "the server failed: read its log, or try again later" if is_failing else _ADVICE.get(error.code, "")
        where = "" if shown in error.message else f"{shown}: "
        return Diagnosis(subject, "error", f"{where}{error}", hint)
    finally:
        await llms.close()
    return Diagnosis(subject, "ok", f"{shown} answers as {llm.model}")


async def _question(llms: Llms, name: str) -> None:
    try:
        await llms.get(name)(msgspec.structs.replace(_QUESTION, params={"max_tokens": 1}))
    except CallError as error:
        if error.code not in ("http_400", "http_422"):
            raise
        # Some models call the limit otherwise, or need a larger one to think.
        await llms.get(name)(_QUESTION)


def _only_embeds(settings: Settings, name: str) -> bool:
    """Whether an llm is named for embeddings and for nothing else."""
    asked = {llm for profile in settings.profiles.values() for llm in (profile.run, profile.verify)}
    return name == settings.embeddings and name not in asked and name != settings.judge
