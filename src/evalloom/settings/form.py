"""What may be written in `evalloom.yaml`, as a JSON Schema, and all that is wrong with what was written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from evalloom.core.model import Path as Steps
from evalloom.core.model import Record
from evalloom.core.text import quote, type_name
from evalloom.settings import keys
from evalloom.settings.section import Section

FILE_NAME = "evalloom.yaml"
PROTOCOLS = ("openai", "anthropic", "scripted", "echo")
"""The shelf of llms stands above; this is what a settings file may name of it."""

PUBLIC_URLS = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}


def spot(name: str) -> tuple[str, str] | None:
    """Protocol and model, or file, of a name that makes an llm on the spot."""
    protocol, colon, rest = name.partition(":")
    if protocol not in PROTOCOLS or (colon and not rest) or (protocol == "echo" and rest):
        return None
    return None if protocol == "scripted" and not rest else (protocol, rest)


def instead(name: str, known: list[str]) -> str:
    """What to write in place of a name that is unknown."""
    known = [*dict.fromkeys(known)]
    guess = get_close_matches(name, [*known, *PROTOCOLS], n=1)
    if guess:
        return f" Did you mean {guess[0]!r}?"
    declared = f"Known: {', '.join(known[:12])}. " if known else ""
    return f" {declared}Without a declaration: echo, scripted:FILE, openai:MODEL, anthropic:MODEL"


# -- what may stand there -----------------------------------------------------------------------------


def object_of(properties: Record, others: bool | Record = False, required: tuple[str, ...] = ()) -> Record:
    """The schema of an object with these keys, and with no others unless it says so."""
    return {"type": "object", "properties": properties, "additionalProperties": others, "required": [*required]}


def list_of_texts(title: str) -> Record:
    """The schema of a list of strings; messages call it by its title."""
    return {"type": "array", "items": {"type": "string"}, "title": title}


TEXT: Record = {"type": "string"}
FLAG: Record = {"type": "boolean"}
COUNT: Record = {"type": "integer", "minimum": 0}
POSITIVE: Record = {"type": "integer", "minimum": 1}
AMOUNT: Record = {"type": "number", "minimum": 0}
SECONDS: Record = {"type": "number", "exclusiveMinimum": 0, "title": "a number of seconds"}
SHARE: Record = {"type": "number", "minimum": 0, "maximum": 1}
ANY_OBJECT: Record = {"type": "object"}
_PRICE = object_of(
    {
        "input": AMOUNT | {"description": "What a million tokens of the request cost."},
        "output": AMOUNT | {"description": "What a million tokens of the answer cost."},
        "cached_input": AMOUNT | {"description": "What a million tokens cost that the provider had in its cache."},
    },
    required=("input", "output"),
)
_PROFILE = object_of(
    {
        "run": TEXT | {"description": "The llm that answers."},
        "verify": TEXT | {"description": "The llm that checks what it said; the same one when left out."},
        "params": ANY_OBJECT | {"description": "Sent with every request; they win over those of the llm."},
    },
    required=("run",),
)

LLM_KEYS: Record = {
    "protocol": {"type": "string", "enum": [*PROTOCOLS], "description": "How the llm is spoken to."},
    "model": TEXT | {"description": "The model's name at its provider."},
    "base_url": TEXT | {"description": "Where it is served, such as http://localhost:8000/v1."},
    "params": ANY_OBJECT | {"description": "Sent with every request."},
    "key_env": TEXT | {"description": "The environment variable that holds the key; none when it needs no key."},
    "headers": {"type": "object", "additionalProperties": TEXT, "description": "May hold ${VARIABLE}."},
    "timeout_s": SECONDS,
    "retries": COUNT,
    "concurrency": COUNT | {"description": "Requests at once; 0 is as many as -j allows."},
    "requests_per_minute": COUNT,
    "tokens_per_minute": COUNT,
    "price": _PRICE | {"description": "Per million tokens."},
    "file": TEXT | {"description": "The rules of a scripted llm."},
    "stream": FLAG,
}
# Told by name so that a slip of the pen is seen; any other parameter is passed on as well.
_KNOWN_PARAMS: Record = {
    "temperature": AMOUNT,
    "top_p": SHARE,
    "top_k": {"type": "integer"},
    "min_p": SHARE,
    "max_tokens": POSITIVE,
    "max_completion_tokens": POSITIVE,
    "max_output_tokens": POSITIVE,
    "n": POSITIVE,
    "seed": {"type": "integer"},
    "stop": {},
    "stop_sequences": {"type": "array"},
    "presence_penalty": {"type": "number"},
    "frequency_penalty": {"type": "number"},
    "repetition_penalty": {"type": "number"},
    "logit_bias": {},
    "logprobs": {},
    "top_logprobs": {},
    "reasoning_effort": TEXT,
    "thinking": {},
    "enable_thinking": {},
    "response_format": ANY_OBJECT,
    "tool_choice": {},
    "user": TEXT,
}
_CALLED_ELSEWHERE = {
    "url": "base_url",
    "api_base": "base_url",
    "endpoint": "base_url",
    "provider": "protocol",
    "type": "protocol",
    "model_name": "model",
    "rpm": "requests_per_minute",
    "tpm": "tokens_per_minute",
    "max_concurrency": "concurrency",
    "extra_headers": "headers",
    "api_key_env": "key_env",
}
"""Other tools' words for our keys: passed on as a parameter, `api_base` would send everything to the wrong place."""
_RUN_KEYS: Record = {
    "profiles": list_of_texts("a list of profiles"),
    "concurrency": POSITIVE,
    "repeat": POSITIVE,
    "limit": POSITIVE,
    "tags": list_of_texts("a list of tags"),
    "filter": TEXT | {"description": "An expression; only the cases for which it holds are run."},
    "variants": list_of_texts("a list of variants"),
    "cache": FLAG,
    "skip_invalid": FLAG,
    "timeout_s": SECONDS,
    "max_cost": AMOUNT,
    "max_tokens": POSITIVE,
    "max_time": SECONDS,
    "fail_under": SHARE | {"description": "The least pass rate that is a success, from 0 to 1."},
    "output": list_of_texts("a list of files"),
}
_LLM = object_of(LLM_KEYS | _KNOWN_PARAMS, others=True)
_KEYS: Record = {
    "defaults": _LLM | {"description": "What holds for every llm that does not say otherwise."},
    "llms": {"type": "object", "additionalProperties": _LLM, "description": "Who answers, by name."},
    "profiles": {
        "type": "object",
        "additionalProperties": _PROFILE,
        "description": "Named choices of llms; the first one is the default.",
    },
    "target": {"type": ["string", "object"], "description": "What is tested."},
    "datasets": list_of_texts("a list of paths") | {"description": "The test files, from this file's folder."},
    "gates": list_of_texts("a list of conditions"),
    "judge": TEXT | {"description": "The llm that grades."},
    "embeddings": TEXT | {"description": "The llm that turns texts into vectors."},
    "checks": {"type": "array", "items": ANY_OBJECT, "title": "a list of checks"},
    "prices": {"type": "object", "additionalProperties": _PRICE, "description": "Per million tokens, by model."},
    "run": object_of(_RUN_KEYS) | {"description": "What `evalloom run` does when no flag says otherwise."},
}
ENGINE_KEYS = frozenset(_KEYS)
"""The keys of the file that belong to no system."""


