"""The demo: every bundled example run and checked."""
