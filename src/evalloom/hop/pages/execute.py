"""Run one case: a form made of the contract, the result as a card, and replies while the hoplet asks for more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct
from starlette.responses import Response

from evalloom.core.contract import Contract
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Record
from evalloom.hop.dialect import inputs_of, is_meta, normalize_input
from evalloom.hop.pages.card import Card, ShownField, card_of, field_of
from evalloom.hop.pages.chinese import PHRASES
from evalloom.hop.pages.conversations import (
    CONFIRM,
    MOST_ROUNDS,
    Conversation,
    Turn,
    conversations_of,
)
from evalloom.hop.pages.form import FormField, entered_texts, fields_of, parse
from evalloom.hop.pages.tasks import (
    Task,
    case_files,
    explain,
    list_files,
    open_store,
    profiles_of,
    read_task_contract,
    task_of,
)
from evalloom.hop.results.rows import expected_of
from evalloom.pages.errors import RequestError
from evalloom.pages.page import Page, PageRequest, Redirect, View
from evalloom.pages.start import check_permissions

_WAIT_S = 1.5
"""How long an action waits for the result, so that a quick one is on the next page."""


class Example(Struct, frozen=True):
    """A case of a file, whose inputs fill the form."""

    file: str
    line: int
    next_line: int
    """The line of the case after it; 0 if it is the last."""
    label: str
    expected: Record


class TurnState(Struct, frozen=True):
    """A turn as the page shows it."""

    feedback: str
    state: str
    card: Card | None
    error: str
    printed: str
    steps: list[Record]
    seconds: float
    tokens: int
    cost: float


class ConversationState(Struct, frozen=True):
    """A conversation as the page shows it."""

    id: str
    profile: str
    inputs: list[ShownField]
    turns: list[TurnState]
    is_running: bool
    takes_reply: bool
    takes_confirmation: bool
    takes_retry: bool
    replies: int
    most_replies: int
    draft: str
    """The reply that was cancelled, to be changed."""


class ExecutePage(Struct, frozen=True):
    """The form, and the conversation about what was sent."""

    task: Task
    fields: list[FormField]
    profiles: list[str]
    profile: str
    example: Example | None
    file: str
    """The file that *Fill example* reads; empty if there is none."""
    next_line: int
    conversation: ConversationState | None
    problem: str = ""


def _show(request: PageRequest) -> View:
    task = task_of(request)
    conversation = None
    if id := request.query.get("c", ""):
        conversation = conversations_of(request.site).get(id, task.path)
    return _page(request, task, conversation)


def _page(
    request: PageRequest,
    task: Task,
    conversation: Conversation | None = None,
    texts: dict[str, str] | None = None,
    errors: dict[str, str] | None = None,
) -> View:
    contract, profiles, problem = _declared(task)
    files = list_files(open_store(request, task))
    runnable = [*case_files(files)]
    example, inputs = None, None
    if conversation is not None:
        inputs = conversation.inputs
    elif file := request.query.get("file", "") or request.field("file"):
        example, inputs = _example(request, task, contract, file, request.query.get("line") or request.field("line"))
    chosen = conversation.profile if conversation else request.query.get("profile", "") or request.field("profile")
    first = (example.file if example else runnable[0].name) if runnable else ""
    page = ExecutePage(
        task,
        fields_of(contract, inputs, texts or {}, errors or {}),
        profiles,
        chosen if chosen in profiles else profiles[0] if profiles else "",
        example,
        first,
        example.next_line if example else 0,
        _state(conversation) if conversation else None,
        problem,
    )
    return View("hop_run.html", page)


def _declared(task: Task) -> tuple[Contract | None, list[str], str]:
    """Return the contract and the profiles of a task; what cannot be read is said on the page."""
    try:
        return read_task_contract(task), profiles_of(task), ""
    except EvalloomError as error:
        return None, [], explain(error)


def _example(
    request: PageRequest, task: Task, contract: Contract | None, file: str, line: str
) -> tuple[Example, Record]:
    """Return a case of a file by its line, by default the first one, and its inputs."""
    open_store(request, task, file)
    wanted = int(line[:18]) if line.isascii() and line.isdecimal() else 0
    cases = (case for case in _cases(Path(task.folder) / "TestCases" / file) if case[0] >= wanted)
    number, record = next(cases, (0, {}))
    if not number or (wanted and number != wanted):
        raise RequestError("case_not_found", f"{file}: expected the line of a case, got {line[:80]!r}")
    case = normalize_input(record)
    label = " · ".join(str(case[name]) for name in ("tag", "description") if case.get(name) not in (None, ""))
    following = next(cases, (0, {}))[0]
    return Example(file, number, following, label[:200], expected_of(case)), inputs_of(record, contract)


def _cases(path: Path) -> Iterator[tuple[int, Record]]:
    """Yield the lines of a file that are cases or results; others are passed over."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                record = msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            if isinstance(record, dict) and not is_meta(record):
                yield number, record


