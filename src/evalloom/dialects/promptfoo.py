"""promptfoo tests: records with `vars` and `assert`, tables with `__expected` columns, and whole config files.

Every variable goes in, as promptfoo offers them all to the prompt. A test from a config is read with the `defaultTest`
that applies to it, kept beside it under that name, so that its own fields stay where they are written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from evalloom.dialects import promptfoo_asserts as asserts
from evalloom.dialects.cells import got, is_blank, text_list
from evalloom.dialects.dialect import Dialect, Expanded, Included, Rules
from evalloom.model import Case, Check, Origin, Path, Record, Remark, error, info, quote, show_path, warning

_TEST_FIELDS = {
    *("vars", "assert", "description", "options", "threshold", "metadata", "provider", "providers", "prompts"),
    *("providerOutput", "assertScoringFunction", "defaultTest"),
}
_CONFIG_FIELDS = (
    "prompts",
    "providers",
    "targets",
    "defaultTest",
    "assertionTemplates",
    "evaluateOptions",
    "scenarios",
)
_COLUMNS = {
    "__description": "description",
    "__threshold": "threshold",
    "__providerOutput": "providerOutput",
    "__metric": "metric",
    "__prefix": "prefix",
    "__suffix": "suffix",
}
_EXPECTED = re.compile(r"__expected(\d*)")
_SETTING = re.compile(r"__config:__expected(\d*):(\w+)")
_METADATA = "__metadata:"
_READABLE = re.compile(r"\.(csv|tsv|jsonl?|ndjson|ya?ml)(\.gz|\.zst)?", re.IGNORECASE)
_CODE = re.compile(r"\.(py|rb|[cm]?[jt]s)(:\w+)?", re.IGNORECASE)
_MOST_COMBINATIONS = 10_000


class _Test(NamedTuple):
    """One test, whichever way it is written; each assert has the path it stands at."""

    vars: Record
    asserts: list[tuple[Path, Any]]
    threshold: Any
    metadata: Record
    meta: Record


def sniff(record: Record) -> str:
    column = next((name for name in record if _is_special(name)), "")
    if column:
        return f"it has the column {column!r}"
    written = record.get("assert")
    has_asserts = isinstance(written, list) and any(isinstance(item, dict) for item in written)
    if isinstance(record.get("vars"), dict) and "assert" in record:
        return "it has 'vars' and 'assert'"
    if has_asserts:
        return "it has 'assert', a list of asserts"
    if isinstance(record.get("vars"), dict) and "id" not in record:
        return "it has 'vars'"
    return "it has 'tests' beside 'prompts' or 'providers'" if _is_config(record) else ""


def _is_special(column: str) -> bool:
    if not column.startswith("__"):
        return False
    return column in _COLUMNS or column.startswith((_METADATA, "__config:")) or bool(_EXPECTED.fullmatch(column))


def findings(record: Record, rules: Rules) -> Iterator[Remark]:
    """What keeps a test from being run, from being read as meant, or from ever failing."""
    yield from _row_findings(record) if _is_row(record) else _shape_findings(record)
    test = _test(record)
    for path, written in test.asserts:
        yield from _at_cell(asserts.findings(written, path, test.vars), path, record)
    yield from _unfilled_defaults(record, test.vars)
    if not is_blank(test.threshold) and asserts.number(test.threshold) is None:
        field = "__threshold" if _is_row(record) else "threshold"
        yield error("bad_threshold", (field,), f"{field}: expected a number, got {got(test.threshold)}")
    default = record.get("defaultTest")
    if not test.asserts and not isinstance(default, str) and not _default_asserts(record):
        field = "__expected" if _is_row(record) else "assert"
        yield warning("no_checks", (), f"{field}: missing or empty, so nothing is checked and the case cannot fail")


def _at_cell(remarks: Iterator[Remark], path: Path, record: Record) -> Iterator[Remark]:
    """Remarks about an assert in a cell stand at the cell, and say its column only."""
    if not _is_row(record):
        yield from remarks
        return
    column = show_path(path)
    inner = re.compile(rf"{re.escape(column)}\.\w+:")
    for remark in remarks:
        yield remark._replace(path=path, message=inner.sub(lambda _: f"{column}:", remark.message, count=1))


def _shape_findings(record: Record) -> Iterator[Remark]:
    """The types of a test's own fields."""
    given = record.get("vars")
    if asserts.is_file(given):
        yield warning(
            "file_not_read", ("vars",), f"vars: expected an object, got the file {quote(given)}, which is not read"
        )
    elif given is not None and not isinstance(given, dict):
        yield error("bad_vars", ("vars",), f"vars: expected an object, got {got(given)}")
    for name, value in (given if isinstance(given, dict) else {}).items():
        if asserts.is_file(value):
            yield _file_variable(("vars", name), value)
        elif isinstance(value, list) and value and isinstance(value[0], str) and not _keeps_lists(record):
            message = f"vars.{name}: is a list, of which promptfoo tests each item by itself; here it is one input"
            yield info("list_of_variables", ("vars", name), message)
    written = record.get("assert")
    if written is not None and not isinstance(written, list):
        yield error("bad_assert", ("assert",), f"assert: expected a list of asserts, got {got(written)}")
    for name in ("options", "metadata"):
        if record.get(name) is not None and not isinstance(record[name], dict):
            yield error(f"bad_{name}", (name,), f"{name}: expected an object, got {got(record[name])}")
    yield from asserts.transform_findings(_object(record, "options"), ("options",))


