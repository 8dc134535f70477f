"""Split a log that holds several runs, and learn from the log itself which of its lines count.

A log holds several runs of a job that was started again, of a sweep, of a shell that runs programs in turn. Nothing here knows a
framework. What begins a run is told from the log itself: the lines with which the file begins come again, in their order and with
no counter that has gone on; or a line that can only stand at a start follows one that can only stand at an end. Errors of an
earlier run are history.

Any program that works on something prints how far it is. What it calls that is its own affair: `iteration 12`, `12/400 [00:03<`,
`Processed 1200 rows`, `=== Step 3 ===`. Of lines that differ in their digits alone, one column rises from line to line and the
others (loss, rate, times) do not. Ranks and process ids that are told off one after another rise as well, so a counter proves that
something was outlived only where it ran before it, too.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from assistant.diagnose.readers.starts import Keyed, refused_starts
from assistant.diagnose.readers.streams import stamp
from assistant.logs.lines import Line
from assistant.redact import head_of

HEAD_LINES = 40
"""Lines at the beginning of a run by which the next one is recognised."""
MATCHED = 4
"""Of these lines so many must come again, in their order."""
WINDOW = 60
"""Lines within which they must."""
ACROSS = 200
"""Lines before and behind a repeated beginning in which something may count on."""
MOST_HEADS = 200
"""A line that comes more often is no line of a start: every step, epoch or request prints it."""
LEAST_SHARE = 0.3
STRONG_SHARE = 0.6
"""Share of the head that must come again where no line shows that the run before had ended."""
PAUSE = timedelta(seconds=45)
"""Between an error and the first line of all, as somebody starts the program again."""
SUBSTANCE = 3
"""Proofs of progress that a run must hold then."""
READ_LENGTH, KEY_LENGTH, SHORTEST_KEY = 160, 60, 5
"""Characters of a line that are read, that stay of them, and the fewest that make words."""

_NO_COUNTS = {ord(character): None for character in "0123456789 \t█▉▊▋▌▍▎▏━╸╺"}
"""Digits, blanks and drawn bars: what differs between two lines of one form."""
_INTEGER = re.compile(r"(?<![\w.])\d{1,9}(?![\w.]*\w)")
_POSITION = re.compile(r"(?<![\w/.:-])(?P<at>\d{1,9}) ?(?:/|of) ?(?P<of>\d{1,9})(?![\w/.:-])")
_STAMP = re.compile(r"\d{1,4}[-/:]\d{1,2}[-/:]\d{1,4}(?:[T ,:.]+\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?)?")
_GRAVE = re.compile(r"Traceback|Error\b|ERROR|CRITICAL|FATAL|error:|Exception\b|^\s{2,}File ")
"""Ranks that fail alike print such lines one after another."""
START = re.compile(
    r"^nohup: ignoring input"
    r"|^wandb: (?:Tracking run with|Currently logged in as|Starting wandb agent)"
    r"|^Sender: LSF System"
    r"|^(?:={3,}|-{3,}|#{3,})?\s*(?:SLURM_)?JOB_?ID\s*[:=]"
    r"|^(?:SLURM_JOB_ID|PBS_JOBID|LSB_JOBID)\b"
    r"|^\[[\d: ,-]+\] \[\w+\] \[runner\.py:\d+:main\] cmd ="
    r"|\btcp_utils\.cc:\d+\] The server starts to listen\b"
    r"|^Script started on |^\+ (?:srun|torchrun|python3?|mpirun|accelerate|deepspeed) ",
    re.IGNORECASE,
)
"""Lines that launchers, schedulers and trackers print once, at a start."""
END = re.compile(
    r"slurmstepd: error: \*{3} (?:JOB|STEP) \S+ (?:ON|STEPD)|^srun: error: .{0,80}(?:[Ee]xited with|Killed|Terminated)"
    r"|^(?:Killed|Terminated|Aborted|Hangup)\b|: line \d+:\s+\d+ (?:Killed|Terminated|Aborted|Segmentation fault|Hangup)"
    r"|ChildFailedError|^KeyboardInterrupt|Main process received SIG|mpirun noticed that|^wandb: Find logs at"
    r"|^nohup: failed to run command"
    r"|^Resource usage summary:|^The output \(if any\) follows|received (?:SIGHUP|signal 1\b)|Got signal: 1\b",
    re.MULTILINE,
)
"""Lines after which a run prints nothing more but what its end makes others print."""


_USED = re.compile(r"\bEpilog(?:ue)?\b|\b(?:cput|walltime|cpupercent)=\d", re.IGNORECASE)
_REPORT = re.compile(r"^Sender: LSF System")
_OUTPUT_IS = re.compile(r"^The output \(if any\) (?P<place>follows|is above)")
_OF_REPORT = re.compile(r"^PS:|^Read file <|^-{5,}\s*$|^Sender: LSF System")
"""Lines of a report of LSF behind the one that says where the output is, and what the next report begins with."""
LONGEST_REPORT = 80
EPILOGUE = 12
"""Lines of the epilogue of a scheduler, from its begin to what the job used."""


_HASH = re.compile(r"(?<![\w.])(?=[a-f]{0,40}\d)[0-9a-f]{6,64}(?![\w.])")
"""A digest or a checksum: its letters differ from line to line as its digits do."""
_EXPONENT = re.compile(r"(?<=\d)[eEdD][-+](?=\d{2,3}(?!\d))")
"""Of a number, which has one or none as its size goes: `9.99E-002`, `0.1000`."""
_ROW = re.compile(r"[\s|]*\d{1,9}(?:(?:\s*[,;|]|\s)\s*[-+\w.]{1,40}){1,20}[\s|,;]*$")
_BETWEEN_COLUMNS = re.compile(r"[\s,;|]+")
_FRACTION = re.compile(r"(?<![\w.])[-+]?\d{1,12}\.\d{1,18}(?:[eE][-+]?\d{1,3})?(?![\w.])")


class Run(NamedTuple):
    """One run of several in a log."""

    first: int
    """Number of its first line."""
    last: int
    by: str
    """How its beginning was recognised, for people; empty for the first one."""


class _Begin(NamedTuple):
    number: int
    text: str
    share: float
    """Of the head's lines, how many came again."""


