"""The HOP part of the demo."""

from __future__ import annotations

from evalloom.engine.example import Example, ExampleFile

EXAMPLE = Example(
    suites=("hop",),
    files=(
        ExampleFile("hop/TestCases/hallucination_cases.jsonl", "hop"),
        ExampleFile("hop/wrappers/flat_result.jsonl", "hop"),
        ExampleFile("hop/wrappers/view_result.jsonl", "hop"),
    ),
    commands=("inspect {examples}/hop/TestCases/hallucination_cases.jsonl",),
)
