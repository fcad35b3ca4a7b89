"""The prompt of a step: of an agent's flow, in a file of its own, or written in the step itself (PIPE-6)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from evalloom.core.errors import EvalloomError, did_you_mean
from evalloom.core.model import Record, Severity, quote, type_name
from evalloom.pipeline.file import Step
from evalloom.targets.prompt import ABOUT_KEYS, PROMPT_KEYS, Prompt, read_fields, read_prompt

_LEVELS = 4
"""How many folders above a pipeline are looked through for its agents."""
_ID = re.compile(r"\w[\w.-]*")
_FILE = re.compile(r"[^\s{}]{1,200}\.(md|txt|yaml|yml|json|prompt|j2)")
_BESIDE = ("system", "user", "template", "messages", "defaults", "params", "json", "schema", "output_parser")
"""Keys of a prompt that may stand in the step itself."""

Complain = Callable[[str, str, str, Severity], None]
"""Takes down a fault: its code, the key of the step that it is about, what is wrong, and how bad that is."""


class StepPrompt(Struct, frozen=True):
    """What a step asks, and the files that say so."""

    prompt: Prompt
    files: tuple[Path, ...] = ()


def prompt_of(step: Step, folder: Path, complain: Complain) -> StepPrompt | None:
    """The prompt of a step, or none where something is wrong with it, which is told."""
    found = _content(step, folder, complain)
    if found is None:
        return None
    key, where, content, files = found
    content = {**content, **{name: step.spec[name] for name in _BESIDE if name in step.spec}}
    try:
        return StepPrompt(Prompt(_known(content, where, key, complain), where), files)
    except EvalloomError as error:
        complain("bad_prompt", key, str(error.args[0]), "error")
        return None


def agents_folder(folder: Path) -> Path | None:
    """The nearest `agents` folder beside a pipeline or above it."""
    base = folder.resolve()
    for above in (base, *base.parents[: _LEVELS - 1]):
        if (above / "agents").is_dir():
            return _shown(above / "agents")
    return None


def _project(folder: Path) -> Path:
    """The folder that holds everything of a pipeline: the one with `agents`, or else the one above the pipeline's."""
    agents = agents_folder(folder)
    return agents.resolve().parent if agents else folder.resolve().parent


def _shown(path: Path) -> Path:
    """A path as people read it: from the working folder, where it lies there."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _content(step: Step, folder: Path, complain: Complain) -> tuple[str, str, Record, tuple[Path, ...]] | None:
    """The key of the step that says the prompt, what to call it, what it says, and its files."""
    spec = step.spec
    if "agent" in spec:
        return _flow(step, folder, complain)
    file = spec.get("prompt_file")
    written = spec.get("prompt")
    if file is None and isinstance(written, str) and _FILE.fullmatch(written):
        file = written
    if file is not None:
        key = "prompt_file" if "prompt_file" in spec else "prompt"
        if not (folder / file).resolve().is_relative_to(_project(folder)):
            message = f"{key}: {quote(file)} lies outside the project of the pipeline, and is not read"
            complain("prompt_missing", key, message, "error")
            return None
        return _from_file(key, folder / file, read_prompt, complain)
    if isinstance(written, dict):
        return "prompt", "prompt", written, ()
    if isinstance(written, list):
        return "prompt", "prompt", {"messages": written}, ()
    if written is not None and not isinstance(written, str):
        complain("bad_prompt", "prompt", f"prompt: expected a text or a file, got {type_name(written)}", "error")
        return None
    if "flow" in spec:
        complain("agent_missing", "flow", "flow: names a flow of an agent, and there is no 'agent'", "error")
        return None
    return "prompt", "prompt", {} if written is None else {"user": written}, ()


def _from_file(
    key: str, path: Path, read: Callable[[Path], Record], complain: Complain
) -> tuple[str, str, Record, tuple[Path, ...]] | None:
    if not path.is_file():
        beside = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
        message = f"{key}: there is no file {quote(path.as_posix(), 200)}{did_you_mean(path.name, beside)}"
        complain("prompt_missing", key, message, "error")
        return None
    try:
        return key, path.name, read(path), (path,)
    except EvalloomError as error:
        complain("bad_prompt", key, str(error.args[0]), "error")
        return None


def _flow(step: Step, folder: Path, complain: Complain) -> tuple[str, str, Record, tuple[Path, ...]] | None:
    """The flow of an agent, as prompt-lab keeps them: agents/ID/agent.yaml, agents/ID/prompts/FLOW.yaml."""
    agent_id = step.spec["agent"]
    home = agents_folder(folder)
    known = sorted(one.parent.name for one in home.glob("*/agent.y*ml")) if home else []
    if home is None or agent_id not in known or not _ID.fullmatch(agent_id):
        has = f"; there are {', '.join(known[:12])}{did_you_mean(agent_id, known)}" if known else ""
        looked = f"{(home or folder / 'agents').as_posix()}/{agent_id}/agent.yaml"
        complain(
            "agent_missing",
            "agent",
            f"agent: there is no agent {agent_id!r}: expected {quote(looked, 200)}{has}",
            "error",
        )
        return None
    own = home / agent_id
    agent = next(own.glob("agent.y*ml"))
    try:
        flows = dict(_flows(read_fields(agent)))
    except EvalloomError as error:
        complain("bad_agent", "agent", str(error.args[0]), "error")
        return None
    name = step.spec.get("flow") or next(iter(flows), "")
    if name not in flows:
        has = ", ".join(flows) or "none"
        hint = did_you_mean(name, flows)
        complain(
            "flow_missing", "flow", f"flow: the agent {agent_id!r} has no flow {name!r}; it has {has}{hint}", "error"
        )
        return None
    written = flows[name]
    if "file" not in written and any(key in written for key in PROMPT_KEYS):
        return "flow", f"{agent_id}/{agent.name}", written, (agent,)
    found = _from_file("flow", _flow_file(own, name, written), read_fields, complain)
    return found and (found[0], f"{agent_id}/{found[1]}", found[2], (agent, *found[3]))


def _flows(agent: Record) -> Iterator[tuple[str, Record]]:
    """The flows of an agent by name: written as a list, or as an object by name."""
    flows = agent.get("flows")
    if isinstance(flows, dict):
        yield from ((name, one if isinstance(one, dict) else {"file": one}) for name, one in flows.items())
    for one in flows if isinstance(flows, list) else ():
        if isinstance(one, str):
            yield one, {}
        elif isinstance(one, dict) and isinstance(one.get("name"), str):
            yield one["name"], one


def _flow_file(own: Path, name: str, written: Record) -> Path:
    """The file of a flow, which lies in the folder of its agent."""
    file = written.get("file")
    file = file if isinstance(file, str) else f"{name}.yaml"
    for path in (own / "prompts" / file, own / file):
        if path.is_file() and path.resolve().is_relative_to(own.resolve()):
            return path
    return own / "prompts" / Path(file).name


def _known(content: Record, where: str, key: str, complain: Complain) -> Record:
    """The keys that a prompt has; others are told and left out, since such files are to be read as they are."""
    known = (*PROMPT_KEYS, *ABOUT_KEYS)
    for name in content.keys() - {*known}:
        message = f"{where}: {name}: a prompt has no such key, so it has no effect{did_you_mean(name, PROMPT_KEYS)}"
        complain("unknown_pipeline_key", key, message, "warning")
    return {name: value for name, value in content.items() if name in known}
