"""Outputs that must be HTML or XML, or contain some."""

from __future__ import annotations

import re
from typing import Any
from xml.parsers import expat

from msgspec import Struct

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Check
from evalloom.matchers.base import PASSED, CheckResult, MatchContext, Matcher, bad_option, failed, show, text_of

_LARGEST = 10 * 1024 * 1024
_DEEPEST = 500
_WRAPPERS = ("html", "head", "body")
_ELEMENTS = lazy_pattern(
    "title|base|link|meta|style|article|section|nav|aside|h1|h2|h3|h4|h5|h6|header|footer|address|p|hr|pre|"
    "blockquote|ol|ul|li|dl|dt|dd|figure|figcaption|main|div|a|em|strong|small|s|cite|q|dfn|abbr|ruby|rt|rp|"
    "data|time|code|var|samp|kbd|sub|sup|i|b|u|mark|bdi|bdo|span|br|wbr|img|iframe|embed|object|param|picture|"
    "source|video|audio|track|map|area|svg|math|script|noscript|canvas|ins|del|table|caption|colgroup|col|"
    "tbody|thead|tfoot|tr|td|th|form|label|input|button|select|datalist|optgroup|option|textarea|output|"
    "progress|meter|fieldset|legend|details|summary|dialog|menu|slot|template"
)
_OPENING = lazy_pattern(r"<[a-zA-Z][a-zA-Z0-9-]*(?:\s[^>]*)?>")
_CLOSING = lazy_pattern(r"</[a-zA-Z][a-zA-Z0-9-]*\s*>")
# Each sign of HTML with its weight; a text with signs of weight 2 in total contains HTML.
_SIGNS = (
    (lazy_pattern(r"<[a-zA-Z][a-zA-Z0-9-]*(?:\s[^>]*)?/>"), 1),
    (lazy_pattern(r"&(?:[a-zA-Z]+|#[0-9]+|#x[0-9a-fA-F]+);"), 1),
    (lazy_pattern(r"<!doctype\s+html", re.IGNORECASE), 2),
    (lazy_pattern(r"<!--[^-]*(?:-[^-]+)*-->"), 1),
    (lazy_pattern(r"""\s[a-zA-Z-]+=\s*["'][^"']*["']"""), 1),
    (
        lazy_pattern(
            r"<(?:html|head|body|div|span|p|a|img|h[1-6]|ul|ol|li|table|tr|td|th|form|input|button|script|style|link"
            r"|meta|br|hr)\b",
            re.IGNORECASE | re.ASCII,
        ),
        2,
    ),
)
_TAG = lazy_pattern(
    r"""<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<(?P<close>/)?(?P<name>[^\W\d][\w:.\-]*)"""
    r"""(?:[^<>"']|"[^"]*"|'[^']*')*?(?P<empty>/)?\s*>""",
    re.DOTALL,
)


def _is_html(check: Check, context: MatchContext) -> CheckResult:
    reason = _why_no_html(text_of(context.value).strip())
    return failed(reason) if reason else PASSED


def _why_no_html(text: str) -> str:
    """Return why a text is not HTML: prose outside of all elements, or no known element."""
    if not text:
        return "expected HTML, got an empty text"
    if len(text) > _LARGEST:
        return f"expected HTML of at most {_LARGEST:,} characters, got {len(text):,}"
    if text[:5].lower() == "<?xml":
        return f"expected HTML, got XML: {show(text)}"
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(text)
    lower = text.lower()
    written = {name for name in _WRAPPERS if re.search(rf"<{name}[\s>/]", lower)}
    body = tree.body
    # The parser puts prose into a body of its own; in one that was written, prose is fine.
    if body is not None and "body" not in written:
        for node in body.iter(include_text=True):
            if node.tag == "-text" and (node.text(deep=False) or "").strip():
                return f"expected HTML only, got text outside of all elements: {show(node.text(deep=False).strip())}"
    if written or (tree.root is not None and any(_is_element(node.tag or "") for node in tree.root.traverse())):
        return ""
    return f"expected an HTML element, got {show(text)}"


def _is_element(name: str) -> bool:
    """Whether a tag is one of HTML, or a custom element; texts and comments have names such as `-text`."""
    return bool(_ELEMENTS.fullmatch(name)) or "-" in name[1:]


def _contains_html(check: Check, context: MatchContext) -> CheckResult:
    text = text_of(context.value)
    if len(text) > _LARGEST:
        return failed(f"expected a text of at most {_LARGEST:,} characters, got {len(text):,}")
    weight = bool(_OPENING.search(text)) + bool(_CLOSING.search(text))
    weight += sum(points for sign, points in _SIGNS if sign.search(text))
    return PASSED if weight >= 2 else failed(f"expected HTML in {show(text)}")


class _BadXml(Exception):
    """Why a text is not XML."""


