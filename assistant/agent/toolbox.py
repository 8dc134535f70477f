"""What a language model gets: the tools, of which changing ones only propose, and as much of the conversation as it has room for.

The taint rule: an argument of a changing tool comes from the operator or from a diagnosis, exists, and never comes from a log.

A long conversation is stored as a whole, and `show N` shows a result in full. Nothing of it is summed up by a model: that would
cost a call, and could invent. First the oldest results of tools are cleared, then the oldest questions shrink to a line each,
then the newest results are cut.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, get_args, get_origin

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from assistant.agent.answer import AnswerSource, Proposal, as_data, cut_text, one_line
from assistant.agent.dialogue import QuestionTurn
from assistant.agent.proposals import proposal_told, put_before_person
from assistant.agent.words import NameInventory
from assistant.errors import Denied, ToolError, UsageError
from assistant.nodeset import expand
from assistant.policy import Mode
from assistant.records import Risk
from assistant.redact import head_of, tail_of
from assistant.tooling import Argument, Tool, found

NODES = ("node", "nodes", "exclude", "blamed")
JOBS = ("job", "jobs")
DIAGNOSES = ("explain_job", "show_incident", "plan_recovery", "node_ledger", "two_round_test", "check_nodes")
"""Tools whose values name nodes by a rule, a memory of confirmed incidents or a test."""
WORDS = frozenset({"last_healthy", "last", "none", "before_step"})


@dataclass
class Origins:
    """Where names may come from in this conversation."""

    inventory: NameInventory
    said_jobs: set[str] = field(default_factory=set)
    """That the operator named."""
    said_nodes: set[str] = field(default_factory=set)
    said_numbers: set[str] = field(default_factory=set)
    found_nodes: set[str] = field(default_factory=set)
    """That a diagnosis or a test named."""
    checkpoints: set[str] = field(default_factory=set)
    """Paths that a checkpoint tool returned."""

    def learn(self, source: AnswerSource) -> None:
        """Take up what a tool returned, as far as it is no text of a log."""
        if source.tool in DIAGNOSES and source.value is not None:
            self.found_nodes |= set(_blamed(source.value))
        if source.tool in ("list_checkpoints", "choose_checkpoint"):
            self.checkpoints |= set(_paths(source.value))

    def checked(self, tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a changing tool, with the free words replaced by ours.

        Raises:
            Denied: One comes from nowhere that may name it.
        """
        admitted: dict[str, Any] = {}
        for name, value in arguments.items():
            if name == "reason":
                admitted[name] = "asked for by an operator"
            elif value in (None, "", [], 0):
                continue
            else:
                admitted[name] = self._checked_value(tool, name, value)
        if "reason" in tool.arguments and tool.arguments["reason"].required:
            admitted["reason"] = "asked for by an operator"
        return admitted

    def _checked_value(self, tool: Tool, name: str, value: Any) -> Any:
        if name in NODES:
            return self._nodes(tool, name, value)
        if name in JOBS:
            for job in value if isinstance(value, list) else [value]:
                if str(job) not in self.inventory.jobs or str(job) not in self.said_jobs:
                    raise Denied(f"{tool.name}: job {str(job)[:60]!r} was named by nobody who may: only the operator names jobs")
            return value
        if name == "checkpoint" and (value in WORDS or value in self.checkpoints):
            return value
        if isinstance(value, (int, float)) and not isinstance(value, bool) and f"{value:g}" in self.said_numbers:
            return value
        raise Denied(f"{tool.name}: {name} may not be set by the agent")

    def _nodes(self, tool: Tool, name: str, value: Any) -> Any:
        try:
            nodes = [node for part in (value if isinstance(value, list) else [value]) for node in expand(str(part))]
        except UsageError as error:
            raise Denied(f"{tool.name}: {error}") from error
        for node in nodes:
            if node not in self.inventory.nodes or node not in self.said_nodes | self.found_nodes:
                raise Denied(f"{tool.name}: node {node[:60]!r} was named by nobody who may: the operator, a diagnosis or a test")
        return value if name == "node" else nodes


