"""A batch as OpenTelemetry spans, in the OTLP/JSON of the file exporter: one line, and one trace, per run.

The attributes are those of the GenAI semantic conventions, and `evalloom.…` for what these have no name for. What
people and models wrote (messages, outputs, the reasons of checks and the texts of errors) is only included on request.

A run stores when it began, and of its steps and calls only how long they took. They are laid out one after another
from the beginning of their parent, and say so with `evalloom.start_estimated`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from typing import IO, Any

from evalloom import __version__
from evalloom.core.model import Case, Record, Run, Scored
from evalloom.reports.run_report import RunReport, encode, label, origin

name = "otel"
suffix = ".otlp.jsonl"
_INTERNAL, _CLIENT, _ERROR = 1, 3, 2
_MAX_INT = 2**63
_NUMBERS = ("temperature", "top_p", "frequency_penalty", "presence_penalty")
_COUNTS = {"top_k": "top_k", "seed": "seed", "max_tokens": "max_tokens", "max_completion_tokens": "max_tokens"}


def render(report: RunReport, stream: IO[bytes], with_content: bool = False) -> None:
    for request in requests(report, with_content):
        stream.write(encode(request) + b"\n")


def requests(report: RunReport, with_content: bool = False) -> Iterator[Record]:
    """Yield one export request per run; those of a batch have one resource, so their spans can be joined."""
    batch = report.batch
    resource = {
        "attributes": _attributes(
            {
                "service.name": "evalloom",
                "service.version": __version__,
                "evalloom.batch.id": batch["id"],
                "evalloom.batch.target": batch["target"],
                "evalloom.batch.datasets": [dataset["path"] for dataset in batch["datasets"]],
            }
        )
    }
    scope = {"name": "evalloom", "version": __version__}
    for run, scored in report.rows:
        case = (report.case_of(run) or Case(run.case_id, {})) if with_content else None
        spans = _Trace(batch, run, scored, case).spans()
        yield {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": spans}]}]}


class _Trace:
    """The spans of one run. Ids are digests, so that the same batch always gives the same spans."""

    def __init__(self, batch: Record, run: Run, scored: Scored, case: Case | None) -> None:
        """`case` is given if contents are included."""
        self._batch = batch
        self._run = run
        self._scored = scored
        self._case = case
        digest = sha256(f"{batch['id']} {run.key}".encode()).hexdigest()
        self._trace_id, self._seed = digest[:32], digest[32:]
        self._spans: list[Record] = []
        profiles = [profile for profile in batch["profiles"] if profile["name"] == run.profile]
        self._run_llm = profiles[0]["run"] if profiles else ""

    def spans(self) -> list[Record]:
        run = self._run
        begin = _nanoseconds(run.started_at or self._batch["created_at"])
        end = begin + int(run.duration_s * 1e9)
        workflow = self._batch["target"]
        root = self._span(f"invoke_workflow {workflow}", _INTERNAL, "", begin, end, self._root_attributes(workflow))
        self._fail(root, run.error)
        root["events"] = [*self._evaluations(end), *self._exceptions(end)]
        self._add_children(run.trace, root, begin, end)
        return self._spans

    def _span(self, name: str, kind: int, parent: str, begin: int, end: int, attributes: Record) -> Record:
        number = f"{self._seed} {len(self._spans)}"
        span: Record = {
            "traceId": self._trace_id,
            "spanId": sha256(number.encode()).hexdigest()[:16],
            **({"parentSpanId": parent} if parent else {}),
            "name": name,
            "kind": kind,
            "startTimeUnixNano": str(begin),
            "endTimeUnixNano": str(end),
            "attributes": _attributes(attributes),
            "status": {},
        }
        self._spans.append(span)
        return span

    def _fail(self, span: Record, error: str) -> None:
        if error:
            code = error.rpartition("[")[2].removesuffix("]") if error.endswith("]") else "_OTHER"
            span["attributes"] += _attributes({"error.type": code})
            # A message may quote what a model wrote.
            span["status"] = {"code": _ERROR, "message": error if self._case else code}

    def _root_attributes(self, workflow: str) -> Record:
        run, scored = self._run, self._scored
        attributes: Record = {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": workflow,
            "test.case.name": run.case_id,
            "test.case.result.status": {"passed": "pass", "failed": "fail"}.get(scored.status),
            "evalloom.case.id": run.case_id,
            "evalloom.profile": run.profile,
            "evalloom.repeat": run.repeat,
            "evalloom.status": scored.status,
            "evalloom.score": scored.score,
            "evalloom.outcome": run.outcome,
            "evalloom.first_wrong_step": scored.step or None,
            "evalloom.tags": list(run.tags) or None,
            "evalloom.origin": origin(run) or None,
            "evalloom.cost": None if run.usage.unpriced else run.usage.cost,
            # A run that was skipped, blocked or invalid never began.
            "evalloom.start_estimated": None if run.started_at else True,
        }
        if self._case is not None:
            attributes["evalloom.inputs"] = _json(self._case.inputs)
            attributes["evalloom.output"] = None if run.error else _json(run.output.value)
            attributes["evalloom.not_run"] = run.skipped or run.blocked or None
        return attributes

    def _evaluations(self, time: int) -> Iterator[Record]:
        for verdict in self._scored.verdicts:
            attributes = {
                "gen_ai.evaluation.name": label(verdict),
                "gen_ai.evaluation.score.value": verdict.score,
                "gen_ai.evaluation.score.label": verdict.status,
                "gen_ai.evaluation.explanation": (verdict.reason or None) if self._case else None,
                "evalloom.check.kind": verdict.kind,
                "evalloom.check.where": verdict.where,
            }
            yield {
                "name": "gen_ai.evaluation.result",
                "timeUnixNano": str(time),
                "attributes": _attributes(attributes),
            }

    def _exceptions(self, time: int) -> Iterator[Record]:
        for entry in self._run.trace if self._case else ():
            if entry.get("type") == "traceback":
                attributes = _attributes({"exception.stacktrace": entry.get("text")})
                yield {"name": "exception", "timeUnixNano": str(time), "attributes": attributes}

    def _add_children(self, trace: list[Any], parent: Record, begin: int, end: int) -> None:
        # A step of a hoplet is traced beside its calls, so both begin with their parent.
        times = {"step": begin, "call": begin}
        for entry in trace:
            seconds = entry.get("duration_s", entry.get("duration"))
            if not isinstance(seconds, int | float):
                continue
            kind = "step" if entry.get("type") == "step" else "call"
            start = times[kind]
            stop = times[kind] = min(end, start + int(seconds * 1e9))
            if kind == "step":
                span = self._step(entry, parent["spanId"], start, stop)
                self._add_children(entry.get("calls") or [], span, start, stop)
            elif entry.get("type") == "llm":
                self._llm_call(entry, parent["spanId"], start, stop)
            else:
                self._other_call(entry, parent["spanId"], start, stop)

    def _step(self, entry: Record, parent: str, begin: int, end: int) -> Record:
        named = str(entry.get("op") or entry.get("step") or "step")
        attributes = {
            "evalloom.step": entry.get("step"),
            "evalloom.step.kind": entry.get("kind") or entry.get("op"),
            "evalloom.step.status": entry.get("status"),
            "evalloom.step.retries": entry.get("retry_count"),
            "evalloom.start_estimated": True,
        }
        if self._case is not None:
            attributes["evalloom.inputs"] = _json(entry["inputs"]) if "inputs" in entry else None
            attributes["evalloom.output"] = _json(entry["output"]) if "output" in entry else None
            attributes["evalloom.step.task"] = entry.get("task")
        span = self._span(f"step {named}", _INTERNAL, parent, begin, end, attributes)
        self._fail(span, str(entry.get("error") or ""))
        return span

    def _llm_call(self, entry: Record, parent: str, begin: int, end: int) -> None:
        request, response = entry.get("request") or {}, entry.get("response") or {}
        usage, llm = response.get("usage") or {}, str(entry.get("llm") or "")
        model = self._batch["models"].get(llm) or response.get("model") or llm
        params = self._batch["params"].get(self._run.profile, {}) if llm == self._run_llm else {}
        params = {**params, **(request.get("params") or {}), **(request.get("pinned") or {})}
        answer = request.get("answer")
        attributes: Record = {
            "gen_ai.operation.name": "chat",
            # A batch stores the name of an llm and its model, and not the address of its server.
            "gen_ai.provider.name": llm or None,
            "gen_ai.request.model": model or None,
            **_request_params(params),
            "gen_ai.output.type": "json" if answer else "text",
            "gen_ai.response.model": response.get("model") or None,
            "gen_ai.response.finish_reasons": [response["stop"]] if response.get("stop") else None,
            "evalloom.cost": None if usage.get("unpriced") else usage.get("cost"),
            "evalloom.usage_estimated": True if usage.get("estimated") else None,
            "evalloom.start_estimated": True,
        }
        if response:
            attributes["gen_ai.usage.input_tokens"] = usage.get("input_tokens", 0)
            attributes["gen_ai.usage.output_tokens"] = usage.get("output_tokens", 0)
            attributes["gen_ai.usage.cache_read.input_tokens"] = usage.get("cached_input_tokens") or None
        if self._case is not None:
            attributes["gen_ai.input.messages"] = _json([_message(item) for item in request.get("messages") or ()])
            if response:
                message = _message({"role": "assistant", "content": response.get("text"), **response})
                attributes["gen_ai.output.messages"] = _json([{**message, "finish_reason": response.get("stop", "")}])
        span = self._span(f"chat {model}".rstrip(), _CLIENT, parent, begin, end, attributes)
        self._fail(span, str(entry.get("error") or ""))

    def _other_call(self, entry: Record, parent: str, begin: int, end: int) -> None:
        kind = str(entry.get("type") or "call")
        attributes = {
            "http.request.method": entry.get("method"),
            "url.full": entry.get("url") if self._case else None,
            "process.command_args": entry.get("argv") if self._case else None,
            "evalloom.start_estimated": True,
        }
        span = self._span(str(entry.get("method") or kind), _CLIENT, parent, begin, end, attributes)
        self._fail(span, str(entry.get("error") or ""))


def _request_params(params: Record) -> Record:
    """Return the parameters of a request that the conventions name, with the types that they have there."""
    found: Record = {}
    for key, value in params.items():
        if key in _NUMBERS and isinstance(value, int | float):
            found[f"gen_ai.request.{key}"] = float(value)
        elif key in _COUNTS and isinstance(value, int):
            found[f"gen_ai.request.{_COUNTS[key]}"] = value
        elif key == "stop" and value:
            found["gen_ai.request.stop_sequences"] = value if isinstance(value, list) else [value]
    return found


def _message(message: Any) -> Record:
    """Return a message of a chat in the form of the conventions: a role and its parts."""
    if not isinstance(message, dict):
        return {"role": "user", "parts": [{"type": "text", "content": str(message)}]}
    content, parts = message.get("content"), list[Record]()
    for item in content if isinstance(content, list) else [content]:
        if isinstance(item, str):
            parts.append({"type": "text", "content": item})
        elif isinstance(item, dict):
            is_text = item.get("type") == "text"
            parts.append({"type": "text", "content": item.get("text")} if is_text else item)
    if message.get("role") == "tool":
        parts = [{"type": "tool_call_response", "id": message.get("tool_call_id"), "response": content}]
    for call in message.get("tool_calls") or ():
        function = call.get("function") or call
        arguments = function.get("arguments")
        parts.append({"type": "tool_call", "id": call.get("id"), "name": function.get("name"), "arguments": arguments})
    return {"role": message.get("role", "user"), "parts": parts}


def _json(value: Any) -> str:
    return encode(value).decode()


def _nanoseconds(time: str) -> int:
    # Through whole microseconds: a float has too few digits for nanoseconds.
    return round(datetime.fromisoformat(time).timestamp() * 1e6) * 1000


def _attributes(values: Record) -> list[Record]:
    """Return attributes in the JSON of OTLP; what is None is left out."""
    return [{"key": key, "value": _value(value)} for key, value in values.items() if value is not None]


def _value(value: Any) -> Record:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int) and -_MAX_INT <= value < _MAX_INT:
        return {"intValue": str(value)}  # 64 bits are a text in the JSON of protobuf
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {"stringValue": value if isinstance(value, str) else _json(value)}
