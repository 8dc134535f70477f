"""The playbooks: what to do about a diagnosis, one TOML file each in playbooks/, with the fixtures that play them.

There is no expression language. `{a.b.c}` is a path into the incident, the diagnosis, the job, or the value of an earlier step;
a text that is nothing but one such path keeps the type of what it finds. `when` holds one path: the step is taken when what it
finds is not empty. `unless` holds one or a list: it is not taken when one of them finds something. `each` repeats a step for every
item of a list, as `{item}`.

A fixture is played on the simulated cluster: what a job does there, and what must come of it. Plain data: `cli/playbooks.py`
turns it into a cluster, an engine and a job. The keys of a run are those of the simulated cluster's.

    [fixture.cluster]
    runs    = [{ fails_at = 50, only_on = "node02", lines = ["..."] }]
    happens = [{ after_s = 20, what = "cordon node03" }]
    changes = ["cordon node02", "submit 2"]
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from assistant.content.reading import build, content_files, read_toml, wrong
from assistant.errors import ContentError
from assistant.records import Action, Category, Diagnosis, IncidentState, JobState

DRIVER = "driver"
"""What the playbook handles that starts a job again which gave up because of a job that it had submitted."""
HAPPENINGS = {
    "ask": "a job id: a person asks for help with it, where no watch would notice anything",
    "submit": "a job id: its owner submits the same again",
    "slow": "a job id: somebody measured that it has become slow",
    "cancel": "a job id: a person ends it",
    "requeue": "a job id: the scheduler puts it back in the queue, after a preemption",
    "cordon": "a node: a person takes it out",
    "down": "a node: it dies, with the job on it",
    "up": "a node: it comes back",
    "storage_away": "nothing: the checkpoint folder does not answer",
    "storage_back": "nothing: it answers again",
    "scheduler_away": "nothing: the scheduler does not answer",
    "scheduler_back": "nothing: it answers again",
}
"""What may happen that is not the job's doing, and what stands behind the word."""


@dataclass(frozen=True)
class FixtureRun:
    """What one submission of the job does; all keys as in the simulated cluster's `SimulatedRun`."""

    steps: int = 100
    """Last step of the whole training; a step takes a second."""
    save_every: int = 20
    cut: tuple[int, ...] = ()
    """Steps whose checkpoints are damaged."""
    fails_at: int | None = None
    """The step after which it ends badly."""
    hangs_at: int | None = None
    """The step after which nothing happens any more."""
    spikes_at: int | None = None
    """The step from which the loss is high, unless its samples are skipped."""
    lines: tuple[str, ...] = ()
    """What the log says when it ends badly, or at `says_at`."""
    says_at: int | None = None
    """The step after which the log says them while training goes on."""
    kernel: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Lines for the kernel logs of nodes then."""
    downs: str | None = None
    """The node that dies then."""
    only_on: str | None = None
    """Ends badly only when this node is among its own."""
    state: JobState = JobState.FAILED
    exit_code: int | None = 1
    signal: int | None = None

    def __post_init__(self) -> None:
        if self.steps < 1 or self.save_every < 1:
            raise ValueError(f"a run makes and saves steps: steps = {self.steps}, save_every = {self.save_every}")
        for key in ("fails_at", "hangs_at", "spikes_at", "says_at"):
            step = getattr(self, key)
            if step is not None and not 0 <= step <= self.steps:
                raise ValueError(f"{key} = {step} is no step of a run with steps = {self.steps}")
        if not self.state.ended:
            raise ValueError(f"state = {self.state} is no end of a run")


@dataclass(frozen=True)
class Happening:
    """Something that a person, the scheduler or the machines do."""

    what: str
    """A word of `HAPPENINGS` and what it is about: `cancel 1`, `cordon node03`, `storage_away`."""
    after_s: float = 0.0
    """Seconds after the job was submitted."""

    def __post_init__(self) -> None:
        needs = HAPPENINGS.get(self.word)
        if needs is None:
            raise ValueError(f"what = {self.what!r} begins with none of: {', '.join(HAPPENINGS)}")
        if bool(self.about) is needs.startswith("nothing") or " " in self.about:
            raise ValueError(f"what = {self.what!r}: behind {self.word} stands {needs.partition(':')[0]}")

    @property
    def word(self) -> str:
        """The first word of the change: `cordon`, `submit` and the like."""
        return self.what.partition(" ")[0]

    @property
    def about(self) -> str:
        """The job or node that it happens to; empty for storage and scheduler."""
        return self.what.partition(" ")[2]


@dataclass(frozen=True)
class ClusterFixture:
    """A job on the simulated cluster, and what must come of it; how its incident ends stands in the fixture."""

    runs: tuple[FixtureRun, ...]
    """What each submission of the job does; the last one repeats, `{}` trains to its end."""
    changes: tuple[str, ...]
    """What Nightshift changed on the cluster, in order: "cordon node02", "cancel 1", "submit 2"."""
    note: str = ""
    """Words that the note of the first incident must contain."""
    later: tuple[IncidentState, ...] = ()
    """How the incidents after the first ended."""
    restart_step: int | None = None
    """Step that the last submission began with."""
    excluded: tuple[str, ...] | None = None
    """Nodes that the last submission stays away from."""
    skipped: tuple[int, ...] | None = None
    """First step whose data the last submission leaves out, and the first one that counts again."""
    happens: tuple[Happening, ...] = ()
    nodes: int = 8
    """Of the cluster: node01, node02, …"""
    job_nodes: int = 2
    """Of the job; it gets the first ones that are free."""
    time_limit_s: int | None = None
    directives: str = ""
    """More for the script's `#NIGHTSHIFT` line: "act=never restarts=1"."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("runs names no run: say what the job does")
        if not 1 <= self.job_nodes <= self.nodes:
            raise ValueError(f"job_nodes = {self.job_nodes} do not fit on nodes = {self.nodes}")
        names = self.node_names
        unknown = [node for node in self._named_nodes() if node not in names]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is none of {names[0]} to {names[-1]}")

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of the cluster's nodes, in order."""
        return tuple(f"node{number:02}" for number in range(1, self.nodes + 1))

    def _named_nodes(self) -> Iterator[str]:
        for run in self.runs:
            yield from (node for node in (run.only_on, run.downs) if node is not None)
            yield from run.kernel
        yield from (happening.about for happening in self.happens if HAPPENINGS[happening.word].startswith("a node"))


