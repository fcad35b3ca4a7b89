"""prompt-eval test cases: one prompt's inputs by category, scored 1 to 3 on test points."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Case, Check, Origin, Record, Remark, error, warning
from evalloom.core.text import describe, did_you_mean
from evalloom.data.cells import read_cell
from evalloom.data.conversion import ConversionNotes
from evalloom.data.dialect import Dialect, Expanded, Rules, Written, json_schema
from evalloom.data.formats import Formats
from evalloom.data.wrapper import records_under, wraps_records
from evalloom.files.rows import Problem

CATEGORIES = ("happy_path", "rule_check", "boundary", "error_case", "safety", "i18n", "qualitative")
SUBCATEGORIES = ("safety_sexual", "safety_political", "safety_violence", "safety_prohibited", "safety_injection")
EVAL_TYPES = ("quantitative", "qualitative", "safety")
_TEST_ID = lazy_pattern(r"TC(?!000$)([0-9]{3}|[1-9][0-9]{3,})")
_SCORE = lazy_pattern(r"(TP\w*)_score")
_DIGITS = lazy_pattern("[0-9]+")
FIELDS = ("test_id", "test_category", "test_subcategory", "eval_type", "test_description", "input")
"""The fields of a case in every step, in this order."""
_RAW = ("input", "result_aftertest")
TEXTS = ("result_aftertest", "result_preview")
"""Fields that are texts even if they look like JSON."""
_SHORTENED = ("input_summary", "result_preview", "run_status")
_RESULTS = ("results", "scored_results", "test_results")


def sniff(record: Record) -> str:
    return "it has 'test_id' and 'test_category'" if "test_id" in record and "test_category" in record else ""


def is_table_row(record: Record) -> bool:
    """Whether a record is a row of the table, which has only previews of inputs and results."""
    return all(name in record for name in _SHORTENED) and not any(name in record for name in _RAW)


def expand(document: Record) -> Expanded | None:
    """Return the cases of a document that contains them as results, possibly beside a summary."""
    if sniff(document) or wraps_records(document):
        return None
    for name in _RESULTS:
        items = document.get(name)
        if not isinstance(items, list):
            continue
        for item in items:
            if isinstance(item, dict) and "test_id" in item and ("test_category" in item or test_points(item)):
                return records_under(name, items)
    return None


def identity(record: Record) -> str | None:
    test_id = record.get("test_id")
    return test_id if isinstance(test_id, str) and test_id.strip() else None


def _is_clean(record: Record, rules: Rules) -> bool:
    """Whether a record is a valid case of step 2 or 3: all fields with their types, and no scores yet."""
    try:
        category, sub = record["test_category"], record["test_subcategory"]
        result = record.get("result_aftertest")
        return (
            _TEST_ID.fullmatch(record["test_id"]) is not None
            and category in CATEGORIES
            and (sub in SUBCATEGORIES if category == "safety" else sub == "")
            and record["eval_type"] in EVAL_TYPES
            and record["test_description"].strip() != ""
            and type(record["input"]) is dict
            and (result is None or type(result) is str)
            and not test_points(record)
        )
    except (KeyError, TypeError, AttributeError):
        return False


def are_clean(records: list[Record], rules: Rules) -> bool:
    return all(_is_clean(record, rules) for record in records)


def findings(record: Record, rules: Rules) -> Iterator[Remark]:
    """Yield a remark for every violation of EVAL-2, with its field."""
    for field in FIELDS:
        if field not in record and not (field == "input" and is_table_row(record)):
            yield error("missing_field", (), f"{field}: missing; every case needs it")
    test_id = record.get("test_id", "TC001")
    if not isinstance(test_id, str) or not _TEST_ID.fullmatch(test_id):
        message = f"test_id: expected TC001, TC002 … TC1000, got {describe(test_id)}"
        yield error("bad_test_id", ("test_id",), message)
    yield from _choice(record, "test_category", CATEGORIES)
    yield from _choice(record, "eval_type", EVAL_TYPES)
    yield from _subcategory(record)
    description = record.get("test_description", "-")
    if not isinstance(description, str) or not description.strip():
        message = f"test_description: expected a sentence, got {describe(description)}"
        yield error("bad_test_description", ("test_description",), message)
    if not isinstance(record.get("input", {}), dict):
        yield error("bad_input", ("input",), f"input: expected an object, got {describe(record['input'])}")
    result = record.get("result_aftertest")
    if result is not None and not isinstance(result, str):
        message = f"result_aftertest: expected a string or null, got {describe(result)}"
        yield error("bad_result", ("result_aftertest",), message)
    yield from _score_findings(record)
    if is_table_row(record):
        # Deferred: that module imports this one, and few records are rows of the table.
        from evalloom.prompt_eval.table import row_findings

        yield from row_findings(record)


def _choice(record: Record, field: str, allowed: tuple[str, ...]) -> Iterator[Remark]:
    value = record.get(field, allowed[0])
    if value not in allowed:
        hint = did_you_mean(value, allowed) if isinstance(value, str) else ""
        message = f"{field}: expected one of {', '.join(allowed)}, got {describe(value)}{hint}"
        yield error(f"bad_{field}", (field,), message)


def _subcategory(record: Record) -> Iterator[Remark]:
    if "test_subcategory" not in record:
        return
    if record.get("test_category") == "safety":
        yield from _choice(record, "test_subcategory", SUBCATEGORIES)
    elif record["test_subcategory"] != "":
        found = describe(record["test_subcategory"])
        message = f"test_subcategory: expected an empty string for a case that is not safety, got {found}"
        yield error("bad_test_subcategory", ("test_subcategory",), message)


def _score_findings(record: Record) -> Iterator[Remark]:
    for point in test_points(record):
        score = record[f"{point}_score"]
        if score is not None and (isinstance(score, bool) or score not in (1, 2, 3) or not isinstance(score, int)):
            message = f"{point}_score: expected 1, 2 or 3, got {describe(score)}"
            yield error("bad_score", (f"{point}_score",), message)
        reason = record.get(f"{point}_reason")
        if score is not None and not (isinstance(reason, str) and is_reason(reason)):
            yield warning("missing_reason", (f"{point}_score",), f"{point}_reason: missing; every score needs a reason")


def test_points(record: Record) -> list[str]:
    """Return the test points of which a record has scores, in order of appearance."""
    return [match.group(1) for key in record if (match := _SCORE.fullmatch(key))]


def is_reason(text: str) -> bool:
    """Whether a text has content: blanks, punctuation and invisible characters alone are none."""
    return any(map(str.isalnum, text))


def suggest_name(name: str, names: Collection[str], cutoff: float = 0.6) -> str:
    """`did_you_mean` for names with numbers: TP9 is another test point than TP1, not a typing error."""
    bare = _DIGITS.sub("", name)
    is_other = any(_DIGITS.sub("", other) == bare for other in names)
    return "" if is_other else did_you_mean(name, names, cutoff)


_IN_CASE = ("test_id", "input", "test_category", "test_subcategory", "test_description")
"""Fields that a case has places for; all others are its `meta`."""


def to_case(record: Record, origin: Origin) -> Case:
    """Convert a record to a case whose test points are judge checks on the scale 1 to 3."""
    category, sub = record.get("test_category"), record.get("test_subcategory")
    inputs = record.get("input")
    # `test_description` is called `description`, as in other formats.
    meta = {"description": record["test_description"]} if "test_description" in record else {}
    meta |= {name: value for name, value in record.items() if name not in _IN_CASE}
    return Case(
        id=str(record.get("test_id", "")),
        inputs=inputs if isinstance(inputs, dict) else {},
        checks=tuple(Check("judge", name=point, options={"scale": [1, 3]}) for point in test_points(record)),
        tags=tuple(tag for tag in (category, sub) if isinstance(tag, str) and tag),
        meta=meta,
        raw=record,
        origin=origin,
    )


def write(case: Case, number: int) -> Written:
    """Write a case as a test case of step 2; its test points are in the plan, so checks are not written."""
    lost = ConversionNotes(case)
    if not _TEST_ID.fullmatch(case.id):
        lost.add("test_id: ids are TC001 … here, so cases are numbered")
    sub = next((tag for tag in case.tags if tag in SUBCATEGORIES), "")
    category = next((tag for tag in case.tags if tag in CATEGORIES), "happy_path")
    if sub:
        category = "safety"
    elif category not in case.tags:
        lost.add("test_category: no tag names one, so 'happy_path' stands there")
    elif category == "safety":
        lost.add("test_subcategory: no tag names one, so it is left for you to fill in")
    lost.drop_tags_except(category, sub)
    for check in case.checks:
        lost.check(check)
    eval_type = case.meta.get("eval_type")
    if eval_type not in EVAL_TYPES:
        eval_type = category if category in EVAL_TYPES else "quantitative"
    description = case.meta.get("description")
    if not description:
        lost.add("test_description: the case has none, so its id stands there")
    lost.drop_meta_except("description", "eval_type")
    record = {
        "test_id": case.id if _TEST_ID.fullmatch(case.id) else f"TC{number:03d}",
        "test_category": category,
        "test_subcategory": sub,
        "eval_type": eval_type,
        "test_description": description or case.id or f"Case {number}",
        "input": case.inputs,
        "result_aftertest": None,
    }
    return Written(record, lost.notes())


def schema() -> Record:
    properties: dict[str, Any] = {
        "test_id": {"type": "string", "pattern": f"^{_TEST_ID.pattern}$"},
        "test_category": {"enum": list(CATEGORIES)},
        "test_subcategory": {"enum": ["", *SUBCATEGORIES], "description": "Empty but for safety cases"},
        "eval_type": {"enum": list(EVAL_TYPES)},
        "test_description": {"type": "string", "minLength": 1},
        "input": {"type": "object", "description": "The variables of the prompt"},
        "result_aftertest": {"type": ["string", "null"], "description": "The raw output; null when the run failed"},
    }
    return json_schema(
        "prompt-eval test case",
        properties,
        FIELDS,
        patternProperties={
            r"^TP\w*_score$": {"type": ["integer", "null"], "minimum": 1, "maximum": 3},
            r"^TP\w*_reason$": {"type": ["string", "null"]},
        },
    )


def from_cells(row: dict[str, str]) -> Record:
    """Convert a row of a table of cases, or of the table of scored cases."""
    # Deferred: few datasets are tables.
    from evalloom.prompt_eval.table import read_row

    if is_table_row(row):
        return read_row(row)
    return read_row(row, lambda name, text: text if name in TEXTS else read_cell(name, text))


def problems(sample: list[Record], layout: str) -> Iterator[Problem]:
    """Yield a problem for rows of the table of scored cases, which have no inputs to run."""
    if not any(map(is_table_row, sample)):
        return
    if layout == "csv":
        message = "is a table of scored cases: it has their inputs and results shortened. The JSON has all of them"
        yield Problem("table_as_source", "info", message)
    else:
        # In a CSV this is the table itself. Anywhere else they are cases that cannot be run.
        message = "has rows of the table of scored cases, with input_summary for input. Cases need their whole input"
        yield Problem("table_as_source", "error", message)


def lacks_inputs(sample: list[Record]) -> Remark | None:
    if not any(map(is_table_row, sample)):
        return None
    message = "is a table of scored cases, without inputs. Take the JSON that it was made from (test_cases.json)"
    return error("table_as_source", (), message)


DIALECT = Dialect(
    name="prompt-eval",
    summary="prompt-eval test cases: test_id, test_category, input, TP scores 1 to 3",
    sniff=sniff,
    findings=findings,
    are_clean=are_clean,
    to_case=to_case,
    identity=identity,
    write=write,
    expand=expand,
    schema=schema,
    category=lambda record: str(record.get("test_category") or ""),
    id_field="test_id",
    as_array=True,
    rank=20,
    from_cells=from_cells,
    problems=problems,
    lacks_inputs=lacks_inputs,
)
FORMATS = Formats((DIALECT,))
"""Formats for files that are known to be of this dialect."""
