"""The conversations of this server: a hoplet on one input, with what the user replies to its results.

Each turn is a process (`hop/turn.py`). A conversation lives in memory and ends with the server.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import OrderedDict
from contextlib import suppress
from datetime import UTC, datetime
from secrets import token_hex
from time import monotonic
from typing import IO
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct
from starlette.routing import Route

from evalloom.core.model import Record
from evalloom.hop.operators.session import FeedbackRound
from evalloom.hop.target import TIMEOUT_S
from evalloom.hop.turn import TurnLine, TurnRequest, TurnResult
from evalloom.pages.errors import RequestError
from evalloom.pages.site import Site

MOST_ROUNDS = 5
CONFIRM = "confirm"
"""The reply that accepts an uncertain result as it is."""
_MOST_KEPT = 200
_MOST_RUNNING = 4
_LIMIT_S = TIMEOUT_S + 30
"""Seconds until a process that does not end by itself is killed."""
_SHOWN_OUTPUT = 16_000
_decode = msgspec.json.Decoder(TurnLine).decode


class Turn:
    """One call of the hoplet; its `state` is `running`, an outcome, `CONFIRMED` or `CANCELLED`."""

    def __init__(self, feedback: str) -> None:
        self.feedback = feedback
        self.state = "running"
        self.result = TurnResult("FAIL")
        self.steps: list[Record] = []
        self.printed = ""
        self.started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self.started = monotonic()
        self.process: subprocess.Popen[bytes] | None = None
        self.is_over = threading.Event()

    def end(self, state: str) -> None:
        self.state = state
        self.is_over.set()


class Conversation(Struct):
    """A hoplet on one input."""

    id: str
    task: str
    profile: str
    inputs: Record
    expected: Record
    turns: list[Turn]

    @property
    def last(self) -> Turn:
        return self.turns[-1]

    @property
    def rounds(self) -> list[FeedbackRound]:
        """The replies so far, each with the result that it is about."""
        rounds, value = [], None
        for turn in self.turns:
            if turn.feedback:
                rounds.append(FeedbackRound(value, turn.feedback))
            if turn.state not in ("running", "CANCELLED", "FAIL"):
                value = turn.result.value
        return rounds


class Conversations:
    """All conversations, and their processes. All methods are thread-safe."""

    def __init__(self, site: Site) -> None:
        self._home = site.home
        self._hidden = site.token
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Conversation] = OrderedDict()
        self._is_closed = False

    def get(self, id: str, task: str) -> Conversation:
        """Return a conversation about a task."""
        found = self._kept.get(id)
        if found is None or found.task != task:
            message = f"there is no conversation {id[:80]!r} since this server started. Run the case again"
            raise RequestError("conversation_not_found", message)
        return found

    def begin(self, task: str, profile: str, inputs: Record, expected: Record) -> Conversation:
        """Start a conversation with its first turn."""
        conversation = Conversation(token_hex(6), task, profile, inputs, expected, [])
        self._start(conversation, Turn(""))
        with self._lock:
            self._kept[conversation.id] = conversation
            ended = [id for id, each in self._kept.items() if each.last.state != "running"]
            for id in ended[: max(0, len(self._kept) - _MOST_KEPT)]:
                del self._kept[id]
        return conversation

    def reply(self, conversation: Conversation, feedback: str) -> None:
        """Reply to a result that asks for more: the hoplet runs again with it, or its result is confirmed."""
        drop_cancelled(conversation)
        last = conversation.last
        if last.state not in ("LACK_OF_INFO", "UNCERTAIN"):
            raise RequestError("no_reply_expected", f"this result is {last.state}, so it takes no reply. Run it again")
        if last.state == "UNCERTAIN" and feedback.lower() == CONFIRM:
            last.end("CONFIRMED")
            return
        if len(conversation.rounds) >= MOST_ROUNDS:
            message = f"a conversation has at most {MOST_ROUNDS} replies. Change the inputs and run it again"
            raise RequestError("too_many_rounds", message)
        if not feedback:
            raise RequestError("validation_failed", "feedback: expected a text, got none")
        self._start(conversation, Turn(feedback))

    def retry(self, conversation: Conversation) -> None:
        """Repeat the last request, which failed or was cancelled."""
        last = conversation.last
        if last.state not in ("FAIL", "CANCELLED"):
            raise RequestError("no_reply_expected", f"this result is {last.state}: only a failed one is tried again")
        conversation.turns.remove(last)
        try:
            self._start(conversation, Turn(last.feedback))
        except RequestError:
            conversation.turns.append(last)
            raise

    def cancel(self, conversation: Conversation) -> None:
        """End the running turn; its process is killed."""
        last = conversation.last
        if last.state == "running":
            last.end("CANCELLED")
            _kill(last)

    def close(self) -> None:
        """End all turns: the server stops."""
        self._is_closed = True
        for conversation in list(self._kept.values()):
            self.cancel(conversation)

    def _start(self, conversation: Conversation, turn: Turn) -> None:
        rounds = [*conversation.rounds]
        if turn.feedback:
            rounds.append(FeedbackRound(conversation.last.result.value, turn.feedback))
        request = TurnRequest(conversation.task, conversation.profile, conversation.inputs, rounds)
        environment = {name: value for name, value in os.environ.items() if not self._hidden or value != self._hidden}
        with self._lock:
            running = sum(each.last.state == "running" for each in self._kept.values() if each.turns)
            if self._is_closed or running >= _MOST_RUNNING:
                message = f"{_MOST_RUNNING} hoplets are running already. Wait for one, or cancel one"
                raise RequestError("too_many_jobs", message)
            printed = tempfile.TemporaryFile()  # noqa: SIM115 - the thread that follows the turn closes it
            turn.process = subprocess.Popen(
                [sys.executable, "-m", "evalloom.hop.turn"],
                cwd=self._home,
                env=environment | {"PYTHONUNBUFFERED": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=printed,
                # Ctrl-C in the terminal of the server is for the server.
                start_new_session=True,
            )
            conversation.turns.append(turn)
        threading.Thread(target=_follow, args=(turn, request, printed), daemon=True).start()


def drop_cancelled(conversation: Conversation) -> None:
    """Forget a reply that was cancelled: the result before it can be replied to again."""
    if conversation.last.state == "CANCELLED" and len(conversation.turns) > 1:
        conversation.turns.pop()


def _follow(turn: Turn, request: TurnRequest, printed: IO[bytes]) -> None:
    """Read what the process of a turn reports, until it ends."""
    process = turn.process
    assert process is not None and process.stdin is not None and process.stdout is not None
    deadline = threading.Timer(_LIMIT_S, _kill, [turn])
    deadline.daemon = True
    deadline.start()
    result: TurnResult | None = None
    with printed, suppress(OSError, ValueError, msgspec.MsgspecError):
        # Not closed before the end: the process ends when this server does.
        process.stdin.write(msgspec.json.encode(request) + b"\n")
        process.stdin.flush()
        for line in process.stdout:
            report = _decode(line)
            if report.step is not None:
                turn.steps.append(report.step)
            result = report.result or result
        process.wait()
        size = printed.seek(0, os.SEEK_END)
        printed.seek(max(0, size - _SHOWN_OUTPUT))
        turn.printed = printed.read().decode("utf-8", "replace")
    deadline.cancel()
    _kill(turn)
    process.wait()
    with suppress(OSError):
        process.stdout.close()
        process.stdin.close()
    if result is None:
        seconds = monotonic() - turn.started
        result = TurnResult("FAIL", error=f"the process of the hoplet ended without a result ({process.returncode})")
        result = msgspec.structs.replace(result, seconds=seconds)
    if turn.state == "running":
        turn.result = result
        turn.end(result.outcome)


def _kill(turn: Turn) -> None:
    """End a process and those that it started, which have its session."""
    if turn.process is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(turn.process.pid, signal.SIGKILL)


# -- one object for each site ---------------------------------------------------------------------------

_by_site: WeakKeyDictionary[Site, Conversations] = WeakKeyDictionary()


def conversations_of(site: Site) -> Conversations:
    """Return the conversations of a site."""
    if site not in _by_site:
        _by_site[site] = Conversations(site)
    return _by_site[site]


class _Mounted:
    """Ends the conversations with the server; there are no routes beside the pages."""

    def __init__(self, conversations: Conversations) -> None:
        self.routes: list[Route] = []
        self._conversations = conversations

    def close(self) -> None:
        self._conversations.close()


def mount(site: Site) -> _Mounted:
    """Create the conversations of a site."""
    return _Mounted(conversations_of(site))
