"""A prompt as a target: messages with placeholders for the inputs, sent to the llm of the profile."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from evalloom.core.digest import digest_of
from evalloom.core.errors import CallError, EvalloomError, usage_error
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Context, Output, Record, Request
from evalloom.core.text import did_you_mean, quote, type_name
from evalloom.files.read import RowReader
from evalloom.files.rows import Problem, Row
from evalloom.files.source import source_of
from evalloom.targets.base import PROMPT_SPEC_KEYS, BuiltTarget, TargetOptions, bad_spec, text_in, time_limit, within
from evalloom.targets.template import Filled, Template, compile_json, find

if TYPE_CHECKING:
    from evalloom.llms.output_parser import OutputParser

ROLES = ("system", "user", "assistant", "developer", "tool")
_HEADING = lazy_pattern(r"^\[(system|user|assistant)\][ \t]*$", re.MULTILINE)
_DATA_SUFFIXES = (".yaml", ".yml", ".json")

# Some keys have several names: prompt-lab writes system_prompt and user_template.
_SYSTEM_KEYS = ("system", "system_prompt")
_USER_KEYS = ("user", "template", "user_template", "prompt")
ABOUT_KEYS = ("name", "description", "version", "author", "notes", "tags", "id", "metadata", "created_at")
PARSER_KEYS = ("output_parser", "parser")
PARAM_KEYS = ("model", "temperature", "max_tokens", "top_p", "seed", "stop", "frequency_penalty", "presence_penalty")
"""Parameters of the llm that a prompt may have at its top level, outside of `params`."""
PROMPT_KEYS = (
    *(*_SYSTEM_KEYS, *_USER_KEYS, "messages", "defaults", "params", "json", "schema", "tools"),
    *(*PARSER_KEYS, *PARAM_KEYS),
)


def build(spec: Record, folder: Path, options: TargetOptions) -> BuiltTarget:
    """Build the target of `{prompt: FILE}`, `{prompt: "text with {{placeholders}}"}` or `{template: …, system: …}`."""
    if "prompt" in spec and "template" in spec:
        raise bad_spec("template", "either prompt or template", "both")
    path = _path(spec, folder)
    where = path.name if path else "prompt"
    content = read_prompt(path) if path else _inline(spec)
    # Keys of the spec override those of the prompt file.
    overrides = {key: value for key, value in spec.items() if key in PROMPT_SPEC_KEYS}
    replaced = _SYSTEM_KEYS if "system" in overrides else ()
    content = {**{key: value for key, value in content.items() if key not in replaced}, **overrides}
    prompt = Prompt(content, where)
    limit = time_limit(spec, options)
    shown = f"prompt:{spec['prompt']}" if path else "prompt"
    return BuiltTarget(
        name=text_in(spec, "name") or shown,
        kind="prompt",
        digest=prompt.digest,
        # No limit unless it is set: each request has its own, and waiting for a slot is not an error.
        call=within(prompt, limit) if limit else prompt,
        variables=prompt.variables,
        optional=prompt.optional,
        defaulted=frozenset(prompt.defaults),
        needs_llm=True,
        watch=(path,) if path else (),
    )


_CORRECTION = "Your answer could not be read: {error}. Answer again, with nothing but what was asked for."
_CORRECTION_ZH = "你的回答无法读取：{error}。请重新回答，只给出所要求的内容。"


class Prompt:
    """Fills and sends messages, and parses the answer. The parameters of the profile override its own."""

    def __init__(self, content: Record, where: str) -> None:
        for key in content:
            if key not in PROMPT_KEYS and key not in ABOUT_KEYS:
                hint = did_you_mean(str(key), PROMPT_KEYS)
                raise _bad(where, f"{key}: a prompt has no such key; it has {', '.join(PROMPT_KEYS)}{hint}")
        messages = _messages(content, where)
        self._fill, needed = _compile_all(messages, where)
        self.defaults = _object(content, "defaults", where)
        params = {name: content[name] for name in PARAM_KEYS if content.get(name) is not None}
        self._params = {**params, **_object(content, "params", where)}
        self._parser = _parser(content, where)
        self._answer = _answer(content, where)
        self._tools = _list(content, "tools", where)
        self.names = needed | _optional(messages) | self.defaults.keys()
        self.variables = needed - self.defaults.keys()
        self.optional = _optional(messages) - needed - self.defaults.keys()
        parser = [msgspec.to_builtins(self._parser)] if self._parser else []
        self.digest = digest_of("prompt", messages, self.defaults, self._params, self._answer, self._tools, *parser)

    async def __call__(self, inputs: Record, context: Context) -> Output:
        if self._parser is None:
            # Without `ask`, which would add a coroutine to each case.
            response = await context.llm(self._request(inputs, context, {}))
            value, tool_calls = response.text, response.tool_calls
        else:
            value, tool_calls = await self.ask(inputs, context)
        return Output(value, {"tool_calls": tool_calls}) if tool_calls else Output(value)

    async def ask(self, inputs: Record, context: Context, pinned: Record | None = None) -> tuple[Any, list[Record]]:
        """Return the parsed answer and its tool calls. An answer that cannot be parsed is requested again."""
        request = self._request(inputs, context, pinned or {})
        if self._parser is None:
            response = await context.llm(request)
            return response.text, response.tool_calls
        return await self._ask_until_parsed(self._parser, request, context)

    async def _ask_until_parsed(
        self, parser: OutputParser, request: Request, context: Context
    ) -> tuple[Any, list[Record]]:
        # Deferred: few prompts have an output parser.
        from evalloom.llms.answer_json import AnswerError
        from evalloom.llms.output_parser import parse

        for retries_left in range(parser.retries, -1, -1):
            response = await context.llm(request)
            try:
                parsed = parse(parser, response.text)
            except AnswerError as error:
                if not retries_left:
                    raise CallError("unreadable_answer", str(error)) from None
                context.trace.append({"type": "repair", "text": f"asked again: {error}"})
                request = _correction(request, response.text, parser.fix_prompt, str(error))
            else:
                if parsed.repair:
                    context.trace.append({"type": "repair", "text": parsed.repair})
                return parsed.value, response.tool_calls
        raise AssertionError("an llm is asked at least once")

    def _request(self, inputs: Record, context: Context, pinned: Record) -> Request:
        if self.defaults:
            inputs = {**self.defaults, **inputs}
        params = {**self._params, **context.profile.params} if self._params else context.profile.params
        return Request(self._fill(inputs), params, self._answer, self._tools, context.repeat, pinned)


def _correction(request: Request, answer: str, fix_prompt: str, error: str) -> Request:
    """Return the request extended by the unreadable answer and a message with its error."""
    from evalloom.llms.delimiters import mostly_chinese

    correction = (
        f"{fix_prompt}\n{error}"
        if fix_prompt
        else (_CORRECTION_ZH if mostly_chinese(answer) else _CORRECTION).format(error=error)
    )
    messages = [{"role": "assistant", "content": answer}, {"role": "user", "content": correction}]
    return msgspec.structs.replace(request, messages=request.messages + messages)


def _parser(content: Record, where: str) -> OutputParser | None:
    written = next((content[key] for key in PARSER_KEYS if content.get(key) is not None), None)
    if written is None:
        return None
    from evalloom.llms.output_parser import read_parser

    parser, errors = read_parser(written)
    for key, message in errors:
        raise _bad(where, f"output_parser.{key}: {message}")
    return parser if parser.kind != "text" else None


def _path(spec: Record, folder: Path) -> Path | None:
    """Return the file that a spec names; None if the prompt is in the spec itself."""
    written = spec.get("prompt")
    # A text with a placeholder or a line break is not a file name.
    is_text = isinstance(written, str) and any(mark in written for mark in ("{{", "{%", "\n"))
    if written is None or isinstance(written, dict | list) or is_text:
        return None
    if not isinstance(written, str) or not written.strip():
        raise bad_spec("prompt", "a file or a text with {{placeholders}}", written)
    path = folder / written
    if os.path.isfile(path):  # Path.is_file raises for a name that is too long
        return path
    siblings = [file.name for file in path.parent.iterdir() if file.is_file()] if os.path.isdir(path.parent) else []
    hint = did_you_mean(path.name, siblings)
    raise usage_error("prompt_missing", f"prompt: there is no file {quote(path.as_posix(), 200)}{hint}")


def _inline(spec: Record) -> Record:
    written = spec.get("prompt")
    if isinstance(written, dict):
        return written
    if isinstance(written, list):
        return {"messages": written}
    return {} if written is None else {"user": written}


def read_prompt(path: Path) -> Record:
    """Read a prompt file as an object with `messages`, or `system` and `user`."""
    if path.suffix.lower() in _DATA_SUFFIXES:
        return read_fields(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise _bad(path.as_posix(), "expected UTF-8 text. Save the file as UTF-8") from None
    except OSError as error:
        raise _bad(path.as_posix(), f"cannot be read: {error.strerror}") from None
    return {"messages": _split_messages(text)}


def read_fields(path: Path) -> Record:
    """Read a YAML or JSON prompt: one object, or a list of messages."""
    rows = list(RowReader(source_of(path)))
    for row in rows:
        if isinstance(row, Problem) and row.severity == "error":
            raise _bad(f"{path.as_posix()}:{row.place.line}", row.message)
    values = [row.value for row in rows if isinstance(row, Row)]
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    if values and all(_is_message(value) for value in values):
        return {"messages": values}
    if len(values) != 1 or not isinstance(values[0], dict):
        raise _bad(path.as_posix(), "expected an object with system and user, or a list of messages")
    return values[0]


def _is_message(value: Any) -> bool:
    """Return whether a value in a list is a message, or a placeholder for messages of the case."""
    return bool(Template(value).only_name) if isinstance(value, str) else isinstance(value, dict) and "role" in value


def _split_messages(text: str) -> list[Record]:
    """Split a text file at lines such as [system]; a file that does not begin with one is one user message."""
    start = _HEADING.search(text)
    if start is None or text[: start.start()].strip():
        return [{"role": "user", "content": text.strip("\n")}]
    _, *pieces = _HEADING.split(text)
    return [
        {"role": role, "content": content.strip("\n")} for role, content in zip(pieces[::2], pieces[1::2], strict=True)
    ]


def _messages(content: Record, where: str) -> list[Record | str]:
    """Return the messages of a prompt in any of its forms; a string is a placeholder for messages of the case."""
    written = content.get("messages")
    listed = [written] if isinstance(written, str) else _list(content, "messages", where)
    messages = [_check_message(message, f"messages[{at}]", where) for at, message in enumerate(listed)]
    system, user = _single_text(_SYSTEM_KEYS, content, where), _single_text(_USER_KEYS, content, where)
    if system:
        rest = [message for message in messages if isinstance(message, str) or message["role"] != "system"]
        messages = [{"role": "system", "content": system}, *rest]
    if user:
        messages.append({"role": "user", "content": user})
    if not any(isinstance(message, str) or message["content"] for message in messages):
        raise _bad(where, "the prompt is empty. Write the user message, or messages")
    return messages


def _check_message(message: Any, at: str, where: str) -> Record | str:
    if isinstance(message, str) and Template(message).only_name:
        return message
    if not isinstance(message, dict):
        raise _bad(where, f"{at}: expected an object with role and content, or '{{{{name}}}}', got {quote(message)}")
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        raise _bad(where, f"{at}.role: expected {', '.join(ROLES)}, got {quote(role)}{did_you_mean(str(role), ROLES)}")
    if not isinstance(content, str | list) and not message.get("tool_calls"):
        raise _bad(where, f"{at}.content: expected a string or a list of parts, got {type_name(content)}")
    return {"content": None, **message}


def _compile_all(messages: list[Record | str], where: str) -> tuple[Filled, frozenset[str]]:
    """Return a function that fills the messages, and the inputs that it needs."""
    compiled = [
        _splice(message, where) if isinstance(message, str) else _compile(message, where) for message in messages
    ]
    fillers = [filler for filler, _ in compiled]
    needed = frozenset[str]().union(*(names for _, names in compiled))
    if not any(isinstance(message, str) for message in messages):
        return lambda inputs: [fill(inputs) for fill in fillers], needed

    def fill_all(inputs: Record) -> list[Record]:
        filled = [fill(inputs) for fill in fillers]
        return [message for item in filled for message in (item if isinstance(item, list) else [item])]

    return fill_all, needed


def _optional(value: Any) -> frozenset[str]:
    """Return the names in single braces in the messages."""
    if isinstance(value, str):
        return Template(value).optional
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return frozenset[str]().union(*map(_optional, inner))


def _splice(text: str, where: str) -> tuple[Filled, frozenset[str]]:
    """Return a function that inserts messages of the case, such as a conversation, for a placeholder."""
    template = Template(text, where)

    def messages_of_case(inputs: Record) -> list[Record]:
        messages = find(template.only_name, inputs, where)
        if not isinstance(messages, list) or not all(isinstance(item, dict) and "role" in item for item in messages):
            raise CallError("unusable_input", f"{where}: {text}: expected a list of messages, got {quote(messages)}")
        return messages

    return messages_of_case, template.variables


def _compile(message: Record, where: str) -> tuple[Filled, frozenset[str]]:
    role, content = message["role"], message["content"]
    if not isinstance(content, str):
        return compile_json(message, where)
    template = Template(content, where)
    render = template.render
    if len(message) == 2:
        return lambda inputs: {"role": role, "content": render(inputs)}, template.variables
    fill, names = compile_json(message, where)
    # Content is always text, even if it is a single placeholder.
    return lambda inputs: {**fill(inputs), "content": render(inputs)}, names


def _answer(content: Record, where: str) -> Any:
    """Return the requested kind of answer; see Request.answer."""
    schema, wants_json = content.get("schema"), content.get("json", False)
    if schema is not None and not isinstance(schema, dict):
        raise _bad(where, f"schema: expected a JSON Schema, got {type_name(schema)}")
    if not isinstance(wants_json, bool):
        raise _bad(where, f"json: expected true or false, got {type_name(wants_json)}")
    return schema or ("json" if wants_json else "")


def _single_text(keys: tuple[str, ...], content: Record, where: str) -> str:
    """Return the text under one of several names of a key; empty if there is none."""
    used = [key for key in keys if content.get(key) is not None]
    if len(used) > 1:
        raise _bad(where, f"{used[0]} and {used[1]} say the same thing. Keep one of them")
    value = content[used[0]] if used else ""
    if not isinstance(value, str):
        raise _bad(where, f"{used[0]}: expected a string, got {type_name(value)}")
    return value


def _object(content: Record, key: str, where: str) -> Record:
    value = content.get(key) or {}
    if not isinstance(value, dict):
        raise _bad(where, f"{key}: expected an object, got {type_name(value)}")
    return value


def _list(content: Record, key: str, where: str) -> list[Any]:
    value = content.get(key) or []
    if not isinstance(value, list):
        raise _bad(where, f"{key}: expected a list, got {type_name(value)}")
    return value


def _bad(where: str, message: str) -> EvalloomError:
    return usage_error("bad_prompt", f"{where}: {message}")
