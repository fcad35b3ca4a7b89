"""The functions under their usual names: all there, as documented, and quick to import."""

from __future__ import annotations

import re
import subprocess
import sys
from inspect import Parameter, signature
from pathlib import Path

import pytest

from evalloom.analysis import statistics

pytestmark = pytest.mark.req("WORK-10")
PAGE = Path(__file__).resolve().parents[3] / "docs" / "statistics.md"
NAMES = [
    "wilson_interval",
    "clopper_pearson",
    "mcnemar_exact",
    "mcnemar_chi2",
    "paired_difference",
    "paired_bootstrap",
    "paired_permutation",
    "standard_error",
    "clustered_standard_error",
    "cohen_kappa",
    "fleiss_kappa",
    "krippendorff_alpha",
    "pass_at_k",
    "holm",
    "benjamini_hochberg",
    "cochran_q",
    "required_cases",
]


def shown(parameter: Parameter) -> str:
    default = parameter.default
    if default is Parameter.empty:
        return parameter.name
    if isinstance(default, str):
        return f'{parameter.name}="{default}"'
    return f"{parameter.name}={default:_}" if type(default) is int else f"{parameter.name}={default}"


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_the_signature(name: str) -> None:
    parameters = ", ".join(map(shown, signature(getattr(statistics, name)).parameters.values()))
    documented = re.findall(rf"`{name}\((.*?)\)`", PAGE.read_text(encoding="utf-8"))
    assert documented == [parameters]


def test_every_name_of_the_door_has_a_docstring() -> None:
    assert set(NAMES) <= set(statistics.__all__)
    assert all(getattr(statistics, name).__doc__ for name in statistics.__all__)


def test_importing_the_statistics_imports_no_slow_module() -> None:
    code = "from evalloom.analysis.statistics import *; import sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "evalloom.analysis.statistics.resampling" in loaded
    assert not {"numpy", "scipy", "statsmodels", "statistics", "fractions"} & set(loaded)
