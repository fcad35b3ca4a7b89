"""Documents and settings: what cannot be used is refused in our own words, with the place, and never with a crash."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
from hypothesis import assume
from hypothesis import strategies as st
from tests.fuzz.conftest import (
    CATALOG,
    DOCUMENTS,
    JSON,
    KEYS,
    TEXTS,
    check_findings,
    check_report,
    damaged,
    fuzz,
    mutations,
    seeds,
    written,
)

from evalloom.core.errors import EvalloomError
from evalloom.engine.lint import LintOptions, lint, lint_settings
from evalloom.hop.contract import read_contract
from evalloom.llms import scripted
from evalloom.pipeline.file import read_pipeline
from evalloom.prompt_eval.plan import read_plan
from evalloom.prompt_eval.table import read_table
from evalloom.replay.recipe.document import RecipeFile
from evalloom.replay.resolvers import Resolution, reach_of, resolve
from evalloom.settings import Settings, find_datasets, first_profile, key_of, llm_of, load, secrets
from evalloom.settings.keys import read_dotenv
from evalloom.targets.base import TargetOptions
from evalloom.targets.prompt import build

SETTINGS = seeds("examples/*/evalloom.yaml", "examples/*/*/evalloom.yaml")
SETTINGS_KEYS = [
    *("llms", "profiles", "defaults", "datasets", "target", "checks", "gates", "judge", "embeddings", "prices", "run"),
    *("protocol", "model", "base_url", "headers", "params", "key_env", "file", "price", "concurrency", "repeat"),
    *("retries", "timeout_s", "resolvers", "prompt_eval", "rag", "replay", "hop", "pipeline", "api_key"),
]
PROMPTS = seeds("examples/pipeline/**/prompts/*.yaml", "examples/replay/prompt.yaml")
SCRIPTS = seeds("examples/*/answers.yaml", "examples/hop/*.yaml")
TABLES = seeds("tests/fixtures/v0_1/prompt_eval/results/*.csv")


def changed(files: list[Any], keys: list[str]) -> st.SearchStrategy[bytes]:
    """The files with their values or their bytes changed."""
    values = st.sampled_from([seed.records[0] for seed in files])
    return mutations(values, keys, most=4).map(lambda value: written([value], ".yaml")) | damaged(
        st.sampled_from([seed.data for seed in files])
    )


def is_own(error: EvalloomError) -> bool:
    """Whether an error says something, under a code that the docs explain."""
    return bool(error.code and str(error).strip()) and error.exit_code in (1, 2, 3)


@fuzz(data=changed(DOCUMENTS, KEYS), suffix=st.sampled_from([".yaml", ".yaml", ".json"]))
def test_documents_are_linted_and_read(folder: Path, data: bytes, suffix: str) -> None:
    path = folder / f"document{suffix}"
    path.write_bytes(data)
    report = lint([str(path)], CATALOG, LintOptions(deep=True))
    check_findings(report.checked[0].findings, data)
    check_report(report)
    _, collector = read_pipeline(path)
    plan, findings = read_plan(path)
    assert plan is not None or any(finding.severity == "error" for finding in findings)
    check_findings((*collector.findings, *findings), data)
    try:
        recipe = RecipeFile(path).read()
    except EvalloomError as error:
        assert is_own(error)
    else:
        row = {"question": "x"}
        recipe.assemble(row, dict.fromkeys(recipe.needs([row]), Resolution("found")))


@fuzz(data=changed(SETTINGS, SETTINGS_KEYS))
def test_settings_are_loaded_or_refused(folder: Path, data: bytes) -> None:
    path = folder / "evalloom.yaml"
    path.write_bytes(data)
    try:
        settings = load(path, CATALOG.sections)
    except EvalloomError as error:
        assert error.code == "bad_settings" and error.exit_code == 2 and path.name in str(error)
        assert str(error).isprintable() or "\n" in str(error)
        return
    secrets(settings)
    lint_settings(path, CATALOG)
    for use in (lambda: find_datasets(folder), lambda: first_profile(settings), lambda: _use_llms(settings)):
        try:
            use()
        except EvalloomError as error:
            assert is_own(error)


def _use_llms(settings: Settings) -> None:
    for name in settings.llms:
        key_of(llm_of(settings, name))


NAME = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True)
VALUE = st.text(
    st.characters(codec="utf-8", exclude_characters="\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\r\n'"), max_size=12
)


@fuzz(
    data=st.binary(max_size=80) | TEXTS.map(str.encode) | damaged(st.just(b"export A='x y'\r\nB=\"c\\n\" # d\nC=1\n"))
)
def test_any_dotenv_is_read(folder: Path, data: bytes) -> None:
    (folder / ".env").write_bytes(data)
    assert all(isinstance(value, str) for value in read_dotenv(folder).values())


@fuzz(variables=st.dictionaries(NAME, VALUE, max_size=4), crlf=st.booleans())
def test_dotenv_gives_back_what_is_quoted(folder: Path, variables: dict[str, str], crlf: bool) -> None:
    lines = [f"{name}='{value}'" for name, value in variables.items()]
    (folder / ".env").write_bytes(("\r\n" if crlf else "\n").join(lines).encode())
    found = read_dotenv(folder)
    assert {name: found.get(name) for name in variables} == variables


@fuzz(data=changed(PROMPTS, ["messages", "template", "system", "role", "content", "output_parser", "model", "type"]))
def test_prompts_are_built_or_refused(folder: Path, data: bytes) -> None:
    (folder / "prompt.yaml").write_bytes(data)
    try:
        target = build({"prompt": "prompt.yaml"}, folder, TargetOptions())
    except EvalloomError as error:
        assert is_own(error)
    else:
        assert target.digest


@fuzz(data=changed(SCRIPTS, ["rules", "match", "answer", "answers", "default", "status", "usage", "role", "regex"]))
def test_scripts_are_read_or_refused(folder: Path, data: bytes) -> None:
    (folder / "script.yaml").write_bytes(data)
    try:
        scripted.read(folder / "script.yaml")
    except EvalloomError as error:
        assert error.code == "bad_script"


METAINFO = (Path(__file__).parents[2] / "examples/hop/Hoplet/metainfo.md").read_bytes()


@fuzz(
    data=damaged(st.just(METAINFO), 5),
    name=st.sampled_from(["metainfo.md", "contract.yaml", "contract.json", "Hop.py"]),
)
def test_contracts_are_read_or_refused(folder: Path, data: bytes, name: str) -> None:
    (folder / name).write_bytes(data)
    try:
        read_contract(str(folder / name))
    except EvalloomError as error:
        assert is_own(error)


@fuzz(data=damaged(st.sampled_from([seed.data for seed in TABLES])), name=st.sampled_from(["a.csv", "a.xlsx"]))
def test_tables_of_scores_are_read(folder: Path, data: bytes, name: str) -> None:
    (folder / name).write_bytes(data)
    try:
        table = read_table(folder / name)
    except EvalloomError as error:
        assert is_own(error)
        return
    check_findings(table.findings, data)


def workbook(rows: list[list[Any]]) -> dict[str, bytes]:
    """The parts of a workbook, by name."""
    book = openpyxl.Workbook()
    sheet = book.create_sheet(index=0)
    for row in rows:
        sheet.append(row)
    stream = io.BytesIO()
    book.save(stream)
    with zipfile.ZipFile(stream) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


PARTS = workbook([["test_id", "TP1_score", "human_TP1_score"], ["a", 1, 3], ["b", 2.5, None], ["=c", "x", True]])


@fuzz(name=st.sampled_from(sorted(PARTS)), drops=st.booleans(), data=st.data())
def test_workbooks_are_read_or_refused(folder: Path, name: str, drops: bool, data: Any) -> None:
    parts = {**PARTS, name: data.draw(damaged(st.just(PARTS[name])))}
    if drops:
        del parts[name]
    with zipfile.ZipFile(folder / "book.xlsx", "w") as archive:
        for part, content in parts.items():
            archive.writestr(part, content)
    try:
        table = read_table(folder / "book.xlsx")
    except EvalloomError as error:
        assert is_own(error)
    else:
        assert table.rows or table.findings


URLS = st.tuples(st.sampled_from(["file", "chat", "env", "sqlite", "sql", "FILE", "ftp", "", "x"]), TEXTS).map(
    "://".join
)


@fuzz(
    resolver=URLS | TEXTS, value=TEXTS, chat=st.binary(max_size=40) | JSON.map(lambda value: json.dumps(value).encode())
)
def test_resolvers_resolve_or_say_why_not(folder: Path, resolver: str, value: str, chat: bytes) -> None:
    assume("http" not in resolver.lower())
    (folder / "chats").mkdir(exist_ok=True)
    (folder / "chats" / "a.jsonl").write_bytes(chat)
    found = resolve(resolver, value, reach_of(Settings(folder=folder), folder))
    assert bool(found.error_code) == bool(found.message) and found.message.isprintable()
