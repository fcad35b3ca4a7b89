"""The HOP part of the demo."""

from __future__ import annotations

from evalloom.engine.example import Example, ExampleFile, Suite

EXAMPLE = Example(
    suites=(Suite("hop", passed=39, failed=7, error=2),),
    files=(
        ExampleFile("hop/TestCases/hallucination_cases.jsonl", "hop"),
        ExampleFile("hop/wrappers/flat_result.jsonl", "hop"),
        ExampleFile("hop/wrappers/view_result.jsonl", "hop"),
    ),
    commands=("inspect {examples}/hop/TestCases/hallucination_cases.jsonl",),
)
