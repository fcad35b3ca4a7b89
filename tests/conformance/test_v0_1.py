"""What version 0.1 wrote is read, resumed, scored and compared as it was then.

`tests/fixtures/v0_1/README.md` says how each project was made. The tests use them through the command line only, and
look at exit codes, JSON and files: the words of a message may change, what it says may not.
"""

import json
import os
import runpy
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import pytest

FIXTURES = Path(__file__).parent.parent / "fixtures" / "v0_1"
COUNTS = ("passed", "failed", "error", "unscored")


class Done(NamedTuple):
    """What a command gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Project:
    """A copy of a project as version 0.1 left it."""

    def __init__(self, folder: Path, call: Callable[[str, tuple[str, ...]], Done]) -> None:
        self.folder = folder
        self._call = call

    def evalloom(self, *arguments: str, module: str = "evalloom") -> Done:
        """`python -m evalloom ARGUMENTS` in the project's folder."""
        return self._call(module, arguments)

    @property
    def batches(self) -> list[Path]:
        """The folders of the batches, oldest first."""
        return sorted((self.folder / ".evalloom/batches").iterdir())


@pytest.fixture
def project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], Project]:
    """`project("plain")` copies that project and goes there; the commands have no keys."""
    for name in [name for name in os.environ if "_KEY" in name]:
        monkeypatch.delenv(name)

    def call(module: str, arguments: tuple[str, ...]) -> Done:
        monkeypatch.setattr(sys, "argv", [module, *arguments])
        # What `python -m` does, without the start of another process. No name of ours is imported, wherever it lies.
        with pytest.raises(SystemExit) as ended:
            runpy.run_module(module, run_name="__main__")
        out, err = capsys.readouterr()
        assert "Traceback" not in err and "internal_error" not in err, err
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, out, err)

    def copy(name: str) -> Project:
        folder = tmp_path / name
        shutil.copytree(FIXTURES / name, folder)
        # Git ignores `.evalloom`, so it is kept under another name.
        for stored in [*folder.rglob("evalloom_folder")]:
            stored.rename(stored.with_name(".evalloom"))
        # The name of an index tells the place of its documents, which is another one in every test.
        index = folder / ".evalloom/rag/index"
        if index.is_dir():
            place = f"{os.path.realpath(folder)}\n800\n100".encode()
            index.rename(index.with_name(blake2b(place, digest_size=8).hexdigest()))
        monkeypatch.chdir(folder)
        return Project(folder, call)

    return copy


def lines(file: Path) -> list[dict[str, Any]]:
    """The records of a JSONL file."""
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def counts(summary: dict[str, Any]) -> tuple[int, ...]:
    return tuple(summary[name] for name in COUNTS)


class Written(NamedTuple):
    """A finished batch: its project, its place among the batches there, how it is resumed, and its COUNTS."""

    project: str
    number: int
    command: tuple[str, ...]
    counts: tuple[int, int, int, int]
    module: str = "evalloom"


RETRIEVE = ("rag", "retrieve", "eval_cases.jsonl")
ANSWER = ("rag", "answer", "eval_cases.jsonl", "--profile", "scripted")
VARIANTS = ("run", "--variants", "baseline,polite")
WRITTEN = {
    "prompt": Written("plain", 0, ("run",), (7, 4, 1, 0)),
    "hoplet": Written("hop", 0, ("run",), (5, 2, 1, 0)),
    "pipeline": Written("pipeline", 0, VARIANTS, (5, 1, 0, 0)),
    "recipe": Written("recipe", 0, ("run",), (3, 1, 0, 1)),
    "retrieve": Written("rag", 0, RETRIEVE, (8, 1, 0, 0)),
    "answer": Written("rag", 1, ANSWER, (6, 3, 0, 0)),
}
BY_BATCHHOPTEST = Written("hop", 0, ("--task", "."), (5, 2, 1, 0), "evalloom.tools.batchhoptest")
EVERY_BATCH = pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
EVERY_WAY_TO_RESUME = pytest.mark.parametrize(
    "written", [*WRITTEN.values(), BY_BATCHHOPTEST], ids=[*WRITTEN, "batchhoptest"]
)


