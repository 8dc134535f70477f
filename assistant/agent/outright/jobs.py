"""What has to be worked out about a job: why it waits, what is lost, the line that proves it, whether a restart helped."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial

from assistant.agent.answer import count_text, one_line, time_text
from assistant.agent.aspects import FAMILIES
from assistant.agent.dialogue import QuestionTurn
from assistant.agent.evidence_times import own_lines
from assistant.agent.forms import span_text
from assistant.agent.outright.approvals import _SINCE as SINCE
from assistant.agent.outright.losses import gap_told, hours_told, next_checkpoint_told, steps_told
from assistant.agent.outright.sentence import OutrightReading, OutrightSentence, Row, cause_text, incidents_by_job, job_text
from assistant.agent.outright.windows import asked_window
from assistant.agent.tell_aspects import category, side_of, title
from assistant.agent.tell_jobs import ALL_JOBS, FAILED
from assistant.agent.tell_jobs import failed as not_answered
from assistant.agent.waiting import waiting_restart

_PENDING = re.compile(
    r"\bwhy\b.*\b(?:pending|waiting|wait|waits|queued|queue|hang\w*|stuck|not (?:yet )?(?:running|started"
    r"|start|run)|(?:not|does not|did not) (?:run|start))\b"
)
_LOST = re.compile(
    r"\b(?:steps?|work|progress|iterations?)\b.*\b(?:lost|lose|loses|losing|redo|redone|repeat\w*|wasted?|gone|again|dead|over)\b"
    r"|\b(?:lost|lose|redo|repeat)\b.*\b(?:steps?|work|iterations?)\b|\bwhat (?:would |do |does |will"
    r" )?(?:be |we |i |it )?(?:lost|lose)\b|\bhow much (?:do|would|did|will) (?:we|i|it|you) lose\b"
)
_HOURS = re.compile(
    r"\b(?:node|gpu|compute|machine)?[ -]?(?:hours|hrs)\b.*\b(?:lost|lose|loses|wast\w*|burn\w*|cost|used?"
    r"|consum\w+|spen[dt]|blew|throw\w*|threw)\b"
    r"|\b(?:lost|lose|wast\w*|burn\w*|spen[dt])\b.*\b(?:hours|hrs)\b"
)
_REALLY = re.compile(r"\b(?:really|actually|truly|effectively|net|to be (?:repeated|redone|made again))\b")
_PROOF = re.compile(
    r"\b(?:which|what|the) (?:\w+ )?(?:lines?|logs?|entry|record|evidence)\b.*\b(?:prov\w+|show\w*|say\w*"
    r"|mean\w*|tell\w*|speak\w*|not)\b"
)
_SUBJECT = re.compile(r"\b(?:hardware|gpu|node|network|code|bug|script|software|driver|nic|cluster|her|his|their|user)\b")
_RESTART_HELPED = re.compile(
    r"\b(?:did|has|have|does|was|is|had)\b(?: \w+){0,3}? (?:re-?start\w*|re-?run\w*|re-?submi\w+|re-?launch\w*|recovery)\b.*"
    r"\b(?:work\w*|help\w*|succe\w+|successful|go(?:ne)? through|any good|bring|brought|fix\w*|do any\w*|take|stick|ok|fine)\b"
)
_NEXT_CHECKPOINT = re.compile(
    r"\b(?:when|what time)\b.*\bnext (?:one|checkpoint|save|snapshot)\b|\bnext (?:checkpoint"
    r"|save)\b.*\bwhen\b|\bwhen\b.*\b(?:one after|save next|saved? again)\b"
)
_GAP = re.compile(
    r"\b(?:how (?:long|much time|many (?:hours|days))|what(?: is| was)? the (?:gap|time|interval|distance"
    r"|span))\b.*\b(?:between|apart|separat\w+|lies?)\b"
)
_MADE_IT = re.compile(
    r"\b(?:made|make|makes|came|come|go|went|got|get) (?:it )?(?:through|it|to the end)\b|\b(?:surviv\w+"
    r"|succeed\w*|work(?:ed)? out|finish(?:ed)?|complete[d]?)\b"
)
_CHANGE = re.compile(
    r"\bwhat\b.*\b(?:she|he|they|user|owner|i|we|you|one)\b.*\b(?:change|fix|correct|repair|do differently"
    r"|adjust|edit)\b|\bwhat (?:has|needs|have) to be (?:changed|fixed|corrected)\b"
)
_CAN_RESTART = re.compile(
    r"^\W*(?:\w+ )?(?:can|could|may|might) ?(?:i|we|one|you)?(?: \w+){0,2}? (?:re-?start|re-?run"
    r"|re-?submit|re-?launch|re-?queue|try)\b"
)
_FAULT = re.compile(
    r"^(?:whose (?:fault|mistake|problem)|who is (?:to blame|at fault|guilty|responsible))(?: (?:is|was) (?:it|that|this))?$"
)
_NOT_NODE = re.compile(
    r"^(?:not|it is not|that is not|no) (?:a |the |our )?(?:node|gpu|hardware|machine|cluster|network|card"
    r"|infrastructure)(?: (?:then|problem|fault|issue|error))?$"
)
_HARDWARE = re.compile(
    r"^(?:was|is|were|or was) (?:it|that|this|they) (?:a |the |our |really )?(?:hardware|gpu|node|machine"
    r"|infrastructure|cluster)(?: (?:problem|fault|issue|error|then))?$"
)
_WHOSE_JOB = re.compile(
    r"^(?:whose (?:job|run|task)(?: (?:is|was) (?:it|that|this))?|who(?:se)? (?:owns|is the owner of) (?:it|that|this))$"
)


def read_job(sentence: OutrightSentence) -> OutrightReading | None:
    """Read a question about a job that has to be worked out from its record."""
    for rule in (_read_gap, _read_hours, _read_restart_helped, _read_of_one):
        if (reading := rule(sentence)) is not None:
            return reading
    return None


def _read_gap(sentence: OutrightSentence) -> OutrightReading | None:
    if not sentence.says(_GAP) or asked_window(sentence.words, sentence.now) is not None:
        return None
    jobs, nodes = sentence.names.jobs, sentence.names.nodes or _nodes_by_number(sentence)
    nodes = nodes or ((sentence.node,) if sentence.node else ())
    if len(jobs) < 2 and not nodes and not sentence.says(r"\b(?:errors?|failures?|crashes|incidents?)\b"):
        return None
    family = next((names for pattern, names in FAMILIES.values() if names and sentence.says(rf"\b(?:{pattern})\b")), frozenset())
    if len(jobs) > 1:
        return OutrightReading(partial(gap_told, jobs=jobs), "incidents", job=jobs[0])
    return OutrightReading(
        partial(gap_told, jobs=(), nodes=nodes, reasons=family), "node_history" if nodes else "incidents", nodes=nodes[:1]
    )


def _nodes_by_number(sentence: OutrightSentence) -> tuple[str, ...]:
    """Return the node of `on 07`."""
    match = re.search(r"\b(?:on|of|at|with|for) (\d{1,4})\b(?!\s*(?:am|pm|:|h\b|jobs|steps))", sentence.words.lower())
    if match is None:
        return ()
    fitting = [node for node in sentence.inventory.nodes if (tail := re.search(r"(\d+)$", node)) and int(tail[1]) == int(match[1])]
    return tuple(fitting) if len(fitting) == 1 else ()


def _read_hours(sentence: OutrightSentence) -> OutrightReading | None:
    really = sentence.says(_REALLY) and sentence.says(r"\blos[te]\b|\bwaste|\brepeat|\bredone|\bagain\b")
    if not (sentence.says(_HOURS) or really) or not sentence.names_nothing or sentence.says(r"\b(?:by|per|each|which|who|most)\b"):
        return None
    if not sentence.says(r"\b(?:fail\w*|lost|lose|loses|wast\w*|burn\w*|crash\w*|dead|died)\b"):
        return None
    window = asked_window(sentence.words, sentence.now)
    return OutrightReading(partial(hours_told, users=sentence.names.users, window=window, really=bool(really)), "failed_jobs")


def _read_restart_helped(sentence: OutrightSentence) -> OutrightReading | None:
    if not sentence.says(_RESTART_HELPED) or sentence.says(r"\byou\b|\bwhy\b") or sentence.names.nodes:
        return None
    users = sentence.names.users
    job = sentence.job or ("" if users or sentence.names.strangers else next(iter(sentence.dialogue.jobs), ""))
    if sentence.names.jobs or (job and not users):
        return OutrightReading(partial(restart_told, jobs=(job,)), "job_status", job=job)
    if users:
        return OutrightReading(partial(restart_told, jobs=(), users=users), "list_jobs")
    return None


def _read_of_one(sentence: OutrightSentence) -> OutrightReading | None:
    """Read what is asked of a single job: named, spoken of, or the one of a user that fits."""
    if sentence.names.nodes or len(sentence.names.jobs) > 1:
        return None
    jobs, states = sentence.names.candidates, sentence.inventory.states
    if sentence.says(_PENDING):
        waiting = [job for job in (*jobs, *_of_users(sentence)) if states.get(job) == "pending"]
        job = sentence.names.jobs[0] if sentence.names.jobs else waiting[0] if waiting else sentence.job
        if states.get(job) == "pending":
            return OutrightReading(partial(pending_reason_told, job=job), "job_status", job=job)
    if sentence.says(_MADE_IT) and re.match(r"^\W*(?:\w+ )?(?:did|has|have|whether|if|is|was)\b|.*\bmade it\b", sentence.text):
        theirs = [job for job in _of_users(sentence) if states.get(job) not in ("running", "pending")]
        failed = [job for job in sentence.inventory.failed if job in theirs]
        job = sentence.names.jobs[0] if sentence.names.jobs else (failed or theirs or [""])[0]
        if job and sentence.says(r"\{jb\}|\b(?:run|job|training|experiment|it)\b"):
            return OutrightReading(partial(made_it_told, job=job), "explain_job", job=job)
    job = sentence.job
    if not job:
        return None
    reading = partial(OutrightReading, intent="explain_job", job=job)
    state, bare = states.get(job, ""), sentence.bare
    if sentence.says(_CAN_RESTART) and job in sentence.inventory.failed and not sentence.says(r"\bwhat\b|\bwhen\b"):
        return reading(partial(may_restart_told, job=job))
    if sentence.says(_PROOF) and sentence.says(_SUBJECT) and job in sentence.inventory.incidents.values():
        return reading(partial(proof_told, job=job))
    if sentence.says(_CHANGE) and job in sentence.inventory.incidents.values():
        return reading(partial(to_change_told, job=job))
    if sentence.says(_NEXT_CHECKPOINT) and state == "running":
        return reading(partial(next_checkpoint_told, job=job))
    if (
        sentence.says(_LOST)
        and sentence.names_nothing is (not sentence.names.jobs)
        and not sentence.says(r"\bloss\b|\bhours\b|\btotal\b|\bjobs\b|\ball\b")
    ):
        return reading(partial(steps_told, job=job))
    if _FAULT.match(bare) or _NOT_NODE.match(bare) or _HARDWARE.match(bare):
        return reading(
            partial(fault_told, job=job, form="not" if _NOT_NODE.match(bare) else "is" if _HARDWARE.match(bare) else "whose")
        )
    if _WHOSE_JOB.match(bare):
        return OutrightReading(partial(owner_told, job=job), "job_status", job=job)
    if SINCE.match(bare) and sentence.dialogue.intent in (
        "job_status",
        "progress",
        "explain_job",
        "list_jobs",
        "cancel",
        "recover",
    ):
        return OutrightReading(partial(job_since_told, job=job), "job_status", job=job)
    return None


def _of_users(sentence: OutrightSentence) -> Sequence[str]:
    """Return the jobs of the users that a question names, the newest first."""
    users = sentence.names.users or tuple(
        user for user in sentence.inventory.users if re.search(rf"\b{re.escape(user)}(?:'s|s)?\b", sentence.words.lower())
    )
    return [job for job in reversed(list(sentence.inventory.jobs)) if sentence.inventory.owners.get(job) in users]


def pending_reason_told(turn: QuestionTurn, job: str) -> Iterator[str]:
    """Tell since when a job waits in the queue, why as far as the scheduler says, and what is free."""
    status, nodes = turn.look("show_job", job=job), turn.look("node_states")
    if status.error:
        yield not_answered(turn, status)
        return
    row, mark = status.value, f"[{status.number}]"
    reason = (
        f"the scheduler says: {one_line(row['reason'], 160)}"
        if row["reason"]
        else "the reason is not known: the scheduler gives none"
    )
    idle = [node["node"] for node in nodes.value or () if node["state"] == "idle" and not node["jobs"]]
    yield f"{job_text(row)} is pending since {time_text(row['submitted'], turn.now)}; {reason} {mark}."
    if not nodes.error:
        needs = count_text(row.get("asked", {}).get("nodes") or 1, "node")
        yield (
            f"The cluster is not full: it needs {needs}, and {count_text(len(idle), 'node')} are idle [{nodes.number}]."
            if idle
            else f"No node is idle [{nodes.number}]."
        )


def proof_told(turn: QuestionTurn, job: str) -> Iterator[str]:
    """Tell the line that proves why a job failed, and whose side that is."""
    source = turn.look("explain_job", job=job)
    diagnosis = source.value or {}
    lines = own_lines(turn, diagnosis, job)
    if not lines:
        return
    turn.incidents += [diagnosis["incident"]] if diagnosis.get("incident") is not None else []
    owner = turn.inventory.owners.get(job, "")
    first = lines[0]
    yield (
        f"{first['file']}:{first['line']}  {one_line(first['text'], 200)} [{source.number}]: "
        f"{title(diagnosis['reason'])}, {side_of(diagnosis['reason'], owner)}."
    )
    yield from (f"  {line['file']}:{line['line']}  {one_line(line['text'], 200)}" for line in lines[1:4])
    if category(diagnosis["reason"]) != "infrastructure":
        yield f"No line that speaks of a GPU, an Xid or a node is among those that count for job {job}."
        place = re.search(r"\bat (\S+:\d+)", str(diagnosis.get("advice") or ""))
        yield from (f"The place in the code: {place[1]}" for _ in range(place is not None))  # type: ignore[index]
    elif diagnosis.get("nodes"):
        yield f"To blame: {', '.join(str(node['node']) for node in diagnosis['nodes'])}; what came after it is a consequence."


def to_change_told(turn: QuestionTurn, job: str) -> Iterator[str]:
    """Tell what the owner of a job must change."""
    source = turn.look("explain_job", job=job)
    diagnosis = source.value or {}
    if not diagnosis.get("advice"):
        return
    owner = turn.inventory.owners.get(job, "its owner")
    note = f"{one_line(diagnosis['note'], 160)}; " if diagnosis.get("note") else ""
    yield f"{owner}, for job {job}: {note}{one_line(diagnosis['advice'], 300)} [{source.number}]"


def made_it_told(turn: QuestionTurn, job: str) -> Iterator[str]:
    """Tell whether a job came to its end, and why it did not."""
    status = turn.look("show_job", job=job)
    if status.error:
        yield not_answered(turn, status)
        return
    row, by_job = status.value, incidents_by_job(turn)[0]
    ended = f" at {time_text(row['ended'], turn.now)}" if row["ended"] else ""
    if row["state"] == "completed":
        yield f"Yes: job {job_text(row)} is completed{ended} [{status.number}]."
    elif row["state"] in ("running", "pending"):
        yield f"Not yet: job {job_text(row)} is {row['state']} [{status.number}]."
    else:
        cause = cause_text(by_job.get(job))
        verb = "failed" if row["state"] in FAILED else f"is {row['state']}"
        yield f"No: job {job_text(row)} {verb}{ended}{f': {cause}' if cause else ''} [{status.number}]."
        if job in by_job and by_job[job]["note"]:
            yield f"Incident {by_job[job]['incident']} is {by_job[job]['state']}: {one_line(by_job[job]['note'], 160)}."


def may_restart_told(turn: QuestionTurn, job: str) -> Iterator[str]:
    """Tell whether a restart of a failed job would help; nothing is proposed by the question."""
    if (waits := waiting_restart(turn, job)) is not None:
        yield (
            f"It waits already: approval {waits['approval']} is for a restart of job {job} "
            f"[{turn.sources[-1].number}]: {one_line(waits['change'], 160)}. A second one is not needed."
        )
        return
    planned = turn.look("plan_recovery", job=job)
    if planned.error:
        return
    plan, mark = planned.value, f"[{planned.number}]"
    if plan["action"] == "fix_and_resubmit":
        yield (
            f"It would fail again: {title(plan['reason'])} {mark}, until "
            f"{turn.inventory.owners.get(job, 'its owner')} changes something. Nothing is proposed."
        )
        yield f"What to change: {one_line(plan['advice'], 300)}"
        return
    choice = turn.look("choose_checkpoint", job=job)
    step = (choice.value or {}).get("step")
    start = f", from step {step} [{choice.number}]" if step is not None else ""
    blamed = f", away from {', '.join(plan['nodes_to_blame'])}" if plan["nodes_to_blame"] else ""
    yield (
        f"Yes: {title(plan['reason'])} is cured by a restart {mark}{start}{blamed}. Nothing is proposed by "
        f"the question; to order it: restart {job}"
    )


def restart_told(turn: QuestionTurn, jobs: Sequence[str], users: Sequence[str] = ()) -> Iterator[str]:
    """Tell whether restarts helped: by the incidents of the jobs, which say what came of them."""
    listed = turn.look("list_jobs", limit=ALL_JOBS)
    if listed.error:
        yield not_answered(turn, listed)
        return
    rows = [row for row in listed.value if row["job"] in jobs or row["user"] in users]
    by_job, mark = incidents_by_job(turn)
    ended = [row for row in rows if row["state"] not in ("running", "pending", "completed")]
    lines = [_restart_text(turn, row, by_job.get(row["job"]), mark) for row in ended or rows]
    restarted = [line for line in lines if not line.startswith("No restart")]
    if users and not restarted:
        yield f"No restart of a job of {', '.join(users)} is recorded {mark}[{listed.number}]."
        yield from (f"  {line}" for line in lines)
        return
    yield from restarted or lines


def _restart_text(turn: QuestionTurn, row: Row, incident: Row | None, mark: str) -> str:
    job = row["job"]
    if incident is not None:
        turn.incidents.append(incident["incident"])
    if incident is not None and incident["state"] == "recovered":
        return f"Yes: {one_line(incident['note'], 160)}; incident {incident['incident']} about job {job} is recovered {mark}."
    if (waits := waiting_restart(turn, job)) is not None:
        return (
            f"Not yet: the restart of job {job} waits for a yes, approval {waits['approval']}, and nothing was "
            f"restarted {mark}: {one_line(waits['change'], 140)}."
        )
    note = f": {one_line(incident['note'], 140)}" if incident is not None and incident["note"] else ""
    state = f"incident {incident['incident']} is {incident['state']}{note}" if incident is not None else f"it is {row['state']}"
    return f"No restart of job {job} is recorded {mark}; {state}."


def fault_told(turn: QuestionTurn, job: str, form: str) -> Iterator[str]:
    """Tell whose fault a failure was; where no incident tells, what is recorded."""
    by_job, mark = incidents_by_job(turn)
    status, incident = turn.look("show_job", job=job), by_job.get(job)
    if status.error:
        yield not_answered(turn, status)
        return
    row = status.value
    if incident is None or not incident["reason"]:
        ran = ""
        if row["started"] and row["ended"]:
            seconds = (datetime.fromisoformat(row["ended"]) - datetime.fromisoformat(row["started"])).total_seconds()
            ran = f" after {span_text(seconds)}"
        head = (
            "Right, nothing recorded shows a fault of a node"
            if form == "not"
            else "Nobody's that is recorded"
            if form == "whose"
            else "Nothing recorded says so"
        )
        yield (
            f"{head}: job {job} is {row['state']}{ran}, by whom is not recorded, and no incident is about it "
            f"[{status.number}]{mark}."
        )
        return
    turn.incidents.append(incident["incident"])
    is_ours = category(incident["reason"]) == "infrastructure"
    side = side_of(incident["reason"], row["user"])
    yes = {"not": "No, it was" if is_ours else "Right", "is": "Yes" if is_ours else "No"}.get(form, "")
    failed_of = f"job {job} failed of {cause_text(incident)} (incident {incident['incident']}) {mark}"
    yield f"{yes}. {side}: {failed_of}." if yes else f"{side}: {failed_of}."
    explained = turn.look("explain_job", job=job)
    lines = own_lines(turn, explained.value or {}, job)
    yield from (f"  {line['file']}:{line['line']}  {one_line(line['text'], 160)}" for line in lines[:2])
    place = re.search(r"\bat (\S+:\d+)", str((explained.value or {}).get("advice") or ""))
    if place is not None:
        yield f"The place in the code: {place[1]} [{explained.number}]"


def owner_told(turn: QuestionTurn, job: str) -> Iterator[str]:
    """Tell whose job it is."""
    status = turn.look("show_job", job=job)
    if not status.error:
        yield f"{status.value['user']}: job {job} ({one_line(status.value['name'], 60)}) is theirs [{status.number}]."


def job_since_told(turn: QuestionTurn, job: str) -> Iterator[str]:
    """Tell since when a job is in the state that it is in."""
    status = turn.look("show_job", job=job)
    if status.error:
        yield not_answered(turn, status)
        return
    row = status.value
    key = {"pending": "submitted", "running": "started"}.get(row["state"], "ended")
    yield f"Job {job_text(row)} is {row['state']} since {time_text(row[key], turn.now)} [{status.number}]."
