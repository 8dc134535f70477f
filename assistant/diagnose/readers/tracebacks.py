"""Read Python tracebacks out of a log of many ranks, and exception lines whose traceback is missing.

Each stream (see `streams`) is read by itself. Where a log has no marks and ranks interleave, tracebacks that were opened and not
yet closed are kept beside each other and closed in order; one that is never closed was cut off. A failure is one episode, with the
chain of its exceptions. An episode says how it came about, because a traceback is often no failure: `ignored` (in `__del__`),
`atexit`, `thread` (a side thread), `launcher` (torchrun telling that a child failed).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from assistant.diagnose.readers.streams import Body, NumberedLine, Streams
from assistant.logs.lines import Line


class EpisodeKind(StrEnum):
    """How a traceback came about."""

    MAIN = "main"
    IGNORED = "ignored"
    ATEXIT = "atexit"
    THREAD = "thread"
    LAUNCHER = "launcher"


TEARDOWN_KINDS = (EpisodeKind.IGNORED, EpisodeKind.ATEXIT)
"""What Python prints while it takes a program down that has ended already."""


@dataclass(frozen=True, slots=True)
class SourceFrame:
    """One `File "…", line …, in …` row."""

    file: str
    function: str
    line: int = 0
    """1-based, of the source."""
    at: int = 0
    """Line of the log that names it; the one behind it mostly holds the source."""


@dataclass(slots=True)
class Raised:
    """One exception of a chain."""

    name: str
    """Class as printed, with its module."""
    message: str
    """First line of the message."""
    line: int
    text: str
    """The whole line as it stands in the log."""
    frames: list[SourceFrame]
    more: list[tuple[int, str]] = field(default_factory=list)
    """Further lines of the message: (number, text)."""
    cause: bool = False
    """Whether it was raised `from` the one before it in the chain."""

    @property
    def short(self) -> str:
        """Class without its module."""
        return self.name.rpartition(".")[2]


@dataclass(slots=True)
class Episode:
    """One traceback with everything that is chained to it, in the order printed: the innermost first."""

    stream: str
    first: int
    rank: int | None = None
    task: int | None = None
    host: str | None = None
    kind: EpisodeKind = EpisodeKind.MAIN
    raised: list[Raised] = field(default_factory=list)
    last: int = 0
    open_frames: list[SourceFrame] = field(default_factory=list)
    """Frames behind which no exception line stands."""

    @property
    def lines(self) -> range:
        """Numbers of the lines from its start to its end."""
        return range(self.first, self.last + 1)


class Tracebacks(NamedTuple):
    """The tracebacks of a log, each kind in the order in which they begin."""

    ended: list[Episode]
    """Those with an exception line."""
    cut_off: list[Episode]
    """Those of a program, not of its launcher, of which no exception line stands in the log."""


ADVISES = re.compile(r"\W{0,4}(?:HINT|Hint|hint|NOTE|Note|TIP|Tip|help|Help)\s?\d{0,2}:\s")
"""How a line begins by which a library tells what might be tried: no word of it says that anything ended."""
_START = re.compile(r"(?P<before>.{0,120}?)Traceback \(most recent call last\)")
_FRAME = re.compile(r'\s+File "([^"]+)", line (\d{1,9})(?:, in (.+))?')
_RAISED = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: ?(.*))?$")
_CLASS = re.compile(
    r"(?:Error|Exception|Exit|Interrupt|Warning|Failure|Fault|Timeout|Expired|Invalid|Found|Stop\w{0,60}|Empty|Full|NoSuch\w{1,60}|Abort\w{0,60})$"
)
_CHAINED = "During handling of the above exception, another exception occurred"
_CAUSED = "The above exception was the direct cause of the following exception"
_OF_THREAD = "Exception in thread"
ANNOUNCED = 6
"""Lines from the announcement of a side thread's exception to its traceback, where several threads print at once."""
_KINDS = (
    ("Exception ignored in", EpisodeKind.IGNORED),
    ("Error in atexit", EpisodeKind.ATEXIT),
    ("Error in sys.exitfunc", EpisodeKind.ATEXIT),
    (_OF_THREAD, EpisodeKind.THREAD),
    ("--- Logging error ---", EpisodeKind.IGNORED),
)
_LAUNCHERS = re.compile(
    r"torch/distributed/(?:run|launch|launcher/|elastic/agent)|accelerate/commands/launch|deepspeed/launcher|/bin/(?:torchrun|accelerate)"
)
_WRAPPERS = {"ChildFailedError", "CalledProcessError", "SignalException", "ProcessExitedException", "WorkerGroupFailure"}
QUOTING = {"CheckpointException", "ProcessRaisedException", "RemoteTraceback", "RayTaskError", "RemoteException"}
"""Exceptions that hold the traceback of another process."""
_LOGGED = re.compile(
    r"\[?\d{4}-\d\d|\[?(?:INFO|WARNING|WARN|ERROR|DEBUG)\b|srun|slurmstepd|Traceback|Exception ignored|\[[EWI]\d*\b"
)
_SIGNAL_WORDS = frozenset({"Terminated", "Killed", "Aborted", "Hangup", "Interrupt", "Quit"})
"""What a shell prints of a program that a signal ended."""
_FINALIZERS = re.compile(r"_run_finalizers|_remove_temp_dir|__del__|_exit_function|_cleanup|_shutdown_workers|atexit|_python_exit")


