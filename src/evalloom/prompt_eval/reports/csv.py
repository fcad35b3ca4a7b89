"""Writes `final_scored_results.csv`, the table that people open, safe for spreadsheets (EVAL-11 to EVAL-13)."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import IO

from evalloom.prompt_eval.scores import ScoredCase
from evalloom.prompt_eval.table import cells, columns, escape_formula, review_cells, review_columns


def write(
    stream: IO[bytes],
    cases: Iterable[ScoredCase],
    points: Sequence[str],
    excel: bool = False,
    for_review: bool = False,
) -> int:
    """Write the header and a row for each case; return the number of cases.

    `excel` adds the byte order mark that Excel needs, `for_review` the columns for human scores.
    """
    if excel:
        # Without the mark, Excel decodes the file with a legacy encoding.
        stream.write(codecs.BOM_UTF8)
    stream.write(line([*columns(points), *(review_columns(points) if for_review else ())]))
    count = 0
    for count, case in enumerate(cases, 1):  # noqa: B007
        stream.write(line([*cells(case, points), *(review_cells(case, points) if for_review else ())]))
    return count


def line(texts: Iterable[str]) -> bytes:
    """Format cells as one line of the file: all quoted, with formulas escaped so that no spreadsheet runs them."""
    quoted = (escape_formula(text).replace('"', '""') for text in texts)
    return ('"' + '","'.join(quoted) + '"\n').encode()
