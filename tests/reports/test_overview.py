"""The figures that reports show beside the runs."""

from __future__ import annotations

from evalloom.reports.overview import histogram


def test_a_long_tail_leaves_the_other_values_their_columns() -> None:
    latencies = [10 + n % 10 for n in range(940)] + [100.0 + n for n in range(60)]
    columns = histogram(latencies)
    assert sum(column.runs for column in columns) == 1000 and columns[-1].runs == 60
    assert max(column.runs for column in columns) < 600


def test_a_short_tail_has_columns_of_its_own() -> None:
    columns = histogram([float(n) for n in range(100)])
    assert [column.runs for column in columns] == [20, 20, 20, 20, 20]
