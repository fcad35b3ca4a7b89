"""`evalloom.compare`, `evalloom.baseline` and `evalloom.baselines`: what changed since another batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from evalloom import catalog
from evalloom.analysis.compare import By, Change
from evalloom.api.options import AnyBatch, allowed_drops, batch_name
from evalloom.batchlog import Baseline
from evalloom.batchlog import baselines as stored_baselines
from evalloom.core.text import one_line
from evalloom.core.verbs import Warn, verb, warn_caller
from evalloom.engine.baseline import save
from evalloom.engine.compare import ComparisonRequest, ComparisonResult
from evalloom.engine.compare import compare as compare_batches

if TYPE_CHECKING:
    import pandas
    import polars

_COLUMNS = ("profile", "base_profile", *Change.__struct_fields__)
_SHOWN = 20
_WIDTH = 400


class BatchComparison(ComparisonResult, frozen=True):
    """The result of a comparison. `comparisons` has the figures and changes of each profile."""

    @property
    def conclusion(self) -> str:
        """What is concluded, with the difference and its interval: one line for each profile."""
        from evalloom.console.compare_text import conclusion_line

        return "\n".join(conclusion_line(comparison, self)[0] for comparison in self.comparisons)

    @property
    def changes(self) -> list[Change]:
        """Every case whose result differs, under all profiles; `change` is lost, gained, new, gone …"""
        return [change for comparison in self.comparisons for change in comparison.changes]

    def to_pandas(self) -> pandas.DataFrame:
        """Return one row for each case whose result differs, as a pandas DataFrame."""
        from evalloom.engine.frames import rows_to_pandas

        return rows_to_pandas(_COLUMNS, self._rows())

    def to_polars(self) -> polars.DataFrame:
        """Return the same as a polars DataFrame."""
        from evalloom.engine.frames import rows_to_polars

        return rows_to_polars(_COLUMNS, self._rows())

    def _rows(self) -> list[list[Any]]:
        return [
            [
                comparison.profile,
                comparison.base_profile,
                *(list(value) if isinstance(value, tuple) else value for value in structs.astuple(change)),
            ]
            for comparison in self.comparisons
            for change in comparison.changes
        ]

    def __repr__(self) -> str:
        from evalloom.console.compare_text import compared_lines
        from evalloom.console.layout import plain_text

        lines = compared_lines(self, catalog.load().buckets)
        # The last line suggests a command.
        return plain_text(takewhile(lambda line: not line[0].startswith("Next: "), lines))

    def _repr_html_(self) -> str:
        from evalloom.console.compare_text import RATE_HEADER, conclusion_line, rate_cells, transition
        from evalloom.ui.notebook import cell, paragraph, table

        parts = []
        for comparison in self.comparisons:
            is_bad = comparison.is_regression or not comparison.is_comparable
            parts.append(paragraph(conclusion_line(comparison, self)[0], "lead bad" if is_bad else "lead"))
        figures = [(one.profile or "-", one.figures) for one in self.comparisons]
        figures += [(group.name, group) for one in self.comparisons for group in (*one.buckets, *one.tags)]
        parts.append(table(["", *RATE_HEADER], [[name, *rate_cells(rates)] for name, rates in figures]))
        changes = sorted(self.changes, key=lambda change: not change.severity)
        rows = [
            [change.case_id, change.change, change.severity, transition(change), one_line(change.reason, _WIDTH)]
            for change in changes[:_SHOWN]
        ]
        parts += [table(["case", "change", "severity", "result", "reason"], rows)] if rows else []
        if len(changes) > _SHOWN:
            parts.append(paragraph(f"… and {len(changes) - _SHOWN:,} more in .changes", "soft"))
        parts += [paragraph(difference.text, "soft") for difference in self.differences]
        return cell(*parts)


@verb()
def compare(
    batch: AnyBatch,
    against: AnyBatch = "",
    *,
    strict: bool = False,
    allowed_drop: float | Mapping[str, float] | None = None,
    by: By | Iterable[By] = (),
    profile: str = "",
    baseline_profile: str = "",
    any_config: bool = False,
    warn: Warn | None = None,
) -> BatchComparison:
    """Compare a batch with a baseline or another batch, case by case, as `evalloom compare` does.

    batch: results, a path, an id or a unique beginning of one, or "latest".
    against: the same, or the name or file of a baseline. Without it, the profiles of the batch are compared.
    strict: any drop is a regression, even one that may be chance.
    allowed_drop: a regression is a pass rate that falls by more: 0.02, or by bucket and tag {"": 0.02, "oral": 0.1}.
    by: also compare each "bucket" or "tag". any_config: compare even if the configurations differ.

    >>> compared = evalloom.compare(results, "good")
    >>> assert not compared.is_regression, compared.conclusion
    """
    overall, groups = allowed_drops(allowed_drop)
    request = ComparisonRequest(
        batch_name(batch),
        batch_name(against),
        profile,
        baseline_profile,
        overall,
        groups,
        (by,) if isinstance(by, str) else tuple(by),
        any_config,
        is_strict=strict,
    )
    compared = compare_batches(request, warn_caller(warn), catalog.load_for_python())
    return BatchComparison(*(getattr(compared, name) for name in ComparisonResult.__struct_fields__))


@verb()
def baseline(name: str, batch: AnyBatch = "latest", *, force: bool = False, warn: Warn | None = None) -> Path:
    """Save a batch as the baseline `name`, as `evalloom baseline save` does, and return its file.

    It has the status of each run and no answers, so it can be committed. `force` replaces a baseline, and accepts an
    unfinished batch.
    """
    return save(name, batch_name(batch), force, warn_caller(warn))


@verb()
def baselines(*, warn: Warn | None = None) -> list[Baseline]:
    """Return the baselines of this project by name, each with the facts of its batch."""
    return [head for _, head in stored_baselines(warn=warn_caller(warn))]
