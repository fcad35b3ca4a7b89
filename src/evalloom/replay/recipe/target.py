"""The target `recipe:FILE`: assembles the context of a case and sends it to the llm of the profile."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from evalloom.core.digest import digest_of
from evalloom.core.errors import CallError, usage_error
from evalloom.core.model import Context, Output, Record, Request
from evalloom.replay.recipe.assemble import Recipe, messages_of
from evalloom.replay.recipe.document import RecipeFile
from evalloom.replay.resolvers import Resolution, reach_of, resolve
from evalloom.targets.base import BuiltTarget, TargetOptions, bad_spec, text_in, time_limit, within

if TYPE_CHECKING:
    from evalloom.replay.resolvers import Reach


def build(spec: Record, folder: Path, options: TargetOptions) -> BuiltTarget:
    """Build the target of `{recipe: FILE}`; the file contains a project, or only its state."""
    path = folder / text_in(spec, "recipe")
    if not os.path.isfile(path):  # Path.is_file raises for a name that is too long
        raise usage_error("recipe_missing", f"recipe: there is no file {path.as_posix()!r}")
    document = RecipeFile(path)
    recipe = document.read()
    if options.settings is None and recipe.dynamic:
        raise bad_spec("recipe", "a recipe without dynamic variables here", ", ".join(recipe.dynamic))
    target = RecipeTarget(recipe, reach_of(options.settings, path.parent) if options.settings else None)
    limit = time_limit(spec, options)
    return BuiltTarget(
        name=text_in(spec, "name") or f"recipe:{spec['recipe']}",
        kind="recipe",
        digest=digest_of("recipe", document.state),
        call=within(target, limit) if limit else target,
        # A placeholder without a value stays as it is written (REPLAY-3).
        optional=recipe.names - recipe.declared,
        defaulted=recipe.declared,
        needs_llm=True,
        watch=(path,),
        has_own_outcome=True,
    )


class RecipeTarget:
    """Assembles a context and sends it to the llm. Dynamic variables are resolved once per batch."""

    def __init__(self, recipe: Recipe, reach: Reach | None) -> None:
        self._recipe = recipe
        self._reach = reach
        self._resolved: dict[str, asyncio.Future[Resolution]] = {}

    async def __call__(self, inputs: Record, context: Context) -> Output:
        row = {"variables": inputs}
        resolved = {name: await self._resolve(name) for name in self._recipe.needs([row])}
        assembled = self._recipe.assemble(row, resolved)
        for error in assembled.errors:
            raise CallError(error.error_code, error.message)
        response = await context.llm(Request(messages_of(self._recipe.nodes, assembled), context.profile.params))
        return Output(response.text, {"context": assembled.text})

    async def _resolve(self, name: str) -> Resolution:
        if name not in self._resolved:
            variable, reach = self._recipe.dynamic[name], self._reach
            assert reach is not None
            work = asyncio.to_thread(resolve, variable.resolver, variable.value, reach)
            self._resolved[name] = asyncio.ensure_future(work)
        # A case that is cancelled must not cancel the value for all others.
        return await asyncio.shield(self._resolved[name])
