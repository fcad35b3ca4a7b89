"""The options of `evalloom run`, shared by other commands that run cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from evalloom.console.options import FORCE, LANG
from evalloom.core.errors import usage_error
from evalloom.engine.system import Catalog
from evalloom.targets import forms

if TYPE_CHECKING:
    from evalloom.core.model import Batch
    from evalloom.engine.until_sure import Question

Command = TypeVar("Command", bound=Callable[..., Any])


class CatalogOption(click.Option):
    """An option whose help lists parts of the catalog; `describe` returns the help text."""

    def __init__(self, *names: Any, describe: Callable[[Catalog], str], **more: Any) -> None:
        super().__init__(*names, **more)
        self._describe = describe

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        self.help = self._describe(ctx.find_object(Catalog) or Catalog())
        return super().get_help_record(ctx)


def suffixes(catalog: Catalog) -> str:
    """Return the extensions of result files."""
    return " ".join(reporter.suffix for reporter in catalog.reporters)


OUTPUT = click.option(
    "-o",
    "--output",
    multiple=True,
    metavar="FILE",
    cls=CatalogOption,
    describe=lambda catalog: f"Write results to a file: {suffixes(catalog)}. Repeatable.",
)
_WHAT = (
    click.option("--config", default="", metavar="FILE", help="Settings file. Default: ./evalloom.yaml."),
    click.option(
        "--target",
        multiple=True,
        cls=CatalogOption,
        describe=lambda catalog: f"{forms(catalog.all_targets)}, suite:FILE. Repeatable: each is a column.",
    ),
    click.option(
        "--profile",
        "profiles",
        multiple=True,
        metavar="P",
        help="Profile or llm to run with, such as groq:MODEL; repeatable.",
    ),
    click.option("-j", "--concurrency", type=int, metavar="N", help="Maximum number of concurrent runs. Default: 16."),
    click.option("--repeat", type=int, metavar="N", help="Run each case N times."),
    click.option(
        "--pass-if",
        metavar="K/N",
        help="A case passes if K of its N repeats do; also a share such as 0.8 or 80%. K/N sets --repeat N.",
    ),
    click.option(
        "--vary",
        multiple=True,
        metavar="NAME=A,B",
        help="Run with each value of a parameter of the llm, e.g. temperature=0,0.7. Repeatable.",
    ),
    click.option("--variants", multiple=True, metavar="A,B", help="Run these variants of the target."),
)
_HOW = (
    click.option("--limit", type=int, metavar="N", help="Run only the first N cases."),
    click.option("--tags", multiple=True, metavar="T,…", help="Run only cases with one of these tags."),
    click.option("--filter", "filter", metavar="EXPR", help="Run only cases that match, e.g. 'len(text) < 80'."),
    click.option("--judge", default="", metavar="LLM", help="The llm for judge checks."),
    click.option("--no-cache", is_flag=True, help="Do not reuse cached answers at temperature 0."),
    click.option("--allow-code", is_flag=True, help="Run code from data files, in a sandbox."),
    click.option("--skip-invalid", is_flag=True, help="Run the valid cases, and count the others as errors."),
    click.option("--resume", is_flag=True, help="Continue the newest batch of the same run."),
    click.option(
        "--resume-from", default="", metavar="BATCH", help="Copy unchanged runs from BATCH, and run the others."
    ),
    click.option("--retry-errors", is_flag=True, help="With --resume: repeat runs that ended in an error."),
    click.option("--dry-run", is_flag=True, help="Show what would run and its estimated cost, then exit."),
    click.option("--max-cost", type=float, metavar="X", help="Stop when the cost reaches X."),
    click.option("--max-tokens", type=int, metavar="N", help="Stop after N tokens."),
    click.option("--max-time", type=float, metavar="S", help="Stop after S seconds."),
    click.option("--timeout", "timeout_s", type=float, metavar="S", help="Time limit of each run, in seconds."),
    click.option("--fail-under", metavar="RATE", help="Fail below this pass rate instead of on any failed case."),
    click.option("--record", default="", metavar="FILE", help="Record every llm answer in this file."),
    click.option("--replay", default="", metavar="FILE", help="Answer from a file written by --record."),
    OUTPUT,
    FORCE,
    click.option("--json", "as_json", is_flag=True, help="Print the summary as a JSON object."),
)
CLUSTER = (
    click.option("--executor", type=click.Choice(["local", "dask"]), help="Run here, or on a Dask cluster."),
    click.option(
        "--scheduler", metavar="URL", help="With dask: a scheduler, such as tcp://host:8786 or tls://host:8786."
    ),
)
EXECUTOR = (
    *CLUSTER,
    click.option("--workers", type=click.IntRange(1), metavar="N", help="With dask: start N workers on this machine."),
)
ALLOW_UNSCORED = click.option(
    "--allow-unscored", is_flag=True, help="Accept expectations that could not be scored, instead of exit code 3."
)
_ACCEPTING = (
    ALLOW_UNSCORED,
    click.option("--no-checks", is_flag=True, help="Accept that nothing is expected of any case; else exit code 3."),
)
_UNTIL_SURE = (
    click.option(
        "--until-sure",
        is_flag=True,
        help="Run cases in random order, and stop when --fail-under or --against is decided.",
    ),
    click.option("--margin", metavar="RATE", help="With --until-sure: how much worse is accepted. Default: 0.05."),
    click.option("--against", metavar="NAME", help="With --until-sure: compare with this baseline or batch."),
)
_QUARANTINE = click.option(
    "--quarantine", metavar="FILE", help="Cases that run but do not decide the exit code; see 'evalloom history'."
)
_WATCH = click.option("--watch", is_flag=True, help="Repeat affected runs when files change, until Ctrl-C.")


def run_options(command: Command) -> Command:
    """Add all options of `evalloom run`."""
    return _with((*_WHAT, *_HOW, *EXECUTOR, LANG, *_ACCEPTING, _QUARANTINE, *_UNTIL_SURE, _WATCH), command)


def engine_options(command: Command) -> Command:
    """Add the options that every command that runs cases has; `--workers` may mean something else there."""
    return _with((*_HOW, *CLUSTER), command)


def options_without_output(command: Command) -> Command:
    """Add the same options to a command that has an `-o` of its own."""
    return _with((*(option for option in _HOW if option is not OUTPUT), *EXECUTOR, LANG, *_ACCEPTING), command)


def executor_options(command: Command) -> Command:
    """Add the options that say where to run."""
    return _with(EXECUTOR, command)


def _with(options: tuple[Callable[[Command], Command], ...], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def refuse_conflicts(datasets: tuple[str, ...], flags: dict[str, Any]) -> None:
    """Reject flags of which one would be ignored silently."""
    is_resumed = flags["resume"] or flags["resume_from"]
    for is_wrong, message in (
        (flags["retry_errors"] and not is_resumed, "--retry-errors: requires --resume or --resume-from"),
        (flags["resume"] and flags["resume_from"], "--resume and --resume-from: expected one of them, got both"),
        (flags["record"] and flags["replay"], "--record and --replay: expected one of them, got both"),
        (flags["watch"] and flags["dry_run"], "--watch and --dry-run: expected one of them, got both"),
        (flags["watch"] and flags.get("until_sure"), "--watch and --until-sure: expected one of them, got both"),
        (flags["watch"] and "-" in datasets, "--watch: expected a file to watch, got '-' (stdin). Write it to a file"),
    ):
        if is_wrong:
            raise usage_error("bad_option", message)


def settings_of(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the flags that are set, as fields of RunSettings."""
    values = {name: flags[name] for name in _PLAIN if flags[name] is not None}
    for name in ("profiles", "tags", "variants"):
        if flags[name]:
            values[name] = [part for text in flags[name] for part in parted(text)]
    if flags.get("vary"):
        values["vary"] = varied(flags["vary"])
    if flags["no_cache"]:
        values["cache"] = False
    for name in ("skip_invalid", "allow_unscored", "no_checks", "allow_code"):
        if flags.get(name):
            values[name] = True
    for name in ("executor", "scheduler", "workers"):
        if flags.get(name):
            values[name] = flags[name]
    if flags.get("quarantine"):
        values["quarantine"] = flags["quarantine"]
    if flags["output"]:
        values["output"] = list(flags["output"])
    if flags["fail_under"] is not None:
        values["fail_under"] = rate("--fail-under", flags["fail_under"])
    if flags.get("pass_if") is not None:
        values["pass_if"], repeats = pass_rule(flags["pass_if"])
        if repeats is not None and values.setdefault("repeat", repeats) != repeats:
            message = f"--pass-if {flags['pass_if']} is for {repeats} repeats, and --repeat is {values['repeat']}"
            raise usage_error("bad_option", f"{message}. Give a share, such as --pass-if 80%")
    return values


