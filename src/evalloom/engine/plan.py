"""A plan: which cases run against which target, under which profiles, and how."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

import evalloom
from evalloom.batchlog import FOLDER, new_id
from evalloom.core import command_line
from evalloom.core.clock import utc_now
from evalloom.core.digest import digest_file, digest_value, qualified_name
from evalloom.core.errors import usage_error
from evalloom.core.model import Batch, Case, Check, Profile, Record
from evalloom.data.checks import FIELD, CheckLists
from evalloom.data.dataset import Dataset, Expansion
from evalloom.data.dialect import Rules
from evalloom.data.identity import FileNames
from evalloom.data.mapping import Mapping
from evalloom.engine.cases import select_cases, with_checks
from evalloom.engine.results import OWN_OUTCOME, UNTIL_SURE
from evalloom.engine.run import Conditions, Jobs, Keys, SelectedCase
from evalloom.engine.system import Catalog
from evalloom.files.source import Source
from evalloom.settings import RunSettings, Settings, environment, keys, llm_of
from evalloom.settings import secrets as secrets_of
from evalloom.targets import BuiltTarget

if TYPE_CHECKING:
    from evalloom.engine.quarantine import Quarantine
    from evalloom.engine.survey import Survey
    from evalloom.engine.until_sure import Question

CHECK_LISTS = "check_lists"
"""The option of a batch that says which records may have a list of checks."""
Functions = dict[str, Callable[..., Any]]


class Reading(Struct, frozen=True):
    """How datasets are read."""

    dialect: str = ""
    mapping: Mapping = Mapping()
    encoding: str = ""
    rules: Rules = Rules()


class BatchMetadata(Struct, frozen=True):
    """What a system adds to the manifest of its batches; see Batch."""

    config: Record = {}
    documents: dict[str, str] = {}
    options: Record = {}
    """Options of the system, stored with those of the run."""


class Plan(Struct, frozen=True, dict=True):
    """One batch to run. Flags and evalloom.yaml fill the same `options`."""

    target: BuiltTarget
    profiles: tuple[Profile, ...]
    catalog: Catalog
    settings: Settings = Settings()
    options: RunSettings = RunSettings()
    sources: tuple[Source, ...] = ()
    python_cases: tuple[Case, ...] = ()
    """Cases from Python instead of from files."""
    reading: Reading = Reading()
    checks: tuple[Check, ...] = ()
    """Checks of the user's own that every case gets."""
    functions: Functions = {}
    """Python functions that those checks name."""
    judge: str = ""
    record: str = ""
    replay: str = ""
    only: frozenset[str] | None = None
    """The keys of the runs to do; None for all."""
    metadata: BatchMetadata = BatchMetadata()
    question: Question | None = None
    """What decides when to stop; None to run every case."""
    quarantine: Quarantine | None = None
    """The cases that run and do not decide."""
    home: Path = Path()
    """The folder whose `.evalloom` holds the batches and the cache."""

    def datasets(self) -> Iterator[Dataset]:
        for source in self.sources:
            reading, names = self.reading, self.names.get(source)
            dataset = Dataset(
                source,
                self.catalog.formats,
                reading.dialect,
                reading.mapping,
                names=names,
                declared=self._declared,
                allow_code=self.options.allow_code,
                expansion=self._expansions.get(source),
            )
            self.names[source] = dataset.names
            if dataset.expansion is not None:
                self._expansions[source] = dataset.expansion
            yield dataset

    @property
    def _declared(self) -> frozenset[str]:
        """The inputs that the target declares. A batch with its own choice of checks has no place for further ones."""
        target = self.target
        contract = target.contract.inputs if target.contract else ()
        shape = target.shape.inputs if target.shape else ()
        own = [FIELD] if self.metadata.config.get("kind") else []
        return frozenset({*target.takes, *contract, *shape, *own})

    @property
    def check_lists(self) -> CheckLists:
        """Which records may have a list of checks."""
        return "never" if FIELD in self._declared else "mapped" if self.reading.mapping.names else "plain"

    @cached_property
    def names(self) -> dict[Source, FileNames]:
        """The names in each dataset, kept because a plan reads its datasets several times."""
        return {}

    @cached_property
    def _expansions(self) -> dict[Source, Expansion]:
        """The records of each dataset that is a document, such as a config that names files of tests."""
        return {}

    def cases(self, by_number: bool = False) -> Iterator[SelectedCase]:
        """Yield the selected cases in order; `by_number` gives them the ids of batches of format 1."""
        return select_cases(self, by_number)

    @cached_property
    def survey(self) -> Survey:
        """The findings, facts, number of cases and dependencies of the datasets, from one pass over them."""
        from evalloom.engine.survey import survey  # deferred: it brings the linter along

        return survey(self)

    @property
    def unknown_dependencies(self) -> frozenset[tuple[str, str]]:
        """The file and id of each unknown dependency. Only --skip-invalid needs them: otherwise they are errors."""
        return self.survey.unknown_dependencies if self.options.skip_invalid else frozenset()

    def profile_digests(self) -> dict[str, str]:
        """Return a digest of each profile: of its llms and their parameters, but not of keys and limits."""
        return {
            profile.name: digest_value(
                [
                    *(self._llm_identity(name) for name in (profile.run, profile.verify)),
                    profile.params,
                    *([self.target.variants[profile.variant]] if profile.variant else []),
                ]
            )
            for profile in self.profiles
        }

    def keys(self) -> Keys:
        return Keys(self.target.digest, self.profile_digests(), self.catalog.formats.beside_inputs)

    def jobs(
        self,
        done: Collection[str] = (),
        by_number: bool = False,
        in_order: Callable[[Iterator[SelectedCase]], Iterator[SelectedCase]] = iter,
    ) -> Jobs:
        """Return the jobs of all requested runs that are not done; `by_number` as for `cases`."""
        return Jobs(
            in_order(self.cases(by_number)),
            self.profiles,
            self.options.repeats,
            self.keys(),
            done,
            self.only,
            self._conditions(),
        )

    def _conditions(self) -> Conditions:
        """Return the environment that conditions may use, without variables whose name or value is secret."""
        secrets = secrets_of(self.settings)
        return Conditions(
            {
                name: value
                for name, value in environment(self.settings.folder).items()
                if not keys.may_be_secret(name, value) and not any(secret in value for secret in secrets)
            },
            frozenset(dialect.name for dialect in self.catalog.formats.dialects if dialect.has_conditions),
            self.target.excludes,
        )

    def batch(self) -> Batch:
        """Return the manifest of a new batch."""
        facts, digests = self.survey.facts, self.profile_digests()
        return Batch(
            id=new_id(self.home / FOLDER),
            created_at=utc_now(),
            evalloom=evalloom.__version__,
            python=f"{platform.python_version()} on {sys.platform}",
            identity=digest_value([msgspec.to_builtins(facts), self.target.digest, digests]),
            datasets=facts,
            target=self.target.name,
            target_digest=self.target.digest,
            profiles=list(self.profiles),
            models={name: llm_of(self.settings, name).model for name in filter(None, [*self.llm_names(), self.judge])},
            params={
                profile.name: {**llm_of(self.settings, profile.run).params, **profile.params}
                for profile in self.profiles
                if profile.run
            },
            config=self.metadata.config,
            documents=self.metadata.documents,
            options={
                **_stored(self.options),
                **self.metadata.options,
                **self._facts_about_target(),
                **({UNTIL_SURE: msgspec.to_builtins(self.question)} if self.question else {}),
            },
            judge=self.judge,
            planned=self.survey.cases * len(self.profiles) * self.options.repeats,
            command=command_line.words(),
        )

    def _facts_about_target(self) -> Record:
        """Return what rescoring needs to know about the target, which is not built then."""
        lists = {} if self.check_lists == "plain" else {CHECK_LISTS: self.check_lists}
        return {**({OWN_OUTCOME: True} if self.target.has_own_outcome else {}), **lists}

    def scoring(self) -> str:
        """Return a digest of how this plan scores."""
        return scoring_digest(self.checks, self.judge, self.options.allow_code, *filter(None, [self.metadata.config]))

    def llm_names(self) -> list[str]:
        """Return the names of all llms of the profiles, each once."""
        named = [name for profile in self.profiles for name in (profile.run, profile.verify)]
        return list(dict.fromkeys(name for name in named if name))

    def _llm_identity(self, name: str) -> Record:
        if not name:
            return {}
        llm = llm_of(self.settings, name)
        script = file_digest(Source(llm.file, llm.folder / llm.file)) if llm.file else ""
        return {
            "protocol": llm.protocol,
            "model": llm.model,
            "url": llm.base_url,
            "params": llm.params,
            "script": script,
        }

    def with_checks(self, case: Case) -> Case:
        """Add the user's own checks to those of a case."""
        return with_checks(case, self.checks, self.metadata.config, self.catalog)


