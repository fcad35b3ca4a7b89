"""What every target keeps: it times out, fails as an error of one run, knows itself, and survives any input."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from evalloom import catalog
from evalloom.core.errors import CallError
from evalloom.core.model import Case, Context, Output, Profile, Record, Request, Response
from evalloom.targets import BuiltTarget, TargetOptions, build

KINDS = [kind.name for kind in catalog.load().all_targets]
WAYS = ("echo", "slow", "fails")
OPTIONS = TargetOptions(kinds=catalog.load().targets)
SHORT = structs.replace(OPTIONS, timeout_s=0.2)

CODE = """
import asyncio
def echo(**inputs): return inputs
async def slow(**inputs): await asyncio.sleep(30)
def fails(**inputs): raise ValueError("no")
"""
COMMANDS = {"echo": "cat", "slow": "sleep 30", "fails": "sh -c 'echo no >&2; exit 3'"}


def spec_of(kind: str, way: str, folder: Path, port: int = 9, edit: str = "") -> Record:
    """A target of each kind that echoes its inputs, never answers, or fails; `edit` makes it another."""
    if kind == "prompt":
        (folder / "p.md").write_text(f"{way}{edit}\n{{{{all}}}}")
        return {"prompt": "p.md"}
    if kind in ("python", "hoplet"):
        (folder / "conforming.py").write_text(CODE + f"# {edit}\n")
        return {kind: f"conforming.py:{way}"}
    if kind == "http":
        return {"http": f"http://127.0.0.1:{port}/{way}{edit}"}
    if kind == "command":
        return {"command": COMMANDS[way] + (f" '{edit}'" if edit else "")}
    if kind == "pipeline":
        (folder / "conforming.py").write_text(CODE + f"# {edit}\n")
        (folder / "p.yaml").write_text(f"steps: [{{id: echoed, code_ref: 'conforming.py:{way}'}}]")
        return {"pipeline": "p.yaml"}
    if kind == "recipe":
        node = {"id": f"n{edit}", "data": {"label": way, "type": "user_input", "content": "{{all}}"}}
        (folder / "r.json").write_text(json.dumps({"name": "r", "state": {"nodes": [node]}}))
        return {"recipe": "r.json"}
    raise AssertionError(f"say here how a target of the new kind {kind!r} echoes, hangs and fails")


async def llm(request: Request) -> Response:
    """Echoes, never answers, or fails, as the first line of the prompt says."""
    way, _, rest = request.messages[-1]["content"].partition("\n")
    way = way.strip("- ")
    if way == "slow":
        await asyncio.sleep(30)
    if way == "fails":
        raise CallError("http_400", "no")
    return Response(rest)


@asynccontextmanager
async def server() -> AsyncIterator[int]:
    """A server that echoes, never answers, or fails, as the path says."""

    unanswered: list[asyncio.StreamWriter] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = next(int(line[16:]) for line in head.split("\r\n") if line.lower().startswith("content-length: "))
        body = await reader.readexactly(length)
        if " /slow " in head:
            unanswered.append(writer)
            return
        status, body = (b"400 Bad", b"no") if " /fails " in head else (b"200 OK", body)
        writer.write(b"HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        for writer in unanswered:
            writer.close()


async def called(
    kind: str, way: str, folder: Path, inputs: Record, options: TargetOptions
) -> tuple[Output | CallError, list[Record]]:
    """What a call of a target ends in, and its trace."""
    if kind in ("prompt", "recipe"):
        inputs = {"all": inputs}
    context = Context(Case("1", inputs), Profile("p"), llm, llm, [])
    async with server() as port:
        target = build(spec_of(kind, way, folder, port), folder, options)
        try:
            return await target.call(inputs, context), context.trace
        except CallError as fault:
            return fault, context.trace
        finally:
            await target.close()


def value_of(kind: str, output: Output | CallError) -> Any:
    """What an echo gave back, as the inputs it came from."""
    assert isinstance(output, Output), output
    value = output.value["echoed"] if kind == "pipeline" else output.value
    return json.loads(value) if kind in ("prompt", "recipe") else value


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_target_answers_on_every_loop(kind: str, run: Any, tmp_path: Path) -> None:
    output, trace = run(called(kind, "echo", tmp_path, {"q": "为什么"}, OPTIONS))
    assert value_of(kind, output) == {"q": "为什么"}
    assert all(entry["type"] and msgspec.json.encode(entry) for entry in trace)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_target_times_out(kind: str, run: Any, tmp_path: Path) -> None:
    fault, _ = run(called(kind, "slow", tmp_path, {"q": "x"}, SHORT))
    assert isinstance(fault, CallError)
    assert (str(fault), fault.is_transient) == ("no answer within 0.2 s [timeout]", False)


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_inside_is_an_error_of_the_run(kind: str, tmp_path: Path) -> None:
    fault, trace = asyncio.run(called(kind, "fails", tmp_path, {"q": "x"}, OPTIONS))
    assert isinstance(fault, CallError) and fault.code and "no" in f"{fault} {trace}"
    assert msgspec.json.encode(trace)


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_that_is_cancelled_stops(kind: str, tmp_path: Path) -> None:
    async def stopped() -> bool:
        task = asyncio.create_task(called(kind, "slow", tmp_path, {"q": "x"}, OPTIONS))
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.wait([task], timeout=5)
        return task.cancelled()

    assert asyncio.run(stopped())


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_knows_itself_and_its_edits(kind: str, tmp_path: Path) -> None:
    def built(way: str, edit: str = "") -> BuiltTarget:
        return build(spec_of(kind, way, tmp_path, edit=edit), tmp_path, OPTIONS)

    digests = {(way, edit): built(way, edit).digest for way in WAYS for edit in ("", "x")}
    assert len(set(digests.values())) == 6
    assert all(built(way, edit).digest == digest for (way, edit), digest in digests.items())
    assert built("echo").kind == kind and built("echo").name


HOSTILE: dict[str, Any] = {
    "huge text": {"q": "长" * 1_000_000},
    "nothing": {},
    "nulls": {"q": None, "": None},
    "nested": {"q": [[[{"a": [{}] * 100}]]]},
    "names": {"__class__": "x", "self": 1, "context": 2, "inputs": 3, "{{q}}": 4, "a b": 5, "a.b[0]": 6},
    "holes": {"q": "{{q}} {q} ${HOME} $(id) %s {{__class__}}"},
    "control": {"q": "\x00\x1b[31m\r\n\u2028\ufeff"},
    "numbers": {"q": 2**63, "r": -0.0, "s": 1e308, "t": True},
    "emoji": {"q": "👩‍👩‍👧 e\u0301 \U0010ffff"},
}


# REPLAY-10: a recipe cuts what is huge.
UNHARMED = [(kind, name) for kind in KINDS for name in HOSTILE if (kind, name) != ("recipe", "huge text")]


@pytest.mark.parametrize(("kind", "name"), UNHARMED)
def test_hostile_inputs_go_through_unharmed(kind: str, name: str, tmp_path: Path) -> None:
    output, trace = asyncio.run(called(kind, "echo", tmp_path, HOSTILE[name], structs.replace(OPTIONS, timeout_s=20)))
    assert value_of(kind, output) == HOSTILE[name]
    assert len(msgspec.json.encode(trace)) < 500_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(inputs=st.dictionaries(st.text(max_size=10), JSON, max_size=4))
def test_any_inputs_go_through_unharmed(kind: str, inputs: Record, tmp_path: Path) -> None:
    output, _ = asyncio.run(called(kind, "echo", tmp_path, inputs, structs.replace(OPTIONS, timeout_s=20)))
    assert value_of(kind, output) == inputs
