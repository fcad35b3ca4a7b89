"""`evalloom.open`: batches as DuckDB relations, for scripts and notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from evalloom import catalog
from evalloom.analysis.views import VIEWS, open_views
from evalloom.batchlog import FOLDER
from evalloom.core.text import did_you_mean, pluralize
from evalloom.core.verbs import Warn, verb, warn_caller
from evalloom.engine.frames import relation_to_pandas, relation_to_polars

if TYPE_CHECKING:
    import pandas
    import polars
    from duckdb import DuckDBPyConnection, DuckDBPyRelation


class OpenBatches:
    """Some batches, opened for queries. Every view is an attribute: `.runs`, `.verdicts`, `.cases` …

    Close it, or use it in a `with` block. Relations are lazy, and read the files when they are shown or fetched.
    """

    def __init__(self, paths: list[str | Path], warn: Warn) -> None:
        self._paths = paths
        self._views = open_views(paths, catalog.load_for_python(), warn)

    @property
    def connection(self) -> DuckDBPyConnection:
        """The connection to DuckDB, for everything else that it can do, such as `register`."""
        return self._views.connection

    def sql(self, query: str) -> DuckDBPyRelation:
        """Return the result of a query over the views as a DuckDB relation."""
        return self.connection.sql(query)

    def __getattr__(self, view: str) -> DuckDBPyRelation:
        if view not in VIEWS:
            hint = did_you_mean(view, VIEWS) or f". The views are {', '.join(VIEWS)}"
            raise AttributeError(f"there is no view {view!r}{hint}")
        return self._views[view]

    def df(self, query: str = "runs") -> pandas.DataFrame:
        """Return a view or the result of a query as a pandas DataFrame."""
        return relation_to_pandas(self._relation(query))

    def pl(self, query: str = "runs") -> polars.DataFrame:
        """Return a view or the result of a query as a polars DataFrame."""
        return relation_to_polars(self._relation(query))

    def close(self) -> None:
        """Close the connection; relations cannot be used any more."""
        self._views.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *VIEWS]

    def __repr__(self) -> str:
        shown = ", ".join(repr(str(path)) for path in self._paths)
        counts = {name: self._views.rows(f"SELECT count(*) FROM {name}")[0][0] for name in VIEWS}
        width = max(map(len, VIEWS))
        lines = [f"  {name:{width}}  {pluralize(count, 'row')}" for name, count in counts.items()]
        return "\n".join([f"<evalloom.open({shown})", *lines]) + ">"

    def _relation(self, query: str) -> DuckDBPyRelation:
        return self._views[query] if query in VIEWS else self.sql(query)


@verb()
def open(path: str | Path | Iterable[str | Path] = FOLDER, *, warn: Warn | None = None) -> OpenBatches:
    """Open batches for queries: one by its path, its id or 'latest'; a folder of batches, or of HOP result files.

    `evalloom.open("latest").sql("select status, count(*) from runs group by all")` is a DuckDB relation, and
    `.df()` a pandas DataFrame of the runs. `warn` gets a message for each line of a log that cannot be read; without
    it, they are Python warnings.
    """
    return OpenBatches([path] if isinstance(path, str | Path) else list(path), warn_caller(warn))
