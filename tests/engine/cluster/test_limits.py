"""Limits, budgets and keys of a batch on a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.engine.cluster.harness import Batch, Cluster, content, make_project, read_lines

if TYPE_CHECKING:
    from tests.llms.serving import Server

pytestmark = [pytest.mark.req("WORK-40"), pytest.mark.slow]
KEY = "sk-only-workers-have-this-0123456789"


def make_prompts(folder: Path, url: str, cases: int, more: str = "", model: str = "slow-100") -> Path:
    """Write a project whose target asks an llm."""
    llm = f"llms: {{far: {{base_url: '{url}', model: {model}, {more}}}}}\n"
    make_project(folder, cases, "prompt:prompt.md", llm)
    (folder / "prompt.md").write_text("say: {{q}}")
    return folder


def test_concurrency_is_shared_out(cluster: Cluster, tmp_path: Path, serve: Callable[..., Server]) -> None:
    server = serve()
    folder = make_prompts(tmp_path / "project", server.url, 60)
    batch = Batch(folder, "--executor", "dask", "--scheduler", cluster.address, "-j", "5")
    batch.wait_for_runs(5)
    cluster.add_worker()
    assert batch.end()[0] == 0
    assert server.stats()["max_in_flight"] <= 5
    assert server.stats()["requests"] == 60


def test_an_llm_with_one_request_at_once_keeps_that(
    cluster: Cluster, tmp_path: Path, serve: Callable[..., Server]
) -> None:
    server = serve()
    folder = make_prompts(tmp_path / "project", server.url, 10, "concurrency: 1")
    assert Batch(folder, "--executor", "dask", "--scheduler", cluster.address).end()[0] == 0
    assert server.stats()["max_in_flight"] == 1


def test_requests_per_minute_are_shared_out(cluster: Cluster, tmp_path: Path, serve: Callable[..., Server]) -> None:
    server = serve()
    folder = make_prompts(tmp_path / "project", server.url, 12, "requests_per_minute: 120", "instant")
    batch = Batch(folder, "--executor", "dask", "--scheduler", cluster.address)
    assert batch.end()[0] == 0
    ends = sorted(run["started_at"][-13:] + str(run["duration_s"]) for run in read_lines(batch.path() / "runs.jsonl"))
    assert len(ends) == 12
    # Each worker sends one at once and then one a second, so six of them take five.
    assert max(run["duration_s"] for run in read_lines(batch.path() / "runs.jsonl")) > 3


@pytest.mark.parametrize("flag, limit", [("--max-tokens", "300"), ("--max-cost", "0.3")])
def test_a_budget_ends_the_batch(
    cluster: Cluster, tmp_path: Path, serve: Callable[..., Server], flag: str, limit: str
) -> None:
    server = serve()
    price = "price: {input: 1000, output: 1000}"
    folder = make_prompts(tmp_path / "project", server.url, 100, price)
    here = Batch(folder, flag, limit, "-j", "4", "--no-cache")
    code, out, _ = here.end()
    assert code == 3 and f"{flag} {limit} is reached" in out
    before = server.stats()["requests"]
    there = Batch(folder, "--executor", "dask", "--scheduler", cluster.address, flag, limit, "-j", "4", "--no-cache")
    code, out, _ = there.end()
    assert code == 3 and f"{flag} {limit} is reached" in out
    # What is in flight when the limit is reached is paid for, here as there.
    assert abs(server.stats()["requests"] - 2 * before) <= 4
    assert len(content(there.path())[0]) == server.stats()["requests"] - before


def test_a_budget_that_is_not_reached_ends_nothing(
    cluster: Cluster, tmp_path: Path, serve: Callable[..., Server]
) -> None:
    server = serve()
    folder = make_prompts(tmp_path / "project", server.url, 30, "", "instant")
    probe = Batch(folder, "--json", "--no-cache")
    summary = json.loads(probe.end()[1])
    used = summary["input_tokens"] + summary["output_tokens"] if "input_tokens" in summary else summary["tokens"]
    batch = Batch(
        folder, "--executor", "dask", "--scheduler", cluster.address, "--max-tokens", str(used + 1), "--no-cache"
    )
    code, out, err = batch.end()
    assert code == 0, (out, err)


def test_keys_are_those_of_the_workers(tmp_path: Path, serve: Callable[..., Server]) -> None:
    server = serve()
    folder = make_prompts(tmp_path / "project", server.url, 4, "key_env: FAR_KEY", "mirror")
    (tmp_path / "cluster").mkdir()
    cluster = Cluster(tmp_path / "cluster")
    try:
        cluster.add_worker(FAR_KEY=KEY)
        batch = Batch(folder, "--executor", "dask", "--scheduler", cluster.address, "--no-cache")
        batch.end()
        outputs = [run["output"]["value"] for run in content(batch.path())[0].values()]
        assert all("Bearer [hidden]" in output for output in outputs)
        everything = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        assert KEY.encode() not in everything
    finally:
        cluster.close()


def test_a_worker_without_the_key_says_so(cluster: Cluster, tmp_path: Path) -> None:
    folder = make_prompts(tmp_path / "project", "https://llm.example.com/v1", 4, "key_env: FAR_KEY")
    batch = Batch(folder, "--executor", "dask", "--scheduler", cluster.address, FAR_KEY=KEY)
    code, _, err = batch.end()
    assert code == 3
    reasons = err.partition("no worker of the cluster can run this batch:\n")[2].splitlines()
    assert len(reasons) == 2
    assert all("worker tcp://127.0.0.1:" in line and "no API key. Set FAR_KEY" in line for line in reasons)


def test_a_key_in_a_file_goes_nowhere(cluster: Cluster, tmp_path: Path) -> None:
    folder = make_prompts(tmp_path / "project", "https://llm.example.com/v1", 4, "key_env: FAR_KEY")
    (folder / "notes.txt").write_text(f"my key is {KEY}")
    batch = Batch(folder, "--executor", "dask", "--scheduler", cluster.address, FAR_KEY=KEY)
    code, _, err = batch.end()
    assert code == 2 and "notes.txt" in err and "[key_in_bundle]" in err


def test_an_outage_ends_the_batch(cluster: Cluster, tmp_path: Path, serve: Callable[..., Server]) -> None:
    server = serve()
    folder = make_prompts(tmp_path / "project", server.url, 30, "retries: 0", "status-401")
    batch = Batch(folder, "--executor", "dask", "--scheduler", cluster.address, "-j", "4")
    code, out, err = batch.end()
    assert code == 3, (out, err)
    assert "[llm_unavailable]" in out + err
    assert json.loads((batch.path() / "batch.json").read_text())["outages"] == ["far"]
