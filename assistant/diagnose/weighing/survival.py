"""Tell errors that were survived: training went on, the process went on, or the program says so itself.

A traceback in a log is often no failure: a metrics push that is tried again, an import that has a fallback, an attempt before.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from functools import lru_cache
from operator import attrgetter

from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.circumstances import several_draw
from assistant.diagnose.readers.progress import ROUTINE
from assistant.diagnose.readers.runs import END, keyed_lines
from assistant.diagnose.readers.shell_errors import failed_folder
from assistant.diagnose.readers.streams import stamp
from assistant.diagnose.readers.tracebacks import ADVISES, Episode, EpisodeKind
from assistant.diagnose.weighing.findings import ENDINGS, HARDWARE, Finding
from assistant.diagnose.weighing.process_exits import excused, exits_alone, shell_went_on
from assistant.diagnose.weighing.retries import tried_again
from assistant.logs.lines import Line

_FIRST = attrgetter("first")
SURVIVED_STEPS = 3
"""Later steps after which an error counts as survived."""
LOOK_AHEAD = 400
"""Lines behind an error that are read for what went on."""
DAILY_AFTER, RECURRING_AFTER = 3, 20
"""Lines behind an error whose forms were daily work before it, or had recurred, that show that the work went on."""
AFTERMATH, OWN_WORDS = 12, 20
"""Lines around an exception in which it is told again, or its request answered; characters of a message that are its own."""
BAD_REQUEST = 400
LOGGED_AFTER = 2
"""Ordinary lines behind an exception that the program itself wrote down."""
FEWEST_SCORES = 3
AROUND = 20
"""Lines beside an exception in which the bars are looked at."""
_ANSWER = re.compile(
    r"\b[A-Z]{3,7} /[^\s\"]{0,300}(?: HTTP/[\d.]{1,3})?\"?,? {1,3}([1-5]\d\d)\b|(?<![\d.])([1-5]\d\d) [A-Z]{3,7} /"
)
"""What web servers write of each request: its line and the status of their answer."""
_WHOLE_WORK = re.compile(
    r"\b(?:train\w*|run|job|main|experiment|script|program|benchmark|pipeline|workflow|process|worker|rank)\b.{0,30}\b(?:fail|error|crash|abort)",
    re.IGNORECASE,
)
_RESULTS = re.compile(
    r"\b(?:results?|metrics|report|predictions|scores)\b.{0,40}\b(?:saved|written|stored)\b"
    r"|\b(?:saved|saving|wrote|written)\b.{0,40}\b(?:results?|metrics|summary|report|predictions|scores)\b",
    re.IGNORECASE,
)
_SAVE_WORDS = ("sav", "Sav", "writ", "Writ", "wrote", "Wrote", "stored")
_SCORE = re.compile(r"\W{0,6}[A-Za-z][\w @./()-]{0,30}\s{0,20}[:=|]\s{0,40}-?\d{1,12}(?:\.\d{1,12})?\s?%?\W{0,3}$")
_COUNT = re.compile(
    r"\W{0,6}[A-Za-z][\w @./()-]{0,30}\s{0,20}[:=|]\s{0,40}\d{1,12}(?: ?/ ?\d{1,12})?"
    r"(?:\s?\(?\d{1,3}(?:\.\d{1,6})?\s?%\)?)?\W{0,3}$"
)
_LAST_NUMBER = re.compile(r"[:=|]\s{0,40}(\d{1,12})")
_GOOD_COUNT = re.compile(
    r"\W{0,6}(?:\w+ ){0,2}(?:success\w*|correct|passed|completed|ok)\b[^:=|]{0,20}[:=|]\s{0,40}(\d{1,12})\b", re.IGNORECASE
)
_HEADING = re.compile(r"\s{1,12}[A-Za-z][\w ]{0,30}:\s*$")
_SHARE = re.compile(
    r"\W{0,6}(?:\w+ ){0,3}(?:acc\w*|f1\w*|precision|recall|exact[ _]match|em|bleu|rouge\S*|pass@\d+|auc|score"
    r"|success rate|win rate)\b[^:=|]{0,20}[:=|]\s{0,20}\d{1,3}(?:\.\d{1,12})?\b",
    re.IGNORECASE,
)
RESULT_LINES = 6
_BAD_COUNT = re.compile(r"\W{0,6}(?:\w+ ){0,2}(?:failed|failures?|errors?)\b\D{0,20}[1-9]", re.IGNORECASE)
_NO_WORK = re.compile(
    r"\bwait|heart-?beat|time-?out|watchdog|still (?:alive|running)|barrier|NCCL|retry|error|exception|traceback|fail|warn"
    r"|^\s+File \"",
    re.IGNORECASE,
)


def weigh_place(finding: Finding, facts: Facts) -> None:
    """Lower what was survived: training went on, or the same rank did."""
    later = facts.later_steps(finding.line)
    if finding.reason in ENDINGS:
        quoted = finding.episode or _quoted_by(finding, facts)
        if finding.reason == "loss_spike" and quoted is not None and lived_through(quoted, facts):
            finding.factor *= 0.15
            finding.note, finding.survived = "the program caught it and went on", True
            return
        # a notice comes minutes ahead, and whoever watches prints between the steps
        interrupted = finding.reason == "cancelled" and "Interrupt" in finding.text
        if interrupted and _only_others_speak(finding, facts):
            return
        if facts.before_leg(finding.line) or later > (SURVIVED_STEPS if interrupted else 20 * SURVIVED_STEPS):
            finding.factor *= 0.15
        return
    if facts.before_leg(finding.line):
        finding.factor, finding.note = finding.factor * 0.1, "an earlier attempt in the same log"
        return
    if _one_of_several(finding, facts):
        return
    if later >= SURVIVED_STEPS:
        finding.factor *= 0.15 if not (finding.blames and finding.reason in HARDWARE) else 0.5
        finding.note, finding.survived = f"training went on for {later} steps after it", True
        return
    episode = finding.episode
    if episode is None and not finding.blames and finding.line < facts.lines_total and _DEBUG.search(finding.text[:_HEAD]):
        finding.factor, finding.note = finding.factor * 0.05, "printed for who looks for errors of the program itself"
    elif _handled(finding, facts):
        finding.factor *= 0.25
        finding.note = "the program says that it goes on"
    elif _stays_full(finding.text, episode.last if episode is not None else finding.line, facts):
        return
    elif finding.episode is None and not finding.blames and excused(finding.line, facts):
        finding.factor *= 0.15
        finding.note, finding.survived = "the shell was told to go on", True
    elif shell_went_on(finding, facts):
        finding.factor *= 0.6
        finding.note, finding.survived = "the shell went on after it", True
    elif work_went_on(episode.last if episode is not None else finding.line, facts) and not finding.blames:
        finding.factor *= 0.25
        finding.note, finding.survived = "the work that went on before it went on after it", True
    elif (quoted := episode or _told_by(finding, facts)) is not None and logged_by_itself(quoted, facts):
        finding.factor *= 0.25
        finding.note, finding.survived = "the program caught it, wrote it down and went on", True
    elif not finding.blames and request_answered(episode.last if episode is not None else finding.line, facts):
        finding.factor *= 0.25
        finding.note, finding.survived = "the server answered that request and then others", True
    elif factor := _went_on(finding, facts):
        finding.factor *= factor
        went_on = "what came after it ran in another folder" if failed_folder(finding.text) else "the same process went on after it"
        finding.note, finding.survived = went_on, True
    elif episode is None and not finding.blames and finding.reason not in HARDWARE and reported_after(finding.line, facts):
        finding.factor *= 0.25
        finding.note, finding.survived = "the program reported its results after it", True
    elif episode is None and _QUOTED.search(finding.text) and not finding.orphan:
        finding.factor *= 0.5 if not _is_warning(finding.text) else 0.25
        finding.note = "an exception that the program caught and quotes"
    elif episode is None and not finding.blames and PYTHON_WARNING.match(finding.text) and finding.reason not in HARDWARE:
        finding.factor *= 0.25
        finding.note, finding.survived = "Python's own warning, which goes on", True
    elif episode is None and not finding.blames and _is_warning(finding.text):
        finding.factor *= 0.7 if finding.reason in HARDWARE else 0.5
        finding.note = "printed as a warning"


def _only_others_speak(finding: Finding, facts: Facts) -> bool:
    """Tell whether after a person ended the main process only its children speak, with what they had not yet printed."""
    if finding.episode is None:
        return False
    after = facts.between(finding.episode.last + 1, finding.episode.last + facts.look_ahead)
    ends = facts.lines_total <= finding.episode.last + facts.look_ahead
    return ends and all(facts.streams.body(entry.text).stream != finding.stream for entry in after)


PYTHON_WARNING = re.compile(r"(?:\[?\w{1,24}\]?:? ?)?\S{1,400}:\d{1,9}: [A-Z]\w{0,60}Warning: ")
"""What Python's module `warnings` prints: the place, the class, the words, and the line of source behind them."""


