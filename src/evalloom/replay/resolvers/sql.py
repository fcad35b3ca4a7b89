"""`sql://name`: the first cell of a query to a data source that the settings name."""

from __future__ import annotations

from evalloom.core.errors import CallError
from evalloom.core.text import did_you_mean, quote
from evalloom.replay.resolvers.call import Call
from evalloom.replay.resolvers.duck import query_duckdb
from evalloom.replay.resolvers.query import check_statement
from evalloom.replay.resolvers.sqlite import query_sqlite


def read_source(call: Call) -> str:
    """The first cell of the query in the value, from the named data source."""
    check_statement(call.value)
    source = call.reach.sources.get(call.target)
    if source is None:
        guess = (
            did_you_mean(call.target, call.reach.sources) or ". Name it under 'resolvers: sources:' in evalloom.yaml"
        )
        raise CallError("connect_failed", f"there is no data source {quote(call.target)}{guess}")
    if not source.path.is_file():
        # Not the whole path: those who may ask the service need not know where things lie on its machine.
        raise CallError("connect_failed", f"there is no file {quote(source.path.name)}")
    return query_duckdb(source.path, call) if source.kind == "duckdb" else query_sqlite(source.path, call)
