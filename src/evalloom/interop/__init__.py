"""Reads the files of other tools into cases and checks."""
