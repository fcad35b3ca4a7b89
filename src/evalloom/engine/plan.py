"""What a batch is asked to do: which cases, against which target, under which profiles, and how."""

from __future__ import annotations

import atexit
import platform
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

import evalloom
from evalloom import settings
from evalloom.batchlog import new_id
from evalloom.core import expressions
from evalloom.core.clock import utc_now
from evalloom.core.digest import digest_file, digest_value
from evalloom.core.errors import usage_error
from evalloom.core.model import Batch, Case, Check, DatasetFacts, Origin, Profile, Record, Remark
from evalloom.core.text import quote
from evalloom.data.dataset import Dataset
from evalloom.data.dialect import Dialect, Rules
from evalloom.data.mapping import Mapping
from evalloom.engine.run import NO_NEEDS, Chosen, Conditions, Jobs, Keys, Needs, collect_needs, numbered
from evalloom.engine.system import Catalog
from evalloom.files.rows import Problem, Refused
from evalloom.files.source import Source, read_chunks
from evalloom.settings import RunSettings, Settings, keys
from evalloom.targets import BuiltTarget

Functions = dict[str, Callable[..., Any]]
_NEEDS_MARKS = (b"depends_on", rb"\u005", rb"\u006", rb"\u007")
"""The field of dependencies as it stands in a file, and the beginnings of its characters when JSON escapes them."""


class Reading(Struct, frozen=True):
    """How datasets are read."""

    dialect: str = ""
    mapping: Mapping = Mapping()
    encoding: str = ""
    rules: Rules = Rules()


class BatchMetadata(Struct, frozen=True):
    """What the batch of a system knows more than others; see Batch."""

    config: Record = {}
    documents: dict[str, str] = {}
    options: Record = {}
    """What stands beside the options of the run."""


