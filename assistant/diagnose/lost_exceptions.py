"""Say what is known of an end whose exception is not in the log: who exited first, and where its traceback breaks off.

A launcher that ends a step as soon as one process fails (`srun --kill-on-bad-exit`) may not forward the last lines which that one
printed. Behind its words nothing tells why, and that it ended the step says nothing of the reason.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.origin import LIBRARY
from assistant.diagnose.readers.tracebacks import Episode, Frame, Kind
from assistant.diagnose.weighing.process_exits import exits_alone, first_task
from assistant.diagnose.weighing.survival import SURVIVED_STEPS
from assistant.records import Citation, Diagnosis, EventKind, Whereabouts

FIRST_EXIT = "it exited first"
"""How a place of a diagnosis begins whose process exited before its launcher ended the others."""
LAST_FRAME = "traceback cut off"
"""Rule of the citations of the last frame that stands in the log, and of the last one outside of libraries."""
UNKNOWN = "Unknown"
"""How its summary begins."""
MOST_FRAME, MOST_MESSAGE = 2_000, 160
_WHOLE_FRAME = re.compile(r'.{0,200}?File "(?P<file>[^"\n]{1,1000})", line (?P<line>\d{1,7}), in (?P<function>[\w.<>]{1,200})')
_ADVICE = (
    "Read what {who} wrote elsewhere: a log of its own, an error file of its rank. Before the next start let each task keep a "
    "file of its own (`srun --error=%x-%j-%t.err`), which slurmstepd writes on the node whatever srun does."
)
_OF_TORCHRUN = (
    "Read what {who} wrote elsewhere: a log of its own, an error file of its rank. Before the next start let torchrun keep the "
    "output of each rank (`--log-dir` with `--tee 3`), or decorate the entry point with `@record`."
)


class FirstExit(NamedTuple):
    """The process that a launcher saw end by itself before it ended the others."""

    line: int
    node: str | None
    rank: int | None
    tasks: tuple[int, ...]
    code: int
    launcher: str
    """`srun` or `torchrun`."""

    @property
    def process(self) -> str:
        """The process and its node, for people."""
        tasks = f"task {self.tasks[0]}" if len(self.tasks) == 1 else f"tasks {', '.join(map(str, self.tasks[:8]))}"
        name = f"rank {self.rank}" if self.rank is not None else tasks
        return f"{name} on {self.node}" if self.node else name


class LastFrame(NamedTuple):
    """A frame as a line of a log names it."""

    file: str
    line: int
    function: str


def frame_of(text: str) -> LastFrame | None:
    """Return the frame that a line of a traceback names; None where the line itself is cut off."""
    match = _WHOLE_FRAME.fullmatch(text[:MOST_FRAME].rstrip())
    return LastFrame(match["file"], int(match["line"]), match["function"]) if match is not None else None


def with_lost_exception(diagnosis: Diagnosis, facts: Facts) -> Diagnosis:
    """Return an `unknown` that says who exited first and what of its exception is left; any other diagnosis as it is."""
    event = facts.case.event
    hung = event is not None and event.kind is EventKind.HANG
    first = first_exit(facts) if diagnosis.reason == "unknown" and not hung else None
    line = facts.line(first.line) if first is not None else None
    if first is None or line is None:
        return diagnosis
    cited = Citation("job.log", line.number, line.text, FIRST_EXIT)
    code = f"with exit code {first.code}" if first.code > 0 else f"by signal {-first.code}"
    after = f" after step {diagnosis.step}" if diagnosis.step is not None else ""
    traceback = _traceback_of(first, facts)
    ended = f"{first.launcher} ended {'the step' if first.launcher == 'srun' else 'the others'}"
    citations: tuple[Citation, ...] = (cited,)
    if traceback is None:
        lost = f"nothing in this log surely says why; what it printed last may have been lost when {ended}"
        lost += _outlived_words(first, facts)
    else:
        numbers = _last_lines(traceback)
        frame_lines = [frame_line for at in numbers if (frame_line := facts.line(at)) is not None]
        citations = (cited, *(Citation("job.log", frame_line.number, frame_line.text, LAST_FRAME) for frame_line in frame_lines))
        place_words = f"{_frame_words(traceback)} ({_place(numbers[0], facts)})"
        lost = f"the exception itself was lost when {ended}; its traceback breaks off at {place_words}"
    sentence = f"{UNKNOWN}{after}: {first.process} exited first, {code} ({_place(first.line, facts)}), and {lost}."
    advice = (_ADVICE if first.launcher == "srun" else _OF_TORCHRUN).format(who=first.process)
    place = Whereabouts(f"{FIRST_EXIT}, {code}", first.node, first.rank, first.tasks[0] if len(first.tasks) == 1 else None,
                        citations=(cited,))  # fmt: skip
    more_places = [entry for entry in diagnosis.where if (entry.node, entry.rank) != (place.node, place.rank)]
    return replace(diagnosis, root_cause=citations, summary=sentence, advice=advice, where=(place, *more_places)[:4])


def first_exit(facts: Facts) -> FirstExit | None:
    """Return who a launcher saw exit first of the last run; None where nobody failed by itself, or a signal ended the first."""
    exits = [end for end in facts.exits if end.first and not end.victim and end.code and _at_the_end(end.line, facts)]
    if exits:
        times = [(end.at, place) for place, end in enumerate(exits) if end.at is not None]
        end = exits[min(times)[1]] if len(times) == len(exits) else exits[0]
        node = facts.places.node_of(end.host) if end.host else facts.places.host_of(rank=end.rank, task=None)
        return FirstExit(end.line, node, end.rank, (), end.code or 0, "torchrun") if end.rank is not None else None
    task = first_task(facts)
    if task is None or not task.code:
        return None
    return FirstExit(task.line, facts.places.node_of(task.host), None, task.tasks, task.code, "srun")


def _at_the_end(line: int, facts: Facts) -> bool:
    """Tell whether a line stands in the last run, with no more than the steps behind it that others make before they are ended."""
    return not facts.before_leg(line) and facts.later_steps(line) < SURVIVED_STEPS


def _traceback_of(first: FirstExit, facts: Facts) -> Episode | None:
    """Return the traceback that was cut off and may be that of who exited first; of several the earliest that names a frame."""
    own = [
        episode
        for episode in facts.cut_off
        if (exits_alone(episode, facts) or _at_the_end(episode.last, facts)) and _may_be_of(episode, first)
    ]
    return min(own, key=lambda episode: (not episode.open_frames, episode.first), default=None)


def _outlived_words(first: FirstExit, facts: Facts) -> str:
    """Return the last exception before the exit, which steps followed; empty where there is none."""
    episodes = [e for e in facts.episodes if e.kind is Kind.MAIN and e.last < first.line and not facts.before_leg(e.first)]
    if not episodes:
        return ""
    raised, steps = episodes[-1].raised[-1], facts.later_steps(episodes[-1].last)
    text = facts.streams.body(raised.text).text.strip()[:MOST_MESSAGE]
    return f"; behind the last exception before it ({_place(raised.line, facts)}: {text}) the job made {steps} more steps"


def _last_lines(traceback: Episode) -> tuple[int, ...]:
    """Return the lines of the last frame and of the last one outside of libraries; the first line where there is no frame."""
    frames = traceback.open_frames
    own = [frame.at for frame in frames if not LIBRARY.search(frame.file)]
    return tuple(dict.fromkeys((frames[-1].at, *own[-1:]))) if frames else (traceback.first,)


def _may_be_of(episode: Episode, first: FirstExit) -> bool:
    if first.rank is not None:
        return episode.rank in (None, first.rank)
    return episode.task is None or episode.task in first.tasks


def _frame_words(traceback: Episode) -> str:
    frame: Frame | None = traceback.open_frames[-1] if traceback.open_frames else None
    if frame is None:
        return "its first line"
    return f"{frame.file}, line {frame.line}" + (f", in {frame.function}" if frame.function else "")


def _place(line: int, facts: Facts) -> str:
    """Return file and number of a line as people see them."""
    name, number = facts.combined.place(line) if facts.combined is not None else ("", line)
    return f"{name or 'job.log'}:{number}"
