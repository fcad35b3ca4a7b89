"""Reads the contract of a target: its input and output fields and their types (HOP-2).

A contract is declared in `metainfo.md` with an input and an output table, in a YAML file, or by the signature of the
Python function. Python files are parsed, never executed.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from evalloom.core.contract import Contract, Field
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Record
from evalloom.core.text import quote
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
    **dict.fromkeys(("enum", "枚举"), "string"),
}
_RESERVED_NAMES = frozenset(("hop_result", "hop_stats", "profile", "_type"))
_CHOICES = lazy_pattern(r"(?:enum|string|str|text|枚举|字符串|文本)\s*[\[(<:：]\s*(.+?)\s*[\])>]?", re.IGNORECASE)
"""`enum(easy, hard)`, `string [easy / hard]`."""
_RANGE = lazy_pattern(r"(-?\d+(?:\.\d+)?)\s*(?:-|–|~|\.\.|,|to|至|到)\s*(-?\d+(?:\.\d+)?)")
"""`int (1-5)`, `float [0, 1]`."""
_NOT_REQUIRED = lazy_pattern(r"(no|n|false|0|✗|×)\b|optional|否|可选|选填|非必")


def read_contract(reference: str) -> Contract:
    """Read the contract from a `.md`, `.yaml`, `.json` or `.py[:function]` file."""
    file, _, function = reference.rpartition(":")
    if not file.endswith(".py"):
        # The colon is missing, or part of the path.
        file, function = reference, ""
    path = Path(file)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise usage_error("contract_unreadable", f"contract {reference}: cannot be read: {reason.lower()}") from None
    if path.suffix == ".py":
        contract = _from_python(text, function, reference)
    elif path.suffix in (".yaml", ".yml", ".json"):
        contract = _from_document(path, reference)
    else:
        contract = _from_tables(text, reference)
    for name in _RESERVED_NAMES & contract.inputs.keys():
        message = f"contract {reference}: {name}: this name is reserved for result files. Rename the input"
        raise usage_error("contract_reserved_field", message)
    if not contract.inputs:
        raise usage_error("contract_empty", f"contract {reference}: expected at least one input field, got none")
    return contract


def contract_of(metainfo: Path | None, source: Path | None, function: str) -> Contract | None:
    """Return the contract of a hoplet from its metainfo.md or its signature; None if neither names a field."""
    if metainfo is not None:
        return _read_or_none(str(metainfo), "contract_empty")
    if source is None or source.suffix != ".py":
        return None
    contract = _read_or_none(f"{source}:{function}", "contract_empty", "contract_unreadable")
    if contract is None or {field.type for field in contract.inputs.values()} <= {"any", "object"}:
        # A signature such as `f(session, input_data)` takes all fields in one object, and so declares none.
        return None
    return contract


def _read_or_none(reference: str, *codes: str) -> Contract | None:
    """Read the contract from a file; return None for the error codes in `codes`."""
    try:
        return read_contract(reference)
    except EvalloomError as error:
        if error.code in codes:
            return None
        raise


def _field_type(name: str, written: str, reference: str) -> str:
    word = re.split(r"[\[\s(,|<:：]", written.strip().strip("`").lower(), maxsplit=1)[0]
    if word and word not in TYPE_WORDS:
        allowed = "string, int, float, bool, array or object"
        message = f"contract {reference}: {name}: expected the type {allowed}, got {quote(written)}"
        raise usage_error("contract_type", message)
    return TYPE_WORDS.get(word, "any")


def _limits(written: str, type: str) -> Record:
    """Return the choices, or the least and the most, that stand behind a type."""
    if type in ("int", "float") and (numbers := _RANGE.search(written)):
        return {"least": float(numbers[1]), "most": float(numbers[2])}
    if type == "string" and (choices := _CHOICES.fullmatch(written.strip().strip("`"))):
        names = [name.strip(" `'\"") for name in re.split(r"[,，/|、]", choices[1])]
        return {"choices": tuple(filter(None, names))} if len(names) > 1 else {}
    return {}


def _from_document(path: Path, reference: str) -> Contract:
    rows = list(RowReader(source_of(path)))
    errors = [row.message for row in rows if not isinstance(row, Row)]
    document = rows[0].value if len(rows) == 1 and isinstance(rows[0], Row) else None
    if errors or not isinstance(document, dict):
        reason = errors[0] if errors else "expected one object with 'inputs' and 'outputs'"
        raise usage_error("contract_unreadable", f"contract {reference}: {reason}")
    return Contract(
        _fields(document.get("inputs", document.get("input")), reference),
        _fields(document.get("outputs", document.get("output")), reference),
    )


def _fields(fields: Any, reference: str) -> dict[str, Field]:
    """Parse fields written as `{name: type}`, `{name: {type, required}}` or `[{name, type, required}]`."""
    if fields is None:
        return {}
    if isinstance(fields, list) and all(isinstance(field, dict) and "name" in field for field in fields):
        fields = {str(field["name"]): field for field in fields}
    if not isinstance(fields, dict):
        raise usage_error("contract_unreadable", f"contract {reference}: expected fields by name, got {quote(fields)}")
    declared = {}
    for name, declaration in fields.items():
        if isinstance(declaration, dict):
            required = bool(declaration.get("required", not declaration.get("optional", False)))
            type = _field_type(name, str(declaration.get("type", "any")), reference)
            declared[name] = Field(type, required, **_declared_limits(declaration))
        else:
            optional = str(declaration).rstrip().endswith("?")
            declared[name] = Field(_field_type(name, str(declaration or "any").rstrip(" ?"), reference), not optional)
    return declared


def _declared_limits(declaration: Record) -> Record:
    """Return what the declaration of a field says beside its type, under the names of JSON Schema or shorter ones."""

    def number(*names: str) -> float | None:
        values = [value for value in map(declaration.get, names) if isinstance(value, int | float)]
        return float(values[0]) if values else None

    choices = declaration.get("enum", declaration.get("choices"))
    return {
        "description": str(declaration.get("description") or ""),
        "choices": tuple(map(str, choices)) if isinstance(choices, list) else (),
        "least": number("minimum", "min"),
        "most": number("maximum", "max"),
    }


def _from_tables(text: str, reference: str) -> Contract:
    """Parse the Markdown tables under headings that contain input / 输入 and output / 输出."""
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
                name, field = _table_field(header, cells, reference)
                sections[section][name] = field
    return Contract(sections["inputs"], sections["outputs"])


def _table_field(header: list[str], cells: list[str], reference: str) -> tuple[str, Field]:
    def cell(*names: str) -> str:
        for number, title in enumerate(header[: len(cells)]):
            if any(name in title for name in names):
                return cells[number].strip("`* ")
        return ""

    needed = cell("required", "必填", "必需", "必须").lower()
    name, written = cells[0].strip("`* "), cell("type", "类型")
    type = _field_type(name, written, reference)
    description = cell("meaning", "description", "说明", "含义", "描述")
    return name, Field(type, not _NOT_REQUIRED.match(needed), description, **_limits(written, type))


def _from_python(text: str, function: str, reference: str) -> Contract:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise usage_error("contract_unreadable", f"contract {reference}: is not Python: {error}") from None
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
            node.name == function or (not function and "hop" in node.name.lower())
        ):
            return Contract(_parameter_fields(node, reference), _returned_fields(node.returns, classes, reference))
    wanted = f"a function {function!r}" if function else "a function with 'hop' in its name"
    raise usage_error("contract_unreadable", f"contract {reference}: expected {wanted}, got none")


def _parameter_fields(node: ast.FunctionDef | ast.AsyncFunctionDef, reference: str) -> dict[str, Field]:
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    first_default = len(node.args.posonlyargs) + len(node.args.args) - len(node.args.defaults)
    fields = {}
    for number, argument in enumerate(arguments):
        annotation = ast.unparse(argument.annotation).strip("'\"") if argument.annotation else ""
        if argument.arg in ("session", "self", "input_data") or annotation.endswith("HopSession"):
            continue
        has_default = first_default <= number < len(node.args.posonlyargs) + len(node.args.args)
        if argument in node.args.kwonlyargs:
            has_default = node.args.kw_defaults[node.args.kwonlyargs.index(argument)] is not None
        fields[argument.arg] = _annotated_field(argument.annotation, reference, required=not has_default)
    return fields


def _returned_fields(returns: ast.expr | None, classes: dict[str, ast.ClassDef], reference: str) -> dict[str, Field]:
    """Return the fields of the TypedDict or dataclass in a return annotation."""
    if not isinstance(returns, ast.Name) or returns.id not in classes:
        return {}
    body = classes[returns.id].body
    return {
        node.target.id: _annotated_field(node.annotation, reference)
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def _annotated_field(annotation: ast.expr | None, reference: str, required: bool = True) -> Field:
    if annotation is None:
        return Field("any", required)
    written = ast.unparse(annotation).strip("'\"")
    if "None" in written or written.startswith("Optional["):
        required = False
        written = written.replace("Optional[", "").replace("| None", "").replace("None |", "").strip()
    word = re.split(r"[\[\s|]", written, maxsplit=1)[0].lower()
    choices: tuple[str, ...] = ()
    if isinstance(annotation, ast.Subscript) and written.startswith(("Literal[", "typing.Literal[")):
        values = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        choices = tuple(value.value for value in values if isinstance(value, ast.Constant) and type(value.value) is str)
    return Field(TYPE_WORDS.get(word, "any"), required, choices=choices)
