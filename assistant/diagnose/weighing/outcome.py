"""Tell how the last run of a log ended, from what stands at its end: before anybody asks why.

Proof is wanted for every answer. A run finished where its results, its last step or an exit status say so; it was killed or stopped
where the last words are those of a signal; it failed where words of failure stand after the last sign of progress. Where nothing of
the sort is there, nothing is known to be wrong up to the last line, and that is all that can be said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.candidate_lines import of_table, spared
from assistant.diagnose.readers.end_records import RecordState
from assistant.diagnose.readers.progress import ROUTINE
from assistant.diagnose.readers.runs import keyed_lines
from assistant.diagnose.readers.streams import stamp
from assistant.diagnose.readers.tracebacks import ADVISES, TEARDOWN_KINDS, Episode, EpisodeKind
from assistant.diagnose.weighing.findings import closed_under
from assistant.diagnose.weighing.parts import item_verdicts, open_work
from assistant.diagnose.weighing.process_exits import excused
from assistant.diagnose.weighing.retries import failing_attempts
from assistant.diagnose.weighing.survival import (
    AFTERMATH,
    PYTHON_WARNING,
    called_mild,
    counted_in_results,
    exception_lived_with,
    is_no_work,
    level_of,
    lived_through,
    logged_by_itself,
    reported_after,
    request_answered,
)
from assistant.diagnose.weighing.wording import LOOKED_AT_BEHIND, ends_in_spite, states_own_fallback
from assistant.logs.lines import Line
from assistant.records import Citation

TAIL = 60
"""Lines at the end that are looked at, and all behind the last sign of progress up to `MOST`."""
MOST = 2000
TEARDOWN = 40
"""Lines at the end among which the first word of a signal is looked for."""
LAST_WORDS = 3
"""Lines behind the last step among which a failed call or the end of a worker is the last that a log says."""
CLOSING = 3
"""Lines before a server closes in which the error stands that it closes over."""
LONGEST_WARNING = 30
LONG, LONG_HEAD, LONG_END = 480, 160, 240
"""Of a longer line, a text or a table that a program handles, only head and end may tell of its own failure."""
OUTLIVED = 25
"""Ordinary lines behind the last word of failure that show that the run went on."""
ITEM_HEAD, FEWEST_ITEMS, LIVED_WITH = 60, 10, 3
"""Characters in which an item is counted, items of a list, and those failed and those done that show that it is worked through."""
FEWEST_FRAMES, BEHIND_STACK = 3, 5
"""Frames of machine code that are a stack, and lines behind them with which a log still ends with it."""
WORKED = timedelta(minutes=5)
"""Between ordinary lines of a program that began behind words of failure, which were those of its launcher."""
_FRAME = re.compile(r"\s+(?:@|at|#\d+)\s|\s*File \"|\s{4,}\S")


_FROM_OUTSIDE = frozenset(("SignalException", "KeyboardInterrupt"))
_NATIVE_FRAME = re.compile(
    r"\(\S{0,300}?\+?0x[0-9a-f]{1,16}\) ?\[0x[0-9a-f]{4,16}\]\s*$|^\s*#\d{1,3}\s+0x[0-9a-f]{6,16}\b|^\s*@\s+0x[0-9a-f]{6,16}\s"
    r"|^\S{1,80}\s+[0-9A-F]{16}\s+(?:Unknown|\S{1,80})\s+(?:Unknown|\d{1,9})\s+\S{1,80}\s*$"
)
"""A frame as glibc, gdb and the sanitizers, glog and the Intel Fortran runtime print it."""


class How(StrEnum):
    """How a run ended."""

    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    """By a signal that somebody outside sent: SIGINT, SIGTERM, SIGHUP."""
    KILLED = "killed"
    """By SIGKILL."""
    GOES_ON = "goes on"
    """It still worked at the last line."""
    NOTHING_WRONG = "nothing wrong"
    """Neither an end nor anything wrong shows."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended, with the lines that show it."""

    how: How
    lines: tuple[Line, ...] = ()
    recorded: bool = False
    """Whether the scheduler, or the script that started it, gives the exit status."""
    raised: bool = False
    """Whether a process ended with an exception that nobody caught, or tries to the end what fails."""
    counted: bool = False
    """Whether it counted up to its last."""
    concluded: bool = False
    """Whether a line says that the whole work is done."""
    open_at: Line | None = None
    """Line that shows that what came to its end is a part; None where nothing shows it."""

    def citations(self) -> tuple[Citation, ...]:
        """Return the lines as citations."""
        return tuple(Citation("job.log", line.number, line.text, str(self.how)) for line in self.lines)


