"""Tell which memory problem ended a run: by the account of its message, by where it happened, and by what was logged before.

Each problem has the lines that prove it and what would decide where they do not. A message proves most (who holds what); the frames
of its traceback say at which place it came; figures that were logged before say whether memory grew, and on which rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from assistant.diagnose.readers.memory_messages import MemoryMessage, MemoryPlace, read_memory_message
from assistant.diagnose.readers.progress import read_progress
from assistant.diagnose.readers.streams import Streams
from assistant.diagnose.readers.tracebacks import Episode, SourceFrame, read_tracebacks
from assistant.logs.lines import Line
from assistant.logs.metrics import metric_points
from assistant.memory_plan.figures import MemoryFigure, MemoryGrowth, growth_of, memory_figures, uneven_ranks
from assistant.memory_plan.places import PlaceRule, SpikePlace, fits_rule, memory_places
from assistant.memory_plan.setup import GIB, MIB


class MemoryKind(StrEnum):
    """What kind of shortage it is."""

    NEED = "true need"
    FRAGMENTATION = "fragmentation"
    FOREIGN = "foreign process on the GPU"
    LIBRARY = "another library of the process"
    FRACTION = "limit that the process set itself"
    LEAK = "leak"
    SPIKE = "spike"
    UNEVEN = "uneven ranks"
    HOST = "host memory"
    SHARED = "shared memory"


class HostCause(StrEnum):
    """What fills the memory of a host."""

    WORKERS = "loader workers"
    PINNED = "pinned memory"
    STAGING = "staging of a checkpoint"
    OFFLOAD = "offloaded states"
    CACHE = "page cache in the control group"
    PROCESS = "the processes themselves"


@dataclass(frozen=True)
class ProofLine:
    """A line of a log that proves something."""

    file: str
    line: int
    """1-based."""
    text: str


@dataclass(frozen=True)
class MemoryProblem:
    """One explanation of a shortage."""

    kind: MemoryKind
    summary: str
    """One sentence with the figures that it rests on."""
    proof: tuple[ProofLine, ...]
    decides: str
    """What would decide, where the lines do not; empty where they do."""
    confidence: float
    """0 to 1; an order of the explanations, not a frequency."""
    place: SpikePlace | None = None
    cause: HostCause | None = None
    rank: int | None = None


@dataclass(frozen=True)
class MemoryReading:
    """What a log shows of a shortage of memory."""

    problems: tuple[MemoryProblem, ...]
    """The most likely first; none where no shortage ended the run."""
    message: MemoryMessage | None
    line: int
    """Of the message; 0 where there is none."""
    figures: tuple[MemoryFigure, ...]
    steps: int
    """Steps logged before it."""

    @property
    def peak(self) -> float:
        """The highest use of the GPU's allocator that was logged before the end, in bytes; 0 where none was."""
        for kinds in (("peak",), ("allocated",), ("reserved",)):
            sizes = [figure.size for figure in self.figures if figure.kind in kinds]
            if sizes:
                return max(sizes)
        return 0.0


GATE = re.compile(
    r"emory|MEMORY|OOM|oom|[Aa]lloc|ALLOC|\bv?mem \d|RESOURCE_EXHAUSTED|ResourceExhausted|/dev/shm|shm\b|Bus error|MEMLIMIT"
    r"|ncclUnhandled|Errno 12|killed by signal"
    r"|exited unexpectedly|torch_\d"
)
MOST_MESSAGES = 400
_CONTINUES = re.compile(
    r"^\s*(?:GPU \d|Process \d|Of the allocated|If reserved|Including non|Currently allocated|Requested |Device limit"
    r"|Free \(according|"
    r"PyTorch limit|See documentation|\(GPU \d|.{0,12}\d[\d.]* [KMG]iB)|^\s*: \d"
)
_MODEL_TO = re.compile(r"^(?:to|cuda|_apply|convert)$")
_BACKWARD = frozenset(("backward", "_engine_run_backward", "run_backward"))
_PINNING = frozenset(("pin_memory", "_pin_memory", "_pin_memory_loop", "do_one_step", "cudaHostAlloc", "cudaHostRegister"))
_WORKERS_LINE = re.compile(r"DataLoader worker|pt_data_worker|pt_main_thread")
_SAVING_LINE = re.compile(
    r"\b(?:[Ss]aving|[Ss]tart(?:ed|ing)? (?:to )?sav\w+|[Ss]taging|[Ww]riting) .{0,60}(?:checkpoint|state|model)|async_save"
    r"|--async-save"
)
_CACHE_LINE = re.compile(
    r"^(?:.{0,60}\s)?(?:total_)?(?P<name>cache|file|inactive_file|active_file|anon|rss|shmem|pinned"
    r"|mlock)[ :](?P<size>\d{3,16})(?P<kb>kB)?\b"
)
_STATS = re.compile(r"\b(?P<name>cache|inactive_file|active_file|rss|shmem|anon|file):(?P<size>\d{1,14})KB")
OTHER_RANKS = 3
"""Processes from which on, where each holds little, they are the contexts of the job's own ranks on one GPU."""
CONTEXT_MOST = 1.5 * GIB
SIGNIFICANT = 1.0 * GIB
"""Bytes below which neither unused nor foreign memory explains a shortage on a GPU."""


