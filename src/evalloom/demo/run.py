"""Runs, checks and converts the bundled examples of all systems."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from filecmp import cmpfiles
from fnmatch import fnmatch
from pathlib import Path
from shutil import copytree, ignore_patterns

import msgspec
from msgspec import Struct

import evalloom
from evalloom.catalog import DEFAULT_DIALECT
from evalloom.core.clock import utc_now
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Checked, Run, Scored
from evalloom.core.text import pluralize, printable
from evalloom.data.dataset import Dataset
from evalloom.data.dialect import Dialect
from evalloom.engine.convert import Conversion, convert
from evalloom.engine.evaluate import evaluate
from evalloom.engine.example import DemoPart, DemoPartResult, Example, ExampleFile
from evalloom.engine.lint import LintOptions, lint_sources
from evalloom.engine.prepare import RunRequest, prepare
from evalloom.engine.results import Results
from evalloom.engine.system import Catalog
from evalloom.files.source import Source, source_of
from evalloom.files.write import atomic_writer
from evalloom.settings import FILE_NAME

FIRST = Example(
    suites=("first",),
    files=(ExampleFile("first/cases.jsonl", DEFAULT_DIALECT),),
    commands=("run --config {examples}/first/evalloom.yaml",),
)
"""The example of the engine: a prompt and a handful of cases."""
_LEFT_OUT = ("__pycache__", ".evalloom", "*_results_*.jsonl", "observer.jsonl")
"""What is not copied: pip compiles what it installs, and running an example writes into its folder."""


class SuiteResult(Struct, frozen=True):
    """The outcome of one suite; `error` says why it could not be run at all."""

    folder: str
    results: Results | None = None
    error: str = ""

    @property
    def as_expected(self) -> bool:
        """Whether the suite ran to its end and its gates hold; single cases fail on purpose."""
        results = self.results
        return results is not None and not results.stopped and all(gate.holds for gate in results.gates)

    def failures(self) -> list[str]:
        """Return up to ten failures, the worst first, each on one line."""
        if self.results is None:
            return [self.error]
        return [_failure(run, scored) for run, scored in self.results.worst()]


def _failure(run: Run, scored: Scored) -> str:
    missed = next((verdict for verdict in scored.verdicts if verdict.status == "failed"), None)
    reason = f"{missed.name}: {missed.reason}" if missed else run.error
    return printable(" ".join(f"{run.case_id}: {reason}".split()))


class FileResult(Struct, frozen=True):
    """The findings about one file."""

    example: ExampleFile
    checked: Checked

    @property
    def as_expected(self) -> bool:
        """Whether the dialect is recognised, and only a faulty file has errors."""
        has_errors = self.checked.count("error") > 0
        return has_errors == self.example.is_faulty and self.checked.dialect == self.example.dialect


class ConversionResult(Struct, frozen=True):
    """The cases of one file in another format, and back again where its own format can be written."""

    file: str
    start: str
    via: str
    cases: int
    converted: Conversion
    back: Conversion | None = None
    is_stable: bool = True
    may_be_incomplete: bool = False
    """Whether the format in between requires more fields than other formats have."""

    @property
    def as_expected(self) -> bool:
        conversions = [self.converted] if self.back is None else [self.converted, self.back]
        is_sound = self.may_be_incomplete or not self.incomplete
        all_written = all(conversion.written == self.cases and not conversion.errors for conversion in conversions)
        return all_written and is_sound and self.is_stable and not self.converted.faulty

    @property
    def incomplete(self) -> int:
        """Return the number of cases that are invalid in the format in between."""
        return self.back.faulty if self.back is not None else 0


class Demo(Struct, frozen=True):
    """The results of the demo. Files of other tools are converted one way, all others also back."""

    examples: Path
    generated_at: str
    suites: list[SuiteResult]
    files: list[FileResult]
    round_trips: list[ConversionResult]
    imports: list[ConversionResult]
    parts: list[tuple[DemoPart, DemoPartResult]]

    @property
    def as_expected(self) -> bool:
        results: list[SuiteResult | FileResult | ConversionResult | DemoPartResult] = [
            *self.suites,
            *self.files,
            *self.round_trips,
            *self.imports,
            *(result for _, result in self.parts),
        ]
        return all(result.as_expected for result in results)


def examples_of(catalog: Catalog) -> tuple[Example, ...]:
    """Return the examples of the engine and of each system."""
    return (FIRST, *catalog.examples)


def suites_of(catalog: Catalog) -> list[str]:
    """Return the folders of suites to run, in the order in which they are shown."""
    return [suite for example in examples_of(catalog) for suite in example.suites]


def files_of(catalog: Catalog) -> list[ExampleFile]:
    """Return the files to check: in formats that evalloom writes, of other tools, and with errors."""
    first, *of_systems = examples_of(catalog)
    # The first file of a dialect is also converted, and should be one of its own system.
    files = [file for example in (*of_systems, first) for file in example.files]
    writable = {dialect.name for dialect in catalog.formats.writers}
    return sorted(files, key=lambda file: (file.is_faulty, file.dialect not in writable))


def find_examples(catalog: Catalog) -> Path:
    """Return the folder of bundled examples, of an installed package or a checkout, relative to the working folder."""
    package = Path(evalloom.__file__).parent
    needed = [file.file for file in files_of(catalog)]
    needed += [f"{suite}/{FILE_NAME}" for suite in suites_of(catalog)]
    for folder in (package / "examples", package.parent.parent / "examples"):
        if all((folder / file).is_file() for file in needed):
            return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    where = (package / "examples").as_posix()
    raise EvalloomError("examples_missing", f"{where}: expected the bundled examples, got none. Install evalloom again")


def keep_examples(catalog: Catalog, folder: Path) -> Path:
    """Copy the bundled examples into a folder. Raises EvalloomError if it has examples."""
    target = folder / "examples"
    if target.exists():
        message = f"--keep {folder}: {target.as_posix()} already exists and is not overwritten. Name another folder"
        raise usage_error("file_exists", message)
    try:
        copytree(find_examples(catalog), target, ignore=ignore_patterns(*_LEFT_OUT))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise EvalloomError("cannot_write", f"{target.as_posix()}: cannot be written: {reason}") from None
    return target


def unchanged_copy(catalog: Catalog, folder: Path) -> Path:
    """Return the copy of the examples in a folder, made if it is not there; the bundled ones if a user changed it."""
    bundled, copy = find_examples(catalog), folder / "examples"
    if not copy.exists():
        return keep_examples(catalog, folder)
    files = [path.relative_to(bundled) for path in bundled.rglob("*") if path.is_file() and not _is_left_out(path)]
    _, changed, missing = cmpfiles(bundled, copy, [file.as_posix() for file in files], shallow=False)
    return bundled if changed or missing else copy


def _is_left_out(path: Path) -> bool:
    return any(fnmatch(part, pattern) for part in path.parts for pattern in _LEFT_OUT)


def run(catalog: Catalog, examples: Path, home: Path, converted: Path | None = None) -> Demo:
    """Run, check and convert every example. Batches go under `home`; `converted` is a folder for converted files."""
    with _no_bytecode():
        suites = [_run_suite(catalog, examples, suite, home) for suite in suites_of(catalog)]
    files = [FileResult(file, _check(catalog, examples, file)) for file in files_of(catalog)]
    with _folder(converted) as folder:
        round_trips = list(_round_trips(catalog, examples, files, folder))
        imports = list(_imports(catalog, examples, files, folder))
    parts = [(part, part.run(catalog, examples, home)) for example in examples_of(catalog) for part in example.parts]
    return Demo(examples, utc_now(), suites, files, round_trips, imports, parts)


@contextmanager
def _no_bytecode() -> Iterator[None]:
    """Write no `__pycache__` into the examples, whose functions are imported."""
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def _run_suite(catalog: Catalog, examples: Path, folder: str, home: Path) -> SuiteResult:
    try:
        plan = prepare(RunRequest(config=(examples / folder / FILE_NAME).as_posix()), catalog)
        return SuiteResult(folder, evaluate(msgspec.structs.replace(plan, home=home), warn=lambda message: None))
    except EvalloomError as error:
        return SuiteResult(folder, error=str(error))


def _check(catalog: Catalog, examples: Path, file: ExampleFile) -> Checked:
    source = Source(file.file, examples / file.file)
    return lint_sources([source], catalog, LintOptions(rules=file.rules(examples))).checked[0]


@contextmanager
def _folder(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="evalloom-demo-") as name:
        yield Path(name)


def _round_trips(catalog: Catalog, examples: Path, files: list[FileResult], folder: Path) -> Iterator[ConversionResult]:
    """Convert the first valid file of each format that can be written to every such format, and back."""
    writers = catalog.formats.writers
    incomplete = {
        dialect.name
        for parts in catalog.parts
        if parts.example and parts.example().may_be_incomplete
        for dialect in parts.dialects
    }
    first = {result.example.dialect: result for result in reversed(files) if not result.example.is_faulty}
    for start in (dialect for dialect in writers if dialect.name in first):
        result = first[start.name]
        for via in writers:
            middle = folder / f"{start.name}_to_{via.name}{_suffix(via)}"
            end = folder / f"{start.name}_to_{via.name}_and_back{_suffix(start)}"
            converted = _convert(catalog, examples / result.example.file, via, middle)
            back = _convert(catalog, middle, start, end)
            yield ConversionResult(
                result.example.file,
                start.name,
                via.name,
                result.checked.cases,
                converted,
                back,
                is_stable=start is not via or middle.read_bytes() == end.read_bytes(),
                may_be_incomplete=via.name in incomplete,
            )


def _imports(catalog: Catalog, examples: Path, files: list[FileResult], folder: Path) -> Iterator[ConversionResult]:
    """Convert the files of other tools to the default format."""
    writers = {dialect.name: dialect for dialect in catalog.formats.writers}
    to = writers[DEFAULT_DIALECT]
    for result in (result for result in files if result.example.dialect not in writers):
        file = result.example.file
        converted = _convert(catalog, examples / file, to, folder / f"{Path(file).stem}_to_{to.name}{_suffix(to)}")
        yield ConversionResult(file, result.checked.dialect, to.name, result.checked.cases, converted)


def _convert(catalog: Catalog, path: Path, to: Dialect, target: Path) -> Conversion:
    with atomic_writer(target) as stream:
        return convert(Dataset(source_of(path), catalog.formats), to, stream, to.as_array)


def _suffix(dialect: Dialect) -> str:
    return ".json" if dialect.as_array else ".jsonl"


def summarize_lost(conversion: Conversion) -> str:
    """Summarize what a conversion lost, by kind: `2 checks, 6 tags, test_id`."""
    kinds = Counter(note.partition(":")[0] for note in conversion.lost)
    counted = [pluralize(number, kind) for kind, number in kinds.items() if kind in ("check", "field", "input", "tag")]
    named = [kind for kind in kinds if kind not in ("check", "field", "input", "tag")]
    return ", ".join([*counted, *named])
