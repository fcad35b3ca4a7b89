"""Dataset in, findings out: what is wrong with a test file before anybody pays for a run."""

from evalloom.data.validate.check import validate

__all__ = ["validate"]