def _is_warning(text: str) -> bool:
    head = text[:160]
    return "WARNING" in head or "Warning:" in head or "[WARN" in head or (" WARN " in head and "NCCL" not in head)


_GOES_ON = re.compile(
    r"\b(?:will (?:try again|retry)|retrying|trying again|try \d+ of \d+|(?<!\bto )continu(?:e|ing)\b"
    r"|go(?:es|ing)? on\b|[Dd]efault(?:s|ing)? to\b|ignor(?:ed?|ing)\b"
    r"|fall(?:ing|s)? ?back|skipp?(?:ed|ing)\b|non-?fatal|soft check|optional|best.effort|disabl(?:ed|ing)\b|offline mode"
    r"|using \S+ instead|(?:not|non-?) ?critical|harmless|proceeding|(?:not|un) ?affect(?:ed|s|ing)?\b"
    r"|does not matter|treat(?:ed|ing)? (?:it|them|this|these) as)|(?:^|\[)skip\b",
    re.IGNORECASE,
)


_QUOTED = re.compile(r"(?<!^)\b[A-Z]\w*(?:Error|Exception)\((?:[\"'\[\d)]|b')|[(:] ?[A-Z]\w*(?:Error|Exception): .{0,120}\)")


def says_it_goes_on(text: str) -> bool:
    """Tell whether a line says of its own trouble that the program goes on."""
    return _GOES_ON.search(text) is not None and not _ends(text)


