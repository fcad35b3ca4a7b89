"""Registers HOP batch tests with evalloom: dialect, target, reporter and commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalloom.engine.system import System

if TYPE_CHECKING:
    from pathlib import Path

    import click

    from evalloom.batchlog.copy import Source
    from evalloom.core.model import Record
    from evalloom.data.dialect import Rules
    from evalloom.engine.example import Example
    from evalloom.engine.init import Starter
    from evalloom.engine.parts import Parts
    from evalloom.pages.page import Section
    from evalloom.reports import RunReporter
    from evalloom.targets.base import BuiltTarget, TargetOptions


def _hoplet(spec: Record, folder: Path, options: TargetOptions) -> BuiltTarget:
    from evalloom.hop.target import build

    return build(spec, folder, options)


def _check_contract(rules: Rules, file: str) -> Rules:
    from msgspec import structs

    from evalloom.hop.contract import read_contract

    return structs.replace(rules, contract=read_contract(file))


def _result_file() -> RunReporter:
    from evalloom.hop import report

    return report


def _stats() -> click.Command:
    from evalloom.hop.cli import command

    return command


def _results(path: Path) -> list[Source] | None:
    from evalloom.hop.results.sources import results_in

    return results_in(path)


def _starter() -> Starter:
    from evalloom.hop.starter import STARTER

    return STARTER


def _example() -> Example:
    from evalloom.hop.example import EXAMPLE

    return EXAMPLE


def _pages() -> Section:
    from evalloom.hop.pages import SECTION

    return SECTION


def _parts() -> Parts:
    from evalloom.engine.parts import Parts, RuleFlag
    from evalloom.hop.dialect import DIALECT
    from evalloom.reports.exporters import Exporter
    from evalloom.reports.lazy import LazyReporter
    from evalloom.targets.base import Kind

    what = "a hoplet: a task folder with Hoplet/Hop.py, or module:function"
    return Parts(
        dialects=(DIALECT,),
        targets=(Kind("hoplet", "TASK", what, _hoplet, ("observer",)),),
        reporters=(LazyReporter("hop", ".hop.jsonl", _result_file),),
        exporters=(Exporter("hop", ".hop.jsonl", _result_file, "HOP result file", needs_records=True),),
        rule_flags=(RuleFlag("--contract", "HOP: metainfo.md, YAML or FILE.py[:function].", _check_contract, "FILE"),),
        own_files=("observer.jsonl",),
        results=_results,
        result_command=_stats,
        starter=_starter,
        example=_example,
        pages=_pages,
    )


SYSTEM = System(
    name="hop",
    title="HOP batch tests",
    parts=_parts,
)
