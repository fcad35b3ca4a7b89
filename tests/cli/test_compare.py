"""`evalloom baseline` and `evalloom compare`: what is typed, what is told, and the exit code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.req("PIPE-17")

Call = Callable[..., Any]


@pytest.fixture
def call(in_process: Call) -> Call:
    """In a folder with a prompt; the echo answers with the question."""
    Path("prompt.md").write_text("{{q}}", encoding="utf-8")
    return in_process


def ran(call: Call, answers: str, *more: str, prompt: str = "prompt.md") -> str:
    """A batch in which case 0, 1, … is answered by these letters; `y` is right."""
    rows = [
        {
            "id": f"c{number}",
            "tags": ["even"] if number % 2 == 0 else ["odd", "critical"],
            "q": letter,
            "expected_output": "y",
        }
        for number, letter in enumerate(answers)
    ]
    Path("cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    profiles = more or ("--profile", "echo")
    done = call("run", "cases.jsonl", "--target", f"prompt:{prompt}", *profiles, "--json")
    return str(json.loads(done.out)["batch"])


def test_save_list_show_and_rm(call: Call) -> None:
    assert "No baselines yet. 'evalloom baseline save NAME' saves one." in call("baseline", "list").out
    id = ran(call, "yyn")
    done = call("baseline", "save", "good")
    assert (done.code, done.err) == (0, "") and "saved .evalloom/baselines/good.jsonl" in done.out
    listed = call("baseline", "list").out
    assert "good" in listed and id in listed and "66.7%" in listed
    assert json.loads(call("baseline", "list", "--json").out)["batch"]["id"] == id
    assert "runs      3, pass rate 66.7%" in call("baseline", "show", "good").out
    assert json.loads(call("baseline", "show", "good", "--json").out)["runs"] == 3
    assert "removed .evalloom/baselines/good.jsonl" in call("baseline", "rm", "good").out
    assert call("baseline", "show", "good").code == 2


def test_save_takes_a_batch_and_replaces_by_force(call: Call) -> None:
    first, _ = ran(call, "y"), ran(call, "yy")
    assert call("baseline", "save", "good", first).code == 0
    done = call("baseline", "save", "good")
    assert done.code == 2 and "[baseline_exists]" in done.err
    assert call("baseline", "save", "good", "--force").code == 0
    assert json.loads(call("baseline", "show", "good", "--json").out)["runs"] == 2
    assert call("baseline", "save", "../good").code == 2 and call("baseline", "save", "x", "none").code == 2


def test_no_regression(call: Call) -> None:
    ran(call, "yyny")
    call("baseline", "save", "good")
    done = call("compare", "latest", "--baseline", "good")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(
        "NO REGRESSION SHOWN: echo against good: no difference shown, +0.0 points (95 % CI -46.2 to +46.2); 0 of 4 cases "
        "flipped; a drop of up to 46.2 points is not excluded; about 1,192 more cases would show a change of 5 points\n"
    )
    assert "4 cases can never show a difference: it takes 6 that change the same way." in done.out
    assert "Both sides are the batch 2" in done.out and "(change" not in done.out


def test_cases_that_are_gone_are_told_in_the_verdict(call: Call) -> None:
    ran(call, "y")
    call("baseline", "save", "one")
    ran(call, "yyyyyy")
    call("baseline", "save", "good")
    ran(call, "yyyy")
    assert call("compare", "latest", "--against", "good").code == 0
    done = call("compare", "latest", "--against", "good", "--strict")
    assert done.code == 1 and done.out.startswith("REGRESSION (critical): echo against good: 2 of 6 cases cannot be ")
    assert "It is a regression because 1 case is of critical severity." in done.out
    assert "critical  c5: passed → gone" in done.out
    rows = Path("cases.jsonl").read_text().replace('"critical"', '"calm"').splitlines()
    Path("cases.jsonl").write_text(rows[0], encoding="utf-8")
    call("run", "cases.jsonl", "--target", "prompt:prompt.md", "--profile", "echo")
    Path(".evalloom/baselines/good.jsonl").write_text(
        Path(".evalloom/baselines/good.jsonl").read_text().replace('"critical"', '"calm"'), encoding="utf-8"
    )
    done = call("compare", "latest", "--baseline", "good")
    assert done.code == 1 and done.out.startswith("NOT COMPARABLE: echo against good: 5 of 6 cases cannot be compared")
    assert "More than half of what passed has no result now." in done.out
    assert call("compare", "latest", "--baseline", "one").code == 0


def test_a_regression_is_told_with_its_cases_and_what_differs(call: Call) -> None:
    ran(call, "y" * 8)
    call("baseline", "save", "good")
    id = ran(call, "ynyyyyyyz")
    lenient = call("compare", "latest", "--against", "good", "--by", "tag")
    assert lenient.code == 0 and "--strict decides at once" in " ".join(lenient.out.split())
    done = call("compare", "latest", "--against", "good", "--by", "tag", "--strict")
    assert "decides at once" not in done.out
    assert done.code == 1 and done.out.startswith(
        "REGRESSION (critical): echo against good: no difference shown, -12.5"
    )
    assert (
        "because the allowed drop is 0 points, and 2 tags fell: critical, odd, and 1 case is of critical severity."
        in done.out
    )
    assert (
        "Rule: any drop is a regression, and any case of critical severity (--strict). An unchanged system may drop"
        in done.out
    )
    assert (
        "  critical  c1: passed → failed (the case was edited)\n            structural: expected 'y', got 'n'"
        in done.out
    )
    assert "p is corrected for 4 comparisons at once (Holm)." in done.out
    assert "1 case new: c8" in done.out and "the dataset changed: cases.jsonl" in done.out
    assert done.out.endswith(f"Next: evalloom batches show {id} --case c1\n")


@pytest.mark.parametrize(("drop", "code"), [("0", 1), ("0.12", 1), ("0.125", 0), ("1", 0)])
def test_a_drop_may_be_allowed(call: Call, drop: str, code: int) -> None:
    ran(call, "y" * 8)
    call("baseline", "save", "good")
    ran(call, "nyyyyyyy")
    assert call("compare", "latest", "--baseline", "good", "--allowed-drop", drop).code == code


def test_json_has_everything(call: Call) -> None:
    before, now = ran(call, "y" * 16), ran(call, "n" * 14 + "yy")
    found = json.loads(call("compare", now, "--against", before, "--by", "tag", "--json").out)
    assert (found["batch"], found["baseline"], found["is_regression"], found["severity"]) == (
        now,
        before,
        True,
        "critical",
    )
    [comparison] = found["comparisons"]
    assert comparison["figures"]["judgement"] == "worse" and comparison["figures"]["p_value"] == pytest.approx(
        8 / 2**14
    )
    assert [tag["name"] for tag in comparison["tags"]] == ["critical", "even", "odd"]
    assert len(comparison["changes"]) == comparison["counts"]["lost"] == 14
    assert found["differences"][0]["what"] == "datasets"


def test_profiles_of_one_batch_are_compared(call: Call) -> None:
    Path("other.yaml").write_text("rules:\n  - {match: {contains: n}, answer: y}\n  - {answer: y}\n", encoding="utf-8")
    ran(call, "nnnnnnny", "--profile", "echo", "--profile", "scripted:other.yaml")
    done = call("compare", "latest")
    assert done.code == 0 and done.out.startswith(
        "NO REGRESSION: scripted:other.yaml against echo: better, +87.5 points (95 % CI "
    )
    assert "a drop is excluded" in done.out and "7 cases gained: c0, c1, c2, c3, c4 … and 2 more" in done.out
    assert call("compare", "latest", "--baseline-profile", "scripted:other.yaml").code == 1
    assert call("compare", "latest", "--baseline-profile", "none").code == 2


def test_many_losses_are_cut(call: Call) -> None:
    ran(call, "y" * 30)
    call("baseline", "save", "good")
    ran(call, "n" * 30)
    out = call("compare", "latest", "--baseline", "good").out
    assert out.count(": passed → failed") == 20 and "… and 10 more; --json lists all" in out


NOISY = """
import random
def answer(q):
    return "y" if random.random() < float(q) else "n"