ROOTS = ("incident", "diagnosis", "job", "run", "directives", "item")
"""First words of a path that always exist; every step adds its own name."""

REFERENCE = re.compile(r"\{([^{}]*)\}")
PATH = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*")
CONDITION = re.compile(r"\{[^{}]*\}")
NAME = re.compile(r"[a-z][a-z0-9_]*")


class PlaybookEnding(StrEnum):
    """How a playbook ends when every step went well."""

    RECOVERED = "recovered"
    ESCALATED = "escalated"
    """A person has what they need and must go on."""
    CLOSED = "closed"
    """Nothing had to be done."""


@dataclass(frozen=True)
class PlaybookLimits:
    """How often a playbook may restart for the same root cause."""

    attempts: int = 3
    within_h: float = 24.0
    backoff_min: float = 5.0
    """Between the first restart and the second; twice as long before each further one."""

    def __post_init__(self) -> None:
        if self.attempts < 0 or self.within_h <= 0 or self.backoff_min < 0:
            raise ValueError(f"limits must be positive: attempts = {self.attempts}, within_h = {self.within_h}")


@dataclass(frozen=True)
class Step:
    """One call of a tool."""

    use: str
    """Name of the tool."""
    why: str = ""
    name: str = ""
    """How later steps refer to its value; the tool's name when not given."""
    with_: Mapping[str, object] = field(default_factory=dict)
    """Arguments; `with` in the file."""
    when: str = ""
    unless: tuple[str, ...] = ()
    """Paths, each of which keeps the step from being taken where it finds something; in the file one text or a list."""
    each: str = ""
    """Path to a list: once for every item. The value is then the list of values."""
    optional: bool = False
    """Whether the playbook goes on when the step fails (evidence that is nice to have)."""
    await_answer: bool = True
    """Whether the playbook waits where the policy asks a person. False goes on meanwhile with what the policy lets it do alone, as
    if the step had failed; the call is made once they say yes."""
    then: PlaybookEnding | None = None
    """Ends the playbook here, when the step was taken."""
    expect: str = ""
    """Makes it a step that waits: its tool is asked again and again until its value has this `status`, as in a verify."""
    within_min: float = 30.0
    """How long a step with `expect` waits; then it failed."""

    def __post_init__(self) -> None:
        if not self.await_answer and not self.optional:
            raise ValueError("await_answer = false goes on without the step, so it needs optional = true")