_KILLED = re.compile(
    r"(?:^|[\]\s|:])Killed\s*$|: line \d+:\s+\d+ Killed\b|\bSIGKILL\b|exit ?code\W{1,4}-9\b|return code = -9\b|signal 9\b",
    re.IGNORECASE,
)
_STOPPED = re.compile(
    r"\b(?:received?|receiving|got|caught|catching|handling)\b.{0,40}?\b(?:SIG(?:INT|TERM|HUP|USR[12])\b|signal:? ?(?:1|2|15)\b)"
    r"|\breceived (?:1|2|15) death signal|^\^C|\bKeyboardInterrupt|(?:^|[\]\s|:])(?:Terminated|Hangup)\s*$"
    r"|\b(?:interrupted|stopped|aborted|cancell?ed) by (?:the )?user\b|: line \d+:\s+\d+ (?:Terminated|Hangup)\b"
    r"|\bSIG(?:INT|TERM|HUP)\b.{0,12}\b(?:received|caught)\b|\bsignal \(?(?:1|2|15)\)?: (?:Terminated|Interrupt|Hangup)",
    re.IGNORECASE,
)
_ABORTED = re.compile(r"\babort(?:ed|ing)\b.{0,60}\bSIG(?:INT|TERM|HUP|USR[12])\b|\bSIG(?:INT|TERM|HUP)\b.{0,60}\baborting\b")
"""A program that says itself that a signal broke it off; what it then says of its end is its tear-down."""
_SHUT_DOWN = re.compile(
    r"\bshutting down (?:gracefully|(?:the )?(?:http |api |grpc |inference )?server|worker|fastapi)|^stopping all processes"
    r"|application shutdown complete|\bserver (?:process )?(?:has )?(?:stopped|shut ?down|finished)\b|\bshutdown complete\b",
    re.IGNORECASE,
)
"""What a server prints that closes in order, whoever asked it to."""
_FAILED = re.compile(
    r"\b(?:errors?|fatal|abort(?:ed|ing)?|exceptions?|panic(?:ked)?|segmentation fault|core dumped|fail(?:ed|ure|ures|s)?)\b"
    r"|\b(?:denied|not found|no such|invalid|refused|unrecognized|unsupported|crash(?:ed)?|killed|terminated)\b"
    r"|\b(?:is|are|was|were) empty\b"
    r"|\b(?:cannot|can't|could not|couldn't|unable to)\b|^usage: |[a-z]Error\b|command not found|\bno (?:training|valid|usable) "
    r"|\bexit(?:ed)?(?: with)?(?: a)?(?: non-?zero)?(?: exit)?(?: code| status)?[ :=]+-?[1-9]"
    r"|\breturned (?:a )?(?:non-?zero|error)\b|\bnon-?zero (?:exit )?(?:code|status)\b|\breturn(?:ed)? (?:code|value)[ :=]+-?[1-9]",
    re.IGNORECASE,
)
_HARMLESS = re.compile(
    r"\b(?:0|no|zero|without(?: any)?) (?:\w+ )?(?:errors?|failures?|failed)|\b(?:errors?|failed|failures?)\b\W{1,4}0\b|deprecat"
    r"|\berrors?['\"]?\s?[:=]\s?(?:-|none\b|null\b|nil\b|n/?a\b|\[\]|\{\}|\"\"|'')(?=[;,\s})]|$)"
    r"|error (?:bar|rate|bound)|floating-point exceptions are signalling"
    r"|\bCE memory (?:read |scrubbing )?error\b|Error \d{1,3} \(ignored\)"
    r"|\b(?:mean|absolute|squared?|relative|std|standard|test|val\w*|train\w*|average"
    r"|avg|word|character) errors?\b"
    r"|\b(?:processed|converted|downloaded|parsed|written|total|finished|done)\b\D{0,20}\d.{0,60}\b\d+ (?:errors?|failed)\b"
    r"|:\d+: (?:warning|note): |^-- (?:Performing Test|Looking for|Check|Could NOT find)\b"
    r"|\b[1-9]\d{0,8} (?:\w+ ){0,2}(?:kept|fetched|written|processed|converted|read|loaded|saved|downloaded|copied)\b.{0,40}"
    r"\b\d+ (?:errors?|failed)\b"
    r"|\b(?:kept|fetched|scanned|loaded|read|copied|indexed|extracted) [1-9]\d{0,8} .{0,40}\b\d+ (?:errors?|failed)\b"
    r"|\bstderr\b|\w+Warning\b|(?-i:\bWARN(?:ING)?\b|^Warning: |^W\d{4} )|(?:^|\[)skip\b"
    r"|\b(?:can|could|may|might) (?!not\b)(?:\w+ ){0,2}(?:errors?|fail|failures?)\b"
    r"|\bterminated (?:successfully|normally(?!, but)|on:)",
    re.IGNORECASE,
)
"""Lines that name an error and tell of none."""
_LIVED_WITH = re.compile(
    r"ignor|skipp|continu|fall(?:ing)? ?back|retry|defaulting to|treat(?:ed|ing)? (?:it|them|this|these) as\b", re.IGNORECASE
)
"""Words of a program that goes on in spite of an error; they prove it only where it did."""
_WORK = r"train(?:ing)?|fine-?tun(?:e|ing)|evaluat(?:e|ion|ing)|inference|benchmark|job|run|script|experiment|process(?:ing)?"
_FINISHED = re.compile(
    rf"\b(?:{_WORK}|generation|all \w+|everything|program)\b.{{0,40}}\b(?:complete[ds]?|finished|done|ended|succeeded|over)\b"
    r"|^\W{0,6}(?:done|finished|completed?|all done|success)\W{0,6}$"
    r"|\b(?:finished|completed|done) (?:train\w*|in|after|at|with|successfully)\b"
    r"|\btrain_(?:runtime|samples_per_second)\b|\bmax_(?:steps|epochs)=?\d* reached"
    r"|\bexit(?:ed)?(?: with)?(?: code| status)?[ :=]+0\b"
    r"|^(?:real|user|sys)\t?\s*\d+m|\b(?:total|elapsed|wall)[ _-]?(?:time|runtime|duration)\b"
    r"|\bfinal (?:\w+ ){0,2}(?:model|result|loss|acc\w*|score|metrics|checkpoint|test)"
    r"|\b(?:best|test|final) (?:\w+ ){0,2}(?:acc\w*|loss|score|f1|auc|psnr|bleu|ppl|perplexity|map|rmse|mse|mae)\b"
    r"|100%\||\b(?:sav(?:ed|ing)|wrote|written) (?:\w+ ){0,4}(?:model|weights|checkpoint|results?|figure|plot|to)\b"
    r"|^OK(?: \([\w=, ]{1,60}\))?\s*$|\b\d{1,6} passed(?:, \d{1,6} (?:skipped|warnings?|deselected|x\w+))* in \d"
    r"|^\|.*\|.*\|\s*$|wandb: (?:Synced|Find logs at|Run summary)|\bSynced \d+ W&B",
    re.IGNORECASE,
)
_CONCLUDED = re.compile(
    rf"\b(?:{_WORK}|generation|tasks|everything|all \w+)\b.{{0,40}}\b(?:complete[ds]?|finished|done|ended|succeeded)\b"
    rf"|\ball done\b|^\W{{0,6}}(?:the )?end (?:of )?(?:the )?(?:{_WORK})\W*$",
    re.IGNORECASE,
)
_GOES_DOWN = re.compile(
    r"\bNCCL WARN \S|\bshut ?down ?hook\b|\blame workers?\b"
    r"|\b(?:worker|node|host|instance|VM|machine|pod|container|task)s?\b.{0,60}\b(?:shutting|shut|going) ?down\b",
    re.IGNORECASE,
)
"""NCCL warns only of calls that fail (its user guide, NCCL_DEBUG=WARN); who shuts a worker down does not wait for its work."""
_BUILT = re.compile(
    r"^\W{0,4}Successfully (?:built|tagged|installed)\b|^\[100%\] Built target\b"
    r"|\bBUILD SUCCESS|\b[Bb]uild (?:succeeded|successful|completed?)\b"
    r"|^\s*Finished \W?(?:release|dev)\b.* target"
)
"""The last line of a build, whatever its parts complained of."""
_VERDICT = re.compile(
    r"\W{0,8}\w[\w./ +-]{0,80}?\W{0,4}[:=|]\W{0,4}"
    r"(?:(?P<well>pass(?:ed)?|ok|success(?:ful)?|succeeded|skipped)|fail(?:ed|ure|s)?|error)\b",
    re.IGNORECASE,
)
_PREFIX = re.compile(r"^\W{0,3}\d[\d/:., T-]{6,30}\W*(?:\b(?:INFO|DEBUG|NOTICE)\b\W*)?")
"""Time and level that a logger sets before the words."""
_DONE_WORD = re.compile(r"\W{0,6}(?:all )?(?:done|finished|completed?|success)\W{0,6}$", re.IGNORECASE)
EXIT_STATUS = re.compile(
    r"^\s*Exit[ _]Status\s*[:=]\s*(?P<pbs>-?\d+)|^Exited with exit code (?P<lsf>\d+)|^(?P<well>Successfully completed\.)"
    r"|\bNormal termination \(return value (?P<condor>\d+)\)|^exit_status\s+(?P<sge>\d+)|\bexit(?:_| )code[ =:]+(?P<other>\d+)\s*$",
    re.IGNORECASE,
)
"""The last word of PBS, LSF, HTCondor, SGE and of scripts that print it."""
_COUNTED = re.compile(r"(?<![\d/.])(\d{1,9}) ?(?:/|of) ?(\d{1,9})(?![\d/]|\.\d)")


