"""HOP batch tests: one flat object per line, and the two wrappers of their result files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec

from evalloom.core.contract import Contract
from evalloom.core.model import Case, Check, Origin, Outcome, Record, Remark, error, warning
from evalloom.core.text import describe, did_you_mean, quote
from evalloom.data.cells import read_cells
from evalloom.data.conversion import ConversionNotes, output_field
from evalloom.data.dialect import INTEGER, TEXT, Dialect, PlainFields, Rules, Written, json_schema
from evalloom.data.formats import Formats

DIFFICULTIES = ("easy", "medium", "hard")
OWN_FIELDS = ("id", "tag", "description", "difficulty", "hop_result", "hop_stats", "profile", "_type")
"""The format's own fields; together with `expected_*` they never reach the function (HOP-2)."""

RESULT_FIELDS = ("hop_result", "hop_stats", "profile")
"""The fields that a result row in the flat wrapper adds to its case (HOP-6)."""

_OWN = frozenset(OWN_FIELDS)
_META_FIELDS = ("profile", "hop_result", "hop_stats", "result", "error")
_ANY_DIFFICULTY = (None, *DIFFICULTIES)
_NOT_PLAIN = frozenset(("hop_result", "hop_stats", "_type", "input"))
"""Fields that a plain case does not have: those of results, of meta lines and of the View wrapper."""


def is_view_row(record: Record) -> bool:
    """Return whether a record uses the View wrapper of the web page: `input` with `result` or `error` (HOP-7)."""
    return isinstance(record.get("input"), dict) and ("result" in record or "error" in record)


def normalize_input(record: Record) -> Record:
    """Return the case inside a record. Idempotent, so running an output file again nests nothing (HOP-3)."""
    return record["input"] if is_view_row(record) else record


def is_meta(record: Record) -> bool:
    return record.get("_type") == "meta"


def is_result(record: Record) -> bool:
    """Return whether a row is a result, in either wrapper."""
    return "hop_result" in record or "hop_stats" in record or is_view_row(record)


def inputs_of(record: Record, contract: Contract | None = None) -> Record:
    """Return the inputs of the function: the contract's fields, or all fields the format does not reserve (HOP-2)."""
    case = normalize_input(record)
    if contract is not None:
        return {name: case[name] for name in contract.inputs if name in case}
    return {name: value for name, value in case.items() if name not in _OWN and not name.startswith("expected_")}


def normalize_audit(record: Record) -> Record | None:
    """Normalize a result row of either wrapper to `{case, result, error, stats, profile}` (HOP-14).

    Return None for meta lines and for rows without a result.
    """
    if is_meta(record) or not is_result(record):
        return None
    stats = record.get("hop_stats") if isinstance(record.get("hop_stats"), dict) else {}
    case = normalize_input(record)
    status, result = _unpack(record.get("result" if is_view_row(record) else "hop_result"))
    failure = record.get("error") if is_view_row(record) else (stats or {}).get("error")
    if status == "FAIL" and not failure:
        # A failed result holds the reason in place of the value.
        result, failure = None, result
    if not is_view_row(record):
        case = {name: value for name, value in case.items() if name not in RESULT_FIELDS}
    return {
        "case": case,
        "result": result,
        "error": failure,
        "stats": {"hop_status": status, **(stats or {})} if status else stats,
        "profile": record.get("profile"),
    }


def unpack_result(packed: Any) -> Any:
    """Decode a result: JSON text (also encoded twice), `[status, json]`, a plain value, or raw text."""
    return _unpack(packed)[1]


def _unpack(packed: Any) -> tuple[str, Any]:
    """Return the status packed into a result, if any, and the value."""
    status = ""
    for depth in range(3):
        if isinstance(packed, list) and len(packed) == 2 and packed[0] in get_args(Outcome):
            status, packed = packed
        # Inner texts are decoded only if they were encoded twice: the text "2024" stays a text.
        if not isinstance(packed, str) or (depth and not packed.lstrip().startswith(("{", "[", '"'))):
            break
        try:
            packed = msgspec.json.decode(packed)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            break
    return status, packed


