"""What the small model learns: short questions with one right answer, and requests for a function of two numbers."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path

Item = dict[str, object]
PROGRAMS: Mapping[str, tuple[str, Callable[[int, int], int]]] = {
    "the sum": ("def f(a, b):\n    return a + b", lambda a, b: a + b),
    "the difference": ("def f(a, b):\n    return a - b", lambda a, b: a - b),
    "the product": ("def f(a, b):\n    return a * b", lambda a, b: a * b),
    "the larger": ("def f(a, b):\n    return a if a > b else b", max),
    "the smaller": ("def f(a, b):\n    return a if a < b else b", min),
    "the distance": ("def f(a, b):\n    return abs(a - b)", lambda a, b: abs(a - b)),
}
"""Functions by what they return, as text and as it should be."""
WORDINGS = ("write f that returns {}", "give me a function f for {}", "python: f, {} of two numbers", "code {} as f(a, b)")


def _sum(chance: random.Random) -> Item:
    a, b = chance.randrange(20), chance.randrange(20)
    return {"prompt": f"{a:02}+{b:02}=", "answer": str(a + b)}


def _difference(chance: random.Random) -> Item:
    a, b = chance.randrange(20), chance.randrange(20)
    return {"prompt": f"{a:02}-{b:02}=", "answer": str(a - b)}


def _larger(chance: random.Random) -> Item:
    a, b = chance.randrange(20), chance.randrange(20)
    return {"prompt": f"{a:02}>{b:02}?", "answer": "yes" if a > b else "no"}


def _even(chance: random.Random) -> Item:
    a = chance.randrange(100)
    return {"prompt": f"even {a:02}?", "answer": "no" if a % 2 else "yes"}


def _program(chance: random.Random) -> Item:
    program = chance.choice(sorted(PROGRAMS))
    text, right = PROGRAMS[program]
    pairs = [(chance.randrange(-50, 50), chance.randrange(-50, 50)) for _ in range(4)]
    tests = [f"f({a}, {b}) == {right(a, b)}" for a, b in pairs]
    return {"prompt": chance.choice(WORDINGS).format(program), "answer": text, "tests": tests}


TASKS: Mapping[str, Callable[[random.Random], Item]] = {
    "sums": _sum,
    "differences": _difference,
    "larger": _larger,
    "even": _even,
    "programs": _program,
}


def items(task: str, count: int, seed: int) -> list[Item]:
    """Return items of a task; the same for the same seed."""
    chance = random.Random(f"{task} {seed}")
    return [TASKS[task](chance) for _ in range(count)]


def write_items(path: Path, task: str, count: int, seed: int) -> None:
    """Write a dataset, an item a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(item)}\n" for item in items(task, count, seed)), encoding="utf-8")