def _file_variable(path: Path, value: str) -> Remark:
    message = f"{show_path(path)}: {quote(value)} names a file; the name goes in, and not the text in it"
    return warning("file_not_read", path, message)


def _unfilled_defaults(record: Record, variables: Record) -> Iterator[Remark]:
    """Asserts of `defaultTest` with a variable that this test lacks; what else is wrong is said with the default."""
    for number, written in enumerate(_default_asserts(record)):
        at = ("defaultTest", "assert", number)
        said = {remark.path for remark in asserts.findings(written, at, None)}
        for remark in asserts.findings(written, at, variables):
            if remark.code == "template_not_filled" and remark.path not in said:
                yield remark._replace(path=())


def _row_findings(record: Record) -> Iterator[Remark]:
    """What is odd about the special columns of a table."""
    for column, cell in record.items():
        if _EXPECTED.fullmatch(column):
            if isinstance(cell, list | dict):
                yield error("bad_assert", (column,), f"{column}: expected a text, got {got(cell)}")
            elif isinstance(cell, str):
                yield from asserts.cell_findings(cell, column)
        elif setting := _SETTING.fullmatch(column):
            yield from _setting_findings(record, column, setting)
        elif asserts.is_file(cell) and not _is_special(column):
            yield _file_variable((column,), cell)
        elif column.startswith("__") and not _is_special(column):
            message = f"{column}: is no column that promptfoo knows, so it is read as a variable"
            yield warning("unknown_column", (column,), message)


def _setting_findings(record: Record, column: str, setting: re.Match[str]) -> Iterator[Remark]:
    cell = record[column]
    if setting[2] != "threshold":
        message = f"{column}: expected the setting 'threshold', got {quote(setting[2])}; it has no effect"
        yield warning("unknown_column", (column,), message)
    elif not is_blank(cell) and asserts.number(cell) is None:
        yield error("bad_threshold", (column,), f"{column}: expected a number, got {got(cell)}")
    elif not is_blank(cell) and _setting_target(record, setting[1]) is None:
        yield warning(
            "unknown_column", (column,), f"{column}: there is no assert in '__expected{setting[1]}' to set it for"
        )


def _setting_target(record: Record, number: str) -> str | None:
    """The column that a setting is for: `__expected` and `__expected1` both name the first."""
    names = ("__expected", "__expected1") if number in ("", "1") else (f"__expected{number}",)
    return next((name for name in names if not is_blank(record.get(name))), None)


def _is_row(record: Record) -> bool:
    """Whether the record is a row of a table, where every column that is not special is a variable."""
    if any(map(_is_special, record)):
        return True
    return not ("vars" in record or "assert" in record or _TEST_FIELDS.issuperset(record))


def _test(record: Record) -> _Test:
    return _row_test(record) if _is_row(record) else _object_test(record)


def _object_test(record: Record) -> _Test:
    default = _default(record)
    given = record.get("vars")
    written = record.get("assert")
    meta = {**_others(default), **_others(record)}
    if not isinstance(given, dict | None):
        meta["vars"] = given
    options = {**_object(default, "options"), **_object(record, "options")}
    return _Test(
        vars=asserts.render_variables({**_object(default, "vars"), **_object(record, "vars")}),
        asserts=[
            (("assert", number), item) for number, item in enumerate(written if isinstance(written, list) else [])
        ],
        threshold=record.get("threshold", default.get("threshold")),
        metadata={**_object(default, "metadata"), **_object(record, "metadata")},
        meta={**meta, **({"options": options} if options else {})},
    )


