"""Converts rows of HOP result files for the derived copy: in Python, exactly, and in SQL, fast.

`row_of` is the definition. `select_rows` is equivalent SQL for regular rows, and marks every other row, so that
`row_of` reads its file instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from hashlib import md5
from pathlib import Path
from typing import Any, get_args

import orjson
from msgspec import Struct

from evalloom.core.model import Case, Check, Outcome, Output, Record
from evalloom.hop.dialect import inputs_of, is_meta, is_view_row, normalize_audit, normalize_input, where_of
from evalloom.matchers import MatchContext, by_kind
from evalloom.matchers.base import number_of
from evalloom.matchers.where import Missing, find

EXPECTED = "expected_"
OUTCOMES: tuple[str, ...] = get_args(Outcome)
COLUMNS = {
    "src": "INTEGER",
    "line": "BIGINT",
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
    "case_key": "VARCHAR",
}
"""The columns of the copy. After them come `f0 …`, the fields of the results, and `e0 …`, what was expected of them.

Numbers stand for words (the kind of a line, the outcome) because Parquet takes several times as long to write texts.
"""
RESULT, META, INPUT = range(3)
FLAT, ANY, EXACT = "flat", "any", "exact"
"""The strategies to read a file, fastest first: SQL with declared columns, SQL over whole lines, and Python."""

_PLAIN_NAME = re.compile(r"[^\"'\\.\[\]*\x00-\x1f]+")
_NO_CASE = Case("", {})
_equals = by_kind("equals")


class Names(Struct, frozen=True):
    """The result fields and the expected fields, in column order."""

    fields: list[str] = []
    expected: list[str] = []


def row_of(record: Record) -> Record:
    """Return one row of the copy, with `fields` and `expected` by name; values are JSON texts."""
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
        "id": identity if _is_number_of_64_bits(identity) else None,
        "id_text": None if identity is None or _is_number_of_64_bits(identity) else json_text(identity),
        "tag": _text(case.get("tag")),
        "difficulty": _text(case.get("difficulty")),
        "profile": _text(audit["profile"]),
        "completed": completed,
        "outcome": OUTCOMES.index(outcome if outcome in OUTCOMES else "OK" if completed else "FAIL"),
        "retry_count": number_of(stats.get("retry_count")),
        "error": _text(audit["error"]),
        "correct": all(_holds(name, value, result) for name, value in expected.items()) if expected else None,
        "case_key": case_key(record),
        "fields": {name: json_text(value) for name, value in result.items()} if isinstance(result, dict) else {},
        "expected": {name: json_text(value) for name, value in expected.items()},
    }


def _is_number_of_64_bits(value: Any) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def case_key(record: Record) -> str:
    """Return a key for the case of a row: a hash of its id and inputs, independent of their order."""
    case = [normalize_input(record).get("id"), inputs_of(record)]
    try:
        text = orjson.dumps(case, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        text = json.dumps(case, sort_keys=True).encode()
    return md5(text).hexdigest()


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


def _holds(name: str, expected: Any, result: Any) -> bool:
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
    """Return whether a field's name is safe in a JSON path, in SQL and in a check."""
    return _PLAIN_NAME.fullmatch(name) is not None


def select_rows(files: Iterable[Path], names: Names, strategy: str) -> str:
    """Return the query that reads files with one of the SQL strategies; `odd` marks the rows that need `row_of`.

    All columns are declared, because DuckDB infers types from the first rows only. A line that is not JSON fails the
    query, and the caller finds the file.
    """
    paths = ", ".join(quoted(f'$."{name}"') for name in names.fields)
    fields = "".join(f", (f[{number + 1}])::VARCHAR AS f{number}" for number in range(len(names.fields)))
    shown = "".join(f"{column}, " for column in (*_columns("f", names.fields), *_columns("e", names.expected)))
    outcomes = " ".join(f"WHEN {quoted(outcome)} THEN {number}" for number, outcome in enumerate(OUTCOMES))
    failed, fine = OUTCOMES.index("FAIL"), OUTCOMES.index("OK")
    # Each level is computed once; inside a CASE, every branch would extract the values again.
    return f"""
        SELECT src::INTEGER AS src, kind::UTINYINT AS kind,
            CASE WHEN {_is_fraction("identity")} THEN NULL ELSE TRY_CAST(identity AS BIGINT) END AS id,
            CASE WHEN id IS NULL THEN identity END AS id_text, nullif(tag, '') AS tag,
            nullif(difficulty, '') AS difficulty, nullif(profile, '') AS profile, completed,
            (CASE told {outcomes} ELSE CASE WHEN completed THEN {fine} ELSE {failed} END END)::UTINYINT AS outcome,
            CASE WHEN retries <= '9~' THEN TRY_CAST(retries AS DOUBLE) END AS retry_count,
            nullif(error, '') AS error, {_correct(names)} AS correct, {shown}{_needs_python(names)} AS odd
        FROM (SELECT *{fields} FROM (
            SELECT *, {f"json_extract(packed, [{paths}])" if paths else "NULL::JSON[]"} AS f
            FROM ({read_raw(files, names, strategy)})))"""


