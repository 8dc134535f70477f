"""What stands in a question before its meaning is asked: the names of what exists, keyword cues.

A cue is made of words, concepts and kinds of names that together speak for what a sentence asks for.

Only what exists in the cluster or the store is a name. Whatever looks like one and is none is handed back as a stranger, so that
the answer can say so.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from assistant.agent.descriptions import take_description
from assistant.agent.node_words import node_without_zeros, with_listed_nodes, with_short_nodes
from assistant.agent.quantities import MASK, Quantities, take_quantities
from assistant.content.reasons import reasons
from assistant.errors import NightshiftError, UsageError
from assistant.gate import Gate
from assistant.nodeset import expand
from assistant.records import JobState

WORDS = Path(__file__).parent / "words.txt"
"""Words of the sentences from which the choice of a tool was learned; training/encoder/questions.py writes them."""


class Term(NamedTuple):
    """One part of a cue."""

    any_of: frozenset[str]
    is_wanted: bool
    """False: none of them may be there."""


_ENDINGS = ("ations", "ation", "ings", "ing", "ies", "ied", "ed", "es", "s", "ly", "er")

Cue = tuple[Term, ...]


def parsed(cue: str, concepts: Set[str]) -> Cue:
    """Return a cue as its terms.

    Args:
        cue: As in knowledge/questions.toml.
        concepts: Words that stand for themselves and for all that means them; others are compared by their stem.
    """
    terms = []
    for part in cue.split():
        is_wanted = not part.startswith("-")
        words = part.lstrip("-").split("|")
        forms = {word if word.startswith("{") else stem(word) for word in words} | {word for word in words if word in concepts}
        terms.append(Term(frozenset(forms), is_wanted))
    return tuple(terms)


def strength(cues: Sequence[Cue], present: Set[str], weight: Mapping[str, float]) -> float:
    """Return how strongly cues speak for an intent, given the words and concepts that are present: the strongest counts.

    Args:
        cues: Of one intent.
        present: Stems, concepts and kinds of names of a sentence.
        weight: How telling each of them is, 0..1; 0.5 for others.
    """
    best = 0.0
    for cue in cues:
        value = 0.0
        for term in cue:
            met = term.any_of & present
            if bool(met) is not term.is_wanted:
                break
            if term.is_wanted:
                value += 0.35 if any(word.startswith("{") for word in met) else max(weight.get(word, 0.5) for word in met)
        else:
            best = max(best, value)
    return best


def stem(word: str) -> str:
    """Return a word without its usual English ending; crude, but the same for every form."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            root = word[: -len(ending)]
            root = root[:-1] if len(root) > 3 and root[-1] == root[-2:-1] and root[-1] not in "ls" else root
            return root[:-1] if root.endswith("e") and len(root) > 3 else root
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


MOST_INCIDENTS = 400
_FAILED = frozenset(str(state) for state in JobState if state.failed)


_PERSON = re.compile(r"\s*([A-Za-z][a-z]{1,20}):\s")


@dataclass(frozen=True)
class NameInventory:
    """Everything that a question may name."""

    jobs: Mapping[str, str] = field(default_factory=dict)
    """Name by id, oldest first."""
    users: frozenset[str] = frozenset()
    nodes: tuple[str, ...] = ()
    incidents: Mapping[int, str] = field(default_factory=dict)
    """Job by id of the incident; empty for a node's."""
    approvals: tuple[int, ...] = ()
    unknown: tuple[str, ...] = ()
    """What could not be asked, and why."""
    states: Mapping[str, str] = field(default_factory=dict)
    """State of each job, oldest first."""
    failed: tuple[str, ...] = ()
    """Jobs that failed, by their end, the newest first."""
    owners: Mapping[str, str] = field(default_factory=dict)
    """Account of each job."""
    persons: frozenset[str] = frozenset()
    """Names that stand before the reasons of nodes, in small letters: `bob: fan replacement`."""
    awaited: Mapping[str, int] = field(default_factory=dict)
    """Approval that waits for a change of a job, by the job."""

    def job_named(self, name: str) -> str | None:
        """Return the newest job of a name."""
        return next((job for job, called in reversed(list(self.jobs.items())) if called == name), None)