def sniff(record: Record) -> str:
    if is_meta(record):
        return "it has '_type': 'meta'"
    if "hop_result" in record:
        return "it has 'hop_result'"
    if is_view_row(record):
        return "it has 'input' and 'result' or 'error'"
    return ""


def sniff_input(record: Record) -> str:
    """Recognize a case by an integer `id` and a `tag`; tried after dialects with stronger evidence."""
    is_int = isinstance(record.get("id"), int) and not isinstance(record.get("id"), bool)
    return "it has an integer 'id' and a 'tag'" if is_int and "tag" in record else ""


def identity(record: Record) -> str | int | None:
    """Return the id. In result files ids are unique per profile; View rows have none."""
    case_id = normalize_input(record).get("id")
    if not isinstance(case_id, int) or isinstance(case_id, bool):
        return None
    if "hop_result" in record or "hop_stats" in record:
        stats = record.get("hop_stats")
        repeat = stats.get("repeat") if isinstance(stats, dict) else None
        return f"{case_id} of profile {record.get('profile')}" + (f", repeat {repeat}" if repeat else "")
    return None if is_view_row(record) else case_id


def _is_clean(record: Record, rules: Rules) -> bool:
    """Return whether a record is a valid plain case, and no contract applies."""
    tag = record.get("tag")
    return (
        rules.contract is None
        and type(record.get("id")) is int
        and type(tag) is str
        and not tag.isspace()
        and tag != ""
        and record.get("difficulty") in _ANY_DIFFICULTY
        and type(record.get("description", "")) is str
        and not _NOT_PLAIN & record.keys()
        and any(name not in _OWN and not name.startswith("expected_") for name in record)
    )


def are_clean(records: list[Record], rules: Rules) -> bool:
    return all(_is_clean(record, rules) for record in records)


_PLAIN = PlainFields({"id": INTEGER, "tag": TEXT, "difficulty": f'(?:"(?:{"|".join(DIFFICULTIES)})"|null)'})


def findings(record: Record, rules: Rules) -> Iterator[Remark]:
    """Check a case against HOP-1, and a result row against HOP-6 and HOP-7."""
    if is_meta(record):
        profile = record.get("profile")
        if not isinstance(profile, str):
            yield warning("bad_meta", ("profile",), f"profile: expected a string, got {describe(profile)}")
        return
    case = normalize_input(record)
    at: tuple[str, ...] = ("input",) if case is not record else ()
    has_result = is_result(record)
    if has_result:
        yield from _result_findings(record)
    if "id" not in case:
        if not has_result:
            yield error("missing_field", at, "id: missing; every case needs an integer id")
    elif not isinstance(case["id"], int) or isinstance(case["id"], bool):
        yield error("bad_id", (*at, "id"), f"id: expected an integer, got {describe(case['id'])}")
    if "tag" not in case:
        if not has_result:
            yield error("missing_field", at, "tag: missing; every case needs a tag to be grouped by")
    elif not isinstance(case["tag"], str) or not case["tag"].strip():
        yield error("bad_tag", (*at, "tag"), f"tag: expected a string that is not blank, got {describe(case['tag'])}")
    difficulty = case.get("difficulty")
    if difficulty is not None and difficulty not in DIFFICULTIES:
        hint = did_you_mean(difficulty, DIFFICULTIES) if isinstance(difficulty, str) else ""
        message = f"difficulty: expected easy, medium or hard, got {describe(difficulty)}{hint}"
        yield error("unknown_difficulty", (*at, "difficulty"), message)
    description = case.get("description")
    if description is not None and not isinstance(description, str):
        message = f"description: expected a string, got {describe(description)}"
        yield error("bad_description", (*at, "description"), message)
    if rules.contract is not None:
        yield from _contract_findings(case, at, rules.contract)
    elif not inputs_of(record):
        yield warning("no_inputs", at, "no input field, so the function receives nothing")


