"""Figures of the runs in views, in total and by group (WORK-11); they agree with the summaries of batches (WORK-5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from evalloom.analysis.causes import Cause, merge_causes, normalise
from evalloom.analysis.statistics import mean_interval
from evalloom.analysis.tally import STATUSES
from evalloom.analysis.views import VIEWS, Views
from evalloom.analysis.where import EVERYTHING, Where, parse_where
from evalloom.core.errors import usage_error
from evalloom.core.text import did_you_mean, printable

Metric = Literal["pass", "score", "latency", "cost", "tokens"]
Dimension = Literal["tag", "profile", "category", "bucket", "difficulty", "check", "model", "batch"]
METRICS: tuple[Metric, ...] = ("pass", "score", "latency", "cost", "tokens")
DIMENSIONS: tuple[Dimension, ...] = ("tag", "profile", "category", "bucket", "difficulty", "check", "model", "batch")
_VALUES: dict[Metric, str] = {"score": "score", "latency": "latency_s", "cost": "cost", "tokens": "tokens"}
_GROUPED_FAILURES = 20_000
"""The number of different reasons that are grouped by cause; more take longer to read than anyone waits."""
WITHOUT_NUMBERS = r"regexp_replace({reason}, '\b[0-9][0-9.,]*\b', '0', 'g')"
"""A reason without its numbers in SQL: reasons that are equal so have one cause."""


class Counts(Struct, frozen=True, kw_only=True):
    """How runs of a group ended, and its pass rate with the interval over cases, as in a summary."""

    total: int
    passed: int
    failed: int
    error: int
    skipped: int
    blocked: int
    unscored: int
    cases: int
    failing: int
    pass_rate: float | None
    pass_rate_low: float | None
    pass_rate_high: float | None


class Values(Struct, frozen=True, kw_only=True):
    """The distribution of a number over the runs of a group that have it.

    The mean of scores from 0 to 1 is over cases, with its interval.
    """

    total: int
    count: int
    """How many runs have the number."""
    sum: float | None
    mean: float | None
    low: float | None
    high: float | None
    min: float | None
    p50: float | None
    p95: float | None
    max: float | None


Figures = Counts | Values


class Stats(Struct, frozen=True, kw_only=True):
    """The figures of some batches: the object that `--json` prints."""

    batches: list[str]
    metric: Metric
    total: Figures
    by: dict[Dimension, dict[str, Figures]]
    """The figures of each group, in the order of the first run; runs without a tag, model … are under an empty name."""
    causes: list[Cause]
    ungrouped: int = 0
    """How many failures are not among the causes."""
    until_sure: list[str] = []
    """The batches of `--until-sure`: their results decided when they ended, so their figures have no interval."""


def batch_stats(
    views: Views, by: Sequence[Dimension] = (), metric: Metric = "pass", where: Where = EVERYTHING
) -> Stats:
    """Return the figures of all runs that fulfil a condition, in total and by each dimension."""
    reader = _Reader(views, metric, where)
    total = reader.groups("NULL").get("") or reader.nothing()
    failures = _failures(views, where)
    grouped = sum(group.count for group in failures)
    return Stats(
        batches=[id for (id,) in views.rows("SELECT batch FROM batches ORDER BY created_at, batch")],
        metric=metric,
        total=total,
        by={dimension: reader.by(dimension) for dimension in by},
        causes=merge_causes(failures),
        ungrouped=_number_of_failures(views, where) - grouped,
        until_sure=reader.until_sure,
    )


def parse_dimensions(names: Iterable[str]) -> list[Dimension]:
    """Return the dimensions of these names."""
    known: dict[str, Dimension] = {name: name for name in DIMENSIONS}
    dimensions = []
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f". There is {', '.join(known)}"
            raise usage_error("bad_option", f"--by: no group {name!r}{hint}")
        dimensions.append(known[name])
    return dimensions


def check_profile(views: Views, name: str) -> None:
    """Refuse the name of a profile that no run has; an empty one is for all of them."""
    if not name:
        return
    names = [str(profile) for (profile,) in views.rows("SELECT DISTINCT profile FROM runs ORDER BY profile")]
    if name not in names:
        hint = did_you_mean(name, names) or f". There is {', '.join(names)}"
        raise usage_error("bad_option", printable(f"--profile: no run has the profile {name!r}{hint}"))


def parse_conditions(where: Iterable[str], profile: str = "") -> Where:
    """Join conditions over runs: every one of them must hold."""
    conditions = [parse_where(text, VIEWS["runs"]) for text in where]
    conditions += [Where("profile = ?", [profile])] if profile else []
    if not conditions:
        return EVERYTHING
    values = [value for condition in conditions for value in condition.values]
    return Where(" AND ".join(f"({condition.sql})" for condition in conditions), values)


def _failures(views: Views, where: Where) -> list[Cause]:
    """Return failures by step, check and reason without its numbers, which groups most of them quickly."""
    rows = views.rows(
        f"""SELECT step, "check", any_value(reason), count(*), count(DISTINCT reason), list(case_id ORDER BY place)
            FROM (SELECT step, "check", coalesce(reason, error, '') AS reason, case_id,
                (batch, number, profile, repeat) AS place
                FROM runs WHERE status IN ('failed', 'error') AND ({where.sql}))
            GROUP BY step, "check", {WITHOUT_NUMBERS.format(reason="reason")}
            ORDER BY min(place) LIMIT {_GROUPED_FAILURES}""",
        where.values,
    )
    return [
        Cause(
            step or "",
            check or "",
            reason if reasons == 1 else normalise(reason),
            count,
            list(dict.fromkeys(cases)),
            reason,
        )
        for step, check, reason, count, reasons, cases in rows
    ]


def _number_of_failures(views: Views, where: Where) -> int:
    [(number,)] = views.rows(
        f"SELECT count(*) FROM runs WHERE status IN ('failed', 'error') AND ({where.sql})", where.values
    )
    return int(number)


class _Reader:
    """Reads the figures of one metric for the runs that fulfil a condition."""

    def __init__(self, views: Views, metric: Metric, where: Where) -> None:
        self._views = views
        self._metric: Metric = metric
        self._where = where
        self.until_sure: list[str] = [
            id
            for (id,) in views.rows(
                "SELECT batch FROM batches WHERE json_type(options, '$.until_sure') = 'OBJECT' ORDER BY batch"
            )
        ]
        [(batches,)] = views.rows("SELECT count(*) FROM batches")
        # A case has one number in a batch, and the runs of a case in several batches are repeats of it.
        self._case = "number" if batches < 2 else "(file, case_id, occurrence)"
        # The same id at another position of a dataset is another case.
        occurrence = "dense_rank() OVER (PARTITION BY batch, case_id ORDER BY number)" if batches > 1 else "1"
        self._runs = f"(SELECT *, {occurrence} AS occurrence FROM runs WHERE {where.sql})"
        [(repeat, profiles)] = views.rows("SELECT max(repeat), count(DISTINCT profile) FROM runs")
        # Without repeats, each run under one profile is a case, and no run has to be put to its case.
        self._has_repeats = batches > 1 or bool(repeat)
        self._has_profiles = profiles > 1
        [(rules,)] = views.rows("SELECT count(pass_if) FROM batches")
        self._has_pass_rule = rules > 0

    def by(self, dimension: Dimension) -> dict[str, Figures]:
        if dimension == "tag":
            return self.groups(
                "unnest(CASE len(tags) WHEN 0 THEN [NULL] WHEN 1 THEN tags ELSE list_distinct(tags) END)"
            )
        if dimension == "check":
            return self._by_check()
        figures = self.groups(f'"{dimension}"', is_profile=dimension == "profile")
        # Ids of batches begin with their time.
        return dict(sorted(figures.items())) if dimension == "batch" else figures

    def nothing(self) -> Figures:
        """Return the figures of no run."""
        if self._metric == "pass":
            return _counts([0] * 8, [0, 0.0, 0.0, 0])
        return _values([0, 0, *[None] * 6], [0, 0.0, 0.0, 0])

    def groups(self, group: str, is_profile: bool = False) -> dict[str, Figures]:
        """Return the figures by an expression over runs; `is_profile` if each group has one profile."""
        wanted = "status, passed" if self._metric == "pass" else _VALUES[self._metric]
        rows = f"SELECT {group} AS name, batch, number, {self._case} AS one, profile, {wanted} FROM {self._runs}"
        is_case = not self._has_repeats and (is_profile or not self._has_profiles)
        return self._figures(rows, _VALUES.get(self._metric, ""), is_case)

    def _by_check(self) -> dict[str, Figures]:
        """Return the figures of the verdicts of each check."""
        name = "coalesce(nullif(verdicts.name, ''), verdicts.kind)"
        wanted = "verdicts.status AS status, CASE WHEN verdicts.status IN ('passed', 'failed', 'error')"
        wanted += " THEN verdicts.status = 'passed' END AS passed"
        if self._metric != "pass":
            wanted = "verdicts.score AS score" if self._metric == "score" else f"runs.{_VALUES[self._metric]}"
        rows = f"""SELECT {name} AS name, batch, runs.number AS number, {self._case.replace("number", "runs.number")}
            AS one, runs.profile AS profile, {wanted} FROM {self._runs} AS runs JOIN verdicts USING (batch, key)"""
        return self._figures(rows.replace("case_id", "runs.case_id"), _VALUES.get(self._metric, ""), is_case=False)

    def _figures(self, rows: str, value: str, is_case: bool) -> dict[str, Figures]:
        """Return the figures of rows; `is_case` if each row of a group is another case."""
        figures = self._values(rows, value, is_case) if value else self._counts(rows, is_case)
        for name in self._without_interval(rows):
            none = {"low": None, "high": None} if value else {"pass_rate_low": None, "pass_rate_high": None}
            figures[name] = replace(figures[name], **none)
        return figures

    def _values(self, rows: str, value: str, is_case: bool) -> dict[str, Figures]:
        found = self._read(_values_of_cases(rows, value) if is_case else _values_query(rows, value))
        return {name or "": _values(row[:8], row[8:], value == "score") for name, _, *row in found}

    def _counts(self, rows: str, is_case: bool) -> dict[str, Figures]:
        if self._has_pass_rule and not is_case:
            return {name or "": _counts(row[:8], row[8:]) for name, _, *row in self._read(_ruled_query(rows))}
        counts = self._read(_counts_query(rows, self._has_repeats))
        shares = {} if is_case else {name: share for name, *share in self._read(_shares_query(rows))}
        return {name or "": _counts(row[:8], shares.get(name, row[8:])) for name, _, *row in counts}

    def _read(self, query: str) -> list[tuple[Any, ...]]:
        return self._views.rows(query, self._where.values)

    def _without_interval(self, rows: str) -> list[str]:
        """Return the groups with runs of a batch whose own results decided when it ended, as in a history."""
        if not self.until_sure:
            return []
        query = f"SELECT DISTINCT name FROM ({rows}) WHERE list_contains(?, batch)"
        return [name or "" for (name,) in self._views.rows(query, [*self._where.values, self.until_sure])]


def _counts_query(rows: str, has_repeats: bool) -> str:
    """Return the query for how the runs of each group ended, and for the shares where each row is another case."""
    statuses = ", ".join(f"count(*) FILTER (status = '{status}')" for status in STATUSES)
    failing = "count(DISTINCT (batch, one, profile))" if has_repeats else "count(*)"
    return f"""
        SELECT name, min(number) AS first, count(*), {statuses}, {failing} FILTER (NOT passed), count(passed),
            count(*) FILTER (passed)::DOUBLE, count(*) FILTER (passed)::DOUBLE, count(passed)
        FROM ({rows}) GROUP BY name ORDER BY first, name"""


def _shares_query(rows: str) -> str:
    """Return the query for the number of cases, the sum of their shares and of the squares, and the counted runs."""
    return f"""
        SELECT name, count(*), sum(share), sum(share * share), sum(n)::BIGINT
        FROM (SELECT name, avg(passed::INT) AS share, count(*) AS n
            FROM ({rows}) WHERE passed IS NOT NULL GROUP BY name, one)
        GROUP BY name"""


def _values_of_cases(rows: str, value: str) -> str:
    """Return the query for the distribution of a number in groups in which each row is another case."""
    return f"""
        SELECT name, min(number) AS first, {_distribution(value)},
            count({value}), sum({value}), sum({value} * {value}), count({value})
        FROM ({rows}) GROUP BY name ORDER BY first, name"""


def _distribution(value: str) -> str:
    return f"""count(*) AS total, count({value}), sum({value}), avg({value}), min({value}),
        quantile_cont({value}, 0.5), quantile_cont({value}, 0.95), max({value})"""


def _ruled_query(rows: str) -> str:
    """Return the query for counts and shares with a pass rule: by case and profile, by case, by group."""
    statuses = ", ".join(f"count(*) FILTER (status = '{status}') AS {status}" for status in STATUSES)
    sums = ", ".join(f"sum({status})::BIGINT AS {status}" for status in STATUSES)
    # As in `core/repeats.py`: with a pass rule, a case counts once under each profile.
    meets = "n > 0 AND p >= coalesce(pass_if, 1.0) * n - 1e-9"
    return f"""
        WITH units AS (
            SELECT name, batch, one, profile, min(number) AS first, count(*) AS total, {statuses},
                count(*) FILTER (passed) AS p, count(passed) AS n
            FROM ({rows}) GROUP BY name, batch, one, profile),
        ruled AS (
            SELECT units.*, n > 0 AND NOT ({meets}) AS fails,
                CASE WHEN pass_if IS NULL THEN p ELSE ({meets})::INT END AS up,
                CASE WHEN pass_if IS NULL THEN n ELSE (n > 0)::INT END AS un
            FROM units JOIN batches USING (batch)),
        shares AS (
            SELECT name, min(first) AS first, sum(total) AS total, {sums}, sum(fails::INT) AS failing,
                sum(un) AS n, sum(up) / nullif(sum(un), 0) AS share
            FROM ruled GROUP BY name, one)
        SELECT name, min(first) AS first, sum(total)::BIGINT, {", ".join(f"sum({s})::BIGINT" for s in STATUSES)},
            sum(failing)::BIGINT, count(share), sum(share), sum(share * share), sum(n)::BIGINT
        FROM shares GROUP BY name ORDER BY first, name"""


def _values_query(rows: str, value: str) -> str:
    """Return the query for the distribution of a number in each group, and its mean over cases."""
    return f"""
        WITH rows AS ({rows}),
        means AS (SELECT name, avg({value}) AS mean, count({value}) AS n FROM rows GROUP BY name, one),
        of_cases AS (
            SELECT name, count(mean) AS cases, sum(mean) AS total, sum(mean * mean) AS squares, sum(n) AS n
            FROM means GROUP BY name),
        of_runs AS (
            SELECT name, min(number) AS first, {_distribution(value)}
            FROM rows GROUP BY name)
        SELECT of_runs.*, cases, of_cases.total, squares, n::BIGINT
        FROM of_runs JOIN of_cases ON of_runs.name IS NOT DISTINCT FROM of_cases.name
        ORDER BY first, of_runs.name"""


def _counts(numbers: list[int], over_cases: list[Any]) -> Counts:
    cases, total, squares, n = over_cases
    low, high = mean_interval(total, squares, cases, n) if cases else (None, None)
    return Counts(
        total=numbers[0],
        **dict(zip(STATUSES, numbers[1:7], strict=True)),
        cases=cases,
        failing=numbers[7],
        pass_rate=total / cases if cases else None,
        pass_rate_low=low,
        pass_rate_high=high,
    )


def _values(numbers: list[Any], over_cases: list[Any], is_share: bool = False) -> Values:
    runs, count, sum, mean, least, p50, p95, most = numbers
    cases, total, squares, n = over_cases
    low = high = None
    if is_share and count and least >= 0 and most <= 1:
        low, high = mean_interval(total or 0.0, squares or 0.0, cases, n)
        # Over cases, as a pass rate is: repeats of a case do not weigh more.
        mean = (total or 0.0) / cases
    return Values(
        total=runs,
        count=count,
        sum=sum,
        mean=mean,
        low=low,
        high=high,
        min=least,
        p50=p50,
        p95=p95,
        max=most,
    )
