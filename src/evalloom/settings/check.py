"""Finds all errors in a settings file: API keys in it, wrong types, unknown names, missing files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from evalloom.core.errors import EvalloomError
from evalloom.core.model import Path as Steps
from evalloom.core.model import Record
from evalloom.core.text import did_you_mean, quote, type_name
from evalloom.settings import keys
from evalloom.settings.file import (
    ENGINE_KEYS,
    OFFLINE_PROTOCOLS,
    PUBLIC_URLS,
    LlmSection,
    ProviderSection,
    SettingsFile,
    schema,
)
from evalloom.settings.section import Section

Error = tuple[Steps, str]
"""The path of a key or value, and what is wrong with it."""


class ParsedFile(Struct, frozen=True):
    """A settings file without errors: the keys of the engine, and the sections by name."""

    engine: SettingsFile
    sections: dict[str, Any]


def parse(
    written: Record, folder: Path, sections: tuple[Section[Any], ...], is_open: bool
) -> tuple[ParsedFile | None, list[Error]]:
    """The content of a file, or all its errors, at most one for each path.

    `is_open` allows sections of other systems: then only a key that is close to a known one is an error.
    """
    parsed, type_errors = _convert(written, sections, is_open)
    errors: dict[Steps, str] = {}
    # Secrets come first: no other message about the same path may show the value.
    for path, message in chain(
        _secret_errors(written), type_errors, _reference_errors(written, folder, sections, is_open)
    ):
        errors.setdefault(path, message)
    return (None if errors else parsed), list(errors.items())


# -- types --------------------------------------------------------------------------------------------


def _convert(
    written: Record, sections: tuple[Section[Any], ...], is_open: bool
) -> tuple[ParsedFile | None, list[Error]]:
    """The structs of a file, or the errors in its keys and types.

    msgspec stops at its first error, so a JSON Schema validator lists them all. It takes 15 MB, so only files with
    errors load it.
    """
    names = {section.name for section in sections}
    is_unknown = not is_open and any(
        name not in ENGINE_KEYS and name not in names and not name.startswith("x-") for name in written
    )
    has_empty = any(value is None for _, value in leaves(written))
    failure = ""
    if not is_unknown and not has_empty:
        try:
            return _to_structs(written, sections), []
        except msgspec.ValidationError as error:
            failure = str(error)
    document = schema(sections) | {"additionalProperties": is_open}
    filled = _without_empty(written, document, document["$defs"])
    if not is_unknown and has_empty:
        try:
            return _to_structs(filled, sections), []
        except msgspec.ValidationError as error:
            failure = str(error)
    # Where the schema accepts what msgspec refused, its message is better than none.
    return None, list(_schema_errors(written, filled, document)) or [((), failure)]


def _to_structs(written: Record, sections: tuple[Section[Any], ...]) -> ParsedFile:
    engine = {name: value for name, value in written.items() if name in ENGINE_KEYS}
    return ParsedFile(
        msgspec.convert(engine, SettingsFile),
        {section.name: msgspec.convert(written.get(section.name, {}), section.struct) for section in sections},
    )


def _without_empty(value: Any, schema: Record, definitions: Record) -> Any:
    """Drop the keys of the schema that have no value: they count as absent."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    if isinstance(value, list):
        return [_without_empty(item, schema.get("items", {}), definitions) for item in value]
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        filled = {}
        for name, item in value.items():
            if name in properties:
                if item is not None:
                    filled[name] = _without_empty(item, properties[name], definitions)
            elif isinstance(others, dict):
                # `kimi:` without a value is an llm with defaults only.
                is_object = "$ref" in others or others.get("type") == "object"
                filled[name] = _without_empty({} if item is None and is_object else item, others, definitions)
            else:
                filled[name] = item
        return filled
    # JSON Schema accepts 5.0 as an integer, msgspec does not: make it a string, which both refuse.
    return str(value) if schema.get("type") == "integer" and isinstance(value, float) else value


def _schema_errors(written: Record, filled: Record, document: Record) -> Iterator[Error]:
    """Every place where a file does not match its JSON Schema, with our own messages."""
    from jsonschema_rs import validator_for

    # A message of the library would show the value, which may contain an API key.
    for error in validator_for(document, mask="the value").iter_errors(filled):
        path, value = _locate(written, error.instance_path, error.instance)
        *steps, keyword = error.schema_path
        rule: Any = document
        for step in steps:
            rule = rule[step]
        details = error.kind.as_dict()
        if keyword == "required":
            name = details["property"]
            yield (*path, name), f"missing. {rule['properties'][name].get('description', '')}".rstrip()
        elif keyword == "additionalProperties":
            known = list(rule["properties"])
            for name in details["unexpected"]:
                hint = did_you_mean(name, known, 0.75) or f". Known: {', '.join(known)}"
                yield (*path, name), f"unknown key{hint}"
        elif keyword == "anyOf" and isinstance(error.instance, dict) and (inner := _struct_in(rule, document)):
            for inner_path, message in _schema_errors(value, error.instance, inner):
                yield (*path, *inner_path), message
        else:
            yield path, _describe(str(keyword), rule, value, error.message)


