"""Create an environment for each measured program, separate from ours, and reuse it next time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

HOME = Path(tempfile.gettempdir()) / "evalloom-benchmarks" / "environments"


def cache_bytecode() -> None:
    """Let measured programs cache their bytecode, as on any machine where they were started before."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def python(name: str, *packages: str) -> Path:
    """The Python of a venv in which these packages are installed, from whatever registry pip is configured with."""

    def install(folder: Path) -> None:
        _run(sys.executable, "-m", "venv", str(folder))
        _run(str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *packages)

    return _environment(name, packages, install) / "bin" / "python"


def node(name: str, engine: str, *packages: str) -> Path:
    """A folder in which npm installed this version of Node and, with it, these packages."""

    def install(folder: Path) -> None:
        if shutil.which("npm") is None:
            raise SystemExit(f"{name}: npm is not installed. Install Node.js, or leave this tool out.")
        folder.mkdir()
        (folder / "package.json").write_text("{}")
        npm = ("npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(folder))
        _run(*npm, f"node@{engine}")
        # npm chooses the newest version for the Node it runs on, so it must run on this one.
        path = f"{folder / 'node_modules' / '.bin'}{os.pathsep}{os.environ['PATH']}"
        _run(*npm, *packages, environment={**os.environ, "PATH": path})

    return _environment(name, (f"node@{engine}", *packages), install)


def version(interpreter: Path, package: str) -> str:
    """The version of a package in a venv."""
    program = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"
    command = [str(interpreter), "-c", program, package]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _environment(name: str, packages: tuple[str, ...], install: Callable[[Path], None]) -> Path:
    folder, wanted = HOME / name, "\n".join(packages)
    ready = folder / "ready"
    if not ready.exists() or ready.read_text() != wanted:
        print(f"installing {' '.join(packages)} …", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        HOME.mkdir(parents=True, exist_ok=True)
        install(folder)
        # Written last, so that an interrupted installation is repeated.
        ready.write_text(wanted)
    return folder


def _run(*command: str, environment: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
