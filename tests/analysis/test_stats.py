"""The figures of `evalloom stats` agree with the summaries of batches, in total and by group (WORK-11, WORK-5)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalloom import catalog
from evalloom.analysis.causes import group_failures
from evalloom.analysis.stats import Values, batch_stats
from evalloom.analysis.tally import STATUSES, Counts, Figures, Group, Tally, _figures
from evalloom.analysis.views import VIEWS, open_views
from evalloom.analysis.where import parse_where
from evalloom.batchlog import Log, batches
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Batch, Output, Profile, Run, Scored, Status, Verdict
from evalloom.demo.run import find_examples, run
from evalloom.engine.results import stored_runs

CATALOG = catalog.load()
pytestmark = pytest.mark.req("WORK-11", "WORK-5")
_COUNTS = ("total", *STATUSES, "cases", "failing", "pass_rate", "pass_rate_low", "pass_rate_high")


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project folder with a batch of every bundled suite."""
    home = tmp_path_factory.mktemp("examples")
    run(CATALOG, find_examples(CATALOG), home)
    return home


def _tally(path: Path, pass_if: float | None) -> Tally:
    tally = Tally(pass_if)
    for one, scored in stored_runs(path):
        tally.add(one, scored)
    return tally


def _same(counts: object, group: Group | Figures) -> None:
    assert isinstance(counts, Counts)
    expected = _figures(group) if isinstance(group, Group) else msgspec.structs.asdict(group)
    for name in _COUNTS:
        assert getattr(counts, name) == pytest.approx(expected[name], abs=1e-9), name


def _compare(path: Path, pass_if: float | None = None) -> None:
    tally = _tally(path, pass_if)
    with open_views(path, CATALOG) as views:
        stats = batch_stats(views, ("tag", "profile"))
        latencies = batch_stats(views, ("profile",), "latency")
    _same(stats.total, tally.summary())
    for tag in tally.tags():
        _same(stats.by["tag"][tag], tally.by_tag()[tag])
    assert set(stats.by["tag"]) - {""} == set(tally.tags())
    for profile in tally.profiles():
        _same(stats.by["profile"][profile], tally.group(profile=profile))
        values = latencies.by["profile"][profile]
        assert isinstance(values, Values)
        p50, p95 = tally.group(profile=profile).latencies(0.5, 0.95)
        assert [values.p50, values.p95] == pytest.approx([p50, p95])


def test_every_example_has_the_figures_of_its_summary(examples: Path) -> None:
    for path, _ in batches(examples / ".evalloom" / "batches"):
        _compare(path)


def _batch(tmp_path: Path, name: str, statuses: dict[str, list[Status]], pass_if: float | None = None) -> Path:
    """Write a batch of two profiles; each text names a case, and its list the results of its repeats under both."""
    batch = Batch(
        id=name,
        created_at="2026-01-01T00:00:00+00:00",
        finished_at="2026-01-01T00:01:00+00:00",
        profiles=[Profile("a"), Profile("b")],
        options={"pass_if": pass_if},
    )
    log = Log(tmp_path / name, batch)
    for number, (case, results) in enumerate(statuses.items(), 1):
        for index, status in enumerate(results):
            profile, repeat = ("a", index) if index < len(results) / 2 else ("b", index)
            key = f"{case}-{profile}-{repeat}"
            error = "boom 17 [broken]" if status == "error" else ""
            tags = ("odd",) if number % 2 else ("even", "all")
            log.append_run(
                Run(key, case, profile, repeat, number, tags=tags, error=error, output=Output({"n": number}))
            )
            if not error:
                reason = f"expected {number}, got {number + 1}" if status == "failed" else ""
                verdict = Verdict("equal", "equal", "output", status, float(status == "passed"), reason)
                log.append_scored(Scored(key, status, float(status == "passed"), [verdict]))
    log.close()
    return tmp_path / name


STATUSES_OF: dict[str, list[Status]] = {
    "c1": ["passed", "failed", "passed", "passed"],
    "c2": ["failed", "failed", "passed", "error"],
    "c3": ["passed", "passed", "passed", "passed"],
    "c4": ["unscored", "unscored", "failed", "passed"],
}


@pytest.mark.req("WORK-4")
@pytest.mark.parametrize("pass_if", [None, 0.5, 1.0])
def test_repeats_and_pass_rules_count_as_in_the_summary(tmp_path: Path, pass_if: float | None) -> None:
    _compare(_batch(tmp_path, "one", STATUSES_OF, pass_if), pass_if)


@pytest.mark.req("WORK-4")
def test_a_case_in_several_batches_is_one_cluster(tmp_path: Path) -> None:
    one = _batch(tmp_path, "one", {"c1": ["passed", "passed"], "c2": ["failed", "failed"]})
    two = _batch(tmp_path, "two", {"c1": ["passed", "failed"], "c2": ["failed", "failed"]})
    with open_views([one, two], CATALOG) as views:
        stats = batch_stats(views, ("batch",))
    assert isinstance(stats.total, Counts)
    assert (stats.total.total, stats.total.cases, stats.total.pass_rate) == (8, 2, 0.375)
    assert list(stats.by["batch"]) == ["one", "two"]


def test_failures_are_grouped_by_check_and_reason_without_numbers(tmp_path: Path) -> None:
    path = _batch(tmp_path, "one", STATUSES_OF)
    with open_views(path, CATALOG) as views:
        causes = batch_stats(views).causes
    assert [(cause.check, cause.count, cause.cases) for cause in causes] == [
        ("equal", 4, ["c1", "c2", "c4"]),
        (causes[1].check, 1, ["c2"]),
    ]
    assert "boom" in causes[1].example


