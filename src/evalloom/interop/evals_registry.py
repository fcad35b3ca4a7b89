"""The registry of OpenAI evals: a YAML file that names evals, each with its class and the file of its samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path as FilePath
from typing import Any

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Record, Remark, error, warning
from evalloom.core.text import describe
from evalloom.data.dialect import Included, Surroundings

FIELD = "eval_spec"
"""The field of a sample that holds the name, the class and the arguments of its eval."""
_CLASS = lazy_pattern(r"\s*[A-Za-z_][\w.]*:[A-Za-z_]\w*\s*")


def is_registry(document: Record) -> bool:
    """Whether an object names evals: objects all of them, at least one with the class that runs it."""
    entries = document.values()
    return all(isinstance(entry, dict) for entry in entries) and any(_class_of(entry) for entry in entries)


def _class_of(entry: Any) -> str:
    class_ = entry.get("class")
    return class_.strip() if isinstance(class_, str) and _CLASS.fullmatch(class_) else ""


def samples(document: Record, surroundings: Surroundings) -> Iterator[Included | Remark]:
    """Yield the file of samples of each eval, which adds the eval to each sample."""
    root = _root(surroundings.folder)
    for name, entry in document.items():
        if class_ := _class_of(entry):
            yield from _samples_of(name, class_, entry.get("args"), root)


def _samples_of(name: str, class_: str, written: Any, root: FilePath | None) -> Iterator[Included | Remark]:
    arguments = {} if written is None else written
    if not isinstance(arguments, dict):
        yield error("bad_eval", (name, "args"), f"{name}: args: expected an object, got {describe(arguments)}")
        return
    file = arguments.get("samples_jsonl")
    if not isinstance(file, str) or not file.strip():
        message = f"{name}: names no samples_jsonl, so it has no cases here: {class_} makes its own"
        yield warning("eval_without_samples", (name,), message)
        return
    if arguments.get("num_few_shot"):
        message = f"{name}: num_few_shot: the examples of few_shot_jsonl are not added to the prompts"
        yield warning("eval_few_shot", (name, "args", "num_few_shot"), message)
    spec = {"name": name, "class": class_, "args": arguments}
    yield Included(file.strip(), (name, "args", "samples_jsonl"), {FIELD: spec}, _with_id(name), root)


def _with_id(name: str) -> Callable[[Record], Iterable[Record | Remark]]:
    """Two evals may share a file of samples, so an id is unique only with the name of the eval."""

    def each(sample: Record) -> Iterator[Record]:
        id = sample.get("id")
        yield {**sample, "id": f"{name}/{id}"} if isinstance(id, str | int) and not isinstance(id, bool) else sample

    return each


def _root(folder: FilePath | None) -> FilePath | None:
    """Return `registry/data` for a document in `registry/evals`; None elsewhere, so that its own folder counts."""
    if folder is None or folder.name != "evals":
        return None
    data = folder.parent / "data"
    return data if data.is_dir() else None


def spec_of(sample: Record) -> Record | None:
    """Return the eval of a sample that a registry names."""
    spec = sample.get(FIELD)
    if not isinstance(spec, dict) or not isinstance(spec.get("args"), dict):
        return None
    return spec if isinstance(spec.get("class"), str) and isinstance(spec.get("name"), str) else None