def read_problems(
    lines: Sequence[Line], *, kernel: Sequence[Line] = (), kernel_file: str = "dmesg.log", log_file: str = "job.log"
) -> MemoryReading:
    """Return which memory problem a log shows.

    Args:
        lines: Of the job's log, in order.
        kernel: Of its nodes' kernel log.
        kernel_file: Its name, for proofs.
        log_file: The name of the job's log.
    """
    streams = Streams(line.text for line in lines)
    tracebacks = read_tracebacks(lines, streams)
    points = metric_points(lines)
    spans = [(episode.first, episode.last) for episode in tracebacks.ended]
    progress = read_progress(lines, points, spans)
    figures = memory_figures(lines, streams, progress.lines, progress.steps)
    messages = [(line, message) for line, message in _messages(lines) if line.number >= progress.leg]
    messages = [entry for entry in messages if progress.after(entry[0].number) < 2]  # what was lived with
    host = [(line, message) for line, message in _messages(kernel)]
    reader = _Problems(lines, tracebacks.ended, streams, figures, log_file)
    best: tuple[Line, MemoryMessage] | None = None
    if messages:
        first = messages[0][1].place
        of_place = [entry for entry in messages if entry[1].place is (MemoryPlace.GPU if first is MemoryPlace.GPU else first)]
        best = max(of_place, key=lambda entry: (bool(entry[1].total or entry[1].requested or entry[1].limit), -entry[0].number))
    if best is not None and reader.pins(*best):
        best = (best[0], MemoryMessage(MemoryPlace.HOST, "pinned"))
    steps = progress.before(best[0].number) if best is not None else len(progress.lines)
    if best is None and not host:
        return MemoryReading(tuple(_killed(lines, log_file)), None, 0, tuple(figures), steps)
    if best is None:
        problems = _host_problems(host[0], host, lines, kernel_file)
        return MemoryReading(tuple(problems), host[0][1], host[0][0].number, tuple(figures), steps)
    place = best[1].place
    if place is MemoryPlace.SHARED:
        problems = [_shared(best, log_file)]
    elif place is MemoryPlace.HOST:
        problems = _host_problems(best, [*messages, *host], lines, log_file)
        if growth := growth_of([figure for figure in figures if figure.kind == "host"]):
            problems.insert(0, reader.leak(growth, best[0]))
    else:
        problems = reader.of_gpu(best[0], best[1], steps, [line for line, message in messages if message.place is MemoryPlace.GPU])
    problems.sort(key=lambda problem: -problem.confidence)
    return MemoryReading(tuple(problems), best[1], best[0].number, tuple(figures), steps)


def _messages(lines: Sequence[Line]) -> Iterator[tuple[Line, MemoryMessage]]:
    count = 0
    for place, line in enumerate(lines):
        if not GATE.search(line.text[:4000]):
            continue
        text = line.text
        for following in lines[place + 1 : place + 9]:
            if not _CONTINUES.search(following.text[:400]):
                break
            text = f"{text} {following.text.strip()}"
        message = read_memory_message(text)
        if message is None:
            continue
        yield line, message
        count += 1
        if count >= MOST_MESSAGES:
            return


def gib(size: float) -> str:
    """Return a size in words: GiB with two digits, MiB below one."""
    return f"{size / GIB:.2f} GiB" if abs(size) >= GIB else f"{size / MIB:.0f} MiB"


