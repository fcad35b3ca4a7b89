"""Aggregation: the shape that each strategy gives, what it leaves out, and what is said about options that are wrong."""

import json
import math
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.errors import CallError
from evalloom.core.model import Record
from evalloom.pipeline.aggregate import STRATEGIES, Aggregation, FailedItem, aggregate, read_options, renamed

REVIEWS: list[Any] = [
    {"id": "a", "rating": 5, "mood": "good", "scores": {"clarity": 0.5}, "kept": True},
    {"id": "b", "rating": 2, "mood": "bad", "scores": {"clarity": 1.0}, "kept": None},
    {"id": "c", "rating": 4, "mood": "good", "scores": {}, "kept": False},
    {"id": "d", "rating": "3", "mood": "so so", "tags": ["x"]},
]
FAILED = FailedItem("no answer within 1 s")
FIGURES = {"count", "sum", "mean", "min", "max", "median", "stdev"}

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc."), inner, max_size=3),
    max_leaves=8,
)


def made(items: list[Any], strategy: str, **options: Any) -> Any:
    return aggregate(items, Aggregation(strategy, **options))


def of_field(items: list[Any], field: str = "value") -> Record:
    figures: Record = made(items, "stats", fields=(field,))["fields"][field]
    return figures


@pytest.mark.req("PIPE-9")
def test_concat_joins_texts_and_the_rest_as_json() -> None:
    assert made(["a", 1, {"b": ["é"]}, None, FAILED], "concat") == 'a\n1\n{"b":["é"]}\nnull'
    assert made(REVIEWS, "concat", separator="; ", fields=("id", "scores.clarity")) == "a, 0.5; b, 1.0; c; d"
    assert made(REVIEWS, "concat", fields=("nothing",)) == ""


@pytest.mark.req("PIPE-9")
def test_stats_are_about_every_field_that_holds_numbers() -> None:
    found = made([*REVIEWS, FAILED], "stats")
    assert list(found) == ["total_items", "failed_items", "fields"]
    assert (found["total_items"], found["failed_items"], list(found["fields"])) == (5, 1, ["rating"])
    rating = found["fields"]["rating"]
    assert set(rating) == FIGURES
    assert [rating[name] for name in ("count", "sum", "min", "max", "median")] == [3, 11, 2, 5, 4]
    assert (rating["mean"], rating["stdev"]) == (pytest.approx(11 / 3), pytest.approx(statistics.stdev([5, 2, 4])))


@pytest.mark.req("PIPE-9")
def test_stats_of_paths_bare_numbers_and_what_is_no_number() -> None:
    assert of_field(REVIEWS, "scores.clarity")["mean"] == 0.75
    assert of_field(REVIEWS, "mood") == {"count": 0, **dict.fromkeys(FIGURES - {"count"})}
    assert of_field([{"value": True}, {"value": "7"}, {"value": 7}])["count"] == 1
    assert made([1, 2, 3, 4], "stats")["fields"]["value"]["median"] == 2.5
    assert of_field([{"a.b": 1, "a": {"b": 9}}], "a.b")["sum"] == 1
    assert of_field([7])["stdev"] == 0.0


@pytest.mark.req("PIPE-9")
def test_distribution_counts_the_values_that_are_no_numbers() -> None:
    found = made([*REVIEWS, FAILED], "stats", include_distribution=True)
    assert found["distribution"] == {
        "id": {"a": 1, "b": 1, "c": 1, "d": 1},
        "mood": {"good": 2, "bad": 1, "so so": 1},
        "kept": {"true": 1, "null": 1, "false": 1},
    }
    assert list(found["distribution"]["mood"]) == ["good", "bad", "so so"]
    assert made(["x", "y", "x"], "stats", include_distribution=True)["distribution"] == {"value": {"x": 2, "y": 1}}


def test_fields_of_many_values_are_counted_only_when_they_are_named() -> None:
    items = [{"text": str(number), "mood": "good"} for number in range(51)]
    assert list(made(items, "stats", include_distribution=True)["distribution"]) == ["mood"]
    assert len(made(items, "stats", include_distribution=True, fields=("text",))["distribution"]["text"]) == 51
    assert list(made(items, "summary")["counts"]) == ["mood"]
    assert len(made(items, "summary", summary_fields=("text",))["counts"]["text"]) == 51


@pytest.mark.req("PIPE-9")
def test_stats_by_group() -> None:
    found = made([*REVIEWS, FAILED], "stats", group_by="mood", include_distribution=True)["groups"]
    assert list(found) == ["good", "bad", "so so"]
    assert (found["good"]["total_items"], found["good"]["fields"]["rating"]["mean"]) == (2, 4.5)
    assert found["so so"]["fields"]["rating"]["count"] == 0
    assert found["good"]["distribution"]["kept"] == {"true": 1, "false": 1}
    assert found["so so"]["distribution"]["kept"] == {}


