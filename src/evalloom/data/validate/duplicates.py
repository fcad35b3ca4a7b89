"""Finds near-duplicate cases, and cases with the same inputs whose expectations contradict each other."""

from __future__ import annotations

import marshal
import unicodedata
from array import array
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from tempfile import SpooledTemporaryFile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Indel, Levenshtein

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Case, Check, Finding, Origin, Path, show_path
from evalloom.core.text import quote
from evalloom.data.validate.minhash import SHORTEST, SIGNATURE_SIZE, candidates, runs
from evalloom.data.validate.minhash import signatures as minhash_of

SIMILAR = 0.9
"""The lowest similarity of near-duplicates: rapidfuzz's normalized Indel similarity of the least similar field."""
PREFIXED = lazy_pattern(r"(contains|regex|semantic):")
"""Matches an expected text that is a pattern instead of the text itself."""

_SIGNED_TOGETHER = 1000
_META_INPUTS = (
    *("batch_items", "step_inputs", "parameters", "conditions", "depends_on"),
    *("context", "contexts", "retrieval_context", "retrieved_contexts", "actual_output", "response", "turns"),
    *("files", "setup", "sandbox", "prompts", "provider", "providers", "providerOutput", "options"),
)
"""Meta fields that distinguish cases: further inputs of the target, and recorded outputs."""
_PUNCTUATION = lazy_pattern(r"[^\w\s+*/=<>%^&|~$#@-]+")
_DISTINCTIONS = lazy_pattern(
    r"\d+|[一二三四五六七八九十百千万亿零两]+(?=[年月日号天周岁元个次名条章节级页楼层届期位件点分])|[不没无非未]"
    r"|\b(?:(?<!['’])[b-hj-z]|not?|never|none|without|except|(?:do|does|did|ca|wo|is|are|was|should)n'?t)\b"
)
"""Differences that people make on purpose: numbers, ids, single letters, negations."""
_SIGNS = lazy_pattern(r"[()\[\]{}+*/=<>^&|~]")
_PLACE = 12
"""The number of characters before a sign that say where it is."""
_FILLERS = lazy_pattern(
    r"\b(?:an?|the|my|your|our|please|is|are|was|do|does|did|will|can|could|would|should|how|to|i|we|you)\b|\s"
    r"|请问|请|您|你|我|吗|呢|啊|呀|吧|了|的|地|一下|如何|怎么样|怎么|怎样|什么|哪些|是否"
)
_SAME_WORD = 0.75
"""The lowest similarity of a word to its misspelling."""
_WORDS = lazy_pattern(r"[⺀-鿿豈-﫿぀-ヿ]|[^\W⺀-鿿豈-﫿぀-ヿ]+")


def leaves(value: Any) -> Iterator[tuple[Path, Any]]:
    """Yield each scalar and each empty list or object inside a value, with its path."""
    waiting: list[tuple[Path, Any]] = [((), value)]
    while waiting:
        path, node = waiting.pop()
        if isinstance(node, dict) and node:
            waiting.extend(((*path, str(key)), item) for key, item in reversed(node.items()))
        elif isinstance(node, list) and node:
            waiting.extend(((*path, number), node[number]) for number in range(len(node) - 1, -1, -1))
        else:
            yield path, node


def normalize(value: Any) -> str:
    """Normalize a scalar for comparison: ignore case, width, spacing and final punctuation."""
    if not isinstance(value, str):
        return str(int(value) if isinstance(value, float) and value.is_integer() else value)
    return _normalize_text(value)


@lru_cache(maxsize=64)
def _normalize_text(value: str) -> str:
    # The rules about one case normalize its texts several times.
    return " ".join(unicodedata.normalize("NFKC", value).casefold().split()).rstrip(" .?!。")


class _CaseSummary(NamedTuple):
    """The parts of a case that comparisons with other cases need."""

    id: str
    origin: Origin
    pair: tuple[str, str] | None
    texts: tuple[str, ...]
    accepts: dict[tuple[str, ...], frozenset[str]]

    def named_from(self, other: _CaseSummary) -> str:
        """Name this case in a message about `other`."""
        who = f"case {quote(self.id)}" if self.id else "the case"
        file = f"{self.origin.file}, " if self.origin.file != other.origin.file else ""
        column = f", column {self.origin.column}" if self.origin.line == other.origin.line else ""
        return f"{who} on {file}line {self.origin.line}{column}"

    def is_paired_with(self, other: _CaseSummary) -> bool:
        """Whether the two cases are two wordings of one question."""
        if self.pair is None or other.pair is None:
            return False
        return self.pair[0] == other.pair[0] and self.pair[1] != other.pair[1]


