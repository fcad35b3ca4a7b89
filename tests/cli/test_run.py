"""`evalloom run` as its help promises it: every flag, every exit code, all that it prints and writes."""

from __future__ import annotations

import csv
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from evalloom import catalog

SUFFIXES = ", ".join(reporter.suffix for reporter in catalog.load().reporters)
CASES = """\
{"id": "fr", "q": "capital of France", "tags": ["geo"], "expected_output": "Paris"}
{"id": "it", "q": "capital of Italy", "tags": ["geo"], "expected_output": "Rome"}
{"id": "sum", "q": "2+2", "tags": ["math"], "expected_output": "4"}
"""
WEAK = """\
rules:
  - {match: France, answer: Paris}
  - {match: Italy, answer: Milan}
  - {match: 2+2, answer: "4"}
"""
SETTINGS = """\
llms:
  one: {protocol: scripted, file: weak.yaml}
  two: {protocol: scripted, file: strong.yaml}
profiles:
  weak: {run: one}
  strong: {run: two}
target: prompt:prompt.md
datasets: [cases.jsonl]
"""
FIGURES = set(
    [
        "total",
        "passed",
        "failed",
        "error",
        "skipped",
        "blocked",
        "unscored",
        "cases",
        "failing",
        "pass_rate",
        "pass_rate_low",
        "pass_rate_high",
        "tokens",
        "cost",
        "cached",
        "duration_s",
        "retries",
        "unpriced",
        "estimated",
    ]
)


Call = Callable[..., Any]


@pytest.fixture(autouse=True)
def suite(in_process: Call, tmp_path: Path) -> Path:
    """A suite whose first profile fails one case of three."""
    Path("cases.jsonl").write_text(CASES, encoding="utf-8")
    Path("weak.yaml").write_text(WEAK, encoding="utf-8")
    Path("strong.yaml").write_text(WEAK.replace("Milan", "Rome"), encoding="utf-8")
    Path("prompt.md").write_text("{{q}}?", encoding="utf-8")
    Path("evalloom.yaml").write_text(SETTINGS, encoding="utf-8")
    return tmp_path


@pytest.fixture
def run(in_process: Call) -> Call:
    """`run("--limit", "1")` is `evalloom run --limit 1`."""
    return partial(in_process, "run")


def runs() -> list[dict[str, Any]]:
    """The runs in the newest batch."""
    return [json.loads(line) for line in (batches()[-1] / "runs.jsonl").read_bytes().splitlines()]


def batches() -> list[Path]:
    return sorted(Path(".evalloom/batches").glob("*"), key=lambda path: path.stat().st_ctime_ns)


def add(name: str, text: str) -> None:
    with Path(name).open("a", encoding="utf-8") as stream:
        stream.write(text)


# -- what is run --------------------------------------------------------------------------------------


def test_without_arguments_the_settings_and_the_first_profile(run: Call) -> None:
    done = run()
    assert done.code == 1 and [one["profile"] for one in runs()] == ["weak"] * 3
    assert "FAILED it · weak   cases.jsonl:2:1" in done.out and "expected 'Rome', got 'Milan'" in done.out
    assert re.search(r"weak +3 +2 +1 +66\.7% +20\.8–93\.9%", done.out)
    assert f"Batch: .evalloom/batches/{batches()[0].name}" in done.out
    assert f"Next: evalloom batches show {batches()[0].name} --status failed" in done.out


def test_without_settings_everything_comes_from_flags(run: Call) -> None:
    Path("evalloom.yaml").unlink()
    done = run("cases.jsonl", "--target", "prompt:prompt.md", "--profile", "scripted:strong.yaml")
    assert done.code == 0 and "3       3       0     100.0%" in done.out
    assert run("cases.jsonl", "--target", "prompt:prompt.md", "--profile", "echo", "--json").summary["failed"] == 3


def test_config_names_other_settings_whose_paths_are_its_own(run: Call, suite: Path) -> None:
    (suite / "elsewhere").mkdir()
    for name in ("cases.jsonl", "weak.yaml", "strong.yaml", "prompt.md"):
        Path(name).rename(suite / "elsewhere" / name)
    Path("evalloom.yaml").rename("elsewhere/mine.yaml")
    assert run("--config", "elsewhere/mine.yaml", "--json").summary["passed"] == 2
    assert runs()[0]["origin"]["file"] == "elsewhere/cases.jsonl"


@pytest.mark.parametrize("flags", [("--profile", "weak", "--profile", "strong"), ("--profile", "weak,strong,weak")])
def test_several_profiles_are_counted_apart_and_together(run: Call, flags: tuple[str, ...]) -> None:
    done = run(*flags, "--json")
    profiles = done.summary["profiles"]
    assert done.code == 1 and list(profiles) == ["weak", "strong"]
    assert (profiles["weak"]["passed"], profiles["strong"]["passed"], done.summary["passed"]) == (2, 3, 5)