def read_inventory(gate: Gate, *, by: str = "agent") -> NameInventory:
    """Return what exists now; what does not answer is left out, and said."""
    missing: list[str] = []

    def ask(tool: str, **arguments: object) -> Sequence[Mapping[str, object]]:
        try:
            outcome = gate.call(tool, arguments, why="what a question may name", by=by)
        except NightshiftError as error:
            missing.append(f"{tool}: {error}")
            return ()
        if not outcome.ok:
            missing.append(f"{tool}: {outcome.error}")
        return outcome.value if outcome.ok and isinstance(outcome.value, list) else ()

    jobs = ask("list_jobs", limit=100_000)
    failures = sorted((job for job in jobs if job["state"] in _FAILED), key=lambda job: str(job["ended"] or ""), reverse=True)
    incidents = ask("list_incidents", limit=MOST_INCIDENTS)
    nodes, approvals = ask("node_states"), ask("list_approvals")
    return NameInventory(
        jobs={str(job["job"]): str(job["name"]) for job in reversed(jobs)},
        users=frozenset(str(job["user"]) for job in jobs if job["user"]),
        nodes=tuple(str(node["node"]) for node in nodes),
        incidents={int(str(row["incident"])): str(row["job"] or "") for row in incidents},
        approvals=tuple(int(str(row["approval"])) for row in approvals),
        unknown=tuple(missing),
        states={str(job["job"]): str(job["state"]) for job in reversed(jobs)},
        failed=tuple(str(job["job"]) for job in failures),
        owners={str(job["job"]): str(job["user"]) for job in jobs},
        persons=frozenset(match[1].lower() for node in nodes if (match := _PERSON.match(str(node["reason"])))),
        awaited={
            str(arguments["job"]): int(str(row["approval"]))
            for row in approvals
            if isinstance(arguments := row["arguments"], Mapping) and arguments.get("job")
        },
    )


_INCIDENT = re.compile(
    r"\b(?:incidents?|inc|case|ticket)s?\s{0,8}(?:no\.?|nr\.?|number|id)?\s{0,8}[#:]?\s{0,8}(\d{1,9})\b|(?<!\w)#(\d{1,9})\b", re.I
)
_APPROVAL = re.compile(
    r"\b(?:approvals?|approve|deny|reject|request|proposal|allow|permit|refuse|decline|confirm|change|proposed)"
    r"\s{0,8}(?:the\s|no\.?|number|id|request|proposal|change|approval)?\s{0,8}#?(\d{1,9})\b(?!\s*(?:nodes?|gpus?|jobs?|runs?|steps?)\b)",
    re.I,
)
_JOB = re.compile(r"\b(?:job|run|jobid|task)s?\s{0,8}(?:id|no\.?|number)?\s{0,8}[#:=]?\s{0,8}(\d[\w.+]*)", re.I)
_NODE = re.compile(r"\b(?:node|host|machine|server|worker)s?\s{1,8}(?:no\.?|number)?\s{0,8}#?(\d{1,6})\b", re.I)
_LINES = re.compile(r"\b(\d{1,5})\s*(?:log\s+)?(?:lines|rows)\b", re.I)
_QUOTED = re.compile(r"\"([^\"]{1,200})\"|'([^']{1,200})'(?!\w)|`([^`]{1,200})`|\u201c([^\u201d]{1,200})\u201d")
_SPAN = re.compile(
    r"\b(?:last|past|previous|in|within)?\s{0,8}(\d{1,4})\s{0,8}(minutes?|min|hours?|hrs?|h|days?|d|weeks?|w)\b", re.I
)
_XID = re.compile(r"\bs?xid\s{0,8}#?\s{0,8}\d{1,3}\b", re.I)
_TOKEN = re.compile(r"[A-Za-z0-9_.+-]+(?:\[[\d,/-]+\][A-Za-z0-9_.-]*)?")
_HOURS = {"m": 1 / 60, "h": 1.0, "d": 24.0, "w": 168.0}
_TIMES = (
    (
        re.compile(r"\b(?:last|over) ?night\b|\bton(?:ight|ite)\b|\bduring the night\b|\bovernight\b|\basleep\b", re.I),
        16.0,
        "the last 16 hours",
    ),
    (re.compile(r"\btoday\b|\bsince midnight\b|\bthis morning\b|\bmy shift\b", re.I), 24.0, "the last 24 hours"),
    (re.compile(r"\byesterday\b", re.I), 48.0, "the last 48 hours"),
    (re.compile(r"\b(?:this|last|past) week\b", re.I), 168.0, "the last 7 days"),
    (re.compile(r"\b(?:this|last|past) month\b", re.I), 720.0, "the last 30 days"),
    (re.compile(r"\blast hour\b|\bpast hour\b", re.I), 1.0, "the last hour"),
)
_STRANGE_NODE = re.compile(r"^(?=.*\d)[A-Za-z][\w.-]*\d$")
_STEPPED = re.compile(r"\b(?:re-?start|re-?run|re-?submit|resume|relaunch|continue|recover|checkpoints?|ckpts?|steps?)\b", re.I)
_SEARCHED = re.compile(
    r"\b(?:grep|search(?:ing)? for|look(?:ing)? for|find|count|contains?|mentions?|of the word|lines with|occurrences of)\s+"
    r"(?:the (?:word|text|string) )?([A-Za-z][\w.:-]{2,60})",
    re.I,
)
_COMMON = """
the a an in of log logs errors error all any lines job out me my its this that what why how which where there help and since from
for with within over today yesterday tonight now last per by at on to is are was were it them us you something anything everything
"""
_NEVER_SEARCHED = frozenset(_COMMON.split())