def _struct_in(rule: Record, document: Record) -> Record | None:
    """Return the schema of the struct among the choices of a key that takes one or something else."""
    names = [choice["$ref"].rpartition("/")[2] for choice in rule["anyOf"] if "$ref" in choice]
    return document["$defs"][names[0]] | {"$defs": document["$defs"]} if names else None


_TYPE_NAMES = {
    "string": "a string",
    "boolean": "true or false",
    "integer": "an integer",
    "number": "a number",
    "array": "a list",
    "object": "an object",
}


def _describe(keyword: str, rule: Record, value: Any, message: str) -> str:
    # Objects and lists are not shown, since they may contain an API key.
    got = type_name(value) if isinstance(value, dict | list | None) else quote(value)
    if keyword in ("type", "anyOf"):
        types = [choice.get("type", "object") for choice in rule.get("anyOf", [rule])]
        # The title of an object is the name of its struct.
        title = "" if "object" in types else rule.get("title", "")
        return f"expected {title or ' or '.join(_TYPE_NAMES[name] for name in types)}, got {got}"
    if keyword == "enum":
        choices = [str(choice) for choice in rule["enum"]]
        return f"expected {', '.join(choices)}, got {got}{did_you_mean(str(value), choices, 0.75)}"
    if keyword in ("minimum", "maximum", "exclusiveMinimum"):
        limit = rule[keyword]
        wanted = {"minimum": f"{limit} or more", "maximum": f"{limit} or less"}.get(keyword, f"more than {limit}")
        return f"expected {wanted}, got {value}"
    return message


def _locate(value: Any, steps: list[str | int], checked: Any) -> tuple[Steps, Any]:
    """The path of an error in the file, and the value there as it is written."""
    path: Steps = ()
    for step in steps:
        # jsonschema_rs gives the key '7' as a number and leaves an empty key out; the error is then at its parent.
        key = str(step) if isinstance(value, dict) else step
        if not (key in value if isinstance(value, dict) else isinstance(value, list)):
            return path, checked
        path, value = (*path, key), value[key]
    return path, value


# -- API keys in the file -----------------------------------------------------------------------------


def _secret_errors(written: Record) -> Iterator[Error]:
    """HOP-5: a key in the settings file is an error, wherever it is; its value is never shown."""
    for path, value in leaves(written):
        names = [str(step) for step in path]
        if value is None or value == "" or not _is_secret(names, value):
            continue
        llm = names[1] if names[0] == "llms" and len(names) > 2 else ""
        variable = keys.names_for(llm, "")[0] if llm else f"{keys.PREFIX}<LLM>"
        hint = "A header may contain ${VARIABLE}." if "headers" in names else "key_env names another variable."
        yield path, f"a key does not belong in this file. Set {variable} in the environment or in .env. {hint}"


def _is_secret(names: list[str], value: Any) -> bool:
    text = value if isinstance(value, str) else ""
    if keys.looks_like_key(text):
        return True
    if "headers" in names[:-1]:
        return keys.is_key_header(names[-1]) and not keys.variables_in(text)
    # The targets and matchers decide which fields these have.
    if names[0] in ("target", "checks"):
        return False
    # Deeper inside, `key` and `token` are ordinary words: a parameter may contain a JSON Schema.
    last = names[3:4] if names[2:3] == ["params"] else names[2:3] if names[0] in ("llms", "profiles") else names[1:2]
    return any(keys.is_key_field(name) for name in last) or any(keys.is_api_key_field(name) for name in names)


