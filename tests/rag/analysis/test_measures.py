"""The figures of a RAG batch against values worked out by hand."""

from __future__ import annotations

import random
from math import log2, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from evalloom.analysis.statistics import mean_interval
from evalloom.analysis.tally import Tally
from evalloom.core.model import Batch, Origin, Output, Profile, Run, Scored, Status, Verdict
from evalloom.core.ranking import measures, rank
from evalloom.rag.analysis.measures import RagResults, analyse, analyse_all
from evalloom.rag.analysis.pairs import Gap
from evalloom.rag.reports.content import wording_gap

K = 3
Row = tuple[Run, Scored]
BATCH = Batch("b1", "2026-01-05T08:00:00+00:00", config={"kind": "rag", "purpose": "retrieve", "k": K})
ANSWERS = structs.replace(BATCH, config={"kind": "rag", "purpose": "answer", "k": K})


def run_of(number: int, bucket: str, pair: str = "", repeat: int = 0, profile: str = "", **raw: object) -> Run:
    record = {"id": f"c{number}", "query": f"query {number}", "bucket": bucket, "pair_id": pair, **raw}
    tags = (bucket, *raw.get("tags", ()))  # type: ignore[misc]
    key = f"{profile}/{number}/{repeat}"
    return Run(key, f"c{number}", profile, repeat, number, tags=tags, raw=record, origin=Origin("cases.jsonl", number))


def found(number: int, bucket: str, pair: str, expected: str, sources: str, **more: object) -> Row:
    """A query whose expected sources and found sources are letters."""
    names = [f"{one}.md" for one in expected]
    run = run_of(number, bucket, pair, expected_sources=names, **more)  # type: ignore[arg-type]
    run = structs.replace(run, output=Output(sources=[{"source": f"docs/{one}.md"} for one in sources]))
    values = measures(rank(names, [f"docs/{one}.md" for one in sources]), K)
    hit, *others = values.items()
    status: Status = "passed" if hit[1] else "failed"
    verdicts = [Verdict(hit[0], "source_hit", "sources", status, reason=f"missing {names}" if not hit[1] else "")]
    verdicts += [Verdict(name, "ranking", "sources", "passed", value, weight=0) for name, value in others]
    return run, Scored(run.key, status, verdicts=verdicts)


def failed(number: int, bucket: str, pair: str = "", **more: object) -> Row:
    run = run_of(number, bucket, pair, expected_sources=["a.md"], **more)  # type: ignore[arg-type]
    run = structs.replace(run, error="no answer within 3 s [timed_out]")
    return run, Scored(run.key, "error")


def unexpected(number: int, bucket: str, pair: str = "") -> Row:
    run = run_of(number, bucket, pair, expected_sources=[])
    return run, Scored(run.key, "unscored")


# Hit, recall, precision, nDCG, reciprocal rank, average precision at 3; L is 1 / log2(3), the gain of the second place.
#   c1 official p1  a in abc    1    1    1/3  1                   1    1
#   c2 oral     p1  a in bcd    0    0    0    0                   0    0
#   c3 official p2  bc in abc   1    1    2/3  (L + 1/2) / (1 + L) 1/2  (1/2 + 2/3) / 2 = 7/12
#   c4 oral     p2  bc in c     1    1/2  1/3  1 / (1 + L)         1    1/2
#   c5 ambiguous    a in ba     1    1    1/3  L                   1/2  1/2
#   c6 oral     p3  error
#   c7 official p3  a in a      1    1    1/3  1                   1    1
#   c8 official     nothing expected
L = 1 / log2(3)
ROWS = [
    found(1, "official", "p1", "a", "abc", concept_id="leave", tags=["zh"]),
    found(2, "oral", "p1", "a", "bcd", concept_id="leave", tags=["zh"]),
    found(3, "official", "p2", "bc", "abc", concept_id="pay"),
    found(4, "oral", "p2", "bc", "c", concept_id="pay", tags=["zh"]),
    found(5, "ambiguous", "p1", "a", "ba"),
    failed(6, "oral", "p3"),
    found(7, "official", "p3", "a", "a"),
    unexpected(8, "official"),
]


