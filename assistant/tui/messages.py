"""Lanes, which do work that may block, and the messages by which lanes and widgets tell the app.

A lane is a daemon thread, one for each thing that may hang; what hangs in one is waited for by nobody. Not the thread workers of
Textual: those share a small pool that is waited for at exit, so a scheduler that hangs would keep the operator from leaving, and
two of them would starve the rest. A newer message of those that show a state replaces an older one that still waits.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from textual.message import Message

from assistant.tui.snapshot import ClusterSnapshot, KillSwitchSnapshot, StoreSnapshot

if TYPE_CHECKING:
    from textual.message_pump import MessagePump
    from textual.screen import Screen

    from assistant.agent.answer import Answer, AnswerSource
    from assistant.tui.sessions import LastUse, SessionEntry
    from assistant.tui.snapshot import RecoverySnapshot, UndoSnapshot

logger = logging.getLogger(__name__)


class Latest(Message):
    """News about a state: only the newest counts."""

    def can_replace(self, message: Message) -> bool:
        """Tell whether this makes a waiting message needless."""
        return type(message) is type(self)


class Deliver(Message):
    """Something was read for one screen or widget; the app hands it over."""

    def __init__(self, to: MessagePump, message: Message) -> None:
        super().__init__()
        self.to, self.message = to, message


class StoreRead(Latest):
    """The store was read."""

    def __init__(self, snapshot: StoreSnapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


class KillSwitchRead(Latest):
    """The files that stop every change were looked at; None when none is set."""

    def __init__(self, snapshot: KillSwitchSnapshot | None) -> None:
        super().__init__()
        self.snapshot = snapshot


class ClusterRead(Latest):
    """The scheduler answered, or did not."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


class ChatTrouble(Message):
    """Something did not work; the chat goes on with less."""

    def __init__(self, lane: str, text: str) -> None:
        super().__init__()
        self.lane, self.text = lane, text


class EngineReady(Message):
    """The engine stands; `mode` is that of the policy: observe, propose or act."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode


class AgentReady(Message):
    """The agent can be asked; `mode` says what answers."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode


class SourceRead(Message):
    """The agent made a reading call for a question."""

    def __init__(self, question: int, source: AnswerSource, took_s: float | None = None) -> None:
        super().__init__()
        self.question, self.source, self.took_s = question, source, took_s


class Drafted(Message):
    """More of an answer, as the model says it: not yet held against the evidence."""

    def __init__(self, question: int, text: str) -> None:
        super().__init__()
        self.question, self.text = question, text


class Answered(Message):
    """A question is answered."""

    def __init__(self, question: int, answer: Answer) -> None:
        super().__init__()
        self.question, self.answer = question, answer


class NotAnswered(Message):
    """A question could not be answered."""

    def __init__(self, question: int, why: str) -> None:
        super().__init__()
        self.question, self.why = question, why


class Noted(Message):
    """What came of a command that was typed in the conversation, as Markdown."""

    def __init__(self, question: int, text: str) -> None:
        super().__init__()
        self.question, self.text = question, text


class Resumed(Message):
    """Another conversation is to be shown; a new one has no entries."""

    def __init__(self, name: str, entries: Sequence[SessionEntry]) -> None:
        super().__init__()
        self.name, self.entries = name, entries


class LastUseRead(Message):
    """It was read when the chat was last in use; None where that is not known."""

    def __init__(self, last_use: LastUse | None) -> None:
        super().__init__()
        self.last_use = last_use


class Typed(Message):
    """What was typed in earlier conversations, oldest first."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__()
        self.lines = lines


class ApprovalSettled(Message):
    """A person's answer to an approval was given to the store, or came too late; `waits` where it can still be answered."""

    def __init__(self, approval: int, *, won: bool, text: str, waits: bool = False) -> None:
        super().__init__()
        self.approval, self.won, self.text, self.waits = approval, won, text, waits


