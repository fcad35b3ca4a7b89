"""RAG eval cases: retrieval and answers, and the names that users import."""

from __future__ import annotations

from evalloom.core.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from evalloom.core.ranking import Passage, is_hit, measures, rank, sources_in_order
    from evalloom.rag.retrieval import IndexOptions, open_index, words

__all__ = ["IndexOptions", "Passage", "is_hit", "measures", "open_index", "rank", "sources_in_order", "words"]
__getattr__ = lazy_names(
    __name__,
    {
        "evalloom.core.ranking": ("Passage", "is_hit", "measures", "rank", "sources_in_order"),
        "evalloom.rag.retrieval": ("IndexOptions", "open_index", "words"),
    },
)
