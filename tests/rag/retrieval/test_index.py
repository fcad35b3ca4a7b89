"""The index: finding, staying up to date, and surviving what happens to files."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import sleep

import docx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalloom.core.errors import EvalloomError
from evalloom.core.ranking import Passage
from evalloom.rag.retrieval import Index, IndexOptions, open_index, words

HANDBOOK = {
    "zh/leave.md": "# 休假制度\n\n## 年假\n\n入职满一年的员工每年享有 10 个工作日的带薪年假。\n",
    "zh/forklift.md": "# 叉车安全\n\n库区内限速 5 公里/小时。\n",
    "en/leave.md": "# Leave\n\n## Carry-over\n\nUnused days move on until 31 March.\n\n## Sick\n\nCall before nine.\n",
    "en/it.txt": "Passwords have at least 14 characters.\nThe key PRO-2026 opens battery_temperature.\n",
}


def _write(root: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return _write(tmp_path / "docs", HANDBOOK)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def _fresh(root: Path, kept: Path) -> Index:
    index = open_index(root, kept)
    index.refresh()
    return index


def _sources(index: Index, query: str) -> list[str]:
    return [passage.source for passage in index.search(query, 5)]


@pytest.mark.req("RAG-7")
def test_both_languages_are_found(root: Path, kept: Path) -> None:
    index = _fresh(root, kept)
    assert _sources(index, "叉车限速多少？")[0] == "zh/forklift.md"
    assert _sources(index, "带薪年假有几天")[0] == "zh/leave.md"
    assert _sources(index, "what is the password length") == ["en/it.txt"]
    assert _sources(index, "pro-2026") == _sources(index, "temperature") == ["en/it.txt"]
    assert index.search("nothing of the kind", 5) == index.search("", 5) == index.search("leave", 0) == []


def test_a_passage_tells_its_place_and_headings_count_below_them(root: Path, kept: Path) -> None:
    (found,) = _fresh(root, kept).search("carry-over march", 1)
    text = HANDBOOK["en/leave.md"]
    assert (found.source, found.line, found.heading) == ("en/leave.md", 1, "Leave > Carry-over")
    assert found.text == text[found.start : found.end]
    assert {one.heading for one in _fresh(root, kept).search("leave", 5)} == {"Leave > Sick", "Leave > Carry-over"}


def test_equal_scores_come_by_source_downwards_then_by_place(tmp_path: Path, kept: Path) -> None:
    same = "# One\n\nword\n\n# Two\n\nword\n"
    index = _fresh(_write(tmp_path / "docs", {"a.md": same, "b.md": same, "c.md": "other"}), kept)
    found = [(one.source, one.heading) for one in index.search("word", 9)]
    assert found == [("b.md", "One"), ("b.md", "Two"), ("a.md", "One"), ("a.md", "Two")]
    assert [(one.source, one.heading) for one in index.search("word", 3)] == found[:3]


def test_scores_are_those_of_bm25s(root: Path, kept: Path) -> None:
    import bm25s  # type: ignore[import-untyped, unused-ignore]

    index = _fresh(root, kept)
    texts = index.texts()
    engine = bm25s.BM25(method="lucene")
    engine.index([words(text) for text in texts], show_progress=False)
    for query in ("leave march", "带薪年假 characters"):
        theirs = sorted((score for score in engine.get_scores(words(query)).tolist() if score > 0), reverse=True)
        assert theirs
        assert [one.score for one in index.search(query, 99)] == pytest.approx(theirs, abs=1e-5)


# -- staying up to date -------------------------------------------------------------------------------


def test_refresh_tells_what_changed(root: Path, kept: Path) -> None:
    index = open_index(root, kept)
    first = index.refresh()
    assert (first.documents, first.added, first.changed, first.removed, first.unread) == (4, 4, 0, 0, [])
    _write(root, {"en/it.txt": "Tokens instead.", "new.md": "", "picture.png": "x"})
    (root / "zh/leave.md").unlink()
    second = index.refresh()
    assert (second.documents, second.added, second.changed, second.removed, second.passed_over) == (4, 1, 1, 1, 1)
    assert _sources(index, "tokens") == ["en/it.txt"]
    assert index.chunk_count() == second.chunks == 4
    assert "new.md" in index.documents()


def test_nothing_is_written_when_nothing_changed(root: Path, kept: Path) -> None:
    for path in HANDBOOK:
        os.utime(root / path, (1_000_000_000, 1_000_000_000))
    # A file that was changed just now is read again.
    sleep(0.2)
    _fresh(root, kept).close()
    before = {path: path.stat().st_mtime_ns for path in kept.rglob("*.npy")}
    seen: list[str] = []
    index = open_index(root, kept)
    assert index.refresh(lambda done, total, path: seen.append(path)).added == 0
    os.utime(root / "en/it.txt", (1_100_000_000, 1_100_000_000))
    index.refresh()
    assert before and seen == []
    assert {path: path.stat().st_mtime_ns for path in kept.rglob("*.npy")} == before


def test_a_change_within_one_tick_of_the_disk_is_seen(tmp_path: Path, kept: Path) -> None:
    index = _fresh(_write(tmp_path / "docs", {"a.md": "first"}), kept)
    stat = (tmp_path / "docs/a.md").stat()
    _write(tmp_path / "docs", {"a.md": "other"})
    os.utime(tmp_path / "docs/a.md", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    index.refresh()
    assert _sources(index, "other") == ["a.md"]


def test_files_of_one_size_and_time_that_trade_places_are_seen(tmp_path: Path, kept: Path) -> None:
    root = _write(tmp_path / "docs", {"a.md": "first", "b.md": "other"})
    for path in root.iterdir():
        os.utime(path, (1_000_000_000, 1_000_000_000))
    sleep(0.2)
    index = _fresh(root, kept)
    (root / "a.md").rename(root / "c")
    (root / "b.md").rename(root / "a.md")
    (root / "c").rename(root / "b.md")
    assert index.refresh().changed == 2
    assert _sources(index, "first") == ["b.md"]


def test_an_interrupted_refresh_leaves_a_store_that_can_be_finished(root: Path, kept: Path) -> None:
    def interrupt(done: int, total: int, path: str) -> None:
        if done == 2:
            raise KeyboardInterrupt

    index = open_index(root, kept)
    with pytest.raises(KeyboardInterrupt):
        index.refresh(interrupt)
    with pytest.raises(EvalloomError, match="only in part"):
        index.search("passwords", 5)
    index.refresh()
    for query in ("passwords", "leave", "叉车"):
        assert index.search(query, 5) == _fresh(root, kept / "other").search(query, 5) != []


def test_two_indexes_of_one_store_take_turns(root: Path, kept: Path) -> None:
    one, two = _fresh(root, kept), _fresh(root, kept)
    for number, index in enumerate((one, two, one, two)):
        _write(root, {f"{number}.md": f"word{number} passwords"})
        assert index.refresh().added == 1
    one.refresh()
    for query in ("passwords", "word0", "word1", "word2", "word3"):
        assert one.search(query, 9) == two.search(query, 9) == _fresh(root, kept / "other").search(query, 9) != []


def test_progress_names_the_document_that_comes_next(root: Path, kept: Path) -> None:
    told: list[tuple[int, int, str]] = []
    open_index(root, kept).refresh(lambda *given: told.append(given))
    assert told == [*((at, 4, path) for at, path in enumerate(sorted(HANDBOOK))), (4, 4, "")]


_FILES = st.dictionaries(
    st.sampled_from(["a.md", "b.md", "c.txt"]),
    st.lists(st.sampled_from(["# alpha\n\n", "beta. ", "年假。", "gamma-1 ", "\n\n"]), max_size=6).map("".join),
)


@settings(max_examples=min(25, settings().max_examples), deadline=None)
@given(st.lists(_FILES, min_size=2, max_size=4))
def test_an_index_kept_up_to_date_finds_what_a_fresh_one_finds(states: list[dict[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        root, place = Path(name) / "docs", Path(name)
        kept = open_index(_write(root, {"d.md": "alpha beta"}), place / "kept", IndexOptions(30, 10))
        for number, files in enumerate(states):
            for path in [*root.glob("?.md"), *root.glob("?.txt")]:
                path.unlink()
            kept.refresh()
            _write(root, files)
            kept.refresh()
            fresh = open_index(root, place / str(number), IndexOptions(30, 10))
            fresh.refresh()
            for query in ("alpha", "beta 年假", "gamma"):
                assert kept.search(query, 3) == fresh.search(query, 3) == fresh.search(query, 3)
            assert kept.documents() == fresh.documents()
            fresh.close()
        kept.close()


# -- what happens to files ----------------------------------------------------------------------------


def test_a_frozen_index_is_used_as_it_is(root: Path, kept: Path) -> None:
    with pytest.raises(EvalloomError, match="evalloom rag index --root") as error:
        open_index(root, kept, frozen=True)
    assert error.value.code == "index_missing"
    _fresh(root, kept).close()
    _write(root, {"en/it.txt": "Tokens instead."})
    index = open_index(root, kept, frozen=True)
    assert _sources(index, "passwords") == ["en/it.txt"]
    with pytest.raises(EvalloomError, match=r"--chunk 400 --overlap 0 \[index_missing"):
        open_index(root, kept, IndexOptions(400, 0), frozen=True)


@contextmanager
def _without_rights() -> Iterator[None]:
    """As a user who may not write to others' folders, where the tests run as one who may."""
    before = os.geteuid()
    try:
        if before == 0:
            os.seteuid(65534)
    except OSError:
        pytest.skip("there is no other user here")
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_frozen_index_may_lie_where_nothing_can_be_written() -> None:
    with tempfile.TemporaryDirectory() as name:
        root, kept = _write(Path(name) / "docs", HANDBOOK), Path(name) / "kept"
        before = _fresh(root, kept)
        expected = before.search("leave passwords", 5)
        before.close()
        for path in [Path(name), *Path(name).rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        with _without_rights():
            index = open_index(root, kept, frozen=True)
            assert index.search("leave passwords", 5) == expected
            index.close()
            with pytest.raises(EvalloomError, match="index_unusable"):
                index.refresh()
        for path in [Path(name), *Path(name).rglob("*")]:
            path.chmod(0o755)


def test_an_open_index_is_not_disturbed_by_another_refresh(root: Path, kept: Path) -> None:
    index = _fresh(root, kept)
    before = index.search("leave passwords", 5)
    _write(root, {"en/it.txt": "Gone.", "en/leave.md": "Gone."})
    other = _fresh(root, kept)
    assert index.search("leave passwords", 5) == before
    assert other.search("passwords", 5) == []
    index.refresh()
    assert index.search("passwords", 5) == []


def test_unread_documents_are_listed_and_read_once_they_can_be(root: Path, kept: Path) -> None:
    (root / "broken.pdf").write_bytes(b"%PDF-1.4 no")
    (root / "broken.docx").write_bytes(b"PK no")
    index = _fresh(root, kept)
    assert [one.path for one in index.unread()] == ["broken.docx", "broken.pdf"]
    assert "broken.pdf" not in index.documents()
    (root / "broken.pdf").unlink()
    assert [one.path for one in index.refresh().unread] == ["broken.docx"]


def test_a_document_without_its_reader_is_unread_until_that_is_installed(
    root: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write_docx(root / "page.docx", "visible")
    os.utime(root / "page.docx", (1_000_000_000, 1_000_000_000))
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "docx", None)
        (unread,) = _fresh(root, kept).unread()
    assert unread.path == "page.docx" and "pip install 'evalloom[documents]'" in unread.reason
    assert _sources(_fresh(root, kept), "visible") == ["page.docx"]


def _write_docx(path: Path, text: str) -> None:
    document = docx.Document()
    document.add_paragraph(text)
    document.save(str(path))


def test_a_document_that_stays_unread_changes_nothing(root: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_docx(root / "page.docx", "visible")
    monkeypatch.setitem(sys.modules, "docx", None)
    index = _fresh(root, kept)
    before = {path: path.stat().st_mtime_ns for path in kept.rglob("*.npy")}
    assert [one.path for one in index.refresh().unread] == ["page.docx"]
    assert before and {path: path.stat().st_mtime_ns for path in kept.rglob("*.npy")} == before


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_file_that_becomes_something_else_before_it_is_read(root: Path, kept: Path, kind: str) -> None:
    (root.parent / "secret.txt").write_text("secret passwords")

    def replace(done: int, total: int, path: str) -> None:
        if path == "en/leave.md":
            (root / path).unlink()
            if kind == "pipe":
                os.mkfifo(root / path)
            else:
                (root / path).symlink_to(root.parent / "secret.txt")

    index = open_index(root, kept)
    (unread,) = index.refresh(replace).unread
    assert (unread.path, "leads out" in unread.reason) == ("en/leave.md", kind == "link")
    assert index.search("secret", 5) == []


@pytest.mark.parametrize("damage", [b"", b"garbage" * 1000])
def test_a_damaged_store_is_set_aside_and_made_anew(root: Path, kept: Path, damage: bytes) -> None:
    _fresh(root, kept).close()
    (store,) = kept.rglob("index.sqlite")
    store.write_bytes(damage)
    index = _fresh(root, kept)
    assert _sources(index, "passwords") == ["en/it.txt"]
    assert (index.damaged_copy is not None) == bool(damage)


def test_damage_inside_of_the_store_ends_in_an_error_and_then_a_new_store(root: Path, kept: Path) -> None:
    _fresh(root, kept).close()
    (store,) = kept.rglob("index.sqlite")
    content = bytearray(store.read_bytes())
    content[4096:] = bytes(len(content) - 4096)
    store.write_bytes(content)
    try:
        index = _fresh(root, kept)
    except EvalloomError as error:
        assert error.code == "index_damaged"
        index = _fresh(root, kept)
    assert _sources(index, "passwords") == ["en/it.txt"]


def test_a_broken_or_missing_matrix_is_made_again(root: Path, kept: Path) -> None:
    _fresh(root, kept).close()
    next(kept.rglob("rows.npy")).write_bytes(b"\x93NUMPY")
    index = open_index(root, kept, frozen=True)
    assert _sources(index, "passwords") == ["en/it.txt"]


@pytest.mark.parametrize("name", ["scores", "rows", "bounds", "ids", "firsts", "sums"])
@pytest.mark.parametrize("is_zeroed", [True, False])
def test_a_matrix_with_other_bytes_is_made_again(root: Path, kept: Path, name: str, is_zeroed: bool) -> None:
    before = _fresh(root, kept)
    expected = before.search("leave passwords 年假", 9)
    before.close()
    (path,) = (path for path in kept.rglob("*") if path.stem == name)
    content = bytearray(path.read_bytes())
    content[-8:] = bytes(8) if is_zeroed and content[-8:] != bytes(8) else b"\x01\x07" * 4
    path.write_bytes(content)
    index = open_index(root, kept, frozen=True)
    assert index.search("leave passwords 年假", 9) == expected


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE chunks SET text = CAST(x'ff' AS TEXT)",
        "UPDATE chunks SET terms = x'ffffffff', counts = x'01000000'",
        "UPDATE chunks SET terms = 7",
        "UPDATE chunks SET start = 'x'",
        "UPDATE documents SET path = CAST(x'ff' AS TEXT) WHERE path = 'en/it.txt'",
        "DELETE FROM chunks",
        "DELETE FROM meta",
    ],
)
def test_a_store_that_does_not_fit_together_is_made_anew(root: Path, kept: Path, damage: str) -> None:
    _fresh(root, kept).close()
    (store,) = kept.rglob("index.sqlite")
    with closing(sqlite3.connect(store, isolation_level=None)) as db:
        db.execute(damage)
    if "terms" in damage:
        shutil.rmtree(next(kept.rglob("bm25-*")))
    try:
        assert _sources(_fresh(root, kept), "passwords") == ["en/it.txt"]
    except EvalloomError as error:
        assert error.code == "index_damaged" and "characters" not in str(error)
    assert _sources(_fresh(root, kept), "passwords") == ["en/it.txt"]


