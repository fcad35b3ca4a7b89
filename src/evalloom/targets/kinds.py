"""The kinds of targets of the engine, and the choice of the kind that a spec names."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from evalloom.core.errors import usage_error
from evalloom.core.model import Record
from evalloom.core.text import did_you_mean, quote
from evalloom.targets.base import (
    DEFAULTS,
    PROMPT_SPEC_KEYS,
    BuiltTarget,
    Kind,
    TargetOptions,
    bad_spec,
    check_keys,
)

Kinds = tuple[Kind, ...]


def _prompt(spec: Record, folder: Path, options: TargetOptions) -> BuiltTarget:
    from evalloom.targets.prompt import build

    return build(spec, folder, options)


def _python(spec: Record, folder: Path, options: TargetOptions) -> BuiltTarget:
    from evalloom.targets.python import build

    return build(spec, folder, options)


def _endpoint(spec: Record, folder: Path, options: TargetOptions) -> BuiltTarget:
    from evalloom.targets.endpoint import build

    return build(spec, folder, options)


def _command(spec: Record, folder: Path, options: TargetOptions) -> BuiltTarget:
    from evalloom.targets.command import build

    return build(spec, folder, options)


_PROMPT = Kind("prompt", "FILE", "a text with placeholders, sent to the llm of the profile", _prompt, PROMPT_SPEC_KEYS)
TARGETS: Kinds = (
    _PROMPT,
    Kind("python", "MODULE:FUNCTION", "a function of yours", _python),
    Kind("http", "URL", "an HTTP endpoint", _endpoint, ("method", "query", "headers", "body", "response")),
    Kind("command", "PROGRAM …", "a program", _command, ("stdin", "output", "env")),
)
"""The kinds of the engine. The module of a kind is imported when a target of it is built."""


def build(spec: str | Record, folder: Path = Path(), options: TargetOptions = DEFAULTS) -> BuiltTarget:
    """Build the target that a spec names: `kind:what`, a URL, or an object with the kind as a key.

    Relative paths start at `folder`, the folder of the file that names the target.
    """
    kinds = (*TARGETS, *options.kinds)
    kind, fields = _read_text(spec, kinds) if isinstance(spec, str) else _read_object(spec, kinds)
    check_keys(fields, kind)
    return structs.replace(kind.build(fields, folder, options), rebuild=partial(build, spec, folder))


def _read_text(spec: str, kinds: Kinds) -> tuple[Kind, Record]:
    """Parse `prompt:FILE` into the kind and `{"prompt": "FILE"}`."""
    name, colon, what = spec.partition(":")
    if name in ("http", "https") and what.startswith("//"):
        name, what = "http", spec
    expected = f"expected a target such as {forms(kinds)}, got {quote(spec)}"
    if not colon:
        raise usage_error("unknown_target", f"{expected}{_suggest_kind(spec, kinds)}")
    if not what.strip():
        raise usage_error("unknown_target", f"expected a value after the colon in {quote(spec)}")
    for kind in kinds:
        if kind.name == name.strip().lower():
            return kind, {kind.name: what}
    raise usage_error("unknown_target", f"{expected}{did_you_mean(name, [kind.name for kind in kinds])}")


def _read_object(spec: Any, kinds: Kinds) -> tuple[Kind, Record]:
    if not isinstance(spec, dict):
        raise bad_spec("the spec", "a string or an object", spec)
    named = [kind for kind in kinds if kind.name in spec]
    if not named and "template" in spec:
        named = [_PROMPT]
    if len(named) == 1:
        return named[0], spec
    names = ", ".join(kind.name for kind in kinds)
    got = " and ".join(kind.name for kind in named) or ", ".join(map(quote, spec)) or "none"
    raise usage_error("unknown_target", f"target: expected one key for the kind ({names}), got {got}")


def forms(kinds: Kinds) -> str:
    """Return how each kind is written: `prompt:FILE, python:MODULE:FUNCTION, …`."""
    return ", ".join(f"{kind.name}:{kind.form}" for kind in kinds)


def _suggest_kind(spec: str, kinds: Kinds) -> str:
    """Suggest a kind for a spec that is only a file name."""
    suffix = Path(spec).suffix
    name = {".py": "python", ".sh": "command"}.get(suffix, "prompt" if suffix else "")
    if name == "prompt":
        # The name of the file often has the kind in it: `my_pipeline.yaml`.
        of_systems = (kind.name for kind in kinds if kind not in TARGETS and kind.form.startswith("FILE"))
        name = next((name for name in of_systems if name in spec), name)
    return f". Did you mean '{name}:{spec}'?" if name else ""
