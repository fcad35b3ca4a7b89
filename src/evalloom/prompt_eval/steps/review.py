"""`evalloom prompt-eval import-review`: imports human scores and comments from the table (EVAL-16)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Finding, Origin, Record
from evalloom.core.text import quote
from evalloom.data.dataset import Dataset
from evalloom.files.rows import Row
from evalloom.files.source import source_of
from evalloom.files.write import write_text
from evalloom.prompt_eval.dialect import DIALECT, FORMATS, suggest_name
from evalloom.prompt_eval.folder import Folder
from evalloom.prompt_eval.scores import ScoredCase, is_score, output_digest, points_in
from evalloom.prompt_eval.table import (
    COMMENT,
    REVIEWED,
    TableFile,
    human_columns,
    is_entry,
    number_in,
    output_key,
    preview,
    read_table,
    review_columns,
)

_SCORED = Folder(Path()).scored.name
_COLUMN = lazy_pattern(r"human_(TP\w*)_score")
_RESULT = "result_aftertest"
_PREVIEW = "result_preview"
_DIGIT = lazy_pattern("[0-9]")
_LONGEST_VALUE = 20
_UNSTABLE = lazy_pattern("[\\s\0-\x1f\ud800-\udfff\ufffd-\uffff]|^'+")
"""Characters that a spreadsheet may change on its own when it saves a file."""


class Review(Struct, frozen=True, forbid_unknown_fields=True):
    """The human scores and the comment of one case."""

    scores: dict[str, int] = {}
    comment: str = ""
    result: str = ""
    """The digest of the reviewed output; a review written by hand has none, and is valid for any output."""
    reviewer: str = ""
    """Who entered it on a page; unknown for a review that was imported."""

    def is_about(self, result: Any) -> bool:
        return self.result in ("", output_digest(result))


class ReviewResult(Struct, frozen=True):
    """The outcome of an import: all findings or, without errors, the numbers of added, replaced and dropped scores."""

    path: Path
    findings: list[Finding]
    cases: int = 0
    """Rows of the table with a score or a comment."""
    scores: int = 0
    added: int = 0
    """Scores that are new."""
    replaced: int = 0
    """Scores that differ from an earlier review."""
    dropped: int = 0
    """Earlier scores of these cases that were about other outputs."""

    @property
    def is_written(self) -> bool:
        return not any(finding.severity == "error" for finding in self.findings)


def import_review(file: Path, folder: Path, encoding: str = "") -> ReviewResult:
    """Import the columns `human_<TP>_score` and `human_comment` of a CSV or XLSX; nothing if one cell is invalid.

    A later review adds to earlier ones and replaces their scores of the same test point; scores of another output
    are dropped.
    """
    records = _scored(folder)
    return _import_table(file, read_table(file, encoding), folder, records, read_reviews(folder))


def enter_review(folder: Path, cells: dict[str, str], reviewer: str) -> ReviewResult:
    """Store the review of one case as `import_review` does: `cells` are those of its row in the table.

    A review of somebody else for the same output is never changed.
    """
    records, earlier = _scored(folder), read_reviews(folder)
    test_id = cells.get("test_id", "").strip()
    old = earlier.get(test_id)
    if old and old.reviewer != reviewer and test_id in records and old.is_about(records[test_id][_RESULT]):
        whose = f"of {quote(old.reviewer)}" if old.reviewer else "that was imported"
        message = f"{test_id}: has a review {whose}, which stays as it is. Import a table to replace it"
        raise usage_error("reviewed_by_another", message)
    table = TableFile([Row(cells, 1, places={})], [])
    return _import_table(Path(test_id), table, folder, records, earlier, reviewer)


def _import_table(
    file: Path,
    table: TableFile,
    folder: Path,
    records: dict[str, Record],
    earlier: dict[str, Review],
    reviewer: str = "",
) -> ReviewResult:
    reader = _ReviewReader(file, table, points_in(records.values()), records)
    reviews = reader.reviews()
    findings = [*table.findings, *reader.findings]
    result = ReviewResult(
        Folder(folder).humans, findings, len(reviews), sum(len(review.scores) for review in reviews.values())
    )
    if not result.is_written:
        return result
    # Only earlier reviews of the same output are merged with the new ones.
    still_valid = {
        test_id: review
        for test_id, review in earlier.items()
        if test_id in reviews and review.is_about(records[test_id][_RESULT])
    }
    merged = {}
    for test_id, review in reviews.items():
        old = still_valid.get(test_id, Review())
        scores, comment = {**old.scores, **review.scores}, review.comment or old.comment
        merged[test_id] = Review(scores, comment, review.result, reviewer)
    write_text(result.path, _reviews_text({**earlier, **merged}))
    old_scores, new_scores = _by_point(still_valid), _by_point(reviews)
    return msgspec.structs.replace(
        result,
        added=len(new_scores.keys() - old_scores.keys()),
        replaced=sum(key in old_scores and old_scores[key] != score for key, score in new_scores.items()),
        dropped=sum(
            len(review.scores)
            for test_id, review in earlier.items()
            if test_id in reviews and test_id not in still_valid
        ),
    )


def _reviews_text(reviews: dict[str, Review]) -> str:
    plain = msgspec.to_builtins(reviews)
    for review in plain.values():
        # Files that were imported stay as versions without reviewers wrote them.
        if not review["reviewer"]:
            del review["reviewer"]
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"


def _by_point(reviews: dict[str, Review]) -> dict[tuple[str, str], int]:
    return {(test_id, point): score for test_id, review in reviews.items() for point, score in review.scores.items()}


def current_scores(
    reviews: dict[str, Review], cases: Iterable[ScoredCase]
) -> tuple[dict[str, dict[str, int]], list[str]]:
    """Return the human scores of the current outputs by test_id, and the ids with scores of other outputs."""
    results = {case.id: case.record.get(_RESULT) for case in cases}
    scored = {test_id: review for test_id, review in reviews.items() if review.scores}
    current = {
        test_id: review.scores
        for test_id, review in scored.items()
        if test_id in results and review.is_about(results[test_id])
    }
    return current, [test_id for test_id in scored if test_id not in current]


def read_reviews(folder: Path) -> dict[str, Review]:
    """Read all reviews by test_id; empty if there are none."""
    path = Folder(folder).humans
    try:
        reviews = msgspec.json.decode(path.read_bytes(), type=dict[str, Review])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        message = f"{path.as_posix()}: cannot be read: {error}. Fix it, or move it away and import the reviews again"
        raise EvalloomError("bad_human_scores", message) from None
    for test_id, review in reviews.items():
        for point, score in review.scores.items():
            if not is_score(score):
                message = f"{path.as_posix()}: {test_id}: {point}: expected 1, 2 or 3, got {score}"
                raise EvalloomError("bad_human_scores", message)
    return reviews


def _scored(folder: Path) -> dict[str, Record]:
    """Read the scored cases by id."""
    path = Folder(folder).scored
    dataset = Dataset(source_of(path), FORMATS, DIALECT.name)
    records = [item.value for item in dataset if isinstance(item, Row)] if path.is_file() else []
    if not records:
        message = (
            f"{path.as_posix()}: expected the scored cases of the review, got none."
            f" Name the folder with {_SCORED}, or score first"
        )
        raise usage_error("nothing_to_review", message)
    return {str(record.get("test_id", "")): {_RESULT: None, **record} for record in records}


def _strip_unstable(text: str) -> str:
    return _UNSTABLE.sub("", text)


def _may_be_reformatted(text: str) -> bool:
    """Whether a spreadsheet may reformat a text because it looks like a number, a date or a boolean."""
    text = text.strip()
    is_short = len(text) <= _LONGEST_VALUE and _DIGIT.search(text) is not None
    return is_short or not any(map(str.isalpha, text)) or text.casefold() in ("true", "false")


def _mismatched_column(row: Record, result: Any) -> str:
    """Return the column that shows that a row is about another output: the digest or, without one, the preview."""
    reviewed = row.get(REVIEWED, "").strip()
    if reviewed:
        return "" if reviewed == output_key(result) else REVIEWED
    current = preview(result)
    is_other = (
        _PREVIEW in row
        and not _may_be_reformatted(current)
        and _strip_unstable(row[_PREVIEW]) != _strip_unstable(current)
    )
    return _PREVIEW if is_other else ""


class _ReviewReader:
    """Reads the reviews in one table and collects its findings."""

    def __init__(self, file: Path, table: TableFile, points: Sequence[str], records: dict[str, Record]) -> None:
        self.findings: list[Finding] = []
        self._file = file.as_posix()
        self._table = table
        self._points = points
        self._records = records
        self._lines: dict[str, int] = {}

    def reviews(self) -> dict[str, Review]:
        if self._table.has_errors:
            return {}
        columns = list(self._columns())
        has_comment = COMMENT in self._table.columns
        if not self.findings and not columns and not has_comment:
            message = f"expected a column for human scores, such as {review_columns(self._points)[0]}, got none"
            self.findings.append(Finding("no_human_columns", "error", message, Origin(self._file)))
        reviews: dict[str, Review] = {}
        for row in self._table.rows:
            scores = {point: score for point, name in columns if (score := self._score(row, name))}
            comment = row.value.get(COMMENT, "").strip()
            test_id = row.value.get("test_id", "").strip()
            if self._is_scored_case(row, test_id, bool(scores or comment)) and (scores or comment):
                self._check_output(row, test_id, bool(scores))
                reviews[test_id] = Review(scores, comment, output_digest(self._records[test_id][_RESULT]))
        if not reviews and not self.findings:
            names = ", ".join(filter(is_entry, human_columns(self._table)))
            message = f"expected human scores or comments, got none: {names} are empty in every row"
            self.findings.append(Finding("no_human_scores", "error", message, Origin(self._file)))
        return reviews

    def _check_output(self, row: Row, test_id: str, has_scores: bool) -> None:
        """Add a finding if the reviewers cannot have seen the current output."""
        result = self._records[test_id][_RESULT]
        if has_scores and result is None:
            message = "has human scores, but its run failed, so there is nothing to score"
            self._add_error("score_without_result", row, "test_id", message)
        elif column := _mismatched_column(row.value, result):
            message = (
                f"{column} differs from {_SCORED}: the scores are about another output. Review a new table, or remove"
                " such rows"
            )
            self._add_error("review_of_other_output", row, column, message)

    def _columns(self) -> Iterator[tuple[str, str]]:
        """Yield each test point with its column."""
        expected = review_columns(self._points)
        for name in human_columns(self._table):
            match = _COLUMN.fullmatch(name)
            if match and match[1] in self._points:
                yield match[1], name
            elif name not in (COMMENT, REVIEWED):
                hint = suggest_name(name, expected) or f"; expected {', '.join(expected)}"
                self._add_error(
                    "unknown_human_column", self._table.rows[0], name, f"{name}: is not a column of a review{hint}"
                )

    def _score(self, row: Row, name: str) -> int | None:
        text = row.value.get(name, "").strip()
        if not text:
            return None
        score = number_in(text)
        if is_score(score) and isinstance(score, int):
            return score
        what = "a formula without a value; save the file in a spreadsheet program" if text[0] == "=" else quote(text)
        message = f"{name}: expected 1, 2, 3 or an empty cell, got {what}"
        self._add_error("bad_human_score", row, name, message)
        return None

    def _is_scored_case(self, row: Row, test_id: str, has_review: bool) -> bool:
        if not test_id and not has_review:
            return False
        if test_id not in self._records:
            hint = suggest_name(test_id, self._records, 0.8)
            message = f"test_id: {quote(test_id)} is not a case of {_SCORED}{hint}"
            self._add_error("unknown_test_id", row, "test_id", message)
            return False
        first = self._lines.setdefault(test_id, row.line)
        if first != row.line:
            message = f"test_id: {quote(test_id)} is already the case on line {first}. Keep one row"
            self._add_error("duplicate_id", row, "test_id", message)
        return first == row.line

    def _add_error(self, code: str, row: Row, column: str, message: str) -> None:
        origin = Origin(self._file, *row.place_of((column,)))
        case_id = row.value.get("test_id", "").strip()
        self.findings.append(Finding(code, "error", message, origin, column, case_id))
