"""Read notices that state their own fallback: what was looked for is not there, and the same words say what is used instead.

Such a notice may look like a failure in every other word. It is no cause: the program has said that it goes on. The notice is the
box between two rules of signs that it stands in; without rules the line itself, the one right below, and what is indented there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.diagnose.facts import Facts
from assistant.logs.lines import Line

MOST_OF_BOX, MOST_OF_LINE = 24, 600
"""Lines of a notice between rules at most on either side, and characters of a line that are read."""
_FALLBACK = re.compile(
    r"\b(?:will|is|are|was|were|be|being|gets?) (?:\w+ )?used (?:\w+ )?instead\b"
    r"|\b(?:[Uu]sing|[Uu]sed|[Ss]witch(?:ing|ed) to|[Cc]hoosing|[Tt]aking|[Ss]ubstitut(?:ing|ed)) \S.{0,80}\binstead\b"
    r"|\b(?:[Ff]alling|[Ff]alls|[Ff]ell|[Ww]ill fall) ?back (?:to|on|onto)\b"
    r"|\b(?:will|is|are|was|were) (?:now |being |simply |silently |therefore )?(?:be )?ignored\b|^\W*(?:\w+: )?[Ii]gnoring\b"
    r"|\b[Dd]efault(?:ing|s) to\b|\b[Rr]evert(?:ing|s|ed) to\b|\b(?:[Cc]ontinuing|[Pp]roceeding|[Gg]oing on) without\b"
    r"|\b(?:will|is|are|being|been) (?:now )?(?:disabled|switched off|turned off)\b.{0,40}\b(?:instead|and|the run|continu)"
)
_NO_FALLBACK = re.compile(
    r"\b(?:cannot|can't|could not|couldn't|unable to|failed to|refus\w+ to|not|no|never|without|would|without any)\b.{0,24}"
    r"\b(?:fall(?:ing)? ?back|used instead|be ignored|revert|default)"
    r"|\b(?:fall ?back|falling back)\b.{0,80}\b(?:fail|impossible|not (?:possible|allowed|available|supported)|error)"
    r"|\b(?:must|should|cannot|can't|can not|may|not) (?:not )?be ignored\b"
    r"|\b[Ii]f\b.{0,80}\b(?:used instead|fall(?:s|ing)? ?back|ignored)",
    re.IGNORECASE,
)
"""A fallback that there is not, that failed as well, or that only might be."""
_RULE = re.compile(r"^\W{0,4}([-=*#~_])\1{9,}\W{0,4}$")


def states_fallback(text: str) -> bool:
    """Tell whether a line says by what the program goes on in place of what is missing."""
    read_text = text[:MOST_OF_LINE]
    return _FALLBACK.search(read_text) is not None and _NO_FALLBACK.search(read_text) is None


def states_own_fallback(number: int, facts: Facts) -> bool:
    """Tell whether a line of the job log belongs to a notice that states its own fallback, and to no traceback."""
    if any(episode.first <= number <= episode.last for episode in facts.episodes):
        return False
    notice = _notice(number, facts)
    words = " ".join(line.text.strip() for line in notice)
    return any(states_fallback(line.text) for line in notice) or (len(notice) > 2 and states_fallback(words[: 4 * MOST_OF_LINE]))


def _notice(number: int, facts: Facts) -> Sequence[Line]:
    """Return the lines of the notice that a line stands in."""
    around = facts.between(number - MOST_OF_BOX, number + MOST_OF_BOX)
    rules = [line.number for line in around if _RULE.match(line.text)]
    above, below = max((at for at in rules if at < number), default=0), min((at for at in rules if at > number), default=0)
    if above and below:
        return [line for line in around if above < line.number < below]
    stream = next((facts.streams.body(line.text).stream for line in around if line.number == number), "")
    following: list[Line] = []
    for line in around:
        if line.number <= number:
            continue
        if following and not line.text[:1].isspace():
            break
        following.append(line)
    own = [line for line in around if line.number == number]
    return [line for line in (*own, *following) if line.text.strip() and facts.streams.body(line.text).stream == stream]
