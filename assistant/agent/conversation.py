"""The agent with a language model: LangChain drives it, the toolbox makes its calls, and its answer is held against the evidence.

The model may read, and propose. What it says is checked; when it is absent, slow, at its limits or wrong from end to end, the
semantic agent answers instead.
"""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse, ToolErrorMiddleware, hook_config
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from assistant.agent.answer import (
    Answer,
    AnswerKind,
    AnswerSource,
    Listener,
    Proposal,
    command_text,
    harmless,
    one_line,
    question_of,
)
from assistant.agent.dialogue import QuestionRequest, QuestionTurn, shown_source
from assistant.agent.grounding import AnswerEvidence, check_answer, cited_in
from assistant.agent.semantic import SemanticAgent
from assistant.agent.toolbox import CHARACTERS_A_TOKEN, MOST_CHARACTERS, Origins, Shortener, Toolbox, ToolOffer, offers
from assistant.agent.words import NameInventory, Names, read_inventory, read_names
from assistant.content.reading import shipped
from assistant.display import removed
from assistant.errors import ModelError, NightshiftError, Unavailable
from assistant.gate import Gate
from assistant.llm.chat import ToolChat
from assistant.ports import Clock
from assistant.records import JobState
from assistant.redact import redact_value

if TYPE_CHECKING:
    from langchain_core.language_models.chat_models import BaseChatModel
    from langgraph.runtime import Runtime
import os

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import ToolMessage

from assistant.private_files import open_private, private_folder

logger = logging.getLogger(__name__)

MODEL_CALLS = 10
TOOL_CALLS = 12
ROOM = 8_192
"""Tokens that a model is taken to have room for where it is not known."""
ANSWER = 1_024
"""Tokens of one answer."""
KEPT_SOURCES = 60
FAILURES = (NightshiftError, ValueError, TypeError, KeyError, RuntimeError, OSError, sqlite3.Error)
"""What models and their libraries raise when they are down, slow or wrong."""
_CUT = re.compile(r"\n\[cut here: [^\n]*\]\s*$")


class _LastReply(NamedTuple):
    """The last words of a model in a run."""

    text: str
    cut: bool
    """Whether its limit of tokens ended them."""


class Ender(AgentMiddleware[Any, Any]):
    """Ends a run that made all the calls it may, after one last word of the model."""

    def __init__(self, toolbox: Toolbox, most: int) -> None:
        super().__init__()
        self._toolbox, self._most, self._turns, self._warned = toolbox, most, 0, False

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Let the model speak, unless it spoke often enough."""
        self._turns += 1
        if self._turns > self._most:
            self._toolbox.ended = self._toolbox.ended or f"{self._most} turns were taken"
            return {"jump_to": "end"}
        if self._toolbox.ended and self._warned:
            return {"jump_to": "end"}
        self._warned = bool(self._toolbox.ended)
        return None


class ReplyRedactor(AgentMiddleware[Any, Any]):
    """Takes secrets out of what a model says before the conversation, its file and the next turn of the model hold it."""

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Ask the model; a secret in its words, calls and thoughts becomes `[redacted]`."""
        response = handler(request)
        return replace(response, result=[_redacted(message) for message in response.result])


def _redacted(message: BaseMessage) -> BaseMessage:
    changes: dict[str, Any] = {
        "content": redact_value(message.content),
        "additional_kwargs": redact_value(message.additional_kwargs),
    }
    if isinstance(message, AIMessage):
        for kind in ("tool_calls", "invalid_tool_calls"):
            changes[kind] = [{**call, "args": redact_value(call["args"])} for call in getattr(message, kind)]
    return message.model_copy(update=changes)


