"""promptfoo tests: records with `vars` and `assert`, tables with `__expected` columns, and whole config files.

Every variable becomes an input, because promptfoo makes all of them available to the prompt. A test from a config
carries its `defaultTest` in a field of that name, so that the locations of its own fields stay valid.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Case, Check, Origin, Path, Record, Remark, error, show_path, warning
from evalloom.core.text import describe, quote
from evalloom.data.cells import id_text, is_blank, own_id, text_list
from evalloom.data.dialect import Dialect, Rules
from evalloom.interop.promptfoo import asserts
from evalloom.interop.promptfoo.assert_transforms import scoring_of
from evalloom.interop.promptfoo.config import (
    default_of,
    expand,
    file_variable,
    is_config,
    object_in,
    shape_findings,
    with_default,
)
from evalloom.interop.promptfoo.options import OPTIONS, written_options

_TEST_FIELDS = {
    *("id", "vars", "assert", "description", "options", "threshold", "metadata", "provider", "providers", "prompts"),
    *("providerOutput", "assertScoringFunction", "defaultTest", "basePath"),
}
_USED_FIELDS = frozenset({"vars", "assert", "options", "metadata", "threshold", "defaultTest", "basePath"})
"""The fields of a test that make its inputs and checks."""
_BARE_FIELDS = frozenset({"vars", "assert", "basePath"})
_COLUMNS = {
    "__description": "description",
    "__threshold": "threshold",
    "__providerOutput": "providerOutput",
    "__metric": "metric",
    "__prefix": "prefix",
    "__suffix": "suffix",
}
_EXPECTED = lazy_pattern(r"__expected(\d*)")
_ASSERT_SETTING = lazy_pattern(r"__config:__expected(\d*):(\w+)")
_METADATA = "__metadata:"


class _Test(Struct, frozen=True):
    """One test, from an object or a table row; each assert comes with its path."""

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
    return "it has 'tests' beside 'prompts' or 'providers'" if is_config(record) else ""


def optional_id(record: Record) -> str:
    """Return the id of a test. In a table, `id` is a variable too; and the tests of a scenario share theirs."""
    return id_text(own_id(record, "id"))


def _is_special(column: str) -> bool:
    if not column.startswith("__"):
        return False
    return column in _COLUMNS or column.startswith((_METADATA, "__config:")) or bool(_EXPECTED.fullmatch(column))


def findings(record: Record, rules: Rules) -> Iterator[Remark]:
    """Problems that keep a test from running, from being read as intended, or from ever failing."""
    if _is_bare(record) and record["assert"]:
        yield from shape_findings(record)
        variables = asserts.render_variables(record["vars"])
        for number, written in enumerate(record["assert"]):
            yield from asserts.findings(written, ("assert", number), variables, record.get("basePath"))
        return
    is_row = _is_row(record)
    yield from _row_findings(record) if is_row else shape_findings(record)
    test = _row_test(record) if is_row else _object_test(record)
    base = record["basePath"] if isinstance(record.get("basePath"), str) else None
    if options := object_in(record, "options"):
        yield from asserts.transform_findings(options, ("options",), base=base)
        yield from asserts.grader_findings(options, ("options",))
    if base is not None and record.get("assertScoringFunction"):
        _, problem = scoring_of(record["assertScoringFunction"], base)
        if problem:
            yield error("bad_transform", ("assertScoringFunction",), f"assertScoringFunction: {problem}")
    for path, written in test.asserts:
        remarks = asserts.findings(written, path, test.vars, base)
        yield from _point_to_cell(remarks, path) if is_row else remarks
    yield from _default_assert_findings(record, test.vars)
    if not is_blank(test.threshold) and asserts.number(test.threshold) is None:
        field = "__threshold" if is_row else "threshold"
        yield error("bad_threshold", (field,), f"{field}: expected a number, got {describe(test.threshold)}")
    default = record.get("defaultTest")
    if not test.asserts and not isinstance(default, str) and not _default_asserts(record):
        field = "__expected" if is_row else "assert"
        yield warning("no_checks", (), f"{field}: missing or empty, so nothing is checked and the case cannot fail")


def _point_to_cell(remarks: Iterator[Remark], path: Path) -> Iterator[Remark]:
    """Point remarks about an assert in a cell to the cell, and name only its column."""
    column = show_path(path)
    inner = re.compile(rf"{re.escape(column)}\.\w+:")
    for remark in remarks:
        yield replace(remark, path=path, message=inner.sub(lambda _: f"{column}:", remark.message, count=1))


def _default_assert_findings(record: Record, variables: Record) -> Iterator[Remark]:
    """Asserts of `defaultTest` that use a variable this test lacks; the config reports their other findings."""
    for number, written in enumerate(_default_asserts(record)):
        at = ("defaultTest", "assert", number)
        reported = {remark.path for remark in asserts.findings(written, at, None)}
        for remark in asserts.findings(written, at, variables):
            if remark.code == "template_not_filled" and remark.path not in reported:
                yield replace(remark, path=())


def _row_findings(record: Record) -> Iterator[Remark]:
    """Findings of the special columns of a table."""
    for column, cell in record.items():
        if _EXPECTED.fullmatch(column):
            if isinstance(cell, list | dict):
                yield error("bad_assert", (column,), f"{column}: expected a text, got {describe(cell)}")
            elif isinstance(cell, str):
                yield from asserts.cell_findings(cell, column)
        elif setting := _ASSERT_SETTING.fullmatch(column):
            yield from _setting_findings(record, column, setting)
        elif asserts.is_file(cell) and not _is_special(column):
            yield file_variable((column,), cell)
        elif column.startswith("__") and not _is_special(column):
            message = f"{column}: is not a column of promptfoo, so it is read as a variable"
            yield warning("unknown_column", (column,), message)


def _setting_findings(record: Record, column: str, setting: re.Match[str]) -> Iterator[Remark]:
    cell = record[column]
    if setting[2] != "threshold":
        message = f"{column}: expected the setting 'threshold', got {quote(setting[2])}; it has no effect"
        yield warning("unknown_column", (column,), message)
    elif not is_blank(cell) and asserts.number(cell) is None:
        yield error("bad_threshold", (column,), f"{column}: expected a number, got {describe(cell)}")
    elif not is_blank(cell) and _setting_target(record, setting[1]) is None:
        yield warning(
            "unknown_column", (column,), f"{column}: there is no assert in '__expected{setting[1]}' to set it for"
        )


def _setting_target(record: Record, number: str) -> str | None:
    """The column that a setting applies to; `__expected` and `__expected1` both mean the first."""
    names = ("__expected", "__expected1") if number in ("", "1") else (f"__expected{number}",)
    return next((name for name in names if not is_blank(record.get(name))), None)


def _is_row(record: Record) -> bool:
    """Whether the record is a table row, in which every column that is not special is a variable."""
    if _TEST_FIELDS.issuperset(record):
        return False
    return any(map(_is_special, record)) or not ("vars" in record or "assert" in record)


def _test(record: Record) -> _Test:
    return _row_test(record) if _is_row(record) else _object_test(record)


def _is_bare(record: Record) -> bool:
    """Whether a test has variables and asserts and nothing else, as most have."""
    if not _BARE_FIELDS.issuperset(record) or not isinstance(record.get("basePath", ""), str):
        return False
    return isinstance(record.get("vars"), dict) and isinstance(record.get("assert"), list)


def _object_test(record: Record) -> _Test:
    written = record.get("assert")
    default = default_of(record)
    meta = _remaining_fields(record)
    if default:
        meta = {**_remaining_fields(default), **meta}
    if not isinstance(record.get("vars"), dict | None):
        meta["vars"] = record["vars"]
    if options := with_default(record, default, "options"):
        meta["options"] = options
    return _Test(
        asserts.render_variables(with_default(record, default, "vars")),
        [(("assert", number), item) for number, item in enumerate(written)] if isinstance(written, list) else [],
        record.get("threshold", default.get("threshold")),
        with_default(record, default, "metadata"),
        meta,
    )


def _row_test(record: Record) -> _Test:
    default = default_of(record)
    row = {name: cell for name, cell in record.items() if name not in ("defaultTest", "basePath")}
    meta: Record = {_COLUMNS[name]: cell for name, cell in row.items() if name in _COLUMNS and not is_blank(cell)}
    metric = meta.pop("metric", None)
    affixes: Record = {name: meta.pop(name) for name in ("prefix", "suffix") if name in meta}
    options = {**object_in(default, "options"), **affixes}
    # Readers name a column without a header `_column…`; an empty cell there is not a variable.
    unused = {name for name, cell in row.items() if name.startswith("_column") and is_blank(cell)}
    variables = {name: cell for name, cell in row.items() if name not in unused and not _is_special(name)}
    return _Test(
        vars=asserts.render_variables({**object_in(default, "vars"), **variables}),
        asserts=list(_cell_asserts(row, metric)),
        threshold=meta.pop("threshold", default.get("threshold")),
        metadata={**object_in(default, "metadata"), **_cell_metadata(row)},
        meta={**_remaining_fields(default), **meta, **({"options": options} if options else {})},
    )


def _remaining_fields(test: Record) -> Record:
    """The fields of a test that make neither inputs nor checks."""
    return {name: value for name, value in test.items() if name not in _USED_FIELDS}


def _cell_asserts(row: Record, metric: Any) -> Iterator[tuple[Path, Any]]:
    thresholds = {
        _setting_target(row, setting[1]): asserts.number(cell)
        for column, cell in row.items()
        if (setting := _ASSERT_SETTING.fullmatch(column)) and setting[2] == "threshold"
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
    metadata: Record = {}
    for column, cell in row.items():
        name = column.removeprefix(_METADATA)
        if not column.startswith(_METADATA) or is_blank(cell):
            continue
        if name.endswith("[]") and isinstance(cell, str):
            # A backslash escapes a comma that belongs to an item.
            parts = re.split(r"(?<!\\),", cell)
            metadata[name[:-2]] = [part.replace("\\,", ",").strip() for part in parts if part.strip()]
        else:
            metadata[name.removesuffix("[]")] = cell
    return metadata


def _default_asserts(record: Record) -> list[Any]:
    """The asserts of `defaultTest`, unless the test turns them off."""
    written = default_of(record).get("assert")
    if not isinstance(written, list):
        return []
    is_off = object_in(record, "options").get("disableDefaultAsserts") is True
    return [] if is_off else written


def to_case(record: Record, origin: Origin) -> Case:
    """A case with the variables as inputs and one check per assert, its own before those of `defaultTest`."""
    base = _base_of(record, origin)
    if _is_bare(record):
        variables = asserts.render_variables(record["vars"])
        own = [
            check
            for index, written in enumerate(record["assert"])
            for check in asserts.checks(written, variables, index, base=base)
        ]
        return Case("", variables, tuple(own), raw=record, origin=origin)
    test = _test(record)
    meta = dict(test.meta)
    options = object_in(meta, "options")
    shared = asserts.shared_options(options, base) if options else {}
    written = [*[item for _, item in test.asserts], *_default_asserts(record)]
    if (threshold := asserts.number(test.threshold)) is not None:
        meta["threshold"] = threshold
    tags: tuple[str, ...] = ()
    if test.metadata:
        meta["metadata"] = test.metadata
        tags = tuple(dict.fromkeys(text_list(test.metadata.get("tags"))))
    if options and (sent := written_options(options)):
        meta[OPTIONS] = sent
    if reference := meta.pop("assertScoringFunction", None):
        step, problem = scoring_of(reference, base)
        if step:
            meta["scoring_function"] = step
        else:
            shared = {**shared, "unsupported": f"assertScoringFunction: {problem}"}
    checks: list[Check] = []
    for index, item in enumerate(written):
        checks += asserts.checks(item, test.vars, index, shared, base)
    return Case(
        id="",
        inputs=test.vars,
        checks=tuple(checks),
        tags=tags,
        meta=meta,
        raw=record,
        origin=origin,
    )


def _base_of(record: Record, origin: Origin) -> str:
    """The folder that files of a test are relative to: that of its config, or of the file that it is in."""
    base = record.get("basePath")
    return base if isinstance(base, str) else _folder_of(origin.file)


# All tests of a dataset are in a few files.
_folder_of = lru_cache(64)(os.path.dirname)


def check_paths(record: Record) -> Iterator[Path]:
    """Yield where each assert is written; those of `defaultTest` are outside of the test."""
    test = _test(record)
    for path, written in test.asserts:
        inner = () if _is_row(record) else ("type",)
        if isinstance(written, dict) and written.get("type") == asserts.SET:
            members = written.get("assert")
            for number, member in enumerate(members if isinstance(members, list) else ()):
                if any(asserts.checks(member, {})):
                    yield (*path, "assert", number, *inner)
        else:
            yield from ((*path, *inner) for _ in asserts.checks(written, {}))
    yield from (() for written in _default_asserts(record) for _ in asserts.checks(written, {}))


DIALECT = Dialect(
    name="promptfoo",
    summary="promptfoo tests: vars and assert, tables with __expected, config files",
    sniff=sniff,
    findings=findings,
    to_case=to_case,
    optional_id=optional_id,
    expand_in=expand,
    added_fields=("basePath",),
    beside_inputs=(OPTIONS,),
    expectations=("assert", "__expected"),
    check_paths=check_paths,
)
