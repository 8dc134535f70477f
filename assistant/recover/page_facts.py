"""What has become of an incident's job and nodes, from the rows of its calls: every page and message is worded from these facts.

A diagnosis gives its advice before anything is done. What was done meanwhile, or cannot be done, is no advice any more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assistant.records import Call, CallStatus, Incident, IncidentState
from assistant.recover.identity import MOVED, RESTARTS
from assistant.recover.situation import AVOIDED
from assistant.store import WENT_ON
from assistant.tooling import History

__all__ = ["PageFacts", "advice_left", "facts_of_page", "summary_now"]

_RESTARTS = re.compile(
    r"\b(?:re-?start|re-?submit|start(?:s|ed)? (?:it )?again|submit(?:s|ted)? (?:it )?again|begin (?:it )?again)", re.I
)
_OF_A_LIVING_JOB = re.compile(r"\bbefore (?:the job|it) is (?:cancelled|ended|killed)|\bwhile it (?:hangs|runs|stands)", re.I)
_HOLDS = re.compile(r"\s?\bJob \S{1,64} is still running and holds \d{1,6} nodes?(?: \([^()]{1,2000}\))?\.")
"""What a diagnosis says of a program that failed while its batch script lived on."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])")
ASKED = ("restart_prospect", "choose_checkpoint")


@dataclass(frozen=True)
class PageFacts:
    """What was done about an incident, as far as it counts for what is left to do."""

    ended: bool = False
    """Whether Nightshift ended its job."""
    restarted_as: str = ""
    """The job that Nightshift started again for it; empty where it has not."""
    no_restart: bool = False
    """Whether a restart was asked about and cannot be made as things stand."""
    undrained: tuple[str, ...] = ()
    """Sentences about nodes that were to be taken out of service and were not, or that only the restart stays away from."""
    saved: str = ""
    """What the job left to go on from; empty where nobody asked, or nothing is known of it."""
    moved: tuple[str, ...] = ()
    """Sentences about jobs that waited for the failed one and were let wait for its restart."""


def facts_of_page(store: History, incident: int) -> PageFacts:
    """Return what was done about an incident."""
    calls = store.calls(incident)
    done = [(call, _value(store, call)) for call in calls if call.status is CallStatus.DONE]
    ended = any(call.tool == "cancel_job" and value.get("cancelled") for call, value in done)
    restarts = [str(value["job"]) for call, value in done if call.tool in RESTARTS and value.get("job")]
    failed = any(call.tool in RESTARTS and call.status in (CallStatus.FAILED, CallStatus.DENIED) for call in calls)
    asked = [value for call, value in done if call.tool in ASKED and "restart_from" in value]
    finished = any(call.tool == "training_finished" and value.get("finished") for call, value in done)
    refused = failed or finished or (bool(asked) and not asked[-1]["restart_from"])
    saved = next((str(value["saved"]) for _, value in reversed(done) if value.get("saved")), "")
    undrained = [*_undrained(store, calls), *_in_service(store, calls, incident)]
    moves = [value.get(MOVED) for _, value in done]
    moved = [str(sentence) for those in moves if isinstance(those, list | tuple) for sentence in those]
    as_job = restarts[-1] if restarts else ""
    return PageFacts(ended, as_job, refused and not restarts, tuple(undrained), saved, tuple(dict.fromkeys(moved)))


def summary_now(summary: str, facts: PageFacts) -> str:
    """Return the summary of a diagnosis without what it said of a job that lived then and was ended since."""
    return _HOLDS.sub("", summary).strip() if facts.ended or facts.restarted_as else summary


def advice_left(advice: str, facts: PageFacts, incident: Incident, store: History) -> str:
    """Return what of a diagnosis' advice is left to do; empty where nothing is.

    Nobody is told to start a job that Nightshift has started, is at work on, or could not start for a reason that is given.
    """
    if incident.state is IncidentState.RECOVERED or WENT_ON in store.stages(incident.id):
        return ""
    ours = not incident.state.ended or incident.state is IncidentState.CLOSED or facts.no_restart or bool(facts.restarted_as)
    gone = facts.ended or bool(facts.restarted_as)
    kept = [
        sentence
        for sentence in _SENTENCE.split(_HOLDS.sub("", advice) if gone else advice)
        if not (ours and _RESTARTS.search(sentence)) and not (gone and _OF_A_LIVING_JOB.search(sentence))
    ]
    return " ".join(kept).strip()


def _undrained(store: History, calls: Sequence[Call]) -> list[str]:
    """Return a sentence for each node whose drain was refused, failed or waits, and that no later call took out."""
    said: dict[str, str] = {}
    for call in calls:
        node = str(call.arguments.get("node", ""))
        if call.tool != "cordon_node" or not node:
            continue
        if call.status is CallStatus.DONE:
            said.pop(node, None)
        elif call.status is CallStatus.DENIED:
            last = store.decisions(call.id)[-1:]
            why = f" ({last[0].rule}: {last[0].why})" if last else ""
            said[node] = (
                f"node {node} is NOT drained{why}: other jobs may land on it; to take it out: nightshift nodes cordon {node}"
            )
        elif call.status is CallStatus.FAILED:
            outcome = store.outcome(call.id)
            said[node] = f"node {node} is NOT drained ({outcome.error if outcome is not None else 'the call failed'})"
    return list(said.values())


def _in_service(store: History, calls: Sequence[Call], incident: int) -> list[str]:
    """Return a sentence for each node that a restart stays away from and of whose drain no call speaks."""
    diagnosis = store.diagnosis(incident)
    cordoned = {str(call.arguments.get("node", "")) for call in calls if call.tool == "cordon_node"}
    return [
        f"node {place.node} still takes jobs, though {place.why.removeprefix(AVOIDED).strip()}: see to it"
        for place in (diagnosis.where if diagnosis is not None else ())
        if place.node is not None and place.why.startswith(AVOIDED) and place.node not in cordoned
    ]


def _value(store: History, call: Call) -> Mapping[str, object]:
    outcome = store.outcome(call.id)
    return outcome.value if outcome is not None and outcome.ok and isinstance(outcome.value, Mapping) else {}
