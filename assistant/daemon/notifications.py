"""What people are told: each row of the audit that matters to somebody, as a message with the next step in it.

A notice is written when it is sent, so it says how things stand then; an approval that was answered meanwhile is left out.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from assistant.config.settings import About, Severity
from assistant.display import notice_line, shorten, unambiguous
from assistant.engine.intake import UNPROVEN, chain_of, note_of, restarts_of, stands_for
from assistant.engine.node_remedy import node_remedies
from assistant.engine.retry_policy import AT_WORK, LOST_AGAIN, STANDS_AGAIN, WORKING, WORKS
from assistant.errors import UsageError
from assistant.records import Call, Diagnosis, Event, EventKind, Incident, IncidentState
from assistant.recover.joblog import LogPlaces, log_paths
from assistant.recover.situation import PageFacts, advice_left, facts_of_page, summary_now
from assistant.redact import redact
from assistant.store import SETTLED_SINCE, WENT_ON, AuditRow, Store
from assistant.tooling import found as tools
from assistant.watch.outages import members_of, shared_by

__all__ = ["Notice", "grouped", "notices", "superseded"]

logger = logging.getLogger(__name__)

LONGEST_LINE = 400
LONGEST = 6_000
"""Characters of a message."""
_CLAUSE = re.compile(r"(?<=[.;])\s+(?=\S)|(?<=:)\s+(?=[A-Z])")
"""Where a long line may be parted."""
_GOES_ON = "  "
_NUMBERS = re.compile(r"[\d_]+")
MOST_OPEN = 1_000
URGENT = "stop_restart"
"""The tool whose question cannot wait for the morning: each minute may cost a checkpoint."""
QUOTED = 60
"""Characters of a cited line by which a summary is known to quote it already."""
LISTED = 25
"""Notices that the message about a storm lists."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A message to people about one row of the audit."""

    row: int
    """The row of the audit that it is about."""
    about: About
    severity: Severity
    title: str
    text: str
    fingerprint: str
    """The same for the same thing happening again: a run that fails again for the same reason with the same to be done."""
    incident: int | None = None
    owner: str = ""
    """Whom it is for, when it is for the owner of a job; empty: for the operators."""


def notices(rows: Iterable[AuditRow], store: Store) -> Iterator[Notice]:
    """Yield what rows of the audit have to say to people, in their order.

    Raises:
        StoreError: The store cannot be read.
    """
    for row in rows:
        if _is_told_by_cause(row, store):
            continue
        writer = _WRITERS.get(row.what) or _WRITERS.get(row.what.partition(".")[0] + ".")
        try:
            notice = writer(row, store) if writer is not None else None
        except (UsageError, ValueError) as error:
            # one row that cannot be told must not keep all later ones
            logger.warning("row %s of the audit cannot be told: %s", row.id, error)
            continue
        if notice is not None:
            yield notice


def superseded(candidates: Sequence[Notice]) -> list[Notice]:
    """Return notices without those of incidents that opened and ended in the same breath: how they ended says it all."""
    ended = {notice.incident for notice in candidates if notice.about in (About.ESCALATED, About.RECOVERED)}
    return [notice for notice in candidates if notice.about is not About.OPENED or notice.incident not in ended]


def grouped(members: Sequence[Notice], row: int) -> Notice:
    """Return one notice that stands for many: how many of what, the worst line by line, and a lone call for a person in full."""
    counts = {about: sum(notice.about is about for notice in members) for about in About}
    parts = [f"{many} {_PLURAL[about]}" for about, many in counts.items() if many]
    worst = sorted(members, key=lambda notice: (-notice.severity.rank, notice.about is not About.APPROVAL, notice.row))
    lines = [f"{notice.title}: {notice.text.splitlines()[0]}" if notice.text else notice.title for notice in worst[:LISTED]]
    title = f"{len(members)} things at once: {', '.join(parts)}"
    if counts[About.ESCALATED] == 1 and worst[0].about is About.ESCALATED:
        title, lines[:1] = f"{worst[0].title}; {title}", worst[0].text.splitlines()
    lines += [f"and {len(members) - LISTED} more"] if len(members) > LISTED else []
    lines.append("all of them: nightshift incidents; nightshift approvals")
    return Notice(row, worst[0].about, worst[0].severity, _line(title), _body(lines), f"group:{row}")


