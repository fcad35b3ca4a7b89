"""RAG eval cases: a query, the sources that should be found, the words that must be in the answer."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import chain
from operator import itemgetter
from pathlib import Path as FilePath
from typing import Any

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Case, Check, Origin, Record, Remark, error, warning
from evalloom.core.phrases import find_phrase, plain_width
from evalloom.core.ranking import file_of, with_slashes
from evalloom.core.text import describe, did_you_mean, quote
from evalloom.data.conversion import ConversionNotes, is_text_check
from evalloom.data.dialect import (
    LONGER_TEXT,
    TEXT,
    Dialect,
    Pairing,
    PlainFields,
    Rules,
    Written,
    json_schema,
    list_of,
    list_of_distinct,
)
from evalloom.data.mapping import Mapping, shared_fields
from evalloom.files.source import Refused, Source, read_chunks

BUCKETS = ("official", "oral", "ambiguous")
REQUIRED = ("id", "query", "expected_sources", "must_include")


def sniff(record: Record) -> str:
    if "query" not in record:
        return ""
    fields = [field for field in ("expected_sources", "must_include") if field in record]
    return f"it has 'query' and {fields[0]!r}" if fields else ""


def identity(record: Record) -> str | None:
    case_id = record.get("id")
    return case_id if isinstance(case_id, str) and case_id.strip() else None


def pair(record: Record) -> tuple[str, str] | None:
    pair_id = record.get("pair_id")
    bucket = "official" if record.get("bucket") is None else record["bucket"]
    if isinstance(pair_id, str) and pair_id.strip() and bucket in ("official", "oral"):
        return pair_id.strip(), bucket
    return None


def are_clean(records: list[Record], rules: Rules) -> bool:
    """Whether records are complete and plain, so that `findings` yields nothing; most records are.

    Column by column over many records, because that is several times faster than record by record.
    """
    if rules.check_sources_exist or rules.check_must_include_in_sources:
        return False
    try:
        ids, queries, sources, anchors, buckets, pairs = zip(*map(_CLEAN_FIELDS, records), strict=True)
        concepts = [record.get("concept_id", "-") for record in records]
        texts = list(map(str.strip, chain.from_iterable(anchors)))
        paths = "\n".join(chain([""], *sources))
        return (
            {*map(type, sources), *map(type, anchors)} == {list}
            and _BUCKETS.issuperset(buckets)
            and all(map(str.strip, ids))
            and all(map(str.strip, pairs))
            and all(map(str.strip, concepts))
            and min(map(len, map(str.strip, queries))) > 1
            and min(map(len, texts)) > 1
            and all(map(str.strip, chain.from_iterable(sources)))
            and all(sources)
            and all(len(set(entries)) == len(entries) > 0 for entries in anchors)
            and not any(mark in paths for mark in _UNUSUAL_IN_PATHS)
        )
    except (KeyError, TypeError, ValueError):
        return False


_DRIVE_OR_SCHEME = lazy_pattern(r"[A-Za-z]:|[A-Za-z][A-Za-z0-9+.-]*://")
_CLEAN_FIELDS = itemgetter("id", "query", "expected_sources", "must_include", "bucket", "pair_id")
_BUCKETS = frozenset(BUCKETS)
_UNUSUAL_IN_PATHS = ("..", ":", "\n/", "\\", "~", "\0")


_USUAL_PATH = r'"(?![\s"/])[^":~.\\]*+(?:\.(?!\.)[^":~.\\]*+)*"'
_PLAIN = PlainFields(
    {
        "id": TEXT,
        "query": LONGER_TEXT,
        "expected_sources": list_of(_USUAL_PATH),
        "must_include": list_of_distinct(LONGER_TEXT),
        "bucket": f'"(?:{"|".join(BUCKETS)})"',
        "pair_id": TEXT,
        "concept_id": TEXT,
    }
)


def findings(record: Record, rules: Rules) -> Iterator[Remark]:
    """Every error of RAG-2 and warning of RAG-3 that a single record can have."""
    for field in REQUIRED:
        if field not in record:
            yield from _missing_field(field, rules)
    if "id" in record and identity(record) is None:
        yield error("empty_id", ("id",), f"id: expected a string that is not blank, got {describe(record['id'])}")
    query = record.get("query", "??")
    if not isinstance(query, str) or len(query.strip()) < 2:
        yield error("bad_query", ("query",), f"query: expected a string of 2 or more characters, got {describe(query)}")
    if "expected_sources" in record:
        yield from _source_findings(record["expected_sources"], rules)
    if "must_include" in record and "must_include" not in rules.unused:
        yield from _anchor_findings(record["must_include"], rules)
        if rules.check_must_include_in_sources:
            yield from _anchors_not_in_sources(record, rules.root)
    yield from _bucket_findings(record, rules)


def _missing_field(field: str, rules: Rules) -> Iterator[Remark]:
    if not _is_optional(field, rules):
        yield error("missing_field", (), f"{field}: missing; every case needs it")
    elif field == "id":
        yield warning("missing_field", (), "id: missing; the case goes by its number")
    elif field not in rules.unused:
        yield warning("nothing_to_measure", (), f"{field}: there is none, so the case is run and counted apart")


def _is_optional(field: str, rules: Rules) -> bool:
    """Whether this command can run a case without a field that the format requires."""
    return rules.required is not None and field not in rules.required


def _bucket_findings(record: Record, rules: Rules) -> Iterator[Remark]:
    bucket = record.get("bucket")
    if bucket is None:
        message = "bucket: missing; taken as 'official'"
        yield Remark("missing_bucket_default", "error" if rules.strict_bucket else "warning", (), message)
        bucket = "official"
    elif bucket not in BUCKETS:
        hint = did_you_mean(bucket, BUCKETS) if isinstance(bucket, str) else ""
        expected = "expected official, oral or ambiguous"
        yield error("invalid_bucket", ("bucket",), f"bucket: {expected}, got {describe(bucket)}{hint}")
    pair_id = record.get("pair_id")
    if pair_id is None:
        if bucket in ("official", "oral"):
            message = f"pair_id: missing; an {bucket} case without one joins no oral/official pair"
            yield Remark("missing_pair_id", "error" if rules.strict_pair_id else "warning", (), message)
    elif not isinstance(pair_id, str):
        yield error("bad_pair_id", ("pair_id",), f"pair_id: expected a string, got {describe(pair_id)}")
    elif not pair_id.strip():
        message = "pair_id: is empty, so this case joins no oral/official pair"
        yield Remark("empty_pair_id", "error" if rules.strict_pair_id else "warning", ("pair_id",), message)
    concept = record.get("concept_id")
    if concept is not None:
        if not isinstance(concept, str):
            yield error("bad_concept_id", ("concept_id",), f"concept_id: expected a string, got {describe(concept)}")
        elif not concept.strip():
            yield warning("empty_concept_id", ("concept_id",), "concept_id: is empty; was it forgotten?")


def _source_findings(sources: Any, rules: Rules) -> Iterator[Remark]:
    if (sources is None or sources == []) and _is_optional("expected_sources", rules):
        yield from _missing_field("expected_sources", rules)
        return
    if not isinstance(sources, list) or not sources:
        message = f"expected_sources: expected a list with at least one path, got {describe(sources)}"
        yield error("bad_expected_sources", ("expected_sources",), message)
        return
    # A run that only checks how paths are written touches no file.
    opens_sources = rules.check_sources_exist or rules.check_must_include_in_sources
    for number, written in enumerate(sources):
        path, name = ("expected_sources", number), f"expected_sources[{number}]"
        if not isinstance(written, str) or not written.strip():
            yield error("bad_expected_sources", path, f"{name}: expected a path, got {describe(written)}")
            continue
        source = file_of(written)
        if _leaves_root(source) or (opens_sources and _resolves_outside(source, rules.root)):
            message = f"{name}: {quote(written)} is outside the root. Name it relative to --root"
            yield error("source_outside_root", path, message)
            continue
        if "\\" in written:
            message = f"{name}: a backslash is read as /; write {quote(with_slashes(written))}"
            yield warning("path_separator", path, message)
        if rules.check_sources_exist and (missing := _missing(source, rules.root)):
            code, message = missing
            yield error(code, path, f"{name}: {message}")


def _leaves_root(source: str) -> bool:
    """Whether a path as written is absolute or climbs out of the folder it is relative to."""
    if ".." not in source and source[:1] not in "/~" and ":" not in source and "\0" not in source:
        return False
    if _DRIVE_OR_SCHEME.match(source):
        return True
    parts = source.split("/")
    if parts[0] in ("", "~") or parts[0].endswith(":") or "\0" in source:
        return True
    depth = 0
    for part in parts:
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            return True
    return False


def _resolves_outside(source: str, root: FilePath) -> bool:
    """Whether a link in the path leads out of the root."""
    return not _resolved(source, root).is_relative_to(_resolved("", root))


@lru_cache(maxsize=65536)
def _resolved(source: str, root: FilePath) -> FilePath:
    # Not Path.resolve, which raises where links go round in a circle.
    return FilePath(os.path.realpath(root / source))


@lru_cache(maxsize=65536)
def _missing(source: str, root: FilePath) -> tuple[str, str] | None:
    """The code and message for a source that does not exist; a trailing slash means a folder."""
    path, is_folder = root / source, source.endswith("/")
    # os.path answers False where pathlib raises: a name too long, a folder that may not be entered.
    if os.path.isdir(path) if is_folder else os.path.isfile(path):
        return None
    hint = ""
    if os.path.exists(path):
        hint = ". It is a file: leave out the / at its end" if is_folder else ". It is a folder: write / at its end"
    what = "folder" if is_folder else "file"
    message = f"there is no {what} {quote(source)} under {quote(root.as_posix())}{hint}"
    return ("expected_dir_missing" if is_folder else "expected_file_missing"), message


def forget_sources() -> None:
    """Clear the caches, since sources may change between runs."""
    for cached in (_resolved, _missing, _source_text):
        cached.cache_clear()


def _anchor_findings(anchors: Any, rules: Rules) -> Iterator[Remark]:
    path = ("must_include",)
    if (anchors is None or anchors == []) and _is_optional("must_include", rules):
        yield from _missing_field("must_include", rules)
        return
    if not isinstance(anchors, list) or not anchors:
        message = f"must_include: expected a list with at least one string, got {describe(anchors)}"
        yield error("bad_must_include", path, message)
        return
    wrong = [number for number, anchor in enumerate(anchors) if not isinstance(anchor, str)]
    for number in wrong:
        message = f"must_include[{number}]: expected a string, got {describe(anchors[number])}"
        yield error("bad_must_include", (*path, number), message)
    texts = [(number, anchor) for number, anchor in enumerate(anchors) if isinstance(anchor, str)]
    written = Counter(text for _, text in texts if text.strip())
    if not written and not wrong:
        yield error("bad_must_include", path, "must_include: expected at least one string that is not blank")
        return
    for number, text in texts:
        if not text.strip():
            message = f"must_include[{number}]: is blank and will be ignored"
            yield warning("blank_must_include_entry", (*path, number), message)
        elif len(text.strip()) < 2:
            message = f"must_include[{number}]: {quote(text)} is under 2 characters, so almost any answer has it"
            yield warning("must_include_too_short", (*path, number), message)
    for text in (text for text, count in written.items() if count > 1):
        yield warning("must_include_duplicates", path, f"must_include: {quote(text)} is written more than once")


def _anchors_not_in_sources(record: Record, root: FilePath) -> Iterator[Remark]:
    sources, anchors = record.get("expected_sources"), record["must_include"]
    if not isinstance(sources, list) or not isinstance(anchors, list):
        return
    named = [file_of(source) for source in sources if isinstance(source, str) and source.strip()]
    files = [source for source in named if not source.endswith("/")]
    inside = [source for source in files if not _leaves_root(source) and not _resolves_outside(source, root)]
    texts = [text for source in inside if (text := _source_text(_resolved(source, root))) is not None]
    for number, anchor in enumerate(anchors):
        if not (texts and isinstance(anchor, str) and anchor.strip()):
            continue
        found = {find_phrase(text, plain_width(anchor)) for text in texts}
        path, name = ("must_include", number), f"must_include[{number}]: {quote(anchor)}"
        if found == {"no"}:
            yield warning("must_include_not_in_expected_sources", path, f"{name} is in none of the expected files")
        elif "yes" not in found:
            message = f"{name} is in the expected files only as part of a longer number, which does not count"
            yield warning("must_include_in_longer_number", path, message)


@cache
def _source_text(path: FilePath) -> str | None:
    """The text of a source in NFKC, read once for all cases that name it (RAG-6); None when it is not a text file."""
    for encoding in ("", "gb18030"):
        try:
            chunks = read_chunks(Source(path.as_posix(), path, encoding))
            return plain_width(b"".join(chunks).decode("utf-8", "replace"))
        except Refused as refusal:
            if refusal.problem.code != "not_utf8":
                return None
    return None


def to_case(record: Record, origin: Origin) -> Case:
    """A case whose answer must cite the sources and contain the anchors."""
    tags = [record.get("bucket") or "official", *_list(record.get("tags"))]
    sources = [source for source in _list(record.get("expected_sources")) if isinstance(source, str)]
    anchors = [text for text in _list(record.get("must_include")) if isinstance(text, str) and text.strip()]
    checks = (Check("source_hit", sources, "sources"), Check("contains_all", anchors, options={"whole_numbers": True}))
    return Case(
        id=str(record.get("id", "")),
        inputs={"query": record.get("query")},
        checks=tuple(check for check in checks if check.expected),
        tags=tuple(dict.fromkeys(tag for tag in tags if isinstance(tag, str))),
        meta={key: value for key, value in record.items() if key not in (*REQUIRED, "tags", "bucket")},
        raw=record,
        origin=origin,
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def write(case: Case, number: int) -> Written:
    """A case as a RAG eval case: query, sources and anchors; the format has no other expectations."""
    lost = ConversionNotes(case)
    query = case.inputs.get("query")
    if not isinstance(query, str):
        query = lost.only_text_input("query")
    else:
        lost.drop_inputs_except("query")
    sources, anchors = [], []
    for check in case.checks:
        if check.kind == "source_hit" and isinstance(check.expected, list):
            sources += check.expected
        elif is_text_check(check):
            anchors += check.expected if isinstance(check.expected, list) else [check.expected]
        else:
            lost.check(check)
    if not sources:
        lost.add("expected_sources: the case names no source, so the list is empty")
    if not anchors:
        lost.add("must_include: the case names no text that must be in the answer, so the list is empty")
    bucket = next((tag for tag in case.tags if tag in BUCKETS), None)
    others = [tag for tag in case.tags if tag not in BUCKETS]
    if not case.id:
        lost.add("id: the case has none, so cases are numbered")
    record = {
        "id": case.id or f"case-{number}",
        "query": query,
        "expected_sources": sources,
        "must_include": anchors,
        **({"bucket": bucket} if bucket else {}),
        **lost.meta_except(*REQUIRED, "tags"),
        **({"tags": others} if others else {}),
    }
    return Written(record, lost.notes())


def schema() -> Record:
    """The errors of `findings` for one record, as far as a schema can express them."""
    text = {"type": "string", "pattern": r"\S"}
    anchors = {"type": "array", "items": {"type": "string"}, "contains": text}
    optional = {"type": ["string", "null"]}
    return json_schema(
        "RAG eval case",
        {
            "id": {**text, "description": "Unique in the file"},
            "query": {"type": "string", "pattern": r"\S[\s\S]*\S", "description": "2 or more characters"},
            "expected_sources": {
                "type": "array",
                "minItems": 1,
                "items": text,
                "description": "Paths relative to the root; a trailing / means a folder",
            },
            "must_include": {**anchors, "description": "Texts that a good answer contains"},
            "bucket": {"enum": [*BUCKETS, None], "default": "official"},
            "pair_id": {**optional, "description": "Ties the oral and the official wording of one question"},
            "concept_id": optional,
        },
        REQUIRED,
    )


_ALIASES = {
    "query": ("question", "q", "user_input", "prompt", "ask", "query_text", "user_query", "Question", "Query", "问题"),
    "expected_sources": (
        "expected_docs",
        "expected_doc_ids",
        "expected_documents",
        "expected_document",
        "expected_files",
        "must_cite_docs",
        "relevant_docs",
        "gold_docs",
        "source_docs",
        "docs",
        "sources",
        "documents",
    ),
    "must_include": (
        "expected_keywords",
        "must_contain",
        "must_mention",
        "keywords",
        "key_points",
        "anchors",
        "required_terms",
    ),
}
"""Common names of these fields in other files."""


def mapping_from(sample: list[Record]) -> str:
    """The mapping that turns records into RAG eval cases; empty when they already are, or cannot be."""
    first, fields = sample[0], shared_fields(sample)
    aliases = {name: next((alias for alias in _ALIASES[name] if alias in fields), "") for name in _ALIASES}
    present = {name: name in first for name in _ALIASES}
    if not (present["query"] or aliases["query"]):
        return ""
    if not any(present[name] or aliases[name] for name in ("expected_sources", "must_include")):
        return ""
    renamed = [name for name in _ALIASES if aliases[name] and not present[name]]
    lists = frozenset((name,) for name in renamed if name != "query" and isinstance(first[aliases[name]], str))
    return str(Mapping({(name,): (aliases[name],) for name in renamed}, lists))


DIALECT = Dialect(
    name="rag",
    summary="RAG eval cases: query, expected_sources, must_include, bucket, pair_id",
    sniff=sniff,
    findings=findings,
    are_clean=are_clean,
    plain_fields=lambda record: _PLAIN,
    to_case=to_case,
    identity=identity,
    write=write,
    schema=schema,
    pairing=Pairing("pair_id", "bucket", ("official", "oral"), pair),
    rank=30,
    forget=forget_sources,
    is_open=True,
    mapping_from=mapping_from,
    expectations=("expected_sources", "must_include"),
)
