"""`evalloom stats`: figures of any batch, by tag, profile, check …, and its failures by cause."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import click
import msgspec

from evalloom import catalog
from evalloom.analysis.stats import DIMENSIONS, METRICS, Dimension, Metric, batch_stats
from evalloom.analysis.views import VIEWS, open_views
from evalloom.analysis.where import parse_where
from evalloom.batchlog import FOLDER, batches, find
from evalloom.batchlog.folders import is_batch
from evalloom.console.layout import print_lines
from evalloom.console.outcome import warn
from evalloom.console.run_options import parted
from evalloom.console.stats_text import stats_lines
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.text import did_you_mean

_DEFAULT_BY = "profile,tag"
_OWN = ("paths", "by", "metric", "where", "profile", "as_json")


def _command(paths: tuple[str, ...], by: str | None, metric: str | None, as_json: bool, **flags: Any) -> int:
    """Summarize batches: how runs ended, by tag, profile, check …, and failures by cause.

    PATH is a batch (its id, its folder, or `latest`), a folder of batches, a project folder, or a folder or file of HOP
    results. Without one it is the HOP results here, else the latest batch.

    \b
    evalloom stats latest --by tag,check
    evalloom stats latest --metric latency --by profile
    evalloom stats latest --where 'score < 0.5 and tag = "billing"'
    evalloom stats examples/hop --compare careful,hasty
    """
    where = cast(tuple[str, ...], flags["where"])
    own_results = _results_command(paths, flags)
    if own_results is not None and metric is None and _is_theirs(by) and (flags["rows"] is not None or not where):
        given = {name: value for name, value in flags.items() if name != "profile" or value}
        context = click.get_current_context()
        return int(
            context.invoke(
                own_results, folder=paths[0] if paths else ".", as_json=as_json, **({"by": by} if by else {}), **given
            )
        )
    _refuse_flags_of_results(flags)
    dimensions = _dimensions(by or _DEFAULT_BY)
    condition = parse_where(_joined(where, flags["profile"]), VIEWS["runs"]) if where or flags["profile"] else None
    with open_views(_found(paths), catalog.load(), warn) as views:
        stats = batch_stats(views, dimensions, _metric(metric), *([condition] if condition else []))
    if as_json:
        click.echo(msgspec.json.encode(stats))
    else:
        print_lines(stats_lines(stats))
    return 0
