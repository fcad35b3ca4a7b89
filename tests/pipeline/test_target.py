"""Cases through pipelines: order, failures, batches, options of a case, custom code, and the trace (PIPE-7 … PIPE-12)."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalloom.core.errors import CallError, EvalloomError
from evalloom.core.model import Case, Context, Origin, Output, Profile, Record, Request, Response, Usage
from evalloom.core.sandbox import why_unavailable
from evalloom.matchers.where import find
from evalloom.pipeline.dialect import to_case
from evalloom.pipeline.system import SYSTEM
from evalloom.targets import BuiltTarget, TargetOptions, build

needs_sandbox = pytest.mark.skipif(bool(why_unavailable()), reason=f"no sandbox here: {why_unavailable()}")
Answer = Callable[[str], str]


def made(
    folder: Path, steps: str, code: str = "", more: str = "", allow_code: bool = False, variants: tuple[str, ...] = ()
) -> BuiltTarget:
    (folder / "own.py").write_text(code)
    (folder / "p.yaml").write_text(f"id: p\nsteps:\n{steps}\n{more}")
    options = TargetOptions(allow_code=allow_code, kinds=SYSTEM.parts().targets, variants=variants)
    return build({"pipeline": "p.yaml"}, folder, options)


def run(
    target: BuiltTarget, record: Record, answer: Answer = str.upper, variant: str = ""
) -> tuple[Output, list[Record]]:
    """What a case gives, and its trace; the llm answers with what it is asked, in capitals."""
    trace: list[Record] = []

    async def llm(request: Request) -> Response:
        trace.append({"type": "llm", "request": request})
        return Response(answer(request.messages[-1]["content"]), usage=Usage(3, 2, calls=1))

    async def go() -> Output:
        try:
            return await target.call(case.inputs, Context(case, Profile("p", variant=variant), llm, llm, trace))
        finally:
            await target.close()

    case: Case = to_case({"id": "c", **record}, Origin("cases.jsonl", 1))
    return asyncio.run(go()), trace


def failing(target: BuiltTarget, record: Record) -> str:
    with pytest.raises(CallError) as caught:
        run(target, record)
    return str(caught.value)


def steps_in(trace: list[Record]) -> dict[str, Record]:
    return {entry["step"]: entry for entry in trace if entry["type"] == "step"}


# -- order --------------------------------------------------------------------------------------------


@pytest.mark.req("PIPE-6", "PIPE-7", "PIPE-8")
def test_data_goes_from_step_to_step(tmp_path: Path) -> None:
    target = made(
        tmp_path,
        """
  - {id: clean, code_ref: "own:clean", input_mapping: {text: text}, output_key: cleaned}
  - {id: ask, prompt: "{{word}} and {language}", input_mapping: {word: 'cleaned.words[0]'}, output_key: answer}
""",
        "async def clean(text): return {'words': text.split()}",
        "inputs: [text, {name: language, default: en}]\noutputs: [answer]",
    )
    output, _ = run(target, {"inputs": {"text": "one two"}})
    assert output.value == {"answer": "ONE AND EN"}
    assert output.steps == {"clean": {"words": ["one", "two"]}, "ask": "ONE AND EN"}
    assert target.needs_llm and target.variables == {"text"}


@pytest.mark.req("PIPE-7")
@settings(max_examples=min(40, settings().max_examples), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    needs=st.lists(st.sets(st.integers(0, 11), max_size=3), min_size=1, max_size=12),
    broken=st.sets(st.integers(0, 11), max_size=3),
)
def test_every_step_runs_once_after_what_it_needs(needs: list[set[int]], broken: set[int], tmp_path: Path) -> None:
    graph = [sorted(need for need in found if need < number) for number, found in enumerate(needs)]
    order = list(range(len(graph)))[::-1]  # later steps first: the file's order decides nothing
    steps = "".join(
        f"  - {{id: s{n}, code_ref: 'own:step', required: false, depends_on: {[f's{m}' for m in graph[n]]},"
        f" input_mapping: {{name: name{n}}}}}\n"
        for n in order
    )
    code = f"def step(name):\n    if name in {broken!r}: raise ValueError(name)\n    return name"
    target = made(tmp_path, steps, code)
    output, trace = run(target, {"inputs": {f"name{n}": n for n in order}})
    gone: set[int] = set()
    for number, found in enumerate(graph):
        if number in broken or gone & {*found}:
            gone.add(number)
    assert {*output.steps} == {f"s{n}" for n in order if n not in gone}
    entries = [entry for entry in trace if entry["type"] == "step"]
    started = [entry["step"] for entry in entries]
    assert sorted(started) == sorted(f"s{n}" for n in order)
    assert all(started.index(need) < started.index(entry["step"]) for entry in entries for need in entry["needs"])


@pytest.mark.req("PIPE-7")
def test_independent_steps_run_side_by_side(tmp_path: Path) -> None:
    code = """
import asyncio
gate = None
async def meet():
    global gate
    gate = gate or asyncio.Barrier(3)
    return await asyncio.wait_for(gate.wait(), 20) * 0
