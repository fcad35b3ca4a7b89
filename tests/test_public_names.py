"""Every name and flag that people rely on stays where it is: it may get company, and never goes.

The tables hold what version 0.1 has: whatever an `__all__` lists, whatever the documents and examples import, and every
option of every command. A name that moves stays importable from its place here.
"""

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

from evalloom import moved
from evalloom.cli.app import main

ROOT = Path(__file__).resolve().parent.parent

NAMES = {
    "evalloom": (
        "Case Check Checked Context Dataset EvalloomError Finding Origin Output Results Rules __version__ "
        "check evaluate read"
    ),
    "evalloom.__main__": "main",
    "evalloom.asking": "block mark_for mostly_chinese",
    "evalloom.cli.app": "main",
    "evalloom.files.json_rows": "JsonReader",
    "evalloom.files.jsontext": "Scan",
    "evalloom.files.source": "CHUNK Refused Source is_plain read_chunks source_of",
    "evalloom.files.yaml_rows": "YamlReader",
    "evalloom.files.zstd": "ZstdFile compress decompress",
    "evalloom.hop": (
        "Attempt Contract DataStore Field HopSession HopletObserver Observer Tracer Verified Verifier "
        "format_verifier forward_cross_verify inputs_of normalize_audit normalize_input open_session "
        "read_contract reverse_verify tool_use_verifier unpack_result"
    ),
    "evalloom.http": (
        "Client MAX_BYTES RETRIES Reply Sleep find_proxy is_loopback is_secret retry sleeping status_error"
    ),
    "evalloom.llms": "LLMS LlmOptions Llms estimate_tokens",
    "evalloom.matchers": "Grade MATCHERS Matcher Seen Services by_kind functions_of parse_check why_unknown",
    "evalloom.model": "Batch Case Check Context Finding Origin Output Profile Request Response Run Usage Verdict",
    "evalloom.pipeline": "TestCase TestsetLoader",
    "evalloom.pytest_plugin": "pytest_addoption pytest_collect_file",
    "evalloom.rag": "IndexOptions Passage is_hit measures open_index rank sources_in_order words",
    "evalloom.record": (
        "BASELINES Baseline Damage FOLDER Kept Log Rescoring RunIndex baselines batches checked_name find "
        "find_baseline finished has_baseline in_order is_in_use kept_runs manifest new_id pairs read_baseline "
        "remove remove_baseline save_baseline"
    ),
    "evalloom.reports.prompt_eval_charts": "chance distribution histogram",
    "evalloom.resolvers": "MOST_BYTES RESOLVERS Reach Resolution Source clamp reach_of resolve",
    "evalloom.retrieval": (
        "Explained Index IndexOptions LocalEmbedder Progress Refreshed Term Unread fused open_index quiet words"
    ),
    "evalloom.retrieval.readers": "LARGEST LONGEST_S READERS Unreadable read",
    "evalloom.run": (
        "Chosen Conditions Held Job Jobs Keys NO_NEEDS Needs Runner Slots Traced Voices collect_needs encoded "
        "execute numbered run_of"
    ),
    "evalloom.sandbox": "Call Code DEFAULT_LIMITS Done Limits run_code why_unavailable",
    "evalloom.settings": (
        "FILE_NAME LlmSettings PROTOCOLS Price PromptEvalSettings RagSettings ResolverSettings RunSettings "
        "Settings environment find_datasets first_profile key_names key_of llm_of load profile schema secrets"
    ),
    "evalloom.targets": "BuiltTarget DEFAULTS Kind TARGETS TargetOptions build build_callable",
    "evalloom.tools.batchhoptest": "main",
    "evalloom.tools.validate_eval_cases": "main",
    "evalloom.validate": "validate",
}

# What the documents call or read of a class.
MEMBERS = {
    "evalloom.Case": "checks id inputs meta origin",
    "evalloom.Checked": "cases count dialect findings",
    "evalloom.Dataset": "cases",
    "evalloom.Results": "__iter__ pass_rate",
    "evalloom.hop.DataStore": "compare get_agreement get_perf_summary get_stats list_files query_results",
    "evalloom.hop.HopletObserver": "faults run_end run_start",
    "evalloom.hop.HopSession": "hop_get hop_judge hop_tool_use",
    "evalloom.hop.Tracer": "trace_step",
    "evalloom.model.Context": "case llm",
    "evalloom.model.Output": "aggregation outcome sources steps value",
    "evalloom.model.Response": "text tool_calls",
    "evalloom.model.Run": "case_id output",
    "evalloom.model.Verdict": "reason",
    "evalloom.pipeline.TestCase": "from_dict to_dict",
    "evalloom.pipeline.TestsetLoader": (
        "extract_step_data filter_by_tags findings get_batch_test_cases get_intermediate_evaluation_test_cases "
        "get_step_input_test_cases group_by_pipeline_features load_testset"
    ),
    "evalloom.retrieval.Index": "refresh search",
}

