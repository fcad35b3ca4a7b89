"""Baselines on disk: what is written is read back, names stay names, and damage is told."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.batchlog import (
    Baseline,
    BaselineRun,
    baseline_runs,
    baselines,
    checked_name,
    find_baseline,
    has_baseline,
    read_baseline,
    remove_baseline,
    save_baseline,
)
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Batch, Profile

pytestmark = pytest.mark.req("PIPE-17")

RUNS = [
    BaselineRun("a", "passed", "p", 1, 0, 1.0, ("zh",), (("exact", "passed", 1.0),), 0.5, 12, 0.001, "0a"),
    BaselineRun("b", "unscored", "p"),
]


def saved(folder: Path, name: str = "good", runs: list[BaselineRun] = RUNS) -> Path:
    batch = Batch("b1", "then", profiles=[Profile("p", variant="v2")], summary={"pass_rate": 1.0})
    return save_baseline(Baseline(name=name, saved_at="now", runs=len(runs), batch=batch), runs, folder)


def test_what_is_saved_is_read_back(tmp_path: Path) -> None:
    file = saved(tmp_path / "new" / "folder")
    head = read_baseline(file)
    assert (head.name, head.runs, head.batch.id, head.batch.profiles[0].variant) == ("good", 2, "b1", "v2")
    assert list(baseline_runs(file)) == RUNS
    assert file.read_text(encoding="utf-8").splitlines()[2] == '{"case_id":"b","status":"unscored","profile":"p"}'


def test_baselines_are_listed_found_and_removed_by_name(tmp_path: Path) -> None:
    files = {name: saved(tmp_path, name) for name in ("v2", "发布-1.0", "good")}
    (tmp_path / "broken.jsonl").write_text("{", encoding="utf-8")
    warned: list[str] = []
    assert [head.name for _, head in baselines(tmp_path, warned.append)] == ["good", "v2", "发布-1.0"]
    assert len(warned) == 1 and "broken.jsonl:1" in warned[0] and "[bad_baseline]" in warned[0]
    assert find_baseline("发布-1.0", tmp_path) == files["发布-1.0"]
    remove_baseline(files["v2"])
    assert not has_baseline("v2", tmp_path) and list(baselines(tmp_path / "none")) == []


def test_a_copy_is_a_baseline_by_its_own_name(tmp_path: Path) -> None:
    saved(tmp_path).rename(tmp_path / "v1.2-rc.jsonl")
    assert [head.name for _, head in baselines(tmp_path)] == ["v1.2-rc"] and has_baseline("v1.2-rc", tmp_path)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("goood", "Did you mean 'good'?"),
        ("other", "'evalloom baseline list' shows"),
        ("../good", "no baseline"),
        ("", ""),
    ],
)
def test_what_is_not_there_is_said(tmp_path: Path, name: str, hint: str) -> None:
    saved(tmp_path)
    with pytest.raises(EvalloomError) as caught:
        find_baseline(name, tmp_path)
    assert (caught.value.code, caught.value.exit_code) == ("no_baseline", 2) and hint in str(caught.value)


@pytest.mark.parametrize("name", ["a", "v1.2-rc_3", "发布", "café", "हिन्दी", "9", "_x", "a" * 100])
def test_names_of_any_script_are_taken(tmp_path: Path, name: str) -> None:
    assert saved(tmp_path, name).is_file() and has_baseline(name, tmp_path)


@pytest.mark.parametrize(
    "name",
    ["", ".hidden", "..", "../x", "a/b", "a\\b", "a b", "-x", "a\n", "a\0", "a:b", "*", "a" * 101, "长" * 90, "latest"],
)
def test_other_names_never_become_a_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(EvalloomError) as caught:
        saved(tmp_path / "folder", name)
    assert (caught.value.code, caught.value.exit_code) == ("bad_baseline_name", 2)
    assert list(tmp_path.iterdir()) == []


@given(st.text(max_size=20))
def test_a_name_is_one_part_of_a_path_or_refused(name: str) -> None:
    try:
        checked_name(name)
    except EvalloomError as fault:
        assert fault.code == "bad_baseline_name"
    else:
        assert Path("folder", name).parent == Path("folder") and Path(name).name == name


HEAD = '{"format":1,"name":"x","saved_at":"","runs":1,"batch":{"id":"b","created_at":""}}\n'
RUN = '{"case_id":"a","status":"passed"}\n'


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("", "bad_baseline", ":1: cannot read the baseline: the file is empty"),
        ("not json\n", "bad_baseline", ":1:"),
        ("[1]\n", "bad_baseline", ":1:"),
        ('{"format":1}\n', "bad_baseline", "missing required field"),
        ('{"format":"x"}\n', "bad_baseline", ":1:"),
        (HEAD.replace("1", "3", 1), "newer_baseline", "has format 3, and this evalloom reads up to 2. Upgrade"),
        (HEAD, "bad_baseline", "expected 1 runs, got 0, so lines were cut off or added. Save it again"),
        (HEAD + RUN + RUN.replace('"a"', '"b"'), "bad_baseline", "expected 1 runs, got 2"),
        (HEAD + RUN + RUN, "bad_baseline", ":3: cannot read the baseline: this run is there twice: case 'a'"),
        (HEAD + RUN.replace("}", ',"latency_s":-1}'), "bad_baseline", ":2:"),
        (HEAD + RUN.replace("}", ',"cost":1e300}'), "bad_baseline", ":2:"),
        (HEAD + RUN.replace("}", ',"score":-1e300}'), "bad_baseline", ":2:"),
        (HEAD + RUN.replace("}", ',"tokens":-1}'), "bad_baseline", ":2:"),
        (HEAD + RUN[:20], "bad_baseline", ":2:"),
        (HEAD + RUN.replace("passed", "good"), "bad_baseline", "'good'"),
        (HEAD + RUN.replace('"a"', "1"), "bad_baseline", ":2:"),
        (HEAD + '{"case_id":"a","status":"passed","score":1e999}\n', "bad_baseline", ":2:"),
        (HEAD + '{"case_id":"a","status":"passed","tokens":1' + "0" * 400 + "}\n", "bad_baseline", ":2:"),
        (HEAD + "[" * 100_000 + "\n", "bad_baseline", ":2:"),
    ],
)
def test_damage_is_told_with_its_place(tmp_path: Path, text: str, code: str, told: str) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(EvalloomError) as caught:
        list(baseline_runs(file)) or read_baseline(file)
    assert (caught.value.code, caught.value.exit_code) == (code, 3)
    assert told in str(caught.value) and file.as_posix() in str(caught.value)


def test_a_huge_line_is_refused_before_it_is_in_memory(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    with file.open("wb") as stream:
        stream.truncate(1 << 30)  # a hole: a gigabyte of zeros without a line end, which takes no disk
    with pytest.raises(EvalloomError, match="has a line of more than 16 MB"):
        read_baseline(file)


def test_a_file_that_cannot_be_read_or_removed_is_told(tmp_path: Path) -> None:
    for act in (read_baseline, remove_baseline):
        with pytest.raises(EvalloomError) as caught:
            act(tmp_path / "gone.jsonl")
        assert caught.value.exit_code == 3 and "gone.jsonl" in str(caught.value)


def test_a_failing_save_leaves_the_old_one(tmp_path: Path) -> None:
    file = saved(tmp_path)
    before = file.read_bytes()

    def breaking() -> list[BaselineRun]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_baseline(read_baseline(file), (run for _ in "x" for run in breaking()), tmp_path)
    assert file.read_bytes() == before and list(tmp_path.iterdir()) == [file]


@given(st.permutations([(case, repeat) for case in "abc" for repeat in range(3)]))
def test_repeats_come_together_in_whatever_order_they_stand(order: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as folder:
        found = list(
            baseline_runs(
                saved(Path(folder), runs=[BaselineRun(case, "passed", repeat=repeat) for case, repeat in order])
            )
        )
    assert len(list(groupby(found, lambda run: run.case_id))) == 3 and len(found) == 9


def test_a_baseline_that_was_cut_off_is_not_listed(tmp_path: Path) -> None:
    file = saved(tmp_path)
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    warned: list[str] = []
    assert list(baselines(tmp_path, warned.append)) == []
    assert len(warned) == 1 and "expected 2 runs, got 1" in warned[0]
