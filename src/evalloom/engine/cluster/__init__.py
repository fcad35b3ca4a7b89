"""Runs a batch on the workers of a Dask cluster: the client keeps the log, each worker runs jobs in a child process."""
