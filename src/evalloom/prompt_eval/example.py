"""The part of the demo about prompts scored 1 to 3."""

from __future__ import annotations

from evalloom.engine.example import Example, ExampleFile

EXAMPLE = Example(
    suites=("prompt-eval",),
    files=(ExampleFile("prompt-eval/test_cases.json", "prompt-eval"),),
)