@dataclass(frozen=True)
class Verify:
    """A reading call that must come to say `expect`, looked at again and again."""

    use: str
    expect: str
    """The `status` that its value must have; `waiting` means look again, anything else is a failure."""
    name: str = ""
    why: str = ""
    with_: Mapping[str, object] = field(default_factory=dict)
    when: str = ""
    within_min: float = 30.0

    def __post_init__(self) -> None:
        if self.within_min <= 0:
            raise ValueError(f"within_min must be above 0, not {self.within_min}")


@dataclass(frozen=True)
class Fixture:
    """A situation and what the playbook must do in it: either rehearsed with `calls`, or played with `cluster`."""

    name: str
    reason: str
    ends: PlaybookEnding
    """Of the job's first incident."""
    calls: tuple[str, ...] | None = None
    """Names of the tools expected, in order, `verify` included; a repeated look counts once."""
    cluster: ClusterFixture | None = None
    """What a job does on the simulated cluster, and what must come of it; then there is nothing to answer."""
    action: Action | None = None
    faulty_nodes: tuple[str, ...] = ()
    values: Mapping[str, object] = field(default_factory=dict)
    """More of what paths find: `run = { long = "yes" }`."""
    answers: Mapping[str, object] = field(default_factory=dict)
    """Value of each step by name; a step without one answers an empty table, a verify what it expects."""
    fails: tuple[str, ...] = ()
    """Steps whose call fails."""
    arguments: Mapping[str, object] = field(default_factory=dict)
    """Arguments that the named steps must have been called with (others may be there too)."""

    def __post_init__(self) -> None:
        if (self.calls is None) == (self.cluster is None):
            raise ValueError(f"fixture {self.name!r} needs either calls, to be rehearsed, or cluster, to be played there")
        answer_keys = [key for key in ("values", "answers", "fails", "arguments") if getattr(self, key)]
        if self.cluster is not None and answer_keys:
            raise ValueError(
                f"fixture {self.name!r} is played on the cluster, which gives the answers: leave out {', '.join(answer_keys)}"
            )


@dataclass(frozen=True)
class Playbook:
    """A procedure for a family of failures."""

    title: str
    handles: tuple[str, ...]
    """Reasons, actions or categories."""
    step: tuple[Step, ...] = ()
    verify: tuple[Verify, ...] = ()
    fixture: tuple[Fixture, ...] = ()
    actions: tuple[Action, ...] = ()
    """Where not empty: only for a diagnosis with one of these actions."""
    limits: PlaybookLimits = PlaybookLimits()
    ends: PlaybookEnding = PlaybookEnding.RECOVERED
    name: str = ""
    """Name of the file, without `.toml`."""
    path: Path = Path()
    digest: str = ""
    """Of the file's bytes: an incident keeps it, so that a changed playbook is noticed."""
    shipped: bool = True

    @property
    def restarts(self) -> bool:
        """Whether it can submit a job."""
        return any(step.use == "resubmit_job" for step in self.step)

    @property
    def can_move(self) -> bool:
        """Whether it submits a job to other nodes when the restart before did not hold: that is another theory."""
        return any(step.use == "resubmit_job" and "not_all_of" in step.with_ for step in self.step)

    @property
    def entries(self) -> tuple[Step | Verify, ...]:
        """Steps, then verifies, in the order in which they are taken."""
        return (*self.step, *self.verify)

    def line(self, number: int) -> int:
        """Return the 1-based line on which an entry's table begins; 1 when the file is gone."""
        area, place = ("step", number) if number < len(self.step) else ("verify", number - len(self.step))
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.is_file() else []
        heads = [n for n, text in enumerate(lines, 1) if re.match(rf"\s*\[\[\s*{area}\s*\]\]", text)]
        return heads[place] if place < len(heads) else 1