def means(results: RagResults, group: str) -> dict[str, float | None]:
    groups = {one.name: one for one in (results.overall, *results.buckets, *results.tags)}
    return {one.name: one.mean for one in groups[group].measures}


@pytest.mark.req("RAG-7")
def test_measures_by_hand() -> None:
    results = analyse(BATCH, ROWS)
    third = (L + 1 / 2) / (1 + L)
    fourth = 1 / (1 + L)
    assert means(results, "overall") == pytest.approx(
        {
            "hit@3": 5 / 6,
            "recall@3": 4.5 / 6,
            "precision@3": 2 / 6,
            "ndcg@3": (1 + third + fourth + L + 1) / 6,
            "mrr": 4 / 6,
            "map": (1 + 7 / 12 + 1 / 2 + 1 / 2 + 1) / 6,
        }
    )
    assert means(results, "official") == pytest.approx(
        {
            "hit@3": 1,
            "recall@3": 1,
            "precision@3": 4 / 9,
            "ndcg@3": (2 + third) / 3,
            "mrr": 2.5 / 3,
            "map": (2 + 7 / 12) / 3,
        }
    )
    assert means(results, "zh")["hit@3"] == pytest.approx(2 / 3)
    assert [(one.name, one.cases, one.passed) for one in results.buckets] == [
        ("official", 3, 3),
        ("oral", 2, 1),
        ("ambiguous", 1, 1),
    ]


@pytest.mark.req("RAG-7")
def test_intervals_by_hand() -> None:
    overall = analyse(BATCH, ROWS).overall
    # Wilson for 5 of 6, z² = 3.8415: (5/6 + z²/12 ± z √(5/36/6 + z²/144)) / (1 + z²/6).
    hit = overall.measure("hit@3")
    assert (hit.low, hit.high, hit.cases) == pytest.approx((0.4365, 0.9699, 6), abs=5e-5)
    # Reciprocal ranks 1, 0, 1/2, 1, 1/2, 1 vary as 0.7333 of zeros and ones of their mean: Wilson for 6 / 0.7333 cases,
    # with z² between the normal one and that of t with 7 degrees of freedom, 0.7333 · 3.8415 + 0.2667 · 5.5915 = 4.308.
    mrr = overall.measure("mrr")
    spread = 4.308 * 0.73333 / 6
    centre, half = (2 / 3 + spread / 2) / (1 + spread), sqrt(spread * (2 / 9 + spread / 4)) / (1 + spread)
    assert (mrr.low, mrr.high) == pytest.approx((centre - half, centre + half), abs=1e-3)


@pytest.mark.req("RAG-7")
def test_errors_and_cases_without_an_expected_source_stand_apart() -> None:
    results = analyse(BATCH, ROWS)
    assert {name: number for name, number in results.apart.items() if number} == {"error": 1, "no_expected": 1}
    assert results.overall.cases == 6 and all(one.cases == 6 for one in results.overall.measures)
    rows = {row.id: row for row in results.cases}
    assert (rows["c6"].status, rows["c6"].measures, rows["c8"].measures) == ("error", {}, {})
    assert rows["c8"].reason.startswith("no expected source")


@pytest.mark.req("RAG-7")
def test_a_case_tells_which_source_was_found_at_which_rank() -> None:
    row = next(row for row in analyse(BATCH, ROWS).cases if row.id == "c4")
    assert [(one.source, one.rank) for one in row.expected] == [("b.md", 0), ("c.md", 1)]
    assert row.sources == ["docs/c.md"] and row.bucket == "oral" and row.tags == ["zh"]
    assert str(row.origin) == "cases.jsonl:4"


