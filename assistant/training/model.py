"""A small character model: embeddings of the last letters, one hidden layer, AdamW. All float32, all seeded."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from assistant.training.loader import LETTERS, Batch

Floats = NDArray[np.float32]

CONTEXT = 8
"""Letters that the model sees."""
WIDTH = 12
"""Size of an embedding."""
HIDDEN_UNITS = 96

SHAPES: dict[str, tuple[int, ...]] = {
    "embedding": (len(LETTERS), WIDTH),
    "hidden.weight": (CONTEXT * WIDTH, HIDDEN_UNITS),
    "hidden.bias": (HIDDEN_UNITS,),
    "output.weight": (HIDDEN_UNITS, len(LETTERS)),
    "output.bias": (len(LETTERS),),
}
SIZE = sum(math.prod(shape) for shape in SHAPES.values())
"""How many parameters there are."""


def new_parameters(seed: int) -> Floats:
    """Return fresh parameters, all in one vector of length SIZE."""
    generator = np.random.default_rng(seed)
    parts = []
    for name, shape in SHAPES.items():
        scale = 0.0 if name.endswith("bias") else 1.0 / math.sqrt(shape[0])
        parts.append(generator.normal(0.0, 1.0, shape).ravel() * scale)
    return np.concatenate(parts).astype(np.float32)


def views(flat: Floats) -> dict[str, Floats]:
    """Return the named tensors inside a vector, without copying."""
    tensors, start = {}, 0
    for name, shape in SHAPES.items():
        size = math.prod(shape)
        tensors[name] = flat[start : start + size].reshape(shape)
        start += size
    return tensors


def loss_and_gradient(flat: Floats, batch: Batch) -> tuple[float, Floats]:
    """Return the mean loss in nats a letter, unweighted, and the gradient of the weighted one, shape (SIZE,)."""
    tensors = views(flat)
    windows = np.lib.stride_tricks.sliding_window_view(batch.ids, CONTEXT + 1, axis=1).reshape(-1, CONTEXT + 1)
    context, targets = windows[:, :CONTEXT], windows[:, CONTEXT]
    count = len(targets)
    inputs = tensors["embedding"][context].reshape(count, CONTEXT * WIDTH)
    activations = np.tanh(inputs @ tensors["hidden.weight"] + tensors["hidden.bias"])
    logits = activations @ tensors["output.weight"] + tensors["output.bias"]
    logits -= logits.max(axis=1, keepdims=True)
    chances = np.exp(logits)
    chances /= chances.sum(axis=1, keepdims=True)
    loss = float(-np.log(np.maximum(chances[np.arange(count), targets], 1e-30)).mean())

    chances[np.arange(count), targets] -= 1.0
    chances *= np.repeat(batch.weights, count // len(batch.weights))[:, None] / count
    gradient = np.zeros_like(flat)
    parts = views(gradient)
    parts["output.weight"][:] = activations.T @ chances
    parts["output.bias"][:] = chances.sum(axis=0)
    hidden_gradient = (chances @ tensors["output.weight"].T) * (1.0 - activations * activations)
    parts["hidden.weight"][:] = inputs.T @ hidden_gradient
    parts["hidden.bias"][:] = hidden_gradient.sum(axis=0)
    np.add.at(parts["embedding"], context, (hidden_gradient @ tensors["hidden.weight"].T).reshape(count, CONTEXT, WIDTH))
    return loss, gradient


class AdamW:
    """The optimiser (Loshchilov and Hutter, 2019) over one vector, without gradient clipping."""

    def __init__(self, size: int, *, decay: float = 0.01) -> None:
        """Begin with empty moments for `size` parameters."""
        self.first: Floats = np.zeros(size, dtype=np.float32)
        self.second: Floats = np.zeros(size, dtype=np.float32)
        self.decay = decay

    def update(self, flat: Floats, gradient: Floats, *, step: int, rate: float) -> None:
        """Move the parameters in place; `step` counts from 1."""
        self.first += 0.1 * (gradient - self.first)
        self.second += 0.001 * (gradient * gradient - self.second)
        first, second = self.first / (1 - 0.9**step), self.second / (1 - 0.999**step)
        flat -= np.float32(rate) * (first / (np.sqrt(second) + 1e-8) + self.decay * flat)


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Return the rate of a step: ten steps of warm-up, then half a cosine down to a tenth."""
    if step <= 10:
        return peak * step / 10
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * (step - 10) / max(1, steps - 10))))
