"""Statistics and queries over a folder of HOP result files."""
