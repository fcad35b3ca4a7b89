"""Writes a batch as promptfoo's results: the JSON of `promptfoo eval -o results.json`, version 3.

A profile is a column of promptfoo's table, that is a prompt with a provider; a repeat of a case is a test of its own.
promptfoo knows pass, fail and error: whatever was not scored is an error there, with its status in the metadata.
"""

from __future__ import annotations

from typing import IO, Any
from uuid import NAMESPACE_URL, uuid5

from evalloom.core.clock import zulu
from evalloom.core.digest import sha256_hex
from evalloom.core.model import Case, Check, Record, Run, Scored, Usage, Verdict, check_name
from evalloom.engine.scoring_function import named_scores
from evalloom.interop.promptfoo import asserts
from evalloom.interop.promptfoo.derived import definitions, with_derived
from evalloom.reports.run_report import RunReport, cell, encode, label, not_passed, origin, reason, why_without_verdicts

name = "promptfoo"
suffix = ".promptfoo.json"
_NO_BATCH: Record = {
    **{"id": "", "created_at": "", "target": "", "evalloom": ""},
    **{"datasets": [], "profiles": [], "models": {}},
}
"""The facts that a batch may lack."""
_NONE, _ASSERT, _ERROR = 0, 1, 2
"""promptfoo's reasons of a failure."""


def render(report: RunReport, stream: IO[bytes]) -> None:
    batch = {**_NO_BATCH, **report.batch}
    columns = _Columns(batch)
    for run, scored in report.rows:
        columns.count(run, scored)
    columns.derive()
    head = {"version": 3, "timestamp": zulu(batch["created_at"]), "prompts": list(columns.prompts.values())}
    stream.write(b'{"evalId":' + encode(f"evalloom-{batch['id']}") + b',"results":')
    stream.write(encode(head).removesuffix(b"}") + b',"results":[')
    before = b"\n"
    for run, scored in report.rows:
        stream.write(before + encode(_result(run, scored, report.case_of(run) or Case(run.case_id, {}), columns)))
        before = b",\n"
    config = {
        "description": f"evalloom batch {batch['id']}",
        "prompts": [batch["target"]],
        "providers": list(dict.fromkeys(prompt["provider"] for prompt in columns.prompts.values())),
        "tests": [dataset["path"] for dataset in batch["datasets"]],
    }
    metadata = {
        "exportedBy": "evalloom",
        "evalloomVersion": batch["evalloom"],
        "evaluationCreatedAt": zulu(batch["created_at"]),
    }
    end = {"config": config, "shareableUrl": None, "metadata": metadata}
    stream.write(b'\n],"stats":' + encode(columns.stats()) + b"}," + encode(end).removeprefix(b"{") + b"\n")


