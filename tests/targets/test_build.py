"""The shelf: which target a spec names, and what is said when it names none."""

from pathlib import Path
from typing import Any

import pytest

from evalloom import catalog
from evalloom.core.errors import EvalloomError
from evalloom.targets import TargetOptions, build


@pytest.mark.parametrize(
    ("spec", "kind", "name"),
    [
        ("prompt:Say {{x}}", "prompt", "prompt"),
        ({"template": "x", "name": "mine"}, "prompt", "mine"),
        ("python:json:dumps", "python", "python:json:dumps"),
        ("https://example.invalid/a:b", "http", "http:https://example.invalid/a:b"),
        ("http:http://example.invalid", "http", "http:http://example.invalid"),
        (" Command :cat -n", "command", "command:cat -n"),
        ({"command": ["cat", "a b"]}, "command", "command:cat 'a b'"),
    ],
)
def test_a_spec_names_its_kind(spec: Any, kind: str, name: str, tmp_path: Path) -> None:
    target = build(spec, tmp_path)
    assert (target.kind, target.name) == (kind, name)


@pytest.mark.parametrize(
    ("spec", "code", "said"),
    [
        ("promt:p.md", "unknown_target", "Did you mean 'prompt'?"),
        ("p.md", "unknown_target", "Did you mean 'prompt:p.md'?"),
        ("app.py", "unknown_target", "python:MODULE:FUNCTION"),
        ("python:", "unknown_target", "after the colon"),
        ("", "unknown_target", "got ''"),
        ({}, "unknown_target", "got none"),
        ({"prmpt": "x"}, "unknown_target", "got 'prmpt'"),
        ({"prompt": "x {{y}}", "command": "cat"}, "unknown_target", "got prompt and command"),
        ({"prompt": "x {{y}}", "template": "z"}, "bad_target_settings", "either prompt or template"),
        ({"prompt": 3}, "bad_target_settings", "prompt: expected a file"),
        ({"python": ["x"]}, "bad_target_settings", "python: expected a string, got a list"),
        ({"command": "cat", "name": 3}, "bad_target_settings", "name: expected a string, got 3"),
        ({"command": "cat", "timeout_s": "soon"}, "bad_target_settings", "timeout_s: expected a number"),
        (["prompt"], "bad_target_settings", "expected a string or an object, got a list"),
    ],
)
def test_a_spec_that_names_none_is_refused(spec: Any, code: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(EvalloomError) as caught:
        build(spec, tmp_path)
    assert (caught.value.code, caught.value.exit_code) == (code, 2)
    assert said in str(caught.value)


def test_every_kind_says_what_it_is() -> None:
    kinds = catalog.load().all_targets
    assert [kind.name for kind in kinds] == ["prompt", "python", "http", "command", "hoplet", "pipeline", "recipe"]
    assert all(kind.summary for kind in kinds)


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000 + "y"], ids=["long", "deep"])
@pytest.mark.parametrize("kind", [kind.name for kind in catalog.load().all_targets if kind.name != "http"])
def test_a_file_name_that_is_too_long_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    with pytest.raises(EvalloomError) as refusal:
        build(f"{kind}:{name}", tmp_path, TargetOptions(kinds=catalog.load().targets))
    assert refusal.value.exit_code == 2