class CaseColumns:
    """Hashes and summaries of the cases of one block, in columns that pass quickly from process to process."""

    def __init__(self) -> None:
        self.summaries = bytearray()
        self.starts = array("q")
        self.lines = array("q")
        self.inputs = array("q")
        self.contents = array("q")
        self.expects = array("q")
        self.fingerprints = array("q")
        self.sizes = array("q")

    def add(self, case: Case, pair: tuple[str, str] | None = None) -> None:
        """Add a case; `pair` is the id of its pair and the side that the case is on."""
        paths, texts = _texts(case)
        if not any(texts):
            return
        text = "\n".join(texts)
        shape = hash(tuple(paths))
        expects = hash(tuple(sorted(map(_expectation, case.checks)))) if case.checks else 0
        # Punctuation does not count for similarity, but signs that change the meaning do.
        words = tuple(map(_without_punctuation, texts))
        origin = case.origin
        self.starts.append(len(self.summaries))
        self.lines.append(origin.line)
        accepts = dict(_acceptable(case.checks))
        # Version 2 has no references between equal texts, and is the faster for it.
        self.summaries += marshal.dumps((case.id, origin.file, origin.column, pair, words, accepts), 2)
        self.inputs.append(hash((shape, *texts)))
        self.contents.append(hash((shape, expects, *texts)))
        self.expects.append(expects)
        self.sizes.append(sum(map(len, words)))
        self.fingerprints.append(hash((shape, expects, *_DISTINCTIONS.findall(text), *signs_in_place(text))))


def signs_in_place(text: str) -> list[str]:
    """Return the signs of formulas and code, with the text in front of them.

    Gives what the pattern `.{0,12}` with a sign behind it finds, which would be tried at each character.
    """
    places: list[str] = []
    signs = [match.start() for match in _SIGNS.finditer(text)]
    end = 0
    for number, sign in enumerate(signs):
        if sign < end:
            continue
        start = max(end, sign - _PLACE, text.rfind("\n", end, sign) + 1)
        for further in signs[number + 1 : number + 1 + _PLACE]:
            if further > start + _PLACE or "\n" in text[sign:further]:
                break
            sign = further
        end = sign + 1
        places.append(text[start:end])
    return places


def _texts(case: Case) -> tuple[list[Path], list[str]]:
    """Return the paths of all values that make up the inputs of a case, and the values as normalized texts."""
    paths: list[Path] = []
    texts: list[str] = []
    further = {name: case.meta[name] for name in _META_INPUTS if name in case.meta}
    for part, fields in enumerate((case.inputs, further)):
        if not fields:
            paths.append((part,))
            texts.append("")
        for name, value in fields.items():
            if type(value) is str:
                paths.append((part, str(name)))
                texts.append(normalize(value))
                continue
            for path, leaf in leaves(value):
                paths.append((part, str(name), *path))
                texts.append("" if leaf in (None, {}, []) else normalize(leaf))
    return paths, texts


def _without_punctuation(text: str) -> str:
    return " ".join(_PUNCTUATION.sub(" ", text.replace("'", "").replace("’", "")).split())


