"""Say what a log ends with: a good end, last words, a loss that diverged, ranks that wait. Stops from outside are in `stopped`."""

from __future__ import annotations

import math
import re
from bisect import insort
from collections.abc import Callable, Sequence
from typing import NamedTuple

from assistant.diagnose.advice.blocks import block_of, work_before
from assistant.diagnose.advice.families import account_of
from assistant.diagnose.advice.sentences import instruction_in
from assistant.diagnose.advice.stopped import MOST_BEFORE, SHOWN_OF_SAVE, record_command, saved
from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.circumstances import RATE, WORLD, last_save, setting
from assistant.diagnose.readers.origin import LIBRARY
from assistant.diagnose.weighing.loss import lost_at_once, rise_account, spike_of, warm_up
from assistant.diagnose.weighing.outcome import tells_failure
from assistant.diagnose.weighing.retries import failing_attempts
from assistant.logs.lines import Line
from assistant.records import Diagnosis, MetricPoint

_CGROUP = re.compile(r"slurm(?:step)?d: error: .{0,160}(?:cgroup|\(null\)/)")
SHOWN_OF_END = 120
CLEANED_UP, FEWEST_REPETITIONS = 20, 5
"""Lines of such a traceback, and repetitions from which on a failure is the one to be looked at."""
_DIGITS = re.compile(r"\d+")
_WAITED = re.compile(r"SeqNum=(\d{1,12}), OpType=(\w{1,40})")
_RANK = re.compile(r"\[Rank (\d{1,6})\]|\[rank(\d{1,6})\]")
_TIMEOUT = re.compile(r"Timeout\(ms\)=(\d{1,12})")
MOST_OF_LINE = 400
"""Characters of a line in which words of failure are looked for."""
MOST_FRAMES, MOST_TORN, MOST_APART = 60, 200, 40
_FRAMED = re.compile(r'File "([^"]{1,300})", line (\d{1,9})')
_STATUS = re.compile(
    r"(?:non-zero exit (?:status|code) |\b[Ee]xit(?:ed)?(?: with)?(?: an?)?(?: error)?(?: exit)? (?:status|code):? ?\(?)"
    r"(?P<code>[1-9]\d{0,2})\b"
)
_COMPLAINS = re.compile(
    r"\b(?:[Mm]issing|[Nn]ot enough|[Ii]nsufficient|[Ee]xceed(?:s|ed|ing)|[Mm]ismatch(?:ed)?|[Ii]ncompatible|does(?:n't| not) exist"
    r"|[Rr]equires?|[Nn]eeds? to be|must (?:be|have|match)|not supported|No space|stopped with)\b"
)
"""Words of a complaint in a log that has no word of failure."""
_WARNS = re.compile(r"^\s*warnings\.warn\(|\b[A-Z]\w{1,40}Warning: ")
"""What the module warnings of Python prints of a program that goes on."""
_SEVERE = re.compile(r"\bFATAL\b|\b[Ff]atal error\b|\bERROR\b|\b[Ee]rror: \S")
_RULE = re.compile(r"[-=*_#]{5,}$")
MOST_OF_PARAGRAPH, FULL_LINE = 6, 60
"""Lines behind one that may go on with it, and characters from which on a line is taken for wrapped."""
_ADDRESS = re.compile(r"\bhttps?://[\w.-]{1,120}(?::\d{1,5})?")
EXIT_CODES = {
    "124": "124 is a time limit (timeout)",
    "126": "126 is a program that may not be executed (chmod +x, another processor)",
    "127": "127 is a command that is not on the PATH",
    "132": "132 is SIGILL, code built for another processor",
    "134": "134 is SIGABRT, a check of the program itself",
    "135": "135 is SIGBUS, mostly a full /dev/shm or a file that was cut off while it was mapped",
    "136": "136 is SIGFPE, mostly a division by 0",
    "137": "137 is SIGKILL, mostly for want of host memory: ask for more for that step, or let it hold less",
    "139": "139 is SIGSEGV, a crash in native code",
    "143": "143 is SIGTERM, a stop from outside",
}
"""Exit codes of a shell that say a signal or a fault of the start."""
_PYSPY = re.compile(r"\s+(?P<function>[\w.<>]{1,120}) \((?P<file>[^():]{1,300}):(?P<line>\d{1,9})\)")
_DUMPED = re.compile(r'\s+File "(?P<file>[^"]{1,300})", line (?P<line>\d{1,9}) in (?P<function>\S{1,120})')
"""Frames as py-spy prints them, and as faulthandler does: the innermost first."""
MOST_RANKS, MOST_NAMED, MOST_WORLD = 8, 3, 4096
MOST_AT_START = 100
"""Collectives of a process group up to which a training may not have begun: it broadcasts parameters and buffers first."""
LEAST_LOST = 2
"""Steps with a gradient that is no number that are more than one skipped step of a loss scaler."""
_GRADIENT = re.compile(
    r"grad(?:ient)?[-_ ]?norm['\"]?\s{0,3}[:=]\s{0,3}(nan|inf|-?\d[\d.]{0,20}(?:[eE][+-]?\d{1,3})?)\b", re.IGNORECASE
)
BLOWN_UP, LEAST_BEFORE = 10.0, 5
"""Times the median of at least so many points: the loss blew up there, before it was no number."""


