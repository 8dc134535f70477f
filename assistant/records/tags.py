"""Tags: the mark `nightshift:<store>:<incident>:<call>` that a changing call leaves in a job's comment or a node's reason.

This module is the only reader of tags. Anybody who may write a comment may write a tag, so a tag is a claim that has to be checked
against the store and the scheduler (`assistant.recover.identity`), never a key of a row.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from assistant.records.jobs import Job

__all__ = ["MARK", "PATTERN", "Tag", "hold_comment", "hold_mark", "run_of", "tag_of", "tags_in", "without_tags"]

MARK = "nightshift:"
"""What every tag begins with; alone, it marks a cordon that no call made."""
PATTERN = r"nightshift:(?:[a-z0-9]{8,16}:)?[0-9]{1,15}:[0-9]{1,15}"
"""A tag as a regular expression without groups; ASCII only, and its numbers fit SQLite's 64 bits."""
_TAG = re.compile(
    r"(?<!\S)nightshift:(?:(?P<store>[a-z0-9]{8,16}):)?(?P<incident>[0-9]{1,15}):(?P<call>[0-9]{1,15})(?!\S)", re.ASCII
)
_HOLD_MARK = "nightshift-hold:"
_SPACED_TAG = re.compile(rf"\s{{0,16}}+(?<!\S)(?:{PATTERN}|{_HOLD_MARK}[0-9]{{1,9}})(?!\S)", re.ASCII)


class Tag(NamedTuple):
    """The store, incident and call that a tag names; a claim, until it is checked."""

    store: str
    """Id of the store; empty in the form that Nightshift wrote before stores had ids."""
    incident: int
    """0 where the call was made for none."""
    call: int

    def __str__(self) -> str:
        return ":".join(["nightshift", *([self.store] if self.store else []), str(self.incident), str(self.call)])


def tag_of(store: str, incident: int | None, call: int) -> str:
    """Return the tag of a call.

    Args:
        store: Id of the store that holds the call.
        incident: The incident it is made for.
        call: Its number.
    """
    return str(Tag(store, incident or 0, call))


def tags_in(text: str) -> list[Tag]:
    """Return the tags that stand as words of their own in a text, in their order; anything less exact is no tag."""
    return [Tag(match["store"] or "", int(match["incident"]), int(match["call"])) for match in _TAG.finditer(text)]


def without_tags(text: str) -> str:
    """Return a text without its tags and hold marks; other words stay as they are."""
    return _SPACED_TAG.sub("", text).strip()


def hold_mark(attempt: int) -> str:
    """Return the word that stands in the comment of a job which a call has queued again held, for the attempt that is held."""
    return f"{_HOLD_MARK}{attempt}"


def hold_comment(comment: str, tag: str, attempt: int) -> str:
    """Return the comment of a job that a call has queued again held: the user's words, the call's tag and the mark.

    Args:
        comment: As it is now; older tags and marks are dropped.
        tag: Of the call.
        attempt: The one that waits.
    """
    return f"{without_tags(comment)} {tag} {hold_mark(attempt)}".strip()


def run_of(job: Job) -> str:
    """Return the key of a job's run: the same for jobs of the same user, name and work folder, as the scheduler shows them.

    Letters only, so that no rule of redaction takes it for a secret.
    """
    text = "\0".join([job.user, job.name, str(job.work_dir or "")])
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]
    return "run-" + digest.translate(str.maketrans("0123456789", "ghijklmnop"))
