"""The history of a dataset and a target: the pass rate of each batch, what changed in between, and each case's record.

It reads the views of `analysis/views.py`, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from msgspec import structs

from evalloom.analysis.compare_config import differences
from evalloom.analysis.compare_figures import Sums, corrected
from evalloom.analysis.history_cases import CaseBatch, Conclusion, conclude
from evalloom.analysis.history_figures import (
    BatchMark,
    BatchPoint,
    CaseHistory,
    Changed,
    History,
    ProfilePoint,
    RunLine,
)
from evalloom.analysis.history_series import Series, SeriesRequest, age_of, choose_series, decoded, is_partial
from evalloom.analysis.repeats import Shares
from evalloom.analysis.statistics import permuted_variance
from evalloom.analysis.views import Views, open_views
from evalloom.batchlog.copy import Source
from evalloom.core.errors import usage_error
from evalloom.core.model import Batch, DatasetFacts, Profile
from evalloom.core.repeats import meets
from evalloom.core.text import did_you_mean

if TYPE_CHECKING:
    from evalloom.engine.system import Catalog

_WORDS = {"target_digest": "target", "datasets": "dataset", "identity": "llm"}
_DIGEST = re.compile(r"[0-9a-f]{12}(-.*)?")
"""The id of a case that has none of its own (WORK-6)."""


def read_history(
    paths: Iterable[str | Path], request: SeriesRequest, catalog: Catalog, warn: Callable[[str], None]
) -> History:
    """Return the history of a dataset and a target."""
    with HistoryReader(paths, request, catalog, warn) as reader:
        return reader.history()


def read_runs(
    paths: Iterable[str | Path], request: SeriesRequest, case_id: str, catalog: Catalog, warn: Callable[[str], None]
) -> list[RunLine]:
    """Return all runs of one case, oldest first. Raises no_run for a case that no batch has."""
    with HistoryReader(paths, request, catalog, warn) as reader:
        return reader.runs_of(case_id)


class HistoryReader:
    """Reads the history of the chosen batches. Close it, or use it in a `with` block."""

    def __init__(
        self, paths: Iterable[str | Path], request: SeriesRequest, catalog: Catalog, warn: Callable[[str], None]
    ) -> None:
        self._request = request
        self._others: list[Series] = []
        self._left_out = 0
        self._views: Views = open_views(paths, catalog, warn, self._choose)
        self._rows = sorted((source.batch for source in self._views.sources), key=age_of)
        self._places = {row.batch: at for at, row in enumerate(self._rows)}

    def __enter__(self) -> HistoryReader:
        return self

    def __exit__(self, *error: object) -> None:
        self._views.close()

    def _choose(self, sources: list[Source]) -> list[Source]:
        chosen, self._others = choose_series([source.batch for source in sources if source.is_listed], self._request)
        last = chosen[-self._request.limit :]
        self._left_out = len(chosen) - len(last)
        ids = {row.batch for row in last}
        return [source for source in sources if source.batch.batch in ids]

    def history(self) -> History:
        """Return the whole history."""
        results = self._results()
        points = self._points(results)
        cases, absent, not_counted = self._cases(results)
        first = self._rows[-1]
        return History(
            first.dataset or "",
            first.target or "",
            points,
            cases,
            absent,
            not_counted,
            self._others,
            self._left_out,
            self._views.warnings,
        )

    def runs_of(self, case_id: str) -> list[RunLine]:
        """Return all runs of one case, oldest first. Raises no_run for a case that no batch has."""
        rows = self._views.rows(
            f"""SELECT r.batch, r.started_at, r.profile, r.repeat, r.status, r.score, r.reason, r.number
            FROM runs r JOIN batches b USING (batch) WHERE r.case_id = ? {self._of_profile()}
            ORDER BY b.created_at, r.batch, list_position(b.profiles, r.profile), r.number, r.repeat""",
            [case_id, *filter(None, [self._request.profile])],
        )
        if not rows:
            ids = [id for (id,) in self._views.rows("SELECT DISTINCT case_id FROM cases ORDER BY 1 LIMIT 10000")]
            near = did_you_mean(case_id, ids) or next((f". Did you mean {id!r}?" for id in ids if case_id in id), "")
            raise usage_error("no_run", f"there is no run of the case {case_id!r} in these batches{near}")
        results = {key: record for key, record in self._results(case_id).items() if key[1] == case_id}
        changed = {
            (self._rows[mark.batch].batch, key[0]) for key, record in results.items() for mark in _changes(record)
        }
        words = {row.batch: self._changed(at) for at, row in enumerate(self._rows)}
        seen = set()
        lines = []
        for batch, started_at, profile, repeat, status, score, reason, _ in rows:
            is_first = (batch, profile) in changed and (batch, profile) not in seen
            seen.add((batch, profile))
            now = (words[batch] or [Changed("case", "the case changed")]) if is_first else []
            time = started_at.isoformat() if started_at else ""
            lines.append(RunLine(batch, time, profile or "", repeat or 0, status, score, reason or "", now))
        return lines

    def run_keys(self) -> dict[tuple[str, str], dict[str, str]]:
        """Return the run of each case that shows how it ended, the first that did not pass if there is one.

        By batch and profile, then by the id of the case.
        """
        rows = self._views.rows(
            f"""SELECT r.batch, coalesce(r.profile, ''), r.case_id,
                arg_min(r.key, {{'is_passed': coalesce(r.passed, true), 'number': r.number, 'repeat': r.repeat}})
            FROM runs r WHERE true {self._of_profile()} GROUP BY ALL""",
            [*filter(None, [self._request.profile])],
        )
        keys: dict[tuple[str, str], dict[str, str]] = {}
        for batch, profile, case_id, key in rows:
            keys.setdefault((batch, profile), {})[case_id] = key
        return keys

    def run_keys_of(self, case_id: str) -> dict[tuple[str, str, int], str]:
        """Return the runs of one case, by batch, profile and repeat."""
        query = "SELECT batch, coalesce(profile, ''), repeat, key FROM runs WHERE case_id = ? ORDER BY number DESC"
        return {(batch, profile, repeat): key for batch, profile, repeat, key in self._views.rows(query, [case_id])}

    # -- batches -------------------------------------------------------------------------------------

    def _points(self, results: dict[_CaseKey, list[CaseBatch]]) -> list[BatchPoint]:
        shares: dict[tuple[int, str], Shares] = {}
        runs: dict[tuple[int, str], int] = {}
        sums: dict[tuple[int, str], Sums] = {}
        before = [self._before(at) for at in range(len(self._rows))]
        rules = [row.pass_if for row in self._rows]
        for (profile, *_), record in results.items():
            last: CaseBatch | None = None
            for one in record:
                place = (one.batch, profile)
                runs[place] = runs.get(place, 0) + one.runs
                if not one.counted:
                    continue
                pass_if = rules[one.batch]
                if place not in shares:
                    shares[place] = Shares(pass_if)
                    sums[place] = Sums()
                count, counts = (one.passed, one.counted), shares[place].counts
                counts[count] = counts.get(count, 0) + 1
                if last is not None and last.batch == before[one.batch]:
                    base, now = _share(last, rules[last.batch]), _share(one, pass_if)
                    permuted = None
                    if last.counted != one.counted or (one.counted > 1 and pass_if is None):
                        permuted = permuted_variance(last.passed + one.passed, last.counted, one.counted)
                    sums[place].add(base, now, permuted)
                last = one
        places = [place for place, one in sums.items() if one.cases]
        steps = dict(zip(places, corrected([sums[place].figures(place[1]) for place in places]), strict=True))
        points = []
        for at, row in enumerate(self._rows):
            profiles = []
            for name in dict.fromkeys([*row.profiles, *(profile for batch, profile in runs if batch == at)]):
                if self._request.profile not in ("", name):
                    continue
                share = shares.get((at, name), Shares())
                low, high = (None, None) if is_partial(row) else share.bounds
                profiles.append(
                    ProfilePoint(
                        name, runs.get((at, name), 0), share.cases, share.pass_rate, low, high, steps.get((at, name))
                    )
                )
            points.append(
                BatchPoint(
                    row.batch,
                    row.path,
                    row.created_at or "",
                    row.status or "",
                    profiles,
                    self._changed(at),
                    is_partial(row),
                )
            )
        return points

    def _is_complete(self, at: int) -> bool:
        """Whether a batch is compared with others: a running one has only the first of its results."""
        return self._rows[at].status != "running" and not is_partial(self._rows[at])

    def _before(self, at: int) -> int | None:
        """Return the batch with which a batch is compared: the one just before it."""
        return at - 1 if at and self._is_complete(at) and self._is_complete(at - 1) else None

    def _changed(self, at: int) -> list[Changed]:
        """Return what differs from the batch before, in the words of a comparison."""
        if not at:
            return []
        before, now = self._batch(at - 1), self._batch(at)
        if not (self._models.get(before.id) and self._models.get(now.id)):
            # Without runs, the view does not tell which models they would have used.
            before, now = structs.replace(before, models={}), structs.replace(now, models={})
        both = [profile.name for profile in now.profiles if profile.name in {one.name for one in before.profiles}]
        changed = [
            Changed(_WORDS.get(one.what) or one.what.rpartition(".")[2], one.text)
            for one in differences(before, now, [(name, name) for name in both])
        ]
        for what, old, new in (
            ("judge", before.judge, now.judge),
            ("pass rule", self._rows[at - 1].pass_if, self._rows[at].pass_if),
        ):
            if old != new:
                changed.append(Changed(what, f"{what}: {old or 'none'} → {new or 'none'}"))
        return changed

    def _batch(self, at: int) -> Batch:
        """Return the configuration of a batch, as far as its row has it."""
        row = self._rows[at]
        models = self._models.get(row.batch, {})
        return Batch(
            row.batch,
            row.created_at or "",
            evalloom=row.evalloom or "",
            identity=row.identity or "",
            # Joined in the view; a change shows all the same.
            datasets=[DatasetFacts(row.dataset or "", row.dialect or "", row.dataset_digest or "")],
            target=row.target or "",
            target_digest=row.target_digest or "",
            profiles=[Profile(name, name) for name in row.profiles],
            models={name: models.get(name, "") for name in row.profiles},
            params=decoded(row.params),
            config=decoded(row.config),
            options=decoded(row.options),
            judge=row.judge or "",
        )

    @cached_property
    def _models(self) -> dict[str, dict[str, str]]:
        """The model of each profile of each batch; nothing for a batch without runs."""
        models: dict[str, dict[str, str]] = {}
        for batch, profile, model in self._views.rows("SELECT batch, profile, any_value(model) FROM runs GROUP BY ALL"):
            models.setdefault(batch, {})[profile] = model or ""
        return models

    # -- cases ---------------------------------------------------------------------------------------

    def _of_profile(self) -> str:
        return "AND r.profile = ?" if self._request.profile else ""

    def _results(self, case_id: str = "") -> dict[_CaseKey, list[CaseBatch]]:
        """Return the results of each case under each profile, batch by batch."""
        digests = {row.dataset_digest for row in self._rows}
        # What a case expects can differ only where the dataset does.
        expected = "hash(c.expected::VARCHAR)" if len(digests) > 1 else "0"
        join = "LEFT JOIN cases c USING (batch, case_id, number)" if len(digests) > 1 else ""
        selected = "AND r.case_id = ?" if case_id else ""
        rows = self._views.rows(
            f"""WITH r AS (
                SELECT r.batch, r.profile, r.case_id, r.number, r.repeat, r.key, r.passed, {expected} AS expected,
                    -- A cached answer, or a run copied from another batch, says nothing new.
                    row_number() OVER same_run = 1 AND (coalesce(r.cached, 0) = 0 OR row_number() OVER same_key = 1)
                        AS is_fresh
                FROM runs r JOIN batches b USING (batch) {join} WHERE true {self._of_profile()} {selected}
                WINDOW same_run AS (PARTITION BY r.key, r.started_at ORDER BY b.created_at, r.batch),
                    same_key AS (PARTITION BY r.key ORDER BY b.created_at, r.batch)
            )
            SELECT batch, profile, case_id, number, count(*), count(*) FILTER (passed), count(passed),
                count(*) FILTER (passed AND is_fresh), count(passed) FILTER (is_fresh), arg_min(key, repeat),
                any_value(expected)
            FROM r GROUP BY batch, profile, case_id, number""",
            [*filter(None, [self._request.profile]), *filter(None, [case_id])],
        )
        places = self._places
        rows.sort(key=lambda row: (places[row[0]], row[3] or 0))
        judges = [row.judge for row in self._rows]
        results: dict[_CaseKey, list[CaseBatch]] = {}
        for batch, profile, id, _, runs, passed, counted, fresh_passed, fresh, key, expects in rows:
            at = places[batch]
            result = CaseBatch(at, runs, passed, counted, fresh_passed, fresh, (key, expects, judges[at]))
            occurrence = 0
            # Cases of one id are told apart by their order.
            while (record := results.setdefault((profile or "", id, occurrence), [])) and record[-1].batch == at:
                occurrence += 1
            record.append(result)
        return results

    def _cases(self, results: dict[_CaseKey, list[CaseBatch]]) -> tuple[list[CaseHistory], int, int]:
        """Return the record of each case of the newest batch, and how many have none, or no run that counts."""
        complete = [at for at, row in enumerate(self._rows) if row.status != "running"]
        newest = next(
            (at for at in reversed(complete) if self._rows[at].status == "finished"), max(complete, default=0)
        )
        keys, absent, not_counted = [], 0, 0
        for key, record in results.items():
            if record[-1].batch < newest:
                absent += 1
            elif not any(one.counted for one in record if one.batch in complete):
                not_counted += 1
            else:
                keys.append(key)
        finished = set(complete)
        records = [[one for one in results[key] if one.counted and one.batch in finished] for key in keys]
        names = self._names()
        cases = [
            self._case(key, results[key], conclusion, names.get(key[1], ("", "", None)))
            for key, conclusion in zip(keys, conclude(records, max(complete, default=0)), strict=True)
        ]
        return cases, absent, not_counted

    def _case(
        self, key: _CaseKey, record: list[CaseBatch], conclusion: Conclusion, named: tuple[str, str, int | None]
    ) -> CaseHistory:
        profile, id, _ = key
        description, file, line = named
        is_unnamed = _DIGEST.fullmatch(id) is not None
        place = f"{PurePath(file).name}:{line}" if file and line else ""
        changed = {one.batch for one in _changes(record)}
        in_a_row = 0
        for one in reversed([one for one in record if one.counted]):
            if one.passed < one.counted:
                break
            in_a_row += 1
        return CaseHistory(
            id,
            profile,
            (description or place or id) if is_unnamed else id,
            file,
            line,
            conclusion.kind,
            sum(one.passed for one in record),
            sum(one.counted for one in record),
            [BatchMark(one.batch, one.passed, one.counted, one.runs, one.batch in changed) for one in record],
            "" if conclusion.since is None else self._rows[conclusion.since].batch,
            conclusion.is_after_change,
            conclusion.direction,
            conclusion.chance,
            conclusion.flake_rate,
            in_a_row,
        )

    def _names(self) -> dict[str, tuple[str, str, int | None]]:
        """Return the newest description and place of each case."""
        rows = self._views.rows(
            """SELECT c.case_id, arg_max(coalesce(c.description, ''), b.created_at),
                arg_max(coalesce(c.file, ''), b.created_at), arg_max(coalesce(c.line, 0), b.created_at)
            FROM cases c JOIN batches b USING (batch) GROUP BY c.case_id"""
        )
        return {id: (description, file, line or None) for id, description, file, line in rows}


_CaseKey = tuple[str, str, int]
"""A profile, the id of a case, and which of the cases with this id."""


def _share(result: CaseBatch, pass_if: float | None) -> float:
    if pass_if is None:
        return result.passed / result.counted
    return float(meets((result.passed, result.counted), pass_if))


def _changes(record: Sequence[CaseBatch]) -> list[CaseBatch]:
    """Return the results before which the fingerprint of their case changed."""
    return [now for before, now in pairwise(record) if before.fingerprint != now.fingerprint]