def question_of(flags: dict[str, Any]) -> Question | None:
    """Return what --until-sure is to decide; None without it, and for commands that do not have it."""
    if not flags.get("until_sure"):
        for name in ("margin", "against"):
            if flags.get(name) is not None:
                raise usage_error("bad_option", f"--{name}: goes with --until-sure")
        return None
    from evalloom.engine.until_sure import MARGIN, Question  # deferred: few runs have it

    margin = MARGIN if flags["margin"] is None else rate("--margin", flags["margin"])
    return Question(margin, flags["against"] or "")


_PLAIN = ("concurrency", "repeat", "limit", "filter", "max_cost", "max_tokens", "max_time", "timeout_s")


def parted(text: str) -> list[str]:
    """Split `a,b` into names."""
    return [part.strip() for part in text.split(",") if part.strip()]


def varied(texts: Iterable[str]) -> dict[str, list[Any]]:
    """Parse `temperature=0,0.7`: the values of a parameter, as JSON or else as texts."""
    import json

    values: dict[str, list[Any]] = {}
    for text in texts:
        name, mark, listed = text.partition("=")
        parts = [part.strip() for part in listed.split(",")]
        if not mark or not name.strip() or "" in parts or name.strip() in values:
            raise usage_error(
                "bad_option", f"--vary: expected a parameter and its values, as in temperature=0,0.7, got {text!r}"
            )
        for part in parts:
            try:
                value = json.loads(part)
            except ValueError:
                value = part
            values.setdefault(name.strip(), []).append(value)
    return values


