"""Tell from the end of a log that its training is over: nothing is left to be restarted. Pure.

Sources: transformers trainer.py (`train_runtime`, "Training completed."), Lightning fit_loop.py (`Trainer.fit` stopped), torchtitan
train.py ("Training completed"), Megatron-LM training.py (`iteration        500/     500`), verl ray_trainer.py ("Final validation
metrics", behind its last step and the save of it), spaCy training/loop.py ("Saved pipeline to output directory").
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from assistant.logs.lines import Line
from assistant.logs.metrics import metric_points

__all__ = ["TrainingEnd", "said_over", "training_end"]

_FINISHED = re.compile(
    r"['\"]?train_runtime['\"]?\s{0,8}[:=]|Training completed\. Do not forget to share"
    r"|`?Trainer\.fit`? stopped: `max_(?:steps|epochs)|\btraining (?:is |has )?(?:complete[d]?|finished|done)\b"
    r"|\bfinal (?:validation|evaluation|test) (?:metrics|results)\b\s{0,3}[:=]"
    r"|Saved pipeline to output directory"
    r"|\b(?:finished|completed|done)[.:,!]{0,2} reached (?:the )?\d{1,15} (?:train(?:ing)? )?(?:steps|iterations|batches)\b"
    r"|\b(?:finished|completed|done) training(?: in [\d.]{1,12} ?\w{1,10})?[.!]{0,3}\s{0,8}$",
    re.IGNORECASE,
)
_OF = re.compile(
    r"(?<![\w/])(epoch|iteration|iter|step)s?\b[\s:=\[(]{0,12}(\d{1,12})\s{0,3}(?:/|of)\s{0,12}(\d{1,12})", re.IGNORECASE
)
_FINAL_SAVE = re.compile(
    r"Model weights saved in|Saving model checkpoint to|sav(?:ed|ing) (?:the )?final|successfully saved checkpoint|saved checkpoint"
    r"|\bcheckpoint (?:for |at |of )?(?:step|iteration|iter|epoch) \d{1,12} (?:was |is )?(?:saved|written)"
    r"|final (?:model|checkpoint) (?:saved|written)|Saved pipeline to output directory",
    re.IGNORECASE,
)
_ONE_WORD = re.compile(
    r"(?:(?:training|run|all|everything|job) (?:is |has )?)?(?:finished|done|completed?|abgeschlossen|beendet|fertig)[.!]{0,3}",
    re.IGNORECASE,
)
_STAMP = re.compile(r"^[\[(]?[\d:.,/TZ+ -]{6,40}[\])]?\s{0,4}(?:\|?\s{0,4}(?:INFO|info)\s{0,4}[|:-]?)?")
GOALS = frozenset(
    "max_update max_updates max_steps max_step train_iters max_iters train_steps num_train_steps max_train_steps total_steps "
    "training_steps total_iters num_iterations total_iterations max_iterations training.steps trainer.max_steps".split()
)
"""Options by which programs are given their last step, normalised."""
_ANNOUNCED = re.compile(
    r"\b(?:total (?:optimi[sz]ation|train(?:ing)?) steps|(?:num|total)[_ ]train(?:ing)?[_ ](?:steps|iters)"
    r"|max[_ -]?(?:steps|iters|iterations|updates?)|train[_ -]iters)\b['\"]?\s{0,12}[:=. ]{1,40}['\"]?(\d[\d,_]{0,15})\b",
    re.IGNORECASE,
)
_OF_BATCHES = re.compile(r"\[(?:batch|step)=\d{1,15}/(\d{1,15})\]|\biteration\s{1,16}\d{1,15}/\s{0,16}(\d{1,15})\s{0,4}\|")
"""Composer's and Megatron's: of how many steps of the whole training."""
_BATCHES = re.compile(r"(\d[\d_]{0,15})ba")
"""Composer's `max_duration` in batches; in epochs or tokens (`1ep`) it says no step."""
_LOSS = re.compile(r"(?<![\w-])['\"]?(?:lm )?loss['\"]?\s{0,3}[:=]", re.IGNORECASE)
MOST_LINES = 400
"""Lines from the end in which training says that it is over."""


@dataclass(frozen=True, slots=True)
class TrainingEnd:
    """How a log says that its training is over."""

    line: str
    saved_after: bool
    """Whether a save is told of behind the last line with a step or a loss."""
    said: bool = False
    """Whether it says so in words; else its last step is the last of all."""


def training_end(texts: Iterable[str]) -> TrainingEnd | None:
    """Return how a log says that training is over, None where it does not: no step may come behind it.

    It counts what frameworks print at their end (Hugging Face's `train_runtime`, Lightning's `max_steps reached`, words that
    training is completed) and the last step of the last one (`iteration 500/ 500`), if no epoch before the last is named with it.

    Args:
        texts: Lines of one attempt, in order.
    """
    line, saved, said = "", False, False
    lines = [Line(number, text[:2000]) for number, text in enumerate(list(texts)[-MOST_LINES:], 1)]
    stepped = {point.line for point in metric_points(lines)}
    for number, text in lines:
        counts = {match.group(1).lower()[:4]: (int(match.group(2)), int(match.group(3))) for match in _OF.finditer(text)}
        steps = {name: count for name, count in counts.items() if name != "epoc"}
        last = bool(steps) and all(done == most for done, most in counts.values())
        said_over = bool(_FINISHED.search(text)) and all(done == most for done, most in counts.values())
        over = last or said_over
        if (steps or number in stepped or _LOSS.search(text)) and not (over and not steps):
            saved = False  # what was saved before it does not hold this step
            line, said = ("", False) if not last else (line, said)
        if over:
            line, said = text.strip()[:200], said or said_over
        if _FINAL_SAVE.search(text):
            saved = True
    return TrainingEnd(line, saved, said) if line else None


def said_over(text: str) -> bool:
    """Tell whether a line says that a program is through, in words of a framework or with nothing but that word: `finished`.

    Args:
        text: The last line of a log, which nothing follows.
    """
    return bool(_FINISHED.search(text)) or _ONE_WORD.fullmatch(_STAMP.sub("", text).strip()) is not None


def training_goal(options: Iterable[tuple[str, str]], texts: Iterable[str]) -> int | None:
    """Return the step at which a training is to end, by its options and what its log announces; None where neither tells.

    Args:
        options: Names, normalised, and values, of all programs of a job.
        texts: The beginning of its log.
    """
    options, texts = list(options), list(texts)
    goals = [
        int(value.replace("_", ""))
        for name, value in options
        if (name in GOALS or name.rpartition(".")[2] in GOALS) and re.fullmatch(r"\d[\d_]{0,15}", value)
    ]
    goals += [
        int(match[1].replace("_", "")) for name, value in options if _is_duration(name) and (match := _BATCHES.fullmatch(value))
    ]
    goals += [int(match[1] or match[2]) for text in texts for match in _OF_BATCHES.finditer(text[:2000])]
    announced = [match for text in texts for match in _ANNOUNCED.finditer(text[:2000])]
    goals += [int(match[1].replace(",", "").replace("_", "")) for match in announced]
    return max((goal for goal in goals if goal > 0), default=None)


def _is_duration(name: str) -> bool:
    return name.rpartition(".")[2] == "max_duration"
