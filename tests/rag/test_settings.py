"""The section `rag` of evalloom.yaml: what is searched when no flag says otherwise, and every error in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalloom import catalog, settings
from evalloom.core.errors import EvalloomError
from evalloom.rag.settings import MODES, SECTION, RagSettings


def load(text: str, folder: Path) -> RagSettings:
    (folder / "evalloom.yaml").write_text(text, encoding="utf-8")
    return settings.load(folder / "evalloom.yaml", catalog.load().sections).section(SECTION)


def test_the_section_is_read(tmp_path: Path) -> None:
    text = "llms: {vectors: {model: m}}\nrag: {root: docs, k: 3, mode: hybrid, embeddings: vectors, chunk: 60, overlap: 0}\n"
    assert load(text, tmp_path) == RagSettings(f"{tmp_path}/docs", "builtin", 3, "hybrid", "vectors", 60, 0)
    retriever = {"http": "http://localhost:1/find", "headers": {"X-Team": "red"}}
    assert (
        load("rag: {retriever: {http: 'http://localhost:1/find', headers: {X-Team: red}}}\n", tmp_path).retriever
        == retriever
    )
    assert load("rag: {embeddings: local}\n", tmp_path).embeddings == "local"


@pytest.mark.parametrize("text", ["judge:\n", "rag:\n", "rag: {k: null, root: null}\n"])
def test_without_it_the_folder_of_the_file_is_searched(text: str, tmp_path: Path) -> None:
    assert load(text, tmp_path) == RagSettings(root=tmp_path.as_posix())


def test_without_a_file_this_folder_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings.load().section(SECTION) == RagSettings()


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("{roots: docs}", "rag.roots: unknown key. Did you mean 'root'?"),
        ("{k: 0}", "rag.k: expected 1 or more, got 0"),
        ("{overlap: -1}", "rag.overlap: expected 0 or more, got -1"),
        ("{mode: dens}", "rag.mode: expected bm25, dense, hybrid, got 'dens'. Did you mean 'dense'?"),
        ("{retriever: 5}", "rag.retriever: expected a string or an object, got 5"),
        ("{embeddings: vectors}", "rag.embeddings: there is no llm 'vectors'."),
    ],
)
def test_every_error_has_its_place(written: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(EvalloomError) as error:
        load(f"rag: {written}\n", tmp_path)
    assert error.value.code == "bad_settings"
    assert "evalloom.yaml:1:" in str(error.value) and told in str(error.value)


def test_the_schema_names_every_field_and_mode() -> None:
    keys = settings.schema((SECTION,))["$defs"]["RagSettings"]["properties"]
    assert list(keys) == list(RagSettings.__struct_fields__)
    assert keys["mode"]["enum"] == list(MODES)
