"""Nodes, reservations and the configuration from `scontrol show -o`. Pure.

A node's state is a base and flags: `IDLE+DRAIN`, `MIXED+DRAIN+NOT_RESPONDING`, or with the marks of older tools `idle*`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from assistant.errors import Unavailable
from assistant.records import Node, NodeState, Reservation
from assistant.schedulers.slurm_jobs import nodes_of
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
        raise Unavailable(f"scontrol showed no nodes, so nothing is known: {text.strip()[:200] or 'nothing was printed'!r}")
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
        raise Unavailable(f"scontrol showed no reservations: {text.strip()[:200] or 'nothing was printed'!r}")
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
        raise Unavailable(f"scontrol did not show Slurm's configuration: {text.strip()[:200] or 'nothing was printed'!r}")
    return values
