"""The bundled replay example: the recipe, its rows and its prompt belong together."""

import json
import re
from pathlib import Path

import yaml

from evalloom import read
from evalloom.core.model import Case

FOLDER = Path(__file__).resolve().parents[2] / "examples/replay"


def test_project_asks_for_what_the_rows_have() -> None:
    state = json.loads((FOLDER / "project.json").read_text(encoding="utf-8"))["state"]
    asked = {name for node in state["nodes"] for name in re.findall(r"{{(\w+)}}", node["data"]["content"])}
    declared = {name for node in state["nodes"] for name in node["data"]["variables"]}
    given = {name for case in read(FOLDER / "rows.jsonl").cases() if isinstance(case, Case) for name in case.inputs}
    assert asked == declared
    assert asked - {variable["name"] for variable in state["variables"]} <= given


def test_prompt_says_what_the_project_says() -> None:
    state = json.loads((FOLDER / "project.json").read_text(encoding="utf-8"))["state"]
    prompt = yaml.safe_load((FOLDER / "prompt.yaml").read_text(encoding="utf-8"))
    *material, question = [node["data"]["content"] for node in state["nodes"]]
    assert prompt["system"].split("\n\n") == material and prompt["user"] == question
    values = {variable["name"]: variable["value"] for variable in state["variables"]}
    assert prompt["defaults"] == {**values, "user_name": "{{user_name}}"}
