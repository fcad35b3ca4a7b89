"""Hoplets: found in a task folder or by name, called as they are written, and held to their contract."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from evalloom.core.errors import CallError, EvalloomError
from evalloom.core.model import Output, Record, Request, Response, Usage
from evalloom.hop.system import SYSTEM
from evalloom.hop.target import as_hop_output
from evalloom.targets import DEFAULTS, BuiltTarget, TargetOptions
from evalloom.targets import build as build_target

Call = Callable[..., Output]


def build(spec: str | Record, folder: Path = Path(), options: TargetOptions = DEFAULTS) -> BuiltTarget:
    return build_target(spec, folder, structs.replace(options, kinds=SYSTEM.parts().targets))


ErrorOf = Callable[..., CallError]
METAINFO = """# t
## Input
| field | type | required |
|---|---|---|
| q | string | yes |
| tag | string | no |
## Output
| field | type | required |
|---|---|---|
| answer | string | yes |
| score | int | no |
"""


def task(folder: Path, code: str, metainfo: str = METAINFO) -> Path:
    (folder / "Hoplet").mkdir(exist_ok=True)
    (folder / "TestCases").mkdir(exist_ok=True)
    (folder / "Hoplet/Hop.py").write_text(code, encoding="utf-8")
    if metainfo:
        (folder / "Hoplet/metainfo.md").write_text(metainfo, encoding="utf-8")
    return folder


def built(folder: Path, code: str, metainfo: str = METAINFO, options: TargetOptions = DEFAULTS) -> BuiltTarget:
    spec = {"hoplet": str(task(folder, code, metainfo)), "observer": str(folder / "TestCases/observer.jsonl")}
    return build(spec, options=options)


def observed(folder: Path) -> list[Record]:
    log = folder / "TestCases/observer.jsonl"
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


@pytest.mark.req("HOP-8")
@pytest.mark.parametrize(
    "code",
    [
        "def check_hop(session, input_data): return {'answer': input_data['q']}",
        "async def check_hop(session, input_data): return {'answer': input_data['q']}",
        "async def HopCheck(s, data): return {'answer': data['q']}",
        "def hop(q): return {'answer': q}",
        "async def hop(q, session): return {'answer': q}",
        "def hop(**inputs): return {'answer': inputs['q']}",
        "from evalloom.hop import HopSession\ndef hop(s: HopSession, data): return {'answer': data['q']}",
        "import json\ndef hop(q): return json.dumps({'answer': q})",
        "def hop(q): return 'OK', {'answer': q}",
        "def hop(q): return ('OK', '{\"answer\": \"%s\"}' % q)",
        'def hop(q): return \'["OK", {"answer": "%s"}]\' % q',
        "def hop(session, input_data=None): return {'answer': input_data['q']}",
        "def hop(*given): return {'answer': given[1]['q']}",
        "def wrapped(f): return lambda *a, **k: f(*a, **k)\nhop = wrapped(lambda session, data: {'answer': data['q']})",
        "from functools import partial\ndef say(word, q): return {'answer': q}\nmy_hop = partial(say, 'hi')",
    ],
)
def test_every_way_to_write_a_hoplet(code: str, tmp_path: Path, call: Call) -> None:
    target = built(tmp_path, code)
    assert call(target, {"q": "x", "other": 1}) == Output({"answer": "x"})


@pytest.mark.req("HOP-8")
def test_fields_named_like_our_parameters_do_no_harm(tmp_path: Path, call: Call) -> None:
    code = "def hop(session, input_data): return [type(session).__name__, sorted(input_data)]"
    found = call(built(tmp_path, code, metainfo=""), {"session": 1, "input_data": 2})
    assert found.value == ["HopSession", ["input_data", "session"]]


@pytest.mark.req("HOP-8", "HOP-9")
def test_what_a_hoplet_returns_is_read_by_its_status() -> None:
    assert as_hop_output(("UNCERTAIN", "maybe")) == Output("maybe", outcome="UNCERTAIN")
    assert as_hop_output(["LACK_OF_INFO", None]) == Output(None, outcome="LACK_OF_INFO")
    assert as_hop_output(("yes", "no")) == Output(["yes", "no"])
    assert as_hop_output("2024") == Output("2024") and as_hop_output("{broken") == Output("{broken")
    with pytest.raises(CallError, match=r"the city is missing \[hop_fail\]"):
        as_hop_output(("FAIL", "the city is missing"))


Status = Enum("Status", "OK LACK_OF_INFO UNCERTAIN FAIL")
Words = Enum("Words", {"good": "OK", "Fail": "no"}, type=str)
Numbers = IntEnum("Numbers", "OK FAIL BROKEN")


@pytest.mark.req("HOP-8", "HOP-9")
@pytest.mark.parametrize("failed", [Status.FAIL, Words.Fail, Numbers.FAIL, "fail", "Fail", "FAIL"])
def test_a_status_counts_by_its_name_in_any_case(failed: Any) -> None:
    with pytest.raises(CallError, match=r"no city \[hop_fail\]"):
        as_hop_output((failed, "no city"))
    for nested in (("OK", (failed, "no city")), (Status.OK, (failed, "no city"))):
        with pytest.raises(CallError, match="hop_fail"):
            as_hop_output(nested)


@pytest.mark.req("HOP-8", "HOP-9")
def test_an_enum_may_be_any_of_the_four() -> None:
    assert as_hop_output((Status.UNCERTAIN, {"a": 1})) == Output({"a": 1}, outcome="UNCERTAIN")
    assert as_hop_output([Status.LACK_OF_INFO, None]) == Output(None, outcome="LACK_OF_INFO")
    assert as_hop_output((Words.good, 1)) == as_hop_output((Numbers.OK, 1)) == Output(1)
    assert as_hop_output(("lack of info", 1)).outcome == "LACK_OF_INFO"
    with pytest.raises(CallError, match="hop_fail"):
        as_hop_output(Status.FAIL)


@pytest.mark.req("HOP-8")
@pytest.mark.parametrize(
    "returned",
    [(Numbers.BROKEN, 1), [Numbers.BROKEN, 1], ("error", "x"), ("失败", "x"), ("ERROR", "x"), (False, "x"), (None, "x"),
     (Status.FAIL, "x", {}), ("FAIL", "x", {})],
)  # fmt: skip
def test_what_may_be_a_status_and_is_none_is_an_error(returned: Any) -> None:
    with pytest.raises(CallError, match=r"status: expected .*, got .*return a list \[bad_status\]"):
        as_hop_output(returned)


@pytest.mark.req("HOP-8")
@pytest.mark.parametrize(
    "data",
    [(0.5, 1), ({}, 1), ([1], 2), (4, "good"), ("Paris", 0.9), ["ok", "fail"], [False, 1], (1, 2, 3), (), ["OK"]],
)
def test_what_cannot_be_a_status_is_data(data: Any) -> None:
    assert as_hop_output(data) == Output(list(data))


@pytest.mark.req("HOP-2")
def test_a_hoplet_receives_the_fields_of_its_contract_and_nothing_else(tmp_path: Path, call: Call) -> None:
    target = built(tmp_path, "def hop(**got): return {'answer': str(sorted(got))}")
    inputs = {"q": "x", "tag": "t", "expected_answer": 1, "hop_result": "{}", "id": 1}
    assert call(target, inputs).value == {"answer": "['q', 'tag']"}
    assert target.contract is not None and list(target.contract.inputs) == ["q", "tag"]


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        ("def hop(session, q: str, k: int = 3): return {}", ["q", "k"]),
        ("def hop(session, input_data): return {}", None),
        ("def hop(s, data): return {}", None),
        ("def hop(session, data: dict): return {}", None),
        ("from typing import Any\ndef hop(sess, case: dict[str, Any]): return {}", None),
    ],
)
def test_a_signature_is_a_contract_where_it_names_fields(code: str, fields: list[str] | None, tmp_path: Path) -> None:
    contract = built(tmp_path, code, metainfo="").contract
    assert (list(contract.inputs) if contract else None) == fields


@pytest.mark.req("HOP-8")
def test_an_exception_is_an_error_with_its_traceback_in_the_trace(
    tmp_path: Path, fault_of: ErrorOf, trace: list[Record]
) -> None:
    target = built(tmp_path, 'def hop(q):\n    raise ValueError("no such city")')
    error = fault_of(target, {"q": "x"})
    assert str(error) == "ValueError: no such city [target_raised]"
    assert trace[-1]["type"] == "traceback" and 'raise ValueError("no such city")' in trace[-1]["text"]
    start, end = observed(tmp_path)
    assert (start["hoplet"], end["status"], end["metadata"]["error"]) == ("hop", "ERROR", str(error))


@pytest.mark.req("HOP-8")
@pytest.mark.parametrize("raised", ["SystemExit(3)", "Mine('x')", "BaseExceptionGroup('g', [Mine('x')])"])
@pytest.mark.parametrize("word", ["", "async "])
def test_whatever_is_raised_is_an_error_of_one_run(word: str, raised: str, tmp_path: Path, fault_of: ErrorOf) -> None:
    code = f"class Mine(BaseException): pass\n{word}def hop(q): raise {raised}"
    assert fault_of(built(tmp_path, code), {"q": "x"}).code == "target_raised"


@pytest.mark.req("HOP-8")
@pytest.mark.parametrize(
    "code",
    [
        "import asyncio\nasync def hop(q): await asyncio.sleep(60)",
        "import time\ndef hop(q): time.sleep(3)",
        "import time\nasync def hop(q): time.sleep(0.4); return {'answer': 'late'}",
        "import asyncio\nasync def hop(q):\n    try: await asyncio.sleep(60)\n    except BaseException: return {'answer': 'late'}",
    ],
)
def test_a_hoplet_that_hangs_is_given_up(code: str, tmp_path: Path, fault_of: ErrorOf) -> None:
    target = built(tmp_path, code, options=TargetOptions(timeout_s=0.2))
    error = fault_of(target, {"q": "x"})
    assert error.code == "timeout" and error.message.startswith("no answer within 0.2 s")
    assert "time.sleep" not in code or "hop() " in error.message
    assert observed(tmp_path)[-1]["status"] == "ERROR"


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("object()", "output: expected a JSON value, got object"),
        ("None", "returned null, but the contract expects an object with answer, score [contract_broken]"),
        ("'text'", "returned 'text', but the contract expects an object"),
        ("{'score': 1}", "answer: missing; the contract expects string [contract_broken]"),
        ("{'answer': 1, 'score': '5'}", "answer: expected string by the contract, got 1; score: expected int"),
        ("('FAIL', {'why': '没有'})", '{"why": "没有"} [hop_fail]'),
        ("('GOOD', {'answer': 'x'})", "status: expected OK, LACK_OF_INFO, UNCERTAIN, FAIL, got 'GOOD'"),
        ("('FAIL', '')", "the hoplet returned FAIL without a reason [hop_fail]"),
    ],
)
def test_rubbish_is_an_error_that_says_what_was_expected(
    returned: str, message: str, tmp_path: Path, fault_of: ErrorOf
) -> None:
    target = built(tmp_path, f"def hop(q): return {returned}")
    assert message in str(fault_of(target, {"q": "x"}))


def test_an_answer_that_lacks_information_need_not_fill_the_contract(tmp_path: Path, call: Call) -> None:
    target = built(tmp_path, 'def hop(q): return "LACK_OF_INFO", None')
    assert call(target, {"q": "x"}) == Output(None, outcome="LACK_OF_INFO")


@pytest.mark.req("HOP-12", "HOP-13")
def test_operators_and_own_steps_are_taken_down_in_order(tmp_path: Path, call: Call, trace: list[Record]) -> None:
    code = """