def keyed_lines(lines: Sequence[Line]) -> list[Keyed]:
    """Return the lines that have words, each with what lines of its form share: its beginning without digits, blanks and bars.

    Rows of a table without words, `54 7.5e-03 0.77`, share how many columns they have.
    """
    keyed = []
    for number, text in lines:
        key = _key(text[:READ_LENGTH])
        if len(key) >= SHORTEST_KEY:
            keyed.append(Keyed(number, key, text))
    return keyed


# lines are looked at again for each place that they stand behind
@lru_cache(maxsize=1 << 14)
def _key(head: str) -> str:
    return _row_form(head) or _HASH.sub("", _EXPONENT.sub("", head)).translate(_NO_COUNTS)[:KEY_LENGTH]


def _row_form(row: str) -> str:
    """Return the form of a row that begins with a whole number and holds a fraction; empty of any other line."""
    if not row.lstrip(" |\t")[:1].isdigit() or not _ROW.match(row) or not _FRACTION.search(row):
        return ""
    return f"row of {len(_BETWEEN_COLUMNS.split(row.strip(' |,;')))} numbers"


def split_runs(keyed: Sequence[Keyed], tracebacks: Sequence[tuple[int, int]] = (), steps: Sequence[int] = ()) -> tuple[Run, ...]:
    """Return the runs that a log holds, in order; one where it holds one, none of an empty log.

    Args:
        keyed: The log, from `keyed_lines`.
        tracebacks: First and last line of each, in order.
        steps: Numbers of lines that prove progress; ascending.
    """
    if not keyed:
        return ()
    ended = sorted({*(last for _, last in tracebacks), *(line.number for line in keyed if END.search(line.text))})
    printed = [line.number for line in keyed if END.search(line.text)]
    begins = {
        **dict(refused_starts(keyed, tracebacks, steps)),
        **dict(_first_again(keyed)),
        **dict(_short_head_again(keyed, tracebacks)),
        **dict(_announced(keyed, ended)),
        **dict(_behind_reports(keyed)),
    }
    previous = keyed[0].number
    for begin in _repeated(_outside(keyed, tracebacks), ended):
        between_ends = bisect_left(ended, begin.number) - bisect_left(ended, previous)
        between_steps = bisect_left(steps, begin.number) - bisect_left(steps, previous)
        if bisect_left(printed, begin.number) == bisect_left(printed, previous) and _counts_across(keyed, begin.number):
            continue  # a loop that catches what fails in it prints the same lines for each item
        if between_ends or (between_steps >= SUBSTANCE and begin.share >= STRONG_SHARE):
            begins.setdefault(begin.number, f"the log begins again: {head_of(begin.text.strip(), 60)!r}")
            previous = begin.number
    order = sorted((number, by) for number, by in begins.items() if not _accounted(keyed, number))
    firsts = [(keyed[0].number, ""), *order]
    lasts = [number - 1 for number, _ in order] + [keyed[-1].number]
    return tuple(Run(first, last, by) for (first, by), last in zip(firsts, lasts, strict=True))


