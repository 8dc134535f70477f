"""Whether what is said of a job, a node or an approval holds by the record, and how the thing stands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from assistant.agent.answer import one_line, time_text
from assistant.agent.dialogue import QuestionTurn
from assistant.agent.tell_changes import is_about
from assistant.agent.tell_counsel import hand_of
from assistant.agent.tell_orders import OUT
from assistant.nodeset import fold
from assistant.records import JobState

WEEK_H = 168.0
MOST_INCIDENTS = 400
FAILED_STATES = frozenset(str(state) for state in JobState if state.failed)
_RESTART = re.compile(r"^(?:submit|sbatch|requeue|scontrol requeue)")
_PLAIN = {"key_error": "KeyError", "ecc_error": "an ECC error"}


class ClaimCheck(NamedTuple):
    """What the record says of a claim."""

    holds: bool | None
    """None where the record does not tell."""
    fact: str
    """What it says, as a sentence without its first capital letter."""

    def worded(self, negated: bool = False) -> str:
        """Return it behind yes, no or not known."""
        if self.holds is None:
            return f"Not known: {self.fact}."
        return f"{'Yes' if self.holds is not negated else 'No'}: {self.fact}."


def reason_text(reason: str) -> str:
    """Return a reason in words."""
    return _PLAIN.get(reason, str(reason or "no known reason").replace("_", " "))


def blaming(turn: QuestionTurn, node: str) -> tuple[list[Mapping[str, Any]], str]:
    """Return the incidents that blame a node, newest first, and the mark of their source."""
    listed = turn.look("list_incidents", limit=MOST_INCIDENTS)
    return [row for row in listed.value or () if node in row["nodes_to_blame"] or row["node"] == node], f"[{listed.number}]"


def node_fact(turn: QuestionTurn, node: str) -> tuple[str, str]:
    """Return the state of a node, and how it stands in words: who took it out, which incidents blame it."""
    listed = turn.look("node_states", nodes=[node])
    if listed.error or len(listed.value) != 1:
        return "", f"the state of {node} is not known now"
    row, mark = listed.value[0], f"[{listed.number}]"
    state = str(row["state"])
    blamed, incident_mark = blaming(turn, node)
    parts = [f"{node} is {state}{_reason_of(turn, row)} {mark}"]
    parts += [f"job {', '.join(row['jobs'])} runs on it"] if row["jobs"] else []
    if blamed:
        rows = ", ".join(f"{row['incident']} (job {row['job']}, {reason_text(row['reason'])})" for row in blamed[:3])
        parts.append(
            f"{'incident' if len(blamed) == 1 else 'incidents'} {rows} blame{'s' if len(blamed) == 1 else ''} it {incident_mark}"
        )
    else:
        parts.append(f"no incident blames it {incident_mark}{_failed_there(turn, node)}")
    return state, ", ".join(parts)


def _reason_of(turn: QuestionTurn, row: Mapping[str, Any]) -> str:
    reason = str(row["reason"])
    kind, hand = hand_of(reason)
    if not reason:
        return ""
    if kind == "nightshift":
        return f", by {hand}"
    return (
        f" by {hand} ({one_line(reason.partition(':')[2].strip() or reason, 100)})"
        if kind == "person"
        else f" ({one_line(reason, 100)})"
    )


def _failed_there(turn: QuestionTurn, node: str) -> str:
    """Return which failed jobs ran on a node, and what their failure is blamed on instead."""
    jobs, listed = turn.look("list_jobs", limit=100_000), turn.look("list_incidents", limit=MOST_INCIDENTS)
    failures = {row["job"] for row in jobs.value or () if row["state"] in FAILED_STATES and node in row["nodes"]}
    rows = [row for row in listed.value or () if row["job"] in failures]
    texts = [
        f"job {row['job']} failed there of {reason_text(row['reason'])}"
        + (f", which is {fold(row['nodes_to_blame'])}'s" if row["nodes_to_blame"] else ", which is blamed on no node")
        for row in rows[:2]
    ]
    return f"; {'; '.join(texts)}" if texts else ""


def incident_of(turn: QuestionTurn, job: str) -> tuple[Mapping[str, Any] | None, str]:
    """Return the newest incident about a job, and the mark of its source."""
    listed = turn.look("list_incidents", limit=MOST_INCIDENTS)
    row = next((row for row in listed.value or () if row["job"] == job), None)
    if row is not None:
        turn.incidents.append(row["incident"])
    return row, f"[{listed.number}]"


def job_fact(turn: QuestionTurn, job: str) -> tuple[str, str]:
    """Return the state of a job, and how it stands in words: since when, at which step, what became of its incident."""
    status = turn.look("show_job", job=job)
    if status.error:
        return "", f"the state of job {job} is not known now"
    row, mark = status.value, f"[{status.number}]"
    state = str(row["state"])
    name = f"job {job} ({one_line(row['name'], 40)} of {row['user']})"
    if state == "running":
        reached = turn.look("job_progress", job=job, timeout_s=0.0)
        step = (reached.value or {}).get("step")
        at = f" at step {step} [{reached.number}]" if isinstance(step, int) else ""
        return state, f"{name} is running on {fold(row['nodes'])}{at}, since {time_text(row['started'], turn.now)} {mark}"
    if state == "pending":
        return state, f"{name} is pending since {time_text(row['submitted'], turn.now)}, it has not started {mark}"
    ended = f", {time_text(row['ended'], turn.now)}" if row["ended"] else ""
    text = f"{name} {'was cancelled' if state == 'cancelled' else state}{ended} {mark}"
    incident, incident_mark = incident_of(turn, job)
    if incident is not None:
        blamed = f" on {fold(incident['nodes_to_blame'])}" if incident["nodes_to_blame"] else ""
        word = {"escalated": "handed to a person"}.get(incident["state"], incident["state"])
        note = f": {one_line(incident['note'], 120)}" if incident["note"] else ""
        text += f"; incident {incident['incident']}, {reason_text(incident['reason'])}{blamed}, is {word}{note} {incident_mark}"
    return state, text


def check_node(turn: QuestionTurn, node: str, state_claimed: str) -> ClaimCheck:
    """Check what is said of a node."""
    state, fact = node_fact(turn, node)
    if not state:
        return ClaimCheck(None, fact)
    blamed = bool(blaming(turn, node)[0])
    holds = {
        "up": state not in OUT and not blamed,
        "down": state == "down",
        "drained": state in ("drained", "draining"),
        "faulty": blamed or state == "down",
        "idle": state == "idle",
    }[state_claimed]
    if state_claimed in ("up", "faulty"):
        fact += "; no repair is recorded" if state in OUT else ""
    return ClaimCheck(holds, fact)


def check_job(turn: QuestionTurn, job: str, state_claimed: str) -> ClaimCheck:
    """Check what is said of a job."""
    state, fact = job_fact(turn, job)
    if not state:
        return ClaimCheck(None, fact)
    incident, _ = incident_of(turn, job)
    if state_claimed in ("recovered", "restarted"):
        recovered = incident is not None and incident["state"] == "recovered"
        if recovered or restarted_by_call(turn, job):
            return ClaimCheck(True, fact)
        lead = f"no restart of job {job} is recorded; " if state != "running" else ""
        running = state_claimed == "recovered" and state == "running"
        return ClaimCheck(True if running else None if state == "running" else False, f"{lead}{fact}{waiting_about(turn, job)}")
    holds = {
        "failed": state in FAILED_STATES,
        "cancelled": state == "cancelled",
        "running": state == "running",
        "completed": state == "completed",
        "pending": state == "pending",
    }[state_claimed]
    return ClaimCheck(holds, fact)


def restarted_by_call(turn: QuestionTurn, job: str) -> bool:
    """Tell whether a restart of a job is recorded as done."""
    return any(row["status"] == "done" and _RESTART.match(row["change"]) for row in changes_about(turn, job))


def changes_about(turn: QuestionTurn, name: str) -> list[Mapping[str, Any]]:
    """Return what Nightshift changed lately about a job or a node, newest first."""
    source = turn.look("recent_changes", hours=WEEK_H)
    return [row for row in source.value or () if is_about(turn, row, frozenset({name}))]


def waiting_rows(turn: QuestionTurn, name: str) -> list[Mapping[str, Any]]:
    """Return what waits for a yes about a job or a node."""
    source = turn.look("list_approvals")
    return [row for row in source.value or () if is_about(turn, row, frozenset({name}))]


def waiting_about(turn: QuestionTurn, name: str) -> str:
    """Return which approval waits about a job or a node, as the end of a sentence; empty where none does."""
    rows, mark = waiting_rows(turn, name), f"[{turn.look('list_approvals').number}]"
    return f"; approval {rows[0]['approval']} waits for a yes: {one_line(rows[0]['change'], 120)} {mark}" if rows else ""


def approval_check(turn: QuestionTurn, number: int) -> ClaimCheck:
    """Check whether an approval was given or carried out."""
    waiting, changes = turn.look("list_approvals"), turn.look("recent_changes", hours=WEEK_H)
    if waiting.error or changes.error:
        return ClaimCheck(None, f"what waits is not known now [{waiting.number}]")
    mark = f"[{waiting.number}]"
    row = next((row for row in waiting.value if row["approval"] == number), None)
    if row is not None:
        by = f", asked for by {one_line(row['by'], 40)}" if row["by"] else ""
        return ClaimCheck(
            False,
            f"approval {number} still waits, nobody has approved it and nothing of it is done{by}: "
            f"{one_line(row['change'], 160)} {mark}",
        )
    waiting_texts = ", ".join(f"approval {row['approval']} ({one_line(row['change'], 100)})" for row in waiting.value[:3])
    finished = next((row for row in changes.value if row["status"] == "done"), None)
    newest = (
        f"; the newest change that was made is call {finished['call']}: {one_line(finished['change'], 100)} [{changes.number}]"
        if finished
        else ""
    )
    return ClaimCheck(
        False, f"no approval {number} is on record as waiting or granted; what waits: {waiting_texts or 'nothing'} {mark}{newest}"
    )
