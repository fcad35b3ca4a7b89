"""RAG batches compared with a baseline: configuration, buckets, measures, and why a case was lost."""

from __future__ import annotations

import json
from math import nan
from pathlib import Path
from typing import Any

import pytest

from evalloom import catalog
from evalloom.batchlog import BASELINES, FOLDER, Log
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Batch, Output, Profile, Run, Scored, Status, Verdict
from evalloom.core.ranking import measures, rank
from evalloom.engine.baseline import save
from evalloom.engine.compare import ComparisonRequest, ComparisonResult, compare

pytestmark = pytest.mark.req("RAG-10")

CONFIG = {"kind": "rag", "purpose": "retrieve", "k": 2, "retriever": "builtin", "mode": "bm25"}
DOCUMENTS = {"docs/a.md": "1", "docs/b.md": "1", "docs/x.md": "1"}
Found = dict[str, tuple[str, list[str] | None]]
"""The bucket of each case, and the sources that were found for it; None stands for an error."""

GOOD: Found = {
    "o1": ("official", ["docs/a.md", "docs/x.md"]),
    "o2": ("official", ["docs/a.md"]),
    "s1": ("oral", ["docs/x.md", "docs/a.md"]),
    "s2": ("oral", ["docs/x.md"]),
}


def a_batch(home: Path, id: str, found: Found, config: Any = CONFIG, documents: Any = DOCUMENTS, **more: Any) -> Path:
    """A batch of a retriever that found these sources; every case expects `docs/a.md`."""
    profiles = [Profile("p", run="one")]
    facts = {"profiles": profiles, "finished_at": "later", "config": config, "documents": documents, **more}
    log = Log(home / FOLDER / id, Batch(id, "then", **facts))
    for number, (case, (bucket, sources)) in enumerate(found.items(), 1):
        raw = {"id": case, "query": "?", "expected_sources": ["docs/a.md"], "bucket": bucket}
        output = Output(sources=[{"source": one} for one in sources or []])
        error = "the retriever did not answer [timeout]" if sources is None else ""
        key = f"{number}"
        log.append_run(Run(key, case, "p", number=number, output=output, error=error, tags=(bucket, "zh"), raw=raw))
        if sources is not None:
            log.append_scored(scored(key, sources))
    log.close()
    return log.path


def scored(key: str, sources: list[str]) -> Scored:
    found = measures(rank(["docs/a.md"], sources), 2)
    verdicts = [
        Verdict(name, "ranking", "sources", "passed" if score else "failed", score, weight=float(name == "hit@2"))
        for name, score in found.items()
    ]
    status: Status = "passed" if found["hit@2"] else "failed"
    return Scored(key, status, found["hit@2"], verdicts)


