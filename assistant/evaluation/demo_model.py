"""A small real evaluator: its questions, the network that learns to answer them, the suite of both, and its inference.

The questions are short and have one right answer, or ask for a Python function of two numbers. The network has one hidden layer,
reads a prompt and chooses among the answers of its training; it is trained in seconds. Inference is `python -m
assistant.evaluation.demo_model MODEL [MS]`, with pieces on stdin, see `trial`.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

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


os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


FEATURES, HIDDEN_UNITS = 1024, 96
Floats = np.ndarray[Any, np.dtype[np.float32]]


def features(prompts: Sequence[str]) -> Floats:
    """Return what the network sees: each character at its place, and each pair of neighbours.

    Returns:
        Float array, shape (prompts, FEATURES), counts of hashed features.
    """
    matrix = np.zeros((len(prompts), FEATURES), dtype=np.float32)
    for row, prompt in enumerate(prompts):
        for place, sign in enumerate(prompt[:40]):
            matrix[row, zlib.crc32(f"{place} {sign}".encode()) % FEATURES] += 1
            matrix[row, zlib.crc32(prompt[place : place + 2].encode()) % FEATURES] += 1
    return matrix


class AnswerModel:
    """A trained network."""

    def __init__(self, weights: dict[str, Any], answers: Sequence[str]) -> None:
        """Build it of its parts."""
        self.weights, self.answers = weights, list(answers)

    def answer(self, prompts: Sequence[str]) -> list[str]:
        """Return the likeliest answer to each prompt."""
        activations = np.maximum(features(prompts) @ self.weights["into"] + self.weights["bias"], 0)
        return [self.answers[place] for place in (activations @ self.weights["out"]).argmax(axis=1)]

    def save(self, folder: Path, *, padding_bytes: int = 0) -> None:
        """Write it as a folder of two files, of which padding makes a large one."""
        folder.mkdir(parents=True, exist_ok=True)
        padding = np.random.default_rng(7).integers(0, 256, padding_bytes, dtype=np.uint8)
        with (folder / "weights.npz").open("wb") as file:
            np.savez(file, **self.weights, padding=padding)
        (folder / "answers.json").write_text(json.dumps(self.answers), encoding="utf-8")


def load(folder: Path) -> AnswerModel:
    """Return the model of a folder; all of it is read, as a large one would be."""
    with np.load(folder / "weights.npz") as stored:
        weights = {name: stored[name] for name in stored.files}
    return AnswerModel(weights, json.loads((folder / "answers.json").read_text(encoding="utf-8")))


def train(*, steps: int = 700, seed: int = 11, count: int = 900) -> AnswerModel:
    """Return a model trained on items of all tasks."""
    examples = [item for task in sorted(TASKS) for item in items(task, count, seed)]
    answers = sorted({str(item["answer"]) for item in examples})
    inputs = features([str(item["prompt"]) for item in examples])
    labels = np.array([answers.index(str(item["answer"])) for item in examples])
    chance = np.random.default_rng(seed)
    weights: dict[str, Any] = {
        "into": (chance.standard_normal((FEATURES, HIDDEN_UNITS)) * 0.2).astype(np.float32),
        "bias": np.zeros(HIDDEN_UNITS, dtype=np.float32),
        "out": (chance.standard_normal((HIDDEN_UNITS, len(answers))) * 0.1).astype(np.float32),
    }
    moments = {name: (np.zeros_like(weight), np.zeros_like(weight)) for name, weight in weights.items()}
    for step in range(1, steps + 1):
        rows = chance.integers(0, len(examples), 128)
        gradients = _gradients(weights, inputs[rows], labels[rows])
        for name, gradient in gradients.items():
            first, second = moments[name]
            first += 0.1 * (gradient - first)
            second += 0.01 * (gradient**2 - second)
            scaled = (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
            weights[name] = weights[name] - np.float32(0.01) * scaled.astype(np.float32)
    return AnswerModel(weights, answers)


def _gradients(weights: dict[str, Any], inputs: Floats, labels: Any) -> dict[str, Any]:
    """Return the gradients of the mean cross entropy."""
    activations = np.maximum(inputs @ weights["into"] + weights["bias"], 0)
    scores = activations @ weights["out"]
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    chances[np.arange(len(labels)), labels] -= 1
    chances /= len(labels)
    hidden_gradient = (chances @ weights["out"].T) * (activations > 0)
    return {"out": activations.T @ chances, "into": inputs.T @ hidden_gradient, "bias": hidden_gradient.sum(axis=0)}


COUNTS = {"sums": 400, "differences": 400, "larger": 300, "even": 200, "programs": 30}


def write_demo(folder: Path, *, sets: int = 2, item_ms: float = 2.0, padding_bytes: int = 32 << 20) -> Path:
    """Train the model, make up datasets, and return the path of the suite.

    Args:
        folder: Made when missing.
        sets: How many datasets of each task.
        item_ms: How long the model rests for each item, as a larger one would compute.
        padding_bytes: What makes the model as large as a small real one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    train().save(folder / "model", padding_bytes=padding_bytes)
    infer = '"{python} -m assistant.evaluation.demo_model {model} ' + f'{item_ms:g} {{pieces}}"'
    metric = '"{python} -m assistant.evaluation.demo_score exact {out} {score}"'
    lines = ['title = "demo"', 'model = "model"', "", "[defaults]", f"infer = {infer}", f"metric = {metric}"]
    for number in range(1, sets + 1):
        for task, count in COUNTS.items():
            data = Path("data") / f"{task}-{number}.jsonl"
            write_items(folder / data, task, count, seed=1000 + number)
            lines += ["", "[[dataset]]", f'name = "{task}-{number}"', f'data = "{data}"']
            lines += [f"infer_s = {count * item_ms / 1000:g}", "prepare_s = 0"]
            if task == "programs":
                lines += [f"metric = {metric.replace(' exact ', ' programs ')}", "sandbox = true", "metric_timeout_s = 60"]
                lines += ["metric_s = 3"]
            else:
                lines += ["metric_s = 0.2"]
    path = folder / "suite.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


BATCH = 32


def main() -> None:
    """Load the model, then answer for each piece."""
    model = load(Path(sys.argv[1]))
    item_ms = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    _say({"ready": True})
    for line in sys.stdin:
        try:
            prepare_s = _evaluate(model, json.loads(line), item_ms)
        except (OSError, ValueError, KeyError) as error:
            _say({"ok": False, "error": f"{type(error).__name__}: {error}"})
        else:
            _say({"ok": True, "prepare_s": prepare_s})


def _evaluate(model: AnswerModel, piece: dict[str, Any], item_ms: float) -> float:
    """Write the answers and return how long reading the questions took."""
    start = time.monotonic()
    lines = Path(piece["data"]).read_text(encoding="utf-8").splitlines()[piece["first"] : piece["last"]]
    prompts = [json.loads(line) for line in lines]
    prepare_s = time.monotonic() - start
    with Path(piece["out"]).open("w", encoding="utf-8") as out:
        for at in range(0, len(prompts), BATCH):
            part = prompts[at : at + BATCH]
            for item, answer in zip(part, model.answer([item["prompt"] for item in part]), strict=True):
                out.write(json.dumps({**item, "given": answer}) + "\n")
            time.sleep(item_ms * len(part) / 1000)
    return prepare_s


def _say(record: object) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