@dataclass(frozen=True)
class Names:
    """What a question names."""

    jobs: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    incidents: tuple[int, ...] = ()
    approvals: tuple[int, ...] = ()
    numbers: tuple[str, ...] = ()
    """Bare numbers that may be a job or an incident."""
    strangers: tuple[str, ...] = ()
    """What looks like a name and is none, each with what is near: `job 99 (did you mean 98?)`."""
    texts: tuple[str, ...] = ()
    """Quoted, or what is to be searched for; reasons and Xids."""
    terms: tuple[str, ...] = ()
    """Those of the texts that have a meaning of their own: reasons and Xids."""
    users: tuple[str, ...] = ()
    lines: int | None = None
    hours: float | None = None
    span: str = ""
    """How the time is told in an answer."""
    masked: str = ""
    """The question with `{job}`, `{node}`, `{incident}`, `{text}` in the place of names."""
    quantities: Quantities = field(default_factory=Quantities)
    candidates: tuple[str, ...] = ()
    """Jobs of which one is described, newest first; empty where none or a single one is."""
    sketch: str = ""
    """As `masked`, with `{q}` in the place of numbers that are no names."""
    original: str = ""
    """The question as it was typed, where that was in another language."""
    bare_numbers: tuple[int, ...] = ()
    """Numbers that are too short for the id of a job, and that no word beside them explains."""


@dataclass
class _Reading:
    """A question while it is read."""

    text: str
    jobs: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    incidents: list[int] = field(default_factory=list)
    approvals: list[int] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    bare_numbers: list[int] = field(default_factory=list)

    def take(self, pattern: re.Pattern[str], mask: str) -> list[str]:
        """Return what a pattern finds and put a mask in its place."""
        matches: list[str] = []

        def mask_match(match: re.Match[str]) -> str:
            matches.append(next((group for group in match.groups() if group), match.group()))
            return f" {mask} "

        self.text = pattern.sub(mask_match, self.text)
        return matches


