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
from evalloom.core.http import Client
from evalloom.engine.loop import run_loop
from evalloom.engine.prepare import refuse_without_sandbox
from evalloom.engine.system import Catalog
from evalloom.llms import OFFLINE
from evalloom.settings import FILE_NAME, LlmSettings, Settings, key_of, keys, llm_of
from evalloom.settings import load as load_settings
from evalloom.settings import secrets as secrets_of
from evalloom.targets import TargetOptions, build

_PACKAGES = ("httptools", "uvloop", "msgspec", "orjson", "click", "rich", "numpy", "rapidfuzz", "PyYAML")
_REACH_S = 5.0


class Diagnosis(Struct, frozen=True, rename={"message": "told"}):
    """The state of one thing that a run needs: ok, warning or error. `hint` says what to do about it."""

    subject: str
    state: str
    message: str
    hint: str = ""


def examine(catalog: Catalog, config: str = "", is_offline: bool = False) -> list[Diagnosis]:
    """Check versions, settings, keys and endpoints. Sends no prompt and shows no key."""
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
    diagnoses += _profiles(settings)
    diagnoses += [_key(llm) for llm in settings.llms.values()]
    if settings.target:
        diagnoses.append(_target(settings, catalog))
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


def _profiles(settings: Settings) -> Iterator[Diagnosis]:
    for name, profile in settings.profiles.items():
        verify = f", verify {profile.verify}" if profile.verify != profile.run else ""
        yield Diagnosis(f"profile {name}", "ok", f"run {profile.run}{verify}")
    if not settings.profiles and not settings.llms:
        hint = "add llms and profiles to evalloom.yaml, or name one: --profile echo"
        yield Diagnosis("profiles", "warning", "none in the settings", hint)


def _key(llm: LlmSettings) -> Diagnosis:
    try:
        key = key_of(llm)
    except EvalloomError as error:
        return Diagnosis(f"key of {llm.name}", "error", error.args[0])
    return Diagnosis(f"key of {llm.name}", "ok", "present" if key else "none needed")


def _target(settings: Settings, catalog: Catalog) -> Diagnosis:
    run = settings.run
    options = TargetOptions(
        allow_code=run.allow_code, settings=settings, kinds=catalog.targets, variants=tuple(run.variants)
    )
    try:
        if run.allow_code:
            refuse_without_sandbox()
        target = build(settings.target, settings.folder, options)
    except EvalloomError as error:
        return Diagnosis("target", "error", str(error))
    return Diagnosis("target", "ok", target.name)


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
    remote = [name for name, llm in settings.llms.items() if llm.protocol not in OFFLINE]
    return list(await asyncio.gather(*(_reach(settings, name) for name in remote)))


async def _reach(settings: Settings, name: str) -> Diagnosis:
    """Send a request without a key: any HTTP status shows that the server is up."""
    subject = f"endpoint of {name}"
    try:
        llm = llm_of(settings, name)
    except EvalloomError as error:
        return Diagnosis(subject, "error", str(error))
    client = Client(_REACH_S)
    try:
        reply = await client.send("GET", llm.base_url.rstrip("/") + "/models")
    except CallError as error:
        return Diagnosis(subject, "error", f"{llm.base_url}: {error}", "start the server, or correct base_url")
    finally:
        await client.close()
    return Diagnosis(subject, "ok", f"{llm.base_url} answers (HTTP {reply.status} without a key)")
