"""The options of the Python API: those of the command line, with `_` for `-`, as Python values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict

from evalloom.core.errors import usage_error
from evalloom.core.model import Record
from evalloom.engine.results import Results

AnyBatch = str | Path | Results
"""A batch: its results, its path, its id or a unique beginning of it, or 'latest'."""
Names = str | Iterable[str]
"""Some names: 'a', 'a,b' or ['a', 'b']."""
Files = str | Path | Iterable[str | Path]
Repeat = int | dict[str, Any]


class RunFlags(TypedDict, total=False):
    """The flags of `evalloom run`, and the keys of `run:` in evalloom.yaml where they have other names."""

    profile: Names
    concurrency: int
    repeat: Repeat
    pass_if: float | str
    limit: int | None
    tags: Names
    filter: str
    variants: Names
    vary: Mapping[str, Iterable[Any]]
    no_cache: bool
    cache: bool
    skip_invalid: bool
    allow_unscored: bool
    no_checks: bool
    allow_code: bool
    timeout: float | None
    timeout_s: float | None
    max_cost: float | None
    max_tokens: int | None
    max_time: float | None
    fail_under: float | str | None
    quarantine: str | Path
    executor: Literal["local", "dask"]
    scheduler: str
    workers: int | None
    output: Files


def settings_of(flags: RunFlags) -> Record:
    """Return flags as fields of RunSettings."""
    values: Record = dict(flags)
    for flag, name in (("profile", "profiles"), ("timeout", "timeout_s"), ("no_cache", "cache")):
        if flag in values:
            if name in values:
                raise usage_error("bad_option", f"evaluate: {flag} and {name}: expected one of them, got both")
            values[name] = values.pop(flag)
    if "no_cache" in flags:
        values["cache"] = not flags["no_cache"]
    for name in ("profiles", "tags", "variants"):
        if name in values:
            values[name] = names_of(values[name])
    if "vary" in values:
        values["vary"] = {name: list(listed) for name, listed in values["vary"].items()}
    if "output" in values:
        values["output"] = [str(path) for path in paths_in(values["output"])]
    if "quarantine" in values:
        values["quarantine"] = str(values["quarantine"])
    if isinstance(values.get("fail_under"), str):
        from evalloom.console.run_options import rate  # deferred: it imports the command line

        values["fail_under"] = rate("fail_under", values["fail_under"])
    if isinstance(values.get("pass_if"), str):
        values |= _pass_rule(values["pass_if"], values.get("repeat"))
    return values


def _pass_rule(text: str, repeat: Any) -> Record:
    from evalloom.console.run_options import pass_rule  # deferred: it imports the command line

    share, repeats = pass_rule(text)
    if repeats is None:
        return {"pass_if": share}
    if repeat not in (None, repeats):
        message = f"pass_if={text!r} is for {repeats} repeats, and repeat is {repeat}"
        raise usage_error("bad_option", f"{message}. Give a share, such as pass_if=0.8")
    return {"pass_if": share, "repeat": repeats}


def names_of(names: Names) -> list[str]:
    """Return the names in 'a,b' or ['a', 'b']."""
    if isinstance(names, str):
        return [part.strip() for part in names.split(",") if part.strip()]
    try:
        return list(names)
    except TypeError:
        raise usage_error("bad_option", f"expected names, such as 'a,b' or ['a', 'b'], got {names!r}") from None


def paths_in(files: Files) -> list[Path]:
    """Return one or several files as paths."""
    return [Path(files)] if isinstance(files, str | Path) else [Path(file) for file in files]


def batch_name(batch: AnyBatch) -> str:
    """Return a batch as commands name it."""
    return str(batch.path) if isinstance(batch, Results) else str(batch)


def allowed_drops(drop: float | Mapping[str, float] | None) -> tuple[float | None, dict[str, float]]:
    """Return the allowed drop of all cases, which is under an empty name, and those of buckets and tags."""
    if not isinstance(drop, Mapping):
        return drop, {}
    return drop.get(""), {name: value for name, value in drop.items() if name}