def read_names(question: str, inventory: NameInventory) -> Names:
    """Return what a question names.

    Args:
        question: As from `question_of`.
        inventory: What exists.
    """
    reading = _Reading(question)
    lines = _LINES.search(question)
    reading.texts += [text for text in reading.take(_QUOTED, "{text}") if text]
    reading.text = with_listed_nodes(reading.text, inventory.nodes)
    reading.text, candidates = take_description(reading.text, inventory.jobs, inventory.owners)
    if len(candidates) == 1:
        reading.jobs.append(candidates[0])
    reading.text = _AT_WORK.sub(lambda match: _at_work(match, reading, inventory), reading.text)
    reading.text, quantities = take_quantities(reading.text, inventory.jobs)
    hours, span = _time(reading.text)
    if span:
        # `the last 12 hours` names no job 12
        reading.text = _SPAN.sub(" {span} ", reading.text)
    if lines:
        reading.text = _LINES.sub(" {n} lines ", reading.text)
    reading.texts += reading.take(_XID, "{text}")
    _jobs_by_word(reading, inventory)
    for number in reading.take(_INCIDENT, "{incident}"):
        _incident(reading, int(number), inventory)
    for number in reading.take(_APPROVAL, "approve request"):
        reading.approvals.append(int(number))
    _nodes_by_number(reading, inventory)
    reading.text = with_short_nodes(
        reading.text,
        inventory.nodes,
        lambda number: number in inventory.incidents or number in inventory.approvals or str(number) in inventory.jobs,
        reading.nodes.append,
    )
    reading.text = _TOKEN.sub(lambda match: _token(match, reading, inventory), reading.text)
    if reading.bare_numbers and _STEPPED.search(reading.text):
        quantities, reading.bare_numbers = replace(quantities, steps=(*quantities.steps, *reading.bare_numbers)), []
    sketch = " ".join(_searched(reading).split())
    return Names(
        jobs=_once(reading.jobs),
        nodes=_once(reading.nodes),
        incidents=tuple(dict.fromkeys(reading.incidents)),
        approvals=tuple(reading.approvals),
        numbers=_once(reading.numbers),
        strangers=_once(reading.strangers),
        texts=_once(reading.texts),
        terms=tuple(text for text in _once(reading.texts) if text in reasons() or _XID.fullmatch(text)),
        users=_once(reading.users),
        lines=int(lines.group(1)) if lines else None,
        hours=hours,
        span=span,
        masked=sketch.replace(MASK, "50"),
        quantities=quantities,
        candidates=candidates if len(candidates) > 1 else (),
        sketch=sketch,
        bare_numbers=tuple(reading.bare_numbers),
    )


_AT_WORK = re.compile(r"\b(\d{3,})(?= (?:run|runs)\b)")


def _at_work(match: re.Match[str], reading: _Reading, inventory: NameInventory) -> str:
    """Read `did 4821 run` as a job at work, and not as so many runs."""
    if match[1] not in inventory.jobs or (match[1].isdecimal() and int(match[1]) in inventory.incidents):
        return match[1]
    reading.jobs.append(match[1])
    return "{job}"


def _incident(reading: _Reading, number: int, inventory: NameInventory) -> None:
    if number in inventory.incidents:
        reading.incidents.append(number)
    else:
        newest = f"; the newest is {max(inventory.incidents)}" if inventory.incidents else "; there are none yet"
        reading.strangers.append(f"incident {number} is not known{newest}")


def _jobs_by_word(reading: _Reading, inventory: NameInventory) -> None:
    """Take numbers behind the word job: also those that are no job, so that it can be said."""

    def mask_match(match: re.Match[str]) -> str:
        job = match.group(1).rstrip(".")
        if job in inventory.jobs:
            reading.jobs.append(job)
        else:
            reading.strangers.append(_no_job(job, inventory))
        return " job {job} "

    reading.text = _JOB.sub(mask_match, reading.text)


def _no_job(job: str, inventory: NameInventory) -> str:
    """Return how it is told that a number is no job; a scheduler that does not answer has not said so."""
    if inventory.unknown and not inventory.jobs:
        return f"whether there is a job {job} is not known now: {inventory.unknown[0]}"
    near = difflib.get_close_matches(job, inventory.jobs, n=2, cutoff=0.6)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"job {job} is unknown to the scheduler{hint}"


def _no_node(node: str, inventory: NameInventory) -> str:
    if inventory.unknown and not inventory.nodes:
        return f"whether there is a node {node} is not known now: {inventory.unknown[-1]}"
    near = difflib.get_close_matches(node, inventory.nodes, n=1, cutoff=0.5)
    return f"node {node} is unknown to the scheduler" + (f"; did you mean {near[0]}?" if near else "")


