"""`evalloom.yaml` beside the data: who answers, under which profiles, what is tested, and where the keys come from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from evalloom import moved
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Profile, Record, show_path
from evalloom.core.text import quote, type_name
from evalloom.files.read import RowReader
from evalloom.files.rows import Problem, Row
from evalloom.files.source import source_of
from evalloom.settings import form, keys
from evalloom.settings.form import FILE_NAME, LLM_KEYS, PROTOCOLS, PUBLIC_URLS, schema
from evalloom.settings.keys import environment
from evalloom.settings.section import Loaded, Section

__all__ = [
    "FILE_NAME",
    "PROTOCOLS",
    "LlmSettings",
    "Price",
    "RunSettings",
    "Settings",
    "environment",
    "find_datasets",
    "first_profile",
    "key_names",
    "key_of",
    "llm_of",
    "load",
    "profile",
    "schema",
    "secrets",
]


class Price(Struct, frozen=True):
    """What a million tokens cost, in the user's currency; `cached_input` is what `input` is unless it is said."""

    input: float
    output: float
    cached_input: float | None = None


class LlmSettings(Struct, frozen=True):
    """One llm as it is called: `params` go to it with every request, the rest is about how to reach it."""

    name: str
    protocol: str = "openai"
    model: str = ""
    base_url: str = ""
    params: Record = {}
    key_env: str = ""
    headers: dict[str, str] = {}
    timeout_s: float = 120.0
    retries: int = 5
    concurrency: int = 0
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    price: Price | None = None
    file: str = ""
    folder: Path = Path()
    stream: bool = False


class RunSettings(Struct, frozen=True):
    """What `evalloom run` does when no flag says otherwise; named like its flags. None is no limit."""

    profiles: list[str] = []
    concurrency: int = 16
    repeat: int = 1
    limit: int | None = None
    tags: list[str] = []
    filter: str = ""
    variants: list[str] = []
    cache: bool = True
    skip_invalid: bool = False
    timeout_s: float | None = None
    max_cost: float | None = None
    max_tokens: int | None = None
    max_time: float | None = None
    fail_under: float | None = None
    output: list[str] = []


class Settings(Struct, frozen=True):
    """All that one settings file says; `defaults` are as written, and already merged into each of `llms`."""

    path: Path | None = None
    folder: Path = Path()
    defaults: Record = {}
    llms: dict[str, LlmSettings] = {}
    profiles: dict[str, Profile] = {}
    target: str | Record = ""
    datasets: list[str] = []
    gates: list[str] = []
    judge: str = ""
    embeddings: str = ""
    checks: list[Record] = []
    prices: dict[str, Price] = {}
    run: RunSettings = RunSettings()
    sections: dict[str, Any] = {}
    """What the sections of systems say, by name; only of those that the file was loaded with."""
    written: Row | None = None
    """The file as it was read."""

    def section(self, section: Section[Loaded]) -> Loaded:
        """What the file says in the section of a system; the defaults where it says nothing."""
        if section.name in self.sections:
            loaded: Loaded = self.sections[section.name]
            return loaded
        if self.written is None or self.path is None:
            return section.load({}, self.folder)
        # The file was loaded without this section, so it has not been checked yet.
        if faults := _faults(self.written, self.folder, (section,), is_open=True):
            raise _bad_settings(self.path, faults)
        return section.load(form.present(form.part(self.written.value, section.name)), self.folder)


# -- reading ------------------------------------------------------------------------------------------


def load(path: Path | None = None, sections: tuple[Section[Any], ...] | None = None) -> Settings:
    """The settings in a file; without one, those of ./evalloom.yaml where it exists. Tells all faults at once.

    `sections` are those of all systems. Without them, keys that are not the engine's are taken for such sections:
    `Settings.section` checks each when it is asked for.
    """
    if path is None:
        path = Path(FILE_NAME)
        if not path.is_file():
            return Settings()
    row, faults = _read(path)
    if row is not None:
        faults += _faults(row, path.parent, sections or (), is_open=sections is None)
    if row is None or faults:
        raise _bad_settings(path, faults)
    return _built(row, path, sections or ())


def find_datasets(folder: Path = Path(), sections: tuple[Section[Any], ...] | None = None) -> list[str]:
    """The datasets that evalloom.yaml names, as paths from the working folder."""
    path = folder / FILE_NAME
    if not path.is_file():
        raise usage_error("no_paths", f"name a file or a folder; there is no {FILE_NAME} here that names datasets")
    datasets = load(path, sections).datasets
    if not datasets:
        raise usage_error("bad_settings", f"{path.as_posix()}: datasets: expected a list of paths, got none")
    return datasets


_Fault = tuple[int, int, str]
"""Line, column and message."""


def _read(path: Path) -> tuple[Row | None, list[_Fault]]:
    """The one object in the file, and what is wrong with the file itself."""
    items = list(RowReader(source_of(path)))
    problems = [item for item in items if isinstance(item, Problem)]
    faults = [(*item.place, _explained(item)) for item in problems if item.severity != "info"]
    rows = [item for item in items if isinstance(item, Row)]
    if len(rows) == 1 and isinstance(rows[0].value, dict):
        return rows[0], faults
    if not faults:
        got = "an empty file" if not rows else type_name(rows[0].value) if len(rows) == 1 else "a list"
        faults.append((0, 0, f"expected keys such as llms, profiles, datasets, got {got}"))
    return None, faults


