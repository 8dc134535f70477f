"""Plan the rounds of the two-round test: it decides and runs nothing, so the same code is tested on millions of made-up clusters.

Round one pairs all nodes. From then on each round holds, as far as every node is used once: suspects with known-good partners,
good nodes of different pairs together (does the fabric between them work?), suspects among each other (are they behind one bad
switch?), nodes that did not answer by themselves, and at last a test of the nodes alone that nothing else can decide.

A world is a few nodes that run one collective together. It passes only when every node of it does its part, so a world that
passes proves all its nodes good, and one that fails says no more than that something in it is broken. What the worlds so far have
proven is kept as bit masks over nodes, since the tests go through millions of them. The verdict calls every node good, slow,
faulty, ambiguous or unreached, and says why.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

World = tuple[str, ...]
"""Names of its nodes in the order of the ring; one name means a test of a node by itself."""


class Outcome(StrEnum):
    """What came of a world."""

    PASS = "pass"
    FAIL = "fail"
    """A node was reached and its part failed: an error, wrong content, or no end in time."""
    SLOW = "slow"
    """The content was right, the bandwidth far below that of the other worlds."""
    UNREACHED = "unreached"
    """A node did not answer at all: nothing is known about it, nor about the others, who waited for it."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one world."""

    outcome: Outcome
    silent: tuple[str, ...] = ()
    """The nodes that did not answer, when `unreached`."""
    detail: str = ""
    """For people: what the nodes said."""
    mib_s: float | None = None
    """Of the slowest rank, MiB received a second; None when it was not measured."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How sure the verdict must be, and how far the test goes for it."""

    partners: int = 2
    """With how many different good partners a node must fail before it is called faulty: fewer bad pairs than this at one
    node never make it so."""
    suspects: int = 3
    """With how many of the other suspects it must fail, as far as there are so many: suspects that can talk to each other are
    no faulty nodes, they are behind a bad switch."""
    rounds: int = 12
    """After so many what is open is ambiguous."""
    largest_world: int = 32
    """Nodes of a world that tests good nodes together."""
    silences: int = field(default=2)
    """How often a node may leave the test unanswered before it is left out."""


def first_round(nodes: Sequence[str]) -> list[World]:
    """Pair the nodes; with an odd count the last world has three.

    Args:
        nodes: Distinct names; order is kept, so that neighbours, which mostly share a switch, are paired.

    Returns:
        Worlds that cover every node exactly once. A single node is a world by itself.

    Raises:
        ValueError: There is no node, or one is named twice.

    Source:
        arXiv 2403.07648, section 6.1, two-round all-gather test.
    """
    if not nodes or len(set(nodes)) != len(nodes):
        raise ValueError(f"the test needs distinct nodes, got {list(nodes)}")
    if len(nodes) == 1:
        return [(nodes[0],)]
    worlds = [tuple(nodes[place : place + 2]) for place in range(0, len(nodes) - 1, 2)]
    if len(nodes) % 2:
        worlds[-1] = (*worlds[-1], nodes[-1])
    return worlds