def outcome_of(facts: Facts) -> RunOutcome:
    """Return how the last run of the job log ended; `NOTHING_WRONG` of a log that shows no end."""
    lines = list(_tail(facts))
    if not lines:
        return RunOutcome(How.NOTHING_WRONG)
    if (recorded := _of_record(facts)) is not None:
        return recorded
    for line in reversed(lines[-TAIL:]):
        if (status := EXIT_STATUS.search(line.text)) is not None:
            bad = any(int(code) for code in status.groups("") if code.lstrip("-").isdigit())
            open_line = (
                open_work(line, lines, facts) if status["other"] and not bad else None
            )  # what a driver says of one of its parts
            return RunOutcome(
                How.FAILED if bad else How.FINISHED, (open_line or line,), recorded=open_line is None, open_at=open_line
            )
    last = [line for line in lines if line.number > facts.progress.last_line][-200:] if facts.progress.lines else lines[-12:]
    last = [line for line in last if not _FRAME.match(line.text)] or lines[-1:]
    last = last[-12:]
    for how, pattern in ((How.KILLED, _KILLED), (How.STOPPED, _STOPPED)):
        proofs = [
            line for line in last if pattern.search(f"{line.text[:80]} {line.text[-400:]}" if len(line.text) > 480 else line.text)
        ]
        if proofs and not (how is How.STOPPED and _concluded(proofs[-1], last)):
            return RunOutcome(how, _from_the_signal(how, proofs, lines))
    if (signal := next((line for line in lines[-TEARDOWN:] if _ABORTED.search(line.text[-LONG:])), None)) is not None:
        return RunOutcome(How.STOPPED, (signal, lines[-1]) if signal is not lines[-1] else (signal,))
    closed = [line for line in lines[-TEARDOWN:] if line in last and _SHUT_DOWN.search(line.text[-400:])]
    if closed and not _raised(facts, lines[0].number):
        start = next(line for line in lines[-TEARDOWN:] if _SHUT_DOWN.search(line.text[-400:]))
        return _closed(closed[-1], lines[-TEARDOWN:], start)
    apart = facts.combined if facts.combined is not None and facts.combined.apart else None
    handled = [episode for episode in facts.episodes if episode.last >= lines[0].number and _outlived(episode, facts, lines)]
    past = {number for episode in handled for number in range(episode.first - 1, _explained(episode, facts) + 1)}
    past |= _warned(lines) | _dead_threads(lines, facts)
    past |= {number for episode in facts.episodes if episode.kind in TEARDOWN_KINDS for number in episode.lines}
    failed = [
        line
        for line in lines
        if line.number > facts.progress.last_line and tells_failure(line.text) and _seldom(line, facts.progress.forms)
    ]
    in_spite = [
        line
        for line in lines[-LOOKED_AT_BEHIND:]
        if line.number > facts.progress.last_line
        and names_failure(line.text)
        and _LIVED_WITH.search(_both_ends(line.text))
        and ends_in_spite(line, facts)
    ]
    failed = sorted((*failed, *in_spite), key=lambda line: line.number)
    failed = [line for line in failed if line.number not in past and not excused(line.number, facts)]
    failed = [line for line in failed if not counted_in_results(line.number, facts) and not called_mild(line, facts)]
    items = {*_items(lines), *verdict_rows(lines)}
    failed = [line for line in failed if line.number not in items and not states_own_fallback(line.number, facts)]
    benign = set(spared(facts)) - {line.number for line in in_spite}
    failed = [line for line in failed if line.number not in benign and not request_answered(line.number, facts)]
    if (cut := _cut_traceback(lines) or _native_stack(lines) or _java_stack(lines)) is not None:
        return RunOutcome(How.FAILED, (cut,), raised=True)
    if failed and not _raised(facts, lines[0].number) and lines[-1].number > failed[-1].number and _BUILT.search(lines[-1].text):
        return RunOutcome(How.FINISHED, (lines[-1],), concluded=True)
    if failed and (_went_on_for_long(failed[-1], lines) or all(reported_after(line.number, facts) for line in failed)):
        failed = []
    if failed and apart is not None and not _raised(facts, lines[0].number):
        # an error file without times stands last in the text, whenever it was written: the file that shows the work decides
        main = [line for line in lines if apart.comparable(line.number, facts.progress.last_line or 1)]
        if not [line for line in failed if line in main] and (proofs := [line for line in main[-25:] if _ends_well(line)]):
            return RunOutcome(How.FINISHED, tuple(proofs[-2:]))
    raised = _raised(facts, lines[0].number)
    if failed or raised:
        return RunOutcome(How.FAILED, tuple(failed[:1] + failed[-1:]), raised=raised)
    if attempts := failing_attempts([line for line in lines if line.text.strip()], facts.progress.last_line):
        return RunOutcome(How.FAILED, attempts, raised=True)
    finished = [line for line in lines[-25:] if _ends_well(line)]
    if finished:
        counted, concluded = (any(tells(line.text) for line in finished) for tells in (_at_last, _concludes))
        if (open_line := open_work(finished[-1], lines, facts)) is not None:
            return RunOutcome(How.FINISHED, (open_line,), open_at=open_line)
        last_words = [line for line in finished if _concludes(line.text)][-1:] or finished[-1:]
        ends = (*last_words, *(line for line in finished[-2:] if line not in last_words))
        return RunOutcome(How.FINISHED, ends[:2], counted=counted, concluded=concluded)
    if (fault := _last_word(lines, facts.progress.last_line)) is not None:
        return RunOutcome(How.FAILED, (fault,))
    at = facts.line(facts.progress.last_line)
    if at is not None and facts.lines_total - at.number <= TAIL:
        return RunOutcome(How.GOES_ON, (at,))
    return RunOutcome(How.NOTHING_WRONG, tuple(lines[-1:]))