# -- batches ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "targets", "finished", "totals"),
    [
        ("plain", ["prompt:prompt.md"] * 2, [True, True], [12, 12]),
        ("stopped", ["prompt:prompt.md"], [False], [None]),
        ("hop", ["hoplet:."], [True], [8]),
        ("pipeline", ["pipeline:pipelines/greeting.yaml"], [True], [6]),
        ("recipe", ["recipe:project.json"], [True], [5]),
        ("rag", [f"rag {what}: builtin bm25, k=3" for what in ("retrieve", "answer", "retrieve")], [True] * 3, [9] * 3),
    ],
)
def test_batches_are_listed(
    project: Callable[[str], Project], name: str, targets: list[str], finished: list[bool], totals: list[int | None]
) -> None:
    made = project(name)
    done = made.evalloom("batches", "list", "--json")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 0
    assert [one["id"] for one in found] == [path.name for path in reversed(made.batches)]
    assert [one["target"] for one in found] == targets
    assert [bool(one["finished_at"]) for one in found] == finished
    assert [one["summary"].get("total") for one in found] == totals


@EVERY_BATCH
def test_a_batch_is_shown_with_every_run_and_verdict(project: Callable[[str], Project], written: Written) -> None:
    made = project(written.project)
    batch = made.batches[written.number]
    done = made.evalloom("batches", "show", batch.name, "--json")
    shown = [json.loads(line) for line in done.out.splitlines()]
    statuses = Counter("error" if one["run"].get("error") else one["scored"]["status"] for one in shown)
    assert done.code == 0
    assert tuple(statuses[name] for name in COUNTS) == written.counts
    assert sorted(one["run"]["key"] for one in shown) == sorted(run["key"] for run in lines(batch / "runs.jsonl"))


def test_a_case_is_shown_with_its_answer(project: Callable[[str], Project]) -> None:
    made = project("plain")
    done = made.evalloom("batches", "show", "latest", "--case", "hotline_en", "--status", "failed", "--json")
    shown = json.loads(done.out)
    assert shown["run"]["profile"] == "careful"
    assert shown["run"]["output"]["value"] == "Of course, call 400-820-9999 between 9:00 and 18:00."
    assert [one["status"] for one in shown["scored"]["verdicts"]] == ["failed", "passed"]


# -- resume -------------------------------------------------------------------------------------------


def test_a_batch_that_was_killed_is_completed(project: Callable[[str], Project]) -> None:
    made = project("stopped")
    (batch,) = made.batches
    before = (batch / "runs.jsonl").read_bytes()
    done = made.evalloom("run", "--resume", "--json")
    runs = lines(batch / "runs.jsonl")
    assert (done.code, counts(done.json)) == (1, (8, 2, 0, 0))
    assert made.batches == [batch] and (batch / "runs.jsonl").read_bytes().startswith(before)
    assert [run["case_id"] for run in runs[:4]] == ["n1", "n2", "n3", "n4"]
    assert sorted(run["case_id"] for run in runs[4:]) == ["n10", "n5", "n6", "n7", "n8", "n9"]
    assert json.loads((batch / "batch.json").read_bytes())["finished_at"]


@EVERY_WAY_TO_RESUME
def test_a_finished_batch_has_nothing_left_to_run(project: Callable[[str], Project], written: Written) -> None:
    made = project(written.project)
    batches, batch = made.batches, made.batches[written.number]
    before = {name: (batch / name).read_bytes() for name in ("runs.jsonl", "verdicts.jsonl")}
    done = made.evalloom(*written.command, "--resume", "--json", module=written.module)
    assert made.batches == batches and done.code == 1
    assert {name: (batch / name).read_bytes() for name in before} == before
    assert counts(json.loads((batch / "batch.json").read_bytes())["summary"]) == written.counts


@EVERY_WAY_TO_RESUME
def test_only_a_missing_run_is_run_again(project: Callable[[str], Project], written: Written) -> None:
    made = project(written.project)
    batch = made.batches[written.number]
    missing, *others = (batch / "runs.jsonl").read_bytes().splitlines(keepends=True)
    (batch / "runs.jsonl").write_bytes(b"".join(others))
    made.evalloom(*written.command, "--resume", "--json", module=written.module)
    *kept, again = (batch / "runs.jsonl").read_bytes().splitlines(keepends=True)
    before, now = json.loads(missing), json.loads(again)
    assert kept == others
    assert {name: now[name] for name in ("key", "case_id", "output")} == {
        name: before[name] for name in ("key", "case_id", "output")
    }


