"""The agent without a language model: the sentence chooses what is asked, names that exist fill it in, templates answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType

from assistant.agent import tell_about, tell_changes, tell_incidents, tell_jobs, tell_logs, tell_nodes
from assistant.agent.answer import Answer, Kind
from assistant.agent.chooser import Choice, Intent, ToolChooser, WordChooser, intents
from assistant.agent.dialogue import Dialogue, completed, follow_up, shown_source
from assistant.agent.inventory import Inventory, inventory
from assistant.agent.naming import Names, read_names
from assistant.agent.turn import Asked, Turn
from assistant.agent.wording import cut, one_line, question_of
from assistant.gate import Gate
from assistant.ports import Clock

MODE = "semantic"
SURE = 0.42
"""Below this share of the best reading, and with a second one near, it asks back."""
LEAST = 0.08
"""Below this nothing was understood."""
CHANGING = frozenset({"recover", "cordon", "uncordon", "cancel"})
SURE_OF_CHANGE = 0.5
ORDERED = 0.15
"""Share of the readings that ask for a change, from which on a model may propose one."""
_ASKS = re.compile(r"(?:is|are|was|were|did|does|has|have|had|why|how|which|what|who|when|where)\b", re.IGNORECASE)
NEAR = 0.4
"""How near the second reading must be; a lonely one is taken, but for a change."""
NOT_UNDERSTOOD = "I did not understand that. I know the jobs, nodes, logs, checkpoints and incidents of this cluster; ask: help"
MOST_SHOWN = 60_000

Teller = Callable[[Turn], Iterator[str]]
TELLERS: Mapping[str, Teller] = MappingProxyType(
    {
        "explain_job": tell_jobs.explain_job,
        "job_status": tell_jobs.job_status,
        "progress": tell_jobs.progress,
        "compare_jobs": tell_jobs.compare_jobs,
        "failed_jobs": tell_jobs.failed_jobs,
        "list_jobs": tell_jobs.list_jobs,
        "show_log": tell_logs.show_log,
        "log_errors": tell_logs.log_errors,
        "search_log": tell_logs.search_log,
        "scheduler_log": tell_logs.scheduler_log,
        "checkpoints": tell_logs.checkpoints,
        "newest_checkpoint": tell_logs.newest_checkpoint,
        "bad_nodes": tell_nodes.bad_nodes,
        "node_state": tell_nodes.node_state,
        "node_history": tell_nodes.node_history,
        "check_node": tell_nodes.check_node,
        "kernel_log": tell_nodes.kernel_log,
        "overview": tell_incidents.overview,
        "explain_incident": tell_incidents.explain_incident,
        "incidents": tell_incidents.incidents,
        "approvals": tell_incidents.approvals,
        "seen_before": tell_incidents.seen_before,
        "changes": tell_incidents.changes,
        "plan": tell_changes.plan,
        "recover": tell_changes.recover,
        "cordon": tell_changes.cordon,
        "uncordon": tell_changes.uncordon,
        "cancel": tell_changes.cancel,
        "approve": tell_changes.approve,
        "meaning": tell_about.meaning,
        "mode": tell_about.mode,
        "help": tell_about.help_,
        "out_of_scope": tell_about.out_of_scope,
    }
)
READINGS: Mapping[str, str] = MappingProxyType(
    {
        "explain_job": "why did job {job} fail",
        "explain_incident": "explain incident {incident}",
        "overview": "what is wrong now",
        "approvals": "what waits for me",
        "incidents": "list incidents",
        "bad_nodes": "which nodes are out of service",
        "node_state": "status of node {node}",
        "node_history": "history of node {node}",
        "check_node": "check node {node}",
        "kernel_log": "kernel log of {node}",
        "show_log": "show the log of {job}",
        "log_errors": "show the errors in {job}",
        "search_log": 'search the log of {job} for "..."',
        "checkpoints": "checkpoints of {job}",
        "newest_checkpoint": "newest healthy checkpoint of {job}",
        "seen_before": "was the failure of {job} seen before",
        "compare_jobs": "compare two jobs",
        "failed_jobs": "which jobs failed",
        "list_jobs": "list jobs",
        "job_status": "status of job {job}",
        "progress": "how far is job {job}",
        "plan": "what would you do about {job}",
        "recover": "restart job {job}",
        "cordon": "cordon node {node}",
        "uncordon": "uncordon node {node}",
        "cancel": "cancel job {job}",
        "approve": "approve a request",
        "help": "help",
        "mode": "which mode are you in",
        "scheduler_log": "scheduler log of {job}",
        "changes": "what did you change",
        "meaning": "what does ... mean",
        "out_of_scope": "something else",
    }
)
"""How a reading is offered when it asks back."""


class SemanticAgent:
    """Answers questions one after the other."""

    def __init__(self, gate: Gate, clock: Clock, chooser: ToolChooser | None = None) -> None:
        """Begin a conversation.

        Args:
            gate: Every call goes through it.
            clock: For `today`.
            chooser: What chooses the tool; by words where none is given.
        """
        self._gate, self._clock = gate, clock
        self._chooser = chooser or _by_words()
        self._intents = intents()
        self.state = Dialogue()

    def ask(self, question: str, *, trusted: bool = True) -> Answer:
        """Answer a question.

        Args:
            question: As somebody wrote it.
            trusted: Whether a person typed it; for piped text nothing is proposed.

        Raises:
            InputError: It is empty or too long.
        """
        words = question_of(question)
        wanted = shown_source(words)
        if wanted is not None and self.state.sources:
            return self._source(wanted)
        known = inventory(self._gate)
        names = read_names(words, known)
        meant = follow_up(words, names, self.state)
        choices = [Choice(meant, 1.0)] if meant else self._choices(names)
        asked = _filled(Asked(choices[0].intent, words, names, confidence=choices[0].probability), self.state, self._intents)
        turn = Turn(self._gate, known, asked, self._clock.now(), trusted)
        back = self._asks_back(asked, choices, known)
        if back is not None:
            self.state = replace(self.state, pending=asked.intent if back.options[:1] != ("help",) else "", options=back.options)
            return back
        lines = list(_lines(turn))
        self.state = self.state.after(asked, tuple(turn.sources), tuple(turn.incidents))
        return Answer(
            "\n".join(lines),
            turn.kind,
            MODE,
            asked.intent,
            round(asked.confidence, 3),
            tuple(turn.sources),
            tuple(dict.fromkeys(turn.evidence)),
            tuple(dict.fromkeys(turn.incidents)),
            tuple(turn.proposals),
            notes=known.unknown,
        )

    def orders(self, names: Names) -> bool:
        """Tell whether a question may ask for a change, by its own words."""
        wishes = CHANGING | {"plan", "approve"}
        return sum(choice.probability for choice in self._choices(names) if choice.intent in wishes) >= ORDERED

    def _choices(self, names: Names) -> Sequence[Choice]:
        """Return the readings of a question; a bare number is a job in one and an incident in another."""
        found = self._readings(names)
        if _ASKS.match(names.masked):
            # whoever asks whether a node is back does not ask to put it back
            return [choice for choice in found if choice.intent not in CHANGING]
        return found

    def _readings(self, names: Names) -> Sequence[Choice]:
        if not names.numbers:
            return self._chooser.choose(names.masked)
        best: dict[str, float] = {}
        for slot in ("{job}", "{incident}"):
            for name, probability in self._chooser.choose(names.masked.replace("{number}", slot)):
                best[name] = max(best.get(name, 0.0), probability)
        return [Choice(name, best[name]) for name in sorted(best, key=lambda name: -best[name])]

    def _asks_back(self, asked: Asked, choices: Sequence[Choice], known: Inventory) -> Answer | None:
        first = choices[0].probability
        second = choices[1] if len(choices) > 1 else Choice("help", 0.0)
        if first < LEAST:
            return Answer(NOT_UNDERSTOOD, Kind.UNKNOWN, MODE, "out_of_scope", round(asked.confidence, 3), options=("help",))
        least = SURE_OF_CHANGE if asked.intent in CHANGING else SURE
        lonely = asked.intent not in CHANGING and second.probability <= first * NEAR
        if first < least and not lonely:
            options = tuple(_reading(choice.intent, asked) for choice in choices[:2])
            return _back(asked, f"Did you mean: {options[0]}? Or: {options[1]}?", options)
        return _missing(asked, self._intents[asked.intent], known)

    def _source(self, number: int) -> Answer:
        found = next((source for source in self.state.sources if source.number == number), None)
        if found is None:
            numbers = ", ".join(str(source.number) for source in self.state.sources)
            return Answer(f"The last answer has no source {number}; it has {numbers}.", Kind.UNKNOWN, MODE, "show")
        text = found.value if isinstance(found.value, str) else _pretty(found.value)
        body = cut(found.error or text, MOST_SHOWN)
        return Answer(f"[{number}] {found.call}\n{body}", Kind.ANSWER, MODE, "show", sources=(found,))


@cache
def _by_words() -> WordChooser:
    return WordChooser.load()


def _lines(turn: Turn) -> Iterator[str]:
    strangers = turn.asked.names.strangers
    needs = intents()[turn.asked.intent].needs
    lacks = ("job" in needs and not turn.asked.job) or ("node" in needs and not turn.asked.nodes)
    lacks = lacks or ("incident" in needs and turn.asked.incident is None)
    if needs.count("job") > 1:
        lacks = lacks or not turn.asked.other_job
    if strangers and (lacks or turn.asked.intent in CHANGING or turn.asked.intent in ("plan", "seen_before", "node_history")):
        for stranger in strangers:
            yield from tell_about.broken(turn, stranger)
        return
    for stranger in strangers:
        yield f"(Left out: {stranger}.)"
    yield from TELLERS[turn.asked.intent](turn)


def _filled(asked: Asked, before: Dialogue, known: Mapping[str, Intent]) -> Asked:
    """Return what is asked with its names; a bare number goes where the intent needs one."""
    names, intent = asked.names, known[asked.intent]
    jobs, incidents = list(names.jobs), list(names.incidents)
    for number in names.numbers:
        if "job" in intent.needs and len(jobs) < intent.needs.count("job"):
            jobs.append(number)
        else:
            incidents.append(int(number))
    filled = replace(
        asked,
        job=jobs[0] if jobs else "",
        other_job=jobs[1] if len(jobs) > 1 else "",
        nodes=names.nodes,
        incident=incidents[0] if incidents else None,
    )
    if intent.needs.count("job") > 1 and len(jobs) == 1 and before.jobs:
        return replace(filled, other_job=next((job for job in before.jobs if job != jobs[0]), ""))
    kinds = {*intent.needs, *intent.takes}
    if not kinds or (intent.takes and (filled.job or filled.incident is not None or filled.nodes)):
        return filled
    if asked.intent in ("incidents", "node_history", "meaning") and not _points_back(asked.question):
        return filled
    added = completed(filled, names, before)
    if asked.intent in ("plan", "seen_before") and not filled.job and before.intent in ("explain_incident", "incidents"):
        return replace(filled, incident=added.incident)
    return replace(
        filled,
        job=added.job if "job" in kinds else filled.job,
        nodes=added.nodes if "node" in kinds else filled.nodes,
        incident=added.incident if "incident" in kinds and not ("job" in kinds and added.job) else filled.incident,
    )


def _points_back(question: str) -> bool:
    return bool(re.search(r"\b(?:it|its|that|this|there|them|those)\b", question.lower()))


def _missing(asked: Asked, intent: Intent, known: Inventory) -> Answer | None:
    """Return the question for a name that is missing, None when all is there."""
    if asked.names.strangers:
        return None
    if asked.intent in ("plan", "seen_before") and not asked.job and asked.incident is None:
        return _back(asked, f"Which job or incident?{_some_jobs(known)}", tuple(list(known.jobs)[-3:]))
    if "job" in intent.needs and not asked.job:
        return _back(asked, f"Which job?{_some_jobs(known)}", tuple(list(known.jobs)[-3:]))
    if intent.needs.count("job") > 1 and not asked.other_job:
        return _back(asked, f"Job {asked.job} and which other one?{_some_jobs(known)}", tuple(list(known.jobs)[-3:]))
    if "node" in intent.needs and not asked.nodes:
        some = f" For instance {known.nodes[0]}." if known.nodes else " The scheduler names no nodes."
        return _back(asked, f"Which node?{some}", known.nodes[:3])
    if "incident" in intent.needs and asked.incident is None:
        some = f" The newest is {max(known.incidents)}." if known.incidents else " There are none yet."
        return _back(asked, f"Which incident?{some}", tuple(str(number) for number in sorted(known.incidents)[-3:]))
    return None


def _some_jobs(known: Inventory) -> str:
    newest = list(known.jobs.items())[-3:]
    return (
        f" The newest: {', '.join(f'{job} ({one_line(name, 30)})' for job, name in newest)}."
        if newest
        else " The scheduler knows none."
    )


def _back(asked: Asked, text: str, options: tuple[str, ...]) -> Answer:
    return Answer(text, Kind.ASKS_BACK, MODE, asked.intent, round(asked.confidence, 3), options=options)


def _reading(intent: str, asked: Asked) -> str:
    job = asked.job or (asked.names.numbers[0] if asked.names.numbers else "JOB")
    node = asked.nodes[0] if asked.nodes else "NODE"
    incident = asked.incident if asked.incident is not None else "ID"
    return READINGS[intent].replace("{job}", job).replace("{node}", node).replace("{incident}", str(incident))


def _pretty(value: object) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, indent=2)
