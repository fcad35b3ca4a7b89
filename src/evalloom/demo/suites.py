"""`evalloom demo`: the bundled examples run, checked and converted, each held against what is expected of it."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree, ignore_patterns

import msgspec
from msgspec import Struct

import evalloom
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Checked, Run, Scored
from evalloom.data.dataset import Dataset
from evalloom.data.dialect import Dialect, Rules
from evalloom.data.registry import WRITERS, by_name
from evalloom.demo import rag as demo_rag
from evalloom.demo import replay as demo_replay
from evalloom.demo.rag import Retrieved
from evalloom.demo.replay import Replayed
from evalloom.engine.convert import Conversion, convert
from evalloom.engine.evaluate import evaluate
from evalloom.engine.lint import LintOptions, lint_sources, now, with_pipeline
from evalloom.engine.prepare import Asked, prepare
from evalloom.engine.results import Results
from evalloom.files.source import Source, source_of
from evalloom.files.write import atomic_writer
from evalloom.reports.lint import printable, tell
from evalloom.settings import FILE_NAME

FAULTS = (
    "json_parse_error",
    "json_not_object",
    "missing_field",
    "empty_id",
    "duplicate_id",
    "bad_query",
    "bad_expected_sources",
    "bad_must_include",
    "invalid_bucket",
    "expected_file_missing",
    "expected_dir_missing",
    "source_outside_root",
    "missing_bucket_default",
    "missing_pair_id",
    "empty_pair_id",
    "empty_concept_id",
    "must_include_duplicates",
    "must_include_too_short",
    "must_include_not_in_expected_sources",
    "unpaired_pair_id",
    "blank_must_include_entry",
)
"""What the faulty example shows: every error and warning of RAG-2 and RAG-3 that stands in a line of a file."""

COUNTED = ("passed", "failed", "error", "unscored")
"""How a run of an example may end."""


class Suite(Struct, frozen=True):
    """A folder of examples that is run as its evalloom.yaml says, and how its runs should end."""

    folder: str
    passed: int
    failed: int
    error: int = 0
    unscored: int = 0

    @property
    def expected(self) -> dict[str, int]:
        return {status: getattr(self, status) for status in COUNTED}


SUITES = (
    Suite("first", passed=4, failed=1),
    Suite("hop", passed=39, failed=7, error=2),
    Suite("pipeline", passed=11, failed=1, unscored=1),
    Suite("pipeline/reviews", passed=5, failed=1),
    Suite("prompt-eval", passed=27, failed=7, error=1, unscored=1),
    Suite("replay", passed=10, failed=2, unscored=2),
    Suite("rag", passed=40, failed=16),
    Suite("elsewhere", passed=15, failed=3, unscored=1),
)


class Example(Struct, frozen=True):
    """One bundled file: the dialect it should be recognised as, and what it is held against."""

    file: str
    dialect: str
    root: str = ""
    pipeline: str = ""
    is_faulty: bool = False


EXAMPLES = (
    Example("hop/TestCases/hallucination_cases.jsonl", "hop"),
    Example("hop/wrappers/flat_result.jsonl", "hop"),
    Example("hop/wrappers/view_result.jsonl", "hop"),
    Example(
        "pipeline/testsets/review_sentiment_basic_v1.jsonl",
        "pipeline",
        pipeline="pipeline/pipelines/review_sentiment.yaml",
    ),
    Example(
        "pipeline/reviews/testsets/multi_step_sentiment_v2.jsonl",
        "pipeline",
        pipeline="pipeline/reviews/pipelines/multi_step_sentiment.yaml",
    ),
    Example(
        "pipeline/reviews/testsets/customer_reviews_batch_v2.jsonl",
        "pipeline",
        pipeline="pipeline/reviews/pipelines/customer_reviews.yaml",
    ),
    Example(
        "pipeline/reviews/testsets/customer_feedback_full_v2.jsonl",
        "pipeline",
        pipeline="pipeline/reviews/pipelines/customer_feedback.yaml",
    ),
    Example("prompt-eval/test_cases.json", "prompt-eval"),
    Example("replay/rows.jsonl", "replay"),
    Example("rag/eval_cases.jsonl", "rag", root="rag"),
    Example("first/cases.jsonl", "pipeline"),
    Example("elsewhere/promptfooconfig.yaml", "promptfoo"),
    Example("elsewhere/tests.csv", "promptfoo"),
    Example("elsewhere/samples.jsonl", "openai-evals"),
    Example("elsewhere/inspect_samples.csv", "inspect"),
    Example("elsewhere/goldens.json", "deepeval"),
    Example("elsewhere/ragas_testset.csv", "ragas"),
    Example("elsewhere/faulty_eval_cases.jsonl", "rag", root="rag", is_faulty=True),
)


class Ran(Struct, frozen=True):
    """What came of running one suite; `fault` where it could not be run at all."""

    suite: Suite
    results: Results | None = None
    fault: str = ""

    @property
    def as_expected(self) -> bool:
        if self.results is None or self.results.stopped:
            return False
        summary = self.results.summary
        is_right = {status: getattr(summary, status) for status in COUNTED} == self.suite.expected
        return is_right and all(gate.holds for gate in self.results.gates)

    def failures(self) -> list[str]:
        """Up to ten failures, the worst first, each in one line."""
        if self.results is None:
            return [self.fault]
        return [_failure(run, scored) for run, scored in self.results.worst()]


def _failure(run: Run, scored: Scored) -> str:
    missed = next((verdict for verdict in scored.verdicts if verdict.status == "failed"), None)
    told = f"{missed.name}: {missed.reason}" if missed else run.error
    return printable(" ".join(f"{run.case_id}: {told}".split()))


class Seen(Struct, frozen=True):
    """What the linter said about one example."""

    example: Example
    checked: Checked

    @property
    def as_expected(self) -> bool:
        codes = {code for code, _ in self.checked.counts}
        is_right = codes.issuperset(FAULTS) if self.example.is_faulty else not self.checked.count("error")
        return is_right and self.checked.dialect == self.example.dialect


class Trip(Struct, frozen=True):
    """The cases of one example in another format, and back again where its own format can be written."""

    file: str
    start: str
    via: str
    cases: int
    there: Conversion
    back: Conversion | None = None
    is_stable: bool = True

    @property
    def as_expected(self) -> bool:
        ways = [self.there] if self.back is None else [self.there, self.back]
        # A RAG case must name sources and anchors, so cases that have none are written there with errors.
        is_sound = self.via == "rag" or not self.incomplete
        all_written = all(way.written == self.cases and not way.errors for way in ways)
        return all_written and is_sound and self.is_stable and not self.there.faulty

    @property
    def incomplete(self) -> int:
        """How many cases have errors by the rules of the format in between."""
        return self.back.faulty if self.back is not None else 0


class Demo(Struct, frozen=True):
    """Everything that the demo did: `trips` go there and back, `arrivals` one way."""

    examples: Path
    generated_at: str
    ran: list[Ran]
    seen: list[Seen]
    trips: list[Trip]
    arrivals: list[Trip]
    replayed: Replayed
    retrieved: Retrieved

    @property
    def as_expected(self) -> bool:
        results: list[Ran | Seen | Trip | Replayed | Retrieved] = [
            *self.ran,
            *self.seen,
            *self.trips,
            *self.arrivals,
            self.replayed,
            self.retrieved,
        ]
        return all(one.as_expected for one in results)


def find_examples() -> Path:
    """The folder of bundled examples, in an installed package or in a checkout; as seen from the working folder."""
    package = Path(evalloom.__file__).parent
    for folder in (package / "examples", package.parent.parent / "examples"):
        needed = [example.file for example in EXAMPLES] + [f"{suite.folder}/{FILE_NAME}" for suite in SUITES]
        if all((folder / file).is_file() for file in needed):
            return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    where = (package / "examples").as_posix()
    raise EvalloomError("examples_missing", f"{where}: expected the bundled examples, got none. Install evalloom again")


def keep_examples(folder: Path) -> Path:
    """Copies the bundled examples into a folder that has none yet."""
    target = folder / "examples"
    if target.exists():
        message = f"--keep {folder}: {target.as_posix()} is already there and is not overwritten. Name another folder"
        raise usage_error("file_exists", message)
    try:
        # pip compiles what it installs, so the package's copy has a __pycache__; who ran an example has records there.
        copytree(
            find_examples(),
            target,
            ignore=ignore_patterns("__pycache__", ".evalloom", "*_results_*.jsonl", "observer.jsonl"),
        )
    except OSError as fault:
        reason = (fault.strerror or str(fault)).lower()
        raise EvalloomError("cannot_write", f"{target.as_posix()}: cannot be written: {reason}") from None
    return target


def run(examples: Path, home: Path, converted: Path | None = None) -> Demo:
    """Runs, checks and converts every example. Records go under `home`; converted files stay only in a given folder."""
    with _no_bytecode():
        ran = [_run(examples, suite, home) for suite in SUITES]
    seen = [Seen(example, _check(examples, example)) for example in EXAMPLES]
    first = {one.example.dialect: one for one in reversed(seen) if not one.example.is_faulty}
    own = [one for name, one in first.items() if by_name(name) in WRITERS]
    brought = [one for one in seen if by_name(one.example.dialect) not in WRITERS]
    own.sort(key=lambda one: WRITERS.index(by_name(one.example.dialect)))
    with _folder(converted) as folder:
        trips = [_there_and_back(examples, one, via, folder) for one in own for via in WRITERS]
        arrivals = [_arrival(examples, one, folder) for one in brought]
    replayed, retrieved = demo_replay.replay(examples, home), demo_rag.retrieve(examples, home)
    return Demo(examples, now(), ran, seen, trips, arrivals, replayed, retrieved)


@contextmanager
def _no_bytecode() -> Iterator[None]:
    """Keeps `__pycache__` out of the examples, whose functions are imported: the demo writes into its own folder."""
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def _run(examples: Path, suite: Suite, home: Path) -> Ran:
    try:
        plan = prepare(Asked(config=(examples / suite.folder / FILE_NAME).as_posix()))
        return Ran(suite, evaluate(msgspec.structs.replace(plan, home=home), warn=lambda message: None))
    except EvalloomError as fault:
        return Ran(suite, fault=str(fault))


def _check(examples: Path, example: Example) -> Checked:
    rules = Rules(
        root=examples / example.root,
        check_sources_exist=bool(example.root),
        check_must_include_in_sources=bool(example.root),
    )
    rules = with_pipeline(rules, str(examples / example.pipeline)) if example.pipeline else rules
    source = Source(example.file, examples / example.file)
    return lint_sources([source], LintOptions(rules=rules)).checked[0]


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="evalloom-demo-") as name:
        yield Path(name)


def _there_and_back(examples: Path, one: Seen, via: Dialect, folder: Path) -> Trip:
    start = by_name(one.example.dialect)
    middle = folder / f"{start.name}_to_{via.name}{_suffix(via)}"
    end = folder / f"{start.name}_to_{via.name}_and_back{_suffix(start)}"
    there = _convert(examples / one.example.file, via, middle)
    back = _convert(middle, start, end)
    is_stable = start is not via or middle.read_bytes() == end.read_bytes()
    return Trip(one.example.file, start.name, via.name, one.checked.cases, there, back, is_stable)


def _arrival(examples: Path, one: Seen, folder: Path) -> Trip:
    pipeline = by_name("pipeline")
    target = folder / f"{Path(one.example.file).stem}_to_pipeline{_suffix(pipeline)}"
    there = _convert(examples / one.example.file, pipeline, target)
    return Trip(one.example.file, one.checked.dialect, pipeline.name, one.checked.cases, there)


def _convert(path: Path, to: Dialect, target: Path) -> Conversion:
    with atomic_writer(target) as stream:
        return convert(Dataset(source_of(path)), to, stream, to.as_array)


def _suffix(dialect: Dialect) -> str:
    return ".json" if dialect.as_array else ".jsonl"


def summary(conversion: Conversion) -> str:
    """What a conversion could not carry, by kind: `2 checks, 6 tags, test_id`."""
    kinds = Counter(note.partition(":")[0] for note in conversion.lost)
    counted = [tell(number, kind) for kind, number in kinds.items() if kind in ("check", "field", "input", "tag")]
    named = [kind for kind in kinds if kind not in ("check", "field", "input", "tag")]
    return ", ".join([*counted, *named])