def _blamed(value: Any) -> Sequence[str]:
    """Return the nodes that a diagnosis or test blames: values under keys that are ours, never texts."""
    nodes: list[str] = []
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key in ("nodes_to_blame", "faulty") and isinstance(item, list):
                nodes += [str(element) for element in item]
            elif key == "nodes" and isinstance(item, list):
                nodes += [str(element["node"]) for element in item if isinstance(element, Mapping) and "node" in element]
            elif key == "diagnosis":
                nodes += _blamed(item)
    return nodes


def _paths(value: Any) -> Sequence[str]:
    if isinstance(value, Mapping):
        own = [str(value[key]) for key in ("path", "restart_from") if value.get(key)]
        return own + [path for item in value.values() for path in _paths(item)]
    return [path for item in value for path in _paths(item)] if isinstance(value, list) else []


PROPOSES = "propose_"
KEPT_BACK = frozenset(
    {
        "wait_storage",
        "wait_unwritten",
        "wait_unlocked",
        "lock_holders",
        "probe_cause",
        "files_changed",
        "file_writers",
        "host_compared",
        "installed_files",
    }
    | {"space_holders", "host_memory", "former_program"}
    | {"tell_owner", "escalate", "diagnose_gpus", "live_run"}
)
"""Reading tools that write a probe file, load GPUs, ask nodes about any path or host, or only end playbooks."""
HIDDEN_ARGUMENTS = frozenset({"timeout_s", "folder", "force", "seen"})
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
class ToolOffer:
    """A tool with the name and the schema under which a model gets it."""

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
        arguments = {name: argument for name, argument in self.tool.arguments.items() if name not in HIDDEN_ARGUMENTS}
        required = [name for name, argument in arguments.items() if argument.required]
        return {
            "type": "object",
            "properties": {name: _schema(argument) for name, argument in arguments.items()},
            "required": required,
        }


def offers(turn: QuestionTurn, *, ordered: bool) -> Iterator[ToolOffer]:
    """Yield what a model may use: in observe mode a changing tool is not even in the list.

    Args:
        turn: For which.
        ordered: Whether the operator's own words ask for a change; else none can be proposed, whatever a log says.
    """
    policy = turn.gate.policy
    reading = [tool for tool in found().values() if tool.risk is Risk.READ]
    yield from (ToolOffer(tool.name, tool, False) for tool in reading if tool.name not in KEPT_BACK)
    if not (ordered and turn.trusted):
        return
    # behind the others: what a model has read of its tools then begins alike in every turn
    for name, tool in found().items():
        if tool.risk is not Risk.READ and policy.mode_of(tool.kind) is not Mode.OBSERVE and {"node", "job"} & set(tool.arguments):
            yield ToolOffer(PROPOSES + name, tool, True)


