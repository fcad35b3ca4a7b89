"""The starter suite for pipelines: a testset and the pipeline it tests."""

from __future__ import annotations

from evalloom.engine.init import Starter, jsonl

STARTER = Starter(
    "testsets/greeting_basic_v1.jsonl",
    "pipeline:pipelines/greeting.yaml",
    {
        "testsets/greeting_basic_v1.jsonl": "// Lines that begin with // are comments. 以 // 开头的行是注释。\n"
        + jsonl(
            [
                {"id": "zh_simple", "tags": ["zh"], "name": "小雨", "expected_output": "contains:小雨"},
                {
                    "id": "en_formal",
                    "tags": ["en"],
                    "inputs": {"name": "Alice", "tone": "formal"},
                    "expected_outputs": {"output": "contains:Alice"},
                },
                {
                    "id": "en_with_step",
                    "tags": ["en", "multi-step"],
                    "inputs": {"name": "  bea "},
                    "intermediate_expectations": {"clean_name": "Bea"},
                    "expected_outputs": {"output": "contains:Bea"},
                    "evaluation_config": {"evaluate_intermediate": True},
                },
                {
                    "id": "zh_batch",
                    "tags": ["zh", "batch"],
                    "batch_items": [{"name": "阿强"}, {"name": "老陈"}],
                    "expected_aggregation": {"total_items": 2},
                },
            ]
        ),
        "pipelines/greeting.yaml": """\
# The pipeline under test: cleans and greets a name, or greets and counts a batch of names. Replace it with your own.
id: greeting
inputs:
  - {name: name, required: false}
  - {name: tone, default: friendly}

# A case has one name or a batch of names. A step with required: false is skipped if the case has no input for it.
steps:
  - id: clean_name
    code_ref: "greeting:clean_name"
    input_mapping: {name: name}
    required: false

  - id: greet
    prompt: "Write a {tone} greeting for {name}."
    input_mapping: {name: clean_name, tone: tone}
    output_key: output
    required: false

  - id: greet_all
    prompt: "Write a {tone} greeting for {name}."
    input_mapping: {items: batch_items, tone: tone}
    batch_mode: true
    output_key: greetings
    required: false

  - id: count
    type: batch_aggregator
    aggregation_strategy: stats
    input_mapping: {items: greetings}
    required: false

outputs: [output, greetings]
""",
        "pipelines/greeting.py": '''\
"""The code steps of greeting.yaml."""


def clean_name(name: str) -> str:
    """Strip blanks around a name, and convert it to title case."""
    return name.strip().title()
''',
        "answers.yaml": """\
# The first rule that matches the prompt answers; the groups of its pattern fill the template.
rules:
  - match: {regex: 'formal greeting for (?P<name>.+)[.]'}
    template: Good day, {{name}}.
  - match: {regex: 'greeting for (?P<name>.+)[.]'}
    template: Hello 你好 {{name}}!
""",
    },
)