def _of_record(facts: Facts) -> RunOutcome | None:
    """Return how a run ended by the record of its scheduler; None where it has none, or where its job only runs."""
    record = facts.end_record
    if record is None or record.state is RecordState.RUNNING:
        return None
    return RunOutcome(How.FAILED if record.is_bad else How.FINISHED, record.lines, recorded=True)


def _last_word(lines: Sequence[Line], last_step: int) -> Line | None:
    """Return the line at the very end of a log that tells of a library's failed call, or that a worker is being shut down."""
    last = [line for line in lines if line.number > last_step][-LAST_WORDS:]
    return next((line for line in reversed(last) if _GOES_DOWN.search(line.text[:LONG])), None)


def _closed(end: Line, lines: Sequence[Line], start: Line) -> RunOutcome:
    """Return how a server ended that closed in order: by a signal that stands before, over an error that does, or well."""
    before = [line for line in lines if line.number < start.number][-TEARDOWN:]
    if (signal := next((line for line in reversed(before) if _STOPPED.search(line.text[:LONG])), None)) is not None:
        return RunOutcome(How.STOPPED, (signal, end))
    errors = [line for line in before[-CLOSING:] if level_of(line.text) == "error" and tells_failure(line.text)]
    if errors:
        return RunOutcome(How.FAILED, tuple(errors[:1]), raised=True)
    return RunOutcome(How.FINISHED, (start, end) if start is not end else (end,), concluded=True)