def test_a_run_takes_over_from_a_batch_that_is_named(project: Callable[[str], Project]) -> None:
    made = project("plain")
    with (made.folder / "cases.jsonl").open("a", encoding="utf-8") as cases:
        cases.write('{"id": "moon_en", "question": "Is the Moon far?", "expected_output": "contains:far"}\n')
    first = made.batches[0]
    done = made.evalloom("run", "--resume-from", first.name, "--json")
    before = {run["key"]: run["started_at"] for run in lines(first / "runs.jsonl")}
    now = {run["key"]: run["started_at"] for run in lines(made.batches[-1] / "runs.jsonl")}
    assert done.code == 1 and len(made.batches) == 3
    assert len(now) == 14 and before.items() <= now.items()


def test_batchhoptest_completes_its_result_file(project: Callable[[str], Project]) -> None:
    made = project("hop")
    (results,) = (made.folder / "TestCases").glob("*_results_*.jsonl")
    before = results.read_bytes()
    results.unlink()
    done = made.evalloom("--task", ".", "--resume", module="evalloom.tools.batchhoptest")
    assert done.code == 1
    assert results.read_bytes() == before


def test_recorded_answers_are_replayed(project: Callable[[str], Project]) -> None:
    made = project("recipe")
    (made.folder / "answers.yaml").write_text("default: Nobody asks me.\n")
    done = made.evalloom("run", "--replay", "recorded.jsonl", "--json")
    answers = {run["case_id"]: run["output"]["value"] for run in lines(made.batches[-1] / "runs.jsonl")}
    assert (done.code, counts(done.json)) == (1, (3, 1, 0, 1))
    assert answers == {
        "1": "At 8:30.",
        "2": "周日不开门。",
        "3": "Yes.",
        "4": "No, thank you.",
        "5": "You did not ask anything.",
    }


# -- score --------------------------------------------------------------------------------------------


@EVERY_BATCH
def test_a_batch_is_scored_again_with_the_same_result(project: Callable[[str], Project], written: Written) -> None:
    made = project(written.project)
    batch = made.batches[written.number]
    before = (batch / "verdicts.jsonl").read_bytes()
    runs = (batch / "runs.jsonl").read_bytes()
    done = made.evalloom("score", batch.name, "--json")
    results = {
        file: {one["key"]: (one["status"], one.get("score")) for one in lines(batch / file)}
        for file in ("verdicts.1.jsonl", "verdicts.jsonl")
    }
    assert (done.code, counts(done.json)) == (1, written.counts)
    assert (batch / "verdicts.1.jsonl").read_bytes() == before and (batch / "runs.jsonl").read_bytes() == runs
    assert results["verdicts.jsonl"] == results["verdicts.1.jsonl"]


def test_a_batch_is_scored_with_more_checks(project: Callable[[str], Project]) -> None:
    made = project("plain")
    (made.folder / "more.yaml").write_text("- {kind: length, name: brief, max: 20}\n")
    done = made.evalloom("score", made.batches[0].name, "--checks", "more.yaml", "--json")
    assert done.code == 1
    assert {name: counts(one) for name, one in done.json["profiles"].items()} == {
        "careful": (2, 4, 0, 0),
        "hasty": (2, 3, 1, 0),
    }


# -- baselines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "number", "baseline", "code", "lost"),
    [
        ("plain", 0, "good", 0, []),
        ("plain", 1, "good", 1, ["return_zh", "hotline_en"]),
        ("rag", 0, "found", 0, []),
        ("rag", 1, "answered", 0, []),
        ("rag", 2, "found", 1, ["en-returns-refund-official", "en-returns-refund-oral"]),
    ],
)
def test_a_batch_is_compared_with_a_baseline(
    project: Callable[[str], Project], name: str, number: int, baseline: str, code: int, lost: list[str]
) -> None:
    made = project(name)
    # --strict is the rule of that version.
    done = made.evalloom("compare", made.batches[number].name, "--baseline", baseline, "--strict", "--json")
    changes = [change for one in done.json["comparisons"] for change in one["changes"]]
    assert done.code == code
    assert (done.json["is_regression"], done.json["severity"]) == (bool(lost), "critical" if lost else "")
    assert [change["case_id"] for change in changes if change["change"] == "lost"] == lost
    assert [one["edited"] for one in done.json["comparisons"]] == [0] * len(done.json["comparisons"])


