"""The writer of a batch: what is appended is there, whatever happens to the process or to the disk."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalloom.batchlog import Log, Rescoring, finished, is_in_use, manifest, pairs
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Batch, Mismatch, Output, Run, Scored, Usage, Verdict

BATCH = Batch("b1", "2026-01-05T08:00:00+00:00")
WHOLE = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | WHOLE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WHOLE, inner, max_size=3),
    max_leaves=8,
)
ODD = st.recursive(
    st.floats() | st.integers() | st.text(st.characters(), max_size=8) | st.sets(st.integers()) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.integers() | st.text(), inner, max_size=3),
    max_leaves=8,
)


def run(key: str = "k", value: Any = "out", **more: Any) -> Run:
    return Run(key, f"case {key}", output=Output(value), **more)


def write(path: Path, *runs: Run, **more: Any) -> list[str]:
    """Writes runs, each with a verdict unless it is an error; gives what was mended before."""
    log = Log(path, BATCH, **more)
    try:
        for one in runs:
            log.append_run(one)
            if not one.error:
                log.append_scored(Scored(one.key, "passed", 1.0))
        return [str(damage) for damage in log.damage]
    finally:
        log.close()


@settings(max_examples=min(50, settings().max_examples))
@given(JSON, JSON)
def test_what_was_appended_is_read_back(value: Any, raw: Any) -> None:
    with TemporaryDirectory() as folder:
        one = run("k", value, raw={"raw": raw}, usage=Usage(1, 2, 0.1), trace=[{"type": "llm", "x": raw}], tags=("a",))
        write(Path(folder), one)
        assert list(pairs(Path(folder))) == [(one, Scored("k", "passed", 1.0))]


@settings(max_examples=min(50, settings().max_examples))
@given(ODD)
def test_whatever_a_target_gives_is_one_line_that_can_be_read(value: Any) -> None:
    with TemporaryDirectory() as folder:
        write(Path(folder), run("k", value), run("l"))
        assert [one.key for one, _ in pairs(Path(folder))] == ["k", "l"]
        assert len((Path(folder) / "runs.jsonl").read_bytes().splitlines()) == 2


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


@dataclasses.dataclass
class Point:
    x: int


class Nameless:
    def __repr__(self) -> str:
        raise RuntimeError


HOLDS_ITSELF: list[Any] = []
HOLDS_ITSELF += [HOLDS_ITSELF, HOLDS_ITSELF]


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (["\ud800", float("nan"), float("inf")], ["?", None, None]),
        (2**70, 2**70),
        ([10**5000], [hex(10**5000)]),
        ({(1, 2): 3, 4: "\udfff"}, {"(1, 2)": 3, "4": "?"}),
        (["\ud800", Point(1), b"ab"], ["?", {"x": 1}, "YWI="]),
        ([Nameless()], ["<Nameless>"]),
        (HOLDS_ITSELF, ["[nested too deeply]"] * 2),
    ],
)
def test_what_json_cannot_say_is_written_as_near_as_it_goes(tmp_path: Path, value: Any, read: Any) -> None:
    write(tmp_path, run("k", value))
    assert [one.output.value for one, _ in pairs(tmp_path)] == [read]
    json.loads((tmp_path / "runs.jsonl").read_bytes(), parse_constant=lambda name: pytest.fail(name))


@pytest.mark.parametrize("depth", [250, 990, 5000])
def test_depth_is_kept_or_cut_but_never_an_end(tmp_path: Path, depth: int) -> None:
    write(tmp_path, run("k", nested(depth)), run("l"))
    assert [one.key for one, _ in pairs(tmp_path)] == ["k", "l"]


def test_a_torn_tail_is_mended_wherever_the_cut_is(tmp_path: Path) -> None:
    write(tmp_path, run("a"), run("b", "é\n" * 3))
    whole = (tmp_path / "runs.jsonl").read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole)):
        (tmp_path / "runs.jsonl").write_bytes(whole[:cut])
        assert [one.key for one, _ in pairs(tmp_path)] == ["a"]
        damage = write(tmp_path, run("c"))
        assert len(damage) == (cut > first)
        assert finished(tmp_path) == {"a", "c"}


def test_a_tail_of_megabytes_or_of_zeros_is_cut(tmp_path: Path) -> None:
    for tail in (b'{"key":"' + b"x" * 200_000, b"\0" * 70_000):
        write(tmp_path, run("a"))
        with (tmp_path / "runs.jsonl").open("ab") as stream:
            stream.write(tail)
        assert write(tmp_path) == [f"runs.jsonl: a crash cut off the last line; its {len(tail)} bytes are removed"]
    assert finished(tmp_path) == {"a"}


def test_a_file_of_nothing_but_a_torn_line_becomes_empty(tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").write_bytes(b'{"key":"a"')
    assert len(write(tmp_path)) == 1
    assert (tmp_path / "runs.jsonl").read_bytes() == b""


HOLDER = """
import sys, time
from pathlib import Path
from evalloom.core.model import Batch, Run
from evalloom.batchlog import Log
log = Log(Path(sys.argv[1]), Batch("b1", "now"))
log.append_run(Run("held", "c"))
print("ready", flush=True)
time.sleep(60)
"""


def test_a_second_writer_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout and holder.stdout.readline() == b"ready\n"
        assert is_in_use(tmp_path)
        with pytest.raises(EvalloomError, match="another process is writing this batch") as caught:
            Log.resume(tmp_path)
        assert caught.value.code == "batch_in_use"
        assert [one.key for one, _ in pairs(tmp_path)] == ["held"]  # reading is free
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    assert not is_in_use(tmp_path)
    assert write(tmp_path, run("mine")) == []
    assert finished(tmp_path) == {"held", "mine"}


def open_logs(folder: Path) -> list[str]:
    """The log files in a folder that this process has open, where the system lists them."""
    if sys.platform != "linux":
        return []
    names = []
    for handle in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # another thread may close one meanwhile
            names.append(os.readlink(f"/proc/self/fd/{handle}"))
    return sorted(name for name in names if name.startswith(str(folder)) and name.endswith(".jsonl"))


def test_a_refused_writer_leaves_no_file_open(tmp_path: Path) -> None:
    first = Log(tmp_path, BATCH)
    before = open_logs(tmp_path)
    for _ in range(3):
        with pytest.raises(EvalloomError):
            Log.resume(tmp_path)
    assert open_logs(tmp_path) == before
    first.close()
    Log.resume(tmp_path).close()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EvalloomError, match=r"file/b1: cannot be written") as caught:
        Log(tmp_path / "file" / "b1", BATCH)
    assert (caught.value.code, caught.value.exit_code) == ("cannot_write", 3)


FULL_DISK = """
import resource, sys
from pathlib import Path
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Batch, Output, Run
from evalloom.batchlog import Log
path = Path(sys.argv[1])
log = Log(path, Batch("b1", "now"))
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
for number in range(100):
    try:
        log.append_run(Run(str(number), "c", output=Output("x" * 300)))
    except EvalloomError as fault:
        print(number, fault.code)
        break
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.append_run(Run("after", "c"))
log.close()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_a_full_disk_loses_nothing_that_was_written(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, check=True)
    number, code = done.stdout.split()
    assert code == "cannot_write" and int(number) > 5
    # The line that was written in part is gone, so the next one is not glued to it.
    assert [one.key for one, _ in pairs(tmp_path)] == [*map(str, range(int(number))), "after"]


