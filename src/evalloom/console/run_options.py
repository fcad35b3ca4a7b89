"""The flags of `evalloom run`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from evalloom.core.errors import usage_error
from evalloom.engine.system import Catalog
from evalloom.targets import forms

Command = TypeVar("Command", bound=Callable[..., Any])


class CatalogOption(click.Option):
    """An option whose help names parts of the catalog; `describe` makes it of them."""

    def __init__(self, *names: Any, describe: Callable[[Catalog], str], **more: Any) -> None:
        super().__init__(*names, **more)
        self._describe = describe

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        self.help = self._describe(ctx.find_object(Catalog) or Catalog())
        return super().get_help_record(ctx)


def suffixes(catalog: Catalog) -> str:
    """The extensions of the files that results can be written to."""
    return " ".join(reporter.suffix for reporter in catalog.reporters)


_OUTPUT = click.option(
    "-o",
    "--output",
    multiple=True,
    metavar="FILE",
    cls=CatalogOption,
    describe=lambda catalog: f"Also write the results: {suffixes(catalog)}",
)
_WHAT = (
    click.option("--config", default="", metavar="FILE", help="Settings; by default ./evalloom.yaml."),
    click.option("--target", default="", cls=CatalogOption, describe=lambda catalog: forms(catalog.all_targets)),
    click.option("--profile", "profiles", multiple=True, metavar="P", help="A profile or llm; may be repeated."),
    click.option("-j", "--concurrency", type=int, metavar="N", help="Runs at once; 16 by default."),
    click.option("--repeat", type=int, metavar="N", help="Run each case N times."),
    click.option("--variants", multiple=True, metavar="A,B", help="Variants of the target, side by side."),
)
_HOW = (
    click.option("--limit", type=int, metavar="N", help="Only the first N cases."),
    click.option("--tags", multiple=True, metavar="T,…", help="Only cases with one of these tags."),
    click.option("--filter", "filter", metavar="EXPR", help="Only cases for which this holds, e.g. 'len(text) < 80'."),
    click.option("--judge", default="", metavar="LLM", help="Who answers for judge checks."),
    click.option("--no-cache", is_flag=True, help="Ask again what was answered before at temperature 0."),
    click.option("--allow-code", is_flag=True, help="Run code of data files, in a sandbox."),
    click.option("--skip-invalid", is_flag=True, help="Run the cases without errors; count the others as error."),
    click.option("--resume", is_flag=True, help="Go on with the newest batch of this dataset, target and profiles."),
    click.option("--resume-from", default="", metavar="BATCH", help="Take over what still holds from this batch."),
    click.option("--retry-errors", is_flag=True, help="With --resume: run again what ended in an error."),
    click.option("--dry-run", is_flag=True, help="Say what would be run and what it may cost; run nothing."),
    click.option("--max-cost", type=float, metavar="X", help="Stop when so much is spent."),
    click.option("--max-tokens", type=int, metavar="N", help="Stop when so many tokens are used."),
    click.option("--max-time", type=float, metavar="S", help="Stop after so many seconds."),
    click.option("--timeout", "timeout_s", type=float, metavar="S", help="Give up on a run after so many seconds."),
    click.option("--fail-under", metavar="RATE", help="Exit code 1 below this pass rate, instead of on any failure."),
    click.option("--record", default="", metavar="FILE", help="Write every answer of the llms to this file."),
    click.option("--replay", default="", metavar="FILE", help="Take every answer from a file that --record wrote."),
    _OUTPUT,
    click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object."),
)
_WATCH = click.option("--watch", is_flag=True, help="Run again what a change of the files affects, until Ctrl-C.")


def run_options(command: Command) -> Command:
    """All flags of `evalloom run`, in this order."""
    return _with((*_WHAT, *_HOW, _WATCH), command)


def engine_options(command: Command) -> Command:
    """The flags that mean the same in every command that runs cases, under whichever name."""
    return _with(_HOW, command)


def options_without_output(command: Command) -> Command:
    """The same for a command that has an `-o` of its own."""
    return _with(tuple(one for one in _HOW if one is not _OUTPUT), command)


def _with(options: tuple[Callable[[Command], Command], ...], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def refuse_conflicts(datasets: tuple[str, ...], flags: dict[str, Any]) -> None:
    """Refuses flags of which one would be passed over in silence."""
    is_resumed = flags["resume"] or flags["resume_from"]
    for is_wrong, message in (
        (flags["retry_errors"] and not is_resumed, "--retry-errors: goes with --resume or --resume-from"),
        (flags["resume"] and flags["resume_from"], "--resume and --resume-from: expected one of them, got both"),
        (flags["record"] and flags["replay"], "--record and --replay: expected one of them, got both"),
        (flags["watch"] and flags["dry_run"], "--watch and --dry-run: expected one of them, got both"),
        (flags["watch"] and "-" in datasets, "--watch: expected a file to watch, got '-' (stdin). Write it to a file"),
    ):
        if is_wrong:
            raise usage_error("bad_option", message)


def settings_of(flags: dict[str, Any]) -> dict[str, Any]:
    """The flags that were given, as fields of RunSettings."""
    given = {name: flags[name] for name in _PLAIN if flags[name] is not None}
    for name in ("profiles", "tags", "variants"):
        if flags[name]:
            given[name] = [part for text in flags[name] for part in parted(text)]
    if flags["no_cache"]:
        given["cache"] = False
    if flags["skip_invalid"]:
        given["skip_invalid"] = True
    if flags["output"]:
        given["output"] = list(flags["output"])
    if flags["fail_under"] is not None:
        given["fail_under"] = rate(flags["fail_under"])
    return given


_PLAIN = ("concurrency", "repeat", "limit", "filter", "max_cost", "max_tokens", "max_time", "timeout_s")


def parted(text: str) -> list[str]:
    """`a,b` as two names."""
    return [part.strip() for part in text.split(",") if part.strip()]


def rate(text: str) -> float:
    """`0.9` or `90%`."""
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise usage_error("bad_option", f"--fail-under: expected a rate such as 0.9 or 90%, got {text!r}") from None