def _explained(problem: Problem) -> str:
    """What the reader says, with what to do about it in a settings file."""
    if problem.code == "duplicate_key":
        return f"{problem.message.partition(';')[0]}. Take one of them away"
    if "cannot start any token" in problem.message:
        return f"{problem.message}. YAML is indented with spaces, and a text that begins with a sign stands in quotes"
    return problem.message


def _faults(row: Row, folder: Path, sections: tuple[Section[Any], ...], is_open: bool) -> list[_Fault]:
    """What is wrong with what is written, at its places."""
    faults = form.faults(row.value, folder, sections, is_open)
    return [(*row.place_of(path), f"{show_path(path)}: {message}") for path, message in faults]


def _bad_settings(path: Path, faults: list[_Fault]) -> EvalloomError:
    return usage_error("bad_settings", "\n".join(_shown(path, *fault) for fault in sorted(faults)))


def _shown(path: Path, line: int, column: int, message: str) -> str:
    place = f":{line}:{column}" if line else ""
    # A key of the file may hold anything, and nothing of it may drive a terminal.
    plain = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in message)
    return f"{path.as_posix()}{place}: {plain}"


def _built(row: Row, path: Path, sections: tuple[Section[Any], ...]) -> Settings:
    """The settings in a file without faults."""
    parts = form.present(row.value)
    folder = path.parent
    shared = Settings(
        path=path,
        folder=folder,
        defaults=parts.get("defaults", {}),
        profiles={name: _profile(name, own) for name, own in parts.get("profiles", {}).items()},
        target=parts.get("target", ""),
        datasets=[(folder / name).as_posix() for name in parts.get("datasets", [])],
        gates=parts.get("gates", []),
        judge=parts.get("judge", ""),
        embeddings=parts.get("embeddings", ""),
        checks=parts.get("checks", []),
        prices=msgspec.convert(parts.get("prices", {}), dict[str, Price]),
        run=msgspec.convert(form.present(parts.get("run", {})), RunSettings),
        sections={
            section.name: section.load(form.present(parts.get(section.name, {})), folder) for section in sections
        },
        written=row,
    )
    llms = {name: _llm(name, shared, own or {}) for name, own in parts.get("llms", {}).items()}
    return msgspec.structs.replace(shared, llms=llms)


def _llm(name: str, settings: Settings, own: Record) -> LlmSettings:
    """An llm by what is written under its name, with the defaults below it."""
    shared = settings.defaults
    fields = {
        **_fields(shared),
        **_fields(own),
        "headers": {**form.part(shared, "headers"), **form.part(own, "headers")},
    }
    params = form.present({**_params(shared), **_params(own)})
    fields.setdefault("price", settings.prices.get(fields.get("model", "")))
    return msgspec.convert({**fields, "name": name, "params": params, "folder": settings.folder}, LlmSettings)


def _fields(written: Record) -> Record:
    return {name: value for name, value in form.present(written).items() if name in LLM_KEYS and name != "params"}


def _params(written: Record) -> Record:
    """What goes to the llm with each request: everything that is not ours, and `params`."""
    loose = {name: value for name, value in written.items() if name not in LLM_KEYS}
    return {**loose, **(written.get("params") or {})}


def _profile(name: str, written: Record) -> Profile:
    run = written["run"]
    return Profile(name, run, written.get("verify") or run, written.get("params") or {})


# -- looking things up --------------------------------------------------------------------------------


def profile(settings: Settings, name: str) -> Profile:
    """The profile of that name, or one made of an llm: declared, or `echo`, `scripted:FILE`, `openai:MODEL`."""
    if name in settings.profiles:
        return settings.profiles[name]
    if name in settings.llms or form.spot(name):
        return Profile(name, name, name)
    known = [*settings.profiles, *settings.llms]
    raise usage_error("unknown_profile", f"there is no profile or llm {quote(name)}.{form.instead(name, known)}")


def first_profile(settings: Settings) -> Profile:
    """The profile for when none is named: the first declared, else the first llm, else what the environment tells."""
    for name in (*settings.profiles, *settings.llms):
        return profile(settings, name)
    variables = environment(settings.folder)
    for protocol in PUBLIC_URLS:
        if any(variables.get(f"{protocol.upper()}_{word}") for word in ("API_KEY", "BASE_URL", "MODEL")):
            return profile(settings, f"{protocol}:{_model(settings, protocol)}")
    raise usage_error(
        "no_profile",
        f"nobody to answer: no llm in {_file(settings)}, and OPENAI_API_KEY is not set. "
        "Offline: --profile echo, or --profile scripted:FILE. Else set OPENAI_API_KEY and OPENAI_MODEL, "
        "or name llms and profiles in the file",
    )