def references(value: object) -> Iterator[str]:
    """Yield every path that stands in braces, anywhere in a value."""
    if isinstance(value, str):
        yield from REFERENCE.findall(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from references(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from references(item)


def read_playbook(path: Path, *, shipped: bool = False) -> Playbook:
    """Read one playbook.

    Raises:
        ContentError: It is malformed; the message names file, line and key.
    """
    table = _with_step_names(_with_renamed(read_toml(path), path), path)
    for key in ("name", "path", "digest", "shipped"):
        if key in table:
            raise wrong(path, key, "is not written down: it comes from the file itself")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    playbook = build(Playbook, {**table, "name": path.stem, "digest": digest, "shipped": shipped, "path": str(path)}, path)
    _check_names(playbook)
    _check_references(playbook)
    return playbook


def _with_renamed(table: dict[str, Any], path: Path) -> dict[str, Any]:
    """Rename `with`, a word of Python, in every step and verify, and make a list of an `unless` that is one text."""
    for area in ("step", "verify"):
        for number, entry in enumerate(table.get(area, []) if isinstance(table.get(area, []), list) else []):
            if not isinstance(entry, dict):
                raise wrong(path, area, f"must be a table, not {entry!r}", occurrence=number)
            if "with_" in entry:
                raise wrong(path, "with_", "unknown key; did you mean 'with'?")
            if isinstance(entry.get("unless"), str):
                entry["unless"] = [entry["unless"]]
            if "with" in entry:
                if not isinstance(entry["with"], dict):
                    raise wrong(path, "with", f"must be a table, not {entry['with']!r}", occurrence=number)
                entry["with_"] = entry.pop("with")
    return table


def _with_step_names(table: dict[str, Any], path: Path) -> dict[str, Any]:
    """Give each step its tool's name where it has none."""
    for area in ("step", "verify"):
        entries = table.get(area, [])
        if not isinstance(entries, list):
            raise wrong(path, area, f"is a list of tables: write [[{area}]]")
        for entry in entries:
            entry.setdefault("name", entry.get("use", ""))
    return table


def _check_names(playbook: Playbook) -> None:
    used_names: set[str] = set()
    for number, entry in enumerate(playbook.entries):
        location = f"{playbook.path}:{playbook.line(number)}: name"
        if not NAME.fullmatch(entry.name) or entry.name in ROOTS:
            raise ContentError(f"{location}: {entry.name!r} must be a small-letter word that is none of: {', '.join(ROOTS)}")
        if entry.name in used_names:
            raise ContentError(f"{location}: {entry.name!r} is used twice; give one of the steps another `name`")
        used_names.add(entry.name)


def _check_references(playbook: Playbook) -> None:
    """Every path must begin with a root or an earlier step."""
    known_names = set(ROOTS) - {"item"}
    for number, entry in enumerate(playbook.entries):
        repeated = entry.each if isinstance(entry, Step) else ""
        conditions = [entry.when, *entry.unless, repeated] if isinstance(entry, Step) else [entry.when]
        for condition in filter(None, conditions):
            if not CONDITION.fullmatch(condition):
                raise _reference_error(playbook, number, condition, "is no condition: exactly one path in braces")
        if isinstance(entry, Step) and entry.expect and repeated:
            raise _reference_error(playbook, number, repeated, "repeats the step, and expect waits in it: only one of both")
        for path in references([*conditions, dict(entry.with_), entry.why]):
            if not PATH.fullmatch(path):
                raise _reference_error(playbook, number, path, "is no path: only {path.to.value} is known, no expressions")
            if path.split(".")[0] not in known_names | ({"item"} if repeated else set()):
                raise _reference_error(playbook, number, path, f"finds nothing; known here: {', '.join(sorted(known_names))}")
        known_names.add(entry.name)


def _reference_error(playbook: Playbook, number: int, reference: str, why: str) -> ContentError:
    lines = playbook.path.read_text(encoding="utf-8").splitlines()
    first = playbook.line(number)
    line = next((n for n, text in enumerate(lines, 1) if n >= first and reference in text), first)
    key = lines[line - 1].split("=")[0].strip()
    return ContentError(f"{playbook.path}:{line}: {key}: {reference!r} {why}")


@cache
def playbooks(site: Path | None = None) -> Mapping[str, Playbook]:
    """Return every playbook by name; a file of the site replaces a shipped one of the same name.

    Raises:
        ContentError: One is malformed.
    """
    own = site / "playbooks" if site is not None else None
    return {path.stem: read_playbook(path, shipped=path.parent != own) for path in content_files("playbooks", site)}


def choose_playbook(diagnosis: Diagnosis, playbooks: Mapping[str, Playbook]) -> Playbook | None:
    """Return the playbook for a diagnosis: by its reason, else its action, else its category; the site's before a shipped one."""
    fitting = [book for book in playbooks.values() if not book.actions or diagnosis.action in book.actions]
    for word in (diagnosis.reason, diagnosis.action, f"category:{diagnosis.category}"):
        candidates = sorted((book for book in fitting if str(word) in book.handles), key=lambda book: (book.shipped, book.name))
        if candidates:
            return candidates[0]
    return None


def handled_words(reasons: Sequence[str]) -> frozenset[str]:
    """Return all that may stand in `handles`: reasons, actions, categories as `category:script`, and `driver`."""
    return frozenset((*reasons, DRIVER, *map(str, Action), *(f"category:{category}" for category in Category)))
