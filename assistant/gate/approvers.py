"""What the policy's `ask` needs: the question and the preview for people, and who answers when no person sits there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from assistant.errors import NightshiftError, Parked, UsageError
from assistant.gate.targets import Reach
from assistant.policy import Request
from assistant.records import Call, Decision, Verdict
from assistant.rendering import NEW_JOB, RenderedChange
from assistant.tooling import Context, Tool

if TYPE_CHECKING:
    from assistant.store import Store

__all__ = ["AnswersFrom", "Park", "Preview", "rendered_change", "request_of", "shared_arguments", "undo_text"]


class Park:
    """Puts the call into the inbox and goes on: for the watchdog and for commands without a terminal."""

    def __init__(self, store: Store, *, expires_after_s: float) -> None:
        """Name the inbox that calls are put into.

        Args:
            store: Holds it.
            expires_after_s: How long a question stays open; later the world may look different.
        """
        self._store = store
        self._expires_after = timedelta(seconds=expires_after_s)

    def ask(self, call: Call, decision: Decision) -> Decision:
        """Put the call into the inbox and raise `Parked`: a person answers later.

        Raises:
            Parked: Always, with the id to answer to.
        """
        now = self._store.clock.now()
        approval = self._store.park(call.id, decision, now + self._expires_after, asked_at=now)
        raise Parked(
            f"{call.preview or call.tool} waits for approval {approval} ({decision.rule}: {decision.why}); "
            f"nightshift approve {approval}, or deny {approval}",
            approval,
        )


class AnswersFrom:
    """Answers from a list, first question first: for tests and rehearsals."""

    def __init__(self, verdicts: Sequence[Verdict], *, by: str = "rehearsal") -> None:
        self._verdicts = list(verdicts)
        self._by = by
        self.questions: list[tuple[Call, Decision]] = []
        """What was asked so far."""

    def ask(self, call: Call, decision: Decision) -> Decision:
        """Return the next answer.

        Raises:
            UsageError: The list is used up.
        """
        self.questions.append((call, decision))
        if not self._verdicts:
            raise UsageError(f"no answer is left for {call.preview or call.tool} ({decision.rule})")
        return Decision(self._verdicts.pop(0), "answered", self._by, decision.at, "from the list")


class Preview(NamedTuple):
    """What a call would do, and what the policy says to it now."""

    text: str
    """The exact command or change."""
    decision: Decision


def request_of(tool: Tool, by: str, reach: Reach | None, approved_by: str | None, shared_cause: int | None = None) -> Request:
    """Return the question to the policy; without a reach it is a reading call.

    Args:
        tool: What is called.
        by: Who calls it.
        reach: What it would change.
        approved_by: The person who has said yes to it.
        shared_cause: From `answered_cause` of the call's incident.
    """
    if reach is None:
        return Request(tool.risk, tool.kind, by)
    return Request(tool.risk, tool.kind, by, reach.targets, approved_by, shared_cause)


def rendered_change(tool: Tool, context: Context, checked: Mapping[str, Any]) -> RenderedChange:
    """Return the exact commands of a call, as its tool states them; a tool that states none may give none."""
    if tool.show is not None:
        return tool.show(context, **checked)
    return RenderedChange(
        note=f"{tool.name}({', '.join(f'{name}={value!r}' for name, value in checked.items() if value is not None)})"
    )


def undo_text(undo: Tool, context: Context, arguments: Mapping[str, Any], value: Any) -> str:
    """Return the commands that would take a call back, as text; empty where they cannot be told now.

    Args:
        undo: The tool that takes it back.
        context: Of the call.
        arguments: Of the call.
        value: What the call returned; None for one that was not made yet, whose new job then has no id.
    """
    try:
        if value is None and undo.kind == "cancel":
            return "; ".join(context.scheduler.command_lines("cancel", NEW_JOB))
        return rendered_change(undo, context, undo.checked(shared_arguments(undo, arguments, value))).text
    except NightshiftError:
        return ""


def shared_arguments(undo: Tool, arguments: Mapping[str, Any], value: Any) -> dict[str, Any]:
    """Return the arguments for an undo: of the call that is taken back, or, where it has the name, of what that call returned."""
    prepared = value if isinstance(value, Mapping) else {}
    both = {**arguments, **{name: item for name, item in prepared.items() if item is not None}}
    return {name: both[name] for name in undo.arguments if name in both}
