"""The list of runs of a batch: which runs an address asks for, in which order, and the rows of one page of them.

A repeated case is one line with its share (WORK-8), unless the address asks for every run. Only the keys of a page are
selected and sorted; the wide columns are read for those keys alone, so that a page of a million runs stays quick.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from evalloom.analysis.tally import STATUSES
from evalloom.analysis.views import VIEWS
from evalloom.analysis.where import parse_where
from evalloom.core.errors import EvalloomError
from evalloom.core.repeats import COUNTED, WORST_FIRST
from evalloom.pages.errors import RequestError
from evalloom.pages.library import Library
from evalloom.pages.page import PageRequest
from evalloom.reports.details import snippet
from evalloom.web.failure_causes import IN_CAUSE

PAGE_SIZE = 50
_SNIPPET = 160
_READ = 1_200
"""Characters of a value that are read for its snippet."""
_LONGEST_SEARCH = 1_000
FIELDS = ("tag", "profile", "category", "bucket", "difficulty", "check", "cause", "q", "where")
"""Filters with one value each, as they stand in an address."""
_RANK = f"list_position([{', '.join(repr(status) for status in WORST_FIRST)}], status)"
_SORTS: dict[str, tuple[str, str]] = {
    "outcome": (_RANK, "min"),
    "number": ("number", "min"),
    "case": ("case_id", "min"),
    "profile": ("profile", "min"),
    "model": ("model", "min"),
    "score": ("score", "avg"),
    "latency": ("latency_s", "max"),
    "duration": ("duration_s", "max"),
    "cost": ("cost", "sum"),
    "tokens": ("tokens", "sum"),
    "calls": ("calls", "sum"),
    "retries": ("retries", "sum"),
    "check": ('"check"', "min"),
    "category": ("category", "min"),
    "bucket": ("bucket", "min"),
    "difficulty": ("difficulty", "min"),
    "started": ("started_at", "min"),
}
"""What runs can be sorted by: an expression, and how it is aggregated over the repeats of a case."""
COLUMNS = (
    *("profile", "input", "expected", "output", "score", "latency", "cost", "tokens", "model", "tags", "category"),
    *("bucket", "difficulty", "check", "calls", "retries", "started"),
)
"""Columns of the table beside the outcome and the case."""
USUAL_COLUMNS = ("input", "expected", "output", "latency")


class RunFilter(Struct, frozen=True):
    """Which runs are listed, and in which order: the part of an address that a batch and its runs share."""

    statuses: tuple[str, ...] = ()
    tag: str = ""
    profile: str = ""
    category: str = ""
    bucket: str = ""
    difficulty: str = ""
    check: str = ""
    """Runs in which this check did not pass."""
    cause: str = ""
    q: str = ""
    """A text that occurs in the id, description, input, expectations, output or reason, in upper or lower case."""
    where: str = ""
    """An expression as that of `evalloom stats --where`."""
    sort: str = "outcome"
    """A column; `-` before it sorts the greatest first."""
    every_run: bool = False
    """Whether each repeat of a case is a line of its own."""

    @property
    def is_filtering(self) -> bool:
        return bool(self.statuses) or any(getattr(self, name) for name in FIELDS)

    @property
    def query(self) -> dict[str, str]:
        """The values of an address that give this filter."""
        values = {name: getattr(self, name) for name in FIELDS}
        sort = "" if self.sort == "outcome" else self.sort
        return {"status": ",".join(self.statuses), **values, "sort": sort, "rows": "runs" if self.every_run else ""}


class Repeat(Struct, frozen=True):
    """A run of a repeated case."""

    run: str
    repeat: int
    status: str


class ListedRun(Struct, frozen=True, kw_only=True):
    """A line of the table: a run, or the worst run of a repeated case with the outcomes of the others."""

    run: str
    case: str
    description: str
    number: int
    profile: str
    repeat: int
    status: str
    check: str
    reason: str
    step: str
    input: str
    expected: str
    output: str
    score: float | None
    latency: float | None
    cost: float | None
    tokens: int | None
    model: str
    tags: list[str]
    category: str
    bucket: str
    difficulty: str
    calls: int | None
    retries: int | None
    started: str
    repeats: list[Repeat]
    """All runs of the case under its profile, if there are several."""

    @property
    def share(self) -> tuple[int, int]:
        """How many repeats passed, of how many that count."""
        statuses = [repeat.status for repeat in self.repeats]
        return statuses.count("passed"), sum(status in COUNTED for status in statuses)


class RunPage(Struct, frozen=True):
    """One page of the list."""

    lines: list[ListedRun]
    runs: int
    """How many runs match."""
    total: int
    """How many lines they give: repeats of a case are one."""
    page: int
    pages: int


def parse_filter(request: PageRequest) -> RunFilter:
    """Return the filter that an address names; raise for a status or a column that does not exist."""
    statuses = tuple(dict.fromkeys(filter(None, request.query.get("status", "").split(","))))
    for status in statuses:
        if status not in STATUSES:
            raise RequestError("validation_failed", f"status: expected {' or '.join(STATUSES)}, got {status[:80]!r}")
    sort = request.query.get("sort", "") or "outcome"
    if sort.removeprefix("-") not in _SORTS:
        raise RequestError("validation_failed", f"sort: expected {', '.join(_SORTS)}, got {sort[:80]!r}")
    values = {name: request.query.get(name, "").strip() for name in FIELDS}
    if len(values["q"]) > _LONGEST_SEARCH:
        raise RequestError("validation_failed", f"q: expected at most {_LONGEST_SEARCH:,} characters")
    return RunFilter(statuses, **values, sort=sort, every_run=request.query.get("rows") == "runs")


class RunList:
    """The runs of one batch that match a filter, in its order."""

    def __init__(self, library: Library, batch: str, filter: RunFilter, has_repeats: bool) -> None:
        self._library = library
        self._batch = batch
        self.filter = filter
        self.is_grouped = has_repeats and not filter.every_run
        self._condition, self.values = _condition(filter)

    @property
    def matching(self) -> str:
        """A query for the runs that match; its parameters are `values`."""
        return f"(SELECT * FROM runs WHERE {self._condition})"

    def statuses(self) -> dict[str, int]:
        """Return how many runs each status has, whatever statuses the filter names."""
        condition, values = _condition(replace(self.filter, statuses=()))
        query = f"SELECT status, count(*) FROM runs WHERE {condition} GROUP BY status"
        return dict(self._cached("statuses", condition, query, values))

    def counts(self) -> tuple[int, int]:
        """Return how many runs match, and how many lines they give."""
        statuses = self.statuses()
        runs = sum(number for status, number in statuses.items() if status in (self.filter.statuses or statuses))
        if not self.is_grouped:
            return runs, runs
        query = f"""SELECT count(*) FROM (SELECT 1 FROM runs WHERE {self._condition}
            GROUP BY number, case_id, profile)"""
        [(lines,)] = self._cached("lines", self._condition, query, self.values)
        return runs, lines

    def _cached(self, name: str, condition: str, query: str, values: list[Any]) -> list[tuple[Any, ...]]:
        key = (name, condition, json.dumps(values))
        return self._library.cached(self._batch, key, lambda views: views.rows(query, values))

    def keys(self, first: int, count: int) -> list[str]:
        """Return the keys of some lines; of a repeated case, that of its worst run."""
        query = f"SELECT key FROM ({self._lines()}) ORDER BY {self._order()} LIMIT ? OFFSET ?"
        return [key for (key,) in self._library.rows(self._batch, query, [*self.values, count, first])]

    def place_of(self, key: str) -> int | None:
        """Return the position of a run in the list, from 0; None if it is not in it."""
        query = f"""
            WITH lines AS (SELECT *, row_number() OVER (ORDER BY {self._order()}) - 1 AS place FROM ({self._lines()}))
            SELECT place FROM lines JOIN runs AS wanted USING (number, case_id, profile)
            WHERE wanted.key = ? {"" if self.is_grouped else "AND lines.key = wanted.key"}"""
        rows = self._library.rows(self._batch, query, [*self.values, key])
        return rows[0][0] if rows else None

    def page(self, page: int) -> RunPage:
        """Return one page of the list."""
        runs, total = self.counts()
        key = ("page", self._condition, json.dumps(self.values), self.filter.sort, self.is_grouped, page)
        lines = self._library.cached(
            self._batch, key, lambda views: self._read(self.keys((page - 1) * PAGE_SIZE, PAGE_SIZE))
        )
        return RunPage(lines, runs, total, page, max(1, -(-total // PAGE_SIZE)))

    def _lines(self) -> str:
        sort, aggregate = _SORTS[self.filter.sort.removeprefix("-")]
        if not self.is_grouped:
            return (
                f"SELECT key, number, case_id, profile, repeat, {sort} AS sorted_by FROM runs WHERE {self._condition}"
            )
        return f"""SELECT arg_min(key, {_RANK} * 1000000 + repeat) AS key, number, case_id, profile, 0 AS repeat,
            {aggregate}({sort}) AS sorted_by FROM runs WHERE {self._condition} GROUP BY number, case_id, profile"""

    def _order(self) -> str:
        direction = "DESC" if self.filter.sort.startswith("-") else "ASC"
        return f"sorted_by {direction} NULLS LAST, number, profile, repeat, key"

    def _read(self, keys: list[str]) -> list[ListedRun]:
        """Read the wide columns of some runs, their cases and their repeats."""
        if not keys:
            return []
        rows = self._library.rows(self._batch, _WIDE, [keys])
        by_key = {row[0]: row for row in rows}
        numbers = sorted({row[2] for row in rows})
        marks = ", ".join("?" for _ in numbers)
        cases = {row[:2]: row[2:] for row in self._library.rows(self._batch, _CASES.format(numbers=marks), numbers)}
        repeats: dict[tuple[int, str, str], list[Repeat]] = {}
        if self.is_grouped:
            for number, case, profile, *run in self._library.rows(self._batch, _REPEATS.format(numbers=marks), numbers):
                repeats.setdefault((number, case, profile), []).append(Repeat(*run))
        # A batch that is being written may have been read again in between.
        return [_line(by_key[key], cases, repeats) for key in keys if key in by_key]


_SHORT = (
    f"CASE json_type({{0}}) WHEN 'VARCHAR' THEN left({{0}} ->> '$', {_READ}) ELSE left({{0}}::VARCHAR, {_READ}) END"
)
_WIDE = f"""
    SELECT key, case_id, number, profile, repeat, status, "check", left(coalesce(reason, error), {_READ}), step, score,
        latency_s, cost, tokens, model, tags, category, bucket, difficulty, calls, retries, started_at,
        json_type(output), {_SHORT.format("output")}
    FROM runs WHERE key IN (SELECT unnest(?))"""
# One parameter for each number lets DuckDB skip the parts of a large file that have none of them; keys are random.
_CASES = f"""
    SELECT number, case_id, description, left(input::VARCHAR, {_READ}), left(expected::VARCHAR, {_READ})
    FROM cases WHERE number IN ({{numbers}})"""
_REPEATS = """SELECT number, case_id, profile, key, repeat, status FROM runs WHERE number IN ({numbers})
    ORDER BY number, profile, repeat"""


def _line(row: tuple[Any, ...], cases: dict[Any, Any], repeats: dict[Any, list[Repeat]]) -> ListedRun:
    key, case, number, profile, repeat, status, check, reason, step, score, latency, cost, tokens = row[:13]
    model, tags, category, bucket, difficulty, calls, retries, started, output_type, output = row[13:]
    description, inputs, expected = cases.get((number, case), (None, None, None))
    same = repeats.get((number, case, profile), [])
    return ListedRun(
        run=key,
        case=case,
        description=description or "",
        number=number or 0,
        profile=profile or "",
        repeat=repeat or 0,
        status=status or "",
        check=check or "",
        reason=reason or "",
        step=step or "",
        input=_snippet(inputs),
        expected=_snippet(expected),
        output=snippet(output or "", _SNIPPET) if output_type == "VARCHAR" else _snippet(output),
        score=score,
        latency=latency,
        cost=cost,
        tokens=tokens,
        model=model or "",
        tags=tags or [],
        category=category or "",
        bucket=bucket or "",
        difficulty=difficulty or "",
        calls=calls,
        retries=retries,
        started=f"{started.isoformat()}+00:00" if started else "",
        repeats=same if len(same) > 1 else [],
    )


def _snippet(text: str | None) -> str:
    """Return the beginning of a JSON value on one line: texts as they are, the values of an object with their names."""
    if not text:
        return ""
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        # It was cut. What is left is shown without the marks of JSON.
        return snippet(text.lstrip('{["').replace('":"', ": ").replace('","', " · "), _SNIPPET)
    if isinstance(value, dict) and len(value) > 1:
        return snippet([f"{name}: {snippet(item, _SNIPPET)}" for name, item in value.items()], _SNIPPET)
    return snippet(value, _SNIPPET)


# -- conditions --------------------------------------------------------------------------------------------


def _condition(filter: RunFilter) -> tuple[str, list[Any]]:
    """Return the condition of a filter over the view `runs`, and the values of its parameters."""
    parts: list[str] = []
    values: list[Any] = []

    def add(condition: str, *parameters: Any) -> None:
        parts.append(f"({condition})")
        values.extend(parameters)

    if filter.statuses:
        add(f"status IN ({', '.join('?' for _ in filter.statuses)})", *filter.statuses)
    if filter.tag:
        add("list_contains(tags, ?)", filter.tag)
    for name in ("profile", "category", "bucket", "difficulty"):
        if value := getattr(filter, name):
            add(f"{name} = ?", value)
    if filter.check:
        add(
            "key IN (SELECT key FROM verdicts WHERE coalesce(nullif(name, ''), kind) = ? AND status <> 'passed')",
            filter.check,
        )
    if filter.cause:
        add(IN_CAUSE, filter.cause)
    if filter.q:
        add(*_search(filter.q))
    if filter.where:
        add(*_where(filter.where))
    return " AND ".join(parts) or "true", values


def _search(text: str) -> tuple[str, ...]:
    plain, written = text.lower(), json.dumps(text.lower(), ensure_ascii=False)[1:-1]
    condition = """contains(lower(case_id), ?) OR contains(lower(coalesce(reason, error, '')), ?)
        OR contains(lower(output::VARCHAR), ?) OR (number, case_id) IN (SELECT (number, case_id) FROM cases
        WHERE contains(lower(description), ?) OR contains(lower(input::VARCHAR), ?)
        OR contains(lower(expected::VARCHAR), ?))"""
    # Values are stored as JSON, in which a quotation mark or a line break is an escape.
    return (condition, plain, plain, written, plain, written, written)


def _where(text: str) -> tuple[Any, ...]:
    try:
        where = parse_where(text, VIEWS["runs"])
    except EvalloomError as error:
        message = str(error).rpartition(" [")[0].replace("--where", "where", 1)
        raise RequestError("bad_filter", message) from None
    return (where.sql, *where.values)
