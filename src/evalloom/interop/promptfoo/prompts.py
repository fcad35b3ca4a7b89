"""The prompts of a promptfoo config: texts, files, chats and functions, and how they are filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import orjson
from msgspec import Struct

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Record
from evalloom.core.text import describe, shorten
from evalloom.interop.promptfoo import files, templates
from evalloom.interop.promptfoo.files import File, FileProblem

CONVERSATION = "_conversation"
"""The variable with the earlier turns of a conversation."""
_FILES = ("txt", "md", "j2", "json", "jsonl", "yaml", "yml", "csv", "py", "js", "cjs", "mjs", "ts", "sh", "rb")
_LOOKS_LIKE_FILE = lazy_pattern(rf"[^\s{{}}]+\.(?:{'|'.join(_FILES)})(?::\w+)?", re.IGNORECASE)
_SEPARATOR = lazy_pattern(r"(?m)^[ \t]*---[ \t]*\r?$")
_PLACEHOLDER = lazy_pattern(r"\{\{\s*(\w+)\s*\}\}")
_REMOTE = ("langfuse://", "portkey://", "helicone://", "promptfoo://")
_MOST_PROMPTS = 1_000


class Prompt(Struct, frozen=True):
    """One prompt: a template, or code that makes one."""

    name: str
    """What its column is called; unique in the config."""
    text: str = ""
    code: File | None = None
    config: Record = {}
    """Parameters that override those of the provider."""
    aliases: tuple[str, ...] = ()
    """What tests and providers may call it."""
    chat: Any = None
    """The parsed text, if it is JSON."""

    def is_called(self, name: str) -> bool:
        """Whether a test or provider means this prompt by a name; `group:*` means all that begin so."""
        start = name.removesuffix("*") if name.endswith("*") else f"{name}:"
        return name in self.aliases or any(alias.startswith(start) for alias in self.aliases)

    @property
    def uses_conversation(self) -> bool:
        return CONVERSATION in self.text


class UnreadPrompt(Exception):
    """A prompt that cannot be read; the text says why."""


def read_prompts(written: Any, base: str) -> Iterator[Prompt | UnreadPrompt]:
    """Yield the prompts of a config, or why one cannot be read; `base` is the folder of the config."""
    for entry in _entries(written):
        try:
            yield from _read(entry, base)
        except UnreadPrompt as problem:
            yield problem
        except FileProblem as problem:
            yield UnreadPrompt(str(problem))


def named(prompts: Iterable[Prompt]) -> list[Prompt]:
    """Return the prompts with a unique short name each."""
    taken: dict[str, int] = {}
    unique = []
    for number, prompt in enumerate(prompts, 1):
        name = prompt.name if 0 < len(prompt.name) <= 40 and "@" not in prompt.name else ""
        name = name or f"prompt {number}"
        taken[name] = count = taken.get(name, 0) + 1
        name = name if count == 1 else f"{name} #{count}"
        unique.append(Prompt(name, prompt.text, prompt.code, prompt.config, (name, *prompt.aliases), prompt.chat))
    return unique


def _entries(written: Any) -> Iterator[Record]:
    """Yield each prompt as an object with `raw`, and perhaps `label` and `config`."""
    if isinstance(written, dict) and not {"raw", "id", "label"} & written.keys():
        # An older form: files with their labels.
        yield from ({"raw": file, "label": label} for file, label in written.items())
        return
    for item in written if isinstance(written, list) else [written]:
        if isinstance(item, str):
            yield {"raw": item}
        elif isinstance(item, dict) and isinstance(item.get("raw", item.get("id")), str):
            yield {**item, "raw": item.get("raw", item.get("id"))}
        elif isinstance(item, dict | list):
            # A chat, written as YAML instead of as a text.
            yield {"raw": json.dumps(item, ensure_ascii=False)}
        else:
            yield {"wrong": item}


def _read(entry: Record, base: str) -> Iterator[Prompt]:
    if "wrong" in entry:
        raise UnreadPrompt(f"expected a text, a file or a chat, got {describe(entry['wrong'])}")
    raw, label = entry["raw"], str(entry.get("label") or "")
    config = entry["config"] if isinstance(entry.get("config"), dict) else {}
    aliases = tuple(filter(None, (label, str(entry.get("id") or ""), raw)))
    if raw.startswith(_REMOTE):
        raise UnreadPrompt(f"{shorten(raw, 60)}: prompts of a server are not fetched. Write the prompt into a file")
    if raw.startswith("exec:"):
        raise UnreadPrompt(f"{shorten(raw, 60)}: prompts that a program prints are not run. Write them into a file")
    references = list(_files(raw, base))
    if not references:
        yield _prompt(label, raw, config, aliases)
    for reference in references:
        yield from _file_prompts(files.read(reference, base), label, config, aliases)


def _files(raw: str, base: str) -> list[str]:
    """Return the files that a text names; none if it is a prompt itself."""
    if raw.startswith(files.PREFIX):
        return files.matching(raw, base) if any(mark in raw for mark in "*?[") else [raw]
    if "\n" in raw or "{{" in raw or not raw.strip() or len(raw) > 500:
        return []
    if "*" in raw and (matches := files.matching(raw, base)):
        return matches
    # As in promptfoo, a name with the extension of a prompt file is a file, and no prompt.
    return [raw] if _LOOKS_LIKE_FILE.fullmatch(raw) else []


def _file_prompts(file: File, label: str, config: Record, aliases: tuple[str, ...]) -> Iterator[Prompt]:
    name = label or file.path.stem
    more = (*aliases, file.path.name, file.path.as_posix())
    if file.language in ("javascript", "python"):
        name = label or file.function or file.path.stem
        yield Prompt(name, code=file, config=config, aliases=(*more, *filter(None, [file.function])))
        return
    if file.language or file.suffix in (".sh", ".bash", ".exe", ".bat", ".cmd", ".ps1", ".pl"):
        raise UnreadPrompt(f"{file.path.name}: programs that print a prompt are not run. Write the prompt into a file")
    texts = list(_texts(file))
    if len(texts) > _MOST_PROMPTS:
        raise UnreadPrompt(f"{file.path.name}: expected at most {_MOST_PROMPTS:,} prompts, got {len(texts):,}")
    if not texts:
        raise UnreadPrompt(f"{file.path.name}: expected a prompt, got an empty file")
    for number, (text, own_label) in enumerate(texts, 1):
        short = own_label or (name if len(texts) == 1 else f"{name}-{number}")
        yield _prompt(short, text, config, (*more, *filter(None, [own_label])))


def _texts(file: File) -> Iterator[tuple[str, str]]:
    """Yield each prompt of a file with its label."""
    if file.suffix == ".csv":
        import csv  # deferred: few prompts are in tables

        rows = list(csv.DictReader(file.text.removeprefix("\ufeff").splitlines()))
        if rows and "prompt" in rows[0]:
            yield from ((row["prompt"], row.get("label") or "") for row in rows if (row["prompt"] or "").strip())
        else:
            lines = [line.strip() for line in file.text.splitlines() if line.strip()]
            yield from ((line, "") for line in lines[lines[:1] == ["prompt"] :])
    elif file.suffix == ".jsonl":
        yield from ((line, "") for line in file.text.splitlines() if line.strip())
    elif file.suffix in (".yaml", ".yml", ".json"):
        try:
            value = file.value
        except FileProblem:
            # A template that is JSON or YAML only when it is filled in.
            yield file.text, ""
        else:
            yield (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)), ""
    elif file.suffix == ".txt":
        yield from ((text.strip(), "") for text in _SEPARATOR.split(file.text) if text.strip())
    else:
        yield file.text, ""


def _prompt(name: str, text: str, config: Record, aliases: tuple[str, ...]) -> Prompt:
    return Prompt(name, text, None, config, aliases, _json(text))


def _json(text: str) -> Any:
    """Parse a text that is a JSON list or object; None for any other text."""
    if text.lstrip()[:1] not in ("[", "{"):
        return None
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return parsed if isinstance(parsed, list | dict) else None


def fill(prompt: Prompt, variables: Record) -> str:
    """Fill in a prompt as promptfoo does. Raises TemplateError."""
    variables = {
        name: value.removesuffix("\n") if isinstance(value, str) else value for name, value in variables.items()
    }
    has_templates = any("{" in value for value in variables.values() if isinstance(value, str))
    if has_templates:
        _resolve(variables)
    if prompt.chat is not None:
        return json.dumps(templates.render_texts(prompt.chat, variables), ensure_ascii=False, indent=2)
    if has_templates:
        variables = {
            name: _rendered_variable(value, variables) if isinstance(value, str) and "{" in value else value
            for name, value in variables.items()
        }
    return templates.render(prompt.text, variables)


def _resolve(variables: Record) -> None:
    """Replace names of variables inside other variables, as often as promptfoo does."""
    for _ in range(5):
        is_done = True
        for name, value in variables.items():
            if not isinstance(value, str) or "{{" not in value or (match := _PLACEHOLDER.search(value)) is None:
                continue
            if match[1] in variables and len(value) < templates.LONGEST:
                variables[name] = value.replace(match[0], templates.text_of(variables[match[1]]), 1)
                is_done = False
        if is_done:
            return


def _rendered_variable(value: str, variables: Record) -> str:
    """Fill in a variable that is a template; one that names what is not there stays as written."""
    if not templates.has_marks(value):
        return value
    try:
        if templates.names_in(value) - variables.keys() - {"env"}:
            return value
        return templates.render(value, variables)
    except templates.TemplateError:
        # A text about templates, such as an article with code.
        return value


def messages_of(text: str) -> list[Record]:
    """Return the messages of a filled-in prompt: a chat in JSON or YAML, or one message of the user."""
    stripped = text.strip()
    parsed: Any = None
    if stripped.startswith("- role:"):
        from evalloom.files.rows import Row
        from evalloom.files.yaml_rows import YamlReader

        rows = [row for row in YamlReader([stripped.encode("utf-8", "replace")]) if isinstance(row, Row)]
        parsed = [row.value for row in rows]
    elif stripped[:1] in ("[", "{"):
        parsed = _json(stripped)
    if isinstance(parsed, dict) and isinstance(parsed.get("messages"), list):
        parsed = parsed["messages"]
    is_chat = isinstance(parsed, list) and parsed and all(isinstance(item, dict) and "role" in item for item in parsed)
    return parsed if is_chat else [{"role": "user", "content": text}]


def with_text(prompt: Prompt, text: str) -> Prompt:
    """Return a prompt with another text."""
    return msgspec.structs.replace(prompt, text=text, code=None, chat=_json(text))