def _is_xml(check: Check, context: MatchContext) -> CheckResult:
    required = _required(check)
    if isinstance(required, CheckResult):
        return required
    text = text_of(context.value)
    try:
        lacking = _lacking(parse_xml(text), required)
    except _BadXml as error:
        return failed(f"expected XML, got {show(text)}: {error}")
    return failed(f"missing the elements {', '.join(lacking)} in {show(text)}") if lacking else PASSED


def _contains_xml(check: Check, context: MatchContext) -> CheckResult:
    required = _required(check)
    if isinstance(required, CheckResult):
        return required
    text = text_of(context.value)
    tree = _elements_in(text)
    if not tree:
        return failed(f"expected XML in {show(text)}")
    lacking = _lacking(tree, required)
    return failed(f"missing the elements {', '.join(lacking)} in the XML of {show(text)}") if lacking else PASSED


def _required(check: Check) -> list[str] | CheckResult:
    """Return the paths of elements that must be there, as `a.b`: a text with commas, a list, or `required_elements`."""
    written = check.expected
    if isinstance(written, dict):
        written = written.get("requiredElements", written.get("required_elements")) if written else []
        if not isinstance(written, list):
            return bad_option("expected", "requiredElements: [root.name]", check.expected)
    if isinstance(written, str):
        written = written.split(",")
    if not isinstance(written, list | None):
        return bad_option("expected", "the paths of elements", written)
    return [text_of(path).strip() for path in written or []]


class _Open(Struct):
    """An element that is not closed yet: its content, and where its text goes on."""

    name: str
    inside: dict[str, Any]
    text: str = ""


def _elements_in(text: str) -> dict[str, Any]:
    """Return the elements in a text by name, as `parse_xml` does.

    Models write XML loosely, so only the tags must match: entities, prefixes and attributes may be anything.
    """
    found: dict[str, Any] = {}
    stack: list[_Open] = []
    at = 0
    for tag in _TAG.finditer(text):
        if stack:
            stack[-1].text += text[at : tag.start()]
        at = tag.end()
        name = tag["name"]
        if not name:
            continue
        if tag["empty"]:
            _add(stack[-1].inside if stack else found, name, "")
        elif not tag["close"]:
            stack.append(_Open(name, {}))
        elif stack and stack[-1].name == name:
            element = stack.pop()
            _add(stack[-1].inside if stack else found, name, element.inside or element.text.strip())
        else:
            _keep_closed(stack, found)
    _keep_closed(stack, found)
    return found


def _keep_closed(stack: list[_Open], found: dict[str, Any]) -> None:
    """Give up the elements that are still open: they are not XML, but what was closed inside them is."""
    for element in stack:
        for name, value in element.inside.items():
            _add(found, name, value)
    stack.clear()


def parse_xml(text: str) -> dict[str, Any]:
    """Return the elements of an XML text as objects by name; an element that repeats is a list. Raises _BadXml."""
    root: dict[str, Any] = {}
    stack: list[tuple[str, dict[str, Any], list[str]]] = [("", root, [])]

    def start(name: str, attributes: dict[str, str]) -> None:
        if len(stack) > _DEEPEST:
            raise _BadXml(f"more than {_DEEPEST} levels of elements")
        stack.append((name, {f"@_{key}": value for key, value in attributes.items()}, []))

    def end(name: str) -> None:
        _, inside, texts = stack.pop()
        content = "".join(texts).strip()
        if inside and content:
            inside["#text"] = content
        _add(stack[-1][1], name, inside or content)

    def refuse_subset(name: str, system: str | None, public: str | None, has_subset: bool) -> None:
        if has_subset:
            raise _BadXml("a DTD inside the document is not read")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = lambda content: stack[-1][2].append(content)
    parser.StartDoctypeDeclHandler = refuse_subset
    parser.XmlDeclHandler = lambda *_: None
    try:
        parser.Parse(text.encode("utf-8"), True)
    except (expat.ExpatError, UnicodeEncodeError, ValueError) as error:
        raise _BadXml(str(error)) from None
    _check_prefixes(text)
    return root


def _check_prefixes(text: str) -> None:
    """Refuse a prefix without a namespace, which only a second pass tells: it changes the names."""
    if ":" not in text:
        return
    try:
        expat.ParserCreate(namespace_separator=" ").Parse(text.encode("utf-8"), True)
    except expat.ExpatError as error:
        raise _BadXml(str(error)) from None


def _add(parent: dict[str, Any], name: str, value: Any) -> None:
    there = parent.get(name)
    if isinstance(there, list):
        there.append(value)
    else:
        parent[name] = value if there is None else [there, value]


def _lacking(tree: Any, paths: list[str]) -> list[str]:
    return [path for path in paths if not _has(tree, path.split("."))]


def _has(value: Any, steps: list[str]) -> bool:
    for step in steps:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return False
    return True


MATCHERS = (
    Matcher("is_html", "the output is HTML and nothing else", _is_html),
    Matcher("contains_html", "the output contains HTML", _contains_html),
    Matcher("is_xml", "the output is well-formed XML, with the expected elements", _is_xml),
    Matcher("contains_xml", "the output contains well-formed XML, with the expected elements", _contains_xml),
)
