"""A network of one hidden layer that reads a prompt and chooses among the answers that it has seen."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from assistant.evaluation.demo.tasks import TASKS, items

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