def _stored(options: RunSettings) -> Record:
    """Return options for the manifest: where a batch ran is no part of what it is."""
    stored: Record = msgspec.to_builtins(options)
    return {name: value for name, value in stored.items() if name not in ("executor", "scheduler", "workers")}


def scoring_digest(checks: tuple[Check, ...], *more: object) -> str:
    """Return a digest of how runs are scored: verdicts with another digest are out of date."""
    return digest_value([msgspec.to_builtins(checks, enc_hook=qualified_name), *more])[:8]


def spooled(source: Source) -> Source:
    """Return a source that can be read more than once: stdin and pipes (`<(…)`) are copied to a temporary file."""
    if source.path is not None and not source.path.is_fifo():
        return source
    import atexit
    import shutil
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="evalloom-stdin-", delete=False) as stream:
        if source.path is None:
            shutil.copyfileobj(sys.stdin.buffer, stream, 1 << 20)
        else:
            with source.path.open("rb") as pipe:
                shutil.copyfileobj(pipe, stream, 1 << 20)
    atexit.register(Path(stream.name).unlink, missing_ok=True)
    return Source(source.name, Path(stream.name), source.encoding)


def file_digest(source: Source) -> str:
    """Return a digest of the bytes of a file."""
    try:
        return digest_file(source.path or Path(source.name))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise usage_error("cannot_read", f"{source.name}: cannot be read: {reason}") from None