def llm_of(settings: Settings, name: str) -> LlmSettings:
    """The llm of that name, declared or made on the spot, with its URL, its headers and its price filled in."""
    llm = settings.llms.get(name) or _made(settings, name)
    if llm is None:
        message = f"there is no llm {quote(name)} in {_file(settings)}.{form.instead(name, list(settings.llms))}"
        raise usage_error("unknown_llm", message)
    variables = environment(settings.folder)
    base_url = llm.base_url or _base_url(llm.protocol, variables)
    return msgspec.structs.replace(llm, base_url=base_url, headers=_headers(llm, variables))


def _made(settings: Settings, name: str) -> LlmSettings | None:
    """An llm that no file declares, from a name such as `openai:MODEL`."""
    spot = form.spot(name)
    if spot is None:
        return None
    protocol, rest = spot
    if protocol == "scripted":
        llm = _llm(name, settings, {"protocol": protocol, "file": rest})
        # Named in the settings it stands beside them, named on the command line in the working folder.
        return llm if form.exists(llm.folder, rest) else msgspec.structs.replace(llm, folder=Path())
    if protocol == "echo":
        return _llm(name, settings, {"protocol": protocol, "model": "echo"})
    return _llm(name, settings, {"protocol": protocol, "model": rest or _model(settings, protocol)})


def _model(settings: Settings, protocol: str) -> str:
    """The model that the environment names for a protocol."""
    variable = f"{protocol.upper()}_MODEL"
    model = environment(settings.folder).get(variable, "").strip()
    if not model:
        message = f"which model of {protocol}? Set {variable}, or name it: --profile {protocol}:MODEL"
        raise usage_error("model_missing", message)
    return model


def _base_url(protocol: str, variables: Mapping[str, str]) -> str:
    variable = f"{protocol.upper()}_BASE_URL"
    url = variables.get(variable, "").strip() if protocol in PUBLIC_URLS else ""
    if url and (fault := form.url_fault(url)):
        raise usage_error("bad_base_url", f"{variable}: {fault}")
    return url or PUBLIC_URLS.get(protocol, "")


def _headers(llm: LlmSettings, variables: Mapping[str, str]) -> dict[str, str]:
    try:
        headers = {name: keys.expand(value, variables).strip() for name, value in llm.headers.items()}
    except KeyError as missing:
        message = f"llm {quote(llm.name)}: headers: the environment variable {missing.args[0]} is not set"
        raise usage_error("variable_missing", message) from None
    for name, value in headers.items():
        if not value.isprintable():
            raise usage_error("bad_header", f"llm {quote(llm.name)}: headers.{name}: holds a line break or the like")
    return headers


def key_of(llm: LlmSettings) -> str:
    """The API key of an llm, from the environment or `.env`; empty where none is needed."""
    names = key_names(llm)
    variables = environment(llm.folder)
    for name in names:
        if key := variables.get(name, "").strip():
            return _checked(key, name)
    # Deferred: it brings asyncio and urllib along, and those who only want to know the datasets need neither.
    from evalloom.core.http import is_loopback

    if not names or is_loopback(llm.base_url or _base_url(llm.protocol, variables)):
        return ""
    raise usage_error("key_missing", f"llm {quote(llm.name)}: no API key. Set {' or '.join(names)}.")


def key_names(llm: LlmSettings) -> tuple[str, ...]:
    """The variables that may hold the key of an llm, in the order they are asked; none where it takes no key."""
    has_own = any(keys.is_key_header(name) for name in llm.headers)
    if llm.protocol not in PUBLIC_URLS or llm.key_env == "none" or has_own:
        return ()
    return (llm.key_env,) if llm.key_env else keys.names_for(llm.name, llm.protocol)


def _checked(key: str, name: str) -> str:
    """A key that can stand in a header; what cannot would be shown by the error of the HTTP library."""
    if not (key.isascii() and key.isprintable()):
        raise usage_error("bad_key", f"{name}: holds characters that no API key has. Set it again, without line breaks")
    return key


def secrets(settings: Settings) -> list[str]:
    """Every value that must never be shown, the longest first, so that none is cut in two by a shorter one."""
    variables = environment(settings.folder)
    names = {name for name in variables if name.startswith(keys.PREFIX)} | {"OPENAI_API_KEY", "ANTHROPIC_API_KEY"}
    names |= {name for name in keys.read_dotenv(settings.folder) if keys.is_secret_name(name)}
    names |= {llm.key_env for llm in settings.llms.values()} | {settings.defaults.get("key_env") or ""}
    written = [settings.target, settings.defaults, [{"headers": llm.headers} for llm in settings.llms.values()]]
    headers = [text for path, text in form.leaves(written) if "headers" in path and isinstance(text, str)]
    names |= {name for text in headers for name in keys.variables_in(text)}
    found = {variables.get(name, "").strip() for name in names}
    from evalloom.core.http import is_secret

    return sorted((value for value in found if is_secret(value)), key=lambda value: (-len(value), value))


def _file(settings: Settings) -> str:
    return settings.path.as_posix() if settings.path else FILE_NAME


def __getattr__(name: str) -> object:
    return moved.find_name(__name__, name)
