"""kill -9 at random moments, real processes: no checkpoint ever loads wrongly, none that was committed is ever lost.

    python -m tests.chaos.kills --kills 200

Trainers save as fast as they can and are killed, with or without their writers, one rank of two or both; the next life loads what
is there. What a trainer had handed over before it was killed alone is there, too: its writer outlives it.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
GONE_S = 30.0
"""How long to try to remove the folder of trainers that were killed."""


@dataclass
class Told:
    """What the lives of one folder have told so far."""

    committed: int = 0
    """Newest step that must be there."""
    kills: int = 0
    outlived: int = 0
    """Kills after which the writer alone brought a snapshot to the disk."""
    problems: list[str] = field(default_factory=list)


def one_life(folder: Path, seed: int, dice: random.Random, told: Told, *, world: int, writer: str) -> None:
    """Start the ranks, kill them at a random moment, and note what they had told."""
    words = [str(folder), str(seed)]
    trainers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.saving_trainer", *words, str(rank), str(world), writer],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for rank in range(world)
    ]
    first = trainers[0].stdout
    assert first is not None
    loaded, own = first.readline().split(), first.readline().split()
    if loaded[:1] != ["loaded"]:
        told.problems.append(f"seed {seed}, kill {told.kills}: {' '.join(loaded) or 'the trainer did not come up'}")
    elif int(loaded[1]) < told.committed:
        told.problems.append(f"seed {seed}, kill {told.kills}: loaded {loaded[1]}, committed was {told.committed}")
    time.sleep(dice.random() ** 2 * 0.8)
    with_writer = writer == "process" and dice.random() < 0.4 and len(own) == 2
    for trainer in dice.sample(trainers, world):
        trainer.kill()
        time.sleep(dice.choice((0.0, 0.0, 0.01)))
    if with_writer:
        subprocess.run(["kill", "-9", own[1]], check=False, stderr=subprocess.DEVNULL)
    told.kills += 1
    said = [trainer.communicate(timeout=60)[0].split("\n") for trainer in trainers]
    assert all(trainer.returncode == -signal.SIGKILL for trainer in trainers) or told.problems
    _note(told, said[0], survives=writer == "process" and world == 1 and not with_writer)


def _note(told: Told, said: Sequence[str], *, survives: bool) -> None:
    committed = [int(line.split()[1]) for line in said if line.startswith("committed ")]
    taken = [int(line.split()[1]) for line in said if line.startswith("taken ")]
    told.committed = max([told.committed, *committed])
    if survives and taken and taken[-1] > told.committed:
        told.committed = taken[-1]
        told.outlived += 1


@contextmanager
def _folder() -> Iterator[str]:
    """A folder that is removed at the end, also where the writer of the last trainer is still at work in it."""
    name = tempfile.mkdtemp(prefix="nightshift-kills-")
    try:
        yield name
    finally:
        deadline = time.monotonic() + GONE_S
        while Path(name).exists() and time.monotonic() < deadline:
            shutil.rmtree(name, ignore_errors=True)
            time.sleep(0.05)


def run(kills: int, seed: int) -> Told:
    """Kill so often, in one folder for one rank with either writer and for two ranks."""
    dice = random.Random(seed)
    every = Told()
    for world, writer, share in ((1, "process", 0.6), (1, "thread", 0.2), (2, "process", 0.2)):
        with _folder() as name:
            told = Told()
            while told.kills < max(1, round(kills * share)) and not told.problems:
                one_life(Path(name) / "checkpoints", seed, dice, told, world=world, writer=writer)
            last = Told(committed=told.committed)
            one_life(Path(name) / "checkpoints", seed, dice, last, world=world, writer=writer)
            every.kills += told.kills + 1
            every.outlived += told.outlived
            every.committed += max(told.committed, last.committed)
            every.problems += told.problems + last.problems
    return every


def main() -> int:
    """Run and print; 1 when a checkpoint was wrong or lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--first", type=int, default=1, help="seed")
    options = parser.parse_args()
    told = run(options.kills, options.first)
    print(
        f"{told.kills} kills at random moments, {told.committed:,} steps: {len(told.problems)} wrong or lost; "
        f"{told.outlived} snapshots were persisted by the writer after its trainer was dead"
    )
    print("\n".join(told.problems))
    return bool(told.problems)


if __name__ == "__main__":
    sys.exit(main())