class _Wait(NamedTuple):
    rank: int
    sequence: int
    operation: str
    line: int


def last_words(diagnosis: Diagnosis, facts: Facts) -> str:
    """Return what a log in which nothing tells why it ended says last: a torn traceback, an exit status, its last line."""
    last = next((line for line in reversed(facts.lines) if line.text.strip()), None)
    if last is None:
        return ""
    fault = next((line for line in facts.lines if _CGROUP.search(line.text[:MOST_OF_LINE])), None)
    node = (
        f"slurmstepd could not place a process into its cgroup (job.log:{fault.number}): that is the set-up of the node "
        "(cgroup.conf, slurmd), for its administrator, and no fault of the program. "
        if fault is not None
        else ""
    )
    if (torn := _torn_traceback(last.number, facts)) is not None:
        frame = _FRAMED.search(torn[1])
        place = f" at {frame[1]}:{frame[2]}" if frame else ""
        return f"{node}The traceback from job.log:{torn[0]} on breaks off{place}: it failed there, and its error is not in the log."
    failing = last_failure(facts)
    status = _exit_status(facts)
    if (
        status is not None
        and failing is not None
        and failing.number < status.number
        and _SEVERE.search(failing.text[:MOST_OF_LINE])
    ):
        status = None  # what it complained of says more than how it ended
    if status is not None:
        text = cut(facts.streams.body(status.text).text.strip(), SHOWN_OF_SAVE).rstrip(".")
        match = _STATUS.search(status.text)
        means = f" {EXIT_CODES[match['code']]}." if match is not None and match["code"] in EXIT_CODES else ""
        return (
            f"{node}It failed (job.log:{status.number}: {text}), and what that program printed is not in this log: run it by hand."
            f"{means}"
        )
    if attempts := failing_attempts([line for line in facts.lines[-SHOWN_OF_END:] if line.text.strip()], facts.progress.last_line):
        return f"{node}{_in_vain(attempts, facts)}"
    if failing is not None and _CGROUP.search(failing.text[:MOST_OF_LINE]):
        return f"{node}See whether the results are there, and start it again on another node (--exclude) if they are not."
    if failing is not None:
        text = cut(facts.streams.body(failing.text).text.strip(), SHOWN_OF_SAVE).rstrip(".")
        if _ignored_before(failing, facts):
            return (
                f"{node}What it tells last (job.log:{failing.number}: {text}) came while an object was cleaned up, after what "
                "ended it; that is not in the log: run it again with its output in one file."
            )
        if (repeated := _most_told(facts)) is not None and repeated[1].number != failing.number:
            words = facts.streams.body(repeated[1].text).text.strip()
            more = facts.line(repeated[1].number + 1) if words.endswith(":") else None
            words = cut(f"{words} {more.text.strip()}" if more is not None else words, SHOWN_OF_SAVE).rstrip(".")
            return f"{node}What it tells most often ({repeated[0]} times, last in job.log:{repeated[1].number}) is: {words}."
        block = block_of(failing, facts)
        if (len(block.lines) > 1 or work_before(block) is not None) and (account := account_of(failing, facts)):
            return f"{node}{account}"
        whole = paragraph(failing, facts)
        instruction = instruction_in(whole)
        text = cut(" ".join(whole.split()), SHOWN_OF_SAVE + SHOWN_OF_END).rstrip(".")
        request = f" {instruction}." if instruction and not text.endswith(instruction) else ""
        return f"{node}The last line that tells of a failure is job.log:{failing.number}: {text}.{request}"
    if len(block_of(last, facts).lines) > 1 and (account := account_of(last, facts)):
        return f"{node}{account}"
    step = f", the last step {diagnosis.step}" if diagnosis.step and not facts.progress.learnt else ""
    record = record_command(facts) or "The exit status (of the shell, or in the records of the batch system)"
    text = facts.streams.body(last.text).text.strip()
    return (
        f"{node}Its last line is job.log:{last.number} ({cut(text, SHOWN_OF_SAVE)}){step}. {record} says whether it failed at all."
    )


