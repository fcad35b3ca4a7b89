"""JSON Schemas of what vendors accept, written from their API references: strict at the top, so that a misspelling fails."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 1}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}
EFFORT: Schema = {"enum": ["none", "minimal", "low", "medium", "high", "xhigh"]}


def strict(required: list[str], **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def list_of(item: Schema, least: int = 1) -> Schema:
    return {"type": "array", "items": item, "minItems": least}


def const(value: str) -> Schema:
    return {"const": value}


# -- chat completions ---------------------------------------------------------------------------------

_FUNCTION = strict(["name"], name=STRING, description=STRING, parameters=OBJECT, strict=FLAG)
_CHAT_TOOL = strict(["type", "function"], type=const("function"), function=_FUNCTION)
_CHAT_CALL = strict(
    ["id", "type", "function"],
    id=STRING,
    type=const("function"),
    function=strict(["name", "arguments"], name=STRING, arguments=STRING),
)
_CHAT_PART: Schema = {
    "oneOf": [
        strict(["type", "text"], type=const("text"), text=STRING),
        strict(
            ["type", "image_url"],
            type=const("image_url"),
            image_url=strict(["url"], url=STRING, detail={"enum": ["auto", "low", "high"]}),
        ),
    ]
}
_TEXT_OR_PARTS: Schema = {"oneOf": [STRING, list_of(_CHAT_PART)]}
_CHAT_MESSAGE: Schema = {
    "oneOf": [
        strict(["role", "content"], role={"enum": ["system", "developer", "user"]}, content=_TEXT_OR_PARTS),
        strict(
            ["role"],
            role=const("assistant"),
            content={"oneOf": [_TEXT_OR_PARTS, {"type": "null"}]},
            tool_calls=list_of(_CHAT_CALL),
        ),
        strict(["role", "content", "tool_call_id"], role=const("tool"), content=STRING, tool_call_id=STRING),
    ]
}
_JSON_SCHEMA_FORMAT = strict(
    ["type", "json_schema"],
    type=const("json_schema"),
    json_schema=strict(["name"], name=STRING, description=STRING, schema=OBJECT, strict=FLAG),
)
_CHAT_FORMAT: Schema = {
    "oneOf": [strict(["type"], type={"enum": ["text", "json_object"]}), _JSON_SCHEMA_FORMAT],
}
_CHAT_CHOICE: Schema = {
    "oneOf": [
        {"enum": ["none", "auto", "required"]},
        strict(["type", "function"], type=const("function"), function=strict(["name"], name=STRING)),
    ]
}
_SHARED: dict[str, Schema] = {
    "frequency_penalty": NUMBER,
    "max_tokens": COUNT,
    "n": COUNT,
    "parallel_tool_calls": FLAG,
    "presence_penalty": NUMBER,
    "response_format": _CHAT_FORMAT,
    "stop": {"oneOf": [STRING, list_of(STRING)]},
    "stream": FLAG,
    "temperature": {"type": "number", "minimum": 0, "maximum": 2},
    "tools": list_of(_CHAT_TOOL),
    "top_p": NUMBER,
}
CHAT = strict(
    ["model", "messages"],
    model=STRING,
    messages=list_of(_CHAT_MESSAGE),
    **_SHARED,
    logit_bias=OBJECT,
    logprobs=FLAG,
    max_completion_tokens=COUNT,
    metadata=OBJECT,
    reasoning_effort=EFFORT,
    seed={"type": "integer"},
    service_tier=STRING,
    store=FLAG,
    stream_options=strict([], include_usage=FLAG),
    tool_choice=_CHAT_CHOICE,
    top_logprobs={"type": "integer"},
    user=STRING,
    verbosity={"enum": ["low", "medium", "high"]},
)
MISTRAL = strict(
    ["model", "messages"],
    model=STRING,
    messages=list_of({"not": {"properties": {"role": const("developer")}}, **_CHAT_MESSAGE}),
    **_SHARED,
    random_seed={"type": "integer"},
    safe_prompt=FLAG,
    prompt_mode={"enum": ["reasoning"]},
    tool_choice={"oneOf": [{"enum": ["none", "auto", "any", "required"]}, OBJECT]},
)
EMBEDDINGS = strict(
    ["model", "input"],
    model=STRING,
    input={"oneOf": [STRING, list_of(STRING)]},
    dimensions=COUNT,
    encoding_format={"enum": ["float", "base64"]},
    user=STRING,
)

# -- responses ----------------------------------------------------------------------------------------

_INPUT_PART: Schema = {
    "oneOf": [
        strict(["type", "text"], type=const("input_text"), text=STRING),
        strict(
            ["type", "detail"],
            type=const("input_image"),
            image_url=STRING,
            file_id=STRING,
            detail={"enum": ["auto", "low", "high"]},
        ),
    ]
}
_INPUT_ITEM: Schema = {
    "oneOf": [
        strict(
            ["role", "content"],
            type=const("message"),
            role={"enum": ["user", "assistant", "system", "developer"]},
            content={"oneOf": [STRING, list_of(_INPUT_PART)]},
        ),
        strict(
            ["type", "call_id", "name", "arguments"],
            type=const("function_call"),
            id=STRING,
            call_id={"type": "string", "minLength": 1},
            name=STRING,
            arguments=STRING,
            status=STRING,
        ),
        strict(
            ["type", "call_id", "output"],
            type=const("function_call_output"),
            call_id={"type": "string", "minLength": 1},
            output=STRING,
        ),
    ]
}
_TEXT_FORMAT: Schema = {
    "oneOf": [
        strict(["type"], type={"enum": ["text", "json_object"]}),
        strict(
            ["type", "name", "schema"],
            type=const("json_schema"),
            name=STRING,
            description=STRING,
            schema=OBJECT,
            strict=FLAG,
        ),
    ]
}
RESPONSES = strict(
    ["model", "input"],
    background=FLAG,
    include=list_of(STRING),
    input={"oneOf": [STRING, list_of(_INPUT_ITEM)]},
    instructions=STRING,
    max_output_tokens={"type": "integer", "minimum": 16},
    max_tool_calls=COUNT,
    metadata=OBJECT,
    model=STRING,
    parallel_tool_calls=FLAG,
    previous_response_id=STRING,
    reasoning=strict([], effort=EFFORT, summary=STRING),
    service_tier=STRING,
    store=FLAG,
    stream=FLAG,
    temperature={"type": "number", "minimum": 0, "maximum": 2},
    text=strict([], format=_TEXT_FORMAT, verbosity={"enum": ["low", "medium", "high"]}),
    tool_choice={
        "oneOf": [
            {"enum": ["none", "auto", "required"]},
            strict(["type", "name"], type=const("function"), name=STRING),
        ]
    },
    tools=list_of(
        strict(
            ["type", "name", "parameters", "strict"],
            type=const("function"),
            name=STRING,
            description=STRING,
            parameters=OBJECT,
            strict=FLAG,
        )
    ),
    top_logprobs={"type": "integer", "minimum": 0, "maximum": 20},
    top_p=NUMBER,
    truncation={"enum": ["auto", "disabled"]},
    user=STRING,
)

# -- Anthropic's messages -----------------------------------------------------------------------------

_BLOCK: Schema = {
    "oneOf": [
        strict(["type", "text"], type=const("text"), text={"type": "string", "minLength": 1}, cache_control=OBJECT),
        strict(["type", "source"], type=const("image"), source=OBJECT),
        strict(["type", "id", "name", "input"], type=const("tool_use"), id=STRING, name=STRING, input=OBJECT),
        strict(
            ["type", "tool_use_id"],
            type=const("tool_result"),
            tool_use_id=STRING,
            content={"oneOf": [STRING, {"type": "array"}]},
            is_error=FLAG,
        ),
        strict(["type", "thinking", "signature"], type=const("thinking"), thinking=STRING, signature=STRING),
    ]
}
MESSAGES = strict(
    ["model", "max_tokens", "messages"],
    model=STRING,
    max_tokens=COUNT,
    messages=list_of(
        strict(["role", "content"], role={"enum": ["user", "assistant"]}, content={"oneOf": [STRING, list_of(_BLOCK)]})
    ),
    metadata=OBJECT,
    output_config=strict([], effort={"enum": ["low", "medium", "high", "xhigh", "max"]}, format=OBJECT),
    service_tier=STRING,
    stop_sequences=list_of(STRING),
    stream=FLAG,
    system={"oneOf": [STRING, list_of(_BLOCK)]},
    temperature={"type": "number", "minimum": 0, "maximum": 1},
    thinking={
        "oneOf": [
            strict(
                ["type", "budget_tokens"], type=const("enabled"), budget_tokens={"type": "integer", "minimum": 1024}
            ),
            strict(["type"], type={"enum": ["disabled", "adaptive"]}),
        ]
    },
    tool_choice=strict(
        ["type"], type={"enum": ["auto", "any", "tool", "none"]}, name=STRING, disable_parallel_tool_use=FLAG
    ),
    tools=list_of(strict(["name", "input_schema"], name=STRING, description=STRING, input_schema=OBJECT)),
    top_k=COUNT,
    top_p=NUMBER,
)
