"""Dialects with a scorer of their tool: `dialect:scorer(option=value)` makes the checks of that scorer.

The samples of some tools name no scorer, because there the code of a task does. The name of the dialect says which one,
so it is stored with each run, and every command that reads a dialect by its name reads the scorer too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Case, Origin, Record, Remark
from evalloom.core.text import did_you_mean
from evalloom.data.dialect import Dialect, OptionType, Rules, Scorer

_NAME = lazy_pattern(r"\s*([\w.-]+)\s*(?:\((.*)\))?\s*", 16)  # re.DOTALL
_ARGUMENT = lazy_pattern(r"""\s*(?:(\w+)\s*=\s*)?('(?:[^']|'')*'|"(?:[^"]|"")*"|[^,'"]*)\s*(,|$)""")
_PLAIN = lazy_pattern(r"[\w.+-]+")
_WORDS = {"true": True, "false": False}


def with_scorer(dialect: Dialect, written: str) -> Dialect:
    """Return the dialect with the scorer that follows the colon in its name. Raises a usage error if it has no such."""
    scorers = dialect.scorers()
    match = _NAME.fullmatch(written)
    names = [scorer.name for scorer in scorers]
    wanted = match[1].lower().replace("-", "_") if match else written
    scorer = next((scorer for scorer in scorers if scorer.name == wanted), None)
    if scorer is None or match is None:
        if not scorers:
            raise _unknown(f"the dialect {dialect.name} has no scorers, got {written!r}")
        known = f"expected a scorer of {dialect.name} ({', '.join(names)}), got {written!r}"
        raise _unknown(known + (did_you_mean(wanted, names) or "."))
    options = dict(_options(scorer, match[2] or "", f"{dialect.name}:{scorer.name}"))
    if missing := next((name for name in scorer.required if name not in options), ""):
        type_ = scorer.options[missing]
        example = " or ".join(f"{scorer.name}({word})" for word in type_) if isinstance(type_, tuple) else scorer.form
        raise _unknown(f"{dialect.name}:{scorer.name}: {missing}: missing; write {example}")

    def to_case(record: Record, origin: Origin) -> Case:
        case = dialect.to_case(record, origin)
        return replace(case, checks=tuple(scorer.checks(case, options)))

    def findings(record: Record, rules: Rules) -> Iterator[Remark]:
        remarks = [*dialect.findings(record, rules)]
        if any(remark.code == "no_checks" for remark in remarks) and not any(
            remark.severity == "error" for remark in remarks
        ):
            has_checks = bool(to_case(record, Origin("")).checks)
            remarks = [remark for remark in remarks if remark.code != "no_checks" or not has_checks]
        yield from remarks

    shown = ", ".join(f"{name}={_show(value)}" for name, value in options.items())
    name = f"{dialect.name}:{scorer.name}" + (f"({shown})" if shown else "")
    return replace(
        dialect,
        name=name,
        to_case=to_case,
        findings=findings,
        check_paths=lambda record: (),
        scorer_note=lambda record: "",
    )


def _options(scorer: Scorer, written: str, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the options that are written between the brackets, in the order in which the scorer lists them."""
    values: dict[str, Any] = {}
    at, names = 0, [*scorer.options]
    while written[at:].strip():
        match = _ARGUMENT.match(written, at)
        if match is None:
            raise _unknown(f"{name}: expected option=value, got {written[at:]!r}; put a text with a comma in quotes")
        at = match.end()
        option = match[1] or (names[len(values)] if len(values) < len(names) else "")
        if option not in scorer.options:
            hint = did_you_mean(option, names) or "."
            what = f"expected an option of it ({', '.join(names)})" if names else "it has no options"
            raise _unknown(f"{name}: {what}, got {option or match[2]!r}{hint}")
        if option in values:
            raise _unknown(f"{name}: {option}: is there twice")
        values[option] = _value(match[2].strip(), scorer.options[option], f"{name}: {option}")
    return ((option, values[option]) for option in names if option in values)


def _value(written: str, type_: OptionType, what: str) -> Any:
    quoted = written[:1] in ("'", '"') and len(written) > 1
    text = written[1:-1].replace(written[0] * 2, written[0]) if quoted else written
    if type_ is bool:
        if text.lower() in _WORDS:
            return _WORDS[text.lower()]
        raise _unknown(f"{what}: expected true or false, got {text!r}")
    if type_ is float:
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if abs(number) < float("inf"):
            return number
        raise _unknown(f"{what}: expected a number, got {text!r}")
    if isinstance(type_, tuple) and text not in type_:
        raise _unknown(f"{what}: expected one of {', '.join(type_)}, got {text!r}{did_you_mean(text, type_) or '.'}")
    if not text:
        raise _unknown(f"{what}: expected a text, got an empty one")
    return text


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.17g}" if value != round(value, 6) else f"{value:g}"
    text = str(value)
    return text if _PLAIN.fullmatch(text) else "'" + text.replace("'", "''") + "'"


def _unknown(message: str) -> EvalloomError:
    return usage_error("unknown_scorer", message)
