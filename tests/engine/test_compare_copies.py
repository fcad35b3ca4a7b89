"""Big batches are compared by Parquet copies of their results, with the same outcome as run by run."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from evalloom.analysis.compare import Comparison
from evalloom.batchlog import FOLDER, Log
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Batch, Profile, Run, Scored, Status, Usage, Verdict
from evalloom.engine import compare as module
from evalloom.engine.compare import ComparisonRequest, ComparisonResult, compare
from evalloom.engine.system import Catalog

pytestmark = [pytest.mark.req("WORK-7"), pytest.mark.req("WORK-41")]
COUNTED = ("passed", "failed", "error")
STATUSES = (*COUNTED, "skipped", "blocked", "unscored")
Item = tuple[Run, Scored | None]


def some_items(dice: Random, case: int, profile: str, repeats: int) -> list[Item]:
    """The runs of one case, some of which may be missing. Several cases share an id."""
    id = f"c{case % 9}"
    tags = tuple(dice.choices(["critical", "geo", "oral"], k=dice.choice([0, 1, 1, 2])))
    missing = dice.choice([0, 0, 0, 0, 1, repeats])
    found: list[Item] = []
    for repeat in range(repeats - missing):
        status = dice.choice((*STATUSES, *COUNTED, "passed", "passed", "passed", "failed"))
        states = {name: f"{name}!" for name in ("error", "skipped", "blocked") if name == status}
        key = f"{profile}/{case}/{repeat}"
        usage = Usage(dice.choice([0, 7, 30]), 0, dice.choice([0.0, 0.5]), 1, cached=dice.choice([0, 0, 0, 1]))
        run = Run(key, id, profile, repeat, case, tags=tags, raw={"id": id}, usage=usage, **states)  # type: ignore[arg-type]
        found.append(changed(dice, "latency", (run, a_score(dice, key, status))))
    return found


def a_score(dice: Random, key: str, status: Any) -> Scored | None:
    score = dice.choice([None, 0.0, 0.5, 1.0])
    verdict = Verdict("exact", "exact", "output", status, score, f"it {status}")
    return Scored(key, status, score, [verdict]) if status in ("passed", "failed") else None


def changed(dice: Random, what: str, item: Item) -> Item:
    """Return a run that differs in one respect."""
    run, scored = item
    if what == "latency":
        return structs.replace(run, duration_s=dice.choice([0.25, 1.0, 2.0])), scored
    if what == "usage":
        return structs.replace(run, usage=Usage(dice.choice([0, 9]), 0, 0.25, 1)), scored
    if what == "record":
        return structs.replace(run, raw={"id": run.case_id, "edited": 1}), scored
    if what == "tags":
        return structs.replace(run, tags=(*run.tags, "geo")), scored
    return run, a_score(dice, run.key, scored.status) if scored else None


def two_sides(dice: Random) -> tuple[list[Item], list[Item]]:
    """The runs of two batches; most cases are alike, or differ in one respect."""
    repeats = dice.choice([1, 2, 3])
    before, now = [], []
    for profile in ("a", "b"):
        for case in range(1, dice.randrange(1, 20)):
            drawn = some_items(dice, case, profile, repeats)
            before += drawn
            what = dice.choice(["", "", "all", "latency", "usage", "record", "tags", "score", "score"])
            redrawn = some_items(dice, case, profile, repeats) if what == "all" else drawn
            now += [changed(dice, what, item) for item in redrawn] if what not in ("", "all") else redrawn
    return before, now


def write(home: Path, id: str, items: list[Item], **options: Any) -> Path:
    profiles = [Profile("a"), Profile("b")]
    log = Log(home / FOLDER / id, Batch(id, "then", profiles=profiles, finished_at="later", options=options))
    # The order of a log is the order in which runs end.
    for run, scored in sorted(items, key=lambda item: item[0].key[::-1]):
        log.append_run(run)
        if scored is not None:
            log.append_scored(scored)
    log.close()
    return log.path


def both_ways(request: ComparisonRequest, warn: Any = pytest.fail) -> tuple[ComparisonResult | str, ...]:
    """Compare run by run, with copies to build, and with copies that exist."""
    results: list[ComparisonResult | str] = []
    for size in (module.BIG_LOG, 0, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "BIG_LOG", size)
            try:
                results.append(compare(request, warn, Catalog()))
            except EvalloomError as error:
                results.append(str(error))
    return tuple(results)


RULES: list[dict[str, Any]] = [
    {},
    {"by": ("tag",)},
    {"by": ("bucket", "tag"), "allowed_drop": 0.25},
    {"is_strict": True, "allowed_drop": 0.0},
]


@settings(max_examples=40, deadline=None)
@given(dice=st.randoms(use_true_random=True), rules=st.sampled_from(RULES), pass_if=st.sampled_from([None, 0.5]))
def test_copies_give_what_the_runs_give(dice: Random, rules: dict[str, Any], pass_if: float | None) -> None:
    sides = two_sides(dice)
    with TemporaryDirectory() as name:
        home = Path(name)
        for id, items in zip(("before", "now"), sides, strict=True):
            write(home, id, items, repeat=3, pass_if=pass_if)
        by_run, first, again = both_ways(ComparisonRequest("now", "before", home=home, **rules), lambda message: None)
        assert by_run == first == again
        if isinstance(again, ComparisonResult):
            for comparison in again.comparisons:
                check_by_definition(comparison, *sides, pass_if)


def check_by_definition(found: Comparison, before: list[Item], now: list[Item], pass_if: float | None) -> None:
    """Check a comparison against its definition, computed case by case with exact fractions."""
    old, new = (by_case(items, found.profile, pass_if) for items in (before, now))
    kinds = {case: kind_of(old.get(case), new.get(case)) for case in old | new}
    assert found.counts == {kind: 0 for kind in found.counts} | Counter(kinds.values())
    compared = [case for case in kinds if kinds[case] in ("gained", "lost", "same")]
    figures = found.figures
    assert (figures.cases, figures.gained, figures.lost) == (
        len(compared),
        found.counts["gained"],
        found.counts["lost"],
    )
    if compared:
        assert figures.base_rate == pytest.approx(float(sum(old[case][0] for case in compared) / len(compared)))
        assert figures.rate == pytest.approx(float(sum(new[case][0] for case in compared) / len(compared)))
    for group in found.tags:
        members = [case for case in compared if group.name in new[case][1].tags]
        assert (group.cases, group.lost) == (len(members), sum(kinds[case] == "lost" for case in members))
    listed = {(change.case_id, change.occurrence): change for change in found.changes}
    assert {case for case in kinds if kinds[case] != "same"} <= listed.keys()
    assert found.edited == sum(old[case][1].raw != new[case][1].raw for case in compared)
    for case, change in listed.items():
        assert change.change == kinds[case] and (change.share is None) == (case not in new or new[case][0] is None)
        if case in new and new[case][2]:
            assert change.reason == new[case][2]
    assert found.cost == pytest.approx(sum(new[case][3] for case in compared))
    both = [case for case in compared if old[case][4] is not None and new[case][4] is not None]
    assert (found.latency_s.now if found.latency_s else None) == (
        median(new[case][4] for case in both) if both else None
    )


def by_case(items: list[Item], profile: str, pass_if: float | None) -> dict[tuple[str, int], tuple[Any, ...]]:
    """Return the share, the first run, the reason, the cost and the latency of each case by id and occurrence."""
    mine = sorted((item for item in items if item[0].profile == profile), key=lambda item: item[0].number)
    found: dict[tuple[str, int], tuple[Any, ...]] = {}
    for _, group in groupby(mine, lambda item: item[0].number):
        repeats = list(group)
        runs = [run for run, _ in repeats]
        statuses = [status_of(*item) for item in repeats]
        counted = sum(status in COUNTED for status in statuses)
        share: Fraction | None = Fraction(statuses.count("passed"), counted) if counted else None
        if share is not None and pass_if is not None:
            share = Fraction(share >= pass_if)
        reasons = [
            run.error or run.blocked or run.skipped or (f"exact: it {status}" if scored else "")
            for (run, scored), status in zip(repeats, statuses, strict=True)
            if status != "passed"
        ]
        answered = [run.duration_s for run in runs if not (run.error or run.skipped or run.blocked or run.usage.cached)]
        cost = sum(run.usage.cost for run in runs)
        occurrence = 1 + sum(id == runs[0].case_id for id, _ in found)
        latency = sum(answered) / len(answered) if answered else None
        found[runs[0].case_id, occurrence] = (share, runs[0], reasons[0] if reasons else "", cost, latency)
    return found


def status_of(run: Run, scored: Scored | None) -> str:
    if run.error or run.skipped or run.blocked:
        return "error" if run.error else "skipped" if run.skipped else "blocked"
    return scored.status if scored else "unscored"


def kind_of(before: tuple[Any, ...] | None, now: tuple[Any, ...] | None) -> str:
    if before is None or now is None:
        return "new" if before is None else "gone"
    if before[0] is None or now[0] is None:
        return "not comparable"
    return "gained" if now[0] > before[0] else "lost" if now[0] < before[0] else "same"


def simple(statuses: str, **more: Any) -> list[Item]:
    names: dict[str, Status] = {"p": "passed", "f": "failed"}
    return [
        (Run(f"k{number}", f"c{number}", "a", number=number, **more), Scored(f"k{number}", names[letter]))
        for number, letter in enumerate(statuses, 1)
    ]


def test_cases_may_come_in_another_order(tmp_path: Path) -> None:
    write(tmp_path, "before", simple("ppfp"))
    turned = [(Run(run.key, run.case_id, "a", number=9 - run.number), scored) for run, scored in simple("pffp")]
    write(tmp_path, "now", turned)
    by_run, first, again = both_ways(ComparisonRequest("now", "before", home=tmp_path))
    assert isinstance(again, ComparisonResult) and by_run == first == again
    assert [(change.case_id, change.change) for change in again.comparisons[0].changes] == [("c2", "lost")]


def test_profiles_of_one_batch_are_compared_by_its_copy(tmp_path: Path) -> None:
    others = [(Run(f"b{run.key}", run.case_id, "b", number=run.number), scored) for run, scored in simple("pfp")]
    scores = [(run, scored and Scored(run.key, scored.status)) for run, scored in others]
    path = write(tmp_path, "now", simple("ppp") + scores)
    by_run, first, again = both_ways(ComparisonRequest("now", home=tmp_path))
    assert isinstance(again, ComparisonResult) and by_run == first == again
    assert again.comparisons[0].counts["lost"] == 1
    assert [file.name for file in (path / "copy").glob("*.json")] == ["results.json"]


def test_a_changed_log_and_a_damaged_line_are_noticed(tmp_path: Path) -> None:
    write(tmp_path, "before", simple("pppp"))
    path = write(tmp_path, "now", simple("pppp"))
    request = ComparisonRequest("now", "before", home=tmp_path)
    both_ways(request)
    lines = (path / "verdicts.jsonl").read_text().splitlines(keepends=True)
    (path / "verdicts.jsonl").write_text("".join([lines[0].replace("passed", "failed"), "{broken\n", *lines[2:]]))
    warnings: list[str] = []
    by_run, first, again = both_ways(request, warnings.append)
    assert isinstance(again, ComparisonResult) and by_run == first == again
    assert again.comparisons[0].counts["lost"] == 1 and again.comparisons[0].counts["not comparable"] == 1
    assert len(warnings) == 3 and len(set(warnings)) == 1 and "log_mended" in warnings[0]


def test_a_batch_without_runs_and_one_that_is_running(tmp_path: Path) -> None:
    write(tmp_path, "before", simple("pp"))
    path = write(tmp_path, "now", [])
    by_run, first, again = both_ways(ComparisonRequest("now", "before", home=tmp_path))
    assert by_run == first == again and "2 gone" in str(again)
    log = Log.resume(path)
    for run, scored in simple("pf"):
        log.append_run(run)
        assert scored is not None
        log.append_scored(scored)
    by_run, first, again = both_ways(ComparisonRequest("now", "before", home=tmp_path), lambda message: None)
    log.close()
    assert isinstance(again, ComparisonResult) and by_run == first == again
    assert again.comparisons[0].counts["lost"] == 1


def test_the_copy_for_queries_stays_beside_the_results(tmp_path: Path) -> None:
    from evalloom import catalog
    from evalloom.analysis.views import open_views

    write(tmp_path, "before", simple("pp"))
    path = write(tmp_path, "now", simple("pf"))
    open_views(path, catalog.load()).close()
    both_ways(ComparisonRequest("now", "before", home=tmp_path))
    open_views(path, catalog.load()).close()
    names = sorted(file.name.partition("-")[0] for file in (path / "copy").iterdir())
    assert names == ["cases", "index.json", "results", "results.json", "runs"]


def test_a_log_that_cannot_be_copied_is_read_run_by_run(tmp_path: Path) -> None:
    write(tmp_path, "before", simple("pp"))
    path = write(tmp_path, "now", simple("pf", position=2**70))
    by_run, first, again = both_ways(ComparisonRequest("now", "before", home=tmp_path))
    assert isinstance(again, ComparisonResult) and by_run == first == again
    assert again.comparisons[0].changes[0].position == 2**70
    assert not list((path / "copy").iterdir())


def test_any_text_is_copied_as_it_is(tmp_path: Path) -> None:
    names = ["", "\0", "a\0b", "'\"\\", "\u2028 \U0001f600", "null", "[]", "2026-01-05"]
    for id, status in (("before", "passed"), ("now", "failed")):
        items: list[Item] = [
            (
                Run(str(number), name, "a", number=number, tags=(name, "t")),
                Scored(str(number), status, None, [Verdict(name, "exact", "", status, reason=name)]),  # type: ignore[arg-type]
            )
            for number, name in enumerate(names)
        ]
        write(tmp_path, id, items)
    by_run, first, again = both_ways(ComparisonRequest("now", "before", home=tmp_path, by=("tag",)))
    assert isinstance(again, ComparisonResult) and by_run == first == again
    assert [change.case_id for change in again.comparisons[0].changes] == names
