"""Turns the name of an llm, such as `groq:llama-3.1-8b-instant`, into its settings: provider, address and keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote as percent
from urllib.parse import urlsplit

from msgspec import structs

from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.text import did_you_mean, quote
from evalloom.settings.llm import LlmSettings, Vendor
from evalloom.settings.vendors import (
    API_VERSIONS,
    BY_NAME,
    NO_TEXT,
    UNSUPPORTED,
    VENDORS,
    normal_kind,
)

if TYPE_CHECKING:
    from evalloom.settings.file import ProviderSection

_NAME = re.compile(r"([A-Za-z0-9][\w.-]*)(?:([:/])(.*))?", re.DOTALL)
# What OpenAI serves through its Responses API only.
_RESPONSES_ONLY = re.compile(r"(o\d|gpt-\d[\d.]*)-pro\b|gpt-[\d.]+-codex|codex-mini|.*deep-research|computer-use")


class ProviderName(NamedTuple):
    """The parts of a name: `azure:responses:gpt-5` is the provider azure, the kind responses and the model gpt-5."""

    vendor: Vendor
    kind: str
    model: str

    @property
    def protocol(self) -> str:
        if self.kind == "responses":
            return "responses"
        return self.vendor.protocol if self.vendor.protocol != "responses" or not self.kind else "openai"


def parse(name: str, sections: Mapping[str, ProviderSection], needs_model: bool = True) -> ProviderName | None:
    """Return the parts of a name; None where its first word is no provider, or where it names no model.

    Raises EvalloomError for a provider or a kind of model that is known and cannot be asked.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    word, separator, rest = match.groups(default="")
    vendor = find(word, sections)
    if vendor is None:
        if word.lower() in UNSUPPORTED and (separator or not needs_model):
            reason = UNSUPPORTED[word.lower()]
            raise usage_error("provider_unsupported", f"{quote(name)}: evalloom does not call {word}. {reason}.")
        return None
    if not separator:
        has_model = not needs_model or vendor.model or word in ("openai", "anthropic")
        return ProviderName(vendor, "", "") if has_model else None
    if not rest:
        return None
    # Only promptfoo's form has a kind: in LiteLLM's, `openrouter/openai/gpt-4o` is a model.
    kind, colon, model = rest.partition(":") if separator == ":" else ("", "", rest)
    kind = normal_kind(kind)
    if kind in NO_TEXT and (colon or kind in ("codex", "codex-sdk", "agents", "claude-agent-sdk", "claude-code")):
        message = f"{quote(name)}: evalloom sends texts to chats and reads texts, and {kind!r} is another API of {word}"
        raise usage_error("provider_unsupported", f"{message}. Name a chat model: {word}:MODEL, or make it the target.")
    if kind not in ("chat", "responses", "embedding", "completion", "messages"):
        return _checked(name, ProviderName(vendor, "", rest))
    if kind not in vendor.kinds:
        forms = ", ".join(f"{vendor.name}:{known}:MODEL" for known in vendor.kinds)
        message = f"{quote(name)}: evalloom does not know {kind!r} of {vendor.name}"
        raise usage_error("provider_unsupported", f"{message}. Write {vendor.name}:MODEL or {forms}.")
    return _checked(name, ProviderName(vendor, kind, model))


def _checked(name: str, parts: ProviderName) -> ProviderName:
    if (
        name.lower().startswith("vertex")
        and parts.model
        and not parts.model.startswith(("gemini", "gemma", "text-emb"))
    ):
        reason = "Vertex AI signs requests with Google's credentials. Only its gemini models can be asked, with the key"
        hint = "Run others behind a LiteLLM proxy and name them litellm:MODEL"
        raise usage_error("provider_unsupported", f"{quote(name)}: {reason} of the Gemini API. {hint}.")
    return parts


def find(word: str, sections: Mapping[str, ProviderSection]) -> Vendor | None:
    """Return the provider of a name, with the changes that evalloom.yaml makes to it."""
    # The case counts only for names of evalloom.yaml.
    known = BY_NAME.get(word.lower())
    section = sections.get(word) or (sections.get(known.name) if known else None)
    if section is None:
        return known
    vendor = known or Vendor(word, word, kinds=("chat", "responses", "embedding", "completion", "messages"))
    changes: dict[str, Any] = {}
    if section.base_url:
        changes["base_url"] = section.base_url
        changes["url_env"] = ()  # the file is more specific than a variable that some other tool reads
    if section.key_env:
        is_none = section.key_env == "none"
        changes |= {"keys": () if is_none else (section.key_env,), "needs_key": not is_none}
    if section.protocol:
        changes["protocol"] = section.protocol
    if section.key_header:
        changes["key_header"] = section.key_header
    if section.hosts:
        changes["hosts"] = (*vendor.hosts, *section.hosts)
    return structs.replace(vendor, **changes)


def by_host(base_url: str) -> Vendor | None:
    """Return the provider that an address belongs to."""
    host = host_of(base_url)
    return next((vendor for vendor in VENDORS if vendor.needs_key and matches(host, hosts_of(vendor))), None)


