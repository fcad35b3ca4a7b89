"""Providers by name: what a name means, which key it gets, and where that key may go."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from evalloom import settings
from evalloom.core.errors import EvalloomError
from evalloom.settings import LlmSettings, Settings, key_names, key_of, keys, llm_of, resolve, with_llms
from evalloom.settings.file import ProviderSection
from evalloom.settings.vendors import BY_NAME, KEY_VARIABLES, UNSUPPORTED, VENDORS

pytestmark = pytest.mark.req("WORK-32")
ROOT = Path(__file__).parent.parent.parent
KEY = "key-0123456789abcdef"


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for vendor in VENDORS:
        for name in (*vendor.keys, *vendor.url_env):
            monkeypatch.delenv(name, raising=False)


def refusal(name: str, known: Settings | None = None) -> EvalloomError:
    with pytest.raises(EvalloomError) as raised:
        llm_of(known or Settings(), name)
    return raised.value


# -- names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "protocol", "model", "host"),
    [
        ("openai:gpt-4o", "openai", "gpt-4o", "api.openai.com"),
        ("openai/gpt-4o", "openai", "gpt-4o", "api.openai.com"),
        ("openai:chat:gpt-4o", "openai", "gpt-4o", "api.openai.com"),
        ("openai:chat:ft:gpt-4o:acme::1", "openai", "ft:gpt-4o:acme::1", "api.openai.com"),
        ("openai:ft:gpt-4o:acme::1", "openai", "ft:gpt-4o:acme::1", "api.openai.com"),
        ("openai:responses:gpt-5", "responses", "gpt-5", "api.openai.com"),
        ("openai:gpt-5-pro", "responses", "gpt-5-pro", "api.openai.com"),
        ("openai:embedding:text-embedding-3-small", "openai", "text-embedding-3-small", "api.openai.com"),
        ("anthropic:claude-x", "anthropic", "claude-x", "api.anthropic.com"),
        ("anthropic:messages:claude-x", "anthropic", "claude-x", "api.anthropic.com"),
        ("google:gemini-2.5-flash", "openai", "gemini-2.5-flash", "generativelanguage.googleapis.com"),
        ("vertex:gemini-2.5-flash", "openai", "gemini-2.5-flash", "generativelanguage.googleapis.com"),
        ("ollama:chat:llama3:8b", "openai", "llama3:8b", "localhost"),
        ("ollama:completion:llama3", "openai", "llama3", "localhost"),
        ("deepseek/deepseek-chat", "openai", "deepseek-chat", "api.deepseek.com"),
        ("openrouter:meta-llama/llama-4", "openai", "meta-llama/llama-4", "openrouter.ai"),
        ("openrouter/openai/gpt-4o", "openai", "openai/gpt-4o", "openrouter.ai"),
        ("litellm:openai/gpt-4o", "openai", "openai/gpt-4o", "localhost"),
        ("litellm:responses:big", "responses", "big", "localhost"),
        ("Groq:llama-3", "openai", "llama-3", "api.groq.com"),
        ("grok:grok-4", "openai", "grok-4", "api.x.ai"),
        ("llama", "openai", "default", "localhost"),
    ],
)
def test_what_a_name_means(name: str, protocol: str, model: str, host: str) -> None:
    llm = llm_of(Settings(), name)
    assert (llm.protocol, llm.model, urlsplit(llm.base_url).hostname) == (protocol, model, host)
    assert settings.profile(Settings(), name).run == name


def test_the_oldest_names_keep_their_identity() -> None:
    plain = LlmSettings("openai:m", model="m", base_url="https://api.openai.com/v1")
    assert llm_of(Settings(), "openai:m") == plain
    assert llm_of(Settings(), "anthropic:m").vendor is None


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("grq:llama", "unknown_llm", "Did you mean 'groq:llama'?"),
        ("groq", "unknown_llm", "Name the model too: groq:MODEL"),
        ("groq:", "unknown_llm", "Name the model too: groq:MODEL"),
        ("acme:big", "unknown_llm", "providers: {acme: {base_url: https://…/v1, key_env: ACME_API_KEY}}"),
        ("bedrock:us.claude", "provider_unsupported", "LiteLLM proxy"),
        ("bedrock/us.claude", "provider_unsupported", "LiteLLM proxy"),
        ("vertex:claude-x", "provider_unsupported", "LiteLLM proxy"),
        ("openai:image:gpt-image-1", "provider_unsupported", "Name a chat model"),
        ("openai:codex-sdk", "provider_unsupported", "make it the target"),
        ("openai:completion:davinci", "provider_unsupported", "openai:responses:MODEL"),
        ("huggingface:text-generation:gemma", "provider_unsupported", "huggingface:MODEL"),
        ("quiverai:arrow", "provider_unsupported", "tests texts"),
        ("https://example.com", "provider_unsupported", "http:URL"),
        ("file://ask.py", "provider_unsupported", "python:FILE.py:FUNCTION"),
        ("azure:chat:my-gpt", "address_missing", "AZURE_OPENAI_ENDPOINT"),
    ],
)
def test_an_unknown_name_says_what_to_write(name: str, code: str, words: str) -> None:
    error = refusal(name)
    assert error.code == code and words in str(error)


def test_every_unsupported_provider_says_what_to_do() -> None:
    assert not UNSUPPORTED.keys() & BY_NAME.keys()
    for name in UNSUPPORTED:
        assert refusal(f"{name}:x").code == "provider_unsupported"


def test_the_model_of_a_provider_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_MODEL", "tiny")
    assert llm_of(Settings(), "openai:chat:").model == "tiny"
    monkeypatch.delenv("OPENAI_MODEL")
    assert refusal("openai:chat:").code == "model_missing"


@pytest.mark.parametrize(
    ("variable", "value", "name", "url"),
    [
        ("OLLAMA_BASE_URL", "http://box:11434", "ollama:m", "http://box:11434/v1"),
        ("OLLAMA_HOST", "box:11434", "ollama:m", "http://box:11434/v1"),
        ("LITELLM_BASE_URL", "http://box:4000/v1", "litellm:m", "http://box:4000/v1"),
        ("AZURE_API_HOST", "me.openai.azure.com", "azure:chat:m", "https://me.openai.azure.com/openai/v1"),
        ("AZURE_API_BASE", "https://me.openai.azure.com/", "azure/m", "https://me.openai.azure.com/openai/v1"),
        (
            "AZURE_OPENAI_BASE_URL",
            "https://me.openai.azure.com/openai/v1/",
            "azure/m",
            "https://me.openai.azure.com/openai/v1/",
        ),
        ("MISTRAL_API_BASE", "https://eu.example/v1", "mistral:m", "https://eu.example/v1"),
    ],
)
def test_the_variables_of_other_tools_move_a_provider(
    variable: str, value: str, name: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    assert llm_of(Settings(), name).base_url == url


# -- evalloom.yaml ------------------------------------------------------------------------------------


def load(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "evalloom.yaml"
    path.write_text(text, encoding="utf-8")
    return settings.load(path)


def test_llms_name_their_provider(tmp_path: Path) -> None:
    text = (
        "defaults: {temperature: 0, headers: {X-Team: red}, base_url: 'http://localhost:1/v1'}\n"
        "providers:\n"
        "  acme: {base_url: 'https://llm.acme.example/v1', key_env: ACME_TOKEN, protocol: anthropic}\n"
        "  groq: {base_url: 'https://eu.groq.example/v1'}\n"
        "llms:\n"
        "  fast: {provider: groq, model: llama-3, max_tokens: 5}\n"
        "  deep: {provider: 'openai:responses:gpt-5', temperature: null}\n"
        "  cloud: {provider: azure, model: my-gpt, base_url: 'https://me.openai.azure.com', api_version: '2024-10-21'}\n"
        "profiles: {a: {run: 'acme:big', verify: 'deepseek/deepseek-chat'}}\n"
        "judge: cerebras:llama\n"
    )
    found = load(tmp_path, text)
    fast, deep, cloud = (llm_of(found, name) for name in ("fast", "deep", "cloud"))
    assert (fast.base_url, fast.model, fast.headers) == ("https://eu.groq.example/v1", "llama-3", {})
    assert fast.params == {"temperature": 0, "max_tokens": 5} and "GROQ_API_KEY" in key_names(fast)
    assert (deep.protocol, deep.base_url, deep.params) == ("responses", "https://api.openai.com/v1", {})
    assert cloud.base_url == "https://me.openai.azure.com/openai/deployments/my-gpt?api-version=2024-10-21"
    big = llm_of(found, "acme:big")
    assert (big.protocol, big.base_url) == ("anthropic", "https://llm.acme.example/v1")
    assert key_names(big) == ("HOP_KEY_ACME_BIG", "ACME_TOKEN")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("llms: {a: {provider: grok2, model: m}}", "there is no provider 'grok2'"),
        ("llms: {a: {provider: groq}}", "llms.a.model: missing"),
        ("llms: {a: {provider: bedrock, model: m}}", "evalloom does not call bedrock"),
        ("providers: {a: {base_url: ftp://x}}", "providers.a.base_url: expected a URL"),
        ("providers: {a: {api_base: 'http://x/v1'}}", "providers.a.api_base: unknown key"),
        ("providers: {a: {protocol: soap}}", "providers.a.protocol: expected"),
        ("providers: {'a b': {base_url: 'http://x/v1'}}", "providers.a b: expected a name"),
        ("providers: {a: {key_env: 'sk-0123456789abcdefghijkl'}}", "a key does not belong in this file"),
        ("judge: watsonx:granite", "evalloom does not call watsonx"),
        ("profiles: {a: {run: 'grq:llama'}}", "Did you mean 'groq:llama'?"),
    ],
)
def test_errors_in_the_settings(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(EvalloomError, match=re.escape(words)) as raised:
        load(tmp_path, text)
    assert raised.value.code == "bad_settings"


def test_a_provider_of_the_defaults_is_for_llms_that_say_nothing_else(tmp_path: Path) -> None:
    text = (
        "defaults: {provider: groq, headers: {X-A: b}, temperature: 0}\n"
        "llms:\n  a: {model: m}\n  b: {protocol: openai, model: m}\n  c: {protocol: echo}\n  d: {provider: xai, model: m}\n"
    )
    found = load(tmp_path, text)
    names = ("a", "b", "c", "d", "openai:m", "echo", "mistral:m")
    llms = {name: llm_of(found, name) for name in names}
    assert [name for name, llm in llms.items() if "X-A" in llm.headers] == ["a"]
    hosts = [urlsplit(llms[name].base_url).hostname for name in names]
    assert hosts == ["api.groq.com", "api.openai.com", None, "api.x.ai", "api.openai.com", None, "api.mistral.ai"]
    assert all(llm.params == {"temperature": 0} for llm in llms.values())


# -- keys ---------------------------------------------------------------------------------------------


def test_a_provider_gets_its_own_key_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.raises(EvalloomError, match="Set HOP_KEY_GROQ_M or GROQ_API_KEY"):
        key_of(llm_of(Settings(), "groq:m"))
    monkeypatch.setenv("GROQ_API_KEY", "own-0123456789")
    assert key_of(llm_of(Settings(), "groq:m")) == "own-0123456789"
    monkeypatch.setenv("HOP_KEY_GROQ_M", "first-0123456789")
    assert key_of(llm_of(Settings(), "groq:m")) == "first-0123456789"
    assert key_of(llm_of(Settings(), "ollama:m")) == ""


def test_an_address_of_a_provider_gets_its_key_before_the_common_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    kimi = LlmSettings("kimi", model="m", base_url="https://api.moonshot.cn/v1")
    assert key_of(kimi) == KEY
    monkeypatch.setenv("MOONSHOT_API_KEY", "moon-0123456789")
    assert key_of(kimi) == "moon-0123456789"


def sent(name: str, overrides: dict[str, Any], known: Settings | None = None) -> str:
    """The key that an llm of a data file gets, or the code of the error."""
    known = known or Settings()
    try:
        return key_of(llm_of(with_llms(known, [resolve(known, name, overrides, label="x", is_trusted=False)]), "x"))
    except EvalloomError as error:
        assert KEY not in str(error)
        return error.code


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({}, KEY),
        ({"base_url": "https://api.openai.com/v1"}, KEY),
        ({"base_url": "https://eu.api.openai.com/v1"}, KEY),
        ({"base_url": "http://localhost:1/v1"}, ""),
        ({"base_url": "https://evil.example/v1"}, "key_not_sent"),
        ({"base_url": "https://api.openai.com.evil.example/v1"}, "key_not_sent"),
        ({"base_url": "https://evilapi.openai.com/v1"}, "key_not_sent"),
        ({"base_url": "http://api.openai.com/v1"}, "key_not_sent"),
        ({"base_url": "https://api.openai.com@evil.example/v1"}, "bad_provider"),
        ({"base_url": "https://evil.example/v1", "key_env": "none"}, ""),
        ({"base_url": "https://evil.example/v1", "key_env": "OPENAI_API_KEY"}, "key_not_sent"),
        ({"key_env": "AWS_SECRET_ACCESS_KEY"}, "key_not_sent"),
        ({"base_url": "https://evil.example/v1", "headers": {"X-Leak": "${OPENAI_API_KEY}"}}, "key_not_sent"),
        ({"protocol": "scripted", "file": "/etc/passwd"}, "bad_provider"),
        ({"temperature": 0, "timeout_s": "soon"}, "bad_provider"),
    ],
)
def test_a_key_goes_only_to_its_provider(
    overrides: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    assert sent("openai:chat:gpt-4o", overrides) == expected


def test_the_owner_may_allow_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    foreign = {"base_url": "https://proxy.example/v1"}
    assert sent("openai:m", foreign, Settings(providers={"openai": ProviderSection(hosts=["proxy.example"])})) == KEY
    declared = LlmSettings("openai:m", model="m", base_url="https://proxy.example/v2", key_env="OPENAI_API_KEY")
    assert sent("openai:m", foreign, Settings(llms={"openai:m": declared})) == KEY
    monkeypatch.setenv("OPENAI_BASE_URL", "https://proxy.example/v1")
    assert sent("openai:m", foreign) == KEY and sent("openai:m", {}) == KEY


def test_an_untrusted_llm_reads_no_key_of_another_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert sent("anthropic:messages:claude", {}) == "key_missing"
    assert sent("ollama:m", {"base_url": "http://box.example:11434"}) == ""


def test_headers_of_a_data_file_take_no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_THING", KEY)
    known = Settings(defaults={"headers": {"X-Team": "${SECRET_THING}"}})
    own = resolve(known, "openai:m", {"headers": {"X-A": "${SECRET_THING}"}}, is_trusted=False)
    assert llm_of(with_llms(known, [own]), "openai:m").headers == {"X-Team": KEY, "X-A": "${SECRET_THING}"}
    foreign = {"headers": {"X-A": "a"}, "base_url": "https://evil.example/v1", "key_env": "none"}
    moved = resolve(known, "openai:m", foreign, is_trusted=False)
    assert llm_of(with_llms(known, [moved]), "openai:m").headers == {"X-A": "a"}


def test_a_label_and_parameters() -> None:
    changes = {"temperature": 0.5, "stop": None, "params": {"seed": 1}, "retries": 1}
    llm = resolve(Settings(), "groq:m", changes, label="cold")
    assert (llm.name, llm.model, llm.params, llm.retries) == ("cold", "m", {"temperature": 0.5, "seed": 1}, 1)
    assert key_names(llm)[0] == "HOP_KEY_GROQ_M"


# -- the table ----------------------------------------------------------------------------------------


def test_the_variables_of_all_providers_are_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [name for name in KEY_VARIABLES if not keys.is_key_variable(name)] == []
    monkeypatch.setenv("ARK_API_KEY", KEY)
    assert KEY in settings.secrets(Settings())


def test_the_table_is_sound() -> None:
    names = [name for vendor in VENDORS for name in (vendor.name, *vendor.aliases)]
    assert len(names) == len(set(names)) and all(name == name.lower() for name in names)
    for vendor in VENDORS:
        assert vendor.title and vendor.keys and vendor.kinds
        if vendor.needs_key and vendor.base_url:
            assert vendor.base_url.startswith("https://") and not vendor.base_url.endswith("/")


def test_the_documentation_shows_the_table() -> None:
    page = (ROOT / "docs" / "providers.md").read_text(encoding="utf-8")
    for vendor in VENDORS:
        names = ", ".join(f"`{name}`" for name in (vendor.name, *vendor.aliases))
        variables = ", ".join(f"`{name}`" for name in vendor.keys)
        address = f"`{vendor.base_url}`" if vendor.base_url else "your own"
        assert f"| {vendor.title} | {names} | {address} | {variables} |" in page
