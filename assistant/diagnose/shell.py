"""Tell what a batch script's shell went on after: commands at its beginning that failed before its program began.

A login script, a module that is loaded or a copy that misses its file may fail, with a traceback even, and the script goes on.
"""

from __future__ import annotations

import re

from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.tracebacks import ORPHAN, OTHER_LANGUAGE, Kind
from assistant.diagnose.weighing.findings import Finding

LOOK_AHEAD = 400
"""Lines behind a command's error that are read for what ran next."""
FIRST_LINES = 6
"""Lines with words at the beginning of a log that may come from what runs before the program."""
VAGUE = 0.5
"""Weight of an exception of which no more than its class is known."""
OPENING = 10
"""Lines with words between the first line of a log and a traceback that is not of the same program."""
_TOOL = re.compile(
    r"\S{0,200}: line \d{1,6}: \S|(?:\S{0,60}/)?(?:cp|mv|rm|mkdir|rmdir|ln|ls|cat|tar|g?unzip|zip|chmod|chown|touch|rsync"
    r"|scp|find|sed|grep|awk|head|tail|source|cd|bash|sh|zsh|module|ml|export|ulimit|stat|df|du|tee|which|basename|dirname"
    r"|readlink|realpath): \S"
)
"""What a shell and its tools print of what they could not do."""
_TRACED = re.compile(r"\+{1,4} \S")
_EXCUSE = re.compile(r"\+{1,4} (?:true|:)\s*$")
"""A shell that traces its commands (`set -x`) runs the right side of `... || true`."""
_JOB_ENDED = re.compile(r"\*\*\* JOB \S+ ON \S+ CANCELLED AT")
_STEP_ENDED = re.compile(r"\*\*\* STEP \S+\.\d+ ON \S+ CANCELLED AT|^srun: Job step aborted")


def excused(line: int, facts: Facts) -> bool:
    """Tell whether a shell that traces its commands ran `|| true` right behind a line."""
    after = (entry for entry in facts.between(line + 1, line + 3) if entry.text.strip())
    first = next(after, None)
    return first is not None and _EXCUSE.match(first.text) is not None


def left_to_shell(finding: Finding, facts: Facts) -> bool:
    """Tell whether what failed is a command at the beginning of a batch script, which went on to another program.

    A traceback there is of such a command where a tool of the shell speaks behind it; that the script went on to a program of its
    own shows where the job was cancelled while a step ran, or where another program says itself why it failed.
    """
    if finding.blames or finding.beside or finding.stream:
        return False
    episode = finding.episode
    first, last = (episode.first, episode.last) if episode is not None else (finding.line, finding.line)
    if episode is not None and episode.kind is not Kind.MAIN:
        return False
    if episode is None and _TOOL.match(finding.text) is None:
        return _before_all_else(finding, facts)
    after = [entry for entry in facts.between(last + 1, last + LOOK_AHEAD) if entry.text.strip()]
    if episode is not None and not (after and (_TOOL.match(after[0].text) or _TRACED.match(after[0].text))):
        return False
    opening = facts.between(max(1, facts.progress.leg), min(first - 1, facts.progress.leg + LOOK_AHEAD))
    inside = {number for other in facts.episodes if other.last < first for number in other.lines}
    before = [entry for entry in opening if entry.text.strip() and entry.number not in inside]
    if len(before) > FIRST_LINES:
        return False
    ended = any(_JOB_ENDED.search(entry.text) for entry in after) and any(_STEP_ENDED.search(entry.text) for entry in after)
    return ended or any(OTHER_LANGUAGE.match(entry.text) for entry in after[:LOOK_AHEAD])


def _before_all_else(finding: Finding, facts: Facts) -> bool:
    """Tell whether an exception without a traceback is the very first line, long before a program raises its own.

    A module that this program then misses may well be a consequence.
    """
    if finding.weight > VAGUE or ORPHAN.match(finding.text) is None:
        return False
    if any(entry.text.strip() for entry in facts.between(1, finding.line - 1)):
        return False
    later = [one for one in facts.episodes if one.kind is Kind.MAIN and one.first > finding.line]
    words = [entry for entry in facts.between(finding.line + 1, later[-1].first) if entry.text.strip()] if later else []
    missing = bool(later) and any(raised.short in ("ModuleNotFoundError", "ImportError") for raised in later[-1].raised)
    return len(words) >= OPENING and not missing