@dataclass(slots=True)
class _Open:
    """A traceback that is being read."""

    episode: Episode
    indent: int
    frames: list[SourceFrame] = field(default_factory=list)
    awaiting: bool = True
    """Whether its exception line has not come yet."""
    link: str = ""
    """What announced the next traceback of the chain."""
    over: bool = False
    """Whether the message of its last exception has ended."""
    interrupted: bool = False
    """Whether other lines stand behind its frames: then only what is surely an exception ends it."""


class _Reader:
    """Reads the bodies of one stream."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._before: list[str] = []
        self._threads: list[int] = []
        """Lines that announce the exception of a side thread, those first whose traceback has not begun."""
        self._open: list[_Open] = []
        self.episodes: list[Episode] = []

    def take(self, number: int, whole: str, body: Body) -> None:
        text = body.text
        if "Traceback (most" in text and (start := _START.match(text)) and not _in_one_line(text, start):
            self._start(number, body, start)
        elif _CHAINED in text or _CAUSED in text:
            if self._open:
                self._open[-1].link = "caused" if _CAUSED in text else "chained"
        elif self._open:
            self._inside(number, whole, text)
        if _OF_THREAD in text:
            self._threads.append(number)
        if text.strip():
            self._before = [*self._before[-1:], text]

    def _start(self, number: int, body: Body, start: re.Match[str]) -> None:
        indent = len(start["before"]) - len(start["before"].lstrip()) if not start["before"].strip() else 0
        latest = self._open[-1] if self._open else None
        if latest is not None and not latest.awaiting and (latest.link or _nested(latest, body.text)):
            latest.awaiting, latest.frames, latest.indent = True, latest.episode.open_frames, indent
            return
        self._open = [entry for entry in self._open if entry.awaiting][-8:]
        self._threads = [line for line in self._threads if number - line <= ANNOUNCED]
        announced = (
            EpisodeKind.THREAD if self._threads else EpisodeKind.MAIN
        )  # several threads that die at once announce it in turn
        kind = next((kind for mark in self._before for words, kind in _KINDS if words in mark), announced)
        self._threads = self._threads[1:] if kind is EpisodeKind.THREAD else self._threads
        episode = Episode(self._stream, number, body.rank, body.task, body.host, kind, last=number)
        self.episodes.append(episode)
        self._open.append(_Open(episode, indent, episode.open_frames))

    def _inside(self, number: int, whole: str, text: str) -> None:
        if frame := _FRAME.match(text):
            entry = next((entry for entry in reversed(self._open) if entry.awaiting), self._open[-1])
            entry.frames.append(SourceFrame(frame.group(1), (frame.group(3) or "").strip(), int(frame.group(2)), number))
            entry.episode.last = max(entry.episode.last, number)
            return
        waiting = [entry for entry in self._open if entry.awaiting and entry.frames]
        if waiting:
            if not text.strip() or len(text) - len(text.lstrip()) > waiting[0].indent:
                return
            raised = _RAISED.match(text.strip())
            if raised is not None and _plausible(raised, text, surely=waiting[0].interrupted):
                self._raise(_raising(waiting, raised.group(1)), number, whole, raised)
            else:
                for entry in waiting:
                    entry.interrupted = True
            return
        twin = self._twin(text)
        if twin is not None and (raised := _RAISED.match(text.strip())) is not None:
            self._raise(twin, number, whole, raised)
            return
        closed = self._open[-1]
        if not closed.awaiting and closed.episode.raised:
            self._message(closed, number, whole, text)

    def _twin(self, text: str) -> _Open | None:
        """Return the traceback without frames that the same exception ends as the one before: their frames were printed mixed."""
        frameless = [entry for entry in self._open if entry.awaiting and not entry.frames]
        closed = [entry for entry in self._open if not entry.awaiting and entry.episode.raised]
        same = any(entry.episode.raised[-1].text.strip() == text.strip() for entry in closed[-1:])
        return frameless[0] if same and frameless else None

    def _raise(self, entry: _Open, number: int, whole: str, raised: re.Match[str]) -> None:
        episode = entry.episode
        episode.raised.append(
            Raised(raised.group(1), raised.group(2) or "", number, whole, entry.frames, cause=entry.link == "caused")
        )
        episode.last = number
        entry.awaiting, entry.frames, entry.link, entry.over, entry.interrupted = False, [], "", False, False
        episode.open_frames = entry.frames
        if entry in self._open:
            self._open.remove(entry)
        self._open.append(entry)

    def _message(self, entry: _Open, number: int, whole: str, text: str) -> None:
        latest = entry.episode.raised[-1]
        if entry.over or not text.strip():
            return
        # of what follows only indented lines surely belong to the message, and all after an open first line; a bare class has none
        goes_on = text[0].isspace() or latest.text.rstrip().endswith(":")
        another = not latest.message and (raised := _RAISED.match(text)) is not None and _CLASS.search(raised.group(1))
        if entry.link or not goes_on or another or _LOGGED.match(text) or len(latest.more) >= 20:
            entry.over = True
            return
        latest.more.append((number, whole))


def _in_one_line(text: str, start: re.Match[str]) -> bool:
    """Tell whether a traceback is the message of an exception, its line ends escaped, and begins no other one."""
    return "\\n" in text[start.end() :] and _RAISED.match(text.strip()) is not None


def _nested(latest: _Open, text: str) -> bool:
    """Tell whether a traceback that starts now is quoted by the exception that was printed just before."""
    if "Original Traceback" in text or "(RANK" in text:
        return True
    return latest.episode.raised[-1].short in QUOTING and not latest.over


def _raising(waiting: Sequence[_Open], name: str) -> _Open:
    """Return which of several open tracebacks an exception ends: the first, but a launcher's exception that of a launcher."""
    of_launcher = name.rpartition(".")[2] in _WRAPPERS
    return next((entry for entry in waiting if of_launcher and _is_of_launcher(entry.frames)), waiting[0])


