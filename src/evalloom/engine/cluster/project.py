"""What workers build the plan of a batch from: the files of the project, its settings and its target, without keys."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from evalloom.core.errors import EvalloomError
from evalloom.engine.cluster import bundle
from evalloom.engine.cluster.bundle import Bundle
from evalloom.engine.cluster.wire import Hello, Portable
from evalloom.engine.executor import Checks
from evalloom.engine.plan import Plan
from evalloom.engine.watch import watched_files
from evalloom.settings import secrets as secrets_of
from evalloom.targets.base import NO_TARGET


class Project(Struct, frozen=True):
    """A packed project, and what a worker builds from it if it has the same packages."""

    bundle: Bundle
    portable: bytes
    hello: Hello


def pack(plan: Plan, checks: Checks) -> Project:
    """Pack the project of a plan; refuse what cannot travel, and keys."""
    target, settings = plan.target, plan.settings
    if target.rebuild is None and target is not NO_TARGET:
        raise bundle.not_portable(f"the target {target.name} cannot be built on another machine")
    root = settings.folder if settings.path else next((path.parent for path in target.watch), Path())
    secrets = [*secrets_of(settings), *target.secrets]
    # A config that names prompts and tests is a dataset, and the target is read from it.
    own = {path.absolute() for path in target.watch}
    datasets = [source.path for source in plan.sources if source.path and source.path.absolute() not in own]
    watched = [path for path in watched_files(plan) if path not in datasets]
    packed = bundle.pack([root, *target.folders], watched, datasets, secrets)
    portable = Portable(
        msgspec.structs.replace(settings, written=None, datasets=[], gates=[]),
        # Limits of the batch are kept here, and the output is written here.
        msgspec.structs.replace(plan.options, max_cost=None, max_tokens=None, max_time=None, output=[]),
        plan.profiles,
        target.rebuild,
        checks,
        plan.judge,
    )
    encoded = bundle.pack_value(portable, packed.base)
    if any(secret.encode() in encoded for secret in secrets):
        hint = "Keys stay on this machine: name the variable of a key in evalloom.yaml, not its value"
        raise EvalloomError("key_in_bundle", f"the settings or the target contain the value of a key. {hint}", 2)
    return Project(packed, encoded, Hello(target.digest, plan.profile_digests()))