def _accounted(keyed: Sequence[Keyed], begin: int) -> bool:
    """Tell whether what a job used stands behind a line: the epilogue of a scheduler names job and user as its prologue did."""
    at = bisect_left(keyed, begin, key=lambda line: line.number)
    if at < len(keyed) and _REPORT.match(keyed[at].text):
        return not _report_first(keyed[at + 1 : at + LONGEST_REPORT])
    return any(_USED.search(line.text[:READ_LENGTH]) for line in keyed[at : at + EPILOGUE])


def _report_first(lines: Sequence[Keyed]) -> bool:
    """Tell whether the report of LSF stands before the output of its job, as it says; else it stands behind that."""
    first = next((line.text for line in lines if _REPORT.match(line.text) or _OUTPUT_IS.match(line.text)), "")
    output = _OUTPUT_IS.match(first)
    return output is not None and output["place"] == "follows"


def _behind_reports(keyed: Sequence[Keyed]) -> Iterator[tuple[int, str]]:
    """Yield where another run begins behind a report of LSF that stands behind the output of its own job."""
    for place, line in enumerate(keyed):
        output = _OUTPUT_IS.match(line.text)
        if output is None or output["place"] == "follows":
            continue
        rest_of_log = (later for later in keyed[place + 1 :] if later.text.strip() and not _OF_REPORT.match(later.text))
        if (begin := next(rest_of_log, None)) is not None:
            yield begin.number, f"behind the report of a job in line {line.number}"


def _first_again(keyed: Sequence[Keyed]) -> Iterator[tuple[int, str]]:
    """Yield where the very first line comes again right behind a failure, and time has passed or gone back in between."""
    first = keyed[0]
    for before, line in pairwise(keyed):
        if line.key == first.key and line.text != before.text and _GRAVE.search(before.text) and _apart(before.text, line.text):
            yield line.number, f"the first line again behind an error: {head_of(line.text.strip(), 60)!r}"


def _short_head_again(keyed: Sequence[Keyed], tracebacks: Sequence[tuple[int, int]]) -> Iterator[tuple[int, str]]:
    """Yield where the few lines before the first traceback come again, byte for byte, right behind a traceback.

    A loop that catches what fails names its items; a shell that loads modules and starts a program prints the same each time. A
    single line must come again twice.
    """
    head = [line for line in keyed if tracebacks and line.number < tracebacks[0][0]]
    if not head or len({line.key for line in head}) >= MATCHED or any(_GRAVE.search(line.text) for line in head):
        return
    places = []
    for _, last in tracebacks:
        at = bisect_right(keyed, last, key=lambda line: line.number)
        if [line.text for line in keyed[at : at + len(head)]] == [line.text for line in head]:
            places.append(keyed[at])
    if len(places) > (len(head) == 1):
        yield from ((line.number, f"the log begins again: {head_of(line.text.strip(), 60)!r}") for line in places)


def _apart(before: str, after: str) -> bool:
    """Tell whether two lines show times so far apart that no program was at work in between."""
    earlier, later = stamp(before, None), stamp(after, None)
    return earlier is not None and later is not None and not timedelta() <= later - earlier <= PAUSE


def _outside(keyed: Sequence[Keyed], tracebacks: Sequence[tuple[int, int]]) -> list[Keyed]:
    """Return the lines of no traceback: ranks that fail alike print the same one after another."""
    inside = {number for first, last in tracebacks for number in range(first, last + 1)}
    return [line for line in keyed if line.number not in inside]


