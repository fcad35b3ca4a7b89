"""Loads the prompt of a step: from an agent's flow, a prompt file, or the step itself (PIPE-6)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from evalloom.core.errors import EvalloomError
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Record, Severity
from evalloom.core.text import did_you_mean, quote, type_name
from evalloom.pipeline.file import Step
from evalloom.targets.prompt import ABOUT_KEYS, PROMPT_KEYS, Prompt, read_fields, read_prompt

_LEVELS = 4
"""The number of folders to search for `agents`, starting at the pipeline's folder."""
_ID = lazy_pattern(r"\w[\w.-]*")
_FILE = lazy_pattern(r"[^\s{}]{1,200}\.(md|txt|yaml|yml|json|prompt|j2)")
_BESIDE = ("system", "user", "template", "messages", "defaults", "params", "json", "schema", "output_parser")
"""Prompt keys that a step may contain directly."""

ReportFinding = Callable[[str, str, str, Severity], None]
"""Reports a finding: its code, the key of the step, the message and the severity."""


class StepPrompt(Struct, frozen=True):
    """The prompt of a step and its source files."""

    prompt: Prompt
    files: tuple[Path, ...] = ()


def prompt_of(step: Step, folder: Path, report_finding: ReportFinding) -> StepPrompt | None:
    """Load the prompt of a step; report errors and return None if it is invalid."""
    source = _content(step, folder, report_finding)
    if source is None:
        return None
    key, where, content, files = source
    content = {**content, **{name: step.spec[name] for name in _BESIDE if name in step.spec}}
    try:
        return StepPrompt(Prompt(_without_unknown_keys(content, where, key, report_finding), where), files)
    except EvalloomError as error:
        report_finding("bad_prompt", key, str(error.args[0]), "error")
        return None


def agents_folder(folder: Path) -> Path | None:
    """Find the nearest `agents` folder beside or above a pipeline."""
    base = folder.resolve()
    for above in (base, *base.parents[: _LEVELS - 1]):
        if (above / "agents").is_dir():
            agents, here = above / "agents", Path.cwd()
            # Messages show a short path.
            return agents.relative_to(here) if agents.is_relative_to(here) else agents
    return None


def _content(
    step: Step, folder: Path, report_finding: ReportFinding
) -> tuple[str, str, Record, tuple[Path, ...]] | None:
    """Return the step's key for the prompt, its display name, its content and its files."""
    spec = step.spec
    if "agent" in spec:
        return _flow(step, folder, report_finding)
    file = spec.get("prompt_file")
    written = spec.get("prompt")
    if file is None and isinstance(written, str) and _FILE.fullmatch(written):
        file = written
    if file is not None:
        key = "prompt_file" if "prompt_file" in spec else "prompt"
        # The project is the folder with `agents`, or the parent of the pipeline's folder.
        project = (agents_folder(folder) or folder).resolve().parent
        if "\0" not in file and not (folder / file).resolve().is_relative_to(project):
            message = f"{key}: {quote(file)} is outside the project of the pipeline, so it is not read"
            report_finding("prompt_missing", key, message, "error")
            return None
        return _from_file(key, folder / file, read_prompt, report_finding)
    if isinstance(written, dict):
        return "prompt", "prompt", written, ()
    if isinstance(written, list):
        return "prompt", "prompt", {"messages": written}, ()
    if written is not None and not isinstance(written, str):
        report_finding("bad_prompt", "prompt", f"prompt: expected a text or a file, got {type_name(written)}", "error")
        return None
    if "flow" in spec:
        report_finding("agent_missing", "flow", "flow: names a flow of an agent, but 'agent' is missing", "error")
        return None
    return "prompt", "prompt", {} if written is None else {"user": written}, ()


