"""Computes figures from runs and verdicts: tallies, statistics, gates and comparisons."""
