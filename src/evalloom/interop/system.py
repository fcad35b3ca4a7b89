"""The system that reads files of other tools, in one value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalloom.engine.system import System

if TYPE_CHECKING:
    from pathlib import Path

    from evalloom.engine.example import Example
    from evalloom.engine.parts import Parts
    from evalloom.engine.suite import Suite, SuiteOptions
    from evalloom.reports import RunReporter


def _example() -> Example:
    from evalloom.interop.example import EXAMPLE

    return EXAMPLE


def _promptfoo() -> RunReporter:
    from evalloom.interop.promptfoo import results

    return results


def _openai_evals() -> RunReporter:
    from evalloom.interop import openai_evals_log

    return openai_evals_log


def _suite(path: Path, options: SuiteOptions) -> Suite | None:
    from evalloom.interop.promptfoo.suite import read_suite

    return read_suite(path, options)


def _parts() -> Parts:
    from evalloom.engine.parts import Parts
    from evalloom.interop import deepeval, inspect_samples, matchers, openai_evals, pydantic_evals, ragas
    from evalloom.interop.promptfoo import dialect as promptfoo
    from evalloom.interop.promptfoo.matchers import MATCHERS as PROMPTFOO_MATCHERS
    from evalloom.reports.exporters import Exporter

    what = "results of 'promptfoo eval -o x.json', version 3"
    promptfoo_results = Exporter("promptfoo", ".promptfoo.json", _promptfoo, what)
    return Parts(
        dialects=(
            promptfoo.DIALECT,
            openai_evals.DIALECT,
            inspect_samples.DIALECT,
            deepeval.DIALECT,
            ragas.DIALECT,
            pydantic_evals.DIALECT,
        ),
        suite=_suite,
        matchers=(*PROMPTFOO_MATCHERS, *matchers.MATCHERS),
        reporters=(promptfoo_results,),
        exporters=(
            promptfoo_results,
            Exporter("openai-evals", ".evals.jsonl", _openai_evals, "log of 'oaieval'"),
        ),
        example=_example,
    )


SYSTEM = System(name="interop", title="Files of other tools", parts=_parts)
