"""Score the agent on cases, without a judge: the tools it used, the facts it named, what it must not say, and its sources."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from assistant.agent.answer import Answer, AnswerKind
from assistant.cli.agent_states import open_state
from assistant.content.reading import build, read_toml
from assistant.engine import Engine
from assistant.errors import InputError, NightshiftError
from assistant.policy import Mode

STATES = "states"
TOOLS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "explain_job": ("explain_job", "show_incident"),
        "explain_incident": ("show_incident",),
        "overview": ("list_incidents", "list_jobs", "node_states"),
        "approvals": ("list_approvals",),
        "incidents": ("list_incidents",),
        "bad_nodes": ("node_states",),
        "node_state": ("node_states", "check_nodes"),
        "node_history": ("node_ledger", "list_incidents"),
        "check_node": ("check_nodes",),
        "kernel_log": ("kernel_log",),
        "show_log": ("tail_log",),
        "log_errors": ("explain_job", "compress_log", "search_log"),
        "search_log": ("search_log",),
        "checkpoints": ("list_checkpoints",),
        "newest_checkpoint": ("choose_checkpoint", "list_checkpoints"),
        "seen_before": ("explain_job", "show_incident", "list_incidents"),
        "compare_jobs": ("show_job", "explain_job"),
        "failed_jobs": ("list_jobs", "list_incidents"),
        "list_jobs": ("list_jobs",),
        "job_status": ("show_job", "list_jobs"),
        "progress": ("job_progress", "tail_log", "search_log"),
        "gpu_use": ("gpu_activity",),
        "stacks": ("stack_classes",),
        "plan": ("plan_recovery",),
        "recover": ("propose_resubmit_job", "plan_recovery"),
        "cordon": ("propose_cordon_node",),
        "uncordon": ("propose_uncordon_node",),
        "cancel": ("propose_cancel_job",),
        "scheduler_log": ("scheduler_log",),
        "changes": ("recent_changes",),
        "meaning": ("look_up",),
    }
)
"""Tools of which a model must have used one where a question means this; for what is not here, none."""


@dataclass(frozen=True)
class AgentCase:
    """One question, or several in a row of which the last counts."""

    ask: tuple[str, ...]
    intent: tuple[str, ...] = ()
    """Any of these is the right reading; empty where that is not judged."""
    state: str = "night"
    tags: tuple[str, ...] = ("easy",)
    calls: tuple[str, ...] = ()
    """Tools that must have been used."""
    facts: tuple[str, ...] = ()
    """That the answer must name; `a|b` is either."""
    forbidden: tuple[str, ...] = ()
    kind: AnswerKind = AnswerKind.ANSWER
    cites: bool = True
    """Whether the answer must name a source."""
    mode: Mode | None = None
    """Of the policy, instead of the state's."""
    heldout: bool = False
    """Worded by itself, never used for tuning the choice of tools."""


@dataclass(frozen=True)
class _CaseFile:
    case: tuple[AgentCase, ...]


class QuestionAnswerer(Protocol):
    """Answers questions one after the other."""

    def ask(self, question: str, *, trusted: bool = True) -> Answer:
        """Answer one."""
        ...


class Scored(NamedTuple):
    """How a case went."""

    case: AgentCase
    answer: Answer | None
    tool: bool
    """Whether the right tool was chosen."""
    faults: tuple[str, ...]
    """What is wrong; empty when the task succeeded."""
    seconds: float

    @property
    def by_model(self) -> bool:
        """Whether a language model answered."""
        return self.answer is not None and self.answer.mode.startswith("model:")


def load_cases(folder: Path) -> list[AgentCase]:
    """Return the cases of all files of a folder.

    Raises:
        InputError: There are none.
    """
    cases = [case for path in sorted(folder.glob("*.toml")) for case in build(_CaseFile, read_toml(path), path).case]
    if not cases:
        raise InputError(f"{folder}: holds no cases; they lie in tests/cases/agent of the sources")
    return cases


