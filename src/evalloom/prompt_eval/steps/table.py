"""`evalloom prompt-eval table`: writes any scored JSON as the CSV, recomputes totals and lists every error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import msgspec
from msgspec import Struct

from evalloom.core.errors import usage_error
from evalloom.core.model import Checked, Finding, Origin
from evalloom.files.rows import Problem, Row
from evalloom.files.write import atomic_writer
from evalloom.prompt_eval.analysis.scorecard import count_bad_but_passed
from evalloom.prompt_eval.dialect import is_table_row
from evalloom.prompt_eval.folder import Folder, Records, move_to_backup, read_checked
from evalloom.prompt_eval.plan import read_plan
from evalloom.prompt_eval.reports import csv as prompt_eval_csv
from evalloom.prompt_eval.reports import xlsx as prompt_eval_xlsx
from evalloom.prompt_eval.scores import ScoredCase, points_in, read_scored, scored_remarks
from evalloom.prompt_eval.steps import provenance
from evalloom.prompt_eval.table import has_review, is_scored_table
from evalloom.ui.workbook import LONGEST_CELL, require_openpyxl

_PACKED = (".gz", ".zst")
_LISTED = 1000


class TableOptions(Struct, frozen=True):
    """The options of a table."""

    plan: Path | None = None
    """The plan with the test points; without it they are in order of appearance, TP_safety last."""
    out: Path | None = None
    """The CSV, or a workbook if it ends in `.xlsx`; by default beside the source, as `….review.csv` for review."""
    excel: bool = False
    """Whether the CSV starts with the byte order mark that Excel needs."""
    xlsx: bool = False
    """Whether a workbook is written beside the CSV."""
    for_review: bool = False
    """Whether the table has columns for human scores."""


class TableResult(Struct, frozen=True):
    """The outcome of `table`: the files written, all findings, and the number of cases of each kind."""

    paths: tuple[Path, ...]
    checked: Checked
    points: tuple[str, ...] = ()
    cases: int = 0
    failed: int = 0
    incomplete: int = 0
    bad: int = 0
    bad_but_passed: int = 0
    unreadable: int = 0
    """Records of the source that cannot be read, and so have no row."""

    @property
    def findings(self) -> list[Finding]:
        return self.checked.findings

    @property
    def has_errors(self) -> bool:
        """Whether the command ends with exit code 2."""
        return self.checked.count("error") > 0 or self.incomplete > 0 or self.unreadable > 0


def write_table(source: Path, options: TableOptions = TableOptions()) -> TableResult:
    """Read scored cases, collect all findings, and write the table; write nothing if the plan has errors."""
    if str(source) == "-":
        raise usage_error(
            "file_needed", "-: a table is written beside its source, so name a file instead of standard input"
        )
    checked, items = read_checked(source)
    rows = [item for item in items if isinstance(item, Row)]
    points, findings = _points(source, options.plan, rows)
    cases = [read_scored(row.value, points) for row in rows] if points else []
    paths = _paths(source, options) if cases else ()
    findings += [finding for path in paths for finding in _write(path, cases, points, options)]
    return TableResult(
        paths=paths,
        checked=_merged(checked, chain(findings, _remarks(source, rows, points))),
        points=tuple(points),
        cases=len(cases),
        failed=sum(case.is_failed for case in cases),
        incomplete=sum(bool(case.missing) for case in cases),
        bad=sum(case.is_bad is True for case in cases),
        bad_but_passed=count_bad_but_passed(cases),
        unreadable=sum(
            isinstance(item, Problem) and item.severity == "error" and item.place.line > 0 for item in items
        ),
    )


def _points(source: Path, plan: Path | None, rows: Sequence[Row]) -> tuple[list[str], list[Finding]]:
    """Return the test points of the columns, none if no table can be written, and findings about them."""
    here = Origin(source.as_posix())
    if any(is_table_row(row.value) for row in rows):
        message = "has rows of the table itself, without inputs and results. Name the JSON that it was made from"
        return [], [Finding("table_as_source", "error", message, here)]
    if plan is not None:
        test_plan, findings = read_plan(plan)
        return list(test_plan.ids) if test_plan else [], findings
    points = points_in(row.value for row in rows)
    if rows and not points:
        message = "no case has a <TP>_score or <TP>_reason. Score the cases first, or name the test points with --plan"
        return [], [Finding("nothing_scored", "error", message, here)]
    return points, []


def _paths(source: Path, options: TableOptions) -> tuple[Path, ...]:
    """Return the output paths; raise if one is a file that evalloom must not replace."""
    stem = source.with_suffix("") if source.suffix.lower() in _PACKED else source
    out = options.out or stem.with_suffix(".review.csv" if options.for_review else ".csv")
    is_workbook = out.suffix.lower() == ".xlsx"
    paths = (out, out.with_suffix(".xlsx")) if options.xlsx and not is_workbook else (out,)
    for path in paths:
        if path.suffix.lower() == ".xlsx":
            require_openpyxl()
        if not path.parent.is_dir():
            message = f"{path.as_posix()}: there is no folder {path.parent.as_posix()!r}. Make it, or name another -o"
            raise usage_error("folder_missing", message)
        if path.resolve() in [read.resolve() for read in (source, options.plan) if read]:
            message = f"{path.as_posix()}: is a file that is read. Give the output another name with -o"
            raise usage_error("would_overwrite", message)
        if has_review(path):
            message = (
                f"{path.as_posix()}: holds scores or remarks that people wrote into it, and is not replaced. Take them"
                " over with 'evalloom prompt-eval import-review', then move the file, or give another name with -o"
            )
            raise usage_error("would_lose_review", message)
        if path != options.out and path.exists() and not is_scored_table(path):
            message = f"{path.as_posix()}: is there already, and is no table of scored cases. Give another name with -o"
            raise usage_error("would_overwrite", message)
    return paths


def _remarks(source: Path, rows: Sequence[Row], points: Sequence[str]) -> Iterator[Finding]:
    records = Records(source, list(rows), [])
    for row in rows if points else ():
        yield from (records.finding_at(row, remark) for remark in scored_remarks(row.value, tuple(points)))


# Codes that this module reports itself: a missing reason, and a table as source, are errors here.
_ECHOES = (("missing_reason", "warning"), ("table_as_source", "info"), ("table_as_source", "error"))


def _merged(checked: Checked, more: Iterable[Finding]) -> Checked:
    """Merge the findings of the linter with those of this module, which replace weaker ones about the same problem."""
    findings = [finding for finding in checked.findings if (finding.code, finding.severity) not in _ECHOES]
    counts = Counter({key: number for key, number in checked.counts.items() if key not in _ECHOES})
    for finding in more:
        counts[finding.code, finding.severity] += 1
        if counts[finding.code, finding.severity] <= _LISTED:
            findings.append(finding)
    return msgspec.structs.replace(checked, findings=findings, counts=dict(counts))


def _write(path: Path, cases: Sequence[ScoredCase], points: Sequence[str], options: TableOptions) -> list[Finding]:
    folder = Folder(path.parent)
    if path in (folder.table, folder.sheet) and provenance.is_tracked(folder):
        return write_own(folder, path, cases, points, options)
    return write_file(path, cases, points, options)


def write_own(
    folder: Folder, path: Path, cases: Sequence[ScoredCase], points: Sequence[str], options: TableOptions
) -> list[Finding]:
    """Write a table of a results folder; a table that was edited since it was written is renamed to a backup first."""
    artifact = provenance.load(folder, path.suffix, path)
    backup = move_to_backup(path, "edited") if artifact.state == "edited" else None
    findings = write_file(path, cases, points, options)
    provenance.store_view(artifact)
    if backup is not None and backup.read_bytes() == path.read_bytes():
        backup.unlink()
    elif backup is not None:
        message = f"was edited since it was written, and is now {backup.name}"
        hint = f"Edit scores in {folder.scored.name}; import human scores with 'evalloom prompt-eval import-review'"
        findings.append(Finding("table_put_aside", "warning", f"{message}. {hint}", Origin(path.as_posix())))
    return findings


def write_file(
    path: Path, cases: Sequence[ScoredCase], points: Sequence[str], options: TableOptions = TableOptions()
) -> list[Finding]:
    """Write one table; return a finding if cells were truncated."""
    with atomic_writer(path) as stream:
        if path.suffix.lower() != ".xlsx":
            prompt_eval_csv.write(stream, cases, points, options.excel, options.for_review)
            return []
        cut = prompt_eval_xlsx.write(stream, cases, points, options.for_review)
    if not cut:
        return []
    limit = f"{LONGEST_CELL:,} characters that a workbook can hold"
    message = (
        f"{'1 cell is' if cut == 1 else f'{cut} cells are'} longer than the {limit}, and cut. The CSV has all of it"
    )
    return [Finding("cells_cut", "warning", message, Origin(path.as_posix()))]
