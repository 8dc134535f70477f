"""Jobs of the embedded scheduler that share a node: they say what they take of it, in the words of sbatch.

`--gres=gpu:N` takes N of the node's GPUs, `--gres=none` none; either takes one CPU, or `--cpus-per-task=N`. `--nodelist=NAME` says
where. A job that says nothing of `--gres` takes the whole node.
"""

from __future__ import annotations

from dataclasses import dataclass

from assistant.nodeset import expand
from assistant.records import JobSpec


@dataclass(frozen=True, slots=True)
class Share:
    """What jobs take of one node."""

    gpus: int = 0
    cpus: int = 0
    whole: bool = False
    nodes: tuple[str, ...] = ()
    """Where it may run; empty: anywhere."""

    def __add__(self, other: Share) -> Share:
        """Return what both take together."""
        return Share(self.gpus + other.gpus, self.cpus + other.cpus, self.whole or other.whole)

    def fits(self, used: Share | None, gpus: int, cpus: int) -> bool:
        """Whether it fits beside what is used of a node that has so many GPUs and CPUs."""
        if used is None:
            return self.whole or (self.gpus <= gpus and self.cpus <= cpus)
        return not (self.whole or used.whole) and used.gpus + self.gpus <= gpus and used.cpus + self.cpus <= cpus

    def may_run_on(self, node: str) -> bool:
        """Whether it was asked to run there, or anywhere."""
        return not self.nodes or node in self.nodes


def share_of(spec: JobSpec) -> Share:
    """Return what a job takes of each of its nodes; options that sbatch has and we do not are left unread."""
    said = dict(word.removeprefix("--").split("=", 1) for word in spec.options if word.startswith("--") and "=" in word)
    nodes = tuple(expand(said["nodelist"])) if "nodelist" in said else ()
    if "gres" not in said:
        return Share(whole=True, nodes=nodes)
    gpus = said["gres"].rpartition(":")[2] if said["gres"].startswith("gpu") else "0"
    return Share(int(gpus) if gpus.isdecimal() else 1, int(said.get("cpus-per-task", "1")), nodes=nodes)
