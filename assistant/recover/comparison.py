"""How far an attempt came: compared with another whose log is of no known form, and whether its training is over and saved.

Attempts are compared by epochs, samples or tokens with their losses, else by what the log of the first one taught. A job may run
several programs side by side, each with a log of its own: those of the first attempt that had come to their end need not appear
again; of the others the one that is furthest behind counts.

Sources of the ends of a training: transformers trainer.py (`train_runtime`, "Training completed."), Lightning fit_loop.py
(`Trainer.fit` stopped), torchtitan train.py ("Training completed"), Megatron-LM training.py (`iteration 500/ 500`), verl
ray_trainer.py ("Final validation metrics", behind its last step and the save of it), spaCy training/loop.py ("Saved pipeline to
output directory").

A program may log in epochs only, or not at all at its last step: then what lies on the disk tells. A checkpoint that says of itself
that it is of the last step (`trainer_state.json`: `global_step`, `max_steps`), or a model that was written beside the checkpoints
after the newest of them, is the end of the training whose log says that it is over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from assistant.errors import InputError
from assistant.logs.lines import Line, Lines
from assistant.logs.metrics import metric_points
from assistant.logs.phases import LearntSeries, counts_of, learn_series, read_series
from assistant.logs.tail import LogMark
from assistant.records import Checkpoint, Job, JobState, MetricPoint
from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.joblog import MOST_READ, log_lines, log_parts, whole_lines
from assistant.redact import head_of
from assistant.untrusted import list_folder, read_json, status_of


class Comparison(NamedTuple):
    """What two attempts count alike."""

    unit: str
    before: Sequence[MetricPoint]
    after: Sequence[MetricPoint]
    """On the scale of the first attempt: what counts anew although it resumed goes on behind that."""
    reached: int
    """How far the first one came."""
    began: int
    """The count behind which the second one began; 0 for the beginning."""


def compared_by_count(before: Lines, after: Lines, *, resumed: bool) -> Comparison | None:
    """Return what two attempts count alike; None where they do not, or one of them counts nothing.

    Args:
        before: Lines of the attempt that ended.
        after: Lines of the one that was started again.
        resumed: Whether that was to go on from a checkpoint. Many programs count anew then: its losses must go on from the last
            ones of the attempt before, for one that began at the start looks the same but for them.
    """
    own, second = counts_of(before), counts_of(after)
    if own is None or second is None or own.unit != second.unit:
        return None
    reached, first = max(point.step for point in own.points), second.points[0].step
    if first > own.points[0].step or not resumed:
        return Comparison(own.unit, own.points, second.points, reached, min(max(first - 1, 0), reached))
    shift = reached + 1 - first
    return Comparison(own.unit, own.points, [replace(point, step=point.step + shift) for point in second.points], reached, reached)


MOST_PLACES = 4
"""Places in a name where the number of a job may stand."""


@dataclass(frozen=True, slots=True)
class AttemptLog:
    """One log of an attempt."""

    path: Path
    lines: Lines


class _Pair(NamedTuple):
    before: LearntSeries
    after: LearntSeries | None


def compared(failed: Job, job: Job, marks: Sequence[LogMark], *, chosen_step: int) -> Comparison | None:
    """Return what two attempts count alike, where the logs of neither number a step in a known form; None where nothing does.

    Args:
        failed: The attempt that ended.
        job: The one that was started again; only what is proven to be its own counts.
        marks: From `marks_before`.
        chosen_step: Of the checkpoint that was chosen; 0 for a start from the beginning.
    """
    lines = whole_lines(job, marks)
    if lines is not None and (count := compared_by_count(log_lines(failed), lines, resumed=chosen_step > 0)) is not None:
        return count
    after = [AttemptLog(path, own) for path, own in log_parts(job, marks=marks, sure=True)]
    paths = {part.path for part in after}
    before = [AttemptLog(path, own) for path, own in log_parts(failed) if path not in paths]
    return compared_by_form(before, after, failed=failed, job=job, chosen_step=chosen_step)


def compared_by_form(
    before: Sequence[AttemptLog], after: Sequence[AttemptLog], *, failed: Job, job: Job, chosen_step: int
) -> Comparison | None:
    """Return how far two attempts came by the rows of one form, which the first one has taught; None where it taught none.

    Args:
        before: Logs of the attempt that ended.
        after: Logs of the next one.
        failed: The attempt that ended.
        job: The next one.
        chosen_step: Of the checkpoint that was chosen.
    """
    taught = {part.path: series for part in before if (series := learn_series(part.lines)) is not None}
    best = max(taught.values(), key=lambda series: (series.form.loss_at is not None, len(series.points)), default=None)
    if best is None:
        return None
    taught = {path: series for path, series in taught.items() if series.form.key == best.form.key}
    unfinished = {path: series for path, series in taught.items() if not series.is_over} or taught
    partners = _partners(list(taught), [part.path for part in after], failed, job)
    lines = {part.path: part.lines for part in after}
    pairs = [
        _Pair(series, read_series(lines[partners[path]], series.form) if path in partners else None)
        for path, series in unfinished.items()
        if path in partners or len(after) < MOST_READ  # of many logs some are not read
    ]
    pair = min(pairs, key=_lead, default=None)
    if pair is None:
        return None
    return _comparison(pair, chosen_step)


def _lead(pair: _Pair) -> float:
    """Return how far the later attempt is ahead of the earlier one."""
    if pair.after is None:
        return float("-inf")
    return max(point.step for point in pair.after.points) - max(point.step for point in pair.before.points)


def _comparison(pair: _Pair, chosen_step: int) -> Comparison:
    points = pair.before.points
    reached = max(point.step for point in points)
    every = (reached - points[0].step) // max(1, len(points) - 1)
    # what the log counts may be something else than the checkpoints do
    counts_alike = points[0].step <= chosen_step + every and chosen_step <= reached + every
    after = pair.after.points if pair.after is not None else ()
    return Comparison(pair.before.form.unit, points, after, reached, chosen_step if counts_alike else 0)


def _partners(before: Sequence[Path], after: Sequence[Path], failed: Job, job: Job) -> Mapping[Path, Path]:
    """Return which log of the next attempt is which of the one that ended: by its name, but for ids, nodes and times."""
    if len(before) == 1 and len(after) == 1:
        return {before[0]: after[0]}
    names = {_neutral_name(path.name, job): path for path in after}
    partners: dict[Path, Path] = {}
    for path in before:
        partner = next((names[name] for name in _renamed(_neutral_name(path.name, failed), failed, job) if name in names), None)
        if partner is None:
            like = [later for later in after if _shape(later, job) == _shape(path, failed)]
            alike = [sibling for sibling in before if _shape(sibling, failed) == _shape(path, failed)]
            partner = like[0] if len(like) == len(alike) == 1 else None
        if partner is not None:
            partners[path] = partner
    return partners


def _neutral_name(name: str, job: Job) -> str:
    for node in sorted(job.nodes, key=len, reverse=True):
        name = re.sub(rf"(?<![\w-]){re.escape(node)}(?![\w-])", "%N", name)
    return name


def _renamed(name: str, failed: Job, job: Job) -> Iterator[str]:
    """Yield a name with the id of the next job where that of the failed one stands: in all places, or in some of them."""
    yield name
    for old, new in {(failed.raw_id or failed.id, job.raw_id or job.id), (failed.id, job.id)}:
        places = [match.span() for match in re.finditer(rf"(?<!\d)0*{re.escape(old)}(?!\d)", name)][:MOST_PLACES]
        for count in range(len(places), 0, -1):
            for replaced in combinations(places, count):
                text = name
                for begin, end in reversed(replaced):
                    text = f"{text[:begin]}{new}{text[end:]}"
                yield text


def _shape(path: Path, job: Job) -> str:
    return re.sub(r"\d+", "#", _neutral_name(path.name, job))


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
LONGEST_END = 200
"""Characters of the line that says that training is over."""
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
    line, saved, stated = "", False, False
    lines = [Line(number, text[:2000]) for number, text in enumerate(list(texts)[-MOST_LINES:], 1)]
    stepped = {point.line for point in metric_points(lines)}
    for number, text in lines:
        counts = {match.group(1).lower()[:4]: (int(match.group(2)), int(match.group(3))) for match in _OF.finditer(text)}
        steps = {name: count for name, count in counts.items() if name != "epoc"}
        last = bool(steps) and all(reached == most for reached, most in counts.values())
        said_over = bool(_FINISHED.search(text)) and all(reached == most for reached, most in counts.values())
        over = last or said_over
        if (steps or number in stepped or _LOSS.search(text)) and not (over and not steps):
            saved = False  # what was saved before it does not hold this step
            line, stated = ("", False) if not last else (line, stated)
        if over:
            line, stated = head_of(text.strip(), LONGEST_END), stated or said_over
        if _FINAL_SAVE.search(text):
            saved = True
    return TrainingEnd(line, saved, stated) if line else None


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


STATE_FILE = "trainer_state.json"
"""Source: transformers, trainer_callback.py (TrainerState)."""
STATE_BYTES = 4 << 20
MOST_NAMES = 2_000
MODEL = re.compile(
    r"(?:(?:pytorch_|adapter_|tf_|flax_)?model(?:-\d{1,6}-of-\d{1,6})?|(?:final|last)[\w.-]{0,40}|consolidated[\w.-]{0,20})"
    r"\.(?:safetensors|bin|pt|pth|ckpt|h5|keras|msgpack|npz)"
)
LATE = timedelta(minutes=2)
"""After the end of a job what it wrote may still be on its way; what is written later is another job's."""


