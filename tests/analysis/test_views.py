"""The views agree with the summaries, and read any log that a batch may have."""

from pathlib import Path
from typing import Any

import pytest

from evalloom import catalog
from evalloom.analysis.tally import STATUSES, Summary, Tally
from evalloom.analysis.views import VIEWS, Views, open_views
from evalloom.batchlog import batches
from evalloom.demo.run import find_examples, run
from evalloom.engine.results import stored_runs

CATALOG = catalog.load()


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project folder with a batch of every bundled suite."""
    home = tmp_path_factory.mktemp("examples")
    run(CATALOG, find_examples(CATALOG), home)
    return home


def _summary(path: Path, pass_if: float | None) -> Summary:
    tally = Tally(pass_if)
    for one, scored in stored_runs(path):
        tally.add(one, scored)
    return tally.summary()


def _figures(views: Views, batch: str, profile: str | None = None) -> dict[str, Any]:
    """The figures of a batch, by SQL alone."""
    where = "batch = ? AND (? IS NULL OR profile = ?)"
    counts = dict(
        views.rows(f"SELECT status, count(*) FROM runs WHERE {where} GROUP BY status", [batch, profile, profile])
    )
    [spent] = views.rows(
        f"""SELECT count(*), sum(tokens)::BIGINT, round(sum(cost), 8), sum(cached)::BIGINT, sum(retries)::BIGINT
            FROM runs WHERE {where}""",
        [batch, profile, profile],
    )
    [rates] = views.rows(
        f"""SELECT avg(share), count(*) FROM (
            SELECT avg(passed::INT) AS share FROM runs WHERE {where} GROUP BY number HAVING count(passed) > 0)""",
        [batch, profile, profile],
    )
    figures: dict[str, Any] = {status: counts.get(status, 0) for status in STATUSES}
    figures |= dict(zip(("total", "tokens", "cost", "cached", "retries"), spent, strict=True))
    return figures | {"pass_rate": rates[0], "cases": rates[1]}


@pytest.mark.req("WORK-13", "WORK-5")
def test_the_views_agree_with_the_summary_of_every_example(examples: Path) -> None:
    seen = set()
    with open_views(examples, CATALOG) as views:
        for path, batch in batches(examples / ".evalloom" / "batches"):
            assert batch.options.get("pass_if") is None
            summary = _summary(path, None)
            for profile, expected in [(None, summary), *summary.profiles.items()]:
                for name, value in _figures(views, batch.id, profile).items():
                    assert value == pytest.approx(getattr(expected, name)), (path, profile, name)
            for name, profile_figures in summary.profiles.items():
                [(mean,)] = views.rows(
                    "SELECT avg(latency_s) FROM runs WHERE batch = ? AND profile = ?", [batch.id, name]
                )
                assert mean == pytest.approx(profile_figures.mean_latency_s, abs=1e-6)
            verdicts = sum(len(scored.verdicts) for _, scored in stored_runs(path))
            assert views.rows("SELECT count(*) FROM verdicts WHERE batch = ?", [batch.id]) == [(verdicts,)]
            seen.update(views.rows("SELECT system FROM batches WHERE batch = ?", [batch.id]))
    assert {name for (name,) in seen} == {system.name for system in CATALOG.systems}


def test_every_view_has_its_declared_columns(examples: Path) -> None:
    for paths in ([examples], []):
        with open_views(paths, CATALOG) as views:
            for name, columns in VIEWS.items():
                view = views[name]
                assert dict(zip(view.columns, map(str, view.types), strict=True)) == columns