def _in_vain(attempts: Sequence[Line], facts: Facts) -> str:
    """Return what a log tries to its end and fails at, with the address to be asked by hand where it names one."""
    first, last = attempts
    text = cut(facts.streams.body(last.text).text.strip(), SHOWN_OF_SAVE).rstrip(".")
    address = _ADDRESS.search(last.text[:MOST_OF_LINE])
    request = f" See from its node whether that answers (curl -v {address[0]}), and start it again when it does." if address else ""
    return (
        f"To its end it only tries the same again and fails (job.log:{first.number} to job.log:{last.number}: {text}): end it, and "
        f"mend what it cannot reach or do.{request}"
    )


def _torn_traceback(last: int, facts: Facts) -> tuple[int, str] | None:
    """Return where a traceback begins that the log ends in, and its last frame; None where the log does not end in one."""
    frame = ""
    for line in reversed(facts.between(max(1, last - MOST_TORN), last)):
        text = facts.streams.body(line.text).text.rstrip()
        if "Traceback (most recent call last)" in text:
            return (line.number, frame) if frame else None
        if text.strip() and not text[:1].isspace():
            return None
        frame = frame or (text if _FRAMED.search(text) else "")
    return None


def last_failure(facts: Facts) -> Line | None:
    """Return the first line of the last group of lines with words of failure; None where none has any."""
    return _last_group(facts, _tells_failure) or _last_group(facts, lambda text: _COMPLAINS.search(text) is not None)


def _tells_failure(text: str) -> bool:
    return tells_failure(text) and _WARNS.search(text) is None


def _last_group(facts: Facts, tells: Callable[[str], bool]) -> Line | None:
    failure: Line | None = None
    for line in reversed(facts.lines[-MOST_BEFORE:]):
        if line.number < facts.progress.leg or (failure is not None and failure.number - line.number > MOST_APART):
            break
        if tells(line.text[:MOST_OF_LINE]):
            failure = line
    return failure


def paragraph(line: Line, facts: Facts) -> str:
    """Return a line with those behind it that go on with what it begins to say, one a line."""
    texts = [facts.streams.body(line.text).text.strip()]
    for more in facts.between(line.number + 1, line.number + MOST_OF_PARAGRAPH):
        text = facts.streams.body(more.text).text.strip()
        goes_on = (
            texts[0].endswith(":")
            or texts[-1].endswith(",")
            or text[:1].islower()
            or more.text[:1].isspace()
            or len(texts[-1]) >= FULL_LINE
        )
        if not text and texts[-1].endswith(":"):
            continue  # what is announced stands below an empty line
        if not text or _RULE.match(text) or not goes_on:
            break
        texts.append(text)
    return "\n".join(texts)


def _ignored_before(line: Line, facts: Facts) -> bool:
    """Tell whether a line ends a traceback of the cleaning up of an object, which Python prints and goes on."""
    return any("Exception ignored in" in before.text for before in facts.between(max(1, line.number - CLEANED_UP), line.number))


def _most_told(facts: Facts) -> tuple[int, Line] | None:
    """Return the failure of which most lines of the last attempt tell in the same words but for numbers, with the last of them."""
    counts: dict[str, tuple[int, Line]] = {}
    for line in facts.lines[-MOST_BEFORE:]:
        if line.number >= facts.progress.leg and tells_failure(line.text[:MOST_OF_LINE]):
            words = _DIGITS.sub("0", facts.streams.body(line.text[:MOST_OF_LINE]).text)
            counts[words] = (counts.get(words, (0, line))[0] + 1, line)
    most = max(counts.values(), key=lambda count: count[0], default=None)
    return most if most is not None and most[0] >= FEWEST_REPETITIONS else None


def _exit_status(facts: Facts) -> Line | None:
    """Return the last line of the last attempt that tells of a command that ended with a status other than 0."""
    for line in reversed(facts.lines):
        if line.number < facts.progress.leg:
            return None
        if len(line.text) < 2 * MOST_OF_LINE and _STATUS.search(line.text):
            return line
    return None