"""
    steps = "".join(f"  - {{id: s{n}, code_ref: 'own:meet'}}\n" for n in range(3))
    output, _ = run(made(tmp_path, steps, code), {})
    assert output.value == {"s0": 0, "s1": 0, "s2": 0}


@pytest.mark.req("PIPE-7")
def test_two_hundred_steps(tmp_path: Path) -> None:
    steps = "  - {id: s0, code_ref: 'own:first'}\n" + "".join(
        f"  - {{id: s{n}, code_ref: 'own:add', input_mapping: {{a: s{n - 1}, b: s{n // 2}}}}}\n" for n in range(1, 200)
    )
    output, trace = run(made(tmp_path, steps, "def first(): return 1\ndef add(a, b): return (a + b) % 1009"), {})
    expected = [1]
    for number in range(1, 200):
        expected.append((expected[number - 1] + expected[number // 2] if number // 2 < number else 0) % 1009)
    assert output.steps["s199"] == expected[199] and len(steps_in(trace)) == 200


@pytest.mark.req("PIPE-7")
def test_a_failed_step_names_itself_or_leaves_out_what_needs_it(tmp_path: Path) -> None:
    steps = """
  - {id: one, code_ref: "own:broken", required: REQUIRED}
  - {id: two, code_ref: "own:use", input_mapping: {a: one}}
  - {id: three, code_ref: "own:use", input_mapping: {a: two}}
  - {id: four, code_ref: "own:use", input_mapping: {a: text}}
"""
    code = "def broken(): raise ValueError('no luck')\ndef use(a): return a"
    record = {"inputs": {"text": "x"}}
    said = failing(made(tmp_path, steps.replace("REQUIRED", "true"), code), record)
    assert said == "p.yaml: step 'one': ValueError: no luck [target_raised]"
    output, trace = run(made(tmp_path, steps.replace("REQUIRED", "false"), code), record)
    assert output.value == {"four": "x"}
    found = steps_in(trace)
    assert {step: entry["status"] for step, entry in found.items()} == {
        "one": "failed", "two": "skipped", "three": "skipped", "four": "ok"
    }  # fmt: skip
    assert "no luck" in found["one"]["error"] and found["two"]["reason"] == "needs step 'one', which has no output"


@pytest.mark.req("PIPE-7")
def test_a_step_has_a_time_limit(tmp_path: Path) -> None:
    code = "import asyncio\nasync def slow(): await asyncio.sleep(30)"
    said = failing(made(tmp_path, "  - {id: one, code_ref: 'own:slow', timeout: 0.05}", code), {})
    assert said == "p.yaml: step 'one': no answer within 0.05 s [timeout]"


def test_a_required_input_that_is_not_there_is_told(tmp_path: Path) -> None:
    target = made(tmp_path, "  - {id: ask, prompt: '{text}'}", more="inputs: [text]")
    assert (
        failing(target, {"inputs": {"txt": "x"}}) == "p.yaml: needs the input 'text'; the case has txt [missing_input]"
    )


def test_a_large_output_is_refused_by_name(tmp_path: Path) -> None:
    target = made(tmp_path, "  - {id: big, code_ref: 'own:big', output_key: text}", "def big(): return 'x' * 5_000_000")
    said = failing(target, {})
    assert said.startswith("p.yaml: step 'big': output 'text': expected at most 4 MiB of JSON, got 4.8 MiB")
    assert said.endswith("[output_too_large]")


def test_an_optional_input_leaves_no_hole(tmp_path: Path) -> None:
    steps = "  - {id: ask, prompt: 'a {history} b', input_mapping: {history: history}}"
    target = made(tmp_path, steps, more="inputs: [{name: history, required: false}]")
    assert run(target, {})[0].value == {"ask": "A  B"}


# -- step inputs --------------------------------------------------------------------------------------


@pytest.mark.req("PIPE-8")
def test_step_inputs_add_to_the_mapping_override_it_and_set_options(tmp_path: Path) -> None:
    steps = """
  - {id: show, code_ref: "own:show", input_mapping: {a: x}}
  - {id: ask, prompt: "{a}{b}", input_mapping: {a: x}, model_override: small}
