"""Prepares source text: inline code as bodies of a function, ES modules as CommonJS modules."""

from __future__ import annotations

import re
from functools import lru_cache

_FUNCTION = re.compile(r"\(*\s*(async\s+)?(function\b|\([^()]*(\([^()]*\)[^()]*)*\)\s*=>|[\w$]+\s*=>|\(\s*\{)")
_DECLARES = re.compile(r"(const|let|var)\s")
_ENDING = re.compile(r";+\s*$")
_IS_MODULE = re.compile(r"^[ \t]*(import\b\s*[\w${*'\"]|export\b\s*[\w${*])", re.M)
# What a statement must not be searched in. A slash begins a pattern only where no value can end before it.
_OPAQUE = re.compile(
    r"//[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"|`(?:\\.|[^`\\])*`"
    r"|(?<=[(,=:\[!&|?{};])\s*/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/",
    re.S,
)
_NAME = r"[\w$]+"
_FROM = r"\s*from\s*(?P<from>'[^'\n]*'|\"[^\"\n]*\")(?:\s*(?:with|assert)\s*\{[^}]*\})?[ \t]*;?"
_STATEMENT = re.compile(
    rf"""^[ \t]*(?:
    import\s*(?P<only>'[^'\n]*'|"[^"\n]*")[ \t]*;?
    | import\s+(?:(?P<default>{_NAME})\s*,?\s*)?(?:\*\s*as\s+(?P<all>{_NAME})|\{{(?P<names>[^}}]*)\}})?{_FROM}
    | export\s*\*(?:\s*as\s+(?P<into>{_NAME}))?{_FROM.replace("<from>", "<star>")}
    | export\s*\{{(?P<again>[^}}]*)\}}(?:{_FROM.replace("<from>", "<through>")})?[ \t]*;?
    | export\s+default\s+(?P<declared>(?:async\s+)?function\s*\*?\s*(?P<dname>{_NAME})|class\s+(?P<cname>{_NAME}))
    | export\s+default\b(?P<value>)
    | export\s+(?P<kept>(?:async\s+)?function\s*\*?\s*(?P<fname>{_NAME})|class\s+(?P<kname>{_NAME})
        |(?:const|let|var)\s+(?P<vname>{_NAME}))
    )""",
    re.M | re.X,
)


@lru_cache(maxsize=4096)
def bodies(source: str) -> tuple[str, ...]:
    """Return what inline code may mean, the likeliest first: the bodies of functions, tried until one is JavaScript."""
    code = source.strip()
    # Lines of a message count from the first line of the code, also where it is indented.
    as_value = f"return (\n{code}\n)" if "//" in code else f"return ({_ENDING.sub('', code)})"
    if _FUNCTION.match(code):
        return (as_value, code) if "\n" in code else (as_value, f"return {_ENDING.sub('', code)}", code)
    if "\n" in source.rstrip():
        return (source,)
    if re.match(r"return\b", code):
        return (code,)
    return (_with_return(code), code) if "return" in code else (_with_return(code),)


def _with_return(code: str) -> str:
    """Return the last expression of one line of statements, or the only one."""
    code = _ENDING.sub("", code)
    if not _DECLARES.match(code):
        return f"return {code}"
    last = -1
    at = 0
    while at < len(code):
        if opaque := _OPAQUE.match(code, at):
            at = opaque.end()
            continue
        if code[at] == ";":
            last = at
        at += 1
    expression = code[last + 1 :].strip()
    return f"{code[: last + 1]} return {expression}" if last >= 0 and expression else code


_LEAVES_TRACES = re.compile(
    r"\b(eval|Function|constructor|prototype|__\w+__|globalThis|this|require|import|Proxy|Reflect"
    r"|Symbol|WeakRef|FinalizationRegistry|Error|delete|class|yield|with|process|console|global|lastIndex)\b"
    r"|\bObject\s*\.\s*(?!(keys|values|entries|fromEntries|is)\b)|\bset\w+\s*\(|\\u|function\s*\*"
)
_ASSIGNED = re.compile(
    r"(\.\s*)?([\w$]+|[\])}])?\s*(?:\+\+|--|(?<![=!<>])(?:\*\*|<<|>>>?|&&|\|\||\?\?|[-+*/%&|^])?=(?![=>]))"
)
_INCREMENTED = re.compile(r"(?:\+\+|--)\s*([\w$.\[]+)")
_DECLARED = re.compile(r"\b(?:const|let|var)\s+([\w$]+)")


@lru_cache(maxsize=4096)
def leaves_no_traces(source: str) -> bool:
    """Return whether code assigns to nothing but its own variables, as far as its text shows.

    Such code behaves alike where all built-in objects are frozen. It only has to be right about what code does by
    accident: code that hides what it does meets frozen objects.
    """
    code = _OPAQUE.sub('""', source)
    if len(source) > 20_000 or "`" in code or _LEAVES_TRACES.search(source):
        return False
    own = set(_DECLARED.findall(code))
    named = all(not dot and name in own for dot, name in _ASSIGNED.findall(code) if dot or name)
    return named and all(name in own for name in _INCREMENTED.findall(code))


