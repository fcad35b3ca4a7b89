"""The workbench over HTTP: projects, datasets, replays and runs as JSON (REPLAY-12 to REPLAY-16)."""