@dataclass
class Toolbox:
    """Runs the calls of a model in one turn, counts them, and keeps what they returned."""

    turn: QuestionTurn
    origins: Origins
    most_calls: int = 12
    most_characters: int = MOST_CHARACTERS
    """Of one result; a model with little room gets less."""
    calls: Counter[str] = field(default_factory=Counter)
    ended: str = ""
    """Why no more calls are made; empty while they are."""
    _first: dict[str, AnswerSource] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def call(self, offer: ToolOffer, arguments: Mapping[str, Any]) -> str:
        """Return what a model reads of a call; a problem is told, never raised."""
        with self._lock:
            key = json.dumps([offer.name, arguments], sort_keys=True, default=str)
            self.calls[key] += 1
            if self.ended or self.calls[key] > 2 or self.calls.total() > self.most_calls:
                self.ended = self.ended or (
                    "the same call a third time" if self.calls[key] > 2 else f"{self.most_calls} calls were made"
                )
                return f"No more calls: {self.ended}. Answer with what you have."
            if key in self._first:
                return f"You made this call already, and its result is the same. {self._as_text(self._first[key])}"
            try:
                source = self._propose(offer, arguments) if offer.proposes else self._look(offer, arguments)
            except (Denied, UsageError, ToolError) as error:
                # a refusal is kept as a source, so that the answer may speak of it
                source = AnswerSource(self.turn.number, offer.name, dict(arguments), None, head_of(str(error), 400))
                self.turn.sources.append(source)
            self._first[key] = source
            self.origins.learn(source)
            return self._as_text(source)

    def _look(self, offer: ToolOffer, arguments: Mapping[str, Any]) -> AnswerSource:
        call_arguments = {name: value for name, value in arguments.items() if name not in HIDDEN_ARGUMENTS}
        if "path" in call_arguments and call_arguments["path"] not in self.origins.checkpoints:
            raise UsageError(f"{offer.name}: only a path that list_checkpoints returned is read")
        self._exist(offer, call_arguments)
        if "timeout_s" in offer.tool.arguments:
            call_arguments["timeout_s"] = 0.0
        return self.turn.look(offer.tool.name, **call_arguments)

    def _exist(self, offer: ToolOffer, call_arguments: Mapping[str, Any]) -> None:
        """Let only names pass that exist, in whatever form the model was asked; where none could be listed, the tool finds out."""
        inventory = self.turn.inventory
        for name, value in call_arguments.items():
            elements = [str(element) for element in (value if isinstance(value, list) else [value]) if element not in (None, "")]
            if name in ("job", "before_job") and inventory.jobs:
                strangers = [element for element in elements if element not in inventory.jobs]
            elif name in ("node", "nodes") and inventory.nodes:
                strangers = [node for element in elements for node in expand(element) if node not in inventory.nodes]
            else:
                continue
            if strangers:
                raise UsageError(f"{offer.name}: {name} {strangers[0][:60]!r} is not known here")

    def _propose(self, offer: ToolOffer, arguments: Mapping[str, Any]) -> AnswerSource:
        if len(self.turn.proposals) >= MOST_PROPOSALS:
            raise Denied(f"{MOST_PROPOSALS} changes were proposed in this turn; no more")
        admitted = self.origins.checked(offer.tool, arguments)
        why = f"the model proposed it, asked: {self.turn.request.question[:120]}"
        proposal = put_before_person(
            self.turn.gate, offer.tool.name, admitted, why=why, incident=None, instead="", trusted=self.turn.trusted
        )
        self.turn.proposals.append(proposal)
        source = AnswerSource(self.turn.number, offer.name, admitted, _proposal(proposal), proposal.why_not)
        self.turn.sources.append(source)
        return source

    def _as_text(self, source: AnswerSource) -> str:
        text = source.value if isinstance(source.value, str) else json.dumps(source.value, ensure_ascii=False, default=str)
        if source.error:
            return f"[{source.number}] It did not work: {as_data(source.tool, source.error)}"
        limit = min(MOST_OF.get(source.tool, MOST_CHARACTERS), self.most_characters)
        reply = f"[{source.number}]\n{as_data(source.call, cut_text(text, limit, end=source.tool in ENDS))}"
        return reply if len(text) <= limit else f"{reply}\n(The operator reads all of it with: show {source.number})"


def _proposal(proposal: Proposal) -> dict[str, Any] | None:
    if proposal.why_not:
        return None
    if proposal.approval is None:
        return {"note": proposal_told(proposal)}
    return {
        "proposed": proposal.preview,
        "approval": proposal.approval,
        "digest": proposal.digest,
        "note": "not done: a person says yes or no",
    }


def _schema(argument: Argument) -> dict[str, Any]:
    annotation = argument.type
    options = [option for option in get_args(annotation) if option is not type(None)]
    if options and get_origin(annotation) is not list:
        annotation = options[0]
    if get_origin(annotation) is list:
        kind: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
    else:
        kind = {"type": {int: "integer", float: "number", bool: "boolean"}.get(annotation, "string")}
    if annotation in (int, float):
        # no argument of a tool counts below nothing; a narrower range stands in its description
        match = _RANGE.search(argument.doc)
        least, most = (int(limit.replace(",", "")) for limit in match.groups()) if match else (0, MOST_NUMBER)
        kind |= {"minimum": least, "maximum": most}
    return {**kind, "description": argument.doc}


CHARACTERS_A_TOKEN = 3
"""Logs and JSON take more tokens than English."""
KEPT_RESULTS = 2
"""Newest results that are given whole as long as there is room."""
LEAST = 4_000
"""Characters that are given in any case; a model without room for that says so itself."""
LINE = 160
END_KEPT = 300
"""Characters of the end of a result that is cut in its middle."""


