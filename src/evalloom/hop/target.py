"""A hoplet as a target: a function with a contract that reasons through the operators of its session (HOP-8)."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from evalloom.core.calling import Callee, Parameters, parameters_of
from evalloom.core.contract import Contract
from evalloom.core.digest import digest_of
from evalloom.core.errors import CallError, usage_error
from evalloom.core.functions import NoFunction, copied, find_function, prefer_folder
from evalloom.core.model import Context, Output, Record
from evalloom.core.text import quote, type_name
from evalloom.core.value import plain
from evalloom.hop.contract import contract_of
from evalloom.hop.operators.observer import HopletObserver, Tracer
from evalloom.hop.operators.session import FeedbackRound, HopSession
from evalloom.hop.outcome import split_status
from evalloom.llms.answer_json import NO_JSON, loads
from evalloom.settings import keys
from evalloom.targets.base import BuiltTarget, TargetOptions, text_in, time_limit

TIMEOUT_S = 300.0
"""A hoplet makes several calls and verifies each answer, so the limit is generous."""


class _HopletSource(NamedTuple):
    """The function of a hoplet, its source files and its contract file."""

    function: Callable[..., Any]
    sources: tuple[Path, ...]
    metainfo: Path | None = None


def build(spec: Record, folder: Path, options: TargetOptions, rounds: Sequence[FeedbackRound] = ()) -> BuiltTarget:
    """Build the target of `{hoplet: "task/folder"}` or `{hoplet: "module:function"}`.

    `rounds` are earlier results and replies in a conversation about one case.
    """
    reference = text_in(spec, "hoplet").strip()
    source = _load_task(reference, folder) if os.path.isdir(folder / reference) else _load_function(reference, folder)
    parameters = parameters_of(source.function)
    contract = contract_of(source.metainfo, source.sources[0] if source.sources else None, parameters.name)
    log = text_in(spec, "observer")
    observer = HopletObserver(folder / log, partial(keys.hidden, secrets=options.secrets)) if log else None
    name = text_in(spec, "name") or f"hoplet:{reference}"
    target = HopletTarget(source.function, contract, observer, time_limit(spec, options) or TIMEOUT_S, rounds)
    watch = (*source.sources, *filter(None, [source.metainfo]))
    texts = [file.read_bytes().decode("utf-8", "replace") for file in watch]
    return BuiltTarget(
        name=name,
        kind="hoplet",
        digest=digest_of("hoplet", parameters.name, texts),
        call=target,
        watch=watch,
        closing=target.close,
        needs_llm=bool(session_names(parameters, contract)),
        contract=contract,
        holds_cases=True,
        notes=target.notes,
        has_own_outcome=True,
    )


class HopletTarget:
    """Calls a hoplet with a session and the fields of its contract, and logs the run to the observer."""

    def __init__(
        self,
        function: Callable[..., Any],
        contract: Contract | None,
        observer: HopletObserver | None,
        limit: float,
        rounds: Sequence[FeedbackRound] = (),
    ) -> None:
        self._callee = Callee(function, partial(as_hop_output, contract=contract))
        self._contract = contract
        self._parameters = parameters_of(function)
        self._observer = observer
        self._limit = limit
        self._rounds = rounds

    async def __call__(self, inputs: Record, context: Context) -> Output:
        # A case of another dialect may have fields that the contract does not name.
        contract_inputs = (
            {name: inputs[name] for name in self._contract.inputs if name in inputs} if self._contract else inputs
        )
        run_id = self._observer.run_start(self._parameters.name, contract_inputs) if self._observer else ""
        session = HopSession(context.llm, context.verify, Tracer(context.trace, self._observer, run_id), self._rounds)

        start = perf_counter()

        def metadata(**more: Any) -> Record:
            # A duration with answers from the cache says nothing about how long a run takes (HOP-18).
            cached = {"cached": session.cached_calls} if session.cached_calls else {}
            return {"case_id": context.case.id, "profile": context.profile.name, **more, **cached}

        try:
            bound = arguments(self._parameters, self._contract, copied(contract_inputs), session)
            output = await self._callee(*bound, context, self._limit)
        except CallError as error:
            self._end(run_id, "ERROR", start, None, metadata(hop_status="FAIL", error=str(error)))
            raise
        finally:
            session.close()
        self._end(run_id, "OK", start, output.value, metadata(hop_status=output.outcome))
        return output

    def _end(self, run_id: str, status: str, start: float, result: Any, metadata: Record) -> None:
        if self._observer is not None:
            self._observer.run_end(run_id, status, round(perf_counter() - start, 6), result, metadata)

    def notes(self) -> Iterable[str]:
        return self._observer.errors if self._observer else ()

    async def close(self) -> None:
        await self._callee.close()
        if self._observer is not None:
            self._observer.close()


def session_names(parameters: Parameters, contract: Contract | None) -> list[str]:
    """Return the parameters that take the session, by type or by the name `session`."""
    declared = contract.inputs if contract else ()
    return parameters.annotated(HopSession) or [
        name for name in parameters.names if name == "session" and name not in declared
    ]


def arguments(
    parameters: Parameters, contract: Contract | None, inputs: Record, session: HopSession
) -> tuple[list[Any], Record]:
    """Return the arguments of a hoplet: the session if it takes one, and the inputs as one object or by name."""
    if parameters.takes_positions and not parameters.names:
        # A decorator without functools.wraps hides the signature.
        return [session, inputs], {}
    sessions = session_names(parameters, contract)
    whole = [name for name in parameters.names if name == "input_data" and not (contract and name in contract.inputs)]
    unknown = [name for name in parameters.required if name not in inputs]
    if not sessions and not whole and len(unknown) == len(parameters.required) == 2:
        # The parameters of `f(session, input_data)` may have other names.
        sessions, whole = unknown[:1], unknown[1:]
    return parameters.bind(inputs, {**dict.fromkeys(sessions, session), **dict.fromkeys(whole, inputs)})


# -- return values ------------------------------------------------------------------------------------


def as_hop_output(returned: Any, contract: Contract | None = None) -> Output:
    """Convert a value, JSON text or `(status, value)` to an output. Raises CallError, also for FAIL."""
    outcome, value = split_status(returned)
    if outcome == "OK" and isinstance(value, tuple):
        # `return "OK", await session.hop_get(…)`: the operator's status is inside.
        outcome, value = split_status(value)
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")) and (read := loads(value)) is not NO_JSON:
        # The text itself may be `[status, json]`.
        outcome, value = split_status(read) if outcome == "OK" else (outcome, read)
    if outcome == "FAIL":
        reason = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)
        raise CallError("hop_fail", "the hoplet returned FAIL without a reason" if value in (None, "") else reason)
    value = plain(value)
    if contract is not None and outcome == "OK":
        _check_outputs(contract, value)
    return Output(value, outcome=outcome)


def _check_outputs(contract: Contract, value: Any) -> None:
    """Raise CallError if a value does not meet the output contract."""
    errors = []
    for name, field in contract.outputs.items():
        if not isinstance(value, dict):
            fields = ", ".join(contract.outputs)
            raise CallError(
                "contract_broken", f"returned {_shown(value)}, but the contract expects an object with {fields}"
            )
        if name in value and not field.accepts(value[name]):
            errors.append(f"{name}: expected {field.type} by the contract, got {_shown(value[name])}")
        elif name not in value and field.required:
            errors.append(f"{name}: missing; the contract expects {field.type}")
    if errors:
        raise CallError("contract_broken", f"the output does not match the contract: {'; '.join(errors)}")


def _shown(value: Any) -> str:
    return quote(value) if isinstance(value, str | int | float) else type_name(value)


# -- finding the function -----------------------------------------------------------------------------


def _load_task(reference: str, folder: Path) -> _HopletSource:
    """Load the hoplet of a task folder: the only function in `Hoplet/Hop.py` with `hop` in its name."""
    task = folder / reference
    file = task / "Hoplet" / "Hop.py"
    if not file.is_file():
        raise usage_error("task_missing", f"{reference}: expected a task folder with Hoplet/Hop.py in it, found none")
    function = hoplet_name(file)
    # Hop.py may import its neighbours, also through the name of its folder.
    prefer_folder(task.resolve())
    is_package = (file.parent / "__init__.py").is_file()
    source = _load_function(f"Hoplet.Hop:{function}" if is_package else f"{file.resolve()}:{function}", task)
    metainfo = file.with_name("metainfo.md")
    return source._replace(metainfo=metainfo if metainfo.is_file() else source.metainfo)


def hoplet_name(file: Path) -> str:
    """Return the name of the hoplet in a file: a function defined there, else one assigned or imported there."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise usage_error("target_missing", f"{file.as_posix()}: is not Python: {error}") from None
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assigned = [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call | ast.Lambda)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    imported = [
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("evalloom")
        for alias in node.names
    ]
    for names in (defined, assigned, imported):
        hops = [name for name in dict.fromkeys(names) if "hop" in name.lower() and not name.startswith("_")]
        if len(hops) > 1:
            message = f"{file.as_posix()}: expected one function with 'hop' in its name, got {', '.join(hops)}"
            raise usage_error("several_hoplets", f"{message}. Choose one with --task {file}:{hops[0]}")
        if hops:
            return hops[0]
    has = f"; it has {', '.join(defined)}" if defined else ""
    raise usage_error("target_missing", f"{file.as_posix()}: expected a function with 'hop' in its name{has}")


def _load_function(reference: str, folder: Path) -> _HopletSource:
    if ":" not in reference:
        message = f"hoplet:{reference}: expected a task folder or module:function, and there is no such folder"
        raise usage_error("task_missing", message)
    try:
        function, sources = find_function(reference, folder)
    except NoFunction as error:
        raise usage_error("target_missing", f"hoplet:{reference}: {error}") from None
    beside = sources[0].with_name("metainfo.md") if sources else None
    return _HopletSource(function, sources, beside if beside is not None and beside.is_file() else None)
