"""Outputs that must be SQL, or contain some in a fence: parsed by sqlglot, with lists of allowed tables and columns."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Check
from evalloom.core.text import did_you_mean, quote
from evalloom.matchers.base import (
    PASSED,
    CheckResult,
    MatchContext,
    Matcher,
    bad_option,
    failed,
    show,
    text_of,
    unscored,
)

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

_DIALECTS = {
    "mysql": "mysql",
    "mariadb": "mysql",
    "postgresql": "postgres",
    "postgres": "postgres",
    "sqlite": "sqlite",
    "transactsql": "tsql",
    "tsql": "tsql",
    "bigquery": "bigquery",
    "snowflake": "snowflake",
    "redshift": "redshift",
    "hive": "hive",
    "trino": "trino",
    "athena": "athena",
    "duckdb": "duckdb",
    "oracle": "oracle",
    "db2": "",
    "flinksql": "",
    "noql": "postgres",
}
_VERBS = ("insert", "update", "delete", "create", "drop", "alter", "merge", "truncate")
# Two words between SELECT and FROM: sqlglot, as every database, takes the second for an alias; here it mostly is a
# forgotten comma.
_NO_COMMA = lazy_pattern(
    r"(?i)\bselect\s+(?:(?:all|distinct(?:row)?|high_priority|straight_join|sql_\w+)\s+)*"
    r"(?!(?:all|distinct)\b)[a-z_]\w*\s+(?!as\b)[a-z_]\w*\s+from\b"
)
_TRAILING = lazy_pattern(r"(?i),\s*(?:from\b|\)|;|$)")
_QUOTED = lazy_pattern(r"""(?s)'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`[^`]*`|--[^\n]*|\#[^\n]*|/\*.*?\*/""")
_NOT_MYSQL = lazy_pattern(r"(?i)\bgenerate_series\s*\(|\bilike\b|\bselect\s+top\s+\d")
_FENCE = lazy_pattern(r"(?ms)^[ \t]{0,3}(`{3,}|~{3,})[ \t]*([^\r\n]*)\r?\n(.*?)(?:^[ \t]{0,3}\1[`~]*[ \t]*$)")


def _is_sql(check: Check, context: MatchContext) -> CheckResult:
    rules = _rules(check)
    if isinstance(rules, CheckResult):
        return rules
    reason = _why_no_sql(text_of(context.value), *rules)
    return failed(reason) if reason else PASSED


def _contains_sql(check: Check, context: MatchContext) -> CheckResult:
    rules = _rules(check)
    if isinstance(rules, CheckResult):
        return rules
    text = text_of(context.value)
    blocks = [block[3] for block in _FENCE.finditer(text) if block[2].strip().lower() in ("", "sql")]
    reason = f"expected SQL in {show(text)}"
    for block in blocks or [text]:
        if block.strip():
            reason = _why_no_sql(block, *rules)
            if not reason:
                return PASSED
    return failed(reason)


def _rules(check: Check) -> tuple[str, list[str], list[str]] | CheckResult:
    """Return the dialect of a check, and the tables and columns that it allows; or which of them is wrong."""
    if find_spec("sqlglot") is None:
        return unscored("SQL needs a parser, which is not installed: pip install 'evalloom[sql]'")
    written = {**check.options, **check.expected} if isinstance(check.expected, dict) else check.options
    if check.expected is not None and not isinstance(check.expected, dict):
        return bad_option("expected", "an object with databaseType, allowedTables or allowedColumns", check.expected)
    database = written.get("databaseType", written.get("database")) or "MySQL"
    if not isinstance(database, str) or database.lower() not in _DIALECTS:
        hint = did_you_mean(database, tuple(_DIALECTS)) if isinstance(database, str) else ""
        return unscored(f"databaseType: expected a database such as PostgreSQL, got {show(database)}{hint}")
    lists = []
    for name, other in (("allowedTables", "allowed_tables"), ("allowedColumns", "allowed_columns")):
        allowed = written.get(name, written.get(other)) or []
        if not isinstance(allowed, list) or not all(isinstance(item, str) for item in allowed):
            return bad_option(name, "a list such as ['select::null::users']", allowed)
        lists.append(allowed)
    return _DIALECTS[database.lower()], lists[0], lists[1]