"""


@pytest.mark.req("WORK-7")
def test_the_repeats_of_a_batch_tell_how_noisy_it_is(call: Call) -> None:
    Path("noisy.py").write_text(NOISY, encoding="utf-8")
    rows = [{"id": f"c{number}", "q": str(number % 2 / 2), "expected_output": "n"} for number in range(20)]
    Path("cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    call("run", "cases.jsonl", "--target", "python:noisy.py:answer", "--repeat", "6")
    noise = json.loads(call("compare", "latest", "--self", "--json").out)["profiles"][0]
    assert (noise["cases"], noise["repeats"], noise["comparisons"]) == (20, 6, 15)
    assert 0 < noise["flipped"] <= 10 and 0 < noise["flaky"] <= 10 and noise["lowest_rate"] <= noise["highest_rate"]
    assert noise["detectable"]["1"] > noise["detectable"]["6"] > 6 / 22
    done = call("compare", "latest", "--self")
    assert done.code == 0 and "flip between two repeats, though nothing changed" in done.out
    assert f"  {noise['flakiest'][0]['case_id']}: {noise['flakiest'][0]['passed']} of 6\n" in done.out


@pytest.mark.req("WORK-6")
def test_a_flaky_case_without_an_id_is_shown_with_its_number(call: Call) -> None:
    Path("noisy.py").write_text(NOISY, encoding="utf-8")
    tests = [{"vars": {"q": q}, "assert": [{"type": "equals", "value": "n"}]} for q in ("0", "0.5")]
    Path("tests.json").write_text(json.dumps(tests), encoding="utf-8")
    call("run", "tests.json", "--target", "python:noisy.py:answer", "--repeat", "40")
    shown = call("compare", "latest", "--self").out
    assert re.search(r"  [0-9a-f]{12} \(case 2 of its file\): \d+ of 40\n", shown)


@pytest.mark.req("WORK-8")
def test_a_repeated_case_is_compared_by_its_repeats(call: Call) -> None:
    answers = [f"rules:\n  - {{match: a, answers: [{', '.join(turns)}]}}\n" for turns in ("yyy", "ynn")]
    Path("cases.jsonl").write_text('{"id": "c", "q": "a", "expected_output": "y"}\n', encoding="utf-8")
    for text in answers:
        Path("answers.yaml").write_text(text, encoding="utf-8")
        call(
            "run", "cases.jsonl", "--target", "prompt:prompt.md", "--profile", "scripted:answers.yaml", "--repeat", "3"
        )
    done = call("compare", "latest", "--against", batch_ids()[1])
    assert "  minor     c: 3 of 3 → 1 of 3\n" in done.out


@pytest.mark.req("WORK-7")
def test_without_noise_or_repeats_that_is_said(call: Call) -> None:
    ran(call, "yyny")
    done = call("compare", "latest", "--self")
    assert done.code == 2 and "Run it again with --repeat 5" in done.err and "[nothing_to_compare]" in done.err
    ran(call, "yyny", "--profile", "echo", "--repeat", "3")
    assert "NO NOISE: echo: all 3 repeats of 4 cases gave the same results" in call("compare", "latest", "--self").out
    for flags in (("--against", "latest"), ("--strict",), ("--allowed-drop", "0"), ("--by", "tag")):
        refused = call("compare", "latest", "--self", *flags)
        assert refused.code == 2 and f"--self and {flags[0]}: expected one of them, got both" in refused.err
    assert call("compare", "latest", "--self", "--profile", "ecko").code == 2


@pytest.mark.req("WORK-8", "WORK-5")
def test_with_a_pass_rule_compare_shows_the_rate_of_the_run(call: Call) -> None:
    Path("noisy.py").write_text(NOISY, encoding="utf-8")
    rows = [{"id": f"c{number}", "q": "0.5", "expected_output": "n"} for number in range(20)]
    Path("cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    flags = ("run", "cases.jsonl", "--target", "python:noisy.py:answer", "--json", "--pass-if")
    rates = [json.loads(call(*flags, "3/5").out)["pass_rate"] for _ in range(2)]
    found = json.loads(call("compare", "latest", "--against", batch_ids()[1], "--json").out)["comparisons"][0][
        "figures"
    ]
    assert [found["base_rate"], found["rate"]] == pytest.approx(rates)
    call(*flags, "2/4")
    assert "compared by the share that passed" in call("compare", "latest", "--against", batch_ids()[1]).err


def batch_ids() -> list[str]:
    """The batches, newest first."""
    return sorted((path.name for path in Path(".evalloom/batches").iterdir()), reverse=True)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("latest",), 2, "[nothing_to_compare]"),
        (("latest", "--baseline", "goo"), 2, "Did you mean 'good'? [no_baseline]"),
        (("latest", "--baseline", "torn"), 3, "torn.jsonl:1: cannot read the baseline"),
        (
            ("latest", "--baseline", "good", "--allowed-drop", "2"),
            2,
            "expected a number from 0 to 1, or a bucket or tag and one",
        ),
        (("latest", "--baseline", "good", "--allowed-drop", "nan"), 2, "[bad_allowed_drop]"),
        (("latest", "--baseline", "good", "--by", "day"), 2, "'day' is not one of 'bucket', 'tag'"),
        (("latest", "--baseline", "prompt.md"), 3, "prompt.md:1: cannot read the baseline"),
        (("latest", "--baseline", "../good"), 2, "[no_baseline]"),
        (("none", "--baseline", "good"), 2, "[no_batch]"),
        (("new", "old"), 2, "To see whether new is better than old: evalloom compare new --against old [bad_option]"),
    ],
)
def test_wrong_usage_and_damage(call: Call, arguments: tuple[str, ...], code: int, told: str) -> None:
    ran(call, "y")
    call("baseline", "save", "good")
    Path(".evalloom/baselines/torn.jsonl").write_text('{"format":1,"na', encoding="utf-8")
    done = call("compare", *arguments)
    assert (done.code, done.out) == (code, "") and told in done.err
    assert "Traceback" not in done.err and "internal_error" not in done.err


def test_a_hostile_baseline_drives_no_terminal(call: Call) -> None:
    ran(call, "y")
    call("baseline", "save", "good")
    file = Path(".evalloom/baselines/good.jsonl")
    file.write_text(file.read_text().replace("prompt:prompt.md", r"\u001b[2Jx").replace('"c0"', r'"\u001b[2Jy"'))
    shown = call("compare", "latest", "--baseline", "good")
    assert shown.code == 2 and "\x1b" not in shown.out + shown.err
    ran(call, "yy")
    assert "\x1b" not in "".join(call("baseline", *words).out for words in (("list",), ("show", "good")))


# -- cases without ids -----------------------------------------------------------------------------


def ran_unnamed(call: Call, answers: str, **more: str) -> None:
    """Run tests of promptfoo without ids: the answer is the question, and `y…` is right."""
    tests = [{"vars": {"q": text}, "assert": [{"type": "starts-with", "value": "y"}]} for text in answers.split()]
    Path("tests.json").write_text(json.dumps([{**test, **more} for test in tests]), encoding="utf-8")
    call("run", "tests.json", "--target", "prompt:prompt.md", "--profile", "echo")


@pytest.mark.req("WORK-6")
def test_a_case_in_front_of_others_without_ids_is_just_new(call: Call) -> None:
    ran_unnamed(call, "y1 n2 y3 n4 y5 y6")
    call("baseline", "save", "good")
    ran_unnamed(call, "n0 y1 n2 y3 n4 y5 y6")
    done = call("compare", "latest", "--baseline", "good", "--json")
    (comparison,) = json.loads(done.out)["comparisons"]
    assert (done.code, {kind: number for kind, number in comparison["counts"].items() if number}) == (
        0,
        {"same": 6, "new": 1},
    )


@pytest.mark.req("WORK-6")
def test_an_edited_case_without_an_id_is_one_gone_and_one_new_and_is_told_so(call: Call) -> None:
    told = "Cases without an id are known by their content: an edited one is one gone and one new."
    ran_unnamed(call, "y1 y2 y3")
    call("baseline", "save", "good")
    ran_unnamed(call, "y1 y2 y3 y4")
    assert told not in call("compare", "latest", "--baseline", "good").out
    ran_unnamed(call, "y1 y2 y33")
    out = call("compare", "latest", "--baseline", "good").out
    assert told in out and out.count("(case 3 of its file)") == 2


@pytest.mark.req("WORK-6")
def test_a_long_description_is_cut_where_it_is_shown_and_nowhere_else(call: Call) -> None:
    ran_unnamed(call, "n1", description="a long story " * 30)
    shown = call("batches", "show", "latest").out
    (run,) = [json.loads(line)["run"] for line in call("batches", "show", "latest", "--json").out.splitlines()]
    assert len(run["case_id"]) == 389
    assert max(map(len, shown.splitlines())) < 140 and "a long story a long story" in shown
    assert shown.endswith(" --case tests.json:1\n")


@pytest.mark.req("WORK-6")
def test_equal_cases_are_told_before_the_run(call: Call) -> None:
    ran_unnamed(call, "y1 y2")
    Path("tests.json").write_text(json.dumps([{"vars": {"q": "y"}, "assert": [{"type": "is-json"}]}] * 3))
    done = call("run", "tests.json", "--target", "prompt:prompt.md", "--profile", "echo")
    assert "tests.json: 2 cases equal an earlier one in inputs, description and checks" in done.err
    assert "[equal_cases]" in done.err


COUNTED = """
from collections import defaultdict
from itertools import count
TURN = defaultdict(count)
def answer(q):
    return "y" if next(TURN[q]) < SHARES[int(q)] else "n"
"""


@pytest.mark.req("WORK-6", "WORK-7")
def test_a_rounding_error_is_shown_as_no_difference(call: Call) -> None:
    rows = [{"id": f"c{number}", "q": str(number), "expected_output": "y"} for number in range(40)]
    Path("cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    batches = []
    # Both are 107 of 120, and the sums of their thirds differ in the last digit.
    for changed in ({1: 2, 5: 2, 9: 2, 13: 2}, {9: 2, 21: 2, 29: 1}):
        shares = [changed.get(number, 0 if number in (3, 4, 7) else 3) for number in range(40)]
        Path("counted.py").write_text(f"SHARES = {shares}\n{COUNTED}", encoding="utf-8")
        done = call("run", "cases.jsonl", "--target", "python:counted.py:answer", "--repeat", "3", "--json")
        batches.append(json.loads(done.out)["batch"])
    told = call("compare", batches[1], "--against", batches[0]).out
    assert " +0.0 points" in told and "e-1" not in told