def _announced(keyed: Sequence[Keyed], ended: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Yield where a start follows an end."""
    previous = 0
    for line in keyed:
        if START.search(line.text):
            place = bisect_left(ended, line.number)
            if place and ended[place - 1] > previous:
                yield line.number, f"{head_of(line.text.strip(), 60)!r} after an end in line {ended[place - 1]}"
            previous = line.number


def _repeated(keyed: Sequence[Keyed], ended: Sequence[int]) -> Iterator[_Begin]:
    """Yield where the beginning of the log comes again; what stands behind the first end is no part of it.

    Args:
        keyed: Lines of no traceback.
        ended: Numbers of the lines with which a run may have ended, in order: no beginning goes on behind one.
    """
    first_end = ended[0] if ended else keyed[-1].number + 1
    counts = Counter(line.key for line in keyed)
    head: dict[str, Keyed] = {}
    for line in keyed[:HEAD_LINES]:
        if line.number < first_end and counts[line.key] <= MOST_HEADS and not _GRAVE.search(line.text):
            head.setdefault(line.key, line)
    order = {key: place for place, key in enumerate(head)}
    if len(order) < MATCHED:
        return
    repeats = [place for place, line in enumerate(keyed) if line.key in order and line is not head[line.key]]
    head_end = max(line.number for line in head.values())
    last_taken = -1
    for at, place in enumerate(repeats):
        if place <= last_taken or keyed[place].number <= head_end:
            continue
        matched = _in_order(keyed, repeats[at : at + 4 * HEAD_LINES], order, ended)
        # right behind an end a short run is all head: what came again is measured by what it holds
        is_behind_end = place > 0 and _last_before(ended, keyed[place].number) >= keyed[place - 1].number
        following = len({line.key for line in keyed[place : place + HEAD_LINES]}) if is_behind_end else len(order)
        share = len(matched) / min(len(order), following)
        if len(matched) < MATCHED or share < LEAST_SHARE or order[keyed[matched[0]].key] > len(order) // 3:
            continue
        if _goes_on(keyed, matched, head):
            last_taken = matched[-1]
            continue
        yield _Begin(keyed[place].number, keyed[place].text, share)
        last_taken = matched[-1]


def _last_before(ended: Sequence[int], number: int) -> int:
    """Return the last line with which a run may have ended before a line; 0 for none."""
    place = bisect_left(ended, number)
    return ended[place - 1] if place else 0


def _in_order(keyed: Sequence[Keyed], repeats: Sequence[int], order: dict[str, int], ended: Sequence[int]) -> list[int]:
    """Return the places whose lines come in the order of the head, each line of it once, as far as they stand close together.

    A line behind the next end is that of another beginning.
    """
    matched: list[int] = []
    reached = -1
    next_end = bisect_left(ended, keyed[repeats[0]].number)
    limit = ended[next_end] if next_end < len(ended) else keyed[-1].number
    for place in repeats:
        if place - repeats[0] > WINDOW or keyed[place].number > limit:
            break
        position = order[keyed[place].key]
        if position > reached:
            matched.append(place)
            reached = position
    return matched


def _goes_on(keyed: Sequence[Keyed], matched: Sequence[int], head: dict[str, Keyed]) -> bool:
    """Tell whether a number in these lines has gone on since the head, as that of an epoch whose lines come again."""
    for place in matched:
        if _further(head[keyed[place].key].text, keyed[place].text):
            return True
        before, now = _numbers(head[keyed[place].key].text), _numbers(keyed[place].text)
        if len(before) == len(now) and sum(old != new for old, new in zip(before, now, strict=True)) == 1:
            old, new = next((old, new) for old, new in zip(before, now, strict=True) if old != new)
            if old < new <= old + 10_000_000 and re.search(
                r"epoch|step|iter|round|fold|batch|update", keyed[place].text, re.IGNORECASE
            ):
                return True
    return False


def _further(before: str, now: str) -> bool:
    """Tell whether a line counts further of the same total: `[2/255]`, `trial 3 of 40`."""
    old, new = _POSITION.search(before[:READ_LENGTH]), _POSITION.search(now[:READ_LENGTH])
    return old is not None and new is not None and old["of"] == new["of"] and int(old["at"]) < int(new["at"]) <= int(new["of"])


def _counts_across(keyed: Sequence[Keyed], begin: int) -> bool:
    """Tell whether lines of one form count on from before a line to behind it, towards the same total."""
    at = bisect_left(keyed, begin, key=lambda line: line.number)
    before = {line.key: line.text for line in keyed[max(0, at - ACROSS) : at] if _POSITION.search(line.text[:READ_LENGTH])}
    return any(line.key in before and _further(before[line.key], line.text) for line in keyed[at : at + ACROSS])


def _numbers(text: str) -> list[int]:
    return [int(number) for number in _INTEGER.findall(_STAMP.sub("", text))]


FEWEST_LINES = 4
"""Lines of one form that make a counter."""
MOST_LINES = 4000
"""Lines of one form that are looked at; of more, an even choice."""
RISING = 0.9
"""Share of the pairs of neighbours that must not fall; what starts again each epoch falls seldom."""
_COUNT = re.compile(r"(?<![\w.])-?(\d{1,15}(?:\.\d{1,20})?(?:[eE][-+]?\d{1,3})?)(?![\d.])")
_DATE_OR_TIME = re.compile(
    r"\d{1,4}[-/]\d{1,2}[-/]\d{1,4}(?:[T ]+\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?)?|\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?|\[\w*\d+\]:?"
)
_NO_WORK = re.compile(
    r"\b(?:pid|pids|process(?:es)?|subprocess|port|rank|ranks|thread|gpu|cuda|device|attempt|retry|retries|retrying|try|trial|line|seed"
    r"|error|errors|warning|warn|failed|exception|traceback|kill|killing|killed|signal|exit|exited|sleep|wait|waiting|route|shard|shards|NCCL)\b"
    r"|File \"|Loading|Error|\b0x[0-9a-f]{5}",
    re.IGNORECASE,
)
"""Lines that count something else than work."""
_ACTOR = re.compile(r"^(?:\x1b\[\d+m)?\((?:[\w.]+,? )?pid=\d+(?:, ip=[\d.]+)?\)(?:\x1b\[0m)? ?")
"""What Ray puts before each line of an actor: it tells who prints, and nothing of what is counted."""
_WORK = re.compile(
    r"step|iter|batch|epoch|sample|token|update|rows?\b|record|example|\btick|kimg|frame|episode|processed|trained|sequence|train",
    re.IGNORECASE,
)
"""Words of what training counts; a form has no blanks."""


@dataclass(frozen=True, slots=True)
class Rising:
    """A counter: where its lines stand and what they count."""

    form: str
    lines: tuple[int, ...]
    values: tuple[float, ...]

    def before(self, line: int) -> int:
        """Return how many of its lines stand up to a line."""
        return bisect_right(self.lines, line)

    def after(self, line: int) -> int:
        """Return how many values it takes beyond a line."""
        return len(set(self.values[bisect_right(self.lines, line) :]))


def find_counters(keyed: Sequence[Keyed]) -> tuple[Rising, ...]:
    """Return the counters of a log, the one with the most lines first.

    Args:
        keyed: The log, from `runs.keyed_lines`.
    """
    forms: dict[str, list[tuple[int, str]]] = {}
    for number, key, text in keyed:
        forms.setdefault(key, []).append((number, text))
    counters: list[Rising] = []
    for form, lines in forms.items():
        if len(lines) < FEWEST_LINES or _NO_WORK.search(_ACTOR.sub("", lines[0][1][:300])):
            continue
        rising = _rising(form, lines[:: -(-len(lines) // MOST_LINES)])
        if rising is not None:
            counters.append(rising)
    return tuple(sorted(counters, key=lambda counter: (-len(counter.lines), counter.lines[0])))


def same_counter(before: Sequence[Line], after: Sequence[Line]) -> tuple[Rising, Rising] | None:
    """Return what counts a program's work in two logs of it, in lines of one form; None where nothing does in both.

    Only lines that say what they count are taken: a beat that goes on while nothing is trained proves no work.

    Args:
        before: Of the attempt that ended.
        after: Of the next one.
    """
    later = {counter.form: counter for counter in find_counters(keyed_lines(after)) if _WORK.search(counter.form)}
    return next(((earlier, later[earlier.form]) for earlier in find_counters(keyed_lines(before)) if earlier.form in later), None)


def _rising(form: str, lines: Sequence[tuple[int, str]]) -> Rising | None:
    rows = [(number, _COUNT.findall(_DATE_OR_TIME.sub(" ", _ACTOR.sub("", text[:400])))) for number, text in lines]
    width = min((len(row) for _, row in rows if row), default=0)
    rows = [(number, row) for number, row in rows if len(row) >= width]
    if len(rows) < FEWEST_LINES:
        return None
    for column in range(min(width, 8)):
        values = [float(row[column]) for _, row in rows]
        pairs = len(values) - 1
        up = sum(later > earlier for earlier, later in pairwise(values))
        level = sum(later == earlier for earlier, later in pairwise(values))
        # the lines of several ranks repeat a number; a clock in seconds since 1970 is no counter
        if up >= FEWEST_LINES - 1 and up + level >= RISING * pairs and len(set(values)) >= FEWEST_LINES and values[0] < 1e9:
            return Rising(form, tuple(number for number, _ in rows), tuple(values))
    return None
