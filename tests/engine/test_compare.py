"""Baselines made of batches, and batches held against them."""

from __future__ import annotations

import re
from math import inf, nan
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalloom.analysis.compare import Change, Comparison
from evalloom.batchlog import BASELINES, FOLDER, Log, baseline_runs, read_baseline
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Batch, Profile, Run, Scored, Status, Usage, Verdict
from evalloom.engine.baseline import save
from evalloom.engine.compare import ComparisonRequest, ComparisonResult, compare
from evalloom.engine.compare_runs import runs_of
from evalloom.engine.system import Catalog

pytestmark = pytest.mark.req("PIPE-17")

P, F, E = "passed", "failed", "error"
Cases = dict[str, list[Any]]
"""The statuses of the repeats of each case."""


def a_batch(home: Path, id: str, results: dict[str, Cases], **more: Any) -> Path:
    """A batch in which each profile has these results."""
    profiles = more.pop("profiles", [Profile(name) for name in results])
    log = Log(home / FOLDER / id, Batch(id, "then", profiles=profiles, **{"finished_at": "later", **more}))
    for profile, cases in results.items():
        for number, (case, statuses) in enumerate(cases.items(), 1):
            for repeat, status in enumerate(statuses):
                run = a_run(f"{profile}/{number}/{repeat}", case.rstrip("'"), status, profile)
                log.append_run(Run(**{**run, "number": number, "repeat": repeat}))
                if status != E:
                    log.append_scored(scored(run["key"], status))
    log.close()
    return log.path


def a_run(key: str, case: str, status: Status, profile: str) -> dict[str, Any]:
    error = "no answer came [timeout]" if status == E else ""
    usage = Usage(input_tokens=8, output_tokens=2, cost=0.5, calls=1)
    raw = {"id": case, "q": f"what is {case}?"}
    return {"key": key, "case_id": case, "profile": profile, "error": error, "raw": raw, "usage": usage, "tags": ("t",)}


def scored(key: str, status: Status) -> Scored:
    score = {P: 1.0, F: 0.25}.get(status)
    return Scored(key, status, score, [Verdict("exact", "exact", "output", status, score, f"it {status}")])


def one(statuses: str) -> Cases:
    """`"pf"` is a case that passed and one that failed."""
    names = {"p": P, "f": F, "e": E, "s": "skipped", "b": "blocked", "u": "unscored"}
    return {f"case{number}": [names[letter]] for number, letter in enumerate(statuses)}


def held(home: Path, batch: str, baseline: str = "", **more: Any) -> ComparisonResult:
    return compare(ComparisonRequest(batch, baseline, home=home, **more), pytest.fail, Catalog())


def test_a_baseline_keeps_what_every_run_came_to(tmp_path: Path) -> None:
    a_batch(tmp_path, "b1", {"p": one("pfe")}, options={"repeat": 1, "output": ["x.csv"]})
    file = save("good", "latest", False, pytest.fail, tmp_path)
    head, (first, failed, error) = read_baseline(file), baseline_runs(file)
    assert file == tmp_path / BASELINES / "good.jsonl"
    assert (head.batch.id, head.runs, head.batch.summary["pass_rate"]) == ("b1", 3, 1 / 3)
    assert head.batch.options == {"repeat": 1}
    assert (first.case_id, first.status, first.tags, first.tokens, first.cost) == ("case0", P, ("t",), 10, 0.5)
    assert failed.checks == (("exact", F, 0.25),) and failed.reason == "" and len(failed.digest) == 16
    assert (error.status, error.latency_s, error.score) == (E, None, None)


def test_a_name_is_replaced_only_by_force(tmp_path: Path) -> None:
    a_batch(tmp_path, "b1", {"p": one("p")})
    a_batch(tmp_path, "b2", {"p": one("pp")})
    save("good", "b1", False, pytest.fail, tmp_path)
    with pytest.raises(EvalloomError, match="Replace it with --force") as caught:
        save("good", "b2", False, pytest.fail, tmp_path)
    assert (caught.value.code, caught.value.exit_code) == ("baseline_exists", 2)
    assert read_baseline(save("good", "b2", True, pytest.fail, tmp_path)).runs == 2


