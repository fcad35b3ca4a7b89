"""The two sides of a comparison: what the address names, and the comparison of the engine over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec import Struct

from evalloom.analysis.compare import By
from evalloom.batchlog import BASELINES, baseline_runs, has_baseline, read_baseline
from evalloom.batchlog.results import case_of
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Batch
from evalloom.core.repeats import COUNTED, meets
from evalloom.engine.compare import ComparisonRequest, ComparisonResult, compare
from evalloom.pages.errors import RequestError
from evalloom.pages.page import PageRequest
from evalloom.web.compare_cases import CaseSide, ChangedCase, Tab, sort_cases

GROUPS: tuple[By, ...] = ("tag", "bucket")
_RESULTS = """
    SELECT coalesce(profile, ''), case_id, number, count(*) FILTER (passed), count(passed),
        -- The outputs of all repeats in one number; the order of rows does not matter.
        bit_xor(hash(repeat, coalesce(output::VARCHAR, ''))) FILTER (output IS NOT NULL)
    FROM runs GROUP BY ALL ORDER BY 1, number
"""


class Side(Struct, frozen=True):
    """One side of a comparison: a batch or a saved baseline, and maybe one of its profiles."""

    name: str
    """What leads to it: the id of a batch, or the name of a baseline."""
    profile: str
    is_baseline: bool
    batch: str
    """The batch with its outputs; empty for a baseline whose batch is gone."""
    target: str
    datasets: list[str]
    created_at: str
    state: str

    @property
    def text(self) -> str:
        """How the address names it."""
        return f"{self.name}:{self.profile}" if self.profile else self.name


class Compared(Struct, frozen=True):
    """A comparison, with all cases of it sorted by what happened to them."""

    result: ComparisonResult
    cases: dict[Tab, list[ChangedCase]]
    warnings: list[str]


def find_side(request: PageRequest, text: str, is_base: bool) -> Side:
    """Return the side that a text names: a batch as `Library.path` finds it, or a baseline; then maybe `:profile`."""
    name, _, profile = text.partition(":")
    library, folder = request.site.library, request.site.home / BASELINES
    # Baselines come first, as on the command line.
    if is_base and has_baseline(name, folder):
        head = read_baseline(folder / f"{name}.jsonl")
        batch = head.batch
        try:
            source = library.path(batch.id).name if library.manifest(batch.id).id == batch.id else ""
        except RequestError:
            source = ""
        paths = [dataset.path for dataset in batch.datasets]
        return Side(name, profile, True, source, batch.target, paths, batch.created_at, "finished")
    summary = library.summary(name)
    return Side(
        summary.id, profile, False, summary.id, summary.target, summary.datasets, summary.created_at, summary.state
    )


def compare_sides(request: PageRequest, a: Side, b: Side, by: tuple[By, ...], any_config: bool) -> Compared:
    """Compare two sides; raises EvalloomError as the command line does. It is kept until one of them changes."""
    site = request.site
    file = site.home / BASELINES / f"{a.name}.jsonl"
    batches = {side.batch for side in (a, b) if side.batch}
    return site.memo.get(
        ("compare", a.text, a.is_baseline, b.text, by, any_config),
        sorted(batches),
        lambda: _compare(request, a, b, by, any_config),
        lambda: (file.stat().st_mtime_ns, file.stat().st_size) if a.is_baseline else (),
    )


def _compare(request: PageRequest, a: Side, b: Side, by: tuple[By, ...], any_config: bool) -> Compared:
    site, warnings = request.site, list[str]()
    is_within = not a.is_baseline and a.name == b.name
    base = "" if is_within else a.name if a.is_baseline else str(site.library.path(a.name))
    asked = ComparisonRequest(
        # A path, because the name of a batch could be that of a folder elsewhere.
        str(site.library.path(b.name)),
        base,
        b.profile,
        a.profile,
        by=by,
        any_config=any_config,
        home=site.home,
    )
    try:
        result = compare(asked, warnings.append, site.catalog)
    except EvalloomError as error:
        if error.exit_code != 2:
            raise RequestError("cannot_read", str(error)) from None
        raise
    now, before = site.library.manifest(b.name), _batch_of(request, a)
    rules = {batch.options.get("pass_if") for batch in (before, now)}
    rule = rules.pop() if len(rules) == 1 else None
    results = _results(request, b, rule)
    results_before = results if is_within else _results(request, a, rule)
    return Compared(result, sort_cases(result.comparisons, results_before, results), warnings)


def _batch_of(request: PageRequest, side: Side) -> Batch:
    if side.is_baseline:
        return read_baseline(_baseline_file(request, side)).batch
    return request.site.library.manifest(side.name)


def _baseline_file(request: PageRequest, side: Side) -> Path:
    return request.site.home / BASELINES / f"{side.name}.jsonl"


def _results(request: PageRequest, side: Side, rule: float | None) -> dict[str, dict[tuple[str, int], CaseSide]]:
    """Return each case of a side by profile, and by id and occurrence."""
    results: dict[str, dict[tuple[str, int], CaseSide]] = {}
    # Cases of one id are told apart by their order.
    occurrences: Counter[tuple[str, str]] = Counter()
    for profile, id, number, passed, counted, output in _rows(request, side):
        occurrences[profile, id] += 1
        is_passed = meets((passed, counted), rule) if rule is not None else passed == counted
        case = CaseSide(number, is_passed and counted > 0, output)
        results.setdefault(profile, {})[id, occurrences[profile, id]] = case
    return results


_ResultRow = tuple[str, str, int | None, int, int, int | None]
"""The profile, id and number of a case, how many of its repeats passed, of how many that count, and its outputs."""


def _rows(request: PageRequest, side: Side) -> Iterator[_ResultRow]:
    rows: list[Any] = request.site.library.rows(side.batch, _RESULTS) if side.batch else []
    if not side.is_baseline:
        yield from rows
        return
    # A batch may have been scored again since its baseline was saved, so the results are those of the baseline.
    occurrences: Counter[tuple[str, str]] = Counter()
    outputs = {}
    for profile, id, number, _, _, output in rows:
        occurrences[profile, id] += 1
        outputs[profile, id, occurrences[profile, id]] = (number, output)
    for (profile, id, occurrence), runs in groupby(baseline_runs(_baseline_file(request, side)), case_of):
        statuses = [run.status for run in runs]
        counted = sum(status in COUNTED for status in statuses)
        number, output = outputs.get((profile, id, occurrence), (None, None))
        yield profile, id, number, statuses.count("passed"), counted, output
