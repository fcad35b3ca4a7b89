"""The docs are true: every console sample runs as shown, every link has a target, every flag exists.

In a ```console block a line that begins with `$ ` is a command and the lines below it are its output, stdout and stderr
together. `…` alone on a line stands for any number of lines, and inside a line for any text. An exit code other than 0
is written behind the command: `$ evalloom validate cases.jsonl  # exit 2`. A command that is only `cd FOLDER` holds for
those below it, and `<!-- in FOLDER -->` above a block for all of them.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from evalloom import catalog, model
from evalloom.cli.app import main
from evalloom.prompt_eval import cli as prompt_eval
from evalloom.rag import cli as rag
from evalloom.reports import LINT_REPORTERS
from evalloom.settings import PROTOCOLS
from evalloom.tools import batchhoptest, validate_eval_cases

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "evalloom"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
# Decision pages show measurements, which no test repeats.
SHOWN = [ROOT / "README.md", ROOT / "README.zh-CN.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INSIDE = re.compile(r"<!-- in (\S+) -->\n\Z")
LINK = re.compile(r"\]\((?!\w+:)([^)\s]*)\)")
WIDTH = "120"
"""The columns of the terminal that the samples show."""
EXIT = re.compile(r"\s+# exit (\d+)$")
FLAG = re.compile(r"(?<![\w-])(--?[a-z][a-z-]*)")


class Step(NamedTuple):
    """One command of a block, the exit code it should have and the output below it."""

    command: str
    code: int
    output: list[str]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def console_blocks() -> Iterator[tuple[str, str]]:
    """Every console block with the place it stands at."""
    for page in SHOWN:
        text = page.read_text(encoding="utf-8")
        for block in BLOCK.finditer(text):
            if block[1] == "console":
                inside = INSIDE.search(text, max(0, block.start() - 200), block.start())
                lines = f"$ cd {inside[1]}\n{block[2]}" if inside else block[2]
                yield f"{name_of(page)}:{text.count(chr(10), 0, block.start()) + 1}", lines


def parse_steps(block: str) -> list[Step]:
    steps: list[Step] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            code = EXIT.search(line)
            steps.append(Step(EXIT.sub("", line[2:]), int(code[1]) if code else 0, []))
        elif steps and steps[-1].command.endswith("\\") and not steps[-1].output:
            before = steps.pop()
            code = EXIT.search(line)
            command = f"{before.command}\n{EXIT.sub('', line)}"
            steps.append(Step(command, int(code[1]) if code else 0, []))
        else:
            steps[-1].output.append(line)
    return steps


def pattern(expected: list[str]) -> str:
    """The expected lines as a regular expression over the whole output."""
    parts = []
    for line in expected:
        inside = ".*".join(map(re.escape, line.split("…")))
        parts.append(r"(?:.*\n)*?" if line.strip() == "…" else rf"{inside}[ ]*\n")
    return "".join(parts)


def run(command: str, folder: Path) -> tuple[int, str]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("FORCE_", "GITHUB_", "CI"))},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": WIDTH,
        "LC_ALL": "C.UTF-8",
    }
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=60,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(("place", "block"), [*console_blocks()], ids=[place for place, _ in console_blocks()])
def test_console_sample_is_what_happens(place: str, block: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    folder = tmp_path
    for command, code, output in parse_steps(block):
        if re.fullmatch(r"cd [\w./-]+", command):
            folder = folder / command[3:]
            continue
        got_code, got = run(command, folder)
        wanted = "\n".join(output)
        assert got_code == code, f"{place}: {command}: expected exit code {code}, got {got_code}\n{got}"
        assert re.fullmatch(pattern(output), got), f"{place}: {command}\n--- shown\n{wanted}\n--- got\n{got}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_have_a_target(page: Path) -> None:
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for link in LINK.findall(text):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{name_of(page)}: {link}: there is no such file"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{name_of(page)}: {link}: there is no such heading"


def test_every_page_is_reachable_from_the_index() -> None:
    index = ROOT / "docs/index.md"
    reached, waiting = set[Path](), [index]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        links = [link.partition("#")[0] for link in LINK.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))]
        targets = [(page.parent / link).resolve() for link in links if link]
        waiting += [target for target in targets if target.suffix == ".md" and target not in reached]
    assert sorted(map(name_of, {*PAGES} - reached)) == []
    assert "docs/index.md" in (ROOT / "README.md").read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """The anchors that code hosts make of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


