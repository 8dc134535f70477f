"""The guarantee of the two-round test on made-up clusters: every set of faulty nodes of up to 16, bad pairs, bad switches."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, combinations, product

import pytest

from assistant.recover.collective.planner import Limits, Outcome, Result, Verdict, World, plan

LARGEST = 16
QUICK = 10
"""The number of sets doubles with each node: larger clusters are slow tests."""
Pairs = frozenset[tuple[int, int]]


def counts(first: int) -> list[object]:
    """Return sizes of clusters up to the largest, as parameters of a test."""
    return [pytest.param(count, marks=[pytest.mark.slow] if count > QUICK else []) for count in range(first, LARGEST + 1)]


@dataclass(frozen=True)
class Broken:
    """What is wrong with a made-up cluster of numbered nodes."""

    faulty: frozenset[int] = frozenset()
    slow: frozenset[int] = frozenset()
    silent: frozenset[int] = frozenset()
    pairs: Pairs = frozenset()
    behind: frozenset[int] = frozenset()
    """Nodes behind a switch that lets nothing through."""
    fails_alone: bool = False
    """Whether a faulty node fails by itself, too."""

    def result(self, world: World) -> Result:
        numbers = [int(node) for node in world]
        members = set(numbers)
        if members & self.silent:
            return Result(Outcome.UNREACHED, tuple(str(number) for number in numbers if number in self.silent))
        if members & self.faulty and (len(numbers) > 1 or self.fails_alone):
            return Result(Outcome.FAIL)
        links = {(min(a, b), max(a, b)) for a, b in zip(numbers, [*numbers[1:], numbers[0]], strict=True) if a != b}
        if links & self.pairs or 0 < len(members & self.behind) < len(members):
            return Result(Outcome.FAIL)
        return Result(Outcome.SLOW if members & self.slow else Outcome.PASS)


def verdict_on(count: int, broken: Broken, limits: Limits | None = None) -> Verdict:
    """Run the plan against a made-up cluster."""
    running = plan([str(number) for number in range(count)], limits)
    worlds = next(running)
    while True:
        used = [node for world in worlds for node in world]
        assert len(set(used)) == len(used), "a node is in one world of a round"
        try:
            worlds = running.send([broken.result(world) for world in worlds])
        except StopIteration as stop:
            verdict: Verdict = stop.value
            return verdict


def numbers(nodes: Iterable[str]) -> set[int]:
    return {int(node) for node in nodes}


def held(count: int, broken: Broken, verdict: Verdict) -> None:
    """Check what holds whatever is broken: every node has one place, no healthy one is blamed, no faulty one is called good."""
    lists = (verdict.good, verdict.slow, verdict.faulty, verdict.ambiguous, verdict.unreached)
    assert sorted(chain(*map(numbers, lists))) == list(range(count)), (broken, verdict)
    assert numbers(verdict.faulty) <= broken.faulty, (broken, verdict)
    assert not numbers(verdict.good + verdict.slow) & broken.faulty, (broken, verdict)
    assert numbers(verdict.slow) <= broken.slow, (broken, verdict)
    assert not numbers(verdict.good) & broken.slow, (broken, verdict)
    assert not (verdict.fabric_wide and verdict.faulty), (broken, verdict)


def fault_sets(count: int) -> Iterator[frozenset[int]]:
    for size in range(count + 1):
        yield from map(frozenset, combinations(range(count), size))


@pytest.mark.parametrize("fails_alone", [False, True])
@pytest.mark.parametrize("count", counts(1))
def test_every_set_of_faulty_nodes_is_told_without_blaming_a_healthy_one(count: int, fails_alone: bool) -> None:
    for faulty in fault_sets(count):
        broken = Broken(faulty=faulty, fails_alone=fails_alone)
        verdict = verdict_on(count, broken)
        held(count, broken, verdict)
        if count > 1 and 4 * len(faulty) <= count:
            assert numbers(verdict.faulty) == faulty, (broken, verdict)
            assert len(verdict.good) == count - len(faulty), (broken, verdict)
            assert not verdict.edges, (broken, verdict)
            assert not verdict.groups, (broken, verdict)
        if count > 3 and not verdict.fabric_wide:
            assert numbers(verdict.faulty) == faulty, (broken, verdict)


@pytest.mark.parametrize("count", counts(4))
def test_one_or_two_rounds_are_enough_for_up_to_one_faulty_node(count: int) -> None:
    assert verdict_on(count, Broken()).rounds == 2
    for faulty in range(count):
        # three suspects share the first world of an odd count, and that world alone proves nothing against one of them
        most = 2 if count % 2 == 0 or faulty < count - 3 else 3
        # five nodes have two good ones for the three
        assert verdict_on(count, Broken(faulty=frozenset([faulty]))).rounds <= most + (count == 5)


@pytest.mark.parametrize("count", counts(2)[:11])
def test_every_set_of_slow_nodes_is_told_without_blaming_a_fast_one(count: int) -> None:
    for slow in fault_sets(count):
        broken = Broken(slow=slow)
        verdict = verdict_on(count, broken)
        held(count, broken, verdict)
        if 4 * len(slow) <= count:
            assert numbers(verdict.slow) == slow, (broken, verdict)


@pytest.mark.parametrize("count", counts(2)[:11])
def test_silent_nodes_are_never_blamed_and_take_no_other_with_them(count: int) -> None:
    for silent in fault_sets(count):
        broken = Broken(silent=silent)
        verdict = verdict_on(count, broken)
        held(count, broken, verdict)
        assert numbers(verdict.unreached) == silent, (broken, verdict)
        if count - len(silent) > 1:
            assert len(verdict.good) == count - len(silent), (broken, verdict)


@pytest.mark.parametrize("count", range(4, 11))
def test_one_faulty_one_slow_and_one_silent_node_are_kept_apart(count: int) -> None:
    for faulty, slow, silent in product(range(count), repeat=3):
        if len({faulty, slow, silent}) == 3:
            broken = Broken(frozenset([faulty]), frozenset([slow]), frozenset([silent]))
            held(count, broken, verdict_on(count, broken))


def all_pairs(count: int) -> list[tuple[int, int]]:
    return list(combinations(range(count), 2))


@pytest.mark.parametrize("count", counts(3))
def test_a_bad_pair_blames_no_node_and_is_named_when_it_was_tested(count: int) -> None:
    for pair in all_pairs(count):
        broken = Broken(pairs=frozenset([pair]))
        verdict = verdict_on(count, broken)
        held(count, broken, verdict)
        assert len(verdict.good) == count, (broken, verdict)
        assert all(set(pair) <= numbers(edge) for edge in verdict.edges), (broken, verdict)


@pytest.mark.parametrize("partners", [2, 3])
@pytest.mark.parametrize("count", counts(4))
def test_two_bad_pairs_blame_no_node(count: int, partners: int) -> None:
    for first, second in combinations(all_pairs(count), 2):
        if partners > 2 or not set(first) & set(second):
            broken = Broken(pairs=frozenset([first, second]))
            held(count, broken, verdict_on(count, broken, Limits(partners=partners)))


def switches(count: int) -> Iterator[frozenset[int]]:
    """Yield every way to put nodes behind a switch, both sides with two or more: a node cut off alone counts as faulty."""
    yield from (behind for behind in fault_sets(count) if 2 <= len(behind) <= count - 2)


@pytest.mark.parametrize("count", counts(4))
def test_a_bad_switch_blames_no_node(count: int) -> None:
    for behind in switches(count):
        if 0 in behind:
            continue  # the same as the others being behind it
        broken = Broken(behind=behind)
        verdict = verdict_on(count, broken)
        held(count, broken, verdict)
        if not verdict.fabric_wide:
            assert len(verdict.good) == count, (broken, verdict)
            sides = {frozenset(numbers(group)) for group in verdict.groups}
            assert sides == {behind, frozenset(range(count)) - behind}, (broken, verdict)


@pytest.mark.parametrize("count", range(5, 11))
def test_a_faulty_node_beside_a_bad_switch_is_found_and_nobody_else_is_blamed(count: int) -> None:
    for behind, faulty in product(switches(count), range(count)):
        others = frozenset(range(count)) - behind
        if min(len(behind - {faulty}), len(others - {faulty})) >= 2:
            broken = Broken(faulty=frozenset([faulty]), behind=behind)
            held(count, broken, verdict_on(count, broken))


@pytest.mark.parametrize("count", counts(4))
def test_one_faulty_node_and_one_bad_pair_elsewhere_are_kept_apart(count: int) -> None:
    for faulty, pair in product(range(count), all_pairs(count)):
        broken = Broken(faulty=frozenset([faulty]), pairs=frozenset([pair]))
        verdict = verdict_on(count, broken)
        held(count, broken, verdict)
        if not verdict.fabric_wide:
            assert faulty in numbers(verdict.faulty + verdict.ambiguous), (broken, verdict)


@pytest.mark.parametrize("seed", range(40))
def test_large_clusters_with_everything_broken_at_once_blame_no_healthy_node(seed: int) -> None:
    chance = random.Random(seed)
    count = chance.randrange(20, 300)
    order = chance.sample(range(count), count)
    spoiled = chance.randrange(0, count // 8 + 1)
    faulty, slow, silent = (frozenset(order[part::3][: spoiled // 3]) for part in range(3))
    # bad pairs that share no node
    pairs = frozenset((min(a, b), max(a, b)) for a, b in zip(order[-20::2], order[-19::2], strict=True))
    broken = Broken(faulty, slow, silent, pairs)
    verdict = verdict_on(count, broken)
    held(count, broken, verdict)
    assert numbers(verdict.unreached) == silent
    if not verdict.fabric_wide:
        assert numbers(verdict.faulty) == faulty


@pytest.mark.parametrize(("count", "share"), [*product([32, 64, 257], [0.05, 0.1, 0.2, 0.25])])
def test_large_clusters_with_up_to_a_quarter_of_faulty_nodes_are_told_exactly(count: int, share: float) -> None:
    for seed in range(5):
        faulty = frozenset(random.Random(seed).sample(range(count), int(share * count)))
        assert numbers(verdict_on(count, Broken(faulty=faulty)).faulty) == faulty


@pytest.mark.parametrize("nodes", [[], ["a", "a"]])
def test_a_test_of_no_node_or_of_one_twice_is_refused(nodes: list[str]) -> None:
    with pytest.raises(ValueError, match="distinct nodes"):
        next(plan(nodes))
