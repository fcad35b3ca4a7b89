"""Writing: the whole file or nothing, and never in the place of what is no file."""

import os
import stat
import threading
from pathlib import Path

import pytest

from evalloom.core.errors import EvalloomError
from evalloom.files.write import atomic_writer, write_text


def test_file_is_written_with_its_folders(tmp_path: Path) -> None:
    path = tmp_path / "新" / "b" / ("长" * 80)
    write_text(path, "文\n")
    assert path.read_bytes() == "文\n".encode()
    assert [item.name for item in path.parent.iterdir()] == [path.name]


def test_an_error_in_the_middle_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_writer(path) as stream:
        stream.write(b"new")
        raise ZeroDivisionError
    assert [(item.name, item.read_text()) for item in tmp_path.iterdir()] == [("a", "old")]


@pytest.mark.skipif(os.name == "nt", reason="modes are of POSIX")
def test_mode_is_that_of_the_old_file_or_of_a_new_one(tmp_path: Path) -> None:
    for name, mode in (("old", 0o640), ("new", 0o666 & ~_umask())):
        path = tmp_path / name
        if name == "old":
            path.touch()
            path.chmod(mode)
        write_text(path, "x")
        assert stat.S_IMODE(path.stat().st_mode) == mode


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "inner" / "target", tmp_path / "link"
    target.parent.mkdir()
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink() and target.read_text() == "new"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_pipe_is_written_to_not_replaced(tmp_path: Path) -> None:
    path, got = tmp_path / "pipe", list[bytes]()
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()))
    reader.start()
    write_text(path, "through")
    reader.join()
    assert got == [b"through"] and path.is_fifo()


def test_device_is_not_replaced() -> None:
    write_text(Path(os.devnull), "gone")
    assert not Path(os.devnull).is_file()


def test_what_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in (".", "file/below", "x" * 300, "loop/below"):
        with pytest.raises(EvalloomError) as raised:
            write_text(tmp_path / name, "x")
        assert raised.value.code == "cannot_write"
    assert {item.name for item in tmp_path.iterdir()} == {"file", "loop"}
