"""Tell the task that exited by itself before srun ended the others: steps behind its last words are theirs, and prove nothing.

Ranks that do not wait for one another train on until srun has heard of the exit and has ended them. A process that dies of an
exception may take seconds for that.
"""

from __future__ import annotations

from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.streams import TaskExit
from assistant.diagnose.readers.tracebacks import Episode, Kind

MOST_STEPS = 20
"""Of others, between a traceback and the exit of its process: of what stands further back it went on."""


def first_task(facts: Facts) -> TaskExit | None:
    """Return what srun says of the first task of the last run that ended, where it exited by itself with a code; None else."""
    first = next(
        (task for task in facts.tasks if not facts.before_leg(task.line) and facts.later_steps(task.line) <= MOST_STEPS), None
    )
    return first if first is not None and first.by_itself and first.code and first.tasks else None


def exits_alone(episode: Episode | None, facts: Facts) -> bool:
    """Tell whether a traceback may be the last words of the task that exited first, though others have made steps behind it."""
    first = first_task(facts)
    if episode is None or episode.kind is not Kind.MAIN or first is None:
        return False
    others_ended = any(task.victim and task.line > first.line for task in facts.tasks)
    # with srun a rank is a task, unless another launcher runs below it: then it is not known whose traceback it is
    marks = {mark for mark in (episode.task, episode.rank) if mark is not None}
    own = marks <= {*first.tasks} and not _steps_of(episode, facts)
    if not others_ended or not own or facts.before_leg(episode.first) or facts.later_steps(episode.last) > MOST_STEPS:
        return False
    later = (traceback for traceback in (*facts.episodes, *facts.cut_off) if episode.last < traceback.first < first.line)
    return not any(traceback.kind is Kind.MAIN and traceback.stream == episode.stream for traceback in later)


def _steps_of(episode: Episode, facts: Facts) -> bool:
    """Tell whether the stream of a traceback has made steps behind it; nobody can tell where lines have no marks."""
    if not episode.stream:
        return False
    lines = (facts.line(number) for number in facts.progress.lines if number > episode.last)
    return any(line is not None and facts.streams.body(line.text).stream == episode.stream for line in lines)
