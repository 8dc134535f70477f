"""What would be if a change were made, and conditions about now: told from the record, and no order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

from assistant.agent.answer import AnswerKind, count_text, one_line
from assistant.agent.change_aspects import change_named
from assistant.agent.conditions import job_condition
from assistant.agent.dialogue import QuestionTurn
from assistant.agent.forms import stuck_text
from assistant.agent.outright.approvals import answered_told
from assistant.agent.outright.losses import steps_told
from assistant.agent.outright.sentence import OutrightReading, OutrightSentence, blame_text, blaming_incidents, node_row
from assistant.agent.tell_changes import OUT
from assistant.agent.waiting import RESTARTS, about_row
from assistant.nodeset import fold

_IF = re.compile(r"\b(?:what|and|so|but)? ?(?:if|in case|suppose|supposing|assuming|say)\b")
_ME = r"(?:i|we|you|one|somebody|someone|nobody|they)"
_HYPOTHESIS = re.compile(
    rf"\b(?:if|in case|suppose|supposing|assuming|when) (?:{_ME}|\{{nd\}}) (?:(?:just|now|simply|would|were to|did"
    rf"|should|do|will|really|still|then|already)\s+)*(?P<speech>[a-z{{].*)"
    rf"|\b(?:what (?:would|will|happens?|is)|consequences?|effect)\b.*?\b(?:if|of|when)\b (?P<of>.*)"
)
_ANYWAY = re.compile(
    r"\b(?:if|suppose|when)\b.*\b(?:anyway|anyways|all the same|nevertheless|nonetheless|regardless|still"
    r"|despite|in spite)\b|\bif (?:i|we) (?:just )?(?:do|did) (?:it|that|so)\b"
)
_LIFTS = re.compile(
    r"\b(?:lift\w*|free[sd]?|release[sd]?|open(?:ed)? up|re-?enable[sd]?|activate[sd]?|un-?drain\w*"
    r"|un-?cordon\w*|(?:put|bring|take|get) (?:it|that|\{nd\}) (?:back|in|up)|(?:put|bring) back"
    r"|(?:comes?|goes|gets|is|were) back|returns?)\b"
)
_LANDS = re.compile(
    r"\b(?:would|will|could|does|might|can)\b.*\b(?:run|land|go|start|be (?:put|placed|scheduled)|end up|restart)\b"
)
_NOW = re.compile(
    r"(?:,? ?(?:but )?(?:only |just )?)\b(?:if|unless|provided(?: that)?|as long as|in case|given"
    r" that)\b\s+(?P<what>(?:it|that|they|both|the [\w -]{2,30}|its [\w -]{2,20}|there|\{jb\}|\{nd\})"
    r"\s+(?:is|are|has|have|had|was|were|does|do|shows?|got)\b.*)$"
)
_LATER = re.compile(r"\b(?:again|later|tomorrow|next|fails|crashes|dies|happens|will|soon|then)\b")
_WEIGHS = re.compile(
    r"\b(?:bad|terrible|risk\w*|danger\w*|safe|hurt|harm\w*|problem\w*|wise|unwise|stupid|ok|okay|fine|mistake|downside|trouble)\b"
)
"""Words that weigh a change, which `change_aspects` reads."""
_VERB = re.compile(r"^\W*(?:(?:please|ok|okay|then|and|so|now|just|can you|could you|go ahead and)\b[\s,]*)*(?P<verb>[a-z-]+)\b")
_ERRORS = re.compile(
    r"\becc\b|\berrors?\b|\bfaults?\b|\bfaulty\b|\bbroken\b|\bgpu\b|\bcard\b|\bhealthy\b|\bok\b|\bfine\b"
    r"|\bclean\b|\bgood\b|\bxid\b|\bsick\b|\bbad\b"
)
_STUCK = re.compile(r"\bstuck\b|\bhang\w*\b|\bhung\b|\bdeadlock\w*\b|\bmov\w+\b|\bprogress\w*\b|\bidle\b")


def read_consequence(sentence: OutrightSentence) -> OutrightReading | None:
    """Read what would be if something were done."""
    if not sentence.says(_IF) and not sentence.says(r"\bwhat (?:would|will|happens?)\b|\bconsequences?\b|\beffect of\b"):
        return None
    if sentence.says(_WEIGHS):
        return None
    if sentence.says(_ANYWAY) and sentence.names_nothing and not sentence.names.approvals:
        return _anyway(sentence)
    match = _HYPOTHESIS.search(sentence.text)
    if match is None or not _asks(sentence):
        return None
    speech = match["speech"] or match["of"] or ""
    change = "uncordon" if _LIFTS.search(speech) else change_named(speech)
    return _of_change(sentence, change)


def _asks(sentence: OutrightSentence) -> bool:
    return sentence.words.rstrip().endswith("?") or sentence.says(r"\b(?:what|would|will|how|does|which|could|then)\b")


def _of_change(sentence: OutrightSentence, change: str, *, with_dialogue: bool = False) -> OutrightReading | None:
    node = sentence.node or (next(iter(sentence.dialogue.nodes), "") if with_dialogue and not sentence.names.jobs else "")
    job = sentence.names.jobs[0] if sentence.names.jobs else sentence.job
    if change == "uncordon" and node:
        lands = sentence.names.jobs[0] if sentence.names.jobs and sentence.says(_LANDS) else ""
        return OutrightReading(partial(returned_told, node=node, job=lands), "node_state", nodes=(node,))
    if change == "cordon" and node:
        return OutrightReading(partial(drained_told, node=node), "node_state", nodes=(node,))
    if change == "cancel" and job:
        return OutrightReading(partial(cancelled_told, job=job), "job_status", job=job)
    return None


def _anyway(sentence: OutrightSentence) -> OutrightReading | None:
    """Read `and if I do it anyway` by the change that was spoken of last."""
    last = sentence.dialogue.about_change or sentence.dialogue.question.lower()
    if sentence.of_approval and not re.search(r"\bdrain|\bcordon|\bcancel", last):
        return OutrightReading(partial(answered_told, numbers=(), says_yes=True), "approvals", topic="approval")
    change = (
        "uncordon"
        if _LIFTS.search(last) or re.search(r"\bput\b.*\bback\b|\bback in\b|\bin service\b", last)
        else change_named(last)
    )
    return _of_change(sentence, change, with_dialogue=True)


def returned_told(turn: QuestionTurn, node: str, job: str = "") -> Iterator[str]:
    """Tell what would be if a node were put back: whether a restart could come there, and what speaks against it."""
    row, node_mark = node_row(turn, node)
    if row is None:
        return
    rows, mark = blaming_incidents(turn, node)
    waiting = turn.look("list_approvals")
    restarts = [
        entry
        for entry in waiting.value or ()
        if entry["tool"] in RESTARTS and (not job or about_row(turn, entry).get("job") == job)
    ]
    away = next((entry for entry in restarts if re.search(rf"--exclude=\S*{re.escape(node)}(?!\d)", entry["change"])), None)
    danger = f"; {blame_text(rows)} {mark}, and no repair is recorded" if rows else f"; no incident blames it {mark}"
    others_text = f"Jobs could start on {node} again{danger}."
    if row["state"] not in OUT:
        yield f"Nothing would change: {node} is {row['state']}, in service already {node_mark}."
        return
    if job and away is not None:
        yield (
            f"No: the restart of job {job} that waits, approval {away['approval']}, leaves {node} out "
            f"[{waiting.number}]. Other jobs could start on {node}{danger}."
        )
    elif job:
        yield f"It could: no restart of job {job} that leaves {node} out waits [{waiting.number}]. {others_text}"
    else:
        yield others_text
        if away is not None:
            yield f"The restart that waits, approval {away['approval']}, would leave {node} out all the same [{waiting.number}]."
    reason = f": {one_line(row['reason'], 140)}" if row["reason"] else ""
    yield f"Now {node} is {row['state']}{reason} {node_mark}. Nothing is proposed by the question."


def drained_told(turn: QuestionTurn, node: str) -> Iterator[str]:
    """Tell what would be if a node were drained."""
    row, mark = node_row(turn, node)
    if row is None:
        return
    if row["state"] in OUT:
        yield f"Nothing new: {node} is {row['state']} already {mark}."
        return
    jobs = f"job {', '.join(row['jobs'])} on it would run to its end" if row["jobs"] else "no job runs on it"
    yield (
        f"{node} would take no new jobs; {jobs}; it stays out until it is put back or its time is over "
        f"{mark}. Nothing is proposed by the question."
    )


def cancelled_told(turn: QuestionTurn, job: str) -> Iterator[str]:
    """Tell what would be lost if a job were ended."""
    status = turn.look("show_job", job=job)
    if status.error:
        return
    row, mark = status.value, f"[{status.number}]"
    if row["state"] == "pending":
        yield f"Job {job} would leave the queue; it has not started, so no step is lost {mark}."
    elif row["state"] != "running":
        yield f"Nothing: job {job} is {row['state']} already {mark}."
    else:
        lost = next(iter(steps_told(turn, job)), "")
        nodes = row["nodes"]
        yield f"Job {job} would end; {lost} {fold(nodes)} ({count_text(len(nodes), 'node')}) would be free {mark}."
    yield "Nothing is proposed by the question."


def read_condition(sentence: OutrightSentence) -> OutrightReading | None:
    """Read an order that hangs on how something is now; what the scheduler's state of a job answers is left to the order itself."""
    match = _NOW.search(sentence.text)
    verb = _VERB.match(sentence.text)
    if match is None or verb is None or _LATER.search(match["what"]) or job_condition(sentence.words) is not None:
        return None
    order = sentence.text[: match.start()]
    change = "uncordon" if _LIFTS.search(order) else change_named(order)
    if change not in ("uncordon", "cordon", "cancel", "recover") or re.match(
        r"^\W*(?:what|why|who|how|is|are|was|did|does|would|if)\b", sentence.text
    ):
        return None
    phrase = " ".join(match.group().split()).strip(" ,?.!")
    if change in ("uncordon", "cordon"):
        nodes = sentence.names.nodes or ((sentence.node,) if sentence.node else ())
        if nodes:
            return OutrightReading(partial(node_condition_told, nodes=nodes, phrase=phrase), "node_state", nodes=nodes)
    elif sentence.job:
        return OutrightReading(partial(job_condition_told, job=sentence.job, phrase=phrase), "job_status", job=sentence.job)
    return None


