"""The data model: frozen, typed, without I/O."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from msgspec import Struct, structs

Record = dict[str, Any]
"""One JSON object as a user wrote it."""

Path = tuple[str | int, ...]
"""A location inside a record: `("expected_sources", 1)`."""

Severity = Literal["error", "warning", "info"]

Outcome = Literal["OK", "LACK_OF_INFO", "UNCERTAIN", "FAIL"]
"""The outcome that a target reports."""

Status = Literal["passed", "failed", "error", "skipped", "blocked", "unscored"]
Need = Literal["", "judge", "embeddings", "judge_or_embeddings", "code"]
"""The service without which a check is unscored; `code` is code that only a data file names."""
"""The result of a check or of a whole case."""


class Place(NamedTuple):
    """A position in a file, counted from 1; line 0 means the file as a whole."""

    line: int = 0
    column: int = 0


class Origin(Struct, frozen=True):
    """The file and position of a case, for messages."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        if not self.line:
            return self.file
        return f"{self.file}:{self.line}:{self.column}" if self.column else f"{self.file}:{self.line}"


class Remark(Struct, frozen=True):
    """A remark of a dialect about one record; it becomes a finding when the position of the record is known."""

    code: str
    severity: Severity
    path: Path
    message: str


class Finding(Struct, frozen=True):
    """One error, warning or note about the user's data, with its position."""

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
    """The findings about one source; `counts` is exact, `findings` has the first thousand of each code."""

    file: str
    dialect: str
    reason: str
    lines: int
    cases: int
    findings: list[Finding]
    counts: dict[tuple[str, Severity], int]
    is_document: bool = False
    """Whether the file is a document instead of a dataset; `dialect` then is its kind: "a pipeline"."""

    def count(self, severity: Severity) -> int:
        return sum(number for (_, level), number in self.counts.items() if level == severity)


class Check(Struct, frozen=True):
    """One expectation: how to compare (`kind`), with what (`expected`), and `where` in the output."""

    kind: str
    expected: Any = None
    where: str = "output"
    name: str = ""
    options: Mapping[str, Any] = {}


def check_name(check: Check) -> str:
    """Return the name of a check and of its verdict: its own, or its kind and place."""
    if check.name:
        return check.name
    kind = f"not_{check.kind}" if check.options.get("negate") is True else check.kind
    return kind if check.where == "output" else f"{kind} {check.where.removeprefix('output.')}"


class Case(Struct, frozen=True):
    """One test: its inputs, its checks, and the record it was read from."""

    id: str
    inputs: Record
    checks: tuple[Check, ...] = ()
    tags: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    meta: Record = {}
    raw: Record = {}
    origin: Origin = Origin("")


class Usage(Struct, frozen=True, omit_defaults=True):
    """Tokens, cost and time of llm calls. `unpriced` counts the calls of unknown price.

    `cached` counts answers from our own cache; `cached_input_tokens` is the part of `input_tokens` that the provider
    had in its cache. `waited_s` is the time that calls spent in our own queue or waiting for a retry. `estimated`
    counts the calls whose tokens, and so their cost, are an estimate, because the server sent no usage.
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
    estimated: int = 0

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
            self.estimated + other.estimated,
        )


NO_USAGE = Usage()


class Request(Struct, frozen=True, omit_defaults=True):
    """A request to an llm. `answer` is empty for free text, "json" for any JSON, or a JSON Schema."""

    messages: list[Record]
    params: Record = {}
    answer: Literal["", "json"] | Record = ""
    tools: list[Record] = []
    repeat: int = 0
    """The number of the repeat: repeats of one case must not share a cached answer."""
    pinned: Record = {}
    """Parameters that override the profile: a comparison of several answers needs its own temperature."""


class Response(Struct, frozen=True, omit_defaults=True):
    """The answer of an llm."""

    text: str
    tool_calls: list[Record] = []
    usage: Usage = NO_USAGE
    model: str = ""
    stop: str = ""
    """Why it ended: `stop`, `length`, `tool_calls`, `content_filter`, `refusal`, or the word of the server."""
    logprobs: list[Record] = []
    """The log probability of each token, where the request asked for it: `{"token": …, "logprob": …}`."""


def with_usage(response: Response, **changes: Any) -> Response:
    """Return a response with changed fields of its usage."""
    return structs.replace(response, usage=structs.replace(response.usage, **changes))


class Llm(Protocol):
    """Answers requests. Raises CallError if it gets no answer."""

    def __call__(self, request: Request, /) -> Awaitable[Response]: ...


class Embedder(Protocol):
    """Turns texts into vectors of one length. Raises CallError."""

    def __call__(self, texts: list[str], /) -> Awaitable[list[list[float]]]: ...


class Profile(Struct, frozen=True):
    """A named choice of llms and parameters: `run` answers, `verify` checks the answers."""

    name: str
    run: str = ""
    verify: str = ""
    params: Record = {}
    variant: str = ""
    """The variant of the target, if it has variants."""


class Output(Struct, frozen=True, omit_defaults=True):
    """The output of a target: its value, and its steps and sources if it has any."""

    value: Any = None
    steps: Record = {}
    aggregation: Any = None
    sources: list[Any] = []
    outcome: Outcome = "OK"
    plain: str = ""
    """Where the plain output is, if it is one of several: `output.<field>` or `steps.<id>`."""


class Context(Struct, frozen=True):
    """What a target gets beside the inputs: the case, the profile, its llms, and a list for the trace."""

    case: Case
    profile: Profile
    llm: Llm
    verify: Llm
    trace: list[Record]
    repeat: int = 0
    apart: Callable[[list[Record]], Context] | None = None
    """Returns this context with another list for the trace, for a target that runs others."""


class Target(Protocol):
    """The system under test: one async call. A CallError is an error of that run only."""

    def __call__(self, inputs: Record, context: Context, /) -> Awaitable[Output]: ...


NO_OUTPUT = Output()


class Run(Struct, frozen=True, omit_defaults=True):
    """One execution of a case under one profile; `number` is the case's position in the dataset."""

    key: str
    case_id: str
    profile: str = ""
    repeat: int = 0
    number: int = 0
    outcome: Outcome = "OK"
    output: Output = NO_OUTPUT
    error: str = ""
    skipped: str = ""
    """Why it was skipped: its conditions do not hold."""
    blocked: str = ""
    """Why it was blocked: a case that it depends on did not pass."""
    started_at: str = ""
    duration_s: float = 0.0
    usage: Usage = NO_USAGE
    trace: list[Record] = []
    tags: tuple[str, ...] = ()
    dialect: str = ""
    origin: Origin = Origin("")
    raw: Record = {}
    position: int = 0
    """The case's number in its file, where that was its id in format 1; otherwise 0."""
    is_unnamed: bool = False
    """Whether the case has no id of its own: its description or a digest of its content is its id."""

    @property
    def latency_s(self) -> float:
        """The duration without our own queue. Only for a single call: waiting times of parallel calls overlap."""
        waited = self.usage.waited_s if self.usage.calls == 1 else 0.0
        return max(0.0, self.duration_s - waited)


