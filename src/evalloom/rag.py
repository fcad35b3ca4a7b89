"""Door for people who test RAG systems."""

from evalloom.ranking import Passage, is_hit, measures, rank, sources_in_order
from evalloom.retrieval import IndexOptions, open_index, words

__all__ = ["IndexOptions", "Passage", "is_hit", "measures", "open_index", "rank", "sources_in_order", "words"]
