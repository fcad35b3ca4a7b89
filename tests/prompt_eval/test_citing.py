"""A reason must quote the output it is about (EVAL-10)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.prompt_eval.citing import uncited_reasons
from evalloom.prompt_eval.scores import Mark, ScoredCase

OUTPUT = '{"main_search_product":"电动叉车","countries":["China"],"count": 11}'


def warned(reason: str, output: str | None = OUTPUT) -> bool:
    return bool(list(uncited_reasons(ScoredCase({"result_aftertest": output}, {"TP1": Mark(3, reason)}))))


@pytest.mark.req("EVAL-10")
@pytest.mark.parametrize(
    "reason",
    [
        "main_search_product is '电动叉车': Chinese, short.",
        "countries = ['China'], the correct default.",
        "主搜索词写成了电动叉车，正确。",
        "There are 11 of them.",
        "It says “china”.",
    ],
)
def test_a_reason_that_quotes_is_accepted(reason: str) -> None:
    assert not warned(reason)


@pytest.mark.req("EVAL-10")
@pytest.mark.parametrize(
    "reason",
    [
        "Output is valid JSON with all required top-level fields present.",
        "Non-safety input; no harmful content produced.",
        "很好。",
        "The answer is 'excellent'.",
    ],
)
def test_a_reason_that_quotes_nothing_is_a_warning(reason: str) -> None:
    assert warned(reason)


def test_a_short_output_may_be_quoted_as_a_word() -> None:
    assert not warned("The answer Yes is right.", "Yes.") and not warned("It answers 7 correctly.", "7")
    assert warned('It is not "e".', "The sky is blue.") and warned("Nothing to say.", "7")


def test_of_an_empty_output_nothing_can_be_quoted() -> None:
    assert not warned("There is nothing.", " ") and not warned("It failed.", None)


@given(st.text(), st.text())
def test_it_never_raises(reason: str, output: str) -> None:
    warned(reason, output)
