"""The language of promptfoo's templates: Nunjucks' on Jinja's parser, with JavaScript's rules and with limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from time import monotonic
from typing import Any

from jinja2 import ChainableUndefined, TemplateSyntaxError, meta, nodes
from jinja2.environment import Template as Compiled
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Record
from evalloom.core.text import shorten
from evalloom.interop.promptfoo import javascript_values as js
from evalloom.interop.promptfoo.filters import FILTERS
from evalloom.interop.promptfoo.templates import LONGEST, TemplateError, own_filters

MOST_STEPS = 100_000
"""Iterations of loops and calls in one rendering."""
LONGEST_S = 10.0
"""Seconds of one rendering."""
_OPENING = lazy_pattern(r"\{\{|\{%")
_UNFINISHED = (("{{", "}"), ("{%", "%"), ("{#", "#"))
_STRING = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"
_STRICT = lazy_pattern(rf"({_STRING})|([=!])==", re.DOTALL)
_ELSEIF = lazy_pattern(r"^(\{%-?\s*)elseif\b")
_VERBATIM = lazy_pattern(r"^(\{%-?\s*)(end)?verbatim\b")
_RAW = lazy_pattern(r"\{%\s*(?:raw|verbatim)\s*%\}")


def renderer(text: str) -> Callable[[Record], str]:
    """Compile a template into a function. Raises TemplateError."""
    if any(map(_is_unfinished, text.split("\n"))) and not _RAW.search(text):
        # promptfoo takes a template with an unfinished tag for a text without tags.
        return lambda variables: text
    try:
        compiled = _ENVIRONMENT.from_string(_rewritten(text))
    except TemplateSyntaxError as error:
        raise TemplateError(f"line {error.lineno}: {shorten(str(error.message), 200)}") from None
    except (RecursionError, OverflowError, MemoryError, ValueError, TypeError, AssertionError, SyntaxError) as error:
        raise TemplateError(f"is too deep or too large to compile ({type(error).__name__})") from None
    return _Rendered(compiled)


def names_in(text: str) -> frozenset[str]:
    """Return the variables that a template uses and does not set itself. Raises TemplateError."""
    renderer(text)
    try:
        return frozenset(meta.find_undeclared_variables(_ENVIRONMENT.parse(_rewritten(text))))
    except TemplateSyntaxError:  # an unfinished tag, which is text
        return frozenset()


def _is_unfinished(line: str) -> bool:
    """Whether a line ends within a tag."""
    return any(opening in line and closing not in line[line.rfind(opening) + 2 :] for opening, closing in _UNFINISHED)


def _rewritten(text: str) -> str:
    """Return a template with its tags as Jinja writes them, in one pass however the tags are nested."""
    parts: list[str] = []
    missing: set[str] = set()
    done = at = 0
    while opening := _OPENING.search(text, at):
        closing = "}}" if opening[0] == "{{" else "%}"
        end = -1 if closing in missing else text.find(closing, opening.end())
        if end < 0:
            missing.add(closing)
            at = opening.start() + 1
            continue
        at = end + 2
        parts += [text[done : opening.start()], _as_jinja(text[opening.start() : at])]
        done = at
    return "".join([*parts, text[done:]])


def _as_jinja(text: str) -> str:
    """Rewrite what only Nunjucks has in a tag: `===`, `elseif`, `verbatim`."""
    if "==" in text:
        text = _STRICT.sub(lambda match: match[1] or f"{match[2]}=", text)
    text = _ELSEIF.sub(r"\1elif", text)
    return _VERBATIM.sub(r"\1\2raw", text)


class _Rendered:
    """A compiled template."""

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled

    def __call__(self, variables: Record) -> str:
        token = _spent.set(_Spent())
        try:
            parts: list[str] = []
            for part in self._compiled.generate(variables):
                charge(0, len(part))
                parts.append(part)
            return "".join(parts)
        except TemplateError:
            raise
        except RecursionError:
            raise TemplateError("calls itself too often") from None
        except Exception as error:  # a template may do anything to its values
            raise TemplateError(f"{type(error).__name__}: {shorten(str(error), 200)}") from None
        finally:
            _spent.reset(token)


class _Spent:
    """What one rendering has used so far."""

    __slots__ = ("characters", "end", "steps")

    def __init__(self) -> None:
        self.end = monotonic() + LONGEST_S
        self.steps = 0
        self.characters = 0


_spent: ContextVar[_Spent] = ContextVar("spent")


def charge(steps: int, characters: int = 0) -> None:
    """Count work of the current rendering; raise TemplateError when it is too much."""
    spent = _spent.get(None)
    if spent is None:
        return
    spent.steps += steps
    spent.characters += characters
    if spent.steps > MOST_STEPS:
        raise TemplateError(f"takes more than {MOST_STEPS:,} steps")
    # Steps differ: a filter of the config may compute for a second.
    if monotonic() > spent.end:
        raise TemplateError(f"takes more than {LONGEST_S:g} seconds")
    if spent.characters > LONGEST:
        raise TemplateError(f"makes more than {LONGEST:,} characters")


def _counted(value: Any, pairs: bool = False) -> Iterator[Any]:
    """Iterate as a loop of Nunjucks: over a list, a text, or with two names over the pairs of an object."""
    if isinstance(value, dict):
        value = value.items() if pairs else ()
    elif not isinstance(value, list | tuple | str | range):
        value = ()
    items = list(value)
    charge(len(items))
    return iter(items)


class _Rules(NodeTransformer):
    """Rewrites a parsed template so that JavaScript's rules hold and loops are counted."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        pairs = isinstance(node.target, nodes.Tuple)
        node.iter = _filter("_counted", node.iter, nodes.Const(pairs))
        if node.test is not None:
            node.test = _filter("_truth", node.test)
        return node

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:
        self.generic_visit(node)
        if node.name not in FILTERS and not node.name.startswith("_"):
            node.args.insert(0, nodes.Const(node.name))
            node.name = "_own"
        return node

    def visit_Include(self, node: nodes.Include) -> nodes.Node:
        raise TemplateError("names another template, and templates read no files")

    visit_Import = visit_FromImport = visit_Extends = visit_Include

    def visit_If(self, node: nodes.If) -> nodes.Node:
        self.generic_visit(node)
        node.test = _filter("_truth", node.test)
        return node

    def visit_CondExpr(self, node: nodes.CondExpr) -> nodes.Node:
        self.generic_visit(node)
        node.test = _filter("_truth", node.test)
        return node

    def visit_Not(self, node: nodes.Not) -> nodes.Node:
        self.generic_visit(node)
        node.node = _filter("_truth", node.node)
        return node

    def visit_And(self, node: nodes.And) -> nodes.Node:
        self.generic_visit(node)
        return nodes.CondExpr(_filter("_truth", node.left), node.right, node.left, lineno=node.lineno)

    def visit_Or(self, node: nodes.Or) -> nodes.Node:
        self.generic_visit(node)
        return nodes.CondExpr(_filter("_truth", node.left), node.left, node.right, lineno=node.lineno)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filter("_joined", nodes.List(node.nodes, lineno=node.lineno))

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        compared: nodes.Expr = node.expr
        for operand in node.ops:
            compared = _filter("_compared", compared, nodes.Const(operand.op), operand.expr)
        return compared


