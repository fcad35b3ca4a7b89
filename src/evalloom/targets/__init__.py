"""The shelf of targets: what is tested, each one async call from the inputs of a case to an output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evalloom.core.errors import did_you_mean, usage_error
from evalloom.core.model import Record, quote
from evalloom.hop import target as hoplet
from evalloom.targets import command, endpoint, prompt, python
from evalloom.targets.base import DEFAULTS, BuiltTarget, Kind, TargetOptions, bad_spec, check_keys
from evalloom.targets.python import build_callable


def _build_pipeline(spec: Record, folder: Path, options: TargetOptions) -> BuiltTarget:
    # Deferred: the largest of the targets would slow down every start.
    from evalloom.pipeline import target as pipeline

    return pipeline.build(spec, folder, options)


def _build_recipe(spec: Record, folder: Path, options: TargetOptions) -> BuiltTarget:
    from evalloom.replay.recipe import target as recipe_file

    return recipe_file.build(spec, folder, options)


_PIPELINE = Kind("pipeline", "FILE.yaml", "steps that are prompts, functions and aggregators", _build_pipeline)
_RECIPE = Kind("recipe", "FILE.json", "a context of nodes and variables, sent to the llm of the profile", _build_recipe)
TARGETS: tuple[Kind, ...] = (prompt.KIND, python.KIND, endpoint.KIND, command.KIND, hoplet.KIND, _PIPELINE, _RECIPE)


def build(spec: str | Record, folder: Path = Path(), options: TargetOptions = DEFAULTS) -> BuiltTarget:
    """The target that a spec names: `kind:what`, a URL, or an object with a key that says the kind.

    Files are looked for from `folder`, where the file that names the target lies.
    """
    kind, fields = _read_text(spec) if isinstance(spec, str) else _read_object(spec)
    check_keys(fields, kind)
    return kind.build(fields, folder, options)


def _read_text(spec: str) -> tuple[Kind, Record]:
    """`prompt:FILE` as the kind and `{"prompt": "FILE"}`."""
    name, colon, what = spec.partition(":")
    if name in ("http", "https") and what.startswith("//"):
        name, what = "http", spec
    if not colon:
        raise usage_error("unknown_target", f"expected {_forms()}, got {quote(spec)}{_proposal(spec)}")
    if not what.strip():
        raise usage_error("unknown_target", f"expected something behind the colon of {quote(spec)}")
    kind = _by_name(name, spec)
    return kind, {kind.name: what}


def _read_object(spec: Any) -> tuple[Kind, Record]:
    if not isinstance(spec, dict):
        raise bad_spec("the spec", "a string or an object", spec)
    found = [kind for kind in TARGETS if kind.name in spec]
    if not found and "template" in spec:
        found = [prompt.KIND]
    if len(found) == 1:
        return found[0], spec
    names = ", ".join(kind.name for kind in TARGETS)
    got = " and ".join(kind.name for kind in found) or ", ".join(map(quote, spec)) or "none"
    raise usage_error("unknown_target", f"target: expected one key that says the kind ({names}), got {got}")


def _by_name(name: str, spec: str) -> Kind:
    for kind in TARGETS:
        if kind.name == name.strip().lower():
            return kind
    hint = did_you_mean(name, [kind.name for kind in TARGETS])
    raise usage_error("unknown_target", f"expected {_forms()}, got {quote(spec)}{hint}")


def _forms() -> str:
    return "a target such as " + ", ".join(f"{kind.name}:{kind.form}" for kind in TARGETS)


def _proposal(spec: str) -> str:
    """What somebody may have meant who wrote only a file name."""
    kind = {".py": "python", ".sh": "command"}.get(Path(spec).suffix, "prompt" if Path(spec).suffix else "")
    kind = next((word for word in ("pipeline", "recipe") if kind == "prompt" and word in spec), kind)
    return f". Did you mean '{kind}:{spec}'?" if kind else ""


__all__ = ["DEFAULTS", "TARGETS", "BuiltTarget", "Kind", "TargetOptions", "build", "build_callable"]
