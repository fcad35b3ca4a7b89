"""Configs that say what they test: a changed one is run or refused with a message, and never asks anybody."""

from __future__ import annotations

import io
import shutil
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from tests.fuzz.conftest import fuzz, mutations, written

from evalloom.cli import app

pytestmark = pytest.mark.req("WORK-30")
FILES = {
    "p.txt": "hello {{x}}\n---\nbye",
    "p.js": "module.exports = (given) => 'p ' + JSON.stringify(given)",
    "p.py": "def get_prompt(context):\n    return 'x'\n",
    "t.csv": "x,__expected\na,contains:a\n",
    "made.js": "module.exports = () => [{vars: {x: 1}}]",
}
HTTP = {
    "url": "http://127.0.0.1:9/{{prompt}}",
    "method": "POST",
    "headers": {"a": "{{x}}"},
    "body": {"p": "{{prompt}}"},
    "queryParams": {"a": "b"},
    "transformResponse": "json.x",
}
LLM = {
    "temperature": 0,
    "tools": [{"type": "function"}],
    "response_format": {"type": "json_schema", "json_schema": {"schema": {}}},
    "apiBaseUrl": "http://127.0.0.1:9",
    "apiKeyEnvar": "X",
    "headers": {"a": "b"},
    "passthrough": {"a": 1},
}
ASSERTS: list[Any] = [
    {"type": "javascript", "value": "true", "threshold": 1, "weight": 1, "metric": "m", "config": {"a": 1}},
    {"type": "assert-set", "threshold": 0.5, "assert": [{"type": "not-contains", "value": "x"}]},
    {"type": "similar", "value": ["x"], "threshold": 0.5, "provider": "openai:x"},
    {"$ref": "#/assertionTemplates/t"},
]
CONFIG = {
    "env": {"A": "b"},
    "evaluateOptions": {"repeat": 2, "delay": 5, "maxConcurrency": 2, "timeoutMs": 5000, "cache": True},
    "nunjucksFilters": {"f": "file://p.js"},
    "assertionTemplates": {"t": {"type": "contains", "value": "x"}},
    "defaultTest": {
        "vars": {"a": 1},
        "options": {"provider": {"text": "openai:gpt-4o", "embedding": "openai:embedding:x"}, "transform": "output"},
        "assert": [{"type": "llm-rubric", "value": "x"}],
        "threshold": 0.5,
    },
    "prompts": [
        {"raw": "a {{x}}", "label": "p1", "config": {"temperature": 1}},
        {"id": "file://p.txt", "label": "q"},
        '[{"role": "user", "content": "{{x}}"}]',
        "file://p.js",
    ],
    "providers": [
        "echo",
        {"id": "http", "label": "h", "config": HTTP, "delay": 100, "prompts": ["p1"], "transform": "output"},
        {"openai:gpt-4o": {"label": "x", "config": LLM}},
        "file://p.js",
    ],
    "tests": [
        {
            "vars": {"x": ["a", "b"], "y": "file://p.txt"},
            "assert": ASSERTS,
            "options": {"prefix": "p", "response_format": {"type": "json_object"}, "storeOutputAs": "x"},
            "metadata": {"a": 1},
            "prompts": ["p1"],
            "providers": ["echo"],
            "threshold": 1,
        },
        "file://t.csv",
        {"path": "file://made.js", "config": {"a": 1}},
    ],
    "scenarios": [{"config": [{"vars": {"a": "b"}}], "tests": [{"vars": {"c": "x"}}]}],
}
KEYS = [
    "id",
    "label",
    "config",
    "prompts",
    "providers",
    "tests",
    "assert",
    "vars",
    "options",
    "type",
    "value",
    "raw",
    "path",
]
COMMANDS: list[tuple[str, ...]] = [
    ("validate",),
    ("run", "--profile", "echo", "--limit", "2", "--skip-invalid", "--no-checks"),
    ("run", "--dry-run"),
]


@fuzz(
    config=mutations(st.just(CONFIG), KEYS), command=st.sampled_from(COMMANDS), suffix=st.sampled_from(["json", "yaml"])
)
def test_changed_configs(folder: Path, config: Any, command: tuple[str, ...], suffix: str) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    name = f"promptfooconfig.{suffix}"
    (folder / name).write_bytes(written([config], f".{suffix}"))
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with chdir(folder), redirect_stdout(out), redirect_stderr(err):
        code = app.run((command[0], name, *command[1:]))
    shown = "".join(stream.buffer.getvalue().decode() for stream in (out, err))
    assert code in (0, 1, 2, 3), (code, shown)
    assert "internal_error" not in shown and "Traceback" not in shown, shown
    assert code == 0 or shown.strip()