def _is_of_launcher(frames: Iterable[SourceFrame]) -> bool:
    return any(_LAUNCHERS.search(frame.file) for frame in frames)


def _plausible(raised: re.Match[str], text: str, *, surely: bool) -> bool:
    name = raised.group(1)
    if text.strip() in _SIGNAL_WORDS:
        return False
    if surely:
        return bool(_CLASS.search(name)) or "." in name
    return bool(_CLASS.search(name)) or "." in name or text.strip() == name or name[:1].isupper()


def read_tracebacks(lines: Iterable[NumberedLine], streams: Streams) -> Tracebacks:
    """Return the tracebacks of a log: those with an exception line, and those that were cut off before one."""
    readers: dict[str, _Reader] = {}
    active: set[str] = set()
    for line in lines:
        text = line.text
        opens = "Traceback (most" in text
        if not opens and not active and not _announces(text):
            continue
        body = streams.body(text)
        reader = readers.get(body.stream)
        if reader is None:
            if not opens and not _announces(body.text):
                continue
            reader = readers[body.stream] = _Reader(body.stream)
        if opens:
            active.add(body.stream)
        reader.take(line.number, text, body)
    episodes = sorted((episode for reader in readers.values() for episode in reader.episodes), key=lambda episode: episode.first)
    ended = [episode for episode in episodes if episode.raised]
    for episode in ended:
        episode.kind = _kind(episode)
    cut_off = [
        episode
        for episode in episodes
        if not episode.raised
        and episode.kind is EpisodeKind.MAIN
        and not _is_of_launcher(episode.open_frames)
        and not _is_of_teardown(episode.open_frames)
    ]
    return Tracebacks(ended, cut_off)


