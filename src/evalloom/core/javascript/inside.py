"""The process of the JavaScript engine: reads requests, runs each in a new context, writes answers.

Started as a script without evalloom and site-packages. It isolates itself where the system can do that, although the
engine has no way to files, network or processes: a defect of the engine must not become one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import sys
from time import process_time
from typing import Any, NoReturn

_MEMORY = 64 * 2**20
_STACK = 768 * 2**10
_LONGEST = 16 * 2**20
"""The largest answer in bytes."""


def main() -> NoReturn:
    setup = json.loads(sys.argv[1])
    engine = _load("_quickjs", setup["engine"])
    with open(setup["prelude"], encoding="utf-8") as file:
        prelude = file.read()
    isolated = _isolate(setup)
    texts: dict[str, str] = {}
    context = _context(engine, prelude)
    _write(json.dumps({"ready": True, "isolated": isolated}).encode())
    while True:
        size = int.from_bytes(_read(8), "big")
        request = json.loads(_read(size))
        texts.update(request.pop("texts"))
        _write(_answer(engine, context, request, texts).encode("utf-8", "replace"))
        # While the other side works on the answer.
        context = _context(engine, prelude)


def _load(name: str, path: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _isolate(setup: dict[str, Any]) -> bool:
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_AS, setup["memory_bytes"]),
    ):
        try:
            resource.setrlimit(kind, (value, value))
        except (OSError, ValueError):
            # macOS refuses some; the limit of the engine holds everywhere.
            continue
    if not setup["isolate"]:
        return False
    sandbox = _load("inside_sandbox", setup["isolate"]["module"])
    try:
        sandbox.isolate_engine(setup["isolate"])
    except sandbox.NotIsolated:
        return False
    return True


def _context(engine: Any, prelude: str) -> tuple[Any, Any]:
    context = engine.Context()
    context.set_memory_limit(_MEMORY)
    context.set_max_stack_size(_STACK)
    return context, context.eval(prelude)


def _answer(engine: Any, made: tuple[Any, Any], request: dict[str, Any], texts: dict[str, str]) -> str:
    context, step = made
    for file in [*request["files"].values(), *([request["file"]] if request["file"] else [])]:
        if "digest" in file:
            file["text"] = texts[file["digest"]]
    limit: float = request["limit"]
    begun = process_time()
    try:
        context.set_time_limit(limit)
        answer = step("run", json.dumps(request))
        while answer == "p":
            while _left(context, limit, begun) and context.execute_pending_job():
                pass
            answer = step("next", "")
            if answer == "p" and not _left(context, limit, begun):
                return "t"
    except engine.StackOverflow:
        return "s"
    except MemoryError:
        return "m"
    except Exception as error:
        return _limit_reached(str(error))
    if not isinstance(answer, str):
        return "m"
    return answer if len(answer) <= _LONGEST else "l"


class _Late(Exception):
    """InternalError: interrupted."""

    def __str__(self) -> str:
        return "interrupted"


def _left(context: Any, limit: float, begun: float) -> bool:
    """Give what is left of the time to the next job."""
    left = limit - (process_time() - begun)
    if left <= 0:
        raise _Late
    context.set_time_limit(left)
    return True


def _limit_reached(message: str) -> str:
    if "interrupted" in message:
        return "t"
    if "call stack" in message:
        return "s"
    # An engine that has no memory for the error itself throws null.
    return "m" if "out of memory" in message or message.strip() in ("null", "") else "x" + message


def _read(size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = os.read(0, min(size - len(parts), 2**20))
        if not part:
            os._exit(0)
        parts += part
    return bytes(parts)


def _write(text: bytes) -> None:
    whole = memoryview(len(text).to_bytes(8, "big") + text)
    while whole:
        whole = whole[os.write(1, whole) :]


if __name__ == "__main__":
    main()
