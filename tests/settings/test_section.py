"""Sections of evalloom.yaml that belong to systems: read and checked with the file, or when a system asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jsonschema
import msgspec
import pytest

from evalloom import catalog, settings
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Path as Steps
from evalloom.core.model import Record
from evalloom.settings import Settings
from evalloom.settings.section import PositiveInt, Section


class Garden(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    beds: PositiveInt = 3
    gardener: str = ""
    folder: str = ""
    owner: str = ""


def resolve_folder(garden: Garden, folder: Path) -> Garden:
    return msgspec.structs.replace(garden, folder=(folder / garden.folder).as_posix())


def check_garden(written: Record, folder: Path) -> Iterator[tuple[Steps, str]]:
    if written.get("beds") == 13:
        yield ("beds",), "expected another number, got 13"


GARDEN = Section(
    name="garden",
    description="What grows.",
    struct=Garden,
    llms=("gardener",),
    profiles=("owner",),
    local=("me",),
    resolve=resolve_folder,
    check=check_garden,
)


def write(folder: Path, text: str) -> Path:
    path = folder / "evalloom.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def error_of(path: Path, sections: tuple[Section[Garden], ...] | None) -> str:
    with pytest.raises(EvalloomError) as error:
        settings.load(path, sections)
    assert error.value.code == "bad_settings"
    return str(error.value).removeprefix(f"{path.as_posix()}:").removesuffix(" [bad_settings]")


@pytest.mark.parametrize("sections", [(GARDEN,), None], ids=["with the section", "without"])
def test_a_section_is_what_is_written(tmp_path: Path, sections: tuple[Section[Garden]] | None) -> None:
    loaded = settings.load(write(tmp_path, "garden: {beds: 5, gardener: echo}\n"), sections)
    assert loaded.section(GARDEN) == Garden(5, "echo", tmp_path.as_posix())


@pytest.mark.parametrize("text", ["judge:\n", "garden:\n", "garden: {beds: null}\n"])
@pytest.mark.parametrize("sections", [(GARDEN,), None], ids=["with the section", "without"])
def test_defaults_where_nothing_is_written(tmp_path: Path, text: str, sections: tuple[Section[Garden]] | None) -> None:
    assert settings.load(write(tmp_path, text), sections).section(GARDEN) == Garden(folder=tmp_path.as_posix())


def test_defaults_without_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings.load(None, (GARDEN,)).section(GARDEN) == Garden(folder=".")
    assert Settings(sections={"garden": Garden(9)}).section(GARDEN) == Garden(9)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("{beds: 0}", "1:16: garden.beds: expected 1 or more, got 0"),
        ("{beds: 13}", "1:16: garden.beds: expected another number, got 13"),
        ("{bed: 1}", "1:15: garden.bed: unknown key. Did you mean 'beds'?"),
        ("{gardener: ecko}", "1:20: garden.gardener: there is no llm 'ecko'. Did you mean 'echo'?"),
        ("{owner: ecko}", "1:17: garden.owner: there is no profile or llm 'ecko'. Did you mean 'echo'?"),
        ("5", "1:9: garden: expected an object, got 5"),
    ],
)
def test_an_error_is_reported_with_the_file_or_when_the_section_is_read(
    tmp_path: Path, written: str, told: str
) -> None:
    path = write(tmp_path, f"garden: {written}\n")
    assert error_of(path, (GARDEN,)) == told
    unchecked = settings.load(path)
    with pytest.raises(EvalloomError, match="garden") as error:
        unchecked.section(GARDEN)
    assert str(error.value) == f"{path.as_posix()}:{told} [bad_settings]"


def test_a_key_may_have_a_value_that_is_no_llm(tmp_path: Path) -> None:
    loaded = settings.load(write(tmp_path, "garden: {gardener: me, owner: me}\n"), (GARDEN,))
    assert loaded.section(GARDEN).gardener == "me"


def test_without_sections_only_keys_close_to_the_engines_are_unknown(tmp_path: Path) -> None:
    path = write(tmp_path, "house: {a: 1}\ntype: {}\nrag: {nonsense: 1}\nresolvers: 5\nprompt_eval: []\n")
    assert settings.load(path).section(GARDEN) == Garden(folder=tmp_path.as_posix())
    assert error_of(write(tmp_path, "profils: {}\n"), None) == "1:10: profils: unknown key. Did you mean 'profiles'?"


def test_a_slip_in_the_name_of_a_section_is_told(tmp_path: Path) -> None:
    path = write(tmp_path, "gardn: {}\n")
    assert error_of(path, (GARDEN,)) == "1:8: gardn: unknown key. Did you mean 'garden'?"
    with pytest.raises(EvalloomError, match="Did you mean 'garden'"):
        settings.load(path).section(GARDEN)


def test_a_key_in_a_section_that_is_not_checked_is_an_error_all_the_same(tmp_path: Path) -> None:
    assert "a key does not belong in this file" in error_of(write(tmp_path, "garden: {api_key: abcd1234}\n"), None)


def test_no_section_of_a_system_is_taken_for_a_key_of_the_engine(tmp_path: Path) -> None:
    path = write(tmp_path, "".join(f"{section.name}: {{}}\n" for section in catalog.load().sections))
    assert settings.load(path).path == path


def test_sections_stand_in_the_schema_by_name() -> None:
    sections = catalog.load().sections
    names = list(settings.schema(sections)["properties"])
    assert names[-len(sections) - 1 :] == ["run", *sorted(section.name for section in sections)]
    assert list(settings.schema((GARDEN,))["properties"])[-2:] == ["run", "garden"]
    jsonschema.validate({"garden": {"beds": 1}}, settings.schema((GARDEN,)))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"garden": {}}, settings.schema())


def test_unknown_keys_list_the_sections_in_the_same_order(tmp_path: Path) -> None:
    path = write(tmp_path, "zzz: 1\n")
    sections = catalog.load().sections
    listed = ", ".join(sorted(section.name for section in sections))
    with pytest.raises(EvalloomError, match=f"prices, run, {listed}"):
        settings.load(path, sections)


def test_datasets_are_found_with_sections_or_without(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    write(tmp_path, "datasets: [a.jsonl]\ngarden: {bed: 1}\n")
    assert settings.find_datasets(tmp_path) == [(tmp_path / "a.jsonl").as_posix()]
    with pytest.raises(EvalloomError, match="Did you mean 'beds'"):
        settings.find_datasets(tmp_path, (GARDEN,))
