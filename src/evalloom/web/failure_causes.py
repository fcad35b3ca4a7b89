"""The causes of the failures of a batch as filters: each has an id, and a condition finds its runs.

The view of a batch lists causes as `evalloom stats` does. Which cause a failure has is decided in Python, once for each
step, check and reason without its numbers, and stored in a table beside the views, so that SQL can find its runs.
"""

from __future__ import annotations

from msgspec import Struct

from evalloom.analysis.causes import Cause, cause_key
from evalloom.analysis.stats import Stats, cause_pattern
from evalloom.analysis.views import Views
from evalloom.core.digest import digest_text

_ID_BYTES = 4
_REASON = "coalesce(reason, error, '')"
_KEY = f"""coalesce(step, '') AS step, coalesce("check", '') AS "check",
    {cause_pattern(_REASON)} AS pattern"""
IN_CAUSE = f"""status IN ('failed', 'error') AND key IN (
    SELECT failures.key FROM (SELECT key, {_KEY} FROM runs WHERE status IN ('failed', 'error')) AS failures
    JOIN failure_causes USING (step, "check", pattern) WHERE failure_causes.cause = ?)"""
"""The condition for the runs of a cause, by its id; it needs `create_table`."""


class NamedCause(Struct, frozen=True):
    """A cause of failures, with the id that an address names it by."""

    id: str
    step: str
    check: str
    reason: str
    """With `…` for what differs."""
    count: int
    cases: int
    example: str


def named_causes(stats: Stats) -> list[NamedCause]:
    """Return the causes of a batch, the most frequent first."""
    return [
        NamedCause(_id(cause), cause.step, cause.check, cause.reason, cause.count, len(cause.cases), cause.example)
        for cause in stats.causes
    ]


def create_table(views: Views) -> None:
    """Create the table that `IN_CAUSE` reads."""
    rows = views.rows(f"""
        SELECT step, "check", pattern, any_value(example) FROM (SELECT {_KEY}, {_REASON} AS example
            FROM runs WHERE status IN ('failed', 'error')) GROUP BY ALL LIMIT 100000""")
    ids = [digest_text("\0".join(cause_key(step, check, example)), _ID_BYTES) for step, check, _, example in rows]
    with views.connection.cursor() as cursor:
        cursor.execute('CREATE OR REPLACE TABLE failure_causes (step TEXT, "check" TEXT, pattern TEXT, cause TEXT)')
        columns = [[row[at] for row in rows] for at in range(3)]
        # As lists: one statement for all rows, because each costs as much as a small query.
        cursor.execute(
            f"INSERT INTO failure_causes SELECT {', '.join(['unnest(?::TEXT[])'] * 4)}",
            [*columns, ids],
        )


def _id(cause: Cause) -> str:
    return digest_text("\0".join(cause_key(cause.step, cause.check, cause.reason)), _ID_BYTES)
