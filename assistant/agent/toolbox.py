"""The tools as a language model gets them: reading ones run through the gate, changing ones only propose."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args, get_origin

from assistant.agent.answer import Proposal, Source
from assistant.agent.taint import Origins
from assistant.agent.turn import Turn, put_before_person
from assistant.agent.wording import as_data, cut
from assistant.errors import Denied, ToolError, UsageError
from assistant.nodeset import expand
from assistant.policy import Mode
from assistant.records import Risk
from assistant.tooling import Argument, Tool, found

PROPOSES = "propose_"
KEPT_BACK = frozenset({"wait_storage", "probe_cause", "tell_owner", "escalate", "diagnose_gpus", "live_run"})
"""Reading tools that write a probe file, load GPUs, or only end playbooks."""
OURS = frozenset({"timeout_s", "folder", "force", "seen"})
"""Arguments that a model does not set."""
MOST_OF = {"tail_log": 6_000, "search_log": 5_000, "compress_log": 8_000, "kernel_log": 5_000, "scheduler_log": 4_000}
ENDS = frozenset({"tail_log", "scheduler_log"})
"""Tools whose newest lines stand last: what is cut off is the beginning."""
MOST_CHARACTERS = 5_000
"""Of one result for the model; the whole of it is `show N`."""
MOST_PROPOSALS = 3
MOST_NUMBER = 10**9
_RANGE = re.compile(r"\b(\d[\d,]{0,19}) to (\d[\d,]{0,19})\b")


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool as it is offered."""

    name: str
    tool: Tool
    proposes: bool

    @property
    def description(self) -> str:
        """What the model is told about it."""
        return f"Propose, not do: {self.tool.doc}" if self.proposes else self.tool.doc

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the arguments."""
        shown = {name: argument for name, argument in self.tool.arguments.items() if name not in OURS}
        required = [name for name, argument in shown.items() if argument.required]
        return {"type": "object", "properties": {name: _schema(one) for name, one in shown.items()}, "required": required}


def offers(turn: Turn, *, ordered: bool) -> Iterator[Offer]:
    """Yield what a model may use: in observe mode a changing tool is not even in the list.

    Args:
        turn: For which.
        ordered: Whether the operator's own words ask for a change; else none can be proposed, whatever a log says.
    """
    policy = turn.gate.policy
    reading = [tool for tool in found().values() if tool.risk is Risk.READ]
    yield from (Offer(tool.name, tool, False) for tool in reading if tool.name not in KEPT_BACK)
    if not (ordered and turn.trusted):
        return
    # behind the others: what a model has read of its tools then begins alike in every turn
    for name, tool in found().items():
        if tool.risk is not Risk.READ and policy.mode_of(tool.kind) is not Mode.OBSERVE and {"node", "job"} & set(tool.arguments):
            yield Offer(PROPOSES + name, tool, True)


@dataclass
class Toolbox:
    """Runs the calls of a model in one turn, counts them, and keeps what they returned."""

    turn: Turn
    origins: Origins
    most_calls: int = 12
    most_characters: int = MOST_CHARACTERS
    """Of one result; a model with little room gets less."""
    seen: Counter[str] = field(default_factory=Counter)
    ended: str = ""
    """Why no more calls are made; empty while they are."""
    _first: dict[str, Source] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def call(self, offer: Offer, arguments: Mapping[str, Any]) -> str:
        """Return what a model reads of a call; a problem is told, never raised."""
        with self._lock:
            key = json.dumps([offer.name, arguments], sort_keys=True, default=str)
            self.seen[key] += 1
            if self.ended or self.seen[key] > 2 or self.seen.total() > self.most_calls:
                self.ended = self.ended or (
                    "the same call a third time" if self.seen[key] > 2 else f"{self.most_calls} calls were made"
                )
                return f"No more calls: {self.ended}. Answer with what you have."
            if key in self._first:
                return f"You made this call already, and its result is the same. {self._told(self._first[key])}"
            try:
                source = self._propose(offer, arguments) if offer.proposes else self._look(offer, arguments)
            except (Denied, UsageError, ToolError) as error:
                # a refusal is kept as a source, so that the answer may speak of it
                source = Source(self.turn.number, offer.name, dict(arguments), None, str(error)[:400])
                self.turn.sources.append(source)
            self._first[key] = source
            self.origins.learn(source)
            return self._told(source)

    def _look(self, offer: Offer, arguments: Mapping[str, Any]) -> Source:
        given = {name: value for name, value in arguments.items() if name not in OURS}
        if "path" in given and given["path"] not in self.origins.checkpoints:
            raise UsageError(f"{offer.name}: only a path that list_checkpoints returned is read")
        self._exist(offer, given)
        if "timeout_s" in offer.tool.arguments:
            given["timeout_s"] = 0.0
        return self.turn.look(offer.tool.name, **given)

    def _exist(self, offer: Offer, given: Mapping[str, Any]) -> None:
        """Let only names pass that exist, in whatever form the model was asked; where none could be listed, the tool finds out."""
        known = self.turn.known
        for name, value in given.items():
            told = [str(one) for one in (value if isinstance(value, list) else [value]) if one not in (None, "")]
            if name in ("job", "before_job") and known.jobs:
                strangers = [one for one in told if one not in known.jobs]
            elif name in ("node", "nodes") and known.nodes:
                strangers = [node for one in told for node in expand(one) if node not in known.nodes]
            else:
                continue
            if strangers:
                raise UsageError(f"{offer.name}: {name} {strangers[0][:60]!r} is not known here")

    def _propose(self, offer: Offer, arguments: Mapping[str, Any]) -> Source:
        if len(self.turn.proposals) >= MOST_PROPOSALS:
            raise Denied(f"{MOST_PROPOSALS} changes were proposed in this turn; no more")
        kept = self.origins.checked(offer.tool, arguments)
        why = f"the model proposed it, asked: {self.turn.asked.question[:120]}"
        made = put_before_person(
            self.turn.gate, offer.tool.name, kept, why=why, incident=None, instead="", trusted=self.turn.trusted
        )
        self.turn.proposals.append(made)
        source = Source(self.turn.number, offer.name, kept, _proposal(made), made.why_not)
        self.turn.sources.append(source)
        return source

    def _told(self, source: Source) -> str:
        text = source.value if isinstance(source.value, str) else json.dumps(source.value, ensure_ascii=False, default=str)
        if source.error:
            return f"[{source.number}] It did not work: {as_data(source.tool, source.error)}"
        limit = min(MOST_OF.get(source.tool, MOST_CHARACTERS), self.most_characters)
        told = f"[{source.number}]\n{as_data(source.call, cut(text, limit, end=source.tool in ENDS))}"
        return told if len(text) <= limit else f"{told}\n(The operator reads all of it with: show {source.number})"


def _proposal(made: Proposal) -> dict[str, Any] | None:
    if made.why_not:
        return None
    return {"proposed": made.preview, "approval": made.approval, "digest": made.digest, "note": "not done: a person says yes or no"}


def _schema(argument: Argument) -> dict[str, Any]:
    wanted = argument.type
    options = [option for option in get_args(wanted) if option is not type(None)]
    if options and get_origin(wanted) is not list:
        wanted = options[0]
    if get_origin(wanted) is list:
        kind: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
    else:
        kind = {"type": {int: "integer", float: "number", bool: "boolean"}.get(wanted, "string")}
    if wanted in (int, float):
        # no argument of a tool counts below nothing; a narrower range stands in its description
        found = _RANGE.search(argument.doc)
        least, most = (int(bound.replace(",", "")) for bound in found.groups()) if found else (0, MOST_NUMBER)
        kind |= {"minimum": least, "maximum": most}
    return {**kind, "description": argument.doc}


__all__ = ["Offer", "Toolbox", "offers"]
