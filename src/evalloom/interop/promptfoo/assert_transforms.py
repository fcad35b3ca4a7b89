"""The transforms of a test and of its asserts: steps that change the output before a check looks at it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from evalloom.core.model import Record
from evalloom.core.text import describe, quote
from evalloom.interop.promptfoo.files import FileProblem, is_file, language_of, read

# `postprocess` is the older name.
TEST_TRANSFORMS = ("transform", "postprocess")
_TRANSFORM = "get_transform"


def transforms_of(written: Record, names: Iterable[str], base: str) -> tuple[list[Record], str]:
    """Return the transforms under the first of these names, as steps for the engine; or why they cannot be applied."""
    for name in names:
        if value := written.get(name):
            break
    else:
        return [], ""
    steps: list[Record] = []
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, str):
            return [], f"expected JavaScript or a file, got {describe(item)}"
        try:
            steps.append(_step(item, base))
        except FileProblem as problem:
            return [], problem.message
    return steps, ""


def _step(written: str, base: str) -> Record:
    if not is_file(written):
        return {"language": "javascript", "source": written}
    language = language_of(written)
    if language not in ("javascript", "python"):
        raise FileProblem("bad_transform", f"expected a file of JavaScript or Python, got {quote(written)}")
    file = read(written, base)
    step: Record = {"language": language, "source": file.text, "file": str(file.path), "folder": str(file.path.parent)}
    default = _TRANSFORM if language == "python" else ""
    function: Any = file.function or default
    return {**step, "function": function} if function else step


def scoring_of(reference: Any, base: str) -> tuple[Record, str]:
    """Return the step of an `assertScoringFunction`, or why there is none."""
    if not is_file(reference):
        return {}, f"expected a file of JavaScript or Python as file://…, got {describe(reference)}"
    try:
        step = _step(reference, base)
    except FileProblem as problem:
        return {}, problem.message
    if step["language"] == "python" and step["function"] == _TRANSFORM:
        step["function"] = "func"
    return step, ""