def leaves(value: Any, path: Steps = ()) -> Iterator[tuple[Steps, Any]]:
    """Every value that is neither an object nor a list, with its path."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from leaves(item, (*path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from leaves(item, (*path, number))
    else:
        yield path, value


# -- names, files and URLs ----------------------------------------------------------------------------


def _reference_errors(
    written: Record, folder: Path, sections: tuple[Section[Any], ...], is_open: bool
) -> Iterator[Error]:
    """Values of the right type that refer to nothing. Values of a wrong type are skipped."""
    llms, profiles = object_in(written, "llms"), object_in(written, "profiles")
    defaults, run = object_in(written, "defaults"), object_in(written, "run")
    providers = _provider_sections(written)
    if is_open:
        known_keys = [*SettingsFile.__struct_fields__, *(section.name for section in sections)]
        for name in written:
            if name not in known_keys and not name.startswith("x-") and (hint := did_you_mean(name, known_keys, 0.75)):
                yield (name,), f"unknown key{hint}"
    for path in [("llms", name) for name in llms] + [("profiles", name) for name in profiles]:
        if not path[1].strip() or not path[1].isprintable():
            yield path, "expected a name on one line"
    for name in llms:
        yield from _llm_errors(defaults, object_in(llms, name), ("llms", name), folder, providers)
    yield from _connection_errors(defaults, ("defaults",))
    for name, provider in object_in(written, "providers").items():
        if isinstance(provider, dict):
            yield from _provider_errors(provider, ("providers", name), name in providers)
    for name, written_profile in ((name, object_in(profiles, name)) for name in profiles):
        for role in ("run", "verify"):
            yield from _name_errors(("profiles", name, role), written_profile.get(role), llms, "llm", providers)
    for role in ("judge", "embeddings"):
        yield from _name_errors((role,), written.get(role), llms, "llm", providers)
    profiles_and_llms = {**profiles, **llms}
    for number, name in enumerate(list_in(run, "profiles")):
        yield from _name_errors(("run", "profiles", number), name, profiles_and_llms, "profile or llm", providers)
    for number, name in enumerate(list_in(written, "datasets")):
        if isinstance(name, str) and not exists(folder, name):
            yield ("datasets", number), f"there is no file or folder {quote((folder / name).as_posix())}"
    if isinstance(condition := run.get("filter"), str) and condition:
        from evalloom.core import expressions  # deferred: few settings have a filter

        try:
            expressions.compile(condition)
        except expressions.ExpressionError as error:
            yield ("run", "filter"), str(error)
    for section in sections:
        own = object_in(written, section.name)
        for names, declared, kind in (
            (section.llms, llms, "llm"),
            (section.profiles, profiles_and_llms, "profile or llm"),
        ):
            for name in names:
                if own.get(name) not in section.local:
                    yield from _name_errors((section.name, name), own.get(name), declared, kind, providers)
        yield from (((section.name, *path), message) for path, message in section.check(own, folder))


def _name_errors(
    path: Steps, name: Any, declared: Record, kind: str, sections: Mapping[str, ProviderSection]
) -> Iterator[Error]:
    if not isinstance(name, str) or name in declared:
        return
    try:
        if not is_llm_name(name, sections):
            yield path, f"there is no {kind} {quote(name)}{suggest_llm(name, list(declared), sections)}"
    except EvalloomError as error:
        yield path, error.args[0]


def is_llm_name(name: str, sections: Mapping[str, ProviderSection]) -> bool:
    """Whether a name needs no declaration: `echo`, `scripted:FILE`, `openai:MODEL`, `groq/MODEL`.

    Raises EvalloomError for a provider that is known and cannot be called.
    """
    protocol, colon, rest = name.partition(":")
    if protocol in OFFLINE_PROTOCOLS:
        return bool(rest) if protocol == "scripted" else not colon
    from evalloom.settings import providers  # deferred: most names are declared, and most llms of tests are offline

    return providers.parse(name, sections) is not None


def suggest_llm(name: str, declared: list[str], sections: Mapping[str, ProviderSection] = {}) -> str:
    """The end of a message about an unknown llm: a similar name, or all names."""
    declared = [*dict.fromkeys(declared)]
    if hint := did_you_mean(name, [*declared, *OFFLINE_PROTOCOLS, *PUBLIC_URLS]):
        return hint
    from evalloom.settings import providers

    if hint := providers.suggestion(name, sections):
        return hint
    known = f"Known: {', '.join(declared[:12])}. " if declared else ""
    return f". {known}Without a declaration: echo, scripted:FILE, openai:MODEL, anthropic:MODEL, PROVIDER:MODEL"


# Names of our keys in other tools. Sent as a parameter, `api_base` would have no effect on where requests go.
_FOREIGN_KEYS = {
    "url": "base_url",
    "api_base": "base_url",
    "endpoint": "base_url",
    "type": "protocol",
    "model_name": "model",
    "rpm": "requests_per_minute",
    "tpm": "tokens_per_minute",
    "max_concurrency": "concurrency",
    "extra_headers": "headers",
    "api_key_env": "key_env",
}


def _provider_sections(written: Record) -> dict[str, ProviderSection]:
    """The providers of a file that has not been checked yet: those of the right types."""
    sections = {}
    for name, section in object_in(written, "providers").items():
        try:
            sections[name] = msgspec.convert(present(section) if isinstance(section, dict) else {}, ProviderSection)
        except msgspec.ValidationError:
            sections[name] = ProviderSection()
    return sections


def _provider_errors(provider: Record, path: Steps, is_known: bool) -> Iterator[Error]:
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", str(path[-1]), re.ASCII):
        yield path, "expected a name of letters, digits, '-', '_' and '.'"
    yield from _connection_errors(provider, path, tuple(ProviderSection.__struct_fields__))


def _llm_errors(
    defaults: Record, llm: Record, path: Steps, folder: Path, providers: Mapping[str, ProviderSection]
) -> Iterator[Error]:
    merged = {**defaults, **present(llm)}
    protocol, file = merged.get("protocol", "openai"), merged.get("file")
    # A protocol of its own says that the llm is not of the provider of `defaults`.
    provider = llm.get("provider") or (None if llm.get("protocol") else defaults.get("provider"))
    if isinstance(provider, str) and provider:
        yield from _provider_name_errors(provider, merged, path, providers)
    elif isinstance(protocol, str) and protocol not in OFFLINE_PROTOCOLS and not merged.get("model"):
        yield (*path, "model"), "missing. Name the model as its provider calls it"
    if protocol == "scripted" and not file:
        yield (*path, "file"), "missing. Name the file with the rules of the script"
    if isinstance(file, str) and file and not exists(folder, file):
        yield (*path, "file"), f"there is no file {quote((folder / file).as_posix())}"
    yield from _connection_errors(llm, path)


def _provider_name_errors(
    name: str, llm: Record, path: Steps, sections: Mapping[str, ProviderSection]
) -> Iterator[Error]:
    """Errors in `provider` of an llm: an unknown one, or no model there and under `model`."""
    from evalloom.settings import providers  # deferred: few llms have one

    try:
        parts = providers.parse(name, sections, needs_model=False)
    except EvalloomError as error:
        yield (*path, "provider"), error.args[0]
        return
    if parts is None:
        yield (*path, "provider"), f"there is no provider {quote(name)}{providers.suggestion(name, sections)}"
    elif not (parts.model or parts.vendor.model or llm.get("model")):
        yield (*path, "model"), "missing. Name the model as its provider calls it"


def _connection_errors(
    llm: Record, path: Steps, known: tuple[str, ...] = LlmSection.__struct_fields__
) -> Iterator[Error]:
    """Parameters that look like misspelled keys, and errors in the URL, key variable and headers."""
    for name in llm:
        if name in known:
            continue
        meant = _FOREIGN_KEYS.get(name)
        if hint := f". Did you mean {meant!r}?" if meant else did_you_mean(name, known, 0.75):
            yield (*path, name), f"unknown key{hint} A parameter of that name goes under params"
    if isinstance(url := llm.get("base_url"), str) and (error := url_error(url)):
        yield (*path, "base_url"), error
    variable = llm.get("key_env")
    if isinstance(variable, str) and not is_variable_name(variable):
        yield (*path, "key_env"), "expected the name of an environment variable, or none"
    for name, value in object_in(llm, "headers").items():
        if not re.fullmatch(r"[\w!#$%&'*+.^`|~-]+", name, re.ASCII) or not str(value).isprintable():
            yield (
                (*path, "headers", name),
                "is not an HTTP header: a name of letters, digits and -, a value on one line",
            )


def is_variable_name(text: str) -> bool:
    """Whether an environment variable may have this name."""
    return re.fullmatch(r"[^\W\d]\w*", text) is not None


def url_error(url: str) -> str:
    """The error in a base URL, without a password that it may contain; empty when it is valid."""
    expected = "expected a URL such as http://localhost:8000/v1"
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return expected
    if "@" in parts.netloc:
        return "a user or a password does not belong in a URL. Keys come from the environment"
    if parts.scheme not in ("http", "https") or not has_host or not url.isprintable() or " " in url:
        return f"{expected}, got {quote(url)}" if "@" not in url else expected
    return ""


# -- access to values of any type -----------------------------------------------------------------------


def present(written: Record) -> Record:
    """The keys that have a value; the others count as absent."""
    return {name: value for name, value in written.items() if value is not None}


def object_in(written: Record, name: str) -> Record:
    """The object under a key; an empty one when there is none, which `_convert` reports."""
    value = written.get(name)
    return value if isinstance(value, dict) else {}


def list_in(written: Record, name: str) -> list[Any]:
    """The list under a key; an empty one when there is none, which `_convert` reports."""
    value = written.get(name)
    return value if isinstance(value, list) else []


def exists(folder: Path, name: str) -> bool:
    """Whether a file or folder exists; False also for a name that no file can have."""
    try:
        return (folder / name).exists()
    except (OSError, ValueError):
        return False