def _announces(text: str) -> bool:
    return any(words in text for words, _ in _KINDS)


def _kind(episode: Episode) -> EpisodeKind:
    if episode.kind is not EpisodeKind.MAIN:
        return episode.kind
    final = episode.raised[-1]
    if final.short in _WRAPPERS and _is_of_launcher(final.frames):
        return EpisodeKind.LAUNCHER
    if final.short == "ChildFailedError":
        return EpisodeKind.LAUNCHER
    return EpisodeKind.ATEXIT if _is_of_teardown(episode.raised[0].frames) else EpisodeKind.MAIN


def _is_of_teardown(frames: Sequence[SourceFrame]) -> bool:
    return any(_FINALIZERS.search(frame.function) for frame in frames[:2])


def innermost(raised: Raised, count: int = 3) -> Sequence[SourceFrame]:
    """Return the last frames, where the exception came from."""
    return raised.frames[-count:]


ORPHAN = re.compile(r"^(?:[\w.]+\.)?([A-Z]\w*(?:Error|Exception|NotFound|Interrupt))(?:: (.*))?$")
OTHER_LANGUAGE = re.compile(
    r"^ERROR: (?:(?:LoadError|InitError|TaskFailedException): )*(?P<name>[A-Z]\w{2,60})(?:: | with )(?P<message>.*)$"
)
"""What Julia prints of an exception that nobody caught, its stack trace behind it."""
FIRST_ALIKE = 100
LAST_ALIKE = 25
"""Of a flood of exception lines of one class so many from either end count."""
_WORDS = ("Error", "Exception", "Interrupt", "NotFound", "ERROR: ")
_NEVER = ("ChildFailedError", "KeyboardInterrupt")


class Orphan(NamedTuple):
    """A line that is an exception and no more."""

    line: Line
    body: Body
    name: str
    """With its module."""
    message: str


def orphans(lines: Iterable[Line], streams: Streams, spoken_for: Callable[[int], bool]) -> Iterator[Orphan]:
    """Yield the exception lines that stand alone.

    Args:
        lines: Of the job log.
        streams: To peel them.
        spoken_for: Tells for a line's number whether something else has told it already.
    """
    counted: Counter[str] = Counter()
    last: dict[str, deque[Orphan]] = defaultdict(lambda: deque(maxlen=LAST_ALIKE))
    for line in lines:
        text = line.text
        if not any(word in text for word in _WORDS) or spoken_for(line.number):
            continue
        body = streams.body(text)
        match = ORPHAN.match(body.text)
        foreign = OTHER_LANGUAGE.match(body.text) if match is None else None
        if foreign is not None:
            orphan = Orphan(line, body, foreign["name"], foreign["message"])
        elif match is None or match.group(1) in _NEVER:
            continue
        else:
            orphan = Orphan(line, body, body.text.partition(":")[0], match.group(2) or "")
        short = orphan.name.rpartition(".")[2]
        counted[short] += 1
        if counted[short] <= FIRST_ALIKE:
            yield orphan
        else:
            last[short].append(orphan)
    for last_orphan in last.values():
        yield from last_orphan
