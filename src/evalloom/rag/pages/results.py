"""The figures of a RAG batch for its pages: those of `evalloom rag report`, computed once for each state of its log."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from evalloom.batchlog import manifest
from evalloom.batchlog.read import MANIFEST, RUNS, VERDICTS
from evalloom.core.model import Batch
from evalloom.engine.results import stored_runs
from evalloom.pages.errors import RequestError
from evalloom.pages.page import PageRequest
from evalloom.rag.analysis.measures import CaseRow, RagResults, analyse_all
from evalloom.rag.batches import KIND

Stamp = tuple[tuple[int, int], ...]


def rag_batch(request: PageRequest) -> tuple[Path, Batch]:
    """Return the RAG batch that a request names."""
    id = request.ids["batch"]
    path, batch = request.site.library.path(id), request.site.library.manifest(id)
    if batch.config.get("kind") != KIND:
        message = f"{path.name} is not a RAG batch. 'evalloom rag retrieve' and 'evalloom rag answer' make one"
        raise RequestError("no_rag_batch", message)
    return path, batch


def profile_results(request: PageRequest, path: Path, name: str = "") -> tuple[RagResults, list[str]]:
    """Return the results of a profile, which a request chooses, or else of the first; and the names of all."""
    by_profile = {results.profile: results for results in results_of(path)}
    name = name or request.query.get("profile") or next(iter(by_profile))
    if name not in by_profile:
        message = f"profile: expected one of {', '.join(map(repr, by_profile))}, got {name[:80]!r}"
        raise RequestError("validation_failed", message)
    return by_profile[name], list(by_profile)


def results_of(path: Path) -> list[RagResults]:
    """Return the results of each profile."""
    return _analysed(path, _stamp(path))


@lru_cache(maxsize=16)
def _analysed(path: Path, stamp: Stamp) -> list[RagResults]:
    return analyse_all(manifest(path), stored_runs(path))


def _stamp(path: Path) -> Stamp:
    """Return the version of the files of a batch."""

    def version(name: str) -> tuple[int, int]:
        try:
            stat = (path / name).stat()
        except OSError:
            return (0, -1)
        return (stat.st_mtime_ns, stat.st_size)

    return tuple(map(version, (MANIFEST, RUNS, VERDICTS)))


def why(row: CaseRow) -> str:
    """Return why a case did not pass, as a code that filters use; its status if there is nothing else to say."""
    if row.status != "failed":
        return row.status
    if any(expected.rank for expected in row.expected) or not row.expected:
        return "not_in_answer" if row.missing else "other_check"
    return "not_retrieved" if row.sources else "nothing_found"
