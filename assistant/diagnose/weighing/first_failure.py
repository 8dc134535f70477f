"""What failed first in an attempt: its phase, node and rank, the process that exited first, the file that was read last.

Place and time within one attempt tell the node that failed first and the rank that is not like the others.

A launcher that ends a step as soon as one process fails (`srun --kill-on-bad-exit`) may not forward the last lines which that one
printed. Behind its words nothing tells why, and that it ended the step says nothing of the reason. Then it is said what is known:
who exited first, and where its traceback breaks off. Where the error of a loader names no file, it is the last one that the log
says it reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from assistant.content.reasons import Herring, Role, Signature
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.circumstances import run_bar
from assistant.diagnose.readers.origin import LIBRARY, ProgramKind, program_of, request_handler
from assistant.diagnose.readers.rounds import last_count
from assistant.diagnose.readers.streams import stamp
from assistant.diagnose.readers.tracebacks import Episode, EpisodeKind, SourceFrame
from assistant.diagnose.weighing.process_exits import exits_alone, first_task
from assistant.diagnose.weighing.survival import SURVIVED_STEPS
from assistant.logs.phases import BEGINS, ENDS, OVER, LogPhase
from assistant.records import Category, Citation, Diagnosis, EventKind, NodePattern, PatternKind, Whereabouts
from assistant.redact import head_of
from assistant.watch.progress import tells_of_save

LOOK_BACK = 400
"""Lines before the failure that may tell its phase; further back something else has begun since."""
START_LINES, NEAR_START, START_TIME = 300, 80, timedelta(minutes=15)
"""What a start prints and takes at most where no step shows, and lines in which its times are looked for."""
LEAD_S = 2.0
"""Errors of two nodes that are closer than this have no order: clocks differ, output is buffered."""
FEWEST_RANKS = 8
"""With fewer ranks nothing can be said of the one that is missing."""
MOST_MISSING, MOST_HITS = 0.05, 200
"""The share of ranks; so many hits of one signature are surely all kept, see `logs.scan`."""

_STEP_NAMED = re.compile(
    r"\b(?:global_?step|steps?|iter(?:ation)?s?|updates?|num_updates)(?: number)?['\"]?\s{0,3}[:=#\[(]?\s{0,3}"
    r"(\d[\d,]{0,17})(?![\w.])",
    re.IGNORECASE,
)
"""What a log calls a step of the run; epochs, batches of an epoch, requests and bytes are none."""
_LOADS = re.compile(r"load|restor|resum|from_pretrained|deseriali", re.IGNORECASE)
_SAVES = re.compile(r"sav|checkpoint|ckpt|state_dict|write|dump|seriali|upload|barrier|gather", re.IGNORECASE)
_CALLS = {LogPhase.LOADING: _LOADS, LogPhase.CHECKPOINT: _SAVES}
"""Names of calls that are at a phase: what was raised in none of them was raised behind it."""
MOST_WORK, MOST_STATES, END_OF_DRAWN = 2_000, 2, 300
"""Lines before a failure in which work is looked for; states of a bar above which a line was redrawn, and characters at its end."""
_WORKED = re.compile(
    r"\bepoch\b\W{0,4}[1-9]|\bloss['\"]?\s{0,3}[:=]\s{0,3}\d|\bloss\b[ \w]{0,30}[:= ]\s{0,3}\d{1,6}\.\d{2,12}"
    r"|\b(?:tokens|samples|examples|images)/s|\bthroughput\b"
    r"|\brequests? (?:so far|served|processed)|Uvicorn running|Application startup complete|\bServer (?:is )?(?:ready|listening)",
    re.IGNORECASE,
)
_DONE_LOADING = re.compile(r"\b100%\|")
_OF_TRAINING = (LogPhase.FIRST_STEP, LogPhase.TRAINING)
_WORK = re.compile(r"step|iter|batch|epoch|sample|token|update|train", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _FirstError:
    line: int
    at: datetime | None
    rank: int | None


def last_step(facts: Facts) -> int | None:
    """Return the last step of the run that the log shows; None where what rises in it need not be one."""
    own = facts.metric_file == "job.log" or not facts.points
    if own and any(line >= facts.progress.leg for line in facts.progress.rounds):
        return None  # it counts within an epoch
    if facts.points:
        leg = facts.progress.leg if own else 0
        last = next((point for point in reversed(facts.points) if not point.counted and point.line >= leg), None)
        redrawn = last is not None and own and _beyond(last.step, last.line, facts)
        return last.step if last is not None and not redrawn else None
    progress = facts.progress
    if not progress.steps or not _sure_step(facts) or _beyond(int(progress.steps[-1]), progress.last_line, facts):
        return None
    return int(progress.steps[-1])


def _beyond(step: int, line: int, facts: Facts) -> bool:
    """Tell whether the bar of the run stands further on in the same line, which was redrawn and of which only a part was read."""
    bar = run_bar(facts)
    return bar is not None and bar.line == line and bar.position > step


def _sure_step(facts: Facts) -> bool:
    """Tell whether what rises in the log is a step of the run: a counter that is called so, or a bar that never starts again."""
    progress = facts.progress
    if progress.learnt:
        line = facts.line(progress.last_line)
        value = progress.steps[-1]
        matches = _STEP_NAMED.finditer(line.text[:2000]) if line is not None else ()
        if not any(float(match[1].replace(",", "")) == value for match in matches):
            return False
    elif not progress.bars:
        return True
    steps = progress.steps[progress.before(progress.leg - 1) :]
    return all(first <= second for first, second in pairwise(steps))


def phase_of(facts: Facts, line: int) -> str:
    """Return what the job was at: start, loading, first_step, training, evaluation, checkpoint or end; empty when unknown.

    Args:
        facts: Of the case.
        line: Of job.log, where it failed; 0 for its end.
    """
    if not facts.lines:
        return ""
    at = line or facts.lines[-1].number
    steps = facts.progress.before(at)
    for before in reversed(facts.between(max(1, at - LOOK_BACK), at - 1)):
        if steps and facts.progress.lines[steps - 1] >= before.number:
            break  # a step was made since: nothing earlier is still going on
        text = _last_drawn(before.text)
        if ENDS.search(text):
            return "end"
        for phase, begins in BEGINS:
            if OVER[phase].search(text):
                # of a save that one rank has told of another one may still be at it
                several = facts.places.highest_rank > 0 or len(facts.places.hosts) > 1
                return "" if phase is LogPhase.CHECKPOINT and steps and several else _training(steps, facts, at)
            if begins.search(text):
                over = phase is LogPhase.LOADING and _DONE_LOADING.search(text)
                elsewhere = phase in _CALLS and _raised_elsewhere(facts, at, _CALLS[phase])
                return _training(steps, facts, at) if over or elsewhere else str(phase)
    return _training(steps, facts, at)


def _last_drawn(text: str) -> str:
    """Return what a line says last: one that was redrawn in place holds all its states, and only the last is still true."""
    return text[-END_OF_DRAWN:] if text.count("%|", 0, 100_000) > MOST_STATES else text


def _raised_elsewhere(facts: Facts, line: int, calls: re.Pattern[str]) -> bool:
    """Tell whether a line ends a traceback none of whose frames is at what calls of such names do."""
    frames = next((r.frames for episode in facts.episodes for r in episode.raised if r.line == line), ())
    sources = (source.text for frame in frames if (source := facts.line(frame.at + 1)) is not None)
    return bool(frames) and not any(calls.search(text) for text in (*(frame.function for frame in frames), *sources))


def _training(steps: int, facts: Facts, at: int) -> str:
    """Return the phase of a run with so many proofs of progress; empty where bars were drawn or something else was counted."""
    progress = facts.progress
    if not steps:
        drawn = any(number <= at and position > 0 for number, position in progress.drawn)
        return "" if drawn or _worked(facts, at) or not _just_begun(facts, at) else "start"
    counted = facts.line(progress.lines[steps - 1]) if progress.learnt else None
    if counted is not None and not _WORK.search(counted.text[:2000]):
        return ""
    if steps == 1 and any(number <= at and position > 1 for number, position in progress.drawn):
        return ""  # a bar that is redrawn is one line, however far it came
    first = steps == 1 and progress.steps[0] <= 1 and not _worked(facts, progress.lines[0] - 1)
    return "first_step" if first else "training" if steps > 1 or _worked(facts, at) else ""


def _worked(facts: Facts, at: int) -> bool:
    """Tell whether lines up to one show work that is not counted in steps: epochs, losses, saves, requests."""
    lines = facts.between(max(1, at - MOST_WORK), at)
    return any(_WORKED.search(line.text[:2000]) or tells_of_save(line.text) for line in lines) or last_count(lines) is not None


def _just_begun(facts: Facts, at: int) -> bool:
    """Tell whether so little was printed before a line, and in so short a time, that nothing but a start can lie behind it."""
    first = max(facts.progress.leg, 1)
    head, tail = facts.between(first, first + NEAR_START), facts.between(max(first, at - NEAR_START), at)
    year = next((time.year for line in (*reversed(tail), *head) if (time := stamp(line.text)) is not None), None)
    start = next((time for line in head if (time := stamp(line.text, year))), None)
    failed = next((time for line in reversed(tail) if (time := stamp(line.text, year))), None)
    return at - first <= START_LINES and (start is None or failed is None or failed - start <= START_TIME)


def with_order(diagnosis: Diagnosis, facts: Facts) -> Diagnosis:
    """Return a diagnosis with the phase in which it failed and what the order of errors adds; as it is for what is no failure."""
    if diagnosis.category is Category.NONE and diagnosis.reason not in ("unknown", "hang", "slow_job", "loss_spike"):
        return diagnosis
    line = next((cited.line for cited in diagnosis.root_cause if cited.file == "job.log"), 0)
    outside_training = program_of(diagnosis, facts).kind not in (ProgramKind.TRAINING, ProgramKind.UNKNOWN)
    phase = "" if any(request_handler(cited, facts) for cited in diagnosis.root_cause[:1]) else phase_of(facts, line)
    phase = "" if phase in _OF_TRAINING and outside_training else phase
    return replace(diagnosis, phase=phase, patterns=(*diagnosis.patterns, *order(facts)))


def order(facts: Facts) -> Iterator[NodePattern]:
    """Yield the node that failed first and the ranks that differ from all others, where the log is clear about it."""
    first_errors = _first_errors(facts)
    yield from _first(first_errors, facts)
    yield from _missing(facts)


def _first_errors(facts: Facts) -> dict[str, _FirstError]:
    """Return each host's first error of the last leg, by a signature or a traceback; teardown and harmless lines left out."""
    leg, year = facts.progress.leg, facts.span.end.year if facts.span.end else None
    numbers = [episode.first for episode in facts.episodes]
    for hit in facts.hits:
        entry = hit.entry
        if isinstance(entry, Signature) and entry.role in (Role.ROOT, Role.SYMPTOM, Role.CASCADE):
            numbers.append(hit.line)
        elif isinstance(entry, Herring) and hit.line in numbers:
            numbers.remove(hit.line)
    first_errors: dict[str, _FirstError] = {}
    for number in sorted(set(numbers)):
        line = facts.line(number)
        if line is None or number < leg or facts.progress.after(number) > 2:
            continue
        body = facts.streams.body(line.text)
        host = body.host or facts.places.host_of(rank=body.rank, task=body.task)
        if host is not None and host not in first_errors:
            first_errors[host] = _FirstError(number, stamp(line.text, year), body.rank)
    return first_errors