_ELSEWHERE = "settled elsewhere"
"""What the note of an incident begins with whose run goes on, or is over, without Nightshift."""
_PLURAL = {
    About.OPENED: "opened",
    About.RECOVERED: "recovered",
    About.ESCALATED: "need a person",
    About.APPROVAL: "wait for an approval",
    About.ACTION: "changes",
    About.OWNER: "for owners",
    About.BREAKER: "about the breaker",
    About.KILL_SWITCH: "about the kill switch",
    About.POLICY: "about the policy",
    About.BLIND: "about the watch's sight",
    About.LEADER: "changes of the leader",
}


def _is_told_by_cause(row: AuditRow, store: Store) -> bool:
    """Tell whether a row is about a job whose incident shares its cause with others: the incident of the cause tells of it.

    What goes wrong with the job after its restart is its own and is told.
    """
    if row.incident is None or (row.what not in ("incident.opened", "incident.state") and row.what != "outcome"):
        return False
    shared = shared_by(store.events(row.incident))
    if shared is None:
        return False
    if row.what == "outcome":
        return store.call(row.call or 0).tool == "tell_owner"
    if row.outcome != IncidentState.ESCALATED or "restarted" not in store.stages(row.incident):
        return True
    # it failed of the same once more, and goes on as another member
    return any(shared_by(store.events(successor.id)) == shared for successor in restarts_of(row.incident, store))


def _shared(row: AuditRow, incident: Incident, store: Store) -> Notice:
    """Return the message about a cause that several jobs failed of; critical, for a person has to bring it back."""
    events = [event for event in store.events(incident.id) if event.kind is EventKind.OUTAGE and event.job is None]
    jobs = list(dict.fromkeys(str(job) for event in events for job in event.detail.get("jobs", ())))
    owners = sorted({str(owner) for event in events for owner in event.detail.get("owners", ())})
    proof = next((str(event.detail["line"]) for event in events if event.detail.get("line")), "")
    more = f" and {len(jobs) - LISTED} more" if len(jobs) > LISTED else ""
    blame = "none of them is asked to change anything" if len(owners) > 1 else "it vanished, or all jobs were given a wrong name"
    if len(owners) <= 1 and (incident.service or "").startswith("error "):
        blame = "all jobs failed of the same"
    if (incident.service or "").startswith("node "):
        blame = "somebody has to see to the node"
    ended = incident.state.ended and row.what == "incident.state"
    word = {IncidentState.ESCALATED: "needs a person", IncidentState.RECOVERED: "is over"}.get(incident.state, "") if ended else ""
    names = {member.job: _subject(member, store).removeprefix("job ") for member in _members(events, store)}
    lines = [
        *_prose([incident.note]),
        *_prose([f"jobs: {', '.join(names.get(job, job) for job in jobs[:LISTED])}{more}"]),
        f"owners: {', '.join(owners)}; {blame}",
        f"line: {proof}" if proof else "",
        _more(incident),
    ]
    title = f"{incident.subject}{f' {word}' if word else ''}: {len(jobs)} jobs failed of it (incident {incident.id})"
    about = (About.ESCALATED if incident.state is IncidentState.ESCALATED else About.RECOVERED) if ended else About.OPENED
    severity = Severity.INFO if about is About.RECOVERED else Severity.CRITICAL
    return _notice(row, about, severity, title, lines, incident, "outage", store)


