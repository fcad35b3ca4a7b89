"""Prepare a plan from flags and evalloom.yaml."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Case, Profile, Record
from evalloom.core.text import did_you_mean
from evalloom.engine.cases import compile_filter
from evalloom.engine.lint import find_sources
from evalloom.engine.plan import BatchMetadata, Plan, Reading, spooled
from evalloom.engine.system import Catalog
from evalloom.files.source import Source
from evalloom.llms import OFFLINE
from evalloom.settings import (
    FILE_NAME,
    LlmSettings,
    Repeat,
    RunSettings,
    Settings,
    environment,
    first_profile,
    key_of,
    keys,
    llm_of,
)
from evalloom.settings import load as load_settings
from evalloom.settings import profile as find_profile
from evalloom.settings import secrets as secrets_of
from evalloom.targets import BuiltTarget, TargetOptions, build, forms

if TYPE_CHECKING:
    from evalloom.engine.quarantine import Quarantine
    from evalloom.engine.suite import Suite
    from evalloom.engine.until_sure import Question


class RunRequest(Struct, frozen=True):
    """What a user asks to run; evalloom.yaml fills what is empty. `options` are fields of RunSettings."""

    datasets: tuple[str, ...] = ()
    config: str = ""
    target: str | Record | BuiltTarget | tuple[str | Record | BuiltTarget, ...] = ""
    """What is tested; several targets run beside each other."""
    judge: str = ""
    record: str = ""
    replay: str = ""
    options: Record = {}
    reading: Reading = Reading()
    python_cases: tuple[Case, ...] = ()
    """Cases from Python instead of from files."""
    metadata: BatchMetadata = BatchMetadata()
    question: Question | None = None
    """What decides when to stop; None to run every case."""


def prepare(request: RunRequest, catalog: Catalog) -> Plan:
    """Return the plan for a request. Every error in the request is raised here, before any call is made."""
    settings = load_settings(Path(request.config) if request.config else None, catalog.sections)
    try:
        return _plan(request, settings, catalog)
    except EvalloomError as error:
        # The message of a user's module that cannot be imported may hold a key.
        message = keys.hidden(error.args[0], secrets_of(settings))
        raise EvalloomError(error.code, message, exit_code=error.exit_code) from None


def _plan(request: RunRequest, settings: Settings, catalog: Catalog) -> Plan:
    flags = _run_options(request.options)
    options = msgspec.structs.replace(settings.run.resolved(), **flags)
    _check_options(options, settings)
    suite = _suite(request, settings, options, catalog)
    if suite is not None:
        settings, options = suite.with_llms(settings), suite.options_over(settings, flags)
        _check_options(options, settings)
        target, profiles = suite.target, suite.profiles(settings, options)
    elif several := _several(request, settings, options, catalog):
        target, profiles = several
    else:
        target = _target(request, settings, options, catalog)
        profiles = _with_variants(_profiles(settings, options, target), options.variants, target)
    if options.vary:
        from evalloom.engine.several import vary  # deferred: few runs do

        if not target.may_ask:
            raise usage_error("bad_option", f"--vary: the target {target.name} calls no llm, so nothing would vary")
        profiles = vary(profiles, options.vary)
    judge = request.judge or settings.judge or (suite.judge if suite is not None else "")
    llm_names = [name for profile in profiles for name in (profile.run, profile.verify)]
    llm_names += [judge, settings.embeddings] if target.may_ask else []
    _check_executor(request, options, target)
    for name in llm_names:
        if name and not request.replay:
            _check_llm(llm_of(settings, name), options, settings)
    # The author of evalloom.yaml may run code; the author of a dataset may not.
    checks = tuple(catalog.matchers.parse(check) for check in settings.checks)
    return Plan(
        target,
        profiles,
        catalog,
        settings,
        options,
        sources=() if request.python_cases else _sources(request, settings, target, catalog),
        python_cases=request.python_cases,
        reading=_reading(request.reading, target),
        checks=checks,
        functions=catalog.matchers.functions_of(checks, settings.folder),
        judge=judge,
        record=request.record,
        replay=request.replay,
        metadata=request.metadata,
        question=_question(request.question, options),
        quarantine=_quarantine(request, options, settings),
    )


def _quarantine(request: RunRequest, options: RunSettings, settings: Settings) -> Quarantine | None:
    """Read the file of quarantined cases: a flag is relative to the working folder, a setting to its file."""
    # A kind of batch with its own rules decides by them.
    if not options.quarantine or request.metadata.config.get("kind"):
        return None
    if request.question is not None:
        raise usage_error("bad_option", "--until-sure and --quarantine: expected one of them, got both")
    from evalloom.engine.quarantine import read_quarantine  # deferred: few suites have one

    is_flag = "quarantine" in request.options
    return read_quarantine(Path(options.quarantine) if is_flag else settings.folder / options.quarantine)


def _question(question: Question | None, options: RunSettings) -> Question | None:
    """Complete the question of --until-sure: --fail-under is its threshold."""
    if question is None:
        return None
    if not 0 < question.margin < 1:
        raise usage_error("bad_option", f"--margin: expected a rate above 0 and below 1, got {question.margin:g}")
    if question.baseline and options.fail_under is not None:
        raise usage_error("bad_option", "--until-sure: expected --fail-under or --against, got both")
    return msgspec.structs.replace(question, threshold=options.fail_under)


def _run_options(options: Record) -> Record:
    """Replace `repeat: {n: 5, pass: 0.8}`, which Python code may pass, by its two options."""
    if not isinstance(options.get("repeat"), dict):
        return options
    try:
        repeat = msgspec.convert(options["repeat"], Repeat)
    except msgspec.ValidationError as error:
        raise usage_error("bad_option", f"repeat: expected a number or {{'n': 5, 'pass': 0.8}}: {error}") from None
    return {"pass_if": repeat.pass_if, **options, "repeat": repeat.n}


def _reading(reading: Reading, target: BuiltTarget) -> Reading:
    """Check datasets against the contract that the target declares, or against its steps."""
    if target.shape is not None:
        return msgspec.structs.replace(reading, rules=msgspec.structs.replace(reading.rules, shape=target.shape))
    if not target.holds_cases or reading.rules.contract is not None:
        return reading
    rules = msgspec.structs.replace(reading.rules, contract=target.contract, has_no_contract=target.contract is None)
    return msgspec.structs.replace(reading, rules=rules)


def check_executor(options: RunSettings, flags: Record) -> None:
    """Refuse options of a cluster without one, and two clusters at once."""
    if options.executor != "dask":
        for name in ("scheduler", "workers"):
            if flags.get(name):
                raise usage_error("bad_option", f"--{name}: goes with --executor dask")
    elif options.scheduler and options.workers:
        message = "--scheduler and --workers: expected one of them, got both: the scheduler has workers of its own"
        raise usage_error("bad_option", message)


def _check_executor(request: RunRequest, options: RunSettings, target: BuiltTarget) -> None:
    """Refuse what cannot run on a cluster."""
    check_executor(options, request.options)
    if options.executor != "dask":
        return
    if request.record or request.replay:
        flag = "--record" if request.record else "--replay"
        raise usage_error("bad_option", f"{flag}: the file is on this machine. Run without --executor dask")
    if target.in_order:
        why = "a test uses the outputs of earlier ones, so all of them run one after the other"
        raise usage_error("runs_in_order", f"--executor dask: {target.name}: {why}. Run it without the flag")


def _check_llm(llm: LlmSettings, options: RunSettings, settings: Settings) -> None:
    # On a cluster the keys are those of the workers.
    if options.executor != "dask":
        key_of(llm)
    is_priced = llm.price is not None or llm.model in settings.prices or llm.protocol in OFFLINE
    if options.max_cost is not None and not is_priced:
        message = f"--max-cost: the price of llm {llm.name!r} is unknown. Set 'price: {{input: 1, output: 4}}'"
        raise usage_error("price_missing", f"{message}, per million tokens, or use --max-tokens")


_LEAST = {"concurrency": 1, "repeat": 1, "limit": 0, "max_cost": 0, "max_tokens": 0, "max_time": 0}

_WHOLE = ("concurrency", "repeat", "limit", "max_tokens")


def _check_options(options: RunSettings, settings: Settings) -> None:
    for name, least in _LEAST.items():
        value = options.repeats if name == "repeat" else getattr(options, name)
        kinds = int if name in _WHOLE else (int, float)
        if value is not None and (not isinstance(value, kinds) or isinstance(value, bool)):
            what = "an integer" if name in _WHOLE else "a number"
            raise usage_error("bad_option", f"--{name.replace('_', '-')}: expected {what}, got {value!r}")
        # Not `value < least`: NaN is below nothing.
        if value is not None and not value >= least:
            raise usage_error("bad_option", f"--{name.replace('_', '-')}: expected {least} or more, got {value:g}")
    if options.timeout_s is not None and not 0 < options.timeout_s < float("inf"):
        raise usage_error("bad_option", f"--timeout: expected a number of seconds above 0, got {options.timeout_s:g}")
    if options.fail_under is not None and not 0 <= options.fail_under <= 1:
        raise usage_error("bad_option", f"--fail-under: expected a rate from 0 to 1, got {options.fail_under:g}")
    if options.pass_if is not None and not (isinstance(options.pass_if, int | float) and 0 < options.pass_if <= 1):
        raise usage_error("bad_option", f"--pass-if: expected a share above 0, up to 1, got {options.pass_if!r}")
    if options.pass_if is not None and options.pass_if < 1 and options.repeats == 1:
        raise usage_error("bad_option", f"--pass-if {options.pass_if:g}: each case runs only once. Add --repeat 5")
    if not isinstance(options.allow_code, bool):
        # Python code may pass anything, and "false" is true.
        raise usage_error("bad_option", f"allow_code: expected True or False, got {options.allow_code!r}")
    if options.filter:
        compile_filter(options.filter)
    if settings.gates:
        from evalloom.analysis import gates  # deferred: few suites have gates

        for text in settings.gates:
            gates.parse(text)


def _several(
    request: RunRequest, settings: Settings, options: RunSettings, catalog: Catalog
) -> tuple[BuiltTarget, tuple[Profile, ...]] | None:
    """Return several targets as one, with the columns to run; None where there is only one."""
    specs = request.target if isinstance(request.target, tuple) else ()
    if len(specs) < 2 and (request.target or settings.target or not settings.targets):
        return None
    from evalloom.engine import several  # deferred: few runs have several targets

    if options.variants:
        raise usage_error("no_variants", "--variants: goes with a single target")
    target_options = _target_options(settings, options, catalog)
    if specs:
        built = [spec if isinstance(spec, BuiltTarget) else build(spec, Path(), target_options) for spec in specs]
        targets = several.named(built)
    else:
        targets = {name: build(spec, settings.folder, target_options) for name, spec in settings.targets.items()}
    profiles = {name: _profiles(settings, options, target) for name, target in targets.items()}
    is_only = all(len(own) == 1 for own in profiles.values())
    columns = [column for name, own in profiles.items() for column in several.columns(own, name, is_only)]
    return several.combine(targets), tuple(columns)


def _suite(request: RunRequest, settings: Settings, options: RunSettings, catalog: Catalog) -> Suite | None:
    """Return the suite that the target, here or in the settings, names, or the only dataset if nothing names one."""
    from evalloom.engine.suite import SUITE, SuiteOptions

    suite_options = SuiteOptions(settings, _target_options(settings, options, catalog), tuple(options.profiles))
    spec, folder = (request.target, Path()) if request.target else (settings.target, settings.folder)
    if isinstance(spec, str) and spec.startswith(SUITE):
        path = folder / spec.removeprefix(SUITE)
        suite = catalog.suite(path, suite_options) if path.is_file() else None
        if suite is None:
            expected = "expected a file with prompts and providers, such as suite:promptfooconfig.yaml"
            got = "got another file" if path.is_file() else "there is no such file"
            raise usage_error("no_suite", f"target {spec}: {expected}; {got}")
        return suite
    paths = list(request.datasets) or settings.datasets
    names_target = request.target or settings.target or settings.targets or request.metadata.config.get("kind")
    if names_target or request.python_cases or len(paths) != 1 or not os.path.isfile(paths[0]):
        return None
    return catalog.suite(Path(paths[0]), suite_options)


def _target_options(settings: Settings, options: RunSettings, catalog: Catalog) -> TargetOptions:
    if options.allow_code:
        refuse_without_sandbox()
    return TargetOptions(
        options.timeout_s,
        environment(settings.folder),
        tuple(secrets_of(settings)),
        options.allow_code,
        settings,
        catalog.targets,
        tuple(options.variants),
    )


def _target(request: RunRequest, settings: Settings, options: RunSettings, catalog: Catalog) -> BuiltTarget:
    target_options = _target_options(settings, options, catalog)
    spec = request.target[0] if isinstance(request.target, tuple) and request.target else request.target
    if isinstance(spec, BuiltTarget):
        return spec
    if spec and not isinstance(spec, tuple):
        return build(spec, Path(), target_options)
    if isinstance(settings.target, dict) and "timeout_s" in request.options:
        # A flag overrides the settings, those of the target included.
        return build({**settings.target, "timeout_s": options.timeout_s}, settings.folder, target_options)
    if settings.target:
        return build(settings.target, settings.folder, target_options)
    targets = forms(catalog.all_targets)
    raise usage_error("no_target", f"name what is tested: --target {targets}, or 'target:' in {FILE_NAME}")


def refuse_without_sandbox() -> None:
    """Raise where processes cannot be isolated: code in data files runs isolated or not at all (PIPE-12)."""
    from evalloom.core import sandbox  # deferred: few commands run code

    if why := sandbox.why_unavailable():
        raise EvalloomError(
            "no_sandbox", f"--allow-code, run.allow_code: code cannot be isolated here: {why}", exit_code=3
        )


def _profiles(settings: Settings, options: RunSettings, target: BuiltTarget) -> tuple[Profile, ...]:
    if options.profiles and target.may_ask:
        return tuple(find_profile(settings, name) for name in dict.fromkeys(options.profiles))
    if not target.may_ask or (not target.needs_llm and not settings.profiles and not settings.llms):
        return (Profile("default"),)
    return (first_profile(settings),)


def _with_variants(profiles: tuple[Profile, ...], variants: list[str], target: BuiltTarget) -> tuple[Profile, ...]:
    """Combine each profile with each variant of the target."""
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


def _sources(request: RunRequest, settings: Settings, target: BuiltTarget, catalog: Catalog) -> tuple[Source, ...]:
    paths = list(request.datasets)
    if not paths:
        own = [str(target.dataset)] if target.dataset else []
        # A target of the command line comes before the settings, which name datasets for another one.
        is_own_first = request.target and target.dataset is not None and target.dataset.is_file()
        paths = own if is_own_first else settings.datasets or own
    if not paths:
        raise usage_error("no_dataset", f"name a dataset, or 'datasets:' in {FILE_NAME}")
    sources = (spooled(source) for source, _ in find_sources(paths, catalog, request.reading.encoding))
    return tuple(msgspec.structs.replace(source, path=source.path and source.path.absolute()) for source in sources)