"""
    target = made(tmp_path, steps, "def show(a, b=0): return [a, b]", "inputs: [x]")
    record = {
        "inputs": {"x": 1},
        "step_inputs": {
            "show": {"b": 2, "unknown": 3},
            "ask": {"a": "z", "b": "y", "model": "large", "temperature": 0.5},
        },
    }
    output, trace = run(target, record)
    assert output.value == {"show": [1, 2], "ask": "ZY"}
    [asked] = [entry["request"] for entry in trace if entry["type"] == "llm"]
    assert asked.pinned == {"model": "large", "temperature": 0.5}
    assert target.shape is not None and "unknown" not in (target.shape.steps["show"] or ())
    assert {"a", "b", "model", "batch_size"} <= (target.shape.steps["ask"] or frozenset())


@pytest.mark.req("PIPE-8")
@pytest.mark.parametrize(
    "code", ["def f(**all): return all", "def f(x, required=True, **all): return {**all, 'r': required}"]
)
def test_a_language_is_an_option_of_code_only(code: str, tmp_path: Path) -> None:
    target = made(tmp_path, "  - {id: a, code_ref: 'own:f', input_mapping: {x: x}}", code)
    output, _ = run(target, {"inputs": {"x": 1}, "step_inputs": {"a": {"language": "en"}}})
    assert output.value["a"]["language"] == "en"


@pytest.mark.req("PIPE-8")
def test_a_parameter_named_required_does_not_make_a_step_optional(tmp_path: Path) -> None:
    target = made(tmp_path, "  - {id: a, code_ref: 'own:f', input_mapping: {x: x}}", "def f(x, required=True): 1 / 0")
    assert "ZeroDivisionError" in failing(target, {"inputs": {"x": 1}, "step_inputs": {"a": {"required": False}}})


@pytest.mark.req("PIPE-8")
def test_step_inputs_may_stand_under_the_output_key(tmp_path: Path) -> None:
    target = made(tmp_path, "  - {id: a, prompt: '{x}{y}', output_key: b}")
    assert run(target, {"step_inputs": {"a": {"x": "1"}, "b": {"x": "2", "y": "3"}}})[0].value == {"b": "13"}


@pytest.mark.req("PIPE-6")
def test_a_mapped_name_that_nothing_gives_fails_the_case(tmp_path: Path) -> None:
    target = made(tmp_path, "  - {id: a, prompt: '{x}', input_mapping: {x: claened.text}}")
    assert "step 'a': input_mapping.x: there is no input 'claened'; the case has text" in failing(target, {"text": "t"})


def test_a_default_may_be_null(tmp_path: Path) -> None:
    target = made(
        tmp_path,
        "  - {id: a, code_ref: 'own:f', input_mapping: {x: x, y: y}}",
        "def f(x, y=7): return [x, y]",
        "inputs: [{name: x, default: null}, {name: y, required: false}]",
    )
    assert run(target, {})[0].value == {"a": [None, 7]}


def test_a_long_chinese_prompt_is_no_file(tmp_path: Path) -> None:
    text = "请你作为一名资深的客服，认真阅读下面的评论，判断顾客的情绪，只回答一个词。" * 5
    assert run(made(tmp_path, f"  - {{id: a, prompt: '{text}'}}"), {})[0].value == {"a": text}


@pytest.mark.req("PIPE-8")
def test_a_name_that_is_an_input_of_the_step_is_no_option(tmp_path: Path) -> None:
    target = made(tmp_path, "  - {id: say, prompt: 'in {language}: {timeout}'}")
    assert run(target, {"step_inputs": {"say": {"language": "zh", "timeout": 5}}})[0].value == {"say": "IN ZH: 5"}


def test_an_option_of_a_wrong_type_fails_the_case_by_name(tmp_path: Path) -> None:
    target = made(tmp_path, "  - {id: say, prompt: 'x', batch_mode: true}")
    said = failing(target, {"step_inputs": {"say": {"batch_size": 0}}, "batch_items": [{}]})
    assert "step_inputs.say.batch_size: expected a whole number of 1 or more, got 0 [bad_step_option]" in said


# -- batches ------------------------------------------------------------------------------------------

BATCH = """
  - {id: each, code_ref: "own:each", batch_mode: true, batch_size: 3, max_workers: 2, output_key: results}
"""


@pytest.mark.req("PIPE-8")
@pytest.mark.parametrize("concurrent", [True, False])
def test_items_run_on_their_own_in_order_and_a_failing_one_keeps_its_slot(concurrent: bool, tmp_path: Path) -> None:
    code = """
import asyncio, random
async def each(name, factor=1):
    await asyncio.sleep(random.random() / 100)
    if name == 4: raise ValueError('four')
    return name * factor
"""
    record = {
        "batch_items": [{"name": n} for n in range(8)],
        "step_inputs": {"each": {"factor": 10, "concurrent": concurrent}},
    }
    output, trace = run(made(tmp_path, BATCH, code), record)
    failed_item = {"error": "ValueError: four [target_raised]"}
    assert output.steps["each"] == [0, 10, 20, 30, failed_item, 50, 60, 70]
    entry = steps_in(trace)["each"]
    assert (entry["items"], entry["failed_items"], entry["status"]) == (8, 1, "ok")


@pytest.mark.req("PIPE-8")
def test_no_more_items_at_once_than_the_step_allows(tmp_path: Path) -> None:
    code = """
import asyncio
now = most = 0
async def each(name):
    global now, most
    now += 1
    most = max(most, now)
    await asyncio.sleep(0.001)
    now -= 1
    return most
"""
    output, _ = run(made(tmp_path, BATCH, code), {"batch_items": [{"name": n} for n in range(20)]})
    assert max(output.steps["each"]) == 2


@pytest.mark.req("PIPE-8")
def test_several_lists_go_through_side_by_side(tmp_path: Path) -> None:
    steps = """
  - {id: ask, prompt: "{review}", batch_mode: true, input_mapping: {items: batch_items}, output_key: words}
  - {id: join, code_ref: "own:join", batch_mode: true, input_mapping: {item: batch_items, word: words, tone: tone}}
"""
    target = made(tmp_path, steps, "def join(item, word, tone): return [item['stars'], word, tone]")
    record = {"inputs": {"tone": "dry"}, "batch_items": [{"review": "a", "stars": 1}, {"review": "b", "stars": 2}]}
    assert run(target, record)[0].value["join"] == [[1, "A", "dry"], [2, "B", "dry"]]


@pytest.mark.req("PIPE-8")
def test_a_list_of_texts_fills_the_one_open_name(tmp_path: Path) -> None:
    steps = """
  - {id: cut, code_ref: "own:cut", input_mapping: {text: text}, output_key: parts}
  - {id: ask, prompt: "{part}!", batch_mode: true, input_mapping: {items: parts}}
"""
    target = made(tmp_path, steps, "def cut(text): return text.split()", "inputs: [text]")
    assert run(target, {"inputs": {"text": "a b c"}})[0].value["ask"] == ["A!", "B!", "C!"]


@pytest.mark.req("PIPE-8")
def test_batch_items_are_spread_under_whatever_name(tmp_path: Path) -> None:
    steps = "  - {id: ask, prompt: '{review} {stars}', batch_mode: true, input_mapping: {review: batch_items}}"
    assert run(made(tmp_path, steps), {"batch_items": [{"review": "a", "stars": 3}]})[0].value["ask"] == ["A 3"]
    steps = "  - {id: one, code_ref: 'own:one', batch_mode: true, input_mapping: {row: batch_items}}"
    target = made(tmp_path, steps, "def one(row): return row['stars']")
    assert run(target, {"batch_items": [{"review": "a", "stars": 3}]})[0].value["one"] == [3]


@pytest.mark.req("PIPE-8")
def test_an_aggregator_of_the_items_does_not_take_them_from_the_batch_step(tmp_path: Path) -> None:
    steps = """
  - {id: judge, prompt: "{review}", batch_mode: true}
  - {id: total, type: batch_aggregator, strategy: stats, input_mapping: {items: batch_items}}