@pytest.mark.parametrize(
    ("name", "command", "baseline", "rates"),
    [
        ("plain", ("run",), "good", [5 / 6, 2 / 6]),
        ("rag", RETRIEVE, "found", [8 / 9]),
        ("rag", ANSWER, "answered", [6 / 9]),
    ],
)
def test_a_new_batch_equals_the_baseline(
    project: Callable[[str], Project], name: str, command: tuple[str, ...], baseline: str, rates: list[float]
) -> None:
    """Cases, records, configuration and documents are recognised, so only the version of evalloom differs."""
    made = project(name)
    assert made.evalloom(*command).code == 1
    done = made.evalloom("compare", "latest", "--baseline", baseline, "--json")
    assert (done.code, [difference["what"] for difference in done.json["differences"]]) == (0, ["evalloom"])
    assert [one["figures"]["base_rate"] for one in done.json["comparisons"]] == pytest.approx(rates)
    assert [one["figures"]["rate"] for one in done.json["comparisons"]] == pytest.approx(rates)
    assert all(one["counts"]["same"] == one["figures"]["cases"] for one in done.json["comparisons"])


def test_a_baseline_of_another_configuration_is_refused(project: Callable[[str], Project]) -> None:
    made = project("rag")
    refused = made.evalloom("compare", made.batches[1].name, "--baseline", "found", "--json")
    forced = made.evalloom("compare", made.batches[1].name, "--baseline", "found", "--any-config", "--strict", "--json")
    assert refused.code == 2 and "[config_differs]" in refused.err
    assert forced.code == 1 and forced.json["comparisons"][0]["figures"]["lost"] == 2


def test_variants_of_one_batch_are_compared(project: Callable[[str], Project]) -> None:
    done = project("pipeline").evalloom("compare", "latest", "--json")
    (compared,) = done.json["comparisons"]
    assert done.code == 0
    assert (compared["base_profile"], compared["profile"]) == ("offline@baseline", "offline@polite")
    assert [(change["case_id"], change["change"]) for change in compared["changes"]] == [("xiaoyu", "gained")]


def test_baselines_are_listed_and_saved_anew(project: Callable[[str], Project]) -> None:
    made = project("plain")
    listed = made.evalloom("baseline", "list", "--json").json
    saved = made.evalloom("baseline", "save", "same", made.batches[0].name)
    good, same = (lines(made.folder / f".evalloom/baselines/{name}.jsonl") for name in ("good", "same"))
    assert (listed["name"], listed["runs"], listed["batch"]["id"]) == ("good", 12, made.batches[0].name)
    assert saved.code == 0 and same[1:] == good[1:]
    batch, old_batch = same[0]["batch"], good[0]["batch"]
    summary, old_summary = batch.pop("summary"), old_batch.pop("summary")
    # Later versions add fields, and count a case under two profiles as one.
    assert {**batch, **old_batch} == batch
    assert [summary[name] for name in ("total", "passed", "pass_rate")] == [
        old_summary[name] for name in ("total", "passed", "pass_rate")
    ]


# -- HOP results --------------------------------------------------------------------------------------


def test_results_of_a_hoplet_are_counted(project: Callable[[str], Project]) -> None:
    done = project("hop").evalloom("stats", ".", "--json")
    found = done.json
    assert (done.code, found["files"], found["total"], found["completed"], found["correct"]) == (0, 1, 8, 7, 5)
    assert found["outcomes"] == {"OK": 7, "LACK_OF_INFO": 0, "UNCERTAIN": 0, "FAIL": 1}
    assert {name: one["correct"] for name, one in found["by_profile"].items()} == {"careful": 4, "hasty": 1}
    assert found["fields"]["total"]["mean"] == pytest.approx(342 / 7)


def test_results_of_two_profiles_are_compared(project: Callable[[str], Project]) -> None:
    done = project("hop").evalloom("stats", ".", "--compare", "hasty,careful", "--json")
    assert (done.code, done.json["cases"], done.json["difference"]) == (0, 4, 0.75)
    assert done.json["p_value"] == pytest.approx(0.25)
    assert [one["id"] for one in done.json["flipped"]] == [2, 3, 4]


def test_single_results_of_a_hoplet_are_found(project: Callable[[str], Project]) -> None:
    done = project("hop").evalloom("stats", ".", "--rows", "5", "--where", "correct=false", "--json")
    rows = done.json["rows"]
    assert (done.code, done.json["total"]) == (0, 3)
    assert sorted((row["id"], row["profile"], row["status"]) for row in rows) == [
        (2, "hasty", "OK"),
        (3, "hasty", "ERROR"),
        (4, "hasty", "OK"),
    ]