def _contract_findings(case: Record, at: tuple[str, ...], contract: Contract) -> Iterator[Remark]:
    for name, field in contract.inputs.items():
        if name not in case:
            if field.required:
                undeclared = [key for key in case if key not in contract.inputs and key not in _OWN]
                hint = did_you_mean(name, undeclared)
                yield error("missing_field", at, f"{name}: missing; the contract requires {field.type}{hint}")
        elif not field.accepts(case[name]):
            message = f"{name}: expected {field.type} by the contract, got {describe(case[name])}"
            yield error("contract_type_mismatch", (*at, name), message)
    for key, value in case.items():
        if key.startswith("expected_") and contract.outputs:
            name = key.removeprefix("expected_")
            if name not in contract.outputs:
                from difflib import get_close_matches

                guess = get_close_matches(name, list(contract.outputs), 1)
                hint = f". Did you mean 'expected_{guess[0]}'?" if guess else ""
                message = f"{key}: the contract has no output field {name!r}{hint}"
                yield error("unknown_expected_field", (*at, key), message)
            elif not contract.outputs[name].accepts(value):
                message = f"{key}: expected {contract.outputs[name].type} by the contract, got {describe(value)}"
                yield error("contract_type_mismatch", (*at, key), message)


def _result_findings(record: Record) -> Iterator[Remark]:
    stats = record.get("hop_stats")
    if stats is not None and not isinstance(stats, dict):
        yield error("bad_hop_stats", ("hop_stats",), f"hop_stats: expected an object, got {describe(stats)}")
    elif isinstance(stats, dict) and stats.get("status") not in (None, "OK", "ERROR"):
        message = f"hop_stats.status: expected OK or ERROR, got {describe(stats['status'])}"
        yield error("bad_hop_stats", ("hop_stats", "status"), message)
    if "hop_result" in record and not isinstance(record["hop_result"], str):
        message = f"hop_result: expected JSON as a string, got {describe(record['hop_result'])}; it is read anyway"
        yield warning("hop_result_not_string", ("hop_result",), message)
    packed = record.get("hop_result", record.get("result"))
    if isinstance(packed, str) and isinstance(unpack_result(packed), str) and unpack_result(packed) == packed:
        message = f"the result is not JSON and is kept as text: {quote(packed)}"
        yield warning("result_not_json", ("hop_result" if "hop_result" in record else "result",), message)


def to_case(record: Record, origin: Origin) -> Case:
    """Convert a record to a case with one equality check per `expected_<field>`."""
    case = normalize_input(record)
    checks = tuple(
        Check("equals", value, where_of(key.removeprefix("expected_")))
        for key, value in case.items()
        if key.startswith("expected_") and key != "expected_"
    )
    tag = case.get("tag")
    meta: Record = {name: case[name] for name in ("description", "difficulty") if name in case}
    if is_result(record):
        meta |= {name: record[name] for name in _META_FIELDS if name in record}
    return Case(
        id=str(case["id"]) if "id" in case else "",
        inputs=inputs_of(record),
        checks=checks,
        tags=(tag,) if isinstance(tag, str) else (),
        meta=meta,
        raw=record,
        origin=origin,
    )


def same_case(record: Record) -> tuple[str, str]:
    """Return a key for the case of a flat result row, and its profile (HOP-3).

    The key has id and inputs only, because an expectation may have been corrected for one profile only.
    """
    if is_view_row(record) or not is_result(record):
        return "", ""
    return json.dumps([record.get("id"), inputs_of(record)], sort_keys=True), f"{record.get('profile')}"


def fit(case: Case, contract: Contract) -> Case:
    """Restrict the inputs of a case to the contract's fields, even if one has a reserved name (HOP-2)."""
    return msgspec.structs.replace(case, inputs=inputs_of(case.raw, contract))


