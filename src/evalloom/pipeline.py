"""Door for people who test pipelines."""

from evalloom.workbench.pipeline import TestCase, TestsetLoader

__all__ = ["TestCase", "TestsetLoader"]
