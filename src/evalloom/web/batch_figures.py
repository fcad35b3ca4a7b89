"""The figures of one version of a batch: computed once, whatever the filters of its page are."""

from __future__ import annotations

from typing import Any, cast

from msgspec import Struct

from evalloom.analysis.gates import GateResult
from evalloom.analysis.stats import Dimension, Stats, batch_stats
from evalloom.analysis.tally import Counts
from evalloom.analysis.views import Views
from evalloom.batchlog.read import Damage
from evalloom.core.model import Batch
from evalloom.engine.report import stored_results
from evalloom.pages.library import Library
from evalloom.pages.site import Site
from evalloom.web.failure_causes import NamedCause, create_table, named_causes

GROUPS: tuple[Dimension, ...] = ("profile", "tag", "category", "bucket", "difficulty", "check")
_MOST_COUNTED = 200_000
"""Runs of a batch whose gates are checked for a page: it takes a second for each 50,000."""
_SPENT = """
    SELECT coalesce(sum(tokens), 0)::BIGINT, coalesce(sum(cost), 0.0), coalesce(sum(retries), 0)::BIGINT,
        coalesce(sum(cached), 0)::BIGINT, quantile_cont(latency_s, [0.5, 0.95]), coalesce(max(repeat), 0) > 0
    FROM runs"""
_HAS_OUTPUT = "SELECT EXISTS (SELECT 1 FROM runs WHERE output IS NOT NULL AND output::VARCHAR <> 'null')"


class BatchFigures(Struct, frozen=True):
    """How the runs of a batch ended, in total and by group, and why."""

    total: Counts
    by: dict[Dimension, dict[str, Counts]]
    causes: list[NamedCause]
    ungrouped: int
    """Failures that are in no cause, because there are too many different reasons."""
    tokens: int
    cost: float
    retries: int
    cached: int
    p50_s: float | None
    p95_s: float | None
    has_repeats: bool
    has_output: bool
    """Whether any run has an output; a retrieval has only passages."""
    damage: list[Damage]
    """What cannot be read in the log, and what is missing there."""


def batch_figures(library: Library, batch: str) -> BatchFigures:
    """Return the figures of a batch; they are those that `evalloom stats` prints."""
    return library.cached(batch, "figures", _compute)


def _compute(views: Views) -> BatchFigures:
    stats: Stats = batch_stats(views, GROUPS)
    create_table(views)
    [(tokens, cost, retries, cached, latencies, has_repeats)] = views.rows(_SPENT)
    [(has_output,)] = views.rows(_HAS_OUTPUT)
    by = cast("dict[Dimension, dict[str, Counts]]", stats.by)
    p50, p95 = latencies or (None, None)
    return BatchFigures(
        cast(Counts, stats.total),
        # A group with everything in it says nothing.
        {name: groups for name, groups in by.items() if len(groups) > 1},
        named_causes(stats),
        stats.ungrouped,
        tokens,
        cost,
        retries,
        cached,
        p50,
        p95,
        has_repeats,
        has_output,
        views.damage,
    )


def gates_of(site: Site, batch: str, total: int) -> list[GateResult] | None:
    """Return the gates of the settings for a batch, as the command line checks them; None if it is too large."""
    if not site.settings.gates or not total:
        return []
    if total > _MOST_COUNTED:
        return None
    path = site.library.path(batch)
    return site.library.cached(batch, "gates", lambda views: stored_results(path, site.catalog).gates)


def outcome(batch: Batch, figures: Counts, gates: list[GateResult], is_stopped: bool) -> str:
    """Return how a batch ended: `failed` where something did, `stopped` before its end, `unscored` or `passed`."""
    threshold: Any = batch.options.get("fail_under")
    if isinstance(threshold, int | float):
        is_bad = figures.pass_rate is None or round(figures.pass_rate, 9) < threshold
    else:
        is_bad = figures.failing > 0 if batch.options.get("pass_if") else figures.failed + figures.error > 0
    if is_bad or not all(gate.holds for gate in gates):
        return "failed"
    if is_stopped:
        return "stopped"
    return "unscored" if figures.unscored and not batch.options.get("allow_unscored") else "passed"