def bits(mask: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Evidence:
    """Facts about numbered nodes, and what follows from them."""

    def __init__(self, nodes: Sequence[str], limits: Limits) -> None:
        """Know nothing yet."""
        self.nodes = tuple(nodes)
        self.limits = limits
        self.number = {node: place for place, node in enumerate(nodes)}
        self.everyone = (1 << len(nodes)) - 1
        self.rounds = 0
        self.cleared = 0
        """Nodes of a world that passed: they are good."""
        self.right = 0
        """Nodes of a world whose content was right, slow or not: they are not faulty."""
        self.groups: list[int] = []
        """Cleared nodes that are linked by worlds that passed: no bad switch lies between them."""
        self.bad: list[tuple[int, Outcome]] = []
        """Worlds of two and more that failed or were slow."""
        self.met = [0] * len(nodes)
        """With whom each node was in a world of two that answered."""
        self.failed_with = [0] * len(nodes)
        """With whom each node was in a world of two that failed or was slow."""
        self.alone_passed = 0
        self.alone_failed = 0
        self.silences = [0] * len(nodes)
        self.to_ask_again = 0
        """Nodes that did not answer, and will be asked once more by themselves."""
        self.gone = 0
        """Nodes that did not answer too often."""
        self.whole_failed = False
        """Whether a world of nodes that are all good failed."""
        self.fabric_wide = False
        self.said: dict[int, list[str]] = {}
        """What was seen of each node, for people."""

    def mask(self, world: World) -> int:
        """Return a world as a mask."""
        bits_set = 0
        for node in world:
            bits_set |= 1 << self.number[node]
        return bits_set

    def names(self, mask: int) -> tuple[str, ...]:
        """Return the names of a mask's nodes, in the order in which they were given."""
        return tuple(self.nodes[number] for number in bits(mask))

    @property
    def suspects(self) -> int:
        """Nodes that are neither proven good nor given up as silent."""
        return self.everyone & ~self.cleared & ~self.gone & ~self.to_ask_again

    def learn(self, worlds: Sequence[World], results: Sequence[Result]) -> None:
        """Take in the results of a round."""
        self.rounds += 1
        self.to_ask_again = 0
        answered = [result.outcome for result in results if result.outcome is not Outcome.UNREACHED]
        failed = sum(outcome is not Outcome.PASS for outcome in answered)
        if len(answered) > 1 and 2 * failed > len(answered) and not self.cleared and not self.bad:
            self.fabric_wide = True
        for world, result in zip(worlds, results, strict=True):
            self._learn_world(world, result)

    def _learn_world(self, world: World, result: Result) -> None:
        mask, outcome = self.mask(world), result.outcome
        for number in bits(mask):
            sentence = f"{outcome} in round {self.rounds} with {','.join(n for n in world if n != self.nodes[number]) or 'nobody'}"
            self.said.setdefault(number, []).append(sentence + (f" ({result.detail})" if result.detail else ""))
        if outcome is Outcome.UNREACHED:
            self._learn_silence(self.mask(result.silent) or mask)
            return
        if len(world) == 1:
            self.alone_passed |= mask * (outcome is not Outcome.FAIL)
            self.alone_failed |= mask * (outcome is Outcome.FAIL)
            return
        if len(world) == 2:
            for number in bits(mask):
                self.met[number] |= mask & ~(1 << number)
                self.failed_with[number] |= mask & ~(1 << number) if outcome is not Outcome.PASS else 0
        if outcome is not Outcome.FAIL:
            self.right |= mask
        if outcome is Outcome.PASS:
            self._learn_pass(mask)
        else:
            self.whole_failed |= not mask & ~self.cleared
            self.bad.append((mask, outcome))

    def _learn_pass(self, mask: int) -> None:
        self.cleared |= mask
        linked = mask
        for group in self.groups:
            linked |= group * bool(group & mask)
        self.groups = [group for group in self.groups if not group & linked] + [linked]

    def _learn_silence(self, silent: int) -> None:
        for number in bits(silent):
            self.silences[number] += 1
            out = self.silences[number] >= self.limits.silences
            self.gone |= (1 << number) * out
            self.to_ask_again |= (1 << number) * (not out)

    def against(self, number: int) -> int:
        """Return the good nodes that a node failed with in worlds of two.

        Two of them cannot both be the doing of one bad pair. A world of three is no such proof, though both others be good: what
        lies between them may be bad.
        """
        return self.failed_with[number] & self.cleared

    def uncovered(self, number: int) -> int:
        """Return the groups of good nodes, as one mask, with which a node has not failed yet: it may be linked to them."""
        missing = sum(group for group in self.groups if not group & self.failed_with[number])
        return missing & ~self.gone

    def lacks_partner(self, number: int) -> bool:
        """Return whether a suspect has yet to be tested with good nodes before it may be blamed."""
        return self.against(number).bit_count() < self.limits.partners or bool(self.uncovered(number))

    def lacks_suspects(self, number: int) -> int:
        """Return the other suspects that a suspect has yet to be tested with; 0 when it met enough of them."""
        other_suspects = self.suspects & ~(1 << number)
        enough = (self.met[number] & other_suspects).bit_count() >= self.limits.suspects
        return 0 if enough else other_suspects & ~self.met[number]

    def convicted(self, number: int) -> bool:
        """Return whether nothing but the node itself explains what was seen: faulty, or slow when its content was right."""
        if self.fabric_wide or self.cleared >> number & 1 or not self.suspects >> number & 1:
            return False
        if self.alone_failed >> number & 1 and (self.cleared | self.alone_passed) and not self.right >> number & 1:
            return True
        return bool(self.cleared) and not self.lacks_partner(number) and not self.lacks_suspects(number)


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
        why={evidence.nodes[number]: "; ".join(sentences) for number, sentences in sorted(evidence.said.items())},
    )


def _edges(evidence: Evidence) -> tuple[tuple[str, ...], ...]:
    """Return the smallest worlds of good nodes that went wrong."""
    if evidence.fabric_wide:
        return ()
    good = [mask for mask, _ in evidence.bad if not mask & ~(evidence.cleared | evidence.right)]
    small = {mask for mask in good if mask.bit_count() < 4 and not _explained(evidence, mask)}
    minimal = [mask for mask in small if not any(smaller != mask and smaller & mask == smaller for smaller in small)]
    return tuple(evidence.names(mask) for mask in sorted(minimal, key=lambda mask: tuple(bits(mask))))


def _explained(evidence: Evidence, mask: int) -> bool:
    """Return whether a slow or faulty node of it explains why a world went wrong."""
    return any(evidence.convicted(number) for number in bits(mask & evidence.suspects))