@dataclass(frozen=True)
class _Problems:
    lines: Sequence[Line]
    episodes: Sequence[Episode]
    streams: Streams
    figures: Sequence[MemoryFigure]
    file: str

    def pins(self, line: Line, message: MemoryMessage) -> bool:
        """Tell whether a message without figures comes of a frame that pins host memory: CUDA says the same of it."""
        if message.place is not MemoryPlace.GPU or message.total or message.requested:
            return False
        episode = next((episode for episode in self.episodes if episode.first <= line.number <= episode.last + 1), None)
        frames = [frame for exception in (episode.raised if episode else ()) for frame in exception.frames]
        return any(frame.function in _PINNING or frame.file.endswith("/pin_memory.py") for frame in frames[-4:])

    def of_gpu(self, line: Line, message: MemoryMessage, steps: int, all_lines: Sequence[Line]) -> list[MemoryProblem]:
        """Return the explanations of a shortage on a GPU."""
        proof = (ProofLine(self.file, line.number, line.text),)
        rank = self.streams.body(line.text).rank
        problems = list(self._by_account(message, proof))
        before = [figure for figure in self.figures if figure.line < line.number]
        if growth := growth_of([figure for figure in before if figure.kind != "host"]):
            problems.append(self.leak(growth, line))
        if spike := self._spike(line, message, steps):
            problems.append(spike)
        if uneven := uneven_ranks(before):
            full, median = uneven
            problems.append(
                MemoryProblem(
                    MemoryKind.UNEVEN,
                    f"Rank {full.rank} held {gib(full.size)} where a median rank held {gib(median.size)} (rank {median.rank}): its "
                    "pipeline stage, its experts or what only it does (rank 0) need more than the others.",
                    (ProofLine(self.file, full.line, full.text), ProofLine(self.file, median.line, median.text), *proof),
                    "Which ranks are of its stage: torch.cuda.max_memory_allocated() of all ranks, beside their place in the "
                    "layout.",
                    0.62, rank=full.rank,
                )
            )  # fmt: skip
        ranks = {body.rank for entry in all_lines if (body := self.streams.body(entry.text)).rank is not None}
        certain = any(problem.confidence >= 0.6 for problem in problems)
        problems.append(self._need(message, proof, steps, 0.3 if certain else 0.6, len(ranks)))
        return [replace(problem, rank=problem.rank if problem.rank is not None else rank) for problem in problems]

    def _by_account(self, message: MemoryMessage, proof: tuple[ProofLine, ...]) -> Iterator[MemoryProblem]:
        total, requested = message.total, message.requested
        if message.allowed and total and message.allowed < 0.95 * total:
            yield MemoryProblem(
                MemoryKind.FRACTION,
                f"The process may take only {gib(message.allowed)} of {gib(total)}: it has called "
                "torch.cuda.set_per_process_memory_fraction.",
                proof, "", 0.9,
            )  # fmt: skip
        foreign = message.foreign
        by_process = bool(message.foreign_processes or message.process_use)
        least = max(SIGNIFICANT if by_process else 2 * SIGNIFICANT, total / 10)
        contexts = (
            len(message.foreign_processes) >= OTHER_RANKS and max(size for _, size in message.foreign_processes) < CONTEXT_MOST
        )
        if foreign > least and message.form == "torch" and (message.foreign_processes or total) and not contexts:
            pids = ", ".join(f"{pid} ({gib(size)})" for pid, size in message.foreign_processes[:6])
            would_fit = foreign + message.free >= requested
            sure = bool(message.foreign_processes) or bool(message.process_use)
            yield MemoryProblem(
                MemoryKind.FOREIGN,
                f"{gib(foreign)} of the GPU's {gib(total)} are held by "
                + (f"process{'es' if len(message.foreign_processes) > 1 else ''} {pids}" if pids else "others than this process")
                + (f"; {gib(requested)} were wanted." if requested else "."),
                proof,
                "" if pids else "nvidia-smi on the node names the processes; older messages do not say whose it is.",
                (0.9 if sure else 0.65) if would_fit else 0.5,
            )  # fmt: skip
        elif contexts:
            yield MemoryProblem(
                MemoryKind.FOREIGN,
                f"{len(message.foreign_processes)} other processes hold {gib(foreign)} of this GPU, each at most "
                f"{gib(max(size for _, size in message.foreign_processes))}: most likely contexts of this job's own ranks, "
                "which begin on GPU 0 before each takes its own.",
                proof, "Whose the processes are: ps -o pid,user,args of these ids on the node.",
                0.75 if foreign >= requested else 0.5,
            )  # fmt: skip
        reserved = message.allocated + message.unused
        outside = message.process_use - reserved if message.process_use and reserved else 0.0
        if outside > max(3 * GIB, total / 8):
            yield MemoryProblem(
                MemoryKind.LIBRARY,
                f"The process holds {gib(message.process_use)}, of which PyTorch knows {gib(reserved)}: {gib(outside)} belong to "
                "another library in it (JAX, TensorFlow, NCCL, cuDNN).",
                proof, "Which one: the process's imports, and nvidia-smi before it calls them.", 0.75,
            )  # fmt: skip
        unused = message.unused
        if unused >= max(SIGNIFICANT, 0.03 * (total or reserved)) and unused + message.free >= requested > 0:
            yield MemoryProblem(
                MemoryKind.FRAGMENTATION,
                f"{gib(unused)} are reserved but not allocated, more than the {gib(requested)} that were wanted: they lie in "
                f"pieces "
                "too small.",
                proof, "", 0.88 if unused >= 2 * requested else 0.7,
            )  # fmt: skip
        if message.pools >= max(SIGNIFICANT, 0.1 * message.allocated):
            yield MemoryProblem(
                MemoryKind.SPIKE, f"{gib(message.pools)} lie in private pools of CUDA graphs, which nothing else can use.",
                proof, "The same run without CUDA graphs.", 0.7, place=SpikePlace.GRAPHS,
            )  # fmt: skip

    def leak(self, growth: MemoryGrowth, line: Line) -> MemoryProblem:
        """Return that memory grew over steps until it was full."""
        first, last = growth.first, growth.last
        steps = f" from step {first.step} to {last.step}" if first.step is not None and last.step is not None else ""
        words = {"peak": "Peak memory", "reserved": "Reserved memory", "host": "Host memory"}.get(growth.kind, "Allocated memory")
        return MemoryProblem(
            MemoryKind.LEAK,
            f"{words} grew from {gib(first.size)} to {gib(last.size)}{steps}, {gib(growth.per_step)} a step: something is kept "
            "from step to step.",
            (ProofLine(self.file, first.line, first.text), ProofLine(self.file, last.line, last.text),
             ProofLine(self.file, line.number, line.text)),
            "" if growth.kind in ("allocated", "host") else "Whether allocated memory grows at the same step of each epoch as "
                                                            "well: "
            "peaks also rise with the longest batch so far.",
            0.85 if growth.kind in ("allocated", "host") else 0.66,
        )  # fmt: skip

    def _need(
        self, message: MemoryMessage, proof: tuple[ProofLine, ...], steps: int, confidence: float, ranks: int
    ) -> MemoryProblem:
        used = message.process_use or message.allocated + message.unused
        if message.form == "xla" and message.total and message.requested > message.total:
            words = f"The program needs {gib(message.requested)} of {gib(message.total)}."
        elif message.requested and message.total and message.requested > message.total:
            words = f"One tensor of {gib(message.requested)} is larger than the whole GPU ({gib(message.total)})."
        elif used and message.total:
            words = f"This process itself holds {gib(used)} of {gib(message.total)} and wanted {gib(message.requested)} more."
        elif message.requested:
            words = f"{gib(message.requested)} more were wanted than were free."
        else:
            words = "The message does not say how much was held and free."
        time_words = (
            f" It came after {steps} logged step{'s' * (steps != 1)}." if steps else " It came before the first logged step."
        )
        rank_words = f" {ranks} ranks say so." if ranks > 1 else ""
        if message.contradiction:
            words += f" Its figures are not to be trusted: {message.contradiction}."
            confidence = min(confidence, 0.4)
        decides = "" if used and message.total and not message.contradiction else (
            "How much each process holds: nvidia-smi while it runs, or torch.cuda.memory_summary() before the failing call."
        )  # fmt: skip
        return MemoryProblem(MemoryKind.NEED, f"{words}{time_words}{rank_words}", proof, decides, confidence)

    def _spike(self, line: Line, message: MemoryMessage, steps: int) -> MemoryProblem | None:
        """Return at which known place of a run the shortage came, by the frames of its traceback or by the message."""
        proof = ProofLine(self.file, line.number, line.text)
        if message.form == "nccl":
            return MemoryProblem(
                MemoryKind.SPIKE, "NCCL found no memory for its channels: the allocator had taken nearly all of the GPU before.",
                (proof,), "Whether it comes at the first collective only.", 0.72, place=SpikePlace.NCCL,
            )  # fmt: skip
        episode = next((episode for episode in self.episodes if episode.first <= line.number <= episode.last + 1), None)
        frames = [frame for exception in (episode.raised if episode else ()) for frame in exception.frames]
        functions = {frame.function for frame in frames}
        for rule in memory_places():
            frame_proof = self._at(rule, frames)
            if frame_proof is None or (rule.early and steps):
                continue
            if rule.place is SpikePlace.COMPILE and _BACKWARD & functions:
                continue  # compiled code runs through the same files
            first = bool(rule.first) and steps <= 1
            at = SpikePlace.FIRST_UPDATE if first else rule.place
            words = (rule.first if first else rule.summary).format(steps=steps)
            confidence = 0.64 if at is SpikePlace.LOGITS else 0.68
            return MemoryProblem(MemoryKind.SPIKE, words, (frame_proof, proof), rule.decides, confidence, place=at)
        if frames and _MODEL_TO.search(frames[-1].function) and not steps and not _BACKWARD & functions:
            last = ProofLine(self.file, frames[-1].at, f"{frames[-1].file}:{frames[-1].line} in {frames[-1].function}")
            words = next(rule.summary for rule in memory_places() if rule.place is SpikePlace.MODEL)
            return MemoryProblem(MemoryKind.SPIKE, words, (last, proof), "", 0.62, place=SpikePlace.MODEL)
        return None

    def _at(self, rule: PlaceRule, frames: Sequence[SourceFrame]) -> ProofLine | None:
        """Return the innermost frame that a place is known by; None where there is none."""
        for frame in reversed(frames):
            if fits_rule(rule.functions, frame.function) or fits_rule(rule.files, frame.file):
                return ProofLine(self.file, frame.at, f"{frame.file}:{frame.line} in {frame.function}")
        if not rule.code:
            return None
        numbers = {frame.at + 1 for frame in frames}
        sources = [line for line in self.lines if line.number in numbers] if numbers else []
        source = next((line for line in reversed(sources) if fits_rule(rule.code, line.text[:400])), None)
        return ProofLine(self.file, source.number, source.text) if source is not None else None


