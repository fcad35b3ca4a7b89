"""The pytest plugin: with `--evalloom`, each case of an evalloom.yaml is a test item. The batch runs once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from evalloom.core.model import Record, Run, Scored
    from evalloom.engine.plan import Plan
    from evalloom.engine.quarantine_file import Entry
    from evalloom.engine.run import Job

# pytest imports this module in every project that has evalloom installed, so all other imports are deferred.
FILE_NAME = "evalloom.yaml"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("evalloom")
    group.addoption("--evalloom", action="store_true", help=f"collect the cases of {FILE_NAME} files as tests")
    group.addoption("--evalloom-profile", action="append", default=[], help="run under this profile; may be repeated")
    group.addoption("--evalloom-allow-code", action="store_true", help="run code from data files, in a sandbox")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.name != FILE_NAME or not parent.config.getoption("--evalloom"):
        return None
    return SuiteFile.from_parent(parent, path=file_path)


class SuiteFile(pytest.File):
    """One evalloom.yaml: collects its cases, and runs all of them when pytest reaches the first."""

    def collect(self) -> Iterable[CaseItem]:
        from evalloom.engine.run import Jobs

        self._plan = self._prepare()
        self._results: dict[str, tuple[Run, Scored]] | None = None
        self._error: Exception | None = None
        self.expects_anything = False
        for message in self._plan.quarantine.expired_warnings() if self._plan.quarantine is not None else ():
            self.warn(pytest.PytestWarning(message))
        decides, cases = False, 0
        jobs = Jobs(self._plan.cases(), self._plan.profiles, self._plan.options.repeats, self._plan.keys())
        for _, group in groupby(jobs, lambda job: (job.number, job.profile.name)):
            repeats = list(group)
            first = repeats[0]
            self.expects_anything = self.expects_anything or bool(first.case.checks)
            cases += 1
            decides = decides or self.quarantined(first.case.id, first.case.origin.file, first.profile.name) is None
            name = f"{first.case.id}[{first.profile.name}]" if len(self._plan.profiles) > 1 else first.case.id
            yield CaseItem.from_parent(self, name=name, keys=[job.key for job in repeats], title=_title(name, first))
        if cases and not decides:
            raise self.CollectError(f"every case is in quarantine ({cases:,}), so nothing decides [all_quarantined]")

    def quarantined(self, case_id: str, file: str, profile: str) -> Entry | None:
        """The entry of a case in quarantine, whose failure is expected; None for any other."""
        quarantine = self._plan.quarantine
        return quarantine.entry_of(case_id, file, profile) if quarantine is not None else None

    @property
    def pass_if(self) -> float | None:
        """The share of its repeats that must pass for a case to pass."""
        return self._plan.options.pass_if

    def results(self, keys: list[str]) -> list[tuple[Run, Scored]]:
        """The runs of these keys with their scores; the first call runs the batch."""
        if self._error is not None:
            raise self._error
        if self._results is None:
            try:
                self._results = {run.key: (run, scored) for run, scored in self._evaluate()}
            except Exception as error:
                # Every case reports the error, without running the failed batch again.
                self._error = error
                raise
        return [self._results[key] for key in keys if key in self._results]

    def why_not_accepted(self, scored: Scored) -> str:
        """Why an unscored case is a failure (WORK-1); empty if it is only skipped."""
        from evalloom.engine.results import NOTHING_CHECKED

        options, target = self._plan.options, self._plan.target
        if scored.verdicts:
            if options.allow_unscored or target.has_own_outcome:
                return ""
            reasons = "; ".join(verdict.reason for verdict in scored.verdicts if verdict.status == "unscored")
            return f"unscored: {reasons}. To accept that, write 'run: {{allow_unscored: true}}' [unscored]"
        is_accepted = self.expects_anything or options.no_checks or target.has_own_outcome
        if is_accepted:
            return ""
        message = NOTHING_CHECKED.message.replace("pass --no-checks", "write 'run: {no_checks: true}'")
        return f"{message} [{NOTHING_CHECKED.code}]"

    def _prepare(self) -> Plan:
        from msgspec.structs import replace

        from evalloom import catalog
        from evalloom.core.errors import EvalloomError
        from evalloom.engine.evaluate import InvalidData, refuse_invalid
        from evalloom.engine.prepare import RunRequest, prepare

        options: Record = {}
        if profiles := self.config.getoption("--evalloom-profile"):
            options["profiles"] = profiles
        if self.config.getoption("--evalloom-allow-code"):
            options["allow_code"] = True
        try:
            plan = prepare(RunRequest(config=str(self.path), options=options), catalog.load_for_python())
            refuse_invalid(plan)
        except InvalidData as error:
            findings = [str(finding) for checked in error.report.checked for finding in checked.findings]
            raise self.CollectError("\n".join([*findings, str(error)])) from None
        except EvalloomError as error:
            raise self.CollectError(str(error)) from None
        return replace(plan, home=self.config.rootpath)

    def _evaluate(self) -> Iterator[tuple[Run, Scored]]:
        from msgspec.structs import replace

        from evalloom.engine.evaluate import evaluate

        # Deselected cases are not run, since each may cost money.
        own_items = (item for item in self.session.items if isinstance(item, CaseItem) and item.parent is self)
        keys = frozenset(key for item in own_items for key in item.keys)
        yield from evaluate(replace(self._plan, only=keys), warn=lambda message: None)


def _title(name: str, job: Job) -> str:
    """Return the heading of a failure: the name of the item, and beside a digest the description or the place."""
    from evalloom.data.identity import readable_name

    case = job.case
    place = f"{case.origin.file}:{case.origin.line}" if case.origin.line else ""
    readable = readable_name(case.id, job.is_unnamed, case.raw, place)
    return name if readable == case.id else f"{name} {readable}"


class CaseItem(pytest.Item):
    """One case under one profile, with all its repeats."""

    def __init__(self, *, keys: list[str], title: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keys = keys
        self._title = title

    def runtest(self) -> None:
        from evalloom.core.repeats import count_of, meets, worst_first

        assert isinstance(self.parent, SuiteFile)
        repeats = worst_first(self.parent.results(self.keys))
        if len(repeats) < len(self.keys):
            raise CaseFailed(["the batch ended before this case was run"])
        if meets(count_of(repeats), self.parent.pass_if):
            return
        run, scored = repeats[0]
        problem = self.parent.why_not_accepted(scored) if scored.status == "unscored" else ""
        if problem or scored.status in ("failed", "error"):
            from evalloom.console.run_text import run_lines

            if entry := self.parent.quarantined(run.case_id, run.origin.file, run.profile):
                pytest.xfail(f"quarantined until {entry.expires}{f': {entry.reason}' if entry.reason else ''}")
            head, *reasons = [text for text, _ in run_lines(run, scored, count_of(repeats))]
            # pytest's short summary shows the first line, so the reason comes first.
            raise CaseFailed([*filter(None, [problem]), *(line.strip() for line in reasons), head])
        if scored.status != "passed":
            reasons = [verdict.reason for verdict in scored.verdicts if verdict.status == scored.status]
            pytest.skip(f"{scored.status}: {'; '.join(reasons) or 'it has no checks'}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The case as `evalloom run` shows it, instead of a traceback through evalloom."""
        if isinstance(excinfo.value, CaseFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self._title


class CaseFailed(Exception):
    """A case did not pass; the message says why."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