def where_of(field: str) -> str:
    """Return the location of an output field; `output` is the whole output."""
    return "output" if field == "output" else f"output.{field}"


def canonical(record: Record) -> Record:
    """Convert a row of either wrapper to the flat wrapper (HOP-6)."""
    if not is_view_row(record) or "hop_result" in record:
        return record
    other_fields = {name: value for name, value in record.items() if name not in ("input", "result", "error")}
    stats = {"status": "ERROR", "error": record["error"]} if "error" in record else {"status": "OK"}
    return {**record["input"], **other_fields, "hop_result": record.get("result", "null"), "hop_stats": stats}


def write(case: Case, number: int) -> Written:
    """Write a case as a flat HOP record: inputs beside `id` and `tag`, equalities as `expected_<field>`."""
    notes = ConversionNotes(case)
    has_number = case.id.isdecimal() and len(case.id) < 19
    if not has_number:
        notes.add("id: ids are integers here, so cases are numbered")
    if not case.tags:
        notes.add("tag: the case has none, so its tag is 'untagged'")
    notes.drop_tags_except(*case.tags[:1])
    record: Record = {"id": int(case.id) if has_number else number, "tag": (*case.tags, "untagged")[0]}
    for name in ("description", "difficulty"):
        if name in case.meta:
            record[name] = case.meta[name]
    notes.drop_meta_except("description", "difficulty", "profile")
    for name, value in case.inputs.items():
        if name in OWN_FIELDS or name.startswith("expected_"):
            notes.add(f"input: {name} is a reserved name here")
        else:
            record[name] = value
    for check in case.checks:
        if (field := output_field(check)) is not None:
            record[f"expected_{field}"] = check.expected
        else:
            notes.check(check)
    return Written(record, notes.notes())


def schema() -> Record:
    return json_schema(
        "HOP test case",
        {
            "id": {"type": "integer", "description": "Unique and increasing"},
            "tag": {"type": "string", "minLength": 1, "description": "The group this case is counted in"},
            "description": {"type": "string"},
            "difficulty": {"enum": list(DIFFICULTIES)},
        },
        ("id", "tag"),
        patternProperties={"^expected_.+": {"description": "The expected value of the output field of that name"}},
        additionalProperties={"description": "An input of the function"},
    )


def from_cells(row: dict[str, str]) -> Record:
    """Convert a table row to a record with an integer id."""
    record = read_cells(row)
    id = row.get("id", "")
    return {**record, "id": int(id)} if id.isdecimal() and len(id) < 19 else record


def contract_beside(path: Path) -> Contract | None:
    """Read the contract of a task folder: `Hoplet/metainfo.md` beside its `TestCases/`."""
    cases = path.absolute().parent
    metainfo = cases.parent / "Hoplet" / "metainfo.md"
    if cases.name != "TestCases" or not metainfo.is_file():
        return None
    # Imported lazily: few datasets are in a task folder.
    from evalloom.hop.contract import read_contract

    return read_contract(str(metainfo))


DIALECT = Dialect(
    name="hop",
    summary="HOP batch tests: id, tag, input fields, expected_<field>; result files in both wrappers",
    sniff=sniff,
    findings=findings,
    are_clean=are_clean,
    plain_fields=lambda record: _PLAIN,
    to_case=to_case,
    identity=identity,
    has_row_numbers=True,
    write=write,
    canonical=canonical,
    schema=schema,
    is_case=lambda record: not is_meta(record),
    ids_increase=True,
    same_case=same_case,
    fit=fit,
    rank=10,
    weaker=((60, sniff_input),),
    from_cells=from_cells,
    contract_beside=contract_beside,
    is_result=is_result,
    expectations=("expected_<field>",),
)
FORMATS = Formats((DIALECT,))
"""Reads files as this dialect without detecting the format."""
