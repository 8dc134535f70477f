"""Files of one program that are written in turn, or of which the former one is kept under another name: `restart.A`, `md.chk.bak`.

A file alone cannot be told from a torn one where no reader knows its form; the one that was written before it, or behind it, can be
held against it. That two files are slots of one state, and not its two parts, is what the job's log has to show: they are named one
after the other, each time at a higher count. Of a former one the word says it. Names and lines are looked at; nothing is read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from assistant.recover.checkpoints.entry import Entry
from assistant.recover.checkpoints.names import name_form, run_prefix

SLOT = re.compile(r"[A-Da-d0-3]|even|odd|ping|pong|prev|previous|old|new|first|second|left|right|main|alt", re.IGNORECASE)
"""Words by which two files differ that are written in turn."""
FORMER = re.compile(r"prev|previous|old|older|bak|backup", re.IGNORECASE)
"""Words that are added to the name of a file when the next one takes its place."""
OF_STATE = re.compile(
    r"check-?point|ckpt|chkpt|chk|cpt|cp|snapshot|snap|restart|rst|resume|backup|dump|states?|sav|save|recover(?:y)?", re.IGNORECASE
)
"""Words for all that a program needs to go on; a model or a player has a state of its own."""
NO_WHOLE_STATE = re.compile(r"player|agent|actor|critic|model|net|policy|layer|rank|shard|part|worker|replica", re.IGNORECASE)
FEWEST_TURNS, EVEN_RISES = 3, 2
MOST_SLOTS = 4
"""Numbers below it in a name may be those of files that are written in turn, and then count no steps."""
MOST_GROUPS = 8
_GLUED = re.compile(r"(?P<stem>\w*[a-z])(?P<slot>[A-D]|[0-3])")


class SaveLine(NamedTuple):
    """A line of a log that tells of a save by name, with what was counted then."""

    names: frozenset[str]
    number: int | None
    """What was counted; None where that is not told."""
    is_epoch: bool
    is_done: bool
    """Whether its words say that the save had ended."""


class Turns(NamedTuple):
    """Files that a log shows to be written in turn."""

    counts: Mapping[str, int]
    """Of each file the count at its last save; of a former one the least that it can be."""
    is_epoch: bool
    former: frozenset[str]
    """Those that were kept under another name."""
    interval: int
    """The least by which the count rose from one save to the next."""
    is_done: bool
    """Whether the last line says that its save had ended."""


def slot_form(name: str) -> tuple[str, ...]:
    """Return a name with the word left out by which two files that are written in turn differ."""
    return tuple("*" if SLOT.fullmatch(part) else part for part in re.split(r"([._-])", name))


def _joined_form(name: str) -> tuple[str, ...]:
    """Return a name without the word, or else the letter at the end of a word, of its slot: `restartA.dat`."""
    form = slot_form(name)
    if "*" in form:
        return form
    return tuple(f"{match['stem']}*" if (match := _GLUED.fullmatch(part)) is not None else part for part in form)


def former_of(name: str) -> str:
    """Return the name of the file whose former one has a name: `md.chk` of `md.chk.bak`; empty of any other name."""
    if name.endswith("~"):
        return name[:-1]
    parts = re.split(r"([._-])", name)
    place = next((place for place in range(0, len(parts), 2) if FORMER.fullmatch(parts[place])), None)
    if place is None or len(parts) < FEWEST_TURNS:
        return ""
    return "".join(parts[2:] if place == 0 else [*parts[: place - 1], *parts[place + 1 :]])


def is_of_series(entry: Entry, sister: Entry) -> bool:
    """Tell whether two checkpoints are of one series: of one layout, form of name and run, or written in turn."""
    if entry.slot or sister.slot:
        return entry.slot == sister.slot
    same_form = name_form(sister.path.name) == name_form(entry.path.name)
    return sister.format is entry.format and same_form and run_prefix(sister.path.name) == run_prefix(entry.path.name)


def turns_of(names: Collection[str], lines: Iterable[SaveLine], reached: int) -> Turns | None:
    """Return that files are written in turn; None where a log does not show that.

    Args:
        names: Of files of one folder and one `slot_form`; or of one, and of its former one.
        lines: Those that tell of saves of any of them, in order.
        reached: The highest step that the log shows; 0 where it shows none.
    """
    main_names = {name for name in names if former_of(name) not in names}
    former = frozenset(names) - main_names
    events: list[tuple[str, int, bool]] = []
    is_done = False
    for line in lines:
        if line.number is None or len(line.names) != 1 or line.names & former:
            return None
        event = (next(iter(line.names)), line.number, line.is_epoch)
        is_done = line.is_done or (bool(events) and events[-1] == event and is_done)
        if not events or events[-1] != event:
            events.append(event)
    counts = [count for _, count, _ in events]
    rises = [later - earlier for earlier, later in pairwise(counts)]
    if {name for name, _, _ in events} != main_names or len({is_epoch for *_, is_epoch in events}) != 1:
        return None
    if not rises or min(rises) <= 0 or reached >= counts[-1] + min(rises):
        return None
    if max(rises) > EVEN_RISES * min(rises):
        return None  # parts of one state are saved one soon after the other
    last_counts = {name: count for name, count, _ in events}
    if former:
        if len(main_names) > 1 or len(former) > 1:
            return None
        return Turns({**last_counts, **dict.fromkeys(former, counts[0])}, events[0][2], former, min(rises), is_done)
    in_turn = all(
        events[place][0] not in [name for name, *_ in events[max(0, place - len(names) + 1) : place]]
        for place in range(len(events))
    )
    is_shown = in_turn and 1 < len(names) <= MOST_SLOTS and len(events) >= max(FEWEST_TURNS, len(names) + 1)
    return (
        Turns(last_counts, events[0][2], former, min(rises), is_done) if is_shown and all(map(_is_of_whole_state, names)) else None
    )


def _is_of_whole_state(name: str) -> bool:
    parts = re.split(r"[._-]", name)
    return any(OF_STATE.search(part) for part in parts) and not any(NO_WHOLE_STATE.search(part) for part in parts)


def groups_of(names: Sequence[str]) -> list[list[str]]:
    """Return the names that differ in the word of a slot alone, and each name with that of its former one; the first of many."""
    forms: dict[tuple[str, ...], list[str]] = {}
    pairs, present = [], set(names)
    for name in names:
        main = former_of(name)
        if main in present:
            pairs.append([main, name])
        else:
            forms.setdefault(_joined_form(name), []).append(name)
    groups = [group for group in forms.values() if 1 < len(group) <= MOST_SLOTS]
    return [*groups, *pairs][:MOST_GROUPS]
