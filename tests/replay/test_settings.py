"""The section `resolvers` of evalloom.yaml: what recipes may read, and every error in it at its place."""

from __future__ import annotations

import re
from pathlib import Path

import jsonschema
import pytest

from evalloom import catalog, settings
from evalloom.core.errors import EvalloomError
from evalloom.replay.settings import SECTION, DataSource, ResolverSettings

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "settings.md"


def load(text: str, folder: Path) -> ResolverSettings:
    (folder / "evalloom.yaml").write_text(text, encoding="utf-8")
    return settings.load(folder / "evalloom.yaml", catalog.load().sections).section(SECTION)


@pytest.mark.req("REPLAY-5")
def test_the_section_is_read(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    found = load(
        "resolvers:\n  folder: data\n  env: [CITY]\n  http: [api.example.com, 'localhost:8080', '[::1]:80']\n"
        "  private_addresses: true\n  timeout_s: 2\n  sources: {crm: {sqlite: crm.db, duckdb: }, facts: {duckdb: f.duckdb}}\n",
        tmp_path,
    )
    sources = {"crm": DataSource(sqlite="crm.db"), "facts": DataSource(duckdb="f.duckdb")}
    hosts = ["api.example.com", "localhost:8080", "[::1]:80"]
    assert found == ResolverSettings("data", ["CITY"], hosts, True, 2.0, sources)


@pytest.mark.parametrize("text", ["judge:\n", "resolvers:\n", "resolvers: {env: null, sources: null}\n"])
def test_nothing_is_allowed_unless_it_is_written(text: str, tmp_path: Path) -> None:
    found = load(text, tmp_path)
    assert found == ResolverSettings()
    assert (found.env, found.http, found.private_addresses, found.timeout_s) == ([], [], False, 5.0)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("{envs: [A]}", "resolvers.envs: unknown key. Did you mean 'env'?"),
        ("{env: HOME}", "resolvers.env: expected a list of environment variables, got 'HOME'"),
        ("{env: ['A-B']}", "resolvers.env[0]: expected the name of an environment variable, got 'A-B'"),
        ("{http: ['https://a.com/']}", "resolvers.http[0]: expected a host such as api.example.com or localhost:8080, got 'https://a.com/'"),
        ("{http: ['me:hush@a.com']}", "resolvers.http[0]: expected a host such as api.example.com or localhost:8080"),
        ("{http: ['*']}", "resolvers.http[0]: expected a host such as api.example.com or localhost:8080, got '*'"),
        ("{timeout_s: 0}", "resolvers.timeout_s: expected more than 0, got 0"),
        ("{timeout_s: 1e9}", "resolvers.timeout_s: expected 3600 or less"),
        ("{timeout_s: .nan}", "is not a JSON number"),
        ("{private_addresses: 1}", "resolvers.private_addresses: expected true or false, got 1"),
        ("{folder: nowhere}", "resolvers.folder: there is no folder"),
        ("{folder: evalloom.yaml}", "resolvers.folder: there is no folder"),
        ("{sources: {crm: }}", "resolvers.sources.crm: expected one of sqlite: FILE and duckdb: FILE"),
        ("{sources: {crm: {sqlite: a, duckdb: b}}}", "resolvers.sources.crm: expected one of sqlite: FILE and duckdb: FILE"),
        ("{sources: {crm: {postgres: a}}}", "resolvers.sources.crm.postgres: unknown key. Known: sqlite, duckdb"),
        ("{sources: {crm: crm.db}}", "resolvers.sources.crm: expected an object, got 'crm.db'"),
    ],
)  # fmt: skip
def test_every_error_has_its_place(written: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(EvalloomError) as error:
        load(f"resolvers: {written}\n", tmp_path)
    assert error.value.code == "bad_settings" and told in str(error.value)
    assert "hush" not in str(error.value) and ":1:" in str(error.value)


def test_the_schema_knows_the_section() -> None:
    jsonschema.validate(
        {"resolvers": {"env": ["A"], "sources": {"a": {"sqlite": "a.db"}}}}, settings.schema((SECTION,))
    )
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"resolvers": {"sources": {"a": {"mysql": "x"}}}}, settings.schema((SECTION,)))


def test_the_documentation_names_every_key() -> None:
    section = re.search(
        r"^## The section resolvers$(.*?)^## ", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert section and [name for name in ResolverSettings.__struct_fields__ if f"`{name}`" not in section[1]] == []
