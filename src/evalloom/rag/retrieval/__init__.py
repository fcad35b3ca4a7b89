"""The built-in retriever: indexes the documents of a folder, and searches by BM25, by vectors, or by both."""

from evalloom.rag.retrieval.folder import Unread
from evalloom.rag.retrieval.index import Explained, Index, Refreshed, Term, fused, open_index
from evalloom.rag.retrieval.ingest import IndexOptions, Progress, quiet
from evalloom.rag.retrieval.minilm import LocalEmbedder
from evalloom.rag.retrieval.words import words

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
