"""The providers of a promptfoo config: which llm, program or address answers, and with which parameters."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from msgspec import Struct

from evalloom.core.errors import usage_error
from evalloom.core.model import Record
from evalloom.core.text import describe, shorten
from evalloom.interop.promptfoo import files
from evalloom.interop.promptfoo.files import FileProblem

LLM, ECHO, HTTP, PROGRAM, PYTHON, JAVASCRIPT = "llm", "echo", "http", "program", "python", "javascript"
_NOT_LLMS = {
    "browser": "browsers are not driven here; write a python: target",
    "websocket": "websockets are not spoken here; write a python: target",
    "ws": "websockets are not spoken here; write a python: target",
    "wss": "websockets are not spoken here; write a python: target",
    "webhook": "is not called here; write it as an http provider",
    "mcp": "MCP servers are not called here; write a python: target",
    "manual-input": "asks a person for each answer; put recorded answers into a dataset and run 'evalloom score'",
    "golang": "Go programs are not built here; build it, and name it as exec:PROGRAM",
    "sequence": "several requests in one test are not sent here; write a python: target",
    "simulated-user": "users are not simulated here; write a python: target",
    "package": "npm packages are not loaded here; name a file of JavaScript, or an http provider",
}
_PARAMS = (
    *("temperature", "max_tokens", "max_completion_tokens", "max_output_tokens", "top_p", "top_k", "min_p"),
    *("frequency_penalty", "presence_penalty", "repetition_penalty", "repeat_penalty", "seed", "stop"),
    *("stop_sequences", "n", "logprobs", "top_logprobs", "logit_bias", "tools", "tool_choice", "functions"),
    *("function_call", "parallel_tool_calls", "response_format", "reasoning_effort", "reasoning", "thinking"),
    *("enable_thinking", "verbosity", "service_tier", "user", "metadata", "store", "safe_prompt", "random_seed"),
    *("modalities", "prediction", "system", "text", "include", "instructions", "truncation", "num_ctx"),
)
"""The settings that go to the llm as they are."""
_RENAMED = {
    "maxTokens": "max_tokens",
    "max_new_tokens": "max_tokens",
    "topP": "top_p",
    "topK": "top_k",
    "maxOutputTokens": "max_tokens",
    "max_output_tokens": "max_output_tokens",
    "num_predict": "max_tokens",
    "stopSequences": "stop",
    "toolChoice": "tool_choice",
    "frequencyPenalty": "frequency_penalty",
    "presencePenalty": "presence_penalty",
    "reasoningEffort": "reasoning_effort",
}
_ADDRESS = ("apiBaseUrl", "baseUrl", "baseURL", "base_url", "apiHost", "api_base")
_KNOWN = (
    *_PARAMS,
    *_RENAMED,
    *_ADDRESS,
    *("apiKey", "apiKeyEnvar", "apiKeyRequired", "apiVersion", "organization", "headers", "passthrough", "cost"),
    *("inputCost", "outputCost", "basePath", "showThinking", "omitDefaults", "maxRetries", "timeout", "model", "label"),
    *("functionToolCallbacks", "max_retries", "delay", "transformResponse", "transform"),
)
_MOST_PROVIDERS = 200


class Provider(Struct, frozen=True):
    """One provider. `problem` says why it cannot answer here; empty if it can."""

    name: str
    """What its columns are called; unique in the config."""
    id: str
    kind: str
    config: Record = {}
    prompts: tuple[str, ...] = ()
    """The prompts that it gets; empty for all."""
    transform: str = ""
    delay_ms: float = 0.0
    problem: str = ""
    warning: str = ""
    """What of its settings has no effect here."""

    def is_called(self, name: str) -> bool:
        """Whether a test means this provider by a name; `openai:*` means all that begin so."""
        if name.endswith("*"):
            return self.id.startswith(name[:-1]) or self.name.startswith(name[:-1])
        return name in (self.id, self.name)

    @property
    def params(self) -> Record:
        """The parameters that its llm gets with every request."""
        return params_of(self.config)


def params_of(config: Record) -> Record:
    """Return the parameters for an llm in a `config` of promptfoo."""
    renamed = {_RENAMED.get(name, name): value for name, value in config.items()}
    params = {name: renamed[name] for name in _PARAMS if renamed.get(name) is not None}
    passthrough = config.get("passthrough")
    return {**params, **(passthrough if isinstance(passthrough, dict) else {})}


def code_of(provider: Provider) -> str:
    """Return the reference to the file of a provider that is code."""
    name = provider.id.removeprefix("python:").removeprefix("javascript:")
    return name if files.is_file(name) else f"{files.PREFIX}{name}"


def address_of(config: Record) -> str:
    """Return the address that a provider names; empty for the usual one of its vendor."""
    for name in _ADDRESS:
        value = config.get(name)
        if isinstance(value, str) and value.strip():
            return value if "://" in value else f"https://{value}"
    return ""


def read_providers(written: Any, base: str) -> list[Provider]:
    """Return the providers of a config; `base` is its folder."""
    entries = list(islice(_entries(written, base, 1), _MOST_PROVIDERS + 1))
    if len(entries) > _MOST_PROVIDERS:
        raise usage_error(
            "too_many_providers", f"providers: expected at most {_MOST_PROVIDERS}, got more. Split the file"
        )
    found = [_provider(entry, base) for entry in entries]
    taken: dict[str, int] = {}
    unique = []
    for provider in found:
        taken[provider.name] = count = taken.get(provider.name, 0) + 1
        name = provider.name if count == 1 else f"{provider.name} #{count}"
        unique.append(Provider(name, *_rest(provider)))
    return unique


def _rest(provider: Provider) -> tuple[Any, ...]:
    return tuple(getattr(provider, name) for name in provider.__struct_fields__[1:])


def _entries(written: Any, base: str, levels: int) -> Iterator[Record]:
    """Yield each provider as an object with `id`."""
    for item in written if isinstance(written, list) else [written]:
        if (
            isinstance(item, str)
            and item.startswith(files.PREFIX)
            and item.lower().endswith((".yaml", ".yml", ".json"))
        ):
            try:
                value = files.read(item, base).value
            except FileProblem as problem:
                yield {"id": item, "problem": str(problem)}
                continue
            if levels:
                yield from _entries(value, base, levels - 1)
        elif isinstance(item, str):
            yield {"id": item}
        elif isinstance(item, dict) and isinstance(item.get("id"), str):
            yield item
        elif isinstance(item, dict) and len(item) == 1:
            # An older form: the name is the key of its settings.
            ((name, options),) = item.items()
            options = options if isinstance(options, dict) else {}
            own_id = options.get("id")
            yield {**options, "id": own_id if isinstance(own_id, str) else str(name)}
        else:
            yield {"id": "", "problem": f"expected the name of a provider, got {describe(item)}"}


def _provider(entry: Record, base: str) -> Provider:
    id = entry["id"].strip()
    config = entry["config"] if isinstance(entry.get("config"), dict) else {}
    label = entry.get("label")
    prompts = entry.get("prompts")
    transform = entry.get("transform", config.get("transform"))
    kind, problem = _kind(id)
    delay = entry.get("delay")
    # A file by its name: its path would fill the column of a table.
    short = id.replace("\\", "/").rpartition("/")[2] if kind in (PYTHON, JAVASCRIPT) else id
    if label == ECHO and kind != ECHO:
        # `--profile echo` must ask nobody, whatever a config calls its providers.
        label = f"echo ({short})"
    return Provider(
        label if isinstance(label, str) and label.strip() else short or "provider",
        id,
        kind,
        config,
        tuple(name for name in (prompts if isinstance(prompts, list) else [prompts]) if isinstance(name, str)),
        transform if isinstance(transform, str) else "",
        float(delay) if isinstance(delay, int | float) and not isinstance(delay, bool) else 0.0,
        str(entry.get("problem") or problem),
        _warning(id, config) if kind == LLM else "",
    )


def _kind(id: str) -> tuple[str, str]:
    """Return what a provider is, and why it cannot answer here."""
    name, _, rest = id.partition(":")
    if name in ("echo", "http", "https"):
        return (ECHO if name == "echo" else HTTP), ""
    if name == "exec":
        return PROGRAM, "" if rest.strip() else "expected a program after 'exec:'"
    if name == "python":
        return PYTHON, ""
    if name in ("file", "javascript") or files.language_of(id):
        language = files.language_of(id.removeprefix("javascript:"))
        problem = "" if language in (PYTHON, JAVASCRIPT) else "expected a file of Python or JavaScript"
        return (language or JAVASCRIPT), problem and f"{shorten(id, 60)}: {problem}"
    if name == "promptfoo":
        return LLM, f"{shorten(id, 60)}: is a service of promptfoo, which is not called"
    return LLM, f"{shorten(id, 60)}: {_NOT_LLMS[name]}" if name in _NOT_LLMS else ""


def _warning(id: str, config: Record) -> str:
    if isinstance(config.get("apiKey"), str) and "{{" not in config["apiKey"]:
        return f"{id}: config.apiKey is not used: keys come from the environment [key_in_file]"
    unknown = [name for name in config if name not in _KNOWN]
    if not unknown:
        return ""
    return f"{id}: config: {', '.join(unknown)}: not known here and not sent [provider_option_unused]"
