"""`env://NAME`: environment variables that the settings allow."""

from __future__ import annotations

from evalloom.core.errors import CallError
from evalloom.core.text import quote
from evalloom.replay.resolvers.call import Call


def read_variable(call: Call) -> str:
    """The value of an environment variable. The value of ours is its name where the target is empty."""
    name = call.target or call.value.strip()
    if not name:
        raise CallError("not_found", "which variable? Write env://NAME")
    if name not in call.reach.env:
        raise CallError("not_allowed", f"not allowed. Add {_shown(name)} to 'resolvers: env:' in evalloom.yaml")
    if name not in call.reach.environ:
        raise CallError("not_found", f"the environment variable {name} is not set. Set it, or write it into .env")
    value = call.reach.environ[name]
    if call.reach.hide(value) != value:
        raise CallError("not_allowed", f"{name} holds a key, and keys go into no context, allowed or not")
    return value


def _shown(name: str) -> str:
    return name if name.isidentifier() and len(name) <= 60 else quote(name)