class DuplicateIndex:
    """Indexes cases by hashes; their texts are in a temporary file, so that memory hardly grows."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(max_size=32 * 1024 * 1024)  # noqa: SIM115
        self._starts = array("q", [0])
        self._lines = array("q")
        self._inputs = array("q")
        self._contents = array("q")
        self._expects = array("q")
        self._fingerprints = array("q")
        self._sizes = array("q")

    def close(self) -> None:
        self._file.close()

    def extend(self, block: CaseColumns, lines: int) -> None:
        """Add the cases of a block that begins after `lines` lines."""
        start = self._starts.pop()
        self._file.seek(start)
        self._file.write(block.summaries)
        self._starts.extend(start + offset for offset in block.starts)
        self._starts.append(start + len(block.summaries))
        self._lines.extend(line + lines for line in block.lines)
        self._inputs += block.inputs
        self._contents += block.contents
        self._expects += block.expects
        self._fingerprints += block.fingerprints
        self._sizes += block.sizes

    def contradictions(self) -> Iterator[Finding]:
        """Yield cases with the inputs of an earlier case whose expectations no output can meet together."""
        for group in _groups(self._inputs):
            first_by_slot: dict[tuple[str, ...], tuple[frozenset[str], _CaseSummary]] = {}
            for index in group:
                case = self._load(index)
                for slot, accepted in case.accepts.items():
                    first, other = first_by_slot.setdefault(slot, (accepted, case))
                    if first.isdisjoint(accepted):
                        clash = _clash(slot, accepted, first)
                        message = f"has the same inputs as {other.named_from(case)}, but {clash}"
                        yield Finding("contradicting_expectations", "warning", message, case.origin, case_id=case.id)
                        break

    def duplicates(self) -> Iterator[Finding]:
        """Yield cases that repeat an earlier case, each with the most similar one."""
        repeated = set()
        for group in _groups(self._contents):
            first = self._load(group[0])
            for index in group[1:]:
                repeated.add(index)
                case = self._load(index)
                if not case.is_paired_with(first):
                    message = f"has the same inputs and expectations as {first.named_from(case)} (similarity 1.00)"
                    yield Finding("near_duplicate", "warning", message, case.origin, case_id=case.id)
        nearest: dict[int, tuple[float, int]] = {}
        for other, index, similarity in self._near_pairs(repeated):
            nearest[index] = max(nearest.get(index, (0.0, 0)), (similarity, -other))
        for index, (similarity, other) in sorted(nearest.items()):
            case = self._load(index)
            named = f"{self._load(-other).named_from(case)} (similarity {similarity:.2f})"
            message = f"has the same expectations and almost the same inputs as {named}"
            yield Finding("near_duplicate", "warning", message, case.origin, case_id=case.id)

    def _near_pairs(self, repeated: set[int]) -> Iterator[tuple[int, int, float]]:
        """Yield (earlier, later, similarity) for similar inputs that do not look intended."""
        is_new = np.ones(len(self._inputs), np.bool_)
        is_new[list(repeated)] = False
        expects = np.frombuffer(self._expects, np.int64)
        shared_expects, uses = np.unique(expects[is_new], return_counts=True)
        pairs_only = set(shared_expects[uses == 2].tolist())
        fingerprints, sizes = (np.frombuffer(column, np.int64) for column in (self._fingerprints, self._sizes))
        remaining = _shared(fingerprints, np.flatnonzero(is_new))
        signatures = self._signatures(remaining)
        is_signed = signatures[:, 0] != 0
        remaining, signatures = remaining[is_signed], signatures[is_signed]
        load = lru_cache(maxsize=1024)(self._load)
        for first, second in candidates(signatures, fingerprints[remaining], sizes[remaining]):
            earlier, later = int(remaining[first]), int(remaining[second])
            first_case, second_case = load(earlier), load(later)
            similarity = _similarity(first_case.texts, second_case.texts)
            if similarity < SIMILAR or first_case.is_paired_with(second_case):
                continue
            # An expectation that more cases share is a label: then a different word makes a different case.
            is_particular = self._expects[later] != 0 and self._expects[later] in pairs_only
            if is_particular or not _differ_in_words(first_case.texts, second_case.texts):
                yield earlier, later, similarity

    def _signatures(self, indexes: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Return the signatures of some cases."""
        blocks = [np.empty((0, SIGNATURE_SIZE), np.uint32)]
        for start in range(0, len(indexes), _SIGNED_TOGETHER):
            some = indexes[start : start + _SIGNED_TOGETHER].tolist()
            blocks.append(minhash_of(["\n".join(self._load(index).texts) for index in some]))
        return np.concatenate(blocks)

    def _load(self, index: int) -> _CaseSummary:
        start, end = self._starts[index], self._starts[index + 1]
        self._file.seek(start)
        id, file, column, pair, texts, accepts = marshal.loads(self._file.read(end - start))
        return _CaseSummary(id, Origin(file, self._lines[index], column), pair, texts, accepts)


