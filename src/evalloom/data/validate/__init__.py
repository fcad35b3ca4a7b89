"""Validation of test files before a run costs anything."""

from evalloom.data.validate.check import validate

__all__ = ["validate"]
