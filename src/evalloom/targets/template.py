"""Templates: replaces `{{name}}`, `{{ a.b[0] }}` and `{name}` by the inputs of a case, in one pass and without code.

`{% if history %} … {% elif … %} … {% else %} … {% endif %}` renders one branch; its conditions are those of
`core/expressions.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from evalloom.core.errors import CallError, EvalloomError, usage_error
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Record
from evalloom.core.text import did_you_mean, list_names, quote

if TYPE_CHECKING:
    from evalloom.core.expressions import Expression

# `{{"a": 1}}` does not begin with a letter, so it is JSON, or an escaped brace of another template language.
_PLACEHOLDER = lazy_pattern(r"\{\{[ \t]*(\w[^{}\n]*)\}\}|\{([^\W\d]\w*)\}")
_ROOT = lazy_pattern(r"[^.\[\]]+")
_STEP = lazy_pattern(r"\.([^.\[\]]+)|\[(\d+)\]|\[\"([^\"]*)\"\]|\['([^']*)'\]")
# A `{%` with no `%}` before the next one is plain text.
_TAG = lazy_pattern(r"\{%((?:[^%{]|%(?!\})|\{(?!%))*)%\}")
_TAG_WORDS = lazy_pattern(r"(\w*)\s*(.*)", re.DOTALL)
_KNOWN_TAGS = ("if", "elif", "else", "endif")
_MAX_DEPTH = 20
MISSING: Any = object()
"""Stands for a missing value, because None is a value."""

Filled = Callable[[Record], Any]
"""A function that fills the placeholders of a JSON value with inputs."""


class _Placeholder(Struct, frozen=True):
    """A placeholder: its index among the parts, its text as written, its name, and whether it is required."""

    at: int
    written: str
    name: str
    is_required: bool


class _Choice(Struct, frozen=True):
    """A conditional: the first branch whose condition holds is rendered; the condition None always holds."""

    at: int
    branches: list[tuple[Expression | None, Template]]


_Branches: TypeAlias = "list[tuple[Expression | None, _Body]]"
_Body = list["str | _Branches"]
"""A parsed template: texts, and the branches of each block between them."""


class Template:
    """A text with placeholders, parsed once, so that rendering takes about a microsecond.

    Inputs must have its `variables`; the `optional` names are in single braces, in a condition or in a branch.
    """

    def __init__(
        self,
        text: str,
        name: str = "template",
        show: Callable[[Any], str] | None = None,
        body: _Body | None = None,
    ) -> None:
        """Parse a template. `name` is its name in messages; `show` formats each value, for example for a URL.

        `body` is the parsed body of a branch. Raises EvalloomError for a block other than `{% if %}`, or without end.
        """
        self.text = text
        self._name = name
        self._show = show or as_text
        self._is_plain = show is None
        self._parts: list[str] = []
        self._placeholders: list[_Placeholder] = []
        self._choices: list[_Choice] = []
        for piece in _body(text, name) if body is None else body:
            if isinstance(piece, str):
                _split(piece, self._parts, self._placeholders)
            else:
                branches = [(when, Template("", name, show, inner)) for when, inner in piece]
                self._choices.append(_Choice(len(self._parts), branches))
                self._parts.append("")
        self.variables = frozenset(
            _root(placeholder.name) for placeholder in self._placeholders if placeholder.is_required
        )
        optional = frozenset(placeholder.name for placeholder in self._placeholders if not placeholder.is_required)
        self.optional = optional.union(*map(_names, self._choices)) - self.variables

    def render(self, inputs: Record) -> str:
        """Render the text with the inputs; placeholders inside an input are not filled."""
        parts = self._parts.copy()
        for placeholder in self._placeholders:
            value = inputs.get(placeholder.name, MISSING)
            parts[placeholder.at] = (
                value if type(value) is str and self._is_plain else self._fill(placeholder, value, inputs)
            )
        for choice in self._choices:
            for when, branch in choice.branches:
                if when is None or when.holds(inputs):
                    parts[choice.at] = branch.render(inputs)
                    break
        return "".join(parts)

    @property
    def only_name(self) -> str:
        """The name if the template is one `{{name}}` and nothing else, else empty."""
        is_only = (
            len(self._placeholders) == 1
            and self._placeholders[0].is_required
            and self._placeholders[0].written == self.text.strip()
        )
        return self._placeholders[0].name if is_only else ""

    def _fill(self, placeholder: _Placeholder, value: Any, inputs: Record) -> str:
        if value is MISSING and not placeholder.is_required:
            return placeholder.written
        return self._show(find(placeholder.name, inputs, self._name) if value is MISSING else value)


def _names(choice: _Choice) -> frozenset[str]:
    """Return the names that a block may use."""
    conditions = [when.names for when, _ in choice.branches if when]
    return frozenset[str]().union(*conditions, *(inner.variables | inner.optional for _, inner in choice.branches))


def _split(text: str, parts: list[str], placeholders: list[_Placeholder]) -> None:
    """Append the pieces of a text to `parts`, with an empty part for each placeholder."""
    end = 0
    for match in _PLACEHOLDER.finditer(text):
        parts += (text[end : match.start()], "")
        name, is_required = match[1] or match[2], match[1] is not None
        placeholders.append(_Placeholder(len(parts) - 1, match[0], name.rstrip(), is_required))
        end = match.end()
    parts.append(text[end:])


class _Tag(Struct, frozen=True):
    """One `{% word rest %}`: the text before it ends at `left`, the text after it begins at `right`."""

    start: int
    left: int
    right: int
    word: str
    rest: str

    def __str__(self) -> str:
        is_shown = self.rest and self.word in _KNOWN_TAGS
        return f"{{% {self.word} {quote(self.rest)[1:-1]} %}}" if is_shown else f"{{% {self.word} %}}"


def _tags(text: str) -> Iterator[_Tag]:
    for match in _TAG.finditer(text):
        start, end, inner = match.start(), match.end(), match[1]
        left = len(text[:start].rstrip()) if inner.startswith("-") else start
        right = len(text) - len(text[end:].lstrip()) if inner.endswith("-") else end
        words = _TAG_WORDS.match(inner.removeprefix("-").removesuffix("-").strip())
        yield _Tag(start, left, right, *(words.groups() if words else ("", "")))


class _Open(Struct, frozen=True):
    """An open block: its tag, the body around it, and its branches so far."""

    tag: _Tag
    outer: _Body
    branches: _Branches


def _body(text: str, name: str) -> _Body:
    """Parse a template into texts and blocks. Raises EvalloomError with the line."""
    if "{%" not in text:
        return [text]

    def tag_error(tag: _Tag, message: str) -> EvalloomError:
        line = text.count("\n", 0, tag.start) + 1
        return usage_error("bad_prompt", f"{name}: in the text, line {line}: {tag} {message}")

    body: _Body = []
    opened: list[_Open] = []
    start = 0
    for tag in _tags(text):
        body.append(text[start : tag.left])
        start = tag.right
        problem = _tag_problem(tag, opened)
        if problem:
            raise tag_error(tag, problem)
        if tag.word == "endif":
            body = opened.pop().outer
            continue
        from evalloom.core import expressions  # deferred: few prompts have conditions

        try:
            when = None if tag.word == "else" else expressions.compile(tag.rest)
        except expressions.ExpressionError as error:
            raise tag_error(tag, f"has a condition that cannot be read: {error}") from None
        if tag.word == "if":
            opened.append(_Open(tag, body, []))
            body.append(opened[-1].branches)
        body = []
        opened[-1].branches.append((when, body))
    if opened:
        raise tag_error(opened[-1].tag, "has no {% endif %}")
    return [*body, text[start:]]


def _tag_problem(tag: _Tag, opened: list[_Open]) -> str:
    """Return why a tag is not allowed here; empty if it is."""
    if tag.word not in _KNOWN_TAGS:
        return "is not supported; only {% if %} blocks are"
    if tag.word in ("else", "endif") and tag.rest:
        return f"has a condition, and {tag.word} takes none"
    if tag.word == "if":
        return f"is nested too deep: at most {_MAX_DEPTH} levels are read" if len(opened) == _MAX_DEPTH else ""
    if not opened:
        return "has no {% if %} before it"
    is_last = opened[-1].branches[-1][0] is None
    return "stands after {% else %}" if is_last and tag.word != "endif" else ""


def find(name: str, inputs: Record, where: str) -> Any:
    """Return the input at a name or a path like `order.lines[0].sku`. Raises CallError if there is none."""
    if name in inputs:
        return inputs[name]
    root = _root(name)
    if root not in inputs and "|" in name:
        message = f"{where}: {{{{{name}}}}}: filters are not applied. Write {{{{{name.partition('|')[0].strip()}}}}}"
        raise CallError("missing_variable", f"{message}, and give the case the final value")
    if root not in inputs:
        message = f"there is no input {quote(root)}; there are {list_names(inputs)}{did_you_mean(root, inputs)}"
        raise CallError("missing_variable", f"{where}: {{{{{name}}}}}: {message}")
    value = follow(inputs[root], name[len(root) :])
    if value is MISSING:
        message = f"{where}: {{{{{name}}}}}: the input {quote(root)} has nothing at {quote(name[len(root) :])}"
        raise CallError("missing_variable", message)
    return value


def follow(value: Any, path: str) -> Any:
    """Return the part of a JSON value at a path such as `.lines[0].sku`, or MISSING."""
    end = 0
    while end < len(path) and value is not MISSING:
        step = _STEP.match(path, end)
        if step is None:
            return MISSING
        end = step.end()
        if step[2] is not None:
            at = int(step[2][:9])
            value = value[at] if isinstance(value, list) and at < len(value) else MISSING
        else:
            key = next(part for part in (step[1], step[3], step[4]) if part is not None)
            value = value.get(key, MISSING) if isinstance(value, dict) else MISSING
    return value


def _root(name: str) -> str:
    match = _ROOT.match(name)
    return match[0] if match else name


def as_text(value: Any) -> str:
    """Return a text as it is, and any other value as compact JSON."""
    return value if isinstance(value, str) else json_text(value)


def json_text(value: Any) -> str:
    """Return inputs as compact JSON."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise CallError("unusable_input", f"expected inputs that are JSON, got one that is not: {error}") from None


def compile_json(value: Any, name: str) -> tuple[Filled, frozenset[str]]:
    """Compile a JSON value whose strings are templates; return its inputs too. A lone `"{{name}}"` keeps its type."""
    if isinstance(value, str):
        template = Template(value, name)
        only = template.only_name
        return (lambda inputs: find(only, inputs, name)) if only else template.render, template.variables
    if isinstance(value, list):
        return _compile_list(value, name)
    if isinstance(value, dict):
        keys = list(value)
        items, variables = _compile_list(list(value.values()), name)
        return lambda inputs: dict(zip(keys, items(inputs), strict=True)), variables
    return lambda inputs: value, frozenset()


def _compile_list(values: list[Any], name: str) -> tuple[Filled, frozenset[str]]:
    compiled = [compile_json(item, name) for item in values]
    fillers = [filler for filler, _ in compiled]
    variables = frozenset[str]().union(*(needed for _, needed in compiled))
    return lambda inputs: [filler(inputs) for filler in fillers], variables
