"""An HTTP client for llms and HTTP targets: pooled connections, bounded answers, retries."""

from __future__ import annotations

from evalloom.core.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from evalloom.core.http.attempts import RETRIES, Sleep, Wait, retry, sleeping, status_error, waiting
    from evalloom.core.http.client import MAX_BYTES, Client, find_proxy, is_loopback
    from evalloom.core.http.reply import Reply, is_secret
    from evalloom.core.http.traced import HttpRequest, send_traced
    from evalloom.core.http.urls import at_url, display_url, join_path

__all__ = [
    "MAX_BYTES",
    "RETRIES",
    "Client",
    "HttpRequest",
    "Reply",
    "Sleep",
    "Wait",
    "at_url",
    "display_url",
    "find_proxy",
    "is_loopback",
    "is_secret",
    "join_path",
    "retry",
    "send_traced",
    "sleeping",
    "status_error",
    "waiting",
]
# Every batch retries its calls, and a batch with an llm without a server opens no connection.
__getattr__ = lazy_names(
    __name__,
    {
        "evalloom.core.http.client": ("MAX_BYTES", "Client", "find_proxy", "is_loopback"),
        "evalloom.core.http.reply": ("Reply", "is_secret"),
        "evalloom.core.http.traced": ("HttpRequest", "send_traced"),
        "evalloom.core.http.urls": ("at_url", "display_url", "join_path"),
        "evalloom.core.http.attempts": ("RETRIES", "Sleep", "Wait", "retry", "sleeping", "status_error", "waiting"),
    },
)
