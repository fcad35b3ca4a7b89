"""The notebook and the page of the Python API are run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

pytestmark = [pytest.mark.req("WORK-15"), pytest.mark.slow]

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_notebook_goes_from_nothing_to_a_chart_in_five_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    notebook = nbformat.read(DOCS / "notebooks/first.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(cells) == 5 and not any(cell.outputs for cell in cells)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs: list[list[Any]] = [cell.outputs for cell in cells]
    assert [len(shown) for shown in outputs] == [0, 0, 1, 1, 1]
    results, runs, chart = (shown[0].data["text/html"] for shown in outputs[2:])
    assert "pass rate 66.7%" in results and "<svg" in results and runs.count("passed") == 4
    assert chart.count('class="rate"') == 2 and "delivery" in chart


@pytest.mark.filterwarnings("error::evalloom.EvalloomWarning")
def test_the_samples_of_the_page_run_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    samples = re.findall(r"^```python\n(.*?)^```$", (DOCS / "python.md").read_text("utf-8"), re.M | re.S)
    names: dict[str, Any] = {"__name__": "page"}
    for sample in samples:
        exec(compile(sample, "docs/python.md", "exec"), names)
    assert len(samples) >= 5 and Path("report.html").exists() and names["results"].pass_rate