def _from_the_signal(how: How, proofs: list[Line], lines: list[Line]) -> tuple[Line, ...]:
    """Return the words of a signal, the first before the tear-down that it began and the last one."""
    if how is not How.STOPPED:
        return tuple(proofs[-2:])
    earlier = [line for line in lines[-TEARDOWN:] if line.number < proofs[0].number and _STOPPED.search(line.text[:480])]
    return (*earlier[:1], *proofs[:1], *proofs[-1:])[:2] if earlier or len(proofs) > 1 else (proofs[0],)


def _concluded(stop: Line, last: list[Line]) -> bool:
    """Tell whether the script itself goes on to its own end behind a server that it stopped."""
    return any(line.number > stop.number and _CONCLUDED.search(line.text[-400:]) for line in last)


def _tail(facts: Facts) -> Iterator[Line]:
    total = facts.lines_total
    first = min(max(facts.progress.last_line, total - MOST), total - TAIL)
    return (line for line in facts.between(max(first, facts.progress.leg, 1), total) if line.text.strip())


def _went_on_for_long(failed: Line, lines: Sequence[Line]) -> bool:
    """Tell whether enough ordinary lines stand behind the last word of failure, or a program that began there worked for long."""
    after = [line for line in lines if line.number > failed.number]
    has_times = any(stamp(line.text) is not None for line in lines if line.number <= failed.number)
    times = [at for line in after if not is_no_work(line.text) and (at := stamp(line.text)) is not None]
    return len(after) >= OUTLIVED or (not has_times and len(times) > 1 and times[-1] - times[0] >= WORKED)


