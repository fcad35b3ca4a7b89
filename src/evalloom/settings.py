"""`evalloom.yaml` beside the data: for now, which datasets there are."""

from __future__ import annotations

from pathlib import Path

from evalloom.errors import usage_error
from evalloom.files.read import RowReader
from evalloom.files.rows import Row
from evalloom.files.source import source_of
from evalloom.model import quote

FILE_NAME = "evalloom.yaml"


def find_datasets(folder: Path = Path()) -> list[str]:
    """The datasets that evalloom.yaml names, as paths from the working folder."""
    path = folder / FILE_NAME
    if not path.is_file():
        raise usage_error("no_paths", f"name a file or a folder; there is no {FILE_NAME} here that names datasets")
    rows = list(RowReader(source_of(path)))
    faults = [row for row in rows if not isinstance(row, Row)]
    if faults:
        raise usage_error("bad_settings", f"{path.as_posix()}:{faults[0].place.line}: {faults[0].message}")
    settings = rows[0].value if rows and isinstance(rows[0], Row) else None
    datasets = settings.get("datasets") if isinstance(settings, dict) else None
    if not isinstance(datasets, list) or not all(isinstance(name, str) for name in datasets) or not datasets:
        raise usage_error(
            "bad_settings", f"{path.as_posix()}: datasets: expected a list of paths, got {quote(datasets)}"
        )
    return [(folder / name).as_posix() for name in datasets]