class ModelAgent:
    """Answers questions one after the other, by a model."""

    def __init__(
        self,
        gate: Gate,
        clock: Clock,
        model: BaseChatModel,
        *,
        name: str,
        talks: Path | None = None,
        thread: str = "default",
        room: int = 0,
        without: SemanticAgent | None = None,
    ) -> None:
        """Begin, or go on with, a conversation.

        Args:
            gate: Every call goes through it.
            clock: For `today`.
            model: What speaks; one of ours is told what exists, so that it can name nothing else.
            name: Of the model, for answers.
            talks: File in which conversations are kept; None keeps this one as long as it lasts.
            thread: Which conversation it is.
            room: Tokens that the model has room for; 0 where it is not known.
            without: What answers where the model does not.
        """
        self._gate, self._clock, self._model = gate, clock, model
        self.mode = f"model:{name}"
        self._thread, self._talks = thread, talks
        self._semantic = without or SemanticAgent(gate, clock)
        self._room = ((room or ROOM) - ANSWER) * CHARACTERS_A_TOKEN
        self._inventory = NameInventory()
        self._questions, self._sources = recalled(talks, thread) if talks is not None else ([], [])
        self._proposed: list[Proposal] = []
        """For the question being answered."""
        self._memory = InMemorySaver()
        """Of a conversation that is not kept."""
        self._semantic_sources: tuple[AnswerSource, ...] = ()
        """Of an answer without the model."""
        if isinstance(model, ToolChat):
            model.inventory = lambda: names_of(self._inventory)

    def ask(self, question: str, *, trusted: bool = True, listener: Listener | None = None) -> Answer:
        """Answer a question; by the semantic agent where the model does not.

        Args:
            question: As somebody wrote it.
            trusted: Whether a person typed it; for piped text nothing is proposed.
            listener: Is told of each reading call when it was made, and of text as the model says it.

        Raises:
            InputError: The question is empty or too long.
        """
        words, self._proposed = question_of(question), []
        number = shown_source(words)
        if number is not None and (self._sources or self._semantic_sources):
            return self._show(question, number)
        pieces: list[str] = []
        try:
            answer = self._ask_model(words, trusted=trusted, listener=_keeping(pieces, listener) if listener is not None else None)
        except FAILURES as error:
            logger.info("the model did not answer: %s", error)
            answer = self._semantic.ask(question, trusted=trusted, listener=listener)
            self._semantic_sources = answer.sources
            answer = _with_proposals(answer, self._proposed)
            if isinstance(error, Unavailable):  # else it was whole, and did not stand
                answer = replace(answer, begun=harmless("".join(pieces)).strip())
            why = one_line(error).rstrip(".")
            return _noted(answer, f"{self.mode} did not answer ({why}); this is the answer without a model")
        self._semantic_sources = ()
        return answer

    def _show(self, question: str, number: int) -> Answer:
        sources = {source.number: source for source in (*self._sources, *self._semantic_sources)}
        newest = tuple(sources.values()) if number in sources else tuple(self._semantic_sources or self._sources[-5:])
        self._semantic.state = replace(self._semantic.state, sources=newest)
        return self._semantic.ask(question)

    def _ask_model(self, words: str, *, trusted: bool, listener: Listener | None) -> Answer:
        self._inventory = inventory = read_inventory(self._gate)
        names = read_names(words, inventory)
        sources_before = max((source.number for source in self._sources), default=0)
        turn = QuestionTurn(
            self._gate,
            inventory,
            QuestionRequest("", words, names),
            self._clock.now(),
            trusted,
            sources_before=sources_before,
            listener=listener,
        )
        self._proposed = turn.proposals
        toolbox = Toolbox(turn, self._origins(turn, names), TOOL_CALLS, max(1_000, min(MOST_CHARACTERS, self._room // 4)))
        self._questions.append(words)
        try:
            reply = self._run(words, turn, toolbox)
        finally:
            self._sources = [*self._sources, *turn.sources][-KEPT_SOURCES:]
        checked = check_answer(harmless(removed(reply.text)), AnswerEvidence(self._sources, self._questions))
        if not re.search(r"[^\W\d]", checked.text):
            raise ModelError(f"it said nothing{f', {toolbox.ended}' if toolbox.ended else ''}")
        if checked.nothing_stands:
            raise ModelError("nothing of what it said stands in what the tools returned")
        if not checked.cites and not turn.proposals:
            raise ModelError("it names no source for what it said")
        cited = set(cited_in(checked.text))
        sources = tuple(source for source in self._sources if source in turn.sources or source.number in cited)
        notes = [*inventory.unknown, *checked.unsupported]
        notes += [f"stopped: {toolbox.ended}"] if toolbox.ended else []
        notes += ["the answer was cut: the model reached its limit of tokens"] if reply.cut else []
        return Answer(
            f"{checked.text} [cut here]" if reply.cut else checked.text,
            _kind(turn),
            self.mode,
            sources=sources,
            evidence=tuple(dict.fromkeys(number for source in sources for number in _ids(source, "evidence"))),
            incidents=tuple(dict.fromkeys(number for source in sources for number in _ids(source, "incident"))),
            proposals=tuple(turn.proposals),
            notes=tuple(notes),
        )

    def _origins(self, turn: QuestionTurn, names: Names) -> Origins:
        numbers = set(re.findall(r"\d+(?:\.\d+)?", turn.request.question)) if turn.trusted else set()
        jobs = {*names.jobs, *(number for number in names.numbers if number in turn.inventory.jobs)}
        return Origins(turn.inventory, jobs, set(names.nodes), numbers)

    def _run(self, words: str, turn: QuestionTurn, toolbox: Toolbox) -> _LastReply:
        ordered = self._semantic.orders(turn.request.names)
        offered = list(offers(turn, ordered=ordered))
        characters = len(_prompt()) + sum(len(offer.name) + len(offer.description) + len(str(offer.schema)) for offer in offered)
        middleware: list[AgentMiddleware[Any, Any]] = [
            Ender(toolbox, MODEL_CALLS),
            Shortener(self._room - characters),
            ReplyRedactor(),
            ToolErrorMiddleware(on_error=lambda error, _: f"The tool failed: {type(error).__name__}"),
        ]
        saver = open_talks(self._talks) if self._talks is not None else self._memory
        try:
            agent = create_agent(
                self._model,
                [_structured(offer, toolbox.call) for offer in offered],
                system_prompt=SystemMessage(_prompt()),
                middleware=middleware,
                checkpointer=saver,
            )
            settings: Any = {"configurable": {"thread_id": self._thread}, "recursion_limit": 4 * (MODEL_CALLS + TOOL_CALLS)}
            if turn.listener is not None:
                settings["callbacks"] = [Ears(turn.listener)]
            state = agent.invoke({"messages": [HumanMessage(words)]}, settings)
        finally:
            if isinstance(saver, SqliteSaver):
                saver.conn.close()
        return _last_words(state["messages"])


def _keeping(pieces: list[str], listener: Listener) -> Listener:
    """Return what hears and keeps the text of the turn that is not over yet."""

    def listening(piece: AnswerSource | str) -> None:
        if isinstance(piece, str):
            pieces[:] = [*pieces, piece] if piece else []
        listener(piece)

    return listening


def _last_words(messages: Sequence[Any]) -> _LastReply:
    """Return what the model said to the newest question; nothing where it ended with a call, or with one that was cut short."""
    last = messages[-1]
    if not isinstance(last, AIMessage) or last.tool_calls:
        return _LastReply("", False)
    cut = last.response_metadata.get("finish_reason") == "length"
    return _LastReply(_CUT.sub("", str(last.text)).strip(), cut)


def names_of(inventory: NameInventory) -> dict[str, list[str]]:
    """Return what exists, by name of an argument, the newest first: a model can name nothing else."""
    jobs, nodes = list(reversed(list(inventory.jobs))), list(inventory.nodes)
    return {
        "job": jobs,
        "before_job": jobs,
        "node": nodes,
        "nodes": nodes,
        "exclude": nodes,
        "blamed": nodes,
        "user": sorted(inventory.users),
        "state": [str(state) for state in JobState],
        "incident": [str(number) for number in sorted(inventory.incidents, reverse=True)],
    }


def _ids(source: AnswerSource, key: str) -> list[int]:
    """Return the ids that a tool's value names as its own."""
    values = source.value if isinstance(source.value, list) else [source.value]
    entries = [element.get(key) for element in values if isinstance(element, dict)]
    rows = [row for element in entries for row in (element if isinstance(element, list) else [element])]
    numbers = [row.get("id") if isinstance(row, dict) else row for row in rows]
    return [number for number in numbers if isinstance(number, int) and not isinstance(number, bool)]


def _structured(offer: ToolOffer, call: Callable[[ToolOffer, dict[str, Any]], str]) -> StructuredTool:
    def run(**arguments: Any) -> str:
        return call(offer, arguments)

    return StructuredTool(name=offer.name, description=offer.description, args_schema=offer.schema, func=run)


def _prompt() -> str:
    return (shipped("knowledge") / "prompts" / "agent.md").read_text(encoding="utf-8")


def _kind(turn: QuestionTurn) -> AnswerKind:
    proposals: Sequence[Any] = turn.proposals
    if any(proposal.approval is not None for proposal in proposals):
        return AnswerKind.PROPOSAL
    return AnswerKind.REFUSED if proposals else AnswerKind.ANSWER


def _with_proposals(answer: Answer, proposed: Sequence[Proposal]) -> Answer:
    """Return the answer with what a model had put before a person already when it failed: it waits, so it is told."""
    approvals = {proposal.approval for proposal in answer.proposals}
    more = tuple(proposal for proposal in proposed if proposal.approval is not None and proposal.approval not in approvals)
    if not more:
        return answer
    lines = [
        f"Waiting for a yes or no as approval {proposal.approval}, digest {proposal.digest}: {command_text(proposal.preview)}"
        for proposal in more
    ]
    return replace(answer, text="\n".join([answer.text, *lines]), kind=AnswerKind.PROPOSAL, proposals=(*answer.proposals, *more))


def _noted(answer: Answer, note: str) -> Answer:
    return replace(answer, notes=(*answer.notes, note))


# What a language model says while it says it, told on to whoever listens.


class Ears(BaseCallbackHandler):
    """Tells a listener each piece of text; what the listener raises ends the model's turn."""

    raise_error = True

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def on_llm_new_token(self, token: str | list[str | dict[str, Any]], **_: Any) -> None:
        """Tell a piece."""
        if token and isinstance(token, str):
            self._listener(token)

    def on_llm_end(self, *_: Any, **__: Any) -> None:
        """Tell that a turn of the model is over, and that a call may come."""
        self._listener("")


# Conversations with a language model that outlive the process: one SQLite file beside the store, the newest of them kept.

KEPT_TALKS = 40
_RESULT = re.compile(r'\A[^\[]{0,200}\[(\d+)\]( It did not work:)?\s*<data from="[^"\n]{0,500}">\n(.*)\n</data>', re.DOTALL)


def open_talks(path: Path) -> SqliteSaver:
    """Return the file in which conversations are kept, with only the newest of them."""
    private_folder(path.parent)
    # SQLite gives its journal the mode of the file, so the file is made before it opens it
    os.close(open_private(path, os.O_RDWR))
    connection = sqlite3.connect(path, timeout=5.0, check_same_thread=False)
    saver = SqliteSaver(connection)
    saver.setup()
    rows = connection.execute(
        "SELECT thread_id, max(checkpoint_id) AS newest FROM checkpoints GROUP BY 1 ORDER BY 2 DESC"
    ).fetchall()
    for thread, _ in rows[KEPT_TALKS:]:
        saver.delete_thread(thread)
    return saver


def recalled(path: Path, thread: str) -> tuple[list[str], list[AnswerSource]]:
    """Return what was asked in a conversation so far, and what the tools returned, as far as the model was given it."""
    if not path.exists():
        return [], []
    saver = open_talks(path)
    try:
        checkpoint = saver.get_tuple({"configurable": {"thread_id": thread}})
    finally:
        saver.conn.close()
    messages: Sequence[BaseMessage] = checkpoint.checkpoint["channel_values"].get("messages", []) if checkpoint is not None else []
    questions = [str(message.text) for message in messages if isinstance(message, HumanMessage)]
    arguments: dict[str, dict[str, Any]] = {}
    sources: dict[int, AnswerSource] = {}
    for message in messages:
        if isinstance(message, AIMessage):
            arguments |= {str(call["id"]): call["args"] for call in message.tool_calls}
        elif isinstance(message, ToolMessage) and (match := _RESULT.search(str(message.text))):
            number, failed, text = int(match[1]), bool(match[2]), match[3]
            call_arguments = arguments.get(message.tool_call_id, {})
            sources[number] = AnswerSource(
                number, message.name or "", call_arguments, None if failed else text, text if failed else ""
            )
    return questions, list(sources.values())
