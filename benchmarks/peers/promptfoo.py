"""promptfoo, from its command line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import environments
from contest import Task, cases

# It requires a newer Node than many machines have, so one is installed with it.
_NODE = "22"


class Promptfoo:
    """A peer in Node: one prompt, one provider, one `contains` per test."""

    name = "promptfoo"

    def install(self) -> str:
        return str(json.loads((self._package() / "package.json").read_text())["version"])

    def prepare(self, task: Task) -> list[str]:
        tests = [
            {"vars": {"question": row["question"]}, "assert": [{"type": "contains", "value": row["expected"]}]}
            for row in cases(task.count)
        ]
        provider = {"id": "openai:chat:mock", "config": {"apiBaseUrl": task.url, "apiKey": "none"}}
        settings = {
            "prompts": ["Answer question number {{question}} with one token."],
            "providers": [provider],
            "tests": tests,
        }
        (task.folder / "promptfooconfig.json").write_text(json.dumps(settings))
        node = self._package().parent / ".bin" / "node"
        start = [str(node), str(self._package() / "dist" / "src" / "entrypoint.js")]
        flags = ["--no-cache", "--no-table", "--no-progress-bar", "--no-share", "-j", str(task.concurrency)]
        return [*start, "eval", "-c", "promptfooconfig.json", *flags]

    def variables(self, task: Task) -> Mapping[str, str]:
        off = ("TELEMETRY", "UPDATE", "SHARING", "REMOTE_GENERATION")
        return {
            **{f"PROMPTFOO_DISABLE_{name}": "1" for name in off},
            "PROMPTFOO_CONFIG_DIR": str(task.folder / "promptfoo"),
            "NO_COLOR": "1",
        }

    def passes(self, task: Task) -> int:
        output = (task.folder / "stdout").read_text(errors="replace")
        match = re.search(r"([\d,]+) passed", output)
        return int(match[1].replace(",", "")) if match else 0

    def _package(self) -> Path:
        return environments.node(self.name, _NODE, "promptfoo") / "node_modules" / "promptfoo"