def _row_test(record: Record) -> _Test:
    default = _default(record)
    row = {name: cell for name, cell in record.items() if name != "defaultTest"}
    meta: Record = {_COLUMNS[name]: cell for name, cell in row.items() if name in _COLUMNS and not is_blank(cell)}
    metric = meta.pop("metric", None)
    around: Record = {name: meta.pop(name) for name in ("prefix", "suffix") if name in meta}
    options = {**_object(default, "options"), **around}
    variables = {name: cell for name, cell in row.items() if _is_variable(name, cell)}
    return _Test(
        vars=asserts.render_variables({**_object(default, "vars"), **variables}),
        asserts=list(_cell_asserts(row, metric)),
        threshold=meta.pop("threshold", default.get("threshold")),
        metadata={**_object(default, "metadata"), **_cell_metadata(row)},
        meta={**_others(default), **meta, **({"options": options} if options else {})},
    )


def _others(test: Record) -> Record:
    """The fields of a test that neither go in nor check anything."""
    used = ("vars", "assert", "options", "metadata", "threshold", "defaultTest")
    return {name: value for name, value in test.items() if name not in used}


def _is_variable(column: str, cell: Any) -> bool:
    """Special columns are no variables, nor is an empty cell under an unnamed column."""
    return not _is_special(column) and not (column.startswith("_column") and is_blank(cell))


def _cell_asserts(row: Record, metric: Any) -> Iterator[tuple[Path, Any]]:
    thresholds = {
        _setting_target(row, setting[1]): asserts.number(cell)
        for column, cell in row.items()
        if (setting := _SETTING.fullmatch(column)) and setting[2] == "threshold"
    }
    for column, cell in row.items():
        if not _EXPECTED.fullmatch(column) or is_blank(cell) or isinstance(cell, list | dict):
            continue
        written = asserts.from_cell(cell) if isinstance(cell, str) else {"type": "equals", "value": cell}
        if thresholds.get(column) is not None:
            written["threshold"] = thresholds[column]
        if isinstance(metric, str):
            written["metric"] = metric
        yield (column,), written


def _cell_metadata(row: Record) -> Record:
    found: Record = {}
    for column, cell in row.items():
        name = column.removeprefix(_METADATA)
        if not column.startswith(_METADATA) or is_blank(cell):
            continue
        if name.endswith("[]") and isinstance(cell, str):
            # A comma that belongs to an item is written with a backslash before it.
            parts = re.split(r"(?<!\\),", cell)
            found[name[:-2]] = [part.replace("\\,", ",").strip() for part in parts if part.strip()]
        else:
            found[name.removesuffix("[]")] = cell
    return found


def _default(record: Record) -> Record:
    return _object(record, "defaultTest")


def _default_asserts(record: Record) -> list[Any]:
    """The asserts of `defaultTest`, unless the test turns them off."""
    written = _default(record).get("assert")
    is_off = _object(record, "options").get("disableDefaultAsserts") is True
    return written if isinstance(written, list) and not is_off else []


def _object(record: Record, field: str) -> Record:
    found = record.get(field)
    return found if isinstance(found, dict) else {}


def to_case(record: Record, origin: Origin) -> Case:
    """A case with the variables as inputs and one check per assert, its own before those of `defaultTest`."""
    test = _test(record)
    meta = dict(test.meta)
    if (threshold := asserts.number(test.threshold)) is not None:
        meta["threshold"] = threshold
    if test.metadata:
        meta["metadata"] = test.metadata
    return Case(
        id="",
        inputs=test.vars,
        checks=tuple(_checks(record, test)),
        tags=tuple(dict.fromkeys(text_list(test.metadata.get("tags")))),
        meta=meta,
        raw=record,
        origin=origin,
    )


def _checks(record: Record, test: _Test) -> Iterator[Check]:
    unsupported = asserts.why_unsupported(test.meta.get("options", {}))
    written = (*(written for _, written in test.asserts), *_default_asserts(record))
    for index, item in enumerate(written):
        yield from asserts.checks(item, test.vars, index, unsupported)


# -- config files ---------------------------------------------------------------------------------


