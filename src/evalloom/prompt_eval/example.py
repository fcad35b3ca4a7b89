"""The part of the demo about prompts scored 1 to 3."""

from __future__ import annotations

from evalloom.engine.example import Example, ExampleFile, Suite

EXAMPLE = Example(
    suites=(Suite("prompt-eval", passed=27, failed=7, error=1, unscored=1),),
    files=(ExampleFile("prompt-eval/test_cases.json", "prompt-eval"),),
)
