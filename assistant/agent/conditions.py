"""When an order is to be followed: for later, on a condition, until some time; and what of that can be told now.

An end is a limit of the change, not an order for later; the time of something past is neither. A condition on the state of the job
itself is held against what the scheduler says.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import NamedTuple

from assistant.agent.quantities import MASK
from assistant.agent.words import Names
from assistant.nodeset import fold

IDLE = re.compile(
    r"\b(?:on|in|at|by|with|for|as|before|but)\s+(?:again|now|once|please|it|me|us|its (?:own )?(?:id|checkpoint)"
    r"|the (?:job|queue|run|same (?:id|number|nodes?)|cluster|scheduler|users?|playbook)|all|soon as possible|once more|same id"
    r"|work|service|line|life|users?|queue|good|another (?:go|try|attempt|chance)"
    r"|a (?:second|new) (?:time|go|try)|is|its|long|real)\b"
    r"|\bonce (?:more|again)\b|\bafter (?:all|that|this)\b|\bas usual\b",
    re.IGNORECASE,
)
"""Phrases that look like a condition or a detail of an order, and are none."""
PAST = re.compile(
    r"\b(?:died|failed|crashed|hung|broke|ended|aborted|fell over|went down|blew up|(?:was|were|got|has been|had been) \w+ed)\s+"
    r"(?:(?:down|over|out|again|earlier|back|on us)\s+)?(?:(?:at|around|about|since|in|during)\s+)?(?:the\s+)?"
    r"(?:tonight|last night|yesterday|today|this (?:morning|evening|night)|night|earlier"
    rf"|\d{{1,2}}(?::\d\d)?\s*(?:am|pm|utc|o'?clock|h)?|{re.escape(MASK)})(?![\w}}])",
    re.IGNORECASE,
)
"""`that died tonight`: the time of what is over."""
_CONDITION = re.compile(
    r"\b(?:if|when|once|after|unless|as soon as|whenever|until|before)\s+"
    r"(?!you|that|all|this|more|again|possible|ok|necessary|now\b)[^,;.!?]+"
    rf"|\b(?:in|at|by|around)\s+(?:{re.escape(MASK)}|noon|midnight|an? (?:hour|minute|day)"
    r"|the (?:evening|morning|weekend))[^,;.!?]*"
    r"|\b(?:tomorrow|later|tonight)\b|\bnext (?:week|time|morning|monday)\b|\bevery (?:day|hour|time)\b",
    re.IGNORECASE,
)
_IN_A_WHILE = re.compile(r"\bin (?:about )?\d+ ?(?:minutes?|mins?|hours?|hrs?|h|days?)\b", re.IGNORECASE)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_PARTS = {"morning": 8, "noon": 12, "afternoon": 15, "evening": 18, "night": 22, "tonight": 22, "midnight": 24}
_END = re.compile(
    r"\b(?:(?:only |just )?(?:until|till?|through|up to))\s+(?:the )?"
    rf"(?P<day>tomorrow|today|tonight|(?:next )?(?:{'|'.join(_DAYS)}))?[ ,]*(?:(?:in )?the )?"
    r"(?P<part>morning|noon|afternoon|evening|night|midnight)?[ ,]*(?:at |by |around )?"
    r"(?:(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?(?P<half>\s*(?:am|pm)(?!\w))?(?:\s*(?:o'?clock|h|utc)(?!\w))?(?![\w:]))?"
    r"(?:\s+(?P<later>tomorrow)\b)?",
    re.IGNORECASE,
)
_OF_JOB = re.compile(
    r"(?:,? ?\b(?:but )?(?:only )?)?\b(?P<word>unless|if|as long as|provided)\s+"
    r"(?:it|its|it's|that|this|(?:the )?(?:job|run)|\d+)\b"
    r"\s*(?P<verb>is|has|was|does|did|hasn't|isn't|didn't|hasnt|isnt|didnt)?\s*(?P<not>not)?\s*(?:already|still|yet|even)?\s*(?:been\s+)?"
    r"(?P<state>started|start|running|run|pending|queued|waiting|failed|dead|died|crashed|finished|done|completed|over)\b"
    r"\s*(?:already|yet|still|by now|anyway)?(?=\s*(?:[,;.!?]|$|then\b|please\b|pls\b))",
    re.IGNORECASE,
)
_AT_WORK = ("running", "pending")


class AskedEnd(NamedTuple):
    """Until when a change is to last."""

    text: str
    """As it stands in the question."""
    at: datetime


class JobCondition(NamedTuple):
    """A condition on the state of the job that an order is about."""

    text: str
    word: str
    state: str
    """What it asks: `started`, `running`."""
    negated: bool

    def holds(self, state: str) -> bool:
        """Tell whether the order is to be followed while the job is in a state of the scheduler's."""
        state_asked = self.state.lower()
        if state_asked in ("started", "start"):
            is_so = state != "pending"
        elif state_asked in ("running", "run"):
            is_so = state == "running"
        elif state_asked in ("pending", "queued", "waiting"):
            is_so = state == "pending"
        elif state_asked in ("finished", "done", "completed", "over"):
            is_so = state not in _AT_WORK
        else:
            is_so = state not in (*_AT_WORK, "completed", "cancelled")
        return (is_so != self.negated) != (self.word.lower() == "unless")


