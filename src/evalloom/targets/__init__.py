"""Targets: what is tested, each one async call from the inputs of a case to an output."""

from __future__ import annotations

from evalloom.core.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from evalloom.targets.base import DEFAULTS, BuiltTarget, Kind, TargetOptions
    from evalloom.targets.kinds import TARGETS, build, forms
    from evalloom.targets.python import build_callable

__all__ = ["DEFAULTS", "TARGETS", "BuiltTarget", "Kind", "TargetOptions", "build", "build_callable", "forms"]
# Every start imports this package for what a kind is, and few need all kinds.
__getattr__ = lazy_names(
    __name__,
    {
        "evalloom.targets.base": ("DEFAULTS", "BuiltTarget", "Kind", "TargetOptions"),
        "evalloom.targets.kinds": ("TARGETS", "build", "forms"),
        "evalloom.targets.python": ("build_callable",),
    },
)
