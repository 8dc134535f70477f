"""What is remembered of one running attempt, and how its log, its metrics file and its heartbeat are read on.

All of it is small and belongs to one attempt. A look that finds nothing new costs one `stat`; one that does costs what is new.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from os import stat_result
from pathlib import Path
from statistics import median

from assistant.logs.attempt import names_job
from assistant.logs.lines import Line
from assistant.logs.metrics import MetricReader
from assistant.logs.phases import LearntForm, LogPhase, announced_size, learn_series, phase_begun, phase_over, read_series
from assistant.logs.spikes import Spike
from assistant.logs.tail import LogFollower, TailPosition
from assistant.records import Job, MetricPoint
from assistant.untrusted import status_of
from assistant.watch.hang import Cadence, HangLimits, Signs, Suspicion, WaitTrack, rarest, suspicion_of, tells_of_service
from assistant.watch.progress import LossTrack, PaceLimits, PaceTrack, SaveTrack, SpikeLimits, tells_of_save
from assistant.watch.slowdown import PaceSpan, SlowdownLimits, SlowdownTrack
from assistant.watch.witness import HeartbeatReading, heartbeat_path, last_beat, path_in

LOOKED_BACK_BYTES = 1 << 20
MOST_SHAPES = 64
"""Kinds of lines since the last step that are told apart; with more of them it is doing something else than waiting."""
KEPT_LOOKS = 200
"""Looks of which is known which step they brought, to date the onset of a spike."""
JUMP = 3.0
"""Times its usual step time: where only our looks tell the time, all steps of a look share a gap between two of them."""
LONGEST_GAP_S = 86_400.0
_DIGITS = re.compile(r"\d+")
_COUNTER = re.compile(r"\b(\d{1,15}) ?(?:/|of) ?(\d{1,15})\b|\b(\d{1,15})%")
_SHAPE_CHARACTERS = 120
FEWEST_TAUGHT, MOST_UNTAUGHT = 8, 200
"""Rows that teach a log's own form while its job runs, and last lines among which they are looked for."""
SIZED = (LogPhase.EVALUATION, LogPhase.LOADING, LogPhase.PREPARATION)
"""Phases of which a log says how much they have before them; what it counts at a save is where training stands."""
PASSING = (LogPhase.CHECKPOINT, *SIZED)


@dataclass(frozen=True, slots=True)
class ViewLimits:
    """What each attempt is judged by."""

    hang: HangLimits
    spike: SpikeLimits
    pace: PaceLimits
    slowdown: SlowdownLimits = field(default_factory=SlowdownLimits)


@dataclass
class _Source:
    """A log beside the main one, as far as it was read."""

    follower: LogFollower
    reader: MetricReader = field(default_factory=MetricReader)
    size: tuple[int, int, int] = (0, 0, 0)


