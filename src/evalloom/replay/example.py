"""The part of the demo on context recipes and run records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from evalloom.engine.example import Example, ExampleFile, Part, PartResult, Suite

if TYPE_CHECKING:
    from evalloom.engine.system import Catalog


def _replay(catalog: Catalog, examples: Path, home: Path) -> PartResult:
    from evalloom.replay.demo import replay

    return replay(catalog, examples, home)


EXAMPLE = Example(
    suites=(Suite("replay", passed=10, failed=2, unscored=2),),
    files=(ExampleFile("replay/rows.jsonl", "replay"),),
    parts=(
        Part(
            title="A context recipe, replayed",
            heading="A context recipe, replayed: a record of every row, with a digest that shows changes",
            key="replays",
            run=_replay,
        ),
    ),
)
