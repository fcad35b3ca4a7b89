"""Projects, datasets and replays in one SQLite file."""