def _first(first_errors: dict[str, _FirstError], facts: Facts) -> Iterator[NodePattern]:
    if len(first_errors) < 3:
        return
    ranked = sorted(first_errors.items(), key=lambda item: item[1].line)
    times = {host: error.at for host, error in ranked if error.at is not None}
    if len(times) == len(first_errors):
        ranked.sort(key=lambda item: times[item[0]])
        lead = (times[ranked[1][0]] - times[ranked[0][0]]).total_seconds()
        if lead < LEAD_S:
            return
        ahead = f"{lead:.0f} s before the next of {len(first_errors)} nodes"
    elif not times:
        gap = facts.between(ranked[0][1].line, ranked[1][1].line)
        if len(gap) < 20:
            return
        ahead = f"{len(gap) - 1} lines before the next of {len(first_errors)} nodes (no times are printed)"
    else:
        return
    host, error = ranked[0]
    origin = f"{host} (rank {error.rank})" if error.rank is not None else host
    yield NodePattern(PatternKind.FIRST, (host,), f"{origin} printed the first error, {ahead}: job.log:{error.line}")


def _missing(facts: Facts) -> Iterator[NodePattern]:
    """Yield the ranks that do not say what all others say when a collective times out: they never got there, or are dead."""
    by_event: dict[str, set[int]] = {}
    counts = facts.scan.hit_counts if facts.scan is not None else {}
    for hit in facts.hits:
        if isinstance(hit.entry, Signature) and hit.entry.id.startswith("nccl_timeout_error."):
            if counts.get(hit.entry.id, 0) > MOST_HITS:
                return  # of very many only some are kept, so nobody can tell who is missing
            rank = facts.streams.body(hit.text).rank
            match = re.search(r"\[Rank (\d{1,18})\]", hit.text) if rank is None else None
            rank = int(match[1]) if match else rank
            if rank is not None and hit.line >= facts.progress.leg:
                by_event.setdefault("collective timed out", set()).add(rank)
    for event, ranks in by_event.items():
        world = _world(facts, ranks)
        missing = sorted(set(range(world)) - ranks)
        if world < FEWEST_RANKS or not missing or len(missing) > max(1, MOST_MISSING * world):
            continue
        hosts = {facts.places.host_of(rank=rank, task=None) for rank in missing}
        nodes = tuple(sorted(host for host in hosts if host))
        rank_list = ", ".join(map(str, missing[:8]))
        on_nodes = f" on {', '.join(nodes)}" if nodes else ""
        text = f"{len(ranks)} of {world} ranks print that a {event}, rank {rank_list}{on_nodes} does not"
        yield NodePattern(PatternKind.DIFFERS, nodes, text)


