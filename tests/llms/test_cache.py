"""The same question is asked once, and a cache that breaks is only told about."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.errors import CallError
from evalloom.core.model import Request, Response, Usage
from evalloom.llms.cache import Cache, Store, digest
from evalloom.llms.scripted import Scripted

COUNTING = {"rules": [{"match": "fails", "fault": "drop"}, {"answers": ["first", "second", "third"]}]}


def ask(text: str = "hello", temperature: Any = 0, repeat: int = 0) -> Request:
    return Request([{"role": "user", "content": text}], {"temperature": temperature}, repeat=repeat)


def answers(llm: Cache, *requests: Request) -> list[str]:
    async def run() -> list[str]:
        return [(await llm(request)).text for request in requests]

    return asyncio.run(run())


def test_the_same_question_is_asked_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache" / "llm.sqlite3")
    llm = Cache(Scripted(COUNTING), store, ("scripted", "", "m"))
    assert answers(llm, ask(), ask()) == ["first", "first"]
    assert asyncio.run(llm(ask())).usage == Usage(calls=1, cached=1)
    store.close()


def test_the_next_process_finds_the_answer(tmp_path: Path) -> None:
    path = tmp_path / "llm.sqlite3"
    for _ in range(2):
        store = Store(path)
        assert answers(Cache(Scripted(COUNTING), store, ("a",)), ask(), ask("other")) == ["first", "first"]
        store.close()
    changed = Scripted({"default": "from elsewhere"})
    assert answers(Cache(changed, Store(path), ("a",)), ask()) == ["first"]
    assert answers(Cache(changed, Store(path), ("b",)), ask()) == ["from elsewhere"]


def test_what_is_drawn_at_random_is_asked_each_time(tmp_path: Path) -> None:
    store = Store(tmp_path / "llm.sqlite3")
    llm = Cache(Scripted(COUNTING), store, ("a",))
    bare = Request([{"role": "user", "content": "hello"}])
    assert answers(llm, ask(temperature=0.7), ask(temperature=0.7), bare, bare) == [
        "first",
        "second",
        "first",
        "second",
    ]
    judge = Cache(Scripted(COUNTING), store, ("judge",), always=True)
    assert answers(judge, bare, bare) == ["first", "first"]
    store.close()


def test_repetitions_share_no_answer(tmp_path: Path) -> None:
    store = Store(tmp_path / "llm.sqlite3")
    llm = Cache(Scripted(COUNTING), store, ("a",))
    assert answers(llm, ask(), ask(repeat=1), ask(), ask(repeat=1)) == ["first", "second", "first", "second"]
    store.close()


def test_a_failed_call_is_not_kept(tmp_path: Path) -> None:
    store = Store(tmp_path / "llm.sqlite3")
    for _ in range(2):
        with pytest.raises(CallError, match="connection_broke"):
            answers(Cache(Scripted(COUNTING), store, ("a",)), ask("fails"))
    store.close()


class Slow:
    """Counts calls, each of which lasts until the event loop has turned a few times; the first ones fail."""

    def __init__(self, failing: int = 0) -> None:
        self.calls = 0
        self._failing = failing

    async def __call__(self, request: Request) -> Response:
        self.calls += 1
        number = self.calls
        for _ in range(5):
            await asyncio.sleep(0)
        if number <= self._failing:
            raise CallError("http_400", "no")
        return Response(f"answer {number}", usage=Usage(5, 5, calls=1))


def together(llm: Cache, *requests: Request) -> list[Any]:
    async def run() -> list[Any]:
        return await asyncio.gather(*(llm(request) for request in requests), return_exceptions=True)

    return asyncio.run(run())


def test_identical_requests_in_flight_are_sent_once(tmp_path: Path) -> None:
    store, slow = Store(tmp_path / "llm.sqlite3"), Slow()
    responses = together(Cache(slow, store, ("a",)), ask(), ask(), ask("other"), ask())
    assert [response.text for response in responses] == ["answer 1", "answer 1", "answer 2", "answer 1"]
    assert [response.usage.cached for response in responses] == [0, 1, 0, 1] and slow.calls == 2
    store.close()


def test_repeats_and_random_answers_in_flight_are_not_shared(tmp_path: Path) -> None:
    store, slow = Store(tmp_path / "llm.sqlite3"), Slow()
    together(Cache(slow, store, ("a",)), ask(), ask(repeat=1), ask(temperature=1), ask(temperature=1))
    assert slow.calls == 4
    store.close()


def test_those_who_waited_for_a_failing_request_ask_for_themselves(tmp_path: Path) -> None:
    store, slow = Store(tmp_path / "llm.sqlite3"), Slow(failing=1)
    first, *others = together(Cache(slow, store, ("a",)), ask(), ask(), ask())
    assert isinstance(first, CallError) and [response.text for response in others] == ["answer 2", "answer 3"]
    assert not store.in_flight
    store.close()


@pytest.mark.parametrize("cancelled", [0, 1])
def test_a_cancelled_request_harms_no_other(tmp_path: Path, cancelled: int) -> None:
    store, slow = Store(tmp_path / "llm.sqlite3"), Slow()
    llm = Cache(slow, store, ("a",))

    async def run() -> list[Any]:
        tasks = [asyncio.ensure_future(llm(ask())) for _ in range(3)]
        await asyncio.sleep(0)
        tasks.pop(cancelled).cancel()
        return await asyncio.gather(*tasks)

    assert all(response.text.startswith("answer") for response in asyncio.run(run()))
    store.close()


def test_answers_are_on_disk_soon_and_after_many_at_once(tmp_path: Path) -> None:
    path = tmp_path / "llm.sqlite3"
    store = Store(path)

    async def run() -> list[int]:
        llm = Cache(Scripted({"default": "x"}), store, ("a",))
        for number in range(300):
            await llm(ask(str(number)))
        early = rows(path)
        await asyncio.sleep(0.3)
        return [early, rows(path)]

    assert asyncio.run(run()) == [256, 300]
    store.close()


def rows(path: Path) -> int:
    found: int = sqlite3.connect(path).execute("SELECT count(*) FROM answers").fetchone()[0]
    return found


def test_a_broken_file_is_told_once_and_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "llm.sqlite3"
    path.write_bytes(b"this is no database, whatever its name says" * 100)
    told: list[str] = []
    store = Store(path, told.append)
    assert answers(Cache(Scripted(COUNTING), store, ("a",)), ask(), ask()) == ["first", "second"]
    store.close()
    assert len(told) == 1 and told[0].startswith(path.as_posix()) and told[0].endswith("[cache_unusable]")


def test_a_folder_that_cannot_be_made_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file stands where the folder should be")
    told: list[str] = []
    store = Store(tmp_path / "file" / "llm.sqlite3", told.append)
    assert answers(Cache(Scripted(COUNTING), store, ("a",)), ask(), ask()) == ["first", "second"]
    store.close()
    assert len(told) == 1


def test_an_entry_that_cannot_be_read_is_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "llm.sqlite3"
    store = Store(path)
    answers(Cache(Scripted(COUNTING), store, ("a",)), ask())
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE answers SET answer = x'c1c1'")
    again = Store(path)
    assert answers(Cache(Scripted({"default": "new"}), again, ("a",)), ask(), ask()) == ["new", "new"]
    again.close()


WRITER = """
import sys
from pathlib import Path
from evalloom.llms.cache import Store
store = Store(Path(sys.argv[1]), lambda message: sys.exit(message))
for number in range(1000):
    store.put(f"{sys.argv[2]}-{number}".encode(), b"answer")
store.close()
"""


def test_processes_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "llm.sqlite3"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], env=os.environ) for name in "abc"]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert rows(path) == 3000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_the_order_of_fields_does_not_matter(params: dict[str, Any]) -> None:
    backwards = dict(reversed(params.items()))
    assert digest(Request([params], params)) == digest(Request([backwards], backwards))
    assert digest(Request([params], params)) != digest(Request([params], params, repeat=1))


def test_what_is_no_json_has_a_digest_too() -> None:
    odd = Request([{"role": "user", "content": "half a pair \ud800"}])
    assert digest(odd) == digest(odd) != digest(Request([{"role": "user", "content": object()}]))
