"""Expands a promptfoo config into tests: files, patterns, generators, scenarios, and combinations of variables."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import product
from typing import Any
from uuid import uuid4

from evalloom.core.errors import CallError
from evalloom.core.model import Path, Record, Remark, error, info, show_path, warning
from evalloom.core.text import describe, quote
from evalloom.data.dialect import Included, Surroundings
from evalloom.interop.promptfoo import config, files, templates, variables
from evalloom.interop.promptfoo.config import object_in
from evalloom.interop.promptfoo.files import FileProblem
from evalloom.interop.promptfoo.prompts import UnreadPrompt, read_prompts

_MOST_COMBINATIONS = 10_000
_NOT_HERE = {
    "redteam": "red-team tests are not generated or graded here, so this section has no effect. Use promptfoo for them",
    "extensions": "hooks are not run, so what they change stays as it is. Do it before the run, or in the target",
    "outputPath": "is not written. Name the file with -o, for example -o results.promptfoo.json",
    "writeLatestResults": "has no effect: each run is stored, and 'evalloom batches list' shows it",
    "sharing": "has no effect: nothing is uploaded. 'evalloom report' writes a page that can be sent",
    "tracing": "has no effect: each run stores its calls",
}

Item = tuple[Path, Record] | Included | Remark


class Expander:
    """Expands one config."""

    def __init__(self, document: Record, surroundings: Surroundings) -> None:
        self._base = surroundings.folder.as_posix() if surroundings.folder is not None else ""
        self._allow_code = surroundings.allow_code
        if self._base:
            files.open_folder(self._base)
        self._document: Record = config.with_environment(document, config.environment_of(document))
        self._default: Any = None
        self._plain_defaults: dict[int, bool] = {}

    def records(self) -> Iterator[Item]:
        """Yield each test with its place, files of tests, and findings."""
        yield from self._unused()
        yield from self._unread_prompts()
        self._default = self._document.get("defaultTest")
        if files.is_file(self._default):
            self._default = yield from self._read(str(self._default), ("defaultTest",))
        if isinstance(self._default, dict):
            self._default = config.with_references(self._default, self._document)
            self._default = yield from self._without_files(self._default, ("defaultTest",))
            # Once, and not for every test; a list or a pattern is a choice of each test.
            self._default = yield from self._with_files(self._default, ("defaultTest",))
            yield from config.default_findings(self._default, ("defaultTest",), self._base)
        elif self._default is not None:
            message = f"defaultTest: expected an object, got {describe(self._default)}"
            yield error("bad_default_test", ("defaultTest",), message)
            self._default = None
        yield from self._tests(self._document.get("tests"), ("tests",), self._default)
        scenarios = self._document.get("scenarios")
        if files.is_file(scenarios):
            scenarios = yield from self._read(str(scenarios), ("scenarios",))
        number = 0
        for position, scenario in enumerate(scenarios if isinstance(scenarios, list) else []):
            number = yield from self._scenario(scenario, ("scenarios", position), number)
        if not self._document.get("tests") and not scenarios:
            yield from self._single_test()

    def _single_test(self) -> Iterator[Item]:
        """Without tests, promptfoo runs each prompt once, with the defaults."""
        if self._document.get("prompts") and "redteam" not in self._document:
            yield info("no_tests", (), "tests: missing or empty, so each prompt runs once, without variables of a test")
            yield from self._test({}, (), self._default)
        else:
            yield warning("no_tests", (), "tests: missing or empty, so the config has no case")

    def _unused(self) -> Iterator[Remark]:
        for name, why in _NOT_HERE.items():
            if self._document.get(name) in (None, False, [], {}):
                continue
            if name in ("redteam", "extensions"):
                yield warning("section_not_used", (name,), f"{name}: {why}")
            else:
                yield info("section_not_used", (name,), f"{name}: {why}")

    def _unread_prompts(self) -> Iterator[Remark]:
        """Yield which prompts cannot be read. A warning, because the tests may run against another target."""
        written = self._document.get("prompts")
        for item in read_prompts(written, self._base) if written and self._base else ():
            if isinstance(item, UnreadPrompt):
                yield warning(
                    "prompt_unreadable", ("prompts",), f"prompts: {item}. Without it, the config does not run"
                )

    def _tests(self, tests: Any, at: Path, default: Any) -> Iterator[Item]:
        if isinstance(tests, str) or (isinstance(tests, dict) and config.is_generator(tests)):
            yield from self._file(tests, at, default)
        elif isinstance(tests, list):
            for number, test in enumerate(tests):
                path = (*at, number)
                if isinstance(test, dict) and not config.is_generator(test):
                    yield from self._test(test, path, default)
                else:
                    yield from self._file(test, path, default)
        elif tests is not None:
            yield error("bad_tests", at, f"{show_path(at)}: expected a list of tests or a file, got {describe(tests)}")

    def _test(self, test: Record, at: Path, default: Any) -> Iterator[Item]:
        test = config.with_references(test, self._document)
        for item in self._combined(test, default):
            if isinstance(item, Remark):
                yield Remark(item.code, item.severity, (*at, *item.path), item.message)
            else:
                yield at, item

    def _combined(self, test: Record, default: Any) -> Iterator[Record | Remark]:
        """Yield the records that a test stands for: one for each combination of its variables."""
        if self._is_plain(test, default):
            record = {**test, "defaultTest": default} if default is not None else test
            if "description" in record:
                record = _described(record, config.with_default(test, default or {}, "vars"))
            yield record
            return
        record = yield from self._without_files(test, ())
        defaults = default if isinstance(default, dict) else {}
        own, shared = object_in(record, "vars"), object_in(defaults, "vars")
        values = {**shared, **own}
        if transform := config.with_default(record, defaults, "options").get("transformVars"):
            values = yield from self._transformed(transform, values)
            # None, so that nobody applies that of the defaults again.
            record = {**record, "options": {**object_in(record, "options"), "transformVars": None}}
        keeps_lists = config.keeps_lists(record, defaults)
        choices: dict[str, list[Any]] = {}
        is_whole = True
        for name, value in values.items():
            read = list(variables.choices(name, value, self._base, keeps_lists))
            problems = [item for item in read if isinstance(item, Remark)]
            yield from problems
            is_whole = is_whole and not problems
            choices[name] = [item for item in read if not isinstance(item, Remark)] or [value]
        if not is_whole:
            # Its error stands for it: it is not also run with the name of the file as its text.
            return
        count = 1
        for values_of in choices.values():
            count *= len(values_of)
        base = {
            **record,
            **({"defaultTest": default} if default is not None else {}),
            **self._base_of(record, defaults),
        }
        if count > _MOST_COMBINATIONS:
            expected = f"expected at most {_MOST_COMBINATIONS:,} combinations"
            message = f"vars: {expected}, got {count:,}. They are read as one case"
            yield warning("too_many_combinations", ("vars",), message)
            yield base
            return
        for combination in product(*choices.values()):
            changed = dict(zip(choices, combination, strict=True))
            # Only what differs from the defaults, which every record carries.
            own = {name: value for name, value in changed.items() if name not in shared or value != shared[name]}
            yield _described({**base, "vars": own} if own or "vars" in record else base, changed)

    def _is_plain(self, test: Record, default: Any) -> bool:
        """Whether a test stands for itself: no list or file among its variables, and no file elsewhere."""
        own = test.get("vars")
        if default is not None and id(default) not in self._plain_defaults:
            self._plain_defaults[id(default)] = not config.names_files(default) and not config.has_choices(default)
        return (
            (own is None or isinstance(own, dict))
            and (default is None or self._plain_defaults[id(default)])
            and not config.has_choices(test)
            and not config.names_files(test)
        )

    def _row(self, row: Record) -> Iterator[Record | Remark]:
        """Yield the row of a table, each of whose columns is a variable, with the files in its cells read."""
        read: Record = {}
        for name, cell in row.items():
            if files.is_file(cell) and not name.startswith("__"):
                found = list(variables.choices(name, cell, self._base, keeps_lists=True))
                yield from (
                    Remark(item.code, item.severity, (name,), item.message)
                    for item in found
                    if isinstance(item, Remark)
                )
                if found and not isinstance(found[0], Remark):
                    read[name] = found[0]
        yield {**row, **read, "basePath": self._base} if config.names_files(row) and self._base else row

    def _base_of(self, record: Record, defaults: Record) -> Record:
        """Return the field with the folder of the config, for a test that names files."""
        needs_it = self._base and (config.names_files(record) or config.names_files(defaults))
        return {"basePath": self._base} if needs_it else {}

    def _transformed(self, transform: Any, values: Record) -> Generator[Remark, None, Record]:
        """Return the variables after `transformVars`; yield why they stay as they are."""
        field = "options.transformVars"
        at = ("options", "transformVars")
        if not isinstance(transform, str):
            yield error("bad_options", at, f"{field}: expected JavaScript or a file, got {describe(transform)}")
            return values
        if files.language_of(transform) == "python" and files.is_file(transform) and not self._allow_code:
            yield warning("code_not_run", at, f"{field}: Python code runs only with --allow-code; the variables stay")
            return values
        names = {"vars": values, "context": {"uuid": str(uuid4()), "prompt": {}}}
        try:
            changed = self._scripts().at_once(transform, names, ("get_transform",), field)
        except CallError as problem:
            yield error(problem.code, at, problem.message)
            return values
        if not isinstance(changed, dict):
            yield error("bad_options", at, f"{field}: expected an object of variables, got {describe(changed)}")
            return values
        return {**values, **changed}

    def _scripts(self) -> Any:
        from evalloom.interop.promptfoo.code import Scripts  # deferred: few configs have code

        return Scripts(self._base, self._allow_code)

    def _without_files(self, test: Record, at: Path) -> Generator[Remark, None, Record]:
        """Return a test with the parts that are files as a whole replaced by their content."""
        for name in ("vars", "assert", "options", "metadata"):
            written = test.get(name)
            references = written if isinstance(written, list) and name == "vars" else [written]
            if not references or not all(map(files.is_file, references)):
                continue
            parts: list[Any] = []
            for reference in references:
                parts.append((yield from self._read(str(reference), (*at, name))))
            if all(isinstance(part, dict) for part in parts) and name != "assert":
                test = {**test, name: {key: value for part in parts for key, value in part.items()}}
            elif parts[0] is not None:
                test = {**test, name: parts[0]}
        return test

    def _with_files(self, test: Record, at: Path) -> Generator[Remark, None, Record]:
        """Return a test whose variables that are a single file have its content."""
        read: Record = {}
        for name, value in object_in(test, "vars").items():
            if files.is_file(value):
                found = list(variables.choices(name, value, self._base, keeps_lists=True))
                problems = [item for item in found if isinstance(item, Remark)]
                for problem in problems:
                    yield Remark(problem.code, problem.severity, (*at, *problem.path), problem.message)
                if len(found) == 1 and not problems:
                    read[name] = found[0]
        return {**test, "vars": {**test["vars"], **read}} if read else test

    def _read(self, reference: str, at: Path) -> Generator[Remark, None, Any]:
        """Return the content of a file of JSON or YAML; yield why it cannot be read, and return None."""
        try:
            return files.read(reference, self._base).value
        except FileProblem as problem:
            yield error(problem.code, at, f"{show_path(at)}: {problem}")
            return None

    def _file(self, reference: Any, at: Path, default: Any) -> Iterator[Item]:
        """Yield the files of tests that a reference names, or the tests that a function makes."""
        field = show_path(at)
        settings: Any = None
        if isinstance(reference, dict) and config.is_generator(reference):
            settings = reference.get("config")
            reference = reference["path"]
        if not isinstance(reference, str):
            yield error("bad_tests", at, f"{field}: expected a test or a file, got {describe(reference)}")
            return
        name = reference.removeprefix(files.PREFIX)
        if files.language_of(name):
            yield from self._generated(reference, settings, at, default)
        elif "://" in name:
            message = f"{field}: expected a file, got the address {quote(reference)}. Its tests are not read"
            yield warning("file_not_read", at, message)
        elif any(mark in name for mark in "*?["):
            yield from self._pattern(name, at, default)
        elif not config.is_readable(name):
            message = (
                f"{field}: expected a CSV, JSON, JSONL or YAML file, got {quote(reference)}. Its tests are not read"
            )
            yield warning("file_not_read", at, message)
        else:
            yield from self._readable(name, at, default)

    def _readable(self, name: str, at: Path, default: Any) -> Iterator[Item]:
        """Yield a file of tests, unless it is hidden. Whether it is there and inside, its reader says."""
        try:
            if self._base:
                files.locate(name, self._base)
        except files.HiddenFile as problem:
            yield error(problem.code, at, f"{show_path(at)}: {problem}")
            return
        except FileProblem:
            pass
        yield self._included(name, at, default)

    def _pattern(self, name: str, at: Path, default: Any) -> Iterator[Item]:
        try:
            # Without a folder, as on stdin, nothing matches.
            matches = files.matching(name, self._base) if self._base else []
        except FileProblem as problem:
            yield error(problem.code, at, f"{show_path(at)}: {problem}")
            return
        if not matches:
            yield error("file_missing", at, f"{show_path(at)}: there is no file that matches {quote(name)}")
        for match in matches:
            yield from self._readable(match.removeprefix(files.PREFIX), at, default)

    def _included(self, name: str, at: Path, default: Any) -> Included:
        def each(record: Record) -> Iterable[Record | Remark]:
            is_row = "vars" not in record and "assert" not in record
            return self._row(record) if is_row else self._combined(record, default)

        return Included(name, at, {"defaultTest": default} if isinstance(default, dict) and default else {}, each)

    def _generated(self, reference: str, settings: Any, at: Path, default: Any) -> Iterator[Item]:
        field = show_path(at)
        language = files.language_of(reference)
        if language == "ruby" or (language == "python" and not self._allow_code):
            how = "runs only with --allow-code" if language == "python" else "is not run here"
            message = f"{field}: {quote(reference)} makes tests and {how}. Its tests are missing"
            yield warning("code_not_run", at, message)
            return
        try:
            names = {"config": settings}
            entries = ("generate_tests", "get_tests", "create_tests", "main")
            made = self._scripts().at_once(_as_file(reference), names, entries, field)
        except CallError as problem:
            yield error(problem.code, at, problem.message)
            return
        if not isinstance(made, list):
            yield error("bad_tests", at, f"{field}: expected a list of tests from it, got {describe(made)}")
            return
        for test in made:
            if isinstance(test, dict):
                yield from self._test(test, at, default)
            else:
                yield error("bad_tests", at, f"{field}: expected tests from it, got {describe(test)}")

    def _scenario(self, scenario: Any, at: Path, number: int) -> Generator[Item, None, int]:
        """Yield every test of a scenario with each of its configurations; return the number of the next one."""
        field = show_path(at)
        if files.is_file(scenario):
            read = yield from self._read(str(scenario), at)
            for inner in read if isinstance(read, list) else [read] if read is not None else []:
                number = yield from self._scenario(inner, at, number)
            return number
        written = scenario.get("config") if isinstance(scenario, dict) else None
        if files.is_file(written):
            written = yield from self._read(str(written), (*at, "config"))
        if not isinstance(scenario, dict) or not isinstance(written, list):
            message = f"{field}: expected an object with 'config' and 'tests', got {describe(scenario)}"
            yield error("bad_scenario", at, message)
            return number
        for position, part in enumerate(written):
            path = (*at, "config", position)
            if not isinstance(part, dict):
                message = f"{field}.config[{position}]: expected an object with 'vars', got {describe(part)}"
                yield error("bad_scenario", path, message)
                continue
            label = {"scenario": scenario["description"]} if "description" in scenario else {}
            base = {**label, **config.with_references(part, self._document)}
            # Each scenario is a conversation of its own.
            base["metadata"] = {"conversationId": f"__scenario_{number}__", **object_in(base, "metadata")}
            number += 1
            yield from config.default_findings(base, path, self._base)
            # A test without fields of its own is the configuration alone.
            tests = [{}] if scenario.get("tests") is None else scenario["tests"]
            yield from self._tests(tests, (*at, "tests"), config.layered(self._default, base))
        return number


def _described(record: Record, values: Record) -> Record:
    """Return a record whose description, if it is a template, has the values of the test: it names the case."""
    description = record.get("description")
    if not isinstance(description, str) or not templates.has_marks(description):
        return record
    try:
        return {**record, "description": templates.render(description, values)}
    except templates.TemplateError:
        return record


def _as_file(reference: str) -> str:
    return reference if files.is_file(reference) else f"{files.PREFIX}{reference}"
