"""Loads `evalloom.yaml`: the llms and profiles, the target, and the environment variables with the API keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from evalloom import moved
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Profile, Record, show_path
from evalloom.core.text import printable, quote, type_name
from evalloom.files.read import RowReader
from evalloom.files.rows import Problem, Row
from evalloom.files.source import source_of
from evalloom.settings import keys
from evalloom.settings.check import (
    ParsedFile,
    exists,
    is_llm_name,
    leaves,
    object_in,
    parse,
    present,
    suggest_llm,
    url_error,
)
from evalloom.settings.file import (
    FILE_NAME,
    LLM_KEYS,
    OFFLINE_PROTOCOLS,
    PROTOCOLS,
    PUBLIC_URLS,
    Price,
    ProviderSection,
    Repeat,
    RunSettings,
    schema,
)
from evalloom.settings.keys import environment
from evalloom.settings.llm import LlmSettings
from evalloom.settings.section import Loaded, Section

__all__ = [
    "FILE_NAME",
    "PROTOCOLS",
    "LlmSettings",
    "Price",
    "Repeat",
    "RunSettings",
    "Settings",
    "environment",
    "find_datasets",
    "first_profile",
    "key_names",
    "key_of",
    "llm_by_name",
    "llm_of",
    "load",
    "profile",
    "resolve",
    "schema",
    "secrets",
    "with_llms",
]


class Settings(Struct, frozen=True):
    """The content of a settings file; `defaults` are already merged into each of `llms`."""

    path: Path | None = None
    folder: Path = Path()
    defaults: Record = {}
    llms: dict[str, LlmSettings] = {}
    providers: dict[str, ProviderSection] = {}
    profiles: dict[str, Profile] = {}
    target: str | Record = ""
    targets: dict[str, str | Record] = {}
    datasets: list[str] = []
    gates: list[str] = []
    judge: str = ""
    embeddings: str = ""
    checks: list[Record] = []
    prices: dict[str, Price] = {}
    run: RunSettings = RunSettings()
    sections: dict[str, Any] = {}
    """The sections of systems, by name; only of those that the file was loaded with."""
    written: Row | None = None
    """The file as it was read."""

    def section(self, section: Section[Loaded]) -> Loaded:
        """The section of a system; its defaults where the file has none."""
        if section.name in self.sections:
            loaded: Loaded = self.sections[section.name]
            return loaded
        if self.written is None or self.path is None:
            return section.resolve(section.struct(), self.folder)
        # The file was loaded without this section, so it has not been checked yet.
        parsed, errors = _parse(self.written, self.path.parent, (section,), is_open=True)
        if parsed is None:
            raise _bad_settings(self.path, errors)
        loaded = section.resolve(parsed.sections[section.name], self.folder)
        return loaded


# -- loading ------------------------------------------------------------------------------------------


def load(path: Path | None = None, sections: tuple[Section[Any], ...] | None = None) -> Settings:
    """Read a settings file, by default ./evalloom.yaml where it exists. The error lists everything that is wrong in it.

    `sections` are those of all systems. Without them, every key that the engine does not know may be a section:
    `Settings.section` checks one when it is needed.
    """
    if path is None:
        path = Path(FILE_NAME)
        if not path.is_file():
            return Settings()
    folder = path.parent
    sections, is_open = sections or (), sections is None
    row, errors = _read(path)
    parsed, more_errors = _parse(row, folder, sections, is_open) if row is not None else (None, [])
    errors += more_errors
    if row is None or parsed is None or errors:
        raise _bad_settings(path, errors)
    engine, own, written = parsed.engine, parsed.sections, row.value
    settings = Settings(
        path=path,
        folder=folder,
        defaults=object_in(written, "defaults"),
        providers=engine.providers,
        profiles={
            name: Profile(name, profile.run, profile.verify or profile.run, profile.params)
            for name, profile in engine.profiles.items()
        },
        target=engine.target,
        targets=engine.targets,
        datasets=[(folder / name).as_posix() for name in engine.datasets],
        gates=engine.gates,
        judge=engine.judge,
        embeddings=engine.embeddings,
        checks=engine.checks,
        prices=engine.prices,
        run=engine.run,
        sections={section.name: section.resolve(own[section.name], folder) for section in sections},
        written=row,
    )
    # Merged from the raw file: an llm may have parameters that no struct declares, and null removes a default.
    llms = object_in(written, "llms")
    return msgspec.structs.replace(
        settings, llms={name: _merge_llm(name, settings, object_in(llms, name)) for name in llms}
    )


def find_datasets(folder: Path = Path(), sections: tuple[Section[Any], ...] | None = None) -> list[str]:
    """The datasets that evalloom.yaml names, as paths from the working folder."""
    path = folder / FILE_NAME
    if not path.is_file():
        raise usage_error("no_paths", f"name a file or a folder; there is no {FILE_NAME} here that names datasets")
    datasets = load(path, sections).datasets
    if not datasets:
        raise usage_error("bad_settings", f"{path.as_posix()}: datasets: expected a list of paths, got none")
    return datasets


_Located = tuple[int, int, str]
"""The line, the column and the message of an error."""


def _read(path: Path) -> tuple[Row | None, list[_Located]]:
    """Read the single object of the file, and the errors of the reader."""
    items = list(RowReader(source_of(path)))
    rows = [item for item in items if isinstance(item, Row)]
    errors = [(*item.place, _explain(item)) for item in items if isinstance(item, Problem) and item.severity != "info"]
    is_object = len(rows) == 1 and isinstance(rows[0].value, dict)
    if not is_object and not errors:
        got = "an empty file" if not rows else type_name(rows[0].value) if len(rows) == 1 else "a list"
        errors.append((0, 0, f"expected keys such as llms, profiles, datasets, got {got}"))
    return rows[0] if is_object else None, errors


def _explain(problem: Problem) -> str:
    """The message of the reader, with a hint for settings files."""
    if problem.code == "duplicate_key":
        return f"{problem.message.partition(';')[0]}. Remove one of them"
    if "cannot start any token" in problem.message:
        return f"{problem.message}. Indent YAML with spaces, and quote a text that begins with punctuation"
    return problem.message


def _parse(
    row: Row, folder: Path, sections: tuple[Section[Any], ...], is_open: bool
) -> tuple[ParsedFile | None, list[_Located]]:
    parsed, errors = parse(row.value, folder, sections, is_open)
    return parsed, [(*row.place_of(steps), f"{show_path(steps)}: {message}") for steps, message in errors]


def _bad_settings(path: Path, errors: list[_Located]) -> EvalloomError:
    """Build one error that lists all errors with line and column, in the order of the file."""
    lines = []
    for line, column, message in sorted(errors):
        place = f":{line}:{column}" if line else ""
        # A key of the file may contain control characters, which must not reach a terminal.
        lines.append(f"{path.as_posix()}{place}: {printable(message)}")
    return usage_error("bad_settings", "\n".join(lines))


_CONNECTION = ("provider", "protocol", "base_url", "key_env", "headers", "api_version", "model", "file")
"""Keys of `defaults` that belong to one provider and not to another."""


def _merge_llm(name: str, settings: Settings, own: Record) -> LlmSettings:
    """Merge the declaration of an llm with the defaults of the file."""
    defaults = settings.defaults
    if own.get("provider") != defaults.get("provider") and (own.get("provider") or own.get("protocol")):
        defaults = {key: value for key, value in defaults.items() if key not in _CONNECTION}
    fields = {key: value for key, value in {**present(defaults), **present(own)}.items() if key in LLM_KEYS}
    if fields.get("provider"):
        fields |= _provider_fields(settings, fields)
    fields["headers"] = {**object_in(defaults, "headers"), **object_in(own, "headers")}
    fields.setdefault("price", settings.prices.get(fields.get("model", "")))
    params: Record = {}
    for written in (defaults, own):
        params |= {key: value for key, value in written.items() if key not in LLM_KEYS}
        params |= object_in(written, "params")
    fields |= {"name": name, "params": present(params), "folder": settings.folder}
    return msgspec.convert(fields, LlmSettings)


def _provider_fields(settings: Settings, fields: Record) -> Record:
    """Return what `provider: groq` or `provider: azure:responses:DEPLOYMENT` says; written keys take precedence."""
    from evalloom.settings import providers

    name = fields["provider"]
    parts = providers.parse(name, settings.providers, needs_model=False)
    if parts is None:
        hint = providers.suggestion(name, settings.providers)
        raise usage_error("unknown_provider", f"there is no provider {quote(name)}{hint}")
    described = providers.fields_of(parts, environment(settings.folder))
    if "vendor" not in described:
        # A declared llm has a row even where a name has none: `provider: anthropic` must not mean OPENAI_API_KEY.
        described |= {"provider": parts.vendor.name, "vendor": parts.vendor}
    written = {key: fields[key] for key in ("protocol", "model") if fields.get(key)}
    return {**described, **written}


# -- lookup ------------------------------------------------------------------------------------------


def profile(settings: Settings, name: str) -> Profile:
    """Look up a profile; the name of an llm, such as `echo`, `scripted:FILE` or `openai:MODEL`, is a profile too."""
    if name in settings.profiles:
        return settings.profiles[name]
    if name in settings.llms or is_llm_name(name, settings.providers):
        return Profile(name, name, name)
    known = [*settings.profiles, *settings.llms]
    hint = suggest_llm(name, known, settings.providers)
    raise usage_error("unknown_profile", f"there is no profile or llm {quote(name)}{hint}")


def first_profile(settings: Settings) -> Profile:
    """The default profile: the first that is declared, else the first llm, else the model of the environment."""
    for name in (*settings.profiles, *settings.llms):
        return profile(settings, name)
    variables = environment(settings.folder)
    for protocol in PUBLIC_URLS:
        if any(variables.get(f"{protocol.upper()}_{word}") for word in ("API_KEY", "BASE_URL", "MODEL")):
            return profile(settings, f"{protocol}:{_model(settings, protocol)}")
    raise usage_error(
        "no_profile",
        f"no llm to call: there is none in {_file(settings)}, and OPENAI_API_KEY is not set. "
        "Offline: --profile echo, or --profile scripted:FILE. Otherwise set OPENAI_API_KEY and OPENAI_MODEL, "
        "or name llms and profiles in the file",
    )


def llm_of(settings: Settings, name: str) -> LlmSettings:
    """The llm of that name, declared or not, with its URL, its headers and its price filled in."""
    llm = settings.llms.get(name) or _undeclared_llm(settings, name)
    if llm is None:
        hint = suggest_llm(name, list(settings.llms), settings.providers)
        raise usage_error("unknown_llm", f"there is no llm {quote(name)} in {_file(settings)}{hint}")
    variables = environment(settings.folder)
    headers = _headers(llm, variables) if llm.is_trusted else llm.headers
    return msgspec.structs.replace(llm, base_url=_address(llm, variables), headers=headers)


llm_by_name = llm_of


def resolve(
    settings: Settings,
    name: str,
    overrides: Mapping[str, Any] = MappingProxyType({}),
    *,
    label: str = "",
    is_trusted: bool = True,
) -> LlmSettings:
    """Build the settings of an llm from a name and changes to it; nothing is sent, and no key is read.

    `name` is any name that `--profile` takes: an llm of evalloom.yaml, `openai:chat:gpt-4o`, `azure:responses:NAME`,
    `deepseek/deepseek-chat`, `echo`. `overrides` has the keys of an llm in evalloom.yaml: `base_url`, `key_env`
    (`none` sends no key), `headers`, `timeout_s`, `retries`, `price`, `model`, `api_version`, …; every other key is a
    parameter, sent with each request (`temperature`, `max_tokens`, `reasoning_effort`, `response_format`), and None
    removes one. `label` is the name that the llm gets, where several share one `name`.

    `is_trusted=False` is for values from a data file, such as a downloaded promptfoo configuration. Then `${VARIABLE}`
    in headers stays as it is, and a key goes only to the hosts of its provider, and to those of the owner's
    evalloom.yaml and environment: `key_of` gives none for another one on loopback, and raises `key_not_sent` for any
    other. A `key_env` that is not one of the provider's variables raises it here.

    The result is not complete yet. Register it, and use its name from then on:

        settings = with_llms(settings, [resolve(settings, "openai:chat:gpt-4o", {"temperature": 0}, label="cold")])
        llm_of(settings, "cold")     # address and headers filled in

    Raises EvalloomError: unknown_llm, provider_unsupported, model_missing, address_missing, key_not_sent, or
    bad_provider for an override of a wrong type.
    """
    from evalloom.settings import override

    llm = settings.llms.get(name) or _undeclared_llm(settings, name)
    if llm is None:
        hint = suggest_llm(name, list(settings.llms), settings.providers)
        raise usage_error("unknown_llm", f"there is no llm {quote(name)} in {_file(settings)}{hint}")
    variables = environment(settings.folder)
    if is_trusted or llm.protocol in OFFLINE_PROTOCOLS:
        return msgspec.structs.replace(override.apply(llm, overrides), name=label or name, key_name=name)
    expanded = msgspec.structs.replace(llm, headers=_headers(llm, variables))
    return override.apply_untrusted(expanded, overrides, label or name, variables)


def with_llms(settings: Settings, llms: Iterable[LlmSettings]) -> Settings:
    """Return settings in which further llms are declared, under their names."""
    return msgspec.structs.replace(settings, llms={**settings.llms, **{llm.name: llm for llm in llms}})


def _undeclared_llm(settings: Settings, name: str) -> LlmSettings | None:
    """The llm that a name such as `openai:MODEL` or `groq:MODEL` describes."""
    protocol, colon, rest = name.partition(":")
    if protocol == "scripted" and rest:
        llm = _merge_llm(name, settings, {"protocol": protocol, "file": rest})
        # In the settings, the file is relative to their folder; on the command line, to the working folder.
        return llm if exists(llm.folder, rest) else msgspec.structs.replace(llm, folder=Path())
    if protocol == "echo" and not rest and not colon:
        return _merge_llm(name, settings, {"protocol": protocol, "model": "echo"})
    from evalloom.settings import providers

    parts = providers.parse(name, settings.providers)
    if parts is None:
        return None
    fields = providers.fields_of(parts, environment(settings.folder))
    providers.require_model(name, parts, fields["model"])
    vendor = fields.pop("vendor", None)
    # The two oldest names take everything from `defaults`, as an llm without a provider does.
    own = {"protocol": fields["protocol"], "model": fields["model"]}
    if vendor is None:
        return _merge_llm(name, settings, own)
    defaults = {key: value for key, value in settings.defaults.items() if key not in _CONNECTION}
    llm = _merge_llm(name, msgspec.structs.replace(settings, defaults=defaults), own)
    return msgspec.structs.replace(llm, provider=vendor.name, vendor=vendor)


def _model(settings: Settings, protocol: str) -> str:
    """The model that the environment names for a protocol."""
    variable = f"{protocol.upper()}_MODEL"
    model = environment(settings.folder).get(variable, "").strip()
    if not model:
        message = f"which model of {protocol}? Set {variable}, or name it: --profile {protocol}:MODEL"
        raise usage_error("model_missing", message)
    return model


def _address(llm: LlmSettings, variables: Mapping[str, str]) -> str:
    if llm.vendor is None:
        return llm.base_url or _base_url(llm.protocol, variables)
    from evalloom.settings import providers

    url, variable = providers.address(llm, llm.vendor, variables)
    if variable and (error := url_error(url)):
        raise usage_error("bad_base_url", f"{variable}: {error}")
    return url


def _base_url(protocol: str, variables: Mapping[str, str]) -> str:
    protocol = "openai" if protocol == "responses" else protocol
    variable = f"{protocol.upper()}_BASE_URL"
    url = variables.get(variable, "").strip() if protocol in PUBLIC_URLS else ""
    if url and (error := url_error(url)):
        raise usage_error("bad_base_url", f"{variable}: {error}")
    return url or PUBLIC_URLS.get(protocol, "")


def _headers(llm: LlmSettings, variables: Mapping[str, str]) -> dict[str, str]:
    try:
        headers = {name: keys.expand(value, variables).strip() for name, value in llm.headers.items()}
    except KeyError as missing:
        message = f"llm {quote(llm.name)}: headers: the environment variable {missing.args[0]} is not set"
        raise usage_error("variable_missing", message) from None
    for name, value in headers.items():
        if not value.isprintable():
            raise usage_error(
                "bad_header",
                f"llm {quote(llm.name)}: headers.{name}: contains a line break or another control character",
            )
    return headers


def key_of(llm: LlmSettings) -> str:
    """The API key of an llm, from the environment or `.env`; empty where none is needed."""
    names = key_names(llm)
    if not names:
        return ""
    # Deferred: it imports asyncio, and most loads of the settings are for the datasets alone.
    from evalloom.core.http import is_loopback

    variables = environment(llm.folder)
    url = _address(llm, variables)
    if not llm.is_trusted:
        from evalloom.settings import override

        if not override.may_send_key(llm, url, names):
            return ""
    for name in names:
        if key := variables.get(name, "").strip():
            # The error of the HTTP library would show a key that is not a valid header.
            if not (key.isascii() and key.isprintable()):
                message = f"{name}: contains characters that no API key has. Set it again, without line breaks"
                raise usage_error("bad_key", message)
            return key
    if is_loopback(url) or (llm.vendor is not None and not llm.vendor.needs_key and not llm.key_env):
        return ""
    raise usage_error("key_missing", f"llm {quote(llm.name)}: no API key. Set {' or '.join(names)}.")


def key_names(llm: LlmSettings) -> tuple[str, ...]:
    """The environment variables with the key of an llm, in order of precedence; none where it takes no key."""
    has_key_header = any(keys.is_key_header(name) for name in llm.headers)
    if llm.protocol in OFFLINE_PROTOCOLS or llm.key_env == "none" or has_key_header:
        return ()
    if llm.key_env:
        return (llm.key_env,)
    own, *common = keys.names_for(llm.key_name or llm.name, llm.protocol)
    if llm.vendor is not None:
        return (own, *llm.vendor.keys) if llm.vendor.keys or llm.vendor.needs_key else ()
    if not llm.base_url or llm.base_url in PUBLIC_URLS.values():
        return (own, *common)
    from evalloom.settings import providers

    # An llm with an address and no provider is asked with the key of that address; by HOP-5, OPENAI_API_KEY is last.
    vendor = providers.by_host(llm.base_url)
    return tuple(dict.fromkeys((own, *(vendor.keys if vendor else ()), *common)))


def secrets(settings: Settings) -> list[str]:
    """All values that must never be shown, longest first: a shorter one may be part of a longer one."""
    variables = environment(settings.folder)
    names = {name for name in variables if name.startswith(keys.PREFIX) or keys.is_key_variable(name)}
    names |= {name for name in keys.read_dotenv(settings.folder) if keys.is_secret_name(name)}
    names |= {llm.key_env for llm in settings.llms.values()} | {settings.defaults.get("key_env") or ""}
    names |= {provider.key_env for provider in settings.providers.values()}
    written = [settings.target, settings.defaults, [{"headers": llm.headers} for llm in settings.llms.values()]]
    headers = [text for path, text in leaves(written) if "headers" in path and isinstance(text, str)]
    names |= {name for text in headers for name in keys.variables_in(text)}
    from evalloom.core.http import is_secret

    values = {variables.get(name, "").strip() for name in names}
    return sorted((value for value in values if is_secret(value)), key=lambda value: (-len(value), value))


def _file(settings: Settings) -> str:
    return settings.path.as_posix() if settings.path else FILE_NAME


def __getattr__(name: str) -> object:
    return moved.find_name(__name__, name)