def read_raw(files: Iterable[Path], names: Names, strategy: str) -> str:
    """Return the query that reads raw lines; `packed` is the text of the result.

    FLAT is fast but reads the flat wrapper only and cannot distinguish null from missing.
    ANY reads both wrappers and takes about twice as long.
    """
    return _read_flat(files, names) if strategy == FLAT else _read_any(files, names)


def _read_flat(files: Iterable[Path], names: Names) -> str:
    columns = {
        **dict.fromkeys(("_type", "tag", "difficulty", "profile", "hop_result"), "VARCHAR"),
        "id": "JSON",
        "input": "JSON",
        "hop_stats": "STRUCT(retry_count JSON, status VARCHAR, hop_status VARCHAR, error VARCHAR)",
        **{EXPECTED + name: "JSON" for name in names.expected},
    }
    declared = ", ".join(f"{quoted(name)}: '{kind}'" for name, kind in columns.items())
    texts = "".join(f'"{EXPECTED}{name}"::VARCHAR AS e{number}, ' for number, name in enumerate(names.expected))
    return f"""
        SELECT file_index AS src, id::VARCHAR AS identity, tag, difficulty, profile, hop_result AS packed, {texts}
            hop_stats.hop_status AS told, hop_stats.retry_count::VARCHAR AS retries, hop_stats.error AS error,
            CASE WHEN _type = 'meta' THEN {META} WHEN hop_result IS NULL AND hop_stats IS NULL THEN {INPUT}
                 ELSE {RESULT} END AS kind,
            CASE WHEN hop_stats.status = 'OK' THEN true WHEN hop_stats.status = 'ERROR' THEN false
                 ELSE coalesce(hop_stats.hop_status, '') <> 'FAIL' AND coalesce(hop_stats.error, '') = '' END
                 AS completed,
            coalesce(starts_with(input::VARCHAR, '{{'), false) AS strange
        FROM read_json([{_listed(map(path_pattern, files))}], format = 'newline_delimited',
            columns = {{{declared}}})"""


_TOP = ("_type", "profile", "hop_result", "hop_stats", "input", "result", "error")
_STATS = ("retry_count", "status", "hop_status", "error")


def _read_any(files: Iterable[Path], names: Names) -> str:
    top = _listed(f"$.{name}" for name in _TOP)
    tops = ", ".join(f"(top[{number}])::VARCHAR AS t_{name}" for number, name in enumerate(_TOP, 1))
    stats = ", ".join(f"(stats[{number}])::VARCHAR AS s_{name}" for number, name in enumerate(_STATS, 1))
    own = _listed(("$.id", "$.tag", "$.difficulty", *(f'$."{EXPECTED}{name}"' for name in names.expected)))
    texts = "".join(f"(own[{number + 4}])::VARCHAR AS e{number}, " for number in range(len(names.expected)))
    error = f"CASE WHEN view THEN {_as_text('t_error')} ELSE {_as_text('s_error')} END"
    return f"""
        SELECT src, nullif((own[1])::VARCHAR, 'null') AS identity, {_as_text("(own[2])::VARCHAR")} AS tag,
            {_as_text("(own[3])::VARCHAR")} AS difficulty, {_as_text("t_profile")} AS profile,
            CASE WHEN view THEN {_as_text("t_result")} ELSE {_as_text("t_hop_result")} END AS packed, {texts}
            {_as_text("s_hop_status")} AS told, s_retry_count AS retries, {error} AS error,
            CASE WHEN t__type = '"meta"' THEN {META}
                 WHEN view OR t_hop_result IS NOT NULL OR t_hop_stats IS NOT NULL THEN {RESULT}
                 ELSE {INPUT} END AS kind,
            CASE WHEN view AND (t_result IS NULL OR coalesce({error}, '') <> '') THEN false
                 WHEN s_status = '"OK"' THEN true WHEN s_status = '"ERROR"' THEN false
                 ELSE coalesce(s_hop_status, '') <> '"FAIL"' AND coalesce({error}, '') = '' END AS completed,
            NOT starts_with(json, '{{') OR {_has_repeated("json")} OR {_has_repeated("t_hop_stats")}
                OR CASE WHEN view THEN {_has_repeated("t_input")} ELSE false END AS strange
        FROM (SELECT *, json_extract(CASE WHEN view THEN t_input ELSE json END, [{own}]) AS own, {stats} FROM (
            SELECT *, coalesce(starts_with(t_input, '{{') AND coalesce(t_result, t_error) IS NOT NULL, false) AS view,
                json_extract(t_hop_stats, [{_listed(f"$.{name}" for name in _STATS)}]) AS stats FROM (
            SELECT src, json, {tops} FROM (
            SELECT file_index AS src, json::VARCHAR AS json, json_extract(json, [{top}]) AS top
            FROM read_ndjson_objects([{_listed(map(path_pattern, files))}])))))"""