def _from_file(
    key: str, path: Path, read: Callable[[Path], Record], report_finding: ReportFinding
) -> tuple[str, str, Record, tuple[Path, ...]] | None:
    if not os.path.isfile(path):  # Path.is_file raises for a name that is too long
        beside = [sibling.name for sibling in path.parent.iterdir()] if os.path.isdir(path.parent) else []
        message = f"{key}: there is no file {quote(path.as_posix(), 200)}{did_you_mean(path.name, beside)}"
        report_finding("prompt_missing", key, message, "error")
        return None
    try:
        return key, path.name, read(path), (path,)
    except EvalloomError as error:
        report_finding("bad_prompt", key, str(error.args[0]), "error")
        return None


def _flow(step: Step, folder: Path, report_finding: ReportFinding) -> tuple[str, str, Record, tuple[Path, ...]] | None:
    """Load the flow of an agent in prompt-lab's layout: agents/ID/agent.yaml, agents/ID/prompts/FLOW.yaml."""
    agent_id = step.spec["agent"]
    home = agents_folder(folder)
    agents = sorted(path.parent.name for path in home.glob("*/agent.y*ml")) if home else []
    if home is None or agent_id not in agents or not _ID.fullmatch(agent_id):
        has = f"; there are {', '.join(agents[:12])}{did_you_mean(agent_id, agents)}" if agents else ""
        agent_file = f"{(home or folder / 'agents').as_posix()}/{agent_id}/agent.yaml"
        report_finding(
            "agent_missing",
            "agent",
            f"agent: there is no agent {agent_id!r}: expected {quote(agent_file, 200)}{has}",
            "error",
        )
        return None
    own = home / agent_id
    agent = next(own.glob("agent.y*ml"))
    try:
        flows = dict(_flows(read_fields(agent)))
    except EvalloomError as error:
        report_finding("bad_agent", "agent", str(error.args[0]), "error")
        return None
    name = step.spec.get("flow") or next(iter(flows), "")
    if name not in flows:
        has = ", ".join(flows) or "none"
        hint = did_you_mean(name, flows)
        report_finding(
            "flow_missing", "flow", f"flow: the agent {agent_id!r} has no flow {name!r}; it has {has}{hint}", "error"
        )
        return None
    written = flows[name]
    if "file" not in written and any(key in written for key in PROMPT_KEYS):
        return "flow", f"{agent_id}/{agent.name}", written, (agent,)
    source = _from_file("flow", _flow_file(own, name, written), read_fields, report_finding)
    return source and (source[0], f"{agent_id}/{source[1]}", source[2], (agent, *source[3]))


def _flows(agent: Record) -> Iterator[tuple[str, Record]]:
    """Yield the flows of an agent, written as a list or as an object by name."""
    flows = agent.get("flows")
    if isinstance(flows, dict):
        yield from ((name, flow if isinstance(flow, dict) else {"file": flow}) for name, flow in flows.items())
    for flow in flows if isinstance(flows, list) else ():
        if isinstance(flow, str):
            yield flow, {}
        elif isinstance(flow, dict) and isinstance(flow.get("name"), str):
            yield flow["name"], flow


def _flow_file(own: Path, name: str, written: Record) -> Path:
    """Return the file of a flow inside the folder of its agent."""
    file = written.get("file")
    file = file if isinstance(file, str) else f"{name}.yaml"
    for path in (own / "prompts" / file, own / file):
        if os.path.isfile(path) and path.resolve().is_relative_to(own.resolve()):
            return path
    return own / "prompts" / Path(file).name


def _without_unknown_keys(content: Record, where: str, key: str, report_finding: ReportFinding) -> Record:
    """Keep the known keys of a prompt; warn about others, because existing files may contain them."""
    prompt_keys = (*PROMPT_KEYS, *ABOUT_KEYS)
    for name in content.keys() - {*prompt_keys}:
        message = f"{where}: {name}: a prompt has no such key, so it has no effect{did_you_mean(name, PROMPT_KEYS)}"
        report_finding("unknown_pipeline_key", key, message, "warning")
    return {name: value for name, value in content.items() if name in prompt_keys}
