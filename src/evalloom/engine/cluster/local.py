"""`python -m evalloom.engine.cluster.local N`: a scheduler and N workers on this machine, until stdin closes."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from tempfile import TemporaryDirectory


def main() -> None:
    """Print the address of the scheduler, wait for the end of stdin, and end every process of this session."""
    from distributed import LocalCluster

    # The client says what matters, and how a cluster ends does not.
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    with TemporaryDirectory(prefix="evalloom-workers-", ignore_cleanup_errors=True) as folder:
        cluster = LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=int(sys.argv[1]),
            threads_per_worker=1,
            processes=True,
            # Only this machine may reach it.
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            local_directory=folder,
        )
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
    # Batches are closed by now, or their client was killed: an orderly end would take seconds.
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
