"""Figures of the runs in views, in total and by group (WORK-11); they agree with the summaries of batches (WORK-5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from evalloom.analysis.causes import LIKELY_VARIABLE, Cause, merge_causes, shared_reason
from evalloom.analysis.repeats import Shares
from evalloom.analysis.statistics import mean_interval
from evalloom.analysis.tally import Counts, counts_of
from evalloom.analysis.views import VIEWS, Views
from evalloom.analysis.where import EVERYTHING, Where, parse_where
from evalloom.batchlog.parquet import quoted_list
from evalloom.core.errors import usage_error
from evalloom.core.model import Status
from evalloom.core.text import did_you_mean, printable

Metric = Literal["pass", "score", "latency", "cost", "tokens"]
Dimension = Literal["tag", "profile", "category", "bucket", "difficulty", "check", "model", "batch"]
METRICS: tuple[Metric, ...] = ("pass", "score", "latency", "cost", "tokens")
DIMENSIONS: tuple[Dimension, ...] = ("tag", "profile", "category", "bucket", "difficulty", "check", "model", "batch")
_VALUES: dict[Metric, str] = {"score": "score", "latency": "latency_s", "cost": "cost", "tokens": "tokens"}
_GROUPED_FAILURES = 20_000
"""The number of different reasons that are grouped by cause; more take longer to read than anyone waits."""


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
    warnings: list[str] = []
    """What cannot be read in the logs of these batches, what is missing there, and which of them are still running."""


def batch_stats(
    views: Views,
    by: Sequence[Dimension] = (),
    metric: Metric = "pass",
    where: Where = EVERYTHING,
    with_causes: bool = True,
) -> Stats:
    """Return the figures of all runs that fulfil a condition, in total and by each dimension.

    `with_causes=False` leaves out the causes of failures, which take as long as a dimension or two.
    """
    reader = _Reader(views, metric, where)
    total = reader.groups("''").get("") or reader.nothing()
    causes, ungrouped = _causes(views, where) if with_causes else ([], 0)
    return Stats(
        batches=[id for (id,) in views.rows("SELECT batch FROM batches ORDER BY created_at, batch")],
        metric=metric,
        total=total,
        by={dimension: reader.by(dimension) for dimension in by},
        causes=causes,
        ungrouped=ungrouped,
        until_sure=reader.until_sure,
        warnings=[*views.warnings, *running_warnings(views)],
    )


def running_warnings(views: Views) -> list[str]:
    """Return a warning for each batch whose runs are not all there yet."""
    return [
        f"{source.batch.batch}: the batch is still running; only its finished runs are counted"
        for source in views.sources
        if source.batch.status == "running"
    ]


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


def cause_pattern(reason: str) -> str:
    """Return the SQL of a reason without its usual variable parts: reasons that are equal so have one cause."""
    return f"regexp_replace({reason}, {quoted_list(LIKELY_VARIABLE)}, 'g')"


def _causes(views: Views, where: Where) -> tuple[list[Cause], int]:
    """Return failures by cause, and the number of those that are not grouped.

    DuckDB groups most of them, by step, check and reason without what differs by case in almost every reason.
    """
    rows = views.rows(
        f"""SELECT step, "check", arg_min(reason, place), min(reason), max(reason), list(case_id ORDER BY place),
                sum(count(*)) OVER ()::BIGINT
            FROM (SELECT step, "check", coalesce(reason, error, '') AS reason, case_id,
                (batch, number, profile, repeat) AS place
                FROM runs WHERE status IN ('failed', 'error') AND ({where.sql}))
            GROUP BY step, "check", {cause_pattern("reason")}
            ORDER BY min(place) LIMIT {_GROUPED_FAILURES}""",
        where.values,
    )
    failures = rows[0][-1] if rows else 0
    groups = [
        Cause(step or "", check or "", shared_reason([least, most]), len(cases), cases, reason)
        for step, check, reason, least, most, cases, _ in rows
    ]
    return merge_causes(groups), failures - sum(group.count for group in groups)


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

    def by(self, dimension: Dimension) -> dict[str, Figures]:
        if dimension == "tag":
            return self.groups("unnest(CASE len(tags) WHEN 0 THEN [''] WHEN 1 THEN tags ELSE list_distinct(tags) END)")
        if dimension == "check":
            return self._by_check()
        figures = self.groups(f"""coalesce("{dimension}", '')""", is_profile=dimension == "profile")
        # Ids of batches begin with their time.
        return dict(sorted(figures.items())) if dimension == "batch" else figures

    def nothing(self) -> Figures:
        """Return the figures of no run."""
        if self._metric == "pass":
            return counts_of({}, Shares(), 0)
        return _values([0, 0, None, None, [None, None], None])

    def groups(self, group: str, is_profile: bool = False) -> dict[str, Figures]:
        """Return the figures by an expression over runs; `is_profile` if each group has one profile."""
        wanted = "status, passed" if self._metric == "pass" else f"{_VALUES[self._metric]} AS value"
        rows = f"SELECT {group} AS name, batch, number, {self._case} AS one, profile, {wanted} FROM {self._runs}"
        return self._figures(rows, is_case=not self._has_repeats and (is_profile or not self._has_profiles))

    def _by_check(self) -> dict[str, Figures]:
        """Return the figures of the verdicts of each check."""
        wanted = "verdict AS status, CASE WHEN verdict IN ('passed', 'failed', 'error') THEN verdict = 'passed' END"
        wanted += " AS passed"
        if self._metric != "pass":
            wanted = f"{'verdict_score' if self._metric == 'score' else _VALUES[self._metric]} AS value"
        rows = f"""
            SELECT coalesce(nullif(verdict_name, ''), kind, '') AS name, batch, number, {self._case} AS one, profile,
                {wanted}
            FROM {self._runs} JOIN (SELECT batch, key, kind, name AS verdict_name, status AS verdict,
                score AS verdict_score FROM verdicts) USING (batch, key)"""
        return self._figures(rows, is_case=False)

    def _figures(self, rows: str, is_case: bool) -> dict[str, Figures]:
        """Return the figures of rows; `is_case` if each row of a group is another case."""
        figures: dict[str, Figures] = {}
        figures |= self._counts(rows, is_case) if self._metric == "pass" else self._distributions(rows, is_case)
        if self.until_sure:
            # Their own results decided when they ended, as in a history.
            query = f"SELECT DISTINCT name FROM ({rows}) WHERE list_contains(?, batch)"
            none = ("pass_rate_low", "pass_rate_high") if self._metric == "pass" else ("low", "high")
            for (name,) in self._views.rows(query, [*self._where.values, self.until_sure]):
                figures[name] = replace(figures[name], **dict.fromkeys(none))
        return figures

    def _counts(self, rows: str, is_case: bool) -> dict[str, Counts]:
        statuses: dict[str, dict[Status, int]] = {}
        for name, status, number in self._read(_statuses_query(rows)):
            statuses.setdefault(name, {})[status] = number
        shares = {name: Shares() for name in statuses}
        failing = dict.fromkeys(statuses, 0)
        if is_case:
            for name, counts in statuses.items():
                failing[name] = counts.get("failed", 0) + counts.get("error", 0)
                shares[name].counts = {(1, 1): counts.get("passed", 0), (0, 1): failing[name]}
        else:
            for name, passed, counted, cases, failures in self._read(_shares_query(rows)):
                shares[name].counts[passed, counted] = cases
                failing[name] += failures
        return {name: counts_of(counts, shares[name], failing[name]) for name, counts in statuses.items()}

    def _distributions(self, rows: str, is_case: bool) -> dict[str, Values]:
        over_cases: dict[str, list[Any]] = {}
        if self._metric == "score":
            over_cases = {name: numbers for name, *numbers in self._read(_means_query(rows, is_case))}
        found = self._read(_distribution_query(rows))
        return {name: _values(numbers, over_cases.get(name)) for name, *numbers in found}

    def _read(self, query: str) -> list[tuple[Any, ...]]:
        return self._views.rows(query, self._where.values)


def _statuses_query(rows: str) -> str:
    """Return the query for how the runs of each group ended."""
    return f"""
        SELECT name, status, count(*) FROM ({rows}) GROUP BY name, status
        ORDER BY min(min(number)) OVER (PARTITION BY name), nullif(name, '')"""


def _shares_query(rows: str) -> str:
    """Return the query for how many cases passed in p of n runs, and how often they fail under a profile of a batch."""
    # As in `core/repeats.py`: with a pass rule, a case counts once under each profile.
    meets = "p >= coalesce(pass_if, 1.0) * n - 1e-9"
    return f"""
        WITH units AS (
            SELECT name, batch, one, profile, count(*) FILTER (passed) AS p, count(*) AS n
            FROM ({rows}) WHERE passed IS NOT NULL GROUP BY name, batch, one, profile),
        ruled AS (
            SELECT name, one, NOT ({meets}) AS fails, CASE WHEN pass_if IS NULL THEN p ELSE ({meets})::INT END AS p,
                CASE WHEN pass_if IS NULL THEN n ELSE 1 END AS n
            FROM units LEFT JOIN batches USING (batch)),
        shares AS (
            SELECT name, sum(p)::BIGINT AS p, sum(n)::BIGINT AS n, count(*) FILTER (fails) AS failing
            FROM ruled GROUP BY name, one)
        SELECT name, p, n, count(*), sum(failing)::BIGINT FROM shares GROUP BY name, p, n"""


def _distribution_query(rows: str) -> str:
    """Return the query for the distribution of a number in each group."""
    return f"""
        SELECT name, count(*), count(value), sum(value), min(value), quantile_cont(value, [0.5, 0.95]), max(value)
        FROM ({rows}) GROUP BY name ORDER BY min(number), nullif(name, '')"""


def _means_query(rows: str, is_case: bool) -> str:
    """Return the query for the number of cases, the sum of their means and of the squares, and the measured runs."""
    mean, group = ("value", "") if is_case else ("avg(value)", "GROUP BY name, one")
    n = "(value IS NOT NULL)::INT" if is_case else "count(value)"
    return f"""
        SELECT name, count(mean), sum(mean), sum(mean * mean), sum(n)::BIGINT
        FROM (SELECT name, {mean} AS mean, {n} AS n FROM ({rows}) {group}) GROUP BY name"""


def _values(numbers: list[Any], over_cases: list[Any] | None = None) -> Values:
    """Return a distribution; `over_cases` are the means of cases, for numbers that may be shares."""
    runs, count, sum, least, quantiles, most = numbers
    mean = sum / count if count else None
    low = high = None
    if over_cases and count and least >= 0 and most <= 1:
        cases, total, squares, n = over_cases
        low, high = mean_interval(total, squares, cases, n)
        # Over cases, as a pass rate is: repeats of a case do not weigh more.
        mean = total / cases
    p50, p95 = quantiles or (None, None)
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