@pytest.mark.parametrize(
    ("flags", "chosen"),
    [
        (("--limit", "2"), ["fr", "it"]),
        (("--limit", "9"), ["fr", "it", "sum"]),
        (("--tags", "math"), ["sum"]),
        (("--tags", "math,geo"), ["fr", "it", "sum"]),
        (("--tags", "math", "--tags", "nothing"), ["sum"]),
        (("--tags", "geo", "--limit", "1"), ["fr"]),
        (("--filter", "len(q) > 16"), ["fr"]),
        (("--filter", '"geo" in tags and id != "fr"'), ["it"]),
        (("--repeat", "2", "--limit", "1"), ["fr", "fr"]),
    ],
)
def test_cases_are_chosen(run: Call, flags: tuple[str, ...], chosen: list[str]) -> None:
    assert run(*flags, "--json").summary["total"] == len(chosen)
    assert sorted(one["case_id"] for one in runs()) == chosen
    assert len({one["key"] for one in runs()}) == len(chosen)


def test_nothing_chosen_is_said(run: Call) -> None:
    done = run("--tags", "nothing")
    assert done.code == 2 and "[no_case_chosen]" in done.err and not batches()


COUNTING = """\
import asyncio
now = most = 0

async def answer(q):
    global now, most
    now += 1
    most = max(most, now)
    await asyncio.sleep(0.01)
    now -= 1
    return most
"""


@pytest.mark.parametrize(("flags", "most"), [((), 16), (("-j", "3"), 3), (("--concurrency", "1"), 1)])
def test_so_many_runs_at_once(run: Call, suite: Path, flags: tuple[str, ...], most: int) -> None:
    Path(f"counting{most}.py").write_text(COUNTING, encoding="utf-8")
    Path("many.jsonl").write_text("".join(f'{{"id": "{n}", "q": "{n}"}}\n' for n in range(48)), encoding="utf-8")
    run("many.jsonl", "--target", f"python:counting{most}:answer", *flags)
    assert max(one["output"]["value"] for one in runs()) == most


def test_timeout_gives_up_on_a_run_and_wins_over_the_settings(run: Call) -> None:
    Path("sleeper.py").write_text(
        "import asyncio\n\nasync def answer(q):\n    await asyncio.sleep(9)\n", encoding="utf-8"
    )
    Path("evalloom.yaml").write_text("target: {python: sleeper:answer, timeout_s: 8}\ndatasets: [cases.jsonl]\n")
    assert run("--timeout", "0.1", "--json").summary["error"] == 3
    assert all("no answer within 0.1 s [timeout]" in one["error"] for one in runs())


def test_dataset_in_other_words_and_encodings(run: Call) -> None:
    Path("cases.jsonl").write_bytes('{"id": "fr", "frage": "capital of France 法国"}\n'.encode("gb18030"))
    done = run("--map", "q=frage", "--dialect", "pipeline", "--encoding", "gb18030", "--profile", "echo", "--json")
    assert done.summary["unscored"] == 1 and runs()[0]["output"]["value"] == "capital of France 法国?"
    facts = json.loads((batches()[0] / "batch.json").read_text())["datasets"][0]
    assert (facts["dialect"], facts["mapping"]) == ("pipeline", "q=frage")


def test_code_that_data_name_runs_only_when_allowed(run: Call) -> None:
    Path("mine.py").write_text("def good(value, *rest):\n    return 'Paris' in value\n", encoding="utf-8")
    asserted = "tests: [{vars: {q: capital of France}, assert: [{type: python, value: 'mine:good'}]}]\n"
    Path("promptfooconfig.yaml").write_text(f"prompts: ['{{{{q}}}}']\nproviders: [echo]\n{asserted}", encoding="utf-8")
    refused = run("promptfooconfig.yaml", "--json").summary
    reason = json.loads((batches()[-1] / "verdicts.jsonl").read_text())["verdicts"][0]["reason"]
    assert (refused["passed"], refused["unscored"]) == (0, 1) and "--allow-code" in reason
    assert run("promptfooconfig.yaml", "--allow-code", "--json").summary["passed"] == 1


# -- dry runs, invalid data ---------------------------------------------------------------------------

TELLTALE = "from pathlib import Path\n\ndef answer(q):\n    Path('called').write_text(q)\n    return q\n"


def test_dry_run_calls_nobody_and_leaves_nothing(run: Call) -> None:
    Path("telltale.py").write_text(TELLTALE, encoding="utf-8")
    done = run("--dry-run", "--repeat", "2", "--target", "python:telltale:answer")
    assert done.code == 0 and "6 to run" in done.out
    assert not Path("called").exists() and not Path(".evalloom").exists()


def test_dry_run_estimates_a_prompt(run: Call) -> None:
    Path("evalloom.yaml").write_text(
        SETTINGS.replace(
            "protocol: scripted, file: weak.yaml",
            "model: m, base_url: 'http://127.0.0.1:9', price: {input: 1000000, output: 0}",
        )
    )
    ahead = run("--dry-run", "--json").summary
    assert (ahead["total"], ahead["to_run"], ahead["profiles"]) == (3, 3, ["weak"])
    assert 0 < ahead["tokens_low"] < ahead["tokens_high"] and ahead["cost_low"] == ahead["tokens_low"]


