"""The figures of HOP results, against a plain count in Python."""

from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalloom.analysis.statistics import mean_interval
from evalloom.core.errors import EvalloomError
from evalloom.hop.results.stats import agreement_of
from evalloom.hop.results.store import DataStore


def result(value: Any = None, status: str = "OK", profile: str | None = None, retries: int = 0, **case: Any) -> Any:
    """A result row of the flat wrapper."""
    stats = {"retry_count": retries, "execution_path": [], "status": status}
    beside = {} if profile is None else {"profile": profile}
    return {"text": "x", **case, "hop_result": json.dumps(value), "hop_stats": stats, **beside}


def store_of(folder: Path, *rows: Any) -> DataStore:
    path = folder / "results.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return DataStore(folder)


@pytest.mark.req("HOP-16")
def test_completion_and_correctness_by_hand(tmp_path: Path) -> None:
    found = store_of(
        tmp_path,
        {"_type": "meta", "profile": "p"},
        {"id": 9, "tag": "a", "text": "only an input", "expected_ok": True},
        result({"ok": True}, id=1, tag="a", expected_ok=True, retries=2),
        result({"ok": False}, id=2, tag="a", expected_ok=True),
        result({"ok": True}, id=3, tag="b"),
        result(None, "ERROR", id=4, tag="b", expected_ok=True),
        {"input": {"text": "y", "expected_ok": True}, "result": '{"ok": true}'},
        {"input": {"text": "z"}, "error": "timeout"},
    ).get_stats()
    assert (found["total"], found["completion_rate"], found["correctness"]) == (6, 4 / 6, 2 / 3)
    assert found["correctness_interval"] == list(mean_interval(2, 2, 3))
    assert (found["cases"], found["errors"], found["unscored"], found["pass_rate"]) == (6, 2, 1, 2 / 5)
    assert found["retries"] == {"mean": 0.5, "rows_with_retries": 1}
    assert found["outcomes"] == {"OK": 4, "LACK_OF_INFO": 0, "UNCERTAIN": 0, "FAIL": 2}
    assert {name: one["correctness"] for name, one in found["by_tag"].items()} == {"a": 0.5, "b": None, "no tag": 1.0}


@pytest.mark.req("HOP-16")
def test_each_field_gets_the_figure_that_fits_its_type(tmp_path: Path) -> None:
    fields = store_of(
        tmp_path,
        result({"n": 1, "b": True, "s": "x", "l": [1, 2], "m": 1, "o": {"a": 1}}),
        result({"n": 2.5, "b": False, "s": "y", "l": [], "m": "text", "o": {}}),
        result({"n": None, "b": False, "s": "x"}),
        result({"n": 99}, "ERROR"),
    ).get_stats()["fields"]
    assert {name: fields["n"][name] for name in ("count", "type", "mean", "min", "max")} == {
        "count": 2, "type": "number", "mean": 1.75, "min": 1, "max": 2.5
    }  # fmt: skip
    assert fields["n"]["non_null_rate"] == pytest.approx(2 / 3)
    assert fields["b"]["rate"] == pytest.approx(1 / 3)
    assert fields["s"]["distribution"] == {"x": 2, "y": 1}
    assert fields["l"]["mean_length"] == 1
    assert fields["m"]["types"] == {"number": 1, "string": 1}
    assert fields["o"]["type"] == "object"


@pytest.mark.req("HOP-16", "HOP-21")
def test_texts_in_lists_of_objects_have_a_distribution_too(tmp_path: Path) -> None:
    rows = [
        result({"errors": [{"severity": "High", "n": 1, 'a"b': "x"}, {"severity": "Low"}, 3]}, tag="a"),
        result({"errors": [{"severity": "High", "text": None}]}, tag="b"),
        result({"errors": []}, tag="b"),
        *[result({"errors": [{"text": f"t{number}"}]}, tag="c") for number in range(21)],
    ]
    found = store_of(tmp_path, *rows).get_stats()
    assert found["fields"]["errors"]["items"] == {"severity": {"High": 2, "Low": 1}}
    assert found["by_tag"]["b"]["fields"]["errors"]["items"] == {"severity": {"High": 1}}
    assert "items" not in found["by_tag"]["c"]["fields"]["errors"]


@pytest.mark.req("HOP-16")
def test_texts_have_a_distribution_only_where_they_are_few(tmp_path: Path) -> None:
    rows = [result({"few": f"v{number % 20}", "many": f"v{number % 21}"}, tag=f"t{number % 3}") for number in range(84)]
    found = store_of(tmp_path, *rows).get_stats()
    assert len(found["fields"]["few"]["distribution"]) == 20
    assert "distribution" not in found["fields"]["many"]
    assert "distribution" not in found["by_tag"]["t0"]["fields"]["many"]


