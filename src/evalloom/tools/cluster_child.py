"""`python -m evalloom.tools.cluster_child`: a child process of a Dask worker; see engine/cluster/child.py."""

from evalloom import catalog
from evalloom.engine.cluster.child import main

if __name__ == "__main__":
    main(catalog.load())
