"""A trainer that does nothing but save, for `kills`: its state tells by itself of which step it is.

    python -m tests.chaos.saving_trainer FOLDER SEED RANK WORLD WRITER

Says a line for each thing that happened: `loaded STEP`, `writer PID`, `taken STEP` when a save has returned, `committed STEP` when
one is known to be on the disk; `wrong …` when what was loaded is not what was saved at that step.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from assistant.training.checkpoints import AsyncCheckpointer

ARRAYS = 5


def fill(state: dict[str, Any], step: int, seed: int) -> None:
    """Change a state in place as a step does, array after array."""
    for number, array in enumerate(state["arrays"]):
        array[:] = np.arange(array.size) % 251 + step * 1000 + number + seed % 7
    state["step"] = step


def problem(state: Any, step: int, seed: int) -> str:
    """Return what of a loaded state is not of its step; empty when all is."""
    wanted = fresh(seed)
    fill(wanted, step, seed)
    if state["step"] != step:
        return f"step {state['step']} in the checkpoint of {step}"
    torn = [number for number, array in enumerate(state["arrays"]) if not np.array_equal(array, wanted["arrays"][number])]
    return f"arrays {torn} of step {step} are of another one" if torn else ""


def fresh(seed: int) -> dict[str, Any]:
    """Return the state before the first step; sizes come from the seed."""
    dice = random.Random(seed)
    return {"step": 0, "arrays": [np.zeros(dice.randrange(1, 200_000)) for _ in range(ARRAYS)]}


def say(*words: object) -> None:
    """Say a line at once."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main(folder: Path, seed: int, rank: int, world: int, writer: str) -> None:
    """Load, then save without end."""
    with AsyncCheckpointer(folder, keep=2, writer=writer, rank=rank, world=world, metrics=None, patience_s=30) as checkpoints:
        loaded = checkpoints.load_latest()
        step = loaded.step if loaded else 0
        found = (problem(loaded.state, step, seed) or "; ".join(map(str, loaded.refused))) if loaded else ""
        say("wrong" if found else "loaded", step, found)
        say("writer", getattr(checkpoints._saver._hand, "pid", 0))
        state = fresh(seed)
        while True:
            step += 1
            fill(state, step, seed)
            checkpoints.save(step, state)
            say("taken", step)
            if checkpoints.saves.committed == checkpoints.saves.count - 1 and checkpoints.saves.count > 1:
                say("committed", step - 1)
            if step % 3 == 0:
                checkpoints.flush()
                say("committed", step)
            time.sleep(random.random() * 0.01)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
