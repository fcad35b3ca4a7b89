"""`evalloom replay` and its subcommands: what is typed, what is told, and the exit code."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalloom.replay.session import ReplayRun

pytestmark = pytest.mark.req("REPLAY-18")

Call = Callable[..., Any]
EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples/replay"
ROWS: list[Any] = [{"name": "Alice", "q": "hi"}, {"variables": {"name": "小雨", "q": "在吗"}}, {"q": "who?"}]


def put_project(system: str = "Hello {{name}}", **more: Any) -> None:
    nodes = [
        {"id": "s", "data": {"label": "System", "type": "system_prompt", "content": system}},
        {"id": "u", "data": {"label": "User", "type": "user_input", "content": "Ask: {{q}}"}},
    ]
    state = {"nodes": nodes, "edges": [], "variables": [], **more}
    Path("p.json").write_text(json.dumps({"name": "p", "state": state}), encoding="utf-8")


def put_rows(rows: list[Any] = ROWS, file: str = "rows.jsonl") -> None:
    Path(file).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def call(in_process: Call) -> Call:
    """In a folder with a project and rows."""
    put_project()
    put_rows()
    return in_process


def replay(call: Call, *more: str) -> Any:
    return call("replay", "--project", "p.json", "--dataset", "rows.jsonl", *more)


@pytest.mark.req("REPLAY-8", "REPLAY-9")
def test_rows_are_assembled_and_counted(call: Call) -> None:
    done = replay(call)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("3 rows, 3 succeeded, 0 failed\n")
    assert "Missing variables, which stay in the text as they are written:\n  name: 1 row\n" in done.out
    first = json.loads(replay(call, "--json").out)[0]
    assert first["outputDigest"] == "Iap+GZAYbfg+d6LXKtwTRC+NFywBzO2QkAmaqm+JskQ="
    assert [*first] == ["runId", "createdAt", "rowIndex", "status", "outputDigest", "missingVariablesCount"]


def test_window_keeps_the_numbers_of_the_rows(call: Call) -> None:
    done = replay(call, "--offset", "1", "--limit", "1", "--json")
    assert [run["rowIndex"] for run in json.loads(done.out)] == [1]
    assert (replay(call, "--offset", "9", "--json").out, replay(call, "--offset", "9").code) == ("[]\n", 0)


@pytest.mark.req("REPLAY-4", "REPLAY-5", "REPLAY-9")
def test_failing_rows_say_where(call: Call) -> None:
    variable = {"id": "v1", "name": "name", "type": "dynamic", "resolver": "file://name.txt", "value": ""}
    put_project(variables=[variable])
    put_rows([*ROWS, {"variables": "none"}])
    done = replay(call)
    assert done.code == 1 and done.out.startswith("4 rows, 2 succeeded, 2 failed\n  row 2: variable 'v1', node 's': ")
    assert "[not_found]" in done.out
    assert "  row 3: variables: expected an object, got 'none' [row_invalid]\n" in done.out
    # Beside the recipe, wherever the command is typed.
    Path("name.txt").write_text("Bob", encoding="utf-8")
    assert replay(call).out.startswith("4 rows, 3 succeeded, 1 failed\n")


def test_rows_with_the_same_trouble_are_told_together(call: Call) -> None:
    put_rows([*[{"variables": 1}] * 10, {"q": "fine"}, {"variables": 1}, *({"variables": f"v{n}"} for n in range(25))])
    out = replay(call).out
    assert "  row 0–9, 11: variables: expected an object, got 1 [row_invalid]\n" in out
    assert out.count("[row_invalid]") == 20 and "… and 6 other errors; -o FILE writes all of them" in out


def test_cut_rows_are_told(call: Call) -> None:
    put_rows([{"name": "x" * 30_000, "q": "a"}, {"name": "y", "q": "b"}])
    assert "Cut at 20,000 bytes: 1 row (0). A change behind the cut does not change the digest\n" in replay(call).out
    put_rows([{"name": "x" * 30_000, "q": "other"}, {"name": "y", "q": "b"}])
    replay(call)
    done = call("replay", "compare")
    assert done.code == 0 and "stable as far as can be told: row 0, cut at 20,000 bytes on both sides\n" in done.out


@pytest.mark.req("REPLAY-17")
def test_expectations_that_cannot_be_read_are_told_and_fail(call: Call) -> None:
    expected = [{"regex": "("}, {"mustcontain": ["z"]}, "zz", {"jsonSchema": "x"}, {"mustContain": ["Ask"]}]
    put_rows([{"name": "n", "q": "q", "_expected": one} for one in expected])
    done = replay(call, "--profile", "echo")
    assert done.code == 1 and "echo was asked 5 times: 1 passed, 3 error, 1 unscored\n" in done.out
    assert "  row 0: regex: expected a regular expression" in done.out
    assert "  row 1: mustcontain: is not known and has no effect" in done.out


def test_doubts_about_a_recipe_are_told(call: Call) -> None:
    node = {"id": "n", "data": {"label": "N", "type": "sytem_prompt", "contents": "{{q}}"}}
    Path("p.json").write_text(
        json.dumps({"nodes": [node], "edges": [{"source": "n", "target": "m"}]}), encoding="utf-8"
    )
    done = replay(call)
    assert done.code == 0 and "there is no content, so the segment is empty. Did you mean 'contents'?" in done.err
    assert "Did you mean 'system_prompt'?" in done.err and "there is no node 'm'" in done.err
    checked = call("validate", "p.json")
    assert "p.json: a context recipe, 0 errors, 3 warnings" in checked.out and checked.out.count("[recipe_doubt]") == 3


@pytest.mark.req("REPLAY-7")
def test_records_are_written_to_a_file(call: Call) -> None:
    assert replay(call, "-o", "out/runs.jsonl").code == 0
    records = [json.loads(line) for line in Path("out/runs.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [record["rowIndex"] for record in records] == [0, 1, 2]
    assert records[1]["trace"]["text"] == "--- System ---\nHello 小雨\n\n--- User ---\nAsk: 在吗"
    done = replay(call, "-o", "rows.jsonl")
    assert done.code == 2 and "[would_overwrite]" in done.err


@pytest.mark.req("REPLAY-11", "REPLAY-16")
def test_replays_are_stable_until_the_recipe_changes(call: Call) -> None:
    for _ in range(2):
        replay(call)
    done = call("replay", "compare")
    assert (done.code, done.err) == (0, "") and done.out.startswith("STABLE: 3 rows stable, 0 drift, 0 new, 0 gone\n")
    put_project("Good day {{name}}")
    replay(call)
    done = call("replay", "compare")
    assert done.code == 1 and done.out.startswith("DRIFT: 0 rows stable, 3 drift, 0 new, 0 gone\n")
    assert "row 0 drift: System changed\n" in done.out and "\n    -Hello Alice\n    +Good day Alice\n" in done.out


@pytest.mark.req("REPLAY-16")
def test_comparison_as_json_has_every_row_that_is_not_stable(call: Call) -> None:
    replay(call, "-o", "before.jsonl")
    put_rows([ROWS[0], {"q": "new"}, ROWS[2], {"name": "x", "q": "y"}])
    replay(call, "--offset", "1", "-o", "after.jsonl")
    done = call("replay", "compare", "before.jsonl", "after.jsonl", "--json")
    found = json.loads(done.out)
    assert done.code == 1 and [found[word] for word in ("stable", "drift", "new", "gone")] == [1, 1, 1, 1]
    assert [(row["rowIndex"], row["status"]) for row in found["rows"]] == [(0, "gone"), (1, "drift"), (3, "new")]
    assert {one["label"] for one in found["rows"][1]["segments"]} == {"System", "User"}
    assert "b" not in found["rows"][0] and "a" not in found["rows"][2]
    out = call("replay", "compare", "before.jsonl", "after.jsonl").out
    assert "row 1 drift: System changed, User changed\n" in out and out.endswith("new: row 3\ngone: row 0\n")


def test_rows_that_follow_one_another_are_told_as_one(call: Call) -> None:
    put_rows(ROWS * 4)
    replay(call)
    replay(call, "--offset", "2", "--limit", "3")
    done = call("replay", "compare")
    assert done.code == 1 and "DRIFT: 3 rows stable, 0 drift, 0 new, 9 gone\n" in done.out
    assert done.out.endswith("gone: row 0–1, 5–11\n")


def test_only_the_first_drifting_rows_are_shown(call: Call) -> None:
    put_rows([{"name": str(number), "q": "\n".join("abc" * 20)} for number in range(15)])
    replay(call)
    put_rows([{"name": str(number), "q": "\n".join("xyz" * 20)} for number in range(15)])
    replay(call, "-o", "b.jsonl")
    out = call("replay", "compare", "previous", "latest").out
    assert out.count(" drift: User changed, as in row 0\n") == 9 and "… and 5 more that drift; --json has them" in out
    assert "more lines" in out


def test_list_and_show(call: Call) -> None:
    assert "There is no replay yet" in call("replay", "list").out
    (first, _, last) = json.loads(replay(call, "--json").out)
    listed = call("replay", "list").out
    assert first["runId"].rpartition("-")[0] in listed and len(listed.splitlines()) == 2
    assert json.loads(call("replay", "list", "--json").out)[0]["rowCount"] == 3
    shown = call("replay", "show", last["runId"])
    assert shown.code == 0 and "--- System --- (system, node s, missing: name)\n  Hello {{name}}\n" in shown.out
    assert call("replay", "show", "latest-2").out == shown.out
    assert json.loads(call("replay", "show", last["runId"], "--json").out)["rowIndex"] == 2


def test_replays_are_kept_where_the_flag_says(call: Call) -> None:
    done = replay(call, "--data-dir", "kept", "--json")
    run = json.loads(done.out)[0]["runId"]
    assert call("replay", "show", run, "--data-dir", "kept").code == 0 and not Path(".evalloom").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dataset", "rows.jsonl"], "--project: expected a file, got none"),
        (["--project", "p.json"], "--dataset: expected a file, got none"),
        (["--project", "none.json", "--dataset", "rows.jsonl"], "none.json"),
        (["--project", "p.json", "--dataset", "none.jsonl"], "none.jsonl"),
        (["--project", "rows.jsonl", "--dataset", "rows.jsonl"], "rows.jsonl"),
        (["--project", "p.json", "--dataset", "rows.jsonl", "--limit", "0"], "--limit"),
        (["--project", "p.json", "--dataset", "rows.jsonl", "--profile", "nobody"], "nobody"),
        (["--project", "p.json", "list"], "--project: does not go before 'list'"),
        (["show", "no-such-run"], "there is no replay in .evalloom yet"),
        (["compare", "r1"], "there is no replay in .evalloom yet"),
        (["show", "latest-0"], "replay_not_found"),
        (["compare"], "there is no replay in .evalloom yet"),
        (["compare", "none.jsonl", "latest"], "none.jsonl"),
    ],
)
def test_wrong_usage_is_told(call: Call, arguments: list[str], said: str) -> None:
    done = call("replay", *arguments)
    assert done.code == 2 and said in done.err and done.out == ""


def test_who_only_looks_makes_no_folder(call: Call) -> None:
    assert call("replay", "list").code == 0 and call("replay", "show", "17").code == 2
    assert not Path(".evalloom").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "../../etc"], "'../../etc' is not a run. Name its row, such as 17 or latest-17"),
        (["show", "latest"], "'latest' is not a run"),
        (["show", "99"], "there is no run"),
        (["show", "previous-0"], "expected two complete replays of 'rows' to compare, got one"),
        (["compare"], "expected two complete replays of 'rows' to compare, got one"),
        (["compare", "latest"], "'latest' and 'latest' are the same replay"),
        (["compare", "rows.jsonl"], "rows.jsonl:1: expected a record as 'evalloom replay -o FILE' writes it"),
    ],
)
def test_wrong_names_are_told(call: Call, arguments: list[str], said: str) -> None:
    replay(call)
    done = call("replay", *arguments)
    assert done.code == 2 and said in done.err and done.out == ""


def test_rows_may_be_named_shortly(call: Call) -> None:
    replay(call)
    assert call("replay", "show", "1").out == call("replay", "show", "latest-1").out != call("replay", "show", "0").out


def test_output_spares_the_store(call: Call) -> None:
    replay(call)
    for output in (".evalloom/store/replay.sqlite", ".evalloom/store/replay.sqlite-wal", "rows.jsonl", "."):
        assert replay(call, "-o", output).code == 2
    assert call("replay", "list").code == 0


def test_same_pieces_are_compared(call: Call) -> None:
    put_rows([{"name": "n", "q": str(number)} for number in range(4)])
    for _ in range(2):
        replay(call, "--limit", "2")
        replay(call, "--offset", "2")
    done = call("replay", "compare")
    assert done.code == 0 and done.out.startswith("STABLE: 2 rows stable")


def test_other_rows_and_recipes_are_told(call: Call) -> None:
    replay(call)
    replay(call, "-o", "a.out")
    Path("sub").mkdir()
    put_rows([{"name": "other", "q": "other"}], "sub/rows.jsonl")
    call("replay", "--project", "p.json", "--dataset", "sub/rows.jsonl", "-o", "b.out")
    assert "  not the same: p · rows → p · sub-rows-" in call("replay", "compare", "a.out", "b.out").out


def test_huge_windows_are_no_bug(call: Call) -> None:
    assert replay(call, "--limit", str(10**30), "--offset", "1").code == 0
    assert replay(call, "--limit", "1", "--offset", str(10**30), "--json").out == "[]\n"


def test_changed_answers_are_told(call: Call) -> None:
    for answer in ("one", "two"):
        Path("answers.yaml").write_text(f"rules: [{{answer: {answer}}}]", encoding="utf-8")
        replay(call, "--profile", "scripted:answers.yaml")
    done = call("replay", "compare")
    assert done.code == 0 and "another answer: row 0–2\n" in done.out
    assert json.loads(call("replay", "compare", "--json").out)["answersChanged"] == 3


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
def test_ctrl_c_stops_and_says_what_is_kept(call: Call) -> None:
    put_rows([{"name": "n", "q": str(number)} for number in range(120_000)])
    command = [sys.executable, "-m", "evalloom", "replay", "--project", "p.json", "--dataset", "rows.jsonl"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and '"rowCount"' not in call("replay", "list", "--json").out:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    [kept] = json.loads(call("replay", "list", "--json").out)
    told = f"{kept['rowCount']:,} of 120,000 rows are kept as replay {kept['replayId']}. "
    assert (process.returncode, out) == (3, "") and err.endswith("makes a complete one [stopped]\n")
    assert err.lstrip("\r\n").startswith(f"evalloom: interrupted: {told}")
    assert (kept["state"], kept["rowsRequested"]) == ("interrupted", 120_000)


@pytest.fixture
def interrupted_at(call: Call, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Any]:
    """Replays 450 rows and is interrupted, as by Ctrl-C, after so many."""
    put_rows([{"name": "n", "q": str(number)} for number in range(450)])

    def interrupt(rows: int) -> Any:
        store_rows = ReplayRun.store_rows

        def stop_after(self: ReplayRun, first: int, *arguments: Any) -> bytes:
            if first >= rows:
                raise KeyboardInterrupt
            return store_rows(self, first, *arguments)

        with monkeypatch.context() as patched:
            patched.setattr(ReplayRun, "store_rows", stop_after)
            return replay(call)

    return interrupt


@pytest.mark.req("REPLAY-16")
def test_an_interrupted_replay_is_listed_as_such_and_not_taken_for_a_change(
    call: Call, interrupted_at: Callable[[int], Any]
) -> None:
    replay(call)
    assert interrupted_at(400).code == 3
    replay(call)
    replays = json.loads(call("replay", "list", "--json").out)
    assert [one["state"] for one in replays] == ["complete", "interrupted", "complete"]
    assert "interrupted (of 450)" in " ".join(call("replay", "list").out.split())
    done = call("replay", "compare")
    assert done.code == 0 and "STABLE: 450 rows stable, 0 drift, 0 new, 0 gone" in done.out
    cut = replays[1]["replayId"]
    assert f"left out: {cut} is interrupted (400 of 450 rows); name it" in " ".join(done.out.split())
    assert json.loads(call("replay", "compare", "--json").out)["leftOut"] == [cut]
    assert call("replay", "compare", "previous").code == 0
    named = call("replay", "compare", cut)
    assert named.code == 1 and "450 rows stable" not in named.out and "50 new" in named.out
    assert f"{cut} is interrupted (400 of 450 rows): rows that it lacks are new" in " ".join(named.out.split())


@pytest.mark.req("REPLAY-16")
def test_the_latest_is_compared_only_if_it_is_complete_or_named(
    call: Call, interrupted_at: Callable[[int], Any]
) -> None:
    interrupted_at(200)
    done = call("replay", "compare")
    assert done.code == 2 and "expected two complete replays of 'rows' to compare, got none; r" in done.err
    for _ in range(2):
        replay(call)
    interrupted_at(200)
    newest, *_ = json.loads(call("replay", "list", "--json").out)
    assert call("replay", "compare").out.startswith("STABLE: 450 rows")
    named = json.loads(call("replay", "compare", "previous", "latest", "--json").out)
    assert (named["b"], named["aState"], named["bState"], named["gone"]) == (
        newest["replayId"],
        "complete",
        "interrupted",
        250,
    )


@pytest.mark.req("REPLAY-15")
def test_key_in_a_row_that_is_no_object_is_hidden(call: Call) -> None:
    put_rows(["sk-abcdefgh12345678abcdefgh", {"variables": "sk-abcdefgh12345678abcdefgh"}])
    done = replay(call, "-o", "runs.jsonl")
    assert "rows.jsonl:1: expected an object, got a string: '[hidden]' [row_invalid]" in " ".join(done.out.split())
    assert "sk-abc" not in done.out + Path("runs.jsonl").read_text(encoding="utf-8")


@pytest.mark.req("REPLAY-6")
def test_show_prints_an_error_once(call: Call) -> None:
    put_project("{{name}}", variables=[{"id": "v1", "name": "q", "type": "dynamic", "resolver": "file://gone.txt"}])
    put_rows([{"name": "a"}, {"variables": []}])
    replay(call)
    lines = " ".join(call("replay", "show", "0").out.split())
    assert lines.count("[not_found]") == 1 and "variable 'v1', node 'u': q: " in lines
    assert "name: from the row, 1 byte" in lines
    lines = call("replay", "show", "1").out
    assert (
        lines.count("variables: expected an object, got an empty list") == 1 and "Variables and messages" not in lines
    )


def test_nothing_in_a_file_drives_the_terminal(call: Call) -> None:
    put_project("a\x1b[31m{{name}}{{\x1b[2J}}")
    out = replay(call).out + call("replay", "show", json.loads(replay(call, "--json").out)[0]["runId"]).out
    put_project("b\x1b[31m{{name}}")
    replay(call)
    out += call("replay", "compare").out
    assert "\x1b" not in out and "\\x1b[31m" in out


def test_a_comparison_is_coloured_on_a_terminal(call: Call, on_terminal: Callable[..., str]) -> None:
    replay(call)
    put_project("Good day {{name}}")
    replay(call)
    shown = on_terminal("replay", "compare")
    assert "\x1b[31m    -Hello Alice\x1b[0m" in shown and "\x1b[32m    +Good day Alice\x1b[0m" in shown


# -- with a model -------------------------------------------------------------------------------------


@pytest.mark.req("REPLAY-17")
def test_answers_are_held_against_what_rows_expect(call: Call) -> None:
    put_rows([{**ROWS[0], "_expected": {"mustContain": ["hi"]}}, {**ROWS[0], "_expected": {"equals": "no"}}, ROWS[0]])
    done = replay(call, "--profile", "echo")
    assert done.code == 1 and "echo was asked 3 times: 1 passed, 1 failed, 1 unscored\n" in done.out
    assert "\n  row 1: " in done.out and "3 rows, 3 succeeded" in done.out
    put_rows(ROWS)
    assert replay(call, "--profile", "echo").code == 0


@pytest.mark.req("REPLAY-17")
def test_show_has_the_answer(call: Call) -> None:
    run = json.loads(replay(call, "--profile", "echo", "--limit", "1", "--json").out)[0]["runId"]
    shown = call("replay", "show", run).out
    assert "Answer of echo (unscored):\n" in shown and "Ask: hi" in shown.partition("Answer of echo")[2]


# -- the examples -------------------------------------------------------------------------------------


@pytest.mark.req("REPLAY-9", "REPLAY-17")
def test_example_has_rows_that_fail_and_rows_that_miss_variables(in_process: Call) -> None:
    shutil.copytree(EXAMPLES / "context", ".", dirs_exist_ok=True)
    arguments = ("replay", "--project", "project.json", "--dataset", "rows.jsonl")
    done = in_process(*arguments)
    assert done.code == 1 and done.out.startswith("30 rows, 27 succeeded, 3 failed\n  row 16: variables: expected")
    assert (
        "  row 17–18: variable 'v7', node 'memory': account: sql://crm: there is no file" in done.out
        and "  user_name: 3 rows\n  question: 2 rows\n" in done.out
    )
    done = in_process(*arguments, "--profile", "offline")
    assert "offline was asked 27 times: 21 passed, 2 failed, 4 unscored\n" in done.out
    assert in_process("replay", "compare").code == 0


def test_example_recipe_takes_the_rows_of_its_prompt(in_process: Call) -> None:
    files = [str(EXAMPLES / name) for name in ("project.json", "rows.jsonl")]
    done = in_process("replay", "--project", files[0], "--dataset", files[1])
    assert done.code == 0 and done.out.startswith("14 rows, 14 succeeded, 0 failed\n")
