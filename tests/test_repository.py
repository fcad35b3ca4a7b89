"""The repository keeps its own promises: current pages, portable files, working scripts, a wheel that installs."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import evalloom

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ("scripts/setup", "scripts/demo", "scripts/test", "scripts/check", "scripts/list", ".ci/run", ".ci/nightly")
ENTRY_POINTS = ("evalloom", "validate_eval_cases", "batchhoptest")

REGISTRY = re.compile(r"index[-]url|\"resolved\"[:] \"http|https?://\S*/(simple|packages)/")
# Folders that say nothing about the machine, so a file may well name them.
COMMON_FOLDERS = {Path("/"), *map(Path, ("/tmp", "/var/tmp", "/home", "/opt", "/srv", "/mnt", "/usr/src"))}


def call(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        encoding="utf-8",
    )


def repository_texts() -> dict[Path, str]:
    """Every text file that is, or could be, committed."""
    listing = call("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listing.returncode == 0:
        files = [ROOT / name for name in listing.stdout.split("\0") if name]
    else:  # an unpacked archive, or a checkout of another owner
        made = re.compile(r"\.git|\.venv|\.hypothesis|\..*_cache|__pycache__")
        files = [f for f in ROOT.rglob("*") if not any(map(made.fullmatch, f.relative_to(ROOT).parts))]
    contents = {file: file.read_bytes() for file in files if file.is_file()}
    return {file: raw.decode("utf-8", "replace") for file, raw in contents.items() if b"\0" not in raw[:8192]}


def test_conformance_page_is_current() -> None:
    done = call(sys.executable, "scripts/conformance.py", "--check")
    assert done.returncode == 0, done.stderr


def test_every_marked_requirement_exists() -> None:
    conformance = runpy.run_path(str(ROOT / "scripts/conformance.py"))
    assert conformance["unknown_ids"](conformance["read_marks"]()) == []


def test_no_file_names_a_registry_or_this_machine(require_tool: Callable[[str], str]) -> None:
    require_tool("git")
    folders = {ROOT, ROOT.parent, Path.home()} - COMMON_FOLDERS
    places = "|".join(re.escape(str(folder)) for folder in sorted(folders))
    machine = re.compile(rf"(?<![\w.~-])({places})(?![\w.-])")
    texts = repository_texts()
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for file, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if REGISTRY.search(line) or machine.search(line)
    ]
    assert ROOT / "pyproject.toml" in texts
    assert found == []


@pytest.mark.parametrize("script", SCRIPTS)
def test_script_is_executable_bash(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
    done = call("bash", "-n", script)
    assert done.returncode == 0, done.stderr


def test_list_names_every_command_with_a_sentence() -> None:
    listing = call("scripts/list")
    assert listing.returncode == 0, listing.stderr
    listed = re.findall(r"^  (?:\./|\.venv/bin/python )(\S+) +[A-Z].*\.$", listing.stdout, re.MULTILINE)
    usage = {f"benchmarks/{file.name}": file.read_text() for file in ROOT.glob("benchmarks/*.py")}
    benchmarks = [name for name, text in usage.items() if f"\n.venv/bin/python {name}" in text]
    scripts = [f"scripts/{file.name}" for file in (ROOT / "scripts").iterdir() if file.is_file()]
    assert len(benchmarks) > 5 and sorted(listed) == sorted([*scripts, ".ci/run", ".ci/nightly", *benchmarks])


@pytest.mark.parametrize("file", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda file: file.name)
def test_github_files_are_yaml_and_name_scripts_that_exist(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert yaml.safe_load(text)
    assert all((ROOT / command).is_file() for command in re.findall(r"- run: (\S+)", text))


def test_changelog_has_the_version_below_unreleased() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert re.fullmatch(rf"{re.escape(evalloom.__version__)} \(\d{{4}}-\d\d-\d\d\)", headings[1])


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_readme_is_there(name: str) -> None:
    assert (ROOT / name).is_file()


SKIPPING = {
    "call": "import pytest\ndef test_it():\n    pytest.skip('no tool')\n",
    "mark": "import pytest\n@pytest.mark.skip(reason='no tool')\ndef test_it():\n    pass\n",
    "module": "import pytest\npytest.skip('no tool', allow_module_level=True)\n",
    "fixture": "def test_it(require_tool):\n    require_tool('no tool')\n",
}


@pytest.mark.parametrize("way", SKIPPING)
def test_a_skip_fails_where_all_is_required(way: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests/conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(SKIPPING[way])
    pytest_here = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path)
    lenient = call(*pytest_here, EVALLOOM_REQUIRE_ALL="0")
    strict = call(*pytest_here, EVALLOOM_REQUIRE_ALL="1")
    # pytest says 5 when it ran nothing: the skipped module.
    assert lenient.returncode in (0, 5) and "1 skipped" in lenient.stdout
    assert strict.returncode in (1, 2) and "EVALLOOM_REQUIRE_ALL=1" in strict.stdout
    assert "no tool" in strict.stdout and "1 skipped" not in strict.stdout


@pytest.mark.slow
def test_built_wheel_installs_with_its_commands(tmp_path: Path) -> None:
    built = call(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("*.whl")

    home = tmp_path / "a fresh venv"
    venv.create(home, symlinks=True)
    python = home / "bin/python"
    pip = (sys.executable, "-m", "pip", "--python", python)
    installed = call(*pip, "install", "--no-index", "--no-deps", wheel)
    assert installed.returncode == 0, installed.stderr
    # The libraries come from the running environment, so no network is needed. A .pth file found there is not
    # followed, so evalloom itself can only come from the wheel.
    (site_packages,) = home.glob("lib/python*/site-packages")
    (site_packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")

    where = call(python, "-c", "import evalloom; print(evalloom.__file__)")
    assert where.stdout.startswith(str(site_packages)), where.stderr
    assert (site_packages / "evalloom/py.typed").is_file()
    for folder in ("ui", "prompt_eval/reports", "rag/reports"):
        packed = {file.name for file in (site_packages / "evalloom" / folder / "templates").iterdir()}
        assert packed == {file.name for file in (ROOT / "src/evalloom" / folder / "templates").iterdir()}
    for name in ENTRY_POINTS:
        done = call(home / "bin" / name, "--help")
        assert done.returncode == 0, f"{name}: {done.stderr}"
