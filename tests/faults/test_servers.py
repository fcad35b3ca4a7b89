"""Servers that refuse, hang, break off and talk nonsense: each is an error of its run; one that refuses all ends it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.faults.conftest import Suite
    from tests.llms.serving import Server

pytestmark = pytest.mark.slow

BAD = {
    "hang": "[timeout]",
    "drop": "[connection_broke]",
    "cut": "[connection_broke]",
    "not-http": "[bad_answer]",
    "garbage": "[bad_answer]",
    "html": "[bad_answer]",
    "wrong-json": "[bad_answer]",
    "no-json-object": "[bad_answer]",
    "empty": "[bad_answer]",
    "error-200": "something broke inside",
    "huge": "[answer_too_large]",
    "status-404": "[http_404]",
    "status-500": "[http_500]",
}


def test_bad_answers_are_errors_of_their_run_and_the_batch_goes_on(suite: Suite, serve: Callable[..., Server]) -> None:
    server = serve()
    suite.settings(server.url, "retries: 0")
    suite.cases([f"[[{mode}]]" for mode in BAD] + [f"say: fine {number}" for number in range(20)])
    done = suite.run("run", "--timeout", "1.5", "-j", "4")
    errors = {run["case_id"]: run.get("error", "") for run in suite.lines()}
    assert done.returncode == 1 and len(errors) == len(BAD) + 20
    for number, (mode, told) in enumerate(BAD.items()):
        assert told in errors[f"c{number}"], (mode, errors[f"c{number}"])
        assert len(errors[f"c{number}"]) < 500, mode
    assert not any(errors[f"c{len(BAD) + number}"] for number in range(20))


def test_thousand_cases_survive_429_500_and_drops(suite: Suite, serve: Callable[..., Server]) -> None:
    server = serve(p429=0.1, retry_after=1, p500=0.05, pdrop=0.01, seed=7)
    suite.settings(server.url)
    suite.cases(f"{number} say: {number}" for number in range(1000))
    found = suite.summary()
    assert (found["total"], found["passed"], found["error"]) == (1000, 1000, 0)
    assert set(Counter(run["case_id"] for run in suite.lines()).values()) == {1}
    stats = server.stats()
    assert stats["answered"] == 1000 and stats["answered_again"] == 0
    assert 100 < found["retries"] <= stats["requests"] - 1000
    assert found["duration_s"] < 60


def test_retry_after_delays_that_request_only(suite: Suite, serve: Callable[..., Server]) -> None:
    server = serve(retry_after=1)
    suite.settings(server.url)
    suite.cases(["[[limited-1]] say: late", *(f"{case} say: {case}" for case in range(30))])
    assert suite.summary("-j", "1")["passed"] == 31
    assert [run["case_id"] for run in suite.lines()][-1] == "c0", "the others did not wait for it"


def test_identical_requests_in_flight_are_sent_once_also_when_they_are_retried(
    suite: Suite, serve: Callable[..., Server]
) -> None:
    server = serve()
    suite.settings(server.url, "temperature: 0")
    suite.cases(["[[flaky-1]] say: same"] * 40)
    found = suite.summary("-j", "4")
    assert (found["passed"], found["cached"], found["retries"]) == (40, 39, 1)
    assert server.stats()["requests"] == 2


def test_other_4xx_are_not_tried_again(suite: Suite, serve: Callable[..., Server]) -> None:
    server = serve()
    suite.settings(server.url)
    suite.cases([f"[[status-{status}]]" for status in (400, 401, 403, 404, 422)])
    found = suite.summary()
    assert (found["error"], found["retries"], server.stats()["requests"]) == (5, 0, 5)


def test_server_that_is_not_there(suite: Suite) -> None:
    suite.settings("http://127.0.0.1:9", "retries: 0")
    suite.cases(["a", "b"])
    done = suite.run("run")
    assert done.returncode == 3 and "cannot connect to 127.0.0.1:9" in done.stderr and not suite.lines()
    assert "llm 'far' at http://127.0.0.1:9 cannot be used" in done.stderr and "--resume" in done.stdout


REFUSING = {
    "status-401": "HTTP 401: the server says 401",
    "status-403": "HTTP 403: the server says 403",
    "no-model": "HTTP 404: The model `no-model` does not exist",
}


@pytest.mark.req("WORK-42")
@pytest.mark.parametrize("model", REFUSING)
def test_an_llm_that_refuses_the_first_calls_ends_the_batch(
    suite: Suite, serve: Callable[..., Server], model: str
) -> None:
    server = serve()
    suite.settings(server.url)
    settings = suite.folder.joinpath("evalloom.yaml").read_text(encoding="utf-8")
    suite.write("evalloom.yaml", settings.replace("test-model", model))
    suite.cases(f"{number} say: {number}" for number in range(300))
    done = suite.run("run", "-j", "8", "--json")
    assert done.returncode == 3 and server.stats()["requests"] <= 8
    assert f"{REFUSING[model]}" in done.stderr and f"({server.url}/chat/completions)" in done.stderr
    problem = json.loads(done.stdout)["problem"]
    assert problem["code"] == "llm_unavailable" and not suite.lines()


def test_a_batch_that_ended_so_is_resumed(suite: Suite, serve: Callable[..., Server], unused_port: int) -> None:
    suite.settings(f"http://127.0.0.1:{unused_port}", "retries: 0")
    suite.cases(f"{number} say: {number}" for number in range(20))
    assert suite.run("run").returncode == 3
    serve(port=unused_port)
    assert suite.run("run", "--resume").returncode == 0 and len(suite.lines()) == 20
