"""`python -m evalloom.engine.cluster.local N`: a scheduler and N workers on this machine, until stdin closes."""

from __future__ import annotations

import logging
import sys


def main() -> None:
    """Print the address of the scheduler, and wait for the end of stdin."""
    from distributed import LocalCluster

    # The client says what matters, and how a cluster ends does not.
    logging.disable(logging.CRITICAL)
    cluster = LocalCluster(  # type: ignore[no-untyped-call]
        n_workers=int(sys.argv[1]), threads_per_worker=1, processes=True, dashboard_address=None
    )
    print(cluster.scheduler_address, flush=True)
    sys.stdin.read()
    cluster.close(timeout=2)


if __name__ == "__main__":
    main()
