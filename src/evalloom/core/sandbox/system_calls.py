"""The seccomp filter of the sandbox: the system calls that code may make; every other one is refused.

An allowlist, because each kernel adds calls. None of them creates a process, a thread or a socket, sends a signal,
changes a limit, or changes a file in another way than by descriptor or name, which Landlock checks. Landlock does not
check modes, owners and times, so the calls that set them are not allowed either.
"""

from __future__ import annotations

import os
from struct import pack

# The number of each call on x86_64 and on aarch64, which lacks the older calls.
_ALLOWED: dict[str, tuple[int, int | None]] = {
    # open files
    "read": (0, 63),
    "write": (1, 64),
    "readv": (19, 65),
    "writev": (20, 66),
    "pread64": (17, 67),
    "pwrite64": (18, 68),
    "lseek": (8, 62),
    "close": (3, 57),
    "close_range": (436, 436),
    "dup": (32, 23),
    "dup2": (33, None),
    "dup3": (292, 24),
    "fstat": (5, 80),
    "ftruncate": (77, 46),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "sendfile": (40, 71),
    "copy_file_range": (326, 285),
    "poll": (7, None),
    "ppoll": (271, 73),
    "select": (23, None),
    "pselect6": (270, 72),
    # files by name, checked by Landlock
    "stat": (4, None),
    "lstat": (6, None),
    "newfstatat": (262, 79),
    "statx": (332, 291),
    "access": (21, None),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "getdents64": (217, 61),
    "getcwd": (79, 17),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    # memory
    "mmap": (9, 222),
    "munmap": (11, 215),
    "mremap": (25, 216),
    "mprotect": (10, 226),
    "madvise": (28, 233),
    "brk": (12, 214),
    # time, random numbers and identity
    "futex": (202, 98),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "nanosleep": (35, 101),
    "gettimeofday": (96, 169),
    "time": (201, None),
    "times": (100, 153),
    "getrandom": (318, 278),
    "getrusage": (98, 165),
    "getrlimit": (97, 163),
    "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123),
    "sysinfo": (99, 179),
    "uname": (63, 160),
    "getpid": (39, 172),
    "gettid": (186, 178),
    "getppid": (110, 173),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
    # exit
    "restart_syscall": (219, 128),
    "rt_sigreturn": (15, 139),
    "exit": (60, 93),
    "exit_group": (231, 94),
}
_IOCTL, _FCNTL, _PRLIMIT, _OPEN, _OPENAT = (16, 29), (72, 25), (302, 261), (2, None), (257, 56)

# TCGETS (is it a terminal) and close-on-exec flags. Other ioctls control terminals and devices.
_IOCTLS = (0x5401, 0x5450, 0x5451)
# Duplicates and flags of a descriptor. F_SETOWN and F_SETSIG would let the code send signals to any process.
_FCNTLS = (0, 1, 2, 3, 1030)
_ACCESS_MODES = 3

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""The supported machines: their column above, and their AUDIT_ARCH number."""

_LOAD, _AND, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000 | 1, 0x80000000
_NUMBER, _MACHINE = 0, 4


def is_supported(machine: str) -> bool:
    """Whether this kind of machine is supported."""
    return machine in _MACHINES


def filter_for(machine: str) -> bytes:
    """Return the filter as a BPF program.

    All bits of a number are compared, so the calls of x32, whose numbers have a high bit set, are refused. A call in
    the convention of another machine, such as `int 0x80`, kills the process, because its numbers mean other calls.
    """
    column, audit_arch = _MACHINES[machine]
    program = [_load(_MACHINE), _if_equal(audit_arch, 1), _instruction(_RETURN, _KILL), _load(_NUMBER)]
    allow = [_instruction(_RETURN, _ALLOW)]
    calls: list[tuple[tuple[int, int | None], list[bytes]]] = [(numbers, allow) for numbers in _ALLOWED.values()]
    # Calls that are allowed or refused by their arguments.
    calls += [
        (_OPENAT, _unless_truncating(2)),
        (_OPEN, _unless_truncating(1)),
        (_IOCTL, _if_argument_in(1, _IOCTLS)),
        (_FCNTL, _if_argument_in(1, _FCNTLS)),
        (_PRLIMIT, _if_read_only()),
    ]
    for numbers, instructions in calls:
        number = numbers[column]
        if number is not None:
            # Every path through the instructions of a call ends in a return.
            program += [_unless_equal(number, len(instructions)), *instructions]
    return b"".join([*program, _instruction(_RETURN, _REFUSE)])


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return pack("=HBBI", code, if_true, if_false, value)


def _load(offset: int) -> bytes:
    return _instruction(_LOAD, offset)


def _if_equal(value: int, skipped: int) -> bytes:
    return _instruction(_JUMP_IF_EQUAL, value, skipped, 0)


def _unless_equal(value: int, skipped: int) -> bytes:
    return _instruction(_JUMP_IF_EQUAL, value, 0, skipped)


def _argument(number: int, is_high: bool = False) -> bytes:
    """Load one half of an argument; both machines are little-endian."""
    return _load(16 + 8 * number + 4 * is_high)


def _if_argument_in(argument: int, values: tuple[int, ...]) -> list[bytes]:
    """Allow a call if an argument has one of these values."""
    tests = [step for value in values for step in (_unless_equal(value, 1), _instruction(_RETURN, _ALLOW))]
    return [_argument(argument), *tests, _instruction(_RETURN, _REFUSE)]


def _unless_truncating(argument: int) -> list[bytes]:
    """Allow opening a file, except with O_TRUNC without write access, which older versions of Landlock allow."""
    refuse = _instruction(_RETURN, _REFUSE)
    return [
        _argument(argument),
        _instruction(_AND, _ACCESS_MODES),
        *(_unless_equal(_ACCESS_MODES, 1), refuse),
        _argument(argument),
        _instruction(_AND, _ACCESS_MODES | os.O_TRUNC),
        *(_unless_equal(os.O_TRUNC, 1), refuse),
        _instruction(_RETURN, _ALLOW),
    ]


def _if_read_only() -> list[bytes]:
    """Allow prlimit to read a limit but not to set one: the new limit must be a null pointer, in both halves."""
    refuse = _instruction(_RETURN, _REFUSE)
    return [
        *(_argument(2), _if_equal(0, 1), refuse),
        *(_argument(2, is_high=True), _if_equal(0, 1), refuse),
        _instruction(_RETURN, _ALLOW),
    ]
