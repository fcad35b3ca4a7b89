"""Which files are documents, and that no link leads us astray."""

from __future__ import annotations

import os
from pathlib import Path

from evalloom.rag.retrieval.folder import scan_folder


def _write(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("text")


def test_documents_are_told_by_their_suffix(tmp_path: Path) -> None:
    _write(tmp_path, "a.md", "sub/B.TXT", "c.png", "d", ".hidden.md", ".git/e.md", "node_modules/f.md")
    scan = scan_folder(tmp_path)
    assert sorted(scan.stamps) == ["a.md", "sub/B.TXT"]
    assert scan.passed_over == 2


def test_links_that_lead_out_are_not_followed(tmp_path: Path) -> None:
    _write(tmp_path, "root/a.md", "secret.md", "outside/b.md", "root2/c.md")
    (tmp_path / "root/file.md").symlink_to(tmp_path / "secret.md")
    (tmp_path / "root/folder").symlink_to(tmp_path / "outside")
    (tmp_path / "root/near").symlink_to(tmp_path / "root2")
    scan = scan_folder(tmp_path / "root")
    assert list(scan.stamps) == ["a.md"]
    assert sorted(one.path for one in scan.unread) == ["file.md", "folder/", "near/"]
    assert all("leads out" in one.reason for one in scan.unread)


def test_circles_end_and_a_linked_folder_is_found_once(tmp_path: Path) -> None:
    _write(tmp_path, "a/x.md")
    (tmp_path / "a/up").symlink_to(tmp_path)
    (tmp_path / "a/self").symlink_to(tmp_path / "a")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    (tmp_path / "loop.md").symlink_to(tmp_path / "loop.md")
    scan = scan_folder(tmp_path)
    assert sorted(scan.stamps) == ["a/x.md"]
    assert [one.path for one in scan.unread] == ["loop.md"]


def test_a_link_does_not_show_what_is_hidden(tmp_path: Path) -> None:
    _write(tmp_path, ".real/y.md", "node_modules/z.md", "seen.md")
    (tmp_path / "shown").symlink_to(tmp_path / ".real")
    (tmp_path / "shown.md").symlink_to(tmp_path / ".real/y.md")
    (tmp_path / "other.md").symlink_to(tmp_path / "node_modules/z.md")
    (tmp_path / "same.md").symlink_to(tmp_path / "seen.md")
    scan = scan_folder(tmp_path)
    assert sorted(scan.stamps) == ["same.md", "seen.md"]
    assert sorted(one.path for one in scan.unread) == ["other.md", "shown.md", "shown/"]
    assert all("hidden" in one.reason for one in scan.unread)


def test_a_name_that_is_not_utf8_and_what_is_no_file(tmp_path: Path) -> None:
    (Path(os.fsdecode(bytes(tmp_path) + b"/caf\xe9.md"))).write_text("text")
    os.mkfifo(tmp_path / "pipe.md")
    scan = scan_folder(tmp_path)
    assert not scan.stamps
    assert [(one.path, "UTF-8" in one.reason) for one in scan.unread] == [("caf\\xe9.md", True)]