def saved_end(job: Job, saves: Inventory) -> str:
    """Return what proves that the last step of a job is saved, in words; empty where nothing does.

    Call it inside `reading_as(job.account)`.

    Args:
        job: That has ended, and whose log says that its training is over.
        saves: Its checkpoints.
    """
    if job.started is None:
        return ""
    began = job.started
    own = [checkpoint for checkpoint in saves.checkpoints if checkpoint.healthy and checkpoint.saved_at >= began]
    for checkpoint in reversed(own[-3:]):
        if (steps := _last_of(checkpoint)) is not None:
            return f"{checkpoint.path.name} is of its last step ({STATE_FILE}: step {steps[0]} of {steps[1]})"
    newest = max((checkpoint.saved_at for checkpoint in saves.checkpoints), default=None)
    return _final_model(job, saves.folder, newest) if newest is not None else ""


def _last_of(checkpoint: Checkpoint) -> tuple[int, int] | None:
    """Return the step of a checkpoint and the last of all, where they are one by its own state; None where they are not."""
    try:
        state = read_json(checkpoint.path / STATE_FILE, STATE_BYTES)
    except (OSError, InputError, ValueError):
        return None
    step, last = (state.get(name) if isinstance(state, dict) else None for name in ("global_step", "max_steps"))
    if isinstance(step, int) and isinstance(last, int) and step >= last > 0 and step == checkpoint.step:
        return step, last
    return None


