"""Draw the README's pictures of the terminal again, as SVG.

.venv/bin/python scripts/pictures.py
"""

from __future__ import annotations

import io
import os
import pty
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 132
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
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cases.jsonl").write_text(CASES, encoding="utf-8")
        draw("validate", ["validate", "cases.jsonl"], folder)
        shutil.copytree(EXAMPLES / "hop", folder / "hop")
        draw("run", ["run", "--profile", "careful", "--profile", "hasty"], folder / "hop", last=22)


def draw(name: str, arguments: list[str], folder: Path, last: int | None = None) -> None:
    """Draw what a command prints on a terminal; `last` limits it to its last lines."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(Text(f"$ evalloom {' '.join(arguments)}", style="bold"))
    for line in output_on_terminal(arguments, folder).splitlines()[-last if last else None :]:
        console.print(Text.from_ansi(line), soft_wrap=True)
    picture = console.export_svg(title="evalloom", clear=False, unique_id=f"evalloom-{name}")
    (PICTURES / f"{name}.svg").write_text(picture, encoding="utf-8")


def output_on_terminal(arguments: list[str], folder: Path) -> str:
    """Run a command whose stdout is a terminal, and return what it prints there."""
    reader, writer = pty.openpty()
    command = [sys.executable, "-m", "evalloom", *arguments]
    env = {**os.environ, "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
    env.pop("NO_COLOR", None)
    process = subprocess.Popen(command, cwd=folder, env=env, stdout=writer, stderr=subprocess.DEVNULL)
    os.close(writer)
    printed = b""
    # Reading fails when the command has ended and closed its side.
    while True:
        try:
            printed += os.read(reader, 65536)
        except OSError:
            break
    process.wait()
    os.close(reader)
    return printed.decode()


if __name__ == "__main__":
    main()
