"""Untrusted code in a process of its own: it gets JSON, gives JSON, and reaches nothing else."""

from evalloom.core.sandbox.run import DEFAULT_LIMITS, Call, Code, Done, Limits, run_code, why_unavailable

__all__ = ["DEFAULT_LIMITS", "Call", "Code", "Done", "Limits", "run_code", "why_unavailable"]
