"""HTTP for llms and for targets behind an endpoint: pooled, bounded, tried again where that helps."""

from evalloom.core.http.client import MAX_BYTES, Client, find_proxy, is_loopback, is_secret
from evalloom.core.http.connection import Reply
from evalloom.core.http.retry import RETRIES, Sleep, retry, sleeping, status_error

__all__ = [
    "MAX_BYTES",
    "RETRIES",
    "Client",
    "Reply",
    "Sleep",
    "find_proxy",
    "is_loopback",
    "is_secret",
    "retry",
    "sleeping",
    "status_error",
]
