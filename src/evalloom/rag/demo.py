"""The RAG part of the demo: which questions find their source, and which only in official wording."""

from __future__ import annotations

import shlex
from pathlib import Path

from evalloom.core.text import pluralize
from evalloom.engine.evaluate import evaluate
from evalloom.engine.example import DemoPartResult
from evalloom.engine.prepare import RunRequest
from evalloom.engine.system import Catalog
from evalloom.rag.retriever import Listener, SearchOptions
from evalloom.rag.run import load_results, prepare_run
from evalloom.settings import FILE_NAME, load

FOLDER = "rag"


def retrieve(catalog: Catalog, examples: Path, home: Path) -> DemoPartResult:
    """Ask the built-in retriever the queries of the example; index and batch go under `home`."""
    folder = examples / FOLDER
    request = RunRequest(((folder / "eval_cases.jsonl").as_posix(),), config=(folder / FILE_NAME).as_posix())
    listener = Listener(lambda message: None)
    settings = load(folder / FILE_NAME, catalog.sections)
    job = prepare_run(request, catalog, settings, SearchOptions(root=folder.as_posix()), None, listener, home)
    batch = evaluate(job.plan, warn=lambda message: None).path.as_posix()
    _, _, (results,) = load_results(batch)
    by_bucket = {bucket.name: (bucket.passed, bucket.cases) for bucket in results.buckets}
    only_official = [concept.id for concept in results.pairs.concepts if concept.is_official_only]
    as_expected = bool(by_bucket) and not results.apart.get("error")
    entry = {
        "record": batch,
        "found": by_bucket,
        "only_official": only_official,
        "example": FOLDER,
        "as_expected": as_expected,
    }
    command = shlex.join(("rag", "report", batch, "-o", "rag.html"))
    return DemoPartResult(as_expected, _sentence(by_bucket, only_official), entry, commands=(command,))


def _sentence(by_bucket: dict[str, tuple[int, int]], only_official: list[str]) -> str:
    total = pluralize(sum(cases for _, cases in by_bucket.values()), "case")
    counts = ", ".join(f"{passed} of {cases} {bucket}" for bucket, (passed, cases) in by_bucket.items())
    only = f"; only the official wording finds {', '.join(only_official)}" if only_official else ""
    return f"{FOLDER}: {total}, found {counts}{only}"
