"""Draw the README's pictures of the terminal again, as SVG.

.venv/bin/python scripts/pictures.py
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from evalloom import catalog
from evalloom.console.run_text import result_lines
from evalloom.console.terminal import print_report
from evalloom.engine.evaluate import evaluate
from evalloom.engine.lint import lint
from evalloom.engine.prepare import RunRequest, prepare

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs/pictures"
EXAMPLES = ROOT / "examples"
CASES = """\
{"id": "refund-1", "query": "退款多久到账？", "expected_sources": ["docs/refund.md"], "must_include": ["工作日"], "bucket": "official", "pair_id": "refund"}
{"id": "refund-2", "query": "钱什么时候回来", "expected_sources": ["docs/refund.md"], "must_include": ["工作日"], "bucket": "orall", "pair_id": "refund"}
{"id": "reset-1", "query": "How long is a reset link valid?", "expected_sources": [], "must_include": ["30 minutes"], "bucket": "official"}
{"id": "reset-1", "query": "my link is dead", "expected_sources": ["../private/notes.md"], "must_include": ["30 minutes",], "bucket": "oral"}
{"id": "reset-1", "query": "my link is dead", "expected_sources": ["../private/notes.md"], "must_include": ["m"], "bucket": "ambiguous"}
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        draw("validate", "$ evalloom validate cases.jsonl", print_validation)
        draw("run", "$ evalloom run --profile careful --profile hasty", print_run)
        os.chdir(PICTURES)


def draw(name: str, command: str, show: Callable[[Console], None]) -> None:
    console = Console(record=True, width=132, file=io.StringIO(), force_terminal=True, highlight=False, soft_wrap=True)
    console.print(Text(command, style="bold"))
    show(console)
    picture = console.export_svg(title="evalloom", clear=False, unique_id=f"evalloom-{name}")
    (PICTURES / f"{name}.svg").write_text(picture, encoding="utf-8")


def print_validation(console: Console) -> None:
    Path("cases.jsonl").write_text(CASES, encoding="utf-8")
    print_report(lint(["cases.jsonl"], catalog.load()), console)


def print_run(console: Console) -> None:
    shutil.copytree(EXAMPLES / "hop", "hop")
    os.chdir("hop")
    plan = prepare(RunRequest(options={"profiles": ["careful", "hasty"]}), catalog.load())
    for text, style in list(result_lines(evaluate(plan)))[-22:]:
        console.print(Text(text, style=style))


if __name__ == "__main__":
    main()