# -- RAG ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "measure", "mean", "only_official"),
    [
        (0, "hit@3", 8 / 9, ["P16"]),
        (1, "must_include", 6 / 9, ["P09", "P16"]),
        (2, "hit@3", 6 / 9, ["P16"]),
    ],
)
def test_a_rag_batch_is_reported(
    project: Callable[[str], Project], number: int, measure: str, mean: float, only_official: list[str]
) -> None:
    made = project("rag")
    done = made.evalloom("rag", "report", made.batches[number].name, "--json", "-o", "report.json")
    (profile,) = done.json["profiles"]
    first = profile["overall"]["measures"][0]
    pairs = profile["pairs"]["pairs"]
    items = json.loads((made.folder / "report.json").read_bytes())["items"]
    assert (first["name"], first["cases"]) == (measure, 9) and first["mean"] == pytest.approx(mean)
    assert [pair["id"] for pair in pairs if pair["official"] > pair["oral"]] == only_official
    assert len(items) == 9


def test_a_stored_index_is_searched_as_it_is(project: Callable[[str], Project]) -> None:
    made = project("rag")
    (index,) = (made.folder / ".evalloom/rag").iterdir()
    found = made.evalloom("rag", "index", "--json").json
    done = made.evalloom(*RETRIEVE, "--json")
    assert {name: found[name] for name in ("documents", "chunks", "added", "changed", "removed")} == {
        "documents": 5,
        "chunks": 24,
        "added": 0,
        "changed": 0,
        "removed": 0,
    }
    assert [*(made.folder / ".evalloom/rag").iterdir()] == [index]
    assert about_index(index) == about_index(FIXTURES / "rag/evalloom_folder/rag/index")
    assert sources(made.batches[-1]) == sources(made.batches[0])
    assert done.code == 1 and done.json["profiles"][0]["overall"]["passed"] == 8


def about_index(folder: Path) -> dict[str, Any]:
    """What an index says of itself: an index that is made anew has another birth."""
    with sqlite3.connect(f"file:{folder / 'index.sqlite'}?immutable=1", uri=True) as store:
        return dict(store.execute("SELECT name, value FROM meta"))


def sources(batch: Path) -> dict[str, list[Any]]:
    """The passages of each query with their scores, rounded: the last bit of a logarithm depends on the version of NumPy."""
    found = {run["case_id"]: run["output"].get("sources", []) for run in lines(batch / "runs.jsonl")}
    return {name: [{**each, "score": round(each["score"], 5)} for each in passages] for name, passages in found.items()}


def test_a_frozen_index_is_searched_when_its_documents_are_gone(project: Callable[[str], Project]) -> None:
    made = project("rag")
    shutil.rmtree(made.folder / "docs/en")
    done = made.evalloom(*RETRIEVE, "--frozen-index", "--json")
    assert done.code == 1 and done.json["profiles"][0]["overall"]["passed"] == 8
    assert sources(made.batches[-1]) == sources(made.batches[0])


def test_a_missed_query_is_explained(project: Callable[[str], Project]) -> None:
    made = project("rag")
    done = made.evalloom("rag", "explain", "zh-parking-permit-oral", "--batch", made.batches[0].name, "--json")
    assert done.code == 0 and "docs/zh/parking.txt" in done.out and "docs/zh/leave.md" in done.out


# -- prompt-eval --------------------------------------------------------------------------------------


def test_a_results_folder_is_checked(project: Callable[[str], Project]) -> None:
    made = project("prompt_eval")
    good = made.evalloom("prompt-eval", "check", "results", "--json")
    scores = made.folder / "results/final_scored_results.json"
    scores.write_text(scores.read_text("utf-8").replace('"TP2_score": 2', '"TP2_score": "2/3"'), "utf-8")
    bad = made.evalloom("prompt-eval", "check", "results", "--json")
    codes = [json.loads(line)["code"] for line in bad.out.splitlines()]
    assert (good.code, good.out) == (0, "")
    assert bad.code == 2 and "bad_score" in codes


def test_a_finished_evaluation_asks_nobody_again(project: Callable[[str], Project]) -> None:
    made = project("prompt_eval")
    files = [path for path in (made.folder / "results").iterdir() if path.suffix in (".json", ".csv", ".yaml")]
    before = {path.name: path.read_bytes() for path in files}
    done = made.evalloom("prompt-eval", "all", "prompt_a.md", "-o", "results", "--json")
    found = done.json
    assert done.code == 1
    assert (found["generate"]["added"], found["run"]["asked"], found["score"]["asked"]) == (0, 0, 0)
    assert list(found["run"]["failures"]) == ["TC005"] and found["score"]["bad"] == 3
    assert {path.name: path.read_bytes() for path in files} == before