def schema(sections: tuple[Section[Any], ...] = ()) -> Record:
    """The JSON Schema of evalloom.yaml with the sections of some systems, for editors."""
    # By name, so that the order of the systems changes neither the schema nor a message.
    own = {
        section.name: object_of(section.keys) | {"description": section.description}
        for section in sorted(sections, key=lambda section: section.name)
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": FILE_NAME,
        **object_of(_KEYS | own),
        "patternProperties": {"^x-": {}},
    }


# -- what is wrong with it ----------------------------------------------------------------------------

_Fault = tuple[Steps, str]
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
}
_WORDS = {
    "string": "a string",
    "boolean": "true or false",
    "integer": "an integer",
    "number": "a number",
    "array": "a list",
    "object": "an object",
}


def faults(written: Record, folder: Path, sections: tuple[Section[Any], ...], is_open: bool) -> list[_Fault]:
    """All faults, at most one for each place; written keys come first, because no other message may show them.

    `is_open` allows sections of other systems: then only a key that is close to a known one is a fault.
    """
    form = schema(sections) | {"additionalProperties": is_open}
    found: dict[Steps, str] = {}
    for faults in (_key_faults(written), _form_faults(written, form, ()), _meaning_faults(written, folder, sections)):
        for path, message in faults:
            found.setdefault(path, message)
    return list(found.items())


def _form_faults(value: Any, form: Record, path: Steps) -> Iterator[_Fault]:
    """Where a value is not what the schema asks for: as much of JSON Schema as our own needs."""
    types = [form["type"]] if isinstance(form.get("type"), str) else form.get("type", [])
    if types and not any(_is(value, name) for name in types):
        wanted = form.get("title") or " or ".join(_WORDS[name] for name in types)
        yield path, f"expected {wanted}, got {_brief(value)}"
    elif isinstance(value, dict):
        yield from _object_faults(value, form, path)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _form_faults(item, form.get("items", {}), (*path, number))
    elif value not in form.get("enum", [value]):
        yield path, f"expected {', '.join(form['enum'])}, got {quote(value)}.{_guess(str(value), form['enum'])}"
    elif _is(value, "number"):
        yield from _number_faults(value, form, path)


