"""A real LiteLLM proxy on loopback: `EVALLOOM_LITELLM=…/bin/litellm pytest tests/llms/test_litellm.py`.

LiteLLM with its proxy takes 740 MB, so it is not among the development tools: without the variable there is no test here.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from evalloom.core.model import Request, Response
from evalloom.llms import LlmOptions, Llms
from evalloom.settings import Settings

LITELLM = os.environ.get("EVALLOOM_LITELLM", "")
KEY = "sk-proxy-1234567890abcdef"
CONFIG = f"""
model_list:
  - {{model_name: small, litellm_params: {{model: openai/gpt-4o, api_key: none, mock_response: "Hello"}}}}
  - {{model_name: gpt-5, litellm_params: {{model: openai/gpt-5, api_key: none, mock_response: "Hello"}}}}
general_settings: {{master_key: {KEY}}}
"""
PARAMS = {"temperature": 0, "max_tokens": 40}


async def ask_all(warnings: list[str]) -> list[Response]:
    llms = Llms(Settings(), LlmOptions(use_cache=False), warnings.append)
    names = ["litellm:small", "litellm/small", "litellm:responses:small", "litellm:gpt-5"]
    request = Request([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}], params=PARAMS)
    try:
        return [await llms.get(name)(request) for name in names]
    finally:
        await llms.close()


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < end:
        try:
            opener.open(f"{url}/health/liveliness", timeout=2).close()
            return
        except OSError:
            time.sleep(0.5)
    raise RuntimeError(f"the proxy did not start: exit code {process.poll()}")


if LITELLM:

    def test_a_proxy_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unused_port: int) -> None:
        (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
        command = [LITELLM, "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(unused_port)]
        environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "*"}
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
        try:
            wait_for(url := f"http://127.0.0.1:{unused_port}", process)
            monkeypatch.setenv("LITELLM_BASE_URL", url)
            monkeypatch.setenv("LITELLM_API_KEY", KEY)
            warnings: list[str] = []
            answers = asyncio.run(ask_all(warnings))
        finally:
            process.kill()
            process.wait()
        assert [answer.text for answer in answers] == ["Hello"] * 4
        assert all(answer.stop == "stop" and answer.usage.output_tokens > 0 for answer in answers)
        assert len(warnings) == 1 and "temperature" in warnings[0]
