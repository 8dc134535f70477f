"""Say how far a run came, what it saved, and what follows from that for the next start."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from assistant.diagnose.circumstances import SAVING, Bar, last_bar, last_save, setting
from assistant.diagnose.facts import Facts
from assistant.records import Diagnosis, MetricPoint

STOPS = frozenset({"cancelled", "time_limit", "preempted", "killed"})
SHOWN_OF_SAVE = 240
_WAITED = re.compile(r"SeqNum=(\d{1,12}), OpType=(\w{1,40})")
_RANK = re.compile(r"\[Rank (\d{1,6})\]|\[rank(\d{1,6})\]")
_TIMEOUT = re.compile(r"Timeout\(ms\)=(\d{1,12})")
MOST_RANKS = 8


class _Wait(NamedTuple):
    rank: int
    sequence: int
    operation: str
    line: int


def standing(found: Diagnosis, facts: Facts) -> str:
    """Return how far the run came and how long the rest takes, by the last progress bar or step; empty where neither shows."""
    if found.reason not in STOPS or not facts.lines or facts.case.job is not None:
        return ""
    bar = last_bar(facts)
    if found.reason == "time_limit":
        return _rest(bar, facts)
    words = ""
    if bar is not None:
        words = f"It stood at {bar.done} of {bar.total} after {clock(bar.spent_s)} (job.log:{bar.line})."
    elif found.step is not None and not facts.progress.learnt:
        words = f"It had made step {found.step}."
    told = found.reason in ("killed", "preempted")
    return f"{words} {saved(facts)}" if words and last_save(facts) and not told else words


def _rest(bar: Bar | None, facts: Facts) -> str:
    """Return what the rest of the work wants of the next time limit."""
    if bar is None:
        if last_save(facts):
            return "Ask for more time (--time) where the rest does not fit, and start so that it goes on from that save."
        return "Under the same limit it ends at the same place: ask for more time (--time), or let it save and go on from there."
    return (
        f"It stood at {bar.done} of {bar.total} after {clock(bar.spent_s)} (job.log:{bar.line}), and the rest takes about "
        f"{clock(bar.left_s)} at that rate: ask for that much more (--time){_unless_saved(facts)}."
    )


def _unless_saved(facts: Facts) -> str:
    return "" if last_save(facts) else ", or let it save and go on from there; under the same limit it ends at the same place"


def saved(facts: Facts, before: int | None = None) -> str:
    """Return which save is the last that the log shows, or that it shows none."""
    save = last_save(facts, before)
    if save is not None:
        text = save.text.strip()
        if len(text) > SHOWN_OF_SAVE:
            text = f"{text[:SHOWN_OF_SAVE]}…"
        return f"The last save that the log shows{' before it' if before else ''}: job.log:{save.number}: {text}."
    interval = setting(facts, SAVING, facts.lines[-1].number) if facts.lines else None
    if interval is not None and facts.progress.steps and 0 < max(facts.progress.steps) < int(interval.value):
        reached = int(max(facts.progress.steps))
        return f"It saved nothing: {interval}, and it came to step {reached}; lower that before it starts again."
    return "The log shows no save: where there is none, it begins at the start."


def clock(seconds: int) -> str:
    """Return a duration as people write it."""
    return f"{seconds // 3600} h {seconds % 3600 // 60:02} min" if seconds >= 3600 else f"{seconds // 60} min {seconds % 60:02} s"


def spike_account(found: Diagnosis, facts: Facts) -> str:
    """Return the last loss that was a number and the first that was none, with their lines; empty where there are not both."""
    points = [point for point in facts.points if facts.metric_file != "job.log" or point.line >= facts.progress.leg]
    bad = next((place for place, point in enumerate(points) if _lost(point)), None)
    good = next((point for point in reversed(points[:bad]) if _level(point) is not None), None) if bad else None
    if bad is None and points and facts.metric_file == "job.log":
        return _last_logged(found, points, facts)
    if bad is None or good is None:
        return ""
    first = points[bad]
    file = facts.metric_file
    words = (
        f"The loss was {_level(good):.4g} at step {good.step} ({file}:{good.line}) and no number from step {first.step} on "
        f"({file}:{first.line}): lower the learning rate, clip gradients, or use bfloat16 instead of float16, and look at the "
        "batches in between."
    )
    return f"{words} {saved(facts, before=first.line)}" if file == "job.log" else words


def _last_logged(found: Diagnosis, points: Sequence[MetricPoint], facts: Facts) -> str:
    """Return the last logged step before the line that says the loss was lost."""
    cited = found.root_cause[0] if found.root_cause else None
    if cited is None or cited.file != "job.log" or not re.search(r"[Nn]on-?[Ff]inite|\bnan\b|\binf\b", cited.text, re.IGNORECASE):
        return ""
    last = next((point for point in reversed(points) if point.line < cited.line and point.loss is not None), None)
    if last is None:
        return ""
    gradient = f", gradient norm {last.grad_norm:.4g}" if last.grad_norm is not None else ""
    return (
        f"The last step that was logged before is {last.step} with loss {last.loss:.4g}{gradient} (job.log:{last.line}): lower the "
        f"learning rate or clip gradients before it goes on. {saved(facts, before=cited.line)}"
    )


def _lost(point: MetricPoint) -> bool:
    return point.loss is not None and not math.isfinite(point.loss)


def _level(point: MetricPoint) -> float | None:
    return point.loss if point.loss is not None and math.isfinite(point.loss) else None


def waiting_account(facts: Facts) -> str:
    """Return which ranks waited in which collective, and which is behind; empty where the log does not say it."""
    waits = _waits(facts)
    if not waits:
        return ""
    lowest, highest = min(wait.sequence for wait in waits), max(wait.sequence for wait in waits)
    first = next(wait for wait in waits if wait.sequence == lowest)
    limit = next((match for line in _near(facts, first.line) if (match := _TIMEOUT.search(line))), None)
    time = f" after {int(limit[1]) // 1000} s" if limit else ""
    if lowest < highest:
        behind = sorted({wait.rank for wait in waits if wait.sequence == lowest})
        return (
            f"{_ranks(behind)} gave up{time} in {first.operation}, SeqNum {lowest} (job.log:{first.line}), while others were at "
            f"{highest}: look there for what held it up (its log lines before, py-spy dump, its node)."
        )
    ranks = sorted({wait.rank for wait in waits})
    operations = sorted({wait.operation for wait in waits})
    if len(operations) > 1:
        return (
            f"At SeqNum {lowest} ranks waited in different collectives ({', '.join(operations)}): the program took different "
            "ways on different ranks (a condition, an early end of data); that is to be mended in the code."
        )
    return (
        f"{_ranks(ranks)} gave up{time} in {operations[0]}, SeqNum {lowest} (job.log:{first.line}); the rank that held them up is "
        f"one that does not report that wait{_silent(ranks)}: look at its last lines.{_never_stepped(facts)}"
    )


def _silent(ranks: Sequence[int]) -> str:
    """Return which of the ranks up to the highest that reports do not; empty where all do, or only few report."""
    absent = sorted(set(range(max(ranks) + 1)) - set(ranks))
    return f" (of those up to {max(ranks)}: {', '.join(map(str, absent))})" if 0 < len(absent) <= len(ranks) else ""


def _never_stepped(facts: Facts) -> str:
    if facts.progress.steps or facts.points:
        return ""
    return (
        " No step was made before, so that a restart alone most likely waits again: set TORCH_DISTRIBUTED_DEBUG=DETAIL and "
        "NCCL_DEBUG=INFO for it."
    )


def _waits(facts: Facts) -> Sequence[_Wait]:
    waits: dict[int, _Wait] = {}
    for line in facts.lines:
        if "SeqNum=" not in line.text or "timeout" not in line.text or line.number < facts.progress.leg:
            continue
        what, who = _WAITED.search(line.text), _RANK.search(line.text)
        if what and who:
            rank = int(who[1] or who[2])
            waits.setdefault(rank, _Wait(rank, int(what[1]), what[2], line.number))
    return list(waits.values())


def _near(facts: Facts, number: int) -> list[str]:
    return [line.text for line in facts.between(number, number)]


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:MOST_RANKS])
    return f"Rank {shown}" if len(ranks) == 1 else f"Ranks {shown}{' and more' if len(ranks) > MOST_RANKS else ''}"
