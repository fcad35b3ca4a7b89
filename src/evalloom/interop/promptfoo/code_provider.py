"""Providers of a promptfoo config that are code: functions of Python and JavaScript, and programs."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from evalloom.core.errors import usage_error
from evalloom.core.model import Context, Record
from evalloom.interop.promptfoo import files
from evalloom.interop.promptfoo.code import Scripts
from evalloom.interop.promptfoo.files import FileProblem
from evalloom.interop.promptfoo.providers import Provider, code_of
from evalloom.interop.promptfoo.target import Answer, output_of
from evalloom.targets.base import TargetOptions

_TIMEOUT_S = 120.0
_CALL = """
;(function () {
  const exported = typeof module !== "undefined" && module.exports;
  const Provider = (exported && exported.default) || exported;
  const members = typeof Provider === "function" ? Provider.prototype : undefined;
  const isClass = members !== undefined && typeof members.callApi === "function";
  module.exports = async function (prompt, context, options) {
    if (isClass) return await new Provider(options).callApi(prompt, context, options);
    if (Provider && typeof Provider.callApi === "function") return await Provider.callApi(prompt, context, options);
    return await Provider(prompt, context, options);
  };
})();
"""
"""Calls what a file exports: a class or an object with `callApi`, or a function."""


def _about(provider: Provider) -> Record:
    return {"id": provider.id, "label": provider.name, "config": provider.config}


def _context(variables: Record, context: Context) -> Record:
    return {
        "vars": {name: value for name, value in variables.items() if name != "env"},
        "test": {"vars": context.case.inputs, "metadata": context.case.meta.get("metadata", {})},
        "repeatIndex": context.repeat,
    }


def python_provider(provider: Provider, scripts: Scripts, base: str, options: TargetOptions) -> Answer:
    """Return a call of `call_api(prompt, options, context)` in the sandbox."""
    file = _read(code_of(provider), base)

    async def answer(prompt: str, variables: Record, context: Context) -> Any:
        arguments = (prompt, _about(provider), _context(variables, context))
        return output_of(await scripts.python(file, ("call_api",), arguments, provider.id), provider.id)

    return answer


def javascript_provider(provider: Provider, scripts: Scripts, base: str, options: TargetOptions) -> Answer:
    """Return a call of what a file of JavaScript exports."""
    file = _read(code_of(provider), base)

    async def answer(prompt: str, variables: Record, context: Context) -> Any:
        names = {"prompt": prompt, "context": _context(variables, context), "options": _about(provider)}
        return output_of(await scripts.exported(file, _CALL, names, provider.id), provider.id)

    return answer


def program_provider(provider: Provider, scripts: Scripts, base: str, options: TargetOptions) -> Answer:
    """Return a call of a program with the prompt, the options and the context as arguments."""
    from evalloom.targets.command import build

    try:
        words = shlex.split(provider.id.removeprefix("exec:"))
    except ValueError as error:
        raise usage_error("provider_unusable", f"{provider.id}: expected words of a command line: {error}") from None
    spec = {"command": [*words, "{{prompt}}", "{{options}}", "{{context}}"], "output": "text"}
    target = build({**spec, "timeout_s": options.timeout_s or _TIMEOUT_S}, Path(base), options)

    async def answer(prompt: str, variables: Record, context: Context) -> Any:
        inputs = {
            "prompt": prompt,
            "options": json.dumps(_about(provider), ensure_ascii=False),
            "context": json.dumps(_context(variables, context), ensure_ascii=False),
        }
        return (await target.call(inputs, context)).value

    return answer


def _read(reference: str, base: str) -> files.File:
    try:
        return files.read(reference, base)
    except FileProblem as problem:
        raise usage_error(problem.code, str(problem)) from None
