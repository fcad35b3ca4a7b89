"""The built-in retriever: documents under a folder, cut, indexed and found by words, by vectors, or by both."""

from evalloom.retrieval.folder import Unread
from evalloom.retrieval.fusion import fused
from evalloom.retrieval.index import Explained, Index, Refreshed, Term, open_index
from evalloom.retrieval.minilm import LocalEmbedder
from evalloom.retrieval.taking import IndexOptions, Progress, quiet
from evalloom.retrieval.words import words

__all__ = [
    "Explained",
    "Index",
    "IndexOptions",
    "LocalEmbedder",
    "Progress",
    "Refreshed",
    "Term",
    "Unread",
    "fused",
    "open_index",
    "quiet",
    "words",
]
