"""The keys of pipelines and steps, and their types (PIPE-6)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

from evalloom.core.model import Record

StepKind = Literal["prompt", "code_node", "batch_aggregator"]
KINDS: dict[str, StepKind] = {
    "prompt": "prompt",
    "agent": "prompt",
    "agent_flow": "prompt",
    "llm": "prompt",
    "code_node": "code_node",
    "code": "code_node",
    "batch_aggregator": "batch_aggregator",
    "aggregator": "batch_aggregator",
}
PROMPT_KEYS = ("agent", "flow", "prompt", "prompt_file", "system", "user", "template", "messages")
CODE_KEYS = ("code_ref", "code", "code_file")
AGGREGATOR_KEYS = (
    *("strategy", "aggregation_strategy", "separator", "fields", "condition", "group_by", "summary_fields"),
    *("include_distribution", "output", "code", "aggregation_code", "language"),
)
_ALTERNATIVES: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("agent", "flow"), ("prompt", "prompt_file", "template")),
    (("code_ref",), ("code",), ("code_file",)),
    (("strategy",), ("aggregation_strategy",)),
    (("code",), ("aggregation_code",)),
    (("model",), ("model_override",)),
)
"""Groups of alternative keys; a step uses one key group of each."""
ABOUT = ("name", "desc", "description", "notes", "metadata", "tags", "concurrent_group", "label", "version")
PIPELINE_KEYS = (
    *("id", "inputs", "steps", "outputs", "variants", "baseline", "evaluation_target", "default_testset"),
    *("testset", "type", "evaluation", "author", *ABOUT),
)

_Type = tuple[str, Callable[[Any], bool]]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_TEXT: _Type = ("a string", lambda value: isinstance(value, str))
WORD: _Type = ("a string that is not empty", lambda value: isinstance(value, str) and bool(value.strip()))
_FLAG: _Type = ("true or false", lambda value: isinstance(value, bool))
_COUNT: _Type = (
    "a whole number of 1 or more",
    lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 1,
)
_OBJECT: _Type = ("an object", lambda value: isinstance(value, dict))
_NAMES: _Type = (
    "a step id or a list of them",
    lambda value: isinstance(value, str) or (isinstance(value, list) and all(isinstance(name, str) for name in value)),
)
_ANYTHING: _Type = ("anything", lambda value: True)

STEP_KEYS: dict[str, _Type] = {
    "id": WORD,
    "type": WORD,
    "input_mapping": _OBJECT,
    "output_key": WORD,
    "model_override": _TEXT,
    "model": _TEXT,
    "temperature": ("a number", _is_number),
    "max_tokens": _COUNT,
    "top_p": ("a number", _is_number),
    "required": _FLAG,
    "timeout": ("a number of seconds above 0", lambda value: _is_number(value) and value > 0),
    "depends_on": _NAMES,
    "batch_mode": _FLAG,
    "batch_size": _COUNT,
    "concurrent": _FLAG,
    "max_workers": _COUNT,
    "agent": WORD,
    "flow": WORD,
    "prompt": _ANYTHING,
    "prompt_file": WORD,
    **dict.fromkeys(("system", "user", "template"), _TEXT),
    **dict.fromkeys(("messages", "defaults", "params", "json", "schema", "output_parser"), _ANYTHING),
    "code_ref": WORD,
    "code_file": WORD,
    **dict.fromkeys((*AGGREGATOR_KEYS, *ABOUT), _ANYTHING),
    "code": _TEXT,
    "language": WORD,
}


def without_alternatives(written: Record, changed: Record) -> Record:
    """Return a step without the keys for which `changed` uses an alternative."""
    # A variant that sets `prompt` replaces `agent` and `flow`, instead of conflicting with them.
    replaced = {
        key
        for alternatives in _ALTERNATIVES
        for alternative in alternatives
        if any(key in changed for key in alternative)
        for other in alternatives
        if other is not alternative
        for key in other
    }
    return {key: value for key, value in written.items() if key not in replaced}
