"""The catalog of the running command: the app hands it over, and a command without one says so."""

import click
import pytest

from evalloom import catalog
from evalloom.cli import app
from evalloom.console.catalog import current_catalog
from evalloom.engine.system import Catalog


def test_a_command_finds_the_catalog_of_the_app() -> None:
    seen: list[Catalog] = []
    command = click.Command("look", callback=lambda: seen.append(current_catalog()))
    assert app.run([], click.Group("group", {"look": command}), "group") == 2
    assert app.run(["look"], click.Group("group", {"look": command}), "group") == 0
    assert seen == [catalog.load()]


def test_a_command_without_a_catalog_says_how_to_call_it() -> None:
    command = click.Command("look", callback=current_catalog)
    with pytest.raises(RuntimeError, match="has no catalog"):
        command.main([], standalone_mode=False)