def _filter(name: str, node: nodes.Node, *arguments: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(arguments), [], None, None, lineno=node.lineno)


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja with JavaScript's members and operators, and without any member of Python objects."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))
    intercepted_unops = frozenset(("+", "-"))

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        changed: nodes.Template = _Rules().visit(tree)
        return changed

    def getattr(self, obj: Any, attribute: str) -> Any:
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        member = js.member(obj, argument)
        return self.undefined(obj=obj, name=argument) if member is js.UNDEFINED else member

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        charge(1)
        return super().call(__context, __obj, *args, **kwargs)

    def is_safe_callable(self, obj: Any) -> bool:
        return isinstance(obj, js.Method) or type(obj).__module__ == "jinja2.runtime" or obj is _range

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        result = js.binary(operator, left, right)
        if isinstance(result, str):
            charge(0, len(result))
        return result

    def call_unop(self, context: Any, operator: str, arg: Any) -> Any:
        number = js.number_of(arg)
        return number if operator == "+" else -number


def _range(*bounds: Any) -> list[int]:
    numbers = [int(js.number_of(bound)) for bound in bounds]
    if not 1 <= len(numbers) <= 3 or 0 in numbers[2:]:
        raise TemplateError("range: expected an end, or a start, an end and a step")
    span = range(*numbers)
    charge(len(span))
    return list(span)


def _joined(values: list[Any]) -> str:
    text = js.join("", values)
    charge(0, len(text))
    return text


def _own(value: Any, name: str, *arguments: Any) -> Any:
    """Apply a filter of the config."""
    run = own_filters.get({}).get(name)
    if run is None:
        raise TemplateError(f"there is no filter {name!r}; {', '.join(sorted(FILTERS))} are known")
    charge(1)
    return run(value, *arguments)


def _bounded(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that counts what it gets and makes."""

    def bounded(value: Any, *args: Any, **kwargs: Any) -> Any:
        charge(1)
        try:
            result = run(value, *args, **kwargs)
        except TypeError as error:
            raise TemplateError(f"filter {name}: {error}") from None
        if isinstance(result, str | list):
            charge(0, len(result))
        return result

    return bounded


def _environment() -> _Environment:
    environment = _Environment(
        undefined=ChainableUndefined, finalize=js.text_of, keep_trailing_newline=True, autoescape=False, loader=None
    )
    environment.globals = {"range": _range}
    environment.tests = {}
    environment.filters = {name: _bounded(name, run) for name, run in FILTERS.items()}
    environment.filters |= {
        "_counted": _counted,
        "_truth": js.truth,
        "_joined": _joined,
        "_own": _own,
        "_compared": js.compared,
    }
    environment.tests |= {
        "defined": lambda value: not isinstance(value, ChainableUndefined),
        "undefined": lambda value: isinstance(value, ChainableUndefined),
        "none": lambda value: value is None,
        "null": lambda value: value is None,
        "string": lambda value: isinstance(value, str),
        "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
        "mapping": lambda value: isinstance(value, dict),
        "iterable": lambda value: isinstance(value, list | str),
        "odd": lambda value: js.number_of(value) % 2 == 1,
        "even": lambda value: js.number_of(value) % 2 == 0,
        "equalto": lambda value, other: js.compared(value, "eq", other),
        "eq": lambda value, other: js.compared(value, "eq", other),
        "ne": lambda value, other: js.compared(value, "ne", other),
        "gt": lambda value, other: js.compared(value, "gt", other),
        "lt": lambda value, other: js.compared(value, "lt", other),
        "divisibleby": lambda value, other: js.number_of(value) % js.number_of(other) == 0,
        "lower": lambda value: isinstance(value, str) and value == value.lower(),
        "upper": lambda value: isinstance(value, str) and value == value.upper(),
        "truthy": js.truth,
        "falsy": lambda value: not js.truth(value),
    }
    return environment


_ENVIRONMENT = _environment()
