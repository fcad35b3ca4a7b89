"""`validate_eval_cases`: checks RAG eval cases, with its established flags and defaults (RAG-1 … RAG-5)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
import msgspec

from evalloom.cli import app
from evalloom.console.catalog import current_catalog
from evalloom.console.options import existing_folder, print_findings, refuse_overwriting
from evalloom.console.streams import open_standard_streams
from evalloom.core.clock import utc_now
from evalloom.core.errors import usage_error
from evalloom.core.model import Checked, Finding, Origin
from evalloom.data.dialect import Rules
from evalloom.engine.lint import LintOptions, lint_sources
from evalloom.files.source import Source
from evalloom.files.write import write_text
from evalloom.reports import lint_json, lint_markdown
from evalloom.reports.lint import LintReport

TOOL = "validate_eval_cases"


@click.command(TOOL, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--root", default=".", show_default=True, metavar="DIR", help="Project root; paths are relative to it.")
@click.option(
    "--cases", default="data_processed/eval/eval_cases.jsonl", show_default=True, metavar="FILE", help="Case file."
)
@click.option("--check-sources-exist", is_flag=True, help="Check that expected sources exist under the root.")
@click.option(
    "--check-must-include-in-sources", is_flag=True, help="Check that expected sources contain every must_include."
)
@click.option(
    "--out",
    default="data_processed/build_reports/eval_cases_validation.json",
    show_default=True,
    metavar="FILE",
    help="JSON report; an empty string writes none.",
)
@click.option("--md-out", default="", metavar="FILE", help="Markdown report. Default: --out with the suffix .md.")
@click.option("--skip-if-missing", is_flag=True, help="Warn and exit with 0 if there is no case file.")
@click.option("--strict-bucket", is_flag=True, help="Treat a missing bucket as an error.")
@click.option("--strict-pair-id", is_flag=True, help="Treat a missing or empty pair_id as an error.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    root: str,
    cases: str,
    check_sources_exist: bool,
    check_must_include_in_sources: bool,
    out: str,
    md_out: str,
    skip_if_missing: bool,
    strict_bucket: bool,
    strict_pair_id: bool,
    as_json: bool,
) -> int:
    """Check RAG eval cases: structure, sources, buckets and pairs.

    Exit codes: 0 PASS; 2 FAIL; 3 could not run.
    """
    folder = existing_folder(root)
    markdown = md_out or (os.path.splitext(Path(out))[0] + ".md" if out else "")
    if out and os.path.normpath(out) == os.path.normpath(markdown):
        raise usage_error("would_overwrite", f"--out {out}: the Markdown report would take its place. Name a --md-out")
    written = [name for name in (out, markdown) if name]
    refuse_overwriting((folder / name for name in written), [folder / cases])
    rules = Rules(folder, check_sources_exist, check_must_include_in_sources, strict_bucket, strict_pair_id)
    if skip_if_missing and not os.path.exists(folder / cases):
        report = _skipped(folder, cases)
    else:
        options = LintOptions(dialect="rag", rules=rules, hints=False, tool=TOOL)
        path = folder / cases
        report = relative_to_root(
            lint_sources([Source(path.as_posix(), path)], current_catalog(), options), folder, cases
        )
    if as_json:
        click.echo(lint_json.render(report), nl=False)
    else:
        print_findings(report, is_spaced=True)
    if out:
        write_text(folder / out, lint_json.render(report))
    if markdown:
        write_text(folder / markdown, lint_markdown.render(report))
    if written:
        click.echo(f"report: {', '.join(written)}", err=True)
    return report.exit_code


def relative_to_root(report: LintReport, root: Path, cases: str) -> LintReport:
    """Return the report with the case file named relative to the root, as the user named it."""
    here = Path(cases).as_posix()
    there = (root / cases).as_posix()

    def moved(finding: Finding) -> Finding:
        if finding.origin.file != there:
            return finding
        return msgspec.structs.replace(finding, origin=msgspec.structs.replace(finding.origin, file=here))

    checked = [
        msgspec.structs.replace(one, file=here, findings=[moved(finding) for finding in one.findings])
        for one in report.checked
    ]
    return msgspec.structs.replace(report, checked=checked, base=root)


def _skipped(root: Path, cases: str) -> LintReport:
    message = "there is no cases file yet; skipped, as --skip-if-missing asks"
    finding = Finding("cases_missing", "warning", message, Origin(Path(cases).as_posix()))
    counts = {(finding.code, finding.severity): 1}
    checked = Checked(finding.origin.file, "rag", "--skip-if-missing", 0, 0, [finding], counts)
    return LintReport([checked], TOOL, root, utc_now(), base=root)


def main() -> None:
    """The entry point."""
    open_standard_streams()
    sys.exit(app.run(sys.argv[1:], command, TOOL))


if __name__ == "__main__":
    main()
