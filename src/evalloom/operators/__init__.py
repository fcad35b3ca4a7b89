"""The operators of a hoplet: ask, verify what came back, try again with the reason, and take down every step."""

from evalloom.operators.observer import HopletObserver, Observer
from evalloom.operators.reading import Format, Misfit
from evalloom.operators.session import HopSession
from evalloom.operators.tools import Tool
from evalloom.operators.tracer import Tracer
from evalloom.operators.verifiers import (
    Attempt,
    Verified,
    Verifier,
    format_verifier,
    forward_cross_verify,
    reverse_verify,
    tool_use_verifier,
)

__all__ = [
    "Attempt",
    "Format",
    "HopSession",
    "HopletObserver",
    "Misfit",
    "Observer",
    "Tool",
    "Tracer",
    "Verified",
    "Verifier",
    "format_verifier",
    "forward_cross_verify",
    "reverse_verify",
    "tool_use_verifier",
]
