"""Follow-ups that leave words out, completed from the question before them: `and carol`, `only last night's`, `what was it again`.

What stays is what the question asked, its measure and its other names; only what the follow-up names takes the old one's place.
"""

from __future__ import annotations

import re

from assistant.agent.dialogue import Dialogue
from assistant.agent.moods import CHANGING
from assistant.agent.outright.people import ALONE, unknown_person
from assistant.agent.outright.windows import TIME_PHRASE
from assistant.agent.words import NameInventory

_FILLERS = re.compile(
    r"\b(?:and|or|but|so|only|just|now|what|how|about|of|for|from|in|the|those|that|these|it|them|ones?"
    r"|was|is|were|before|then|same"
    r"|please|pls|count|counting|jobs?|during)\b|'s\b|\W+",
    re.IGNORECASE,
)
_WHAT_AGAIN = re.compile(
    r"^\W*(?:(?:nvm|ok|okay|so|and|never ?mind|well)\b\W*)*(?:what|which)(?: ?'?s)?(?: one| job| node)?(?:"
    r" is| was)? (?:it|that|this)(?: one| job| node)?(?: again)?\W*$"
    r"|^\W*(?:which|what) (?:one|job|node) was (?:it|that|this)(?: again)?\W*$",
    re.IGNORECASE,
)
_OTHER_MEANT = re.compile(
    r"^\W*(?:(?:no|nope|wait|stop|hold on|not that one|sorry|actually|i meant|i mean|rather|halt"
    r"|better)\b\W*)*(?:the )(?P<state>waiting|pending|queued|running|failed|other)"
    r"(?: one| job)?\W*$",
    re.IGNORECASE,
)
_STATES = {"waiting": "pending", "pending": "pending", "queued": "pending", "running": "running", "failed": "failed"}
_REALLY_LOST = re.compile(
    r"\b(?:only|just)\b.*\b(?:really|actually|truly)?\s*(?:lost|wasted|to be (?:repeated|redone))\b", re.IGNORECASE
)
_RESTART = re.compile(r"\b(?:did|has|have|was)\b.*\bre-?start\w*\b", re.IGNORECASE)


def completed_question(words: str, dialogue: Dialogue, inventory: NameInventory) -> str:
    """Return a follow-up as a question of its own; other words as they are.

    Args:
        words: In English.
        dialogue: What was said.
        inventory: What exists.
    """
    before = dialogue.question
    if (
        _WHAT_AGAIN.match(words)
        and (dialogue.order or dialogue.intent in CHANGING or "again" in words.lower())
        and (subject := _subject(dialogue))
    ):
        return subject
    if dialogue.order and (match := _OTHER_MEANT.match(words)) and (job := _only_job(match["state"].lower(), dialogue, inventory)):
        return f"no, I meant {job}"
    if not before or dialogue.intent in CHANGING:
        return words
    if name := _name_alone(words, inventory):
        return _with_user(before, name, inventory, lists=dialogue.intent in ("failed_jobs", "list_jobs", "overview"))
    old = _user_in(before, inventory)
    if (phrase := TIME_PHRASE.search(words)) is not None and not _FILLERS.sub("", TIME_PHRASE.sub(" ", words)):
        return _with_time(before, phrase.group())
    if _REALLY_LOST.search(words) and len(words.split()) <= 8:
        period = TIME_PHRASE.search(before)
        of = f" of {old}" if old else ""
        return f"how many node hours were really lost on failed jobs{of}{f' {period.group()}' if period else ''}"
    if old and _RESTART.search(words) and not re.search(r"\d", words) and dialogue.subject != "job":
        return f"{words.rstrip(' ?.!')} of the jobs of {old}?"
    return words


def _subject(dialogue: Dialogue) -> str:
    """Return the question how the thing stands that was spoken of last."""
    if dialogue.subject == "node" and dialogue.nodes:
        return f"how is {dialogue.nodes[0]}"
    if dialogue.jobs:
        return f"status of job {dialogue.jobs[0]}"
    return ""


def _only_job(state: str, dialogue: Dialogue, inventory: NameInventory) -> str:
    """Return the job of a state where there is one alone; for `the other one` that which is at work besides."""
    current = dialogue.jobs[:1]
    if state == "other":
        fitting = [job for job, its_state in inventory.states.items() if its_state in ("running", "pending") and job not in current]
    else:
        fitting = [job for job, its_state in inventory.states.items() if its_state == _STATES[state]]
    return fitting[0] if len(fitting) == 1 else ""


def _user_in(text: str, inventory: NameInventory) -> str:
    """Return the user that a text names."""
    low = text.lower()
    hits = [user for user in inventory.users if re.search(rf"(?<![\w-]){re.escape(user.lower())}(?:'s|s)?(?![\w-])", low)]
    return hits[0] if len(hits) == 1 else unknown_person(text, inventory)


def _name_alone(words: str, inventory: NameInventory) -> str:
    """Return the name in a follow-up that is a name and no more, whether it is known or not."""
    match = ALONE.match(words.lower())
    if match is None:
        return ""
    for name in (match["name"], match["name"].removesuffix("s")):
        if name in {user.lower() for user in inventory.users} or name in inventory.persons:
            return name
    return (
        unknown_person(words, inventory, alone=True)
        if re.match(r"^\W*(?:and|or|what about|how about|what of)\b", words, re.I)
        else ""
    )


def _with_user(before: str, name: str, inventory: NameInventory, *, lists: bool) -> str:
    """Return a question about somebody as one about somebody else."""
    old = _user_in(before, inventory)
    if not old:
        return f"{before.rstrip(' ?.!')} of {name}" if lists else f"show {name}'s jobs"
    pattern = rf"(?<![\w-]){re.escape(old)}(?P<of>'s|s)?(?![\w-])"
    return re.sub(pattern, lambda match: f"{name}'s" if match["of"] else name, before, flags=re.IGNORECASE)


def _with_time(before: str, phrase: str) -> str:
    """Return a question with another time in it."""
    plain = " ".join(TIME_PHRASE.sub(" ", before).split()).rstrip(" ?.!")
    return f"{plain} {phrase.removesuffix(chr(39) + 's')}"