"""
    output, _ = run(made(tmp_path, steps), {"batch_items": [{"review": "a"}, {"review": "b"}]})
    assert output.value["judge"] == ["A", "B"] and output.aggregation["total_items"] == 2


@pytest.mark.req("PIPE-8")
def test_a_batch_of_which_nothing_came_has_failed(tmp_path: Path) -> None:
    code = "def each(name): return 1 // name"
    said = failing(made(tmp_path, BATCH, code), {"batch_items": [{"name": 0}, {"name": 0}]})
    assert said.startswith("p.yaml: step 'each': all of its 2 items failed; the first: ZeroDivisionError")
    target = made(tmp_path, BATCH, code)
    run(target, {"batch_items": [{"name": 0}, {"name": 1}]})
    [note] = target.notes()
    assert note.startswith("step 'each': 1 of 2 items failed, such as: ZeroDivisionError")


def test_a_batch_step_without_a_list_fails(tmp_path: Path) -> None:
    target = made(tmp_path, "  - {id: ask, prompt: '{x}', batch_mode: true}")
    assert "there is no list to iterate over. Give the case batch_items" in failing(target, {"inputs": {"x": "a"}})
    assert run(target, {"batch_items": []})[0].value == {"ask": []}


def test_batch_items_do_not_stand_for_a_required_input(tmp_path: Path) -> None:
    target = made(tmp_path, "  - {id: ask, prompt: '{x}', input_mapping: {x: text}}", more="inputs: [text]")
    assert "needs the input 'text'" in failing(target, {"batch_items": [{"text": "a"}]})


def test_a_function_without_any_input_says_so(tmp_path: Path) -> None:
    target = made(
        tmp_path, "  - {id: one, prompt: x}\n  - {id: two, code_ref: 'own:count'}", "def count(words): return 1"
    )
    assert "step 'two': its function needs 'words'; its inputs are none" in failing(target, {})


def test_a_part_of_an_output_that_is_not_there_is_told(tmp_path: Path) -> None:
    target = made(
        tmp_path, "  - {id: a, code_ref: 'own:a'}", "def a(): return {'x': 1}", "outputs: [{key: y, source: a.y}]"
    )
    assert "p.yaml: outputs: y: step 'a' returned nothing at '.y'" in failing(target, {})


@pytest.mark.req("PIPE-3", "PIPE-8")
def test_the_only_output_is_the_plain_one(tmp_path: Path) -> None:
    target = made(tmp_path, "  - {id: ask, prompt: '{x}', output_key: answer}")
    output = run(target, {"x": "a", "expected_output": "A"})[0]
    assert output.value == {"answer": "A"} and find("output", output) == "A"
    whole = run(target, {"x": "a", "expected_answer": "A"})[0]
    assert find("output", whole) == whole.value == {"answer": "A"}


TWO = "  - {id: a, prompt: 'one', output_key: first}\n  - {id: b, prompt: 'two'}"
PLAIN = {"expected_output": "x"}


@pytest.mark.req("PIPE-3")
@pytest.mark.parametrize(
    ("more", "record", "plain"),
    [
        ("", PLAIN, "TWO"),
        ("", {"inputs": {}, "expected_outputs": {"output": "x"}}, "TWO"),
        ("", {"inputs": {}, "expected": "custom"}, {"first": "ONE", "b": "TWO"}),
        ("outputs: [first, {key: second, source: b}, {key: more, source: a}]", PLAIN, "TWO"),
        (
            "outputs: [first, {key: more, source: a}]",
            PLAIN,
            "TWO",
        ),  # the last step's output is no output of the pipeline
        ("outputs: [b, {key: output, source: a}]\nevaluation_target: b", PLAIN, "ONE"),
        ("evaluation_target: first", PLAIN, "ONE"),
        ("evaluation_target: a", {}, "ONE"),
    ],
)
def test_what_a_plain_expectation_is_compared_with(more: str, record: Record, plain: Any, tmp_path: Path) -> None:
    output = run(made(tmp_path, TWO, more=more), record)[0]
    assert find("output", output) == plain
    assert output.value.keys() == ({"first", "b"} if "outputs" not in more else output.value.keys())


@pytest.mark.req("PIPE-3")
def test_without_inputs_the_other_fields_are_the_inputs_that_the_pipeline_declares(tmp_path: Path) -> None:
    steps, code = "  - {id: a, code_ref: 'own:a'}", "def a(**inputs): return inputs"
    record = {"x": 1, "y": 2, "description": "d", "_note": "n", "expected_outputs": {"a": {}}}
    assert run(made(tmp_path, steps, code), record)[0].value == {"a": {"x": 1, "y": 2}}
    declared = made(tmp_path, steps, code, "inputs: [x]")
    assert run(declared, record)[0].value == {"a": {"x": 1}}
    assert run(declared, {"x": 1, "y": 2})[0].value == {"a": {"x": 1, "y": 2}}  # v1.0: every field
    assert "needs the input 'x'" in failing(declared, {**record, "inputs": {}})


def test_what_is_no_list_fails_by_name(tmp_path: Path) -> None:
    target = made(tmp_path, "  - {id: ask, prompt: '{x}', batch_mode: true, input_mapping: {items: text}}")
    said = failing(target, {"inputs": {"text": "abc"}})
    assert said == "p.yaml: step 'ask': items: expected a list to iterate over, got a string [bad_items]"


@pytest.mark.req("PIPE-8")
def test_ten_thousand_items_keep_a_short_trace(tmp_path: Path) -> None:
    steps = "  - {id: ask, prompt: '{n}', batch_mode: true, batch_size: 500, max_workers: 50, output_key: out}"
    output, trace = run(made(tmp_path, steps), {"batch_items": [{"n": n} for n in range(10_000)]})
    assert output.steps["ask"] == [str(n) for n in range(10_000)]
    assert len(json.dumps(steps_in(trace)["ask"], default=str)) < 100_000


@pytest.mark.req("PIPE-8")
def test_a_failed_item_goes_through_the_next_steps_as_it_is(tmp_path: Path) -> None:
    steps = """
  - {id: one, code_ref: "own:halve", batch_mode: true, output_key: halves}
  - {id: two, prompt: "half is {half}", batch_mode: true, input_mapping: {items: halves}}
  - {id: total, type: batch_aggregator, strategy: summary, input_mapping: {items: two}}
