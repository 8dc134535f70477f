"""Questions that count, sum, compare or order jobs and incidents, read from a sentence: what of, which of them, grouped by what."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from assistant.agent.quantities import Bound
from assistant.agent.words import Names
from assistant.content.reasons import reasons

_INCIDENTS = re.compile(r"\b(?:incidents?|cases|tickets)\b")
_JOBS = re.compile(
    r"\b(?:jobs?|runs?|trainings?|experiments?|failures?|crash(?:es)?|crashed|failed|died|steps|(?:gpu|node|machine)[ -]?hours)\b"
)
_GROUP = re.compile(
    r"\b(?:per|by|for (?:each|every)|each|every|grouped by|broken down by|split by)\s+"
    r"(user|owner|person|people|reason|cause|state|status|partition|day|name)s?\b"
)
_MOST = re.compile(
    r"\b(?:which|what|whose|who)\b\s*(?:is (?:the )?)?(user|owner|person|reason|cause|partition|day|one|of us)?.*?"
    r"\b(most|fewest|least|often|commonest)\b"
    r"|\bmost (?:common|frequent|often)\s+(reason|cause|user|failure)s?\b"
)
_GROUPS = {
    "owner": "user",
    "person": "user",
    "people": "user",
    "one": "user",
    "of us": "user",
    "cause": "reason",
    "status": "state",
    "failure": "reason",
}
_NODE_HOURS = re.compile(
    r"\b(?:gpu|node|machine|compute)[ -]?(?:hours?|time)\b|\bhours\b.*\b(?:lost|wasted|burn(?:ed|t)|used|consumed)\b"
)
_STEPS_LOST = re.compile(r"\b(?:steps|work)\b.*\b(?:lost|lose|wasted|again|redone|repeated)\b|\b(?:lost|wasted)\b.*\bsteps\b")
_AVERAGE = re.compile(r"\b(?:average|averages|on average|mean (?:time|duration|run)|median)\b")
_EXTREME = re.compile(
    r"\b(longest|shortest|newest|latest|most recent|last|oldest|earliest|first|biggest|largest|smallest)\b"
    r"(?:[ -](?:running|run|failed|pending|waiting|open|finished|cancelled|completed))*"
    r"\s+(?:user's? |\{q\} )?(?:job|run|training|failure|crash|incident|one)s?\b"
)
_WAITED = re.compile(r"\b(?:wait|waits|waited|waiting|queue|queued) (?:time|the longest|longest|longer)\b|\blongest wait\b")
_PARTITION = re.compile(r"\b(?:in|on|of) (?:the )?partition ([a-z][\w-]*)\b|\b(?:in|on) (?:the )?([a-z][\w-]*) partition\b")
_HOW_MANY = re.compile(r"\b(?:how many|number of|count (?:of|the)|total)\b")
_STATES = (
    ("failed", re.compile(r"\b(?:fail(?:ed|ures?|s)?|crash(?:ed|es)?|died|dead|broke|broken|lost|wasted)\b")),
    ("running", re.compile(r"\b(?:running|active|runs now)\b")),
    ("pending", re.compile(r"\b(?:pending|queued|waiting|waits|wait)\b")),
    ("cancelled", re.compile(r"\bcancell?ed\b")),
    ("completed", re.compile(r"\b(?:completed|finished|succeeded|done)\b")),
)
_HAPPENED = re.compile(r"\b(?:happen(?:ed|s)?|went wrong|opened|occurred|going on)\b")
_LISTS = re.compile(r"\W*(?:which|what|list|show|any|all|jobs|runs)\b")
_STATE_WORDS = frozenset({"cancelled", "preempted", "killed", "no_failure", "unknown"})
"""Reasons that are words for a state, or for none."""
_OPEN = re.compile(r"\b(?:open|unresolved|unfinished|active)\b")
_DAYS = re.compile(r"\b(?:nodes?|machines?)\b")


@dataclass(frozen=True)
class RecordQuery:
    """What of the jobs or incidents is asked for."""

    view: str
    """`jobs` or `incidents`."""
    measure: str = "count"
    """`count`, `node_hours`, `duration`, `wait`, `nodes`, `steps_lost`, `age`."""
    statistic: str = ""
    """`average`, `most`, `least`; empty for the sum or the list itself."""
    group: str = ""
    """`user`, `reason`, `state`, `partition`, `day`, `name`."""
    state: str = ""
    partition: str = ""
    reasons: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    bounds: tuple[Bound, ...] = ()
    clock: tuple[str, str, str] = ("", "", "")
    hours: float | None = None
    span: str = ""
    top: int = 1
    covers: frozenset[str] = field(default_factory=frozenset)
    """Names of attributes, and texts of bounds, that its answer tells."""


def read_query(names: Names) -> RecordQuery | None:
    """Return what a question asks of all jobs or incidents; None for a question of another kind."""
    text = names.sketch.lower()
    if names.jobs or names.incidents or names.numbers or names.nodes:
        return None
    view = "incidents" if _INCIDENTS.search(text) else "jobs"
    named_reasons = tuple(term for term in names.terms if term in reasons() and term not in _STATE_WORDS)
    partition = next((match[1] or match[2] for match in [_PARTITION.search(text)] if match), "")
    bounds = tuple(bound for bound in names.quantities.bounds if bound.unit == "h" or _DAYS.fullmatch(bound.unit))
    measure, statistic = _measure(text)
    group = _group(text)
    is_counted = bool(_HOW_MANY.search(text)) and (named_reasons or partition or names.quantities.clock[2])
    if names.quantities.clock[2] and _HAPPENED.search(text):
        view = "incidents"
    is_listed = bool(bounds or partition or named_reasons or names.quantities.clock[2]) and _LISTS.match(text)
    if not (_JOBS.search(text) or view == "incidents") or not (group or statistic or measure != "count" or is_counted or is_listed):
        return None
    if named_reasons and re.search(r"\bmean(?:s|ing)?\b|\bwhat is\b", text):
        return None
    state = next((name for name, pattern in _STATES if pattern.search(text)), "")
    if view == "incidents":
        state = "open" if _OPEN.search(text) else ""
    covers = {"an average", "times between failures and availability"} if statistic == "average" else set()
    covers |= (
        {bound.text for bound in bounds} | {names.quantities.clock[2], names.span} | {f"only of {user}" for user in names.users}
    )
    return RecordQuery(
        view, measure, statistic, group, state, partition, named_reasons, names.users, bounds, names.quantities.clock,
        names.hours, names.span, names.quantities.top or 1, frozenset(covers),
    )  # fmt: skip


def _measure(text: str) -> tuple[str, str]:
    """Return what is measured, and which statistic of it."""
    if _STEPS_LOST.search(text):
        return "steps_lost", ""
    if _NODE_HOURS.search(text):
        return "node_hours", ""
    if _AVERAGE.search(text):
        return ("wait" if _WAITED.search(text) else "duration"), "average"
    if _WAITED.search(text) and "longest" in text:
        return "wait", "most"
    match = _EXTREME.search(text)
    if match is None:
        return "count", ""
    word = match[1]
    if word in ("longest", "shortest"):
        return "duration", "most" if word == "longest" else "least"
    if word in ("biggest", "largest", "smallest"):
        return "nodes", "least" if word == "smallest" else "most"
    return "age", "most" if word in ("oldest", "earliest", "first") else "least"


def _group(text: str) -> str:
    if match := _GROUP.search(text):
        return _GROUPS.get(match[1], match[1])
    match = _MOST.search(text)
    if match is None or re.search(r"\bmost recent\b", text):
        return ""
    word = match[1] or match[3] or ("user" if re.match(r"\W*(?:who|whose)\b", text) else "")
    return _GROUPS.get(word, word)


def orders_groups(text: str) -> str:
    """Return `least` where the smallest group is asked for, else `most`, and empty where all groups are."""
    match = _MOST.search(text)
    if match is None:
        return ""
    return "least" if match[2] in ("fewest", "least") else "most"
