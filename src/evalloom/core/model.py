"""The nouns: frozen, typed, no I/O."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from msgspec import Struct, structs

Record = dict[str, Any]
"""One JSON object as a user wrote it."""

Path = tuple[str | int, ...]
"""Where something stands inside a record: `("expected_sources", 1)`."""

Severity = Literal["error", "warning", "info"]

Outcome = Literal["OK", "LACK_OF_INFO", "UNCERTAIN", "FAIL"]
"""How a target says that it fared."""

Status = Literal["passed", "failed", "error", "skipped", "blocked", "unscored"]
"""What became of a check, or of a case as a whole."""


class Place(NamedTuple):
    """A position in a file, counted from 1; line 0 means the file as a whole."""

    line: int = 0
    column: int = 0


class Origin(Struct, frozen=True):
    """The place a case came from, so that every message can point at it."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        if not self.line:
            return self.file
        return f"{self.file}:{self.line}:{self.column}" if self.column else f"{self.file}:{self.line}"


class Remark(NamedTuple):
    """What a dialect says about one record; a finding once we know where the record stands."""

    code: str
    severity: Severity
    path: Path
    message: str


class Finding(Struct, frozen=True):
    """One remark of the linter about the user's data, at its place."""

    code: str
    severity: Severity
    message: str
    origin: Origin
    field: str = ""
    case_id: str = ""

    def __str__(self) -> str:
        word = "" if self.severity == "error" else f"{self.severity}: "
        return f"{self.origin}: {word}{self.message} [{self.code}]"


class Checked(Struct, frozen=True):
    """What the linter has to say about one source; `counts` is exact, `findings` the first thousand of each code."""

    file: str
    dialect: str
    reason: str
    lines: int
    cases: int
    findings: list[Finding]
    counts: dict[tuple[str, Severity], int]
    is_document: bool = False
    """Whether the file is no dataset but a document, which `dialect` names: "a pipeline"."""

    def count(self, severity: Severity) -> int:
        return sum(number for (_, found), number in self.counts.items() if found == severity)


class Check(Struct, frozen=True):
    """One expectation: how to compare (`kind`), with what (`expected`), and `where` in the output."""

    kind: str
    expected: Any = None
    where: str = "output"
    name: str = ""
    options: Mapping[str, Any] = {}


class Case(Struct, frozen=True):
    """One test: what goes in, what is expected, and the record it was read from."""

    id: str
    inputs: Record
    checks: tuple[Check, ...] = ()
    tags: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    meta: Record = {}
    raw: Record = {}
    origin: Origin = Origin("")


class Usage(Struct, frozen=True, omit_defaults=True):
    """What calls to llms took. `unpriced` counts the calls whose price nobody told us.

    `cached` counts answers from our own cache; `cached_input_tokens` are those of `input_tokens` that the provider had
    in its cache. `waited_s` is how long calls stood in our own queue, or were put off by a retry.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    calls: int = 0
    cached: int = 0
    retries: int = 0
    unpriced: int = 0
    cached_input_tokens: int = 0
    waited_s: float = 0.0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost + other.cost,
            self.calls + other.calls,
            self.cached + other.cached,
            self.retries + other.retries,
            self.unpriced + other.unpriced,
            self.cached_input_tokens + other.cached_input_tokens,
            self.waited_s + other.waited_s,
        )


NO_USAGE = Usage()


class Request(Struct, frozen=True, omit_defaults=True):
    """What an llm is asked. `answer` is empty for free text, "json" for any JSON, or a JSON Schema."""

    messages: list[Record]
    params: Record = {}
    answer: Literal["", "json"] | Record = ""
    tools: list[Record] = []
    repeat: int = 0
    """Which repetition this is: repeats of one case must not share an answer through the cache."""
    pinned: Record = {}
    """Parameters that hold whatever the profile says: three answers are compared at a temperature of their own."""


class Response(Struct, frozen=True, omit_defaults=True):
    """What an llm answered."""

    text: str
    tool_calls: list[Record] = []
    usage: Usage = NO_USAGE
    model: str = ""
    stop: str = ""


def with_usage(response: Response, **changes: Any) -> Response:
    """A response whose usage says something more."""
    return structs.replace(response, usage=structs.replace(response.usage, **changes))


class Llm(Protocol):
    """Who answers. Raises CallError when no answer can be had."""

    def __call__(self, request: Request, /) -> Awaitable[Response]: ...


class Embedder(Protocol):
    """Turns texts into vectors of one length. Raises CallError."""

    def __call__(self, texts: list[str], /) -> Awaitable[list[list[float]]]: ...


class Profile(Struct, frozen=True):
    """A named choice of llms and parameters: `run` answers, `verify` checks what it said."""

    name: str
    run: str = ""
    verify: str = ""
    params: Record = {}
    variant: str = ""
    """The variant of the target that is run under it, where the target has some."""


class Output(Struct, frozen=True, omit_defaults=True):
    """What a target gave: its value, and what happened inside where it has an inside."""

    value: Any = None
    steps: Record = {}
    aggregation: Any = None
    sources: list[Any] = []
    outcome: Outcome = "OK"


class Context(Struct, frozen=True):
    """What a target is given beside the inputs: who answers, under which profile, and a place for the trace."""

    case: Case
    profile: Profile
    llm: Llm
    verify: Llm
    trace: list[Record]
    repeat: int = 0
    apart: Callable[[list[Record]], Context] | None = None
    """Gives this context with another list for the trace, for a target that is made of several."""


class Target(Protocol):
    """What is tested: one async call. What it raises as CallError is an error of that run only."""

    def __call__(self, inputs: Record, context: Context, /) -> Awaitable[Output]: ...


class Run(Struct, frozen=True, omit_defaults=True):
    """One case executed once under one profile; `number` is the case's place in the dataset."""

    key: str
    case_id: str
    profile: str = ""
    repeat: int = 0
    number: int = 0
    outcome: Outcome = "OK"
    output: Output = Output()
    error: str = ""
    skipped: str = ""
    """Why it was not to be run: its conditions do not hold."""
    blocked: str = ""
    """Why it could not be run: a case that it depends on did not pass."""
    started_at: str = ""
    duration_s: float = 0.0
    usage: Usage = NO_USAGE
    trace: list[Record] = []
    tags: tuple[str, ...] = ()
    dialect: str = ""
    origin: Origin = Origin("")
    raw: Record = {}

    @property
    def latency_s(self) -> float:
        """How long the answer took: without our own queue where one call gave it, since calls may wait side by side."""
        waited = self.usage.waited_s if self.usage.calls == 1 else 0.0
        return max(0.0, self.duration_s - waited)


