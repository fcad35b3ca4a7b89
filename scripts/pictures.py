"""Draws the picture of the README anew: what a terminal shows, as SVG.

.venv/bin/python scripts/pictures.py
"""

from __future__ import annotations

import io
import os
import tempfile
from pathlib import Path

from rich.console import Console

from evalloom.cli.terminal import print_report
from evalloom.workbench.lint import lint

PICTURE = Path(__file__).resolve().parent.parent / "docs/pictures/validate.svg"
CASES = """\
{"id": "refund-1", "query": "退款多久到账？", "expected_sources": ["docs/refund.md"], "must_include": ["工作日"], "bucket": "official", "pair_id": "refund"}
{"id": "refund-2", "query": "钱什么时候回来", "expected_sources": ["docs/refund.md"], "must_include": ["工作日"], "bucket": "orall", "pair_id": "refund"}
{"id": "reset-1", "query": "How long is a reset link valid?", "expected_sources": [], "must_include": ["30 minutes"], "bucket": "official"}
{"id": "reset-1", "query": "my link is dead", "expected_sources": ["../private/notes.md"], "must_include": ["30 minutes",], "bucket": "oral"}
{"id": "reset-1", "query": "my link is dead", "expected_sources": ["../private/notes.md"], "must_include": ["m"], "bucket": "ambiguous"}
"""


def main() -> None:
    console = Console(record=True, width=132, file=io.StringIO(), force_terminal=True, highlight=False, soft_wrap=True)
    console.print("[bold]$ evalloom validate cases.jsonl[/bold]")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("cases.jsonl").write_text(CASES, encoding="utf-8")
        print_report(lint(["cases.jsonl"]), console)
        os.chdir(PICTURE.parent)
    PICTURE.write_text(console.export_svg(title="evalloom", clear=False, unique_id="evalloom"), encoding="utf-8")


if __name__ == "__main__":
    main()
