"""Nodes and reservations as `scontrol show -o` prints them, and each change of them and of jobs as commands of Slurm. Pure.

A node's state is a base and flags: `IDLE+DRAIN`, `MIXED+DRAIN+NOT_RESPONDING`, or with the marks of older tools `idle*`.

A change is rendered once. What is compared with the commands that were allowed is what then runs: nothing is asked in between.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from assistant.errors import ToolError, Unavailable
from assistant.nodeset import fold
from assistant.records import Node, NodeState, Reservation
from assistant.redact import head_of
from assistant.schedulers.local_jobs import OWN, must_cordon, must_uncordon
from assistant.schedulers.slurm_jobs import SlurmRow, moved, nodes_of
from assistant.schedulers.slurm_run import DRAIN_RIGHTS, JOB_RIGHTS, me
from assistant.schedulers.slurm_text import moment, pairs, value

OUT = frozenset({"DRAIN", "DRAINING", "DRAINED", "FAIL", "FAILING"})
"""Flags that a person, a script or Slurm set so that no job starts there."""
DEAD = frozenset({"DOWN", "ERROR", "POWERED_DOWN_FAILED", "FUTURE"})
BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING", "ALLOC", "COMP"})
CLOSED = frozenset({"MAINT", "MAINTENANCE", "REBOOT", "REBOOT_REQUESTED", "REBOOT_ISSUED", "INVAL", "INVALID_REG"})
WINDOW = frozenset({"MAINT", "MAINTENANCE"})
"""Flags of a reservation that runs: what is submitted waits for its end."""
SILENT = frozenset({"NOT_RESPONDING", "UNKNOWN"})
"""Slurm waits for the node and has not given it up."""
IDLE = frozenset(
    {"IDLE", "CLOUD", "DYNAMIC_NORM", "PLANNED", "RESERVED", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN"}
    | {"POWER_UP", "POWERED_UP", "BLOCKED", "PERFCTRS", "POWER_DRAIN"}
)
_OLD_MARKS = {"*": "NOT_RESPONDING", "$": "MAINT", "@": "REBOOT", "^": "REBOOT_ISSUED", "~": "POWERED_DOWN", "#": "POWERING_UP"}
"""Behind a state as sinfo writes it; `%`, `!`, `-` and `+` do not change what a node may do."""
BY_SLURM = re.compile(
    r"Not responding|Node unexpectedly rebooted|none|Low RealMemory|Low socket|Low CPUs|gres/\S+ count|Prolog error|Epilog error|"
    r"Kill task failed|batch job complete failure|Node configuration|reboot timed out|ResumeTimeout|Unexpected",
    re.IGNORECASE,
)
"""Reasons that Slurm gives a node which it took for dead."""


class NodeFacts(NamedTuple):
    """A node as scontrol shows it."""

    name: str
    words: frozenset[str]
    """Base state and flags."""
    partitions: str
    reason: str
    by: str
    """Who set the reason."""
    features: tuple[str, ...] = ()

    @property
    def out(self) -> bool:
        """Whether it is drained or draining."""
        return bool(self.words & OUT)

    @property
    def dead(self) -> bool:
        """Whether Slurm has given it up, or somebody set it down."""
        return bool(self.words & DEAD)

    @property
    def silent(self) -> bool:
        """Whether its slurmd does not answer."""
        return "NOT_RESPONDING" in self.words

    @property
    def reason_before(self) -> str:
        """Slurm's own reason, where our cordon took its place."""
        _, begins, earlier = self.reason.partition("(was: ")
        return earlier[:-1] if begins and earlier.endswith(")") else "Not responding"

    @property
    def cordon(self) -> str | None:
        """The reason for which a person or we took it out; None when it is in, or out only because Slurm lost it."""
        if self.out or (self.dead and not BY_SLURM.match(self.reason or "none")):
            return self.reason
        return None

    @property
    def state(self) -> NodeState:
        """What may be placed there."""
        if self.dead:
            return NodeState.DOWN
        if self.out or self.words & CLOSED:
            return NodeState.DRAINING if self.words & BUSY else NodeState.DRAINED
        if self.words & SILENT:
            return NodeState.UNKNOWN
        if self.words & BUSY:
            return NodeState.ALLOCATED
        return NodeState.IDLE if self.words & IDLE else NodeState.UNKNOWN

    def as_node(self, jobs: Iterable[str]) -> Node:
        """Return it as the port shows it."""
        closed = "" if self.out or self.dead else ", ".join(sorted(self.words & CLOSED)).lower()
        window = not self.out and not self.dead and bool(self.words & WINDOW)
        return Node(self.name, self.state, self.partitions, self.reason or closed, tuple(jobs), self.features, window)


