"""A suite: a test file that also says what it tests, such as a config with prompts and providers.

Its columns are profiles: a provider under the name of an llm, and a prompt as a variant of the target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from evalloom.core.errors import usage_error
from evalloom.core.model import Check, Profile, Record
from evalloom.core.text import did_you_mean, quote
from evalloom.settings import LlmSettings, RunSettings, Settings
from evalloom.settings import profile as find_profile

if TYPE_CHECKING:
    from evalloom.targets import BuiltTarget, TargetOptions


SUITE = "suite:"
"""How a target begins that is the prompts and providers of a file: `suite:promptfooconfig.yaml`."""


class SuiteOptions(Struct, frozen=True):
    """What the reader of a suite gets: the settings, and the options of targets."""

    settings: Settings
    target: TargetOptions
    profiles: tuple[str, ...] = ()
    """The profiles that replace its own columns; none to run all of them."""


class Suite(Struct, frozen=True):
    """What a test file says beside its cases."""

    target: BuiltTarget
    """Its variants are the prompts."""
    columns: tuple[Profile, ...]
    prompts: tuple[str, ...]
    """The variants that another llm runs with: `--profile echo`."""
    llms: Mapping[str, LlmSettings] = {}
    """The llms of the columns and the judge, by name."""
    unusable: Mapping[str, str] = {}
    """Why a column cannot run, by its name."""
    judge: str = ""
    embeddings: str = ""
    options: Record = {}
    """Fields of RunSettings, for those that neither flags nor evalloom.yaml set."""
    variables: frozenset[str] = frozenset()
    """The inputs that its prompts name."""
    change: Callable[[Record, Record, Sequence[Check]], Record] | None = None
    """Returns a test of the file with other inputs and only the given checks; its options stay."""

    def with_llms(self, settings: Settings) -> Settings:
        """Add the llms of the file to the settings, where an llm of the same name is the user's own word."""
        embeddings = settings.embeddings or self.embeddings
        return msgspec.structs.replace(settings, llms={**self.llms, **settings.llms}, embeddings=embeddings)

    def options_over(self, settings: Settings, flags: Record) -> RunSettings:
        """Return the options of the run: flags, then evalloom.yaml, then the file."""
        written = settings.written.value.get("run") if settings.written is not None else None
        own = {name: value for name, value in self.options.items() if name not in (written or {})}
        in_order = {"concurrency": 1} if self.target.in_order else {}
        return msgspec.structs.replace(settings.run.resolved(), **{**own, **flags, **in_order})

    def profiles(self, settings: Settings, options: RunSettings) -> tuple[Profile, ...]:
        """Return the columns to run: all, those of the named providers, or other llms with the prompts of the file."""
        chosen = self._chosen(settings, options.profiles) if options.profiles else self.columns
        if options.variants:
            for name in options.variants:
                if name not in self.prompts:
                    hint = did_you_mean(name, self.prompts) or f"; it has {', '.join(self.prompts)}"
                    raise usage_error("no_variants", f"--variants: there is no prompt {quote(name)}{hint}")
            chosen = tuple(profile for profile in chosen if prompt_of(profile) in options.variants)
        broken = [
            f"{profile.name}: {self.unusable[profile.name]}" for profile in chosen if profile.name in self.unusable
        ]
        if broken:
            others = "Choose other columns with --profile, or try the file offline with --profile echo"
            raise usage_error("provider_unusable", "\n".join([*dict.fromkeys(broken), others]))
        return chosen

    def _chosen(self, settings: Settings, names: list[str]) -> tuple[Profile, ...]:
        chosen: list[Profile] = []
        for name in dict.fromkeys(names):
            own = [column for column in self.columns if name in (column.name, column.run, _provider_of(column))]
            chosen += own or self._with_prompts(find_profile(settings, name))
        return tuple(chosen)

    def _with_prompts(self, profile: Profile) -> list[Profile]:
        names = {
            prompt: f"{profile.name}@{prompt}" if len(self.prompts) > 1 else profile.name for prompt in self.prompts
        }
        return [msgspec.structs.replace(profile, name=names[prompt], variant=prompt) for prompt in self.prompts]


def _provider_of(profile: Profile) -> str:
    return profile.variant.rpartition("@")[0]


def prompt_of(profile: Profile) -> str:
    """Return the prompt of a column, whose variant may name a provider before it: `provider@prompt`."""
    return profile.variant.rpartition("@")[2]
