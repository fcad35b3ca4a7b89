"""The section `rag` of evalloom.yaml: the defaults of the flags of `evalloom rag`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from evalloom.core.model import Record
from evalloom.settings.form import COUNT, POSITIVE, TEXT
from evalloom.settings.section import Section

MODES = ("bm25", "dense", "hybrid")
LOCAL_EMBEDDINGS = "local"
"""The name of the embedding model on this machine."""


class RagSettings(Struct, frozen=True):
    """Defaults of the flags of `evalloom rag`, under the same names."""

    root: str = "."
    retriever: str | Record = "builtin"
    """A string, or an object as for `target`: `{http: URL, headers: …}`."""
    k: int = 5
    mode: Literal["bm25", "dense", "hybrid"] = "bm25"
    embeddings: str = ""
    chunk: int = 800
    overlap: int = 100


def _load(written: Record, folder: Path) -> RagSettings:
    return msgspec.convert({**written, "root": (folder / written.get("root", ".")).as_posix()}, RagSettings)


SECTION = Section(
    name="rag",
    description="What `evalloom rag` searches when no flag says otherwise.",
    keys={
        "root": TEXT | {"description": "The folder of the documents, from this file's folder."},
        "retriever": {
            "type": ["string", "object"],
            "description": "builtin, python:module:function or http:URL; an object as for `target`, e.g. with headers.",
        },
        "k": POSITIVE | {"description": "How many passages are asked for."},
        "mode": {"type": "string", "enum": [*MODES], "description": "How the built-in retriever searches."},
        "embeddings": TEXT | {"description": "local, or an llm; for the modes dense and hybrid."},
        "chunk": POSITIVE | {"description": "Characters of a passage."},
        "overlap": COUNT | {"description": "Characters that a passage shares with the next."},
    },
    load=_load,
    llms=("embeddings",),
    local=(LOCAL_EMBEDDINGS,),
)
