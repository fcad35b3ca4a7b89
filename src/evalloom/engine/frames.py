"""Results as DataFrames of pandas and polars, which are optional."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalloom.core.errors import EvalloomError

if TYPE_CHECKING:
    import pandas
    import polars
    from duckdb import DuckDBPyRelation

    from evalloom.engine.system import Catalog

_RUNS = "SELECT * FROM runs ORDER BY batch, profile, number, repeat"


class _ArrowStream:
    """The rows of a relation as an Arrow stream, and nothing else of it.

    polars keeps the type of what it reads in a cache until the end of the process, where DuckDB reports its own types
    as leaked, on 40 lines of stderr.
    """

    def __init__(self, relation: DuckDBPyRelation) -> None:
        self._relation = relation

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._relation.__arrow_c_stream__(requested_schema)


def relation_to_pandas(relation: DuckDBPyRelation) -> pandas.DataFrame:
    """Return the rows of a relation as a pandas DataFrame."""
    _require("pandas")
    return relation.df()


def relation_to_polars(relation: DuckDBPyRelation) -> polars.DataFrame:
    """Return the rows of a relation as a polars DataFrame."""
    _require("polars")
    import polars

    # Not `relation.pl()`, which needs pyarrow; polars reads an Arrow stream itself.
    return polars.DataFrame(_ArrowStream(relation))


def runs_to_pandas(path: Path, catalog: Catalog) -> pandas.DataFrame:
    """Return one row for each run of a batch, with the columns of the view `runs`."""
    from evalloom.analysis.views import open_views

    _require("pandas")
    with open_views(path, catalog) as views:
        return relation_to_pandas(views.connection.sql(_RUNS))


def runs_to_polars(path: Path, catalog: Catalog) -> polars.DataFrame:
    """Return the same as a polars DataFrame."""
    from evalloom.analysis.views import open_views

    _require("polars")
    with open_views(path, catalog) as views:
        return relation_to_polars(views.connection.sql(_RUNS))


def rows_to_pandas(columns: Sequence[str], rows: list[list[Any]]) -> pandas.DataFrame:
    """Return rows as a pandas DataFrame."""
    _require("pandas")
    import pandas

    return pandas.DataFrame(rows, columns=list(columns))


def rows_to_polars(columns: Sequence[str], rows: list[list[Any]]) -> polars.DataFrame:
    """Return rows as a polars DataFrame."""
    _require("polars")
    import polars

    return polars.DataFrame(rows, schema=list(columns), orient="row", infer_schema_length=None)


def _require(package: str) -> None:
    if find_spec(package) is None:
        message = f"a {package} DataFrame needs {package}. Run: pip install 'evalloom[{package}]'"
        raise EvalloomError("extra_missing", message)