OPTIONS = {
    "evalloom": "--debug --version",
    "evalloom run": (
        "--allow-code --concurrency --config --dialect --dry-run --encoding --fail-under --filter --json "
        "--judge --limit --map --max-cost --max-time --max-tokens --no-cache --output --profile --record "
        "--repeat --replay --resume --resume-from --retry-errors --skip-invalid --tags --target --timeout "
        "--variants --watch -j -o"
    ),
    "evalloom score": (
        "--allow-code --checks --concurrency --config --json --judge --no-cache --output --threshold -j -o"
    ),
    "evalloom compare": "--allowed-drop --any-config --baseline --baseline-profile --by --json --profile",
    "evalloom baseline": "",
    "evalloom baseline list": "--json",
    "evalloom baseline rm": "",
    "evalloom baseline save": "--force",
    "evalloom baseline show": "--json",
    "evalloom batches": "",
    "evalloom batches list": "--json --limit",
    "evalloom batches rm": "--yes",
    "evalloom batches show": "--case --json --limit --page --profile --search --status --tag",
    "evalloom stats": "--agreement --bands --by --compare --files --json --profile --rows --sort --where",
    "evalloom pipeline": "",
    "evalloom pipeline check": "--json --no-import",
    "evalloom pipeline graph": "--mermaid --variant",
    "evalloom prompt-eval": "",
    "evalloom prompt-eval all": (
        "--concurrency --config --excel --fail-under --json --judge --llm --max-cost --max-tokens --no-cache "
        "--output --profile --xlsx -j -o"
    ),
    "evalloom prompt-eval check": "--json",
    "evalloom prompt-eval generate": (
        "--concurrency --config --json --judge --llm --max-cost --max-tokens --no-cache --profile --redo -j"
    ),
    "evalloom prompt-eval import-review": "--encoding --json",
    "evalloom prompt-eval improve": (
        "--concurrency --config --iterations --json --judge --llm --max-cost --max-tokens --no-cache --profile -j"
    ),
    "evalloom prompt-eval plan": (
        "--cases --concurrency --config --json --judge --llm --max-cost --max-tokens --no-cache --output "
        "--profile --redo -j -o"
    ),
    "evalloom prompt-eval report": (
        "--concurrency --config --fail-under --json --judge --llm --max-cost --max-tokens --no-cache --profile -j"
    ),
    "evalloom prompt-eval run": (
        "--concurrency --config --json --judge --llm --max-cost --max-tokens --no-cache --profile --redo "
        "--rerun-failed -j"
    ),
    "evalloom prompt-eval score": (
        "--concurrency --config --excel --fail-under --json --judge --llm --max-cost --max-tokens --no-cache "
        "--profile --redo --repeat --xlsx -j"
    ),
    "evalloom prompt-eval table": "--excel --for-review --json --output --plan --xlsx -o",
    "evalloom rag": "",
    "evalloom rag answer": (
        "--allow-code --chunk --concurrency --config --dry-run --embeddings --encoding --fail-under "
        "--faithfulness --filter --frozen-index --json --judge --limit --map --max-cost --max-time "
        "--max-tokens --mode --no-cache --normalise --output --overlap --profile --prompt --record --repeat "
        "--replay --require --resume --resume-from --retriever --retry-errors --root --skip-invalid --tags "
        "--timeout -j -k -o"
    ),
    "evalloom rag explain": "--batch --config --json",
    "evalloom rag index": "--chunk --json --overlap --root",
    "evalloom rag init": "--cases --chunk --output --overlap --root -o",
    "evalloom rag report": "--config --json --output -o",
    "evalloom rag retrieve": (
        "--allow-code --chunk --concurrency --config --dry-run --embeddings --encoding --fail-under --filter "
        "--frozen-index --json --judge --limit --map --max-cost --max-time --max-tokens --mode --no-cache "
        "--output --overlap --record --replay --resume --resume-from --retriever --retry-errors --root "
        "--skip-invalid --tags --timeout -j -k -o"
    ),
    "evalloom rag suggest": "--bucket --chunk --json --overlap --pair --root -k",
    "evalloom replay": "--config --data-dir --dataset --json --limit --offset --output --profile --project -o",
    "evalloom replay compare": "--data-dir --json",
    "evalloom replay list": "--data-dir --json --limit",
    "evalloom replay show": "--data-dir --json",
    "evalloom serve": "--allow-host --config --data-dir --host --port --token-env",
    "evalloom validate": (
        "--check-must-include-in-sources --check-sources-exist --contract --deep --dialect --encoding "
        "--format --json --map --output --pipeline --root --strict -o"
    ),
    "evalloom convert": "--dialect --encoding --map --output --to -o",
    "evalloom inspect": "--dialect --encoding --json --map",
    "evalloom schema": "",
    "evalloom demo": "--keep --output -o",
    "evalloom init": "--dialect",
    "evalloom doctor": "--config --json --offline",
}