@pytest.mark.req("RAG-9")
def test_pairs_by_hand() -> None:
    pairs = analyse(BATCH, ROWS).pairs
    assert [(one.id, one.who, one.official, one.oral, one.gap) for one in pairs.pairs] == [
        ("p1", "official only", 1, 0, -1),
        ("p2", "both", 1, 1, 0),
    ]
    assert [(one.id, one.pairs, one.gap, one.is_official_only) for one in pairs.concepts] == [
        ("leave", 1, -1, True),
        ("pay", 1, 0, False),
    ]
    assert [(one.id, one.reason) for one in pairs.unpaired] == [("c8", "it has no pair_id")]
    assert [(one.pair_id, one.bucket, one.reason) for one in pairs.not_comparable] == [
        ("p3", "oral", "oral: no answer within 3 s [timed_out]")
    ]


@pytest.mark.req("RAG-9")
def test_gaps_by_hand() -> None:
    gaps = {one.measure: one for one in analyse(BATCH, ROWS).pairs.gaps}
    # Differences -1 and 0 of two pairs, and one pair added each way: mean -1/4, mean of squares 3/4; one flip has p = 1.
    hit = gaps["hit@3"]
    half = 1.959964 * sqrt((3 / 4 - 1 / 16) / 4)
    assert (hit.pairs, hit.gap, hit.p_value, hit.is_shown) == (2, -0.5, 1.0, False)
    assert (hit.low, hit.high) == pytest.approx((-1, -1 / 4 + half), abs=1e-5)
    # Reciprocal ranks: 0 - 1 and 1 - 1/2.
    assert (gaps["mrr"].official, gaps["mrr"].oral, gaps["mrr"].gap) == (0.75, 0.5, -0.25)
    assert gaps["mrr"].p_value is None and gaps["map"].gap == pytest.approx((-1 + 1 / 2 - 7 / 12) / 2)


@pytest.mark.req("RAG-9")
def test_six_pairs_that_only_the_official_wording_finds_are_a_difference() -> None:
    rows = [found(n, "official", f"p{n}", "a", "a") for n in range(6)]
    rows += [found(n + 6, "oral", f"p{n}", "a", "b") for n in range(6)]
    gap = analyse(BATCH, rows).pairs.gaps[0]
    assert (gap.gap, gap.is_shown) == (-1, True) and gap.p_value == pytest.approx(2 / 2**6)


@pytest.mark.req("RAG-9")
def test_several_cases_on_a_side_are_averaged() -> None:
    rows = [
        found(1, "official", "p", "a", "a"),
        found(2, "oral", "p", "a", "a"),
        found(3, "oral", "p", "a", "b"),
        failed(4, "oral", "p"),
    ]
    pairs = analyse(BATCH, rows).pairs
    assert [(one.who, one.oral, one.gap, one.oral_cases) for one in pairs.pairs] == [
        ("oral less", 0.5, -0.5, ["c2", "c3", "c4"])
    ]
    assert not pairs.not_comparable


@pytest.mark.req("RAG-9")
def test_concepts_where_only_the_official_wording_works_come_first() -> None:
    rows = [
        # wide: 3 of 3 against 1 of 3, a gap of -2/3; only: 1 of 2 against 0 of 2, a gap of -1/2.
        *[found(n, "official", f"w{n}", "a", "a", concept_id="wide") for n in range(3)],
        *[found(n + 10, "oral", f"w{n}", "a", "a" if n == 0 else "b", concept_id="wide") for n in range(3)],
        *[found(n + 20, "official", f"o{n}", "a", "a" if n == 0 else "b", concept_id="only") for n in range(2)],
        *[found(n + 30, "oral", f"o{n}", "a", "b", concept_id="only") for n in range(2)],
        found(40, "official", "x", "a", "b"),
        found(41, "oral", "x", "a", "a"),
        found(42, "oral", "y", "a", "a"),
    ]
    pairs = analyse(BATCH, rows).pairs
    assert [(one.id, one.pairs, round(one.gap, 3)) for one in pairs.concepts] == [
        ("only", 2, -0.5),
        ("wide", 3, -0.667),
        ("x", 1, 1.0),
    ]
    assert [(one.id, one.reason) for one in pairs.unpaired] == [("c42", "no official case has its pair_id")]


