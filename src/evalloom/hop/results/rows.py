"""The row of a HOP result: its definition in Python, and the same in SQL.

`row_of` is the definition. `select_rows` reads files of regular rows many times as fast; it marks every row that it may
read differently, and `row_of` then reads the file of that row. Both fill the columns of `COLUMNS`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, get_args

import orjson
from msgspec import Struct

from evalloom.batchlog.parquet import path_pattern, quoted, quoted_list
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Case, Check, Outcome, Output, Record
from evalloom.hop.dialect import OWN_FIELDS, inputs_of, is_meta, is_view_row, normalize_audit, where_of
from evalloom.matchers import MatchContext, by_kind
from evalloom.matchers.base import number_of
from evalloom.matchers.where import Missing, find

EXPECTED = "expected_"
OUTCOMES: tuple[str, ...] = get_args(Outcome)
COLUMNS = {
    "src": "INTEGER",
    "kind": "UTINYINT",
    "id": "BIGINT",
    "id_text": "VARCHAR",
    "tag": "VARCHAR",
    "difficulty": "VARCHAR",
    "profile": "VARCHAR",
    "completed": "BOOLEAN",
    "outcome": "UTINYINT",
    "retry_count": "DOUBLE",
    "error": "VARCHAR",
    "correct": "BOOLEAN",
    "case_key": "UBIGINT",
}
"""The columns of a row; `f0`, `f1` … (the fields of the result) and `e0`, `e1` … (their expected values) follow them.

The kind of a line, the outcome and most ids are numbers because Parquet takes several times as long to write texts.
"""
RESULT, META, INPUT = range(3)
"""The kinds of lines: a result, a meta line (HOP-6), and a case without a result."""

_LONGEST_NUMBER = 40
_PLAIN_NAME = lazy_pattern(r"[^\"'\\.\[\]*\x00-\x1f]+")
_NO_CASE = Case("", {})
_equals = by_kind("equals")


class FieldNames(Struct, frozen=True):
    """The result fields, the expected fields and the inputs, in column order."""

    fields: list[str] = []
    expected: list[str] = []
    inputs: list[str] = []


def row_of(record: Record) -> Record:
    """Return the row of a record, with `fields`, `expected` and `inputs` by name; their values are texts.

    The inputs are there for `case_key`, which DuckDB computes.
    """
    audit = normalize_audit(record)
    if audit is None:
        return {"kind": META if is_meta(record) else INPUT}
    case, result, stats = audit["case"], audit["result"], audit["stats"]
    identity = case.get("id")
    expected = expected_of(case)
    completed = _has_completed(record, audit)
    outcome = stats.get("hop_status")
    return {
        "kind": RESULT,
        "id": identity if _fits_int64(identity) else None,
        "id_text": None if identity is None or _fits_int64(identity) else json_text(identity),
        "tag": _text(case.get("tag")),
        "difficulty": _text(case.get("difficulty")),
        "profile": _text(audit["profile"]),
        "completed": completed,
        "outcome": OUTCOMES.index(outcome if outcome in OUTCOMES else "OK" if completed else "FAIL"),
        "retry_count": number_of(stats.get("retry_count")),
        "error": _text(audit["error"]),
        "correct": all(meets(name, value, result) for name, value in expected.items()) if expected else None,
        "fields": {name: json_text(value) for name, value in result.items()} if isinstance(result, dict) else {},
        "expected": {name: json_text(value) for name, value in expected.items()},
        "inputs": {name: _input_text(value) for name, value in inputs_of(record).items() if value is not None},
    }


def _fits_int64(value: Any) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _input_text(value: Any) -> str:
    """Return the text of an input as `case_key` hashes it, the same as in SQL."""
    text = value.encode(errors="replace").decode() if isinstance(value, str) else json_text(value)
    is_object = text.startswith("{") or (text.startswith("[") and "{" in text)
    is_fraction = "-" <= text < ":" and len(text.encode()) < _LONGEST_NUMBER and any(sign in text for sign in ".eE")
    return canonical_text(text) if is_object or is_fraction else text


def canonical_text(text: str) -> str:
    """Return a JSON text in one form, whatever the order of its keys; other texts are unchanged."""
    try:
        value = json.dumps(json.loads(text), sort_keys=True, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
    return value.encode(errors="replace").decode()


def expected_of(case: Record) -> Record:
    """Return the expected values of a case, by output field."""
    expected = {name.removeprefix(EXPECTED): value for name, value in case.items() if name.startswith(EXPECTED)}
    expected.pop("", None)
    return expected


def _has_completed(record: Record, audit: Record) -> bool:
    """Return whether the status is OK, as HOP-9 maps outcomes; without a status, whether there is no error."""
    failed = audit["error"] not in (None, "")
    if is_view_row(record) and (failed or "result" not in record):
        return False
    status = audit["stats"].get("status")
    if status in ("OK", "ERROR"):
        return bool(status == "OK")
    return not failed and audit["stats"].get("hop_status") != "FAIL"


def meets(name: str, expected: Any, result: Any) -> bool:
    """Return whether a field of a result has its expected value."""
    value = find(where_of(name), Output(result))
    return type(value) is not Missing and _is_equal(expected, value)


def _is_equal(expected: Any, value: Any) -> bool:
    """Return whether the engine's `equals` check passes."""
    assert _equals is not None and _equals.grade is not None
    grade = _equals.grade(Check("equals", expected), MatchContext(value, Output(value), _NO_CASE))
    return grade is not None and grade.passed is True


