"""What of a sentence is ordered and what it leaves out: `drain node08 instead of node07`, `stop the eval but leave 4830 alone`.

A sentence is parted before its names are read, so that each name belongs to one side. What is left out never gets the change. Where
it cannot be told apart nothing is parted, and the sentence is read whole: a part of it that forbids something then counts for all.

An order for all but some is about jobs at work, jobs that failed or nodes that are out, without what is spared (`only_thing_left`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from assistant.agent.orders import OrderKind, OrderReading
from assistant.agent.proposals import BY
from assistant.agent.verbs import base_of, is_verb, verbs
from assistant.agent.words import NameInventory, Names
from assistant.gate import Gate

Reader = Callable[[str], tuple[Names, OrderReading]]
"""Returns what a part of a sentence names, and what it orders."""


class OrderScope(NamedTuple):
    """A sentence parted."""

    order: str
    """What is ordered, without what is left out."""
    spared: Names
    """What is left out."""
    many: str = ""
    """The change that is ordered for all but those; empty where the others are named."""


_BUT = (
    r"instead of|rather than|in place of|as opposed to|other than|apart from|aside from|except(?: for)?|excluding|excepting"
    r"|save for|minus|with the exception of|(?:but |and |just |only |though |definitely |certainly |surely |, ?)*not"
    r"|without|besides|bar"
)
_LEFT_OUT = re.compile(rf"(?:[\s,(]|^)(?P<but>{_BUT}|(?<=all )but|(?<=everything )but|(?<=anything )but)\s+", re.IGNORECASE)
_AUXILIARY = re.compile(
    r"\b(?:do|does|did|is|are|was|were|am|be|can|could|must|should|shall|will|would|may|might|need|has|have|had|why|if|or|better|"
    r"certainly|please)\s*,?\s*$",
    re.IGNORECASE,
)
_TAIL_END = re.compile(
    r"[.;!?)]|\s+(?:back|online|in service|out of service|because|since|so|please|pls|as|they|it|he|she|that|which|who|for now)\b",
    re.IGNORECASE,
)
_PURE = re.compile(
    r"(?:\{(?:job|node|number|incident)\}|\b(?:the|job|jobs|run|runs|node|nodes|machine|machines|incident|and|or|nor|also"
    r"|one|ones|one)\b"
    r"|user(?:'s)?|[\s,&+()])+",
    re.IGNORECASE,
)
_GERUND = re.compile(r"^([a-z-]+ing)\s+(?:it|them|that|this)?", re.IGNORECASE)
_ALL = re.compile(
    r"\b(?:everything|everyone|all(?: of)?(?: the| them| my| our)?(?: jobs| nodes| runs| machines)?|every (?:job|node|run|machine)"
    r"|anything|each (?:job|node)|(?:whatever|what) (?:has |is |are )?(?:failed|died|crashed|broke|running|pending|drained"
    r"|out|down)"
    r"|(?:all|every) (?:the )?(?:failed|dead|crashed|running|pending|drained) (?:jobs?|runs?|nodes?)|the (?:failed|dead"
    r"|drained) (?:jobs|nodes))\b",
    re.IGNORECASE,
)
_ALL_DO = re.compile(
    rf"^(?P<lead>.*?)(?P<all>{_ALL.pattern})\s+"
    r"(?:must |should |shall |has to |have to |needs to |is to |are to |to |be |get |gets |can )*"
    r"(?P<verb>[a-z]+)(?P<more>(?: out| down| off| back| in)*)\s*[.!]*$",
    re.IGNORECASE,
)
_PART = re.compile(
    r"\s*[;.!]+\s+|\s*,\s+(?:but\s+|and\s+)?|\s+(?:but|though|however)\s+"
    r"|(?<=alone)\s+and\s+|\s+and\s+(?=(?:please\s+|also\s+)?(?:leave|keep|let|do not|don'?t|never|spare|hands|stay|steer)\b)",
    re.IGNORECASE,
)
_FIRMLY = re.compile(r"[;.!]|\b(?:but|however|and)\b", re.IGNORECASE)
_INSTEAD = re.compile(r"\b(?:instead|just|only|rather|please)\b", re.IGNORECASE)
_NEVER_MIND = re.compile(r"\W*(?:never ?mind|forget|skip|scratch|scrap)\b", re.IGNORECASE)
_ALL_ELSE = re.compile(
    r"\b(?:anything|everything|nothing|any ?one) else\b|\bthe (?:others?|rest)\b|\b(?:any|all) others?\b", re.IGNORECASE
)
_STAYS = re.compile(
    r"\W*(?:(?:and|but|please|just|then|definitely|certainly|always)\s+)*(?:(?:leave|keep|let)\s+(?:the |node |job )*\{"
    r"|not\s+(?:the |node |job )*"
    r"\{\w+\}\W*$)",
    re.IGNORECASE,
)
_IN = re.compile(r"\b(?:back|in|into|online|again)\b", re.IGNORECASE)
_OUT = re.compile(r"\b(?:out|aside|offline|down|away)\b", re.IGNORECASE)
_ONE_ORDER = re.compile(r"\b(?:or|nor|neither)\b", re.IGNORECASE)
_REPLACED = re.compile(
    r"^(?P<lead>.*?)\b(?:do not|don'?t|not|never)\s+(?P<verb>[a-z-]+)\s+(?P<old>[^,;]+?)\s*(?:,\s*|\s+)"
    r"(?:but|rather|only|just)\s+(?:rather\s+|instead\s+|only\s+|just\s+)?(?P<new>[^,;]+)$",
    re.IGNORECASE,
)


def order_scope(words: str, read: Reader) -> OrderScope | None:
    """Return what a sentence orders and what it leaves out; None where it leaves nothing out, or that cannot be told.

    Args:
        words: As somebody wrote it, in English.
        read: Reads a part of it.
    """
    if words.rstrip().endswith("?"):
        return None
    words = _excepted_behind(words, read)
    return _replacement(words, read) or _exception(words, read) or _held_apart(words, read)


_BEFORE_ORDER = re.compile(
    r"^(?P<but>except(?: for)?|apart from|other than|besides|all but)\s+(?P<what>[^,]+?)\s*,\s*(?P<order>.+)$", re.I
)
_BEHIND_ORDER = re.compile(
    r"^(?P<order>.+?)\s*[,;]\s*(?:but\s+)?(?:(?:of|from)\s+)?(?P<what>[^,;]+?),?\s+(?:but\s+|though\s+)?"
    r"(?:nothing|none|not|no|nope|excluded|excepted|except|stays?(?: in| as it is)?|is spared)[\s.!]*$",
    re.IGNORECASE,
)


def _excepted_behind(words: str, read: Reader) -> str:
    """Return `drain 13 to 16 except 15` for `drain 13 to 16, 15 not`, and for `except 15, drain 13 to 16`; else the words."""
    for pattern in (_BEFORE_ORDER, _BEHIND_ORDER):
        match = pattern.match(words)
        if match is None:
            continue
        exception_text = re.sub(r"^(?:but|the|and)\s+", "", match["what"].strip(), flags=re.IGNORECASE)
        if re.fullmatch(r"[\d\s,&-]+(?:(?:and|to) [\d\s]+)*", exception_text) and read(match["order"])[0].nodes:
            exception_text = f"node {exception_text}"
        if _is_pure(read(exception_text)[0]):
            return f"{match['order']} except {exception_text}"
    return words


def names_in(names: Names) -> frozenset[str]:
    """Return the things that a part of a sentence names."""
    return frozenset([*names.jobs, *names.nodes, *names.numbers, *(f"incident {number}" for number in names.incidents)])


def about_spared(scope: OrderScope, read: Reader) -> str | None:
    """Return the order with a name for its pronoun, where it is about what another verb leaves alone; else None.

    `do not cancel 4830, restart it`: `it` is 4830, and is not left out of the restart.
    """
    left_alone = scope.spared.jobs or scope.spared.nodes
    if len(left_alone) != 1 or names_in(read(scope.order)[0]):
        return None
    text, count = re.subn(r"\b(?:it|that|this|that one|this one)\b", left_alone[0], scope.order, count=1, flags=re.IGNORECASE)
    return text if count else None


_EXCEPTS = re.compile(
    r"\b(?:except(?: for)?|excluding|excepting|apart from|aside from|other than|save for|all but|everything but|but not"
    r"|with the exception of)\s+"
    r"(?P<what>[^,;.!?]+)",
    re.IGNORECASE,
)


def excepted_names(words: str, read: Reader) -> Names | None:
    """Return what a sentence excepts, where it names nothing else; None where it names more, or excepts nothing."""
    match = _EXCEPTS.search(words)
    if match is None:
        return None
    names, excepted = read(words)[0], read(match["what"])[0]
    return excepted if names_in(excepted) and not names_in(without(names, excepted)) else None


def without(names: Names, spared: Names) -> Names:
    """Return names without those that are left out."""
    return replace(
        names,
        jobs=tuple(job for job in names.jobs if job not in spared.jobs),
        nodes=tuple(node for node in names.nodes if node not in spared.nodes),
        numbers=tuple(number for number in names.numbers if number not in spared.numbers),
        incidents=tuple(number for number in names.incidents if number not in spared.incidents),
    )


def _replacement(words: str, read: Reader) -> OrderScope | None:
    """Part `do not drain node07 but node08`."""
    match = _REPLACED.match(words)
    if match is None or not is_verb(base_of(match["verb"].lower())):
        return None
    old, new = read(match["old"])[0], read(match["new"])[0]
    if not (_is_pure(old) and _is_pure(new)):
        return None
    return _checked(f"{match['lead']}{match['verb']} {match['new']}", old, read)


def _exception(words: str, read: Reader) -> OrderScope | None:
    """Part `drain node05-06 but not node07`, `cancel everything except 4830`, `drain not node07 but node08`."""
    for match in _LEFT_OUT.finditer(words):
        head, tail = words[: match.start()], words[match.end() :]
        if match["but"].lower().endswith("not") and _AUXILIARY.search(head):
            continue
        gerund = _GERUND.match(tail)
        if gerund and is_verb(base_of(gerund[1].lower())):
            tail = tail[gerund.end() :].lstrip()
        end = _TAIL_END.search(tail)
        clause, after = (tail[: end.start()], tail[end.start() :]) if end else (tail, "")
        pieces = re.split(r"(\s*,\s*(?:but\s+)?|\s+(?:but|and)\s+)", clause)
        for count in range(len(pieces), 0, -2):
            left_out = "".join(pieces[:count])
            of_nodes = read(head)[0].nodes or read(head)[1].change in ("cordon", "uncordon")
            if re.fullmatch(r"[\d\s,&]+(?:and [\d\s]+)?", left_out) and of_nodes:
                left_out = f"node {left_out.strip()}"  # `drain node05 and node06, not 08`
            names = read(left_out)[0] if left_out.strip() else None
            if names is None or not (_is_pure(names) or (gerund and not left_out.strip())):
                continue
            more = re.sub(r"^[\s,]*(?:but|rather|instead|and)?\s+", " ", "".join(pieces[count:]))
            order = " ".join(f"{head} {more} {after}".split()).strip(" ,")
            scope = _checked(order, names, read)
            of_restart = bool(names.nodes) and not names.jobs and read(order)[1].change == "recover"
            if scope is not None and not of_restart:  # `restart 4821 without node07` is a wish for the restart
                return scope
            break
    return None


def _held_apart(words: str, read: Reader) -> OrderScope | None:
    """Part `stop 4831 but leave 4830 alone`: a clause that orders and one that forbids, about different things."""
    marks = [match.group() for match in _PART.finditer(words)]
    pieces = _pieces(words)
    if len(pieces) < 2 or _ONE_ORDER.search(words):
        return None
    readings = [read(piece) for piece in pieces]
    holds = [place for place, (names, reading) in enumerate(readings) if _holds(pieces[place], names, reading)]
    orders = [place for place, (names, reading) in enumerate(readings) if place not in holds and _orders(names, reading)]
    if not holds or not orders:
        return None
    if any(
        not names_in(readings[place][0]) and not readings[place][0].users and not _ALL_ELSE.search(pieces[place]) for place in holds
    ):
        return None
    spared = _united([readings[place][0] for place in holds])
    if not names_in(spared) and not spared.users and not any(_ALL_ELSE.search(pieces[place]) for place in holds):
        return None
    first = orders[0]
    apart = len(pieces) == 2 and _speaks_of_two(readings[holds[0]], readings[first])
    if (
        holds[0] < first
        and not apart
        and not (_FIRMLY.search(marks[first - 1]) or _INSTEAD.search(pieces[first]) or _NEVER_MIND.match(pieces[holds[0]]))
    ):
        # `do not cancel 4830, restart 4821, ...` may go on to forbid
        return None
    order = ", ".join(piece for place, piece in enumerate(pieces) if place not in holds)
    return _checked(order, spared, read)


def _speaks_of_two(hold: tuple[Names, OrderReading], ordered: tuple[Names, OrderReading]) -> bool:
    """Tell whether `do not touch 4830, cancel 4831` forbids and orders: what is not touched, and a change of another thing."""
    return hold[1].verb in verbs().kinds["touch"] and bool(names_in(ordered[0])) and not names_in(hold[0]) & names_in(ordered[0])


def order_beside(words: str, read: Reader) -> str:
    """Return a clause that orders something beside one that forbids, where the two were not parted; empty where there is none."""
    if words.rstrip().endswith("?"):
        return ""
    pieces = _pieces(words)
    readings = [read(piece) for piece in pieces] if len(pieces) > 1 else []
    if not any(reading.kind is OrderKind.HOLD and names_in(names) for names, reading in readings):
        return ""
    holds = _united([names for names, reading in readings if reading.kind is OrderKind.HOLD])
    return next(
        (
            piece.strip()
            for piece, (names, reading) in zip(pieces, readings, strict=True)
            if _orders(names, reading) and names_in(names) and not names_in(names) & names_in(holds)
        ),
        "",
    )


def _checked(order: str, spared: Names, read: Reader) -> OrderScope | None:
    """Return a scope where the order is one, and about other things than those that are left out."""
    all_do = _ALL_DO.match(order)
    if all_do and is_verb(base_of(all_do["verb"].lower())):
        order = f"{all_do['lead']}{base_of(all_do['verb'].lower())} {all_do['all']}{all_do['more']}"
    names, reading = read(order)
    if reading.kind is OrderKind.OPEN and _ALL.search(order):
        reading = read(_ALL.sub("everything", order, count=1))[1]
        if reading.verb not in verbs().kinds["light"] and _ALL.match(order.strip()) and (_IN.search(order) or _OUT.search(order)):
            reading = OrderReading(OrderKind.OPEN, "put")  # `all nodes back in`
    lights_all = reading.verb in verbs().kinds["light"] and _ALL.search(order) is not None
    if not (_orders(names, reading) or lights_all):
        return None
    change = reading.change or _change_of(reading, order)
    remaining = without(names, spared)
    if not names_in(remaining) and not names.approvals:
        if not names.strangers and (_ALL.search(order) or names_in(names)):
            return OrderScope(order, spared, change or "unnamed")
        return OrderScope(order, spared)
    return OrderScope(order, spared)


def _change_of(reading: OrderReading, order: str) -> str:
    """Return the change that a verb stands for which may be made to several kinds of things, or that says little."""
    if reading.kind is not OrderKind.OPEN:
        return next((name for name, (family, _, _) in verbs().change.items() if reading.verb in family), "")
    return "uncordon" if _IN.search(order) else "cordon" if _OUT.search(order) else ""


def _orders(names: Names, reading: OrderReading) -> bool:
    is_answer = bool(names.approvals) and reading.kind in (OrderKind.OPEN, OrderKind.SERVED)
    light = reading.kind is OrderKind.OPEN and reading.verb in verbs().kinds["light"]
    return reading.kind in (OrderKind.SERVED, OrderKind.UNSERVED) or is_answer or (light and bool(reading.object_word))


def _holds(piece: str, names: Names, reading: OrderReading) -> bool:
    """Tell whether a clause says of a thing that it stays as it is: `leave node07 out`, `not the 13b`."""
    return reading.kind is OrderKind.HOLD or bool(names_in(names) and _STAYS.match(names.masked))


def _is_pure(names: Names) -> bool:
    """Tell whether a part of a sentence only names things."""
    has_name = bool(names_in(names) or names.strangers or names.candidates or names.users)
    return has_name and _PURE.fullmatch(names.masked) is not None


def _pieces(words: str) -> list[str]:
    return [re.sub(r"^(?:but|and|then)\s+", "", piece, flags=re.IGNORECASE) for piece in _PART.split(words)]


def ordered_names(words: str, names: Names, change: str, read: Reader) -> Names | None:
    """Return names with only those that the clause which orders a change is about; None where that is not told.

    `4830 is fine, cancel 4831` orders nothing about 4830; in `4831 hangs, cancel it` the name stands before.

    Args:
        words: The whole sentence.
        names: Of it.
        change: Intent of the order.
        read: Reads a part of a sentence.
    """
    of_jobs = change in ("cancel", "recover")
    if len(names.jobs if of_jobs else names.nodes) < 2:
        return names
    readings = [read(piece) for piece in (_pieces(words))]
    orders = [place for place, (_, reading) in enumerate(readings) if (reading.kind, reading.change) == (OrderKind.SERVED, change)]
    if len(readings) < 2 or not orders:
        return names

    def objects_of(parts: Sequence[Names]) -> tuple[str, ...]:
        united = _united(parts)
        return united.jobs if of_jobs else united.nodes

    listed = [place for place, (part, _) in enumerate(readings) if place - 1 in orders and _is_pure(part) and not part.users]
    objects = objects_of([readings[place][0] for place in sorted([*orders, *listed])])
    if not objects:
        before = [objects_of([part]) for part, _ in readings[: orders[0]]]
        objects = next((part for part in reversed(before) if part), ())
        if len(objects) != 1:
            return None
    return replace(names, jobs=objects) if of_jobs else replace(names, nodes=objects)


_JOINED = re.compile(
    r"(?:\{(?:job|node|number|span|q)\}|[\s,&+/;]|\b(?:and|also|plus|then|both|as well as|as well|too|job|jobs|run|runs|node"
    r"|nodes|the|please|pls|of|user(?:'s)?|for|to|until|till)\b)*",
    re.IGNORECASE,
)


def joined_plainly(names: Names, change: str) -> bool:
    """Tell whether nothing stands between the things of an order that may set them against one another: `in favour of`, `oops`.

    Args:
        names: Of the order.
        change: Its intent.
    """
    slots = [
        match.span()
        for match in re.finditer(r"\{(?:job|number)\}" if change in ("cancel", "recover") else r"\{node\}", names.masked)
    ]
    if len(slots) < 2:
        return True
    family = verbs().change[change][0]
    between = names.masked[slots[0][1] : slots[-1][0]]
    plain = " ".join(word for word in between.split() if base_of(word.lower()) not in family)
    return _JOINED.fullmatch(plain) is not None


def orders_besides(words: str, change: str, read: Reader) -> list[str]:
    """Return clauses that order another change than the one that is taken."""
    pieces = re.split(rf"{_PART.pattern}|\s+and\s+(?=[a-z-]+\s)", words, flags=re.IGNORECASE)
    readings = [(piece, read(piece)[1]) for piece in pieces if piece] if len(pieces) > 1 else []
    return [piece.strip() for piece, reading in readings if reading.kind is OrderKind.SERVED and reading.change not in (change, "")]


def _united(parts: Sequence[Names]) -> Names:
    return Names(
        jobs=tuple(dict.fromkeys(job for part in parts for job in part.jobs)),
        nodes=tuple(dict.fromkeys(node for part in parts for node in part.nodes)),
        incidents=tuple(dict.fromkeys(number for part in parts for number in part.incidents)),
        numbers=tuple(dict.fromkeys(number for part in parts for number in part.numbers)),
        users=tuple(dict.fromkeys(user for part in parts for user in part.users)),
    )


ORDER_VERBS = {"cancel": "cancel", "recover": "restart", "cordon": "drain", "uncordon": "undrain"}
_ALIVE = ("running", "pending")
_DRAINED = ("drained", "draining")


def spared_with_users(spared: Names, inventory: NameInventory) -> Names:
    """Return what is spared with the jobs of the users that are: `except carol's`."""
    if not spared.users:
        return spared
    theirs = [job for job in inventory.jobs if inventory.owners.get(job) in spared.users]
    return replace(spared, jobs=tuple(dict.fromkeys([*spared.jobs, *theirs])))


def only_thing_left(change: str, names: Names, spared: Names, inventory: NameInventory, gate: Gate) -> str | None:
    """Return the one thing that an order for all but some is about; None where there are several, or none, or that is not known.

    Args:
        change: Its intent.
        names: Of the order without what it spares: whose jobs are meant, of which time.
        spared: What it spares.
        inventory: What exists.
        gate: Tells the states of nodes.
    """
    if names.jobs or names.nodes or names.strangers or spared.strangers or inventory.unknown:
        return None
    candidates = _candidates(change, names, spared, inventory, gate)
    return candidates[0] if len(candidates) == 1 else None


def _candidates(change: str, names: Names, spared: Names, inventory: NameInventory, gate: Gate) -> Sequence[str]:
    jobs = [
        job for job in inventory.jobs if job not in spared.jobs and (not names.users or inventory.owners.get(job) in names.users)
    ]
    if change == "cancel":
        return [job for job in jobs if inventory.states.get(job) in _ALIVE]
    if change == "recover":
        failed = [job for job in inventory.failed if job in jobs]
        return _of_span(failed, names.hours, gate)
    if change != "uncordon":
        return ()
    rows = gate.call("node_states", {}, why="which nodes are out", by=BY).value or ()
    return [str(row["node"]) for row in rows if row["state"] in _DRAINED and row["node"] not in spared.nodes]


def _of_span(jobs: Sequence[str], hours: float | None, gate: Gate) -> Sequence[str]:
    """Return jobs that ended within so many hours of the newest record; all of them where no time is named."""
    if hours is None:
        return jobs
    rows = gate.call("list_jobs", {"limit": 100_000}, why="which jobs failed in that time", by=BY).value or ()
    ends = {str(row["job"]): datetime.fromisoformat(row["ended"]) for row in rows if row["ended"]}
    newest = max(ends.values(), default=None)
    return [job for job in jobs if newest is not None and job in ends and ends[job] >= newest - timedelta(hours=hours)]
