"""Runs JavaScript that data files contain: JSON in, JSON out, with limits, in an engine that reaches nothing else."""

from evalloom.core.javascript.code import Code, JavaScriptError, SlowJavaScript
from evalloom.core.javascript.run import call, call_in_thread, call_quickly, close, why_unavailable

__all__ = [
    "Code",
    "JavaScriptError",
    "SlowJavaScript",
    "call",
    "call_in_thread",
    "call_quickly",
    "close",
    "why_unavailable",
]