"""
    target = made(tmp_path, steps, "def halve(n):\n    assert n % 2 == 0, n\n    return {'half': n // 2}")
    output, trace = run(target, {"batch_items": [{"n": 2}, {"n": 3}, {"n": 4}]})
    first, failed_item, last = output.steps["two"]
    assert (first, last) == ("HALF IS 1", "HALF IS 2") and "AssertionError: 3" in failed_item["error"]
    assert len([entry for entry in trace if entry["type"] == "llm"]) == 2
    assert (output.aggregation["total_items"], output.aggregation["failed_items"]) == (3, 1)


@pytest.mark.req("PIPE-9")
def test_items_that_only_look_like_failures_are_items(tmp_path: Path) -> None:
    steps = "  - {id: total, type: batch_aggregator, strategy: group, group_by: error}"
    output, _ = run(made(tmp_path, steps), {"batch_items": [{"error": "disk"}, {"error": "net"}]})
    assert output.aggregation == {"disk": [{"error": "disk"}], "net": [{"error": "net"}]}


@pytest.mark.req("PIPE-8")
def test_an_item_that_is_no_object_is_the_one_parameter(tmp_path: Path) -> None:
    steps = """
  - {id: cut, code_ref: "own:cut", input_mapping: {text: text}, output_key: words}
  - {id: each, code_ref: "own:loud", batch_mode: true, input_mapping: {items: words}}
"""
    target = made(
        tmp_path, steps, "def cut(text): return text.split()\ndef loud(text): return text.upper()", "inputs: [text]"
    )
    assert run(target, {"inputs": {"text": "a b"}})[0].value["each"] == ["A", "B"]


@pytest.mark.req("PIPE-8")
def test_what_is_mapped_or_given_wins_over_the_fields_of_an_item(tmp_path: Path) -> None:
    steps = """
  - {id: up, prompt: "{text}", batch_mode: true, output_key: loud}
  - {id: show, code_ref: "own:show", batch_mode: true, input_mapping: {text: loud, items: batch_items}}
"""
    target = made(tmp_path, steps, "def show(text, stars, mark='-'): return [text, stars, mark]")
    record = {"batch_items": [{"text": "a", "stars": 1, "mark": "?"}], "step_inputs": {"show": {"mark": "!"}}}
    assert run(target, record)[0].value["show"] == [["A", 1, "!"]]


FILLED = [
    # what the function or prompt needs, the inputs, an item, and what goes in
    ("def f(product, review): return [product, review]", {"product": "P"}, {"review": "r"}, ["P", "r"]),
    ("def f(text, language): return [text, language]", {"language": "en"}, "word", ["word", "en"]),
    ("def f(text): return text", {"text": "whole"}, "word", "word"),
    ("def f(row): return row", {}, {"a": 1}, {"a": 1}),
    ("def f(item): return item", {}, {"a": 1}, {"a": 1}),
    ("def f(a, b=0): return [a, b]", {"a": "input"}, {"a": "item"}, ["item", 0]),
]


@pytest.mark.req("PIPE-8")
@pytest.mark.parametrize(("code", "inputs", "item", "got"), FILLED)
def test_how_items_and_inputs_fill_a_function(code: str, inputs: Record, item: Any, got: Any, tmp_path: Path) -> None:
    steps = "  - {id: a, code_ref: 'own:f', batch_mode: true, input_mapping: {items: list}}"
    target = made(tmp_path, steps, code)
    assert run(target, {"inputs": {**inputs, "list": [item]}})[0].value["a"] == [got]


@pytest.mark.req("PIPE-8")
def test_an_item_that_lacks_a_field_fails_by_itself(tmp_path: Path) -> None:
    target = made(tmp_path, BATCH, "def each(review, rating): return rating")
    output, _ = run(target, {"batch_items": [{"review": "a", "rating": 1}, {"review": "b"}]})
    assert output.steps["each"][0] == 1 and "needs 'rating'" in output.steps["each"][1]["error"]


@pytest.mark.req("PIPE-8")
def test_fields_of_an_item_win_over_inputs_and_outputs_of_the_same_name(tmp_path: Path) -> None:
    steps = """
  - {id: intro, prompt: "{title}", output_key: summary}
  - {id: each, prompt: "{summary}/{review}/{title}", batch_mode: true, input_mapping: {items: batch_items}}
