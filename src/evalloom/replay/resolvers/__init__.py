"""The shelf of resolvers: where the value of a dynamic variable comes from, by the scheme it names (REPLAY-5)."""

from __future__ import annotations

import re
from time import monotonic

from evalloom.core.errors import CallError
from evalloom.core.text import did_you_mean, printable, quote, shorten
from evalloom.replay.resolvers.call import Call, Reach, Resolver, Source, reach_of
from evalloom.replay.resolvers.env import read_variable
from evalloom.replay.resolvers.files import read_chat, read_file
from evalloom.replay.resolvers.resolution import MOST_BYTES, Resolution, clamp
from evalloom.replay.resolvers.sql import read_source
from evalloom.replay.resolvers.sqlite import read_sqlite
from evalloom.replay.resolvers.web import read_url

__all__ = ["MOST_BYTES", "RESOLVERS", "Reach", "Resolution", "Source", "clamp", "reach_of", "resolve"]

RESOLVERS: dict[str, Resolver] = {
    "sqlite": read_sqlite,
    "sql": read_source,
    "chat": read_chat,
    "env": read_variable,
    "file": read_file,
    "http": read_url,
    "https": read_url,
}
"""Who reads for each scheme."""
_LONGEST_RESOLVER = 4_096
_LONGEST_MESSAGE = 500
_LONGEST_TARGET = 80


def resolve(resolver: str, value: str, reach: Reach) -> Resolution:
    """What a dynamic variable comes to, within the time-out. Blocks, and never raises: failing is a resolution too."""
    started = monotonic()
    scheme, separator, target = _encodable(resolver).strip().partition("://")
    call = Call(scheme.lower(), target, _encodable(value), reach, started + reach.timeout_s)
    try:
        if len(resolver) > _LONGEST_RESOLVER:
            # Paths and host names take time that grows with the square of their length.
            message = f"expected a resolver of at most {_LONGEST_RESOLVER:,} characters, got {len(resolver):,}"
            raise CallError("connect_failed", message)
        text = _resolver(call.scheme, is_url=bool(separator))(call)
        # Hidden before it is cut, since half a secret would no longer be known as one.
        text, is_cut = clamp(reach.hide(_encodable(text)))
        return Resolution(text, duration_ms=_elapsed_ms(started), truncated=is_cut)
    except CallError as error:
        message = reach.hide(printable(f"{_shown(call)}{error.message}"))[:_LONGEST_MESSAGE]
        return Resolution(error_code=error.code, message=message, duration_ms=_elapsed_ms(started))


def _resolver(scheme: str, is_url: bool) -> Resolver:
    known = ", ".join(f"{name}://" for name in RESOLVERS)
    if not scheme and not is_url:
        raise CallError("resolver_missing", f"a dynamic variable needs a resolver that begins with one of {known}")
    # What stands behind an unknown scheme is not shown: it may be a password.
    if not is_url:
        raise CallError(
            "unsupported_scheme", f"expected a resolver that begins with one of {known}, got one without ://"
        )
    if scheme not in RESOLVERS:
        message = f"expected a resolver that begins with one of {known}, got {quote(scheme + '://')}"
        raise CallError("unsupported_scheme", f"{message}{did_you_mean(scheme, RESOLVERS)}")
    return RESOLVERS[scheme]


def _elapsed_ms(started: float) -> float:
    return round((monotonic() - started) * 1000, 3)


def _encodable(text: str) -> str:
    """A text that is valid Unicode: an environment may hold other things."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _shown(call: Call) -> str:
    """The beginning of a message; of a URL only the host, since what stands around it may be secret."""
    if call.scheme not in RESOLVERS:
        return ""
    target = call.target
    if RESOLVERS[call.scheme] is read_url:
        target = re.split("[/?#]", target, maxsplit=1)[0].rpartition("@")[2]
    return f"{call.scheme}://{shorten(target, _LONGEST_TARGET)}: "
