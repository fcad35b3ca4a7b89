"""The section `rag` of evalloom.yaml: the defaults of the flags of `evalloom rag`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta, Struct

from evalloom.core.model import Record
from evalloom.settings.section import Count, PositiveInt, Section

Mode = Literal["bm25", "dense", "hybrid"]
MODES: tuple[str, ...] = get_args(Mode)
LOCAL_EMBEDDINGS = "local"
"""The name of the embedding model on this machine."""
_RETRIEVER = "builtin, python:module:function or http:URL; an object as for `target`, e.g. with headers."


class RagSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Defaults of the flags of `evalloom rag`, under the same names."""

    root: Annotated[str, Meta(description="The folder of the documents, relative to this file's folder.")] = "."
    retriever: Annotated[str | Record, Meta(description=_RETRIEVER)] = "builtin"
    k: Annotated[PositiveInt, Meta(description="How many passages are retrieved.")] = 5
    mode: Annotated[Mode, Meta(description="How the built-in retriever searches.")] = "bm25"
    embeddings: Annotated[str, Meta(description="local, or an llm; for the modes dense and hybrid.")] = ""
    chunk: Annotated[PositiveInt, Meta(description="Characters of a passage.")] = 800
    overlap: Annotated[Count, Meta(description="Characters that a passage shares with the next.")] = 100


def _resolve_root(settings: RagSettings, folder: Path) -> RagSettings:
    return msgspec.structs.replace(settings, root=(folder / settings.root).as_posix())


SECTION = Section(
    name="rag",
    description="The defaults of the flags of `evalloom rag`.",
    struct=RagSettings,
    llms=("embeddings",),
    local=(LOCAL_EMBEDDINGS,),
    resolve=_resolve_root,
)
