"""The `derivedMetrics` of a promptfoo config: numbers computed from the sums of named scores, for its results."""

from __future__ import annotations

from typing import Any

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Record
from evalloom.core.process_state import absolute
from evalloom.interop.promptfoo.files import File, FileProblem

_LARGEST = 4 * 1024 * 1024
_NAME = lazy_pattern(r"[A-Za-z_]\w*")
# The functions of mathjs that JavaScript has under the same names.
_FUNCTIONS = "abs, ceil, cos, exp, floor, log, log2, log10, max, min, pow, round, sign, sin, sqrt, tan"


def definitions(datasets: list[Record]) -> list[tuple[str, str]]:
    """Return the names and expressions that the configs of a batch define; a config that is gone defines none."""
    found: list[tuple[str, str]] = []
    for dataset in datasets:
        path = absolute(str(dataset.get("path") or ""))
        if path.suffix.lower() not in (".yaml", ".yml", ".json"):
            continue
        try:
            if path.stat().st_size > _LARGEST:
                continue
            content = File(path, path.read_text(encoding="utf-8-sig")).value
        except (OSError, ValueError, FileProblem):
            continue
        written = content.get("derivedMetrics") if isinstance(content, dict) else None
        for metric in written if isinstance(written, list) else []:
            if (
                isinstance(metric, dict)
                and isinstance(metric.get("name"), str)
                and isinstance(metric.get("value"), str)
            ):
                found.append((metric["name"], metric["value"]))
    return found


def with_derived(named: dict[str, float], count: int, metrics: list[tuple[str, str]]) -> dict[str, Any]:
    """Return named scores with the derived ones, each of which sees those before it; 0 where one cannot be computed."""
    if not metrics:
        return named
    from evalloom.core.javascript import Code, JavaScriptError, call

    values: dict[str, Any] = {**named, "__count": count}
    for name, expression in metrics:
        # mathjs writes powers with ^; a name that is no identifier cannot be in an expression anyway.
        source = f"const {{{_FUNCTIONS}}} = Math;\nreturn ({expression.replace('^', '**')}\n)"
        given = {key: value for key, value in values.items() if _NAME.fullmatch(key)}
        try:
            value = call(Code(source), given)
        except JavaScriptError:
            value = None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        values[name] = value if is_number else values.get(name, 0)
    del values["__count"]
    return values
