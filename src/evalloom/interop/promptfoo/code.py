"""Code of a promptfoo config: JavaScript in the embedded engine, Python in the sandbox and only with --allow-code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from evalloom.core.errors import CallError
from evalloom.core.model import Record
from evalloom.core.text import quote
from evalloom.interop.promptfoo import files
from evalloom.interop.promptfoo.files import File, FileProblem
from evalloom.interop.promptfoo.providers import Provider

_PYTHON_S = 60.0
_NOT_ALLOWED = "Python code of a config runs only with --allow-code, or 'run: {allow_code: true}' in evalloom.yaml"


class Scripts:
    """Calls the functions that a config names; `base` is its folder."""

    def __init__(self, base: str, allow_code: bool) -> None:
        self._base = base
        self._allow_code = allow_code

    async def transform(self, written: str, value: Any, variables: Record, prompt: str) -> Any:
        """Apply a transform, a JavaScript expression or a file, to an output."""
        context = {"vars": _without_environment(variables), "prompt": {"raw": prompt, "label": prompt}}
        what = f"transform {quote(written, 40)}"
        if not files.is_file(written):
            return await self._javascript("", written, {"output": value, "context": context}, what)
        file = self._read(written, what)
        if file.language == "python":
            return await self.python(file, ("get_transform",), (value, context), what)
        return await self._javascript(file, "", {"output": value, "context": context}, what)

    async def prompt(self, file: File, variables: Record, provider: Provider | None, config: Record) -> Any:
        """Return the prompt that a function makes: a text, messages, or an object with `prompt` and `config`."""
        about = {"id": provider.id, "label": provider.name} if provider else {"id": "", "label": ""}
        given = {"vars": _without_environment(variables), "provider": about, "config": config}
        what = f"prompt {file.path.name}"
        if file.language == "python":
            return await self.python(file, ("get_prompt", "prompt", "main"), (given,), what)
        return await self._javascript(file, "", {"context": given}, what)

    async def file_variables(self, variables: Record, prompt: str) -> Record:
        """Replace variables that name a file of code by what its function returns."""
        named = [name for name, value in variables.items() if files.is_file(value) and files.language_of(value)]
        for name in named:
            what = f"vars.{name}"
            file = self._read(variables[name], what)
            arguments = {
                "varName": name,
                "prompt": prompt,
                "otherVars": _without_environment(variables),
                "provider": {},
            }
            if file.language == "python":
                answer = await self.python(file, ("get_var",), tuple(arguments.values())[:3], what)
            else:
                answer = await self._javascript(file, "", arguments, what)
            if not isinstance(answer, dict) or answer.get("error") or not answer.get("output"):
                why = answer.get("error") if isinstance(answer, dict) else None
                raise CallError("variable_failed", f"{what}: {why or 'expected an object with output, got none'}")
            variables = {**variables, name: answer["output"]}
        return variables

    async def python(self, file: File, names: tuple[str, ...], arguments: tuple[Any, ...], what: str) -> Any:
        """Call a Python function in the sandbox: the one that the reference names, or one of `names`."""
        if not self._allow_code:
            raise CallError("code_not_allowed", f"{what}: {_NOT_ALLOWED}")
        from evalloom.core.sandbox import Call, Code, Limits, run_code  # deferred: few configs have code

        module = file.path.stem
        reference = f"{module}:{file.function}" if file.function else ""
        code = (
            Code(reference=reference, folder=file.path.parent)
            if reference
            else Code(text=file.text, entry=names, folder=file.path.parent)
        )
        (done,) = await run_code(code, [Call(ordered=arguments)], Limits(cpu_s=_PYTHON_S, wall_s=_PYTHON_S))
        if done.error:
            raise CallError("code_error", f"{what}: {done.error}")
        return done.value

    async def expression(self, source: str, names: Mapping[str, Any], what: str) -> Any:
        """Evaluate JavaScript that is written in the config."""
        return await self._javascript("", source, names, what)

    async def javascript(self, reference: str, names: Mapping[str, Any], what: str) -> Any:
        """Call the function that a reference to a file of JavaScript names."""
        return await self._javascript(self._read(reference, what), "", names, what)

    async def _javascript(self, file: File | str, source: str, names: Mapping[str, Any], what: str) -> Any:
        # Deferred: few configs have code, and the engine is an extra.
        from evalloom.core import javascript

        code = (
            javascript.Code(source, folder=self._base)
            if isinstance(file, str)
            else javascript.Code(file.text, file.path.as_posix(), file.function, self._base)
        )
        try:
            try:
                return javascript.call_quickly(code, names)
            except javascript.SlowJavaScript:
                return await javascript.call_in_thread(code, names)
        except javascript.JavaScriptError as error:
            raise CallError("javascript_error", f"{what}: {error}") from None

    async def exported(self, file: File, ending: str, names: Mapping[str, Any], what: str) -> Any:
        """Call what a file of JavaScript exports, after `ending` changed that."""
        return await self._javascript(File(file.path, f"{file.text}\n{ending}", file.function), "", names, what)

    def filters(self, written: Record) -> dict[str, Callable[..., Any]]:
        """Return the filters of `nunjucksFilters`: a file of JavaScript for each name."""
        from evalloom.interop.promptfoo.templates import TemplateError

        def filter_of(name: str, reference: str) -> Callable[..., Any]:
            def run(value: Any, *arguments: Any) -> Any:
                from evalloom.core import javascript

                what = f"filter {name}"
                try:
                    file = self._read(reference, what)
                    code = javascript.Code(file.text, file.path.as_posix(), file.function, self._base)
                    given = (value, *arguments)
                    return javascript.call(code, {f"argument{at}": item for at, item in enumerate(given)})
                except (javascript.JavaScriptError, CallError) as error:
                    raise TemplateError(f"{what}: {error}") from None

            return run

        return {name: filter_of(name, str(file)) for name, file in written.items() if isinstance(file, str)}

    def at_once(self, written: str, names: Mapping[str, Any], entries: tuple[str, ...], what: str) -> Any:
        """Call code while a config is read, also where an event loop is running already. Raises CallError."""

        async def call() -> Any:
            if not files.is_file(written):
                return await self.expression(written, names, what)
            file = self._read(written, what)
            if file.language == "python":
                return await self.python(file, entries, tuple(names.values())[:1], what)
            return await self._javascript(file, "", names, what)

        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, call()).result()

    def _read(self, reference: str, what: str) -> File:
        try:
            return files.read(reference, self._base)
        except FileProblem as problem:
            raise CallError(problem.code, f"{what}: {problem}") from None


def _without_environment(variables: Record) -> Record:
    return {name: value for name, value in variables.items() if name != "env"}
