"""Write docs/conformance.md, which lists the tests that prove each requirement.

python scripts/conformance.py           writes the page
python scripts/conformance.py --check   exits with 1 if the page is stale
"""

import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "docs" / "requirements.toml"
PAGE = ROOT / "docs" / "conformance.md"
TESTS = ROOT / "tests"
COMMAND = ".venv/bin/python scripts/conformance.py"


class Mark(NamedTuple):
    """One requirement id on one test: where the test is, and its name as pytest writes it."""

    requirement: str
    path: str
    test: str


def read_requirements() -> dict[str, dict[str, str]]:
    """The requirements per system: id to title, and under `title` the system's own."""
    return tomllib.loads(REQUIREMENTS.read_text(encoding="utf-8"))


def read_marks() -> list[Mark]:
    """Every `req` mark of the test tree, in the order of the files and of their lines."""
    marks = []
    for file in sorted(TESTS.rglob("*.py")):
        path = file.relative_to(ROOT).as_posix()
        module = ast.parse(file.read_text(encoding="utf-8"), path)
        outer = [ids for node in module.body for ids in _assigned(node, path)]
        marks += [Mark(id_, path, test) for test, ids in _tests(module.body, path, outer) for id_ in ids]
    return list(dict.fromkeys(marks))


def unknown_ids(marks: Iterable[Mark]) -> list[str]:
    """The marks whose id is in no system's list, as lines to show."""
    known = {id_ for system in read_requirements().values() for id_ in system}
    return [f"{path}: {test}: {id_}" for id_, path, test in marks if id_ not in known]


def render(systems: dict[str, dict[str, str]], marks: Iterable[Mark]) -> str:
    """The page: a summary and one table per system."""
    tests = defaultdict(list)
    for mark in marks:
        file = mark.path.removeprefix("tests/")
        tests[mark.requirement].append(f"[{file}::{mark.test}](../{mark.path})")
    summary, tables = [], []
    for system in systems.values():
        titles = {id_: title for id_, title in system.items() if id_ != "title"}
        tested = sum(id_ in tests for id_ in titles)
        summary.append(f"| {system['title']} | {tested} | {len(titles) - tested} |")
        rows = [
            f"| {id_} | {title} | {'tested' if id_ in tests else 'open'} | {'<br>'.join(tests[id_])} |"
            for id_, title in titles.items()
        ]
        header = ["| id | title | status | tests |", "|---|---|---|---|"]
        tables += ["", f"## {system['title']}", "", *header, *rows]
    head = [
        "# Conformance",
        "",
        f"`{COMMAND}` makes this page from the `req` marks of the tests and [requirements.toml](requirements.toml).",
        "A requirement is *tested* if a test is marked with its id, and *open* otherwise.",
        "",
        "| system | tested | open |",
        "|---|---|---|",
    ]
    return "\n".join([*head, *summary, *tables]) + "\n"


def _tests(body: Iterable[ast.stmt], path: str, outer: list[str], prefix: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield the tests of a module or class with the ids on them and on their classes."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            yield prefix + node.name, outer + _decorating(node, path)
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            inner = [id_ for part in node.body for id_ in _assigned(part, path)]
            ids = outer + _decorating(node, path) + inner
            yield from _tests(node.body, path, ids, f"{prefix}{node.name}::")


def _decorating(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, path: str) -> list[str]:
    # Walking the whole decorator also finds pytest.param(…, marks=pytest.mark.req("HOP-3")).
    return [id_ for decorator in node.decorator_list for id_ in _ids(decorator, path)]


def _assigned(node: ast.stmt, path: str) -> list[str]:
    """Return the ids in `pytestmark = …`."""
    if isinstance(node, ast.Assign) and "pytestmark" in [ast.unparse(target) for target in node.targets]:
        return _ids(node.value, path)
    return []


def _ids(tree: ast.expr, path: str) -> list[str]:
    ids = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.req"):
            for argument in node.args:
                if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                    got = ast.unparse(argument)
                    sys.exit(f"{path}:{node.lineno}: req: expected an id as a plain string, got {got}")
                ids.append(argument.value)
    return ids


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` only report whether it is current."""
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    marks = read_marks()
    if unknown := unknown_ids(marks):
        print("No such requirement in docs/requirements.toml:", *unknown, sep="\n  ", file=sys.stderr)
        return 1
    page = render(read_requirements(), marks)
    if not arguments:
        PAGE.write_text(page, encoding="utf-8", newline="\n")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page:
        print(f"docs/conformance.md is stale. Run: {COMMAND}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
