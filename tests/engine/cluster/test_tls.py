"""A cluster behind TLS: Dask's own configuration is all that it needs, and who has no certificate stays outside."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.cluster.harness import Batch, Cluster, content, local, make_project

pytestmark = [pytest.mark.req("WORK-40"), pytest.mark.slow]


def make_certificate(folder: Path) -> dict[str, str]:
    """Make a certificate that signs itself; return the variables that docs/scaling.md names."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    folder.mkdir()
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=evalloom"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    variables = {"CA_FILE": certificate}
    for role in ("CLIENT", "SCHEDULER", "WORKER"):
        variables |= {f"{role}__CERT": certificate, f"{role}__KEY": key}
    return {f"DASK_DISTRIBUTED__COMM__TLS__{name}": str(path) for name, path in variables.items()}


@pytest.fixture
def tls(tmp_path: Path) -> dict[str, str]:
    return make_certificate(tmp_path / "ours")


@pytest.fixture
def cluster(tmp_path: Path, tls: dict[str, str]) -> Iterator[Cluster]:
    """A scheduler and two workers that speak nothing but TLS."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    environment = {**tls, "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true"}
    cluster = Cluster(folder, "--protocol", "tls", **environment)
    try:
        cluster.add_worker(restarts=False, before=(), **environment)
        cluster.add_worker(restarts=False, before=(), **environment)
        yield cluster
    finally:
        cluster.close()


def test_the_batch_is_that_of_one_machine(cluster: Cluster, tls: dict[str, str], tmp_path: Path) -> None:
    assert cluster.address.startswith("tls://")
    folder = make_project(tmp_path / "project")
    code, expected = local(folder)
    batch = Batch(folder, "--executor", "dask", "--scheduler", cluster.address, **tls)
    ended, _, err = batch.end()
    assert ended == code, err
    assert content(batch.path()) == expected


def test_a_client_without_the_certificate_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    folder = make_project(tmp_path / "project", 3)
    stranger = make_certificate(tmp_path / "theirs")
    for environment, reason in (
        ({}, "needs TLS certificates"),
        (stranger, "is not of the authority that CA_FILE names"),
    ):
        code, _, err = Batch(folder, "--executor", "dask", "--scheduler", cluster.address, **environment).end()
        assert code == 3, err
        assert err.count("[scheduler_unreachable]") == 1 and reason in err, err
        assert "DASK_DISTRIBUTED__COMM__TLS__" in err
    assert not list(folder.glob(".evalloom/batches/*"))


def test_a_client_without_tls_is_refused(cluster: Cluster, tls: dict[str, str], tmp_path: Path) -> None:
    folder = make_project(tmp_path / "project", 3)
    address = cluster.address.replace("tls://", "tcp://")
    code, _, err = Batch(folder, "--executor", "dask", "--scheduler", address, **tls).end()
    assert code == 3 and "[scheduler_unreachable]" in err
    assert "tls://" in err
