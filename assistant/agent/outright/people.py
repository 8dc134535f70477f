"""Jobs of somebody: what they have, that they have none, and that nobody of that name is known."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from assistant.agent.answer import count_text, one_line
from assistant.agent.coverage import vocabulary
from assistant.agent.dialogue import QuestionTurn
from assistant.agent.outright.sentence import OutrightReading, OutrightSentence
from assistant.agent.tell_jobs import ALL_JOBS, FAILED
from assistant.agent.tell_jobs import failed as not_answered
from assistant.agent.words import NameInventory
from assistant.nodeset import fold

MOST_ROWS = 10
_JOBS = r"(?:jobs?|runs?|trainings?|tasks?|experiments?)"
_NAME = r"(?P<name>[a-z][a-z-]{1,30}?)"
_PLACES = (
    re.compile(rf"\b{_JOBS} (?:of|by|from|belonging to) (?:user )?{_NAME}\b(?!')"),
    re.compile(rf"\b{_NAME}(?:'s|s'|s) (?:[a-z-]+ )?{_JOBS}\b"),
    re.compile(rf"\bwhat(?: ?'?s| is| does| did| has)? {_NAME}(?: \w+)? (?:running|run|doing|up to|have|got|submit\w*)\b"),
    re.compile(
        rf"\b(?:has|does|did|is|have|had) {_NAME} (?:have |has |got |own |submit\w* |still |currently |now )*"
        rf"(?:any |some |a )?(?:{_JOBS}|anything|something|running|run)\b"
    ),
    re.compile(rf"\bwhich {_JOBS} (?:has|does|did|is) {_NAME} (?:have|has|got|run|running|own|submit\w*)?\b"),
    re.compile(rf"\b(?:user|account) {_NAME}\b"),
)
"""Places in which a name of a person stands."""
ALONE = re.compile(rf"^\W*(?:(?:and|or|what about|how about|what of|now|then)\s+)*{_NAME}(?:'s|s'|s)?(?: {_JOBS})?\W*$")
"""`and daves`: somebody's name and no more."""
_NO_NAMES = frozenset(
    """
    you i we they he she it the a an any all my our your their his her this that these those which what there job jobs run runs
    node nodes today tonight yesterday it's everybody anybody somebody someone anyone everyone nobody nightshift slurm scheduler
    cluster partition user users failed running pending waiting last only just mine ours yours theirs since gpu ray dask
    """.split()
)
_ALLOWED = frozenset(
    """
    user user's s jobs job run runs running trainings training task tasks pending waiting queued failed cancelled canceled
    completed finished any anything something a the all of by from has have does do did is are was got currently right now still
    at moment show list me us what which there and out going active give print see display please ok so the's today's alive
    experiments experiment own owned belongs to belong can you i want let please
    """.split()
)
_STATES = (
    ("failed", r"\bfailed\b"),
    ("running", r"\brun(?:ning)?\b|\bactive\b|\balive\b|\bgoing\b"),
    ("pending", r"\bpending\b|\bwaiting\b|\bqueued\b"),
    ("cancelled", r"\bcancell?ed\b"),
    ("completed", r"\bcompleted\b|\bfinished\b"),
)


def unknown_person(words: str, inventory: NameInventory, *, alone: bool = False) -> str:
    """Return the name of somebody of whom a question asks and who has no job; empty where there is none.

    Args:
        words: In English.
        inventory: What exists.
        alone: Whether the name alone may stand there, as in a follow-up.
    """
    text = words.lower().replace("\u2019", "'")
    for pattern in (*_PLACES, *((ALONE,) if alone else ())):
        for match in pattern.finditer(text):
            name = str(match["name"])
            if match.end() > match.end("name") and match.string[match.end("name")] == "s" and f"{name}s" in vocabulary() | _ALLOWED:
                continue  # `does`, `runs`: no genitive
            if _is_person(name, inventory) and name not in inventory.users and f"{name.removesuffix('s')}" not in inventory.users:
                return name
    return ""


def _is_person(name: str, inventory: NameInventory) -> bool:
    if name in _NO_NAMES or name in inventory.jobs.values() or len(name) < 2:
        return False
    return name in inventory.persons or (name not in vocabulary() and len(name) > 2)


