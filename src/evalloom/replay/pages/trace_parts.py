"""Finds in a rendered segment which part came from which variable: the trace has templates and the sizes of values."""

from __future__ import annotations

from typing import Literal, NamedTuple

from evalloom.replay.recipe.assemble import template_parts
from evalloom.replay.recipe.trace import Segment, Trace


class FilledPart(NamedTuple):
    """A part of a rendered segment."""

    text: str
    kind: Literal["text", "value", "missing"]
    """`missing`: a placeholder that stayed as it is written."""
    name: str = ""


def value_sizes(trace: Trace) -> dict[str, int]:
    """Return the sizes in bytes of the variables that have a value, by name."""
    return {
        str(message.details["variableName"]): int(message.details["valueBytes"])
        for message in trace.messages
        if "valueBytes" in message.details and message.severity != "error" and message.code != "variable_unused"
    }


def filled_parts(segment: Segment, sizes: dict[str, int]) -> list[FilledPart]:
    """Split the rendered text; it stays one part where sizes and text do not fit, as after redaction."""
    left = segment.rendered.encode("utf-8", "surrogatepass")
    whole = [FilledPart(segment.rendered, "text")]
    parts: list[FilledPart] = []
    for piece in template_parts(segment.template):
        written = piece.text.encode("utf-8", "surrogatepass")
        is_value = bool(piece.name) and piece.name in sizes
        size = sizes[piece.name] if is_value else len(written)
        if segment.truncated and size > len(left):
            size = len(left)
        chunk, left = left[:size], left[size:]
        if len(chunk) < size or not (is_value or written.startswith(chunk)):
            return whole
        try:
            text = chunk.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return whole
        if text:
            kind: Literal["text", "value", "missing"] = "value" if is_value else "missing" if piece.name else "text"
            parts.append(FilledPart(text, kind, piece.name))
    return whole if left else parts
