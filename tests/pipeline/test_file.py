"""Reading pipelines: what is wrong with one is told at once, each fault with its step and its line (PIPE-6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalloom.core.errors import EvalloomError
from evalloom.pipeline.system import SYSTEM
from evalloom.pipeline.target import PipelineCheck, check_pipeline
from evalloom.targets import TargetOptions, build

OPTIONS = TargetOptions(kinds=SYSTEM.parts().targets)

GOOD = """\
id: p
inputs: [{name: text}, {name: language, required: false}]
steps:
  - id: clean
    type: code_node
    code_ref: "code:clean"
    input_mapping: {text: text}
    output_key: cleaned
  - id: judge
    prompt: "Judge {cleaned}"
    input_mapping: {cleaned: cleaned}
    output_key: verdict
  - id: total
    type: batch_aggregator
    aggregation_strategy: stats
    input_mapping: {items: batch_items}
    output_key: figures
outputs: [{key: verdict, label: Verdict}, figures]
"""
CODE = "def clean(text, lower=False):\n    return text.strip()\n"


def written(folder: Path, text: str) -> Path:
    (folder / "code.py").write_text(CODE)
    path = folder / "p.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def examined(folder: Path, text: str) -> PipelineCheck:
    return check_pipeline(written(folder, text), with_functions=True)


@pytest.mark.req("PIPE-6")
def test_a_pipeline_is_read_with_the_defaults_of_the_format(tmp_path: Path) -> None:
    found = examined(tmp_path, GOOD)
    assert found.findings == () and found.pipeline is not None
    clean, judge, total = found.pipeline.steps
    assert (clean.kind, judge.kind, total.kind) == ("code_node", "prompt", "batch_aggregator")
    assert (clean.required, clean.timeout, clean.depends_on) == (True, None, ())
    assert (clean.batch_mode, clean.batch_size, clean.concurrent, clean.max_workers) == (False, 10, True, 4)
    assert [wired.needs for wired in found.flows[""].steps] == [(), ("clean",), ()]
    assert list(found.flows[""].outputs) == ["verdict", "figures"]


@pytest.mark.req("PIPE-6")
def test_a_pipeline_without_steps_is_refused_at_its_line(tmp_path: Path) -> None:
    (finding,) = examined(tmp_path, "id: p\nsteps: []\n").findings
    assert (finding.code, finding.severity, finding.origin.line) == ("bad_pipeline", "error", 2)
    assert finding.message == "steps: is empty; a pipeline needs at least one step"


@pytest.mark.req("PIPE-3", "PIPE-6")
def test_an_input_is_no_evaluation_target(tmp_path: Path) -> None:
    (finding,) = examined(tmp_path, f"{GOOD}evaluation_target: text\n").findings
    assert (finding.code, finding.origin.line) == ("unknown_output", 19)


FAULTS = [
    # what is changed, into what, the code, where, and what the message says
    ("{cleaned: cleaned}", "{cleaned: cleand}", "unknown_source", 11, "step 'judge'", "Did you mean 'cleaned'?"),
    ("- id: judge", "- id: clean", "duplicate_step", 9, "step 'clean'", "ids must be unique"),
    ("output_key: verdict", "output_key: cleaned", "duplicate_output_key", 12, "step 'judge'", "of step 'clean'"),
    ("{text: text}", "{text: verdict}", "pipeline_cycle", 7, "clean → judge → clean", "each needs the output"),
    ("label: Verdict", "source: verdit", "unknown_output", 18, "no step outputs 'verdit'", "Did you mean 'verdict'?"),
    ("strategy: stats", "strategy: filter", "bad_aggregator", 15, "step 'total'", "condition"),
    ("strategy: stats", "strategy: averages", "bad_aggregator", 15, "step 'total'", "averages"),
    ("strategy: stats", "strategy: group", "bad_aggregator", 15, "step 'total'", "group_by"),
    ("strategy: stats", "strategy: custom", "bad_aggregator", 15, "step 'total'", "code"),
    (
        "strategy: stats",
        "strategy: filter\n    condition: __import__('os').system('ls')",
        "bad_aggregator",
        16,
        "step 'total'",
        "no function '__import__'",
    ),
    ("type: code_node", "type: coding", "bad_pipeline", 5, "step 'clean'", "expected prompt, code_node or"),
    ("code_ref:", "code_reff:", "unknown_pipeline_key", 6, "step 'clean'", "Did you mean 'code_ref'?"),
    ("code:clean", "code:cleam", "target_missing", 6, "step 'clean'", "Did you mean 'clean'?"),
    ("{text: text}", "{txt: text, lower: text}", "unknown_parameter", 7, "step 'clean'", "takes no 'txt'"),
    (
        "output_key: verdict",
        "output_key: verdict\n    depends_on: [cleam]",
        "unknown_step",
        13,
        "step 'judge'",
        "'clean'?",
    ),
    ("output_key: verdict", "output_key: verdict\n    timeout: 0", "bad_pipeline", 13, "timeout", "above 0"),
    ("output_key: verdict", "output_key: verdict\n    batch_size: 0", "bad_pipeline", 13, "batch_size", "1 or more"),
    (
        "output_key: verdict",
        "output_key: verdict\n    required: maybe",
        "bad_pipeline",
        13,
        "required",
        "true or false",
    ),
    ('prompt: "Judge {cleaned}"', "agent: nobody", "agent_missing", 10, "step 'judge'", "no agent 'nobody'"),
    ('prompt: "Judge {cleaned}"', "prompt_file: gone.md", "prompt_missing", 10, "step 'judge'", "gone.md"),
    ('"Judge {cleaned}"', '"Judge {cleaned} {tone}"', "unfilled_name", 10, "step 'judge'", "'tone'"),
    ('    prompt: "Judge {cleaned}"\n', "", "bad_step", 9, "step 'judge'", "does nothing"),
    ("outputs:", "variants: {v: {overrides: {juge: {model: x}}}}\noutputs:", "bad_variant", 18, "'v'", "Did you mean"),
    ("inputs: [{name: text}", "inputs: [{nme: text}", "bad_pipeline", 2, "inputs[0]", "a name"),
    (
        "{cleaned: cleaned}",
        "{cleaned: cleaned, clened: text}",
        "unknown_parameter",
        11,
        "no placeholder {clened}",
        "'cleaned'?",
    ),
    ("{name: text}", "{name: text, requierd: no}", "unknown_pipeline_key", 2, "inputs[0].requierd", "'required'?"),
    ("label: Verdict", "sorce: verdict", "unknown_pipeline_key", 18, "outputs[0].sorce", "'source'?"),
    ("outputs:", "variants: {v: {override: {}}}\noutputs:", "unknown_pipeline_key", 18, "variants.v", "'overrides'?"),
    (
        "outputs:",
        "variants: {v: {overrides: {judge: {output_parser: null}}}}\noutputs:",
        "bad_variant",
        18,
        "'v'",
        "nothing",
    ),
    ("outputs:", "variants: {v: {overrides: {judge: v2}}}\noutputs:", "bad_pipeline", 18, "overrides.judge", "'v2'"),
    (
        "outputs:",
        "baseline: {step: {}}\noutputs:",
        "unknown_pipeline_key",
        18,
        "baseline.step",
        "Did you mean 'steps'?",
    ),
    ("output_key: verdict", "output_key: verdict\n    temperature: hot", "bad_pipeline", 13, "temperature", "a number"),
    ("output_key: verdict", "output_key: verdict\n    agent: x", "bad_step", 10, "step 'judge'", "Keep one of them"),
    (
        "id: p\n",
        "id: p\ndefault_testset: gone.jsonl\n",
        "testset_missing",
        2,
        "'gone.jsonl' does not exist",
        "testsets",
    ),
    ("{text: text}", "{texts: text}", "unknown_parameter", 7, "step 'clean'", "Did you mean 'text'?"),
]


@pytest.mark.req("PIPE-6")
@pytest.mark.parametrize(
    ("old", "new", "code", "line", "names", "says"), FAULTS, ids=[f"{f[2]}-{f[3]}" for f in FAULTS]
)
def test_a_fault_names_the_step_and_the_line(
    old: str, new: str, code: str, line: int, names: str, says: str, tmp_path: Path
) -> None:
    assert old in GOOD
    found = [one for one in examined(tmp_path, GOOD.replace(old, new, 1)).findings if one.code == code]
    assert found, [str(one) for one in examined(tmp_path, GOOD.replace(old, new, 1)).findings]
    assert found[0].origin.line == line and found[0].origin.file.endswith("p.yaml")
    assert names in found[0].message and says in found[0].message


@pytest.mark.req("PIPE-6")
def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("{cleaned: cleaned}", "{cleaned: nowhere}").replace("strategy: stats", "strategy: filter")
    with pytest.raises(EvalloomError) as caught:
        build({"pipeline": written(tmp_path, text).name}, tmp_path, OPTIONS)
    assert caught.value.exit_code == 2
    assert all(word in str(caught.value) for word in ("[unknown_source]", "[bad_aggregator]", "[invalid_pipeline]"))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "pipeline_unreadable"),
        ("- a list", "pipeline_unreadable"),
        ("id: p\nsteps: none", "pipeline_unreadable"),
        ("id: p\nsteps: [1, {no: id}, {id: ''}]", "bad_pipeline"),
        ("id: [\n", "yaml_parse_error"),
        ("steps: []\ninputs: 3\noutputs: {a: b}\nvariants: [x]\nbaseline: no", "bad_pipeline"),
    ],
)
def test_what_is_no_pipeline_is_told(text: str, code: str, tmp_path: Path) -> None:
    assert code in {one.code for one in examined(tmp_path, text).findings if one.severity == "error"}


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    with pytest.raises(EvalloomError, match=r"Did you mean 'p\.yaml'\?") as caught:
        build("pipeline:pp.yaml", tmp_path, OPTIONS)
    assert (caught.value.code, caught.value.exit_code) == ("pipeline_missing", 2)


def promptlab(folder: Path) -> Path:
    """A project as Prompt Lab lays it out."""
    agent = folder / "agents/summarizer"
    (agent / "prompts").mkdir(parents=True)
    (agent / "agent.yaml").write_text(
        "id: summarizer\nname: 摘要\nbusiness_goal: x\nevaluation: {judge_flow: judge_v2}\n"
        "flows:\n  - {name: v1, file: v1.yaml, notes: first}\n  - {name: v2, file: v2.yaml}\n",
        encoding="utf-8",
    )
    for name in ("v1", "v2"):
        (agent / f"prompts/{name}.yaml").write_text(
            f"name: {name}\nsystem_prompt: |\n  {name} sums up.\nuser_template: |\n"
            "  Text: {text}\n  {% if tone %}Tone: {{ tone }}{% endif %}\n"
            'defaults: {tone: ""}\nmodel: large\ntemperature: 0.2\noutput_parser: {type: json}\nodd_key: 1\n'
        )
    (folder / "pipelines").mkdir()
    path = folder / "pipelines/p.yaml"
    path.write_text(
        "id: p\ninputs: [{name: raw}]\nsteps:\n"
        "  - {id: sum, agent: summarizer, flow: v1, input_mapping: {text: raw}, output_key: summary}\n"
        "outputs: [{key: summary}]\n"
        "baseline: {name: stable, steps: {sum: {flow: v1}}}\n"
        "variants: {better: {overrides: {sum: {flow: v2}}}}\n"
    )
    return path


@pytest.mark.req("PIPE-6")
def test_a_prompt_lab_project_loads_as_it_is(tmp_path: Path) -> None:
    found = check_pipeline(promptlab(tmp_path))
    assert not found.has_errors and list(found.flows) == ["", "baseline", "stable", "better"]
    assert [one.message.split(":")[1].strip() for one in found.findings] == ["summarizer/v1.yaml", "summarizer/v2.yaml"]
    prompt = found.flows["better"].steps[0].prompt
    assert prompt is not None and prompt.prompt.names == {"text", "tone"}
    assert [file.name for file in prompt.files] == ["agent.yaml", "v2.yaml"]


@pytest.mark.parametrize(
    ("flow", "code", "says"),
    [
        ("flow: v3", "flow_missing", "it has v1, v2"),
        ("agent: summariser", "agent_missing", "Did you mean 'summarizer'?"),
    ],
)
def test_agents_and_flows_are_looked_up(flow: str, code: str, says: str, tmp_path: Path) -> None:
    path = promptlab(tmp_path)
    key = flow.partition(":")[0]
    old = {"flow": "flow: v1,", "agent": "agent: summarizer,"}[key]
    path.write_text(path.read_text().replace(old, f"{flow},", 1))
    [found] = [one for one in check_pipeline(path).findings if one.code == code]
    assert says in found.message and found.origin.line == 4


@pytest.mark.parametrize("agent", ["../agents/summarizer", "..", "/etc", "."])
def test_an_agent_is_no_path(agent: str, tmp_path: Path) -> None:
    path = promptlab(tmp_path)
    path.write_text(path.read_text().replace("agent: summarizer", f"agent: '{agent}'"))
    assert "agent_missing" in {one.code for one in check_pipeline(path).findings}


@pytest.mark.parametrize("id", ["{a: b}", "[x]", "null", "3"])
def test_a_step_whose_id_is_not_a_text_is_told_beside_variants(tmp_path: Path, id: str) -> None:
    text = GOOD.replace("id: judge", f"id: {id}") + "variants: {v: {overrides: {clean: {timeout: 5}}}}\n"
    assert "bad_pipeline" in {finding.code for finding in examined(tmp_path, text).findings}


@pytest.mark.parametrize("name", ["a\\0b.md", "x" * 300 + ".md"], ids=["nul", "long"])
@pytest.mark.parametrize("key", ["prompt_file", "code_file", "code_ref", "default_testset"])
def test_a_file_whose_name_no_file_can_have_is_missing(tmp_path: Path, key: str, name: str) -> None:
    text = {
        "prompt_file": GOOD.replace('prompt: "Judge {cleaned}"', f'prompt_file: "{name}"'),
        "code_file": GOOD.replace('code_ref: "code:clean"', f'code_file: "{name}"'),
        "code_ref": GOOD.replace("code:clean", f"{name}:clean"),
        "default_testset": GOOD + f'default_testset: "{name}"\n',
    }[key]
    findings = examined(tmp_path, text).findings
    assert any(key in finding.message for finding in findings), findings