def test_a_store_of_another_version_is_made_anew(root: Path, kept: Path) -> None:
    _fresh(root, kept).close()
    (store,) = kept.rglob("index.sqlite")
    with sqlite3.connect(store) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(EvalloomError, match="another version"):
        open_index(root, kept, frozen=True)
    assert _sources(_fresh(root, kept), "passwords") == ["en/it.txt"]


_REFRESH = """
import sys
from pathlib import Path
from evalloom.rag.retrieval import open_index, ingest as module
module._STEP_S = 0.0
def progress(done, total, path):
    if done == int(sys.argv[3]):
        print("now", flush=True)
        sys.stdin.readline()
index = open_index(Path(sys.argv[1]), Path(sys.argv[2]))
print(index.refresh(progress).documents, flush=True)
"""


def test_what_a_killed_process_left_is_finished(root: Path, kept: Path) -> None:
    command = [sys.executable, "-c", _REFRESH, str(root), str(kept), "2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "now\n"
        process.send_signal(signal.SIGKILL)
    with pytest.raises(EvalloomError, match="only in part"):
        open_index(root, kept, frozen=True)
    index = open_index(root, kept)
    found = index.refresh()
    assert (found.documents, found.added) == (4, 2)
    assert _sources(index, "passwords") == ["en/it.txt"]


def test_a_refresh_keeps_other_processes_out(root: Path, kept: Path) -> None:
    command = [sys.executable, "-c", _REFRESH, str(root), str(kept), "2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "now\n"
        with next(kept.rglob("lock")).open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        assert process.communicate("\n")[0] == "4\n"
    assert _sources(open_index(root, kept, frozen=True), "passwords") == ["en/it.txt"]


@pytest.mark.slow
def test_processes_may_refresh_at_once(root: Path, kept: Path) -> None:
    command = [sys.executable, "-c", _REFRESH, str(root), str(kept), "-1"]
    processes = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) for _ in "abc"]
    assert [process.communicate()[0] for process in processes] == ["4\n"] * 3
    assert _sources(open_index(root, kept, frozen=True), "passwords") == ["en/it.txt"]


