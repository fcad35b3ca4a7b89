"""Runs and verdicts in, figures out: what a batch comes to, and whether that is good enough."""