def _ends_well(line: Line) -> bool:
    if ADVISES.match(line.text[:80]):
        return False
    return _FINISHED.search(line.text[-400:]) is not None or _concludes(line.text) or _at_last(line.text)


def _dead_threads(lines: Sequence[Line], facts: Facts) -> set[int]:
    """Return the lines of side threads that died of what their program closed, where it says behind it that its work is done."""
    threads = [episode for episode in facts.episodes if episode.kind is EpisodeKind.THREAD and closed_under(episode, facts)]
    announced = [line for line in lines if line.text.startswith("Exception in thread")]
    if not threads or not announced or not any(line.number > announced[0].number and _concludes(line.text) for line in lines):
        return set()
    return {line.number for line in announced} | {number for episode in threads for number in episode.lines}


def tells_failure(text: str) -> bool:
    """Tell whether a line has words of a failure, and none that say that it is none."""
    return names_failure(text) and _LIVED_WITH.search(_both_ends(text)) is None


def names_failure(text: str) -> bool:
    """Tell whether a line has words of a failure, be it one that the program may have lived with."""
    read_text = _both_ends(text)
    return len(text) < 2000 and _FAILED.search(read_text) is not None and _HARMLESS.search(read_text) is None and not of_table(text)


def _both_ends(text: str) -> str:
    return text if len(text) < LONG else f"{text[:LONG_HEAD]} {text[-LONG_END:]}"


def _seldom(line: Line, forms: Mapping[str, int]) -> bool:
    """Tell whether a line is no routine: what a run prints over and over it lives with."""
    return all(forms.get(key, 0) < ROUTINE for _, key, _ in keyed_lines([line]))


def _raised(facts: Facts, first: int) -> bool:
    """Tell whether a process of the end raised something that nobody caught."""
    own = [episode for episode in facts.episodes if episode.kind in (EpisodeKind.MAIN, EpisodeKind.LAUNCHER)]
    last = [episode for episode in own if episode.last >= first and facts.progress.after(episode.last) == 0]
    lines = facts.between(first, facts.lines_total)
    return any(not _outlived(episode, facts, lines) for episode in last)


def _outlived(episode: Episode, facts: Facts, lines: Sequence[Line]) -> bool:
    """Tell whether a program goes on after a traceback, or comes to its end after one of many that it lived with."""
    if lived_through(episode, facts):
        return True
    after = [line for line in lines if line.number > episode.last]
    if episode.raised[-1].short in _FROM_OUTSIDE and len(after) >= OUTLIVED:
        return True  # what somebody stopped says no more: this is another start
    return exception_lived_with(episode, facts) and any(_concludes(line.text) for line in after)


def _cut_traceback(lines: Sequence[Line]) -> Line | None:
    """Return the beginning of a traceback that the end of the log cuts off before its exception."""
    for line in reversed(lines[-TAIL:]):
        if "Traceback (most recent call last)" in line.text:
            return line
        if not _FRAME.match(line.text):
            return None
    return None


