"""What client, workers and their child processes send each other."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any, NamedTuple

from msgspec import Struct

from evalloom.core.errors import BatchStop, BudgetSpent, EvalloomError, LlmUnavailable, TargetUnavailable
from evalloom.core.model import Profile
from evalloom.engine.executor import Checks
from evalloom.llms.clients import WHOLE, Share
from evalloom.settings import RunSettings, Settings
from evalloom.targets.base import Rebuild

HOME = "EVALLOOM_CLUSTER_HOME"
"""The variable with the folder whose .evalloom holds the cache of answers on a worker's machine."""
_LENGTH_BYTES = 8
PROTOCOL = 5


class Portable(Struct, frozen=True):
    """What a child process builds its plan from; the cases come later. It holds no key."""

    settings: Settings
    options: RunSettings
    profiles: tuple[Profile, ...] = ()
    target: Rebuild | None = None
    """None where runs are only scored."""
    checks: Checks = ()
    """The user's own checks, with the folder of the file that names them."""
    judge: str = ""


class Order(Struct, frozen=True):
    """What a worker needs to open its part of a batch."""

    id: str
    queue: str
    """The name of the queue that results go to."""
    bundle: str
    """The digest of the bundle of files."""
    base: str
    """Where the bundle was packed, so that the paths in a traceback are those of the client."""
    folder: str
    """The working folder in the bundle."""
    portable: bytes
    share: Share = WHOLE
    has_budget: bool = False


class Hello(Struct, frozen=True):
    """What a child process has built, to compare with what the client has."""

    target_digest: str = ""
    profile_digests: dict[str, str] = {}


class Control(Struct, frozen=True):
    """A change that the client announces to a child process while it runs."""

    share: Share | None = None
    generation: int = 0
    """Of the share or the lease, which the child confirms."""
    lease: tuple[float, float] | None = None
    """The cost and the tokens up to which calls may begin."""
    over: str = ""
    """Why nothing may begin any more."""
    recall: int = 0
    """How many jobs that have not begun to give back."""
    is_ping: bool = False
    """From the worker: the child answers at once."""


class Event(NamedTuple):
    """News from a child process: what it is about, the key of its job if it is about one, and the rest."""

    kind: str
    key: str = ""
    content: Any = None


def encode(value: object) -> bytes:
    return pickle.dumps(value, PROTOCOL)


def decode(data: bytes) -> Any:
    return pickle.loads(data)


def frame(data: bytes) -> bytes:
    """Return data with its length before it."""
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Return the next frame; raise IncompleteReadError at the end."""
    return await reader.readexactly(int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big"))


_STOPS: dict[str, type[BatchStop]] = {
    "budget": BudgetSpent,
    "llm": LlmUnavailable,
    "target": TargetUnavailable,
}


class RemoteBug(Exception):
    """A bug of evalloom in another process; the message is the traceback there."""


def describe_error(error: BaseException, traceback: str) -> tuple[str, ...]:
    """Return an error as texts, for the other side to raise again."""
    for name, kind in _STOPS.items():
        if isinstance(error, kind):
            return name, str(error)
    if isinstance(error, EvalloomError):
        return "error", error.code, str(error.args[0]), str(error.exit_code)
    return "bug", traceback


def as_error(described: tuple[str, ...]) -> BaseException:
    """Return the error that was described."""
    kind, *texts = described
    if kind in _STOPS:
        return _STOPS[kind](*texts)
    if kind == "bug":
        return RemoteBug(*texts)
    code, message, exit_code = texts
    return EvalloomError(code, message, int(exit_code))