def fields_of(parts: ProviderName, variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of the llm that a name describes."""
    vendor, kind, model = parts
    model = model or variables.get(f"{vendor.name.upper()}_MODEL", "").strip() or vendor.model
    protocol = parts.protocol
    is_public = vendor.name == "openai" and not _from_environment(vendor, variables)
    if is_public and not kind and protocol == "openai" and _RESPONSES_ONLY.match(model):
        protocol = "responses"
    # The two oldest names have no row, so that batches of theirs keep their identity.
    is_plain = vendor is BY_NAME.get(vendor.protocol)
    return {
        "protocol": protocol,
        "model": model,
        **({} if is_plain else {"provider": vendor.name, "vendor": vendor}),
    }


def require_model(name: str, parts: ProviderName, model: str) -> None:
    """Raise EvalloomError for a name without a model."""
    if not model:
        variable = f"{parts.vendor.name.upper()}_MODEL"
        kind = f"{parts.kind}:" if parts.kind else ""
        message = f"which model of {name}? Set {variable}, or name it: {parts.vendor.name}:{kind}MODEL"
        raise usage_error("model_missing", message)


# -- addresses ----------------------------------------------------------------------------------------


def address(llm: LlmSettings, vendor: Vendor, variables: Mapping[str, str]) -> tuple[str, str]:
    """Return the base URL of an llm, and the variable that it comes from, if any."""
    url, variable = llm.base_url, ""
    if not url and (named := _from_environment(vendor, variables)):
        variable, url = named
    url = url or vendor.base_url
    if not url:
        variables_or_none = f"{' or '.join(vendor.url_env[:2])}, or " if vendor.url_env else ""
        where = f"base_url of the llm or of providers.{vendor.name} in evalloom.yaml"
        message = f"llm {quote(llm.name)}: no address of {vendor.name}. Set {variables_or_none}{where}"
        raise usage_error("address_missing", message)
    if variable and "://" not in url:
        # OLLAMA_HOST is `0.0.0.0:11434`, AZURE_API_HOST is `name.openai.azure.com`.
        url = f"{'http' if not vendor.needs_key else 'https'}://{url}"
    if vendor.name == "azure":
        return _azure(url, llm, variables), variable
    parts = urlsplit(url)
    if vendor.path and parts.path in ("", "/"):
        url = parts._replace(path=vendor.path).geturl()
    return url, variable


def _from_environment(vendor: Vendor, variables: Mapping[str, str]) -> tuple[str, str] | None:
    for name in vendor.url_env:
        if url := variables.get(name, "").strip():
            return name, url
    return None


def _azure(url: str, llm: LlmSettings, variables: Mapping[str, str]) -> str:
    """Return the address of a deployment, or that of the v1 API, which needs no version."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if "/deployments/" in path or path.endswith("/v1") or parts.query:
        return url
    path = path.removesuffix("/openai")
    version = llm.api_version or next(filter(None, (variables.get(name, "").strip() for name in API_VERSIONS)), "")
    if not version or version in ("v1", "latest"):
        return parts._replace(path=f"{path}/openai/v1").geturl()
    query = f"api-version={percent(version)}"
    if llm.protocol == "responses":
        # It is part of the v1 API, whose only versions are `v1` and `preview`.
        query = query if version == "preview" else ""
        return parts._replace(path=f"{path}/openai/v1", query=query).geturl()
    return parts._replace(path=f"{path}/openai/deployments/{percent(llm.model, safe='')}", query=query).geturl()


# -- where a key may go -------------------------------------------------------------------------------


def host_of(url: str) -> str:
    """Return the host of a URL in lower case; empty where it has none."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def hosts_of(vendor: Vendor) -> tuple[str, ...]:
    """Return the hosts that belong to a provider."""
    return tuple(host for host in (host_of(vendor.base_url), *vendor.hosts) if host)


def matches(host: str, hosts: Iterable[str]) -> bool:
    """Whether a host is one of some; `.example.com` stands for all hosts below example.com."""
    return bool(host) and any(host.endswith(known) if known.startswith(".") else host == known for known in hosts)


def trusted_hosts(vendor: Vendor | None, urls: Iterable[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hosts that may get the key of a provider: its own, and those of the owner's settings."""
    own = hosts_of(vendor) if vendor else ()
    named = _from_environment(vendor, variables) if vendor else None
    from_owner = [
        host_of(url if "://" in url else f"https://{url}") for url in (*urls, named[1] if named else "") if url
    ]
    return tuple(dict.fromkeys([*own, *from_owner]))


def key_not_sent(llm: LlmSettings, url: str, names: tuple[str, ...]) -> EvalloomError:
    """The error of an llm of a data file whose address is not one of its provider."""
    host, provider = host_of(url), llm.vendor.name if llm.vendor else "openai"
    start = f"llm {quote(llm.name)}: {' or '.join(names)} is not sent to {host}"
    if matches(host, llm.hosts):
        return usage_error("key_not_sent", f"{start} without TLS. Write https:// in its address")
    return usage_error(
        "key_not_sent",
        f"{start}: a data file names this address, and it is not one of {provider}. If you trust it, write in "
        f"evalloom.yaml: providers: {{{provider}: {{hosts: [{host}]}}}}. If it needs no key, set none as its key",
    )


def suggestion(name: str, sections: Mapping[str, ProviderSection]) -> str:
    """The end of a message about a name that may be meant for a provider; empty where it is not."""
    match = _NAME.fullmatch(name)
    if match is None:
        return ""
    word = match[1]
    if (vendor := find(word, sections)) is not None:
        return f". Name the model too: {vendor.name}:MODEL"
    if match[2] != ":" or not match[3]:
        return ""
    names = [f"{known}:{match[3]}" for known in (*sections, *BY_NAME)]
    if hint := did_you_mean(name, names, 0.75) if did_you_mean(word.lower(), [*sections, *BY_NAME], 0.75) else "":
        return hint
    return (
        f". To add the provider {word!r}, write in evalloom.yaml: "
        f"providers: {{{word}: {{base_url: https://…/v1, key_env: {re.sub(r'[^A-Z0-9]', '_', word.upper())}_API_KEY}}}}"
    )