def _handled(finding: Finding, facts: Facts) -> bool:
    """Tell whether the program itself says, on the line or around its traceback, that it goes on."""
    if finding.blames or finding.orphan:
        return False
    episode = finding.episode
    if episode is None:
        return bool(_GOES_ON.search(finding.text)) or (finding.file == "job.log" and tried_again(finding.line, facts))
    before = facts.between(episode.first - 1, episode.first - 1)
    after = facts.between(episode.last + 1, episode.last + 2)
    # what stands before a traceback may be about another matter: it is believed only where something goes on
    believed = before if any(_ordinary(line.text) for line in after) else []
    around = [*believed, *(line for line in after if _no_last_word(line, facts))]
    return any(
        _GOES_ON.search(line.text) and not _ends(line.text) and facts.streams.body(line.text).stream == episode.stream
        for line in around
    )


def _no_last_word(line: Line, facts: Facts) -> bool:
    """Tell whether a line is a logger's, or its process says more behind it: last words belong to an exception's message."""
    if level_of(line.text) or stamp(line.text) is not None:
        return True
    stream = facts.streams.body(line.text).stream
    lines_after = facts.between(line.number + 1, line.number + facts.look_ahead)
    return any(_ordinary(entry.text) and facts.streams.body(entry.text).stream == stream for entry in lines_after)