def commands() -> dict[str, click.Command]:
    """Every command by the words that call it."""
    context = click.Context(main)
    by_name = {name: main.get_command(context, name) for name in main.list_commands(context)}
    ours = {f"evalloom {name}": command for name, command in by_name.items() if command is not None}
    groups = [(name, command) for name, command in ours.items() if isinstance(command, click.Group)]
    inner = {f"{name} {word}": command for name, group in groups for word, command in group.commands.items()}
    tools = {tool.TOOL: tool.command for tool in (batchhoptest, validate_eval_cases)}
    return {**ours, **inner, **tools, "evalloom": main}


HELP = {"-h", "--help"}


def flags(command: click.Command) -> set[str]:
    """The flags that a command shows in its help."""
    return set(FLAG.findall(command.get_help(click.Context(command, info_name="-")))) | HELP


def calls(page: Path) -> Iterator[tuple[str, str]]:
    """Every call of one of our commands in a page's code: the command, and what stands behind it."""
    text = page.read_text(encoding="utf-8")
    pieces = [line for block in BLOCK.finditer(text) for line in block[2].replace("\\\n", " ").splitlines()]
    pieces += re.findall(r"`([^`\n]+)`", BLOCK.sub("", text))
    known = "|".join(sorted(commands(), key=len, reverse=True))
    for piece in pieces:
        for call in re.finditer(rf"(?<![\w./-])({known})(?=\s)([^|;&#]*)", piece):
            yield call[1], call[2]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_flags_exist(page: Path) -> None:
    for name, rest in calls(page):
        known = flags(commands()[name])
        unknown = [flag for flag in FLAG.findall(rest) if flag not in known]
        assert unknown == [], f"{name_of(page)}: {name}{rest}"


FLAGS = [
    ("validate.md", "evalloom validate"),
    ("validate.md", "validate_eval_cases"),
    ("convert.md", "evalloom convert"),
    ("convert.md", "evalloom inspect"),
    ("convert.md", "evalloom schema"),
    ("export.md", "evalloom export"),
    ("hop.md", "batchhoptest"),
    ("stats.md", "evalloom stats"),
    ("compare.md", "evalloom compare"),
    ("compare.md", "evalloom baseline save"),
    ("history.md", "evalloom history"),
    ("report.md", "evalloom report"),
    ("pipeline.md", "evalloom pipeline graph"),
    ("pipeline.md", "evalloom pipeline check"),
    *(("prompt-eval.md", f"evalloom prompt-eval {step}") for step in prompt_eval.command.commands),
    *(("rag.md", f"evalloom rag {step}") for step in rag.command.commands),
    ("replay.md", "evalloom replay"),
    ("replay.md", "evalloom replay compare"),
    ("replay.md", "evalloom replay list"),
    ("replay.md", "evalloom replay show"),
    ("pages.md", "evalloom serve"),
    ("pages.md", "evalloom view"),
    ("run.md", "evalloom run"),
    ("run.md", "evalloom score"),
    ("run.md", "evalloom batches show"),
    ("run.md", "evalloom doctor"),
    ("sql.md", "evalloom sql"),
]
"""The page that names all flags of each command."""
WITHOUT_PAGE = {
    *("evalloom demo", "evalloom init", "evalloom batches list", "evalloom batches rm", "evalloom batches repair"),
    *("evalloom baseline list", "evalloom baseline rm", "evalloom baseline show"),
}
"""Commands whose few flags only their help explains."""


def test_every_command_has_a_page() -> None:
    known = {name for name, command in commands().items() if not isinstance(command, click.Group)}
    assert sorted(known - {name for _, name in FLAGS} - WITHOUT_PAGE) == []