def held(home: Path, **more: Any) -> ComparisonResult:
    return compare(ComparisonRequest("now", "good", home=home, **more), pytest.fail, catalog.load())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with the baseline `good`."""
    a_batch(tmp_path, "before", GOOD)
    save("good", "before", False, pytest.fail, tmp_path)
    return tmp_path


def test_another_configuration_is_an_error_that_names_every_difference(home: Path) -> None:
    a_batch(home, "now", GOOD, {**CONFIG, "k": 10, "retriever": "python:x"})
    with pytest.raises(EvalloomError) as caught:
        held(home)
    assert (caught.value.code, caught.value.exit_code) == ("config_differs", 2)
    assert "now and good have different configurations: k: 2 → 10; retriever: builtin → python:x. " in str(caught.value)
    found = held(home, any_config=True)
    assert [one.what for one in found.differences] == ["config.k", "config.retriever"] and not found.is_bad


def test_a_rag_batch_against_something_else_is_an_error_both_ways(home: Path) -> None:
    a_batch(home, "now", GOOD, {}, {})
    for asked in (ComparisonRequest("now", "good", home=home), ComparisonRequest("before", "now", home=home)):
        with pytest.raises(EvalloomError, match=r"kind only (before|now): rag") as caught:
            compare(asked, pytest.fail, catalog.load())
        assert caught.value.code == "config_differs"
    assert held(home, any_config=True).comparisons[0].measures == []


def test_another_model_is_configuration_where_it_answers(home: Path) -> None:
    answer = {**CONFIG, "purpose": "answer"}
    a_batch(home, "old", GOOD, answer, models={"one": "m-1"})
    a_batch(home, "new", GOOD, answer, models={"one": "m-2"})
    with pytest.raises(EvalloomError, match=r"p: model: m-1 → m-2\. .* --any-config"):
        compare(ComparisonRequest("new", "old", home=home), pytest.fail, catalog.load())
    assert not compare(ComparisonRequest("new", "old", any_config=True, home=home), pytest.fail, catalog.load()).is_bad


def test_buckets_are_compared_without_being_asked(home: Path) -> None:
    a_batch(home, "now", {**GOOD, "s1": ("oral", ["docs/x.md"]), "s2": ("oral", ["docs/a.md"]), "o1": ("official", [])})
    found = held(home, allowed_drop=0.3)
    [comparison] = found.comparisons
    assert {one.name: (one.cases, one.difference) for one in comparison.buckets} == {
        "official": (2, -0.5),
        "oral": (2, 0),
    }
    assert comparison.tags == [] and found.is_regression and not comparison.figures.regression
    assert not held(home, allowed_drop=0.3, allowed_drops={"official": 0.5}).is_regression
    assert [one.name for one in held(home, by=("tag",)).comparisons[0].tags] == ["zh"]


def test_a_group_may_be_stricter_than_the_rest_and_a_tag_is_looked_at_when_it_is_named(home: Path) -> None:
    a_batch(home, "now", {**GOOD, "s1": ("oral", [])})
    assert not held(home, allowed_drop=0.5).is_bad
    assert held(home, allowed_drop=0.5, allowed_drops={"oral": 0.4}).is_regression
    strict = held(home, allowed_drop=0.5, allowed_drops={"zh": 0.1})
    assert strict.is_regression and [one.name for one in strict.comparisons[0].tags] == ["zh"]


@pytest.mark.parametrize(
    ("drops", "code", "told"),
    [
        ({"orla": 0.1}, "bad_allowed_drop", "no case has the bucket or tag 'orla'. Did you mean 'oral'?"),
        ({"1": 0.1}, "bad_allowed_drop", "There is official, oral, zh"),
        ({"oral": nan}, "bad_allowed_drop", "expected a number from 0 to 1 for 'oral', got nan"),
        ({"oral": -0.1}, "bad_allowed_drop", "got -0.1"),
    ],
)
def test_a_drop_that_nobody_can_mean_is_refused(home: Path, drops: dict[str, float], code: str, told: str) -> None:
    a_batch(home, "now", GOOD)
    with pytest.raises(EvalloomError) as caught:
        held(home, allowed_drops=drops)
    assert (caught.value.code, caught.value.exit_code) == (code, 2) and told in str(caught.value)


def test_a_bucket_on_one_side_is_added_or_removed_and_no_regression(home: Path) -> None:
    official = {case: found for case, found in GOOD.items() if found[0] == "official"}
    a_batch(home, "now", {**official, "v1": ("ambiguous", []), "v2": ("ambiguous", [])})
    [comparison] = held(home, allowed_drops={"oral": 0.1}).comparisons
    assert [(one.by, one.name, one.cases) for one in comparison.added] == [("bucket", "ambiguous", 2)]
    assert [(one.by, one.name, one.cases) for one in comparison.removed] == [("bucket", "oral", 2)]
    assert not comparison.is_regression and [one.name for one in comparison.buckets] == ["official"]
    assert (comparison.counts["new"], comparison.counts["gone"]) == (2, 2)


def test_measures_are_compared_on_the_cases_that_have_them_on_both_sides(home: Path) -> None:
    a_batch(home, "now", {**GOOD, "o1": ("official", ["docs/x.md", "docs/a.md"]), "o2": ("official", None)})
    [comparison] = held(home, is_strict=True).comparisons
    found = {(one.bucket, one.name): one for one in comparison.measures}
    assert [one.name for one in comparison.measures if not one.bucket] == [*measures(rank(["a"], []), 2)]
    whole, official = found["", "mrr"], found["official", "mrr"]
    assert (whole.cases, whole.base) == (3, 0.5) and whole.now == pytest.approx(1 / 3)
    assert (official.cases, official.base, official.now, official.difference) == (1, 1.0, 0.5, -0.5)
    assert whole.low <= whole.difference <= whole.high
    assert comparison.is_regression and comparison.figures.cases == 4  # a case that ends in an error is lost


def test_a_lost_case_says_what_was_found_instead_and_what_changed(home: Path) -> None:
    found: Found = {**GOOD, "o1": ("official", ["docs/x.md", "docs/b.md"]), "o2": ("official", [])}
    a_batch(home, "now", found, documents={"docs/a.md": "2", "docs/b.md": "1"})
    compared = held(home)
    first, second = (one for one in compared.comparisons[0].changes if one.change == "lost")
    assert first.reason == "expected docs/a.md, found docs/x.md, docs/b.md"
    assert first.notes == ("an expected source was at rank 1 before", "docs/a.md changed since the baseline")
    assert second.reason == "expected docs/a.md, found nothing"
    assert [one.text for one in compared.differences] == ["documents: 1 changed (docs/a.md), 1 removed (docs/x.md)"]


def test_a_lost_answer_says_whether_its_source_was_there(home: Path) -> None:
    anchors = Verdict("must_include", "contains_all", "output", "failed", 0.0, "lacks 'five days'")
    hit = Verdict("hit@2", "ranking", "sources", "failed", 0.0, weight=0.0)
    facts = Batch("answers", "then", profiles=[Profile("p")], finished_at="later", config=CONFIG)
    log = Log(home / FOLDER / "answers", facts)
    raw = {"expected_sources": ["docs/a.md"]}
    log.append_run(Run("1", "o1", "p", output=Output("no", sources=[{"source": "docs/x.md"}]), tags=("oral",), raw=raw))
    log.append_scored(Scored("1", "failed", 0.0, [hit, anchors]))
    log.close()
    [comparison] = compare(ComparisonRequest("answers", "good", home=home), pytest.fail, catalog.load()).comparisons
    lost = next(one for one in comparison.changes if one.change == "lost")
    assert lost.reason == "must_include: lacks 'five days'; expected docs/a.md, found docs/x.md"


def test_a_batch_and_a_baseline_of_before_are_still_read(tmp_path: Path) -> None:
    """Files of a time when a manifest knew no configuration and no documents."""
    path = a_batch(tmp_path, "now", GOOD, {}, {})
    facts = json.loads((path / "batch.json").read_bytes())
    for new in ("config", "documents"):
        facts.pop(new, None)
    (path / "batch.json").write_text(json.dumps(facts), encoding="utf-8")
    file = tmp_path / BASELINES / "good.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(OLD, encoding="utf-8")
    [comparison] = held(tmp_path).comparisons
    assert comparison.counts["same"] == 2 and comparison.counts["new"] == 2
    assert (comparison.buckets, comparison.measures, comparison.added) == ([], [], [])


OLD = """\
{"format":1,"name":"good","saved_at":"2026-01-05T08:00:00+00:00","runs":2,"batch":{"id":"old","created_at":"then",\
"format":1,"evalloom":"0.1","python":"3.11","identity":"","datasets":[],"target":"","target_digest":"","profiles":\
[{"name":"p","run":"one","verify":"","params":{},"variant":""}],"models":{},"params":{},"options":{"repeat":1},\
"finished_at":"later","scored_at":"","summary":{"pass_rate":1.0}}}
{"case_id":"o1","status":"passed","profile":"p","score":1.0,"tags":["official"],"checks":[["exact","passed",1.0]]}
{"case_id":"o2","status":"passed","profile":"p","score":1.0,"latency_s":0.5,"tokens":3,"cost":0.1,"digest":"0a"}
"""