@lru_cache(maxsize=8192)
def _ordinary(text: str) -> bool:
    return bool(text.strip()) and not (_ends(text) or _troubled(text) or _LAUNCHER.match(text) or _is_grave(text))


def _went_on(finding: Finding, facts: Facts) -> float:
    """Return a factor below 1 where the process printed ordinary lines after its error, 0 where it did not.

    A mark of the rank makes that certain. Without one the lines may be another rank's, so more are asked for and less follows.
    """
    needed, factor = (4, 0.3) if finding.rank is not None and finding.stream else (12, 0.5)
    if finding.blames:
        needed, factor = 200, 0.4  # what blames a node is believed until much has been done since
    if finding.episode is None and not finding.orphan:
        needed, factor = 2 * needed, 0.3
    ordinary, start = 0, finding.episode.last if finding.episode is not None else finding.line
    for line in facts.between(start + 1, start + facts.look_ahead):
        if finding.stream and facts.streams.body(line.text).stream != finding.stream:
            continue
        if _ends(line.text):
            return 0.0
        if line.text.strip() and not _troubled(line.text):
            ordinary += 1
            if ordinary >= needed:
                return factor
    return 0.0


def reported_after(line: int, facts: Facts) -> bool:
    """Tell whether a program that could not do one part of its work came to report the results of all of it."""
    own = facts.line(line)
    if own is None or _WHOLE_WORK.search(own.text) or _is_grave(own.text):
        return False
    after = facts.between(line + 1, line + facts.look_ahead)
    if not any(_RESULTS.search(entry.text) for entry in after if any(word in entry.text for word in _SAVE_WORDS)):
        return False
    if any(_ends(entry.text) or _is_grave(entry.text) or "Traceback" in entry.text for entry in after):
        return False
    scores = [entry for entry in after if _SCORE.match(entry.text)]
    return len(scores) >= FEWEST_SCORES and not any(_BAD_COUNT.match(entry.text) for entry in scores)


def counted_in_results(line: int, facts: Facts) -> bool:
    """Tell whether a line is one of a table of results that has a share of what was right: answers are counted there, not ends.

    `Accuracy: 0.31`, `Correct: 310`, `Parse failures: 41` and a heading of samples below it belong to one table.
    """
    own = facts.line(line)
    if own is None or not (_COUNT.match(own.text) or _HEADING.match(own.text)):
        return False
    around = facts.between(line - RESULT_LINES, line + RESULT_LINES)
    scores = [entry for entry in around if _SCORE.match(entry.text) or _SHARE.match(entry.text)]
    count = _LAST_NUMBER.search(own.text)
    well = [int(match[1]) for entry in scores if (match := _GOOD_COUNT.match(entry.text)) is not None]
    fewer = count is not None and any(int(count[1]) < good for good in well)
    return len(scores) >= FEWEST_SCORES and (fewer or any(_SHARE.match(entry.text) for entry in scores))


def _one_of_several(finding: Finding, facts: Facts) -> bool:
    """Tell whether an exception that nobody caught is of one of several programs that write into one log: steps are theirs.

    Bars of several go on by one in turn, or fall back without beginning anew; that of one program goes on from where it was.
    """
    episode = finding.episode
    if episode is None or episode.kind is not EpisodeKind.MAIN:
        return False
    before = facts.line(episode.first - 1)
    if _quoted_before(episode, facts) or (before is not None and _INTRODUCES.search(before.text[:LOOK_AHEAD])):
        return False
    drawn = () if finding.stream else facts.between(episode.first - AROUND, episode.last + AROUND)
    return several_draw(drawn) or (exits_alone(episode, facts) and not _handled(finding, facts))


def _stays_full(text: str, line: int, facts: Facts) -> bool:
    """Tell whether a disk is full and nothing was written since, whoever prints behind that."""
    if not _LASTING.search(text):
        return False
    return not any(_WRITTEN.search(entry.text[-LOOK_AHEAD:]) for entry in facts.between(line + 1, facts.lines_total))


