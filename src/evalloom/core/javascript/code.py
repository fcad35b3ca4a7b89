"""The code to call, and why a call failed."""

from __future__ import annotations

from msgspec import Struct


class Code(Struct, frozen=True):
    """JavaScript to call: inline code, or the text of a file."""

    source: str
    file: str = ""
    """The path of its file, for messages, and where a relative `require` starts from; empty for inline code."""
    function: str = ""
    """The exported function to call, as in `file://x.js:name`; empty for the default export."""
    folder: str = ""
    """The folder below which `require` may read files; empty: it may read none."""


class JavaScriptError(Exception):
    """A call that gave no result. `kind` is the sort of reason, `line` the line of the code, 0 if it is unknown."""

    def __init__(self, message: str, kind: str = "thrown", line: int = 0) -> None:
        super().__init__(message)
        self.kind = kind
        """thrown, syntax, time, memory, module, result, engine, or unavailable."""
        self.line = line


class SlowJavaScript(Exception):
    """A quick call reached its small limit. Call it again in a thread."""