_KILLED = re.compile(
    r"(?:line \d{1,7}|^\S{0,80}): +\d{1,10} Killed\b|^\s{0,8}Killed\s*$|[Ee]xit(?:ed with exit)? code:? (?:137|-9)\b"
)
_ENDED_BY = re.compile(r"CANCELLED|DUE TO|scancel|[Pp]reempt|SIGTERM|TIME ?LIMIT|NODE_FAIL|Traceback \(most|NODE FAILURE|Keyboard")
KILLED_LINES = 40
"""Last lines of a log in which it counts that a process was killed."""


def _killed(lines: Sequence[Line], file: str) -> list[MemoryProblem]:
    """Return that the kernel may have ended the process, where nothing but its end by SIGKILL shows."""
    last = lines[-KILLED_LINES:]
    line = next((line for line in last if _KILLED.search(line.text[:400])), None)
    if line is None or any(_ENDED_BY.search(last_line.text[:400]) for last_line in last):
        return []
    return [
        MemoryProblem(
            MemoryKind.HOST,
            "The process was ended by SIGKILL, and nothing says by whom: most often by the kernel, for host memory; a person "
            "or the scheduler may have, too.",
            (ProofLine(file, line.number, line.text),),
            "dmesg of the node (oom-kill), and sacct -o State,MaxRSS of the job: OUT_OF_MEMORY tells of memory.", 0.35,
            cause=HostCause.PROCESS,
        )
    ]  # fmt: skip