@dataclass
class View:
    """All that the watch remembers of one attempt."""

    job: Job
    limits: ViewLimits
    metrics_path: Path | None = None
    """Where its own metrics.jsonl would lie; None where it shares the folder with others."""
    more: tuple[Path, ...] = ()
    """Other logs of the attempt: standard error, a file for each rank, what the script redirects to."""
    before: TailPosition | None = None
    """How far the log was read in the attempt before, where that wrote the same file."""
    metrics: LogFollower | None = None
    reader: MetricReader = field(default_factory=MetricReader)
    cadence: Cadence = field(default_factory=Cadence)
    phase: LogPhase = LogPhase.START
    phase_at: datetime | None = None
    """When a look brought the last change of phase."""
    last: MetricPoint | None = None
    """The newest step."""
    output_at: datetime | None = None
    life_at: datetime | None = None
    step_at: datetime | None = None
    """When a look brought the newest step."""
    beat: HeartbeatReading | None = None
    beat_at: datetime | None = None
    heart: Path | None = None
    first_step_s: float | None = None
    """From the start to the first step: what a restart of it would take, too."""
    spike: Spike | None = None
    onset: datetime | None = None
    """When the look was that brought the step at which the loss went off."""
    wait: WaitTrack = field(default_factory=WaitTrack)
    """What it says that it waits for, since the last step."""
    says_it_serves: bool = False
    """Whether its log says that it listens, or answers requests."""
    excused_until: datetime | None = None
    """A second witness saw it work."""
    _met: set[LogPhase] = field(default_factory=set)
    _sizes: dict[tuple[LogPhase, str], int] = field(default_factory=dict)
    """How much phases since the last step have before them, as the log says."""
    _shapes: dict[str, int] = field(default_factory=dict)
    _size: tuple[int, int, int] = (0, 0, 0)
    _steps_seen: array[int] = field(default_factory=lambda: array("q"))
    _seen_at: array[float] = field(default_factory=lambda: array("d"))
    _from_file: bool = False
    _follower: LogFollower | None = None
    _sources_by_path: dict[Path, _Source] = field(default_factory=dict)
    _leader: Path | None = None
    """The log whose steps count: others may show the same ones."""
    _first_batch: int | None = None
    """Samples of a step in the beginning: a step of more of them takes longer and is not slow."""
    _did_else: bool = False
    """Whether anything but training was done since the look that brought the last step."""
    _from_the_middle: bool = False
    """Whether its first steps were not seen."""
    _form: LearntForm | None = None
    """Which of its lines carry a step, of a log of no known form."""
    _untaught: list[Line] = field(default_factory=list)

    @property
    def last_step(self) -> int | None:
        """The newest step; None where there is none, or where it was only counted."""
        return self.last.step if self.last is not None and not self.last.counted else None

    @property
    def serves(self) -> bool:
        """Whether it is a service: it says so, makes no steps and has no heartbeat."""
        return self.says_it_serves and self.last is None and self.beat is None

    def __post_init__(self) -> None:
        """Begin with no step; no file is touched, since a mount may hang."""
        self.loss, self.pace, self.saves = LossTrack(self.limits.spike), PaceTrack(self.limits.pace), SaveTrack()
        self.slowdown = SlowdownTrack(self.limits.slowdown)
        self.heart = heartbeat_path(self.job)

    def read(self, now: datetime) -> None:
        """Read the lines that were appended since the last look.

        Raises:
            OSError: It cannot be read now: unknown, not silent.
        """
        self._read_log(now)
        self._read_more(now)
        if self.metrics is None and self.metrics_path is not None and self.last is None:
            self.metrics = _follow(self.metrics_path, self.job)  # written from the first step on
        if self.metrics is not None and (not self.reader.points or self._from_file):
            points = self.reader.news(self.metrics.news().lines)
            self._from_file = self._from_file or bool(points)
            self._take_points(points, now)
        beat = last_beat(self.heart, self.job)
        if beat is not None:
            self._take_beat(beat, now)

    def shift(self, by: timedelta) -> None:
        """Move the past by what the time of day was set by: how long ago things were is what counts."""
        for name in ("phase_at", "output_at", "life_at", "step_at", "beat_at", "onset", "excused_until"):
            at = getattr(self, name)
            if at is not None:
                setattr(self, name, at + by)
        self._seen_at = array("d", [at + by.total_seconds() for at in self._seen_at])
        self.wait.shift(by)
        self.pace.shift(by.total_seconds())
        self.slowdown.shift(by)
        self.saves.shift(by)

    def suspicion(self, now: datetime) -> Suspicion | None:
        """Return what speaks for a hang."""
        output = self.output_at or now
        sizes = {unit: count for (phase, unit), count in self._sizes.items() if phase is self.phase}
        signs = Signs(
            self.phase,
            output,
            self.life_at or output,
            self.beat_at,
            self.phase_at,
            steps=self.last is not None,
            expected_s=self.cadence.expected_s(self.phase, sizes),
            announced=bool(sizes),
            says_nothing=not self._size[1]
            and self.metrics is None
            and not any(source.size[1] for source in self._sources_by_path.values()),
        )
        return suspicion_of(signs, self.cadence, self.limits.hang, now)

    def _opened(self) -> LogFollower:
        """Return what follows the log, at first from near its end: the detectors need its last steps, not its history."""
        if self._follower is None:
            log = self.job.log or self.job.error_log or Path()
            status = _status(log) if log != Path() else None
            size = status.st_size if status is not None else 0
            position = self.before or TailPosition(offset=max(0, size - LOOKED_BACK_BYTES))
            if status is not None and _of_earlier_attempt(self.job, log, status):
                position = TailPosition(offset=size, inode=status.st_ino)
            self._follower = LogFollower(log, position)
            self._from_the_middle = size > 0
        return self._follower

    def position(self) -> tuple[Path, TailPosition] | None:
        """Return how far the log was read; None while it was not."""
        return (self._follower.path, self._follower.position) if self._follower is not None else None

    def read_up_to(self) -> dict[str, int]:
        """Return how many bytes of each log were read, by path."""
        followers = [self._follower, self.metrics, *(source.follower for source in self._sources_by_path.values())]
        return {str(follower.path): follower.position.offset for follower in followers if follower is not None}

    def _read_log(self, now: datetime) -> None:
        follower = self._opened()
        status = _status(follower.path) if self.job.log is not None or self.job.error_log is not None else None
        if status is None:
            self._begin(self.job.started or now)
            return
        first = self.output_at is None
        size = (status.st_ino, status.st_size, status.st_mtime_ns)
        if size == self._size:
            return
        news = follower.news()
        self._size = size
        if news.restarted:
            self._forget()
        at = min(now, datetime.fromtimestamp(status.st_mtime, UTC)) if first else now
        if self.job.started is not None and first:
            at = max(at, min(now, self.job.started))  # the log may be that of an earlier attempt
        self.output_at = at
        if news.lines:
            self._take_lines(news.lines, at, first=first)
        else:
            self.life_at = at  # a bar that is drawn again and again on one line
        self._begin(at)

    def _read_more(self, now: datetime) -> None:
        """Read the other logs on; what one of them says is life, and its steps count where the main log shows none."""
        paths = [self.job.error_log] if self.job.error_log is not None and self.job.log is not None else []
        for path in dict.fromkeys([*paths, *self.more]):
            status = _status(path)
            if status is None or path == self.job.log:
                continue
            source = self._sources_by_path.get(path)
            if source is None:
                if _of_earlier_attempt(self.job, path, status):
                    continue
                position = TailPosition(offset=max(0, status.st_size - LOOKED_BACK_BYTES))
                source = self._sources_by_path[path] = _Source(LogFollower(path, position))
            size = (status.st_ino, status.st_size, status.st_mtime_ns)
            if size == source.size:
                continue
            first, source.size = not any(source.size), size
            modified = datetime.fromtimestamp(status.st_mtime, UTC)
            at = max(min(now, modified), self.job.started or modified) if first else now
            news = source.follower.news()
            self.output_at = max(self.output_at or at, at)
            if news.lines:
                self._take_lines(news.lines, at, first=first, source=source)
            else:
                self.life_at = at

    def _begin(self, at: datetime) -> None:
        self.output_at = self.output_at or at
        self.life_at = self.life_at or at

    def _forget(self) -> None:
        """Begin with a new file: what it says has nothing to do with the old one, but for the rhythm."""
        self.reader, self.last, self.phase, self._leader = MetricReader(), None, LogPhase.START, None
        self.loss, self.saves = LossTrack(self.limits.spike), SaveTrack()
        self._met, self._sizes, self._shapes = set(), {}, {}
        self._steps_seen, self._seen_at = array("q"), array("d")
        self._form, self._untaught = None, []

    def _take_lines(self, lines: Sequence[Line], at: datetime, *, first: bool, source: _Source | None = None) -> None:
        points = [] if self._from_file else (source.reader if source is not None else self.reader).news(lines)
        points = points or (self._learnt_points(lines) if source is None else [])
        path = source.follower.path if source is not None else self._opened().path
        if points and self._leader is None:
            self._leader = path
        points = points if path == self._leader else []
        by_line = {point.line: point for point in points}
        waiting: list[MetricPoint] = []
        each_s = None if first else self._each_s(at, len(points))
        before, before_at, text = self.last, self.step_at, ""
        for line in lines:
            point = by_line.get(line.number)
            self.saves.evaluated(line.text)
            if point is not None:
                self._stepped(point, at, each_s, last=point is points[-1])
                waiting.append(point)
                text = line.text
                continue
            self._take_words(line.text, at)
            self.slowdown.says(line.text)
        self._judge(waiting, at)
        self._take_pace(waiting, before, None if first else before_at, at, text)
        if self.last is None:
            self.life_at = at  # of a job that shows no steps any output counts

    def _learnt_points(self, lines: Sequence[Line]) -> list[MetricPoint]:
        """Return the steps of a log of no known form, once enough of its lines have taught which of their numbers rises like one.

        They tell that a job moves; how fast it is, and what its loss does, is told of known forms alone.
        """
        if self._from_file or (self._form is None and self.last is not None):
            return []
        self._untaught = [*self._untaught, *lines][-MOST_UNTAUGHT:] if self._form is None else list(lines)
        series = learn_series(self._untaught) if self._form is None else read_series(lines, self._form)
        if series is None or (self._form is None and len(series.points) < FEWEST_TAUGHT):
            return []
        self._form, new = series.form, {line.number for line in lines}
        return [replace(point, loss=None) for point in series.points if point.line in new]

    def _take_words(self, text: str, at: datetime) -> None:
        new_phase = phase_begun(text)
        if new_phase is not None:
            if new_phase is not self.phase:
                self.life_at = self.phase_at = at
            self.phase = new_phase
            self._met.add(new_phase)
        elif self.phase in PASSING and phase_over(text, self.phase):
            self.phase = LogPhase.TRAINING if self.last is not None else LogPhase.START
            self.life_at = self.phase_at = at
        if self.phase in SIZED and (size := announced_size(text)) is not None:
            self._sizes[self.phase, size[0]] = size[1]
        if tells_of_save(text):
            self.saves.saved(text, self.last.step if self.last is not None else 0, at)
        self.wait.take(text, at)
        self.says_it_serves = self.says_it_serves or tells_of_service(text)
        self.heart = path_in(text) or self.heart
        if self._is_new(text):
            self.life_at = at

    def _is_new(self, text: str) -> bool:
        """Tell whether a line is of a kind not seen since the last step, or counts further than before."""
        shape = _DIGITS.sub("", text[:_SHAPE_CHARACTERS])
        counter = _COUNTER.search(text)
        value = int(counter[1] or counter[3]) if counter else 0
        before = self._shapes.get(shape)
        if before is None and len(self._shapes) >= MOST_SHAPES:
            return True
        self._shapes[shape] = max(value, before or 0)
        return before is None or value > before

    def _take_points(self, points: Sequence[MetricPoint], at: datetime) -> None:
        each_s = self._each_s(at, len(points))
        before, before_at = self.last, self.step_at
        for point in points:
            self._stepped(point, at, each_s, last=point is points[-1])
        self._judge(points, at)
        self._take_pace(points, before, before_at, at, "")

    def _take_pace(
        self, points: Sequence[MetricPoint], before: MetricPoint | None, before_at: datetime | None, at: datetime, text: str
    ) -> None:
        """Give the steps of a look to the pace by our clock; what was saved, loaded or evaluated meanwhile is no pace."""
        if not points or self._form is not None:
            return
        only_trained, self._did_else = not self._did_else, False
        newest = points[-1]
        step_count = newest.step - before.step if before is not None else 0
        if step_count <= 0 or before_at is None:
            return
        self._first_batch = self._first_batch or newest.batch
        share = self._first_batch / newest.batch if self._first_batch and newest.batch else 1.0
        spent = [point.seconds * share for point in points if point.seconds is not None]
        wall_s = (at - before_at).total_seconds() / step_count * share if only_trained else None
        self.slowdown.take(PaceSpan(at, newest.step, wall_s, median(spent) if spent else None, newest.epoch, text))

    def _each_s(self, at: datetime, count: int) -> float | None:
        """Return how long each of the steps took that a look brought; None where nobody looked before."""
        return (at - self.step_at).total_seconds() / count if self.step_at is not None and count else None

    def _stepped(self, point: MetricPoint, at: datetime, each_s: float | None, *, last: bool) -> None:
        """Learn from a step: the gap before it, and that the job lives."""
        before = self.last
        if before is not None and point.step > before.step and not self._met and not self._sizes:
            gap = self._gap_s(point, each_s)  # nearly always: nothing but training lies between the two
            if gap is not None:
                self._trained(point, point.step - before.step, gap, at, timed_by_looks=gap is each_s and not last)
        else:
            self._came_to(point, at, each_s, last=last)
        self.phase = LogPhase.FIRST_STEP if before is None else LogPhase.TRAINING
        self.last, self.life_at, self.step_at = point, at, at
        if self._shapes:
            self._shapes.clear()
        self.wait.clear()
        self.saves.stepped(point.step)

    def _trained(self, point: MetricPoint, steps: int, gap_s: float, at: datetime, *, timed_by_looks: bool) -> None:
        """Learn from steps with nothing but training in the gap before them."""
        self.cadence.add(LogPhase.TRAINING, gap_s, steps)
        spent = point.seconds if point.seconds is not None else gap_s / steps
        is_timed = not timed_by_looks or point.seconds is not None or spent < JUMP * self.cadence.usual_step_s
        if is_timed and self._form is None:
            # by the sample where the batch is known: one that is ramped up takes longer and is not slow
            self.pace.add(spent / point.batch if point.batch else spent, at)

    def _came_to(self, point: MetricPoint, at: datetime, each_s: float | None, *, last: bool) -> None:
        """Learn from a step with anything else in the gap before it, or that is the first one."""
        before = self.last
        went_back = before is not None and point.step < before.step
        self._met.add(LogPhase.START if went_back or before is None else LogPhase.TRAINING)
        gap = self._gap_s(point, each_s)
        phase = rarest(self._met)
        self._did_else = self._did_else or phase is not LogPhase.TRAINING
        if before is not None and gap is not None:
            if phase is LogPhase.TRAINING and point.step > before.step:
                self._trained(point, point.step - before.step, gap, at, timed_by_looks=gap is each_s and not last)
            else:
                self.cadence.add(phase, gap, max(0, point.step - before.step))
            self._learn_phases(gap)
        elif before is None and self.job.started is not None and not self._from_the_middle:
            self.first_step_s = max(0.0, (at - self.job.started).total_seconds())
            self.cadence.add(LogPhase.START, self.first_step_s)
        self._met.clear()
        self._sizes.clear()

    def _learn_phases(self, gap_s: float) -> None:
        if LogPhase.PREPARATION in self._met:
            self.cadence.add(LogPhase.PREPARATION, gap_s)  # beside training: what is prepared at each step is no gap of its own
        for (phase, unit), count in self._sizes.items():
            self.cadence.add_size(phase, unit, count, gap_s)

    def _gap_s(self, point: MetricPoint, each_s: float | None) -> float | None:
        """Return the time since the step before: by the log's own clock where it has one, else by our looks."""
        before = self.last
        if before is None:
            return None
        if point.at is not None and before.at is not None:
            gap = (point.at - before.at).total_seconds()
            return gap if 0 <= gap <= LONGEST_GAP_S else None
        return each_s if each_s else None

    def _judge(self, points: Sequence[MetricPoint], at: datetime) -> None:
        if not points:
            return
        self._steps_seen.append(points[-1].step)
        self._seen_at.append(at.timestamp())
        if len(self._steps_seen) > KEPT_LOOKS:
            del self._steps_seen[: KEPT_LOOKS // 4], self._seen_at[: KEPT_LOOKS // 4]
        self.spike = self.loss.add(points)
        if self.spike is not None:
            steps_in_time = zip(self._steps_seen, self._seen_at, strict=True)
            onset = next((when for step, when in steps_in_time if step >= self.spike.step), at.timestamp())
            self.onset = datetime.fromtimestamp(onset, UTC)

    def _take_beat(self, beat: HeartbeatReading, now: datetime) -> None:
        before, self.beat = self.beat, beat
        training = beat.phase in (None, LogPhase.TRAINING)
        moved = before is None or beat.step != before.step or beat.phase is not before.phase
        if moved or (not training and before is not None and beat.stamp != before.stamp):
            gap = (now - self.beat_at).total_seconds() if self.beat_at is not None else None
            if before is not None and gap is not None and self.last is None:
                self.cadence.add(before.phase or LogPhase.TRAINING, gap)
            self.beat_at = now
            self.phase = beat.phase or self.phase


def view_of(job: Job, limits: ViewLimits, *, metrics: bool, before: TailPosition | None = None) -> View:
    """Begin to remember an attempt.

    Args:
        job: With a log.
        limits: The site's.
        metrics: Whether a metrics.jsonl in its work folder is surely its own.
        before: How far its log was read in the attempt before.
    """
    return View(job, limits, job.work_dir / "metrics.jsonl" if metrics and job.work_dir is not None else None, before=before)


def _of_earlier_attempt(job: Job, path: Path, status: stat_result) -> bool:
    """Tell whether a file was last written before the attempt began."""
    if not job.dated_logs or job.started is None or status.st_mtime >= job.started.timestamp():
        return False
    return job.attempt > 0 or not names_job(str(path), job)


def _follow(path: Path, job: Job) -> LogFollower | None:
    status = _status(path)
    if status is None:
        return None
    modified = datetime.fromtimestamp(status.st_mtime, UTC)
    if job.started is not None and modified < job.started - timedelta(seconds=1):
        return None  # an earlier run's
    return LogFollower(path, TailPosition(offset=max(0, status.st_size - LOOKED_BACK_BYTES)))


def _status(path: Path) -> stat_result | None:
    """Return what the file is; None where there is none.

    Raises:
        OSError: That cannot be told now.
    """
    try:
        return status_of(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
