"""The door for people who test RAG systems."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_what_the_page_shows_from_python_is_what_happens(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "rag.md").read_text("utf-8")
    found = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    assert found is not None
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    done = subprocess.run([sys.executable, "-c", found[1]], cwd=tmp_path, capture_output=True, encoding="utf-8")
    assert (done.stdout, done.stderr) == (found[2], "")