@lru_cache(maxsize=256)
def as_common_js(source: str, is_module: bool = False) -> str:
    """Return an ES module as a CommonJS module with the same lines; other files as they are."""
    source = source.removeprefix("\ufeff")
    if source.startswith("#!"):
        source = "//" + source
    if not is_module and not _IS_MODULE.search(source):
        return source
    hidden = _hidden(source)
    at_end: list[str] = []
    parts: list[str] = []
    position = 0
    for match in _STATEMENT.finditer(source):
        first = match.start() + len(match[0]) - len(match[0].lstrip())
        if any(begin < first < end for begin, end in hidden):
            continue
        parts += [source[position : match.start()], _rewritten(match, at_end)]
        # The lines after the statement keep their numbers.
        parts.append("\n" * (match[0].count("\n") - parts[-1].count("\n")))
        position = match.end()
    if not position:
        return source
    parts.append(source[position:])
    return '"use strict"; ' + "".join(parts) + "\n" + " ".join(at_end)


def _hidden(source: str) -> list[tuple[int, int]]:
    return [match.span() for match in _OPAQUE.finditer(source)]


def _rewritten(match: re.Match[str], at_end: list[str]) -> str:
    found = match.groupdict()
    if found["only"]:
        return f"require({found['only']});"
    if found["from"]:
        return _imported(found)
    if found["star"]:
        into = f"exports.{found['into']} = " if found["into"] else "Object.assign(exports, "
        return f"{into}require({found['star']}){'' if found['into'] else ')'};"
    if found["again"] is not None:
        origin = f"require({found['through']})" if found["through"] else ""
        pairs = _pairs(found["again"])
        if origin:
            return " ".join(f"exports.{new} = {origin}.{old};" for old, new in pairs)
        at_end += [f"exports.{new} = {old};" for old, new in pairs]
        return ""
    if found["declared"]:
        at_end.append(f"exports.default = {found['dname'] or found['cname']};")
        return str(found["declared"])
    if found["kept"]:
        name = found["fname"] or found["kname"] or found["vname"]
        at_end.append(f"exports.{name} = {name};")
        return str(found["kept"])
    return "exports.default ="


def _imported(found: dict[str, str | None]) -> str:
    required = f"require({found['from']})"
    lines = []
    if found["default"]:
        # The default import of a CommonJS module is its exports.
        lines.append(f"const {found['default']} = ((m) => (m !== null && m.default) ?? m)({required});")
    if found["all"]:
        lines.append(f"const {found['all']} = {required};")
    if found["names"] is not None:
        names = ", ".join(old if old == new else f"{old}: {new}" for old, new in _pairs(found["names"]))
        lines.append(f"const {{ {names} }} = {required};")
    return " ".join(lines)


def _pairs(names: str) -> list[tuple[str, str]]:
    pairs = []
    for name in re.sub(r"//[^\n]*|/\*.*?\*/", "", names, flags=re.S).split(","):
        if words := re.findall(_NAME, name):
            pairs.append((words[0], words[-1]))
    return pairs