def _world(facts: Facts, ranks: set[int]) -> int:
    """Return the number of ranks: as the log says it, else what was seen."""
    world_pattern = re.compile(r"\b(?:world[ _]size|nranks|WORLD_SIZE|num_processes|total ranks)[ =:]+(\d{1,6})\b", re.IGNORECASE)
    for line in facts.lines[:2000]:
        if ("ank" in line.text or "orld" in line.text or "WORLD" in line.text or "process" in line.text) and (
            match := world_pattern.search(line.text)
        ):
            size = int(match[1])
            if size > max(ranks, default=0):
                return size
    return max(ranks, default=-1) + 1


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

OWN_WORDS = ("The last that the program itself printed is", "It came where its code says that it never comes")
"""How the advice for such a log quotes what the program printed before its launcher spoke."""


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
    at = max(map(diagnosis.advice.find, OWN_WORDS))
    lines = [int(number) for number in re.findall(r"job\.log:(\d{1,9})", diagnosis.advice[: at if at >= 0 else None])]
    if traceback is None and lines and max(lines) < first.line and not diagnosis.advice.startswith("Its last line is"):
        advice = f"{diagnosis.advice} {advice}"
    elif traceback is None and at >= 0:
        advice = f"{diagnosis.advice[at:]} {advice}"
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
    episodes = [e for e in facts.episodes if e.kind is EpisodeKind.MAIN and e.last < first.line and not facts.before_leg(e.first)]
    if not episodes:
        return ""
    raised, steps = episodes[-1].raised[-1], facts.later_steps(episodes[-1].last)
    text = head_of(facts.streams.body(raised.text).text.strip(), MOST_MESSAGE)
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
    frame: SourceFrame | None = traceback.open_frames[-1] if traceback.open_frames else None
    if frame is None:
        return "its first line"
    return f"{frame.file}, line {frame.line}" + (f", in {frame.function}" if frame.function else "")


