"""The part of the demo on context recipes and run records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from evalloom.engine.example import DemoPart, DemoPartResult, Example, ExampleFile

if TYPE_CHECKING:
    from evalloom.engine.system import Catalog


def _replay(catalog: Catalog, examples: Path, home: Path) -> DemoPartResult:
    from evalloom.replay.demo import replay

    return replay(catalog, examples, home)


EXAMPLE = Example(
    suites=("replay",),
    files=(ExampleFile("replay/rows.jsonl", "replay"),),
    parts=(
        DemoPart(
            title="A context recipe, replayed",
            heading="A context recipe, replayed: a record of every row, with a digest that shows changes",
            key="replays",
            run=_replay,
        ),
    ),
)
