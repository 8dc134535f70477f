"""Say where the wording of a line alone is no proof: a notice that states its own fallback, a call whose errno says the cause.

A notice says what was looked for and is not there, and in the same words what is used instead. It may look like a failure in
every other word; it is no cause where the program has said that it goes on, and did. The notice is the box between two rules of
signs that it stands in; without rules the line itself, the one right below, and what is indented there.

To take a failure for a notice hides it, so the words alone never decide. None is a notice that also speaks of an end, that begins
with the name of an exception, or behind which no work stands: what is the last thing in a log has not been followed by anything.
That something is "ignored" or "disabled" tells of the failure only where both stand in one line.

The errno of a failed call, by number, name or text, says whose fault it is more surely than the words around it: a call on a socket
that is refused with `Bad address` was handed a wrong buffer by its program, and the network is sound. Texts are those of glibc's
strerror(3).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from assistant.diagnose.facts import Facts
from assistant.logs.lines import Line
from assistant.records import Citation

MOST_OF_BOX, MOST_OF_LINE = 24, 600
"""Lines of a notice between rules at most on either side, and characters of a line that are read."""
LOOKED_AT_BEHIND, WORK_BEHIND_STEPS = 60, 3
"""Lines right behind a notice, and at the end of the log, among which work is looked for; lines of work that show that a run whose
steps all stand before the notice went on. Without any step one is enough."""
_REPLACED = (
    r"\b(?:will|is|are|was|were|be|being|gets?) (?:\w+ )?used (?:\w+ )?instead\b"
    r"|\b(?:[Uu]sing|[Uu]sed|[Ss]witch(?:ing|ed) to|[Cc]hoosing|[Tt]aking|[Ss]ubstitut(?:ing|ed)) \S.{0,80}\binstead\b"
    r"|\b(?:[Ff]alling|[Ff]alls|[Ff]ell|[Ww]ill fall) ?back (?:to|on|onto)\b"
)
_REPLACES = re.compile(_REPLACED)
"""Words that name what is used in place of something."""
_FALLBACK = re.compile(
    _REPLACED
    + r"|\b(?:will|is|are|was|were) (?:now |being |simply |silently |therefore )?(?:be )?ignored\b|^\W*(?:\w+: )?[Ii]gnoring\b"
    r"|\b[Dd]efault(?:ing|s) to\b|\b[Rr]evert(?:ing|s|ed) to\b|\b(?:[Cc]ontinuing|[Pp]roceeding|[Gg]oing on) without\b"
    r"|\b(?:will|is|are|being|been) (?:now )?(?:disabled|switched off|turned off)\b.{0,40}\b(?:instead|and|the run|continu)"
)
_NO_FALLBACK = re.compile(
    r"\b(?:cannot|can't|could not|couldn't|unable to|failed to|refus\w+ to|not|no|never|without|would|without any)\b[^,;:]{0,24}"
    r"\b(?:fall(?:ing)? ?back|used instead|be ignored|revert|default)"
    r"|\b(?:instead of|rather than|in place of|without) (?:\w+ ){0,3}?"
    r"(?:fall(?:ing)? ?back|default\w*|us(?:e|ing)|ignor\w+|revert\w*|switch\w*|continu\w+|proceed\w*|go(?:ing)? on)\b"
    r"|\b(?:fall ?back|falling back|fell back|(?:default|revert|switch)(?:ing|s|ed|ping)? to)\b.{0,80}"
    r"\b(?:fail|impossible|not (?:possible|allowed|available|supported)|error)"
    r"|\b(?:must|should|cannot|can't|can not|may|not) (?:not )?be ignored\b"
    r"|\b[Ii]f\b.{0,80}\b(?:used instead|fall(?:s|ing)? ?back|ignored)",
    re.IGNORECASE,
)
"""A fallback that there is not, that failed as well, or that only might be."""
_END = re.compile(
    r"\b(?:abort(?:s|ed|ing)?|giv(?:e|es|ing) up|gave up|bail(?:s|ed|ing)? out|(?:un|ir)recoverable|impossible|forbidden"
    r"|kill(?:ed|ing)|exiting|exited|quit(?:s|ting)?|halt(?:s|ed|ing)?"
    r"|crash(?:es|ed|ing)?|died|dying|terminat(?:es|ed|ing)|panic|core dumped)\b"
    r"|\bMPI_ABORT|(?<!non-)(?<!non )(?<!not )(?<!not a )\bfatal\b|\bnot (?:possible|allowed|permitted|an option)\b"
    r"|\b(?:can ?not|can't|could not|couldn't|unable to|will not|won't) (?:go on|continue|proceed|recover|resume|run|start|train)\b"
    r"|(?:^|[,;:.(] ?)(?:now |so )?stopp(?:ed|ing)\b|\bstopp(?:ed|ing) (?:the |this )?(?:run|training|job|program|process)\b"
    r"|\b(?:run|training|job|program|process) (?:is|was|has been|will be) (?:stopp|end|cancel)",
    re.IGNORECASE,
)
"""The program says that it ends."""
_END_BEHIND = re.compile(r"\b(?:can ?not|can't|could not|couldn't|unable to|refus(?:ed|es|ing|al))\b", re.IGNORECASE)
"""Behind the words of a fallback: what cannot be done then; before them it is what the fallback is for."""
_EXCEPTION = re.compile(r"(?<![\w.])(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Failure)\b(?=:|\s)")
_PROSE = re.compile(r"(?<![\w.\[/-])(?!(?:rank|node|worker|root|main|error|stderr|stdout)\b)[a-z]{3,}(?![\w.\]/-])")
_IS_ERROR = re.compile(r"\b(?:ERROR|SEVERE|ERR)\b|^\W*[Ee]rror\b")
_NO_WORK = re.compile(
    r"error|fail|abort|fatal|kill|exception|traceback|terminat|cannot|can't|could not|unable|denied|refused|no such|exit|signal"
    r"|core dump|panic|invalid|not found|missing|warn|shut(?:ting)? ?down|clean(?:ing|ed)? ?up|clos(?:ing|ed)|stopp(?:ing|ed)"
    r"|cancel|epilog|elapsed|wall ?(?:clock|time)|end(?:ed|s|ing)? (?:at|of|time|date)|finished at"
    r"|(?:job|script) (?:\S+ )?(?:done|end|finish|complet)"
    r"|^\W*(?:wandb|srun|slurmstepd|mpirun|mpiexec|make|Makefile|bash|sh|real|user|sys|logs?|see|at|File)\b"
    r"|^\W*(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,? )",
    re.IGNORECASE,
)
"""A line that does not show that a program goes on: another failure, the end, and what a script or a launcher says behind it."""
_CONCLUSION = re.compile(
    r"\b(?:training|evaluation|fit|fitting) (?:is |has |was )?(?:been )?(?:done|finished|complete)", re.IGNORECASE
)
_LETTERS, _NUMBERS = re.compile(r"[^\W\d_]{2}"), re.compile(r"\d+")
_RULE = re.compile(r"^\W{0,4}([-=*#~_])\1{9,}\W{0,4}$")


def states_fallback(text: str) -> bool:
    """Tell whether a line says by what the program goes on in place of what is missing, and nothing of an end."""
    read_text = text[:MOST_OF_LINE]
    match = _FALLBACK.search(read_text)
    if match is None or _NO_FALLBACK.search(read_text) is not None or _END_BEHIND.search(read_text, match.end()) is not None:
        return False
    return not _states_end(text)


def states_own_fallback(number: int, facts: Facts) -> bool:
    """Tell whether a line of the job log belongs to a notice that states its own fallback, to no traceback, and work follows it."""
    if any(episode.first <= number <= episode.last for episode in facts.episodes):
        return False
    notice, is_box = _notice(number, facts)
    if not _tells_fallback(number, notice, is_box=is_box) or any(_states_end(line.text) for line in notice):
        return False
    return _went_on(notice, facts)


def ends_in_spite(line: Line, facts: Facts) -> bool:
    """Tell whether a line has a failure that the run ended with, although other words of it are mild ("ignored", "skipping")."""
    return (_IS_ERROR.search(line.text[:MOST_OF_LINE]) is not None or _states_end(line.text)) and not _went_on((line,), facts)


def _states_end(text: str) -> bool:
    """Tell whether a line says that the program ends, or begins with the name of an exception."""
    read_text = text if len(text) <= 2 * MOST_OF_LINE else text[:MOST_OF_LINE] + " " + text[-MOST_OF_LINE:]
    exception = _EXCEPTION.search(read_text)
    return _END.search(read_text) is not None or (exception is not None and _PROSE.search(read_text[: exception.start()]) is None)


def _tells_fallback(number: int, notice: Sequence[Line], *, is_box: bool) -> bool:
    """Tell whether a notice says by what the program goes on in place of what one of its lines misses."""
    texts = {line.number: line.text for line in notice}
    if states_fallback(texts.get(number, "")):
        return True
    of_line = _FALLBACK if is_box and not any(_IS_ERROR.search(text) for text in texts.values()) else _REPLACES
    if any(states_fallback(text) and of_line.search(text[:MOST_OF_LINE]) for text in texts.values()):
        return True
    words = " ".join(text.strip() for text in texts.values())[:MOST_OF_LINE]
    return len(notice) > 2 and states_fallback(words) and of_line.search(words) is not None


def _went_on(notice: Sequence[Line], facts: Facts) -> bool:
    """Tell whether work stands behind a notice: a step, or lines that are no failure, no end and no further notice."""
    last, total = notice[-1].number, facts.lines_total
    if facts.progress.lines and facts.progress.last_line > last:
        return True
    ends = max(last + LOOKED_AT_BEHIND, total - LOOKED_AT_BEHIND)
    lines = [*facts.between(last + 1, last + LOOKED_AT_BEHIND), *facts.between(ends + 1, total)]
    forms = {_form(line.text) for line in notice}
    work: list[str] = []
    explains = False  # what is indented belongs to the line above it
    for text in _outside_of_boxes(lines):
        explains = explains and text[:1].isspace()
        if not explains and _shows_work(text) and _form(text) not in forms:
            work.append(text)
        elif text.strip():
            explains = True
    if any(_CONCLUSION.search(text[:MOST_OF_LINE]) for text in work):
        return True
    return len(work) >= (WORK_BEHIND_STEPS if facts.progress.lines else 1)


def _outside_of_boxes(lines: Sequence[Line]) -> list[str]:
    """Return the texts of lines but those between two rules where a fallback is stated; each rule is an empty text."""
    texts: list[str] = []
    box: list[str] | None = None
    for line in lines:
        if _RULE.match(line.text):
            texts += ["", *([] if box is None or any(map(states_fallback, box)) else box), ""]
            box = [] if box is None or not any(map(states_fallback, box)) else None
        elif box is None:
            texts.append(line.text)
        else:
            box.append(line.text)
    return [*texts, *(box or ())]


@lru_cache(maxsize=1024)
def _form(text: str) -> str:
    """Return a line without its numbers."""
    return _NUMBERS.sub("0", text[:MOST_OF_LINE].strip())


@lru_cache(maxsize=1024)
def _shows_work(text: str) -> bool:
    """Tell whether a line is one that a program prints as it goes on."""
    read_text = text[:MOST_OF_LINE]
    return _LETTERS.search(read_text) is not None and _NO_WORK.search(read_text) is None and _FALLBACK.search(read_text) is None


def _notice(number: int, facts: Facts) -> tuple[Sequence[Line], bool]:
    """Return the lines of the notice that a line stands in, and whether it is a box between rules."""
    around = facts.between(number - MOST_OF_BOX, number + MOST_OF_BOX)
    rules = [line.number for line in around if _RULE.match(line.text)]
    above, below = max((at for at in rules if at < number), default=0), min((at for at in rules if at > number), default=0)
    if above and below:
        return [line for line in around if above < line.number < below], True
    stream = next((facts.streams.body(line.text).stream for line in around if line.number == number), "")
    following: list[Line] = []
    for line in around:
        if line.number <= number:
            continue
        if following and not line.text[:1].isspace():
            break
        following.append(line)
    cited = [line for line in around if line.number == number]
    if cited and _IS_ERROR.search(cited[0].text[:MOST_OF_LINE]) and following and not following[0].text[:1].isspace():
        following = []  # the next words of the program may be about something else, and an error needs more than that
    return [line for line in (*cited, *following) if line.text.strip() and facts.streams.body(line.text).stream == stream], False


LINES_BELOW, LONGEST_BELOW = 2, 120
"""Lines below the cited one that may only hold the errno, and characters that these have at most."""


class ErrnoClass(StrEnum):
    """Whose matter an errno is."""

    PROGRAM = "program"
    """The call was handed what it cannot take."""
    CONNECTION = "connection"
    NETWORK = "network"
    SPACE = "space"
    MEMORY = "memory"
    ACCESS = "access"
    PATH = "path"
    DEVICE = "device"


class Errno(NamedTuple):
    """An errno in a log."""

    name: str
    text: str
    kind: ErrnoClass
    line: int
    """Line of the job log that holds it."""


_TABLE = {
    "EFAULT": ("Bad address", ErrnoClass.PROGRAM),
    "EINVAL": ("Invalid argument", ErrnoClass.PROGRAM),
    "EBADF": ("Bad file descriptor", ErrnoClass.PROGRAM),
    "EMSGSIZE": ("Message too long", ErrnoClass.PROGRAM),
    "E2BIG": ("Argument list too long", ErrnoClass.PROGRAM),
    "EDOM": ("Numerical argument out of domain", ErrnoClass.PROGRAM),
    "ECONNRESET": ("Connection reset by peer", ErrnoClass.CONNECTION),
    "ECONNREFUSED": ("Connection refused", ErrnoClass.CONNECTION),
    "ETIMEDOUT": ("Connection timed out", ErrnoClass.CONNECTION),
    "ECONNABORTED": ("Software caused connection abort", ErrnoClass.CONNECTION),
    "EHOSTUNREACH": ("No route to host", ErrnoClass.NETWORK),
    "ENETUNREACH": ("Network is unreachable", ErrnoClass.NETWORK),
    "ENETDOWN": ("Network is down", ErrnoClass.NETWORK),
    "EHOSTDOWN": ("Host is down", ErrnoClass.NETWORK),
    "ENOSPC": ("No space left on device", ErrnoClass.SPACE),
    "EDQUOT": ("Disk quota exceeded", ErrnoClass.SPACE),
    "EFBIG": ("File too large", ErrnoClass.SPACE),
    "ENOMEM": ("Cannot allocate memory", ErrnoClass.MEMORY),
    "EACCES": ("Permission denied", ErrnoClass.ACCESS),
    "EPERM": ("Operation not permitted", ErrnoClass.ACCESS),
    "ENOENT": ("No such file or directory", ErrnoClass.PATH),
    "ENOTDIR": ("Not a directory", ErrnoClass.PATH),
    "EIO": ("Input/output error", ErrnoClass.DEVICE),
    "EROFS": ("Read-only file system", ErrnoClass.DEVICE),
    "ESTALE": ("Stale file handle", ErrnoClass.DEVICE),
}
_TEXTS = "|".join(re.escape(text) for text, _ in _TABLE.values())
_BY_TEXT = {text.lower(): name for name, (text, _) in _TABLE.items()}
_ERRNO = re.compile(rf"\b(?:(?P<name>{'|'.join(_TABLE)})|(?i:(?P<text>{_TEXTS})))\b")
_ALONE = re.compile(rf"^\W*(?:[Ee]rr(?:no|or)\W{{0,4}}\d{{0,3}}\W{{1,4}})?(?i:(?P<text>{_TEXTS}))\W{{0,3}}(?:\(?\d{{1,3}}\)?)?\W*$")
"""A line that holds nothing but the text of an errno and its number."""

_OF_MACHINES = frozenset(
    "network_error connection_error node_failure nccl_remote_error nccl_timeout_error nvlink_error ecc_error s3_storage_error hang "
    "killed preempted cancelled time_limit slow_job out_of_memory_error".split()
)
"""Reasons that no call with a wrong argument speaks for."""
FITTING: dict[ErrnoClass, tuple[str, frozenset[str]]] = {
    ErrnoClass.CONNECTION: (
        "connection_error",
        frozenset("network_error node_failure nccl_remote_error nccl_timeout_error s3_storage_error hang".split()),
    ),
    ErrnoClass.NETWORK: (
        "network_error",
        frozenset("connection_error node_failure nccl_remote_error nccl_timeout_error s3_storage_error".split()),
    ),
    ErrnoClass.SPACE: (
        "os_error",
        frozenset("output_file_error s3_storage_error dataset_loading_error called_process_error".split()),
    ),
    ErrnoClass.MEMORY: ("out_of_memory_error", frozenset(["dataloader_killed", "called_process_error"])),
    ErrnoClass.ACCESS: (
        "permission_error",
        frozenset("os_error output_file_error s3_storage_error called_process_error dataset_loading_error".split()),
    ),
    ErrnoClass.PATH: (
        "file_not_found_error",
        frozenset(
            "os_error import_error dataset_loading_error model_loading_error output_file_error called_process_error "
            "argument_error".split()
        ),
    ),
    ErrnoClass.DEVICE: (
        "os_error",
        frozenset(
            "s3_storage_error output_file_error dataset_loading_error model_loading_error node_failure network_error".split()
        ),
    ),
}
"""By class the reason that an errno speaks for, and those that say the same of a narrower case."""


def errno_of(cited: Citation, facts: Facts) -> Errno | None:
    """Return the errno that a cited line gives, or a line right below it that holds nothing else; None where neither does."""
    if (match := _ERRNO.search(cited.text[:MOST_OF_LINE])) is not None:
        return _errno(match["name"] or _BY_TEXT[match["text"].lower()], cited.line)
    if cited.file != "job.log":
        return None
    for line in facts.between(cited.line + 1, cited.line + LINES_BELOW):
        if len(line.text) <= LONGEST_BELOW and (alone := _ALONE.match(facts.streams.body(line.text).text)) is not None:
            return _errno(_BY_TEXT[alone["text"].lower()], line.number)
    return None


def _errno(name: str, line: int) -> Errno:
    text, kind = _TABLE[name]
    return Errno(name, text, kind, line)


def reason_by_errno(reason: str, errno: Errno) -> str:
    """Return the reason that an errno speaks for; the given one where it says the same."""
    if errno.kind is ErrnoClass.PROGRAM:
        return "runtime_error" if reason in _OF_MACHINES else reason
    ruling, narrower = FITTING[errno.kind]
    return reason if reason in narrower else ruling