SECRET = 'sk-"quoted"\\back/é查-0123456789'


def test_secrets_are_in_no_file(tmp_path: Path) -> None:
    inside = json.dumps({"authorization": f"Bearer {SECRET}"})
    wide = json.dumps({"authorization": SECRET}, ensure_ascii=False)
    trace = [{"type": "http", "text": inside, "wide": wide, "twice": json.dumps(inside)}]
    log = Log(tmp_path, Batch("b1", "now", options={"key": SECRET}), [SECRET])
    log.append_run(run("k", [SECRET, "\ud800"], error=f"wrong key {SECRET}", trace=trace))
    log.append_scored(Scored("k", "failed", verdicts=[Verdict("n", "k", "w", "failed", reason=SECRET)]))
    log.close()
    for file in tmp_path.iterdir():
        text = file.read_text("utf-8")
        assert "0123456789" not in text and "[hidden]" in text
        assert all(json.loads(line) for line in ([text] if file.suffix == ".json" else text.splitlines()))


def test_a_plain_secret_is_hidden_in_the_middle_of_a_text(tmp_path: Path) -> None:
    write(tmp_path, run("k", "a sk-secret-1234 b sk-secret-1234"), secrets=["sk-secret-1234", ""])
    assert [one.output.value for one, _ in pairs(tmp_path)] == ["a [hidden] b [hidden]"]


def test_the_manifest_is_written_whole_and_read_back(tmp_path: Path) -> None:
    log = Log(tmp_path, BATCH)
    log.write_manifest(Batch("b1", "then", summary={"total": 1}))
    log.close()
    assert manifest(tmp_path) == Batch("b1", "then", summary={"total": 1})
    assert sorted(file.name for file in tmp_path.iterdir()) == ["batch.json", "runs.jsonl", "verdicts.jsonl"]


def rescore(path: Path, status: Any, finish: bool = True) -> None:
    with Rescoring(path) as scoring:
        for one, _ in pairs(path):
            scoring.append_scored(Scored(one.key, status, verdicts=[Verdict("n", "k", "w", status)]))
        if finish:
            scoring.finish(Batch("b1", "then", scored_at="now"))


def test_new_verdicts_replace_the_old_ones_which_are_kept(tmp_path: Path) -> None:
    write(tmp_path, run("a"), run("b"))
    rescore(tmp_path, "failed")
    rescore(tmp_path, "unscored")
    assert [scored.status for _, scored in pairs(tmp_path) if scored] == ["unscored", "unscored"]
    assert b'"passed"' in (tmp_path / "verdicts.1.jsonl").read_bytes()
    assert b'"failed"' in (tmp_path / "verdicts.2.jsonl").read_bytes()
    assert manifest(tmp_path).scored_at == "now"


def test_rescoring_that_does_not_end_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, run("a"))
    with pytest.raises(ZeroDivisionError), Rescoring(tmp_path) as scoring:
        scoring.append_scored(Scored("a", "failed"))
        raise ZeroDivisionError
    rescore(tmp_path, "failed", finish=False)
    assert [scored.status for _, scored in pairs(tmp_path) if scored] == ["passed"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["batch.json", "runs.jsonl", "verdicts.jsonl"]
    assert not is_in_use(tmp_path)


def test_verdicts_keep_every_field(tmp_path: Path) -> None:
    mismatch = Mismatch("output.a[0]", {"x": 1}, None)
    verdict = Verdict("n", "equals", "output.a", "failed", 0.25, "because", [mismatch], 2.0)
    log = Log(tmp_path, BATCH)
    log.append_run(run("k"))
    log.append_scored(Scored("k", "failed", 0.25, [verdict], Usage(1, 1, 0.5, 1, 0, 0, 1)))
    log.close()
    [(_, scored)] = pairs(tmp_path)
    assert scored == Scored("k", "failed", 0.25, [verdict], Usage(1, 1, 0.5, 1, 0, 0, 1))
