"""`file://`, `chat://` and `env://`: what stands in the data folder or is allowed by name, and nothing beside it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from evalloom.replay.resolvers import MOST_BYTES, Reach, resolve

pytestmark = pytest.mark.req("REPLAY-5")


@pytest.fixture
def reach(tmp_path: Path) -> Reach:
    folder = tmp_path / "data"
    (folder / "chats").mkdir(parents=True)
    (folder / "store").mkdir()
    (folder / "store" / "replay.sqlite").write_text("runs")
    (folder / "notes.txt").write_text("你好, notes\n")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "data-2").mkdir()
    (tmp_path / "data-2" / "secret.txt").write_text("secret")
    return Reach(folder, closed=(folder / "store",))


@pytest.mark.parametrize(
    "name", ["notes.txt", "./notes.txt", "chats/../notes.txt", "../data/notes.txt", "link.txt", "{folder}/notes.txt"]
)
def test_a_file_inside_the_folder_is_read(name: str, reach: Reach) -> None:
    (reach.folder / "link.txt").symlink_to("notes.txt")
    name = name.replace("{folder}", reach.folder.as_posix())
    assert resolve(f"file://{name}", "ignored", reach).value == "你好, notes\n"
    assert resolve("file://", name, reach).value == "你好, notes\n"


@pytest.mark.parametrize(
    "name",
    [
        "../secret.txt",
        "/etc/passwd",
        "link.txt",
        "folder/secret.txt",
        "../data-2/secret.txt",
        "loop/x",
        "a\0b",
        "store/replay.sqlite",
        "store/../STORE/replay.sqlite",
    ],
)
def test_nothing_outside_the_folder_and_nothing_of_our_own_is_read(name: str, reach: Reach) -> None:
    (reach.folder / "link.txt").symlink_to(reach.folder.parent / "secret.txt")
    (reach.folder / "folder").symlink_to(reach.folder.parent)
    (reach.folder / "loop").symlink_to("loop")
    found = resolve(f"file://{name}", "", reach)
    # Whether the last one is there at all depends on the file system.
    assert found.error_code in ("outside_folder", "not_found") and found.value == ""
    assert found.error_code == "outside_folder" or name in ("store/../STORE/replay.sqlite", "loop/x")


def test_another_name_of_our_own_files_does_not_open_them(reach: Reach) -> None:
    os.link(reach.folder / "store" / "replay.sqlite", reach.folder / "copy.sqlite")
    reach = msgspec.structs.replace(reach, closed=(reach.folder / "store" / "replay.sqlite", reach.folder / "missing"))
    assert resolve("file://copy.sqlite", "", reach).error_code == "outside_folder"
    assert resolve("sqlite://store/replay.sqlite", "SELECT 1", reach).error_code == "outside_folder"


@pytest.mark.parametrize("name", [".env", ".git/config", "link"])
def test_hidden_files_are_not_read(name: str, reach: Reach) -> None:
    (reach.folder / ".git").mkdir()
    (reach.folder / ".git" / "config").write_text("secret")
    (reach.folder / ".env").write_text("PASSWORD=secret")
    (reach.folder / "link").symlink_to(".env")
    found = resolve(f"file://{name}", "", reach)
    assert found.error_code == "not_allowed" and "hidden files" in found.message


@pytest.mark.parametrize("name", ["missing.txt", "chats", "pipe", "", " ", "x" * 300, "notes.txt/x"])
def test_what_is_no_regular_file_is_not_found_and_not_waited_for(name: str, reach: Reach) -> None:
    os.mkfifo(reach.folder / "pipe")
    found = resolve(f"file://{name}", "", reach)
    assert found.error_code == "not_found" and found.duration_ms < 1000


def test_a_long_file_is_cut_between_characters_and_what_is_no_text_replaced(reach: Reach) -> None:
    (reach.folder / "long.txt").write_bytes(b"\xff" + "字".encode() * 100_000)
    found = resolve("file://long.txt", "", reach)
    assert found.truncated and found.value == "\ufffd" + "字" * ((MOST_BYTES - 3) // 3)


# -- chats --------------------------------------------------------------------------------------------

CHAT = """{"role": "user", "content": "Where is my parcel?"}
{"role": "assistant", "content": null, "tool_calls": [{"id": "1"}]}