@pytest.mark.req("HOP-16")
def test_one_profile_and_those_without_one(tmp_path: Path) -> None:
    store = store_of(tmp_path, result({"n": 1}, profile="good"), result({"n": 3}, profile="bad"), result({"n": 5}))
    assert list(store.get_stats()["by_profile"]) == ["bad", "good", "no profile"]
    assert store.get_stats("good")["fields"]["n"]["mean"] == 1
    assert store.get_stats("no profile")["total"] == 1
    with pytest.raises(EvalloomError, match=r"Did you mean 'good'\?.*unknown_profile_in_store"):
        store.get_stats("god")


@pytest.mark.req("HOP-16")
def test_nothing_has_no_rate(tmp_path: Path) -> None:
    found = DataStore(tmp_path).get_stats()
    assert (found["total"], found["completion_rate"], found["correctness"], found["fields"]) == (0, None, None, {})
    assert found["retries"]["mean"] is None and found["by_tag"] == {}
    assert list(DataStore(tmp_path).get_stats(by=["profile"]))[-1] == "by_profile"
    with pytest.raises(EvalloomError, match=r"Did you mean 'tag'\?"):
        DataStore(tmp_path).get_stats(by=["tags"])


scores = st.integers(1, 5)
row = st.fixed_dictionaries(
    {"tag": st.sampled_from("ab"), "score": scores, "expected": scores, "status": st.sampled_from(["OK", "ERROR"])}
)


@pytest.mark.req("HOP-16", "HOP-17")
@settings(max_examples=15, deadline=None)
@given(st.lists(row, min_size=1, max_size=12))
def test_every_figure_is_that_of_a_plain_count(rows: list[dict[str, Any]]) -> None:
    with TemporaryDirectory() as folder:
        store = store_of(
            Path(folder),
            *(result({"score": r["score"]}, r["status"], tag=r["tag"], expected_score=r["expected"]) for r in rows),
        )
        found = store.get_stats()
    for tag, figures in [(None, found), *found["by_tag"].items()]:
        mine = [one for one in rows if tag in (None, one["tag"])]
        done = [one for one in mine if one["status"] == "OK"]
        same = [one for one in done if one["score"] == one["expected"]]
        assert figures["completion_rate"] == len(done) / len(mine)
        assert figures["correctness"] == (len(same) / len(done) if done else None)
        if done:
            field = figures["fields"]["score"]
            assert field["mean"] == pytest.approx(sum(one["score"] for one in done) / len(done))
            assert (field["agreement"]["n"], field["agreement"]["exact"]) == (len(done), len(same) / len(done))


RATES = ("completion_rate", "correctness", "pass_rate")
INTERVALS = ("cases", "completion_interval", "correctness_interval", "pass_rate_interval")


def rates_of(figures: dict[str, Any]) -> list[Any]:
    groups = [figures, *figures["by_tag"].values(), *figures["by_profile"].values()]
    return [group[name] for group in groups for name in (*RATES, *INTERVALS)]


