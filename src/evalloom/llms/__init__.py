"""Clients for llms, wrappers for retries, limits, budgets, caching and recording, and readers of answers."""

from __future__ import annotations

from evalloom.core.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from evalloom.llms.budget import estimate_tokens
    from evalloom.llms.clients import LLMS, OFFLINE, LlmOptions, Llms

__all__ = ["LLMS", "OFFLINE", "LlmOptions", "Llms", "estimate_tokens"]
# Matchers read JSON out of answers with a module of this package, and need no client for it.
__getattr__ = lazy_names(
    __name__,
    {
        "evalloom.llms.budget": ("estimate_tokens",),
        "evalloom.llms.clients": ("LLMS", "OFFLINE", "LlmOptions", "Llms"),
    },
)