def spike_account(diagnosis: Diagnosis, facts: Facts) -> str:
    """Return the last loss that was a number and the first that was none, with their lines; empty where there are not both."""
    points = [point for point in facts.points if facts.metric_file != "job.log" or point.line >= facts.progress.leg]
    spike = spike_of(facts)
    if spike is not None and spike.rise is not None:
        account = rise_account(spike.rise, facts.metric_file, spike.level, rate_lowered(facts), warm_up(facts, spike.rise))
        return f"{account} {saved(facts, before=spike.line)}" if facts.metric_file == "job.log" else account
    bad = next((place for place, point in enumerate(points) if _lost(point)), None)
    good = next((point for point in reversed(points[:bad]) if _level(point) is not None), None) if bad else None
    if bad is None and points and facts.metric_file == "job.log":
        return _last_logged(diagnosis, points, facts)
    if bad is None or good is None:
        return _of_gradients(facts)
    first = points[bad]
    file = facts.metric_file
    blown = _blown_up(points[:bad])
    start = blown or first
    rose = f", after it had risen to {_level(blown):.4g} at step {blown.step} ({file}:{blown.line})" if blown else ""
    remedy = f"{rate_lowered(facts)}, clip gradients, and let it stop where the loss is no number."
    at_once = lost_at_once(points[:bad], first, facts, file) if blown is None else ""
    words = (
        f"The loss was {_level(good):.4g} at step {good.step} ({file}:{good.line}) and no number from step {first.step} on "
        f"({file}:{first.line}){rose}{f'. {at_once}' if at_once else f': {remedy}'}"
    )
    return f"{words} {saved(facts, before=start.line)}" if file == "job.log" else words


def _of_gradients(facts: Facts) -> str:
    """Return from which line on the gradient norm is no number, and the last before it that was one; empty where none shows."""
    good = first = last = None
    count = 0
    for line in facts.lines:
        match = _GRADIENT.search(line.text) if line.number >= facts.progress.leg and "grad" in line.text else None
        if match is None:
            continue
        if math.isfinite(float(match[1])):
            good, first, count = (line, None, 0)
        else:
            first, last, count = first or line, line, count + 1
    if first is None or last is None or count < LEAST_LOST:
        return ""
    before = f", after the last that was one (job.log:{good.number})" if good is not None else ", and the log shows none before"
    last_saved = f" {saved(facts, before=first.number)}" if last_save(facts, first.number) is not None else ""
    return (
        f"The gradient norm is no number in all of the last {count} steps that were logged, from job.log:{first.number} to "
        f"job.log:{last.number}{before}; so what was saved behind that holds NaN, too: go back to a save before it, "
        f"{rate_lowered(facts)}, "
        f"and check precision and loss scale.{last_saved}"
    )


def rate_lowered(facts: Facts) -> str:
    """Return what to do about the learning rate, with its value where the log prints it."""
    rate = setting(facts, RATE, facts.lines[-1].number) if facts.lines else None
    return f"lower {rate}, by 3 to 10 times" if rate is not None and float(rate.value) > 0 else "lower the learning rate"


