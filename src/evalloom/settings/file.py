"""The keys of evalloom.yaml as structs, and the JSON Schema that msgspec derives from them.

Each field is one key: the loader, editors and messages use its type and its `Meta`.
"""

# No `from __future__ import annotations`: msgspec would evaluate each annotation at the first load (2.5 ms, not 0.5).
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field, structs

from evalloom.core.model import Record
from evalloom.settings.section import Count, PositiveInt, Seconds, Section

FILE_NAME = "evalloom.yaml"
# The llms themselves are in a layer above, so their protocols are listed here.
ProtocolName = Literal["openai", "responses", "anthropic", "scripted", "echo"]
PROTOCOLS: tuple[str, ...] = get_args(ProtocolName)
OFFLINE_PROTOCOLS = ("scripted", "echo")
PUBLIC_URLS = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}

Amount = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]


class Price(Struct, frozen=True, forbid_unknown_fields=True):
    """The price of a million tokens, in the user's currency."""

    input: Annotated[Amount, Meta(description="Price of a million tokens of the request.")]
    output: Annotated[Amount, Meta(description="Price of a million tokens of the answer.")]
    cached_input: (
        Annotated[
            Amount, Meta(description="Price of a million tokens from the provider's cache; else that of `input`.")
        ]
        | None
    ) = None


class LlmKeys(Struct, frozen=True, kw_only=True):
    """How an llm is reached, and the parameters that it gets."""

    protocol: Annotated[ProtocolName, Meta(description="The protocol of the llm.")] = "openai"
    provider: Annotated[
        str, Meta(description="Who serves it, such as groq or azure:responses; gives address, key and protocol.")
    ] = ""
    model: Annotated[str, Meta(description="The model's name at its provider.")] = ""
    base_url: Annotated[str, Meta(description="Where it is served, such as http://localhost:8000/v1.")] = ""
    params: Annotated[Record, Meta(description="Sent with every request.")] = {}
    key_env: Annotated[str, Meta(description="The environment variable with the key; `none` when it needs no key.")] = (
        ""
    )
    headers: Annotated[dict[str, str], Meta(description="HTTP headers; a value may contain ${VARIABLE}.")] = {}
    api_version: Annotated[str, Meta(description="The version of Azure's API.")] = ""
    timeout_s: Seconds = 120.0
    retries: Count = 5
    concurrency: Annotated[Count, Meta(description="Requests at once; 0 is as many as -j allows.")] = 0
    requests_per_minute: Count = 0
    tokens_per_minute: Count = 0
    price: Annotated[Price, Meta(description="Per million tokens.")] | None = None
    file: Annotated[str, Meta(description="The rules of a scripted llm.")] = ""
    stream: bool = False


LLM_KEYS = frozenset(LlmKeys.__struct_fields__)


class LlmSection(LlmKeys, frozen=True, kw_only=True):
    """An llm as the file declares it: any unknown key is a parameter that is sent with every request."""

    # Common parameters are fields, so that their values and misspellings of their names are checked.
    temperature: Amount | UnsetType = UNSET
    top_p: Share | UnsetType = UNSET
    top_k: int | UnsetType = UNSET
    min_p: Share | UnsetType = UNSET
    max_tokens: PositiveInt | UnsetType = UNSET
    max_completion_tokens: PositiveInt | UnsetType = UNSET
    max_output_tokens: PositiveInt | UnsetType = UNSET
    n: PositiveInt | UnsetType = UNSET
    seed: int | UnsetType = UNSET
    stop: Any = UNSET
    stop_sequences: list[Any] | UnsetType = UNSET
    presence_penalty: float | UnsetType = UNSET
    frequency_penalty: float | UnsetType = UNSET
    repetition_penalty: float | UnsetType = UNSET
    logit_bias: Any = UNSET
    logprobs: Any = UNSET
    top_logprobs: Any = UNSET
    reasoning_effort: str | UnsetType = UNSET
    thinking: Any = UNSET
    enable_thinking: Any = UNSET
    response_format: Record | UnsetType = UNSET
    tool_choice: Any = UNSET
    user: str | UnsetType = UNSET


class ProviderSection(Struct, frozen=True, forbid_unknown_fields=True):
    """A provider of llms: a new one, or changes to one of the built-in table."""

    base_url: Annotated[str, Meta(description="Where it is served, such as https://llm.example.com/v1.")] = ""
    key_env: Annotated[str, Meta(description="The environment variable with the key; `none` when it needs no key.")] = (
        ""
    )
    protocol: Annotated[Literal["openai", "responses", "anthropic"], Meta(description="What it speaks.")] | None = None
    key_header: Annotated[str, Meta(description="The HTTP header with the key, such as api-key.")] = ""
    hosts: Annotated[
        list[str], Meta(title="a list of hosts", description="Further hosts to which its key may be sent.")
    ] = []


class ProfileSection(Struct, frozen=True, forbid_unknown_fields=True):
    """A named choice of llms."""

    run: Annotated[str, Meta(description="The llm that answers.")]
    verify: Annotated[str, Meta(description="The llm that checks the answer; the same one by default.")] = ""
    params: Annotated[Record, Meta(description="Sent with every request; they override those of the llm.")] = {}


PassRule = Annotated[Share, Meta(description="The share of its repeats that must pass for a case to pass.")]


class Repeat(Struct, frozen=True, forbid_unknown_fields=True):
    """How often each case is run, and how many of its repeats must pass."""

    n: Annotated[PositiveInt, Meta(description="Run each case so often.")]
    pass_if: PassRule | None = field(default=None, name="pass")


class RunSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The defaults of the flags of `evalloom run`, under the same names."""

    # None is no limit.
    profiles: Annotated[list[str], Meta(title="a list of profiles")] = []
    concurrency: PositiveInt = 16
    repeat: PositiveInt | Repeat = 1
    pass_if: PassRule | None = None
    limit: PositiveInt | None = None
    tags: Annotated[list[str], Meta(title="a list of tags")] = []
    filter: Annotated[str, Meta(description="An expression; only cases for which it is true are run.")] = ""
    variants: Annotated[list[str], Meta(title="a list of variants")] = []
    vary: Annotated[
        dict[str, list[Any]], Meta(description="Values of parameters; each combination is a column of its own.")
    ] = {}
    cache: bool = True
    skip_invalid: bool = False
    allow_unscored: Annotated[bool, Meta(description="Accept expectations that could not be scored.")] = False
    no_checks: Annotated[bool, Meta(description="Accept that nothing is expected of any case.")] = False
    allow_code: Annotated[bool, Meta(description="Run code from data files, in a sandbox.")] = False
    timeout_s: Seconds | None = None
    max_cost: Amount | None = None
    max_tokens: PositiveInt | None = None
    max_time: Seconds | None = None
    fail_under: Annotated[Share, Meta(description="The lowest pass rate that is a success, from 0 to 1.")] | None = None
    output: Annotated[list[str], Meta(title="a list of files")] = []
    quarantine: Annotated[str, Meta(description="A file of cases that do not decide the exit code.")] = ""
    executor: Annotated[Literal["local", "dask"], Meta(description="Where the cases run: here, or on a cluster.")] = (
        "local"
    )
    scheduler: Annotated[str, Meta(description="The address of a Dask scheduler, such as tcp://host:8786.")] = ""
    workers: Annotated[PositiveInt, Meta(description="The workers to start here, without a scheduler.")] | None = None

    @property
    def repeats(self) -> int:
        """How often each case is run."""
        return self.repeat.n if isinstance(self.repeat, Repeat) else self.repeat

    def resolved(self) -> "RunSettings":
        """The same settings, with the pass rule of `repeat` in `pass_if`."""
        if not isinstance(self.repeat, Repeat):
            return self
        pass_if = self.repeat.pass_if if self.pass_if is None else self.pass_if
        return structs.replace(self, repeat=self.repeat.n, pass_if=pass_if)


class SettingsFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of evalloom.yaml that belong to no system."""

    defaults: Annotated[LlmSection, Meta(description="Defaults for every llm.")] | UnsetType = UNSET
    llms: Annotated[dict[str, LlmSection], Meta(description="The llms, by name.")] = {}
    providers: Annotated[
        dict[str, ProviderSection], Meta(description="Providers of llms, by the first word of a name.")
    ] = {}
    profiles: Annotated[
        dict[str, ProfileSection], Meta(description="Named choices of llms; the first one is the default.")
    ] = {}
    target: Annotated[str | Record, Meta(description="The system under test.")] = ""
    targets: Annotated[
        dict[str, str | Record], Meta(description="Several systems under test, by name, that run beside each other.")
    ] = {}
    datasets: Annotated[
        list[str], Meta(title="a list of paths", description="The test files, relative to this file's folder.")
    ] = []
    gates: Annotated[list[str], Meta(title="a list of conditions")] = []
    judge: Annotated[str, Meta(description="The llm that grades.")] = ""
    embeddings: Annotated[str, Meta(description="The llm that turns texts into vectors.")] = ""
    checks: Annotated[list[Record], Meta(title="a list of checks")] = []
    prices: Annotated[dict[str, Price], Meta(description="Per million tokens, by model.")] = {}
    run: Annotated[RunSettings, Meta(description="The defaults of the flags of `evalloom run`.")] = RunSettings()


ENGINE_KEYS = frozenset(SettingsFile.__struct_fields__)


def schema(sections: tuple[Section[Any], ...] = ()) -> Record:
    """The JSON Schema of evalloom.yaml with the sections of some systems, for editors and for messages."""
    # Sorted, so that the order of the systems changes neither the schema nor a message.
    sections = tuple(sorted(sections, key=lambda section: section.name))
    structs = (SettingsFile, *(section.struct for section in sections))
    references, definitions = msgspec.json.schema_components(structs, ref_template="#/$defs/{name}")
    engine = definitions.pop(SettingsFile.__name__)
    # The defaults are at the keys of RunSettings already.
    del engine["properties"]["run"]["default"]
    own = {
        section.name: {"description": section.description, **reference}
        for section, reference in zip(sections, references[1:], strict=True)
    }
    return _tidy(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": FILE_NAME,
            **{key: value for key, value in engine.items() if key not in ("title", "description")},
            "properties": engine["properties"] | own,
            "patternProperties": {"^x-": {}},
            "$defs": definitions,
        }
    )


def _tidy(rule: Record) -> Record:
    """Drop null, since a key without a value counts as absent, and empty defaults."""
    tidy = {key: value for key, value in rule.items() if key != "default" or value not in (None, "", [], {})}
    for key in {"properties", "$defs"} & tidy.keys():
        tidy[key] = {name: _tidy(inner) for name, inner in tidy[key].items()}
    for key in {"items", "additionalProperties"} & tidy.keys():
        tidy[key] = _tidy(tidy[key]) if isinstance(tidy[key], dict) else tidy[key]
    if "anyOf" in tidy:
        choices = [_tidy(choice) for choice in tidy.pop("anyOf") if choice != {"type": "null"}]
        tidy = {**choices[0], **tidy} if len(choices) == 1 else {**tidy, "anyOf": choices}
    return tidy
