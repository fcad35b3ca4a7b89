"""The contract of a target (its input and output fields), and its shape if it has steps."""

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
    description: str = ""
    choices: tuple[str, ...] = ()
    """The values that a form offers, if the declaration lists them."""
    least: float | None = None
    most: float | None = None

    def accepts(self, value: Any) -> bool:
        """Whether a value has the declared type; a boolean is never a number."""
        if value is None:
            return not self.required
        if isinstance(value, bool):
            return self.type in ("bool", "any")
        return isinstance(value, _PYTHON_TYPES[self.type])


class Shape(Struct, frozen=True):
    """The steps, inputs and outputs of a target that its cases must fit."""

    steps: Mapping[str, frozenset[str] | None] = {}
    """The keys that `step_inputs` may have, by step id and output key; None if any are allowed."""
    inputs: frozenset[str] = frozenset()
    """The inputs that a case must have."""
    batch_inputs: frozenset[str] = frozenset()
    """The inputs that a case with batch items must have itself; its items may have the others."""
    accepts: frozenset[str] | None = None
    """The inputs that the target declares; None if it takes any."""
    outputs: frozenset[str] = frozenset()
    reads_items: bool = True
    aggregates: bool = True


class Contract(Struct, frozen=True):
    """Input and output fields by name. An empty `outputs` means that they are not declared."""

    inputs: Mapping[str, Field] = {}
    outputs: Mapping[str, Field] = {}
