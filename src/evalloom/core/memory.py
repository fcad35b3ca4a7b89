"""Limits of memory, such as `ulimit -v`: whether there is one, and whether enough is left."""

from __future__ import annotations

_SPARE = 16 * 1024 * 1024


def is_limited() -> bool:
    """Whether this process may use only some of the machine's memory."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return False
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def require_spare() -> None:
    """Raise MemoryError while there is some memory left: with none, orjson ends the process with SIGSEGV."""
    import mmap

    try:
        # Mapped and never touched, which takes microseconds.
        mmap.mmap(-1, _SPARE).close()
    except OSError:
        raise MemoryError from None
