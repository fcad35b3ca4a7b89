"""Changes an llm by keys that a caller or a data file gives, and decides whether its key may be sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from evalloom.core.errors import usage_error
from evalloom.core.text import quote
from evalloom.settings import providers
from evalloom.settings.check import url_error
from evalloom.settings.file import LLM_KEYS, LlmKeys
from evalloom.settings.llm import LlmSettings
from evalloom.settings.vendors import BY_NAME


def apply(llm: LlmSettings, overrides: Mapping[str, Any]) -> LlmSettings:
    """Return an llm with other settings. A key that is no setting is a parameter; None removes one."""
    written = {key: value for key, value in overrides.items() if key in LLM_KEYS and value is not None}
    try:
        parsed = msgspec.convert(written, LlmKeys)
    except msgspec.ValidationError as error:
        raise usage_error("bad_provider", f"llm {quote(llm.name)}: {error}") from None
    if parsed.base_url and (problem := url_error(parsed.base_url)):
        raise usage_error("bad_provider", f"llm {quote(llm.name)}: base_url: {problem}")
    changes = {key: getattr(parsed, key) for key in written if key not in ("params", "headers", "provider")}
    params = {**llm.params, **{key: value for key, value in overrides.items() if key not in LLM_KEYS}, **parsed.params}
    params = {key: value for key, value in params.items() if value is not None}
    return msgspec.structs.replace(llm, **changes, params=params, headers={**llm.headers, **parsed.headers})


def apply_untrusted(
    llm: LlmSettings, overrides: Mapping[str, Any], label: str, variables: Mapping[str, str]
) -> LlmSettings:
    """Return an llm with settings of a data file, which does not decide where keys go."""
    vendor = llm.vendor or BY_NAME["anthropic" if llm.protocol == "anthropic" else "openai"]
    for key in ("protocol", "file", "provider"):
        if overrides.get(key):
            raise usage_error("bad_provider", f"llm {quote(label)}: a data file cannot set {key}")
    hosts = providers.trusted_hosts(vendor, [llm.base_url], variables)
    key_env = overrides.get("key_env")
    if key_env and key_env != "none" and key_env not in (*vendor.keys, llm.key_env):
        message = f"llm {quote(label)}: {key_env} is not a variable of {vendor.name}, and a data file names it"
        hint = f"If you trust it, write in evalloom.yaml: providers: {{{vendor.name}: {{key_env: {key_env}}}}}"
        raise usage_error("key_not_sent", f"{message}. {hint}")
    if overrides.get("base_url"):
        # The headers of evalloom.yaml are for the address that stands beside them.
        llm = msgspec.structs.replace(llm, headers={}, base_url="")
    changed = apply(llm, overrides)
    # With its row, so that only the variables of this provider are read.
    return msgspec.structs.replace(changed, name=label, key_name=llm.name, vendor=vendor, is_trusted=False, hosts=hosts)


def may_send_key(llm: LlmSettings, url: str, names: tuple[str, ...]) -> bool:
    """Whether the key of an untrusted llm may go to its address; False where it needs none.

    Raises EvalloomError where it needs one that must not be sent.
    """
    from evalloom.core.http import is_loopback

    is_local = is_loopback(url)
    if providers.matches(providers.host_of(url), llm.hosts) and (url.startswith("https://") or is_local):
        return True
    # What listens on this machine needs no key, and a stranger may have chosen it.
    if is_local or (llm.vendor is not None and not llm.vendor.needs_key):
        return False
    raise providers.key_not_sent(llm, url, names)