class _Columns:
    """The columns of the table, one per profile, with what promptfoo counts for each."""

    def __init__(self, batch: Record) -> None:
        self.batch = batch
        self.prompts: dict[str, Record] = {}
        # Without gaps: promptfoo reads tests a hundred numbers at a time, until it finds none.
        self._tests: dict[tuple[int, str, int], int] = {}
        for profile in batch["profiles"]:
            self._add(profile["name"], profile["run"])

    def _add(self, profile: str, llm: str) -> None:
        target = self.batch["target"]
        # Without an llm, the target itself is what answers.
        provider = self.batch["models"].get(llm) or llm or target
        self.prompts[profile] = {
            "id": sha256_hex(encode([target, profile])),
            "raw": target,
            "label": target,
            "provider": provider,
            "metrics": {
                "score": 0.0,
                **dict.fromkeys(("testPassCount", "testFailCount", "testErrorCount"), 0),
                **dict.fromkeys(("assertPassCount", "assertFailCount", "totalLatencyMs"), 0),
                "tokenUsage": _tokens(Usage(), Usage()),
                "namedScores": {},
                "namedScoresCount": {},
                "cost": 0.0,
            },
        }

    def test_of(self, run: Run) -> int:
        """Return the number of the row of a run: the same case and repeat has the same one in all columns."""
        return self._tests.setdefault((run.number, run.case_id, run.repeat), len(self._tests))

    def count(self, run: Run, scored: Scored) -> None:
        if run.profile not in self.prompts:
            self._add(run.profile, "")
        self.test_of(run)
        metrics = self.prompts[run.profile]["metrics"]
        metrics["score"] += _score(scored)
        metrics[_COUNTS[_failure(scored)]] += 1
        for verdict in scored.verdicts:
            if _counts(verdict):
                metrics["assertPassCount" if verdict.status == "passed" else "assertFailCount"] += 1
        metrics["totalLatencyMs"] += _milliseconds(run)
        metrics["cost"] = round(metrics["cost"] + run.usage.cost, 10)
        for check, score in _named_scores(scored).items():
            metrics["namedScores"][check] = metrics["namedScores"].get(check, 0.0) + score
            metrics["namedScoresCount"][check] = metrics["namedScoresCount"].get(check, 0) + 1
        _add_tokens(metrics["tokenUsage"], _tokens(run.usage, scored.usage))

    def derive(self) -> None:
        """Add the `derivedMetrics` of the config to the sums of each column."""
        metrics = definitions(self.batch["datasets"])
        for prompt in self.prompts.values() if metrics else ():
            counts = prompt["metrics"]
            count = sum(counts[name] for name in _COUNTS.values())
            counts["namedScores"] = with_derived(counts["namedScores"], count, metrics)

    def stats(self) -> Record:
        stats: Record = {"successes": 0, "failures": 0, "errors": 0, "tokenUsage": _tokens(Usage(), Usage())}
        for prompt in self.prompts.values():
            metrics = prompt["metrics"]
            stats["successes"] += metrics["testPassCount"]
            stats["failures"] += metrics["testFailCount"]
            stats["errors"] += metrics["testErrorCount"]
            _add_tokens(stats["tokenUsage"], metrics["tokenUsage"])
        return stats


_COUNTS = {_NONE: "testPassCount", _ASSERT: "testFailCount", _ERROR: "testErrorCount"}


def _result(run: Run, scored: Scored, case: Case, columns: _Columns) -> Record:
    prompt = columns.prompts[run.profile]
    failure = _failure(scored)
    why = _why(run, scored)
    tokens = _tokens(run.usage, scored.usage)
    has_output = not (run.error or run.skipped or run.blocked)
    result: Record = {
        "id": str(uuid5(NAMESPACE_URL, f"evalloom:{columns.batch['id']}:{run.key}")),
        "testIdx": columns.test_of(run),
        "promptIdx": list(columns.prompts).index(run.profile),
        "promptId": prompt["id"],
        "prompt": {"raw": _rendered(run), "label": prompt["label"]},
        "provider": {"id": prompt["provider"], "label": run.profile},
        "vars": case.inputs,
        "testCase": _test_case(case),
        "response": {"output": run.output.value, "tokenUsage": tokens} if has_output else {"error": why},
        "success": failure == _NONE,
        "score": _score(scored),
        "failureReason": failure,
        "namedScores": _named_scores(scored),
        **({"gradingResult": _grading(scored, case, why)} if scored.verdicts else {}),
        "latencyMs": _milliseconds(run),
        # Unknown where a model has no price.
        **({} if run.usage.unpriced else {"cost": round(run.usage.cost, 10)}),
        "tokenUsage": tokens,
        "metadata": {
            "evalloom": {
                "case_id": run.case_id,
                "profile": run.profile,
                "repeat": run.repeat,
                "status": scored.status,
                "outcome": run.outcome,
                "first_wrong_step": scored.step or None,
                "tags": list(run.tags),
                "origin": origin(run),
            }
        },
    }
    return {**result, "error": why} if why else result


def _failure(scored: Scored) -> int:
    return {"passed": _NONE, "failed": _ASSERT}.get(scored.status, _ERROR)


def _why(run: Run, scored: Scored) -> str:
    """Why a run did not pass; empty if it did."""
    if scored.status in ("passed", "error"):
        return run.error
    text = run.skipped or run.blocked or "; ".join(map(reason, not_passed(scored))) or why_without_verdicts(scored)
    return text if scored.status == "failed" else f"{scored.status}: {text}"


