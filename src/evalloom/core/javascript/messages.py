"""What to do instead of what JavaScript has elsewhere and does not have here."""

from __future__ import annotations

import re
from pathlib import PurePath

_MISSING = re.compile(r"'?([\w$]+)'? is not defined")
_NO_NETWORK = "JavaScript of data files has no network; use a Python function, or compute it in the target"
_NO_FILES = "JavaScript of data files reads no files; load data with require('./data.json')"
_INSTEAD = {
    **dict.fromkeys(("fetch", "XMLHttpRequest", "WebSocket", "navigator"), _NO_NETWORK),
    **dict.fromkeys(("Deno", "Bun"), "the code runs in no server of JavaScript"),
    **dict.fromkeys(("document", "window", "localStorage"), "the code runs in no browser"),
    "Buffer": "Buffer belongs to Node.js; use atob and btoa for base64, and TextEncoder for bytes",
    "URL": "URL belongs to Node.js and browsers; use a regular expression",
    "setInterval": "use setTimeout",
    "crypto": "crypto belongs to Node.js and browsers; use a Python function",
}
_MODULES = {
    **dict.fromkeys(("fs", "fs/promises"), _NO_FILES),
    **dict.fromkeys(("http", "https", "net", "axios", "node-fetch", "undici"), _NO_NETWORK),
    "child_process": "JavaScript of data files starts no processes; use a Python function",
}


def hint_for(message: str, file: str) -> str:
    """Return what to do about an error, to be put behind its message; empty if there is nothing to say."""
    missing = _MISSING.search(message)
    if missing and missing[1] in _INSTEAD:
        return f"; {_INSTEAD[missing[1]]}"
    if "SyntaxError" in message and PurePath(file).suffix in (".ts", ".mts", ".cts", ".tsx"):
        return "; TypeScript is not compiled here: compile it to JavaScript, and name that file"
    return ""


def module_refused(name: str) -> str:
    """Return why a module that is no relative file cannot be required."""
    short = name.removeprefix("node:")
    if short.startswith("/") or ":" in short:
        return f"require({name!r}): only relative files can be required, as './data.json'"
    instead = _MODULES.get(short) or "put what it does into a .js file beside this one, and require that"
    return f"require({name!r}): modules of Node.js and npm cannot be loaded; {instead}"