"""
    target = made(tmp_path, steps, more="inputs: [title, {name: review, default: none}]")
    record = {"inputs": {"title": "t"}, "batch_items": [{"review": "r1"}, {"review": "r2", "title": "own"}]}
    assert run(target, record)[0].value["each"] == ["T/R1/T", "T/R2/OWN"]


@pytest.mark.req("PIPE-8")
def test_a_step_to_which_only_failures_come_has_failed(tmp_path: Path) -> None:
    steps = """
  - {id: odd, code_ref: "own:odd", batch_mode: true, input_mapping: {items: batch_items}}
  - {id: even, code_ref: "own:even", batch_mode: true, input_mapping: {items: batch_items}}
  - {id: both, code_ref: "own:both", batch_mode: true, input_mapping: {a: odd, b: even}}
"""
    code = "def odd(n): assert n % 2\ndef even(n): assert n % 2 == 0\ndef both(a, b): return 1"
    said = failing(made(tmp_path, steps, code), {"batch_items": [{"n": 1}, {"n": 2}]})
    assert said.startswith("p.yaml: step 'both': all of its 2 items failed")


@pytest.mark.req("PIPE-8")
def test_parts_of_items_and_constants_for_all_of_them(tmp_path: Path) -> None:
    steps = "  - {id: a, prompt: '{word}{mark}', batch_mode: true, input_mapping: {word: batch_items.w, mark: batch_items.m}}"
    record = {"batch_items": [{"w": "a", "m": 1}, {"m": 2}], "step_inputs": {"a": {"mark": "!"}}}
    output, _ = run(made(tmp_path, steps), record)
    assert output.value["a"][0] == "A!" and "the item has nothing at '.w'" in output.value["a"][1]["error"]


@pytest.mark.req("PIPE-8")
def test_a_failure_is_told_by_the_step_where_it_happened(tmp_path: Path) -> None:
    steps = """
  - {id: a, code_ref: "own:a", batch_mode: true, output_key: ao}
  - {id: b, code_ref: "own:b", batch_mode: true, input_mapping: {n: ao}}
"""
    target = made(
        tmp_path, steps, "def a(n):\n    assert n != 1, 'one'\n    return n\ndef b(n): assert n != 3, 'three'"
    )
    run(target, {"batch_items": [{"n": n} for n in range(5)]})
    first, second = target.notes()
    assert first.startswith("step 'a': 1 of 5 items failed, such as: AssertionError: one")
    assert second.startswith("step 'b': 1 of 5 items failed, such as: AssertionError: three")


@pytest.mark.req("PIPE-8")
def test_step_inputs_of_one_step_do_not_reach_a_namesake(tmp_path: Path) -> None:
    steps = "  - {id: one, prompt: '1{k}', output_key: two}\n  - {id: two, prompt: '2{k}', output_key: three}"
    assert run(made(tmp_path, steps), {"step_inputs": {"two": {"k": "!"}}})[0].value == {"two": "1{K}", "three": "2!"}


@pytest.mark.req("PIPE-8")
def test_a_field_of_each_item_may_be_mapped(tmp_path: Path) -> None:
    steps = """
  - {id: one, code_ref: "own:one", batch_mode: true, output_key: found}
  - {id: two, prompt: "{word}", batch_mode: true, input_mapping: {word: found.word}}
"""
    target = made(tmp_path, steps, "def one(n): return {'word': 'w' * n}")
    assert run(target, {"batch_items": [{"n": 1}, {"n": 2}]})[0].value["two"] == ["W", "WW"]


def test_a_batch_may_be_given_by_the_step_inputs(tmp_path: Path) -> None:
    target = made(tmp_path, "  - {id: ask, prompt: '{x}', batch_mode: true}")
    assert run(target, {"step_inputs": {"ask": {"items": [{"x": "a"}, {"x": "b"}]}}})[0].value["ask"] == ["A", "B"]


def test_a_batch_that_grows_too_large_ends_at_once(tmp_path: Path) -> None:
    code = "made = 0\ndef each(name):\n    global made\n    made += 1\n    return 'x' * 3_000_000"
    target = made(tmp_path, BATCH, code)
    said = failing(target, {"batch_items": [{"name": n} for n in range(100)]})
    assert "of all items together" in said and "[output_too_large]" in said
    assert sys.modules["own"].made < 12


def test_the_calls_of_late_failures_are_kept(tmp_path: Path) -> None:
    steps = (
        "  - {id: ask, prompt: '{n}', batch_mode: true, output_parser: {type: choice, choices: ['7'], max_retries: 0}}"
    )
    steps = steps.replace("['7']", str([str(n) for n in range(99)]))
    trace: list[Record] = []

    def apart(trace: list[Record]) -> Context:
        async def traced(request: Request) -> Response:
            trace.append({"type": "llm", "request": request})
            return Response(request.messages[-1]["content"])

        return Context(case, Profile("p"), traced, traced, trace, 0, apart)

    case = to_case({"id": "c", "batch_items": [{"n": n} for n in range(100)]}, Origin("f"))
    target = made(tmp_path, steps)

    async def go() -> Output:
        return await target.call(case.inputs, apart(trace))

    asyncio.run(go())
    assert trace[0]["calls"][-1]["item"] == 99 and trace[0]["failed_items"] == 1


@pytest.mark.parametrize(
    "code",
    [
        "import time\nasync def slow(): time.sleep(0.3)",
        "import asyncio\nasync def slow():\n    try: await asyncio.sleep(9)\n    except BaseException: return 1",
    ],
)
def test_an_answer_that_comes_too_late_is_none(code: str, tmp_path: Path) -> None:
    said = failing(made(tmp_path, "  - {id: one, code_ref: 'own:slow', timeout: 0.1}", code), {})
    assert "no answer within 0.1 s" in said and said.endswith("[timeout]")
    assert ("slow() blocks its event loop at own.py:2" in said) == ("time.sleep" in code)


def test_a_huge_number_fails_its_step_only(tmp_path: Path) -> None:
    steps = "  - {id: big, code_ref: 'own:big', required: false}\n  - {id: ask, prompt: x}"
    output, _ = run(made(tmp_path, steps, "def big(): return 10 ** 5000"), {})
    assert output.value == {"ask": "X"}


# -- aggregation and code -----------------------------------------------------------------------------


@pytest.mark.req("PIPE-9", "PIPE-11")
def test_an_aggregator_makes_the_aggregation(tmp_path: Path) -> None:
    steps = """
  - id: total
    type: batch_aggregator
    aggregation_strategy: stats
    fields: [rating]
    input_mapping: {items: batch_items}
    output: {average: fields.rating.mean, how_many: total_items}
    output_key: figures
