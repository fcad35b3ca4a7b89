"""One llm with its settings filled in, declared in evalloom.yaml or described by a name; and who serves it."""

# No `from __future__ import annotations`: msgspec would evaluate each annotation at the first use.
from pathlib import Path

from msgspec import Struct

from evalloom.settings.file import LlmKeys


class Vendor(Struct, frozen=True):
    """One provider, of this table or of `providers` in evalloom.yaml."""

    name: str
    title: str = ""
    base_url: str = ""
    """Where it is served; empty where each customer has an own address."""
    keys: tuple[str, ...] = ()
    """The environment variables with the key, in order of precedence."""
    aliases: tuple[str, ...] = ()
    protocol: str = "openai"
    url_env: tuple[str, ...] = ()
    """The environment variables with another address, in order of precedence."""
    hosts: tuple[str, ...] = ()
    """Further hosts that belong to the provider; `.example.com` stands for every host below example.com."""
    key_header: str = ""
    """The HTTP header with the key; by default `Authorization: Bearer KEY`."""
    needs_key: bool = True
    kinds: tuple[str, ...] = ("chat", "embedding")
    """What the second word of a name may be."""
    path: str = ""
    """What an address from the environment needs behind it, where people write it without."""
    renames: tuple[tuple[str, str], ...] = ()
    """Parameters that the provider names otherwise: OpenAI's name and its own."""
    model: str = ""
    """The model of a name without one, where a server has only one."""
    note: str = ""


class LlmSettings(LlmKeys, frozen=True):
    """One llm with the defaults filled in; `params` are sent with every request."""

    name: str
    folder: Path = Path()
    vendor: Vendor | None = None
    """Who serves it; None where the llm has a protocol and an address of its own."""
    key_name: str = ""
    """The name in HOP_KEY_<NAME>, where it is not that of the llm."""
    is_trusted: bool = True
    """Whether its address comes from the project's own settings. If not, a key goes only to `hosts`."""
    hosts: tuple[str, ...] = ()
