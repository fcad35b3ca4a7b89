"""`batchhoptest`: checks a HOP task's data against its contract. Running it is not part of this version."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from evalloom.cli import app
from evalloom.cli.options import print_findings
from evalloom.contract import read_contract
from evalloom.dialects.dialect import Rules
from evalloom.errors import EvalloomError, usage_error
from evalloom.workbench.lint import LintOptions, lint

TOOL = "batchhoptest"


@click.command(TOOL, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--task", required=True, help="Task folder with Hoplet/metainfo.md and TestCases/.")
@click.option("--data", default="", help="Cases to check; by default every file of the task's TestCases/.")
def command(task: str, data: str) -> int:
    """Check the cases of a HOP task against its contract.

    Exit codes: 2 the cases have errors, 3 they are fine but cannot be run: this version only checks them.
    """
    folder = Path(task)
    metainfo = folder / "Hoplet" / "metainfo.md"
    if not metainfo.is_file():
        raise usage_error("task_missing", f"--task {task}: expected a folder with Hoplet/metainfo.md in it")
    rules = Rules(contract=read_contract(str(metainfo)))
    report = lint([data or str(folder / "TestCases")], LintOptions(dialect="hop", rules=rules, tool=TOOL))
    print_findings(report)
    if not report.passed:
        return report.exit_code
    raise EvalloomError("cannot_run_yet", "the cases are fine, but this version of evalloom does not run them")


def main() -> None:
    """The entry point."""
    sys.exit(app.run(sys.argv[1:], command, TOOL))


if __name__ == "__main__":
    main()