def test_a_case_is_the_mean_of_its_repeats_and_shows_the_first_that_went_wrong() -> None:
    rows = [
        found(1, "official", "", "a", "a", repeat=0),
        found(1, "official", "", "a", "cb", repeat=1),
        found(1, "official", "", "a", "b", repeat=2),
        failed(1, "official", repeat=3),
    ]
    results = analyse(BATCH, rows)
    (row,) = results.cases
    assert (row.status, row.sources, row.repeats) == ("failed", ["docs/c.md", "docs/b.md"], 4)
    assert row.measures["hit@3"] == pytest.approx(1 / 3) and row.error.endswith("[timed_out]")
    assert (results.apart["part_error"], results.apart["error"], results.overall.cases) == (1, 0, 1)


@pytest.mark.req("WORK-4")
def test_more_repeats_of_the_same_cases_do_not_narrow_an_interval() -> None:
    def results(repeats: int) -> RagResults:
        halves = [(n, repeat, "a" if (n + repeat) % 2 else "b") for n in range(4) for repeat in range(repeats)]
        return analyse(BATCH, [found(n, "official", "", "a", sources, repeat=repeat) for n, repeat, sources in halves])

    few, many = results(2).overall.measure("hit@3"), results(40).overall.measure("hit@3")
    assert (few.mean, few.low, few.high, few.cases) == (many.mean, many.low, many.high, many.cases)
    # Four cases of a half each: the interval of a mean of per-case values.
    assert (few.low, few.high) == pytest.approx(mean_interval(2.0, 1.0, 4)) and few.cases == 4


@pytest.mark.req("WORK-4")
def test_a_pair_is_one_unit_however_many_cases_and_repeats_it_has() -> None:
    single = [found(1, "official", "p", "a", "a"), found(2, "oral", "p", "a", "b")]
    many = [found(3, "oral", "p", "a", "b"), *(found(2, "oral", "p", "a", "b", repeat=n) for n in range(1, 20))]
    assert analyse(BATCH, single).pairs.gaps == analyse(BATCH, [*single, *many]).pairs.gaps
    assert analyse(BATCH, single).pairs.gaps[0].pairs == 1


@pytest.mark.req("WORK-5")
def test_an_error_is_in_the_pass_rate_and_in_no_measure() -> None:
    results = analyse(BATCH, ROWS)
    rates = [(one.name, one.cases, one.errors, one.pass_rate.cases, one.pass_rate.mean) for one in results.buckets]
    assert rates == [("official", 3, 0, 3, 1.0), ("oral", 2, 1, 3, pytest.approx(1 / 3)), ("ambiguous", 1, 0, 1, 1.0)]
    tally = Tally()
    for run, scored in ROWS:
        tally.add(run, scored)
    assert results.overall.pass_rate.mean == pytest.approx(tally.group().shares.pass_rate)
    assert results.buckets[1].pass_rate.mean == pytest.approx(tally.group(tag="oral").shares.pass_rate)


@pytest.mark.req("WORK-5")
def test_the_pass_rate_follows_the_pass_rule_of_the_batch() -> None:
    rows = [found(1, "official", "", "a", "ab"[repeat == 0], repeat=repeat) for repeat in range(4)]
    rows += [found(2, "official", "", "a", "b", repeat=repeat) for repeat in range(4)]
    plain, ruled = (analyse(structs.replace(BATCH, options={"pass_if": rule}), rows).overall for rule in (None, 0.75))
    assert (plain.pass_rate.mean, plain.failing) == (0.375, 2)
    assert (ruled.pass_rate.mean, ruled.failing) == (0.5, 1)
    assert plain.measure("hit@3") == ruled.measure("hit@3")


@pytest.mark.req("RAG-9")
def test_a_gap_that_only_the_ranks_show() -> None:
    rows = [found(n, "official", f"p{n}", "a", "a") for n in range(8)]
    rows += [found(n + 8, "oral", f"p{n}", "a", "bca") for n in range(8)]
    hit, *others = analyse(BATCH, rows).pairs.gaps
    assert (hit.gap, hit.p_value, hit.conclusion) == (0, 1.0, "no difference shown")
    (mrr,) = [gap for gap in others if gap.measure == "mrr"]
    assert mrr.oral == pytest.approx(1 / 3) and mrr.conclusion == "oral lower"
    sentence = wording_gap(analyse(BATCH, rows))
    assert (
        "No difference shown by hit@3. A difference is shown by" in sentence and "mrr (0.333 against 1.000)" in sentence
    )