def _nodes_by_number(reading: _Reading, inventory: NameInventory) -> None:
    def mask_match(match: re.Match[str]) -> str:
        number = int(match.group(1))
        matching = [
            node for node in inventory.nodes if (tail := re.search(r"(?<!\d)(\d+)$", node)) and int(tail.group(1)) == number
        ]
        if len(matching) != 1:
            reading.strangers.append(f"node {match.group(1)} is no node that the scheduler knows")
            return " {node} "
        reading.nodes.append(matching[0])
        return " {node} "

    reading.text = _NODE.sub(mask_match, reading.text)


def _token(match: re.Match[str], reading: _Reading, inventory: NameInventory) -> str:
    word = match.group()
    bare = word.rstrip(".-+")
    low = {node.lower(): node for node in inventory.nodes}
    if bare in inventory.jobs and bare.isdecimal() and int(bare) in inventory.incidents:
        reading.numbers.append(bare)
        return "{number}"
    if bare in inventory.jobs:
        reading.jobs.append(bare)
        return "{job}"
    if bare.lower() in low:
        reading.nodes.append(low[bare.lower()])
        return "{node}"
    if "[" in bare or "," in bare:
        return _node_set(bare, reading, inventory)
    by_itself = not bare.isdecimal() or (bool(reading.nodes) and not match.string.startswith(":", match.end()))
    if by_itself and (node := node_without_zeros(bare, inventory.nodes)):
        reading.nodes.append(node)
        return "{node}"
    job = inventory.job_named(bare) if len(bare) > 2 else None
    if job is not None:
        reading.jobs.append(job)
        return "{job}"
    owner = next((user for user in inventory.users if bare.lower() in (user.lower(), f"{user.lower()}s")), "")
    if owner:
        reading.users.append(owner)
        return "user"
    if bare.lower() in reasons():
        reading.texts.append(bare.lower())
        return "{text}"
    if bare.isdecimal():
        if int(bare) in inventory.incidents:
            reading.numbers.append(bare)
            return "{number}"
        if len(bare) >= 3 and len(bare) < min((len(job) for job in inventory.jobs if job.isdecimal()), default=0):
            reading.bare_numbers.append(int(bare))
            return MASK
        if len(bare) >= 3:
            reading.strangers.append(_no_job(bare, inventory))
            return "{job}"
    elif _STRANGE_NODE.match(bare) and _like_a_node(bare, inventory.nodes):
        reading.strangers.append(_no_node(bare, inventory))
        return "{node}"
    return word


def _like_a_node(word: str, nodes: Sequence[str]) -> bool:
    """Tell whether a word is formed as the nodes are: the same letters before the number."""
    stem = re.sub(r"(?<!\d)\d+$", "", word).lower()
    return any(re.sub(r"(?<!\d)\d+$", "", node).lower() == stem for node in nodes) or stem.rstrip("-_") in (
        "node",
        "gpu",
        "host",
        "nid",
    )


def _node_set(word: str, reading: _Reading, inventory: NameInventory) -> str:
    try:
        names = expand(word)
    except UsageError:
        return word
    existing = [name for name in names if name in inventory.nodes]
    missing = [name for name in names if name not in inventory.nodes]
    reading.nodes += existing
    if missing:
        reading.strangers.append(f"{len(missing)} of {len(names)} nodes of {word} are unknown, for instance {missing[0]}")
    return "{node}"


def _searched(reading: _Reading) -> str:
    if reading.texts or "{text}" in reading.text:
        return reading.text
    match = _SEARCHED.search(reading.text)
    if match and match.group(1).lower() not in _NEVER_SEARCHED and "{" not in match.group(1):
        reading.texts.append(match.group(1))
        return reading.text[: match.start(1)] + "{text}" + reading.text[match.end(1) :]
    return reading.text


def _time(question: str) -> tuple[float | None, str]:
    match = _SPAN.search(question)
    if match:
        hours = int(match.group(1)) * _HOURS[match.group(2)[0].lower()]
        return hours, f"the last {match.group(1)} {match.group(2)}"
    return next(((hours, phrase) for pattern, hours, phrase in _TIMES if pattern.search(question)), (None, ""))


def _once(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