def test_dry_run_tells_what_would_fail_before_anything_is_sent(run: Call) -> None:
    add("cases.jsonl", '{"id": "odd", "question": "the prompt asks for q"}\n')
    done = run("--dry-run")
    assert done.code == 0 and "4 to run" in done.out and "errors    1 of them before anything is sent" in done.out
    assert run("--dry-run", "--json").summary["errors"] == 1


def test_dry_run_knows_what_is_there(run: Call) -> None:
    run("--limit", "2")
    done = run("--dry-run", "--resume")
    assert f"3, 2 of them in {batches()[0].name} already; 1 to run" in done.out


def test_invalid_data_are_refused_before_any_call(run: Call) -> None:
    Path("telltale.py").write_text(TELLTALE, encoding="utf-8")
    add("cases.jsonl", '{"id": "fr", "q": "again"}\n{"id": \n')
    done = run("--target", "python:telltale:answer")
    assert done.code == 2 and "[invalid_data]" in done.err and "--skip-invalid" in done.err
    assert "cases.jsonl:4:1: id: 'fr' on line 4" in done.err and "cases.jsonl:5:" in done.err
    assert not Path("called").exists() and not Path(".evalloom").exists() and done.out == ""


def test_many_findings_of_one_code_are_cut_where_a_run_is_refused(run: Call) -> None:
    Path("bad.jsonl").write_text(
        "".join(f'{{"id": "c{n}", "q": "", "checks": [{{"contans": 1}}, {{"contains": 1}}]}}\n' for n in range(50))
    )
    done = run("bad.jsonl")
    assert done.code == 2 and done.err.count("Did you mean 'contains'?") == 20
    assert "… and 30 more of bad_check" in done.err and "50 errors" in done.err


def test_skip_invalid_runs_the_rest_and_counts_those_as_errors(run: Call) -> None:
    add("cases.jsonl", '{"id": "fr", "q": "capital of France"}\n{"id": \n')
    done = run("--skip-invalid", "--profile", "strong", "--json")
    summary = done.summary
    assert (done.code, summary["total"], summary["passed"], summary["error"]) == (1, 5, 3, 2)
    assert summary["pass_rate"] == 3 / 5
    errors = [one["error"] for one in runs() if one.get("error")]
    assert any("[duplicate_id]" in error for error in errors) and any("[json_parse_error]" in error for error in errors)


# -- what is said and written -------------------------------------------------------------------------


def test_json_has_the_promised_fields_and_nothing_else_is_printed(run: Call) -> None:
    done = run("--json")
    assert done.out.count("\n") == 1 and done.err == ""
    assert done.summary.keys() == FIGURES | {"batch", "path", "profiles", "pass_if", "problem", "gates"}
    latencies = {"p50_latency_s", "p95_latency_s", "mean_latency_s"}
    assert done.summary["profiles"]["weak"].keys() == FIGURES | latencies | {"flaky", "pass_at", "pass_hat"}
    assert Path(done.summary["path"]).name == done.summary["batch"] == batches()[0].name
    assert done.summary["pass_rate_low"] == pytest.approx(0.2077, abs=1e-4)
    assert done.summary["pass_rate_high"] == pytest.approx(0.9385, abs=1e-4)


def test_outputs_hold_every_run_in_order(run: Call) -> None:
    run("-o", "out.json", "-o", "out.jsonl", "-o", "out.csv", "--output", "deep/out.xml", "--profile", "weak,strong")
    lines = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [(line["profile"], line["case_id"]) for line in lines[1:4]] == [
        ("weak", "it"),
        ("weak", "sum"),
        ("strong", "fr"),
    ]
    assert (
        set(
            [
                "case_id",
                "profile",
                "repeat",
                "outcome",
                "status",
                "output",
                "error",
                "verdicts",
                "duration_s",
                "tokens",
                "cost",
            ]
        )
        <= lines[1].keys()
    )
    verdict = lines[1]["verdicts"][0]
    assert set(["name", "kind", "where", "status", "score", "reason", "follows", "mismatches"]) == verdict.keys()
    assert verdict["mismatches"] == [{"path": "$", "expected": "Rome", "actual": "Milan"}]
    whole = json.loads(Path("out.json").read_text())
    assert whole["summary"]["total"] == 6 and "Milan" in json.dumps(whole)
    table = list(csv.DictReader(Path("out.csv").read_text(encoding="utf-8-sig").splitlines()))
    assert [row["status"] for row in table] == ["passed", "failed", "passed", "passed", "passed", "passed"]
    junit = ElementTree.parse("deep/out.xml").getroot()
    assert (junit.get("tests"), junit.get("failures")) == ("6", "1") and len(list(junit.iter("testcase"))) == 6


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (("--profile", "strong"), 0),
        ((), 1),
        (("--fail-under", "0.6"), 0),
        (("--fail-under", "66%"), 0),
        (("--fail-under", "0.7"), 1),
        (("--fail-under", "0", "--tags", "nothing"), 2),
        (("--profile", "nobody"), 2),
        (("--max-time", "0"), 3),
    ],
)
def test_exit_codes(run: Call, flags: tuple[str, ...], code: int) -> None:
    assert run(*flags).code == code


