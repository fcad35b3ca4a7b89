"""HOP batch tests: everything that the system adds to evalloom, in one value."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from evalloom.core.model import Record
from evalloom.data.dialect import Rules
from evalloom.engine.system import Command, RuleFlag, System
from evalloom.hop.dialect import DIALECT
from evalloom.hop.example import EXAMPLE
from evalloom.reports.lazy import LazyReporter
from evalloom.targets.base import BuiltTarget, Kind, TargetOptions

if TYPE_CHECKING:
    import click

    from evalloom.engine.init import Starter
    from evalloom.reports import RunReporter


def _hoplet(spec: Record, folder: Path, options: TargetOptions) -> BuiltTarget:
    from evalloom.hop.target import build

    return build(spec, folder, options)


def _check_contract(rules: Rules, file: str) -> Rules:
    from evalloom.hop.contract import read_contract

    return structs.replace(rules, contract=read_contract(file))


def _result_file() -> RunReporter:
    from evalloom.hop import report

    return report


def _stats() -> click.Command:
    from evalloom.hop.cli import command

    return command


def _starter() -> Starter:
    from evalloom.hop.starter import STARTER

    return STARTER


SYSTEM = System(
    name="hop",
    title="HOP batch tests",
    dialects=(DIALECT,),
    targets=(
        Kind(
            "hoplet", "TASK", "a hoplet: a task folder with Hoplet/Hop.py, or module:function", _hoplet, ("observer",)
        ),
    ),
    reporters=(LazyReporter("hop", ".hop.jsonl", _result_file),),
    rule_flags=(RuleFlag("--contract", "HOP: metainfo.md, YAML or FILE.py[:function].", _check_contract, "FILE"),),
    commands=(Command("stats", "Say how the HOP results in a folder fared, and compare profiles.", _stats),),
    own_files=("observer.jsonl",),
    starter=_starter,
    example=EXAMPLE,
)