def _blown_up(points: Sequence[MetricPoint]) -> MetricPoint | None:
    """Return the first point at `BLOWN_UP` times the median of those before it; None without one."""
    before: list[float] = []
    for point in points:
        level = _level(point)
        if level is None:
            continue
        if len(before) >= LEAST_BEFORE and level > BLOWN_UP * abs(before[len(before) // 2]) > 0:
            return point
        insort(before, level)
    return None


def _last_logged(diagnosis: Diagnosis, points: Sequence[MetricPoint], facts: Facts) -> str:
    """Return the last logged step before the line that says the loss was lost."""
    cited = diagnosis.root_cause[0] if diagnosis.root_cause else None
    if cited is None or cited.file != "job.log" or not re.search(r"[Nn]on-?[Ff]inite|\bnan\b|\binf\b", cited.text, re.IGNORECASE):
        return ""
    last = next((point for point in reversed(points) if point.line < cited.line and point.loss is not None), None)
    if last is None:
        return ""
    gradient = f", gradient norm {last.grad_norm:.4g}" if last.grad_norm is not None else ""
    step = "loss that was logged before is" if last.counted else f"step that was logged before is {last.step} with loss"
    return (
        f"The last {step} {last.loss:.4g}{gradient} (job.log:{last.line}): "
        f"{rate_lowered(facts)} or clip gradients before it goes on. {saved(facts, before=cited.line)}"
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
        late_ranks = sorted({wait.rank for wait in waits if wait.sequence == lowest})
        return (
            f"{_ranks(late_ranks)} gave up{time} in {first.operation}, SeqNum {lowest} (job.log:{first.line}), while others were "
            f"at {highest}: look there for what held it up (its log lines before, py-spy dump, its node)."
        )
    ranks = sorted({wait.rank for wait in waits})
    operations = sorted({wait.operation for wait in waits})
    if len(operations) > 1:
        return (
            f"At SeqNum {lowest} ranks waited in different collectives ({', '.join(operations)}): the program took different "
            "ways on different ranks (a condition, an early end of data); that is to be mended in the code."
        )
    waited = f"{_ranks(ranks)} gave up{time} in {operations[0]}, SeqNum {lowest} (job.log:{first.line})"
    absent = _absent(ranks, facts)
    if 0 < len(absent) <= MOST_NAMED:
        which = f"{_ranks(absent)} did not come to it{_last_sign(absent, first.line, facts)}: look there"
        return f"{waited}; {which} (py-spy dump while it hangs, its node).{_never_stepped(facts, lowest)}"
    return (
        f"{waited}; the rank that held them up is one that does not report that wait{_silent(ranks)}: look at its last lines."
        f"{_never_stepped(facts, lowest)}"
    )


def stack_account(diagnosis: Diagnosis, facts: Facts) -> str:
    """Return where the stack that the log holds says that it waits, and from which line of its own code; empty without a stack."""
    for cited in diagnosis.root_cause[:2]:
        if cited.file != "job.log":
            continue
        frames: list[tuple[str, str]] = []
        for line in facts.between(cited.line + 1, cited.line + MOST_FRAMES):
            body = facts.streams.body(line.text).text
            match = _PYSPY.match(body) or _DUMPED.match(body)
            if match is None:
                break
            frames.append((match["function"], f"{match['file']}:{match['line']}"))
        if frames:
            programs = {file.rpartition(":")[0] for function, file in frames if function == "<module>"}
            files = [(function, file, file.rpartition(":")[0]) for function, file in frames[1:]]
            own = next((f for f in files if f[2] in programs or (f[2].startswith("/") and not LIBRARY.search(f[2]))), None)
            called = f", called from {own[0]}() at {own[1]}" if own is not None else ""
            return (
                f"Its stack in the log stands in {frames[0][0]}() at {frames[0][1]}{called} (job.log:{cited.line}): that is "
                f"what it waits "
                "for. Compare the stacks of the other ranks (py-spy dump) before it is ended: the one that stands elsewhere "
                "holds them up."
            )
    return ""


def _absent(ranks: Sequence[int], facts: Facts) -> list[int]:
    """Return the ranks that do not report the wait, where the log prints how many there are."""
    world = setting(facts, WORLD, facts.lines[-1].number)
    return sorted(set(range(int(world.value))) - set(ranks)) if world is not None and int(world.value) <= MOST_WORLD else []


def _last_sign(ranks: Sequence[int], before: int, facts: Facts) -> str:
    """Return where one rank spoke last before a line; empty for several, or for one that never spoke."""
    if len(ranks) != 1:
        return ""
    rank = str(ranks[0])
    mark = re.compile(rf"(?:\[rank ?|\brank[ :=]{{1,2}}|\bcuda:){re.escape(rank)}\b", re.IGNORECASE)
    spoken = next((line for line in reversed(facts.lines) if line.number < before and mark.search(line.text[:400])), None)
    return f" (its last line: job.log:{spoken.number})" if spoken is not None else ""


def _silent(ranks: Sequence[int]) -> str:
    """Return which of the ranks up to the highest that reports do not; empty where all do, or only few report."""
    absent = sorted(set(range(max(ranks) + 1)) - set(ranks))
    return f" (of those up to {max(ranks)}: {', '.join(map(str, absent))})" if 0 < len(absent) <= len(ranks) else ""


def _never_stepped(facts: Facts, sequence: int) -> str:
    if facts.progress.steps or facts.points or sequence > MOST_AT_START:
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
        operation, rank_match = _WAITED.search(line.text), _RANK.search(line.text)
        if operation and rank_match:
            rank = int(rank_match[1] or rank_match[2])
            waits.setdefault(rank, _Wait(rank, int(operation[1]), operation[2], line.number))
    return list(waits.values())


def _near(facts: Facts, number: int) -> list[str]:
    return [line.text for line in facts.between(number, number)]


def _ranks(ranks: Sequence[int]) -> str:
    listed = ", ".join(str(rank) for rank in ranks[:MOST_RANKS])
    return f"Rank {listed}" if len(ranks) == 1 else f"Ranks {listed}{' and more' if len(ranks) > MOST_RANKS else ''}"
