"""Gates: what can be written, what holds, and what is said when it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.analysis.gates import METRICS, OPERATORS, Gate, GateResult, figure_text, parse
from evalloom.analysis.tally import Tally
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Run, Scored, Status, Usage


def a_tally(unpriced: int = 0, estimated: int = 0) -> Tally:
    """Nine of ten pass; the first five are of the profile fast, the last four have the tag 安全."""
    tally = Tally()
    for number in range(10):
        status: Status = "failed" if number == 9 else "passed"
        usage = Usage(100, 20, 0.01, 1, unpriced=unpriced, estimated=estimated)
        tags = ("安全",) if number > 5 else ()
        profile = "fast" if number < 5 else "deep"
        run = Run(f"k{number}", f"c{number}", profile, number=number, duration_s=number + 1, usage=usage, tags=tags)
        tally.add(run, Scored(run.key, status, 0.9))
    return tally


def check(text: str) -> GateResult:
    return parse(text).check(a_tally())


@pytest.mark.parametrize(
    "text",
    [
        "pass_rate >= 0.9",
        "pass_rate>=90%",
        "pass_rate[tag=安全] == 0.75",
        "pass_rate[ profile = 'fast' ] == 100 %",
        'pass_rate[profile=deep, tag="安全"] < .8',
        "pass_rate_low > 0.5",
        "passed == 9",
        "cases == 10",
        "failing == 1",
        "flaky == 0",
        "failed <= 1",
        "failed[profile=fast] == 0",
        "error == 0",
        "total != 11",
        "p50_latency_s == 5.5",
        "max_latency_s <= 10",
        "p99_latency_s < 10",
        "mean_latency_s[profile=fast] == 3",
        "tokens <= 1200",
        "cost <= 0.1",
        "mean_score >= 0.9",
    ],
)
def test_holds(text: str) -> None:
    result = check(text)
    assert result.holds, result.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("pass_rate >= 95%", "pass_rate is 0.9 over 10 cases (95 % CI 0.596–0.982), not >= 0.95"),
        ("p95_latency_s <= 3", "p95_latency_s is 9.55, not <= 3"),
        ("pass_rate[tag=安] == 1", "no run has the tag '安'. Did you mean '安全'?"),
        ("failed[profile=fats] == 0", "no run has the profile 'fats'. Did you mean 'fast'?"),
        ("failed[profile=fast, tag=安全] == 0", "no run of the profile 'fast' has the tag '安全'"),
    ],
)
def test_does_not_hold_and_says_why(text: str, reason: str) -> None:
    result = check(text)
    assert not result.holds and result.reason == reason and result.text == text


def test_over_nothing_does_not_hold() -> None:
    assert parse("failed == 0").check(Tally()) == GateResult("failed == 0", False, None, "there are no runs")


@pytest.mark.parametrize("text", ["pass_rate >= 0", "mean_score >= 0", "p95_latency_s >= 0"])
def test_a_figure_that_there_is_not_does_not_hold(text: str) -> None:
    tally = Tally()
    tally.add(Run("k", "c"), Scored("k", "skipped"))
    result = parse(text).check(tally)
    assert not result.holds and result.actual is None and "is unknown: no run " in result.reason


def test_a_cost_without_prices_is_unknown() -> None:
    result = parse("cost <= 100").check(a_tally(unpriced=1))
    assert not result.holds and result.reason.startswith("cost is unknown: 10 calls have no price")


@pytest.mark.parametrize("text", ["cost <= 100", "cost <= 0", "tokens > 1", "cost < 1 and error == 0"])
def test_an_estimated_cost_is_called_so(text: str) -> None:
    result = parse(text).check(a_tally(estimated=1))
    assert result.reason.endswith("; estimated for 10 calls whose server sent no usage")
    assert "estimated" not in parse("total > 1").check(a_tally(estimated=1)).reason


def test_percent_is_read_exactly() -> None:
    gate = parse("pass_rate >= 99.9%")
    assert isinstance(gate, Gate) and gate.limit == 0.999


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "column 1: expected a metric, got the end"),
        ("pass_rte > 1", "column 1: expected a metric, got 'pass_rte'. Did you mean 'pass_rate'?"),
        ("zzz > 1", "column 1: expected a metric, got 'zzz'. There are pass_rate, "),
        ("pass_rate", "column 10: expected one of >= > <= < == !=, got the end"),
        ("pass_rate = 1", "column 11: expected one of >= > <= < == !=, got '='"),
        ("pass_rate >= 90", "column 14: expected a rate from 0 to 1 or from 0% to 100%, got '90'"),
        ("pass_rate[tags=x] >= 1", "column 11: expected profile or tag, got 'tags'. Did you mean 'tag'?"),
        ("pass_rate[tag] >= 1", "column 14: expected = after tag, got '] >= 1'"),
        ("pass_rate[tag=] >= 1", "column 15: expected the tag, got '] >= 1'"),
        ("pass_rate[tag=x >= 1", "column 21: expected , or ], got the end"),
        ("pass_rate[tag=x, tag=y] > 0", "column 18: expected each key once, got 'tag'"),
        ("tokens <= 50%", "column 13: expected a plain number for tokens, got '%'"),
        ("pass_rate >= high", "column 14: expected a number, got 'high'"),
        ("pass_rate >= 0.9 or so", "there is no metric 'so'"),
    ],
)
def test_a_fault_names_its_column(text: str, message: str) -> None:
    with pytest.raises(EvalloomError) as raised:
        parse(text)
    assert message in str(raised.value) and raised.value.code == "bad_gate" and raised.value.exit_code == 2


values = st.text(min_size=1).filter(lambda text: '"' not in text)


@given(st.sampled_from(sorted(METRICS)), st.sampled_from(sorted(OPERATORS)), st.integers(0, 1), values, values)
def test_whatever_is_quoted_is_read_back(metric: str, sign: str, limit: int, tag: str, profile: str) -> None:
    text = f'{metric}[tag="{tag}",profile="{profile}"]{sign}{limit}'
    assert parse(text) == Gate(text, metric, sign, limit, profile, tag)


@pytest.mark.req("WORK-5")
@pytest.mark.parametrize("pass_if", [None, 0.5])
def test_profiles_that_disagree_are_not_flaky_and_gates_count_as_the_summary_does(pass_if: float | None) -> None:
    tally = Tally(pass_if)
    for number, profile in ((0, "fast"), (0, "deep"), (1, "fast"), (1, "deep")):
        for repeat in range(3):
            run = Run(f"{number}{profile}{repeat}", str(number), profile, number=number, repeat=repeat)
            tally.add(run, Scored(run.key, "passed" if number == 0 and profile == "fast" else "failed"))
    summary = tally.summary()
    assert (summary.failing, summary.cases, summary.pass_rate) == (3, 2, 0.25)
    for text in ("flaky == 0", "failing == 3", "cases == 2", "pass_rate == 0.25", "failing == 3 and flaky == 0"):
        assert parse(text).check(tally).holds, text


@given(st.text(alphabet="pass_rate[tag=安,profile]'\"<>=!% 0.9\n"))
def test_any_text_is_a_gate_or_a_fault(text: str) -> None:
    try:
        parse(text).check(a_tally())
    except EvalloomError as fault:
        assert fault.code == "bad_gate"


@pytest.mark.parametrize(
    ("text", "holds", "reason"),
    [
        ("pass_rate >= 0.9 and failed < 2", True, "pass_rate is 0.9, failed is 1"),
        ("pass_rate > 0.9 or p95_latency_s < 1", False, "pass_rate is 0.9, p95_latency_s is 9.55"),
        ("not (passed < 5)", True, "passed is 9"),
        ("profiles.fast.pass_rate >= profiles.deep.pass_rate", True, "it holds"),
        ("tags['安全'].failed in [0, 2]", False, "it does not hold"),
        ("tags.nobody.pass_rate > 0", False, "it does not hold"),
        ("0.5 < pass_rate <= 0.9", True, "pass_rate is 0.9"),
    ],
)
def test_a_gate_may_be_an_expression(text: str, holds: bool, reason: str) -> None:
    found = check(text)
    assert (found.text, found.holds, found.reason) == (text, holds, reason)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pass_rate >= 0.9 and", "column 21: expected a value, got the end"),
        ("__import__('os') or pass_rate > 0", "column 1: there is no function '__import__'"),
        ("pass_rat >= 0.9", "Did you mean 'pass_rate'?"),
        ("pass_rate > 0 and speed > 1", "there is no metric 'speed'"),
    ],
)
def test_what_would_be_code_or_says_nothing_is_refused(text: str, said: str) -> None:
    with pytest.raises(EvalloomError) as caught:
        parse(text)
    assert said in str(caught.value) and caught.value.code == "bad_gate"


def test_a_figure_that_misses_its_limit_does_not_look_equal_to_it() -> None:
    assert [figure_text(value) for value in (0.79976, 0.8, 5_643_416, 0.000132)] == [
        *("0.79976", "0.8", "5,643,416", "0.000132")
    ]
