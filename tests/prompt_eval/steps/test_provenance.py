"""The state of an artifact: whether its file is there, was edited, or has sources that changed."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from evalloom.core.errors import EvalloomError
from evalloom.prompt_eval.folder import Folder, read_records
from evalloom.prompt_eval.steps.provenance import Artifact, Provenance, load, load_for_step, save_flags, write_artifact

pytestmark = pytest.mark.req("EVAL-1")
ROWS = [{"test_id": "TC001", "TP1_score": 3}]


def written(folder: Folder) -> Artifact:
    artifact = load_for_step(folder, "score", folder.scored, "source", redo=False)
    write_artifact(artifact, Provenance("source", batch="b1"), ROWS, print)
    return load(folder, "score", folder.scored, "source")


def test_a_written_artifact_is_fresh_with_its_provenance(tmp_path: Path) -> None:
    artifact = written(Folder(tmp_path))
    assert (artifact.state, artifact.provenance.batch, artifact.needs_rebuild) == ("fresh", "b1", False)


@pytest.mark.parametrize(("is_there", "is_edited", "source", "redo"), [*product((True, False), repeat=4)])
def test_every_state(is_there: bool, is_edited: bool, source: bool, redo: bool, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    written(folder)
    if is_edited:
        folder.scored.write_text('[{"test_id": "TC001", "TP1_score": 1}]', "utf-8")
    if not is_there:
        folder.scored.unlink()
    new_source = "source" if source else "another source"
    expected = "missing" if not is_there else "edited" if is_edited else "fresh" if source else "stale"
    assert load(folder, "score", folder.scored, new_source).state == expected
    if expected == "edited" and not source and not redo:
        with pytest.raises(EvalloomError, match=r"\[edited_by_hand\]"):
            load_for_step(folder, "score", folder.scored, new_source, redo)
        return
    artifact = load_for_step(folder, "score", folder.scored, new_source, redo)
    assert artifact.needs_rebuild == (redo or expected in ("missing", "stale"))
    assert artifact.is_outdated == (expected == "stale" and not redo)


def test_a_file_that_evalloom_did_not_write_counts_as_edited(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.scored.write_text("[]", "utf-8")
    artifact = load_for_step(folder, "score", folder.scored, "source", redo=False)
    assert (artifact.state, artifact.provenance, artifact.needs_rebuild) == ("edited", Provenance(), False)


def test_an_edited_artifact_stays_edited_until_redo(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    written(folder)
    folder.scored.write_text("[]", "utf-8")
    for redo, expected in ((False, "edited"), (True, "fresh")):
        artifact = load_for_step(folder, "score", folder.scored, "source", redo)
        write_artifact(artifact, Provenance("source"), ROWS, print)
        assert load(folder, "score", folder.scored, "source").state == expected


def test_flags_are_saved_and_added_to(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert save_flags(folder, {}) == {} and not (tmp_path / ".evalloom").exists()
    save_flags(folder, {"llm": "a", "judge": "b"})
    assert save_flags(folder, {"llm": "c"}) == save_flags(folder, {}) == {"llm": "c", "judge": "b"}


def test_a_file_is_parsed_once_until_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "test_cases.json"
    path.write_text("[]", "utf-8")
    first = read_records(path)
    assert read_records(path) is first
    path.write_text("{}", "utf-8")
    assert read_records(path) is not first