class ActionReport(Message):
    """What the person asked for was done, or could not be."""

    def __init__(self, text: str, *, ok: bool) -> None:
        super().__init__()
        self.text, self.ok = text, ok


class AskRecovery(Message):
    """Show what bringing a job back would do, and ask; `then` gets the person's answer, on the thread of the screens."""

    def __init__(self, snapshot: RecoverySnapshot, on_answer: Callable[[bool], None]) -> None:
        super().__init__()
        self.snapshot, self.then = snapshot, on_answer


class AskUndo(Message):
    """Show what taking a change back would do, and ask; `then` gets the person's answer, on the thread of the screens."""

    def __init__(self, undo: UndoSnapshot, on_answer: Callable[[bool], None]) -> None:
        super().__init__()
        self.snapshot, self.then = undo, on_answer


class OpenIncident(Message):
    """Show an incident."""

    def __init__(self, incident: int) -> None:
        super().__init__()
        self.incident = incident


class OpenApproval(Message):
    """Show what waits for a yes."""

    def __init__(self, approval: int) -> None:
        super().__init__()
        self.approval = approval


class ApprovalLookedFor(Message):
    """The store was read anew to find what waits for a yes; `asked_on` is the screen on which the person asked for it."""

    def __init__(self, approval: int, snapshot: StoreSnapshot, asked_on: Screen[Any]) -> None:
        super().__init__()
        self.approval, self.snapshot, self.asked_on = approval, snapshot, asked_on


class AskLift(Message):
    """The person wants the kill switch lifted: show it, and ask; `then` gets the answer, on the thread of the screens."""

    def __init__(self, snapshot: KillSwitchSnapshot, on_answer: Callable[[bool], None]) -> None:
        super().__init__()
        self.snapshot, self.then = snapshot, on_answer


class OpenJob(Message):
    """Show a job."""

    def __init__(self, job: str) -> None:
        super().__init__()
        self.job = job


class OpenNodes(Message):
    """Show a node, or a folded set of them."""

    def __init__(self, nodes: str) -> None:
        super().__init__()
        self.nodes = nodes


class OpenPlaybook(Message):
    """Show a playbook."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


_END = ""
SWITCH_S = 0.001
"""Seconds after which a thread at work lets another one run."""


def let_screens_run() -> None:
    """Let the screens' thread have the interpreter soon: with 5 ms it waits several times a key while a lane is at work."""
    sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_S))


class Lane:
    """Does one thing after the other; a newer request of a kind replaces one of that kind that still waits."""

    def __init__(self, name: str, failed: Callable[[str, Exception], None]) -> None:
        """Prepare a lane; its thread starts with the first request.

        Args:
            name: For the thread, and for `failed`.
            failed: Is told, on the lane's thread, what a request raised.
        """
        self.name = name
        self._failed = failed
        self._waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._work: dict[str, Callable[[], object]] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.busy = False
        """Whether it is at work."""

    def ask(self, kind: str, work: Callable[[], object]) -> None:
        """Let the lane do something soon; `kind` tells what it replaces among what waits."""
        with self._lock:
            if self._closed:
                return
            waits = kind in self._work
            self._work[kind] = work
            if not waits:
                self._waiting.put(kind)
            if self._thread is None:
                let_screens_run()
                self._thread = threading.Thread(target=self._run, name=f"chat-{self.name}", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Let the thread end after what was asked before; what is asked later is not done. Waits for nothing."""
        with self._lock:
            self._closed = True
            self._waiting.put(_END)

    def _run(self) -> None:
        while (kind := self._waiting.get()) != _END:
            with self._lock:
                work = self._work.pop(kind)
            self.busy = True
            try:
                work()
            except Exception as error:
                logger.debug("lane=%s kind=%s failed", self.name, kind, exc_info=True)
                self._failed(self.name, error)
            finally:
                self.busy = False


class NotThere(Message):
    """What should be shown cannot be."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why
