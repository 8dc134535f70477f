"""Read step, loss and gradient norm off the lines of all common training frameworks.

Megatron-LM, Megatron-DeepSpeed, GPT-NeoX, DeepSpeed, InternEvo, Hugging Face Trainer, NeMo and Lightning, torchtitan, fairseq and
metaseq, litgpt, mmengine, Composer, plain `step 12 loss 2.3`, and JSON lines. Pure: text in, numbers out; NaN and inf are kept.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from assistant.logs.lines import Line
from assistant.logs.prefix import DEFAULT_YEAR, parse
from assistant.records import MetricPoint

NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+|nan|NaN|NAN|inf|Inf|INF|Infinity)(?![\w.])"


class Format(NamedTuple):
    """How one family of programs prints a step."""

    name: str
    gate: str
    """Text that every such line holds; checked first, because it is cheap."""
    step: re.Pattern[str]
    loss: re.Pattern[str]
    grad_norm: re.Pattern[str] | None = None
    seconds: re.Pattern[str] | None = None
    scale: float = 1.0
    """Seconds of one unit of `seconds`."""


def _find(before: str, after: str = "") -> re.Pattern[str]:
    return re.compile(rf"{before}({NUMBER}){after}")


FORMATS = (
    Format(
        "megatron",
        "elapsed time per iteration",
        re.compile(r"iteration\s+(\d+)/"),
        _find(r"\blm[ _]loss(?: value)?: "),
        _find(r"\bgrad norm: "),
        _find(r"elapsed time per iteration \((?:ms)\): "),
        0.001,
    ),
    Format(
        "megatron seconds",
        "elapsed time per iteration (s)",
        re.compile(r"iteration\s+(\d+)/"),
        _find(r"\blm[ _]loss: "),
        _find(r"\bgrad norm: "),
        _find(r"elapsed time per iteration \(s\): "),
    ),
    Format("internevo", "tgs", re.compile(r"\bstep=(\d+)"), _find(r"\bloss="), _find(r"grad_norm=(?:\{[^}:]*: )?"), None),
    Format(
        "torchtitan",
        "loss:",
        re.compile(r"\bstep:\s*(\d+)"),
        _find(r"\bloss:\s*"),
        _find(r"\bgrad_norm:\s*"),
    ),
    Format(
        "litgpt",
        "loss train:",
        re.compile(r"\bstep (\d+)"),
        _find(r"\bloss train: "),
        None,
        _find(r"iter time: ", " ms"),
        0.001,
    ),
    Format(
        "mmengine",
        "Iter(train)",
        re.compile(r"Iter\(train\) \[\s*(\d+)/"),
        _find(r"\bloss: "),
        _find(r"\bgrad_norm: "),
        _find(r"\btime: "),
    ),
    Format("composer batch", "[batch=", re.compile(r"\[batch=(\d+)/"), _find(r"loss/train/total: "), _find(r"grad/global: ")),
    Format("tensorflow", "loss = ", re.compile(r"\bstep = (\d+)"), _find(r"\bloss = ")),
    Format(
        "plain",
        "oss",
        re.compile(r"(?:\b(?:global[_ ]?step|step|iter(?:ation)?|Step|Iter(?:ation)?|batch)[:= \[]+\s*)(\d+)(?![\d.])"),
        _find(r"\b(?:(?:train|lm|reduced_train|training|total)[_ /]?)?[lL]oss[:= ]+\s*"),
        _find(r"\b(?:grad[_ ]?norm|gnorm|gradnorm|global grad norm)[:= ]+\s*"),
    ),
)
_STEP_KEYS = ("step", "global_step", "num_updates", "iteration", "iter", "current_steps", "trainer/global_step", "_step")
_LOSS_KEYS = (
    "loss",
    "train_loss",
    "lm loss",
    "lm_loss",
    "lm-loss",
    "train/loss",
    "loss/train",
    "train/lm_loss",
    "reduced_train_loss",
    "total_loss",
    "train_inner/loss",
)
_NORM_KEYS = ("grad_norm", "gnorm", "grad norm", "train/grad_norm", "gradient_norm", "global_grad_norm", "grad-norm")
_OBJECT = re.compile(r"\{[^{}]*\}")
_QUOTED = re.compile(r"""['"]([\w ./-]+)['"]:\s*['"]?([-+]?[\w.+-]+)""")
_BAR = re.compile(r"\|\s*(\d+)/(\d+)\s*\[")
_BATCH = re.compile(r"\[batch=(\d+)/\d+\]:")
_DS_STEP = re.compile(r"\bstep=(\d+), skipped=")


def metric_points(lines: Iterable[Line]) -> list[MetricPoint]:
    """Return the training metrics in the order of the lines.

    A line counts that names a loss together with a step; a Hugging Face `{'loss': …}` takes its step from the progress bar before it, or,
    without one, is counted from 1. Where several ranks print the same step, the first one stays. Evaluation losses do not count.
    """
    reader = _Reader()
    for line in lines:
        reader.take(line)
    return reader.points


class _Reader:
    def __init__(self) -> None:
        self.points: list[MetricPoint] = []
        self._bar: int | None = None
        self._batch: int | None = None
        self._trainer_logs = 0
        self._seen: set[tuple[int, int]] = set()

    def take(self, line: Line) -> None:
        text = line.text
        if _BAR.search(text):
            self._bar = int(_BAR.findall(text)[-1][0])
        if batch := _BATCH.search(text):
            self._batch = int(batch[1])
        if "oss" not in text:
            return
        if "{" in text and self._from_object(line):
            return
        if self._batch is not None and (match := FORMAT_COMPOSER.search(text)):
            self._add(self._batch, line, match[1], None)
            return
        for shape in FORMATS:
            if shape.gate in text and (step := shape.step.search(text)) and (loss := shape.loss.search(text)):
                norm = shape.grad_norm.search(text) if shape.grad_norm else None
                spent = shape.seconds.search(text) if shape.seconds else None
                self._add(int(step[1]), line, loss[1], norm[1] if norm else None, float(spent[1]) * shape.scale if spent else None)
                return

    def _from_object(self, line: Line) -> bool:
        for text in _OBJECT.findall(line.text):
            values = dict(_QUOTED.findall(text))
            loss = _first(values, _LOSS_KEYS)
            if loss is None:
                continue
            step = _first(values, _STEP_KEYS)
            if step is None:
                self._trainer_logs += 1
                step = self._bar if self._bar is not None else self._trainer_logs
            self._add(int(step), line, loss, _first(values, _NORM_KEYS))
            return True
        return False

    def _add(self, step: int, line: Line, loss: str | float, norm: str | float | None, seconds: float | None = None) -> None:
        at = parse(line.text).at
        if self.points and self.points[-1].step == step:
            return
        self.points.append(
            MetricPoint(
                step,
                float(loss),
                None if norm is None else float(norm),
                line.number,
                at if at and at.year != DEFAULT_YEAR else None,
                seconds,
            )
        )
