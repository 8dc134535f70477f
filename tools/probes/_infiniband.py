"""Ports of InfiniBand and RoCE adapters as sysfs shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding
from assistant.tooling import Probe
from assistant.tools.probes._shell import INFINIBAND


@dataclass(frozen=True, slots=True)
class Port:
    """One port and the values of its files."""

    hca: str
    number: str
    values: dict[str, str]

    @property
    def name(self) -> str:
        """As `ibstat` takes it."""
        return f"{self.hca}/{self.number}"

    @property
    def ethernet(self) -> bool:
        """Whether it speaks RoCE."""
        return self.values.get("link_layer", "") == "Ethernet"

    @property
    def up(self) -> bool:
        """Whether data may pass."""
        return "ACTIVE" in self.values.get("state", "")

    @property
    def rate_gb(self) -> float:
        """Gb/s; 0 where the kernel does not say."""
        word = (self.values.get("rate", "").split() or ["0"])[0]
        return float(word) if word.replace(".", "", 1).isdigit() else 0.0

    def count(self, name: str) -> int:
        """Return a counter; 0 where there is none."""
        word = self.values.get(name, "0")
        return int(word) if word.isdigit() else 0


def ports(reply: Reply) -> list[Port] | None:
    """Return the ports of a reading; None when it is none."""
    lines = reply.out.split("\n")
    if "end" not in (line.strip() for line in lines):
        return None
    found: dict[tuple[str, str], Port] = {}
    for line in lines:
        words = line.split(maxsplit=4)
        if len(words) == 5 and words[0] == "port":
            port = found.setdefault((words[1], words[2]), Port(words[1], words[2], {}))
            port.values[words[3]] = words[4].strip()
    return list(found.values())


def infiniband_probe(name: str, parse: Callable[[Reply, Circumstances], Sequence[Finding]], source: str, **more: Any) -> Probe:
    """Return a probe that reads the ports."""
    return Probe(
        name=name, command=INFINIBAND, needs="sh", parse=parse, source=source, witness="sysfs", reading="infiniband", **more
    )
