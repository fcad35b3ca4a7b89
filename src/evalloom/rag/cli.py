"""`evalloom rag`: measures retrieval and answers, and compares oral with official wordings."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import click
import msgspec

from evalloom.batchlog import FOLDER
from evalloom.console.catalog import current_catalog
from evalloom.console.layout import print_lines
from evalloom.console.options import FORCE, LANG, existing_folder, refuse_overwriting
from evalloom.console.outcome import print_problem, printing_findings, warn
from evalloom.console.progress import showing
from evalloom.console.run_options import CatalogOption, options_without_output, refuse_conflicts, settings_of, suffixes
from evalloom.console.run_text import dry_run_lines
from evalloom.core.errors import usage_error
from evalloom.core.text import printable
from evalloom.data.mapping import parse_mapping
from evalloom.engine.dry_run import dry_run
from evalloom.engine.evaluate import Live, evaluate
from evalloom.engine.outputs import (
    Outputs,
    claim,
    refuse_claimed,
    refuse_replacing,
    refuse_replacing_results,
    reporters_for,
    write_outputs,
)
from evalloom.engine.plan import Reading
from evalloom.engine.prepare import RunRequest
from evalloom.engine.results import accepted_by
from evalloom.engine.resume import Resume, resumed_batch
from evalloom.engine.watch import watched_files
from evalloom.files.write import refuse_unwritable
from evalloom.rag import cli_text as text
from evalloom.rag.batches import REQUIRABLE
from evalloom.rag.dialect import BUCKETS
from evalloom.rag.explain import explain
from evalloom.rag.reports import RAG_REPORTERS
from evalloom.rag.retrieval.readers import READERS
from evalloom.rag.retriever import Listener, SearchOptions, open_corpus
from evalloom.rag.run import (
    AnswerOptions,
    RagRun,
    check_gates,
    exit_status,
    load_results,
    prepare_run,
    problem_of,
    write_reports,
)
from evalloom.rag.settings import MODES, SECTION
from evalloom.rag.suggest import suggest, write_starter_cases
from evalloom.settings import Settings, keys, load, secrets
from evalloom.ui.report_marks import is_ours

Command = TypeVar("Command", bound=Callable[..., Any])
_SLOW_S = 5.0
_OUTPUT = click.option(
    "-o",
    "--output",
    multiple=True,
    metavar="FILE",
    cls=CatalogOption,
    describe=lambda catalog: (
        "Write a report, .html .md .json, or the runs, "
        + " ".join(suffix for suffix in suffixes(catalog).split() if suffix not in (".html", ".md", ".json"))
    ),
)
_ROOT = click.option("--root", metavar="DIR", help="Folder of documents to search. Default: the current folder.")
_CHUNKS = (
    click.option("--chunk", type=int, metavar="N", help="Maximum characters per passage. Default: 800."),
    click.option("--overlap", type=int, metavar="N", help="Characters shared with the next passage. Default: 100."),
)
_SEARCHING = (
    _ROOT,
    click.option("--retriever", metavar="R", help="builtin, python:module:function or http:URL. Default: builtin."),
    click.option("-k", type=int, metavar="N", help="Number of passages to retrieve. Default: 5."),
    click.option("--mode", type=click.Choice(MODES), help="Search mode of the built-in retriever. Default: bm25."),
    click.option("--embeddings", metavar="LLM", help="For dense and hybrid: local, or an llm from evalloom.yaml."),
    *_CHUNKS,
    click.option("--frozen-index", "is_frozen", is_flag=True, help="Use the stored index without updating it."),
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
_CASES = (
    click.argument("cases", nargs=-1, metavar="[CASES]…"),
    click.option("--map", "mapping", default="", metavar="NEW=OLD,…", help="Map field names; NEW[]=OLD makes a list."),
    click.option("--encoding", default="", help="Such as gb18030. UTF-8 and UTF-16 are detected."),
    click.option("--config", default="", metavar="FILE", help="Settings file. Default: ./evalloom.yaml."),
    click.option("-j", "--concurrency", type=int, metavar="N", help="Concurrent queries. Default: 16."),
)


class _Progress:
    """Prints the progress of a slow indexing run to stderr, a line every few seconds."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, done: int, total: int, path: str) -> None:
        if not done:
            self._next = monotonic() + _SLOW_S
        elif monotonic() >= self._next and done < total:
            self._next = monotonic() + _SLOW_S
            what = f"documents read; next {printable(path)}" if path else "texts embedded"
            click.echo(f"{done:,} of {total:,} {what}", err=True)