def node_condition_told(turn: QuestionTurn, nodes: Sequence[str], phrase: str) -> Iterator[str]:
    """Tell what is known now of the condition of an order about nodes; where it is not shown, nothing is proposed."""
    turn.kind = AnswerKind.REFUSED
    condition = _plain(phrase, nodes)
    about_errors = bool(_ERRORS.search(phrase))
    parts = []
    for node in nodes[:4]:
        row, node_mark = node_row(turn, node)
        rows, mark = blaming_incidents(turn, node)
        why = f", {one_line(row['reason'], 120)}" if row is not None and row["reason"] else ""
        state = f"{node} is {row['state']}{why} {node_mark}" if row is not None else f"the state of {node} is not known {node_mark}"
        if about_errors and rows:
            parts.append(f"{blame_text(rows).replace(' it ', f' {node} ', 1)} {mark}, and no check or repair since is recorded")
        elif about_errors:
            parts.append(f"no incident blames {node} {mark}; {state}")
        else:
            parts.append(f"no record tells it; {state}")
    doubt = "is not shown by the record" if about_errors else "is not known"
    yield f'Not proposed: whether "{condition}" holds {doubt}: {"; ".join(parts)}.'
    yield f"First look: check {nodes[0]}. To have it all the same, order it without the condition; a person answers that."


