"""The process of the JavaScript engine: reads requests, runs each in a new context, writes answers.

Started as a script without evalloom and site-packages. It isolates itself where the system can do that, although the
engine has no way to files, network or processes: a defect of the engine must not become one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import select
import sys
from time import process_time
from typing import Any, NoReturn

_MEMORY = 64 * 2**20
_STACK = 768 * 2**10
_LONGEST = 16 * 2**20
"""The largest answer in bytes."""
_SPARE = 8
"""New contexts that are ready."""
_OFTEN, _SHARED, _COUNTED = 3, 32, 10_000
"""How often code is called before its context is kept, how many are kept, and how many codes are counted."""


def main() -> NoReturn:
    setup = json.loads(sys.argv[1])
    engine = _load("_quickjs", setup["engine"])
    parts = _parts(setup["parts"])
    core, frozen = parts.pop("core"), parts.pop("frozen")
    isolated = _isolate(setup)
    texts: dict[str, str] = {}
    contexts = [_context(engine, core)]
    shared: dict[str, tuple[Any, Any]] = {}
    counts: dict[str, int] = {}
    _write(json.dumps({"ready": True, "isolated": isolated}).encode())
    waiting = select.poll()
    waiting.register(0, select.POLLIN)
    while True:
        # A context takes longer to make than most code to run, so they are made while there is nothing else to do.
        while len(contexts) < _SPARE and not waiting.poll(0):
            contexts.append(_context(engine, core))
        message = _read(int.from_bytes(_read(8), "big"))
        try:
            request = json.loads(message)
        except RecursionError:
            _write(b"xan argument is nested too deeply")
            continue
        texts.update(request.pop("texts"))
        request["parts"] = [parts[name] for name in request["parts"]]
        key = request["key"]
        made = shared.pop(key, None)
        request["frozen"] = ""
        if made is None:
            made = contexts.pop() if contexts else _context(engine, core)
            # Freezing costs more than ten new contexts.
            counts[key] = counts.get(key, 0) + 1 if key else 0
            if counts[key] > _OFTEN:
                request["frozen"] = frozen
        answer = _answer(engine, made, request, texts)
        _write(answer.encode("utf-8", "replace"))
        # Last in the dict is what was used last. What failed may have stopped anywhere, and what has left jobs would
        # run them in the next call, so neither is used again.
        if key and counts[key] > _OFTEN and answer[:1] in ("v", "u") and not _has_jobs(made[0]):
            shared[key] = made
            if len(shared) > _SHARED:
                del shared[next(iter(shared))]
        if len(counts) > _COUNTED:
            counts.clear()
            shared.clear()
        del made


def _parts(folder: str) -> dict[str, str]:
    parts = {}
    for name in os.listdir(folder):
        if name.endswith(".js"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                parts[name.removesuffix(".js")] = file.read()
    return parts


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


def _context(engine: Any, core: str) -> tuple[Any, Any]:
    context = engine.Context()
    context.set_memory_limit(_MEMORY)
    context.set_max_stack_size(_STACK)
    return context, context.eval(core)


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


def _has_jobs(context: Any) -> bool:
    try:
        context.set_time_limit(0.01)
        return bool(context.execute_pending_job())
    except Exception:
        return True


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
