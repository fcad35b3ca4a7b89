"""What a retriever found: expected files and folders, and expected passages."""

from __future__ import annotations

import unicodedata
from typing import Any

from evalloom.matchers.matcher import Grade, Matcher, Seen, bad_option, graded, number_of, show, text_of, threshold_of
from evalloom.model import Check

_PATH_FIELDS = ("path", "source", "file", "id", "uri", "url", "name", "title", "doc_id", "document_id")
_TEXT_FIELDS = ("text", "content", "page_content", "passage", "chunk")


def is_hit(expected: str, source: str) -> bool:
    """Whether a source is the expected file, or lies in the expected folder; a path may be written from further up."""
    wanted, given = _parts(expected), _parts(source)
    if not wanted or not given:
        return False
    if given[-len(wanted) :] == wanted:
        return True
    # An ancestor: the folder's parts stand together, before the last part of the source.
    return any(given[at : at + len(wanted)] == wanted for at in range(len(given) - len(wanted)))


def _parts(path: str) -> list[str]:
    """The parts of a path; a line or section behind `#` is none of them."""
    plain = unicodedata.normalize("NFC", path).replace("\\", "/").partition("#")[0]
    return [part for part in plain.split("/") if part not in ("", ".")]


def _source_hit(check: Check, seen: Seen) -> Grade:
    wanted = check.expected if isinstance(check.expected, list | tuple) else [check.expected]
    if not wanted or not all(isinstance(item, str | int) and not isinstance(item, bool) for item in wanted):
        return bad_option("expected", "a list of sources", check.expected)
    sources = [name for item in _items(seen.value) for name in _names(item)]
    top = check.options.get("top_k", len(sources))
    if number_of(top) is None or top < 0:
        return bad_option("top_k", "a number of sources", top)
    sources = sources[: int(top)]
    lacking = [item for item in wanted if not any(is_hit(str(item), source) for source in sources)]
    found = f"found {len(wanted) - len(lacking)} of {len(wanted)}"
    if lacking:
        found += f"; missing {show(lacking, 120)} among the sources {show(sources, 120)}"
    return _hit(check, 1 - len(lacking) / len(wanted), found)


def _hit(check: Check, share: float, found: str) -> Grade:
    """Any one source is a hit, unless `all: true` or a threshold on their share asks for more."""
    is_all = check.options.get("all") is True
    if not is_all and check.options.get("threshold") is None:
        return Grade(share > 0, reason=found)
    least = 1.0 if is_all else threshold_of(check, 1.0)
    if least is None:
        return bad_option("threshold", "a share between 0 and 1", check.options["threshold"])
    return Grade(share >= least - 1e-9, share, found)


def _items(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def _names(item: Any) -> list[str]:
    """What a source may be called: a text itself, or the fields of an object that name it, also inside metadata."""
    if isinstance(item, str | int) and not isinstance(item, bool):
        return [str(item)]
    if not isinstance(item, dict):
        return []
    names = [str(item[field]) for field in _PATH_FIELDS if isinstance(item.get(field), str | int)]
    return names or _names(item.get("metadata"))


def _context_recall(check: Check, seen: Seen) -> Grade:
    wanted = check.expected if isinstance(check.expected, list | tuple) else [check.expected]
    if not wanted or not all(isinstance(item, str) and item.strip() for item in wanted):
        return bad_option("expected", "a list of passages", check.expected)
    threshold = threshold_of(check, 1.0)
    if threshold is None:
        return bad_option("threshold", "a share between 0 and 1", check.options.get("threshold"))
    found = [_one_line(_passage(item)) for item in _items(seen.value)]
    lacking = [text for text in wanted if not any(_one_line(text) in passage for passage in found)]
    grade = graded(1 - len(lacking) / len(wanted), threshold, "share of the passages found")
    return Grade(grade.passed, grade.score, f"{grade.reason}; missing {show(lacking, 120)}") if lacking else grade


def _passage(item: Any) -> str:
    if isinstance(item, dict):
        return next((item[field] for field in _TEXT_FIELDS if isinstance(item.get(field), str)), text_of(item))
    return text_of(item)


def _one_line(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())


MATCHERS = (
    Matcher("source_hit", "an expected file or folder is among the sources", _source_hit),
    Matcher("context_recall", "the expected passages stand in the sources", _context_recall),
)