def rate(flag: str, text: str) -> float:
    """Parse `0.9` or `90%`."""
    try:
        return _share(text)
    except ValueError:
        raise usage_error("bad_option", f"{flag}: expected a rate such as 0.9 or 90%, got {text!r}") from None


def pass_rule(text: str) -> tuple[float, int | None]:
    """Parse `4/5`, `0.8` or `80%`: the share of repeats that must pass, and the number of repeats if it is given."""
    needed, mark, repeats = text.partition("/")
    try:
        if not mark:
            share = _share(text)
            if 0 < share <= 1:
                return share, None
        elif 0 < int(needed) <= int(repeats):
            return int(needed) / int(repeats), int(repeats)
    except ValueError:
        pass
    raise usage_error("bad_option", f"--pass-if: expected 4/5, or a share such as 0.8 or 80%, got {text!r}")


def stored_pass_rule(option: str, text: str, batch: Batch) -> float:
    """Parse a pass rule for a stored batch, whose repeats it must fit."""
    share, repeats = pass_rule(text)
    stored = batch.options.get("repeat") or 1
    if repeats not in (None, stored):
        message = f"{option} {text} is for {repeats} repeats, and the batch has {stored}"
        raise usage_error("bad_option", f"{message}. Give a share, such as 80%")
    return share


def _share(text: str) -> float:
    # Not `float(digits) / 100`: 99.9 / 100 is more than 0.999.
    return float(f"{text.removesuffix('%').strip()}e-2") if text.endswith("%") else float(text)