class Shortener(AgentMiddleware[Any, Any]):
    """Gives a model as much of the conversation as it has room for."""

    def __init__(self, most: int) -> None:
        """Take how many characters there is room for, without the system message and the tools."""
        super().__init__()
        self._most = max(most, LEAST)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Ask the model with the shortened conversation; the state keeps the whole."""
        return handler(request.override(messages=shortened(request.messages, self._most)))


def shortened(messages: Sequence[Any], most: int) -> list[Any]:
    """Return messages that hold at most about so many characters; the newest question always, and no call without its result."""
    remaining = _answered(messages)
    if _size(remaining) <= most:
        return remaining
    remaining = _cleared(remaining, most)
    remaining = _summed_up(remaining, most)
    return _cut(remaining, most)


def _size(messages: Sequence[BaseMessage]) -> int:
    return sum(
        len(str(message.text)) + sum(len(str(call["args"])) + 40 for call in getattr(message, "tool_calls", ()))
        for message in messages
    )


def _answered(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Leave out calls that broke off before their result: no model goes on with such a conversation."""
    results = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    unanswered = {
        id(message)
        for message in messages
        if isinstance(message, AIMessage) and {call["id"] for call in message.tool_calls} - results
    }
    unanswered_calls = {
        call["id"]
        for message in messages
        if id(message) in unanswered and isinstance(message, AIMessage)
        for call in message.tool_calls
    }
    return [
        message
        for message in messages
        if id(message) not in unanswered and not (isinstance(message, ToolMessage) and message.tool_call_id in unanswered_calls)
    ]


def _cleared(messages: Sequence[BaseMessage], most: int) -> list[BaseMessage]:
    cleared = list(messages)
    for place in [n for n, message in enumerate(cleared) if isinstance(message, ToolMessage)][:-KEPT_RESULTS]:
        if _size(cleared) <= most:
            break
        head = str(cleared[place].text).split("\n", 1)[0][:12]
        cleared[place] = cleared[place].model_copy(
            update={"content": f"{head} (cleared to make room; make the call again to read it)"}
        )
    return cleared


def _summed_up(messages: Sequence[BaseMessage], most: int) -> list[BaseMessage]:
    """Shrink the oldest questions, with all that was done for them, to a line each."""
    starts = [n for n, message in enumerate(messages) if isinstance(message, HumanMessage)]
    remaining, lines = list(messages), list[str]()
    for begin, end in pairwise(starts):
        if _size(remaining) + sum(map(len, lines)) <= most:
            break
        reply = next(
            (
                str(message.text)
                for message in reversed(messages[begin:end])
                if isinstance(message, AIMessage) and str(message.text)
            ),
            "",
        )
        lines.append(f"- asked: {one_line(messages[begin].text, LINE)} / answered: {one_line(reply, LINE) or 'nothing'}")
        remaining = list(messages[end:])
    if not lines:
        return remaining
    # so many lines, too, must find room: the newest
    room = max(most // 4, 2 * LINE)
    while len(lines) > 1 and sum(map(len, lines)) > room:
        lines.pop(0)
    return [HumanMessage("Earlier in this conversation, shortened:\n" + "\n".join(lines)), *remaining]


def _cut(messages: Sequence[BaseMessage], most: int) -> list[BaseMessage]:
    trimmed = list(messages)
    over = _size(trimmed) - most
    places = [n for n, message in enumerate(trimmed) if isinstance(message, ToolMessage)]
    for place in places if over > 0 else ():
        text = str(trimmed[place].text)
        length = max(len(text) - over, 400)
        if length < len(text):
            over -= len(text) - length
            # its end closes the data and says how to read all of it; of a log it is what matters
            head, end = head_of(text, max(length - END_KEPT, 100)), tail_of(text, END_KEPT)
            short = f"{head}\n[cut to make room: {len(text) - len(head) - len(end):,} characters]\n{end}"
            trimmed[place] = trimmed[place].model_copy(update={"content": short})
    return trimmed
