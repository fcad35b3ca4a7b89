"""Formats the cases of a batch as a table, a page at a time, and selects those to show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from shlex import quote as quote_word

import msgspec

from evalloom.analysis.tally import NOTHING_EXPECTED
from evalloom.console.layout import Line, command_lines, seconds, table_lines
from evalloom.console.run_text import STYLES, verdict_line
from evalloom.core.model import Batch, Origin, Run, Scored
from evalloom.core.repeats import Count
from evalloom.core.text import one_line, pluralize, printable
from evalloom.data.identity import is_digest, readable_name

_LONGEST_NAME = 60
_LONGEST_REASON = 300


class CaseFilter(msgspec.Struct, frozen=True):
    """Which runs to show; empty fields select all."""

    status: str | None = None
    case_id: str = ""
    """The id of a case, or its place, such as `cases.jsonl:14`."""
    profile: str = ""
    tags: tuple[str, ...] = ()
    """Tags that a run must have, all of them."""
    search: str = ""
    """Text in the record, the output, the error or the reason of a verdict; its case does not matter."""

    def includes(self, run: Run, scored: Scored) -> bool:
        """Whether a run is to be shown."""
        if self.status not in (None, scored.status) or self.profile not in ("", run.profile):
            return False
        if self.case_id and not self.names(run):
            return False
        return {*self.tags} <= {*run.tags} and self.search.casefold() in _searched(run, scored, bool(self.search))

    def names(self, run: Run) -> bool:
        """Whether `case_id` is the id of the run's case, or its place."""
        return self.case_id in (run.case_id, place_of(run.origin), f"{run.origin.file}:{run.origin.line}")

    def __str__(self) -> str:
        """The selection in words: `failed, under 'fast', tagged 'zh'`; empty if all are shown."""
        return self._in_words(self.status or "")

    def of_cases(self) -> str:
        """The selection of cases in words: `with a failed run, tagged 'zh'`, since other repeats of a case may pass."""
        articles = {"error": "with a run in error", "unscored": "with an unscored run"}
        return self._in_words(articles.get(self.status, f"with a {self.status} run") if self.status else "")

    def _in_words(self, status: str) -> str:
        parts = [status, f"under {self.profile!r}" if self.profile else ""]
        parts += [f"tagged {tag!r}" for tag in self.tags]
        parts.append(f"with {self.search!r}" if self.search else "")
        return ", ".join(filter(None, parts))


def _searched(run: Run, scored: Scored, is_needed: bool) -> str:
    if not is_needed:
        return ""
    values = [run.case_id, run.raw, run.output.value, run.error, run.skipped, run.blocked]
    values += [f"{verdict.name} {verdict.reason}" for verdict in scored.verdicts]
    texts = [text if isinstance(text, str) else json.dumps(text, ensure_ascii=False, default=str) for text in values]
    return "\n".join(texts).casefold()


def place_of(origin: Origin) -> str:
    """Return the file and line of a case, relative to this folder if it is in it."""
    path = Path(origin.file)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return f"{path.as_posix()}:{origin.line}" if origin.line else path.as_posix()


class ListedCase(msgspec.Struct, frozen=True):
    """A row of the list: one run of a case, and how many of its repeats passed."""

    run: Run
    scored: Scored
    count: Count

    def cells(self, with_profile: bool) -> list[str]:
        run, scored = self.run, self.scored
        passed, counted = self.count
        name = readable_name(run.case_id, run.is_unnamed, run.raw, place_of(run.origin))
        return [
            one_line(name, _LONGEST_NAME),
            *([run.profile or "-"] if with_profile else []),
            scored.status if counted < 2 else f"{scored.status} ({passed} of {counted})",
            "-" if scored.score is None else f"{scored.score:.3g}",
            "-" if run.skipped or run.blocked else seconds(run.latency_s),
            one_line(self._reason(), _LONGEST_REASON) or "-",
        ]

    def _reason(self) -> str:
        """Return what did not pass: the check and why, or the names of several checks."""
        run, open_checks = self.run, [verdict for verdict in self.scored.verdicts if verdict.status != "passed"]
        # A check of weight 0 only reports.
        deciding = [verdict for verdict in open_checks if verdict.weight] or open_checks
        if reason := run.error or run.skipped or run.blocked:
            return reason
        if len(deciding) == 1:
            return verdict_line(deciding[0])
        if self.scored.status == "unscored" and not deciding:
            return NOTHING_EXPECTED
        return ", ".join(verdict.name for verdict in deciding)

    def key(self) -> str:
        """Return what `--case` takes: a place is easier to type than a digest or a long description."""
        run = self.run
        is_long = len(run.case_id) > _LONGEST_NAME or is_digest(run.case_id)
        return place_of(run.origin) if is_long and run.origin.line else run.case_id


class Page(msgspec.Struct, frozen=True):
    """A part of a list: its number, from 1, and how many entries a page has."""

    number: int
    size: int

    def has(self, index: int) -> bool:
        """Whether an entry is on the page, by its index from 0."""
        return (self.number - 1) * self.size <= index < self.number * self.size


def case_list_lines(
    cases: list[ListedCase], matching: int, page: Page, batch: Batch, selection: CaseFilter
) -> Iterator[Line]:
    """Yield the cases of a page, which part of all that match it is, and the next command."""
    with_profile = len(batch.profiles) > 1 and not selection.profile
    # A case has a row for each of its profiles.
    noun = "row" if with_profile else "case"
    which = f" {words}" if (words := selection.of_cases()) else ""
    if not cases:
        yield f"No case{printable(which)}" if which else "The batch has no runs", "yellow"
        return
    header = ["case", *(["profile"] if with_profile else []), "status", "score", "latency", "failed checks"]
    styles = [STYLES.get(case.scored.status, "yellow") for case in cases]
    rows = [case.cells(with_profile) for case in cases]
    yield from table_lines(header, rows, styles, preview="failed checks", spare=("latency", "score"))
    first = (page.number - 1) * page.size
    pages = -(-matching // page.size)
    shown = f"{first + 1:,} to {first + len(cases):,} of {pluralize(matching, noun)}{printable(which)}"
    if pages == 1:
        shown = f"{pluralize(matching, noun)}{printable(which)}"
    elif page.number < pages:
        shown += f"; {matching - first - len(cases):,} more: --page {page.number + 1}"
    yield shown, "dim"
    worst = next((case for case in cases if case.scored.status in ("failed", "error")), cases[0])
    yield from command_lines(f"evalloom batches show {batch.id} --case {quote_word(printable(worst.key()))}", "Next: ")