@pytest.mark.req("RAG-9")
@pytest.mark.parametrize(("gap", "said"), [(Gap("hit@3", 9, 0.9, 0.5, -0.4, -0.7, -0.01, 0.12), "do not agree"), (Gap("hit@3", 9, 0.9, 0.8, -0.1, -0.4, 0.2, 1.0), "this may be chance")])  # fmt: skip
def test_what_is_not_shown_is_not_told_as_sure(gap: Gap, said: str) -> None:
    results = analyse(BATCH, ROWS)
    sentence = wording_gap(structs.replace(results, pairs=structs.replace(results.pairs, gaps=[gap])))
    assert gap.conclusion == "no difference shown" and sentence.endswith(f"{said}.")


@given(st.randoms(use_true_random=False))
def test_the_order_of_the_runs_does_not_matter(mixed: random.Random) -> None:
    rows = [*ROWS, *(found(1, "official", "p1", "a", "cb", repeat=n, tags=["zh"]) for n in (1, 2))]
    expected = analyse(BATCH, rows)
    mixed.shuffle(rows)
    assert analyse(BATCH, rows) == expected


def answered(number: int, answer: str, **verdicts: float | bool) -> Row:
    run = run_of(number, "oral", f"p{number}", must_include=["15 天", "manager"], expected_sources=["a.md"])
    run = structs.replace(run, output=Output(answer, sources=[{"source": "a.md", "text": "…"}]))
    made = [
        Verdict(
            name.replace("hit", "hit@3"),
            "x",
            "output",
            "passed" if value else "failed",
            None if isinstance(value, bool) else value,
        )
        for name, value in verdicts.items()
    ]
    return run, Scored(run.key, "passed" if verdicts["must_include"] else "failed", verdicts=made)


@pytest.mark.req("RAG-8")
def test_answers_and_what_they_lack() -> None:
    rows = [
        answered(1, "15 天, says your manager [1]", must_include=True, citations=1.0, hit=True),
        answered(2, "１５ days, ask your Manager", must_include=False, citations=0.5, hit=True, faithfulness=0.25),
    ]
    results = analyse(ANSWERS, rows)
    assert means(results, "overall") == {"must_include": 0.5, "citations": 0.75, "faithfulness": 0.25, "hit@3": 1}
    assert results.overall.measure("faithfulness").cases == 1 and results.deciding == "must_include"
    assert [row.missing for row in results.cases] == [[], ["15 天", "manager"]]
    assert results.cases[1].answer == "１５ days, ask your Manager"
    normalised = structs.replace(ANSWERS, config={**ANSWERS.config, "normalise": True})
    assert analyse(normalised, rows).cases[1].missing == ["15 天"]


def test_one_result_for_each_profile_in_the_order_asked_for() -> None:
    batch = structs.replace(BATCH, profiles=[Profile("b"), Profile("a"), Profile("never run")])
    rows = [found(1, "official", "", "a", "a", profile="a"), found(1, "official", "", "a", "b", profile="b")]
    assert [(one.profile, one.overall.passed) for one in analyse_all(batch, rows)] == [("b", 0), ("a", 1)]


def test_a_batch_without_runs_has_no_rates() -> None:
    results = analyse(BATCH, [])
    assert [(one.name, one.mean, one.cases) for one in results.overall.measures] == [("hit@3", None, 0)]
    assert not results.buckets and not results.pairs.gaps and results.documents is None


def test_an_unknown_bucket_is_a_group_of_its_own_and_no_bucket_is_official() -> None:
    wrong, plain = found(1, "offical", "p", "a", "a"), found(2, "oral", "p", "a", "a")
    run = structs.replace(plain[0], tags=(), raw={**plain[0].raw, "bucket": None})
    assert [one.name for one in analyse(BATCH, [wrong, (run, plain[1])]).buckets] == ["official", "offical"]
