"""Kills commands at random moments, starts them again until they complete, and compares with an undisturbed one.

A moment is a time since the start, or one of the disk operations that moments.c counts. `COMMANDS` is the table of
commands: what each needs, how it goes on after a kill, what it results in, and what of it is finished so far.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
EXAMPLES = HERE.parent.parent / "examples"
SECONDS = 120
"""A command that takes longer hangs."""
EVALLOOM = [sys.executable, "-m", "evalloom"]

Units = dict[str, Any]
"""What is finished: each unit of work, and the evidence that it was not done again."""


class Moment(NamedTuple):
    """When to kill: after so many seconds, or at this disk operation; never if both are 0."""

    seconds: float = 0
    operation: int = 0


NEVER = Moment()


class Undisturbed(NamedTuple):
    """What a command comes to that nobody kills: its result, how long it takes, and how often it changes the disk."""

    result: Any
    seconds: float
    operations: int


class Command(NamedTuple):
    """A row of the table. `drive` waits for a process, or is the client of a server."""

    prepare: Callable[[Path], None]
    first: str
    result: Callable[[Path], Any]
    again: str = ""
    finished: Callable[[Path], Units] = lambda folder: {}
    drive: Callable[[Path, subprocess.Popen[str]], bool] | None = None
    code: int = 0
    """The exit code."""


class Trial:
    """One command in folders of its own."""

    def __init__(self, name: str, folder: Path, *libraries: Path) -> None:
        self.command = COMMANDS[name]
        self._libraries = libraries
        # Always the same folder, because its path is in tracebacks and decides where an index is.
        self._work, self.template = folder / "work", folder / "template"
        self._work.mkdir()
        self.command.prepare(self._work)
        self._work.rename(self.template)
        self.undisturbed = self._run_undisturbed()

    def new_folder(self) -> Path:
        """A folder in which the command has not been started yet."""
        shutil.rmtree(self._work, ignore_errors=True)
        answers_of(self._work).unlink(missing_ok=True)
        self._work.with_suffix(".journal").write_bytes(b"")
        shutil.copytree(self.template, self._work)
        return self._work

    def start(self, folder: Path, arguments: str, operation: int = 0, back_at: int = 0) -> subprocess.Popen[str]:
        """Start evalloom; at one disk operation it is killed, from another on its clock is an hour slow."""
        counter = folder.with_suffix(".count")
        counter.write_bytes(bytes(8))
        environment = {
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "1",
            "LD_PRELOAD": ":".join(map(str, self._libraries)),
            "POWER_JOURNAL": str(folder.with_suffix(".journal")),
            "MOMENTS_FILE": str(counter),
            "MOMENTS_KILL": str(operation),
            "MOMENTS_BACK": str(back_at),
        }
        pipe = subprocess.PIPE
        command = [*EVALLOOM, *arguments.split()]
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, encoding="utf-8")

    def attempt(self, folder: Path, moment: Moment = NEVER, is_first: bool = False, back_at: int = 0) -> bool:
        """Run the command up to a moment; whether it completed before it."""
        again = self.command.again if not is_first and self.command.again and can_resume(folder) else self.command.first
        process = self.start(folder, again, moment.operation, back_at)
        timer = threading.Timer(moment.seconds or SECONDS, process.kill)
        timer.start()
        try:
            return self.command.drive(folder, process) if self.command.drive else self._wait(process)
        finally:
            timer.cancel()
            process.kill()
            process.communicate()

    def run(self, folder: Path, arguments: str, back_at: int = 0) -> tuple[int, str]:
        """Run evalloom to its end; its exit code and what it says on stderr."""
        process = self.start(folder, arguments, back_at=back_at)
        _, err = process.communicate(timeout=SECONDS)
        return process.returncode, err

    def complete(self, folder: Path) -> Any:
        """Run the command to its end, and give its result."""
        assert self.attempt(folder), "the command was killed, though nobody killed it"
        return self.command.result(folder)

    def random_moment(self, chance: random.Random) -> Moment:
        """A time in the life of the command, or one of its disk operations."""
        if chance.random() < 0.5:
            return Moment(seconds=chance.uniform(0.001, self.undisturbed.seconds))
        return Moment(operation=chance.randint(1, self.undisturbed.operations))

    def _wait(self, process: subprocess.Popen[str]) -> bool:
        out, err = process.communicate(timeout=SECONDS)
        assert "Traceback" not in err and "internal_error" not in err, err
        if process.returncode == -9:
            return False
        assert process.returncode == self.command.code, (process.args, process.returncode, out, err)
        return True

    def _run_undisturbed(self) -> Undisturbed:
        folder = self.new_folder()
        start = time.monotonic()
        assert self.attempt(folder, is_first=True)
        seconds = time.monotonic() - start
        operations = int.from_bytes(folder.with_suffix(".count").read_bytes(), sys.byteorder)
        return Undisturbed(self.command.result(folder), seconds, operations)


# -- what the commands need, and what they result in ------------------------------------------------------------------


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_lines(folder: Path, name: str, values: list[Any]) -> None:
    write(folder, name, "".join(json.dumps(value) + "\n" for value in values))


def read_lines(path: Path) -> list[Any]:
    """The whole lines of a file that may be written just now, or not be there."""
    data = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


def plain(value: Any) -> Any:
    """A value without times and ids, which differ from run to run."""
    volatile = re.compile(r".*(_at|At|_s|Id|Ms)|id|batch|path|timestamp|cwd|writes")
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items() if not volatile.fullmatch(name)}
    return [plain(item) for item in value] if isinstance(value, list) else value


def call(folder: Path, arguments: str) -> str:
    done = subprocess.run([*EVALLOOM, *arguments.split()], cwd=folder, capture_output=True, encoding="utf-8")
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    return done.stdout


def batches(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob(".evalloom/batches/*/batch.json"))


def can_resume(folder: Path) -> bool:
    """Whether there is a batch; without one, `--resume` says so and the command is given as the first time."""
    return bool(batches(folder))


CODE = """\
import time