ABSENT = "<absent>"
"""What a mismatch shows on the side where nothing stands."""


class Mismatch(Struct, frozen=True):
    """One place where the actual value is not the expected one."""

    path: str
    expected: Any
    actual: Any


class Verdict(Struct, frozen=True, omit_defaults=True):
    """The outcome of one check; `score` is absent when there is nothing to score."""

    name: str
    kind: str
    where: str
    status: Status
    score: float | None = None
    reason: str = ""
    mismatches: list[Mismatch] = []
    weight: float = 1.0
    follows: str = ""
    """The step that went wrong before, of which this is a consequence."""


class Scored(Struct, frozen=True, omit_defaults=True):
    """The verdicts of one run, and what they come to for the case."""

    key: str
    status: Status
    score: float | None = None
    verdicts: list[Verdict] = []
    usage: Usage = NO_USAGE
    scoring: str = ""
    """A digest of what the verdicts depend on beside the dataset: the user's own checks, thresholds, the judge."""
    step: str = ""
    """The first step that went wrong."""


class DatasetFacts(Struct, frozen=True):
    """One dataset of a batch: where it was, in which dialect, and a digest of its content."""

    path: str
    dialect: str
    digest: str
    mapping: str = ""


UNREAD = "unread"
"""What stands in the place of a digest for a document that could not be read."""


class Batch(Struct, frozen=True):
    """What was asked for: enough to know the batch again, and to score it again without the dataset."""

    id: str
    created_at: str
    format: int = 1
    evalloom: str = ""
    python: str = ""
    identity: str = ""
    """A digest of datasets, target and profiles: batches with the same one can be resumed."""
    datasets: list[DatasetFacts] = []
    target: str = ""
    target_digest: str = ""
    profiles: list[Profile] = []
    models: dict[str, str] = {}
    """The model behind each llm that the profiles name."""
    params: dict[str, Record] = {}
    """The parameters that go to the `run` llm of each profile."""
    config: Record = {}
    """What must be the same in two batches for their results to be compared; empty where nothing must."""
    documents: dict[str, str] = {}
    """What was searched: a digest of each document by its path, or of all together under an empty one."""
    options: Record = {}
    finished_at: str = ""
    scored_at: str = ""
    """When it was scored again, where it was."""
    summary: Record = {}


def error(code: str, path: Path, message: str) -> Remark:
    return Remark(code, "error", path, message)


def warning(code: str, path: Path, message: str) -> Remark:
    return Remark(code, "warning", path, message)


def info(code: str, path: Path, message: str) -> Remark:
    return Remark(code, "info", path, message)


def show_path(path: Path) -> str:
    """`("batch_items", 0, "text")` as a user would write it: `batch_items[0].text`."""
    shown = ""
    for step in path:
        if isinstance(step, int):
            shown += f"[{step}]"
        else:
            shown += f".{step}" if shown else step
    return shown
