"""Checks the format of every artifact of a results folder and its consistency with the others (EVAL-1)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Finding, Origin, Record, Remark, Severity, error, warning
from evalloom.core.text import pluralize, quote
from evalloom.files.rows import Row
from evalloom.prompt_eval.citing import uncited_reasons
from evalloom.prompt_eval.dialect import FIELDS
from evalloom.prompt_eval.folder import Folder, Records, prompt_a, prompt_file, read_object, read_records
from evalloom.prompt_eval.plan import TestPlan, read_plan
from evalloom.prompt_eval.scores import points_in, read_scored, scored_remarks
from evalloom.prompt_eval.steps import provenance
from evalloom.prompt_eval.steps.evaluator import missing_points
from evalloom.prompt_eval.steps.review import current_scores, read_reviews
from evalloom.prompt_eval.steps.rules import validate_rules
from evalloom.prompt_eval.steps.run import input_remarks
from evalloom.prompt_eval.table import cells, columns, header_findings, read_table, same_cell
from evalloom.targets import BuiltTarget


class ArtifactFindings(Struct, frozen=True):
    """The findings of one file."""

    path: Path
    findings: list[Finding]
    cases: int = 0

    def count(self, severity: Severity) -> int:
        return sum(finding.severity == severity for finding in self.findings)


class _FolderContents(Struct):
    """What earlier artifacts of the folder contain, for the checks of later ones."""

    plan: TestPlan | None = None
    target: BuiltTarget | None = None
    cases: dict[str, Record] = {}
    results: dict[str, Record] = {}
    scored: list[Record] = []


def check(folder: Folder) -> list[ArtifactFindings]:
    """Check each artifact of the folder, in the order of the steps."""
    contents = _FolderContents()
    checks: tuple[tuple[Path, Callable[[Folder, _FolderContents], ArtifactFindings]], ...] = (
        (folder.plan, _plan),
        (folder.cases, _cases),
        (folder.results, _results),
        (folder.prompt_b, _prompt_b),
        (folder.scored, _scored),
        (folder.table, _table),
        (folder.humans, _humans),
        (folder.repeats, _repeats),
    )
    artifacts = [check_file(folder, contents) for path, check_file in checks if os.path.isfile(path)]
    if not artifacts:
        names = ", ".join(path.name for path, _ in checks)
        raise usage_error("no_artifact", f"{folder}: there is none of {names}")
    return artifacts


def _plan(folder: Folder, contents: _FolderContents) -> ArtifactFindings:
    contents.plan, findings = read_plan(folder.plan)
    if contents.plan is not None:
        try:
            contents.target = prompt_a(contents.plan).target
            validate_rules(contents.plan)
            if contents.plan.yardstick:
                prompt_file(folder.path / contents.plan.yardstick)
        except EvalloomError as exc:
            findings.append(_file_finding(folder.plan, Remark(exc.code, "error", (), exc.args[0])))
    return ArtifactFindings(folder.plan, findings)


def _cases(folder: Folder, contents: _FolderContents) -> ArtifactFindings:
    records = read_records(folder.cases)
    contents.cases = _by_id(records)
    counts = Counter(record.get("test_category") for record in records.values)
    findings = list(records.findings)
    for name, planned in (contents.plan.dimensions if contents.plan else {}).items():
        if counts[name] != planned:
            message = f"{name}: {pluralize(planned, 'case')} planned, got {counts[name]}"
            findings.append(_file_finding(folder.cases, warning("case_shortfall", (), message)))
    if target := contents.target:
        findings += [
            records.finding_at(row, remark) for row in records.rows for remark in input_remarks(target, row.value)
        ]
    return ArtifactFindings(folder.cases, findings, len(records.rows))


def _results(folder: Folder, contents: _FolderContents) -> ArtifactFindings:
    records = read_records(folder.results)
    contents.results = _by_id(records)
    findings = [*records.findings, *records.not_run()]
    findings += _compare_cases(records, contents.cases, folder.cases.name, "case_changed", FIELDS)
    digest = provenance.load(folder, "run", folder.results).provenance.prompt
    if digest and contents.target and digest != contents.target.digest:
        message = "the prompt has changed since. Run it again: evalloom prompt-eval run"
        findings.append(_file_finding(folder.results, warning("prompt_changed", (), message)))
    return ArtifactFindings(folder.results, findings, len(records.rows))


def _by_id(records: Records) -> dict[str, Record]:
    return {record["test_id"]: record for record in records.values if isinstance(record.get("test_id"), str)}


def _prompt_b(folder: Folder, contents: _FolderContents) -> ArtifactFindings:
    try:
        text = folder.prompt_b.read_text("utf-8")
    except UnicodeDecodeError as exc:
        return ArtifactFindings(
            folder.prompt_b, [_file_finding(folder.prompt_b, error("not_utf8", (), f"is not UTF-8: {exc}"))]
        )
    left_out = missing_points(text, contents.plan) if contents.plan else []
    message = f"does not name {', '.join(left_out)}, which the plan has"
    remarks = [warning("prompt_b_lacks_points", (), message)] if left_out else []
    return ArtifactFindings(folder.prompt_b, [_file_finding(folder.prompt_b, remark) for remark in remarks])


def _scored(folder: Folder, contents: _FolderContents) -> ArtifactFindings:
    records = read_records(folder.scored)
    contents.scored = records.values
    points = contents.plan.ids if contents.plan else tuple(points_in(records.values))
    findings = [finding for finding in records.findings if finding.code != "missing_reason"]
    fields = (*FIELDS, "result_aftertest")
    findings += _compare_cases(records, contents.results, folder.results.name, "result_changed", fields)
    for row in records.rows:
        findings += [records.finding_at(row, remark) for remark in scored_remarks(row.value, points)]
        findings += [records.finding_at(row, remark) for remark in uncited_reasons(read_scored(row.value, points))]
    return ArtifactFindings(folder.scored, findings, len(records.rows))


def _compare_cases(
    records: Records, before: dict[str, Record], name: str, code: str, fields: Iterable[str]
) -> Iterator[Finding]:
    """Compare these fields of the cases with those of the previous step; users may add other fields."""
    if not before:
        return
    ids = {str(record.get("test_id")) for record in records.values}
    for row in records.rows:
        other = before.get(str(row.value.get("test_id")))
        if other is None:
            yield records.finding_at(row, warning(code, ("test_id",), f"test_id: is not in {name}"))
        elif any(row.value.get(field) != other.get(field) for field in fields):
            yield records.finding_at(row, warning(code, (), f"differs from the case of this id in {name}"))
    for missing in (test_id for test_id in before if test_id not in ids):
        yield _file_finding(records.path, warning(code, (), f"{missing} of {name} is missing here"))


def _table(folder: Folder, contents: _FolderContents) -> ArtifactFindings:
    table = read_table(folder.table)
    findings = list(table.findings)
    if contents.scored:
        points = contents.plan.ids if contents.plan else tuple(points_in(contents.scored))
        findings += _table_findings(folder, table.rows, contents.scored, points)
    return ArtifactFindings(folder.table, findings, len(table.rows))


def _table_findings(
    folder: Folder, rows: list[Row], scored: list[Record], points: tuple[str, ...]
) -> Iterator[Finding]:
    """Check the columns of the CSV, and compare its rows with the JSON that it is made from."""
    wrong = list(header_findings(list(rows[0].value), points)) if rows else []
    yield from (_file_finding(folder.table, remark, 1) for remark in wrong)
    if any(remark.severity == "error" for remark in wrong):
        return
    names = columns(points)
    wanted = {str(record.get("test_id")): cells(read_scored(record, points), points) for record in scored}
    for row in rows:
        expected = wanted.pop(row.value.get("test_id", ""), None)
        if expected is None:
            message = f"test_id: {quote(row.value.get('test_id'))} is not a case of {folder.scored.name}"
            yield _file_finding(folder.table, warning("table_differs", (), message), row.line)
            continue
        differ = [
            name for name, cell in zip(names, expected, strict=True) if not same_cell(row.value.get(name, cell), cell)
        ]
        if differ:
            message = f"{row.value['test_id']}: {', '.join(differ)} differ from {folder.scored.name}"
            yield _file_finding(folder.table, warning("table_differs", (), message), row.line)
    for missing in wanted:
        yield _file_finding(
            folder.table, warning("table_differs", (), f"{missing} of {folder.scored.name} is missing here")
        )


def _humans(folder: Folder, contents: _FolderContents) -> ArtifactFindings:
    points = contents.plan.ids if contents.plan else tuple(points_in(contents.scored))
    cases = [read_scored(record, points) for record in contents.scored]
    try:
        reviews = read_reviews(folder.path)
    except EvalloomError as exc:
        return ArtifactFindings(
            folder.humans, [_file_finding(folder.humans, Remark(exc.code, "error", (), exc.args[0]))]
        )
    outdated = current_scores(reviews, cases)[1]
    ids = {case.id for case in cases}
    remarks = [
        warning("unknown_test_id", (), f"{test_id} is not a scored case")
        for test_id in reviews
        if cases and test_id not in ids
    ]
    remarks += [
        warning("unknown_test_point", (), f"{test_id}: {point} is not a test point")
        for test_id, review in reviews.items()
        for point in review.scores
        if points and point not in points
    ]
    remarks += [
        warning("review_outdated", (), f"{test_id}: the scores are about another output")
        for test_id in outdated
        if test_id in ids
    ]
    return ArtifactFindings(folder.humans, [_file_finding(folder.humans, remark) for remark in remarks], len(reviews))


def _repeats(folder: Folder, contents: _FolderContents) -> ArtifactFindings:
    try:
        repeats = read_object(folder.repeats)
    except EvalloomError as exc:
        return ArtifactFindings(
            folder.repeats, [_file_finding(folder.repeats, Remark(exc.code, "error", (), exc.args[0]))]
        )
    return ArtifactFindings(folder.repeats, [], len(repeats))


def _file_finding(path: Path, remark: Remark, line: int = 0) -> Finding:
    return Finding(remark.code, remark.severity, remark.message, Origin(path.as_posix(), line))
