"""Example files of other tools for the demo."""

from __future__ import annotations

from evalloom.engine.example import Example, ExampleFile

EXAMPLE = Example(
    suites=("elsewhere",),
    files=(
        ExampleFile("elsewhere/promptfooconfig.yaml", "promptfoo"),
        ExampleFile("elsewhere/tests.csv", "promptfoo"),
        ExampleFile("elsewhere/samples.jsonl", "openai-evals"),
        ExampleFile("elsewhere/inspect_samples.csv", "inspect"),
        ExampleFile("elsewhere/goldens.json", "deepeval"),
        ExampleFile("elsewhere/ragas_testset.csv", "ragas"),
    ),
    commands=("convert {examples}/elsewhere/samples.jsonl --to pipeline",),
)