def test_an_unfinished_batch_is_kept_only_by_force(tmp_path: Path) -> None:
    a_batch(tmp_path, "b1", {"p": one("p")}, finished_at="")
    with pytest.raises(EvalloomError) as caught:
        save("good", "b1", False, pytest.fail, tmp_path)
    assert (caught.value.code, caught.value.exit_code) == ("unfinished_batch", 2)
    assert save("good", "b1", True, pytest.fail, tmp_path).is_file()
    warned: list[str] = []
    compare(ComparisonRequest("b1", "good", home=tmp_path), warned.append, Catalog())
    assert len(warned) == 2 and "only its finished runs are compared" in warned[0]


def test_a_batch_that_is_being_written_is_never_kept(tmp_path: Path) -> None:
    path = a_batch(tmp_path, "b1", {"p": one("p")})
    log = Log.resume(path)
    with pytest.raises(EvalloomError, match="another process is writing") as caught:
        save("good", "b1", True, pytest.fail, tmp_path)
    log.close()
    assert caught.value.code == "batch_in_use"


def test_a_baseline_of_nothing_scored_is_saved_with_a_warning(tmp_path: Path) -> None:
    a_batch(tmp_path, "b1", {"p": one("us")})
    warned: list[str] = []
    save("empty", "b1", False, warned.append, tmp_path)
    assert len(warned) == 1 and "nothing can be compared with it" in warned[0]
    with pytest.raises(EvalloomError, match="no case of b1 can be compared with empty: 2 not comparable") as caught:
        held(tmp_path, "b1", "empty")
    assert (caught.value.code, caught.value.exit_code) == ("nothing_to_compare", 2)


def test_a_batch_against_a_baseline_and_against_a_batch_is_the_same(tmp_path: Path) -> None:
    a_batch(tmp_path, "b1", {"p": one("ppfs")})
    a_batch(tmp_path, "b2", {"p": one("pfppp")})
    file = save("good", "b1", False, pytest.fail, tmp_path)
    found = [
        held(tmp_path, "b2", name).comparisons for name in ("good", "b1", str(file), str(tmp_path / FOLDER / "b1"))
    ]
    assert all(other == found[0] for other in found)
    [comparison] = found[0]
    assert comparison.counts == {"gained": 1, "lost": 1, "same": 1, "new": 1, "gone": 0, "not comparable": 1}
    lost = next(change for change in comparison.changes if change.change == "lost")
    assert (lost.case_id, lost.severity, lost.reason) == ("case1", "major", "exact: it failed")
    assert comparison.latency_s is not None and comparison.cost == 1.5


def test_repeats_count_by_the_share_that_passed(tmp_path: Path) -> None:
    a_batch(tmp_path, "b1", {"p": {"a": [P, P, P], "b": [F, P, F], "c": [P, P, P], "d": ["skipped", P]}})
    a_batch(tmp_path, "b2", {"p": {"a": [P, F, P], "b": [P, P, P], "c": [E, F, E], "d": [P, P]}})
    [comparison] = held(tmp_path, "b2", "b1").comparisons
    assert {one.case_id: (one.change, one.severity) for one in comparison.changes} == {
        "a": ("lost", "minor"),
        "b": ("gained", ""),
        "c": ("lost", "critical"),
    }
    assert comparison.figures.difference == pytest.approx((2 / 3 + 1 + 0 + 1 - 1 - 1 / 3 - 1 - 1) / 4)


def test_cases_of_one_id_are_told_apart_by_their_place(tmp_path: Path) -> None:
    path = a_batch(tmp_path, "b1", {"p": {"a": [P, P], "a'": [F, F], "b": [P]}, "q": {"a": [P]}})
    assert [(one.profile, one.case_id, one.occurrence, one.repeat) for one in runs_of(path)] == [
        ("p", "a", 1, 0),
        ("p", "a", 1, 1),
        ("p", "a", 2, 0),
        ("p", "a", 2, 1),
        ("p", "b", 1, 0),
        ("q", "a", 1, 0),
    ]


