"""Epochs, samples and tokens as a measure of how far a training came where its log numbers no step."""

from __future__ import annotations

import pytest

from assistant.logs.lines import Line, Lines, clean
from assistant.logs.phases import counts_of
from assistant.recover.comparison import compared_by_count
from assistant.recover.verify import Look, loss_seen

KERAS = "1875/1875 [==============================] - 5s 3ms/step - loss: {:.4f} - accuracy: 0.9152 - val_loss: 9.9"
SHAPES = {
    "keras": ("Epoch {0}/9", KERAS.replace("{:.4f}", "{1:.4f}")),
    "keras 3": (
        "Epoch {0}/9",
        "\x1b[1m1875/1875\x1b[0m \x1b[32m━━━━━━━━\x1b[0m \x1b[1m5s\x1b[0m 3ms/step - accuracy: 0.91 - loss: {1:.4f}",
    ),
    "keras, drawn": ("Epoch {0}/9", "  10/1875 - loss: 5.0\r 900/1875 - loss: 4.0\r1875/1875 - 5s - loss: {1:.4f} - 5s/epoch"),
    "plain": ("Epoch {0}: loss {1:.4f}",),
    "keys": ("epoch={0} val_loss=7.7 train_loss={1:.4f}",),
    "of": ("[Epoch {0}/9] Loss: {1:.4f}",),
    "sentence": ("2026-01-05 02:00:00 INFO epoch {0} finished, loss={1:.4f}, acc=0.9",),
    "json": ('{{"epoch": {0}, "loss": {1:.4f}}}',),
    "mean": ("Epoch {0} mean loss {1:.4f} (12.3s)",),
    "number sign": ("epoch #{0} avg loss: {1:.4f}",),
}


def texts(shape: tuple[str, ...], losses: list[float], first: int = 1) -> list[str]:
    return [line.format(number, loss) for number, loss in enumerate(losses, first) for line in shape]


def lines(*found: str) -> Lines:
    return Lines([(1, "".join(f"{text}\n" for text in found).encode())])


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_epochs_are_read_with_their_training_loss(shape: tuple[str, ...]) -> None:
    counts = counts_of(lines(*texts(shape, [0.5, 0.25, 0.2])))
    assert counts is not None
    assert (counts.unit, [(point.step, point.loss) for point in counts.points]) == ("epochs", [(1, 0.5), (2, 0.25), (3, 0.2)])


@pytest.mark.parametrize(
    ("found", "unit", "counted"),
    [
        (
            ["Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.1", "Train Epoch: 1 [1280/60000 (2%)]\tLoss: 1.9"],
            "samples of an epoch",
            [60640, 61280],
        ),
        (["tokens 1048576 loss 3.2", "tokens 2097152 loss 3.1"], "tokens", [1048576, 2097152]),
        (["samples=51200 loss=3.2 lr=1e-4", "samples=102400 loss=3.1 lr=1e-4"], "samples", [51200, 102400]),
        (["epoch 1 tokens seen: 100 loss 2", "epoch 1 tokens seen: 200 loss 1.9"], "tokens", [100, 200]),
    ],
)
def test_the_finest_count_is_taken(found: list[str], unit: str, counted: list[int]) -> None:
    counts = counts_of(lines(*found))
    assert counts is not None
    assert (counts.unit, [point.step for point in counts.points]) == (unit, counted)


@pytest.mark.parametrize(
    "text",
    [
        "Epoch 3 val_loss 0.3",
        "Epoch 3 validation loss: 0.3",
        "loss: 0.3",
        "epochs = 30, loss = mse",
        "best epoch so far is unknown",
        "warmup epoch 0.5 loss scale 65536 lossless",
        "Epoch 4/9",
        "speed 3000 tokens/s",
        "no loss of samples",
        "1875/1875 - loss: 0.3",
        "packet loss 3 %",
    ],
)
def test_what_counts_no_training_is_not_read(text: str) -> None:
    assert counts_of([Line(1, clean(text.encode()))]) is None


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(
    ("first", "losses", "resumed", "reached", "look"),
    [
        (4, [0.19, 0.18], True, 5, Look.CONTINUES),
        (1, [0.19, 0.18], True, 5, Look.CONTINUES),  # counts anew, goes on from its weights
        (1, [2.3, 1.9], True, 5, Look.JUMPED),  # from scratch although a checkpoint was chosen
        (4, [2.3, 1.9], True, 5, Look.JUMPED),
        (1, [2.3, 1.9, 0.5, 0.3], False, 4, Look.CONTINUES),
        (4, [0.19], True, 4, Look.WAITING),
        (4, [float("nan"), 0.2], True, 5, Look.WAITING),  # one count without a number says nothing yet
        (4, [float("nan")] * 5, True, 8, Look.JUMPED),
    ],
)
def test_a_restart_is_compared_by_its_epochs(
    shape: tuple[str, ...], first: int, losses: list[float], *, resumed: bool, reached: int, look: Look
) -> None:
    before = lines(*texts(shape, [0.25, 0.22, 0.2]))
    found = compared_by_count(before, lines(*texts(shape, losses, first)), resumed=resumed)
    assert found is not None
    assert max(point.step for point in found.after) == reached
    assert loss_seen(found.before, found.after, restart_step=found.began, ended=False).status is look


def test_counts_of_two_kinds_are_not_compared() -> None:
    assert compared_by_count(lines("Epoch 1 loss 0.5"), lines("tokens 5 loss 0.5"), resumed=True) is None
