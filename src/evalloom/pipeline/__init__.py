"""Pipelines and their testsets. This module exports the public names."""

from __future__ import annotations

from evalloom.core.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from evalloom.pipeline.testset import TestCase, TestsetLoader

__all__ = ["TestCase", "TestsetLoader"]
__getattr__ = lazy_names(__name__, {"evalloom.pipeline.testset": ("TestCase", "TestsetLoader")})