LISTENER = Listener(warn, _Progress())


def _with(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@click.group("rag")
def command() -> None:
    """Test the retrieval and the answers of a RAG system, and compare oral with official wordings.

    \b
    evalloom rag init --root docs                   write starter cases
    evalloom rag retrieve cases.jsonl --root docs   measure retrieval
    evalloom rag answer cases.jsonl --root docs --profile P
    evalloom rag explain CASE_ID                    explain a miss
    evalloom baseline save good                     save the batch as a baseline
    evalloom compare latest --against good         compare after a change
    """


@command.command("retrieve")
@_with(*_CASES, *_SEARCHING)
@_OUTPUT
@options_without_output
def retrieve_command(cases: tuple[str, ...], **flags: Any) -> int:
    """Measure how well a retriever finds the expected sources.

    CASES are RAG eval cases: query, expected_sources, bucket, pair_id; for other field names, see --map. Without
    CASES, the command runs the datasets of evalloom.yaml. The built-in retriever searches the .md, .txt, .html, .pdf
    and .docx files under --root; its index is stored in .evalloom/rag and is updated when files change.

    A case passes when one of its expected sources is among the k passages. Queries that end in an error and cases
    without an expected source are counted separately. -o writes a report (.html, .md, .json) or the runs (.csv,
    .jsonl, .xml).

    Exit codes: 0 all found, or the rate is not below --fail-under; 1 a miss, an error or a gate; 2 wrong usage or
    invalid data; 3 could not finish, or nothing was measured.
    """
    return _run_cases(cases, None, flags)


@command.command("answer")
@_with(*_CASES, *_SEARCHING)
@click.option("--profile", "profiles", multiple=True, metavar="P", help="Profile or llm that answers; repeatable.")
@click.option("--repeat", type=int, metavar="N", help="Run each query N times.")
@click.option("--prompt", default="", metavar="FILE", help="Your prompt, with {{context}} and {{query}}.")
@click.option(
    "--normalise", is_flag=True, help="Ignore width, case, spacing and number format when looking for must_include."
)
@click.option("--faithfulness", is_flag=True, help="Let the judge check that the sources support every claim.")
@click.option(
    "--require", multiple=True, type=click.Choice(REQUIRABLE), help="Fail a case on this check too; repeatable."
)
@_OUTPUT
@options_without_output
def answer_command(cases: tuple[str, ...], **flags: Any) -> int:
    """Retrieve passages, ask a model and check its answer.

    The prompt contains the query and the numbered passages.
    A case passes when its answer contains every text of must_include. Citations such as [2] are checked against the
    sources and reported, and so is the verdict of the judge with --faithfulness.

    Exit codes: 0 all pass, or the rate is not below --fail-under; 1 a failure, an error or a gate; 2 wrong usage or
    invalid data; 3 could not finish, a case could not be scored, or nothing was measured.
    """
    answers = AnswerOptions(flags["prompt"], flags["normalise"], flags["faithfulness"], flags["require"])
    return _run_cases(cases, answers, flags)


def _run_cases(cases: tuple[str, ...], answers: AnswerOptions | None, options: dict[str, Any]) -> int:
    flags = {"profiles": (), "variants": (), "repeat": None, "watch": False, **options}
    refuse_conflicts(cases, flags)
    request = RunRequest(
        cases,
        flags["config"],
        judge=flags["judge"],
        record=flags["record"],
        replay=flags["replay"],
        options=settings_of(flags),
        reading=Reading(mapping=parse_mapping(flags["mapping"]), encoding=flags["encoding"]),
    )
    resume = Resume(flags["resume"], flags["resume_from"], flags["retry_errors"])
    # A user's module may print when it is imported, and stdout is for the result.
    with redirect_stdout(sys.stderr):
        settings = _load_settings(flags["config"])
        job = prepare_run(request, current_catalog(), settings, _search_options(flags, settings), answers, LISTENER)
    if flags["dry_run"]:
        with printing_findings():
            preview = dry_run(job.plan, resume)
        if flags["as_json"]:
            click.echo(msgspec.json.encode(preview))
        else:
            print_lines(dry_run_lines(preview))
        return 0
    return _evaluate(job, resume, flags["as_json"], flags["force"], flags["language"])


def _load_settings(config: str = "") -> Settings:
    return load(Path(config) if config else None, current_catalog().sections)


def _search_options(flags: dict[str, Any], settings: Settings) -> SearchOptions:
    names = ("root", "retriever", "k", "mode", "embeddings", "chunk", "overlap", "is_frozen")
    overrides = {name: flags[name] for name in names if flags.get(name) is not None}
    search = SearchOptions(**{**msgspec.to_builtins(settings.section(SECTION)), **overrides})
    if flags.get("embeddings") and search.mode == "bm25":
        raise usage_error("bad_option", "--embeddings: requires --mode dense or hybrid")
    existing_folder(search.root)
    return search


def _evaluate(job: RagRun, resume: Resume, as_json: bool, force: bool, language: str) -> int:
    plan = job.plan
    files = [Path(name) for name in plan.options.output]
    reports, outputs = _formats(files)
    refuse_overwriting(files, [*watched_files(plan), *(Path(name) for name in [plan.replay] if name)])
    _refuse_documents(files, Path(plan.metadata.options["searching"]["root"]))
    refuse_replacing(reports, force)
    for path in reports:
        refuse_unwritable(path)
    has_results = any(os.path.isfile(path) for path, _ in outputs)
    refuse_replacing_results(outputs, force, resumed_batch(plan, resume) if has_results else None)
    if not force:
        refuse_claimed(files, plan.home / FOLDER)
    vectors, plan = job.fill()
    plan = claim(plan, files)
    if not as_json and (line := text.index_line(job.retriever, vectors)):
        click.echo(line, err=True)
    live = Live()
    # A user's retriever may print, and stdout is for the result.
    with showing(live, is_quiet=as_json), redirect_stdout(sys.stderr), printing_findings():
        results = evaluate(plan, live, resume, warn)
    write_outputs(results, outputs, current_catalog(), language)
    _, batch, profiles = load_results(str(results.path))
    accepted = accepted_by(plan.options, batch.options)
    status = exit_status(profiles, results.gates, plan.options.fail_under, results.stopped, accepted)
    problem = problem_of(profiles, accepted)
    write_reports(reports, batch, profiles, status.code, language)
    if as_json:
        click.echo(text.as_json(batch, profiles, results, problem))
    else:
        print_lines(text.result_lines(profiles, results, job.retriever, [*map(str, files)]))
    for reason in status.reasons:
        click.echo(f"evalloom: exit code {status.code}: {reason}", err=True)
    print_problem(problem, lambda message: keys.hidden(message, secrets(plan.settings)))
    return status.code


def _refuse_documents(files: list[Path], root: Path) -> None:
    """Raises when a report would overwrite a searched document, unless evalloom wrote that file."""
    for path in files:
        is_inside = os.path.realpath(path).startswith(os.path.realpath(root) + os.sep)
        if is_inside and path.is_file() and path.suffix.lower() in READERS and not is_ours(path.read_bytes()):
            message = f"{path.as_posix()}: is a document of {root.as_posix()}. Choose another name for the report"
            raise usage_error("would_overwrite", message)


def _formats(files: list[Path]) -> tuple[list[Path], Outputs]:
    """The RAG reports among the files to write, and the other files with their reporters."""
    reporters = current_catalog().reporters
    endings = [*(reporter.suffix for reporter in RAG_REPORTERS), *(reporter.suffix for reporter in reporters)]
    for path in files:
        if not path.name.lower().endswith(tuple(endings)):
            expected = ", ".join(dict.fromkeys(endings))
            raise usage_error("unknown_format", f"-o {path}: expected a file name ending in {expected}")
    reports = [path for path in files if path.suffix.lower() in {reporter.suffix for reporter in RAG_REPORTERS}]
    return reports, reporters_for([str(path) for path in files if path not in reports], reporters)


@command.command("report")
@click.argument("batch", default="latest", metavar="[BATCH]")
@click.option("-o", "--output", multiple=True, metavar="FILE", help="Write the report: .html, .md or .json.")
@FORCE
@click.option("--config", default="", metavar="FILE", help="Settings file with gates. Default: ./evalloom.yaml.")
@LANG
@_JSON
def report_command(batch: str, output: tuple[str, ...], force: bool, config: str, language: str, as_json: bool) -> int:
    """Summarize a stored RAG batch and write its report.

    BATCH defaults to the newest batch. Nothing is run.
    """
    path, batch_manifest, profiles = load_results(batch, warn)
    stopped = "" if batch_manifest.finished_at else "unfinished"
    settings, options = _load_settings(config), batch_manifest.options
    is_allowed = settings.run.allow_unscored or options.get("allow_unscored") is True
    run = msgspec.structs.replace(settings.run, allow_unscored=is_allowed)
    status = exit_status(
        profiles, check_gates(path, settings), options.get("fail_under"), stopped, accepted_by(run, options)
    )
    _refuse_documents([Path(name) for name in output], Path(batch_manifest.options["searching"]["root"]))
    refuse_replacing([Path(name) for name in output], force)
    write_reports([Path(name) for name in output], batch_manifest, profiles, status.code, language)
    if as_json:
        click.echo(text.as_json(batch_manifest, profiles))
    else:
        print_lines(text.report_lines(profiles, path, list(output)))
    return 0


@command.command("index")
@_with(_ROOT, *_CHUNKS, _JSON)
def index_command(as_json: bool, **flags: Any) -> int:
    """Update the index of a folder, and list unreadable documents."""
    search = _search_options(flags, _load_settings())
    _, refreshed = open_corpus(search, Listener(lambda message: None, LISTENER.progress))
    assert refreshed is not None
    if as_json:
        click.echo(msgspec.json.encode(refreshed))
    else:
        print_lines(text.refreshed_lines(search.root, refreshed))
    return 0


@command.command("explain")
@click.argument("case_id")
@click.option("--batch", default="latest", show_default=True, metavar="BATCH", help="Batch that contains the case.")
@click.option("--config", default="", metavar="FILE", help="Settings file. Default: ./evalloom.yaml.")
@_JSON
def explain_command(case_id: str, batch: str, config: str, as_json: bool) -> int:
    """Explain why a case was found or missed.

    Shows whether its source is indexed, its place and the matching words.
    """
    with redirect_stdout(sys.stderr):
        explanation = explain(case_id, batch, LISTENER, _load_settings(config))
    if as_json:
        click.echo(msgspec.json.encode(explanation))
    else:
        print_lines(text.explanation_lines(explanation))
    return 0


@command.command("suggest")
@click.argument("query")
@_with(_ROOT, *_CHUNKS)
@click.option("-k", type=click.IntRange(1, 100), default=5, show_default=True, help="Number of sources to show.")
@click.option(
    "--bucket", type=click.Choice(BUCKETS), default=BUCKETS[0], show_default=True, help="Wording of the query."
)
@click.option("--pair", default="", metavar="PAIR_ID", help="Pair with the other wording of the same question.")
@click.option("--json", "as_json", is_flag=True, help="Print only the case line, to append to a file.")
def suggest_command(query: str, k: int, bucket: str, pair: str, as_json: bool, **flags: Any) -> int:
    """Propose sources, anchor texts and a case for a query.

    \b
    evalloom rag suggest "How long is the notice period?" --json >> cases.jsonl
    """
    index, _ = open_corpus(_search_options(flags, _load_settings()), LISTENER)
    suggestion = suggest(query, index, k, bucket, pair)
    if as_json and suggestion.proposals:
        click.echo(json.dumps(suggestion.case, ensure_ascii=False))
    elif not as_json:
        print_lines(text.suggestion_lines(suggestion))
    return 0 if suggestion.proposals else 1


@command.command("init")
@_with(_ROOT, *_CHUNKS)
@click.option("-o", "--output", default="eval_cases.jsonl", show_default=True, metavar="FILE", help="File to write.")
@click.option(
    "--cases", "most", type=click.IntRange(1, 1000), default=20, show_default=True, help="Maximum number of cases."
)
def init_command(output: str, most: int, **flags: Any) -> int:
    """Write starter cases from the headings of your documents.

    Each case is an official wording with its source and a text from that source. Review and correct the cases, and add
    the oral wording of each under the same pair_id. Existing files are never overwritten.
    """
    search = _search_options(flags, _load_settings())
    starter = write_starter_cases(search, Path(output), most, LISTENER)
    print_lines(text.starter_lines(starter, search.root))
    return 0