def _shared(keys: NDArray[np.int64], indexes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return those of the indexes whose key another of them has too, in order."""
    order = indexes[np.argsort(keys[indexes], kind="stable")]
    _, sizes = runs(keys[order])
    return np.sort(order[np.repeat(sizes > 1, sizes)])


def _expectation(check: Check) -> int:
    """Return a hash of what a check expects."""
    expected = check.expected
    # Most expectations are a text or a few; others are compared by what is in them and how it is written.
    if type(expected) is str:
        value: Any = ("text", expected)
    elif type(expected) is list and expected and all(type(item) is str for item in expected):
        value = ("texts", *expected)
    else:
        value = ("value", repr(list(leaves(expected))))
    return hash((check.kind, check.where, check.name, value, _written(check.options) if check.options else ""))


def _written(options: Mapping[str, Any]) -> str:
    """Return a text that is the same for the same options, whatever their order."""
    if any(isinstance(value, dict | list) for value in options.values()):
        return repr(sorted(map(repr, leaves(dict(options)))))
    return repr(sorted(map(repr, options.items())))


def _similarity(left: tuple[str, ...], right: tuple[str, ...]) -> float:
    """Return the similarity of the least similar field: a long prompt in one field must not hide the others."""
    lowest = 1.0
    for first, second in zip(left, right, strict=True):
        if first != second:
            if min(len(first), len(second)) < SHORTEST:
                return 0.0
            lowest = min(lowest, Indel.normalized_similarity(first, second, score_cutoff=SIMILAR))
    return lowest


def _differ_in_words(left: tuple[str, ...], right: tuple[str, ...]) -> bool:
    """Whether a word is replaced by a different one: more than a typo, an addition or a filler word."""
    for first, second in zip(left, right, strict=True):
        if first == second:
            continue
        words, others = _WORDS.findall(first), _WORDS.findall(second)
        steps = [step for step in Levenshtein.opcodes(words, others) if step.tag != "equal"]
        changes = [(words[step.src_start : step.src_end], others[step.dest_start : step.dest_end]) for step in steps]
        changes.append(([word for old, _ in changes for word in old], [word for _, new in changes for word in new]))
        for old, new in changes:
            removed, added = _FILLERS.sub("", _joined(old)), _FILLERS.sub("", _joined(new))
            if removed and added and Indel.normalized_similarity(removed, added) < _SAME_WORD:
                return True
    return False


def _joined(words: list[str]) -> str:
    return " ".join(words) if words and words[0].isascii() else "".join(words)


def _groups(keys: array[int]) -> list[list[int]]:
    """Return the groups of two or more indexes that share a key, ordered by first index."""
    hashes = np.frombuffer(keys, np.int64)
    order = np.argsort(hashes, kind="stable")
    starts, sizes = runs(hashes[order])
    several = zip(starts[sizes > 1].tolist(), sizes[sizes > 1].tolist(), strict=True)
    return sorted(order[start : start + size].tolist() for start, size in several)


# -- expectations that exclude each other ---------------------------------------------------------


def _acceptable(checks: Iterable[Check]) -> Iterator[tuple[tuple[str, ...], frozenset[str]]]:
    """Yield the accepted answers of each check that two different answers cannot both meet."""
    for check in checks:
        is_negated = bool(check.options.get("negate"))
        texts = texts_of(check.expected)
        if check.kind == "contains" or check.kind == ("contains_any" if is_negated else "contains_all"):
            verdict = frozenset(["no" if is_negated else "yes"])
            yield from ((("contains", check.where, text), verdict) for text in texts)
        elif is_negated:
            continue
        elif check.kind == "one_of" or (check.kind == "equals" and isinstance(check.expected, str)):
            yield ("answer", check.where), frozenset(map(normalize, texts))
        elif check.kind == "source_hit" and texts:
            yield ("answer", check.where), frozenset(texts)
        elif check.kind in ("equals", "structural"):
            for path, value in leaves(check.expected):
                is_loose = bool(check.options.get("tolerance")) and isinstance(value, int | float)
                is_loose = is_loose or value in ({}, []) or (isinstance(value, str) and bool(PREFIXED.match(value)))
                if not is_loose:
                    yield ("answer", show_path((check.where, *path))), frozenset([normalize(value)])


def texts_of(expected: Any) -> list[str]:
    """Return the texts in an expectation that is a text or a list."""
    return [text for text in (expected if isinstance(expected, list) else [expected]) if isinstance(text, str)]


def _clash(slot: tuple[str, ...], accepted: frozenset[str], first: frozenset[str]) -> str:
    if slot[0] == "contains":
        here, there = ("must", "must not") if "yes" in accepted else ("must not", "must")
        return f"{quote(slot[2])} {here} be in the answer here and {there} be in it there"
    return f"{slot[1]} should be {_any_of(accepted)} here and {_any_of(first)} there"


def _any_of(answers: frozenset[str]) -> str:
    return " or ".join(quote(answer) for answer in sorted(answers)[:3])