def _members(events: Sequence[Event], store: Store) -> Iterator[Incident]:
    """Yield the incidents of the jobs that failed of a shared cause, as far as they are listed in a message."""
    for number in members_of(events)[:LISTED]:
        with suppress(UsageError):
            yield store.incident(number)


def _opened(row: AuditRow, store: Store) -> Notice | None:
    incident = store.incident(row.incident or 0)
    if incident.kind is EventKind.OUTAGE:
        return _shared(row, incident, store)
    diagnosis = store.diagnosis(incident.id)
    if diagnosis is None and incident.state is IncidentState.CLOSED:
        return None  # it was settled before anybody had to look: a job that was stopped here, say
    if _end_word(incident.state, incident, incident.note, store):
        return None  # the row of its end, which follows, says all of it
    if incident.state is IncidentState.DIAGNOSED and WORKING in store.stages(incident.id):
        return None  # it is told of once it has been silent for longer
    reason = diagnosis.reason if diagnosis is not None else "not diagnosed yet"
    title = f"{_subject(incident, store)}: {_reason_words(reason, incident, store)} (incident {incident.id})"
    now = f"now: {incident.state}" + (f", {incident.note}" if incident.note else "")
    return _notice(
        row,
        About.OPENED,
        Severity.WARNING,
        title,
        [*_prose([*_finding(diagnosis), *_symptoms(incident, store), now], _places(incident, store)), _more(incident)],
        incident,
        reason,
        store,
    )


def _state(row: AuditRow, store: Store) -> Notice | None:
    state = IncidentState(row.outcome)
    incident = store.incident(row.incident or 0)
    word = _end_word(state, incident, row.why or incident.note, store)
    neighbours = chain_of(incident, store) if state is IncidentState.ESCALATED else []
    if not word or any(stands_for(neighbour, incident) for neighbour in neighbours):
        return None  # the message about the other end of the restart says what both need, and knows more
    if incident.kind is EventKind.OUTAGE:
        return _shared(row, incident, store)
    diagnosis = store.diagnosis(incident.id)
    reason = diagnosis.reason if diagnosis is not None else str(incident.kind)
    about = About.ESCALATED if state is IncidentState.ESCALATED else About.RECOVERED
    severity = Severity.CRITICAL if state is IncidentState.ESCALATED else Severity.INFO
    if severity is Severity.CRITICAL and incident.kind is EventKind.SLOW_JOB:
        severity = Severity.WARNING  # it makes its steps: that can wait for the morning
    facts = facts_of_page(store, incident.id)
    if facts.undrained and severity is Severity.INFO:
        severity = Severity.WARNING  # the job is well, and a node that broke it still takes others
    words = (
        "no step, but its ranks work" if _works(incident, store) and "hang" in reason else _reason_words(reason, incident, store)
    )
    title = f"{_subject(incident, store)} {word}: {words} (incident {incident.id})"
    open_advice = (
        advice_left(diagnosis.advice, facts, incident, store) if diagnosis is not None and about is About.ESCALATED else ""
    )
    note = row.why or incident.note
    if _works(incident, store) or {LOST_AGAIN, STANDS_AGAIN} & {*store.stages(incident.id)}:
        # the advice of a hang would end a job that works, and numbers lost at the same step again have another cause: see the note
        open_advice = ""
    advice = [f"to do: {open_advice}"] if open_advice and open_advice not in note else []
    if about is About.ESCALATED and facts.saved and facts.saved not in note:
        advice.append(f"left: {facts.saved}")
    chain = _chain_words(incident, note, store) if about is About.ESCALATED else ""
    sentences = [note, chain, *facts.moved, *facts.undrained, *_finding(diagnosis, facts), *_symptoms(incident, store), *advice]
    lines = [
        *_prose(sentences, _places(incident, store)),
        *_prose(node_remedies(diagnosis, facts.drained)),
        _more(incident),
    ]
    need = f"{reason}{_digest(f'{open_advice} {note}')}" if about is About.ESCALATED else reason
    return _notice(row, about, severity, title, lines, incident, need, store)