def _shared(entry: tuple[Line, MemoryMessage], file: str) -> MemoryProblem:
    line, message = entry
    size = f" ({gib(message.requested)})" if message.requested else ""
    return MemoryProblem(
        MemoryKind.SHARED,
        f"/dev/shm was too small{size}: workers of the data loader, or NCCL, hand tensors over through it.",
        (ProofLine(file, line.number, line.text),),
        "df -h /dev/shm in the job's container while it runs." if "Bus error" in line.text else "", 0.9,
    )  # fmt: skip


def _host_problems(
    entry: tuple[Line, MemoryMessage], entries: Sequence[tuple[Line, MemoryMessage]], lines: Sequence[Line], file: str
) -> list[MemoryProblem]:
    """Return what filled the memory of a host, by what the kernel and the log say of it."""
    line, message = entry
    proof = [ProofLine(file, line.number, line.text)]
    text = " ".join(entry_line.text for entry_line, _ in entries[:40])
    limited = any(entry_message.form == "cgroup" for _, entry_message in entries)
    limit = max((entry_message.limit for _, entry_message in entries), default=0.0)
    owner = f"the job's share of it ({gib(limit)})" if limit else "the job's share of it (control group)" if limited else "the host"
    stats = _group_stats(lines[-4000:])
    cache = max((stats.get(name, (0.0, 0, ""))[0] for name in ("cache", "file")), default=0.0)
    anonymous = max((stats.get(name, (0.0, 0, ""))[0] for name in ("rss", "anon")), default=0.0)
    resident = {
        name: max((dict(entry_message.resident).get(name, 0.0) for _, entry_message in entries), default=0.0)
        for name in ("anon", "file", "shmem")
    }
    before = [other_line for other_line in lines if line.number - 60 < other_line.number < line.number]
    saving = next((save for save in reversed(before) if _SAVING_LINE.search(save.text[:400])), None)
    decides = "sacct -o MaxRSS,MaxRSSNode of the job, and memory.stat of its control group while it runs (anon, file, shmem)."
    problems: list[MemoryProblem] = []

    def add(cause: HostCause, words: str, confidence: float, *more: ProofLine) -> None:
        summary = f"{words} filled {owner}."
        problems.append(
            MemoryProblem(MemoryKind.HOST, summary, (*more, *proof), decides if confidence < 0.8 else "", confidence, cause=cause)
        )

    if cache > 2 * anonymous and cache > SIGNIFICANT:
        number, stat_text = max((entry[1:] for name, entry in stats.items() if name in ("cache", "file")), default=(0, ""))
        add(
            HostCause.CACHE,
            f"Page cache ({gib(cache)}; the processes hold {gib(anonymous)})",
            0.85,
            ProofLine(file, number, stat_text),
        )
    if message.form == "pinned" or "pin_memory" in text:
        add(HostCause.PINNED, "Pinned memory", 0.85)
    if message.form == "loader" or _WORKERS_LINE.search(text):
        add(HostCause.WORKERS, "Workers of the data loader", 0.8 if message.form == "loader" else 0.75)
    if saving is not None:
        add(HostCause.STAGING, "Copies of a checkpoint on its way to storage", 0.72, ProofLine(file, saving.number, saving.text))
    if any(word in text for word in ("offload", "cpu_adam", "CPUAdam", "swap_tensor")):
        add(HostCause.OFFLOAD, "Offloaded states", 0.7)
    shared = resident["shmem"]
    if shared > max(SIGNIFICANT, resident["anon"]):
        add(HostCause.PINNED, f"Shared memory of the processes ({gib(shared)}: tensors in /dev/shm and pinned buffers)", 0.7)
    resident_bytes = sum(resident.values())
    size = f" ({gib(resident_bytes)} in the largest that was killed)" if resident_bytes else ""
    add(HostCause.PROCESS, f"The job's processes{size}", 0.5)
    return sorted(problems, key=lambda problem: -problem.confidence)


def _group_stats(lines: Sequence[Line]) -> dict[str, tuple[float, int, str]]:
    """Return what statistics of a control group say, by name: bytes, line, text."""
    stats: dict[str, tuple[float, int, str]] = {}
    for line in lines:
        text = line.text[:1000]
        for match in _STATS.finditer(text):
            stats[match["name"]] = (int(match["size"]) * 1024.0, line.number, line.text)
        if row := _CACHE_LINE.match(text):
            size = int(row["size"]) * (1024.0 if row["kb"] else 1.0)
            stats.setdefault(row["name"], (size, line.number, line.text))
    return stats