def _final_model(job: Job, folder: Path, newest: datetime) -> str:
    """Return the model that a job wrote beside its checkpoints after the newest of them."""
    try:
        entries = list_folder(folder, MOST_NAMES)
    except (OSError, InputError):
        return ""
    for entry in sorted(entries):
        if not MODEL.fullmatch(entry.name):
            continue
        try:
            status = status_of(entry)
        except (OSError, InputError):
            continue
        written = datetime.fromtimestamp(status.st_mtime, UTC)
        if not status.st_size or (job.over is not None and written > job.over + LATE):
            continue
        if written >= newest and job.started is not None and written >= job.started:
            return f"{entry.name} was written after its last checkpoint"
    return ""


ABORTED = re.compile(
    r"terminate called|\bAborted\b|\bSIG(?:ABRT|SEGV|BUS)\b|Segmentation fault|\bcore dumped\b|Signal: (?:Aborted|Segmentation)"
    r"|free\(\): |double free or corruption|corrupted (?:size|double)|munmap_chunk\(\)|malloc\(\): |corrupted unsorted",
)
"""How a program says that it was ended by an abort or a fault of memory."""
_OF_EXIT = re.compile(
    r"^\s{0,200}$|what\(\):|Exception raised from |\bframe #\d|Process received signal|End of error message"
    r"|Signal(?: code)?:|Failing at address"
    r"|^\s{0,8}\[ ?\d{1,3}\] |^\*{3,} train metrics \*|Fatal Python error"
    r"|^(?:Current )?[Tt]hread 0x|^\s{1,8}File \".{1,400}\", line \d{1,9} in "
    r"|Extension modules:|<no Python frame>|driver shutting down|^\s{0,8}\S{1,40} \w{0,8}\(?0x[0-9a-f]{6,}"
    r"|srun: (?:error|Terminating|launch)|slurmstepd: |destroy_process_group|resource_tracker|leaked \w{1,20} objects|^wandb:"
    r"|train_(?:runtime|loss|samples|steps)|total_flos|^\s{0,8}epoch\s{0,20}[:=]"
    r"|\b(?:[Mm]odel|[Ww]eights|[Cc]heckpoint|[Tt]okenizer|[Cc]onfiguration)\b.{0,200}\b(?:saved|written|stored)\b"
    r"|\b(?:[Ss]av(?:ed|ing)|[Ww]rote)\b.{0,200}\b(?:model|weights|checkpoint|tokenizer|config\w{0,8})\b"
    r"|^\s{0,8}(?:\[\w{1,40}\]:?\s{0,4})?(?:\w{1,20} )?(?:[Dd]one|[Ff]inished|[Bb]ye|[Ee]xiting)\b.{0,20}$"
)
"""Lines behind a training that tell of its last saves, of its end and of the program's exit, and of no other work."""
TAIL = 400
"""Lines from the end of each log that are looked at."""


def aborted_at_exit(job: Job, logs: Iterable[Sequence[str]], end_line: str) -> str:
    """Return the line by which a program says that it was aborted at its exit; empty where anything else may have failed.

    Behind the end of the training nothing but its last saves, the abort and the words of its launcher may stand, in the log that
    tells of the end; no other log may hold a traceback.

    Args:
        job: That ended badly.
        logs: Lines of each of its logs.
        end_line: By which its log says that training is over.
    """
    if job.state is not JobState.FAILED:
        return ""
    line, ended = "", False
    for texts in logs:
        tail = list(texts)[-TAIL:]
        places = [number for number, text in enumerate(tail) if head_of(text.strip(), LONGEST_END) == end_line]
        after_end = tail[places[-1] + 1 :] if places else tail
        ended |= bool(places)
        if any(text.lstrip().startswith("Traceback (most recent call last)") for text in after_end):
            return ""
        aborts = [text.strip() for text in after_end if ABORTED.search(text)]
        if places and not all(ABORTED.search(text) or _OF_EXIT.search(text) for text in after_end):
            return ""
        line = line or next(iter(aborts), "")[:200]
    return line if ended else ""
