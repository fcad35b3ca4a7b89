"""A context recipe under the engine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from evalloom.core.errors import CallError, EvalloomError
from evalloom.core.model import Case, Context, Output, Profile, Request, Response
from evalloom.replay.system import SYSTEM
from evalloom.settings import Settings
from evalloom.targets import BuiltTarget, TargetOptions, build

OPTIONS = TargetOptions(settings=Settings(), kinds=SYSTEM.parts().targets)


async def llm(request: Request) -> Response:
    return Response(" | ".join(message["content"] for message in request.messages))


def recipe_of(tmp_path: Path, content: str, *variables: Any, name: str = "r.json") -> BuiltTarget:
    nodes = [{"id": "u", "data": {"label": "User", "type": "user_input", "content": content}}]
    body = {"id": "p", "name": "p", "state": {"nodes": nodes, "variables": list(variables)}}
    (tmp_path / name).write_text(json.dumps(body), encoding="utf-8")
    return build(f"recipe:{name}", tmp_path, OPTIONS)


def answer(target: BuiltTarget, **inputs: str) -> Output:
    async def called() -> Output:
        return await target.call(inputs, Context(Case("1", inputs), Profile("p"), llm, llm, []))

    return asyncio.run(called())


@pytest.mark.req("REPLAY-17")
def test_context_goes_to_the_llm(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("noted", encoding="utf-8")
    note = {"id": "v", "name": "note", "type": "dynamic", "value": "", "resolver": "file://note.txt"}
    target = recipe_of(tmp_path, "{{note}} {{q}} {{nobody}}", note)
    output = answer(target, q="why?")
    assert output.value == "--- User ---\nnoted why? {{nobody}}"
    assert output.steps == {"context": output.value}
    assert (target.optional, target.defaulted) == (frozenset({"q", "nobody"}), frozenset({"note"}))
    assert not target.variables


def test_unresolved_variable_is_an_error_of_the_run(tmp_path: Path) -> None:
    variable = {"id": "v", "name": "note", "type": "dynamic", "resolver": "file://none.txt"}
    target = recipe_of(tmp_path, "{{note}}", variable)
    with pytest.raises(CallError, match="not_found"):
        answer(target)
    assert answer(target, note="own").value == "--- User ---\nown"


@pytest.mark.parametrize(("text", "code"), [('{"state": {"nodes": 3}}', "bad_recipe"), ("{}", "bad_recipe")])
def test_broken_recipe_is_told_before_anything_runs(tmp_path: Path, text: str, code: str) -> None:
    (tmp_path / "r.json").write_text(text, encoding="utf-8")
    with pytest.raises(EvalloomError, match=code):
        build("recipe:r.json", tmp_path, OPTIONS)
    with pytest.raises(EvalloomError, match="recipe_missing"):
        build("recipe:none.json", tmp_path, OPTIONS)