def test_bad_sizes_a_missing_root_and_an_empty_one(tmp_path: Path, kept: Path) -> None:
    for options in (IndexOptions(0, 0), IndexOptions(100, 60), IndexOptions(100, -1)):
        with pytest.raises(EvalloomError, match="bad_chunk_size"):
            open_index(tmp_path, kept, options)
    with pytest.raises(EvalloomError, match="root_missing"):
        open_index(tmp_path / "none", kept)
    (tmp_path / "empty").mkdir()
    index = _fresh(tmp_path / "empty", kept)
    assert index.refresh().documents == 0
    assert index.search("anything", 5) == []
    assert index.chunk_count() == 0
    assert index.explain("anything", "a.md").rank == 0


# -- explaining ---------------------------------------------------------------------------------------


@pytest.mark.req("RAG-7")
def test_explain_tells_rank_and_terms(root: Path, kept: Path) -> None:
    index = _fresh(root, kept)
    found = index.explain("leave 限速 unheard", "leave.md")
    assert (found.source, found.rank, found.sources) == ("en/leave.md", 2, 2)
    assert isinstance(found.passage, Passage) and found.passage.source == "en/leave.md"
    by_text = {term.text: term for term in found.terms}
    assert (by_text["leave"].chunks, by_text["unheard"].chunks) == (2, 0)
    assert by_text["leave"].score == pytest.approx(found.passage.score)
    assert by_text["限速"].score == 0 and by_text["限速"].chunks == 1


def test_explain_of_a_source_without_a_match_or_unknown(root: Path, kept: Path) -> None:
    index = _fresh(root, kept)
    assert (index.explain("passwords", "zh/leave.md").rank, index.explain("passwords", "zh/leave.md").passage) == (
        0,
        None,
    )
    assert index.explain("passwords", "none.md").source == "none.md"
    assert index.explain("年假", "zh/").source == "zh/leave.md"