@pytest.mark.req("PIPE-9")
@pytest.mark.parametrize("condition", ["item.rating >= 4", "rating >= 4", "'a' == id or item.id == 'c'"])
def test_filter_keeps_the_items_for_which_the_condition_holds(condition: str) -> None:
    assert [item["id"] for item in made([*REVIEWS, FAILED], "filter", condition=condition)] == ["a", "c"]
    assert made([1, 5, "x"], "filter", condition="item > 2") == [5]
    assert made([{"item": 9, "n": 1}], "filter", condition="item.n == 1") == [{"item": 9, "n": 1}]


@pytest.mark.req("PIPE-9")
def test_group_by_a_field_or_a_path() -> None:
    found = made([*REVIEWS, FAILED], "group", group_by="scores.clarity")
    assert {key: [item["id"] for item in items] for key, items in found.items()} == {
        "0.5": ["a"],
        "1": ["b"],
        "null": ["c", "d"],
    }
    assert made([1, 1.0, True, "1", [2]], "group", group_by="value") == {
        "1": [1, 1.0, "1"],
        "true": [True],
        "null": [[2]],
    }


@pytest.mark.req("PIPE-9")
def test_summary_counts_and_rates() -> None:
    found = made([*REVIEWS, FAILED], "summary", summary_fields=("mood", "kept"))
    assert (found["total_items"], found["failed_items"]) == (5, 1)
    assert found["counts"] == {"mood": {"good": 2, "bad": 1, "so so": 1}, "kept": {"true": 1, "null": 1, "false": 1}}
    assert found["rates"]["mood"] == {"good": 0.5, "bad": 0.25, "so so": 0.25}
    assert list(made(REVIEWS, "summary")["counts"]) == ["id", "rating", "mood", "kept"]


@pytest.mark.req("PIPE-9")
@pytest.mark.parametrize(
    ("strategy", "empty"),
    [
        ("concat", ""),
        ("stats", {"total_items": 0, "fields": {}}),
        ("filter", []),
        ("group", {}),
        ("summary", {"total_items": 0, "counts": {}, "rates": {}}),
    ],
)
def test_an_empty_list_gives_an_empty_result(strategy: str, empty: Any) -> None:
    assert made([], strategy, condition="item", group_by="" if strategy == "stats" else "x") == empty


@pytest.mark.req("PIPE-9")
def test_parts_of_a_result_are_renamed() -> None:
    found = made(REVIEWS, "stats", fields=("rating", "scores.clarity"), include_distribution=True)
    output = {
        "average": "fields.rating.mean",
        "clarity": "fields.scores.clarity.max",
        "bad": "distribution.mood.bad",
        "awful": "distribution.mood.awful",
    }
    assert renamed(found, output) == {"average": pytest.approx(11 / 3), "clarity": 1.0, "bad": 1, "awful": 0}
    assert renamed([{"a": 1}], {"first": "[0].a", "same": "0.a"}) == {"first": 1, "same": 1}
    assert renamed(found, {}) is found


def test_parts_of_an_empty_result_are_null_or_nought() -> None:
    for items in ([], [FAILED]):
        found = made(items, "stats", include_distribution=True)
        output = {"average": "fields.rating.mean", "bad": "distribution.mood.bad"}
        assert renamed(found, output) == {"average": None, "bad": 0}
    assert renamed(made([], "group", group_by="x"), {"bad": "bad"}) == {"bad": None}
    assert renamed(made([], "summary"), {"share": "rates.mood.bad"}) == {"share": 0}


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("fields.rateing.mean", "fields has rating. Did you mean 'rating'?"),
        ("feilds.rating", "the result has total_items, fields. Did you mean 'fields'?"),
        ("total_items.mean", "total_items is an integer"),
        ("distribution.mood.bad", "the result has total_items, fields"),
    ],
)
def test_a_path_that_leads_nowhere_says_what_there_is(path: str, told: str) -> None:
    with pytest.raises(CallError) as caught:
        renamed(made(REVIEWS, "stats"), {"average": path})
    assert str(caught.value) == f"output.average: {path!r} does not exist: {told} [bad_aggregation]"


@pytest.mark.parametrize(
    ("items", "options", "key"),
    [
        ({"a": 1}, Aggregation("stats"), "items"),
        ([1], Aggregation("custom"), "strategy"),
        ([1], Aggregation("filter", condition="item >"), "condition"),
        ([1], Aggregation("group"), "group_by"),
    ],
)
def test_what_cannot_be_aggregated_names_the_key(items: Any, options: Aggregation, key: str) -> None:
    with pytest.raises(CallError) as caught:
        aggregate(items, options)
    assert (caught.value.code, caught.value.message.partition(":")[0]) == ("bad_aggregation", key)


