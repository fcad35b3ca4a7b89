"""A promptfoo config as a suite: its prompts × providers are the columns, and its grader is the judge."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from evalloom.core.digest import digest_of
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Check, Origin, Profile, Record
from evalloom.core.text import quote
from evalloom.engine.suite import Suite, SuiteOptions
from evalloom.files.read import RowReader
from evalloom.files.rows import Row
from evalloom.files.source import source_of
from evalloom.interop.promptfoo import config as configs
from evalloom.interop.promptfoo import dialect, files, templates
from evalloom.interop.promptfoo.code import Scripts
from evalloom.interop.promptfoo.config import is_config, object_in
from evalloom.interop.promptfoo.files import FileProblem
from evalloom.interop.promptfoo.options import from_config
from evalloom.interop.promptfoo.prompts import CONVERSATION, Prompt, UnreadPrompt, named, read_prompts
from evalloom.interop.promptfoo.providers import (
    ECHO,
    HTTP,
    JAVASCRIPT,
    LLM,
    PROGRAM,
    PYTHON,
    Provider,
    address_of,
    code_of,
    read_providers,
)
from evalloom.interop.promptfoo.target import Answer, Column, ConfigTarget
from evalloom.settings import LlmSettings, key_of, llm_of, resolve, with_llms
from evalloom.targets.base import BuiltTarget, TargetOptions

GRADER = "grader"
EMBEDDER = "grader embeddings"
_SUFFIXES = (".yaml", ".yml", ".json")
_MARK = lazy_pattern(rb"\b(prompts|providers|targets)[\"']?[ \t]*:")
_REQUEST_S = 300.0
_MOST_COLUMNS = 10_000
_SENT_APART = ("tools", "response_format", "system")
"""What a request has a place of its own for, whatever the protocol."""


def read_suite(path: Path, options: SuiteOptions) -> Suite | None:
    """Return the suite in a config file; None if the file is no config of prompts or providers."""
    document = _document(path)
    if document is None:
        return None
    return _Reader(path, document, options).suite()


def _rebuild(path: Path, options: TargetOptions) -> BuiltTarget:
    assert options.settings is not None
    suite = read_suite(path, SuiteOptions(options.settings, options))
    if suite is None:
        raise usage_error("no_provider", f"{path}: is no config of prompts and providers any more")
    return suite.target


def _document(path: Path) -> Record | None:
    if path.suffix.lower() not in _SUFFIXES:
        return None
    try:
        # Most files with these suffixes are datasets, which need no second reading.
        if not _MARK.search(path.read_bytes()):
            return None
    except OSError:
        return None
    rows = [item for item in RowReader(source_of(path)) if isinstance(item, Row)]
    document = rows[0].value if len(rows) == 1 else None
    if not isinstance(document, dict) or not is_config(document):
        return None
    return document if {"prompts", "providers", "targets"} & document.keys() else None


class _Reader:
    """Reads one config."""

    def __init__(self, path: Path, document: Record, options: SuiteOptions) -> None:
        self._path = path
        self._base = path.absolute().parent.as_posix()
        self._environment = configs.environment_of(document)
        self._document: Record = configs.with_environment(document, self._environment)
        self._options = options
        self._settings = options.settings
        files.open_folder(self._base)
        self._scripts = Scripts(self._base, options.target.allow_code)
        self._warnings: list[str] = []
        self._closing: list[Any] = []
        self._llms: dict[str, LlmSettings] = {}
        self._has_other_llms = False

    def suite(self) -> Suite:
        prompts = self._prompts()
        providers = read_providers(self._document.get("providers", self._document.get("targets")) or [], self._base)
        columns, profiles, unusable = self._columns(prompts, providers)
        names = {name for column in profiles for name in (column.name, column.run, column.variant.rpartition("@")[0])}
        self._has_other_llms = not names.issuperset(self._options.profiles)
        judge, embeddings = self._graders()
        if not profiles and not self._options.profiles:
            raise usage_error("no_provider", f"{self._path}: providers: none is named. Name one, or pass --profile LLM")
        in_order = configs.runs_in_order(self._document, self._base) or any(p.uses_conversation for p in prompts)
        own_filters = object_in(self._document, "nunjucksFilters")
        filters = {name: self._text(f"{files.PREFIX}{file}") for name, file in own_filters.items()}
        call = ConfigTarget(columns, self._scripts, self._environment, self._scripts.filters(own_filters))
        target = BuiltTarget(
            name=self._path.as_posix(),
            kind="promptfoo",
            # What a column runs is in the digest of its variant, so that a new column leaves the others as they are.
            digest=digest_of("promptfoo"),
            call=call,
            excludes=call.excludes,
            watch=tuple(self._watched(prompts)),
            closing=self._close,
            needs_llm=False,
            warnings=tuple(self._warnings),
            variants={name: digest_of("column", *self._parts(column), filters) for name, column in columns.items()},
            in_order=in_order,
            rebuild=partial(_rebuild, self._path),
        )
        return Suite(
            target,
            tuple(profiles),
            tuple(prompt.name for prompt in prompts),
            self._llms,
            unusable,
            judge,
            embeddings,
            self._run_options(in_order),
            frozenset[str]().union(*map(_variables, prompts)),
            changed_test,
        )

    def _parts(self, column: Column) -> Iterator[Any]:
        """Yield what a column runs: a changed part makes other runs."""
        prompt, provider = column.prompt, column.provider
        yield [prompt.text, prompt.config, msgspec.to_builtins(column.config)]
        if prompt.code is not None:
            yield [prompt.code.text, prompt.code.function]
        if provider is None:
            return
        # The settings of an llm are in the digest of its profile already.
        yield [provider.id, provider.transform, {} if provider.kind == LLM else provider.config]
        for reference in (provider.transform, code_of(provider) if provider.kind in (PYTHON, JAVASCRIPT) else ""):
            yield self._text(reference)

    def _text(self, reference: str) -> str:
        """Return the text of a file of code; empty if it is none, or cannot be read."""
        try:
            return files.read(reference, self._base).text if files.is_file(reference) else ""
        except FileProblem:
            return ""

    async def _close(self) -> None:
        for resource in self._closing:
            await resource.close()

    def _prompts(self) -> list[Prompt]:
        written = self._document.get("prompts") or ["{{prompt}}"]
        read = list(read_prompts(written, self._base))
        if problems := [str(item) for item in read if isinstance(item, UnreadPrompt)]:
            raise usage_error("prompt_unreadable", "\n".join(f"{self._path}: prompts: {text}" for text in problems))
        return named(item for item in read if isinstance(item, Prompt))

    def _watched(self, prompts: list[Prompt]) -> Iterator[Path]:
        yield self._path
        for prompt in prompts:
            for alias in prompt.aliases:
                if os.path.isabs(alias) and os.path.isfile(alias):
                    yield Path(alias)

    def _columns(
        self, prompts: list[Prompt], providers: list[Provider]
    ) -> tuple[dict[str, Column], list[Profile], dict[str, str]]:
        if len(prompts) * len(providers) > _MOST_COLUMNS:
            expected = f"expected at most {_MOST_COLUMNS:,} columns"
            got = f"got {len(prompts):,} prompts × {len(providers)} providers"
            raise usage_error("too_many_columns", f"{self._path}: {expected}, {got}. Split the file")
        columns = {prompt.name: Column(prompt) for prompt in prompts}
        profiles: list[Profile] = []
        unusable: dict[str, str] = {}
        for provider in providers:
            own = [p for p in prompts if not provider.prompts or any(map(p.is_called, provider.prompts))]
            try:
                config = self._config(provider)
                is_code = provider.kind not in (LLM, ECHO) and not provider.problem
                answer = self._answer(provider) if is_code else None
                problem = provider.problem or ("" if answer is not None else self._add_llm(provider, config))
            except (EvalloomError, FileProblem) as error:
                config, answer, problem = provider.config, None, str(error)
            if not own:
                named = ", ".join(map(quote, provider.prompts))
                message = f"{provider.name}: prompts: there is no prompt {named}, so it gets none"
                self._warnings.append(f"{message} [provider_without_prompt]")
            if provider.warning and not problem and not self._options.profiles:
                self._warnings.append(provider.warning)
            for prompt in own:
                variant = f"{provider.name}@{prompt.name}"
                name = variant if len(prompts) > 1 else provider.name
                apart = {key: value for key, value in config.items() if key in _SENT_APART}
                columns[variant] = Column(prompt, provider, answer, from_config(apart))
                run = "" if answer is not None else "echo" if provider.kind == ECHO else provider.name
                profiles.append(Profile(name, run, run, variant=variant))
                if problem:
                    unusable[name] = problem
        return columns, profiles, unusable

    def _config(self, provider: Provider) -> Record:
        """Return the settings of a provider, with the files that they name read. Raises FileProblem."""
        config: Record = _with_files(provider.config, self._base)
        return config

    def _add_llm(self, provider: Provider, config: Record) -> str:
        """Declare the llm of a provider; return why it cannot be, or nothing."""
        if provider.kind == ECHO or provider.name in self._settings.llms:
            return ""
        self._llms[provider.name] = self._llm(provider.id, config, provider.name, provider.delay_ms)
        return ""

    def _llm(self, id: str, config: Record, label: str, delay_ms: float = 0.0) -> LlmSettings:
        provider = Provider(label, id, LLM, config)
        params = {key: value for key, value in provider.params.items() if key not in _SENT_APART}
        overrides: Record = {**_DEFAULTS, **params} if not config.get("omitDefaults") else params
        if address := address_of(config):
            overrides["base_url"] = address
        if isinstance(config.get("apiVersion"), str):
            overrides["api_version"] = config["apiVersion"]
        if isinstance(config.get("apiKeyEnvar"), str):
            overrides["key_env"] = config["apiKeyEnvar"]
        headers = config.get("headers")
        if isinstance(headers, dict):
            overrides["headers"] = {str(name): str(value) for name, value in headers.items()}
        delay_ms = delay_ms or _number(object_in(self._document, "evaluateOptions").get("delay"))
        if delay_ms:
            overrides["requests_per_minute"] = max(1, int(60_000 / max(delay_ms, 1.0)))
        return resolve(self._settings, id, overrides, label=label, is_trusted=False)

    def _answer(self, provider: Provider) -> Answer:
        if provider.kind == HTTP:
            from evalloom.interop.promptfoo.http_provider import HttpProvider, why_unusable

            if why := why_unusable(provider):
                raise usage_error("provider_unusable", why)
            client = HttpProvider(provider, self._scripts, self._base, self._options.target.timeout_s or _REQUEST_S)
            self._closing.append(client)
            return client
        from evalloom.interop.promptfoo.code_provider import javascript_provider, program_provider, python_provider

        if provider.kind in (PROGRAM, PYTHON) and not self._options.target.allow_code:
            raise usage_error(
                "code_not_allowed",
                f"{provider.id}: runs only with --allow-code, or 'run: {{allow_code: true}}' in evalloom.yaml",
            )
        makers = {PROGRAM: program_provider, PYTHON: python_provider, JAVASCRIPT: javascript_provider}
        return makers[provider.kind](provider, self._scripts, self._base, self._options.target)

    def _graders(self) -> tuple[str, str]:
        """Return the names of the llms that grade, and that embed; empty where the config names none."""
        default = configs.default_test_of(self._document, self._base)
        written = object_in(default, "options").get("provider") or default.get("provider")
        parts = written if isinstance(written, dict) and not isinstance(written.get("id"), str) else {"text": written}
        return self._grader(parts.get("text"), GRADER), self._grader(parts.get("embedding"), EMBEDDER)

    def _grader(self, written: Any, label: str) -> str:
        (provider,) = read_providers([written], self._base) if written else (None,)
        while label in self._llms:
            # A provider may have this label.
            label += " (judge)"
        if provider is None or self._has_other_llms:
            # Other llms in the place of the providers: the grader of the config would be asked behind their back.
            return ""
        try:
            if provider.kind == LLM and not provider.problem:
                llm = self._llm(provider.id, self._config(provider), label)
                # A grader without its key leaves graded asserts unscored, and the others are scored.
                key_of(llm_of(with_llms(self._settings, [llm]), label))
                self._llms[label] = llm
                return label
            problem = provider.problem or f"{provider.id}: is no llm"
        except (EvalloomError, FileProblem) as error:
            problem = str(error)
        self._warnings.append(f"defaultTest.options.provider: {problem} [grader_unusable]")
        return ""

    def _run_options(self, in_order: bool) -> Record:
        written = {**object_in(self._document, "commandLineOptions"), **object_in(self._document, "evaluateOptions")}
        options: Record = {}
        for theirs, ours in (("repeat", "repeat"), ("maxConcurrency", "concurrency")):
            if isinstance(written.get(theirs), int) and written[theirs] > 0:
                options[ours] = written[theirs]
        for theirs, ours in (("timeoutMs", "timeout_s"), ("maxEvalTimeMs", "max_time")):
            if _number(written.get(theirs)) > 0:
                options[ours] = _number(written[theirs]) / 1000
        if isinstance(written.get("cache"), bool):
            options["cache"] = written["cache"]
        return options


def _variables(prompt: Prompt) -> frozenset[str]:
    """Return the variables of a prompt; none of code, which is not run for that."""
    try:
        return templates.names_in(prompt.text) - {"env", CONVERSATION}
    except templates.TemplateError:
        return frozenset()  # the run says what is wrong with it


def changed_test(record: Record, inputs: Record, checks: Sequence[Check]) -> Record:
    """Return a test with other variables and only the given asserts; its options and its folder stay."""
    meta = dialect.DIALECT.to_case(record, Origin("", 1)).meta
    kept: Record = {name: meta[name] for name in ("options", "metadata", "providers", "prompts") if name in meta}
    asserts = [{"type": check.kind, "value": check.expected} for check in checks]
    base = {"basePath": record["basePath"]} if "basePath" in record else {}
    return {"vars": inputs, "assert": asserts, **kept, **base}


_DEFAULTS: Mapping[str, Any] = {"temperature": 0, "max_tokens": 1024}
"""What promptfoo sends where the config says nothing."""


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _with_files(value: Any, base: str, level: int = 0) -> Any:
    """Replace references to files of JSON, YAML or text by their content. Raises FileProblem."""
    if files.is_file(value) and not files.language_of(value) and level < 8:
        return _with_files(files.read(value, base).value, base, level + 1)
    if isinstance(value, list):
        # A file of tools in a list of tools is several of them.
        read = [(files.is_file(item), _with_files(item, base, level)) for item in value]
        return [part for is_file, item in read for part in (item if is_file and isinstance(item, list) else [item])]
    if isinstance(value, dict):
        return {name: _with_files(inner, base, level) for name, inner in value.items()}
    return value