def test_checks_are_counted_by_their_verdicts(tmp_path: Path) -> None:
    with open_views(_batch(tmp_path, "one", STATUSES_OF), CATALOG) as views:
        counts = batch_stats(views, ("check",)).by["check"]["equal"]
        scores = batch_stats(views, ("check",), "score").by["check"]["equal"]
    assert isinstance(counts, Counts) and isinstance(scores, Values)
    # The run that met an error has no verdict.
    assert (counts.total, counts.passed, counts.failed, counts.unscored) == (15, 9, 4, 2)
    assert scores.low is not None and scores.mean is not None and scores.low < scores.mean


@pytest.mark.parametrize(
    ("where", "runs"),
    [
        ("score >= 0.5", 9),
        ("score > 0.5 and tag = 'even'", 2),
        ('tag = "even" or status = "error"', 8),
        ("not tag = 'even'", 8),
        ("tag=even and profile=a", 4),
        ("tag != 'even'", 8),
        ("output.n = 3", 4),
        ("output.n > 2 and not (profile = 'a')", 4),
        ("error contains 'boom'", 1),
        ("error is not null", 1),
        ("status in ('failed', 'error')", 5),
        ("pass = false", 5),
        ("case = 'c1' and repeat < 2", 2),
        ("tag contains 'ev'", 8),
    ],
)
def test_a_filter_selects_runs(tmp_path: Path, where: str, runs: int) -> None:
    with open_views(_batch(tmp_path, "one", STATUSES_OF), CATALOG) as views:
        stats = batch_stats(views, ("tag",), where=parse_where(where, VIEWS["runs"]))
    assert stats.total.total == runs


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("scor > 1", "Did you mean 'score'"),
        ("score > 'high'", "expected a number for score"),
        ("status = 3", "expected a text in quotes for status"),
        ("score >", "expected a number"),
        ("score 3", "expected a comparison"),
        ("(score > 3", "expected ')'"),
        ("score > 3 status = 'x'", "expected 'and' or 'or'"),
        ("score > 3; drop table runs", "column 10"),
        ("tag < 'x'", "tag ="),
        ("", "expected a column"),
    ],
)
def test_a_filter_that_cannot_be_read_says_where(where: str, words: str) -> None:
    with pytest.raises(EvalloomError) as error:
        parse_where(where, VIEWS["runs"])
    assert words in str(error.value)
    assert error.value.code == "bad_filter"


def test_no_run_is_no_rate(tmp_path: Path) -> None:
    with open_views(_batch(tmp_path, "one", {}), CATALOG) as views:
        stats = batch_stats(views, ("tag", "check"))
        scores = batch_stats(views, ("tag",), "score")
    assert isinstance(stats.total, Counts)
    assert stats.total.total == 0 and stats.total.pass_rate is None
    assert stats.by == {"tag": {}, "check": {}}
    assert scores.total.total == 0


_RESULTS = st.sampled_from(STATUSES)


@pytest.mark.req("WORK-4")
@settings(max_examples=25)
@given(
    # As many results for each case: without repeats and profiles, each run counts as a case of its own.
    st.integers(0, 2).flatmap(
        lambda doublings: st.lists(st.lists(_RESULTS, min_size=2**doublings, max_size=2**doublings), max_size=12)
    ),
    st.sampled_from([None, 0.5, 1.0]),
)
def test_any_batch_has_the_figures_of_its_summary(
    tmp_path_factory: pytest.TempPathFactory, results: list[list[Status]], pass_if: float | None
) -> None:
    statuses = {f"c{number}": repeats for number, repeats in enumerate(results)}
    _compare(_batch(tmp_path_factory.mktemp("any"), "one", statuses, pass_if), pass_if)


# fmt: off
_WORDS = [
    "", "'a'", "'b 2'", "'a','b'", "''a'", "it's", "isn't", "'cut", "gpt-4", "gpt-5", "v1.2", "v1.3", "1", "1,", "2.5,",
    "-3", "1,000", "1e5", "(4)", "a=1", "a='x'", '"q"', '"it\'s"', "“引”", "「引」", "输出'甲'", "输出'乙'", "`x`", "5ms",
    "https://h:80/'x'?n=1", "0f8fad5b12", "12345678-ab", "3.4.5", "[1,", "['a',", "é'x'", "[x]",
]
# fmt: on


@settings(max_examples=25)
@given(st.lists(st.lists(st.sampled_from(_WORDS), max_size=4).map(" ".join), max_size=20))
def test_failures_have_the_causes_that_reports_show(
    tmp_path_factory: pytest.TempPathFactory, reasons: list[str]
) -> None:
    path = tmp_path_factory.mktemp("any") / "one"
    log = Log(path, Batch(id="one", created_at="2026-01-01T00:00:00+00:00", finished_at="2026-01-01T00:01:00+00:00"))
    for number, reason in enumerate(reasons, 1):
        log.append_run(Run(f"k{number}", f"c{number}", "", 0, number))
        log.append_scored(Scored(f"k{number}", "failed", 0.0, [Verdict("equal", "equal", "", "failed", 0.0, reason)]))
    log.close()
    with open_views(path, CATALOG) as views:
        causes = batch_stats(views).causes
    expected = group_failures([(f"c{number}", "", "equal", reason) for number, reason in enumerate(reasons, 1)])
    assert {(cause.reason, cause.count, cause.example, *sorted(cause.cases)) for cause in causes} == {
        (cause.reason, cause.count, cause.example, *sorted(cause.cases)) for cause in expected
    }
