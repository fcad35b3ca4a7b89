"""The derived copy: it holds what `row_of` returns for every row, and follows every change of the files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalloom.hop.results import build
from evalloom.hop.results.copy import Copy
from evalloom.hop.results.index import read_records
from evalloom.hop.results.rows import RESULT, row_of
from evalloom.hop.results.store import DataStore

pytestmark = pytest.mark.req("HOP-15")


def flat(number: int = 1, result: Any = None, **more: Any) -> dict[str, Any]:
    """A result row of the flat wrapper."""
    result = {"label": "yes", "score": number % 5 + 1} if result is None else result
    stats = {"retry_count": number % 3, "execution_path": [], "status": "OK", "hop_status": "OK"}
    return {"id": number, "tag": "a", "text": "x", "hop_result": json.dumps(result), "hop_stats": stats, **more}


def write(path: Path, *rows: Any) -> Path:
    """A file that was written a while ago, so that its time proves something."""
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows), "utf-8")
    os.utime(path, (1_700_000_000 + path.stat().st_size, 1_700_000_000 + path.stat().st_size))
    return path


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([1.0, 0.5, -0.0, 1e20, 2.5]),
    st.sampled_from(["", "yes", "true", "1", "[1]", '中文 "q" \\ \n', '{"a": 1}']),
    st.lists(st.integers(0, 2), max_size=2),
    st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 1), max_size=2),
)
objects = st.dictionaries(
    st.sampled_from(["label", "score", "Score", "rare", "a.b", 'q"', "output"]), values, max_size=3
)
packed = st.one_of(
    objects.map(json.dumps),
    objects.map(lambda value: json.dumps(value, indent=1, ensure_ascii=False)),
    objects,
    objects.map(lambda value: json.dumps(json.dumps(value))),
    objects.map(lambda value: json.dumps(["OK", json.dumps(value)])),
    values.map(json.dumps),
    st.sampled_from(["null", "no JSON", '{"label": "yes",}', '{"label": NaN}', '{"label": 1, "label": 2}', "", None]),
)
stats = st.one_of(
    st.none(),
    st.just("text"),
    st.fixed_dictionaries(
        {},
        optional={
            "retry_count": st.sampled_from([0, 2, 1.5, "3", None, True]),
            "status": st.sampled_from(["OK", "ERROR", "odd", None]),
            "hop_status": st.sampled_from(["OK", "FAIL", "UNCERTAIN", "odd", None]),
            "error": st.sampled_from(["timeout", "", None, {"code": 1}]),
        },
    ),
)
case = st.fixed_dictionaries(
    {},
    optional={
        "id": st.one_of(st.integers(1, 9), st.just("x"), st.none()),
        "tag": st.sampled_from(["a", "b", "", None, 5]),
        "difficulty": st.sampled_from(["easy", "hard", None]),
        "expected_label": values,
        "expected_score": values,
        "expected_output": values,
        "expected_rare": st.just(1),
        "text": st.just('says "expected_label" too'),
    },
)
profile = st.sampled_from([{}, {"profile": "p"}, {"profile": "q"}, {"profile": None}, {"profile": ""}])


def rows_with(packed: Any, stats: Any) -> Any:
    """Rows of both wrappers, with everything in them that may be there or not."""
    flat_rows = st.builds(
        lambda case, beside, profile: {**case, **beside, **profile},
        case,
        st.fixed_dictionaries({}, optional={"hop_result": packed, "hop_stats": stats}),
        profile,
    )
    view_rows = st.builds(
        lambda case, beside, profile: {"input": case, **beside, **profile},
        case,
        st.fixed_dictionaries({}, optional={"result": packed, "error": st.sampled_from(["timeout", "", None])}),
        profile,
    )
    return st.one_of(plain_rows, flat_rows, view_rows)


plain_rows = st.builds(flat, st.integers(1, 9), objects, expected_label=st.sampled_from(["yes", "no"]))
odd_lines = st.sampled_from(['{"id": 1, "hop_resu\n', "\n", "[1, 2]\n", '{"_type": "meta", "profile": "p"}\n'])
odd_files = st.lists(st.one_of(rows_with(packed, stats), odd_lines), max_size=6)
tame_files = st.lists(rows_with(objects.map(json.dumps), stats.filter(lambda one: one != "text")), max_size=6)


def shown(row: dict[str, Any]) -> str:
    """One row as SQL and Python have to read it."""
    names = ("id", "tag", "difficulty", "profile", "completed", "outcome", "error", "correct")
    texts = [
        (part, name, repr(json.loads(text))) for part in ("fields", "expected") for name, text in row[part].items()
    ]
    retries = None if row["retry_count"] is None else float(row["retry_count"])
    return json.dumps([*(row[name] for name in names), retries, *sorted(texts)])


def copied(folder: Path) -> list[str]:
    """All results as the copy has them."""
    copy = Copy(folder, lambda message: None)
    rows = []
    with copy.connection() as connection:
        for part in copy.refresh().parts:
            query = connection.execute(f"SELECT * FROM read_parquet('{(copy.place / part.name).as_posix()}')")
            columns = [column[0] for column in query.description or ()]
            for cells in query.fetchall():
                row = dict(zip(columns, cells, strict=True))
                for kind, names in (("fields", part.names.fields), ("expected", part.names.expected)):
                    texts = {name: row[f"{kind[0]}{number}"] for number, name in enumerate(names)}
                    row[kind] = {name: text for name, text in texts.items() if text is not None}
                if row["kind"] == RESULT:
                    rows.append(shown(row))
    return rows


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(tame_files, odd_files), min_size=1, max_size=3))
def test_every_row_is_the_one_that_python_defines(files: list[list[Any]]) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        defined: Counter[str] = Counter()
        for number, lines in enumerate(files):
            write(folder / f"{number}.jsonl", *lines)
            for _, record in read_records(folder / f"{number}.jsonl"):
                if isinstance(record, dict) and (row := row_of(record))["kind"] == RESULT:
                    defined[shown(row)] += 1
        assert Counter(copied(folder)) == defined


def test_python_reads_the_files_that_sql_cannot_read_exactly(tmp_path: Path) -> None:
    write(tmp_path / "plain.jsonl", flat(1, expected_score=2), flat(2, {"label": "no", "score": 1.5}))
    irregular = {
        "case": {"id": 1, "tag": "a", "text": "x"},
        "cut": "cut",
        "deep": flat(2, '{"label": "yes"}'),
        "expected_null": flat(2, expected_label=None),
        "null": flat(2) | {"hop_stats": None},
        "repeated": flat(2) | {"hop_result": '{"a": 1, "a": 2}'},
        "text": flat(2, "not an object"),
        "view": {"input": {"text": "x"}, "result": '{"label": "yes"}'},
    }
    for name, row in irregular.items():
        write(tmp_path / f"{name}.jsonl", *(flat(number) for number in range(50)), row)
    index = Copy(tmp_path, lambda message: None).refresh()
    by_python = {source.name: part.by_python for part in index.parts for source in part.sources}
    assert by_python == {"plain.jsonl": False, **{f"{name}.jsonl": True for name in irregular}}


@pytest.mark.req("HOP-16")
def test_a_line_too_long_to_read_costs_no_other_file(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", flat(1))
    write(tmp_path / "b.jsonl", flat(1, text="x" * 40 * 1024**2), flat(2))
    warnings: list[str] = []
    index = Copy(tmp_path, warnings.append).refresh()
    by_python = {source.name: part.by_python for part in index.parts for source in part.sources}
    assert by_python == {"a.jsonl": False, "b.jsonl": True}
    assert DataStore(tmp_path).get_stats()["total"] == 2 and "b.jsonl:1: skipped" in warnings[0]


def test_a_field_that_comes_up_late_is_not_lost(tmp_path: Path) -> None:
    many = [flat(number) for number in range(30_000)]
    late = flat(30_000, {"label": "yes", "score": 1, "late": True}, expected_late=True)
    write(tmp_path / "a.jsonl", *many, late)
    store = DataStore(tmp_path)
    assert store.get_stats()["fields"]["late"]["count"] == 1
    assert store.get_stats()["judged"] == 1
    assert not Copy(tmp_path, print).refresh().parts[0].by_python


def test_an_expected_null_is_an_expectation(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", flat(1, {"kind": None}, expected_kind=None), flat(2, {}, expected_kind=None), flat(3))
    stats = DataStore(tmp_path).get_stats()
    assert (stats["judged"], stats["correct"]) == (2, 1)


def test_only_what_changed_is_copied_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_MAX_SQL_PART", 600)
    for name in "abcd":
        write(tmp_path / f"{name}.jsonl", *(flat(number) for number in range(3)))
    before = {part.name for part in Copy(tmp_path, print).refresh().parts}
    write(tmp_path / "d.jsonl", *(flat(number) for number in range(4)))
    (tmp_path / "a.jsonl").unlink()
    after = {part.name for part in Copy(tmp_path, print).refresh().parts}
    assert DataStore(tmp_path).get_stats()["total"] == 10
    assert (len(before), len(after), len(before & after)) == (4, 3, 2)
    kept = {path.name for path in (tmp_path / ".evalloom/hop-store").glob("*.parquet")}
    assert kept == after


@pytest.mark.parametrize("harm", ["index", "part", "format", "stats"])
def test_a_damaged_copy_is_made_again(tmp_path: Path, harm: str) -> None:
    write(tmp_path / "a.jsonl", flat(1), flat(2))
    first = DataStore(tmp_path).get_stats()
    DataStore(tmp_path).query_results()
    place = tmp_path / ".evalloom/hop-store"
    harmed = place / ("stats.json" if harm == "stats" else "index.json")
    if harm == "part":
        harmed = next(place.glob("*.parquet"))
        (place / "stats.json").unlink()
    harmed.write_text('{"format": 0, "parts": []}' if harm == "format" else "PAR1 rubbish")
    assert DataStore(tmp_path).get_stats() == first


def test_a_folder_that_cannot_be_written_gives_the_same_figures(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", flat(1, profile="p"), flat(1, profile="q"))
    (tmp_path / ".evalloom").write_text("a file where the folder should be")
    store = DataStore(tmp_path)
    assert store.get_stats()["total"] == 2
    assert store.compare("p", "q")["cases"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [".evalloom", "a.jsonl"]


def test_processes_at_once_leave_a_usable_copy(tmp_path: Path) -> None:
    for number in range(4):
        write(tmp_path / f"{number}.jsonl", *(flat(at) for at in range(200)), "cut" if number == 3 else "")
    code = "import sys; from evalloom.hop.results.store import DataStore; print(DataStore(sys.argv[1]).get_stats()['total'])"
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate()[0].strip() for process in running] == ["800"] * 3
    assert DataStore(tmp_path).get_stats()["total"] == 800


def test_a_killed_process_leaves_a_usable_copy(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", *(flat(at) for at in range(500)))
    code = (
        "import os, sys; from pathlib import Path; from evalloom.hop.results.copy import Copy;"
        "Copy.write_json = lambda self, name, value: os.kill(os.getpid(), 9); Copy(Path(sys.argv[1]), print).refresh()"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode == -9
    assert DataStore(tmp_path).get_stats()["total"] == 500


def test_names_of_folders_and_files_are_taken_to_the_letter(tmp_path: Path) -> None:
    folder = tmp_path / "it's [1] * 中文"
    folder.mkdir()
    write(folder / "a[b]*?.jsonl", flat(1), flat(2, ["no object"]))
    write(folder / "b'.jsonl", flat(1))
    assert DataStore(folder).get_stats()["total"] == 3


def test_nothing_is_written_to_the_files(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", flat(1), '{"cut": ')
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    store = DataStore(tmp_path)
    store.get_stats(), store.query_results(), store.list_files()
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
