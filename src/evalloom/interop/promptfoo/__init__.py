"""promptfoo: tests, tables and configuration files."""
