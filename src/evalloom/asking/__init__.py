"""How a question is put to an llm, and how its answer is read: what judges and operators have in common."""

from evalloom.asking.marks import block, mark_for, mostly_chinese

__all__ = ["block", "mark_for", "mostly_chinese"]
