"""The commands under the names people already type."""
