"""From what a user asked for, in flags and in evalloom.yaml, to a plan."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from evalloom import settings
from evalloom.analysis import gates
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Case, Profile, Record
from evalloom.core.text import did_you_mean
from evalloom.engine.cases import compile_filter
from evalloom.engine.lint import find_sources
from evalloom.engine.plan import BatchMetadata, Plan, Reading, spooled
from evalloom.engine.system import Catalog
from evalloom.files.source import Source
from evalloom.llms import OFFLINE
from evalloom.settings import LlmSettings, RunSettings, Settings, keys
from evalloom.targets import BuiltTarget, TargetOptions, build, forms


class RunRequest(Struct, frozen=True):
    """What was asked for; what is empty is left to evalloom.yaml. `options` are fields of RunSettings."""

    datasets: tuple[str, ...] = ()
    config: str = ""
    target: str | Record | BuiltTarget = ""
    judge: str = ""
    allow_code: bool = False
    record: str = ""
    replay: str = ""
    options: Record = {}
    reading: Reading = Reading()
    python_cases: tuple[Case, ...] = ()
    """Cases from Python instead of from files."""
    metadata: BatchMetadata = BatchMetadata()


def prepare(request: RunRequest, catalog: Catalog) -> Plan:
    """The plan for what was asked. Everything that can be wrong with it is said here, before any call."""
    known = settings.load(Path(request.config) if request.config else None, catalog.sections)
    try:
        return _plan(request, known, catalog)
    except EvalloomError as fault:
        # A module of the user's that cannot be imported may tell a key in its own words.
        raise EvalloomError(
            fault.code, keys.hidden(fault.args[0], settings.secrets(known)), exit_code=fault.exit_code
        ) from None


def _plan(request: RunRequest, known: Settings, catalog: Catalog) -> Plan:
    options = msgspec.structs.replace(known.run, **request.options)
    _check_options(options, known)
    target = _target(request, known, options, catalog)
    profiles = _with_variants(_profiles(known, options, target), options.variants, target)
    judge = request.judge or known.judge
    whom = [judge, known.embeddings] if target.may_ask else []
    for name in [*(name for one in profiles for name in (one.run, one.verify)), *whom]:
        if name and not request.replay:
            _check_llm(settings.llm_of(known, name), options, known)
    # Who wrote evalloom.yaml may run code; who wrote a dataset may not.
    checks = tuple(catalog.matchers.parse(written) for written in known.checks)
    return Plan(
        target,
        profiles,
        catalog,
        known,
        options,
        sources=() if request.python_cases else _sources(request, known, target, catalog),
        python_cases=request.python_cases,
        reading=_reading(request.reading, target),
        checks=checks,
        functions=catalog.matchers.functions_of(checks, known.folder),
        judge=judge,
        allow_code=request.allow_code,
        record=request.record,
        replay=request.replay,
        metadata=request.metadata,
    )


def _reading(reading: Reading, target: BuiltTarget) -> Reading:
    """How datasets are read: checked against the contract that the target declares, or the steps that it has."""
    if target.shape is not None:
        return msgspec.structs.replace(reading, rules=msgspec.structs.replace(reading.rules, shape=target.shape))
    if not target.holds_cases or reading.rules.contract is not None:
        return reading
    rules = msgspec.structs.replace(reading.rules, contract=target.contract, has_no_contract=target.contract is None)
    return msgspec.structs.replace(reading, rules=rules)


def _check_llm(llm: LlmSettings, options: RunSettings, known: Settings) -> None:
    settings.key_of(llm)
    is_priced = llm.price is not None or llm.model in known.prices or llm.protocol in OFFLINE
    if options.max_cost is not None and not is_priced:
        message = f"--max-cost: nobody told the price of llm {llm.name!r}. Give it 'price: {{input: 1, output: 4}}'"
        raise usage_error("price_missing", f"{message}, per million tokens, or use --max-tokens")


_LEAST = {"concurrency": 1, "repeat": 1, "limit": 0, "max_cost": 0, "max_tokens": 0, "max_time": 0}


def _check_options(options: RunSettings, known: Settings) -> None:
    for name, least in _LEAST.items():
        value = getattr(options, name)
        # Not `value < least`: NaN is below nothing.
        if value is not None and not value >= least:
            raise usage_error("bad_option", f"--{name.replace('_', '-')}: expected {least} or more, got {value:g}")
    if options.timeout_s is not None and not 0 < options.timeout_s < float("inf"):
        raise usage_error("bad_option", f"--timeout: expected a number of seconds above 0, got {options.timeout_s:g}")
    if options.fail_under is not None and not 0 <= options.fail_under <= 1:
        raise usage_error("bad_option", f"--fail-under: expected a rate from 0 to 1, got {options.fail_under:g}")
    if options.filter:
        compile_filter(options.filter)
    for text in known.gates:
        gates.parse(text)


def _target(request: RunRequest, known: Settings, options: RunSettings, catalog: Catalog) -> BuiltTarget:
    if request.allow_code:
        refuse_without_sandbox()
    given = TargetOptions(
        options.timeout_s,
        settings.environment(known.folder),
        tuple(settings.secrets(known)),
        request.allow_code,
        known,
        catalog.targets,
    )
    if isinstance(request.target, BuiltTarget):
        return request.target
    if request.target:
        return build(request.target, Path(), given)
    if isinstance(known.target, dict) and "timeout_s" in request.options:
        # A flag wins over the settings, also over those of the target itself.
        return build({**known.target, "timeout_s": options.timeout_s}, known.folder, given)
    if known.target:
        return build(known.target, known.folder, given)
    known_forms = forms(catalog.all_targets)
    raise usage_error("no_target", f"name what is tested: --target {known_forms}, or 'target:' in {settings.FILE_NAME}")


def refuse_without_sandbox() -> None:
    """Raises where a process cannot be isolated: code of data files runs isolated or not at all (PIPE-12)."""
    from evalloom.core import sandbox  # deferred: few commands run code

    if why := sandbox.why_unavailable():
        raise EvalloomError("no_sandbox", f"--allow-code: code cannot be isolated here: {why}", exit_code=3)


def _profiles(known: Settings, options: RunSettings, target: BuiltTarget) -> tuple[Profile, ...]:
    if options.profiles and target.may_ask:
        found = [settings.profile(known, name) for name in dict.fromkeys(options.profiles)]
        return tuple(found)
    if not target.may_ask or (not target.needs_llm and not known.profiles and not known.llms):
        return (Profile("default"),)
    return (settings.first_profile(known),)


def _with_variants(profiles: tuple[Profile, ...], variants: list[str], target: BuiltTarget) -> tuple[Profile, ...]:
    """Each profile once for every variant of the target; without variants, as they are."""
    if variants and not target.variants:
        raise usage_error("no_variants", f"--variants: the target {target.name} has none")
    for name in variants:
        if name not in target.variants:
            hint = did_you_mean(name, target.variants) or f"; it has {', '.join(target.variants)}"
            raise usage_error("no_variants", f"--variants: {target.name} has no variant {name!r}{hint}")
    return (
        tuple(
            msgspec.structs.replace(profile, name=f"{profile.name}@{variant}", variant=variant)
            for profile in profiles
            for variant in dict.fromkeys(variants)
        )
        or profiles
    )


def _sources(request: RunRequest, known: Settings, target: BuiltTarget, catalog: Catalog) -> tuple[Source, ...]:
    paths = list(request.datasets) or _default_datasets(request, known, target)
    if not paths:
        raise usage_error("no_dataset", f"name a dataset, or 'datasets:' in {settings.FILE_NAME}")
    return tuple(spooled(source) for source, _ in find_sources(paths, catalog, request.reading.encoding))


def _default_datasets(request: RunRequest, known: Settings, target: BuiltTarget) -> list[str]:
    """The datasets that the settings name, or the target; a target of the command line is asked first."""
    own = [str(target.dataset)] if target.dataset else []
    is_there = target.dataset is not None and target.dataset.is_file()
    return own if request.target and is_there else known.datasets or own