def read_person(sentence: OutrightSentence) -> OutrightReading | None:
    """Read a question about the jobs of somebody."""
    asks = re.match(r"^\W*(?:\w+ )?(?:has|have|does|do|did|is|are|any)\b", sentence.text) is not None
    if sentence.inventory.unknown and not sentence.inventory.jobs:
        return None
    if not sentence.names.users and sentence.names_nothing:
        name = unknown_person(sentence.words, sentence.inventory)
        if name and not sentence.says(r"\b(?:restart|cancel|kill|stop|drain|approve|deny|tell|ask)\b"):
            return OutrightReading(partial(nobody_told, name=name, asks=asks), "list_jobs")
    if len(sentence.names.users) != 1 or not (sentence.names_nothing or sentence.names.candidates):
        return None
    text = sentence.text.replace("{jb}", "user job")
    if set(re.findall(r"[a-z']+", text)) - _ALLOWED or not re.search(rf"\b(?:{_JOBS}|anything|something|running)\b", text):
        return None
    return OutrightReading(partial(jobs_told, users=sentence.names.users, text=text, asks=asks), "list_jobs")


def nobody_told(turn: QuestionTurn, name: str, asks: bool) -> Iterator[str]:
    """Tell that no job of somebody is known, and where the name stands else."""
    jobs = turn.look("list_jobs", limit=ALL_JOBS)
    if jobs.error:
        yield not_answered(turn, jobs)
        return
    nodes = turn.look("node_states")
    notes = [row for row in nodes.value or () if re.match(rf"\s*{re.escape(name)}\b", str(row["reason"]).lower())]
    users = ", ".join(sorted({str(row["user"]) for row in jobs.value if row["user"]}))
    doubt = "" if notes else f"{name} is not known here: "
    yield (
        f"{'No: ' if asks else ''}{doubt}{'no' if asks or doubt else 'No'} job of {name} is among those that the scheduler knows"
        f" [{jobs.number}]; they are of {users}."
    )
    for row in notes[:2]:
        yield f"The name stands on {row['node']}, which is {row['state']}: {one_line(row['reason'], 120)} [{nodes.number}]."


def jobs_told(turn: QuestionTurn, users: Sequence[str], text: str, asks: bool) -> Iterator[str]:
    """Tell the jobs of a user, of one state where one is asked for."""
    jobs = turn.look("list_jobs", limit=ALL_JOBS)
    if jobs.error:
        yield not_answered(turn, jobs)
        return
    mark, of = f"[{jobs.number}]", f" of {', '.join(users)}"
    rows = [row for row in jobs.value if row["user"] in users]
    noun_run = re.search(r"\b(?:running|active|alive|going|run)\b(?! of)|\bwhat .*\brun(?:ning)?\b", text)
    state = next((name for name, pattern in _STATES if (noun_run if name == "running" else re.search(pattern, text))), "")
    hits = [row for row in rows if not state or (row["state"] in FAILED if state == "failed" else row["state"] == state)]
    counts = Counter("failed" if row["state"] in FAILED else row["state"] for row in rows)
    summary = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    noun = f"{'job' if len(hits) == 1 else 'jobs'}{of}"
    names = ": " + ", ".join(row["job"] for row in hits[:6]) if hits else ""
    if asks and not hits:
        besides = f"; {count_text(len(rows), 'job')}{of}: {summary}" if rows else ""
        yield f"No: no{f' {state}' if state else ''} job{of} is known {mark}{besides}."
    elif asks:
        yield f"Yes: {len(hits)}{f' {state}' if state else ''} {noun} {mark}{names}."
    elif state:
        yield f"{len(hits) or 'No'} {state} {noun} {mark}{names}; in all {len(rows)}: {summary}."
    else:
        yield f"{count_text(len(rows), 'job')}{of}: {summary} {mark}."
    for row in (hits or rows)[:MOST_ROWS]:
        nodes = fold(row["nodes"]) or "-"
        yield f"  {row['job']}  {one_line(row['name'], 40)}  {row['user']}  {row['state']}  {nodes}"
