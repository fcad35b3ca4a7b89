"""promptfoo config files: expands tests and scenarios with their defaults.

Also checks the types of a test's fields, in a config or on a line of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import product
from typing import Any

from msgspec.structs import replace

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Path, Record, Remark, error, info, show_path, warning
from evalloom.core.text import describe, quote
from evalloom.data.dialect import Expanded, Included
from evalloom.interop.promptfoo import asserts

_CONFIG_FIELDS = (
    "prompts",
    "providers",
    "targets",
    "defaultTest",
    "assertionTemplates",
    "evaluateOptions",
    "scenarios",
)
_READABLE = lazy_pattern(r"\.(csv|tsv|jsonl?|ndjson|ya?ml)(\.gz|\.zst)?", re.IGNORECASE)
_CODE = lazy_pattern(r"\.(py|rb|[cm]?[jt]s)(:\w+)?", re.IGNORECASE)
_MOST_COMBINATIONS = 10_000


def object_in(record: Record, field: str) -> Record:
    """The object in a field, or an empty one when the field holds something else."""
    value = record.get(field)
    return value if isinstance(value, dict) else {}


def default_of(record: Record) -> Record:
    """The `defaultTest` that applies to a test."""
    return object_in(record, "defaultTest")


def _keeps_lists(record: Record) -> bool:
    options = {**object_in(default_of(record), "options"), **object_in(record, "options")}
    return options.get("disableVarExpansion") is True


def shape_findings(record: Record) -> Iterator[Remark]:
    """Check the types of a test's own fields."""
    variables = record.get("vars")
    if asserts.is_file(variables):
        yield warning(
            "file_not_read", ("vars",), f"vars: expected an object, got the file {quote(variables)}, which is not read"
        )
    elif variables is not None and not isinstance(variables, dict):
        yield error("bad_vars", ("vars",), f"vars: expected an object, got {describe(variables)}")
    for name, value in (variables if isinstance(variables, dict) else {}).items():
        if asserts.is_file(value):
            yield file_variable(("vars", name), value)
        elif isinstance(value, list) and value and isinstance(value[0], str) and not _keeps_lists(record):
            message = f"vars.{name}: is a list, of which promptfoo tests each item by itself; here it is one input"
            yield info("list_of_variables", ("vars", name), message)
    written = record.get("assert")
    if written is not None and not isinstance(written, list):
        yield error("bad_assert", ("assert",), f"assert: expected a list of asserts, got {describe(written)}")
    for name in ("options", "metadata"):
        if record.get(name) is not None and not isinstance(record[name], dict):
            yield error(f"bad_{name}", (name,), f"{name}: expected an object, got {describe(record[name])}")


def file_variable(path: Path, value: str) -> Remark:
    """The warning about a variable that names a file."""
    message = f"{show_path(path)}: {quote(value)} names a file; the name goes in, and not the text in it"
    return warning("file_not_read", path, message)


def expand(document: Record) -> Expanded | None:
    """The tests and scenarios of a config file, each with the defaults that apply to it."""
    return _expanded(document) if is_config(document) else None


def is_config(document: Record) -> bool:
    """Whether a document is a promptfoo config, by its characteristic fields."""
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
        yield error("bad_default_test", ("defaultTest",), f"defaultTest: expected an object, got {describe(default)}")
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
    """Findings of the defaults, reported once and not for every test."""
    shape = [*shape_findings(default)]
    written = default.get("assert")
    for number, item in enumerate(written if isinstance(written, list) else []):
        shape.extend(asserts.findings(item, ("assert", number), None))
    threshold = default.get("threshold")
    if threshold is not None and asserts.number(threshold) is None:
        shape.append(error("bad_threshold", ("threshold",), f"threshold: expected a number, got {describe(threshold)}"))
    for remark in shape:
        yield replace(remark, path=(*at, *remark.path), message=f"{show_path(at)}.{remark.message}")


def _tests(document: Record, tests: Any, at: Path, default: Any) -> Iterator[tuple[Path, Record] | Included | Remark]:
    if isinstance(tests, str | dict):
        yield from _included_file(tests, at, default)
    elif isinstance(tests, list):
        for number, test in enumerate(tests):
            path = (*at, number)
            if isinstance(test, dict) and not _is_generator(test):
                yield from _combinations(document, test, path, default)
            else:
                yield from _included_file(test, path, default)
    elif tests is not None:
        yield error("bad_tests", at, f"{show_path(at)}: expected a list of tests or a file, got {describe(tests)}")


