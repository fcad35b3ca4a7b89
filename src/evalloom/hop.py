"""Door for people who run HOP batch tests."""

from evalloom.analyse.hop_store import DataStore
from evalloom.contract import Contract, Field, read_contract
from evalloom.dialects.hop import inputs_of, normalize_audit, normalize_input, unpack_result
from evalloom.operators.observer import HopletObserver, Observer
from evalloom.operators.session import HopSession
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
from evalloom.workbench.hop import open_session

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