def expand(document: Record) -> Expanded | None:
    """The tests and scenarios of a config file, each with the defaults that apply to it."""
    return _expanded(document) if _is_config(document) else None


def _is_config(document: Record) -> bool:
    tests = document.get("tests")
    if "tests" not in document and not isinstance(document.get("scenarios"), list):
        return "prompts" in document and ("providers" in document or "targets" in document)
    if any(field in document for field in _CONFIG_FIELDS):
        return True
    if isinstance(tests, str):
        return True
    members = tests if isinstance(tests, list) else []
    return any(
        (isinstance(test, dict) and ("vars" in test or "assert" in test))
        or (isinstance(test, str) and test.startswith("file://"))
        for test in members
    )


def _expanded(document: Record) -> Iterator[tuple[Path, Record] | Included | Remark]:
    default = document.get("defaultTest")
    if isinstance(default, str):
        message = f"defaultTest: expected an object, got {quote(default)}. Its vars and asserts are not read"
        yield warning("file_not_read", ("defaultTest",), message)
    elif default is not None and not isinstance(default, dict):
        yield error("bad_default_test", ("defaultTest",), f"defaultTest: expected an object, got {got(default)}")
    elif default:
        default = _with_templates(default, document)
        yield from _default_findings(default, ("defaultTest",))
    if document.get("prompts"):
        message = "prompts: are not used here. Name the file of a prompt with --target prompt:FILE"
        yield info("prompts_not_used", ("prompts",), message)
    yield from _tests(document, document.get("tests"), ("tests",), default)
    scenarios = document.get("scenarios")
    for number, scenario in enumerate(scenarios if isinstance(scenarios, list) else []):
        yield from _scenario(document, scenario, ("scenarios", number), default)
    if not document.get("tests") and not scenarios:
        yield warning("no_tests", (), "tests: missing or empty, so the config has no case")


def _default_findings(default: Record, at: Path) -> Iterator[Remark]:
    """What is wrong with what many tests share, said once and not for every test."""
    shape = [*_shape_findings(default)]
    written = default.get("assert")
    for number, item in enumerate(written if isinstance(written, list) else []):
        shape.extend(asserts.findings(item, ("assert", number), None))
    threshold = default.get("threshold")
    if threshold is not None and asserts.number(threshold) is None:
        shape.append(error("bad_threshold", ("threshold",), f"threshold: expected a number, got {got(threshold)}"))
    for remark in shape:
        yield remark._replace(path=(*at, *remark.path), message=f"{show_path(at)}.{remark.message}")


def _tests(document: Record, tests: Any, at: Path, default: Any) -> Iterator[tuple[Path, Record] | Included | Remark]:
    if isinstance(tests, str | dict):
        yield from _named(tests, at, default)
    elif isinstance(tests, list):
        for number, test in enumerate(tests):
            path = (*at, number)
            if isinstance(test, dict) and not _is_generator(test):
                yield from _combinations(document, test, path, default)
            else:
                yield from _named(test, path, default)
    elif tests is not None:
        yield error("bad_tests", at, f"{show_path(at)}: expected a list of tests or a file, got {got(tests)}")


def _is_generator(test: Record) -> bool:
    return isinstance(test.get("path"), str) and not {"vars", "assert"} & test.keys()


def _named(reference: Any, at: Path, default: Any) -> Iterator[Included | Remark]:
    """The file that a reference names, when it is of a kind that is read."""
    if isinstance(reference, dict) and _is_generator(reference):
        reference = reference["path"]
    field = show_path(at)
    if not isinstance(reference, str):
        yield error("bad_tests", at, f"{field}: expected a test or a file, got {got(reference)}")
        return
    name = reference.removeprefix("file://")
    if why := _unreadable(name):
        expected = "expected a CSV, JSON, JSONL or YAML file"
        yield warning(
            "file_not_read", at, f"{field}: {expected}, got the {why} {quote(reference)}. Its tests are not read"
        )
        return
    yield Included(name, at, {"defaultTest": default} if isinstance(default, dict) and default else {})


def _unreadable(name: str) -> str:
    """What a reference is instead of a file that is read; empty when it is one."""
    if "://" in name:
        return "address"
    if _ends_with(_CODE, name):
        return "program"
    if any(char in name for char in "*?[]{}"):
        return "pattern"
    return "" if _ends_with(_READABLE, name) else "name"


def _ends_with(suffix: re.Pattern[str], name: str) -> bool:
    return any(suffix.fullmatch(name, dot.start()) for dot in re.finditer(r"\.", name))