@pytest.mark.req("WORK-4", "HOP-16")
@settings(max_examples=15, deadline=None)
@given(st.lists(row, min_size=1, max_size=12), st.integers(2, 5))
def test_copies_of_the_results_change_no_rate_and_no_interval(rows: list[dict[str, Any]], copies: int) -> None:
    results = [
        result({"score": r["score"]}, r["status"], "p", id=n // 2, tag=r["tag"], expected_score=r["expected"])
        for n, r in enumerate(rows)
    ]
    with TemporaryDirectory() as folder:
        once = store_of(Path(folder), *results).get_stats()
        for number in range(copies):
            text = "".join(
                json.dumps(one, indent=None if number % 2 else 0).replace("\n", "") + "\n" for one in results
            )
            (Path(folder) / f"copy{number}.jsonl").write_text(text, "utf-8")
        again = DataStore(folder).get_stats()
    assert again["total"] == (copies + 1) * once["total"]
    assert rates_of(again) == rates_of(once)


@pytest.mark.req("WORK-4")
def test_a_rate_is_the_mean_of_the_shares_of_its_cases(tmp_path: Path) -> None:
    repeated = [result({"ok": ok}, id=1, expected_ok=True) for ok in (True, True, True, False)]
    found = store_of(tmp_path, *repeated, result(None, "ERROR", id=2, expected_ok=True)).get_stats()
    assert (found["total"], found["cases"], found["correct"]) == (5, 2, 3)
    assert (found["completion_rate"], found["correctness"], found["pass_rate"]) == (0.5, 0.75, 0.375)
    assert found["pass_rate_interval"] == list(mean_interval(0.75, 0.75**2, 2))


@pytest.mark.req("WORK-4")
@pytest.mark.parametrize(
    ("first", "second", "cases"),
    [
        ({"id": 1}, {"id": 1}, 1),
        ({"id": 1}, {"id": 1, "tag": "changed", "expected_ok": False, "description": "new"}, 1),
        ({"id": 1}, {"id": 2}, 2),
        ({"id": 1, "q": "a"}, {"id": 1, "q": "b"}, 2),
        ({"id": 1}, {"id": 1, "focus": "numbers"}, 2),
        ({"id": 1, "q": {"a": 1, "b": [0.5]}}, {"q": {"b": [0.50], "a": 1}, "id": 1}, 1),
        ({"id": 1, "q": 1e22}, {"id": 1, "q": 1e22, "focus": None}, 1),
        ({"id": 1, "input": "plain"}, {"id": 1, "input": "other"}, 2),
        ({"id": 1, "Tag": "x"}, {"id": 1, "Tag": "y"}, 2),
        ({"q": "a"}, {"q": "b"}, 2),
        ({"id": 1, "q": "1", "r": "1"}, {"id": 2, "q": "1", "r": "2"}, 2),
        ({"id": 1, "q": "2", "r": "1"}, {"id": 1, "q": "1", "r": "2"}, 2),
    ],
)
def test_a_case_is_its_id_and_its_inputs(first: Any, second: Any, cases: int, tmp_path: Path) -> None:
    store = store_of(tmp_path, result({"ok": True}, **first))
    (tmp_path / "other.jsonl").write_text(json.dumps(result({"ok": True}, **second)) + "\n", "utf-8")
    assert store.get_stats()["cases"] == cases
    view = {"input": {"text": "x", **second}, "result": '{"ok": true}'}
    (tmp_path / "page.jsonl").write_text(json.dumps(view) + "\n", "utf-8")
    assert store.get_stats()["cases"] == cases


@pytest.mark.req("WORK-4")
def test_a_case_under_two_profiles_is_one_in_the_total(tmp_path: Path) -> None:
    found = store_of(tmp_path, *(result({}, profile=name, id=1) for name in ("p", "q", "q"))).get_stats()
    assert (found["cases"], found["by_profile"]["q"]["cases"], found["by_profile"]["q"]["total"]) == (1, 1, 2)


@pytest.mark.req("HOP-17")
def test_agreement_in_bands_by_hand(tmp_path: Path) -> None:
    pairs = [(1, 2), (2, 3), (3, 3), (4, 5), (5, 1), (4, 4), (2, 9)]
    store = store_of(tmp_path, *(result({"score": given}, expected_score=wanted) for wanted, given in pairs))
    found = store.get_agreement("score")
    assert found["matrix"] == {
        "BAD": {"BAD": 1, "MID": 1, "GOOD": 0},
        "MID": {"BAD": 0, "MID": 1, "GOOD": 0},
        "GOOD": {"BAD": 1, "MID": 0, "GOOD": 2},
    }
    assert (found["n"], found["outside"], found["cross_band_rate"]) == (7, 1, 2 / 6)
    assert (found["exact"], found["within_one"]) == (2 / 7, 5 / 7)
    assert "agreement" not in store.get_stats()["fields"]["score"]
    with pytest.raises(EvalloomError, match=r"Did you mean 'score'\?.*unknown_result_column"):
        store.get_agreement("scores")


@pytest.mark.req("HOP-17")
def test_bands_can_be_chosen() -> None:
    found = agreement_of({(0.2, 0.9): 3, (0.7, 0.6): 1}, {"low": (0, 0.5), "high": (0.5, 1)})
    assert found["matrix"] == {"low": {"low": 0, "high": 3}, "high": {"low": 0, "high": 1}}
    assert found["cross_band_rate"] == 0.75
    assert agreement_of({}, {"low": (0, 1)})["exact"] is None


@pytest.mark.req("HOP-17")
@pytest.mark.parametrize("other", [result({"score": 5.0}), result({"score": "n/a"}), result({"score": 0}, "ERROR")])
def test_scores_agree_beside_other_values(tmp_path: Path, other: Any) -> None:
    store = store_of(tmp_path, result({"score": 4}, expected_score=5), other | {"expected_score": 5})
    assert store.get_stats()["fields"]["score"]["agreement"]["n"] >= 1


@pytest.mark.req("HOP-15", "HOP-16")
def test_cached_statistics_are_those_that_were_counted(tmp_path: Path) -> None:
    rows = [result({"n": 0.1, "s": "ä", "l": [1]}, profile=name, tag="t", expected_n=0.1) for name in ("p", "q")]
    queries: list[dict[str, Any]] = [{}, {"profile": "p"}, {"by": ["profile"]}, {"by": "tag"}]
    counted = [store_of(tmp_path, *rows).get_stats(**query) for query in queries]
    cache = tmp_path / ".evalloom/hop-store/stats.json"
    assert len(json.loads(cache.read_bytes())["answers"]) == 4
    assert [json.dumps(DataStore(tmp_path).get_stats(**query)) for query in queries] == list(map(json.dumps, counted))
    assert store_of(tmp_path, *rows, *rows).get_stats()["total"] == 4


@pytest.mark.req("HOP-16")
def test_an_infinite_number_is_counted_again_each_time(tmp_path: Path) -> None:
    rows = [result({}) | {"hop_result": '{"n": 1e999}'}, result({"n": 1})]
    store = store_of(tmp_path, *rows)
    assert store.get_stats() == store.get_stats()