@pytest.mark.parametrize(
    ("gate", "code", "told"),
    [
        ("pass_rate >= 0.6", 1, "holds"),
        ("pass_rate[tag=math] == 1", 1, "holds"),
        ("pass_rate[tag=geo] == 1", 1, "does not hold"),
    ],
)
def test_gates_are_told_beside_the_cases(run: Call, gate: str, code: int, told: str) -> None:
    add("evalloom.yaml", f'gates: ["{gate}"]\n')
    done = run()
    assert done.code == code and f"gate {gate}: {told} (" in done.out
    assert run("--fail-under", "0.5").code == (told != "holds")


WRONG = {
    ("-j", "0"): "--concurrency: expected 1 or more, got 0",
    ("-j", "many"): "'many' is not a valid integer",
    ("--repeat", "0"): "--repeat: expected 1 or more, got 0",
    ("--limit", "-1"): "--limit: expected 0 or more, got -1",
    ("--max-cost", "nan"): "--max-cost: expected 0 or more, got nan",
    ("--max-tokens", "-1"): "--max-tokens: expected 0 or more, got -1",
    ("--max-time", "-1"): "--max-time: expected 0 or more, got -1",
    ("--timeout", "0"): "--timeout: expected a number of seconds above 0, got 0",
    ("--fail-under", "90"): "--fail-under: expected a rate from 0 to 1, got 90",
    ("--fail-under", "most"): "--fail-under: expected a rate such as 0.9 or 90%, got 'most'",
    ("--filter", "q ="): "--filter 'q =': column 3: write '=='",
    ("--variants", "a"): "--variants: the target prompt:prompt.md has none",
    ("--profile", "strnog"): "there is no profile or llm 'strnog'. Did you mean 'strong'?",
    ("--judge", "nobody"): "there is no llm 'nobody'",
    ("--target", "promt:prompt.md"): "Did you mean 'prompt'?",
    ("--target", "prompt:promt.md"): "there is no file 'promt.md'. Did you mean 'prompt.md'?",
    ("--config", "none.yaml"): "none.yaml: there is no such file",
    ("none.jsonl",): "none.jsonl: there is no such file",
    ("-o", "out.pdf"): f"-o out.pdf: expected a file name ending in {SUFFIXES}",
    ("--resume",): "--resume: there is no batch yet",
    ("--resume-from", "latest"): "there is no batch yet",
    ("--resume-from", "../cases.jsonl"): "there is no batch '../cases.jsonl'",
    ("--retry-errors",): "--retry-errors: requires --resume or --resume-from",
    ("--resume", "--resume-from", "x"): "--resume and --resume-from: expected one of them, got both",
    ("--record", "a", "--replay", "b"): "--record and --replay: expected one of them, got both",
    ("--watch", "--dry-run"): "--watch and --dry-run: expected one of them, got both",
    ("-", "--watch"): "--watch: expected a file to watch, got '-'",
    ("--profil",): "No such option '--profil'",
    ("--dialect", "esperanto"): "esperanto",
}


@pytest.mark.parametrize("flags", WRONG, ids=" ".join)
def test_wrong_usage_is_exit_code_2_with_a_line_that_helps(run: Call, flags: tuple[str, ...]) -> None:
    done = run(*flags)
    assert (done.code, done.out) == (2, "") and WRONG[flags] in done.err
    assert not list(Path(".evalloom").rglob("runs.jsonl"))


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--replay", "none.jsonl"), "[bad_cassette]"),
        (("--profile", "scripted:prompt.md"), "[bad_script]"),
    ],
)
def test_llms_that_cannot_be_made_leave_no_batch(run: Call, flags: tuple[str, ...], told: str) -> None:
    done = run(*flags)
    assert (done.code, done.out) == (2, "") and told in done.err
    assert batches() == []


@pytest.mark.parametrize(
    "flags",
    [("-o", "cases.jsonl"), ("-o", "./x/../cases.jsonl"), ("--record", "prompt.md"), ("--record", "weak.yaml")],
)
def test_files_that_are_read_are_not_written(run: Call, suite: Path, flags: tuple[str, ...]) -> None:
    (suite / "x").mkdir()
    before = {path: path.read_bytes() for path in suite.glob("*.*")}
    done = run(*flags)
    assert done.code == 2 and "[would_overwrite]" in done.err
    assert {path: path.read_bytes() for path in before} == before


# -- going on -----------------------------------------------------------------------------------------


def test_resume_goes_on_with_the_newest_batch_of_the_same_run(run: Call) -> None:
    run("--limit", "1")
    run("--profile", "strong")
    summary = run("--resume", "--json").summary
    resumed = next(path for path in batches() if path.name == summary["batch"])
    profiles = json.loads((resumed / "batch.json").read_text())["profiles"]
    assert (summary["total"], len(batches()), profiles[0]["name"]) == (3, 2, "weak")


