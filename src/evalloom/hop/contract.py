"""Reads the contract of a target: which fields go in and come out, and of which type (HOP-2).

Declared once, in the place people already have it: `metainfo.md` with an input and an output table, a YAML file, or
the signature of the Python function. A Python file is only parsed, never run.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from evalloom.core.contract import Contract, Field
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import quote
from evalloom.files.read import RowReader
from evalloom.files.rows import Row
from evalloom.files.source import source_of

TYPE_WORDS = {
    **dict.fromkeys(("string", "str", "text", "字符串", "文本"), "string"),
    **dict.fromkeys(("int", "integer", "整数"), "int"),
    **dict.fromkeys(("float", "number", "double", "浮点数", "数字"), "float"),
    **dict.fromkeys(("bool", "boolean", "布尔", "布尔值"), "bool"),
    **dict.fromkeys(("array", "list", "tuple", "sequence", "列表", "数组"), "array"),
    **dict.fromkeys(("object", "dict", "map", "mapping", "对象", "字典"), "object"),
    **dict.fromkeys(("any", "任意"), "any"),
}
_NEVER_INPUTS = frozenset(("hop_result", "hop_stats", "profile", "_type"))
_NOT_REQUIRED = re.compile(r"(no|n|false|0|✗|×)\b|optional|否|可选|选填|非必")


def read_contract(given: str) -> Contract:
    """The contract in a `.md`, `.yaml`, `.json` or `.py[:function]` file."""
    name, _, function = given.rpartition(":") if given.rpartition(":")[0].endswith(".py") else (given, "", "")
    path = Path(name)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or str(fault)
        raise usage_error("contract_unreadable", f"contract {given}: cannot be read: {reason.lower()}") from None
    if path.suffix == ".py":
        contract = _from_python(text, function, given)
    elif path.suffix in (".yaml", ".yml", ".json"):
        contract = _from_document(path, given)
    else:
        contract = _from_tables(text, given)
    for name in _NEVER_INPUTS & contract.inputs.keys():
        message = f"contract {given}: {name}: result files have a field of this name. Call the input something else"
        raise usage_error("contract_reserved_field", message)
    if not contract.inputs:
        raise usage_error("contract_empty", f"contract {given}: expected at least one input field, got none")
    return contract


def contract_of(metainfo: Path | None, source: Path | None, function: str) -> Contract | None:
    """The contract of a hoplet: from its metainfo.md, else from its signature; none where neither names a field."""
    if metainfo is not None:
        return _declared_in(str(metainfo), "contract_empty")
    if source is None or source.suffix != ".py":
        return None
    found = _declared_in(f"{source}:{function}", "contract_empty", "contract_unreadable")
    if found is None or {field.type for field in found.inputs.values()} <= {"any", "object"}:
        # `f(session, input_data)` under any names says nothing of what is in its data.
        return None
    return found


def _declared_in(given: str, *none: str) -> Contract | None:
    """The contract in a file; codes that mean that there is none are named."""
    try:
        return read_contract(given)
    except EvalloomError as fault:
        if fault.code in none:
            return None
        raise


def _field_type(name: str, written: str, given: str) -> str:
    word = re.split(r"[\[\s(,|<]", written.strip().strip("`").lower(), maxsplit=1)[0]
    if word and word not in TYPE_WORDS:
        allowed = "string, int, float, bool, array or object"
        message = f"contract {given}: {name}: expected the type {allowed}, got {quote(written)}"
        raise usage_error("contract_type", message)
    return TYPE_WORDS.get(word, "any")


def _from_document(path: Path, given: str) -> Contract:
    rows = list(RowReader(source_of(path)))
    faults = [row.message for row in rows if not isinstance(row, Row)]
    document = rows[0].value if len(rows) == 1 and isinstance(rows[0], Row) else None
    if faults or not isinstance(document, dict):
        reason = faults[0] if faults else "expected one object with 'inputs' and 'outputs'"
        raise usage_error("contract_unreadable", f"contract {given}: {reason}")
    return Contract(
        _declared(document.get("inputs", document.get("input")), given),
        _declared(document.get("outputs", document.get("output")), given),
    )


def _declared(fields: Any, given: str) -> dict[str, Field]:
    """Fields as `{name: type}`, `{name: {type, required}}` or `[{name, type, required}]`."""
    if fields is None:
        return {}
    if isinstance(fields, list) and all(isinstance(field, dict) and "name" in field for field in fields):
        fields = {str(field["name"]): field for field in fields}
    if not isinstance(fields, dict):
        raise usage_error("contract_unreadable", f"contract {given}: expected fields by name, got {quote(fields)}")
    found = {}
    for name, told in fields.items():
        if isinstance(told, dict):
            required = bool(told.get("required", not told.get("optional", False)))
            found[name] = Field(_field_type(name, str(told.get("type", "any")), given), required)
        else:
            optional = str(told).rstrip().endswith("?")
            found[name] = Field(_field_type(name, str(told or "any").rstrip(" ?"), given), not optional)
    return found


def _from_tables(text: str, given: str) -> Contract:
    """The tables of a Markdown file under a heading with input / 输入 and output / 输出 in it."""
    sections: dict[str, dict[str, Field]] = {"inputs": {}, "outputs": {}}
    section = ""
    header: list[str] = []
    for line in text.splitlines():
        if line.startswith("#") or (not line.startswith("|") and re.match(r"\*\*|[^|]*[:：]\s*$", line.strip() or "x")):
            header = []
            if re.search(r"input|输入", line, re.IGNORECASE):
                section = "inputs"
            elif re.search(r"output|输出", line, re.IGNORECASE):
                section = "outputs"
            elif line.startswith("#"):
                section = ""
        elif section and line.lstrip().startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not header:
                header = [cell.lower() for cell in cells]
            elif not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                name, field = _table_field(header, cells, given)
                sections[section][name] = field
    return Contract(sections["inputs"], sections["outputs"])


def _table_field(header: list[str], cells: list[str], given: str) -> tuple[str, Field]:
    def cell(*names: str) -> str:
        for number, title in enumerate(header[: len(cells)]):
            if any(name in title for name in names):
                return cells[number].strip("`* ")
        return ""

    needed = cell("required", "必填", "必需", "必须").lower()
    name = cells[0].strip("`* ")
    return name, Field(_field_type(name, cell("type", "类型"), given), not _NOT_REQUIRED.match(needed))


def _from_python(text: str, function: str, given: str) -> Contract:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as fault:
        raise usage_error("contract_unreadable", f"contract {given}: is not Python: {fault}") from None
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
            node.name == function or (not function and "hop" in node.name.lower())
        ):
            return Contract(_parameters(node, given), _members(node.returns, classes, given))
    wanted = f"a function {function!r}" if function else "a function with 'hop' in its name"
    raise usage_error("contract_unreadable", f"contract {given}: expected {wanted}, found none")


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef, given: str) -> dict[str, Field]:
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    first_default = len(node.args.posonlyargs) + len(node.args.args) - len(node.args.defaults)
    found = {}
    for number, argument in enumerate(arguments):
        if argument.arg in ("session", "self", "input_data") or _is_session(argument.annotation):
            continue
        has_default = first_default <= number < len(node.args.posonlyargs) + len(node.args.args)
        if argument in node.args.kwonlyargs:
            has_default = node.args.kw_defaults[node.args.kwonlyargs.index(argument)] is not None
        found[argument.arg] = _annotated(argument.annotation, given, required=not has_default)
    return found


def _is_session(annotation: ast.expr | None) -> bool:
    return annotation is not None and ast.unparse(annotation).strip("'\"").endswith("HopSession")


def _members(returns: ast.expr | None, classes: dict[str, ast.ClassDef], given: str) -> dict[str, Field]:
    """The fields of the TypedDict or dataclass that a function says it returns."""
    if not isinstance(returns, ast.Name) or returns.id not in classes:
        return {}
    body = classes[returns.id].body
    return {
        node.target.id: _annotated(node.annotation, given)
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def _annotated(annotation: ast.expr | None, given: str, required: bool = True) -> Field:
    if annotation is None:
        return Field("any", required)
    written = ast.unparse(annotation).strip("'\"")
    if "None" in written or written.startswith("Optional["):
        required = False
        written = written.replace("Optional[", "").replace("| None", "").replace("None |", "").strip()
    word = re.split(r"[\[\s|]", written, maxsplit=1)[0].lower()
    return Field(TYPE_WORDS.get(word, "any"), required)