ABSENT = "<absent>"
"""Shown for the missing side of a mismatch."""


class Mismatch(Struct, frozen=True):
    """One difference between the actual and the expected value."""

    path: str
    expected: Any
    actual: Any


class Verdict(Struct, frozen=True, omit_defaults=True):
    """The outcome of one check; `score` is None if there is nothing to score."""

    name: str
    kind: str
    where: str
    status: Status
    score: float | None = None
    reason: str = ""
    mismatches: list[Mismatch] = []
    weight: float = 1.0
    follows: str = ""
    """The earlier step whose failure caused this one."""
    named_scores: dict[str, float] = {}
    """Further scores that the code of a check has returned, by name."""


class Scored(Struct, frozen=True, omit_defaults=True):
    """The verdicts of one run, and the status and score they result in."""

    key: str
    status: Status
    score: float | None = None
    verdicts: list[Verdict] = []
    usage: Usage = NO_USAGE
    scoring: str = ""
    """A digest of the scoring configuration: further checks, thresholds, the judge."""
    step: str = ""
    """The first step that failed."""


class DatasetFacts(Struct, frozen=True):
    """One dataset of a batch: its path, its dialect, and a digest of its content."""

    path: str
    dialect: str
    digest: str
    mapping: str = ""


UNREAD = "unread"
"""The digest of a document that cannot be read."""


class Batch(Struct, frozen=True):
    """The configuration of a batch: enough to resume it, and to rescore it without the dataset."""

    id: str
    created_at: str
    format: int = 2
    """In format 1, the number of a case without an id is its id."""
    evalloom: str = ""
    python: str = ""
    identity: str = ""
    """A digest of datasets, target and profiles; a batch can be resumed if it is equal."""
    datasets: list[DatasetFacts] = []
    target: str = ""
    target_digest: str = ""
    profiles: list[Profile] = []
    models: dict[str, str] = {}
    """The model behind each llm that the profiles name, and behind the judge."""
    params: dict[str, Record] = {}
    """The parameters that go to the `run` llm of each profile."""
    config: Record = {}
    """The settings that must be equal in two batches to compare them; empty if none must be."""
    documents: dict[str, str] = {}
    """The digest of each searched document by path, or of all documents under an empty path."""
    options: Record = {}
    finished_at: str = ""
    scored_at: str = ""
    """When it was last rescored; empty if never."""
    summary: Record = {}
    judge: str = ""
    """The llm for judge checks when it was last scored."""
    outages: list[str] = []
    """The llms that did not answer when it last ended, so that a resumed batch repeats the calls that failed before."""
    planned: int = 0
    """The number of runs that it has when it is complete; 0 if it is unknown."""
    command: list[str] = []
    """The command line that made or resumed it; empty if it was made from Python."""

    @property
    def has_numbered_cases(self) -> bool:
        """Whether the number of a case without an id is its id."""
        return self.format < 2


def error(code: str, path: Path, message: str) -> Remark:
    return Remark(code, "error", path, message)


def warning(code: str, path: Path, message: str) -> Remark:
    return Remark(code, "warning", path, message)


def info(code: str, path: Path, message: str) -> Remark:
    return Remark(code, "info", path, message)


def show_path(path: Path) -> str:
    """Format `("batch_items", 0, "text")` as `batch_items[0].text`."""
    shown = ""
    for step in path:
        if isinstance(step, int):
            shown += f"[{step}]"
        else:
            shown += f".{step}" if shown else step
    return shown
