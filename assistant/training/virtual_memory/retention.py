"""What stays on the device between two uses, and how little traffic any choice could reach.

Between two spans an item either stays on the device (its bytes are taken in every slot between) or leaves: it is fetched again, and
written to the host before if it was changed. Which items stay is a packing problem with a capacity in every slot.

The lower bound comes from prices: put a price of p[s] >= 0 on each byte of each slot s. What stays in a choice that fits costs no
more than all free bytes, so no choice saves more than the price of all free bytes plus, for each item, the largest saving less
price of its options. This holds for all prices; a subgradient search looks for low ones. docs/virtual_memory.md has the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, product
from typing import NamedTuple

from assistant.training.virtual_memory.schedule import ItemKind, Schedule, ScheduleItem

MOST_OPERATIONS = 2_000_000
"""Of the search for prices: about a second."""
MOST_ROUNDS = 400


class RetentionOption(NamedTuple):
    """One way to treat the gaps of an item."""

    item: int
    gaps: tuple[bool, ...]
    """For each gap between spans, whether the item stays."""
    saving: int
    """Bytes a step less than if it left at every gap."""
    ranges: tuple[tuple[int, int], ...]
    """Slots that it takes besides its spans, as half-open ranges."""


class Retention(NamedTuple):
    """A choice for all items that fits, and its figures in the steady state."""

    gaps: tuple[tuple[bool, ...], ...]
    """For each item, for each gap, whether it stays."""
    usage: tuple[int, ...]
    """Bytes on the device in each slot."""
    fetched_bytes: int
    written_bytes: int
    bound_bytes: int
    """No choice for this schedule moves fewer bytes a step in the long run."""

    @property
    def traffic_bytes(self) -> int:
        """Bytes between host and device a step, both ways."""
        return self.fetched_bytes + self.written_bytes


def gaps_of(item: ScheduleItem, slots: int) -> list[tuple[tuple[int, int], ...]]:
    """Return the slots of each gap as half-open ranges; the last gap of a cyclic item goes over the end of the step."""
    gaps: list[tuple[tuple[int, int], ...]] = [
        ((before.end + 1, after.start),) for before, after in zip(item.spans, item.spans[1:], strict=False)
    ]
    if item.cyclic:
        gaps.append(((item.spans[-1].end + 1, slots), (0, item.spans[0].start)))
    return gaps


def traffic_of(item: ScheduleItem, gaps: Sequence[bool], *, write_through: bool) -> tuple[int, int]:
    """Return the bytes fetched and written a step, in the steady state, when an item stays at some of its gaps.

    Args:
        item: With its spans.
        gaps: For each gap whether it stays.
        write_through: A changed weight or state is written in the step that changed it, wherever it lies then.
    """
    writes_through = write_through and item.cyclic
    if item.cyclic and all(gaps):
        return 0, item.size if writes_through else 0
    spans, stays = list(item.spans), list(gaps)
    if item.cyclic:  # begin behind a gap at which it leaves
        first = max(at for at, stay in enumerate(stays) if not stay) + 1
        spans, stays = spans[first:] + spans[:first], stays[first:] + stays[:first]
    fetched = item.size if item.cyclic or item.on_host else 0
    written, dirty = 0, False
    for at, span in enumerate(spans):
        dirty |= span.changes
        leaves = at < len(stays) and not stays[at]
        if leaves and dirty:
            written, dirty = written + item.size, False
        if leaves and at < len(spans) - 1:
            fetched += item.size
    return fetched, written


def options_of(number: int, item: ScheduleItem, slots: int, *, write_through: bool) -> list[RetentionOption]:
    """Return the options of an item besides leaving at every gap; gaps without a slot between are always taken."""
    gaps = gaps_of(item, slots)
    most = sum(traffic_of(item, [False] * len(gaps), write_through=write_through))
    options = []
    for stays in product((False, True), repeat=len(gaps)):
        saving = most - sum(traffic_of(item, stays, write_through=write_through))
        ranges = tuple(span for gap, stay in zip(gaps, stays, strict=True) if stay for span in gap if span[0] < span[1])
        if saving > 0:
            options.append(RetentionOption(number, stays, saving, ranges))
    return options


def choose_retention(schedule: Schedule, budget_bytes: int, *, write_through: bool, search: bool = True) -> Retention | None:
    """Choose what stays.

    Args:
        schedule: Of one step.
        budget_bytes: Of the device.
        write_through: See `traffic_of`.
        search: Whether to look for good prices; without, the bound is loose and only two simple orders are tried.

    Returns:
        The choice with the least traffic of those tried, or None when the schedule does not fit even if nothing stays.
    """
    base = schedule.base_bytes()
    if max(base) > budget_bytes:
        return None
    free = [budget_bytes - needed for needed in base]
    options = [
        option
        for number, item in enumerate(schedule.items)
        for option in options_of(number, item, len(base), write_through=write_through)
    ]
    prices, most_saved = _prices(schedule, options, free) if search else ([0.0] * len(free), float("inf"))
    sizes = [item.size for item in schedule.items]

    def slots_taken(option: RetentionOption) -> int:
        return sum(end - start for start, end in option.ranges)

    sums = [0.0, *accumulate(prices)]

    def gain(option: RetentionOption) -> float:
        price = sum(sums[end] - sums[start] for start, end in option.ranges)
        return option.saving / sizes[option.item] - price

    orders: list[Callable[[RetentionOption], tuple[float, ...]]] = [
        lambda option: (-option.saving / sizes[option.item], slots_taken(option), -sizes[option.item]),
        lambda option: (-option.saving / sizes[option.item] / (1 + slots_taken(option)), -sizes[option.item]),
    ]
    if search:
        orders.append(lambda option: (-gain(option), -option.saving / sizes[option.item], -sizes[option.item]))
    choices = [_pack(sorted(options, key=order), sizes, free) for order in orders]
    best = max(choices, key=lambda choice: sum(option.saving for option in choice.values()))
    return _retention(schedule, best, base, most_saved, write_through=write_through)


def _pack(options: Sequence[RetentionOption], sizes: Sequence[int], free: Sequence[int]) -> dict[int, RetentionOption]:
    """Take options in order where they fit; a second round widens what was taken."""
    left_over, choice = list(free), dict[int, RetentionOption]()
    for _ in range(2):
        for option in options:
            before = choice.get(option.item)
            if before is not None and before.saving >= option.saving:
                continue
            size = sizes[option.item]
            if before is not None:
                _occupy(left_over, before, -size)
            if all(min(left_over[start:end]) >= size for start, end in option.ranges):
                choice[option.item] = option
                _occupy(left_over, option, size)
            elif before is not None:
                _occupy(left_over, before, size)
    return choice


def _occupy(free: list[int], option: RetentionOption, size: int) -> None:
    for start, end in option.ranges:
        free[start:end] = [room - size for room in free[start:end]]


def _prices(schedule: Schedule, options: Sequence[RetentionOption], free: Sequence[int]) -> tuple[list[float], float]:
    """Return prices for a byte of each slot and the most that any choice can save, by a projected subgradient method."""
    by_item: dict[int, list[RetentionOption]] = {}
    for option in options:
        by_item.setdefault(option.item, []).append(option)
    sizes = [item.size for item in schedule.items]
    slots = len(free)
    prices = [0.0] * slots
    best, best_prices = float("inf"), prices
    rounds = max(20, min(MOST_ROUNDS, MOST_OPERATIONS // (slots + 4 * len(options) + 1)))
    for number in range(rounds):
        sums = [0.0, *accumulate(prices)]
        value = sum(price * room for price, room in zip(prices, free, strict=True))
        changes = [0] * (slots + 1)
        for item, choices in by_item.items():
            size, most, best_option = sizes[item], 0.0, None
            for option in choices:
                price = sum(sums[end] - sums[start] for start, end in option.ranges)
                if (net := option.saving - size * price) > most:
                    most, best_option = net, option
            value += most
            for start, end in best_option.ranges if best_option else ():
                changes[start] += size
                changes[end] -= size
        if value < best:
            best, best_prices = value, prices
        slopes = [room - demand for room, demand in zip(free, accumulate(changes[:-1]), strict=True)]
        slopes = [slope if price > 0 or slope < 0 else 0 for slope, price in zip(slopes, prices, strict=True)]
        if not (square := sum(slope * slope for slope in slopes)):
            break
        # the target lies below the best value by a share that shrinks: Polyak's step with an estimated optimum
        length = (value - best * (1 - 0.3 * 0.985**number)) / square
        prices = [max(0.0, price - length * slope) for price, slope in zip(prices, slopes, strict=True)]
    return best_prices, best


def _retention(
    schedule: Schedule, choice: dict[int, RetentionOption], base: Sequence[int], most_saved: float, *, write_through: bool
) -> Retention:
    usage, gaps, most, fetched, written = list(base), [], 0, 0, 0
    for number, item in enumerate(schedule.items):
        nothing = (False,) * len(gaps_of(item, len(base)))
        stays = choice[number].gaps if number in choice else nothing
        if number in choice:
            _occupy(usage, choice[number], -item.size)
        amount = traffic_of(item, stays, write_through=write_through)
        fetched, written = fetched + amount[0], written + amount[1]
        most += sum(traffic_of(item, nothing, write_through=write_through))
        gaps.append(stays)
    bound = max(0, most - most_saved) if most_saved != float("inf") else 0
    return Retention(tuple(gaps), tuple(usage), fetched, written, int(bound))


def resident_at_start(schedule: Schedule, retention: Retention) -> set[int]:
    """Return the numbers of the items that stay on the device from one step to the next."""
    return {
        number
        for number, item in enumerate(schedule.items)
        if item.cyclic and retention.gaps[number][-1] and item.key.kind in (ItemKind.WEIGHT, ItemKind.STATE)
    }