def _score(scored: Scored) -> float:
    return scored.score if scored.score is not None else float(scored.status == "passed")


def _verdict_score(verdict: Verdict) -> float:
    return verdict.score if verdict.score is not None else float(verdict.status == "passed")


def _named_scores(scored: Scored) -> dict[str, float]:
    counted = list(filter(_counts, scored.verdicts))
    return named_scores(counted, {verdict.name for verdict in counted if verdict.name})


def _counts(verdict: Verdict) -> bool:
    return verdict.status in ("passed", "failed")


def _grading(scored: Scored, case: Case, why: str) -> Record:
    checks = list(case.checks)
    return {
        "pass": scored.status == "passed",
        "score": _score(scored),
        "reason": why or "All assertions passed",
        "namedScores": _named_scores(scored),
        "componentResults": [_component(verdict, _check_of(verdict, checks)) for verdict in scored.verdicts],
    }


def _component(verdict: Verdict, check: Check | None) -> Record:
    unscored = {} if _counts(verdict) else {"metadata": {"evalloom": {"status": verdict.status}}}
    return {
        "pass": verdict.status == "passed",
        "score": _verdict_score(verdict),
        "reason": verdict.reason or ("Assertion passed" if verdict.status == "passed" else verdict.status),
        "assertion": _assertion(check or Check(verdict.kind, where=verdict.where, name=verdict.name)),
        **unscored,
    }


def _check_of(verdict: Verdict, checks: list[Check]) -> Check | None:
    """Take the check of a verdict from those of its case; one of evalloom.yaml is not stored with the batch."""
    for number, check in enumerate(checks):
        if (check.kind, check.where) == (verdict.kind, verdict.where) and label(verdict) in (
            check_name(check),
            check.kind,
        ):
            return checks.pop(number)
    return None


def _assertion(check: Check) -> Record:
    """Return a check as an assert: by promptfoo's name of its kind, or by ours where promptfoo has none."""
    written: Record = {"type": asserts.type_of(check)}
    if check.expected is not None:
        written["value"] = check.expected
    for option in ("threshold", "weight"):
        if option in check.options:
            written[option] = check.options[option]
    if check.name:
        written["metric"] = check.name
    # promptfoo checks the whole output; a part of it is a transform there, whose language is JavaScript.
    return written if check.where == "output" else {**written, "config": {"where": check.where}}


def _test_case(case: Case) -> Record:
    description = case.meta.get("description")
    return {
        "description": description if isinstance(description, str) else case.id,
        "vars": case.inputs,
        "assert": [_assertion(check) for check in case.checks],
        "metadata": {"tags": list(case.tags)} if case.tags else {},
    }


def _rendered(run: Run) -> str:
    """Return the first request of a run: its text, or a chat as JSON; empty if no llm was called."""
    for entry in run.trace:
        if entry.get("type") == "step":
            entry = next((call for call in entry.get("calls") or () if call.get("type") == "llm"), {})
        if entry.get("type") == "llm":
            messages: list[Any] = (entry.get("request") or {}).get("messages") or []
            content = messages[0].get("content") if len(messages) == 1 else None
            return content if isinstance(content, str) else cell(messages)
    return ""


def _milliseconds(run: Run) -> int:
    return round(run.latency_s * 1000)


def _tokens(usage: Usage, scoring: Usage) -> Record:
    return {
        "prompt": usage.input_tokens,
        "completion": usage.output_tokens,
        "cached": 0,
        "total": usage.tokens,
        "numRequests": usage.calls,
        "completionDetails": {"cacheReadInputTokens": usage.cached_input_tokens},
        "assertions": {
            "prompt": scoring.input_tokens,
            "completion": scoring.output_tokens,
            "cached": 0,
            "total": scoring.tokens,
            "numRequests": scoring.calls,
        },
    }


def _add_tokens(total: Record, tokens: Record) -> None:
    for key, value in tokens.items():
        if isinstance(value, dict):
            _add_tokens(total[key], value)
        else:
            total[key] += value