class Plan(Struct, frozen=True):
    """One batch to be. Flags and evalloom.yaml fill the same `options`."""

    target: BuiltTarget
    profiles: tuple[Profile, ...]
    catalog: Catalog
    known: Settings = Settings()
    options: RunSettings = RunSettings()
    sources: tuple[Source, ...] = ()
    given: tuple[Case, ...] = ()
    """Cases from Python instead of from files."""
    reading: Reading = Reading()
    checks: tuple[Check, ...] = ()
    """Checks of the user's own that every case gets."""
    functions: Functions = {}
    """Python functions that those checks name."""
    judge: str = ""
    allow_code: bool = False
    record: str = ""
    replay: str = ""
    only: frozenset[str] | None = None
    """The keys of the runs to do, where not all are wanted."""
    metadata: BatchMetadata = BatchMetadata()
    home: Path = Path()
    """The folder whose `.evalloom` holds the batches and the cache."""

    def datasets(self) -> Iterator[Dataset]:
        for source in self.sources:
            yield Dataset(source, self.catalog.formats, self.reading.dialect, self.reading.mapping)

    def cases(self) -> Iterator[Chosen]:
        """The chosen cases in order."""
        is_chosen = self._choice()
        return islice((one for one in numbered(self._all_cases()) if is_chosen(one.case)), self.options.limit)

    def facts(self) -> list[DatasetFacts]:
        """What the datasets are, as the batch keeps it."""
        facts = [
            DatasetFacts(data.source.name, data.dialect.name, digest_of_file(data.source), str(data.mapping))
            for data in self.datasets()
        ]
        if self.given:
            facts.append(DatasetFacts("<python>", "", digest_value(msgspec.to_builtins(self.given, enc_hook=_name_of))))
        return facts

    def profile_digests(self) -> dict[str, str]:
        """What makes each profile what it is: the llms behind it and their parameters, not how they are reached."""
        return {
            profile.name: digest_value(
                [
                    *(self._llm(name) for name in (profile.run, profile.verify)),
                    profile.params,
                    *([self.target.variants[profile.variant]] if profile.variant else []),
                ]
            )
            for profile in self.profiles
        }

    def keys(self) -> Keys:
        return Keys(self.target.digest, self.profile_digests(), self.catalog.formats.beside_inputs)

    def jobs(self, done: Collection[str] = ()) -> Jobs:
        """Every run that is asked for, less those that are done."""
        repeats = self.options.repeat
        return Jobs(self.cases(), self.profiles, repeats, self.keys(), done, self.only, self._conditions())

    def needs(self) -> Needs:
        """Which cases wait for others. A dataset that nowhere names the field is not read for it."""
        if not any(case.needs for case in self.given) and not any(map(_may_have_needs, self.datasets())):
            return NO_NEEDS
        return collect_needs(self.cases)

    def _conditions(self) -> Conditions:
        """What conditions are held against: of the environment, whatever is no secret by its name or value."""
        secrets = settings.secrets(self.known)
        return Conditions(
            {
                name: value
                for name, value in settings.environment(self.known.folder).items()
                if not keys.may_be_secret(name, value) and not any(secret in value for secret in secrets)
            },
            frozenset(dialect.name for dialect in self.catalog.formats.dialects if dialect.has_conditions),
        )

    def batch(self) -> Batch:
        """The manifest of a new batch."""
        facts, digests = self.facts(), self.profile_digests()
        return Batch(
            id=new_id(),
            created_at=utc_now(),
            evalloom=evalloom.__version__,
            python=f"{platform.python_version()} on {sys.platform}",
            identity=digest_value([msgspec.to_builtins(facts), self.target.digest, digests]),
            datasets=facts,
            target=self.target.name,
            target_digest=self.target.digest,
            profiles=list(self.profiles),
            models={name: settings.llm_of(self.known, name).model for name in self.llm_names()},
            params={
                one.name: {**settings.llm_of(self.known, one.run).params, **one.params}
                for one in self.profiles
                if one.run
            },
            config=self.metadata.config,
            documents=self.metadata.documents,
            options={**msgspec.to_builtins(self.options), **self.metadata.options},
        )

    def scoring(self) -> str:
        """What stands for the way this plan scores."""
        return scoring_digest(self.checks, self.judge, self.allow_code, *filter(None, [self.metadata.config]))

    def llm_names(self) -> list[str]:
        """Every llm that may be asked, once."""
        named = [name for profile in self.profiles for name in (profile.run, profile.verify)]
        return list(dict.fromkeys(name for name in named if name))

    def _llm(self, name: str) -> Record:
        if not name:
            return {}
        llm = settings.llm_of(self.known, name)
        script = digest_of_file(Source(llm.file, llm.folder / llm.file)) if llm.file else ""
        return {
            "protocol": llm.protocol,
            "model": llm.model,
            "url": llm.base_url,
            "params": llm.params,
            "script": script,
        }

    def _all_cases(self) -> Iterator[Chosen]:
        for case in self.given:
            yield Chosen(self.with_checks(case), "")
        for dataset in self.datasets():
            for one in self._each_once(dataset, self._rows(dataset)):
                yield one._replace(case=self.with_checks(self._fitted(one.case, dataset)))

    def _rows(self, dataset: Dataset) -> Iterator[Chosen]:
        if self.options.skip_invalid:
            return self._examined(dataset)
        items = (item for item in dataset.cases() if not isinstance(item, Problem))
        return (Chosen(case, dataset.dialect.name) for case in items)

    def _each_once(self, dataset: Dataset, rows: Iterator[Chosen]) -> Iterator[Chosen]:
        """Every case once, also where a file holds what became of it under several profiles."""
        same_case = dataset.dialect.same_case
        if same_case is None:
            return rows
        seen: Counter[tuple[str, str]] = Counter()
        most: Counter[str] = Counter()

        def is_new(one: Chosen) -> bool:
            """Whether no other profile had this case, or this repetition of it, before."""
            case, run = same_case(one.case.raw)
            if not case:
                return True
            case = digest_value(case)
            seen[case, run] += 1
            is_more = seen[case, run] > most[case]
            most[case] += is_more
            return is_more

        return filter(is_new, rows)

    def _fitted(self, case: Case, dataset: Dataset) -> Case:
        """A case with the inputs that the target's contract names."""
        contract, fit = self.reading.rules.contract, dataset.dialect.fit
        return fit(case, contract) if contract is not None and fit is not None else case

    def with_checks(self, case: Case) -> Case:
        """A case with the user's own checks beside those of its dataset."""
        return checked(case, self.checks, self.metadata.config, self.catalog)

    def _examined(self, dataset: Dataset) -> Iterator[Chosen]:
        """The cases of a dataset that has errors in it, each with what is wrong with it."""
        dialect, number = dataset.dialect, 0
        seen: set[str | int] = set()
        unknown = self._unknown_needs(dataset)
        for item in dataset:
            if isinstance(item, Problem):
                if item.severity == "error":
                    origin = Origin(item.file or dataset.source.name, *item.place)
                    lost = Case(f"line {item.place.line}", {}, origin=origin)
                    yield Chosen(lost, dialect.name, f"{item.message} [{item.code}]")
            elif dialect.is_case(item.value):
                for record in dialect.multiplied(item.value):
                    number += 1
                    case = dialect.to_case(record, dataset.origin(item))
                    case = case if case.id else msgspec.structs.replace(case, id=str(number))
                    faults = [
                        # Of each by itself: with other parameters a record may be faulty that is sound with these.
                        *_errors(dialect.findings(record, self.reading.rules)),
                        *(_not_there(need) for need in case.needs if (case.origin.file, need) in unknown),
                    ]
                    repeated = _repeated_id(dialect, record, seen)
                    yield Chosen(case, dialect.name, "; ".join(faults + repeated), bool(repeated))

    def _unknown_needs(self, dataset: Dataset) -> frozenset[tuple[str, str]]:
        """What cases of a dataset depend on though it is nowhere in it: the file, and the id."""
        if not _may_have_needs(dataset):
            return frozenset()

        def cases() -> Iterator[Chosen]:
            again = Dataset(dataset.source, dataset.formats, self.reading.dialect, self.reading.mapping)
            return (Chosen(case) for case in again.cases() if not isinstance(case, Problem))

        needs = collect_needs(cases)
        return frozenset(name for name in needs.exact if not needs.count(name))

    def _choice(self) -> Callable[[Case], bool]:
        tags, text = frozenset(self.options.tags), self.options.filter
        expression = compile_filter(text) if text else None

        def is_chosen(case: Case) -> bool:
            if tags and tags.isdisjoint(case.tags):
                return False
            return expression is None or expression.holds(names_of(case))

        return is_chosen


