"""A server that is as strict as the vendors: `python vendor_server.py` prints its port.

Every request must have the path, the header with the key, and a body of the vendor's schema; otherwise the answer is
an error as the vendor words it. What it answers is chosen by the prompt: `call`, `refuse`, `long`, `think`, or an echo.
`GET /requests` lists what came: path, query, headers in lower case, body.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from jsonschema_rs import validator_for

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.llms.vendor_schemas import CHAT, EMBEDDINGS, MESSAGES, MISTRAL, RESPONSES

KEY = "test-key-1234567890"
VALIDATORS = {
    name: validator_for(schema)
    for name, schema in (
        ("chat", CHAT),
        ("responses", RESPONSES),
        ("messages", MESSAGES),
        ("mistral", MISTRAL),
        ("embeddings", EMBEDDINGS),
    )
}
ROUTES = {
    "/v1/chat/completions": ("chat", "authorization"),
    "/v1/responses": ("responses", "authorization"),
    "/v1/embeddings": ("embeddings", "authorization"),
    "/v1/messages": ("messages", "x-api-key"),
    "/mistral/v1/chat/completions": ("mistral", "authorization"),
    "/openai/v1/chat/completions": ("chat", "api-key"),
    "/openai/v1/responses": ("responses", "api-key"),
    "/openai/deployments/my-gpt/chat/completions": ("chat", "api-key"),
    "/openai/deployments/my-gpt/embeddings": ("embeddings", "api-key"),
}
REASONING = ("o4-mini", "gpt-5", "future-model")
SEEN: list[dict[str, Any]] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self.answer(200, SEEN)

    def do_POST(self) -> None:
        parts = urlsplit(self.path)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        SEEN.append({"path": parts.path, "query": parse_qs(parts.query), "headers": headers, "body": body})
        if parts.path.startswith("/moved/"):
            self.send_response(307)
            self.send_header("Location", f"http://{self.headers['Host']}/v1/chat/completions")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif parts.path not in ROUTES:
            self.refuse(404, f"Invalid URL (POST {parts.path})")
        else:
            self.check(*ROUTES[parts.path], parse_qs(parts.query), headers, body)

    def check(self, kind: str, key_header: str, query: dict[str, Any], headers: dict[str, str], body: Any) -> None:
        expected = f"Bearer {KEY}" if key_header == "authorization" else KEY
        keys = {name for name in ("authorization", "x-api-key", "api-key") if name in headers}
        if headers.get(key_header) != expected or keys != {key_header}:
            return self.refuse(401, f"expected the key in {key_header} alone, got {sorted(keys)}")
        if kind == "messages" and headers.get("anthropic-version") != "2023-06-01":
            return self.refuse(400, "anthropic-version: header is required")
        if "/deployments/" in self.path and not query.get("api-version"):
            return self.refuse(404, "Resource not found")
        if errors := [error.message for error in VALIDATORS[kind].iter_errors(body)]:
            return self.refuse(422 if kind == "mistral" else 400, "; ".join(errors)[:300])
        if body["model"] in REASONING and (problem := refused_by_reasoning(kind, body)):
            return self.refuse(400, problem)
        if kind == "messages" and body.get("thinking", {}).get("type") in ("enabled", "adaptive"):
            if body.get("temperature", 1) != 1 or "top_k" in body:
                return self.refuse(400, "`temperature` may only be set to 1 when thinking is enabled")
            if body["thinking"].get("budget_tokens", 0) >= body["max_tokens"]:
                return self.refuse(400, "`max_tokens` must be greater than `thinking.budget_tokens`")
        self.answer(
            200, {"chat": chat, "mistral": chat, "responses": responses, "messages": messages}.get(kind, embed)(body)
        )

    def refuse(self, status: int, message: str) -> None:
        self.answer(status, {"error": {"message": message, "type": "invalid_request_error"}})

    def answer(self, status: int, body: Any) -> None:
        encoded = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)


def refused_by_reasoning(kind: str, body: dict[str, Any]) -> str:
    for name in ("temperature", "top_p", "presence_penalty", "frequency_penalty"):
        if name in body and kind == "chat":
            value = json.dumps(body[name])
            return (
                f"Unsupported value: '{name}' does not support {value} with this model. Only the default is supported."
            )
        if name in body:
            return f"Unsupported parameter: '{name}' is not supported with this model."
    if kind == "chat" and "max_tokens" in body:
        return (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        )
    return ""


def last_text(messages: Any) -> str:
    if isinstance(messages, str):
        return messages
    content = messages[-1].get("content") or messages[-1].get("output") or ""
    return content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content)


def chat(body: dict[str, Any]) -> dict[str, Any]:
    prompt = last_text(body["messages"])
    message: dict[str, Any] = {"role": "assistant", "content": f"echo: {prompt}", "refusal": None}
    finish = "stop"
    if prompt == "call":
        call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Berlin"}'}}
        message, finish = {**message, "content": None, "tool_calls": [call]}, "tool_calls"
    elif prompt == "refuse":
        message = {**message, "content": None, "refusal": "I cannot help with that."}
    elif prompt == "long":
        finish = "length"
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    if body.get("logprobs"):
        choice["logprobs"] = {"content": [{"token": "echo", "logprob": -0.25, "bytes": None, "top_logprobs": []}]}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return {"id": "c", "object": "chat.completion", "model": body["model"], "choices": [choice], "usage": usage}


def responses(body: dict[str, Any]) -> dict[str, Any]:
    prompt = last_text(body["input"])
    text: dict[str, Any] = {"type": "output_text", "text": f"echo: {prompt}", "annotations": []}
    if "message.output_text.logprobs" in body.get("include", []):
        text["logprobs"] = [{"token": "echo", "logprob": -0.25, "bytes": [], "top_logprobs": []}]
    content = [text]
    if prompt == "refuse":
        content = [{"type": "refusal", "refusal": "I cannot help with that."}]
    output: list[dict[str, Any]] = [
        {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content}
    ]
    if prompt == "call":
        call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather", "status": "completed"}
        output = [{**call, "arguments": '{"city":"Berlin"}'}]
    if prompt == "think":
        output.insert(0, {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]})
    is_long = prompt == "long"
    return {
        "id": "resp_1",
        "object": "response",
        "status": "incomplete" if is_long else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if is_long else None,
        "model": body["model"],
        "output": output,
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 4},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 15,
        },
    }


def messages(body: dict[str, Any]) -> dict[str, Any]:
    prompt = last_text(body["messages"])
    content: list[dict[str, Any]] = [{"type": "text", "text": f"echo: {prompt}"}]
    stop = {"long": "max_tokens", "refuse": "refusal"}.get(prompt, "end_turn")
    if prompt == "call":
        content, stop = [{"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Berlin"}}], "tool_use"
    if prompt == "think":
        content.insert(0, {"type": "thinking", "thinking": "hm", "signature": "s"})
    usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    return {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": usage,
    }


def embed(body: dict[str, Any]) -> dict[str, Any]:
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    rows = [{"object": "embedding", "index": n, "embedding": [float(len(text)), 1.0]} for n, text in enumerate(texts)]
    return {"object": "list", "data": rows, "model": body["model"], "usage": {"prompt_tokens": 3, "total_tokens": 3}}


def stop_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(0)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=stop_with, args=(os.getppid(),), daemon=True).start()
    print(server.server_address[1], flush=True)
    server.serve_forever()
