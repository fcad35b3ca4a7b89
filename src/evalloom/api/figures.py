"""`evalloom.stats`: figures of batches, in total and by tag, profile, check …"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from msgspec import structs

from evalloom import catalog
from evalloom.analysis.stats import (
    METRICS,
    Dimension,
    Figures,
    Metric,
    Stats,
    batch_stats,
    check_profile,
    parse_conditions,
    parse_dimensions,
    running_warnings,
)
from evalloom.analysis.tally import Counts
from evalloom.analysis.views import open_views
from evalloom.api.options import AnyBatch, Names, batch_name, names_of
from evalloom.core.errors import usage_error
from evalloom.core.text import did_you_mean, pluralize
from evalloom.core.verbs import Warn, verb, warn_caller
from evalloom.engine.results import Results

if TYPE_CHECKING:
    import pandas
    import polars

    from evalloom.ui.charts import Bar

_BY = "profile,tag"
_MOST_BARS = 30


class BatchStats(Stats, frozen=True, kw_only=True):
    """The figures of some batches: `total`, `by` group, and the `causes` of failures."""

    def to_pandas(self) -> pandas.DataFrame:
        """Return one row for the total and one for each group, as a pandas DataFrame."""
        from evalloom.engine.frames import rows_to_pandas

        return rows_to_pandas(self._columns, self._rows())

    def to_polars(self) -> polars.DataFrame:
        """Return the same as a polars DataFrame."""
        from evalloom.engine.frames import rows_to_polars

        return rows_to_polars(self._columns, self._rows())

    @property
    def _columns(self) -> list[str]:
        return ["by", "group", *self.total.__struct_fields__]

    def _rows(self) -> list[list[Any]]:
        groups = [("total", "", self.total)]
        groups += [(dimension, name, group) for dimension in self.by for name, group in self.by[dimension].items()]
        return [[dimension, name, *structs.astuple(group)] for dimension, name, group in groups]

    def __repr__(self) -> str:
        from evalloom.console.layout import plain_text
        from evalloom.console.stats_text import stats_lines

        return plain_text(stats_lines(self))

    def _repr_html_(self) -> str:
        from evalloom.console.stats_text import figure_cells, figure_names
        from evalloom.ui.notebook import cell, paragraph, table

        batches = f"batch {self.batches[0]}" if len(self.batches) == 1 else f"{len(self.batches):,} batches"
        parts: list[Markup] = []
        tables: list[tuple[str, dict[str, Figures]]] = [("", {"all": self.total}), *self.by.items()]
        for dimension, groups in tables:
            if dimension and set(groups) <= {""}:
                continue
            parts += _chart(dimension, groups)
            figures = [self.total, *groups.values()]
            rows = [
                [name or f"no {dimension}", *figure_cells(group, self.metric, figures)]
                for name, group in groups.items()
            ]
            parts.append(table([dimension, *figure_names(self.metric, figures)], rows))
        if self.until_sure:
            note = "No interval where results decided when a batch ended; its own summary has one"
            parts.append(paragraph(note, "soft"))
        return cell(*parts, paragraph(batches, "soft"))


def _chart(dimension: str, groups: dict[str, Figures]) -> list[Markup]:
    """Return a chart of the rates of some groups, if they have rates with an interval."""
    from evalloom.ui.charts import bar_chart

    bars = [_bar(name or f"no {dimension}", group) for name, group in groups.items()]
    if not dimension or len(bars) > _MOST_BARS or all(bar.interval is None for bar in bars):
        return []
    return [bar_chart(f"Rates with 95 % intervals by {dimension}", bars)]


def _bar(name: str, group: Figures) -> Bar:
    from evalloom.ui.charts import Bar

    is_counts = isinstance(group, Counts)
    rates = (
        (group.pass_rate, group.pass_rate_low, group.pass_rate_high)
        if isinstance(group, Counts)
        else (group.mean, group.low, group.high)
    )
    note = pluralize(group.cases, "case") if isinstance(group, Counts) else pluralize(group.count, "run")
    rate, low, high = rates
    if rate is None or low is None or high is None:
        return Bar(name, note, "", None)
    shown = f"{rate:.1%} ({low:.1%}–{high:.1%})" if is_counts else f"{rate:.3f} ({low:.3f}–{high:.3f})"
    return Bar(name, note, f"{name}: {shown}", (rate, low, high))


@verb()
def stats(
    batch: AnyBatch | Iterable[AnyBatch] = "latest",
    by: Names = _BY,
    metric: Metric = "pass",
    where: str | Iterable[str] = (),
    *,
    profile: str = "",
    warn: Warn | None = None,
) -> BatchStats:
    """Return figures of all runs of some batches, in total and by group, as `evalloom stats` prints them.

    batch: results, a path, an id, "latest", a folder of batches or of HOP results; or a list of these.
    by: groups, such as "tag,check": tag, profile, category, bucket, difficulty, check, model, batch.
    metric: "pass", "score", "latency", "cost" or "tokens".
    where: count only runs that match, such as 'score < 0.5 and tag = "billing"'; of several, all must hold.
    """
    if metric not in METRICS:
        hint = did_you_mean(metric, METRICS) or f". There is {', '.join(METRICS)}"
        raise usage_error("bad_option", f"stats: no metric {metric!r}{hint}")
    batches = [batch] if isinstance(batch, str | Path | Results) else list(batch)
    dimensions: list[Dimension] = parse_dimensions(names_of(by))
    condition = parse_conditions([where] if isinstance(where, str) else where, profile)
    tell = warn_caller(warn)
    with open_views([batch_name(one) for one in batches], catalog.load_for_python(), tell) as views:
        for message in running_warnings(views):
            tell(message)
        check_profile(views, profile)
        found = batch_stats(views, dimensions, metric, condition)
    return BatchStats(**{name: getattr(found, name) for name in Stats.__struct_fields__})