def _is_generator(test: Record) -> bool:
    return isinstance(test.get("path"), str) and not {"vars", "assert"} & test.keys()


def _included_file(reference: Any, at: Path, default: Any) -> Iterator[Included | Remark]:
    """The file that a reference names, when its format is supported."""
    if isinstance(reference, dict) and _is_generator(reference):
        reference = reference["path"]
    field = show_path(at)
    if not isinstance(reference, str):
        yield error("bad_tests", at, f"{field}: expected a test or a file, got {describe(reference)}")
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
    """What a reference is instead of a readable file; empty when it is one."""
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
    """Every test of a scenario with each of its configurations."""
    field = show_path(at)
    if isinstance(scenario, str):
        message = f"{field}: expected a scenario, got the file {quote(scenario)}. Its tests are not read"
        yield warning("file_not_read", at, message)
        return
    if not isinstance(scenario, dict) or not isinstance(scenario.get("config"), list):
        yield error(
            "bad_scenario", at, f"{field}: expected an object with 'config' and 'tests', got {describe(scenario)}"
        )
        return
    tests = scenario.get("tests")
    if isinstance(tests, str):
        message = f"{field}.tests: expected a list of tests, got the file {quote(tests)}. Its tests are not read"
        yield warning("file_not_read", (*at, "tests"), message)
        return
    for number, config in enumerate(scenario["config"]):
        if isinstance(config, dict):
            label = {"scenario": scenario["description"]} if "description" in scenario else {}
            base = {**label, **_with_templates(config, document)}
            yield from _default_findings(base, (*at, "config", number))
            # A test without fields of its own is the configuration alone.
            yield from _tests(document, [{}] if tests is None else tests, (*at, "tests"), _layered(default, base))
        else:
            message = f"{field}.config[{number}]: expected an object with 'vars', got {describe(config)}"
            yield error("bad_scenario", (*at, "config", number), message)


def _layered(default: Any, config: Record) -> Record:
    """Merge the configuration of a scenario over the defaults of the file."""
    under = default if isinstance(default, dict) else {}
    layered = {**under, **config}
    for name in ("vars", "options", "metadata"):
        if name in under or name in config:
            layered[name] = {**object_in(under, name), **object_in(config, name)}
    lists = [part["assert"] for part in (config, under) if isinstance(part.get("assert"), list)]
    if lists:
        layered["assert"] = [item for part in lists for item in part]
    return layered


def _combinations(document: Record, test: Record, at: Path, default: Any) -> Iterator[tuple[Path, Record] | Remark]:
    """One record per combination of the lists among a test's variables, as promptfoo runs it."""
    record = _with_templates(test, document)
    if default is not None:
        record = {**record, "defaultTest": default}
    variables = object_in(record, "vars")
    lists = {
        name: value
        for name, value in variables.items()
        if isinstance(value, list) and value and isinstance(value[0], str)
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
            yield at, {**record, "vars": {**variables, **dict(zip(lists, values, strict=True))}}


def _with_templates(test: Record, document: Record) -> Record:
    """The test with each resolvable `$ref` among its asserts replaced."""
    written = test.get("assert")
    if not isinstance(written, list):
        return test
    resolved = [_resolve_ref(item, document) for item in written]
    for number, item in enumerate(resolved):
        if isinstance(item, dict) and item.get("type") == asserts.SET and isinstance(item.get("assert"), list):
            resolved[number] = {**item, "assert": [_resolve_ref(member, document) for member in item["assert"]]}
    return {**test, "assert": resolved}


def _resolve_ref(item: Any, document: Record) -> Any:
    if not isinstance(item, dict) or not isinstance(item.get("$ref"), str) or not item["$ref"].startswith("#/"):
        return item
    target: Any = document
    for step in item["$ref"][2:].split("/"):
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, list) and step.isdecimal() and int(step) < len(target):
            target = target[int(step)]
        elif isinstance(target, dict) and step in target:
            target = target[step]
        else:
            return item
    return (
        {**target, **{key: value for key, value in item.items() if key != "$ref"}} if isinstance(target, dict) else item
    )
