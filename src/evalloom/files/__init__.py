"""Files on disk as numbered rows, and rows back to disk."""
