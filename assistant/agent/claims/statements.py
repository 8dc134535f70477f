"""What somebody says, takes for granted or wants confirmed: checked against the record before anything is done about it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from assistant.agent.answer import one_line
from assistant.agent.aspects import FAMILIES
from assistant.agent.claims.checks import (
    ClaimCheck,
    approval_check,
    changes_about,
    check_job,
    check_node,
    incident_of,
    job_fact,
    node_fact,
    reason_text,
)
from assistant.agent.claims.lexicon import (
    APPROVES,
    ASKS_WHO,
    CARRIED_OUT,
    JOB_STATES,
    NEGATES,
    NODE_STATES,
    SAYS,
    SHOULD,
    SINCE,
    TRUE,
    WHEN,
    WHY,
    WISHES,
    change_in,
    state_in,
)
from assistant.agent.claims.mentions import clauses_of
from assistant.agent.claims.question import RecordQuestion
from assistant.agent.tell_aspects import category
from assistant.agent.tell_counsel import aspect_told
from assistant.nodeset import fold

NOT_RECORDED = "What a person said elsewhere is not recorded here."
_SLOT = re.compile(r"\{[a-z]\d+\}")
_JOB, _NODE, _APPROVAL = re.compile(r"\{j\d+\}"), re.compile(r"\{n\d+\}"), re.compile(r"\{a\d+\}")
_BECAUSE = re.compile(
    r"because of|due to|caused by|on account of|'s fault|is to blame|to blame for|culprit|the cause|wegen|schuld"
    r"|lag (?:es )?an|liegt (?:es )?an|durch"
    r"|因为|由于|导致|怪|罪魁"
)
_PARTICIPLE = re.compile(
    r"(?:is|are|was|were|has been|have been|had been|got|gets|being|already|ist|war|wurde|sei|wird) (?:\w+ ){0,2}(?:drained"
    r"|cordoned|undrained|uncordoned"
    r"|cancel+ed|restarted|resubmitted|resumed|killed|stopped|out|back|taken|gedraint|raus\w*|abgebrochen|neu)|已经?|被"
)
_FUTURE = re.compile(
    r"\b(?:will|going to|about to|wird|gleich|soon|later|if|unless|whether|wenn|falls|ob)\b|如果|要是|会(?!议)|万一"
)
_YOU = re.compile(r"\b(?:you|u|nightshift|du|ihr)\b|你")


class StatedClaim(NamedTuple):
    """What a sentence says of one thing."""

    kind: str
    """`job`, `node`, `approval`, `blame` or `change`."""
    name: str
    state: str
    """Of a change which one; of blame the node or the family of reasons."""
    negated: bool = False


def claim_in(question: RecordQuestion, text: str) -> StatedClaim | None:
    """Return what a part of a masked sentence says of the thing that it names; None where it names none or says nothing of it."""
    names = question.mention
    jobs, nodes, approvals = (names.of_kind(kind, text) for kind in "jna")
    if len(approvals) == 1 and (CARRIED_OUT.search(text) or APPROVES.search(text)):
        return StatedClaim("approval", approvals[0], "", bool(NEGATES.search(text)))
    if len(jobs) == 1 and _BECAUSE.search(text):
        if len(nodes) == 1:
            return StatedClaim("blame", jobs[0], nodes[0], bool(NEGATES.search(text)))
        family = next((name for name in FAMILIES if family_named(name, text)), "")
        if family:
            return StatedClaim("blame", jobs[0], family, bool(NEGATES.search(text)))
    if len(jobs) == 1:
        state, _ = state_in(text, JOB_STATES)
        if state and (not nodes or state == "running"):
            return StatedClaim("job", jobs[0], state, bool(NEGATES.search(_before_question(text))))
    if len(nodes) == 1 and not jobs:
        state, _ = state_in(text, NODE_STATES)
        if state:
            return StatedClaim("node", nodes[0], state, bool(NEGATES.search(_before_question(text))))
    return None


def _before_question(text: str) -> str:
    return re.sub(r"不是吗|是不是|对不对|有没有|没有吗|is ?n'?t it|isn't that", " ", text)


def check(question: RecordQuestion, claim: StatedClaim) -> ClaimCheck:
    """Check a claim against the record."""
    turn = question.turn
    if claim.kind == "approval":
        return approval_check(turn, int(claim.name))
    if claim.kind == "node":
        return check_node(turn, claim.name, claim.state)
    if claim.kind == "blame":
        return _check_blame(question, claim)
    return check_job(turn, claim.name, claim.state)


def _check_blame(question: RecordQuestion, claim: StatedClaim) -> ClaimCheck:
    turn = question.turn
    incident, _ = incident_of(turn, claim.name)
    _, fact = job_fact(turn, claim.name)
    if incident is None or not incident["reason"]:
        return ClaimCheck(None, fact)
    if claim.state in turn.inventory.nodes:
        return ClaimCheck(claim.state in incident["nodes_to_blame"], fact)
    return ClaimCheck(of_family(incident["reason"], claim.state), fact)


def family_named(family: str, text: str) -> bool:
    """Tell whether a text speaks of a family of failures."""
    words = FAMILIES[family][0]
    return re.search(rf"\b(?:{words})\b", text) is not None


def of_family(reason: str, family: str) -> bool:
    """Tell whether a reason is one of a family of failures."""
    if family in ("hardware", "code"):
        return (category(reason) == "infrastructure") is (family == "hardware")
    return reason in FAMILIES[family][1]


def wish_in(question: RecordQuestion, text: str) -> tuple[str, str, str]:
    """Return the change that a part of a sentence wants, with the kind and the name of its thing; empty where it wants none."""
    change, names = change_in(text), question.mention
    if change in ("cordon", "uncordon") and len(nodes := names.of_kind("n", text)) == 1:
        return change, "node", nodes[0]
    if change in ("cancel", "recover") and len(jobs := names.of_kind("j", text)) == 1:
        return change, "job", jobs[0]
    return "", "", ""


def weighed(question: RecordQuestion, change: str, kind: str, name: str) -> list[str]:
    """Return whether a change should be made, by what is recorded."""
    turn = question.turn
    request = replace(
        turn.request,
        aspect=f"should:{change}",
        job=name if kind == "job" else "",
        nodes=(name,) if kind == "node" else (),
        names=replace(turn.request.names, jobs=(name,) if kind == "job" else (), nodes=(name,) if kind == "node" else ()),
    )
    before, turn.request = turn.request, request
    text = aspect_told(turn)
    turn.request = before
    if not text:
        return []
    if change == "cordon" and text.startswith("No, nothing recorded"):
        text = f"No, nothing recorded speaks for it: {node_fact(turn, name)[1]}."
    lead = {"Records speak": "Yes, by what is recorded. ", "It is proposed": "It waits already. "}
    text = next((f"{words}{text}" for begin, words in lead.items() if text.startswith(begin)), text)
    return [
        re.sub(
            r"^(?:Not known from the records:|No need:)",
            lambda match: "No, not without a word of who did it:" if match.group().startswith("Not") else "No need, no:",
            text,
        )
    ]


def spoken_claim(question: RecordQuestion) -> list[str]:
    """Answer `dave says node09 is broken, is he right?` and `alice wants node06 drained, should I?`."""
    match = SAYS.search(question.text)
    if match is not None and re.search(
        r"(?:\b(?:i|you|we|u)(?: (?:not|also|just|really))?|\b(?:ich|du|wir)|我们?|你)\s*$", question.text[: match.start()]
    ):
        return counselled(question)
    wants_truth, wants_counsel = TRUE.search(question.text), SHOULD.search(question.text)
    if match is None or WHEN.match(question.text) or re.match(r"\W*(?:who|whom|wer|why|warum|how|wie)\b", question.text):
        return []
    content = question.text[match.end() :] if _SLOT.search(question.text[match.end() :]) else question.text
    change, kind, name = wish_in(question, content)
    claim = claim_in(question, _content_of(content))
    is_wish = (
        bool(change)
        and not _PARTICIPLE.search(content)
        and (claim is None or bool(WISHES.search(question.text)) or _is_base(content))
    )
    if is_wish and (wants_truth or wants_counsel or question.asks):
        if re.search(r"did (?:any|some)|has (?:any|some)|hat (?:das )?jemand|有人", question.text) and not wants_counsel:
            return [*made_or_not(question, change, kind, name), NOT_RECORDED]
        lines = weighed(question, change, kind, name)
        return [*lines, NOT_RECORDED] if lines else []
    if _YOU.search(content) and change and not is_wish:
        return [*made_or_not(question, change, kind, name), NOT_RECORDED]
    if claim is None or is_wish or (_FUTURE.search(content) and not wants_truth):
        return []
    return [check(question, claim).worded(claim.negated), NOT_RECORDED]


_PASSIVE = re.compile(
    r"\b(?:should(?:n't)?|must|ought to|needs? to|soll(?:te)?)\b(?: \S+){0,3}? (?:not )?(?:be |get )?(?:drained|cordoned"
    r"|undrained|uncordoned|cancel+ed|killed|restarted|resubmitted"
    r"|put back|taken out|raus|gedraint|abgebrochen|neu gestartet)|要不要|该不该|是不是该|应该"
)


def counselled(question: RecordQuestion) -> list[str]:
    """Answer `should node08 be drained?` and `don't you think 4830 should be cancelled?`."""
    change, kind, name = wish_in(question, question.text)
    if not change or not question.asks or not _PASSIVE.search(question.text) or WHY.search(question.text):
        return []
    return weighed(question, change, kind, name)


def _content_of(text: str) -> str:
    """Return the clauses of what is said that name a thing, without the question behind them."""
    parts = [part for part in clauses_of(text) if _SLOT.search(part)]
    return " ".join(parts) or text


def _is_base(text: str) -> bool:
    return (
        re.search(r"\b(?:drain|cordon|cancel|kill|stop|restart|resubmit|rerun|undrain|uncordon|resume|put|take)\b", text)
        is not None
    )


_FORMS = {
    "cordon": (re.compile(r"State=DRAIN|\bcordon"), "drain"),
    "uncordon": (re.compile(r"State=RESUME|uncordon"), "return to scheduling"),
    "cancel": (re.compile(r"^scancel|^cancel"), "cancellation"),
    "recover": (re.compile(r"^(?:submit|sbatch|requeue|scontrol requeue)"), "restart"),
}


def made_or_not(question: RecordQuestion, change: str, kind: str, name: str) -> list[str]:
    """Return whether a change was made, by whomever, as far as it is recorded or shows in the state of the thing."""
    turn = question.turn
    commands, noun = _FORMS[change]
    rows = [row for row in changes_about(turn, name) if commands.search(row["change"])]
    mark = f"[{turn.look('recent_changes', hours=168.0).number}]"
    state, fact = job_fact(turn, name) if kind == "job" else node_fact(turn, name)
    finished = next((row for row in rows if row["status"] == "done"), None)
    if finished is not None:
        return [f"Yes: call {finished['call']} by {finished['by']}: {one_line(finished['change'], 120)} {mark}; {fact}."]
    shows = (change == "cancel" and state == "cancelled") or (change == "cordon" and state in ("drained", "draining"))
    if shows:
        unknown_hand = ", and who did it is not on record" if kind == "job" else ""
        return [f"No: no {noun} of {name} by Nightshift is recorded {mark}; {fact}{unknown_hand}."]
    pending = next((row for row in rows if row["status"] == "pending"), None)
    waits = f"; it is only proposed and waits: {one_line(pending['change'], 120)}" if pending is not None else ""
    return [f"No: no {noun} of {name} is recorded {mark}{waits}; {fact}."]


def granted(question: RecordQuestion) -> list[str]:
    """Answer `since node03 is down, ...` where that does not hold."""
    match = SINCE.match(question.text)
    if match is None:
        return []
    first = next((part for part in question.clauses if _SLOT.search(part)), "")
    claim = claim_in(question, first)
    if claim is None and (_YOU.search(first) or re.search(r"\bwe\b|\bwir\b|我们", first)):
        change, kind, name = wish_in(question, first)
        if change:
            lines = made_or_not(question, change, kind, name)
            return lines if lines[0].startswith("No") else []
    if claim is None or (first.startswith("after") and not re.search(r"\b(?:was|were|has|had|got)\b", first)):
        return []
    if claim.kind == "job" and claim.state == "failed" and question.turn.inventory.states.get(claim.name) == "failed":
        return []
    result = check(question, claim)
    if result.holds is not claim.negated:
        return []
    orders = bool(change_in(question.text.replace(first, " "))) or re.search(r"\bmove\b|移|verschieb", question.text) is not None
    return [result.worded(claim.negated), *(["So nothing is proposed on that ground."] if orders else [])]


def why_so(question: RecordQuestion) -> list[str]:
    """Answer `why did 4830 crash` and `when did you cancel 4830` where that did not happen."""
    if (WHY.search(question.text) is None and not re.match(r"\W*(?:when|wann|how far|wie weit)\b", question.text)) or len(
        question.mention.names
    ) != 1:
        return []
    text = question.text
    if NEGATES.search(text) or re.search(r"哪|\bwhich\b|\bwelche", text):
        return []
    if _YOU.search(text):
        change, kind, name = wish_in(question, text)
        if change:
            lines = made_or_not(question, change, kind, name)
            return lines if lines[0].startswith("No") else []
        return []
    claim = claim_in(question, text)
    if claim is None or claim.state in ("pending", "faulty", "up") or (WHY.search(text) is None and claim.kind != "approval"):
        return []
    result = check(question, claim)
    if result.holds is not False or (claim.kind == "node" and question.turn.inventory.nodes and _is_out(question, claim)):
        return []
    return [result.worded()]


def _is_out(question: RecordQuestion, claim: StatedClaim) -> bool:
    """Tell whether a node is out of service in another way than it is said to be: `why is node07 down` is no false question."""
    return claim.state in ("down", "drained") and node_fact(question.turn, claim.name)[0] in ("down", "drained", "draining")


_TAG = re.compile(
    r"[,\s](?:(?:is|are|was|were|has|have|did|does|do)n'?t|ain't|is|are|was|has|did|does) (?:it|he|she|they"
    r"|that)(?: not)?\W*$|\b(?:nicht wahr|oder(?: nicht)?|gell|ne)\W*$|不是吗|不是么"
)
"""A question behind a statement: `, isn't it?`."""
_CONFIRM = re.compile(r"\b(?:right|stimmt|true|correct|really|wahr|richtig|wirklich)\b|对吗|对吧|对不对|真的|是吗|是不是")
_YES_NO = re.compile(r"^\W*(?:(?:and|so|und|also)\s+)?(?:is|was|did|has|were|are|does|war|ist|hat|lag|liegt)\b|吗|么\W*$|是不是")
_DID_YOU = re.compile(
    r"\b(?:you|nightshift|du) (?:(?:have|had|already|just|also) )*(?:drained|cordoned|undrained|uncordoned|cancel+ed|killed|stopped"
    r"|restarted|resubmitted|took|put)\b|"
    r"\b(?:did|have|has|had)(?: not|n't)? (?:you|u|nightshift)\b|\b(?:was|is) it (?:you|nightshift)\b|\b(?:hat"
    r"|hatte) nightshift\b|\b(?:hast|habt|hattest) (?:du|ihr)\b"
    r"|\bwarst du\b|是(?:你|nightshift)|你(?:是不是|有没有|已经|刚才)?.*(?:了|过)[吗么没]|\bnightshift.*(?:了|过)[吗么没]"
)


def confirmed(question: RecordQuestion) -> list[str]:
    """Answer `node07 is fine now, right?`, `did nightshift drain node12?` and `did 4821 die because of node08?`."""
    text = question.text
    if not question.asks or WHY.search(text) or WHEN.match(text) or ASKS_WHO.search(text):
        return []
    change, kind, name = wish_in(question, text)
    if change and _DID_YOU.search(text):
        return made_or_not(question, change, kind, name)
    tagged = _CONFIRM.search(text) is not None or _TAG.search(text) is not None
    claim = claim_in(question, _content_of(_TAG.sub(" ", text)))
    if claim is None or re.match(r"\W*(?:was|were|did) (?:that|it|this)\b", text):
        return []
    if not tagged and not (claim.kind == "blame" and _YES_NO.search(text)):
        return []
    return [check(question, claim).worded(claim.negated)]


_NATIVE_FAMILIES = (
    (re.compile(r"netz(?:werk)?|网络"), "network"),
    (re.compile(r"speicher|内存|显存"), "out of memory"),
    (re.compile(r"节点|knoten|机器"), "hardware"),
)


def to_blame(question: RecordQuestion, reason: str, blamed: list[str]) -> str:
    """Return the yes or no for `is node09 broken`, `is it the network` beside a line of a log; empty where neither is asked."""
    if question.node and (state_in(question.text, NODE_STATES)[0] in ("faulty", "down") or _BECAUSE.search(question.text)):
        on = f" but {fold(blamed)}" if blamed and question.node not in blamed else ""
        return f"Yes: {question.node} is to blame" if question.node in blamed else f"No: not {question.node}{on}"
    families = ("network", "storage", "out of memory", "hang", "hardware", "code")
    text = question.text
    for words, name in _NATIVE_FAMILIES:
        text = words.sub(f" {name} ", text)
    tail = re.sub(r"[\"'`“„«].*[\"'`”“»]", " ", text)
    family = next((name for name in families if family_named(name, tail)), "")
    if not family or not question.asks:
        return ""
    on = f" on {fold(blamed)}" if blamed else ""
    return f"{'Yes' if of_family(reason, family) else 'No'}: the record says {reason_text(reason)}{on}"