def checked(case: Case, further: tuple[Check, ...], config: Record, catalog: Catalog) -> Case:
    """A case with further checks beside its own, or with those that the kind of its batch asks for."""
    if kind := catalog.batch_kind(config) if config else None:
        return msgspec.structs.replace(case, checks=kind.checks(case, further, config))
    return msgspec.structs.replace(case, checks=case.checks + further) if further else case


def _errors(remarks: Iterable[Remark]) -> Iterator[str]:
    return (f"{remark.message} [{remark.code}]" for remark in remarks if remark.severity == "error")


def _not_there(need: str) -> str:
    return f"depends_on: no case of this file has the id {quote(need)} [unknown_dependency]"


def _repeated_id(dialect: Dialect, record: Record, seen: set[str | int]) -> list[str]:
    """What is wrong with the id of a record where another had it before."""
    identity = dialect.identity(record)
    if identity is None:
        return []
    is_repeated = identity in seen
    seen.add(identity)
    message = f"{dialect.id_field}: {identity!r} was there before; ids must be unique [duplicate_id]"
    return [message] if is_repeated else []


def _may_have_needs(dataset: Dataset) -> bool:
    """Whether the field of dependencies may stand anywhere in a dataset: a look at its bytes takes next to no time.

    Under another name, or in YAML, which has many ways to write one, only the records tell.
    """
    if dataset.dialect.needs is None or dataset.mapping.names or dataset.layout == "yaml":
        return dataset.dialect.needs is not None
    before = b""
    with suppress(Refused):
        for chunk in read_chunks(dataset.source):
            text = before + chunk
            if any(mark in text for mark in _NEEDS_MARKS):
                return True
            before = chunk[-len(_NEEDS_MARKS[0]) :]
    return False


def scoring_digest(checks: tuple[Check, ...], *more: object) -> str:
    """What stands for a way of scoring: verdicts that were made in another way are made again."""
    return digest_value([msgspec.to_builtins(checks, enc_hook=_name_of), *more])[:8]


def _name_of(thing: object) -> str:
    """A function by its name: its repr has an address in it, which is another one each time."""
    return str(getattr(thing, "__qualname__", None) or repr(thing))


def compile_filter(text: str) -> expressions.Expression:
    """The expression of `--filter`."""
    try:
        return expressions.compile(text)
    except expressions.ExpressionError as fault:
        raise usage_error("bad_filter", f"--filter {text!r}: {fault}") from None


def names_of(case: Case) -> Record:
    """What an expression may speak of."""
    return {
        **case.meta,
        **case.inputs,
        "id": case.id,
        "tags": list(case.tags),
        "inputs": case.inputs,
        "meta": case.meta,
        "raw": case.raw,
    }


def spooled(source: Source) -> Source:
    """A source that can be read more than once: stdin goes into a file first."""
    if source.path is not None:
        return source
    with tempfile.NamedTemporaryFile(prefix="evalloom-stdin-", delete=False) as stream:
        for chunk in iter(lambda: sys.stdin.buffer.read(1 << 20), b""):
            stream.write(chunk)
    atexit.register(Path(stream.name).unlink, missing_ok=True)
    return Source(source.name, Path(stream.name), source.encoding)


def digest_of_file(source: Source) -> str:
    """A digest of what is in a file."""
    try:
        return digest_file(source.path or Path(source.name))
    except OSError as fault:
        raise usage_error(
            "cannot_read", f"{source.name}: cannot be read: {(fault.strerror or str(fault)).lower()}"
        ) from None
