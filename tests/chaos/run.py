"""Run the chaos suite from the command line: thousands of incidents, or one seed again.

python -m tests.chaos.run --incidents 3000        as many seeds as that takes
python -m tests.chaos.run --seed 17 --story       one seed, with what happened
python -m tests.chaos.run --threads --incidents 500    with the daemon's own pool of threads
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from assistant.store import Store
from tests.chaos.dice import something
from tests.chaos.judge import counted
from tests.chaos.threads import ThreadedWorld
from tests.chaos.world import World

STEPS = 120


@dataclass
class Played:
    """What came of one seed."""

    seed: int
    wrong: list[str]
    story: list[str]
    ends: Counter[str]
    changes: int
    deaths: int = 0
    incidents: int = field(init=False)

    def __post_init__(self) -> None:
        self.incidents = sum(self.ends.values())

    def __str__(self) -> str:
        again = f"again: python -m tests.chaos.run --seed {self.seed} --story"
        return "\n".join([f"seed {self.seed}: {len(self.wrong)} wrong", *self.wrong[:20], again])


def play(seed: int, folder: Path, steps: int = STEPS, *, threads: bool = False) -> Played:
    """Let things happen by the dice of a seed, lift the faults, and return what came of it.

    Args:
        seed: Of the dice.
        folder: For the store and the logs.
        steps: How many things happen.
        threads: Whether incidents are worked on by the daemon's own pool; then a seed is not quite the same night again.
    """
    world = ThreadedWorld(folder, seed) if threads else World(folder, seed)
    try:
        for _ in range(steps):
            something(world)
        world.settle()
        with Store(world.path, world.clock) as store:
            ends = counted(store)
    finally:
        world.close()
    deaths = sum(line.endswith(" died") for line in world.story)
    return Played(seed, world.judge.wrong, world.story, ends, len(world.judge.effects), deaths)


def main() -> int:
    """Run and print the figures; 1 when something was wrong."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--incidents", type=int, default=3000)
    asked.add_argument("--first", type=int, default=1, help="the first seed")
    asked.add_argument("--seed", type=int, help="only this one")
    asked.add_argument("--steps", type=int, default=STEPS)
    asked.add_argument("--story", action="store_true")
    asked.add_argument("--threads", action="store_true", help="work on incidents in the daemon's own pool")
    wanted = asked.parse_args()
    logging.disable(logging.CRITICAL)
    began, seed, failed = time.monotonic(), wanted.seed if wanted.seed is not None else wanted.first, 0
    ends: Counter[str] = Counter()
    changes = deaths = 0
    while True:
        with tempfile.TemporaryDirectory() as folder:
            played = play(seed, Path(folder), wanted.steps, threads=wanted.threads)
        ends, changes, deaths = ends + played.ends, changes + played.changes, deaths + played.deaths
        failed += bool(played.wrong)
        if wanted.story:
            print("\n".join(played.story))
        if played.wrong:
            print(played, flush=True)
        seed += 1
        if wanted.seed is not None or sum(ends.values()) >= wanted.incidents:
            break
    print(f"{sum(ends.values())} incidents, {changes} changes, {deaths} deaths of a watch in {time.monotonic() - began:.0f} s")
    print(", ".join(f"{count} {state}" for state, count in ends.most_common()))
    print(f"{failed} seeds with something wrong")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
