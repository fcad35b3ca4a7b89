"""HOP batch tests: hoplets, operators and result files. This module exports the public names."""

from __future__ import annotations

from evalloom.core.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from evalloom.core.contract import Contract, Field
    from evalloom.hop.contract import read_contract
    from evalloom.hop.dialect import inputs_of, normalize_audit, normalize_input, unpack_result
    from evalloom.hop.operators.observer import HopletObserver, Observer, Tracer
    from evalloom.hop.operators.session import HopSession
    from evalloom.hop.operators.verifiers import (
        Attempt,
        Verified,
        Verifier,
        format_verifier,
        forward_cross_verify,
        reverse_verify,
        tool_use_verifier,
    )
    from evalloom.hop.results.store import DataStore
    from evalloom.hop.task import open_session

__all__ = [
    "Attempt",
    "Contract",
    "DataStore",
    "Field",
    "HopSession",
    "HopletObserver",
    "Observer",
    "Tracer",
    "Verified",
    "Verifier",
    "format_verifier",
    "forward_cross_verify",
    "inputs_of",
    "normalize_audit",
    "normalize_input",
    "open_session",
    "read_contract",
    "reverse_verify",
    "tool_use_verifier",
    "unpack_result",
]
__getattr__ = lazy_names(
    __name__,
    {
        "evalloom.core.contract": ("Contract", "Field"),
        "evalloom.hop.contract": ("read_contract",),
        "evalloom.hop.dialect": ("inputs_of", "normalize_audit", "normalize_input", "unpack_result"),
        "evalloom.hop.operators.observer": ("HopletObserver", "Observer", "Tracer"),
        "evalloom.hop.operators.session": ("HopSession",),
        "evalloom.hop.operators.verifiers": (
            "Attempt",
            "Verified",
            "Verifier",
            "format_verifier",
            "forward_cross_verify",
            "reverse_verify",
            "tool_use_verifier",
        ),
        "evalloom.hop.results.store": ("DataStore",),
        "evalloom.hop.task": ("open_session",),
    },
)