TOOLS = {
    "batchhoptest": (
        "--allow-code --data --dry-run --fail-under --filter --json --judge --limit --max-cost --max-time "
        "--max-tokens --no-cache --out --output --profiles --record --replay --resume --resume-from "
        "--retry-errors --settings --skip-invalid --tags --task --timeout --workers -o"
    ),
    "validate_eval_cases": (
        "--cases --check-must-include-in-sources --check-sources-exist --json --md-out --out --root "
        "--skip-if-missing --strict-bucket --strict-pair-id"
    ),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("module", NAMES)
def test_names_stay_importable(module: str) -> None:
    found = import_module(module)
    assert [name for name in NAMES[module].split() if not hasattr(found, name)] == []


@pytest.mark.parametrize("name", moved.NAMES)
def test_names_that_have_moved_say_where_they_are(name: str) -> None:
    package, _, own = name.rpartition(".")
    home, _, new = moved.NAMES[name].rpartition(".")
    with pytest.warns(DeprecationWarning, match=f"evalloom.{name} is now evalloom.{home}.{new}") as warned:
        value = getattr(import_module(f"evalloom.{package}"), own)
    assert value is getattr(import_module(f"evalloom.{home}"), new) and warned[0].filename == __file__
    assert not hasattr(import_module(f"evalloom.{package}"), "nothing")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", MEMBERS)
def test_members_stay(name: str) -> None:
    module, _, owner = name.rpartition(".")
    found = getattr(import_module(module), owner)
    assert [member for member in MEMBERS[name].split() if not hasattr(found, member)] == []


def commands(command: click.Command, context: click.Context, name: str) -> Iterator[tuple[str, set[str]]]:
    """A command with its option strings, and all commands below it."""
    options = (option for option in command.params if isinstance(option, click.Option))
    yield name, {text for option in options for text in (*option.opts, *option.secondary_opts)}
    if isinstance(command, click.Group):
        for own in command.list_commands(context):
            below = command.get_command(context, own)
            assert below is not None, own
            yield from commands(below, click.Context(below, parent=context), f"{name} {own}")


def test_commands_and_flags_stay() -> None:
    found = dict(commands(main, click.Context(main), "evalloom"))
    lost = {name: {*flags.split()} - found.get(name, set()) for name, flags in OPTIONS.items()}
    assert OPTIONS.keys() - found.keys() == set()
    assert {name: flags for name, flags in lost.items() if flags} == {}


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("-m", "evalloom.tools.batchhoptest"),
        ("-m", "evalloom.tools.validate_eval_cases"),
        ("tools/validate_eval_cases.py",),
    ],
    ids=" ".join,
)
def test_tools_keep_their_place_and_flags(command: tuple[str, ...]) -> None:
    done = call(*command, "--help")
    shown = {*done.stdout.replace(",", " ").split()}
    tool = Path(command[-1].rpartition("evalloom.tools.")[2]).stem
    assert (done.returncode, done.stderr) == (0, "")
    assert {*TOOLS[tool].split()} - shown == set()


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("--version",), ("--help",)], ids=" ".join)
def test_evalloom_is_run_as_a_module(arguments: tuple[str, ...]) -> None:
    done = call("-m", "evalloom", *arguments)
    assert done.returncode == 0 and "evalloom" in done.stdout.lower()
