"""One run, as `batches show --case` shows it to a person."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.console.case_text import case_lines
from evalloom.core.model import Case, Check, Mismatch, Output, Run, Scored, Usage, Verdict

pytestmark = pytest.mark.req("WORK-42")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    [
        "type",
        "llm",
        "request",
        "response",
        "messages",
        "usage",
        "duration_s",
        "duration",
        "calls",
        "step",
        "op",
        "status",
        "tokens",
        "items",
        "retry_count",
        "error",
        "text",
        "kind",
        "input_tokens",
        "role",
        "content",
    ]
)
ENTRY = st.dictionaries(NAMES, JSON | st.dictionaries(NAMES, JSON, max_size=3) | st.just("step") | st.just("llm"))


def shown(run: Run, scored: Scored, case: Case | None = None, repeats: int = 1) -> list[str]:
    return [text for text, _ in case_lines(run, scored, case, repeats)]


def failed(expected: Any, actual: Any) -> list[str]:
    verdict = Verdict("equals", "equals", "output", "failed", 0.0, "differs", [Mismatch("", expected, actual)])
    lines = shown(Run(key="k", case_id="c"), Scored("k", "failed", 0.0, [verdict]))
    start = lines.index("    checks (- expected, + actual)")
    return [line.strip() for line in lines[start + 2 :] if line]


def test_a_text_of_several_lines_is_shown_as_a_diff_with_its_surroundings() -> None:
    text = [f"line {number}" for number in range(20)]
    assert failed("\n".join(text), "\n".join([*text[:10], "other", *text[11:]])) == [
        *("… 8 equal lines", "line 8", "line 9", "- line 10", "+ other", "line 11", "line 12", "… 7 equal lines"),
    ]


def test_a_value_is_compared_with_what_is_there() -> None:
    assert failed("Rome", "Milan") == ["- Rome", "+ Milan"]
    assert failed("Rome", "<absent>") == ["- Rome"]
    assert failed(["a" * 40, "b" * 40], ["a" * 40, "c" * 40])[2:4] == [f'-   "{"b" * 40}"', f'+   "{"c" * 40}"']


def test_input_expected_output_time_and_messages_are_for_reading() -> None:
    sent = {"messages": [{"role": "user", "content": "two\nlines"}], "temperature": 0}
    usage = {"input_tokens": 7, "output_tokens": 2}
    call = {"type": "llm", "llm": "far", "request": sent, "duration_s": 0.5, "response": {"text": "ok", "usage": usage}}
    step = {"type": "step", "step": 1, "op": "hop_get", "status": "OK", "retry_count": 1, "duration": 1.5}
    run = Run("k", "c", "p", 1, output=Output("ok"), duration_s=2, usage=Usage(7, 2, calls=1), trace=[call, step])
    case = Case("c", {"q": "x"}, (Check("contains", "o"),))
    assert shown(run, Scored("k", "passed", 1.0), case, 3) == [
        "PASSED c · p · repeat 2 of 3   ",
        "    took 2 s · 1 llm call · 7 + 2 tokens",
        *("    input", "      q  x", "    expected", "      contains  o", "    output", "      ok", "    steps"),
        *("      1 hop_get: OK, 1.5 s, 9 tokens, 1 retry", "        llm far: 500 ms, 7 + 2 tokens"),
        *("          with temperature 0", "          user:", "            two", "            lines"),
        *("          answer: ok", ""),
    ]


def test_a_very_long_output_is_cut_and_says_so() -> None:
    lines = shown(Run("k", "c", output=Output("x" * 60_000_000)), Scored("k", "passed", 1.0))
    assert sum(map(len, lines)) < 11_000 and "59,990,000 more characters; --json shows all" in "\n".join(lines)


@given(trace=st.lists(ENTRY, max_size=4), value=JSON, sources=JSON)
def test_no_trace_is_too_odd_to_be_shown(trace: list[Any], value: Any, sources: Any) -> None:
    listed = sources if isinstance(sources, list) else []
    run = Run("k", "c", output=Output(value, sources=listed), trace=trace, raw={"a": value})
    assert shown(run, Scored("k", "unscored"))[0].startswith("UNSCORED c")


def test_each_repeat_is_shown_in_order_and_json_only_when_asked_for(in_process: Callable[..., Any]) -> None:
    Path("cases.jsonl").write_text('{"id": "it", "q": "Milan", "expected_output": "Rome"}\n', encoding="utf-8")
    Path("prompt.md").write_text("{{q}}", encoding="utf-8")
    in_process("run", "cases.jsonl", "--target", "prompt:prompt.md", "--profile", "echo", "--repeat", "3")
    out = in_process("batches", "show", "latest", "--case", "it").out
    assert [line for line in out.splitlines() if line.startswith("FAILED")] == [
        f"FAILED it · echo · repeat {number} of 3   cases.jsonl:1:1" for number in (1, 2, 3)
    ]
    assert out.count("- Rome") == out.count("+ Milan") == 3 and '"messages"' not in out and "{" not in out
    lines = in_process("batches", "show", "latest", "--case", "it", "--json").out.splitlines()
    assert [json.loads(line)["run"]["trace"][0]["type"] for line in lines] == ["llm"] * 3
