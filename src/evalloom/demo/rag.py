"""The part of the demo that retrieves: which questions find their source, and which only in official wording."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from evalloom import catalog
from evalloom.engine.evaluate import evaluate
from evalloom.engine.prepare import Asked
from evalloom.rag.job import open_job, results_of
from evalloom.rag.retriever import Listener, Searching
from evalloom.reports.lint import tell
from evalloom.settings import FILE_NAME, load

FOLDER = "rag"
_FOUND = {"official": (20, 22), "oral": (15, 22), "ambiguous": (10, 12)}
"""How many queries of each bucket find their source, and how many there are."""


class Retrieved(Struct, frozen=True):
    """What came of it: how many were found, by bucket, and the concepts whose oral wording finds nothing."""

    record: str
    found: dict[str, tuple[int, int]]
    only_official: list[str]

    @property
    def as_expected(self) -> bool:
        return self.found == _FOUND


def retrieve(examples: Path, home: Path) -> Retrieved:
    """Asks the built-in retriever the queries of the example; index and record go under `home`."""
    folder = examples / FOLDER
    asked = Asked(((folder / "eval_cases.jsonl").as_posix(),), config=(folder / FILE_NAME).as_posix())
    known = load(folder / FILE_NAME, catalog.load().sections)
    job = open_job(asked, known, Searching(root=folder.as_posix()), None, Listener(lambda message: None), home)
    results = evaluate(job.plan, warn=lambda message: None)
    _, _, (found,) = results_of(results.path.as_posix())
    buckets = {one.name: (one.passed, one.cases) for one in found.buckets}
    only = [one.id for one in found.pairs.concepts if one.is_official_only]
    return Retrieved(results.path.as_posix(), buckets, only)


def entry(retrieved: Retrieved) -> dict[str, Any]:
    """What the JSON report says of it."""
    return {**msgspec.to_builtins(retrieved), "example": FOLDER, "as_expected": retrieved.as_expected}


def sentence(retrieved: Retrieved) -> str:
    """What a reader is told."""
    told = [f"{passed} of {cases} {bucket}" for bucket, (passed, cases) in retrieved.found.items()]
    only = f"; only the official wording finds {', '.join(retrieved.only_official)}" if retrieved.only_official else ""
    total = tell(sum(cases for _, cases in retrieved.found.values()), "case")
    return f"{FOLDER}: {total}, found {', '.join(told)}{only}"