def _chain_words(incident: Incident, note: str, store: Store) -> str:
    """Return which job a failed restart is of, for whoever was told of nothing yet; empty where it is none or the note says so."""
    before = store.incident(incident.parent) if incident.parent is not None else None
    if before is None or before.job in (None, incident.job) or f"restart of job {before.job}" in note:
        return ""
    return f"job {incident.job} is the restart of job {before.job} (incident {before.id})"


def _digest(text: str) -> str:
    """Return a digest of what has to be done, the same for each attempt: ids of jobs and other numbers do not count."""
    return f":{hashlib.sha256(_NUMBERS.sub('', text).encode()).hexdigest()[:12]}"


def _end_word(state: IncidentState, incident: Incident, note: str, store: Store) -> str:
    """Return how a title says that an incident ended; empty where nobody is told of that, as where it has not."""
    stages = store.stages(incident.id)
    if state is IncidentState.ESCALATED:
        return "" if WENT_ON in stages else "needs a person"  # nobody is called for what is over
    if state is not IncidentState.CLOSED:
        return "recovered" if state is IncidentState.RECOVERED else ""
    if WENT_ON in stages and WORKING in stages and UNPROVEN not in stages:
        return ""  # it worked all the while, and nobody was told of it
    if WENT_ON in stages or SETTLED_SINCE in stages:
        return "went on by itself" if WENT_ON in stages else "needs nobody any more"
    return _ELSEWHERE if note.startswith(_ELSEWHERE) else ""


def _approval_notice(row: AuditRow, store: Store) -> Notice | None:
    approval = store.approval(int(row.detail.get("approval", 0)))
    if not approval.pending(store.clock.now()):
        return None
    call = store.call(approval.call)
    about = f" (incident {call.incident})" if call.incident is not None else ""
    lines = [
        f"would run: {unambiguous(call.preview or call.tool)}",
        f"why: {unambiguous(call.why)}",
        f"asks: {approval.rule}{f', {approval.why}' if approval.why else ''}",
        f"allow: nightshift approve {approval.id}",
        f"refuse: nightshift deny {approval.id}",
        _undo(call),
        f"until: {approval.expires:%Y-%m-%dT%H:%M:%SZ}, then it is refused",
    ]
    title = f"approval {approval.id} waits: {call.tool}{about}"
    severity = Severity.WARNING
    if call.tool == URGENT and call.step is not None:
        # the engine's own question rests on a proof; whoever else proposes to stop a restart has none
        job = call.arguments.get("job")
        title, severity = f"URGENT: job {job} is at a wrong start and may save over its run; {title}", Severity.CRITICAL
    return Notice(row.id, About.APPROVAL, severity, _line(title), _body(lines), f"approval:{approval.id}", call.incident)


def _outcome(row: AuditRow, store: Store) -> Notice | None:
    call, ok = store.call(row.call or 0), row.outcome == "ok"
    if call.tool == "tell_owner":
        return _for_owner(row, call, store) if ok else None
    if store.kinds_of([call.id]).get(call.id, "read") == "read":
        return None
    about = f" (incident {call.incident})" if call.incident is not None else ""
    lines = [call.preview or call.tool, f"why: {call.why}", f"by: {call.by}"]
    lines += [f"undo: {row.undo}"] if row.undo else []
    lines += [f"error: {row.outcome}"] if not ok else []
    title = f"{call.tool} {'done' if ok else 'failed'}{about}"
    severity = Severity.INFO if ok else Severity.WARNING
    print_of = f"action:{call.id}" if ok else f"failed:{call.tool}:{_targets(call)}"
    return Notice(row.id, About.ACTION, severity, _line(title), _body(lines), print_of, call.incident)


