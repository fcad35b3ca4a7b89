"""Runs untrusted code in an isolated process: JSON in, JSON out, and no other access."""

from evalloom.core.sandbox.run import DEFAULT_LIMITS, Call, Code, Done, Limits, run_code, why_unavailable

__all__ = ["DEFAULT_LIMITS", "Call", "Code", "Done", "Limits", "run_code", "why_unavailable"]
