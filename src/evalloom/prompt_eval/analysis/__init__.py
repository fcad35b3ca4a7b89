"""Scored cases in numbers: scorecard, bad cases, gates, and agreement with reviewers."""