"""
    record: Record = {"batch_items": [{"rating": 5}, {"rating": 2}], "intermediate_expectations": {"figures": {}}}
    record["evaluation_config"] = {"evaluate_intermediate": True}
    output, _ = run(made(tmp_path, steps), record)
    assert output.aggregation == {"average": 3.5, "how_many": 2}
    assert output.steps == {"total": output.aggregation}
    asked = {**record, "step_inputs": {"total": {"strategy": "filter", "condition": "rating > 3", "output": {}}}}
    assert run(made(tmp_path, steps), asked)[0].aggregation == [{"rating": 5}]


CUSTOM = "  - {id: total, type: batch_aggregator, strategy: custom, code: 'def aggregate(items): return len(items)'}"


@pytest.mark.req("PIPE-12")
def test_code_is_off_unless_allowed(tmp_path: Path) -> None:
    optional = made(tmp_path, CUSTOM.replace("type:", "required: false, type:"))
    assert "[code_not_allowed]" in failing(optional, {"batch_items": [{}]})
    target = made(tmp_path, "  - {id: total, type: batch_aggregator}")
    code = {"strategy": "custom", "code": "def aggregate(items): return len(items)"}
    said = failing(target, {"batch_items": [{}, {}], "step_inputs": {"total": code}})
    assert said == "p.yaml: step 'total': its code is not run without --allow-code [code_not_allowed]"
    assert list(target.notes()) == ["step 'total': its code was not run. Pass --allow-code to run it in the sandbox"]


@pytest.mark.req("PIPE-12")
def test_a_pipeline_of_which_no_case_could_succeed_without_its_code_is_refused(tmp_path: Path) -> None:
    node = "  - {id: work, code: 'def run(): return 1'}"
    for steps in (CUSTOM, node):
        with pytest.raises(
            EvalloomError, match=r"step '\w+': has code, .* --allow-code .*\[code_not_allowed\]"
        ) as refused:
            made(tmp_path, steps)
        assert refused.value.exit_code == 2
    plain = "variants: {plain: {overrides: {work: {code_ref: 'own:f'}}}}"
    with pytest.raises(EvalloomError, match="code_not_allowed"):
        made(tmp_path, node, more=plain, code="def f(): 1")
    assert made(tmp_path, node, more=plain, code="def f(): 1", variants=("plain",))
    with pytest.raises(EvalloomError, match="code_not_allowed"):
        made(tmp_path, node, more=plain, code="def f(): 1", variants=("plain", ""))


@needs_sandbox
@pytest.mark.req("PIPE-9", "PIPE-12")
def test_code_runs_in_the_sandbox_when_allowed(tmp_path: Path) -> None:
    target = made(tmp_path, CUSTOM, allow_code=True)
    assert run(target, {"batch_items": [{}, {}]})[0].aggregation == 2
    assert run(target, {"batch_items": []})[0].aggregation == 0  # an empty list is a list like any other
    own = {"total": {"code": "def aggregate(items): return max(items)"}}
    assert "step 'total': ValueError: max() " in failing(target, {"batch_items": [], "step_inputs": own})
    own = {"total": {"code": "def aggregate(items): return analyze(items)"}}
    said = failing(target, {"batch_items": [{}], "step_inputs": own})
    assert "step 'total': NameError: name 'analyze' is not defined (line 1) [code_failed]" in said


@needs_sandbox
@pytest.mark.req("PIPE-8", "PIPE-12")
def test_code_goes_through_a_batch_and_prints_into_the_trace(tmp_path: Path) -> None:
    steps = """
  - id: each
    type: code_node
    batch_mode: true
    code: |
      def process(n):
          print('saw', n)
          return 10 // n
"""
    output, trace = run(made(tmp_path, steps, allow_code=True), {"batch_items": [{"n": 5}, {"n": 0}, {"n": 2}]})
    two, failed_item, five = output.steps["each"]
    assert (two, five) == (2, 5) and "ZeroDivisionError" in failed_item["error"]
    assert steps_in(trace)["each"]["calls"][0]["text"] == "saw 5\nsaw 0\nsaw 2\n"


@needs_sandbox
@pytest.mark.req("PIPE-8", "PIPE-12")
def test_an_item_whose_code_ends_the_process_keeps_its_slot(tmp_path: Path) -> None:
    steps = """
  - id: each
    type: code_node
    batch_mode: true
    code: |
      import os
      def process(n):
          return n or os._exit(1)
