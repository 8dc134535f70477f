"""The agent with a language model: LangChain drives it, the toolbox makes its calls, and its answer is held against the evidence.

The model may read, and propose. What it says is checked; when it is absent, slow or wrong the semantic agent answers instead.
"""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    AgentState,
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    ModelCallLimitMiddleware,
    ToolErrorMiddleware,
    hook_config,
)
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.sqlite import SqliteSaver

from assistant.agent.answer import Answer, Kind, Source
from assistant.agent.grounding import Evidence, held
from assistant.agent.inventory import inventory
from assistant.agent.naming import Names, read_names
from assistant.agent.semantic import SemanticAgent
from assistant.agent.taint import Origins
from assistant.agent.toolbox import Offer, Toolbox, offers
from assistant.agent.turn import Asked, Turn
from assistant.agent.wording import harmless, question_of
from assistant.content.reading import shipped
from assistant.errors import NightshiftError
from assistant.gate import Gate
from assistant.ports import Clock

if TYPE_CHECKING:
    from langchain_core.language_models.chat_models import BaseChatModel
    from langgraph.runtime import Runtime

logger = logging.getLogger(__name__)

MODEL_CALLS = 10
TOOL_CALLS = 12
KEPT_RESULTS = 4
"""Older results of tools are cleared from what the model reads; the state and `show N` keep them."""
CLEARED_ABOVE = 6_000
"""Tokens of a conversation above which that happens."""
KEPT_TALKS = 40
FAILURES = (NightshiftError, ValueError, TypeError, KeyError, RuntimeError, OSError, sqlite3.Error)
"""What models and their libraries raise when they are down, slow or wrong."""


class Ender(AgentMiddleware[Any, Any]):
    """Ends a run in which no more calls are made, after one last word of the model."""

    def __init__(self, toolbox: Toolbox) -> None:
        super().__init__()
        self._toolbox, self._warned = toolbox, False

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Let the model speak once more, then end."""
        if not self._toolbox.ended:
            return None
        if self._warned:
            return {"jump_to": "end", "messages": [AIMessage(f"I stopped: {self._toolbox.ended}.")]}
        self._warned = True
        return None


class ModelAgent:
    """Answers questions one after the other, by a model."""

    def __init__(
        self, gate: Gate, clock: Clock, model: BaseChatModel, *, name: str, talks: Path | None = None, thread: str = "default"
    ) -> None:
        """Begin, or go on with, a conversation.

        Args:
            gate: Every call goes through it.
            clock: For `today`.
            model: What speaks.
            name: Of the model, for answers.
            talks: File in which conversations are kept; None keeps nothing.
            thread: Which conversation it is.
        """
        self._gate, self._clock, self._model = gate, clock, model
        self.mode = f"model:{name}"
        self._thread, self._talks = thread, talks
        self._semantic = SemanticAgent(gate, clock)
        self._said: list[str] = []
        self._sources: tuple[Source, ...] = ()

    def ask(self, question: str, *, trusted: bool = True) -> Answer:
        """Answer a question; by the semantic agent where the model does not.

        Raises:
            InputError: The question is empty or too long.
        """
        words = question_of(question)
        if re.match(r"(?i)^show\s+\[?\d+\]?$", words) and self._sources:
            return self._semantic.ask(question, trusted=trusted)
        try:
            return self._asked(words, trusted=trusted)
        except FAILURES as error:
            logger.info("the model did not answer: %s", error)
            self._forget()
            answer = self._semantic.ask(question, trusted=trusted)
            return _noted(answer, f"{self.mode} did not answer ({harmless(str(error))[:200]}); this is the answer without a model")

    def _forget(self) -> None:
        """Drop a conversation that broke off in the middle of a call: no model goes on with one."""
        if self._talks is not None and self._talks.exists():
            saver = open_talks(self._talks)
            saver.delete_thread(self._thread)
            saver.conn.close()

    def _asked(self, words: str, *, trusted: bool) -> Answer:
        known = inventory(self._gate)
        names = read_names(words, known)
        turn = Turn(self._gate, known, Asked("", words, names), self._clock.now(), trusted)
        origins = self._origins(turn, names)
        toolbox = Toolbox(turn, origins, TOOL_CALLS)
        self._said.append(words)
        last = self._run(words, turn, toolbox)
        evidence = Evidence((*self._sources, *turn.sources), self._said)
        checked = held(harmless(last), evidence)
        self._sources = tuple(turn.sources)
        return Answer(
            checked.text or "The model said nothing.",
            _kind(turn),
            self.mode,
            sources=self._sources,
            proposals=tuple(turn.proposals),
            notes=(*known.unknown, *checked.unsupported, *([f"stopped: {toolbox.ended}"] if toolbox.ended else [])),
        )

    def _origins(self, turn: Turn, names: Names) -> Origins:
        numbers = set(re.findall(r"\d+(?:\.\d+)?", turn.asked.question)) if turn.trusted else set()
        jobs = {*names.jobs, *(number for number in names.numbers if number in turn.known.jobs)}
        return Origins(turn.known, jobs, set(names.nodes), numbers)

    def _run(self, words: str, turn: Turn, toolbox: Toolbox) -> str:
        ordered = self._semantic.orders(turn.asked.names)
        tools = [_structured(offer, toolbox.call) for offer in offers(turn, ordered=ordered)]
        middleware: list[AgentMiddleware[Any, Any]] = [
            Ender(toolbox),
            ModelCallLimitMiddleware(run_limit=MODEL_CALLS, exit_behavior="end"),
            ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=CLEARED_ABOVE, keep=KEPT_RESULTS)]),
            ToolErrorMiddleware(on_error=lambda error, _: f"The tool failed: {type(error).__name__}"),
        ]
        saver = open_talks(self._talks) if self._talks is not None else None
        try:
            agent = create_agent(
                self._model, tools, system_prompt=SystemMessage(_prompt()), middleware=middleware, checkpointer=saver
            )
            settings: Any = {"configurable": {"thread_id": self._thread}, "recursion_limit": 4 * (MODEL_CALLS + TOOL_CALLS)}
            state = agent.invoke({"messages": [HumanMessage(words)]}, settings)
        finally:
            if saver is not None:
                saver.conn.close()
        return next(
            (str(one.text) for one in reversed(state["messages"]) if isinstance(one, AIMessage) and str(one.text).strip()), ""
        )


def names_for_model(gate: Gate) -> dict[str, list[str]]:
    """Return what exists, by name of an argument, the newest first: a model can name nothing else."""
    known = inventory(gate)
    jobs, nodes = list(reversed(list(known.jobs))), list(known.nodes)
    return {
        "job": jobs,
        "before_job": jobs,
        "node": nodes,
        "nodes": nodes,
        "incident": [str(number) for number in sorted(known.incidents, reverse=True)],
    }


def open_talks(path: Path) -> SqliteSaver:
    """Return the file in which conversations are kept, with only the newest of them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=5.0, check_same_thread=False)
    saver = SqliteSaver(connection)
    saver.setup()
    rows = connection.execute(
        "SELECT thread_id, max(checkpoint_id) AS newest FROM checkpoints GROUP BY 1 ORDER BY 2 DESC"
    ).fetchall()
    for thread, _ in rows[KEPT_TALKS:]:
        saver.delete_thread(thread)
    path.chmod(0o600)
    return saver


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


def _noted(answer: Answer, note: str) -> Answer:
    from dataclasses import replace

    return replace(answer, notes=(*answer.notes, note))
