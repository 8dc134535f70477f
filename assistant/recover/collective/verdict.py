"""The verdict: every node is good, slow, faulty, ambiguous or unreached, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assistant.recover.collective.evidence import Evidence, bits
from assistant.recover.collective.worlds import Outcome

__all__ = ["Verdict", "verdict_of"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the test has proven. Every node stands in exactly one of the five lists."""

    good: tuple[str, ...]
    slow: tuple[str, ...]
    """Right content, but slow with every partner: the node or its link."""
    faulty: tuple[str, ...]
    """Failed with good partners only, or by itself."""
    ambiguous: tuple[str, ...]
    """Suspect, and the test could not tell: a person must look, nobody may cordon for it."""
    unreached: tuple[str, ...]
    """Did not answer. That is no proof: look at the scheduler's state, power and network of the node."""
    edges: tuple[tuple[str, ...], ...]
    """Good nodes that fail (or are slow) with each other: a pair is a bad path, not a bad node."""
    groups: tuple[tuple[str, ...], ...]
    """Where good nodes fall into parts that cannot talk across: a switch. Empty when all good nodes form one."""
    fabric_wide: bool
    """More than half of the first worlds failed: network, storage or software is broken, no node is blamed."""
    rounds: int
    why: Mapping[str, str]
    """By node: what was seen of it."""

    @property
    def note(self) -> str:
        """One sentence for a person."""
        from assistant.nodeset import fold

        if self.fabric_wide:
            return "more than half of the worlds failed: the fabric or the software is broken, no node is blamed"
        lists = {"faulty": self.faulty, "slow": self.slow, "ambiguous": self.ambiguous, "unreached": self.unreached}
        parts = [f"{name}: {fold(nodes)}" for name, nodes in lists.items() if nodes]
        parts += [f"bad between {' and '.join(edge)}" for edge in self.edges[:3]]
        parts += [f"groups that do not reach each other: {' | '.join(map(fold, self.groups))}"] * bool(self.groups)
        return f"{'; '.join(parts) or f'all {len(self.good)} nodes are good'} ({self.rounds} round{'s' * (self.rounds > 1)})"


def verdict_of(evidence: Evidence) -> Verdict:
    """Return what follows from the evidence."""
    convicted = sum(1 << number for number in bits(evidence.suspects) if evidence.convicted(number))
    good = evidence.cleared & ~evidence.gone & ~evidence.to_ask_again
    unreached = evidence.gone | evidence.to_ask_again
    return Verdict(
        good=evidence.names(good),
        slow=evidence.names(convicted & evidence.right),
        faulty=evidence.names(convicted & ~evidence.right),
        ambiguous=evidence.names(evidence.suspects & ~convicted),
        unreached=evidence.names(unreached),
        edges=_edges(evidence),
        groups=tuple(evidence.names(group) for group in evidence.groups) if _split(evidence) else (),
        fabric_wide=evidence.fabric_wide,
        rounds=evidence.rounds,
        why={evidence.nodes[number]: "; ".join(said) for number, said in sorted(evidence.said.items())},
    )


def _edges(evidence: Evidence) -> tuple[tuple[str, ...], ...]:
    """Return the smallest worlds of good nodes that went wrong."""
    if evidence.fabric_wide:
        return ()
    good = [mask for mask, _ in evidence.bad if not mask & ~(evidence.cleared | evidence.right)]
    small = {mask for mask in good if mask.bit_count() < 4 and not _explained(evidence, mask)}
    kept = [mask for mask in small if not any(other != mask and other & mask == other for other in small)]
    return tuple(evidence.names(mask) for mask in sorted(kept, key=lambda mask: tuple(bits(mask))))


def _explained(evidence: Evidence, mask: int) -> bool:
    """Return whether a slow or faulty node of it explains why a world went wrong."""
    return any(evidence.convicted(number) for number in bits(mask & evidence.suspects))


def _split(evidence: Evidence) -> bool:
    """Return whether the groups of good nodes are known to be apart, not only never tested together."""
    if len(evidence.groups) < 2 or evidence.fabric_wide:
        return False
    together = [mask for mask, outcome in evidence.bad if outcome is not Outcome.PASS and not mask & ~evidence.cleared]
    return any(sum(bool(mask & group) for group in evidence.groups) > 1 for mask in together)