_JAVA_FRAME = re.compile(r"^\s{1,16}at [\w.$<>/-]{1,300}\(|^\s{0,16}\.\.\. \d{1,6} (?:more|common frames)|^\s{0,8}Caused by: ")


def _java_stack(lines: Sequence[Line]) -> Line | None:
    """Return the exception whose frames of Java end a log; None where there is none, or its logger calls it mild."""
    frames = next((count for count, line in enumerate(reversed(lines)) if not _JAVA_FRAME.match(line.text)), len(lines))
    if not frames or frames == len(lines):
        return None
    head = lines[-frames - 1]
    return head if level_of(head.text) not in ("warning", "mild") else None


def _native_stack(lines: Sequence[Line]) -> Line | None:
    """Return the first frame of a stack of machine code that the log ends with: a process printed it as it died."""
    stack: list[Line] = []
    for line in reversed(lines[-TAIL:]):
        if _NATIVE_FRAME.search(line.text[:LONG]):
            stack.append(line)
        elif len(stack) >= FEWEST_FRAMES or lines[-1].number - line.number >= BEHIND_STACK:
            break
    return stack[-1] if len(stack) >= FEWEST_FRAMES else None


def _items(lines: Sequence[Line]) -> set[int]:
    """Return the lines on items that failed, `[7/400] ERROR ...`, of a run that goes on to later items and gets some done."""
    counted: dict[int, list[tuple[int, Line]]] = {}
    for line in lines:
        if (match := _COUNTED.search(line.text[:ITEM_HEAD])) is not None and int(match[2]) >= FEWEST_ITEMS:
            counted.setdefault(int(match[2]), []).append((int(match[1]), line))
    outlived: set[int] = set()
    for items in counted.values():
        bad = [(at, line) for at, line in items if tells_failure(line.text)]
        successes = [at for at, line in items if not tells_failure(line.text)]
        past = [line.number for at, line in bad if any(later > at for later, _ in items)]
        if len(past) >= LIVED_WITH and bad and sum(at > bad[0][0] for at in successes) >= LIVED_WITH:
            outlived |= {line.number for _, line in bad}
    return outlived


def verdict_rows(lines: Sequence[Line]) -> dict[int, tuple[str, bool]]:
    """Return the verdicts, `resnet-fp16: Failed`, that a program lists once its whole work is done, or item by item before.

    Returns:
        By number of the line its text and whether it went well; nothing where none did.
    """
    end = next((place for place in range(len(lines) - 1, -1, -1) if _concludes(lines[place].text)), None)
    rows = [(line, match["well"]) for line in lines[end or 0 :] if (match := _VERDICT.match(line.text[:LONG]))]
    is_list = end is not None and len(rows) >= LIVED_WITH and any(well for _, well in rows)
    return {line.number: (line.text, well is not None) for line, well in rows} if is_list else item_verdicts(lines)


def _explained(episode: Episode, facts: Facts) -> int:
    """Return the last line of what is said of an exception that a program wrote down itself."""
    lines_after = facts.between(episode.last + 1, episode.last + AFTERMATH)
    words = [line.number for line in lines_after if tells_failure(line.text)]
    return words[-1] if words and logged_by_itself(episode, facts) and words[-1] < facts.lines_total else episode.last


def _warned(lines: Sequence[Line]) -> set[int]:
    """Return the lines of Python's own warnings, each up to the line of source that stands behind it."""
    inside: set[int] = set()
    for place, line in enumerate(lines):
        if PYTHON_WARNING.match(line.text):
            words = [line, *lines[place + 1 : place + LONGEST_WARNING]]
            source = next((at for at, words_line in enumerate(words) if words_line.text.startswith("  ")), 0)
            inside |= {entry.number for entry in words[: source + 1]}
    return inside


def _concludes(text: str) -> bool:
    """Tell whether a line says that the whole work is done."""
    own = _PREFIX.sub("", text[-LONG:])
    return _CONCLUDED.search(own) is not None or _DONE_WORD.match(own) is not None


def _at_last(text: str) -> bool:
    """Tell whether a line counts up to its last: `400/400`, `epoch 3 of 3`."""
    counts = [(int(at), int(of)) for at, of in _COUNTED.findall(text[:400])]
    return any(at == of and of >= 2 for at, of in counts)
