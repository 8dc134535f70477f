"""Who did something, when, how often and by whose leave: the entry in the record is the answer, and not how the thing stands."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from assistant.agent.answer import count_text, one_line, time_text
from assistant.agent.claims.checks import (
    approval_check,
    blaming,
    changes_about,
    incident_of,
    job_fact,
    node_fact,
    reason_text,
    restarted_by_call,
    waiting_rows,
)
from assistant.agent.claims.lexicon import (
    APPROVES,
    ASKS_WHO,
    CARRIED_OUT,
    HOW_OFTEN,
    JOB_STATES,
    LATER_IN,
    NODE_STATES,
    SHOULD,
    WHEN,
    WHY,
    change_in,
    state_in,
)
from assistant.agent.claims.question import RecordQuestion
from assistant.agent.claims.statements import _FORMS as FORMS
from assistant.agent.tell_counsel import hand_of
from assistant.agent.tell_orders import OUT

_HAS = re.compile(
    r"(?<!\w)(?:has|have|had|did|was|were|is|hat|haben|hatte|wurde|ist|war|does)(?!\w)|已经|了吗|了没|过了?吗|没有|吗|是不是"
)
_THE_APPROVAL = re.compile(
    r"\b(?:the|that|this|my|our|die|der|diese|das) (?:approval|freigabe|genehmigung|change|änderung)\b|(?:那个|这个|该)(?:审批"
    r"|批准)|^审批(?!了)"
)
_UNTIL = re.compile(r"until=(\S+)")
_ANSWERS = re.compile(
    r"^\W*(?:(?:please|pls|ok|yes|no|can you|could you|bitte)\b[\s,]*)*(?:approve|allow|grant|deny|refuse|reject|confirm"
    r"|genehmig\w*|批准|拒绝)"
)
_ENDS = re.compile(r"\b(?:end|ends|expire|expires|over|until|bis wann|endet|läuft .* ab)\b|到期|结束|到什么时候")
_TOOK = re.compile(r"\b(?:out|raus|down|drained|gone|off|unavailable|weg)\b|下线|排空|坏|挂|停")
_NO_TIME = "no time is noted"


def approval_asked(question: RecordQuestion) -> list[str]:
    """Answer whether an approval was given or carried out, and by whom."""
    text, numbers = question.text, question.approvals
    if not numbers and _THE_APPROVAL.search(text) and len(question.turn.inventory.approvals) == 1 and not question.mention.names:
        numbers = question.turn.inventory.approvals
    if (
        re.search(r"\b(?:wait\w*|needs?|anything|something|any|warte\w*|braucht?|etwas)\b|等|需要|什么|哪", text)
        and not question.approvals
    ):
        return []
    if not numbers or not question.asks or WHY.search(text) or _ANSWERS.match(text):
        return []
    if re.search(
        r"\b(?:what (?:is|does|would|will|happens)|how|should|shall|can|could|if|soll|kann|wenn|falls|wie)\b"
        r"|\bwas (?:ist|macht|passiert|geschieht)\b|什么意思|如果|要是|假如"
        r"|该不该|要不要",
        text,
    ) and not re.search(r"\b(?:now that|after|has|have|was (?:it|that|this|the|\{))\b", text):
        return []
    if not (CARRIED_OUT.search(text) or APPROVES.search(text) or ASKS_WHO.search(text)):
        return []
    if not (_HAS.search(text) or ASKS_WHO.search(text) or re.search(r"[?？]\s*$", question.sentence)):
        return []
    return [approval_check(question.turn, number).worded() for number in numbers[:2]]


def leave_given(question: RecordQuestion) -> list[str]:
    """Answer `who approved the cordon of node07` and `has alice signed off the restart of 4821`."""
    text = question.text
    if question.approvals or not APPROVES.search(text) or _ANSWERS.match(text) or SHOULD.search(text):
        return []
    if re.search(r"\b(?:can|may|must|could|has to|needs? to|allowed to|darf|kann|muss)\b|谁能|谁可以|谁来", text):
        return []
    name = question.spoken_job() or question.spoken_node()
    if not name or not (ASKS_WHO.search(text) or (_HAS.search(text) and question.asks)):
        return []
    turn = question.turn
    waiting = waiting_rows(turn, name)
    mark = f"[{turn.look('list_approvals').number}]"
    asks_who = ASKS_WHO.search(text) is not None
    change = change_in(APPROVES.sub(" ", text))
    noun = FORMS[change][1] if change in FORMS else "change"
    if waiting:
        row = waiting[0]
        lead = "Nobody yet" if asks_who else "No"
        return [
            f"{lead}: approval {row['approval']} still waits for a yes, nobody has given it: {one_line(row['change'], 160)} {mark}."
        ]
    rows = [
        row
        for row in changes_about(turn, name)
        if row["status"] == "done" and (change not in FORMS or FORMS[change][0].search(row["change"]))
    ]
    if rows:
        return [
            f"{'No person' if asks_who else 'No person is on record'}: {_maker_text(question, rows[0])}, and no person's yes to "
            f"it stands in the record."
        ]
    _, fact = job_fact(turn, name) if name in turn.inventory.jobs else node_fact(turn, name)
    return [f"{'Nobody' if asks_who else 'No'}, as far as recorded: no {noun} of {name} was approved or waits {mark}; {fact}."]


def _maker_text(question: RecordQuestion, row: Any) -> str:
    """Return who made a change, when and for which incident."""
    source = question.turn.look("recent_changes", hours=168.0)
    about = f", incident {row['incident']}" if row["incident"] else ""
    by = one_line(row["by"], 60)
    hand = f"Nightshift ({by})" if by.startswith(("playbook", "agent", "watch")) else by
    at = time_text(row["at"], question.turn.now)
    return f"{hand} made it {at}, call {row['call']}{about}: {one_line(row['change'], 120)} [{source.number}]"


def who_did(question: RecordQuestion) -> list[str]:
    """Answer who drained a node, who cancelled or restarted a job, who repaired or broke something."""
    text = question.text
    clause = next((part for part in question.clauses if ASKS_WHO.search(part)), "")
    if not clause or APPROVES.search(clause):
        return []
    if re.search(r"\b(?:who(?:se)?|wer) (?:is|are|owns|runs|ran|submitted|started|waits|ist|besitzt|else)\b|谁的", clause):
        return []
    change = change_in(clause)
    node, job = question.spoken_node(), question.spoken_job()
    if not node and not job and len(question.mention.nodes) == 1:
        node = question.mention.nodes[0]
    if (
        node
        and not question.job
        and (change in ("cordon", "uncordon", "repair") or _TOOK.search(clause) or (not change and WHEN.search(text)))
    ):
        return _hand_on_node(question, node, change or "cordon")
    if job and change in ("cancel", "recover"):
        return _hand_on_job(question, job, change)
    if job and (
        state_in(clause, JOB_STATES)[0] == "failed"
        or re.search(r"\b(?:broke|wrote|changed|edited|verbockt|kaputt)\b|改|写|弄坏", clause)
    ):
        incident, _ = incident_of(question.turn, job)
        reason = f", {one_line(incident['summary'], 160)}" if incident is not None else ""
        owner = question.turn.inventory.owners.get(job, "")
        return [
            f"Not on record who: what people do to files is not recorded here; job {job} is {owner}'s{reason.rstrip('.')}; "
            f"{job_fact(question.turn, job)[1]}."
        ]
    return []


def _hand_on_node(question: RecordQuestion, node: str, change: str) -> list[str]:
    turn = question.turn
    state, fact = node_fact(turn, node)
    mark = f"[{turn.look('node_states', nodes=[node]).number}]"
    if change == "repair":
        return [f"Nobody, as far as recorded: no repair of {node} is on record; {fact}."]
    rows = [row for row in changes_about(turn, node) if row["status"] == "done" and FORMS[change][0].search(row["change"])]
    if rows:
        hand, _, time_of_change = _maker_text(question, rows[0]).partition(" made it ")
        turn.request = replace(turn.request, aspect="taken_by")
        return [f"{hand}: {node} is {state}, {time_of_change}. No person's yes to it is on record."]
    if change == "uncordon" or state not in OUT:
        return [f"Nobody, as far as recorded: {fact}."]
    reason = str((turn.look("node_states", nodes=[node]).value or [{}])[0].get("reason", ""))
    _, hand = hand_of(reason)
    time_words = _since_reason(reason)
    turn.request = replace(turn.request, aspect="taken_by")
    return [f"{hand}: {node} is {state}, {one_line(reason or 'no reason is noted', 120)} {mark}; {time_words}."]


def _since_reason(reason: str) -> str:
    match = re.search(r"@(\d{4}-\d\d-\d\dT[\d:]+)", reason)
    return f"since {match[1].replace('T', ' ')}" if match else f"{_NO_TIME}, so since when is not on record"


def _hand_on_job(question: RecordQuestion, job: str, change: str) -> list[str]:
    turn = question.turn
    state, fact = job_fact(turn, job)
    mark = f"[{turn.look('recent_changes', hours=168.0).number}]"
    rows = [row for row in changes_about(turn, job) if FORMS[change][0].search(row["change"])]
    finished = next((row for row in rows if row["status"] == "done"), None)
    if finished is not None:
        return [f"{_maker_text(question, finished)}."]
    if waiting := waiting_rows(turn, job):
        return [
            f"Nobody: the {FORMS[change][1]} only waits, approval {waiting[0]['approval']}: "
            f"{one_line(waiting[0]['change'], 120)} {mark}; {fact}."
        ]
    if change == "cancel" and state == "cancelled":
        return [f"Not on record who: {fact}, and no change of Nightshift's cancelled it {mark}."]
    return [f"Nobody, as far as recorded: no {FORMS[change][1]} of job {job} is among the changes {mark}; {fact}."]


def how_often(question: RecordQuestion) -> list[str]:
    """Answer how often a node failed or was drained, how often a job was restarted."""
    clause = next((part for part in question.clauses if HOW_OFTEN.search(part)), "")
    if not clause:
        return []
    turn, text = question.turn, clause
    node, job = question.spoken_node(), question.spoken_job()
    change = change_in(text)
    if node and not job:
        if change == "cordon" and state_in(text, NODE_STATES)[0] != "down":
            rows = [
                row for row in changes_about(turn, node) if row["status"] == "done" and FORMS["cordon"][0].search(row["change"])
            ]
            mark = f"[{turn.look('recent_changes', hours=168.0).number}]"
            return [f"{count_text(len(rows), 'time')} in the last 7 days by Nightshift {mark}; {node_fact(turn, node)[1]}."]
        blamed, mark = blaming(turn, node)
        rows_text = "; ".join(
            f"incident {row['incident']}, job {row['job']}, {reason_text(row['reason'])}, {time_text(row['opened'], turn.now)}"
            for row in blamed[:6]
        )
        return [f"{count_text(len(blamed), 'time')} on record{f': {rows_text}' if blamed else ''} {mark}."]
    if job and (change == "recover" or state_in(text, JOB_STATES)[0] in ("restarted", "recovered")):
        rows = [row for row in changes_about(turn, job) if row["status"] == "done" and FORMS["recover"][0].search(row["change"])]
        incident, _ = incident_of(turn, job)
        count = max(len(rows), int(incident is not None and incident["state"] == "recovered" and not restarted_by_call(turn, job)))
        mark = f"[{turn.look('recent_changes', hours=168.0).number}]"
        return [f"{count_text(count, 'time')} on record {mark}; {job_fact(turn, job)[1]}."]
    return []


def when_taken(question: RecordQuestion) -> list[str]:
    """Answer since when a node is out, when that ends, and when it can be used again."""
    text, node = question.text, question.spoken_node()
    if not node or question.mention.jobs or not (WHEN.search(text) or re.search(r"\b(?:until|bis) w", text)):
        return []
    turn = question.turn
    state, fact = node_fact(turn, node)
    reason = str((turn.look("node_states", nodes=[node]).value or [{}])[0].get("reason", ""))
    mark = f"[{turn.look('node_states', nodes=[node]).number}]"
    kind, hand = hand_of(reason)
    until = _UNTIL.search(reason)
    lines: list[str] = []
    clause = next((part for part in question.clauses if WHEN.search(part)), text)
    asks_end = bool(
        LATER_IN.search(text)
        and (_ENDS.search(text) or re.search(r"usable|available|back|wieder|nutzbar|verfügbar|能用|可用|恢复|回来", clause))
    )
    asks_start = bool(
        _TOOK.search(text)
        and re.search(r"\bsince\b|\bseit\b|\b(?:was|were|did|got|get|wurde|hat|is)\b|什么时候.*(?:的|了)", clause)
    ) or bool(change_in(clause) == "cordon")
    asks_start = asks_start and not re.search(r"\buntil when\b|\bhow long will\b|\bbis wann\b|到什么时候", text)
    if state not in OUT:
        return [f"It is in service: {fact}."] if asks_end or (asks_start and _TOOK.search(text)) else []
    if asks_start:
        rows = [row for row in changes_about(turn, node) if row["status"] == "done" and FORMS["cordon"][0].search(row["change"])]
        if rows:
            lines.append(
                f"{time_text(rows[0]['at'], turn.now)}: {_maker_text(question, rows[0]).partition(' made it ')[0]} drained "
                f"{node}, call {rows[0]['call']}, incident {rows[0]['incident']} "
                f"[{turn.look('recent_changes', hours=168.0).number}]."
            )
        else:
            since = _since_reason(reason)
            lines.append(f"{fact}, {since}.")
    if asks_end:
        if until:
            lines.append(f"It ends {time_text(until[1], turn.now)}: so long Nightshift holds {node} {mark}.")
        else:
            ask = f"; ask {hand}, whose drain it is" if kind == "person" else ""
            lines.append(f"No end is on record: {fact}{ask}.")
    return lines
