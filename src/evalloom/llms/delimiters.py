"""Delimits material in a prompt by marks that it cannot contain, so that nothing in it passes for an instruction."""

from __future__ import annotations

from evalloom.core.digest import sha256_hex
from evalloom.core.lazy import lazy_pattern

__all__ = ["block", "mark_for", "mostly_chinese"]

_HAN = lazy_pattern(r"[\u3400-\u9fff]")
_LATIN = lazy_pattern(r"[A-Za-z]+")


def mark_for(text: str) -> str:
    """Return a mark that the text does not contain; it derives from the text, so that equal prompts stay equal."""
    mark = sha256_hex(text.encode("utf-8", "surrogatepass"))[:12]
    while mark in text:
        mark = sha256_hex(mark.encode())[:12]
    return mark


def block(name: str, mark: str, text: str) -> str:
    """Return a text between tags that carry the mark."""
    return f"<{name} {mark}>\n{text}\n</{name} {mark}>"


def mostly_chinese(text: str) -> bool:
    """Return whether a text has at least as many Chinese characters as Latin words."""
    text = text[:2000]
    han = len(_HAN.findall(text))
    return han > 0 and han >= len(_LATIN.findall(text))