def test_profiles_meet_by_name_or_as_the_only_ones(tmp_path: Path) -> None:
    a_batch(tmp_path, "one", {"x": one("p")})
    a_batch(tmp_path, "two", {"y": one("f")})
    a_batch(tmp_path, "many", {"x": one("p"), "y": one("f"), "z": one("p")})

    def pairs(*names: str, **more: Any) -> list[tuple[str, str]]:
        return [(one.profile, one.base_profile) for one in held(tmp_path, *names, **more).comparisons]

    assert pairs("two", "one") == [("y", "x")]
    assert pairs("many", "one") == [("x", "x")] and pairs("one", "many") == [("x", "x")]
    assert pairs("many", "many") == [("x", "x"), ("y", "y"), ("z", "z")]
    assert pairs("many", "one", baseline_profile="x") == [("x", "x"), ("y", "x"), ("z", "x")]
    assert pairs("two", "many", profile="y", baseline_profile="z") == [("y", "z")]


def test_profiles_of_one_batch_are_compared_with_its_base(tmp_path: Path) -> None:
    cases = {name: one("pf") for name in ("a", "b", "baseline")}
    a_batch(tmp_path, "named", cases)
    a_batch(tmp_path, "first", {"a": one("pf"), "b": one("pp")})
    variants = [Profile(f"{llm}/{kind}", run=llm, variant=kind) for llm in "xy" for kind in ("v2", "baseline")]
    a_batch(tmp_path, "variants", {one_.name: one("p") for one_ in variants}, profiles=variants)

    def pairs(*names: str, **more: Any) -> list[tuple[str, str]]:
        return [(one.profile, one.base_profile) for one in held(tmp_path, *names, **more).comparisons]

    assert pairs("named") == [("a", "baseline"), ("b", "baseline")]
    assert pairs("first") == [("b", "a")] and pairs("named", baseline_profile="b", profile="a") == [("a", "b")]
    assert pairs("variants") == [("x/v2", "x/baseline"), ("y/v2", "y/baseline")]
    assert held(tmp_path, "first").comparisons[0].counts["gained"] == 1


@pytest.mark.parametrize(
    ("asked", "code", "told"),
    [
        (ComparisonRequest("b1"), "nothing_to_compare", "Name a baseline or another batch: --against NAME"),
        (
            ComparisonRequest("b2", "b1"),
            "nothing_to_compare",
            "no profile is in both: q, r now, p in b1. Name the two",
        ),
        (
            ComparisonRequest("b2", profile="q"),
            "nothing_to_compare",
            "q is the profile that others are compared with",
        ),
        (
            ComparisonRequest("b2", "b1", profile="s"),
            "unknown_profile_in_batch",
            "--profile: b2 has no profile 's'. It has q, r",
        ),
        (ComparisonRequest("b1", "goood"), "no_baseline", "Did you mean 'good'?"),
        (ComparisonRequest("b1", "none"), "no_baseline", "'evalloom batches list' show what there is"),
        (ComparisonRequest("none", "good"), "no_batch", "there is no batch 'none'"),
    ],
)
def test_what_cannot_be_compared_is_wrong_usage(tmp_path: Path, asked: ComparisonRequest, code: str, told: str) -> None:
    a_batch(tmp_path, "b1", {"p": one("p")})
    a_batch(tmp_path, "b2", {"q": one("p"), "r": one("p")})
    save("good", "b1", False, pytest.fail, tmp_path)
    with pytest.raises(EvalloomError) as caught:
        held(tmp_path, asked.batch, asked.baseline, profile=asked.profile)
    assert (caught.value.code, caught.value.exit_code) == (code, 2) and told in str(caught.value)


def test_a_damaged_baseline_is_no_traceback(tmp_path: Path) -> None:
    a_batch(tmp_path, "b1", {"p": one("ppp")})
    file = save("good", "b1", False, pytest.fail, tmp_path)
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(EvalloomError) as caught:
        held(tmp_path, "b1", "good")
    assert (caught.value.code, caught.value.exit_code) == ("bad_baseline", 3)


REPEATS = st.lists(st.sampled_from([P, F, E, "skipped", "blocked", "unscored"]), min_size=1, max_size=3)


