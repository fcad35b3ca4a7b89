"""`evalloom doctor`: is everything there that a run needs?"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from collections.abc import Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
from msgspec import Struct

import evalloom
from evalloom import settings
from evalloom.analysis import gates
from evalloom.batchlog import FOLDER
from evalloom.core.errors import CallError, EvalloomError
from evalloom.core.http import Client
from evalloom.engine.loop import run_loop
from evalloom.engine.system import Catalog
from evalloom.settings import LlmSettings, Settings, keys
from evalloom.targets import TargetOptions, build

_PACKAGES = ("httptools", "uvloop", "msgspec", "orjson", "click", "rich", "numpy", "rapidfuzz", "PyYAML")
_REACH_S = 5.0


class Found(Struct, frozen=True):
    """One thing that was looked at; `state` is ok, warning or error, and `hint` says what to do."""

    subject: str
    state: str
    told: str
    hint: str = ""


def examine(catalog: Catalog, config: str = "", is_offline: bool = False) -> list[Found]:
    """Looks at versions, settings, keys and endpoints. Sends no prompt and shows no key."""
    found = [*_versions(), *_systems(catalog), _folder()]
    try:
        known = settings.load(Path(config) if config else None, catalog.sections)
    except EvalloomError as fault:
        return [*found, Found("settings", "error", str(fault), "mend the file; docs/settings.md shows all of it")]
    where = known.path.as_posix() if known.path else f"no {settings.FILE_NAME} here"
    found.append(Found("settings", "ok", where))
    found += _profiles(known)
    found += [_key(llm) for llm in known.llms.values()]
    if known.target:
        found.append(_target(known, catalog))
    found += _checks(known, catalog)
    if not is_offline:
        found += run_loop(_endpoints(known))
    secrets = settings.secrets(known)
    return [msgspec.structs.replace(one, told=keys.hidden(one.told, secrets)) for one in found]


def _versions() -> Iterator[Found]:
    yield Found("evalloom", "ok", evalloom.__version__)
    yield Found("python", "ok", f"{platform.python_version()} on {sys.platform}")
    for name in _PACKAGES:
        try:
            yield Found(name, "ok", version(name))
        except PackageNotFoundError:
            yield Found(name, "warning", "not installed", f"pip install {name}")


def _systems(catalog: Catalog) -> Iterator[Found]:
    """Each system of another package, and each that could not be loaded."""
    for system in catalog.systems:
        if system.package:
            yield Found(f"system {system.name}", "ok", f"{system.title}, from {system.package}")
    for failure in catalog.failures:
        hint = "mend or remove that package; everything else works without it"
        yield Found(f"system {failure.name}", "error", failure.reason, hint)


def _folder() -> Found:
    folder = next(path for path in (FOLDER, *FOLDER.parents) if path.exists())
    if folder.is_dir() and os.access(folder, os.W_OK):
        return Found("batches", "ok", f"{FOLDER.as_posix()} can be written")
    return Found("batches", "error", f"{folder.absolute().as_posix()} cannot be written", "run in a folder of your own")


def _profiles(known: Settings) -> Iterator[Found]:
    for name, profile in known.profiles.items():
        verify = f", verify {profile.verify}" if profile.verify != profile.run else ""
        yield Found(f"profile {name}", "ok", f"run {profile.run}{verify}")
    if not known.profiles and not known.llms:
        hint = "add llms and profiles to evalloom.yaml, or name one: --profile echo"
        yield Found("profiles", "warning", "none in the settings", hint)


def _key(llm: LlmSettings) -> Found:
    try:
        key = settings.key_of(llm)
    except EvalloomError as fault:
        return Found(f"key of {llm.name}", "error", fault.args[0])
    return Found(f"key of {llm.name}", "ok", "present" if key else "none needed")


def _target(known: Settings, catalog: Catalog) -> Found:
    try:
        target = build(known.target, known.folder, TargetOptions(settings=known, kinds=catalog.targets))
    except EvalloomError as fault:
        return Found("target", "error", str(fault))
    return Found("target", "ok", target.name)


def _checks(known: Settings, catalog: Catalog) -> Iterator[Found]:
    """Checks and gates that cannot be read; those that can are no news."""
    readers = [partial(catalog.matchers.parse, one) for one in known.checks] + [
        partial(gates.parse, one) for one in known.gates
    ]
    for read in readers:
        try:
            read()
        except EvalloomError as fault:
            yield Found("checks and gates", "error", str(fault))


async def _endpoints(known: Settings) -> list[Found]:
    remote = [name for name, llm in known.llms.items() if llm.protocol not in ("scripted", "echo")]
    return list(await asyncio.gather(*(_reach(known, name) for name in remote)))


async def _reach(known: Settings, name: str) -> Found:
    """Any answer will do: it shows that somebody is there."""
    subject = f"endpoint of {name}"
    try:
        llm = settings.llm_of(known, name)
    except EvalloomError as fault:
        return Found(subject, "error", str(fault))
    client = Client(_REACH_S)
    try:
        reply = await client.send("GET", llm.base_url.rstrip("/") + "/models")
    except CallError as fault:
        return Found(subject, "error", f"{llm.base_url}: {fault}", "start the server, or correct base_url")
    finally:
        await client.close()
    return Found(subject, "ok", f"{llm.base_url} answers (HTTP {reply.status} without a key)")
