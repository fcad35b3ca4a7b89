"""What a test, a prompt or a provider adds to a request: a prefix, a suffix, parameters, tools, a response format."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from evalloom.core.model import Record
from evalloom.interop.promptfoo.providers import params_of

OPTIONS = "request_options"
"""The field of a case's meta with what its `options` add to the request."""
_GRADING = (
    *("provider", "rubricPrompt", "factuality", "disableDefaultAsserts", "disableVarExpansion", "transformVars"),
    *("disableConversationVar", "runSerially", "repeat"),
)
"""Options of a test that do not change its request."""


class RequestOptions(Struct, frozen=True):
    """Further parts of a request."""

    prefix: str = ""
    suffix: str = ""
    system: str = ""
    store_as: str = ""
    transforms: tuple[str, ...] = ()
    params: Record = {}
    answer: Any = ""
    tools: list[Record] = []
    is_json: bool = False
    """Whether the output is the parsed answer."""

    def with_config(self, config: Any) -> RequestOptions:
        """Add a `config`, which overrides."""
        if not isinstance(config, dict) or not config:
            return self
        return self.over(from_config(config))

    def over(self, other: RequestOptions) -> RequestOptions:
        """Add other options, which override."""
        if other is _NONE:
            return self
        return RequestOptions(
            other.prefix or self.prefix,
            other.suffix or self.suffix,
            other.system or self.system,
            other.store_as or self.store_as,
            other.transforms or self.transforms,
            {**self.params, **other.params},
            other.answer or self.answer,
            other.tools or self.tools,
            other.is_json or self.is_json,
        )


def from_config(config: Record) -> RequestOptions:
    """Return what a `config` adds; its files are read already."""
    params = params_of(config)
    tools = params.pop("tools", None)
    format = params.pop("response_format", None)
    system = params.pop("system", None)
    answer: Any = ""
    if isinstance(format, dict):
        kind = format.get("type")
        if kind == "json_object":
            answer = "json"
        elif kind == "json_schema":
            inner = format["json_schema"] if isinstance(format.get("json_schema"), dict) else format
            schema = inner.get("schema")
            if isinstance(schema, dict) and inner.get("strict") is True:
                answer = schema
            else:
                params["response_format"] = format
        elif kind != "text":
            params["response_format"] = format
    return RequestOptions(
        system=system if isinstance(system, str) else "",
        params=params,
        answer=answer,
        is_json=isinstance(format, dict) and format.get("type") == "json_schema",
        tools=[tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else [],
    )


def written_options(options: Record) -> Record:
    """Return the part of a test's `options` that changes its request, for the meta of its case."""
    return {name: value for name, value in options.items() if name not in _GRADING and value not in (None, "", {}, [])}


def request_options(written: Any) -> RequestOptions:
    """Return what the `options` of a test add to its request."""
    if not isinstance(written, dict) or not written:
        return _NONE
    transform = written.get("transform", written.get("postprocess"))
    return msgspec.structs.replace(
        from_config(written),
        prefix=_text(written.get("prefix")),
        suffix=_text(written.get("suffix")),
        store_as=_text(written.get("storeOutputAs")),
        transforms=(transform,) if isinstance(transform, str) and transform else (),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


_NONE = RequestOptions()
