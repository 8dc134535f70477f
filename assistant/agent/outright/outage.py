"""What is asked while the scheduler does not answer: since when, until when, why, by whose fault; what cannot be told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from assistant.agent.answer import Answer, AnswerKind, count_text, one_line, time_text
from assistant.agent.dialogue import QuestionTurn
from assistant.agent.outright.sentence import OutrightReading, OutrightSentence
from assistant.agent.words import NameInventory

_ABOUT = re.compile(r"\b(?:slurm\w*|scheduler|controller|squeue|sinfo|outage|blackout|queue|cluster)\b")
_SINCE = re.compile(
    r"\b(?:since when|how long|since what time|when did (?:it|that|this|slurm|the \w+) (?:start|begin|go|die|stop))\b"
)
_UNTIL = re.compile(r"\bwhen\b|\bhow long (?:will|until|till)\b|\buntil when\b|\bwhat time\b|\bhow soon\b")
_FAULT = re.compile(
    r"\bbecause of you\b|\b(?:your|you)\b.*\b(?:fault|doing|break|broke|broken|kill\w*|cause[d]?|crash\w*|blame|responsible"
    r"|down|did (?:it|that|this))\b|\bdid you\b|\bwas (?:it|that) you\b"
)
_WHY = re.compile(r"\bwhy\b|\bwhat (?:caused|happened to|is wrong with|is up with)\b|\bhow come\b|\bcause\b")
_CHANGED = re.compile(r"\bchange|\bdrain|\bcordon|\bcancel|\brestart|\btouch|\bdo\b(?! to)")
SILENT = "the scheduler does not answer"
NOT_DONE = "Nothing is done or kept for later: order it again when the scheduler answers."


def is_silent(inventory: NameInventory) -> bool:
    """Tell whether the scheduler gave no answer when names were asked for."""
    return any(note.startswith(("list_jobs", "node_states")) for note in inventory.unknown) and not inventory.jobs


def read_outage(sentence: OutrightSentence) -> OutrightReading | None:
    """Read a question about a scheduler that does not answer now."""
    if not is_silent(sentence.inventory):
        return None
    about = sentence.says(_ABOUT) or sentence.dialogue.topic == "outage" or len(sentence.bare.split()) <= 3
    if not about or (sentence.names.strangers and not sentence.says(_ABOUT)):
        return None
    reading = partial(OutrightReading, intent="overview", topic="outage")
    if sentence.says(_ABOUT) and sentence.names.strangers:
        return reading(partial(unknown_told, subject=_subject_text(sentence)))
    if sentence.says(_SINCE) and not sentence.says(r"\bhow long (?:will|until|till)\b"):
        return reading(since_told)
    if sentence.says(_FAULT) and (sentence.says(_ABOUT) or not sentence.says(_CHANGED)):
        return reading(fault_told)
    if sentence.says(_UNTIL):
        return reading(back_told)
    if sentence.says(_WHY):
        return reading(cause_told)
    if sentence.says(r"\b(?:outage|blackout)\b") or (
        sentence.says(_ABOUT) and sentence.says(r"\b(?:hang\w*|dead|down|broken|gone|silent|up|ok|alive|back)\b")
    ):
        return reading(partial(unknown_told, subject=_subject_text(sentence)))
    return None


def _subject_text(sentence: OutrightSentence) -> str:
    """Return what is asked for, as it is said not to be known."""
    unknown = [
        match[1] for text in sentence.names.strangers if (match := re.match(r"whether there is a ((?:job|node) \S+) ", text))
    ]
    if unknown:
        return f"the state of {', '.join(unknown)}"
    if sentence.says(r"\bjobs?\b|\bruns?\b"):
        return "which jobs there are, and how they fare,"
    if sentence.says(r"\bnodes?\b"):
        return "how the nodes fare"
    return ""


def _last(turn: QuestionTurn) -> str:
    """Return what the watch says of its own passes."""
    watch = turn.look("watch_status")
    row = watch.value or {}
    if watch.error or not row:
        return ""
    last_complete = (
        f"the last pass that got every answer was {time_text(row['last_whole_look'], turn.now)}"
        if row.get("last_whole_look")
        else "no pass that got every answer is recorded"
    )
    look = f"; the last pass without one was {time_text(row['last_look'], turn.now)}" if row.get("last_look") else ""
    return f" {last_complete[0].upper()}{last_complete[1:]}{look} [{watch.number}]."


def since_told(turn: QuestionTurn) -> Iterator[str]:
    """Tell that no record says since when the scheduler is silent, and what the passes of the watch say."""
    yield f"Since when is not known: {SILENT} now, and no record says when it began.{_last(turn)}"


def back_told(turn: QuestionTurn) -> Iterator[str]:
    """Tell that nobody here knows when the scheduler will answer."""
    yield f"When is not known: {SILENT} now; what needs it can be asked and ordered as soon as it answers again.{_last(turn)}"
    yield "Nothing is kept for then: an order has to be given again."


def cause_told(turn: QuestionTurn) -> Iterator[str]:
    """Tell that the cause of the silence is not known, and what Nightshift itself did."""
    silent = turn.look("list_jobs", limit=1)
    error = f": {one_line(silent.error, 200)} [{silent.number}]" if silent.error else ""
    yield f"Why is not known: {SILENT}, and what it says is all there is{error}.{_last(turn)}"


def fault_told(turn: QuestionTurn) -> Iterator[str]:
    """Tell which changes Nightshift made, for whoever asks whether it caused the silence."""
    changes = turn.look("recent_changes", hours=168.0)
    finished = [row for row in changes.value or () if row["status"] in ("done", "undone")]
    count = "no change" if not finished else count_text(len(finished), "change")
    yield f"I made {count} in the last 7 days, by the record [{changes.number}]; why {SILENT} is not known."
    for row in finished[:4]:
        yield f"  call {row['call']}, {time_text(row['at'], turn.now)}: {one_line(row['change'], 120)}"


def unknown_told(turn: QuestionTurn, subject: str) -> Iterator[str]:
    """Tell that something cannot be known now."""
    silent = turn.look("list_jobs", limit=1)
    about = f"{subject[0].upper()}{subject[1:]} is" if subject else "How it stands is"
    yield f"{about} not known now: {SILENT} ({one_line(silent.error, 200)}) [{silent.number}].{_last(turn)}"


def outage_answer(answer: Answer, inventory: NameInventory) -> Answer:
    """Return an answer as it is to be while the scheduler is silent: no name is asked for, no order kept."""
    if not is_silent(inventory):
        return answer
    text = answer.text
    if answer.kind is AnswerKind.ASKS_BACK or (
        answer.kind is AnswerKind.UNKNOWN and (answer.intent == "out_of_scope" or "goes by" in text)
    ):
        error = next(iter(inventory.unknown), "").partition(": ")[2]
        if (
            "jobs, nodes, logs" in text
            or "Which " in text
            or "The scheduler knows none" in text
            or "goes by" in text
            or "Did you mean" in text
        ):
            text = f"That is not known now: {SILENT} ({one_line(error, 200)})."
            answer = replace(answer, text=text, kind=AnswerKind.UNKNOWN, options=())
    if answer.intent in ("cancel", "cordon", "uncordon", "recover") and NOT_DONE not in text and not answer.proposals:
        return replace(answer, text=f"{text}\n{NOT_DONE}")
    return answer
