"""promptfoo config files: expands tests and scenarios with their defaults.

Also checks the types of a test's fields, in a config or on a line of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Path, Record, Remark, error, info, show_path, warning
from evalloom.core.text import describe, quote
from evalloom.data.dialect import Expanded, Surroundings
from evalloom.interop.promptfoo import asserts, files
from evalloom.settings import keys

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
_MOST_INSERTED = 32_000_000
"""Characters that variables of the environment may add to a config."""
_ENVIRONMENT = lazy_pattern(r"\{\{\s*env\.([A-Za-z_]\w*)\s*\}\}")


def object_in(record: Record, field: str) -> Record:
    """The object in a field, or an empty one when the field holds something else."""
    value = record.get(field)
    return value if isinstance(value, dict) else {}


def default_of(record: Record) -> Record:
    """The `defaultTest` that applies to a test."""
    return object_in(record, "defaultTest")


def with_default(record: Record, default: Record, field: str) -> Record:
    """The object in a field of a test, over that of its defaults."""
    own, shared = record.get(field), default.get(field) if default else None
    if isinstance(own, dict):
        return {**shared, **own} if isinstance(shared, dict) else {**own}
    return {**shared} if isinstance(shared, dict) else {}


def keeps_lists(record: Record, default: Record) -> bool:
    """Whether a list among the variables is one value, and no choice."""
    return with_default(record, default, "options").get("disableVarExpansion") is True


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
        if asserts.is_file(value) and not (files.language_of(value) and "basePath" in record):
            yield file_variable(("vars", name), value)
        elif (
            isinstance(value, list)
            and value
            and isinstance(value[0], str)
            and not keeps_lists(record, default_of(record))
        ):
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


def expand(document: Record, surroundings: Surroundings) -> Expanded | None:
    """The tests and scenarios of a config file, each with the defaults that apply to it."""
    if not is_config(document):
        return None
    from evalloom.interop.promptfoo.expand import Expander  # deferred: only configs need it

    return Expander(document, surroundings).records()


def environment_of(document: Record) -> dict[str, str]:
    """The variables that a config sets for its templates, except what looks like a key."""
    written = object_in(document, "env")
    texts = {str(name): value if isinstance(value, str) else json.dumps(value) for name, value in written.items()}
    return {name: text for name, text in texts.items() if not keys.may_be_secret(name, text)}


def with_environment(value: Any, environment: Mapping[str, str]) -> Any:
    """Replace `{{env.NAME}}` in all texts, for the names in the environment."""
    left = _MOST_INSERTED

    def insert(match: re.Match[str]) -> str:
        nonlocal left
        text = environment.get(match[1], match[0])
        left -= len(text)
        # A long variable may be named a million times.
        return text if left >= 0 else match[0]

    def replaced(value: Any) -> Any:
        if isinstance(value, str):
            return _ENVIRONMENT.sub(insert, value) if "{{" in value else value
        if isinstance(value, list):
            return [replaced(item) for item in value]
        if isinstance(value, dict):
            return {name: replaced(inner) for name, inner in value.items()}
        return value

    return replaced(value) if environment else value


def default_test_of(document: Record, base: str) -> Record:
    """The `defaultTest` of a config, read from its file if it is one; empty where there is none to read."""
    written = document.get("defaultTest")
    if files.is_file(written):
        try:
            written = files.read(str(written), base).value
        except files.FileProblem:
            return {}
    return written if isinstance(written, dict) else {}


def names_files(value: Any) -> bool:
    """Whether there is a reference to a file in a value."""
    parts = [value]
    for part in parts:
        if isinstance(part, str):
            if part.startswith(files.PREFIX):
                return True
        elif isinstance(part, dict):
            parts.extend(part.values())
        elif isinstance(part, list):
            parts.extend(part)
    return False


def has_choices(test: Record) -> bool:
    """Whether a list is among the variables of a test, or they are transformed."""
    variables, options = test.get("vars"), test.get("options")
    if isinstance(variables, dict) and any(isinstance(value, list) for value in variables.values()):
        return True
    return isinstance(options, dict) and bool(options.get("transformVars"))


def runs_in_order(document: Record, base: str) -> bool:
    """Whether a test stores its output for later ones, also in the files of tests."""
    if _has_key(document, "storeOutputAs"):
        return True
    tests = document.get("tests")
    for reference in tests if isinstance(tests, list) else [tests]:
        if isinstance(reference, str) and not files.language_of(reference):
            try:
                found = files.matching(reference, base) if any(mark in reference for mark in "*?[") else [reference]
                if any("storeOutputAs" in files.read(name, base).text for name in found):
                    return True
            except files.FileProblem:
                continue
    return False


def _has_key(value: Any, key: str, level: int = 0) -> bool:
    if level > 8 or not isinstance(value, list | dict):
        return False
    if isinstance(value, dict) and key in value:
        return True
    return any(_has_key(inner, key, level + 1) for inner in (value.values() if isinstance(value, dict) else value))


def is_config(document: Record) -> bool:
    """Whether a document is a promptfoo config, by its characteristic fields."""
    tests = document.get("tests")
    if "tests" not in document and not isinstance(document.get("scenarios"), list):
        asks = "providers" in document or "targets" in document
        return asks and ("prompts" in document or "redteam" in document)
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


def default_findings(default: Record, at: Path, base: str) -> Iterator[Remark]:
    """Findings of the defaults, reported once and not for every test."""
    shape = [*shape_findings(default)]
    written = default.get("assert")
    for number, item in enumerate(written if isinstance(written, list) else []):
        shape.extend(asserts.findings(item, ("assert", number), None, base or None))
    threshold = default.get("threshold")
    if threshold is not None and asserts.number(threshold) is None:
        shape.append(error("bad_threshold", ("threshold",), f"threshold: expected a number, got {describe(threshold)}"))
    for remark in shape:
        yield replace(remark, path=(*at, *remark.path), message=f"{show_path(at)}.{remark.message}")


def is_generator(test: Record) -> bool:
    """Whether an object names a function that makes tests."""
    return isinstance(test.get("path"), str) and not {"vars", "assert"} & test.keys()


def is_readable(name: str) -> bool:
    """Whether a file of tests has a format that is read."""
    return _ends_with(_READABLE, name)


def _ends_with(suffix: re.Pattern[str], name: str) -> bool:
    return any(suffix.fullmatch(name, dot.start()) for dot in re.finditer(r"\.", name))


def layered(default: Any, config: Record) -> Record:
    """Merge the configuration of a scenario over the defaults of the file."""
    under = default if isinstance(default, dict) else {}
    layered = {**under, **config}
    for name in ("vars", "options", "metadata"):
        if name in under or name in config:
            layered[name] = with_default(config, under, name)
    lists = [part["assert"] for part in (config, under) if isinstance(part.get("assert"), list)]
    if lists:
        layered["assert"] = [item for part in lists for item in part]
    return layered


def with_references(test: Record, document: Record) -> Record:
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