def job_condition_told(turn: QuestionTurn, job: str, phrase: str) -> Iterator[str]:
    """Tell what is known now of the condition of an order about a job."""
    turn.kind = AnswerKind.REFUSED
    status = turn.look("show_job", job=job)
    if status.error:
        return
    condition = _plain(phrase, (), job)
    if _STUCK.search(phrase):
        yield f'Not proposed: "{condition}" is held against now. Job {job}: {stuck_text(turn, status.value)}'
    else:
        incidents = turn.look("list_incidents", job=job, limit=3)
        first = next(iter(incidents.value or ()), None)
        about = (
            f"; incident {first['incident']} about it is {first['state']} ({one_line(first['summary'], 120)}) [{incidents.number}]"
            if first is not None
            else f"; no incident is about it [{incidents.number}]"
        )
        yield (
            f'Not proposed: whether "{condition}" holds is not shown by the record: job {job} is '
            f"{status.value['state']} [{status.number}]{about}."
        )
    yield "To have it all the same, order it without the condition; a person answers that."


def _plain(phrase: str, nodes: Sequence[str], job: str = "") -> str:
    text = re.sub(r"^(?:but )?(?:only |just )?", "", phrase)
    return one_line(text.replace("{nd}", nodes[0] if nodes else "the node").replace("{jb}", job or "the job"), 80)