@settings(max_examples=30)
@given(st.lists(REPEATS, max_size=6), st.floats(0, 1), st.randoms(), st.booleans())
def test_a_batch_is_no_regression_of_itself(cases: list[Any], drop: float, chance: Random, is_numbered: bool) -> None:
    """Also when the lines of the log and of the baseline stand in any order, and no case has a number."""
    with TemporaryDirectory() as folder:
        home = Path(folder)
        path = a_batch(home, "b1", {"p": {f"c{number}": found for number, found in enumerate([*cases, [P, F]])}})
        file = save("good", "b1", False, pytest.fail, home)
        if not is_numbered:
            runs = path / "runs.jsonl"
            runs.write_text(re.sub(r'"number":\d+', '"number":0', runs.read_text()))
        shuffle(path / "runs.jsonl", chance, 0)
        shuffle(file, chance, 1)
        found = held(home, "b1", "good", allowed_drop=drop, by=("tag",))
    assert not found.is_bad and found.severity == "" and found.differences == [] and found.is_same_batch
    [comparison] = found.comparisons
    assert comparison.figures.difference == 0.0 and comparison.changes == unseen(comparison)
    assert sum(comparison.counts.values()) == len(cases) + 1


def unseen(comparison: Comparison) -> list[Change]:
    """The cases that have no result on either side."""
    return [change for change in comparison.changes if change.change == "not comparable" and not change.severity]


def shuffle(file: Path, chance: Random, head: int) -> None:
    """Puts the lines of a file in another order, all but the first so many."""
    lines = file.read_bytes().splitlines(keepends=True)
    rest = lines[head:]
    chance.shuffle(rest)
    file.write_bytes(b"".join(lines[:head] + rest))


def test_a_run_that_stands_twice_in_a_baseline_is_refused(tmp_path: Path) -> None:
    a_batch(tmp_path, "b1", {"p": {"a": [P, F], "b": [P, P]}})
    file = save("good", "b1", False, pytest.fail, tmp_path)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:-1], lines[1]]))
    with pytest.raises(EvalloomError, match="twice: case 'a', profile 'p', repeat 0") as caught:
        held(tmp_path, "b1", "good")
    assert caught.value.code == "bad_baseline"


@pytest.mark.parametrize("drop", [nan, inf, -0.1, 1.1])
def test_an_allowed_drop_is_a_share(tmp_path: Path, drop: float) -> None:
    with pytest.raises(EvalloomError, match="--allowed-drop: expected a number from 0 to 1") as caught:
        held(tmp_path, "b1", "good", allowed_drop=drop)
    assert (caught.value.code, caught.value.exit_code) == ("bad_allowed_drop", 2)


def test_a_profile_may_be_named_by_its_variant_where_it_is_the_only_one(tmp_path: Path) -> None:
    variants = [Profile("x@v1", variant="v1"), Profile("x@v2", variant="v2"), Profile("y@v2", variant="v2")]
    a_batch(tmp_path, "b1", {one_.name: one("p") for one_ in variants}, profiles=variants)
    found = held(tmp_path, "b1", "b1", profile="x@v2", baseline_profile="v1").comparisons
    assert [(one.profile, one.base_profile) for one in found] == [("x@v2", "x@v1")]
    with pytest.raises(EvalloomError, match="no profile 'v2', and several of that variant: x@v2, y@v2"):
        held(tmp_path, "b1", "b1", profile="v2")


def test_a_choice_of_cases_is_held_against_the_whole(tmp_path: Path) -> None:
    a_batch(tmp_path, "b1", {"p": one("pppp")})
    a_batch(tmp_path, "b2", {"p": one("p")}, options={"tags": ["smoke"], "filter": "", "limit": None})
    a_batch(tmp_path, "b3", {"p": one("p")}, options={"tags": [], "filter": "", "limit": None})
    assert not held(tmp_path, "b2", "b1").is_bad
    found = held(tmp_path, "b3", "b1")
    assert (found.is_regression, found.is_comparable, found.is_bad, found.is_same_batch) == (False, False, True, False)


def test_figures_beyond_measure_are_kept_within_what_can_be_read(tmp_path: Path) -> None:
    log = Log(tmp_path / FOLDER / "b1", Batch("b1", "then", profiles=[Profile("p")], finished_at="later"))
    log.append_run(Run("k", "a", "p", duration_s=1e300, usage=Usage(cost=1e308, calls=1)))
    log.append_scored(Scored("k", "passed", -1e300))
    log.close()
    save("good", "b1", False, pytest.fail, tmp_path)
    assert not held(tmp_path, "b1", "good").is_bad