def _split(evidence: Evidence) -> bool:
    """Return whether the groups of good nodes are known to be apart, not only never tested together."""
    if len(evidence.groups) < 2 or evidence.fabric_wide:
        return False
    together = [mask for mask, outcome in evidence.bad if outcome is not Outcome.PASS and not mask & ~evidence.cleared]
    return any(sum(bool(mask & group) for group in evidence.groups) > 1 for mask in together)


def plan(nodes: Sequence[str], limits: Limits | None = None) -> Generator[list[World], Sequence[Result], Verdict]:
    """Yield rounds of worlds, be sent what came of each world, return the verdict.

    Args:
        nodes: Distinct names. Spare nodes among them make the verdict surer.
        limits: How sure it must be.

    Raises:
        ValueError: There is no node, or one is named twice.
    """
    evidence = Evidence(nodes, limits or Limits())
    worlds = first_round(nodes)
    while worlds:
        evidence.learn(worlds, (yield worlds))
        if evidence.fabric_wide or evidence.rounds >= evidence.limits.rounds:
            break
        worlds = _next_round(evidence)
    return verdict_of(evidence)


def _next_round(evidence: Evidence) -> list[World]:
    """Return the worlds that would tell more; none when all is told."""
    free = evidence.everyone & ~evidence.gone & ~evidence.to_ask_again
    worlds = list(bits(evidence.to_ask_again))
    masks = [1 << number for number in worlds]
    for choose in (_with_partners, _good_together, _among_suspects):
        for mask in choose(evidence, free):
            masks.append(mask)
            free &= ~mask
    return [evidence.names(mask) for mask in masks or _alone(evidence)]


def _with_partners(evidence: Evidence, free: int) -> list[int]:
    """Pair suspects with good nodes that they have not met, those of a group not asked yet first."""
    worlds: list[int] = []
    for number in bits(evidence.suspects & free):
        if not evidence.lacks_partner(number):
            continue
        fresh = evidence.cleared & free & ~evidence.met[number]
        partners_needed = evidence.uncovered(number) & fresh
        if evidence.against(number).bit_count() < evidence.limits.partners:
            partners_needed = partners_needed or fresh
        if partners_needed:
            pair = 1 << number | _most_spared(evidence, partners_needed, free)
            worlds.append(pair)
            free &= ~pair
    return worlds


def _most_spared(evidence: Evidence, partners_needed: int, free: int) -> int:
    """Return one wanted node, of the group that has most nodes left: each group should keep one for the test together."""
    best = max(evidence.groups, key=lambda group: (group & free).bit_count() if group & partners_needed else -1)
    return best & partners_needed & -(best & partners_needed)


def _good_together(evidence: Evidence, free: int) -> list[int]:
    """Join groups of good nodes: many at once, and two by two after that failed once."""
    if len(evidence.groups) < 2:
        return []
    if evidence.whole_failed:
        return _groups_in_pairs(evidence, free)
    spared = [group & free & -(group & free) for group in evidence.groups if group & free]
    size = evidence.limits.largest_world
    worlds = [sum(spared[place : place + size]) for place in range(0, len(spared), size)]
    return [mask for mask in worlds if mask.bit_count() > 1]


def _groups_in_pairs(evidence: Evidence, free: int) -> list[int]:
    """Pair groups that failed together in fewer worlds of two than would settle it."""
    worlds: list[int] = []
    groups = list(evidence.groups)
    while groups:
        group = groups.pop(0)
        for second in groups:
            pair = _fresh_pair(evidence, group & free, second & free) if not _apart(evidence, group, second) else 0
            if pair:
                worlds.append(pair)
                groups.remove(second)
                break
    return worlds


def _apart(evidence: Evidence, group: int, second: int) -> bool:
    """Return whether enough pairs across two groups failed that no single bad pair explains it."""
    across = [mask for mask, _ in evidence.bad if mask.bit_count() == 2 and mask & group and mask & second]
    return len(across) >= evidence.limits.partners


def _fresh_pair(evidence: Evidence, group: int, second: int) -> int:
    for number in bits(group):
        fresh = second & ~evidence.met[number]
        if fresh:
            return 1 << number | fresh & -fresh
    return 0


def _among_suspects(evidence: Evidence, free: int) -> list[int]:
    """Pair suspects that good nodes say no more about: two that can talk to each other are not faulty."""
    worlds: list[int] = []
    for number in bits(evidence.suspects & free):
        if not free >> number & 1 or (evidence.cleared and evidence.lacks_partner(number)):
            continue
        fresh = evidence.lacks_suspects(number) & free & ~(1 << number)
        if fresh:
            # one that waits for nobody else either
            ready = sum(1 << node for node in bits(fresh) if not evidence.lacks_partner(node)) or fresh
            pair = 1 << number | ready & -ready
            worlds.append(pair)
            free &= ~pair
    return worlds


def _alone(evidence: Evidence) -> list[int]:
    """Test the nodes by themselves that nothing else can decide about."""
    tested = evidence.alone_passed | evidence.alone_failed
    return [1 << number for number in bits(evidence.suspects & ~tested) if not evidence.convicted(number)]