def test_resume_says_what_differs(run: Call) -> None:
    run()
    add("prompt.md", " Answer briefly.")
    done = run("--resume")
    assert done.code == 2 and "the target differs" in done.err
    assert f"--resume-from {batches()[0].name}" in done.err


def test_resume_from_takes_over_what_a_change_does_not_affect(run: Call) -> None:
    run()
    started = {one["case_id"]: one["started_at"] for one in runs()}
    Path("cases.jsonl").write_text(CASES.replace("of Italy", "of old Italy").replace('"4"', '"5"'), encoding="utf-8")
    time.sleep(0.01)
    done = run("--resume-from", "latest", "--json")
    again = {one["case_id"]: one["started_at"] for one in runs()}
    assert {id for id in again if again[id] != started[id]} == {"it"} and len(batches()) == 2
    assert (done.summary["passed"], done.summary["failed"]) == (1, 2), "the new expectation counts without a new run"


def test_retry_errors_runs_again_only_those(run: Call) -> None:
    Path("moody.py").write_text(
        "import os\n\ndef answer(q):\n    return {'2+2': '4'}[q] if 'WELL' not in os.environ else q\n"
    )
    run("--target", "python:moody:answer")
    os.environ["WELL"] = "1"
    try:
        kept = run("--target", "python:moody:answer", "--resume", "--json").summary
        healed = run("--target", "python:moody:answer", "--resume", "--retry-errors", "--json").summary
    finally:
        del os.environ["WELL"]
    assert (kept["error"], healed["error"], healed["total"], healed["passed"]) == (2, 0, 3, 1)
    assert len(runs()) == 5 and len(batches()) == 1


def test_recording_is_replayed_without_the_one_who_answered(run: Call) -> None:
    first = run("--record", "tape.jsonl", "-o", "first.jsonl")
    Path("weak.yaml").write_text("default: somebody else\n", encoding="utf-8")
    second = run("--replay", "tape.jsonl", "-o", "second.jsonl")
    told = [
        [json.loads(line)["verdicts"] for line in Path(name).read_text().splitlines()]
        for name in ("first.jsonl", "second.jsonl")
    ]
    assert first.code == second.code == 1 and told[0] == told[1] and len(told[0]) == 3


def test_judge_answers_for_judge_checks(run: Call) -> None:
    add("evalloom.yaml", "checks: [{kind: judge, expected: names a city}]\n")
    Path("judge.yaml").write_text(
        "rules: [{match: Milan, answer: {pass: false, reason: no such city}}]\ndefault: {pass: true, reason: it does}\n"
    )
    without = run("--profile", "strong", "--json").summary
    judged = run("--judge", "scripted:judge.yaml")
    verdicts = [
        json.loads(line)["verdicts"][-1] for line in (batches()[-1] / "verdicts.jsonl").read_text().splitlines()
    ]
    assert without["total"] == 3 and without["failed"] == 0
    assert sorted(one["status"] for one in verdicts) == ["failed", "passed", "passed"]
    assert judged.code == 1 and "no such city" in judged.out


# -- in a process of its own --------------------------------------------------------------------------


def test_dataset_from_stdin(evalloom: Callable[..., subprocess.CompletedProcess[str]], suite: Path) -> None:
    (suite / "tmp").mkdir()
    os.environ["TMPDIR"] = str(suite / "tmp")
    try:
        first = evalloom("run", "-", "--json", "--limit", "1", stdin=CASES)
        done = evalloom("run", "-", "--resume", stdin=CASES)
    finally:
        del os.environ["TMPDIR"]
    assert first.returncode == 0 and done.returncode == 1 and "<stdin>:2" in done.stdout
    assert len(runs()) == 3 and len(batches()) == 1
    assert list((suite / "tmp").iterdir()) == [], "what was spooled is taken away"


def test_help_tells_every_flag_of_the_promise(run: Call) -> None:
    out = run("--help").out
    promised = (
        "--config --target --profile -j --repeat --limit --tags --filter --variants --judge --no-cache --allow-code --skip-invalid "
        "--resume --resume-from --retry-errors --dry-run --max-cost --max-tokens --max-time --fail-under -o --json --watch"
    )
    assert [flag for flag in promised.split() if not re.search(rf"(^|\s){flag}\b", out)] == []
    assert "Default: 16." in out


