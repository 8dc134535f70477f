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

from assistant.agent.answer import Answer, Heard, Kind, Proposal, Source
from assistant.agent.dialogue import shown_source
from assistant.agent.entities import Names, read_names
from assistant.agent.grounding import Evidence, cited_in, held
from assistant.agent.inventory import Inventory, inventory
from assistant.agent.semantic import SemanticAgent
from assistant.agent.shortening import CHARACTERS_A_TOKEN, Shortener
from assistant.agent.taint import Origins
from assistant.agent.toolbox import MOST_CHARACTERS, Offer, Toolbox, offers
from assistant.agent.turn import Asked, Turn
from assistant.agent.wording import exact, harmless, one_line, question_of
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


class _Said(NamedTuple):
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
        self._known = Inventory()
        self._said, self._sources = recalled(talks, thread) if talks is not None else ([], [])
        self._proposed: list[Proposal] = []
        """For the question being answered."""
        self._memory = InMemorySaver()
        """Of a conversation that is not kept."""
        self._shown: tuple[Source, ...] = ()
        """Of an answer without the model."""
        if isinstance(model, ToolChat):
            model.inventory = lambda: names_of(self._known)

    def ask(self, question: str, *, trusted: bool = True, heard: Heard | None = None) -> Answer:
        """Answer a question; by the semantic agent where the model does not.

        Args:
            question: As somebody wrote it.
            trusted: Whether a person typed it; for piped text nothing is proposed.
            heard: Is told of each reading call when it was made, and of text as the model says it.

        Raises:
            InputError: The question is empty or too long.
        """
        words, self._proposed = question_of(question), []
        wanted = shown_source(words)
        if wanted is not None and (self._sources or self._shown):
            return self._show(question, wanted)
        begun: list[str] = []
        try:
            answer = self._asked(words, trusted=trusted, heard=_keeping(begun, heard) if heard is not None else None)
        except FAILURES as error:
            logger.info("the model did not answer: %s", error)
            answer = self._semantic.ask(question, trusted=trusted, heard=heard)
            self._shown = answer.sources
            answer = _with_proposals(answer, self._proposed)
            if isinstance(error, Unavailable):  # else it was whole, and did not stand
                answer = replace(answer, begun=harmless("".join(begun)).strip())
            why = one_line(error).rstrip(".")
            return _noted(answer, f"{self.mode} did not answer ({why}); this is the answer without a model")
        self._shown = ()
        return answer

    def _show(self, question: str, wanted: int) -> Answer:
        sources = {source.number: source for source in (*self._sources, *self._shown)}
        newest = tuple(sources.values()) if wanted in sources else tuple(self._shown or self._sources[-5:])
        self._semantic.state = replace(self._semantic.state, sources=newest)
        return self._semantic.ask(question)

    def _asked(self, words: str, *, trusted: bool, heard: Heard | None) -> Answer:
        self._known = known = inventory(self._gate)
        names = read_names(words, known)
        before = max((source.number for source in self._sources), default=0)
        turn = Turn(self._gate, known, Asked("", words, names), self._clock.now(), trusted, before=before, heard=heard)
        self._proposed = turn.proposals
        toolbox = Toolbox(turn, self._origins(turn, names), TOOL_CALLS, max(1_000, min(MOST_CHARACTERS, self._room // 4)))
        self._said.append(words)
        try:
            said = self._run(words, turn, toolbox)
        finally:
            self._sources = [*self._sources, *turn.sources][-KEPT_SOURCES:]
        checked = held(harmless(removed(said.text)), Evidence(self._sources, self._said))
        if not re.search(r"[^\W\d]", checked.text):
            raise ModelError(f"it said nothing{f', {toolbox.ended}' if toolbox.ended else ''}")
        if checked.nothing_stands:
            raise ModelError("nothing of what it said stands in what the tools returned")
        if not checked.cites and not turn.proposals:
            raise ModelError("it names no source for what it said")
        cited = set(cited_in(checked.text))
        sources = tuple(one for one in self._sources if one in turn.sources or one.number in cited)
        notes = [*known.unknown, *checked.unsupported]
        notes += [f"stopped: {toolbox.ended}"] if toolbox.ended else []
        notes += ["the answer was cut: the model reached its limit of tokens"] if said.cut else []
        return Answer(
            f"{checked.text} [cut here]" if said.cut else checked.text,
            _kind(turn),
            self.mode,
            sources=sources,
            evidence=tuple(dict.fromkeys(number for one in sources for number in _ids(one, "evidence"))),
            incidents=tuple(dict.fromkeys(number for one in sources for number in _ids(one, "incident"))),
            proposals=tuple(turn.proposals),
            notes=tuple(notes),
        )

    def _origins(self, turn: Turn, names: Names) -> Origins:
        numbers = set(re.findall(r"\d+(?:\.\d+)?", turn.asked.question)) if turn.trusted else set()
        jobs = {*names.jobs, *(number for number in names.numbers if number in turn.known.jobs)}
        return Origins(turn.known, jobs, set(names.nodes), numbers)

    def _run(self, words: str, turn: Turn, toolbox: Toolbox) -> _Said:
        ordered = self._semantic.orders(turn.asked.names)
        offered = list(offers(turn, ordered=ordered))
        told = len(_prompt()) + sum(len(one.name) + len(one.description) + len(str(one.schema)) for one in offered)
        middleware: list[AgentMiddleware[Any, Any]] = [
            Ender(toolbox, MODEL_CALLS),
            Shortener(self._room - told),
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
            if turn.heard is not None:
                settings["callbacks"] = [Ears(turn.heard)]
            state = agent.invoke({"messages": [HumanMessage(words)]}, settings)
        finally:
            if isinstance(saver, SqliteSaver):
                saver.conn.close()
        return _last_words(state["messages"])


def _keeping(begun: list[str], heard: Heard) -> Heard:
    """Return what hears and keeps the text of the turn that is not over yet."""

    def listening(what: Source | str) -> None:
        if isinstance(what, str):
            begun[:] = [*begun, what] if what else []
        heard(what)

    return listening


def _last_words(messages: Sequence[Any]) -> _Said:
    """Return what the model said to the newest question; nothing where it ended with a call, or with one that was cut short."""
    last = messages[-1]
    if not isinstance(last, AIMessage) or last.tool_calls:
        return _Said("", False)
    cut = last.response_metadata.get("finish_reason") == "length"
    return _Said(_CUT.sub("", str(last.text)).strip(), cut)


def names_for_model(gate: Gate) -> dict[str, list[str]]:
    """Return what exists now, by name of an argument."""
    return names_of(inventory(gate))


def names_of(known: Inventory) -> dict[str, list[str]]:
    """Return what exists, by name of an argument, the newest first: a model can name nothing else."""
    jobs, nodes = list(reversed(list(known.jobs))), list(known.nodes)
    return {
        "job": jobs,
        "before_job": jobs,
        "node": nodes,
        "nodes": nodes,
        "exclude": nodes,
        "blamed": nodes,
        "user": sorted(known.users),
        "state": [str(state) for state in JobState],
        "incident": [str(number) for number in sorted(known.incidents, reverse=True)],
    }


def _ids(source: Source, key: str) -> list[int]:
    """Return the ids that a tool's value names as its own."""
    values = source.value if isinstance(source.value, list) else [source.value]
    found = [one.get(key) for one in values if isinstance(one, dict)]
    rows = [row for one in found for row in (one if isinstance(one, list) else [one])]
    numbers = [row.get("id") if isinstance(row, dict) else row for row in rows]
    return [number for number in numbers if isinstance(number, int) and not isinstance(number, bool)]


def _structured(offer: Offer, call: Callable[[Offer, dict[str, Any]], str]) -> StructuredTool:
    def run(**arguments: Any) -> str:
        return call(offer, arguments)

    return StructuredTool(name=offer.name, description=offer.description, args_schema=offer.schema, func=run)


def _prompt() -> str:
    return (shipped("knowledge") / "prompts" / "agent.md").read_text(encoding="utf-8")


def _kind(turn: Turn) -> Kind:
    made: Sequence[Any] = turn.proposals
    if any(one.approval is not None for one in made):
        return Kind.PROPOSAL
    return Kind.REFUSED if made else Kind.ANSWER


def _with_proposals(answer: Answer, proposed: Sequence[Proposal]) -> Answer:
    """Return the answer with what a model had put before a person already when it failed: it waits, so it is told."""
    told = {one.approval for one in answer.proposals}
    more = tuple(one for one in proposed if one.approval is not None and one.approval not in told)
    if not more:
        return answer
    lines = [f"Waiting for a yes or no as approval {one.approval}, digest {one.digest}: {exact(one.preview)}" for one in more]
    return replace(answer, text="\n".join([answer.text, *lines]), kind=Kind.PROPOSAL, proposals=(*answer.proposals, *more))


def _noted(answer: Answer, note: str) -> Answer:
    return replace(answer, notes=(*answer.notes, note))


# What a language model says while it says it, told on to whoever listens.


class Ears(BaseCallbackHandler):
    """Tells a listener each piece of text; what the listener raises ends the model's turn."""

    raise_error = True

    def __init__(self, heard: Heard) -> None:
        self._heard = heard

    def on_llm_new_token(self, token: str | list[str | dict[str, Any]], **_: Any) -> None:
        """Tell a piece."""
        if token and isinstance(token, str):
            self._heard(token)

    def on_llm_end(self, *_: Any, **__: Any) -> None:
        """Tell that a turn of the model is over, and that a call may come."""
        self._heard("")


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


def recalled(path: Path, thread: str) -> tuple[list[str], list[Source]]:
    """Return what was asked in a conversation so far, and what the tools returned, as far as the model was given it."""
    if not path.exists():
        return [], []
    saver = open_talks(path)
    try:
        kept = saver.get_tuple({"configurable": {"thread_id": thread}})
    finally:
        saver.conn.close()
    messages: Sequence[BaseMessage] = kept.checkpoint["channel_values"].get("messages", []) if kept is not None else []
    asked = [str(one.text) for one in messages if isinstance(one, HumanMessage)]
    arguments: dict[str, dict[str, Any]] = {}
    sources: dict[int, Source] = {}
    for one in messages:
        if isinstance(one, AIMessage):
            arguments |= {str(call["id"]): call["args"] for call in one.tool_calls}
        elif isinstance(one, ToolMessage) and (found := _RESULT.search(str(one.text))):
            number, failed, text = int(found[1]), bool(found[2]), found[3]
            given = arguments.get(one.tool_call_id, {})
            sources[number] = Source(number, one.name or "", given, None if failed else text, text if failed else "")
    return asked, list(sources.values())
