"""What one row of a HOP result file becomes in the derived copy: in Python, exactly, and in SQL, fast.

`row_of` is the definition. `select_rows` says the same in SQL for rows of the flat wrapper in which nothing is odd,
and marks every other row, so that the file it stands in is read by `row_of` instead.
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

from evalloom.dialects.hop import is_meta, is_view_row, normalize_audit, where_of
from evalloom.matchers import Seen, by_kind
from evalloom.matchers.matcher import number_of
from evalloom.matchers.where import Missing, find
from evalloom.model import Case, Check, Outcome, Output, Record

EXPECTED = "expected_"
OUTCOMES: tuple[str, ...] = get_args(Outcome)
COLUMNS = {
    "src": "INTEGER",
    "line": "BIGINT",
    "kind": "UTINYINT",
    "id": "VARCHAR",
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

Numbers stand for words (`KINDS`, `OUTCOMES`) because Parquet takes several times as long to write texts.
"""
KINDS = ("result", "meta", "input")
RESULT, META, INPUT = range(3)

_PLAIN_NAME = re.compile(r"[^\"'\\.\[\]*\x00-\x1f]+")
_NO_CASE = Case("", {})
_equals = by_kind("equals")


class Names(Struct, frozen=True):
    """The fields of results, and those that something is expected of, in the order of their columns."""

    fields: list[str] = []
    expected: list[str] = []


def row_of(record: Record) -> Record:
    """One row of the copy, with `fields` and `expected` by name; values are JSON texts."""
    audit = normalize_audit(record)
    if audit is None:
        return {"kind": META if is_meta(record) else INPUT}
    case, result, stats = audit["case"], audit["result"], audit["stats"]
    expected = expected_of(case)
    completed = _has_completed(record, audit)
    outcome = stats.get("hop_status")
    return {
        "kind": RESULT,
        "id": None if case.get("id") is None else json_text(case["id"]),
        "tag": _text(case.get("tag")),
        "difficulty": _text(case.get("difficulty")),
        "profile": _text(audit["profile"]),
        "completed": completed,
        "outcome": OUTCOMES.index(outcome if outcome in OUTCOMES else "OK" if completed else "FAIL"),
        "retry_count": number_of(stats.get("retry_count")),
        "error": _text(audit["error"]),
        "correct": all(_holds(name, value, result) for name, value in expected.items()) if expected else None,
        "case_key": md5(orjson_text(case)).hexdigest(),
        "fields": {name: json_text(value) for name, value in result.items()} if isinstance(result, dict) else {},
        "expected": {name: json_text(value) for name, value in expected.items()},
    }


def expected_of(case: Record) -> Record:
    """What a case expects, by output field."""
    found = {name.removeprefix(EXPECTED): value for name, value in case.items() if name.startswith(EXPECTED)}
    found.pop("", None)
    return found


def _has_completed(record: Record, audit: Record) -> bool:
    """Whether the status is OK and not ERROR, as HOP-9 maps outcomes; where nobody says so, an error speaks."""
    failed = audit["error"] not in (None, "")
    if is_view_row(record) and (failed or "result" not in record):
        return False
    told = audit["stats"].get("status")
    if told in ("OK", "ERROR"):
        return bool(told == "OK")
    return not failed and audit["stats"].get("hop_status") != "FAIL"


def _holds(name: str, expected: Any, result: Any) -> bool:
    value = find(where_of(name), Output(result))
    return type(value) is not Missing and _is_equal(expected, value)


def _is_equal(expected: Any, value: Any) -> bool:
    """Whether the engine's own `equals` passes."""
    assert _equals is not None and _equals.grade is not None
    grade = _equals.grade(Check("equals", expected), Seen(value, Output(value), _NO_CASE))
    return grade is not None and grade.passed is True


def same_json(expected: str, given: str) -> bool:
    """Whether two JSON texts are equal by value; asked only where the texts do not settle it."""
    return _is_equal(json.loads(expected), json.loads(given))


def json_text(value: Any) -> str:
    """A value as compact JSON."""
    return orjson_text(value).decode()


