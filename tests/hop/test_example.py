"""The bundled HOP example: its contract, its result files, and two profiles that can be told apart."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalloom import catalog, read
from evalloom.engine.lint import lint
from evalloom.files.rows import Row
from evalloom.hop.contract import read_contract
from evalloom.hop.dialect import normalize_audit

HOP = Path(__file__).resolve().parents[2] / "examples/hop"


@pytest.mark.req("HOP-2")
def test_contract_is_found_beside_the_cases(tmp_path: Path) -> None:
    contract = read_contract(str(HOP / "Hoplet/metainfo.md"))
    assert list(contract.inputs) == ["context_window", "model_output", "focus"]
    assert contract.outputs["hallucination_detected"].type == "bool"
    (tmp_path / "Hoplet").mkdir()
    (tmp_path / "Hoplet/metainfo.md").write_bytes((HOP / "Hoplet/metainfo.md").read_bytes())
    bad = tmp_path / "TestCases/bad.jsonl"
    bad.parent.mkdir()
    bad.write_text(
        '{"id": 1, "tag": "x", "context_window": 5, "expected_halucination_detected": true}\n', encoding="utf-8"
    )
    codes = [finding.code for finding in lint([str(bad)], catalog.load()).findings()]
    assert sorted(codes) == ["contract_type_mismatch", "missing_field", "unknown_expected_field"]


@pytest.mark.req("HOP-14")
def test_result_files_are_read_in_both_wrappers() -> None:
    for name, failed in (("flat", "verification failed"), ("view", "timeout")):
        dataset = read(HOP / f"wrappers/{name}_result.jsonl")
        audits = [normalize_audit(row.value) for row in dataset if isinstance(row, Row)]
        assert audits[0] is None and audits[1] is not None and audits[-1] is not None
        assert isinstance(audits[1]["result"]["hallucination_detected"], bool)
        assert audits[-1]["result"] is None and failed in audits[-1]["error"]


def test_profiles_can_be_told_apart(in_process: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    profiles = in_process("run", "--json", "--config", str(HOP / "evalloom.yaml")).summary["profiles"]
    careful, hasty = profiles["careful"], profiles["hasty"]
    assert careful["pass_rate_low"] > hasty["pass_rate"] and (hasty["error"], careful["error"]) == (2, 0)
