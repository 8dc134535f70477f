"""What the worlds so far have proven about each node. Sets of nodes are bit masks, since the tests go through millions of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from assistant.recover.collective.worlds import Limits, Outcome, Result, World

__all__ = ["Evidence", "bits"]


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
        found = 0
        for node in world:
            found |= 1 << self.number[node]
        return found

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
            said = f"{outcome} in round {self.rounds} with {','.join(n for n in world if n != self.nodes[number]) or 'nobody'}"
            self.said.setdefault(number, []).append(said + (f" ({result.detail})" if result.detail else ""))
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
        others = self.suspects & ~(1 << number)
        enough = (self.met[number] & others).bit_count() >= self.limits.suspects
        return 0 if enough else others & ~self.met[number]

    def convicted(self, number: int) -> bool:
        """Return whether nothing but the node itself explains what was seen: faulty, or slow when its content was right."""
        if self.fabric_wide or self.cleared >> number & 1 or not self.suspects >> number & 1:
            return False
        if self.alone_failed >> number & 1 and (self.cleared | self.alone_passed) and not self.right >> number & 1:
            return True
        return bool(self.cleared) and not self.lacks_partner(number) and not self.lacks_suspects(number)
