"""The bundled pipeline example: its testset fits its pipeline."""

from pathlib import Path

from evalloom import Rules, catalog, check
from evalloom.engine.lint import LintOptions, lint
from evalloom.pipeline.example import EXAMPLE

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_steps_are_those_of_the_testset() -> None:
    example = EXAMPLE.files[0]
    testset, rules = EXAMPLES / example.file, example.rules(EXAMPLES)
    codes = {finding.code for finding in lint([str(testset)], catalog.load(), LintOptions(rules=rules)).findings()}
    assert rules.shape and "analyze_batch" in rules.shape.steps
    assert codes == {"batch_without_aggregation", "intermediate_not_evaluated"}
    assert "unknown_step" in {finding.code for finding in check(testset, rules=Rules(steps=frozenset("x"))).findings}
