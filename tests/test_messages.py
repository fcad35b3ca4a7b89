"""docs/messages.md has a heading for every code that evalloom can say, and for no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "evalloom"
PAGE = ROOT / "docs" / "messages.md"

# The functions and classes that carry a code, and which argument it is.
EMITTERS = {
    **dict.fromkeys(("error", "warning", "info", "Remark", "Problem", "BatchProblem", "refused"), 0),
    **dict.fromkeys(("usage_error", "EvalloomError", "CallError", "Finding", "JsonError", "finding", "_finding"), 0),
    **dict.fromkeys(("InvalidData", "CodeRefused", "complain", "_add_error", "RequestError", "_failed"), 0),
    **dict.fromkeys(("report_finding", "SqlError", "_sql_error", "FileProblem"), 0),
    **dict.fromkeys(("_at", "Message", "RecipeError", "_report_step_finding"), 1),
}

# Codes that are made while the program runs, by the place that makes them.
MADE = {
    ("engine/results.py", "self._stop_code"): "llm_unavailable target_unavailable",
    ("data/validate/check.py", "code"): "checks_read checks_not_read",
    ("engine/lint.py", "f'needs_{need}'"): "needs_judge needs_embeddings needs_judge_or_embeddings needs_code",
    ("pipeline/findings.py", "f'bad_{field}'"): "bad_inputs bad_expected_outputs bad_intermediate_expectations",
    ("prompt_eval/dialect.py", "f'bad_{field}'"): "bad_test_category bad_test_subcategory bad_eval_type",
    ("interop/promptfoo/config.py", "f'bad_{name}'"): "bad_options bad_metadata",
    ("interop/promptfoo/assert_findings.py", "f'bad_{name}'"): "bad_threshold bad_weight",
    ("interop/deepeval.py", "f'bad_{name}'"): (
        "bad_expected_output bad_actual_output bad_scenario bad_expected_outcome bad_user_description"
        " bad_context bad_retrieval_context bad_tools_called bad_expected_tools"
    ),
    ("interop/ragas.py", "f'bad_{name}'"): (
        "bad_reference bad_ground_truth bad_response bad_reference_contexts bad_retrieved_contexts bad_contexts"
        " bad_ground_truths bad_reference_tool_calls bad_reference_topics bad_reference_context_ids"
        " bad_retrieved_context_ids"
    ),
    ("rag/dialect.py", "code"): "expected_file_missing expected_dir_missing",
    ("prompt_eval/plan.py", "f'bad_{key}'"): "bad_dimensions bad_floors",
    ("prompt_eval/steps/check.py", "code"): "case_changed result_changed",
    ("replay/recipe/document.py", "code"): "bad_recipe recipe_doubt",
    # The page has the usual ones; what holds for the others stands there too.
    ("core/http/attempts.py", "f'http_{reply.status}'"): "http_400 http_401 http_403 http_404 http_429 http_500",
    ("llms/scripted.py", "*_FAULTS[fault]"): "timeout connection_broke bad_answer",
    ("replay/requests.py", "f'{kind}_not_found'"): (
        "project_not_found dataset_not_found run_not_found replay_not_found"
    ),
}

HEADING = re.compile(r"^### (\S+)$", re.MULTILINE)
BRACKETED = re.compile(r"(?<= )\[([a-z][a-z_]+[a-z])\]$")
FORWARDED = re.compile(r".+\.(code|error_code|not_object_code)|code|remark")
"""A code, or a remark with its code in it, that was made elsewhere and is only handed on."""


@cache
def sources() -> dict[str, ast.Module]:
    """Every module of the program by its path, parsed once for all tests here."""
    return {
        file.relative_to(SOURCE).as_posix(): ast.parse(file.read_text(encoding="utf-8"))
        for file in sorted(SOURCE.rglob("*.py"))
    }


@cache
def emitted() -> list[tuple[str, ast.expr]]:
    return list(find_emitted())


def find_emitted() -> Iterator[tuple[str, ast.expr]]:
    """Every expression that stands where a code is expected, with its file."""
    for name, module in sources().items():
        for node in ast.walk(module):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func).rpartition(".")[2]
                position = EMITTERS.get(called)
                if position is not None and len(node.args) > position:
                    yield name, node.args[position]
            if isinstance(node, ast.keyword) and node.arg == "not_object_code":
                yield name, node.value
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "not_object_code" and node.value:
                yield name, node.value


@cache
def bracketed() -> set[str]:
    """Codes that stand in brackets at the end of a text, as messages are printed."""
    return {
        match[1]
        for module in sources().values()
        for node in ast.walk(module)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (match := BRACKETED.search(node.value))
    }


def codes() -> set[str]:
    """All codes of the program."""
    written = {node.value for _, node in emitted() if isinstance(node, ast.Constant)}
    made = {code for listed in MADE.values() for code in listed.split()}
    return {str(code) for code in written} | made | bracketed()


def headings() -> list[str]:
    return HEADING.findall(PAGE.read_text(encoding="utf-8"))


def test_every_code_is_plain_or_listed_as_made() -> None:
    found = {(file, ast.unparse(node)) for file, node in emitted() if not isinstance(node, ast.Constant)}
    unlisted = {one for one in found - MADE.keys() if not FORWARDED.fullmatch(one[1])}
    assert unlisted == set(), "say in MADE which codes these make"
    assert MADE.keys() - found == set(), "MADE names places that make no code any more"


def test_every_code_has_a_heading() -> None:
    assert sorted(codes() - set(headings())) == []


def test_every_heading_is_a_code_and_stands_once() -> None:
    found = headings()
    assert sorted(set(found) - codes()) == []
    assert sorted(code for code in set(found) if found.count(code) > 1) == []


def test_codes_are_snake_case() -> None:
    assert [code for code in sorted(codes()) if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", code)] == []