def _place(line: int, facts: Facts) -> str:
    """Return file and number of a line as people see them."""
    name, number = facts.combined.place(line) if facts.combined is not None else ("", line)
    return f"{name or 'job.log'}:{number}"


LOOK_BACK_FOR_FILE = 2_000
"""Lines before the error: a large shard lasts for many steps."""
MOST_OF_LINE = 600
_FILE = r"(?P<path>[\w.@+=~-]{0,120}(?:/[\w.@+=~-]{1,160}){1,30}|[\w.@+=-]{1,160}\.(?:%s)(?:\.(?:gz|zst|xz|bz2))?)"
_DATA = "bin|idx|jsonl?|parquet|arrow|tar|csv|tsv|txt|npy|npz|h5|hdf5|tfrecords?|mds|lmdb|pkl|zst|gz"
_WEIGHTS = "pt|pth|bin|safetensors|ckpt|distcp|npz|pkl|h5|msgpack"
_READS = r"\b(?:load|open|read|pars|decod|unpack|stream|iterat|map|restor|resum)(?:s|ing|ed|e)?\b[^\n]{0,60}?[\s'\"=:(]"
_ENDING = re.compile(rf"\.(?:{_DATA}|{_WEIGHTS})$", re.IGNORECASE)
_BY_REASON = {
    "dataset_loading_error": re.compile(_READS + _FILE % _DATA, re.IGNORECASE),
    "model_loading_error": re.compile(_READS + _FILE % _WEIGHTS, re.IGNORECASE),
}
_CHECKPOINT = re.compile(r"check-?point|\bckpt\b|weights|resum|restor", re.IGNORECASE)
_REMOTE = re.compile(r"https?:|Client Error|Server Error|\bHub\b|HubHTTP|Repo(?:sitory)?\b|RepoError", re.IGNORECASE)
_OF_A_RUN = re.compile(r"check-?point|ckpt|step|iter|epoch|shard|part-", re.IGNORECASE)
_HAS_PATH = re.compile(r"['\"\s=(](?:[\w.@+~-]+)?/[\w.@+=~-]+|\w\.(?:bin|jsonl?|parquet|arrow|tar|safetensors|pt|ckpt|npy)\b")