def work_went_on(line: int, facts: Facts) -> bool:
    """Tell whether what the log printed over and over before a line goes on after it, with no word of an end.

    A server answers the next request, another program that writes into the same file goes on with its own lines. What other
    processes print, where lines say whose they are, proves nothing: they may not have noticed yet.
    """
    own, after = facts.line(line), facts.between(line + 1, line + facts.look_ahead)
    # who writes a fatal line is gone, whoever prints behind it
    if own is not None and (_FATAL.search(own.text) or _stays_full(own.text, line, facts)):
        return False
    if any(_ends(entry.text) or _is_grave(entry.text) for entry in after):
        return False
    stream = facts.streams.body(own.text).stream if own is not None else ""
    lines = keyed_lines([entry for entry in after if facts.streams.body(entry.text).stream == stream])
    times = [facts.progress.came_before(form, line) for _, form, text in lines if not is_no_work(text)]
    recurring = sum(count > 0 for count in times)
    return 2 * recurring >= len(times) and (times.count(ROUTINE) >= DAILY_AFTER or recurring >= RECURRING_AFTER)


def lived_with(line: int, facts: Facts) -> bool:
    """Tell whether a run met the same thing again and again before and worked on each time.

    So does a benchmark that skips what does not fit, or a loop that catches what fails in it. Ranks that fail alike do not: no
    work stands between their lines.
    """
    entry = facts.line(line)
    if entry is None or END.search(entry.text):
        return False
    for _, form, _ in keyed_lines([entry]):
        third, _ = facts.progress.routine.get(form, (0, 0))
        worked = facts.progress.before(line) - facts.progress.before(third)
        return facts.progress.leg < third < line and worked >= SURVIVED_STEPS
    return False


def exception_lived_with(episode: Episode, facts: Facts) -> bool:
    """Tell whether a traceback is one of many that a run lived with: each was introduced by the program that caught it.

    What the interpreter prints of an exception that nobody caught has no line of the program before it: a script that starts the
    program again and again prints many of these as well, and its own last word behind them.
    """
    before = facts.line(episode.first - 1)
    introduced = before is not None and _INTRODUCES.search(before.text) is not None
    return introduced and any(lived_with(raised.line, facts) for raised in episode.raised)


def _quoted_by(finding: Finding, facts: Facts) -> Episode | None:
    """Return the traceback that begins on the next line."""
    at = bisect_left(facts.episodes, finding.line + 1, key=_FIRST)
    return facts.episodes[at] if at < len(facts.episodes) and facts.episodes[at].first == finding.line + 1 else None


def _told_by(finding: Finding, facts: Facts) -> Episode | None:
    """Return the traceback that begins on the next line, or one near by whose message a plain line repeats."""
    near = (episode for episode in facts.episodes if episode.first - AFTERMATH <= finding.line <= episode.last + AFTERMATH)
    quoting = (e for e in near if any(len(r.message) >= OWN_WORDS and r.message[:60] in finding.text for r in e.raised))
    return _quoted_by(finding, facts) or next(quoting, None)


def request_answered(line: int, facts: Facts) -> bool:
    """Tell whether a server answered the request that failed in a line with an error, and later ones well."""
    after = facts.between(line + 1, line + facts.look_ahead)
    answers = [(entry.number, status) for entry in after if (status := _status_of(entry.text))]
    if not answers or answers[0][0] > line + AFTERMATH or answers[0][1] < BAD_REQUEST:
        return False
    return any(status < BAD_REQUEST for _, status in answers) and not any(_ends(entry.text) for entry in after)


def lived_through(episode: Episode, facts: Facts) -> bool:
    """Tell whether a program goes on after a traceback: with the work from before, or having written it down, or warned of it."""
    warned = all(level_of(line.text) == "warning" for line in facts.between(episode.first, episode.last))
    return warned or work_went_on(episode.last, facts) or logged_by_itself(episode, facts)