"""
    output, _ = run(made(tmp_path, steps, allow_code=True), {"batch_items": [{"n": 1}, {"n": 0}, {"n": 2}]})
    one, failed_item, two = output.steps["each"]
    assert (one, two) == (1, 2) and "[code_crashed]" in failed_item["error"]


@needs_sandbox
@pytest.mark.req("PIPE-12")
def test_code_has_the_time_of_its_step_and_waiting_for_a_place_is_not_counted(tmp_path: Path) -> None:
    steps = """
  - id: nap
    type: code_node
    timeout: 1
    code: |
      import time
      def process(s):
          time.sleep(s)
          return s
"""
    target = made(tmp_path, steps, allow_code=True)

    async def all_at_once() -> list[Output]:
        cases = [to_case({"id": f"c{n}", "inputs": {"s": 0.3}}, Origin("f")) for n in range(20)]
        contexts = [Context(case, Profile("p"), nobody, nobody, []) for case in cases]
        return await asyncio.gather(*(target.call(one.case.inputs, one) for one in contexts))

    async def nobody(request: Request) -> Response:
        raise AssertionError

    assert all(output.value == {"nap": 0.3} for output in asyncio.run(all_at_once()))
    assert "[code_timeout]" in failing(target, {"inputs": {"s": 9}})


def test_code_that_is_no_text_is_refused(tmp_path: Path) -> None:
    target = made(tmp_path, CUSTOM, allow_code=True)
    said = failing(target, {"batch_items": [{}], "step_inputs": {"total": {"code": 5}}})
    assert "step_inputs.total.code: expected a string, got 5 [bad_step_option]" in said


def test_code_in_another_language_is_refused(tmp_path: Path) -> None:
    steps = "  - {id: js, type: code_node, code: 'x => x', language: javascript}"
    assert "language: only Python code is run" in failing(made(tmp_path, steps, allow_code=True), {})


# -- variants and trace -------------------------------------------------------------------------------


@pytest.mark.req("PIPE-17")
def test_a_variant_changes_steps(tmp_path: Path) -> None:
    more = "variants: {loud: {overrides: {ask: {prompt: 'loud {x}', model_override: large}}}}"
    target = made(tmp_path, "  - {id: ask, prompt: 'plain {x}'}", more=more)
    assert {*target.variants} == {"baseline", "loud"}
    assert target.variants["baseline"] == target.digest != target.variants["loud"]
    assert run(target, {"inputs": {"x": "y"}})[0].value == {"ask": "PLAIN Y"}
    assert run(target, {"inputs": {"x": "y"}}, variant="loud")[0].value == {"ask": "LOUD Y"}


def test_the_digest_changes_with_what_counts(tmp_path: Path) -> None:
    def digest(steps: str, code: str = "def f(): return 1", more: str = "") -> str:
        return made(tmp_path, steps, code, more).digest

    one = digest("  - {id: a, code_ref: 'own:f'}\n  - {id: b, prompt: 'x'}")
    assert one == digest("  - {id: a, code_ref: 'own:f', description: d}\n  - {id: b, prompt: 'x'}", more="name: p")
    others = {
        digest("  - {id: a, code_ref: 'own:f'}\n  - {id: b, prompt: 'y'}"),
        digest("  - {id: a, code_ref: 'own:f'}\n  - {id: b, prompt: 'x', model: m}"),
        digest("  - {id: a, code_ref: 'own:f'}\n  - {id: b, prompt: 'x'}", "def f(): return 2"),
        digest("  - {id: a, code_ref: 'own:f'}\n  - {id: b, prompt: 'x'}", more="outputs: [a]"),
    }
    assert len(others | {one}) == 5


@pytest.mark.req("PIPE-6")
def test_the_trace_tells_inputs_prompt_output_repairs_and_tokens(tmp_path: Path) -> None:
    steps = "  - {id: ask, prompt: '{x}', output_parser: {type: json}}"
    answers = iter(["no json", 'Here: ```json\n{"a": 1}\n```'])

    async def llm(request: Request) -> Response:
        return Response(next(answers), usage=Usage(3, 2, calls=1))

    def apart(trace: list[Record]) -> Context:
        async def traced(request: Request) -> Response:
            trace.append({"type": "llm", "request": request, "response": (response := await llm(request))})
            return response

        return Context(case, Profile("p"), traced, traced, trace, 0, apart)

    case = to_case({"id": "c", "inputs": {"x": "y"}}, Origin("f"))
    trace: list[Record] = []
    target = made(tmp_path, steps)

    async def go() -> Output:
        return await target.call(case.inputs, apart(trace))

    assert asyncio.run(go()).value == {"ask": {"a": 1}}
    [entry] = trace
    assert (entry["inputs"], entry["output"], entry["tokens"], entry["llm_calls"]) == ({"x": "y"}, {"a": 1}, 10, 2)
    assert [call["type"] for call in entry["calls"]] == ["llm", "repair", "llm", "repair"]
    assert "asked again" in entry["repairs"][0] and entry["calls"][2]["request"].messages[-1]["role"] == "user"


def test_a_default_testset_is_found_beside_the_project(tmp_path: Path) -> None:
    (tmp_path / "testsets").mkdir()
    (tmp_path / "testsets/t.jsonl").write_text("{}")
    (tmp_path / "pipelines").mkdir()
    target = made(tmp_path / "pipelines", "  - {id: ask, prompt: x}", more="default_testset: t.jsonl")
    assert target.dataset is not None and target.dataset.resolve() == (tmp_path / "testsets/t.jsonl").resolve()