{"role": "tool", "content": [{"type": "text", "text": "在路上"}], "at": "2024-05-06"}
{"role": "assistant", "content": "On its way."}
"""


@pytest.mark.parametrize(("count", "lines"), [("", 4), ("1", 1), (" 2 ", 2), ("99", 4)])
def test_a_chat_is_its_last_messages(count: str, lines: int, reach: Reach) -> None:
    (reach.folder / "chats" / "parcel-1.jsonl").write_text(CHAT, encoding="utf-8")
    shown = [
        "user: Where is my parcel?",
        "assistant: ",
        'tool: [{"text":"在路上","type":"text"}]',
        "assistant: On its way.",
    ]
    assert resolve("chat://parcel-1", count, reach).value == "\n".join(shown[-lines:])


@pytest.mark.parametrize("session", ["", "a/b", "../notes", "..", "a" * 65, "a.b", "á", "missing"])
def test_a_session_that_cannot_be_is_not_found(session: str, reach: Reach) -> None:
    assert resolve(f"chat://{session}", "", reach).error_code == "not_found"


@pytest.mark.parametrize("count", ["0", "-1", "1.5", "all", "٣", "9" * 40])
def test_what_is_no_number_of_messages_is_told(count: str, reach: Reach) -> None:
    (reach.folder / "chats" / "a.jsonl").write_text(CHAT, encoding="utf-8")
    found = resolve("chat://a", count, reach)
    assert found.error_code == "query_failed" and "the number of messages" in found.message


@pytest.mark.parametrize(
    "line", ["[]", '{"content": "x"}', '{"role": 1}', "{", '{"role": "u", "content": ' + "[" * 5000, "\ufeff{}"]
)
def test_a_broken_line_is_told_by_its_number(line: str, reach: Reach) -> None:
    (reach.folder / "chats" / "a.jsonl").write_text(f"{CHAT}{line}\n", encoding="utf-8")
    found = resolve("chat://a", "", reach)
    assert found.error_code == "query_failed" and "chats/a.jsonl:6: expected" in found.message


def test_an_empty_chat_is_an_empty_text_and_a_huge_one_is_refused(reach: Reach) -> None:
    (reach.folder / "chats" / "a.jsonl").touch()
    assert resolve("chat://a", "", reach).error_code == ""
    os.truncate(reach.folder / "chats" / "a.jsonl", 20_000_000)
    found = resolve("chat://a", "", reach)
    assert found.error_code == "query_failed" and "16,000,000 bytes" in found.message


# -- the environment ----------------------------------------------------------------------------------


def test_an_allowed_variable_is_read(reach: Reach) -> None:
    reach = msgspec.structs.replace(
        reach, env=frozenset(["CITY", "GONE"]), environ={"CITY": "北京", "HOME": "/home/me"}
    )
    assert resolve("env://CITY", "", reach).value == "北京"
    assert resolve("env://", " CITY ", reach).value == "北京"
    assert resolve("env://GONE", "", reach).error_code == "not_found"
    assert resolve("env://", "", reach).error_code == "not_found"


def test_any_other_variable_is_not_and_the_message_says_how_to_allow_it(reach: Reach) -> None:
    found = resolve("env://HOME", "", msgspec.structs.replace(reach, environ={"HOME": "/home/me"}))
    assert (found.error_code, found.value) == ("not_allowed", "")
    assert found.message == "env://HOME: not allowed. Add HOME to 'resolvers: env:' in evalloom.yaml"


def test_a_variable_that_is_no_unicode_is_a_text_all_the_same(reach: Reach) -> None:
    reach = msgspec.structs.replace(reach, env=frozenset(["ODD"]), environ={"ODD": "a\udcffb"})
    assert resolve("env://ODD", "", reach).value == "a?b"