def with_last_file(diagnosis: Diagnosis, facts: Facts) -> Diagnosis:
    """Return a diagnosis of a loader's error that names the last file that the log says it read; as it is where the error does."""
    pattern = _BY_REASON.get(diagnosis.reason)
    cited = next((citation for citation in diagnosis.root_cause if citation.file == "job.log"), None)
    if (
        pattern is None
        or cited is None
        or any(_HAS_PATH.search(citation.text) or _REMOTE.search(citation.text) for citation in diagnosis.root_cause)
    ):
        return diagnosis
    last_file = _last_named(cited, diagnosis.reason, pattern, facts)
    if last_file is None:
        return diagnosis
    path, line = last_file
    name, number = facts.combined.place(line) if facts.combined is not None else ("", line)
    sentence = f"The last file that the log says it read is {path} ({name or 'job.log'}:{number})."
    return replace(diagnosis, summary=f"{diagnosis.summary} {sentence}", advice=f"{diagnosis.advice} {sentence}")


def _last_named(cited: Citation, reason: str, pattern: re.Pattern[str], facts: Facts) -> tuple[str, int] | None:
    episode = next((chain for chain in facts.episodes if chain.first <= cited.line <= chain.last), None)
    before = episode.first if episode is not None else cited.line
    stream = facts.streams.body(cited.text).stream
    for line in reversed(facts.between(max(1, before - LOOK_BACK_FOR_FILE), before - 1)):
        body = facts.streams.body(line.text[:MOST_OF_LINE])
        of_weights = _CHECKPOINT.search(body.text) is not None
        if body.stream != stream or (reason == "dataset_loading_error" and of_weights):
            continue
        match = pattern.search(body.text)
        if match is not None and _is_file(path := match["path"].rstrip(".")):
            return path, line.number
    return None


def _is_file(path: str) -> bool:
    """Tell a path from a count (`16/30`) and from the name of a repository (`org/model`)."""
    if not any(character.isalpha() for character in path):
        return False
    repository = path.count("/") == 1 and not path.startswith(("/", ".", "~"))
    name = path.rpartition("/")[2]
    return not repository or _ENDING.search(name) is not None or _OF_A_RUN.search(name) is not None