def test_an_evaluation_is_reported(project: Callable[[str], Project]) -> None:
    made = project("prompt_eval")
    done = made.evalloom("prompt-eval", "report", "results", "--json")
    found = done.json
    assert (done.code, found["cases"], found["scored"], found["bad"], found["pass_rate"]) == (0, 6, 5, 3, 0.5)
    assert {name: one["average"] for name, one in found["test_points"].items()} == {
        "TP1": 2.6,
        "TP2": 2.4,
        "TP_safety": 3.0,
    }
    assert "TC003" in (made.folder / "results/final_report.html").read_text("utf-8")


def test_the_table_of_an_evaluation_is_the_same_to_the_byte(project: Callable[[str], Project]) -> None:
    made = project("prompt_eval")
    done = made.evalloom("prompt-eval", "table", "results/final_scored_results.json", "-o", "table.csv", "--json")
    assert (done.code, done.json["bad"], done.json["failed_runs"]) == (0, 3, 1)
    assert (made.folder / "table.csv").read_bytes() == (made.folder / "results/final_scored_results.csv").read_bytes()


def test_a_failed_case_of_an_evaluation_is_run_and_scored_later(project: Callable[[str], Project]) -> None:
    made = project("prompt_eval")
    still = made.evalloom("prompt-eval", "run", "results", "--rerun-failed", "--json")
    answers = made.folder / "answers.yaml"
    fault = "fault: {status: 400, message: the word is too long}"
    answers.write_text(answers.read_text("utf-8").replace(fault, "answer: {french: rien}"), "utf-8")
    ran = made.evalloom("prompt-eval", "run", "results", "--rerun-failed", "--json")
    scored = made.evalloom("prompt-eval", "score", "results", "--json")
    assert (still.code, still.json["asked"], list(still.json["failures"])) == (1, 1, ["TC005"])
    assert (ran.code, ran.json["failures"]) == (0, {})
    assert (scored.code, scored.json["asked"], scored.json["bad"]) == (0, 1, 2)


# -- replay -------------------------------------------------------------------------------------------


def test_replays_are_listed(project: Callable[[str], Project]) -> None:
    done = project("replay").evalloom("replay", "list", "--json")
    shown = [(one["rowCount"], one["succeeded"], one["failed"], one.get("checksPassed")) for one in done.json]
    assert done.code == 0
    assert shown == [(4, 4, 0, None), (6, 5, 1, 3)]


def test_a_replayed_row_is_shown(project: Callable[[str], Project]) -> None:
    made = project("replay")
    answered = made.evalloom("replay", "show", "previous-2", "--json").json
    failed = made.evalloom("replay", "show", "previous-5", "--json").json
    assert (answered["status"], answered["trace"]["model"]["answer"]) == ("succeeded", "Yes.")
    assert answered["trace"]["segments"][1]["rendered"] == "Yes or no: is there a lift?"
    assert (failed["status"], [one["errorCode"] for one in failed["errors"]]) == ("failed", ["row_invalid"])


def test_replays_are_compared(project: Callable[[str], Project]) -> None:
    made = project("replay")
    stored = made.evalloom("replay", "compare", "--json")
    written = made.evalloom("replay", "compare", "second.jsonl", "latest", "--json")
    names = ("stable", "drift", "new", "gone")
    assert (stored.code, [stored.json[name] for name in names]) == (1, [0, 4, 0, 2])
    assert (written.code, [written.json[name] for name in names]) == (0, [4, 0, 0, 0])


def test_a_new_replay_is_stable_against_a_stored_one(project: Callable[[str], Project]) -> None:
    made = project("replay")
    first = made.evalloom("replay", "list", "--json").json[-1]["replayId"]
    again = made.evalloom(
        *("replay", "--project", "project.json", "--dataset", "rows.jsonl", "--profile", "offline", "--json")
    )
    done = made.evalloom("replay", "compare", first, "latest", "--json")
    assert again.code == 1 and len(again.json) == 6
    assert (done.code, done.json["stable"], done.json["drift"], done.json["answersChanged"]) == (0, 6, 0, 0)
    assert len(made.evalloom("replay", "list", "--json").json) == 3
