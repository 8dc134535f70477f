"""Stages of one batch script, such as pre-training, reward model and policy, each with a counter of steps that begins anew.

What a job resumed is told by the stage that loaded the checkpoint, and by the steps behind that load. The first step of a later
stage, in the same log or in one of its own, says nothing of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import NamedTuple

from assistant.logs.lines import Line, Lines
from assistant.logs.metrics import metric_points
from assistant.logs.tail import LogMark
from assistant.records import Checkpoint, Job, MetricPoint
from assistant.recover.joblog import log_parts
from assistant.recover.loaded import loaded_checkpoint

LONGEST = 1500
MOST_LINES = 200_000
_STEP = re.compile(r"\b(?:global[ _]?)?(?:step|iter(?:ation)?|update|batch)s?\b\D{0,6}(\d{1,12})", re.IGNORECASE)
_CHANGING = re.compile(r"\d+")
_HEADING = re.compile(r"\s{0,8}[#=*~>-]{2,}\s{0,4}\S")
"""A line by which a script says what it begins: `##### 19:01:34 stage 2 reward model #####`."""
MOST_OF_HEADING = 200


class ScriptStage(NamedTuple):
    """Lines of one stage, from behind the last step of the stage before it."""

    lines: Lines
    points: Sequence[MetricPoint]
    form: str
    """The words of its step lines up to the number, without other numbers."""


def stages_in(lines: Iterable[Line]) -> list[ScriptStage]:
    """Return the stages of a log in their order; a single one where no counter begins anew in lines of another form.

    Forms that take turns are lines of one stage: training and evaluation, two networks.
    """
    texts = [line.text for line in lines][:MOST_LINES]
    points = metric_points(_lines(texts))
    begins, forms = [0], [""]
    last: MetricPoint | None = None
    heading, read = "", 0
    for point in points:
        words = _form(texts[point.line - 1], point.step) if 0 < point.line <= len(texts) else ""
        heading = next((_words(text) for text in reversed(texts[read : point.line - 1]) if _HEADING.match(text)), heading)
        read = max(read, point.line)
        if not words or point.counted:
            continue
        form = f"{heading}|{words}"
        if last is None:
            forms[-1] = form
        elif form != forms[-1] and point.step < last.step:
            if form in forms:
                return [ScriptStage(_lines(texts), points, forms[0])]
            begins.append(last.line)
            forms.append(form)
        last = point
    ends = [*begins[1:], len(texts)]
    parts = [_lines(texts[begin:end]) for begin, end in zip(begins, ends, strict=True)]
    return [ScriptStage(part, metric_points(part), form) for part, form in zip(parts, forms, strict=True)]


def resumed_stage(logs: Iterable[Iterable[Line]], checkpoint: Checkpoint) -> ScriptStage | None:
    """Return the one stage of a job that says that it loaded a checkpoint and went on right behind it, before any other stage.

    None where no stage says so, or several do, where another stage was trained before it, and where the job has a single stage:
    its log tells all there is.

    Args:
        logs: The lines of each log of the attempt, from its beginning; the scheduler's own first.
        checkpoint: Which is sought.
    """
    by_log = [stages_in(log) for log in logs]
    stages = [stage for log in by_log for stage in log]
    if len({stage.form for stage in stages if stage.form}) < 2:
        return None
    resumed = [stage for stage in stages if _goes_on(stage, checkpoint)]
    if not resumed or len({stage.form for stage in resumed}) > 1:
        return None
    stage = resumed[0]
    first = by_log[0] if by_log else []
    # what another log shows may have been before it, unless the times of both say otherwise
    later = all(entry is stage or _is_later(entry, stage) for entry in stages if entry.form != stage.form and entry.points)
    return stage if (first and first[0] is stage) or (later and any(log[0] is stage for log in by_log)) else None


def _is_later(stage: ScriptStage, rival: ScriptStage) -> bool:
    at, rival_at = stage.points[0].at, rival.points[0].at
    return at is not None and rival_at is not None and at >= rival_at


def stage_before(lines: Iterable[Line], stage: ScriptStage) -> Sequence[MetricPoint]:
    """Return what the attempt before logged of a stage; nothing where its log does not show that stage."""
    return next((entry.points for entry in reversed(stages_in(lines)) if entry.form == stage.form), ())


class Resumption(NamedTuple):
    """What an attempt logged of the stage in which it went on, and what the attempt before logged of it."""

    lines: Lines
    points: list[MetricPoint]
    before: list[MetricPoint]


def resumption_of(
    job: Job,
    failed: Job | None,
    marks: Sequence[LogMark],
    checkpoint: Checkpoint | None,
    points: Sequence[MetricPoint] | None = None,
) -> Resumption | None:
    """Return what a job logged of the one stage that says that it loaded a checkpoint; None where no such stage is told apart.

    Args:
        job: The restart.
        failed: The attempt before; None where it is not known.
        marks: From `marks_before`.
        checkpoint: That was chosen; None for a start from the beginning.
        points: What the restart is known to have logged: where they begin behind the checkpoint and never go back, no log is read.
    """
    if checkpoint is None:
        return None
    if points and points[0].step > checkpoint.step and all(point.step <= next_point.step for point, next_point in pairwise(points)):
        return None
    stage = resumed_stage((lines for _, lines in log_parts(job, marks=marks, sure=True)), checkpoint)
    if stage is None:
        return None
    logs = [lines for _, lines in log_parts(failed)] if failed is not None and failed.log != job.log else []
    before = next((points for lines in logs if (points := stage_before(lines, stage))), ())
    return Resumption(stage.lines, list(stage.points), list(before))


def _goes_on(stage: ScriptStage, checkpoint: Checkpoint) -> bool:
    loaded = loaded_checkpoint(stage.lines)
    loads = [load for load in loaded.loads if load.step]
    # of a stage that loads a second save, a frozen part or its own, nobody can tell from which it went on
    if loaded.first_step is None or not loads or not all(_names(load.path, checkpoint) for load in loads):
        return False
    return checkpoint.step < loaded.first_step <= checkpoint.step + (loaded.interval or 1) + 1


def _names(path: str, checkpoint: Checkpoint) -> bool:
    """Tell whether a path of a log is that of a checkpoint; of a relative one its parts have to be the last of it."""
    parts, path_parts = PurePosixPath(path).parts, checkpoint.path.parts
    return len(parts) > 1 and tuple(path_parts[-len(parts) :]) == parts


def _form(text: str, step: int) -> str:
    match = next((match for match in _STEP.finditer(text[:LONGEST]) if int(match[1]) == step), None)
    return _CHANGING.sub("", text[: match.start(1)]).lower() if match is not None else ""


def _words(heading: str) -> str:
    return _CHANGING.sub("", heading[:MOST_OF_HEADING]).strip("#=*~>-: ").lower()


def _lines(texts: Sequence[str]) -> Lines:
    return Lines([(1, "\n".join(texts).encode("utf-8", "replace"))])