def state_words(text: str) -> frozenset[str]:
    """Return base and flags of a node's state in any of Slurm's spellings."""
    words = set()
    for part in text.upper().split("+"):
        match = re.fullmatch(r"([A-Z_]+)([*$@^~#%!-]*)", part)
        if match is not None:
            words |= {match.group(1), *(_OLD_MARKS[mark] for mark in match.group(2) if mark in _OLD_MARKS)}
    return frozenset(words)


def node_facts(text: str) -> list[NodeFacts]:
    """Return the nodes of `scontrol show node -o` in the order of their names.

    Raises:
        Unavailable: It shows no node, so it is no answer.
    """
    nodes = [_node(record) for record in _records(text, "NodeName=")]
    if not nodes:
        raise Unavailable(f"scontrol showed no nodes, so nothing is known: {head_of(text.strip(), 200) or 'nothing was printed'!r}")
    return sorted(nodes, key=lambda node: node.name)


_REASON = re.compile(r"\sReason=")
_SIGNED = re.compile(r" \[([^\]@\s]*)@[^\]\s]*\]")
"""Who gave a reason, and when, behind it."""


def _end_of_line(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _node(record: str) -> NodeFacts:
    # the kernel's version is the one text that stands in front of the state
    safe = re.sub(r" OS=.{0,400}? (?=RealMemory=)", " ", record, count=1)
    values = pairs(safe, ("NodeName", "State", "Partitions", "ActiveFeatures"))
    begin = _REASON.search(record)
    signed = _SIGNED.search(record, begin.end()) if begin else None
    reason_text = (
        " ".join(record[begin.end() : signed.start() if signed else _end_of_line(record, begin.end())].split()) if begin else ""
    )
    return NodeFacts(
        name=values["NodeName"],
        words=state_words(values.get("State", "")),
        partitions=value(values.get("Partitions", "")),
        reason=value(reason_text),
        by=signed.group(1) if signed else "",
        features=tuple(word for word in value(values.get("ActiveFeatures", "")).split(",") if word),
    )


def _records(text: str, begins: str) -> Iterator[str]:
    """Yield the records of a `-o` listing; a line that begins no record goes on with the one before."""
    record = ""
    for line in text.splitlines():
        if line.startswith(begins):
            if record:
                yield record
            record = line
        elif record:
            record += f"\n{line}"
    if record:
        yield record


def reservations(text: str) -> list[Reservation]:
    """Return the reservations of `scontrol show reservation -o`.

    Raises:
        Unavailable: It says neither a reservation nor that there is none.
    """
    listed = []
    for record in _records(text, "ReservationName="):
        values = pairs(record, ("ReservationName", "StartTime", "EndTime", "Nodes", "Users", "State", "Flags"))
        listed.append(
            Reservation(
                name=values["ReservationName"],
                nodes=nodes_of(values.get("Nodes", "")),
                users=tuple(name for name in value(values.get("Users", "")).split(",") if name),
                start=moment(values.get("StartTime", "")),
                end=moment(values.get("EndTime", "")),
                active=values.get("State", "") == "ACTIVE",
            )
        )
    if not listed and "No reservations" not in text:
        raise Unavailable(f"scontrol showed no reservations: {head_of(text.strip(), 200) or 'nothing was printed'!r}")
    return listed


def switches(text: str) -> dict[str, str]:
    """Return the lowest switch above each node, from `scontrol show topology`; nothing where no network is configured."""
    by_node: dict[str, str] = {}
    level: dict[str, int] = {}
    for line in text.splitlines():
        values = dict(re.findall(r"(?<!\w)(\w+)=(\S+)", line))
        # 24.05 and later also show blocks of nodes, which are switches of their kind
        name, at = values.get("SwitchName") or values.get("BlockName"), values.get("Level", "0")
        if name is None or not at.isdigit():
            continue
        for node in nodes_of(value(values.get("Nodes", ""))):
            if int(at) < level.get(node, 1 << 30):
                by_node[node], level[node] = name, int(at)
    return by_node


def configuration(text: str) -> Mapping[str, str]:
    """Return the lines `Key = value` of `scontrol show config`.

    Raises:
        Unavailable: There are none.
    """
    values = {key: value(setting.strip()) for key, setting in re.findall(r"^(\w+)\s*= ?(.*)$", text, re.MULTILINE)}
    if "SLURM_VERSION" not in values:
        raise Unavailable(f"scontrol did not show Slurm's configuration: {head_of(text.strip(), 200) or 'nothing was printed'!r}")
    return values


LONGEST_REASON = 300


class SlurmCommand(NamedTuple):
    """One command of Slurm."""

    program: str
    words: tuple[str, ...]
    before: tuple[str, ...] = ()
    """Words before the program, such as `sudo -n`."""


class SlurmChange(NamedTuple):
    """A change with its commands fixed."""

    commands: tuple[SlurmCommand, ...]
    purpose: str
    """For the message of a refusal: `to end job 7`."""
    remedy: str
    """What to do where the right is missing."""
    due: Callable[[], bool] = lambda: True
    """Whether there is anything to do; raises ToolError where the change is not allowed."""
    came_about: Callable[[], bool] = lambda: False
    """Whether what a command refused to do holds anyway; asked after a refusal."""
    insists: bool = False
    """Whether the other commands follow a refused one, and what they lead to is waited for: ending a job that moves meanwhile."""
    silent: bool = False
    """Whether a word on standard error is a refusal, too."""
    renamed: Callable[[Mapping[str, str]], tuple[SlurmCommand, ...]] | None = None
    """The same commands with other names for job ids; None where no job that is yet to be submitted can stand in them."""

    def with_names(self, names: Mapping[str, str]) -> tuple[SlurmCommand, ...]:
        """Return the commands with other names for job ids."""
        return self.renamed(names) if self.renamed is not None else self.commands


def of_job(method: str, job_id: str, before: Sequence[str] = ()) -> SlurmCommand:
    """Return the command that ends (`cancel`) or releases a job."""
    program, words = ("scancel", (job_id,)) if method == "cancel" else ("scontrol", ("release", job_id))
    return SlurmCommand(program, words, tuple(before))


def cancel(row: SlurmRow, has_ended: Callable[[], bool]) -> SlurmChange:
    """End a job: the waiting part of an array without its limit, a heterogeneous job as a whole."""
    job_id = re.sub(r"%\d+\]$", "]", row.job.id).partition("+")[0]
    return SlurmChange(
        (of_job("cancel", job_id),),
        f"to end job {row.job.id}",
        JOB_RIGHTS,
        due=lambda: not row.job.state.ended,
        came_about=has_ended,
    )


def end_at_once(row: SlurmRow, steps: Sequence[str], before: Sequence[str], has_ended: Callable[[], bool]) -> SlurmChange:
    """End a job without SIGTERM: its script is stopped, so that it starts nothing more, then steps and script are killed.

    A plain scancel sends SIGTERM first and lets the processes go on for KillWait seconds, `--signal=KILL --full` too (22.05): many
    programs save a checkpoint on it. The last command only names the end: a script that was killed counts as cancelled by it.

    Args:
        row: The job.
        steps: Ids of its steps, without that of the batch script.
        before: Words by which its owner's rights are used.
        has_ended: Asks whether the job is over.
    """
    job_id = row.job.id.partition("+")[0]
    words = [("--signal=STOP", "--full", job_id), *([("--signal=KILL", *steps)] if steps else [])]
    words += [("--batch", "--signal=KILL", job_id), (job_id,)]
    return SlurmChange(
        tuple(SlurmCommand("scancel", arguments, tuple(before)) for arguments in words),
        f"to end job {row.job.id}",
        JOB_RIGHTS,
        due=lambda: not row.job.state.ended,
        came_about=has_ended,
        insists=True,
    )


def release(job_id: str, row: SlurmRow, before: Sequence[str]) -> SlurmChange:
    """Let a held job begin that was asked for by `job_id`; `before` are the words by which its owner's rights are used."""

    def due() -> bool:
        if row.job.state.ended:
            raise ToolError(f"job {row.job.id} cannot be released: it is {row.job.state}")
        return row.job.held

    return SlurmChange(
        (of_job("release", row.command_id, before),),
        f"to release job {row.job.id}",
        JOB_RIGHTS,
        due=due,
        renamed=lambda names: (of_job("release", names.get(job_id, row.command_id), before),),
    )


def requeue(row: SlurmRow, *, hold: bool) -> SlurmChange:
    """Queue a job again under its own id."""
    words = ("requeuehold" if hold else "requeue", row.command_id)
    return SlurmChange((SlurmCommand("scontrol", words),), f"to queue job {row.job.id} again", JOB_RIGHTS, silent=True)


def requeue_changed(row: SlurmRow, exclude: Sequence[str], comment: str, before: Sequence[str], *, hold: bool) -> SlurmChange:
    """Queue a job that has ended again under its own id, with other excluded nodes and comment, which are set while it is held.

    Args:
        row: The job; one that carries the comment already, since a call was interrupted, is only changed and released.
        exclude: All nodes to stay away from.
        comment: The whole comment.
        before: Words by which its owner's rights are used.
        hold: Whether it stays held.
    """
    update = ["update", f"JobId={row.command_id}", *([f"ExcNodeList={','.join(exclude)}"] if exclude else []), f"Comment={comment}"]
    words = [("requeuehold", row.command_id), tuple(update), *(() if hold else [("release", row.command_id)])]
    # Slurm refuses to queue a job again that waits held: whoever else held it meanwhile keeps it, and no comment is written
    marked = row.job.requeued_held and comment and row.job.comment == comment
    commands = tuple(SlurmCommand("scontrol", arguments, tuple(before)) for arguments in (words[1:] if marked else words))
    return SlurmChange(commands, f"to queue job {row.job.id} again", JOB_RIGHTS, silent=True)


def move_dependent(row: SlurmRow, old: str, new: str, siblings: Sequence[str], before: Sequence[str]) -> SlurmChange:
    """Let a pending job wait for another job than before.

    Args:
        row: The pending job.
        old: Id of the job that it waited for.
        new: Id of the one that took its place; the same where that was queued again: Slurm keeps what it took for failed.
        siblings: Tasks of the old one's array that have not ended well, without itself.
        before: Words by which its owner's rights are used.
    """

    def commands(names: Mapping[str, str]) -> tuple[SlurmCommand, ...]:
        dependency = moved(row.dependency, old, names.get(new, new), siblings=siblings)
        return (SlurmCommand("scontrol", ("update", f"JobId={row.command_id}", f"Dependency={dependency}"), tuple(before)),)

    return SlurmChange(commands({}), f"to let job {row.job.id} wait for {new}", JOB_RIGHTS, renamed=commands)


def cordon(node: NodeFacts, reason: str, admin: Sequence[str]) -> SlurmChange:
    """Drain a node; on one that Slurm took for dead its own reason is kept behind ours."""
    reason_text = " ".join(reason.split())[:LONGEST_REASON]
    was = f" (was: {node.reason})" if node.dead and node.reason and not node.out else ""
    return SlurmChange(
        (_update(node, admin, "State=DRAIN", f"Reason={reason_text}{was}"),),
        f"to change node {node.name}",
        DRAIN_RIGHTS,
        due=lambda: must_cordon(node.name, node.cordon, reason_text) or not node.out,
    )


def uncordon(node: NodeFacts, admin: Sequence[str]) -> SlurmChange:
    """Put a node back; a silent one only loses the drain and gets Slurm's reason back."""
    if not (node.dead and node.silent):
        commands: tuple[SlurmCommand, ...] = (_update(node, admin, "State=RESUME"),)
    else:
        # with its own reason there, Slurm takes the node back by itself when it answers again
        commands = tuple(_update(node, admin, word) for word in ("State=UNDRAIN", f"Reason={node.reason_before}"))
    due = lambda: must_uncordon(node.name, node.cordon) and node.out  # noqa: E731
    return SlurmChange(commands, f"to change node {node.name}", DRAIN_RIGHTS, due=due)


def _update(node: NodeFacts, admin: Sequence[str], *words: str) -> SlurmCommand:
    return SlurmCommand("scontrol", ("update", f"NodeName={node.name}", *words), tuple(admin))


def reserve(name: str, nodes: Sequence[str], admin: Sequence[str], *, minutes: int, users: Sequence[str] = ()) -> SlurmChange:
    """Keep idle nodes for users from now on."""

    def due() -> bool:
        if not name.startswith(OWN):
            raise ToolError(f"reservation {name!r}: the name must begin with {OWN}, so that people know whose it is")
        return True

    words = [f"ReservationName={name}", "StartTime=now", f"Duration={minutes}", f"Nodes={fold(nodes)}"]
    command = SlurmCommand("scontrol", ("create", "reservation", *words, f"Users={','.join(users or [me()])}"), tuple(admin))
    return SlurmChange((command,), f"to reserve {fold(nodes)}", DRAIN_RIGHTS, due=due)


def unreserve(name: str, admin: Sequence[str], stands: Callable[[], bool]) -> SlurmChange:
    """End a reservation of ours; it may also run out by itself."""

    def due() -> bool:
        if not name.startswith(OWN):
            raise ToolError(f"reservation {name!r} is not ours; ask who made it")
        return stands()

    command = SlurmCommand("scontrol", ("delete", f"ReservationName={name}"), tuple(admin))
    return SlurmChange((command,), f"to end reservation {name}", DRAIN_RIGHTS, due=due, came_about=lambda: not stands())
