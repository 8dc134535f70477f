"""Words by which a person stops every change or wants to go on: `stop everything`, `pause`, `resume`. Pure.

A line counts only as a whole. Where it names anything, as `stop job 12` does, it is another wish and goes to the agent, and so does
every question about stopping.
"""

from __future__ import annotations

import re
from enum import Enum, auto

POLITE = r"(?:please|pls|now|nightshift|ok|okay|quick|quickly|immediately|at once|right now|for now|hey)"
EVERYTHING = (
    r"(?:everything|all|it all|all of it|nightshift|"
    r"(?:all|any|every|the|your|its)?\s*(?:further |other |more |new |automatic |automated )*"
    r"(?:change|changes|action|actions|automation|changing(?: things| anything)?|acting|making changes)"
    r"(?: of yours)?|changing (?:things|anything)|acting)"
)
STOPS = r"(?:(?:an )?emergency(?: stop)?|stop|halt|pause|freeze|suspend|(?:hit |set |use )?(?:the )?kill switch|hands off)"
GOES_ON = (
    r"(?:resume|unpause|unfreeze|unstop|go on|carry on|continue|proceed|start again|un-?pause|end the (?:stop|pause)|"
    r"(?:lift|remove|clear|release|unset) (?:the )?(?:stop|pause|kill switch))"
)
_STOP = re.compile(rf"(?:{POLITE}[\s,]{{1,8}}+){{0,8}}{STOPS}(?:\s{{1,8}}{EVERYTHING})?(?:[\s,]{{1,8}}+{POLITE}){{0,8}}")
_GO_ON = re.compile(
    rf"(?:{POLITE}[\s,]{{1,8}}+){{0,8}}{GOES_ON}(?:\s{{1,8}}(?:with\s{{1,8}})?{EVERYTHING})?(?:[\s,]{{1,8}}+{POLITE}){{0,8}}"
)
LONGEST = 80
"""Characters of a line that may be such a wish."""


class StopWish(Enum):
    """What a person wants of the kill switch."""

    SET = auto()
    LIFT = auto()


def stop_wish(text: str) -> StopWish | None:
    """Return what a line wants of the kill switch; None where it is about something else."""
    line = " ".join(text.lower().split()).rstrip("!. ")
    if not line or len(line) > LONGEST:
        return None
    if _STOP.fullmatch(line):
        return StopWish.SET
    return StopWish.LIFT if _GO_ON.fullmatch(line) else None
