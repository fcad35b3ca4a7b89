"""`--deep` of a file that several processes read gives exactly what it gives in one piece."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evalloom import catalog
from evalloom.core.model import Finding
from evalloom.data.dataset import Dataset
from evalloom.data.mapping import parse_mapping
from evalloom.data.validate import parallel
from evalloom.data.validate.deep import deep_findings
from evalloom.files.source import source_of


def qa(question: str, answer: str, *tags: str, **more: Any) -> str:
    record = {"variables": {"question": question}, "_expected": {"equals": answer, **more}, "_tags": list(tags)}
    return json.dumps(record, ensure_ascii=False)


PLAIN = [qa(f"What does the store in {city} sell?", f"things of {city}", "shop") for city in ("Rome", "Oslo", "Kyiv")]
LINES = [
    *PLAIN,
    qa("How do I reset my password when the mail never comes?", "see the help page", "account"),
    qa("Which colour has the sky above the sea?", "blue", "account"),
    qa("Is the cheese of the moon yellow today?", "any", "shop", regex=".*"),
    *(qa(f"Tell me about the river {name}", f"the long river {name}", "acount") for name in ("Seine",)),
    qa("how do I reset my pasword when the mail never comes", "see the help page", "account"),
    qa(
        "How many apples are there? The answer is forty two apples in a basket, as we all know so well",
        "forty two apples",
    ),
    *PLAIN[:2],
    qa("Which colour has the sky above the sea?", "green", "account"),
    "{broken",
    "3",
    qa("Is the cheese of the moon yellow today?", "any", "shop", regex=".*"),
]
CODES = {"near_duplicate", "contradicting_expectations", "check_cannot_fail", "answer_in_input", "tag_typo"}


def both(
    path: Path, size: int, monkeypatch: pytest.MonkeyPatch, **how: Any
) -> tuple[list[Finding], list[Finding], str]:
    """The findings of ranges of this size, those of one piece, and how the ranges ended."""
    ended: list[str] = []
    map_ranges: Callable[..., Iterator[Any]] = parallel.map_ranges

    def watched(*arguments: Any) -> Iterable[Any]:
        try:
            yield from map_ranges(*arguments)
            ended.append("complete")
        except parallel.NotLines:
            ended.append("not lines")
            raise

    with monkeypatch.context() as patch:
        patch.setattr(parallel, "RANGE_BYTES", size)
        patch.setattr(parallel, "_WORTH_IT", 0)
        patch.setattr(parallel, "map_ranges", watched)
        ranged = list(deep_findings(Dataset(source_of(path), catalog.load().formats, **how)))
    whole = list(deep_findings(Dataset(source_of(path), catalog.load().formats, **how)))
    return ranged, whole, "".join(ended)


@pytest.mark.parametrize("size", [100, 333, 1_500, 100_000])
def test_ranges_give_what_one_piece_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(LINES), encoding="utf-8")
    ranged, whole, ended = both(path, size, monkeypatch)
    assert ranged == whole
    assert {finding.code for finding in whole} == CODES
    assert ended == "complete"


@pytest.mark.parametrize("size", [100, 333, 1_500])
def test_a_record_over_several_ranges_repeats_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    path = tmp_path / "cases.jsonl"
    printed = json.dumps(json.loads(LINES[3]), indent=300)
    path.write_text("\n".join([*LINES[:12], *LINES[-1:], printed, *LINES[:5]]), encoding="utf-8")
    ranged, whole, ended = both(path, size, monkeypatch)
    assert ranged == whole
    assert ended == "not lines"


def test_mapped_fields_are_read_in_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cases.jsonl"
    lines = [json.dumps({"q": f"What is the capital of {land}?", "a": "unclear"}) for land in ("Peru", "Chad", "Peru")]
    path.write_text("\n".join(lines), encoding="utf-8")
    mapping = parse_mapping("variables.question=q,_expected.equals=a")
    ranged, whole, ended = both(path, 60, monkeypatch, mapping=mapping)
    assert ranged == whole
    assert [(finding.code, finding.origin.line) for finding in whole] == [("near_duplicate", 3)]
    assert ended == "complete"
