"""The result files of a task and their records: expected against actual, each linked to its run."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Record
from evalloom.hop.dialect import is_meta
from evalloom.hop.pages.card import MOST_SHOWN, ShownField, field_of, text_of
from evalloom.hop.pages.tasks import DataFile, Task, list_files, open_store, task_of
from evalloom.hop.results.store import DataStore
from evalloom.pages.errors import RequestError
from evalloom.pages.page import Page, PageRequest, View

_PAGE_SIZE = 50
_BATCH = lazy_pattern(r"_results_(\d{8}-\d{6}-\w+)\.jsonl$")
_MOST_METAS = 50
FILTERS = ("tag", "difficulty", "profile", "outcome", "correct")
_OUTCOMES = ("OK", "LACK_OF_INFO", "UNCERTAIN", "FAIL")


class Meta(Struct, frozen=True):
    """A meta line: the models of a profile."""

    profile: str
    run_llm: str
    verify_llm: str
    params: str
    timestamp: str


class ResultRecord(Struct, frozen=True):
    """A result; `status` is that of a run."""

    file: str
    line: int | None
    id: str
    tag: str
    difficulty: str
    profile: str
    outcome: str
    status: str
    error: str
    retries: int
    fields: list[ShownField]
    """Expected against actual."""
    input: list[ShownField]
    result: str
    steps: list[Record]
    run: str
    """The path of its run, where there is a batch."""


class HistoryPage(Struct, frozen=True):
    """The files, and a page of the records of one or of all."""

    task: Task
    files: list[DataFile]
    file: str
    metas: list[Meta]
    batch: str
    figures: dict[str, Any]
    """The statistics of what is chosen by file and profile, as `evalloom stats` has them."""
    filters: dict[str, str]
    records: list[ResultRecord]
    total: int
    """How many records fit the filters."""
    page: int
    pages: int


def _show(request: PageRequest) -> View:
    task = task_of(request)
    store = open_store(request, task)
    files = [file for file in list_files(store) if file.results]
    file = request.query.get("file", "")
    if file == "" and files and not any(request.query.get(name) for name in FILTERS):
        file = files[0].name
    file = "" if file == "*" else file
    if store is None or not files:
        return View("hop_history.html", HistoryPage(task, [], "", [], "", {}, {}, [], 0, 1, 1))
    chosen = open_store(request, task, file) or store
    filters = {name: request.query[name] for name in FILTERS if request.query.get(name)}
    if filters.get("correct", "true") not in ("true", "false"):
        raise RequestError("validation_failed", f"correct: expected true or false, got {filters['correct'][:80]!r}")
    page = request.number("page", 1)
    found = chosen.query_results((page - 1) * _PAGE_SIZE, _PAGE_SIZE, "", filters)
    batch = _batch_of(request, file)
    runs = _runs(request, batch, found["rows"]) if batch else {}
    data = HistoryPage(
        task,
        files,
        file,
        read_metas(Path(task.folder) / "TestCases" / file) if file else [],
        batch,
        _figures(chosen, filters.get("profile")),
        filters,
        [_record(row, runs.get((text_of(row["id"]), row["profile"] or ""), "")) for row in found["rows"]],
        found["total"],
        page,
        max(1, -(-found["total"] // _PAGE_SIZE)),
    )
    return View("hop_history.html", data)


def _figures(store: DataStore, profile: str | None) -> dict[str, Any]:
    figures = store.get_stats(profile, by=[])
    return {name: value for name, value in figures.items() if name != "fields"}


def read_metas(path: Path) -> list[Meta]:
    """Return the meta lines at the start of a result file (HOP-6)."""
    metas = []
    with path.open("rb") as lines:
        for line in islice(lines, _MOST_METAS):
            try:
                record = msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                break
            if not isinstance(record, dict) or not is_meta(record):
                break
            profile, run, verify = (
                text_of(record.get(name) or "")[:200] for name in ("profile", "run_llm", "verify_llm")
            )
            params = record.get("run_params")
            shown = ", ".join(f"{name} {value}" for name, value in params.items()) if isinstance(params, dict) else ""
            metas.append(Meta(profile, run, verify, shown[:500], str(record.get("timestamp") or "")[:60]))
    return metas


def _batch_of(request: PageRequest, file: str) -> str:
    """Return the batch that wrote a result file, if it is still there: its id is in the name of the file."""
    match = _BATCH.search(file)
    if match is None:
        return ""
    try:
        return request.site.library.path(match[1]).name
    except RequestError:
        return ""


def _runs(request: PageRequest, batch: str, rows: list[Record]) -> dict[tuple[str, str], str]:
    """Return the paths of the runs of some records, by id and profile."""
    ids = [text_of(row["id"]) for row in rows if row["id"] is not None]
    query = "SELECT case_id, profile, key FROM runs WHERE repeat = 0 AND list_contains(?, case_id)"
    found = request.site.library.rows(batch, query, [ids])
    return {(case, profile): f"/b/{batch}/r/{key}" for case, profile, key in found}


def _record(row: Record, run: str) -> ResultRecord:
    result = row["result"]

    values = result if isinstance(result, dict) else {}
    fields = [field_of(name, values.get(name), row["expected"], result) for name in row["expected"]]
    is_failed = row["status"] == "ERROR"
    status = (
        "error" if is_failed else "unscored" if row["correct"] is None else "passed" if row["correct"] else "failed"
    )
    return ResultRecord(
        row["file"],
        row["line"],
        "" if row["id"] is None else text_of(row["id"])[:200],
        row["tag"] or "",
        row["difficulty"] or "",
        row["profile"] or "",
        row["outcome"],
        status,
        row["error"] or "",
        row["retry_count"],
        fields,
        [field_of(name, value) for name, value in row["input"].items()],
        msgspec.json.format(msgspec.json.encode(result)).decode()[:MOST_SHOWN],
        row["execution_path"],
        run,
    )


PAGES = (Page("/hop/{task:path}/history", _show),)