def _for_owner(row: AuditRow, call: Call, store: Store) -> Notice | None:
    outcome = store.outcome(call.id)
    if outcome is None or not isinstance(outcome.value, dict):
        return None
    text, owner = str(outcome.value.get("text", "")), str(outcome.value.get("owner", ""))
    job, reason = call.arguments.get("job"), call.arguments.get("reason")
    incident = store.incident(call.incident) if call.incident is not None else None
    title = f"your job {job} failed: {reason}"
    cause = f"{_root(incident, store) if incident is not None else job}{_digest(str(call.arguments.get('advice')))}"
    return Notice(
        row.id,
        About.OWNER,
        Severity.WARNING,
        _line(title),
        _body([*_prose(text.splitlines(), _places(incident, store)), f"more: nightshift incident report {call.incident}"]),
        f"owner:{owner}:{reason}:{cause}",
        call.incident,
        owner,
    )


def _condition(row: AuditRow, _: Store) -> Notice | None:
    name, began = row.what.partition(".")[2], row.outcome == "on"
    conditions = {
        "blind": (About.BLIND, Severity.CRITICAL, "the watch is blind", "the watch sees everything again"),
        "partly_blind": (About.BLIND, Severity.WARNING, "the watch does not see everything", "the watch sees everything again"),
        "kill_switch": (About.KILL_SWITCH, Severity.WARNING, "the kill switch is set", "the kill switch is gone"),
        "policy": (About.POLICY, Severity.CRITICAL, "no policy is in force: every change is refused", "the policy is whole again"),
        "breaker": (About.BREAKER, Severity.CRITICAL, "the breaker stopped all changes", "the breaker was reset"),
    }
    if name not in conditions:
        return None
    about, severity, on, off = conditions[name]
    title, how = (on, severity) if began else (off, Severity.INFO)
    print_of = ":".join([name, row.outcome, *map(str, row.detail.get("about", ()))])
    return Notice(row.id, about, how, title, _body([row.why, f"by: {row.by}", "more: nightshift status"]), print_of)


def _breaker(row: AuditRow, _: Store) -> Notice | None:
    reset = "reset" in row.what or row.outcome == "off"
    title = "the breaker was reset" if reset else "the breaker stopped all changes"
    severity = Severity.INFO if reset else Severity.CRITICAL
    return Notice(row.id, About.BREAKER, severity, title, _body([row.why, f"by: {row.by}"]), row.what)


def _took_over(row: AuditRow, store: Store) -> Notice | None:
    before = store.row_before(row.id, "leader.")
    if before is None:
        return None
    calm = before.what == "leader.resigned"
    severity = Severity.INFO if calm else Severity.WARNING
    why = "the watch before it had ended on purpose" if calm else row.why or "the watch before it was gone"
    return Notice(
        row.id, About.LEADER, severity, _line(f"{row.by} leads now"), _body([why]), f"leader:{'calm' if calm else 'lost'}"
    )


_WRITERS: dict[str, Callable[[AuditRow, Store], Notice | None]] = {
    "incident.opened": _opened,
    "incident.state": _state,
    "approval.asked": _approval_notice,
    "outcome": _outcome,
    "watch.": _condition,
    "breaker.": _breaker,
    "leader.took_over": _took_over,
}


def _notice(
    row: AuditRow,
    about: About,
    severity: Severity,
    title: str,
    lines: Sequence[str],
    incident: Incident,
    reason: str,
    store: Store,
) -> Notice:
    print_of = f"{about}:{_root(incident, store)}:{reason}" if incident.job is not None else f"{about}:{incident.subject}:{reason}"
    return Notice(row.id, about, severity, _line(title), _body(lines), print_of, incident.id)


def _subject(incident: Incident, store: Store) -> str:
    if incident.job is None:
        return incident.subject
    name = next((str(event.detail["name"]) for event in store.events(incident.id) if event.detail.get("name")), "")
    return f"job {incident.job}" + (f" ({name})" if name else "")


