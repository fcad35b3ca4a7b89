"""Calls JavaScript in a process of the engine, and reads what it returns or throws."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import PurePath
from typing import Any

import orjson

from evalloom.core.javascript import process
from evalloom.core.javascript.code import Code, JavaScriptError, SlowJavaScript
from evalloom.core.javascript.files import digest_of, home_of, number_of_file, required
from evalloom.core.javascript.messages import hint_for, module_refused
from evalloom.core.javascript.parts import parts_for
from evalloom.core.javascript.source import as_common_js, bodies, leaves_no_traces
from evalloom.core.threads import Threads

INSTALL = "pip install 'evalloom[javascript]'"
LIMIT_S = 1.0
QUICK_S = 0.02
_MOST_FILES = 200
_MEMORY_MB = 64
_NAME = re.compile(r"[A-Za-z_$][\w$]*")
_FRAME = re.compile(r"at (?:(?P<function>[^\s()]+) \()?<input>:(?P<line>\d+)")
_MESSAGE = 600
_CONVERT = {"bigint": "; convert it with Number()"}
_THREADS = Threads()
_turns: dict[Any, Any] = {}
_slow: set[Code] = set()
_required: dict[Code, tuple[str, ...]] = {}
"""The files that code has required, so that the next call brings them along."""
_MOST_REMEMBERED = 1_000

close = process.close


@lru_cache(maxsize=1)
def why_unavailable() -> str:
    """Return why JavaScript cannot run here, with what to install; empty if it can."""
    if find_spec("_quickjs") is not None:
        return ""
    return f"JavaScript needs the engine quickjs-ng, which is not installed: {INSTALL}"


def call(code: Code, names: Mapping[str, Any], limit_s: float = LIMIT_S) -> Any:
    """Return what the code returns for some arguments: JSON values, and None for undefined.

    Inline code gets them by name, an exported function in their order. A promise is awaited. `limit_s` is processor
    time. Raises JavaScriptError.
    """
    return _call(code, names, limit_s, is_quick=False)


def call_quickly(code: Code, names: Mapping[str, Any], limit_s: float = QUICK_S) -> Any:
    """The same for an event loop, with a small limit. Raises SlowJavaScript if it is reached: use call_in_thread."""
    if code in _slow:
        raise SlowJavaScript
    try:
        return _call(code, names, limit_s, is_quick=True)
    except JavaScriptError as error:
        if error.kind != "time":
            raise
        if len(_slow) < _MOST_REMEMBERED:
            _slow.add(code)
        raise SlowJavaScript from None


async def call_in_thread(code: Code, names: Mapping[str, Any], limit_s: float = LIMIT_S) -> Any:
    """The same off the event loop."""
    import asyncio

    loop = asyncio.get_running_loop()
    # More processes than processors would only wait for each other.
    for ended in [known for known in _turns if known.is_closed()]:
        del _turns[ended]
    turns = _turns.setdefault(loop, asyncio.Semaphore(os.cpu_count() or 1))
    async with turns:
        return await _THREADS.run(partial(call, code, names, limit_s), "JavaScript")


def _call(code: Code, names: Mapping[str, Any], limit_s: float, is_quick: bool) -> Any:
    if why := why_unavailable():
        raise JavaScriptError(why, "unavailable")
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f"a parameter of JavaScript cannot be called {name!r}")
    for attempt in range(2):
        try:
            engine = process.borrow(is_quick)
        except (OSError, ValueError, process.Unanswered) as error:
            raise JavaScriptError(f"the JavaScript engine cannot be started: {error}", "engine") from None
        try:
            return _converse(engine, code, names, limit_s, is_quick)
        except process.Crashed:
            # The process may have been ended from outside while nobody used it.
            if attempt:
                break
        except process.Unanswered as error:
            # On a busy machine a quick call may only have waited for its turn, which says nothing about the code.
            if is_quick and not error.has_computed:
                raise SlowJavaScript from None
            raise _too_slow(limit_s) from None
        finally:
            process.give_back(engine, is_quick)
    raise JavaScriptError("the JavaScript engine crashed while it ran this code", "engine")


def _converse(
    engine: process.EngineProcess, code: Code, names: Mapping[str, Any], limit_s: float, is_quick: bool
) -> Any:
    """Send the call; when the code requires files, send it again with them."""
    files: dict[str, dict[str, Any]] = {}
    texts: dict[str, str] = {}
    # Read again for each call, because they may have changed.
    _add_files(_required.get(code, ()), code, files, texts)
    entry = _entry(code)
    request = _request(code, names, limit_s, entry)
    while True:
        message = _with_files(request, files, texts, engine.texts)
        # Reading and converting take time beyond that of the code, and a busy machine takes longer for both.
        wall_s = 0.5 if is_quick else limit_s * 20 + 10
        answer = engine.ask(message, limit_s * 2 + (0.05 if is_quick else 0.5), wall_s).decode()
        engine.texts |= texts.keys()
        if not answer.startswith("n"):
            return _read(answer, code, files, limit_s)
        _add_files(_decoded(answer[1:]), code, files, texts)
        if len(_required) < _MOST_REMEMBERED:
            _required[code] = tuple(files)


def _add_files(paths: Any, code: Code, files: dict[str, dict[str, Any]], texts: dict[str, str]) -> None:
    if not isinstance(paths, list | tuple):
        raise JavaScriptError("the engine gave no answer", "engine")
    for path in paths:
        if path in files or len(files) >= _MOST_FILES:
            raise JavaScriptError(f"more than {_MOST_FILES} files are required", "module")
        file = required(str(path), code.folder, len(files) + 1)
        if "text" in file:
            text = file.pop("text")
            file["digest"] = digest_of(text)
            texts[file["digest"]] = text
        files[path] = file


def _entry(code: Code) -> dict[str, Any] | None:
    """Return the file that is called; None for inline code."""
    if not code.file:
        return None
    name = PurePath(code.file).name
    home = home_of(code.file, code.folder)
    text = as_common_js(code.source, name.endswith((".mjs", ".mts")))
    return {"id": f"{home}/{name}" if home else name, "json": False, "text": text, "first": 0}


def _request(code: Code, names: Mapping[str, Any], limit_s: float, entry: dict[str, Any] | None) -> dict[str, Any]:
    parts = parts_for(code.source, entry is not None)
    return {
        "names": ", ".join(names),
        "values": list(names.values()),
        "file": entry,
        "function": code.function,
        "bodies": () if entry else bodies(code.source),
        "home": home_of(code.file, code.folder),
        "parts": parts,
        "limit": limit_s,
        "key": "" if entry else _key(code, parts, tuple(names)),
    }


@lru_cache(maxsize=4096)
def _key(code: Code, parts: tuple[str, ...], names: tuple[str, ...]) -> str:
    """Return the key under which calls of the same code share a context of frozen objects; empty if they do not."""
    return "" if parts or not leaves_no_traces(code.source) else digest_of("\n".join((*names, code.source)))


def _with_files(request: dict[str, Any], files: dict[str, Any], texts: dict[str, str], known: set[str]) -> bytes:
    new = {digest: text for digest, text in texts.items() if digest not in known}
    if files:
        request["parts"] = parts_for("\n".join([*request["bodies"], *texts.values()]) + "require", True)
    whole = {**request, "files": files, "texts": new}
    try:
        return orjson.dumps(whole, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        pass
    try:
        # orjson refuses half of a surrogate pair, and integers of more than 64 bits.
        return json.dumps(whole, default=str).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise JavaScriptError(f"an argument is not JSON: {error}", "result") from None


def _read(answer: str, code: Code, files: dict[str, dict[str, Any]], limit_s: float) -> Any:
    kind, text = answer[:1], answer[1:]
    if kind == "v":
        return _decoded(text)
    if kind == "u":
        return None
    if kind == "r":
        raise JavaScriptError(f"expected a result that is JSON, got {text}{_CONVERT.get(text[-6:], '')}", "result")
    if kind == "e":
        raise _thrown(_decoded(text), code, files)
    if kind == "t":
        raise _too_slow(limit_s)
    if kind == "s":
        raise JavaScriptError("it calls itself too deeply: the stack is full", "memory")
    if kind == "m":
        raise JavaScriptError(f"it needs more than {_MEMORY_MB} MB of memory", "memory")
    if kind == "l":
        raise JavaScriptError("its result is too large", "memory")
    if kind == "w":
        raise JavaScriptError("its promise never settles: it waits for something that does not exist here", "result")
    raise JavaScriptError(text[:_MESSAGE] or "the engine gave no answer", "engine")


def _too_slow(limit_s: float) -> JavaScriptError:
    return JavaScriptError(f"it took longer than {limit_s:g} s of processor time and was stopped", "time")


def _decoded(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        value = json.loads(text)
        # Half of a surrogate pair is what a cut through an emoji leaves; no file can hold it.
        return json.loads(
            json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        )
    except (ValueError, RecursionError):
        raise JavaScriptError("its result cannot be read as JSON: it is nested too deeply", "result") from None


def _thrown(error: Any, code: Code, files: dict[str, dict[str, Any]]) -> JavaScriptError:
    """Return an error with its message, and the line of the first frame that is not ours."""
    told = {key: str(value) for key, value in error.items()} if isinstance(error, dict) else {}
    message, name, kind = told.get("message", ""), told.get("name", ""), told.get("kind", "")
    if message == "interrupted" and name == "InternalError":
        return _too_slow(LIMIT_S)
    if "out of memory" in message and name in ("InternalError", "RangeError"):
        return JavaScriptError(f"it needs more than {_MEMORY_MB} MB of memory", "memory")
    if message.startswith("!") and kind == "module":
        message = module_refused(message[1:])
    place, line = _place(told.get("stack", ""), code, files)
    message = message[:_MESSAGE]
    if name and name != "Error":
        message = f"{name}: {message}" if message else name
    hint = hint_for(message, code.file)
    return JavaScriptError(f"{message or 'it threw an empty value'}{hint}{place}", kind or _kind(name), line)


def _kind(name: str) -> str:
    return "syntax" if name == "SyntaxError" else "thrown"


def _place(stack: str, code: Code, files: dict[str, dict[str, Any]]) -> tuple[str, int]:
    for frame in _FRAME.finditer(stack):
        if (frame["function"] or "").startswith("evalloom_"):
            continue
        number, line = number_of_file(int(frame["line"]))
        name = code.file
        if number:
            named = [file.get("id", "") for file in files.values()]
            name = named[number - 1] if number <= len(named) else ""
        return (f" ({name}:{line})" if name else f" (line {line})"), line
    return (f" ({code.file})" if code.file else ""), 0
