"""Writes a batch as the log of `oaieval`: the spec, the events of each sample, and the final report.

A run that passed or failed has a `match`, and one with an error an `error`. There is no event for a run that was
skipped, blocked or not scored, so it has an `extra` event with its status. `accuracy` is over the matches, as in
oaieval; `pass_rate` is that of evalloom, which counts errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath
from typing import IO, Any

from evalloom.core.model import Case, Record, Run, Scored
from evalloom.reports.run_report import RunReport, cell, encode, label, not_passed, reason, why_without_verdicts

name = "openai-evals"
suffix = ".evals.jsonl"
CREATOR = "evalloom"
_COUNTED = ("passed", "failed", "error", "skipped", "blocked", "unscored")


def render(report: RunReport, stream: IO[bytes]) -> None:
    batch = report.batch
    names = _SampleNames(batch)
    stream.write(encode({"spec": _spec(batch)}) + b"\n")
    counts: Counter[str] = Counter()
    number = 0
    for run, scored in report.rows:
        counts[scored.status] += 1
        for kind, data in _events(run, scored, report.case_of(run) or Case(run.case_id, {}), batch["models"]):
            event = {
                "run_id": batch["id"],
                "event_id": number,
                "sample_id": names.of(run),
                "type": kind,
                "data": {**data, "profile": run.profile, "repeat": run.repeat},
                "created_by": CREATOR,
                "created_at": run.started_at or batch["created_at"],
            }
            stream.write(encode(event) + b"\n")
            number += 1
    matches = counts["passed"] + counts["failed"]
    figures = {
        "accuracy": counts["passed"] / matches if matches else None,
        "pass_rate": report.summary.get("pass_rate"),
        **{status: counts[status] for status in _COUNTED},
    }
    stream.write(encode({"final_report": figures}) + b"\n")


def _spec(batch: Record) -> Record:
    models = batch["models"]
    functions = [models.get(profile["run"]) or profile["run"] or batch["target"] for profile in batch["profiles"]]
    paths = [dataset["path"] for dataset in batch["datasets"]]
    base = PurePath(paths[0]).stem if paths else batch["target"]
    return {
        # First, so that an export can be told from a log of oaieval.
        "created_by": CREATOR,
        "completion_fns": functions or [batch["target"]],
        "eval_name": base,
        "base_eval": base,
        "split": "",
        "run_config": {"target": batch["target"], "datasets": paths, "profiles": batch["profiles"]},
        "run_id": batch["id"],
        "created_at": batch["created_at"],
    }


class _SampleNames:
    """Names samples: readers join events by the name, so each file, profile and repeat has its own."""

    def __init__(self, batch: Record) -> None:
        self._has_profiles = len(batch["profiles"]) > 1
        self._has_files = len(batch["datasets"]) > 1
        self._has_repeats = (batch["options"].get("repeat") or 1) > 1

    def of(self, run: Run) -> str:
        file = [run.origin.file] if self._has_files else []
        profile = [run.profile] if self._has_profiles else []
        return ".".join([*file, run.case_id, *profile, *([str(run.repeat)] if self._has_repeats else [])])


def _events(run: Run, scored: Scored, case: Case, models: Record) -> Iterator[tuple[str, Record]]:
    has_output = not (run.error or run.skipped or run.blocked)
    calls = list(_llm_calls(run.trace))
    for call in calls:
        yield "sampling", _sampling(call, models)
    if has_output and not calls:
        # The target answers without an llm of ours: what it got and what it gave is the sample.
        yield "sampling", {"prompt": case.inputs, "sampled": [cell(run.output.value)]}
    if run.error:
        kind = run.error.rpartition("[")[2].removesuffix("]") if run.error.endswith("]") else "error"
        yield "error", {"type": kind, "message": run.error}
    elif scored.status in ("passed", "failed"):
        yield "match", _match(run, scored, case)
    else:
        why = run.skipped or run.blocked or "; ".join(map(reason, not_passed(scored))) or why_without_verdicts(scored)
        yield "extra", {"status": scored.status, "reason": why}
    scores = {label(verdict): verdict.score for verdict in scored.verdicts if verdict.score is not None}
    if scores:
        yield "metrics", scores


def _sampling(call: Record, models: Record) -> Record:
    request, response = call.get("request") or {}, call.get("response") or {}
    usage = response.get("usage") or {}
    failure = {"error": call["error"]} if call.get("error") else {}
    return {
        "prompt": request.get("messages") or [],
        "sampled": [response["text"]] if "text" in response else [],
        "model": models.get(call.get("llm", "")) or response.get("model") or None,
        "usage": {
            "prompt_tokens": usage.get("input_tokens", 0),
            "completion_tokens": usage.get("output_tokens", 0),
            "total_tokens": usage.get("input_tokens", 0) + usage.get("output_tokens", 0),
        },
        **failure,
    }


def _match(run: Run, scored: Scored, case: Case) -> Record:
    correct = scored.status == "passed"
    output = cell(run.output.value)
    # Several checks are not alternatives, which a list means here.
    expected = case.checks[0].expected if len(case.checks) == 1 else None
    if isinstance(expected, list) and len(expected) == 1:
        expected = expected[0]
    return {
        "correct": correct,
        "expected": expected,
        "picked": output if correct else None,
        "sampled": output,
        "score": scored.score,
    }


def _llm_calls(trace: list[Any]) -> Iterator[Record]:
    for entry in trace:
        if entry.get("type") == "llm":
            yield entry
        elif entry.get("type") == "step":
            yield from _llm_calls(entry.get("calls") or [])