# -- the conversation ---------------------------------------------------------------------------------


def _state(conversation: Conversation) -> ConversationState:
    last, replies = conversation.last, len(conversation.rounds)
    before = conversation.turns[-2] if len(conversation.turns) > 1 else None
    was_cancelled = last.state == "CANCELLED" and before is not None
    # After a cancelled reply, the result before it can be replied to.
    asking = before if was_cancelled and before is not None else last
    replies -= was_cancelled
    return ConversationState(
        conversation.id,
        conversation.profile,
        [field_of(name, value) for name, value in conversation.inputs.items()],
        [_turn(turn, conversation.expected) for turn in conversation.turns],
        last.state == "running",
        asking.state in ("LACK_OF_INFO", "UNCERTAIN") and replies < MOST_ROUNDS,
        asking.state == "UNCERTAIN",
        last.state in ("FAIL", "CANCELLED"),
        replies,
        MOST_ROUNDS,
        last.feedback if was_cancelled else "",
    )


def _turn(turn: Turn, expected: Record) -> TurnState:
    result = turn.result
    has_card = turn.state not in ("running", "CANCELLED", "FAIL")
    return TurnState(
        turn.feedback,
        turn.state,
        card_of(result.value, expected) if has_card else None,
        result.error if turn.state == "FAIL" else "",
        turn.printed,
        turn.steps,
        result.seconds,
        result.tokens,
        result.cost,
    )


def _send(request: PageRequest) -> View | Redirect:
    task = task_of(request)
    contract, profiles, problem = _declared(task)
    if problem:
        raise RequestError("validation_failed", problem)
    texts = entered_texts(request.form)
    inputs, errors = parse(contract, texts, request.t.extended(PHRASES))
    profile = request.field("profile")
    if profile and profile not in profiles:
        message = f"profile: expected {' or '.join(profiles) or 'none'}, got {profile[:80]!r}"
        raise RequestError("validation_failed", message)
    if errors:
        return _page(request, task, None, texts, errors)
    check_permissions(request, [])
    expected: Record = {}
    if file := request.field("file"):
        example, its_inputs = _example(request, task, contract, file, request.field("line"))
        # What the case expects says nothing about other inputs.
        expected = example.expected if its_inputs == inputs or _without_false(inputs) == its_inputs else {}
    conversation = conversations_of(request.site).begin(task.path, profile, inputs, expected)
    return _next(request, task, conversation)


def _without_false(inputs: Record) -> Record:
    return {name: value for name, value in inputs.items() if value is not False}


def _next(request: PageRequest, task: Task, conversation: Conversation) -> Redirect:
    conversation.last.is_over.wait(_WAIT_S)
    return Redirect(request.url(f"{task.url}/run", c=conversation.id) + "#last")


def _asked(request: PageRequest) -> tuple[Task, Conversation]:
    task = task_of(request)
    return task, conversations_of(request.site).get(request.field("c"), task.path)


def _reply(request: PageRequest) -> Redirect:
    task, conversation = _asked(request)
    check_permissions(request, [])
    feedback = CONFIRM if request.field("confirm") else request.field("feedback").replace("\r\n", "\n").strip()
    conversations_of(request.site).reply(conversation, feedback)
    return _next(request, task, conversation)


def _retry(request: PageRequest) -> Redirect:
    task, conversation = _asked(request)
    check_permissions(request, [])
    conversations_of(request.site).retry(conversation)
    return _next(request, task, conversation)


def _cancel(request: PageRequest) -> Redirect:
    task, conversation = _asked(request)
    conversations_of(request.site).cancel(conversation)
    return _next(request, task, conversation)


def _download(request: PageRequest) -> Response:
    """Send the whole result of the last turn as a file."""
    task = task_of(request)
    conversation = conversations_of(request.site).get(request.query.get("c", ""), task.path)
    headers = {"content-disposition": 'attachment; filename="result.json"'}
    return Response(msgspec.json.encode(conversation.last.result.value), 200, headers, "application/json")


PAGES = (
    Page("/hop/{task:path}/run", _show),
    Page("/hop/{task:path}/run", _send, "POST"),
    Page("/hop/{task:path}/reply", _reply, "POST"),
    Page("/hop/{task:path}/retry", _retry, "POST"),
    Page("/hop/{task:path}/cancel", _cancel, "POST"),
    Page("/hop/{task:path}/result.json", _download, has_twin=False),
)