def same_json(expected: str, actual: str) -> bool:
    """Return whether two JSON texts are equal by value; called only if comparing the texts is not enough."""
    return _is_equal(json.loads(expected), json.loads(actual))


def json_text(value: Any) -> str:
    """Encode a value as compact JSON."""
    return orjson_text(value).decode()


def orjson_text(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        # Integers beyond 64 bits, and lone surrogates.
        return json.dumps(value, separators=(",", ":")).encode()


def _text(value: Any) -> str | None:
    """Convert a value to text; None for null and empty texts."""
    if value is None or value == "":
        return None
    return value.encode(errors="replace").decode() if isinstance(value, str) else json_text(value)


# -- the same in SQL --------------------------------------------------------------------------------


def can_select(name: str) -> bool:
    """Return whether the name of a field needs no escaping in a JSON path, in SQL and in a check."""
    return _PLAIN_NAME.fullmatch(name) is not None


def can_select_input(name: str) -> bool:
    """Return whether an input can be a column: DuckDB ignores case in names, and has columns of its own."""
    lower = name.casefold()
    return can_select(name) and lower not in _TAKEN and not lower.startswith(EXPECTED)


_TAKEN = frozenset((*OWN_FIELDS, "filename", "file_index", "file_row_number", "rowid"))


def select_rows(files: Iterable[Path], names: FieldNames) -> str:
    """Return the query that reads the rows of files; `needs_python` marks rows that only `row_of` reads exactly.

    Such rows are View rows, cases, unreadable lines, nulls in place of a result, and results that are not objects of
    the fields in `names`. An expected field that is not in `names` is invisible here, and so is an expected null: the
    caller counts both. A repeated key outside the result is invisible too; DuckDB uses its first value.
    """
    paths = quoted_list(f'$."{name}"' for name in names.fields)
    fields = "".join(f", (f[{number + 1}])::VARCHAR AS f{number}" for number in range(len(names.fields)))
    selected = "".join(f"{column}, " for column in (*_columns("f", names.fields), *_columns("e", names.expected)))
    outcomes = " ".join(f"WHEN {quoted(outcome)} THEN {number}" for number, outcome in enumerate(OUTCOMES))
    failed, ok = OUTCOMES.index("FAIL"), OUTCOMES.index("OK")
    # Each level is computed once; inside a CASE, every branch would extract the values again.
    return f"""
        SELECT src::INTEGER AS src, kind::UTINYINT AS kind,
            CASE WHEN {_is_fraction("identity")} THEN NULL ELSE TRY_CAST(identity AS BIGINT) END AS id,
            CASE WHEN id IS NULL THEN identity END AS id_text, nullif(tag, '') AS tag,
            nullif(difficulty, '') AS difficulty, nullif(profile, '') AS profile, completed,
            (CASE hop_status {outcomes} ELSE if(completed, {ok}, {failed}) END)::UTINYINT AS outcome,
            CASE WHEN retries <= '9~' THEN TRY_CAST(retries AS DOUBLE) END AS retry_count,
            nullif(error, '') AS error, {_correct(names)} AS correct, case_key, {selected}
            CASE kind WHEN {META} THEN false WHEN {INPUT} THEN true ELSE {_needs_python(names)} END AS needs_python
        FROM (SELECT *{fields} FROM (
            SELECT *, {f"json_extract(packed, [{paths}])" if paths else "NULL::JSON[]"} AS f
            FROM ({_read_lines(files, names)})))"""


def _read_lines(files: Iterable[Path], names: FieldNames) -> str:
    """Return the query that reads the lines of files; `packed` is the text of the result.

    All columns are declared, because DuckDB infers types from the first rows only. `ignore_errors` makes the columns of
    an unreadable line NULL, so that it looks like a line without a result.
    """
    columns = {
        **dict.fromkeys(("_type", "tag", "difficulty", "profile", "hop_result"), "VARCHAR"),
        "id": "JSON",
        "input": "JSON",
        "hop_stats": "STRUCT(retry_count JSON, status VARCHAR, hop_status VARCHAR, error VARCHAR)",
        **{EXPECTED + name: "JSON" for name in names.expected},
        **{name: "VARCHAR" for name in names.inputs if name != "input"},
    }
    inputs = {name: "(input->>'$')" if name == "input" else f'"{name}"' for name in names.inputs}
    declared = ", ".join(f"{quoted(name)}: '{kind}'" for name, kind in columns.items())
    expected = "".join(f'"{EXPECTED}{name}"::VARCHAR AS e{number}, ' for number, name in enumerate(names.expected))
    return f"""
        SELECT file_index AS src, id::VARCHAR AS identity, tag, difficulty, profile, hop_result AS packed, {expected}
            {case_key("id::VARCHAR", inputs)} AS case_key,
            hop_stats.hop_status AS hop_status, hop_stats.retry_count::VARCHAR AS retries, hop_stats.error AS error,
            CASE WHEN _type = 'meta' THEN {META} WHEN starts_with(input::VARCHAR, '{{') THEN {INPUT}
                 WHEN hop_result IS NOT NULL AND hop_stats IS NOT NULL THEN {RESULT} ELSE {INPUT} END AS kind,
            CASE WHEN hop_stats.status = 'OK' THEN true WHEN hop_stats.status = 'ERROR' THEN false
                 ELSE coalesce(hop_stats.hop_status, '') <> 'FAIL' AND coalesce(hop_stats.error, '') = '' END
                 AS completed
        FROM read_json([{quoted_list(map(path_pattern, files))}], format = 'newline_delimited', ignore_errors = true,
            columns = {{{declared}}})"""


def case_key(identity: str, inputs: Mapping[str, str]) -> str:
    """Return the SQL for the key of a case: a hash of its id and its inputs, whatever their order.

    `identity` and `inputs` are the SQL of the texts. Copies and repeats of a case have one key (WORK-4); two cases that
    share an id in different files have two. A missing input and a null are the same.
    """
    texts = {"id": identity} | {f"input {name}": _canonical(text) for name, text in inputs.items()}
    # Hashed twice: DuckDB combines two hashes by xor, so that the same text under two names would cancel out.
    # The hash of a missing value is taken out again, so that an input which only other files have changes nothing.
    terms = [f"hash(hash({text}, {quoted(name)}))" for name, text in texts.items()]
    terms += [f"hash(hash(NULL::VARCHAR, {quoted(name)}))" for name in texts]
    return reduce(lambda first, second: f"xor({first}, {second})", terms)


def _canonical(text: str) -> str:
    """Return the SQL of `_input_text`: Python is asked only where one value has several texts.

    A CASE stops at the first condition that holds, and the first ones look at the first bytes of a text only.
    """
    return f"""CASE WHEN {text} >= '|' OR {text} < '-' THEN {text}
        WHEN {text} < ':' THEN CASE WHEN strlen({text}) >= {_LONGEST_NUMBER} THEN {text}
            WHEN {_is_fraction(text)} THEN canonical_text({text}) ELSE {text} END
        WHEN NOT (starts_with({text}, '{{') OR starts_with({text}, '[')) THEN {text}
        WHEN contains({text}, '{{') THEN canonical_text({text}) ELSE {text} END"""


def result_names(files: Iterable[Path]) -> str:
    """Return the query for the names of all fields in the results of files."""
    return f"""SELECT DISTINCT unnest(json_keys(packed)) FROM ({_read_lines(files, FieldNames())})
        WHERE starts_with(packed, '{{') AND json_valid(packed)"""


def _columns(letter: str, names: list[str]) -> list[str]:
    return [f"{letter}{number}" for number in range(len(names))]


def _needs_python(names: FieldNames) -> str:
    """Return the SQL for whether a result is not an object, has an unknown field or a repeated one, or is not JSON.

    A result as long as its known fields in compact JSON has no other fields, which is cheap to check; only other
    results are inspected.
    """
    columns = _columns("f", names.fields)
    # Besides its value, a field has its name, two quotes, a colon, and a comma or the closing brace.
    sizes = [
        f"coalesce(strlen({column}) + {len(name.encode()) + 4}, 0)"
        for column, name in zip(columns, names.fields, strict=True)
    ]
    field_count = " + ".join(f"({column} IS NOT NULL)::INT" for column in columns) or "0"
    conditions = [
        "contains(packed, 'NaN')",
        "contains(packed, 'Infinity')",
        *(f"coalesce({column} IN ('NaN', 'Infinity', '-Infinity'), false)" for column in _columns("e", names.expected)),
        f"""CASE WHEN strlen(packed) = {" + ".join(["1", *sizes])} OR packed = 'null' THEN false
            ELSE NOT starts_with(packed, '{{') OR coalesce(len(json_keys(packed)), 0) <> {field_count}
                OR regexp_matches(packed, '{_LAX_JSON}') END""",
    ]
    return " OR ".join(conditions)


_LAX_JSON = r",\s*[\]}]|[:\[,]\s*[-+]?(?i:nan|inf|infinity)\s*[,\]}]"
"""Text that DuckDB accepts although it is not JSON."""


def _correct(names: FieldNames) -> str:
    """Return the SQL for whether a row meets all its expectations; NULL if it has none."""
    if not names.expected:
        return "NULL::BOOLEAN"
    columns_by_field = {name: f"f{number}" for number, name in enumerate(names.fields)}
    columns_by_field["output"] = f"coalesce({columns_by_field.get('output', 'NULL')}, packed)"
    columns = _columns("e", names.expected)
    conditions = [
        _equal_values(column, columns_by_field.get(name, "NULL"))
        for name, column in zip(names.expected, columns, strict=True)
    ]
    return f"CASE WHEN coalesce({', '.join(columns)}) IS NOT NULL THEN {' AND '.join(conditions)} END"


def _equal_values(expected: str, actual: str) -> str:
    """Return the SQL for whether two JSON texts are equal values.

    Equal texts are equal values. Python compares texts that differ if both are numbers and one is a fraction, if both
    are containers, or if the actual value is a text and the expected one is not.
    """
    if actual == "NULL":
        return f"{expected} IS NULL"
    return f"""CASE WHEN {expected} IS NULL THEN true WHEN {actual} IS NULL THEN false
        WHEN {expected} = {actual} THEN true WHEN starts_with({expected}, '"') THEN false
        WHEN starts_with({actual}, '"') OR ({_is_container(expected)} AND {_is_container(actual)})
            OR ({_is_number(expected)} AND {_is_number(actual)}
                AND ({_is_fraction(expected)} OR {_is_fraction(actual)}))
        THEN same_json({expected}, {actual}) ELSE false END"""


def _is_container(text: str) -> str:
    return f"(starts_with({text}, '{{') OR starts_with({text}, '['))"


def _is_number(text: str) -> str:
    # Digits and the minus sign sort before letters and brackets, but after the quotation mark.
    return f"({text} >= '-' AND {text} < ':')"


def _is_fraction(text: str) -> str:
    return f"(contains({text}, '.') OR contains({text}, 'e') OR contains({text}, 'E'))"