def logged_by_itself(episode: Episode, facts: Facts) -> bool:
    """Tell whether the line before a traceback quotes its exception, as a logger does, and ordinary lines follow to the end."""
    if episode.first < 2 or not _quoted_before(episode, facts):
        return False
    later = facts.episodes[bisect_right(facts.episodes, episode.last, key=_FIRST) :][:LOOK_AHEAD]
    caught = [inner for inner in later if inner.first <= episode.last + LOOK_AHEAD and _quoted_before(inner, facts)]
    inside = {number for inner in caught for number in range(inner.first - 1, inner.last + 1)}
    after = [entry for entry in facts.between(episode.last + 1, episode.last + facts.look_ahead) if entry.number not in inside]
    last = next((entry for entry in reversed(after) if entry.text.strip()), None)
    if last is not None and ADVISES.match(last.text[:80]) and last.number + 1 >= facts.lines_total:
        return False  # a library's words about its exception end the log
    grave = any(_ends(entry.text) or "Traceback" in entry.text for entry in after)
    return not grave and sum(_ordinary(entry.text) and not entry.text[:1].isspace() for entry in after) >= LOGGED_AFTER


def _quoted_before(episode: Episode, facts: Facts) -> bool:
    """Tell whether the line before a traceback quotes its exception, or introduces it on the line with which it begins."""
    message = max((raised.message for raised in episode.raised), key=len)[:60]
    before = facts.line(episode.first - 1)
    first = facts.line(episode.first)
    if first is not None and not episode.stream and _INTRODUCED.match(first.text) and not _UNCAUGHT.search(first.text):
        return True
    if before is None:
        return False
    classes = {raised.short for raised in episode.raised}
    by_class = any(f"{name}({quote}" in before.text or f"{name}: {message}" in before.text for name in classes for quote in "'\"")
    return by_class or (len(message) >= 8 and message in before.text)


_INTRODUCES = re.compile(r"\b(?:ERROR|WARN(?:ING)?|[Ee]xception|[Ee]rror|[Ff]ailed|[Cc]aught|[Ss]kip\w*)\b")
_INTRODUCED = re.compile(r"\W{0,8}[A-Za-z][\w ]{2,60}: Traceback \(most recent call last\):")
"""Words of a program before the traceback of another one that it ran."""
_UNCAUGHT = re.compile(r"uncaught|unhandled|fatal|uncatched|crash", re.IGNORECASE)


_LEVEL = re.compile(
    r"(?<![\w-])(TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|CRITICAL|FATAL)(?![\w-])"
    r"|[\[(<](trace|debug|info|notice|warn(?:ing)?|error|critical|fatal)[\])>:]|^\W?([IWEF])\d{4} \d{2}:"
    r"|^\[([DIWEC]) (?:\d{4}-\d{2}-\d{2} |\d{6} )?\d{2}:\d{2}:\d{2}"
)
"""How grave a logger calls its line, in its head."""
_DEBUG = re.compile(r"(?<![\w-])(?:DEBUG|TRACE)(?![\w-])")
_HEAD, _RECORD_LINES, MILD_OUTLIVED = 120, 8, 8
"""Lines behind one that its own logger calls no trouble, which show that it was none."""


def level_of(text: str) -> str:
    """Return how grave a logger calls a line: `mild`, `warning`, `error`; empty where none says it."""
    match = _LEVEL.search(text[:_HEAD])
    first = next(filter(None, match.groups()))[0].upper() if match is not None else ""
    return {"": "", "W": "warning", "E": "error", "C": "error", "F": "error"}.get(first, "mild")


def called_mild(line: Line, facts: Facts) -> bool:
    """Tell whether the own logger of a line calls it no trouble, and lines enough follow to show that it was none."""
    return level_of(line.text) == "mild" and facts.lines_total - line.number >= MILD_OUTLIVED