@pytest.mark.req("PIPE-9")
def test_options_are_read_under_either_name() -> None:
    long = {"aggregation_strategy": "custom", "aggregation_code": "def aggregate(items): …", "language": "python"}
    short = {"id": "sum", "strategy": "custom", "code": "def aggregate(items): …", "input_mapping": {"items": "x"}}
    assert read_options(long) == read_options(short) == read_options({**long, **short})
    options, errors = read_options({"strategy": "stats", "fields": ["a.b"], "output": {"m": "fields.a.b.mean"}})
    assert (options, errors) == (Aggregation("stats", fields=("a.b",), output={"m": "fields.a.b.mean"}), [])


@pytest.mark.req("PIPE-6", "PIPE-9")
@pytest.mark.parametrize(
    ("step", "key", "message"),
    [
        ({}, "aggregation_strategy", "expected concat, stats, filter, group, summary or custom, got nothing"),
        ({"strategy": "stat"}, "strategy", "got 'stat'. Did you mean 'stats'?"),
        ({"strategy": 5}, "strategy", "expected a string, got 5"),
        ({"strategy": "stats", "aggregation_strategy": "group", "group_by": "a"}, "strategy", "differ"),
        ({"strategy": "filter"}, "condition", "the strategy filter needs condition"),
        ({"strategy": "group", "group_by": " "}, "group_by", "needs group_by"),
        ({"strategy": "custom"}, "aggregation_code", "needs aggregation_code"),
        ({"strategy": "custom", "aggregation_code": ["x"]}, "aggregation_code", "expected a string, got a list"),
        ({"strategy": "filter", "condition": "item.a = 1"}, "condition", "column 8: write '=='"),
        ({"strategy": "filter", "condition": "open('x')"}, "condition", "there is no function 'open'"),
        ({"strategy": "custom", "code": "x", "language": "javascript"}, "language", "only Python code is run"),
        ({"strategy": "stats", "fields": "rating"}, "fields", "expected a list of names, got 'rating'"),
        ({"strategy": "summary", "summary_fields": [1]}, "summary_fields", "a list of names"),
        ({"strategy": "concat", "separator": 1}, "separator", "expected a string, got 1"),
        ({"strategy": "stats", "include_distribution": "yes"}, "include_distribution", "expected true or false"),
        ({"strategy": "stats", "output": {"a": 1}}, "output", "expected an object such as"),
    ],
)
def test_options_that_are_wrong_are_named(step: Record, key: str, message: str) -> None:
    _, errors = read_options(step)
    assert len(errors) == 1 and errors[0][0] == key and message in errors[0][1]


HUGE = st.integers(-(10**400), 10**400) | st.floats(allow_nan=False, allow_infinity=False)
NUMBERS = st.lists(st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6), min_size=1, max_size=20)


@given(NUMBERS)
def test_figures_are_those_of_the_statistics_module(values: list[float]) -> None:
    found = of_field(values)
    assert found["min"] <= found["mean"] <= found["max"] and found["min"] <= found["median"] <= found["max"]
    assert found["sum"] == pytest.approx(math.fsum(values), abs=1e-6)
    assert (found["count"], found["median"]) == (len(values), statistics.median(values))
    wanted = statistics.stdev(values) if len(values) > 1 else 0
    assert found["stdev"] == pytest.approx(wanted, rel=1e-6, abs=1e-6)


@given(st.lists(HUGE, min_size=1, max_size=6))
def test_numbers_of_any_size_have_figures_or_null(values: list[float]) -> None:
    found = of_field(values)
    assert found["count"] == len(values) and (found["min"], found["max"]) == (min(values), max(values))
    assert all(one is None or isinstance(one, int) or math.isfinite(one) for one in found.values())


@given(st.lists(JSON | st.just(FAILED), max_size=6), st.sampled_from(STRATEGIES[:-1]))
def test_any_items_are_aggregated(items: list[Any], strategy: str) -> None:
    found = made(items, strategy, condition="item.a == b", group_by="a.b", include_distribution=True)
    json.dumps(found)
    if strategy in ("stats", "summary"):
        assert found["total_items"] == len(items)
    if strategy == "group":
        assert sum(map(len, found.values())) == len(items) - items.count(FAILED)


@given(st.lists(SCALARS, min_size=1))
def test_the_rates_of_a_field_come_to_one(values: list[Any]) -> None:
    found = made([{"a": value} for value in values], "summary", summary_fields=("a",))
    assert sum(found["counts"]["a"].values()) == len(values)
    assert sum(found["rates"]["a"].values()) == pytest.approx(1)