def _object_faults(value: Record, form: Record, path: Steps) -> Iterator[_Fault]:
    known, others = form.get("properties", {}), form.get("additionalProperties", True)
    for name in form.get("required", []):
        if value.get(name) is None:
            yield (*path, name), f"missing. {known[name]['description']}"
    for name, item in value.items():
        at = (*path, name)
        if name in known and item is not None:
            yield from _form_faults(item, known[name], at)
        elif isinstance(others, dict):
            is_bare = item is None and others.get("type") == "object"
            yield from _form_faults({} if is_bare else item, others, at)
        elif known and name not in known and not (not path and name.startswith("x-")):
            yield from _unknown(name, list(known), at, is_open=others)


def _unknown(name: str, known: list[str], at: Steps, is_open: bool) -> Iterator[_Fault]:
    # Where other keys are allowed they are parameters of an llm, or at the top of the file sections of other systems.
    is_parameter = is_open and len(at) > 1
    meant = _CALLED_ELSEWHERE.get(name) if is_parameter else None
    guess = f" Did you mean {meant!r}?" if meant else _guess(name, known)
    if not is_open:
        yield at, f"unknown key.{guess or ' Known: ' + ', '.join(known)}"
    elif guess:
        yield at, f"unknown key.{guess}{' A parameter of that name goes under params' if is_parameter else ''}"


def _number_faults(value: float, form: Record, path: Steps) -> Iterator[_Fault]:
    if value < form.get("minimum", value):
        yield path, f"expected {form['minimum']} or more, got {value}"
    elif value > form.get("maximum", value):
        yield path, f"expected {form['maximum']} or less, got {value}"
    elif "exclusiveMinimum" in form and value <= form["exclusiveMinimum"]:
        yield path, f"expected more than {form['exclusiveMinimum']}, got {value}"


def _is(value: Any, name: str) -> bool:
    # Python counts true among the integers, JSON does not.
    return isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def _brief(value: Any) -> str:
    """A value in a message; what has an inside is only named, since a key may stand in it."""
    return type_name(value) if isinstance(value, dict | list | None) else quote(value)


def _guess(name: str, known: list[str]) -> str:
    guess = get_close_matches(name, known, n=1, cutoff=0.75)
    return f" Did you mean {guess[0]!r}?" if guess else ""


def _key_faults(written: Record) -> Iterator[_Fault]:
    """HOP-5: a key in the settings file is an error, wherever it stands; its value is never shown."""
    for path, value in leaves(written):
        if value is not None and value != "" and _is_key([str(step) for step in path], value):
            yield path, _advice([str(step) for step in path])


def _is_key(names: list[str], value: Any) -> bool:
    text = value if isinstance(value, str) else ""
    if keys.looks_like_key(text):
        return True
    if "headers" in names[:-1]:
        return keys.is_key_header(names[-1]) and not keys.variables_in(text)
    if names[0] in _FREE:
        return False
    # Deeper inside, `key` and `token` are words like any other: a parameter may be a whole JSON Schema.
    last = names[3:4] if names[2:3] == ["params"] else names[2:3] if names[0] in ("llms", "profiles") else names[1:2]
    return any(keys.is_key_field(name) for name in last) or any(keys.is_api_key_field(name) for name in names)


_FREE = ("target", "checks")
"""Sections whose inside is for others to read."""


def _advice(names: list[str]) -> str:
    """Where a key goes instead."""
    own = names[1] if names[0] == "llms" and len(names) > 2 else ""
    variable = keys.names_for(own, "")[0] if own else f"{keys.PREFIX}<LLM>"
    also = " A header may hold ${VARIABLE}." if "headers" in names else " key_env names another variable."
    return f"a key does not belong in this file. Set {variable} in the environment or in .env.{also}"