@pytest.mark.parametrize(("page", "name"), FLAGS)
def test_page_names_every_flag(page: str, name: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    missing = [flag for flag in sorted(flags(commands()[name])) if flag.startswith("--") and flag not in text]
    assert [flag for flag in missing if flag != "--help"] == []


def test_a_session_by_hand_answers_as_the_page_says(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    page = (ROOT / "docs/hop.md").read_text(encoding="utf-8")
    (tmp_path / "try_it.py").write_text(next(block[2] for block in BLOCK.finditer(page) if "open_session(" in block[2]))
    code, shown = run("python try_it.py", tmp_path)
    assert code == 0 and shown.startswith("('OK', True)\n[{'step': 1, 'op': 'hop_judge'")


# -- the source in the documents -----------------------------------------------------------------------

TREE = re.compile(r"^[├└]── (\S+) +(.*)$", re.MULTILINE)
PATH = re.compile(r"(?<![\w./<-])(?:[\w-]+/)*[\w-]+(?:\.py|/)(?![\w./])")
"""A module or a folder, as prose names it."""
FOR_EXAMPLE = re.compile(r"(^|[/_])x(_|\.|/|$)")
"""A name that stands for whatever a contributor calls the new part."""
STEP = re.compile(r"\[`([\w.]+)`\]\(\.\./(src/evalloom/[\w/]+\.py)\)")


def is_in_source(path: str, folder: str = "") -> bool:
    """Whether there is such a file or folder; a module that is named alone, such as `system.py`, may be anywhere."""
    if any((place / path).exists() for place in (ROOT, SOURCE, SOURCE / folder)):
        return True
    return not folder and "/" not in path and any(SOURCE.rglob(path))


def test_the_tree_of_the_architecture_page_is_the_source_tree() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    drawn = dict(TREE.findall(page.partition("## The tree")[2]))
    folders = {f"{file.parent.name}/" for file in SOURCE.glob("*/__init__.py")}
    assert sorted(drawn) == sorted(folders | {file.name for file in SOURCE.glob("*.py")})
    named = [(folder, path) for folder, line in drawn.items() for path in PATH.findall(line)]
    assert [(folder, path) for folder, path in named if not is_in_source(path, folder)] == []


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_paths_in_the_guides_exist(name: str) -> None:
    text = BLOCK.sub("", (ROOT / name).read_text(encoding="utf-8"))
    pieces = re.findall(r"`([^`\n]+)`", text)
    paths = [path for piece in pieces for path in PATH.findall(piece) if "<" not in piece]
    assert paths and [path for path in paths if not FOR_EXAMPLE.search(path) and not is_in_source(path)] == []


def definitions(file: Path) -> set[str]:
    """Every function and class of a module by its name; methods also behind the name of their class."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            methods = [item.name for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
            names |= {node.name, *(f"{node.name}.{method}" for method in methods)}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
    return names


def test_every_step_of_a_case_is_defined_where_the_page_says() -> None:
    page = (ROOT / "docs/follow-one-case.md").read_text(encoding="utf-8")
    steps = STEP.findall(page)
    assert len(steps) > 80 and len(steps) == page.count("](../src/")
    assert [(name, file) for name, file in steps if name not in definitions(ROOT / file)] == []


PARTS = {
    "reading.md": [dialect.name for dialect in catalog.load().formats.dialects],
    "targets.md": [kind.name for kind in catalog.load().all_targets],
    "run.md": [reporter.suffix for reporter in catalog.load().reporters],
    "validate.md": [reporter.name for reporter in LINT_REPORTERS],
    "llms.md": [*PROTOCOLS],
}


@pytest.mark.parametrize("page", PARTS)
def test_the_page_of_a_kind_names_every_part(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert [name for name in PARTS[page] if f"`{name}`" not in text] == []


def test_glossary_names_classes_of_the_model() -> None:
    page = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    names = re.findall(r"\(`([A-Z]\w+)`[,)]", page)
    assert len(names) > 5 and [name for name in names if not hasattr(model, name)] == []