def orjson_text(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        # Integers beyond 64 bits, and halves of surrogate pairs.
        return json.dumps(value, separators=(",", ":")).encode()


def _text(value: Any) -> str | None:
    """A text to group by or to show; nothing for nothing and for an empty one."""
    if value is None or value == "":
        return None
    return value.encode(errors="replace").decode() if isinstance(value, str) else json_text(value)


# -- the same in SQL --------------------------------------------------------------------------------


def can_select(name: str) -> bool:
    """Whether a field's name can stand in a JSON path and in SQL, and means only itself in a check."""
    return _PLAIN_NAME.fullmatch(name) is not None


def select_rows(files: Iterable[Path], names: Names) -> str:
    """The query that reads files of the flat wrapper; `odd` marks the rows that only `row_of` can tell.

    No column is left to be guessed (a guess ends after some rows), and no error is passed over: a line that is no JSON
    or has a key twice ends the query, and whoever asked looks for the file.
    """
    columns = {
        **dict.fromkeys(("_type", "tag", "difficulty", "profile", "hop_result"), "VARCHAR"),
        "id": "JSON",
        "input": "JSON",
        "hop_stats": "STRUCT(retry_count JSON, status VARCHAR, hop_status VARCHAR, error VARCHAR)",
        **{EXPECTED + name: "JSON" for name in names.expected},
    }
    declared = ", ".join(f"{quoted(name)}: '{kind}'" for name, kind in columns.items())
    paths = ", ".join(quoted(f'$."{name}"') for name in names.fields)
    texts = "".join(f'"{EXPECTED}{name}"::VARCHAR AS e{number}, ' for number, name in enumerate(names.expected))
    fields = "".join(f"(f[{number + 1}])::VARCHAR AS f{number}, " for number in range(len(names.fields)))
    shown = "".join(f"{column}, " for column in (*_columns("f", names.fields), *_columns("e", names.expected)))
    outcomes = " ".join(f"WHEN {quoted(one)} THEN {number}" for number, one in enumerate(OUTCOMES))
    failed, fine = OUTCOMES.index("FAIL"), OUTCOMES.index("OK")
    # Each level is worked out once; what is taken apart inside a CASE would be taken apart in every branch.
    return f"""
        SELECT src::INTEGER AS src, kind::UTINYINT AS kind, id::VARCHAR AS id, nullif(tag, '') AS tag,
            nullif(difficulty, '') AS difficulty, nullif(profile, '') AS profile, completed,
            (CASE told {outcomes} ELSE CASE WHEN completed THEN {fine} ELSE {failed} END END)::UTINYINT AS outcome,
            CASE WHEN retries <= '9~' THEN TRY_CAST(retries AS DOUBLE) END AS retry_count,
            nullif(error, '') AS error, {_correct(names)} AS correct, {shown}{_odd(names)} AS odd
        FROM (SELECT *, {fields}json_keys(hop_result) AS keys FROM (
            SELECT src, id, tag, difficulty, profile, hop_result, input, {texts}hop_stats.hop_status AS told,
                hop_stats.retry_count::VARCHAR AS retries, hop_stats.error AS error,
                CASE WHEN _type = 'meta' THEN {META} WHEN hop_result IS NULL AND hop_stats IS NULL THEN {INPUT}
                     ELSE {RESULT} END AS kind,
                CASE WHEN hop_stats.status = 'OK' THEN true WHEN hop_stats.status = 'ERROR' THEN false
                     ELSE coalesce(hop_stats.hop_status, '') <> 'FAIL' AND coalesce(hop_stats.error, '') = '' END
                     AS completed,
                {f"json_extract(hop_result, [{paths}])" if paths else "NULL::JSON[]"} AS f
            FROM (SELECT file_index AS src, * FROM read_json([{_listed(map(path_pattern, files))}],
                format = 'newline_delimited', columns = {{{declared}}}))
        ))"""


def _columns(letter: str, names: list[str]) -> list[str]:
    return [f"{letter}{number}" for number in range(len(names))]


def _odd(names: Names) -> str:
    """Whether a row is none that SQL can tell: a View row, no object as its result, an unknown field, or no JSON.

    All in one OR: conditions inside one another cost several times as much.
    """
    found = " + ".join(f"({column} IS NOT NULL)::INT" for column in _columns("f", names.fields)) or "0"
    marks = [f"contains(hop_result, {quoted(mark)})" for mark in (",}", ",]", "NaN", "Infinity")]
    spaces = " OR ".join(f"contains(hop_result, {mark})" for mark in ("' }'", "' ]'", "chr(10)"))
    conditions = [
        "coalesce(starts_with(input::VARCHAR, '{'), false)",
        "(NOT starts_with(hop_result, '{') AND hop_result <> 'null')",
        f"coalesce(len(keys), 0) <> {found}",
        *marks,
        f"CASE WHEN {spaces} THEN regexp_matches(hop_result, '{_ODD_JSON}') END",
        *(f"{column} IN ('NaN', 'Infinity', '-Infinity')" for column in _columns("e", names.expected)),
    ]
    return " OR ".join(conditions)


_ODD_JSON = r",\s*[\]}]|[:\[,]\s*[-+]?(?i:nan|inf|infinity)\s*[,\]}]"
"""What DuckDB reads though it is no JSON."""


def _correct(names: Names) -> str:
    """Whether every expectation of a row holds; NULL where it has none."""
    if not names.expected:
        return "NULL::BOOLEAN"
    places = {name: f"f{number}" for number, name in enumerate(names.fields)}
    places["output"] = f"coalesce({places.get('output', 'NULL')}, hop_result)"
    columns = _columns("e", names.expected)
    every = [_agree(column, places.get(name, "NULL")) for name, column in zip(names.expected, columns, strict=True)]
    return f"CASE WHEN coalesce({', '.join(columns)}) IS NOT NULL THEN {' AND '.join(every)} END"


def _agree(expected: str, given: str) -> str:
    """Equal texts are equal values. Texts that differ are different values but for fractions, containers, and JSON in
    a text where no text is expected, which Python compares by the engine's own rule."""
    if given == "NULL":
        return f"{expected} IS NULL"
    return f"""CASE WHEN {expected} IS NULL THEN true WHEN {given} IS NULL THEN false
        WHEN {expected} = {given} THEN true WHEN starts_with({expected}, '"') THEN false
        WHEN starts_with({given}, '"') OR ({_is_container(expected)} AND {_is_container(given)})
            OR ({_is_number(expected)} AND {_is_number(given)} AND ({_is_fraction(expected)} OR {_is_fraction(given)}))
        THEN same_json({expected}, {given}) ELSE false END"""


def _is_container(text: str) -> str:
    return f"(starts_with({text}, '{{') OR starts_with({text}, '['))"


def _is_number(text: str) -> str:
    """Digits and the minus sign come before all letters and brackets, but after the quotation mark."""
    return f"({text} >= '-' AND {text} < ':')"


def _is_fraction(text: str) -> str:
    return f"(contains({text}, '.') OR contains({text}, 'e') OR contains({text}, 'E'))"


def quoted(text: str) -> str:
    """A text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def path_pattern(path: Path) -> str:
    """A path for a reader of DuckDB, which takes some characters for wildcards."""
    return re.sub(r"([*?\[])", r"[\1]", path.as_posix())


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(map(quoted, texts))
