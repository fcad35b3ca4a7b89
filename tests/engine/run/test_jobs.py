"""What there is to run, and the keys under which it is known again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.model import Case, Profile, Record
from evalloom.engine.run import Jobs, Keys, SelectedCase, numbered

TEXTS = st.text(st.characters(), max_size=8)  # with lone surrogates
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=4)


def key(
    inputs: Record, id: str = "a", occurrence: int = 1, repeat: int = 0, target: str = "t", profile: str = "p"
) -> str:
    return Keys(target, {"name": profile}).of("name", Case(id, inputs), occurrence, repeat)


@given(OBJECTS)
def test_the_order_of_inputs_does_not_matter(inputs: Record) -> None:
    assert key(inputs) == key(dict(reversed(inputs.items())))


@given(OBJECTS, OBJECTS)
def test_other_inputs_have_another_key(one: Record, other: Record) -> None:
    assert (key(one) == key(other)) == (json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True))


@pytest.mark.parametrize("more", [{"id": "b"}, {"occurrence": 2}, {"repeat": 1}, {"target": "u"}, {"profile": "q"}])
def test_everything_that_makes_a_run_is_in_its_key(more: dict[str, Any]) -> None:
    assert key({"x": 1}) == key({"x": 1})
    assert key({"x": 1}, **more) != key({"x": 1})


def test_profiles_of_the_same_content_are_different_runs() -> None:
    keys = Keys("target", {"a": "same", "b": "same"})
    assert keys.of("a", Case("1", {}), 1, 0) != keys.of("b", Case("1", {}), 1, 0)


def test_every_case_runs_under_every_profile_as_often_as_asked() -> None:
    cases = [SelectedCase(Case(id, {}), "jsonl") for id in ("a", "b", "a")]
    jobs = Jobs(numbered(cases), (Profile("p"), Profile("q")), 2, Keys("t", {"p": "1", "q": "2"}))
    found = list(jobs)
    order = [("a", 1, "p", 0), ("a", 1, "p", 1), ("a", 1, "q", 0), ("a", 1, "q", 1), ("b", 2, "p", 0)]
    assert [(job.case.id, job.number, job.profile.name, job.repeat) for job in found][:5] == order
    assert len({job.key for job in found}) == jobs.total == 12


def test_what_goes_in_beside_the_inputs_makes_another_run() -> None:
    plain, other = (Case("1", {}, meta={"extra": value, "note": value}) for value in "ab")
    of = Keys("t", {"p": ""}, beside=["extra"]).of
    assert of("p", plain, 1, 0) != of("p", other, 1, 0)
    alike = Keys("t", {"p": ""}).of
    assert alike("p", plain, 1, 0) == alike("p", other, 1, 0)


def test_what_is_done_is_counted_and_not_run_again() -> None:
    cases = [SelectedCase(Case(id, {})) for id in "abc"]
    keys = Keys("t", {"p": "1"})
    done = {job.key for job in Jobs(cases[:2], (Profile("p"),), 1, keys)}
    jobs = Jobs(cases, (Profile("p"),), 1, keys, done)
    assert [job.case.id for job in jobs] == ["c"]
    assert (jobs.total, jobs.done_before) == (3, 2)


@given(st.lists(st.sampled_from("abc")), st.data())
def test_a_choice_changes_neither_numbers_nor_keys(ids: list[str], data: st.DataObject) -> None:
    keys, profiles = Keys("t", {"p": "1"}), (Profile("p"),)
    whole = list(numbered(SelectedCase(Case(id, {})) for id in ids))
    every = {job.number: job.key for job in Jobs(whole, profiles, 1, keys)}
    chosen = [one for one in whole if data.draw(st.booleans())]
    assert [(job.number, job.key) for job in Jobs(chosen, profiles, 1, keys)] == [
        (one.number, every[one.number]) for one in chosen
    ]
    assert len(set(every.values())) == len(every) == len(ids)
