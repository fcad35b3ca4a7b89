"""URLs of servers: adds a path to a base URL, and shows a URL without its secrets."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from evalloom.core.errors import CallError
from evalloom.core.lazy import lazy_pattern

_SECRET_PARAMETER = lazy_pattern(r"([^=&]*(?:key|token|secret|sig|pass|auth|code)[^=&]*=)[^&]+", re.IGNORECASE)


def join_path(base_url: str, path: str, replacing: str = "") -> str:
    """Add a path to a base URL, in front of its query, as in `…/gpt-4o?api-version=2024-10-21`.

    A base that ends with `replacing` loses that first.
    """
    base, mark, query = base_url.partition("?")
    return base.rstrip("/").removesuffix(replacing) + path + mark + query


def display_url(url: str) -> str:
    """Return a URL as messages show it: without user, password and the keys in its query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    query = _SECRET_PARAMETER.sub(r"\1…", parts.query)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query, fragment="").geturl()


def at_url(error: CallError, url: str) -> CallError:
    """Return an error whose message also says which server it is about."""
    return CallError(error.code, f"{error.message} ({display_url(url)})", error.is_transient, error.retry_after)
