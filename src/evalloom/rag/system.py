"""RAG eval cases: everything that the system adds to evalloom, in one value."""

from __future__ import annotations

from evalloom.engine.system import System
from evalloom.rag.batches import BATCH_KIND
from evalloom.rag.dialect import BUCKETS, DIALECT
from evalloom.rag.settings import SECTION

SYSTEM = System(
    name="rag",
    title="RAG eval cases",
    dialects=(DIALECT,),
    sections=(SECTION,),
    batch_kinds=(BATCH_KIND,),
    buckets=BUCKETS,
)
