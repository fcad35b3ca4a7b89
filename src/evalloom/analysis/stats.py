"""Figures of the runs in views, in total and by group (WORK-11); they agree with the summaries of batches (WORK-5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from evalloom.analysis.causes import Cause, group_failures
from evalloom.analysis.statistics import mean_interval
from evalloom.analysis.tally import STATUSES
from evalloom.analysis.views import Views
from evalloom.analysis.where import EVERYTHING, Where

Metric = Literal["pass", "score", "latency", "cost", "tokens"]
Dimension = Literal["tag", "profile", "category", "bucket", "difficulty", "check", "model", "batch"]
METRICS: tuple[Metric, ...] = ("pass", "score", "latency", "cost", "tokens")
DIMENSIONS: tuple[Dimension, ...] = ("tag", "profile", "category", "bucket", "difficulty", "check", "model", "batch")
_VALUES: dict[Metric, str] = {"score": "score", "latency": "latency_s", "cost": "cost", "tokens": "tokens"}
_GROUPED_FAILURES = 100_000
"""The number of failures that are grouped by cause; more take longer to read than anyone waits."""


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
    return Stats(
        batches=[id for (id,) in views.rows("SELECT batch FROM batches ORDER BY created_at, batch")],
        metric=metric,
        total=total,
        by={dimension: reader.by(dimension) for dimension in by},
        causes=group_failures(failures[:_GROUPED_FAILURES]),
        ungrouped=max(0, _number_of_failures(views, where) - _GROUPED_FAILURES),
        until_sure=reader.until_sure,
    )


def _failures(views: Views, where: Where) -> list[tuple[Any, ...]]:
    return views.rows(
        f"""SELECT case_id, step, "check", coalesce(reason, error) FROM runs
            WHERE status IN ('failed', 'error') AND ({where.sql})
            ORDER BY batch, number, profile, repeat LIMIT {_GROUPED_FAILURES}""",
        where.values,
    )


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

    def by(self, dimension: Dimension) -> dict[str, Figures]:
        if dimension == "tag":
            return self.groups("unnest(CASE WHEN len(tags) > 0 THEN list_distinct(tags) ELSE [NULL] END)")
        if dimension == "check":
            return self._by_check()
        figures = self.groups(f'"{dimension}"')
        # Ids of batches begin with their time.
        return dict(sorted(figures.items())) if dimension == "batch" else figures

    def nothing(self) -> Figures:
        """Return the figures of no run."""
        if self._metric == "pass":
            return _counts([0] * (1 + len(STATUSES)), 0, 0, 0.0, 0.0, 0)
        return _values([0, 0, *[None] * 6], [0, 0.0, 0.0, 0])

    def groups(self, group: str) -> dict[str, Figures]:
        """Return the figures by an expression over runs."""
        wanted = "status, passed" if self._metric == "pass" else _VALUES[self._metric]
        rows = f"SELECT {group} AS name, batch, number, {self._case} AS one, profile, {wanted} FROM {self._runs}"
        return self._figures(rows, _VALUES.get(self._metric, ""))

    def _by_check(self) -> dict[str, Figures]:
        """Return the figures of the verdicts of each check."""
        name = "coalesce(nullif(verdicts.name, ''), verdicts.kind)"
        wanted = "verdicts.status AS status, CASE WHEN verdicts.status IN ('passed', 'failed', 'error')"
        wanted += " THEN verdicts.status = 'passed' END AS passed"
        if self._metric != "pass":
            wanted = "verdicts.score AS score" if self._metric == "score" else f"runs.{_VALUES[self._metric]}"
        rows = f"""SELECT {name} AS name, batch, runs.number AS number, {self._case.replace("number", "runs.number")}
            AS one, runs.profile AS profile, {wanted} FROM {self._runs} AS runs JOIN verdicts USING (batch, key)"""
        return self._figures(rows.replace("case_id", "runs.case_id"), _VALUES.get(self._metric, ""))

    def _figures(self, rows: str, value: str) -> dict[str, Figures]:
        query = _values_query(rows, value) if value else _counts_query(rows)
        found = self._views.rows(query, self._where.values)
        figures: dict[str, Figures] = {}
        for name, _, *row in found:
            group = _values(row[:8], row[8:], value == "score") if value else _counts(list(row[:7]), *row[7:])
            figures[name or ""] = group
        for name in self._without_interval(rows):
            none = {"low": None, "high": None} if value else {"pass_rate_low": None, "pass_rate_high": None}
            figures[name] = replace(figures[name], **none)
        return figures

    def _without_interval(self, rows: str) -> list[str]:
        """Return the groups with runs of a batch whose own results decided when it ended, as in a history."""
        if not self.until_sure:
            return []
        query = f"SELECT DISTINCT name FROM ({rows}) WHERE list_contains(?, batch)"
        return [name or "" for (name,) in self._views.rows(query, [*self._where.values, self.until_sure])]


def _counts_query(rows: str) -> str:
    """Return the query for the counts of each group: by case and profile, by case, by group."""
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
            SELECT name, min(number) AS first, count(*) AS total, count({value}), sum({value}), avg({value}),
                min({value}), quantile_cont({value}, 0.5), quantile_cont({value}, 0.95), max({value})
            FROM rows GROUP BY name)
        SELECT of_runs.*, cases, of_cases.total, squares, n::BIGINT
        FROM of_runs JOIN of_cases ON of_runs.name IS NOT DISTINCT FROM of_cases.name
        ORDER BY first, of_runs.name"""


def _counts(numbers: list[int], failing: int, cases: int, total: float | None, squares: float | None, n: int) -> Counts:
    low, high = mean_interval(total or 0.0, squares or 0.0, cases, n) if cases else (None, None)
    return Counts(
        total=numbers[0],
        **dict(zip(STATUSES, numbers[1:], strict=True)),
        cases=cases,
        failing=failing,
        pass_rate=(total or 0.0) / cases if cases else None,
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
