"""The command line: flags in, exit code out, one file per command."""