def says_error(text: str) -> bool:
    """Tell whether a logger calls a line an error."""
    return level_of(text) == "error"


def of_warning(line: int, facts: Facts) -> bool:
    """Tell whether a line is a warning's, or goes on with one that a line shortly before it began."""
    own = facts.line(line)
    if own is None:
        return False
    if _is_warning(own.text) or level_of(own.text):
        return _is_warning(own.text) or level_of(own.text) == "warning"
    for entry in reversed(facts.between(max(1, line - _RECORD_LINES), line - 1)):
        if _is_warning(entry.text) or level_of(entry.text) == "warning":
            return True
        if not entry.text.strip() or level_of(entry.text) or stamp(entry.text) is not None or _troubled_head(entry.text):
            return False
    return False


def _troubled_head(text: str) -> bool:
    return text.startswith(("Traceback", '  File "')) or _ends(text)


_GRAVE = re.compile(r"\[[EF]\d{3,4} |\b[EF]\d{4} |terminate called|CRITICAL|FATAL|\b[Aa]borting\b")
_FATAL = re.compile(r"^\W{0,3}F\d{4} \d{2}:\d{2}:|terminate called")
"""What glog and the C++ runtime print before they abort the process."""
_LASTING = re.compile(r"No space left on device|Disk quota exceeded")
_WRITTEN = re.compile(r"\b(?:sav(?:ed|ing)|wrote|written|stored|finished|completed?|done)\b", re.IGNORECASE)
_LAUNCHER = re.compile(r"(?:srun|slurmstepd|mpirun|prterun|torchrun|-{5,}|={5,}|\*{5,}|Primary job|\[entrypoint)")
_END_WORDS = (
    "ChildFailedError", "closing signal", "Killing subprocess", "exited with", "Exited with", "CANCELLED AT", "failed (exitcode",
    "Aborted", "core dumped",
    "exit code", "Terminating StepId", "Root Cause (first", "Exception ignored in", "atexit", "resource_tracker",
    "terminated with", "mpirun", "Killing process",
)  # fmt: skip
_TROUBLE = (
    "Error", "error", "ERROR", "Traceback", "  File ", "Exception", "WARN", "    ", "^^^", "fail", "frame #", "\t",
    "NCCL operations", "] Rank ", "[Rank ", " -> 6", " -> 2", " -> 3",
)  # fmt: skip


@lru_cache(maxsize=8192)
def _is_grave(text: str) -> bool:
    return _GRAVE.search(text) is not None


@lru_cache(maxsize=8192)
def is_no_work(text: str) -> bool:
    """Tell whether a line goes on while nothing does, or tells of trouble itself."""
    return _NO_WORK.search(text) is not None


@lru_cache(maxsize=8192)
def _status_of(text: str) -> int:
    """Return the status with which a server answered the request of a line; 0 where it tells of none."""
    match = _ANSWER.search(text[:LOOK_AHEAD])
    return int(match[1] or match[2]) if match is not None else 0


@lru_cache(maxsize=8192)
def _ends(text: str) -> bool:
    return any(word in text for word in _END_WORDS)


@lru_cache(maxsize=8192)
def _troubled(text: str) -> bool:
    return any(word in text for word in _TROUBLE)


_CUT_OFF = re.compile(
    r"\bSIG(?:TERM|KILL|INT)\b|^(?:Killed|Terminated|Aborted)\b|signal: (?:killed|terminated)"
    r"|: line \d+: +\d+ (?:Killed|Terminated|Aborted)"
    r"|\b(?:Terminated|Killed)\s*$|\bunreachable\b|core dumped|Stopping container|\b[Ee]xited with (?:exit )?code [1-9]"
)


def cut_off(facts: Facts) -> bool:
    """Tell whether the last lines say that something ended the job, in words that nothing else here knows."""
    tail = facts.between(max(facts.progress.last_line + 1, facts.lines_total - 20), facts.lines_total)
    return any(_CUT_OFF.search(line.text) for line in tail)