def _as_text(json_column: str) -> str:
    """Return the SQL for the text in a JSON column: a string without quotes, NULL for null."""
    return f"""CASE WHEN starts_with({json_column}, '"') THEN json_extract_string({json_column}, '$')
        WHEN {json_column} <> 'null' THEN {json_column} END"""


def _has_repeated(json_column: str) -> str:
    """Return the SQL for whether an object has duplicate keys; DuckDB uses the first, other parsers the last."""
    keys = f"json_keys({json_column})"
    return f"coalesce(len({keys}) <> len(list_distinct({keys})), false)"


def _columns(letter: str, names: list[str]) -> list[str]:
    return [f"{letter}{number}" for number in range(len(names))]


def _needs_python(names: Names) -> str:
    """Return the SQL for whether a row needs Python: irregular, result not an object, unknown field, or not JSON.

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
        "strange",
        "contains(packed, 'NaN')",
        "contains(packed, 'Infinity')",
        *(f"{column} IN ('NaN', 'Infinity', '-Infinity')" for column in _columns("e", names.expected)),
        f"""CASE WHEN strlen(packed) = {" + ".join(["1", *sizes])} OR packed = 'null' THEN false
            ELSE NOT starts_with(packed, '{{') OR coalesce(len(json_keys(packed)), 0) <> {field_count}
                OR regexp_matches(packed, '{_LAX_JSON}') END""",
    ]
    return " OR ".join(conditions)


_LAX_JSON = r",\s*[\]}]|[:\[,]\s*[-+]?(?i:nan|inf|infinity)\s*[,\]}]"
"""Text that DuckDB accepts although it is not JSON."""


def _correct(names: Names) -> str:
    """Return the SQL for whether a row meets all its expectations; NULL if it has none."""
    if not names.expected:
        return "NULL::BOOLEAN"
    places = {name: f"f{number}" for number, name in enumerate(names.fields)}
    places["output"] = f"coalesce({places.get('output', 'NULL')}, packed)"
    columns = _columns("e", names.expected)
    every = [_agree(column, places.get(name, "NULL")) for name, column in zip(names.expected, columns, strict=True)]
    return f"CASE WHEN coalesce({', '.join(columns)}) IS NOT NULL THEN {' AND '.join(every)} END"


def _agree(expected: str, actual: str) -> str:
    """Equal texts are equal values. Texts that differ are different values but for fractions, containers, and JSON in
    a text where no text is expected, which Python compares by the engine's own rule."""
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
    """Digits and the minus sign sort before letters and brackets, but after the quotation mark."""
    return f"({text} >= '-' AND {text} < ':')"


def _is_fraction(text: str) -> str:
    return f"(contains({text}, '.') OR contains({text}, 'e') OR contains({text}, 'E'))"


def quoted(text: str) -> str:
    """Quote a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def path_pattern(path: Path) -> str:
    """Escape the wildcards in a path for DuckDB."""
    return re.sub(r"([*?\[])", r"[\1]", path.as_posix())


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(map(quoted, texts))