def _works(incident: Incident, store: Store) -> bool:
    """Tell whether nothing but silence speaks for the hang of a job that was seen to use the CPU, or to write files."""
    if incident.kind is not EventKind.HANG or UNPROVEN not in store.stages(incident.id):
        return False
    if AT_WORK in incident.note:
        return True
    details = [event.detail for event in store.events(incident.id) if event.kind is EventKind.HANG]
    is_at_work = any(WORKS.search(str(detail.get("witness") or "")) for detail in details)
    return is_at_work and not any(detail.get("proofs") for detail in details)


def _reason_words(reason: str, incident: Incident, store: Store) -> str:
    """Return a reason for a title, with the word by which people look for a job that stands still, as long as it does."""
    if incident.kind is not EventKind.HANG or "hang" in reason:
        return reason
    has_ended = any(event.kind is EventKind.JOB_ENDED for event in store.events(incident.id))
    return reason if has_ended else f"hang, {reason}"


def _finding(diagnosis: Diagnosis | None, facts: PageFacts | None = None) -> list[str]:
    if diagnosis is None:
        return []
    lines = [summary_now(diagnosis.summary, facts) if facts is not None else diagnosis.summary]
    lines += [f"nodes: {', '.join(diagnosis.faulty_nodes)}"] if diagnosis.faulty_nodes else []
    summary = _squeezed(lines[0])
    cited_lines = [cited for cited in diagnosis.root_cause[:1] if _squeezed(cited.text)[:QUOTED] not in summary]
    return lines + [f"line: {cited.file}:{cited.line}: {cited.text}" for cited in cited_lines]


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def _symptoms(incident: Incident, store: Store) -> list[str]:
    """Return what joined an incident since it was opened: nodes that went away."""
    if incident.job is None:
        return []
    return [f"also: {note_of(event)}" for event in store.events(incident.id) if event.kind is EventKind.NODE_DOWN]


def _more(incident: Incident) -> str:
    return f"more: nightshift incident show {incident.id}"


def _undo(call: Call) -> str:
    tool = tools().get(call.tool)
    return f"undo, once done: nightshift undo {call.id}" if tool is not None and tool.undo else "undo: it cannot be taken back"


def _targets(call: Call) -> str:
    return ",".join(str(call.arguments.get(name, "")) for name in ("node", "job") if call.arguments.get(name))


def _root(incident: Incident, store: Store) -> int:
    """Return the first incident of a chain of restarts."""
    for _ in range(100):
        if incident.parent is None:
            break
        try:
            incident = store.incident(incident.parent)
        except UsageError:
            break
    return incident.id


def _places(incident: Incident | None, store: Store) -> LogPlaces:
    return LogPlaces(log_paths(store.evidence(incident.id)) if incident is not None else {})


def _prose(lines: Iterable[str], places: LogPlaces | None = None) -> Iterator[str]:
    """Yield lines, each that is too long parted behind sentences and clauses: only what is too long in itself is ever cut.

    What goes on is set in, so that no quotation can begin a line of the message itself.

    Args:
        lines: Of a message.
        places: Where the logs lie that the lines cite, so that whoever reads them can open these.
    """
    for line in lines:
        # redacted before it is parted: a key and its secret may come apart
        text = redact(places.written(line) if places is not None else line)
        part = ""
        for piece in _CLAUSE.split(text) if len(text) > LONGEST_LINE else [text]:
            if part and len(part) + len(piece) >= LONGEST_LINE - len(_GOES_ON):
                yield part
                part = f"{_GOES_ON}{piece}"
            else:
                part = f"{part} {piece}" if part else piece
        yield part


def _line(text: str) -> str:
    """Return one line that holds no secret and nothing that a chat service takes for a command."""
    return notice_line(redact(text), LONGEST_LINE)


def _body(lines: Iterable[str]) -> str:
    text = "\n".join(_line(line) for line in lines if line and line.strip())
    return shorten(text, LONGEST)