async def hop(session, input_data):
    session.tracer.trace_step("retrieve", "find documents", duration=0.1)
    status, answer = await session.hop_get("Answer: " + input_data["q"], verifier=None)
    return status, {"answer": answer}
"""

    async def llm(request: Request) -> Response:
        return Response("Paris")

    output = call(built(tmp_path, code), {"q": "Capital?"}, llm)
    steps = [entry for entry in trace if entry["type"] == "step"]
    assert output.value == {"answer": "Paris"}
    assert [(step["step"], step["op"], step["status"]) for step in steps] == [
        (1, "retrieve", "OK"),
        (2, "hop_get", "OK"),
    ]
    assert [line["type"] for line in observed(tmp_path)] == ["run_start", "step", "step", "run_end"]
    assert len({line["run_id"] for line in observed(tmp_path)}) == 1


@pytest.mark.req("HOP-13", "HOP-18")
def test_the_log_says_which_runs_and_steps_had_answers_from_the_cache(tmp_path: Path, call: Call) -> None:
    code = """
async def hop(session, input_data):
    status, answer = await session.hop_get("Answer: " + input_data["q"], verifier=None)
    return status, {"answer": answer}
"""

    async def llm(request: Request) -> Response:
        is_known = "again" in str(request.messages)
        return Response("Paris", usage=Usage(calls=1, cached=int(is_known)))

    for question in ("Capital?", "Capital again?"):
        call(built(tmp_path, code), {"q": question}, llm)
    told = [line.get("metadata", {}).get("cached") for line in observed(tmp_path) if line["type"] != "run_start"]
    assert told == [None, None, 1, 1]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def a_hop(q): 1\ndef b_hop(q): 2", "expected one function with 'hop' in its name, got a_hop, b_hop"),
        (
            "def check(q): 1\nfrom evalloom.hop import HopSession",
            "expected a function with 'hop' in its name; it has check",
        ),
        ("def hop(:", "is not Python"),
        ("import nowhere_to_be_found\ndef hop(q): 1", "cannot import"),
    ],
)
def test_a_hoplet_that_cannot_be_told_is_refused(code: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(EvalloomError, match="hop") as caught:
        built(tmp_path, code)
    assert message in str(caught.value) and caught.value.exit_code == 2


@pytest.mark.parametrize("reference", ["nowhere", "empty", "nowhere:hop", "nowhere.py:hop"])
def test_a_task_that_is_not_there_is_refused(reference: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(EvalloomError) as caught:
        build(f"hoplet:{reference}", tmp_path)
    assert caught.value.code in ("task_missing", "target_missing")


def test_what_lies_beside_the_hoplet_is_imported_and_changes_its_digest(tmp_path: Path, call: Call) -> None:
    code = "from Hoplet.words import HI\nimport words\ndef hop(q): return {'answer': HI + words.HI}"
    task(tmp_path, code)
    (tmp_path / "Hoplet/words.py").write_text("HI = 'hi'")
    first = build(f"hoplet:{tmp_path}")
    assert call(first, {"q": "x"}).value == {"answer": "hihi"}
    (tmp_path / "Hoplet/metainfo.md").write_text(METAINFO + "\nmore")
    assert build(f"hoplet:{tmp_path}").digest != first.digest


@pytest.mark.parametrize("is_package", [False, True])
def test_tasks_of_one_process_keep_their_neighbours_apart(is_package: bool, tmp_path: Path, call: Call) -> None:
    found = []
    for name in ("one", "two", "one", "three"):
        (tmp_path / name).mkdir(exist_ok=True)
        near = "from .aside import WORD" if is_package else "from aside import WORD"
        task(
            tmp_path / name,
            f"{near}\nfrom Hoplet.aside import WORD as again\ndef hop(q): return {{'answer': WORD + again}}",
        )
        (tmp_path / name / "Hoplet/aside.py").write_text(f"WORD = {name!r}")
        if is_package:
            (tmp_path / name / "Hoplet/__init__.py").touch()
        found.append(call(build(f"hoplet:{tmp_path / name}"), {"q": "x"}).value["answer"])
    assert found == ["oneone", "twotwo", "oneone", "threethree"]


def test_a_contract_without_tables_is_none(tmp_path: Path) -> None:
    assert built(tmp_path, "def hop(session, input_data): return {}", metainfo="# Notes only").contract is None
    with pytest.raises(EvalloomError, match="this name is reserved for result files"):
        built(tmp_path, "def hop(session, input_data): return {}", metainfo=METAINFO.replace("| q |", "| profile |"))


def test_who_takes_a_session_needs_an_llm(tmp_path: Path) -> None:
    assert built(tmp_path, "def hop(session, input_data): return {}").needs_llm
    assert not built(tmp_path, "def hop(q): return {}").needs_llm


def test_a_package_may_import_relatively(tmp_path: Path, call: Call) -> None:
    task(tmp_path, "from .words import HI\ndef hop(q): return {'answer': HI}")
    (tmp_path / "Hoplet/__init__.py").touch()
    (tmp_path / "Hoplet/words.py").write_text("HI = 'hi'")
    assert call(build(f"hoplet:{tmp_path}"), {"q": "x"}).value == {"answer": "hi"}


def test_nothing_is_observed_unless_it_is_asked_for(tmp_path: Path, call: Call) -> None:
    (tmp_path / "lone_hoplet.py").write_text("def hop(q): return q")
    assert call(build("hoplet:lone_hoplet:hop", tmp_path), {"q": "x"}).value == "x"
    named: Any = {"hoplet": "lone_hoplet:hop", "observer": "logs/observer.jsonl"}
    call(build(named, tmp_path), {"q": "x"})
    assert [file.name for file in tmp_path.rglob("*.jsonl")] == ["observer.jsonl"]
