"""One question being answered: the calls that are made for it, and what is proposed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from assistant.agent.answer import AnswerKind, AnswerSource, Listener, Proposal
from assistant.agent.entities import NameInventory, Names
from assistant.agent.wording import harmless, one_line
from assistant.display import line
from assistant.errors import Denied, NightshiftError, Parked
from assistant.gate import Gate
from assistant.records import Verdict
from assistant.redact import redact, redact_value
from assistant.store.approvals import SHORT_DIGEST
from assistant.tooling import find_tool

BY = "agent"
"""In whose name the agent calls: the policy asks a person about each of its changes."""
MOST_VALUE = 400_000
"""Characters of one text that a source keeps."""


@dataclass(frozen=True, slots=True)
class QuestionRequest:
    """What a question came to mean."""

    intent: str
    question: str
    names: Names
    job: str = ""
    other_job: str = ""
    nodes: tuple[str, ...] = ()
    incident: int | None = None
    confidence: float = 1.0


@dataclass
class QuestionTurn:
    """Makes the calls for one question and keeps what they returned."""

    gate: Gate
    inventory: NameInventory
    request: QuestionRequest
    now: datetime
    trusted: bool = True
    """Whether the question was typed by a person; of piped text nothing is proposed."""
    sources: list[AnswerSource] = field(default_factory=list)
    proposals: list[Proposal] = field(default_factory=list)
    evidence: list[int] = field(default_factory=list)
    incidents: list[int] = field(default_factory=list)
    kind: AnswerKind = AnswerKind.ANSWER
    sources_before: int = 0
    """Sources that the conversation had already: numbers go on from there."""
    listener: Listener | None = None

    @property
    def number(self) -> int:
        """The next source's."""
        return self.sources_before + len(self.sources) + 1

    def look(self, tool: str, **arguments: Any) -> AnswerSource:
        """Make a reading call and return it as a source; a failure is told by its `error`."""
        for source in self.sources:
            if (source.tool, dict(source.arguments)) == (tool, arguments):
                return source
        value, error = None, ""
        try:
            outcome = self.gate.call(tool, arguments, why=f"asked: {one_line(self.request.question, 120)}", by=BY)
            value, error = made_harmless(outcome.value) if outcome.ok else None, one_line(outcome.error, 400)
        except NightshiftError as failure:
            error = one_line(failure, 400)
        source = AnswerSource(self.number, tool, arguments, value, error)
        self.sources.append(source)
        if self.listener is not None:
            self.listener(source)
        return source

    def propose(
        self, tool: str, arguments: Mapping[str, Any], *, why: str, incident: int | None = None, instead: str = ""
    ) -> Proposal:
        """Put a change before a person, by the gate; it is never made by words alone.

        Args:
            tool: A changing tool.
            arguments: Every name among them comes from the inventory, a diagnosis or a test.
            why: For the approver.
            incident: For which it is.
            instead: The command with which a person does it.
        """
        proposal = put_before_person(self.gate, tool, arguments, why=why, incident=incident, instead=instead, trusted=self.trusted)
        self.proposals.append(proposal)
        self.kind = AnswerKind.PROPOSAL if proposal.approval is not None else AnswerKind.REFUSED
        return proposal


def put_before_person(
    gate: Gate, tool: str, arguments: Mapping[str, Any], *, why: str, incident: int | None, instead: str, trusted: bool
) -> Proposal:
    """Return a change as a proposal in the inbox, or refused with the reason."""
    by_hand = f" You can do it yourself: {instead}" if instead else ""
    if not trusted:
        return Proposal(
            tool, arguments, "", None, f"nothing is proposed because of piped text, which anybody may have written.{by_hand}"
        )
    try:
        find_tool(tool).checked(arguments)
        preview = gate.preview(tool, arguments, by=BY, incident=incident)
        if preview.decision.verdict is Verdict.DENY:
            return Proposal(
                tool, arguments, harmless(preview.text), None, f"{preview.decision.rule}: {preview.decision.why}.{by_hand}"
            )
        standing = _standing(gate, tool, arguments)
        if standing is not None:
            return _waiting(gate, tool, arguments, standing)
        outcome = gate.call(tool, arguments, why=why, by=BY, incident=incident)
    except Parked as parked:
        return _waiting(gate, tool, arguments, parked.approval)
    except Denied as denied:
        return Proposal(tool, arguments, "", None, f"{one_line(denied, 400)}.{by_hand}")
    except NightshiftError as error:
        return Proposal(tool, arguments, "", None, one_line(error, 400))
    # the policy lets no call of the agent through, so a person stood behind this gate and said yes: to the stored command, not to
    # the preview, whose tag has no number yet
    call = gate.stored_call(outcome.call)
    why_not = "" if outcome.ok else one_line(outcome.error, 400)
    return Proposal(tool, arguments, harmless(call.preview), None, why_not, digest=call.digest[:SHORT_DIGEST])


def _waiting(gate: Gate, tool: str, arguments: Mapping[str, Any], approval: int) -> Proposal:
    """Return a change that waits in the inbox, with the commands that are stored: those are shown on its card, and run."""
    waiting = gate.call("list_approvals", {}, why="what exactly is proposed", by=BY).value
    stored = next((row for row in waiting or () if row["approval"] == approval), None)
    if stored is None:
        return Proposal(tool, arguments, "", None, f"approval {approval} was answered or withdrawn in the same moment")
    return Proposal(tool, arguments, harmless(stored["change"]), approval, digest=stored["digest"][:SHORT_DIGEST])


def _standing(gate: Gate, tool: str, arguments: Mapping[str, Any]) -> int | None:
    """Return the approval of the same change where the agent has put it before a person already."""
    checked = find_tool(tool).checked(arguments)
    waiting = gate.call("list_approvals", {}, why="whether it is proposed already", by=BY).value
    approvals = (row["approval"] for row in waiting or () if (row["by"], row["tool"], row["arguments"]) == (BY, tool, checked))
    return next(approvals, None)


def made_harmless(value: Any) -> Any:
    """Return a JSON value without secrets and without characters that deceive; very long texts are cut."""
    value = redact_value(value)
    return _harmless(value)


def _harmless(value: Any) -> Any:
    if isinstance(value, str):
        return harmless(value[:MOST_VALUE])
    if isinstance(value, Mapping):
        return {line(key): line(redact(item)) if _is_name(key, item) else _harmless(item) for key, item in value.items()}
    return [_harmless(item) for item in value] if isinstance(value, (list, tuple)) else value


_NAMES = frozenset("by category comment file job name node note owner partition reason rule state title user why work_dir".split())
"""Keys of values that a teller puts into a sentence: a newline in one must not begin a line of the answer."""


def _is_name(key: object, value: object) -> bool:
    return key in _NAMES and isinstance(value, str) and len(value) <= MOST_VALUE
