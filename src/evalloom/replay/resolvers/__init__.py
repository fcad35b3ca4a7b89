"""Resolvers look up dynamic variables, each by the scheme that the variable names (REPLAY-5)."""

from __future__ import annotations

import re
from time import monotonic

from evalloom.core.errors import CallError
from evalloom.core.text import did_you_mean, printable, quote, shorten
from evalloom.replay.resolvers.base import (
    MOST_BYTES,
    Reach,
    Resolution,
    Resolver,
    ResolverCall,
    Source,
    clamp,
    reach_of,
)
from evalloom.replay.resolvers.databases import read_source, read_sqlite
from evalloom.replay.resolvers.local import read_chat, read_file, read_variable
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
"""The resolvers by scheme."""
_LONGEST_RESOLVER = 4_096
_LONGEST_MESSAGE = 500
_LONGEST_TARGET = 80


def resolve(resolver: str, value: str, reach: Reach) -> Resolution:
    """Look up a dynamic variable within the time-out. Blocks, and never raises: a failure is a resolution too."""
    started = monotonic()
    scheme, separator, target = _encodable(resolver).strip().partition("://")
    call = ResolverCall(scheme.lower(), target, _encodable(value), reach, started + reach.timeout_s)
    text = error_code = message = ""
    is_cut = False
    try:
        if len(resolver) > _LONGEST_RESOLVER:
            # Checking paths and host names takes time that grows with the square of their length.
            message = f"expected a resolver of at most {_LONGEST_RESOLVER:,} characters, got {len(resolver):,}"
            raise CallError("connect_failed", message)
        read = _find_resolver(call.scheme, is_url=bool(separator))
        # Secrets are hidden before the text is cut, since half a secret is no longer recognised.
        text, is_cut = clamp(reach.hide(_encodable(read(call))))
    except CallError as error:
        error_code = error.code
        message = reach.hide(printable(f"{_describe(call)}{error.message}"))[:_LONGEST_MESSAGE]
    return Resolution(text, error_code, message, round((monotonic() - started) * 1000, 3), is_cut)


def _find_resolver(scheme: str, is_url: bool) -> Resolver:
    known = ", ".join(f"{name}://" for name in RESOLVERS)
    if not scheme and not is_url:
        raise CallError("resolver_missing", f"a dynamic variable needs a resolver that begins with one of {known}")
    # The part after an unknown scheme is not shown: it may be a password.
    if not is_url:
        raise CallError(
            "unsupported_scheme", f"expected a resolver that begins with one of {known}, got one without ://"
        )
    if scheme not in RESOLVERS:
        message = f"expected a resolver that begins with one of {known}, got {quote(scheme + '://')}"
        raise CallError("unsupported_scheme", f"{message}{did_you_mean(scheme, RESOLVERS)}")
    return RESOLVERS[scheme]


def _encodable(text: str) -> str:
    """Replace what is not valid Unicode, which an environment variable may contain."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _describe(call: ResolverCall) -> str:
    """Return the beginning of a message. Of a URL it shows the host only, since the rest may be secret."""
    if call.scheme not in RESOLVERS:
        return ""
    target = call.target
    if RESOLVERS[call.scheme] is read_url:
        target = re.split("[/?#]", target, maxsplit=1)[0].rpartition("@")[2]
    return f"{call.scheme}://{shorten(target, _LONGEST_TARGET)}: "