def answer(q):
    open(f"calls/{q}-{time.time_ns()}", "x").close()
    time.sleep(0.004)
    if q == "13":
        raise ValueError("unlucky")
    return "wrong" if q == "7" else q
"""
RUN = "run cases.jsonl --target python:own:answer -j 4 --fail-under 0.1 -o out.jsonl"


def prepare_run(folder: Path) -> None:
    write(folder, "own.py", CODE)
    (folder / "calls").mkdir()
    write_lines(folder, "cases.jsonl", [{"id": f"c{n}", "q": str(n), "expected_output": str(n)} for n in range(40)])


def prepare_batch(folder: Path) -> None:
    prepare_run(folder)
    call(folder, RUN)
    write(folder, "checks.yaml", "- {kind: regex, expected: '[0-4]'}\n")


def prepare_half(folder: Path) -> None:
    """A batch whose process was killed in the middle of a line."""
    prepare_batch(folder)
    (batch,) = batches(folder)
    for name, share in (("runs.jsonl", 0.5), ("verdicts.jsonl", 0.4)):
        data = (batch / name).read_bytes()
        (batch / name).write_bytes(data[: int(len(data) * share)])
    facts = json.loads((batch / "batch.json").read_bytes())
    (batch / "batch.json").write_text(json.dumps({**facts, "finished_at": "", "summary": {}}))
    (folder / "out.jsonl").unlink()


def batch_result(folder: Path) -> Any:
    """Keys, outputs, errors and verdicts of the newest batch, each once; its summary, and the file of results."""
    batch = batches(folder)[-1]
    runs, verdicts = (read_lines(batch / name) for name in ("runs.jsonl", "verdicts.jsonl"))
    assert max(Counter(line["key"] for line in runs).values()) == 1
    assert max(Counter(line["key"] for line in verdicts).values()) == 1
    facts = json.loads((batch / "batch.json").read_bytes())
    assert facts["finished_at"]
    by_key = [sorted(plain(lines), key=lambda line: line["key"]) for lines in (runs, verdicts)]
    return by_key, summary(facts), plain(read_lines(folder / "out.jsonl"))


def summary(facts: Any) -> Any:
    return {name: value for name, value in facts["summary"].items() if isinstance(value, int)}


def finished_runs(folder: Path) -> Units:
    """The runs on disk: their lines, and how often their cases were called."""
    calls = Counter(path.name.split("-")[0] for path in folder.glob("calls/*"))
    found = batches(folder)
    return (
        {line["key"]: (line, calls[str(line["raw"].get("q"))]) for line in read_lines(found[-1] / "runs.jsonl")}
        if found
        else {}
    )


def finished_score(folder: Path) -> Units:
    """Nothing is scored twice halfway: the verdicts are the old ones or the new ones, and complete."""
    verdicts = read_lines(batches(folder)[-1] / "verdicts.jsonl")
    # The case that ends in an error has none.
    assert len(verdicts) == 39 and len({len(line["verdicts"]) for line in verdicts}) == 1
    return finished_runs(folder)


def prepare_baseline(folder: Path) -> None:
    prepare_batch(folder)
    call(folder, "baseline save good")
    call(folder, RUN.replace("own:answer", "own:answer --limit 30"))


def baseline_result(folder: Path) -> Any:
    return plain(read_lines(folder / ".evalloom/baselines/good.jsonl"))


def whole_baseline(folder: Path) -> Units:
    """The old one or the new one, never part of one."""
    head, *runs = read_lines(folder / ".evalloom/baselines/good.jsonl")
    assert head["runs"] == len(runs) and len(runs) in (30, 40)
    return {}


PROMPT_PLAN = """\
prompt: prompt.md
dimensions: {happy_path: 40}
test_points: [{id: TP1, name: apt, criticality: core, anchors: {1: wrong, 2: vague, 3: apt}}]
"""


def prepare_prompt_eval(folder: Path) -> None:
    write(folder, "test_plan.yaml", PROMPT_PLAN)
    write(folder, "prompt.md", "Case {{q}}")
    fields = {"test_category": "happy_path", "test_subcategory": "", "eval_type": "quantitative"}
    cases = [
        {"test_id": f"TC{n:03}", **fields, "test_description": f"Case {n}.", "input": {"q": f"output {n}"}}
        for n in range(1, 41)
    ]
    write(folder, "test_cases.json", json.dumps(cases))


def prompt_eval_result(folder: Path) -> Any:
    runs = read_lines(batches(folder)[-1] / "runs.jsonl")
    assert max(Counter(line["key"] for line in runs).values()) == 1
    return plain(sorted(runs, key=lambda line: line["key"])), json.loads(
        (folder / "test_cases_with_results.json").read_bytes()
    )


def prepare_stats(folder: Path) -> None:
    shutil.copytree(EXAMPLES / "hop/wrappers", folder / "hop")
    call(folder, "stats hop")
    lines = read_lines(folder / "hop/flat_result.jsonl")
    for number in range(3):
        write_lines(folder, f"hop/more{number}.jsonl", [{**line, "profile": f"p{number}"} for line in lines])


def stats_result(folder: Path) -> Any:
    return json.loads(call(folder, "stats hop --json")), call(folder, "stats hop --rows 50 --json")


def document(number: int) -> str:
    return f"# Document {number}\n\nword{number} " + " ".join(f"term{number * n % 97}" for n in range(150)) + "\n"


def prepare_index(folder: Path) -> None:
    for number in range(60):
        if number == 40:
            # Documents that have just been written are read again next time: their clock is coarse.
            time.sleep(0.15)
            call(folder, "rag index --root docs")
        write(folder, f"docs/d{number}.md", document(number))
    cases = [
        {
            "id": f"c{n}",
            "query": f"word{n} term{n}",
            "expected_sources": [f"d{n}.md"],
            "must_include": ["x"],
            "bucket": "official",
        }
        for n in range(60)
    ]
    write_lines(folder, "cases.jsonl", cases)


def index_result(folder: Path) -> Any:
    (path,) = folder.glob(".evalloom/rag/*/index.sqlite")
    found = json.loads(call(folder, "rag retrieve cases.jsonl --root docs --frozen-index --json"))
    assert [path.name for path in path.parent.iterdir() if path.name.startswith("making-")] == []
    return rows(path, "SELECT path, digest, error FROM documents ORDER BY path"), plain(found)


def finished_documents(folder: Path) -> Units:
    """The chunks of indexed documents: one that is indexed again gets others."""
    (path,) = folder.glob(".evalloom/rag/*/index.sqlite")
    return {f"{path} {number}": id for id, path, number in rows(path, "SELECT id, path, number FROM chunks")}


def rows(path: Path, query: str) -> list[Any]:
    """What a query gives in a store that is sound."""
    with closing(sqlite3.connect(path)) as store:
        assert store.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return store.execute(query).fetchall()


def prepare_replay(folder: Path) -> None:
    shutil.copy(EXAMPLES / "replay/project.json", folder)
    write_lines(
        folder, "rows.jsonl", [{"question": f"q{n}", "user_name": "u", "passages": "x" * 300} for n in range(900)]
    )


def replay_result(folder: Path) -> Any:
    call(folder, "replay list")
    return plain(read_lines(folder / "records.jsonl"))


def finished_windows(folder: Path) -> Units:
    """The windows of rows that are stored, and the packs that hold them."""
    path = folder / ".evalloom/store/replay.sqlite"
    if not path.exists() or not rows(path, "SELECT name FROM sqlite_master WHERE name = 'windows'"):
        return {}
    return {f"{replay} {first}": rest for replay, first, *rest in rows(path, "SELECT * FROM windows")}


def answers_of(folder: Path) -> Path:
    """What the client knows; its disk is another one."""
    return folder.with_suffix(".answers")


def ask_service(folder: Path, process: subprocess.Popen[str]) -> bool:
    """The client of the service: creates what is missing, and asks for the windows that were not answered yet."""
    assert process.stderr
    line = process.stderr.readline()
    answers = answers_of(folder)
    done: dict[str, Any] = json.loads(answers.read_text()) if answers.exists() else {}
    project = json.loads((folder / "project.json").read_bytes())
    bodies = {"/api/projects": project, "/api/datasets": {"name": "d", "rows": read_lines(folder / "rows.jsonl")}}
    try:
        port = int(re.search(r":(\d+) ", line)[1])  # type: ignore[index]
        for path, body in bodies.items():
            done[path] = done.get(path) or ask(port, "POST", path, body)["id"]
            answers.write_text(json.dumps(done))
        for run in [run for window in done.values() if isinstance(window, list) for run in window[::60]]:
            assert ask(port, "GET", f"/api/runs/{run['runId']}")["outputDigest"] == run["outputDigest"]
        for offset in range(0, 900, 180):
            body = {"projectId": done["/api/projects"], "offset": offset, "limit": 180}
            path = f"/api/datasets/{done['/api/datasets']}/replay"
            done[str(offset)] = done.get(str(offset)) or ask(port, "POST", path, body)
            answers.write_text(json.dumps(done))
    except (OSError, http.client.HTTPException, TypeError):
        assert process.wait(SECONDS) == -9, f"{line}{process.stderr.read()}"
        return False
    return True


def ask(port: int, method: str, path: str, body: Any = None) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with closing(connection):
        connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        value = json.loads(reply.read())
        assert reply.status in (200, 201), value
        return value


def service_result(folder: Path) -> Any:
    done = json.loads(answers_of(folder).read_text())
    return [run["outputDigest"] for offset in range(0, 900, 180) for run in done[str(offset)]]


COMMANDS = {
    "run": Command(prepare_run, RUN, batch_result, f"{RUN} --resume", finished_runs),
    "resume": Command(prepare_half, f"{RUN} --resume", batch_result, f"{RUN} --resume", finished_runs),
    "score": Command(
        prepare_batch, "score latest --checks checks.yaml -o out.jsonl", batch_result, finished=finished_score, code=1
    ),
    "baseline": Command(prepare_baseline, "baseline save good --force", baseline_result, finished=whole_baseline),
    "prompt-eval": Command(
        prepare_prompt_eval, "prompt-eval run . --profile echo -j 4", prompt_eval_result, finished=finished_runs
    ),
    "stats": Command(prepare_stats, "stats hop", stats_result),
    "index": Command(prepare_index, "rag index --root docs", index_result, finished=finished_documents),
    "replay": Command(
        prepare_replay,
        "replay --project project.json --dataset rows.jsonl -o records.jsonl",
        replay_result,
        finished=finished_windows,
    ),
    "serve": Command(prepare_replay, "serve --port 0", service_result, finished=finished_windows, drive=ask_service),
}