def _scenario(
    document: Record, scenario: Any, at: Path, default: Any
) -> Iterator[tuple[Path, Record] | Included | Remark]:
    """Every test of a scenario with every one of its configurations."""
    field = show_path(at)
    if isinstance(scenario, str):
        message = f"{field}: expected a scenario, got the file {quote(scenario)}. Its tests are not read"
        yield warning("file_not_read", at, message)
        return
    if not isinstance(scenario, dict) or not isinstance(scenario.get("config"), list):
        yield error("bad_scenario", at, f"{field}: expected an object with 'config' and 'tests', got {got(scenario)}")
        return
    tests = scenario.get("tests")
    if isinstance(tests, str):
        message = f"{field}.tests: expected a list of tests, got the file {quote(tests)}. Its tests are not read"
        yield warning("file_not_read", (*at, "tests"), message)
        return
    for number, config in enumerate(scenario["config"]):
        if isinstance(config, dict):
            told = {"scenario": scenario["description"]} if "description" in scenario else {}
            base = {**told, **_with_templates(config, document)}
            yield from _default_findings(base, (*at, "config", number))
            # A test without fields of its own is the configuration alone.
            yield from _tests(document, [{}] if tests is None else tests, (*at, "tests"), _layered(default, base))
        else:
            message = f"{field}.config[{number}]: expected an object with 'vars', got {got(config)}"
            yield error("bad_scenario", (*at, "config", number), message)


def _layered(default: Any, config: Record) -> Record:
    """The configuration of a scenario over the defaults of the file."""
    under = default if isinstance(default, dict) else {}
    layered = {**under, **config}
    for name in ("vars", "options", "metadata"):
        if name in under or name in config:
            layered[name] = {**_object(under, name), **_object(config, name)}
    lists = [part["assert"] for part in (config, under) if isinstance(part.get("assert"), list)]
    if lists:
        layered["assert"] = [item for part in lists for item in part]
    return layered


def _combinations(document: Record, test: Record, at: Path, default: Any) -> Iterator[tuple[Path, Record] | Remark]:
    """One record per combination of the lists among a test's variables, as promptfoo runs it."""
    record = _with_templates(test, document)
    if default is not None:
        record = {**record, "defaultTest": default}
    given = _object(record, "vars")
    lists = {
        name: value for name, value in given.items() if isinstance(value, list) and value and isinstance(value[0], str)
    }
    if not lists or _keeps_lists(record):
        yield at, record
    elif (count := math.prod(len(value) for value in lists.values())) > _MOST_COMBINATIONS:
        expected = f"expected at most {_MOST_COMBINATIONS:,} combinations"
        message = f"{show_path(at)}.vars: {expected}, got {count:,}. They are read as one case"
        yield warning("too_many_combinations", (*at, "vars"), message)
        yield at, record
    else:
        for values in product(*lists.values()):
            yield at, {**record, "vars": {**given, **dict(zip(lists, values, strict=True))}}


def _keeps_lists(record: Record) -> bool:
    options = {**_object(_default(record), "options"), **_object(record, "options")}
    return options.get("disableVarExpansion") is True


def _with_templates(test: Record, document: Record) -> Record:
    """The test with each `$ref` among its asserts replaced by what it names, where that is to be found."""
    written = test.get("assert")
    if not isinstance(written, list):
        return test
    found = [_resolved(item, document) for item in written]
    for number, item in enumerate(found):
        if isinstance(item, dict) and item.get("type") == asserts.SET and isinstance(item.get("assert"), list):
            found[number] = {**item, "assert": [_resolved(member, document) for member in item["assert"]]}
    return {**test, "assert": found}


def _resolved(item: Any, document: Record) -> Any:
    if not isinstance(item, dict) or not isinstance(item.get("$ref"), str) or not item["$ref"].startswith("#/"):
        return item
    found: Any = document
    for step in item["$ref"][2:].split("/"):
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
            found = found[int(step)]
        elif isinstance(found, dict) and step in found:
            found = found[step]
        else:
            return item
    return (
        {**found, **{key: value for key, value in item.items() if key != "$ref"}} if isinstance(found, dict) else item
    )


DIALECT = Dialect(
    name="promptfoo",
    summary="promptfoo tests: vars and assert, tables with __expected, config files",
    sniff=sniff,
    findings=findings,
    to_case=to_case,
    expand=expand,
)