def _why_no_sql(text: str, dialect: str, tables: list[str], columns: list[str]) -> str:
    import logging

    import sqlglot
    from sqlglot.errors import SqlglotError

    if not text.strip() or text.count("`") % 2:
        return f"expected SQL, got {show(text)}"
    bare = _QUOTED.sub(" ? ", text)
    if _NO_COMMA.search(bare):
        return f"expected SQL, got {show(text)}: a comma is missing between two columns"
    if _TRAILING.search(bare):
        return f"expected SQL, got {show(text)}: nothing follows a comma"
    if "'" in bare or '"' in bare:
        return f"expected SQL, got {show(text)}: a quotation mark is not closed"
    if dialect == "mysql" and _NOT_MYSQL.search(bare):
        return f"expected SQL of MySQL, got {show(text)}"
    # It warns of what it keeps as a command.
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        statements = [statement for statement in sqlglot.parse(text, dialect=dialect or None) if statement]
    except (SqlglotError, RecursionError, ValueError) as error:
        return f"expected SQL, got {show(text)}: {_first_line(error)}"
    # What the parser does not know it keeps as a command, and a lone word is an expression of its own.
    if not statements or not all(map(_is_statement, statements)):
        return f"expected SQL, got {show(text)}"
    for what, used, allowed in (
        ("table", [name for one in statements for name in _tables(one)], tables),
        ("column", [name for one in statements for name in _columns(one)], columns),
    ):
        patterns = [_pattern(item) for item in allowed]
        if refused := [name for name in used if patterns and not any(map(_matches(name), patterns))]:
            return f"the {what} {quote(refused[0])} is not allowed; allowed are {', '.join(allowed)}"
    return ""


def _is_statement(statement: Expr) -> bool:
    from sqlglot import exp

    kinds = (exp.Query, exp.DML, exp.DDL, exp.Drop, exp.Alter, exp.Set, exp.Use, exp.Show, exp.Describe)
    more = (exp.Transaction, exp.Commit, exp.Rollback, exp.TruncateTable, exp.Pragma, exp.Merge, exp.Grant)
    if isinstance(statement, exp.Select) and not statement.expressions:
        return False
    return isinstance(statement, (*kinds, *more))


def _verb(statement: Expr) -> str:
    key = str(statement.key).removesuffix("table")
    return key if key in _VERBS else "select"


def _tables(statement: Expr) -> Iterator[str]:
    """Yield `select::schema::table` for each table, without those that a WITH defines."""
    from sqlglot import exp

    own = {cte.alias for cte in statement.find_all(exp.CTE)}
    # The first table of an INSERT, UPDATE or DELETE is the one that it changes.
    changed = statement.find(exp.Table) if _verb(statement) != "select" else None
    for table in statement.find_all(exp.Table):
        if table.name not in own:
            verb = _verb(statement) if table is changed else "select"
            yield f"{verb}::{table.db or 'null'}::{table.name}"


def _columns(statement: Expr) -> Iterator[str]:
    """Yield `select::table::column` for each column; `(.*)` stands for all of them."""
    from sqlglot import exp

    aliases = {table.alias: table.name for table in statement.find_all(exp.Table) if table.alias}
    for column in statement.find_all(exp.Column):
        table = aliases.get(column.table, column.table) or "null"
        yield f"{_verb(statement)}::{table}::{'(.*)' if column.name == '*' else column.name}"
    verb, changed = _verb(statement), statement.find(exp.Table)
    if verb == "insert" and isinstance(statement.this, exp.Schema) and changed is not None:
        yield from (f"insert::{changed.name}::{column.name}" for column in statement.this.expressions)
    elif verb not in ("select", "update"):
        # These touch whole rows or tables.
        yield f"{verb}::{changed.name if changed is not None else 'null'}::(.*)"
    if any(isinstance(star.parent, exp.Select) for star in statement.find_all(exp.Star)):
        yield f"{_verb(statement)}::null::(.*)"


def _pattern(allowed: str) -> Any:
    """Return a predicate for an allowed name; a part may be a regular expression, such as `(.*)`."""
    from evalloom.core.patterns import BadPattern, search

    parts = allowed.split("::")
    loose = "::".join([parts[0], "null", *parts[2:]]) if len(parts) == 3 else allowed

    def holds(name: str) -> bool:
        if name in (allowed, loose):
            return True
        try:
            return any(search(rf"^(?:{pattern})$", name) for pattern in {allowed, loose})
        except BadPattern:
            return False

    return holds


def _matches(name: str) -> Any:
    return lambda holds: holds(name)


def _first_line(error: Exception) -> str:
    import re

    return re.sub(r"\x1b\[\d*m", "", str(error)).split("\n")[0] or type(error).__name__


MATCHERS = (
    Matcher("is_sql", "the output is SQL; with allowed tables or columns, uses no others", _is_sql),
    Matcher("contains_sql", "the output is SQL or has some in a fence", _contains_sql),
)