def job_condition(question: str) -> JobCondition | None:
    """Return the condition on the state of its job that an order names; None where it names none."""
    match = _OF_JOB.search(question)
    if match is None:
        return None
    negated = bool(match["not"]) or (match["verb"] or "").lower().endswith(("n't", "nt"))
    return JobCondition(" ".join(match.group().split()).strip(" ,"), match["word"], match["state"], negated)


def asked_end(question: str, now: datetime) -> AskedEnd | None:
    """Return the time that `until tomorrow 9am` names, the next such one; a day alone ends at the hour that it is now."""
    for match in _END.finditer(question):
        day, part = (match["day"] or match["later"] or "").lower().removeprefix("next "), (match["part"] or "").lower()
        if not (day or part or match["half"] or match["minute"] or re.search(r"(?:o'?clock|h|utc)\s*$", match.group(), re.I)):
            continue
        part = part or ("tonight" if day == "tonight" else "")
        at = now.replace(second=0, microsecond=0)
        if match["hour"]:
            half = (match["half"] or "").strip().lower()
            hour, minute = int(match["hour"]), int(match["minute"] or 0)
            hour = hour % 12 + (12 if half == "pm" else 0) if half else hour
            if hour > 24 or minute > 59:
                continue
            at = at.replace(hour=0, minute=minute) + timedelta(hours=hour)
        elif part:
            at = at.replace(hour=0, minute=0) + timedelta(hours=_PARTS[part])
        elif day in _DAYS:
            at = at.replace(hour=_PARTS["morning"], minute=0)
        if day == "tomorrow":
            at += timedelta(days=1)
        elif day in _DAYS:
            at += timedelta(days=(_DAYS.index(day) - now.weekday()) % 7 or 7)
        elif at <= now:
            at += timedelta(days=1)
        return AskedEnd(" ".join(match.group().split()).strip(" ,"), at)
    return None


def without_end(text: str) -> str:
    """Return text without the end that it names."""
    return _END.sub(lambda match: " " if match["day"] or match["part"] or match["hour"] else match.group(), text)


def condition_of(question: str, names: Names, *, ends: bool = False) -> str:
    """Return when or on what condition an order is to be followed; empty where it is meant for now.

    Args:
        question: As it was put.
        names: Of the question.
        ends: Whether an end is a limit of the change, and so no condition.
    """
    plain, sketch = PAST.sub(" ", question), PAST.sub(" ", names.sketch)
    if ends:
        plain, sketch = without_end(plain), without_end(sketch)
    clock = names.quantities.clock[2]
    if clock and clock.strip() in plain and not (ends and clock.lower().startswith(("until", "till"))):
        return clock
    match = _IN_A_WHILE.search(plain) or _CONDITION.search(IDLE.sub(" ", sketch))
    if match is None:
        return ""
    text = " ".join(match.group().replace(MASK, "N").split())
    if "{" not in text:
        return text
    in_question = _CONDITION.search(IDLE.sub(" ", plain))
    return " ".join((in_question.group() if in_question else filled_slots(text, names)).split())


def filled_slots(text: str, names: Names) -> str:
    """Return text with names, or the kind of thing, in the place of `{job}` and `{node}`."""
    jobs = f"job {names.jobs[0]}" if len(names.jobs) == 1 else "that job"
    nodes = fold(names.nodes) if names.nodes else "that node"
    incidents = f"incident {names.incidents[0]}" if len(names.incidents) == 1 else "that incident"
    text = text.replace("{job}", jobs).replace("{node}", nodes).replace("{incident}", incidents)
    return re.sub(r"\{\w+\}", "…", text.replace("{number}", names.numbers[0] if len(names.numbers) == 1 else "that"))
