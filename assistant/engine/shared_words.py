"""Words about jobs that failed of the same: which of them a person has, and why."""

from __future__ import annotations

from collections.abc import Sequence

from assistant.display import whole_sentences
from assistant.records import Incident
from assistant.recover.drivers import DEPENDENTS_WAIT

__all__ = ["left_words", "some_names"]

SAMPLE = 5
WHY_SHOWN, MOST_WHYS = 1_200, 3


def some_names(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = f" and {len(names) - SAMPLE} more" if len(names) > SAMPLE else ""
    return f"{', '.join(names[:SAMPLE])}{more}"


def _why_words(note: str) -> str:
    """Return why a job was not started again, in whole sentences; the jobs that wait for it are always among them."""
    if len(note) <= WHY_SHOWN:
        return note
    waiting = DEPENDENTS_WAIT.search(note)
    dependents = waiting[0] if waiting is not None else ""
    return f"{whole_sentences(note.replace(dependents, '') if dependents else note, WHY_SHOWN - len(dependents))}{dependents}"


def left_words(members: Sequence[Incident], handed_over: Sequence[Incident]) -> str:
    """Return which jobs of a shared cause were not started again, and why; and how many go on."""
    by_why: dict[str, list[Incident]] = {}
    for member in handed_over:
        why = _why_words(member.note.replace(f"job {member.job} ", "it ").replace(f"job {member.job}:", "it:"))
        by_why.setdefault(why, []).append(member)
    parts = []
    for why, those in list(by_why.items())[:MOST_WHYS]:
        jobs, numbers = some_names([str(entry.job) for entry in those]), some_names([f"{entry.id}" for entry in those])
        parts.append(f"job{'s' * (len(those) > 1)} {jobs} (incident{'s' * (len(those) > 1)} {numbers}): {why}")
    more = len(by_why) - MOST_WHYS
    parts += [f"{more} other reasons"] if more > 0 else []
    gone_on = len(members) - len(handed_over)
    return f"{f'{gone_on} of {len(members)} go on; ' if gone_on else ''}a person has {'; '.join(parts)}"