def leaves(value: Any, path: Steps = ()) -> Iterator[tuple[Steps, Any]]:
    """Everything that has no inside, with its path."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from leaves(item, (*path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from leaves(item, (*path, number))
    else:
        yield path, value


def _meaning_faults(written: Record, folder: Path, sections: tuple[Section[Any], ...]) -> Iterator[_Fault]:
    """What has the right form and still cannot be meant: names of nothing, files that are not there."""
    llms, profiles = part(written, "llms"), part(written, "profiles")
    defaults = part(written, "defaults")
    for path in [("llms", name) for name in llms] + [("profiles", name) for name in profiles]:
        if not path[1].strip() or not path[1].isprintable():
            yield path, "expected a name on one line"
    for name, llm in llms.items():
        yield from _llm_faults(defaults, llm if isinstance(llm, dict) else {}, ("llms", name), folder)
    yield from _reach_faults(defaults, ("defaults",))
    named: list[tuple[Steps, Any]] = [
        (("profiles", name, role), part(profiles, name).get(role)) for name in profiles for role in _ROLES
    ]
    named += [((role,), written.get(role)) for role in ("judge", "embeddings")]
    yield from _name_faults(named, llms, "llm")
    run = part(written, "run")
    named = [(("run", "profiles", number), name) for number, name in enumerate(listed(run, "profiles"))]
    yield from _name_faults(named, {**profiles, **llms}, "profile or llm")
    for number, name in enumerate(listed(written, "datasets")):
        if isinstance(name, str) and not exists(folder, name):
            yield ("datasets", number), f"there is no file or folder {quote((folder / name).as_posix())}"
    yield from _filter_faults(run.get("filter"))
    for section in sections:
        own = part(written, section.name)
        for names, known, what in (
            (section.llms, llms, "llm"),
            (section.profiles, {**profiles, **llms}, "profile or llm"),
        ):
            named = [((section.name, name), own.get(name)) for name in names if own.get(name) not in section.local]
            yield from _name_faults(named, known, what)
        yield from (((section.name, *path), fault) for path, fault in section.faults(own, folder))


_ROLES = ("run", "verify")


def _name_faults(named: list[tuple[Steps, Any]], known: Record, what: str) -> Iterator[_Fault]:
    for path, name in named:
        if isinstance(name, str) and name not in known and spot(name) is None:
            yield path, f"there is no {what} {quote(name)}.{instead(name, list(known))}"


def _llm_faults(defaults: Record, llm: Record, path: Steps, folder: Path) -> Iterator[_Fault]:
    both = {**defaults, **present(llm)}
    protocol, file = both.get("protocol", "openai"), both.get("file")
    if protocol in tuple(PUBLIC_URLS) and not both.get("model"):
        yield (*path, "model"), "missing. Name the model as its provider calls it"
    if protocol == "scripted" and not file:
        yield (*path, "file"), "missing. Name the file with the rules of the script"
    if isinstance(file, str) and file and not exists(folder, file):
        yield (*path, "file"), f"there is no file {quote((folder / file).as_posix())}"
    yield from _reach_faults(llm, path)


def _reach_faults(llm: Record, path: Steps) -> Iterator[_Fault]:
    """What is wrong with how an llm is to be reached."""
    if isinstance(url := llm.get("base_url"), str) and (fault := url_fault(url)):
        yield (*path, "base_url"), fault
    variable = llm.get("key_env")
    if isinstance(variable, str) and not is_variable_name(variable):
        yield (*path, "key_env"), "expected the name of an environment variable, or none"
    for name, value in part(llm, "headers").items():
        if not re.fullmatch(r"[\w!#$%&'*+.^`|~-]+", name, re.ASCII) or not str(value).isprintable():
            yield (*path, "headers", name), "is no HTTP header: a name of letters, digits and -, a value on one line"


def is_variable_name(text: str) -> bool:
    """Whether an environment variable may have this name."""
    return re.fullmatch(r"[^\W\d]\w*", text) is not None


def url_fault(url: str) -> str:
    """What is wrong with a base URL, without showing what may be a password in it."""
    wanted = "expected a URL such as http://localhost:8000/v1"
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return wanted
    if "@" in parts.netloc:
        return "a user or a password does not belong in a URL. Keys come from the environment"
    if parts.scheme not in ("http", "https") or not has_host or not url.isprintable() or " " in url:
        return f"{wanted}, got {quote(url)}" if "@" not in url else wanted
    return ""


def _filter_faults(text: Any) -> Iterator[_Fault]:
    if isinstance(text, str) and text:
        from evalloom.core import expressions  # deferred: few settings have a filter

        try:
            expressions.compile(text)
        except expressions.ExpressionError as fault:
            yield ("run", "filter"), str(fault)


def present(written: Record) -> Record:
    """What is written there; a key with nothing behind it counts as not written."""
    return {name: value for name, value in written.items() if value is not None}


def part(written: Record, name: str) -> Record:
    """A section of the file, empty where it is none: its form is somebody else's question."""
    part = written.get(name)
    return part if isinstance(part, dict) else {}


def listed(written: Record, name: str) -> list[Any]:
    """A list of the file, empty where it is none."""
    part = written.get(name)
    return part if isinstance(part, list) else []


def exists(folder: Path, name: str) -> bool:
    """Whether there is such a file or folder; a name that no file can have is no reason to fail."""
    try:
        return (folder / name).exists()
    except (OSError, ValueError):
        return False