def test_watch_runs_what_a_change_affects_until_ctrl_c(suite: Path) -> None:
    command = [sys.executable, "-m", "evalloom", "run", "--watch", "--json", "--profile", "strong"]
    watcher = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
    assert watcher.stdout and watcher.stderr

    def until_waiting() -> str:
        lines = []
        for line in watcher.stderr or ():
            lines.append(line)
            if line.startswith("Watching"):
                return "".join(lines)
        raise AssertionError(f"the watcher ended: {lines}")

    try:
        until_waiting()
        first = {one["case_id"]: one["started_at"] for one in runs()}
        add("cases.jsonl", '{"id": "new", "q": "capital of France", "expected_output": "Paris"}\n')
        until_waiting()
        second = {one["case_id"]: one["started_at"] for one in runs()}
        Path("prompt.md").write_text("{{q}}!", encoding="utf-8")
        until_waiting()
        third = {one["case_id"]: one["started_at"] for one in runs()}
        add("cases.jsonl", '{"id": \n')
        assert "[invalid_data]" in until_waiting()
    finally:
        watcher.send_signal(signal.SIGINT)
        out, err = watcher.communicate(timeout=20)
    assert second.items() - first.items() == {("new", second["new"])} and not third.items() & second.items()
    assert watcher.returncode == 2 and "Traceback" not in err, "the exit code of the last run"
    assert [json.loads(line)["total"] for line in out.splitlines()] == [3, 4, 4]


def on_terminal(*arguments: str, columns: int = 100) -> tuple[int, str]:
    """What evalloom shows where stdout and stderr are a terminal."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")}
    command = [sys.executable, "-m", "evalloom", *arguments]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**plain, "TERM": "xterm-256color"}
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # how Linux says that the other side has gone
            break
        if not chunk:
            break
        shown += chunk
    os.close(ours)
    return process.wait(), shown.decode()


def test_terminal_shows_progress_and_a_summary() -> None:
    Path("weak.yaml").write_text(WEAK.replace("}\n", ", delay_s: 0.3}\n"), encoding="utf-8")
    code, shown = on_terminal("run", "-j", "1")
    assert code == 1 and re.search(r"\r\x1b\[2K[12]/3 · (100|50)% passed · [\d.]+/s · 1 in flight · \d+ s left", shown)
    assert re.search(r"\x1b\[1mprofile +cases +passed +failed", shown) and "\x1b[31mFAILED it" in shown
    assert shown.index("Batch: ") > shown.rindex("\r\x1b[2K")


def test_progress_stays_on_one_line_of_a_narrow_terminal() -> None:
    Path("weak.yaml").write_text(WEAK.replace("}\n", ", delay_s: 0.3}\n"), encoding="utf-8")
    _, shown = on_terminal("run", "-j", "1", columns=30)
    lines = re.findall(r"\x1b\[2K(\d[^\r]+)\r", shown)
    assert lines and max(map(len, lines)) == 29


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_escape_sequences_do_not_reach_the_screen(is_terminal: bool, run: Call) -> None:
    case: dict[str, Any] = {"id": f"x{HOSTILE}", "q": HOSTILE, "tags": [HOSTILE], "expected_output": f"y{HOSTILE}"}
    Path("cases.jsonl").write_text(json.dumps(case) + "\n", encoding="utf-8")
    shown = on_terminal("run", "--profile", "echo")[1] if is_terminal else run("--profile", "echo").out
    shown += on_terminal("batches", "show", "latest", "--case", case["id"])[1] if is_terminal else ""
    assert "FAILED x\\x1b]0;owned\\x07" in shown
    assert not re.search(r"\x1b\]|\x1b\[2J|\x07|\x9b", shown)


def test_warnings_of_the_linter_are_shown_once_for_each_kind(run: Call) -> None:
    Path("cases.jsonl").write_text(CASES.replace('"fr"', '"f r"').replace('"it"', '"i t"'), encoding="utf-8")
    assert run().err.count("[id_characters]") == 1 and "and 1 more of these" in run().err


def test_a_hole_that_the_first_case_cannot_fill_is_told_first(run: Call) -> None:
    Path("prompt.md").write_text("{{q}} {qq}", encoding="utf-8")
    assert "names 'qq', and the first case has q. Did you mean 'q'?" in run().err


def test_what_could_not_be_scored_says_why_and_fails(run: Call) -> None:
    Path("cases.jsonl").write_text('{"id": "a", "q": "2+2"}\n', encoding="utf-8")
    assert run().code == 3
    add("evalloom.yaml", "checks: [{judge: is it right}]\n")
    done = run()
    assert done.code == 3 and "unscored 1: no judge" in done.out


def test_costs_can_be_rehearsed_with_a_script(run: Call) -> None:
    suite = Path("evalloom.yaml").read_text(encoding="utf-8")
    priced = suite.replace("file: strong.yaml", "file: strong.yaml, price: {input: 1000, output: 1000}")
    Path("evalloom.yaml").write_text(f"{priced}gates: [cost <= 0.000001]\n", encoding="utf-8")
    done = run("--profile", "strong")
    assert done.code == 1 and "gate cost <= 0.000001: does not hold (cost is 0.0" in done.out
    stopped = run("--profile", "strong", "--max-cost", "0.000001", "-j", "1")
    assert stopped.code == 3 and "Stopped: --max-cost 1e-06 is reached" in stopped.out
    assert "cost      0.0" in run("--profile", "strong", "--dry-run").out


def test_estimated_tokens_are_told_in_the_summary_the_gates_and_the_checks(run: Call, llm_server: Any) -> None:
    far = f"{{base_url: '{llm_server.url}', model: no-usage, key_env: none, price: {{input: 1, output: 1}}}}"
    checks = (
        "checks: [{kind: tokens, threshold: 2}, {kind: cost, threshold: 9}]\ngates: [cost <= 1, tokens < 1 or cost > 9]"
    )
    Path("evalloom.yaml").write_text(
        f"{SETTINGS.replace('llms:', f'llms:{chr(10)}  far: {far}')}{checks}\n", encoding="utf-8"
    )
    done = run("--profile", "far", "--no-cache")
    assert "The tokens of 3 calls are estimated: the server sent no usage" in done.out
    assert "without a price" not in done.out
    assert "estimated for 3 calls whose server sent no usage)" in " ".join(done.out.split())
    assert "expected at most 2 tokens (estimated: the server sent no usage), got" in done.out
    assert run("--profile", "far", "--no-cache", "--json").summary["estimated"] == 3


def test_a_budget_without_a_price_is_refused(run: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    done = run("--profile", "openai:m", "--max-cost", "1")
    assert done.code == 2 and "[price_missing]" in done.err


FLAKY = """
import pathlib
def answer(q):
    file = pathlib.Path(f"count-{q}")
    file.write_text((file.read_text() if file.exists() else "") + "x")
    return "y" if len(file.read_text()) <= int(q) else "n"
