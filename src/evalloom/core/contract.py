"""What a target takes and gives: its contract, field by field, and its shape where it has steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "array": (list,),
    "object": (dict,),
    "any": (object,),
}


class Field(Struct, frozen=True):
    """One field of a contract."""

    type: str = "any"
    required: bool = True

    def accepts(self, value: Any) -> bool:
        """Whether a value has the declared type; a boolean is never a number."""
        if value is None:
            return not self.required
        if isinstance(value, bool):
            return self.type in ("bool", "any")
        return isinstance(value, _PYTHON_TYPES[self.type])


class Shape(Struct, frozen=True):
    """What a target with steps takes and gives, as far as its cases must fit it."""

    steps: Mapping[str, frozenset[str] | None] = {}
    """By step id and output key, what `step_inputs` may hold; None where anything may."""
    inputs: frozenset[str] = frozenset()
    """The inputs that a case must bring."""
    batch_inputs: frozenset[str] = frozenset()
    """Those of them that a case with batch items must bring too: its items may have the others."""
    outputs: frozenset[str] = frozenset()
    reads_items: bool = True
    aggregates: bool = True


class Contract(Struct, frozen=True):
    """Input and output fields by name. An empty `outputs` means that they are not declared."""

    inputs: Mapping[str, Field] = {}
    outputs: Mapping[str, Field] = {}