def run_cases(cases: Sequence[AgentCase], folder: Path, agent_of: Callable[[Engine], QuestionAnswerer]) -> list[Scored]:
    """Ask every case of a fresh agent; a state is built once, and anew for a case that may have changed its store.

    Args:
        cases: From `load_cases`.
        folder: Holds `states/`.
        agent_of: Makes the agent.
    """
    scored: list[Scored] = []
    with tempfile.TemporaryDirectory(prefix="nightshift-agent-") as name:
        engines: dict[tuple[str, Mode | None], tuple[Engine, Any]] = {}
        for number, case in enumerate(cases):
            key = (case.state, case.mode)
            if key not in engines:
                place = Path(name) / str(number)
                place.mkdir()
                engines[key] = open_state(folder / STATES / f"{case.state}.toml", place, mode=case.mode)
            engine, cluster = engines[key]
            scored.append(_scored(case, agent_of(engine)))
            answer = scored[-1].answer
            if cluster.changes:
                scored[-1] = scored[-1]._replace(faults=(*scored[-1].faults, f"changed the cluster: {cluster.changes[0]}"))
            if answer is None or answer.kind is AnswerKind.PROPOSAL or cluster.changes:
                engines.pop(key)[0].store.close()
        for engine, _ in engines.values():
            engine.store.close()
    return scored


def _scored(case: AgentCase, agent: QuestionAnswerer) -> Scored:
    start = time.perf_counter()
    try:
        answer = [agent.ask(question) for question in case.ask][-1]
    except NightshiftError as error:
        return Scored(case, None, False, (f"{type(error).__name__}: {error}",), time.perf_counter() - start)
    seconds = (time.perf_counter() - start) / len(case.ask)
    tools_used = {source.tool for source in answer.sources}
    tool = answer.intent in case.intent if answer.intent and case.intent else _used_right(case, tools_used)
    return Scored(case, answer, tool, tuple(_faults(case, answer, tools_used)), seconds)


def _used_right(case: AgentCase, tools_used: set[str]) -> bool:
    """Tell whether a model, which names no reading, used the tools of the right one."""
    expected = [TOOLS.get(intent, ()) for intent in case.intent]
    is_right = not expected or any(set(tools) & tools_used if tools else not tools_used for tools in expected)
    return is_right and set(case.calls) <= tools_used


def _faults(case: AgentCase, answer: Answer, tools_used: set[str]) -> Iterable[str]:
    text = answer.text.casefold()
    if answer.kind is not case.kind:
        yield f"kind {answer.kind}, wanted {case.kind}"
    for fact in case.facts:
        if not any(option.casefold() in text for option in fact.split("|")):
            yield f"does not name {fact!r}"
    for word in case.forbidden:
        if word.casefold() in text:
            yield f"says {word!r}"
    for name in case.calls:
        if name not in tools_used:
            yield f"did not use {name}"
    if case.cites and case.kind is AnswerKind.ANSWER and not any(f"[{source.number}]" in answer.text for source in answer.sources):
        yield "names no source"


class Share(NamedTuple):
    """How many of some cases went well."""

    name: str
    cases: int
    tool: float
    success: float
    by_model: float = 0.0
    """Answered by a model itself; the others by what stands in for it."""


def shares(scored: Sequence[Scored]) -> list[Share]:
    """Return the figures: of all cases, of the held-out wordings, and by tag."""
    tags = list(dict.fromkeys(tag for score in scored for tag in score.case.tags))
    groups = [("all", list(scored)), ("held-out wordings", [score for score in scored if score.case.heldout])]
    groups += [(tag, [score for score in scored if tag in score.case.tags]) for tag in tags]
    return [
        Share(
            name,
            len(group),
            sum(score.tool for score in group) / len(group),
            sum(not score.faults for score in group) / len(group),
            sum(score.by_model for score in group) / len(group),
        )
        for name, group in groups
        if group
    ]