"""


def flaky_run(in_process: Call, *flags: str, settings: str = "") -> Any:
    """Run three cases, of which the first passes twice, the second four times and the third always."""
    Path("flaky.py").write_text(FLAKY, encoding="utf-8")
    rows = [{"id": f"c{q}", "q": q, "expected_output": "y"} for q in ("2", "4", "9")]
    Path("cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    Path("evalloom.yaml").write_text(f"target: python:flaky.py:answer\n{settings}", encoding="utf-8")
    return in_process("run", "cases.jsonl", "-j", "1", *flags)


@pytest.mark.req("WORK-8")
def test_a_repeated_case_is_one_line_with_its_share(in_process: Call) -> None:
    done = flaky_run(in_process, "--repeat", "5")
    assert done.code == 1 and done.out.count("FAILED c") == 2
    assert "FAILED c2 · default: 2 of 5 passed " in done.out and "FAILED c4 · default: 4 of 5 passed " in done.out
    assert "3 cases, 2 flaky · pass@5 100.0% (at least one of 5 runs passes) · pass^5 33.3% (all 5 pass)" in done.out
    shown = in_process("batches", "show", "latest").out
    assert shown.count("\nc2 ") == 1 and "c2    failed (2 of 5)" in shown


@pytest.mark.req("WORK-8", "WORK-4")
@pytest.mark.parametrize(
    ("flags", "settings"),
    [
        (("--pass-if", "4/5"), ""),
        (("--pass-if", "80%", "--repeat", "5"), ""),
        ((), "run: {repeat: {n: 5, pass: 0.8}}"),
        (("--repeat", "5"), "run: {repeat: {n: 2, pass: 0.8}}"),
        ((), "run: {repeat: 5, pass_if: 0.8}"),
    ],
)
def test_a_pass_rule_over_repeats(in_process: Call, flags: tuple[str, ...], settings: str) -> None:
    done = flaky_run(in_process, *flags, "--json", settings=settings)
    summary = json.loads(done.out)
    assert (done.code, summary["total"], summary["failing"], summary["pass_if"]) == (1, 15, 1, 0.8)
    assert summary["pass_rate"] == pytest.approx(2 / 3)
    shown = in_process("batches", "show", "latest").out
    assert "c2    failed (2 of 5)" in shown and "c4    passed (4 of 5)" in shown
    assert "c4    failed (4 of 5)" in in_process("batches", "show", "latest", "--status", "failed").out
    scored = in_process("score", "latest", "--pass-if", "2/5")
    assert scored.code == 0 and "A case passes if 40% of its repeats do" in scored.out and "FAILED" not in scored.out


@pytest.mark.req("WORK-8")
def test_a_resumed_batch_keeps_its_pass_rule(in_process: Call) -> None:
    flaky_run(in_process, "--pass-if", "2/5", "--limit", "2")
    done = in_process("run", "cases.jsonl", "-j", "1", "--repeat", "5", "--resume", "--json")
    assert (done.code, json.loads(done.out)["pass_if"], json.loads(done.out)["total"]) == (0, 0.4, 15)
    done = in_process("score", "latest", "--pass-if", "2/3")
    assert done.code == 2 and "--pass-if 2/3 is for 3 repeats, and the batch has 5" in done.err


@pytest.mark.req("WORK-8")
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--pass-if", "6/5"), "--pass-if: expected 4/5, or a share such as 0.8 or 80%, got '6/5'"),
        (("--pass-if", "x"), "got 'x'"),
        (("--pass-if", "0"), "got '0'"),
        (("--pass-if", "4/5", "--repeat", "3"), "--pass-if 4/5 is for 5 repeats, and --repeat is 3"),
        (("--pass-if", "80%"), "each case runs only once. Add --repeat 5"),
    ],
)
def test_a_wrong_pass_rule_is_refused(in_process: Call, flags: tuple[str, ...], said: str) -> None:
    done = flaky_run(in_process, *flags)
    assert done.code == 2 and said in done.err


def test_a_wrong_pass_rule_in_the_settings_is_refused(in_process: Call) -> None:
    done = flaky_run(in_process, settings="run: {repeat: {n: 5, pas: 0.8}}")
    assert done.code == 2 and "pas" in done.err and "[bad_settings]" in done.err


@pytest.mark.req("WORK-5")
def test_a_failed_gate_is_told_on_every_surface(in_process: Call) -> None:
    done = flaky_run(in_process, "--json", "-o", "out.xml", settings="gates: [pass_rate_low >= 0.9, failed == 0]")
    gates = json.loads(done.out)["gates"]
    assert done.code == 1 and [(gate["text"], gate["holds"]) for gate in gates] == [
        ("pass_rate_low >= 0.9", False),
        ("failed == 0", True),
    ]
    assert "gate pass_rate_low >= 0.9: does not hold (pass_rate_low is 0.438" in done.err
    [failure] = ElementTree.parse("out.xml").iter("failure")
    assert "over 3 cases" in (failure.get("message") or "")


@pytest.mark.req("WORK-8")
def test_the_case_that_passes_least_often_comes_first(in_process: Call) -> None:
    rows = [{"id": f"c{q}", "q": q, "expected_output": "y"} for q in ("4", "2", "3", "9")]
    flaky_run(in_process, "--limit", "0")
    Path("cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    out = in_process("run", "cases.jsonl", "-j", "1", "--repeat", "5").out
    assert re.findall(r"FAILED (c\d) .*?: (\d of \d)", out) == [("c2", "2 of 5"), ("c3", "3 of 5"), ("c4", "4 of 5")]


@pytest.mark.req("WORK-5")
def test_the_results_fit_80_columns_and_end_in_a_conclusion(in_process: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"id": f"c{n}", "q": "y" if n % 3 else "n", "expected_output": "y"} for n in range(9)]
    rows += [{"id": "free", "q": "y"}]
    Path("cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    Path("prompt.md").write_text("{{q}}", encoding="utf-8")
    Path("evalloom.yaml").write_text("target: prompt:prompt.md\n", encoding="utf-8")
    monkeypatch.setenv("COLUMNS", "80")
    done = in_process("run", "cases.jsonl", "--profile", "echo")
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= 80 and done.out.index("profile  runs") < done.out.index("FAILED c0")
    row = next(line.split() for line in lines if line.startswith("echo "))
    assert row[:6] == ["echo", "10", "6", "3", "1", "66.7%"]
    ending = "FAILED: of 10 runs 6 passed, 3 failed, 1 unscored; the pass rate is over 9 cases"
    assert ending in " ".join(done.out.split())
    assert "PASSED: of 10" in in_process("run", "cases.jsonl", "--profile", "echo", "--fail-under", "0.6").out


def test_several_profiles_have_a_total_with_tokens_and_cost(in_process: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("cases.jsonl").write_text('{"id": "a", "q": "y", "expected_output": "y"}\n', encoding="utf-8")
    Path("prompt.md").write_text("{{q}}", encoding="utf-8")
    Path("weak.yaml").write_text("rules: [{match: y, answer: n}]\n", encoding="utf-8")
    command = (
        "run",
        "cases.jsonl",
        "--target",
        "prompt:prompt.md",
        "--profile",
        "echo",
        "--profile",
        "scripted:weak.yaml",
    )
    out = in_process(*command).out
    header, first, _, total = (line.split() for line in out.splitlines()[:4])
    assert header[:2] == ["profile", "runs"] and header[-2:] == ["tokens", "cost"] and first[1] == "1"
    assert total[:4] == ["total", "2", "1", "1"] and "FAILED: of 2 runs 1 passed, 1 failed" in out
    monkeypatch.setenv("COLUMNS", "60")
    narrow = in_process(*command).out
    assert "\nprofile " in narrow and max(map(len, narrow.split("FAILED")[0].splitlines())) <= 60


@pytest.mark.req("WORK-16")
def test_until_sure_says_what_is_decided_and_how_many_cases_were_saved(run: Call) -> None:
    lines = (json.dumps({"id": f"c{n}", "inputs": {"n": n}, "expected_output": n}) for n in range(300))
    Path("cases.jsonl").write_text("\n".join(lines) + "\n")
    Path("functions.py").write_text("def same(n):\n    return n\n\n\ndef off(n):\n    return n + 1\n")
    flags = ("--until-sure", "--fail-under", "90%", "--target")
    done = run(*flags, "python:functions:same")
    assert done.code == 0
    assert " of 300 cases in random order; " in done.out
    assert "the pass rate is at least 90%" in done.out
    assert run(*flags, "python:functions:off").code == 1
    done = run(*flags, "python:functions:same", "--limit", "3", "--json")
    assert done.code == 3
    assert json.loads(done.out)["problem"]["code"] == "not_sure"
