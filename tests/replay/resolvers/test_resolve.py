"""Every resolver: known by its scheme, never raising, within its limits, and with no secret in what it tells."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalloom.replay.resolvers import MOST_BYTES, RESOLVERS, Reach, Resolution, reach_of, resolve
from evalloom.replay.settings import DataSource, ResolverSettings
from evalloom.settings import LlmSettings, Settings

KEY = "sk-0123456789abcdefghij"


@pytest.mark.req("REPLAY-5")
@pytest.mark.parametrize("resolver", ["", "  ", "\n"])
def test_a_blank_resolver_is_missing(resolver: str, tmp_path: Path) -> None:
    found = resolve(resolver, "SELECT 1", Reach(tmp_path))
    assert found.error_code == "resolver_missing"
    assert all(f"{scheme}://" in found.message for scheme in RESOLVERS)


@pytest.mark.req("REPLAY-5")
@pytest.mark.parametrize(
    "resolver", ["ftp://host", "notes.txt", "postgres://me:hush-hush@db/x", "://x", "file:/x", "sq lite://x"]
)
def test_an_unknown_scheme_is_named_but_nothing_behind_it(resolver: str, tmp_path: Path) -> None:
    found = resolve(resolver, "", Reach(tmp_path))
    assert found.error_code == "unsupported_scheme"
    assert "sqlite://, sql://, chat://, env://, file://, http://, https://" in found.message
    assert "hush-hush" not in found.message


def test_a_scheme_with_a_slip_is_guessed(tmp_path: Path) -> None:
    assert resolve("sqllite://x.db", "SELECT 1", Reach(tmp_path)).message.endswith("Did you mean 'sqlite'?")


@pytest.mark.req("REPLAY-5")
def test_schemes_are_known_in_capitals_and_with_blanks_around(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hi")
    found = resolve(" FILE://a.txt\n", "", Reach(tmp_path))
    assert (found.value, found.error_code, found.truncated) == ("hi", "", False)
    assert found.duration_ms > 0


@pytest.mark.req("REPLAY-5", "REPLAY-15")
def test_secrets_of_the_settings_are_in_no_value_and_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIMI", KEY)
    settings = Settings(
        folder=tmp_path,
        llms={"kimi": LlmSettings("kimi", key_env="KIMI")},
        sections={"resolvers": ResolverSettings(env=["KIMI"])},
    )
    reach = reach_of(settings, tmp_path)
    (tmp_path / "a.txt").write_text("x" * (MOST_BYTES - 10) + KEY)
    found = resolve("file://a.txt", "", reach)
    assert "sk-" not in found.value and found.value.endswith("[hidden]") and not found.truncated
    assert resolve(f"file://{KEY}.txt", "", reach).message.startswith("file://[hidden].txt: ")
    assert resolve("env://KIMI", "", reach).error_code == "not_allowed"


@pytest.mark.req("REPLAY-5")
def test_settings_say_what_may_be_read(tmp_path: Path) -> None:
    allowed = ResolverSettings(
        folder="data", env=["HOME"], http=["API.example.com"], private_addresses=True, timeout_s=2.0,
        sources={"crm": DataSource(sqlite="crm.db"), "facts": DataSource(duckdb="/facts.duckdb")},
    )  # fmt: skip
    reach = reach_of(
        Settings(folder=tmp_path, sections={"resolvers": allowed}), Path("elsewhere"), (tmp_path / "data" / "store",)
    )
    assert (reach.folder, reach.closed) == (tmp_path / "data", (tmp_path / "data" / "store",))
    assert (reach.http, reach.private_addresses, reach.timeout_s) == (frozenset(["api.example.com"]), True, 2.0)
    assert [source.path for source in reach.sources.values()] == [tmp_path / "crm.db", Path("/facts.duckdb")]
    assert reach_of(Settings(), Path("elsewhere")).folder == Path("elsewhere")


@given(
    scheme=st.sampled_from([*(f"{scheme}://" for scheme in RESOLVERS), ""]),
    target=st.text(st.characters(exclude_categories=())),
    value=st.one_of(
        st.text(st.characters(exclude_categories=())),
        st.sampled_from(["SELECT 1", "WITH x AS (SELECT 1) SELECT * FROM x"]),
    ),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_text_makes_it_raise(scheme: str, target: str, value: str, tmp_path: Path) -> None:
    found = resolve(scheme + target, value, Reach(tmp_path, env=frozenset([target]), environ={target: value}))
    assert isinstance(found, Resolution) and bool(found.error_code) == bool(found.message)
    assert len(found.value.encode()) <= MOST_BYTES and found.message.encode().decode().isprintable()


def test_importing_the_shelf_loads_no_database_and_no_http() -> None:
    heavy = "{'sqlite3', 'duckdb', 'http.client', 'ssl'}"
    code = f"import sys, evalloom.settings; known = set(sys.modules); import evalloom.replay.resolvers; print((set(sys.modules) - known) & {heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
