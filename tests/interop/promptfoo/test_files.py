"""Files that a promptfoo config names: what is read, and what is out of reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalloom.interop.promptfoo.files import FileProblem, language_of, matching, open_folder, read

pytestmark = pytest.mark.req("WORK-31")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inner = tmp_path / "config"
    inner.mkdir()
    (tmp_path / "outside.txt").write_text("secret")
    open_folder(str(inner))
    return inner


def test_a_folder_that_only_a_file_names_is_out_of_reach(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    assert _code("file://a.txt", tmp_path) == "file_outside"


def _code(reference: str, folder: Path) -> str:
    with pytest.raises(FileProblem) as problem:
        _ = read(reference, str(folder)).value
    return problem.value.code


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("a.json", '[1, {"b": 2}]', [1, {"b": 2}]),
        ("a.yaml", "- 1\n- b: no\n", [1, {"b": "no"}]),
        ("a.yml", "{b: 2}", {"b": 2}),
        ("empty.yaml", "", None),
        ("a.txt", " as it is\n", " as it is\n"),
        ("bom.md", "\ufeff您好", "您好"),
    ],
)
def test_a_file_is_read_by_its_extension(folder: Path, name: str, text: str, value: object) -> None:
    (folder / name).write_text(text, encoding="utf-8")
    assert read(f"file://{name}", str(folder)).value == value
    assert read(name, str(folder)).text == text.removeprefix("\ufeff")


def test_code_has_a_language_and_a_function(folder: Path) -> None:
    (folder / "check.py").write_text("def f(): ...")
    file = read("file://check.py:f", str(folder))
    assert (file.language, file.function, file.value) == ("python", "f", "def f(): ...")
    assert language_of("file://x/y.mjs:f") == "javascript"
    assert language_of("file://x.json") == ""


def test_only_the_own_and_the_working_folder_are_in_reach(folder: Path) -> None:
    (folder / "link.txt").symlink_to(folder.parent / "outside.txt")
    assert _code("file://../outside.txt", folder) == "file_outside"
    assert _code("file://link.txt", folder) == "file_outside"
    assert _code("file:///etc/passwd", folder) == "file_outside"
    # A folder that only a file names is not one that the user named.
    assert _code("file://outside.txt", folder.parent) == "file_outside"
    (folder / ".env").write_text("KEY=1")
    (folder / "env.txt").symlink_to(folder / ".env")
    assert _code("file://.env", folder) == "file_outside"
    assert _code("file://env.txt", folder) == "file_outside"


@pytest.mark.parametrize(
    ("reference", "code"),
    [
        ("file://none.txt", "file_missing"),
        ("file://a\0b.txt", "file_missing"),
        ("file://" + "a" * 5000, "file_missing"),
        ("file://.", "file_unreadable"),
        ("file://bad.json", "file_unreadable"),
        ("file://bad.yaml", "file_unreadable"),
        ("file://binary.txt", "file_unreadable"),
    ],
)
def test_what_cannot_be_read_has_a_code(folder: Path, reference: str, code: str) -> None:
    (folder / "bad.json").write_text("{")
    (folder / "bad.yaml").write_text("a: [1")
    (folder / "binary.txt").write_bytes(b"\x00\x01")
    assert _code(reference, folder) == code


def test_a_changed_file_is_read_again(folder: Path) -> None:
    path = folder / "a.txt"
    path.write_text("old")
    assert read("file://a.txt", str(folder)).text == "old"
    path.write_text("newer")
    assert read("file://a.txt", str(folder)).text == "newer"


def test_a_pattern_gives_the_files_in_order(folder: Path) -> None:
    for name in ("b.txt", "a.txt", ".hidden.txt"):
        (folder / name).write_text(name)
    assert matching("file://*.txt", str(folder)) == ["file://a.txt", "file://b.txt"]
    assert matching("file://none*", str(folder)) == []
    with pytest.raises(FileProblem):
        matching("file://../*", str(folder))
