"""Say what a log shows beside an error of which the words alone do not decide: what ran, what it worked on, how often it came.

These readings know no program. The command that was killed and what it printed last, sizes that are 0 before a crash, a request
that failed again and again in a program that went on, the command line that named a refused file, and the last words of a program
of which only its launcher tells that it failed.
"""

from __future__ import annotations

import re

from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.native_places import native_place
from assistant.diagnose.weighing.first_failure import OWN_WORDS
from assistant.logs.lines import Line
from assistant.records import Citation
from assistant.redact import redact

MOST_OF_LINE, MOST_SHOWN = 400, 160
LINES_BEFORE, LINES_BEHIND = 40, 40
SHORTEST_NAME = 4
LEAST_OFTEN, MOST_PLACES, LINES_APART = 3, 4, 2
SHORTEST_KEY, LENGTH_OF_KEY = 20, 40
"""Characters by which two lines are taken for the same but for their numbers."""
_KILLED = re.compile(
    r"line (?P<line>\d{1,6}): (?:\d{2,9}\s+)?(?:Killed|Terminated|Aborted|Segmentation fault|Bus error"
    r"|Illegal instruction|Floating point exception)"
    r"(?:\s+\(core dumped\))?\s{1,}(?P<command>(?!\(core)\S.{0,400})"
)
"""How bash tells which of its commands a signal ended."""
CRASHES = re.compile(
    r"double free|free\(\): |corrupted (?:size|unsorted|double)|malloc\S{0,4}: |Segmentation fault|SIGSEGV|core dumped"
    r"|Illegal instruction|SIGILL"
    r"|Bus error|SIGBUS|[Ff]loating point exception|SIGFPE|stack smashing"
)
"""What is printed where native code crashed."""
_ENDED = re.compile(
    r"\bKilled\b|^PC: @|\*\*\* Aborted at|oom[-_]kill|Out Of Memory|Segmentation fault|Aborted|core dumped|Exited with"
    r"|BAD TERMINATION"
)
_BAR = re.compile(r"\d{1,3}%\||\|\s*\d+/\d+ \[|[█▉▊▋▌▍▎▏━╸╺]|it/s|s/it|\x1b\[A")
_WORDS = re.compile(r"[^\W\d_]{2,}")
_ZERO = re.compile(
    r"(?<![\w.])(?P<name>(?:(?!and |or |with )[A-Za-z_][\w-]{0,30} ){0,2}(?:width"
    r"|height|size|length|count|rows?|col(?:umn)?s?|depth|cells?|points?|elements?|samples?|particles?|atoms"
    r"|nodes|edges|images|files|records|sequences|reads|entries|batches|n[_-]?\w{1,20}))"
    r"(?: is)?\s{0,3}[=:]\s{0,3}0(?![\w.,:/x])",
    re.IGNORECASE,
)
"""A number of things, or an extent, that is printed as 0."""
_FAILS = re.compile(r"rror\b|ERROR|[Ff]ail|Exception|Traceback|WARN|[Rr]etry|refused|timed? ?out")
_TRIES = re.compile(r"\b[Rr]etr(?:y|ies|ying)|\b(?:[Aa]ttempt|[Tt]ry) #?\d")
"""Of a program that tries by itself again."""
_NUMBER = re.compile(r"\d+")
_LAUNCHER = re.compile(
    r"^(?:srun|slurmstepd|mpirun|mpiexec|prun|prterun|orterun|jsrun|aprun|torchrun|salloc): |^\d+ total processes killed|^-{5,}"
    r"|^={5,}|^(?:Primary job|mpirun (?:noticed|has exited)|MPI_ABORT|Process name:|Exit code:)|^\[\w[\w.-]*:\d+\]"
    r"|^make(?:\[\d+\])?: \*\*\*"
)
"""Lines of what started the program."""
_UNFORESEEN = re.compile(
    r"\bunreachable\b|should (?:never|not) (?:happen|be reached|get here|occur|come here)|\bcan(?:'t|not) happen\b"
    r"|\bimpossible (?:case|state|branch)|never (?:be )?reached",
    re.IGNORECASE,
)
"""How programmers mark a branch that they took for impossible."""
_COLOURS = re.compile(r"\x1b?\[[\d;]{0,8}m")
_PATH = re.compile(r"(?<![\w./])/[\w.@+=~-]+(?:/[\w.@+=~-]+)+(?<!\.)")
_ARGUMENTS = re.compile(
    r"^\s*(?P<prompt>[$+>]{1,3} +)?(?P<launcher>(?:"
    r"(?:srun|mpirun|mpiexec|python3?|bash|sh|time|nohup|exec|Rscript|perl)(?: +-\S+)* +){0,3})"
    r"(?P<program>(?:[\w.@~+-]*/)*[\w+-]{2,80}(?:\.(?:py|sh|run|exe|R|pl|jl|out|x|bin))?)(?P<arguments>(?: +\S{1,400}){1,40})\s*$"
)
"""A command as scripts, schedulers and shells print it before they run it."""


def command_ended(text: str) -> str:
    """Return the command that a shell says a signal ended, without secrets and on one line; empty of any other line."""
    match = _KILLED.search(text[: 2 * MOST_OF_LINE])
    return redact(" ".join(match["command"].split())) if match is not None else ""


def killed_command(cited: Citation, facts: Facts) -> str:
    """Return which command of a script a signal ended and what was printed last before; empty where no shell tells it."""
    if cited.file != "job.log":
        return ""
    earlier = facts.before_leg(cited.line)
    of_job = _LAUNCHER.search(facts.streams.body(cited.text[:MOST_OF_LINE]).text.strip()) is not None
    near = [line for line in facts.lines if line.number <= cited.line + LINES_BEHIND and ": line " in line.text[:MOST_OF_LINE]]
    pairs = ((line, _KILLED.search(line.text[: 2 * MOST_OF_LINE])) for line in reversed(near))
    shell = ((line.number, match) for line, match in pairs if match and (of_job or facts.before_leg(line.number) == earlier))
    ended = next(shell, None)
    if ended is None and of_job:
        return ""
    last = _last_words(facts, ended[0] if ended is not None else cited.line)
    sentences: list[str] = []
    if ended is not None:
        number, match = ended
        command = cut(redact(" ".join(match["command"].split())), MOST_SHOWN)
        sentences.append(f"What was ended is `{command}`, of line {match['line']} of its script (job.log:{number}).")
    if last is not None:
        text = cut(facts.streams.body(last.text).text.strip(), MOST_SHOWN).rstrip(".")
        sentences.append(f"The last that it printed before is: {text} (job.log:{last.number}).")
    return " ".join(sentences)


def _last_words(facts: Facts, end: int) -> Line | None:
    """Return the last line with words before another one that is no bar and tells of no end itself; None where none is near."""
    for line in reversed(facts.between(max(1, end - LINES_BEFORE), end - 1)):
        text = line.text
        if facts.before_leg(line.number) != facts.before_leg(end) or _ENDED.search(text[:MOST_OF_LINE]):
            return None
        if any(episode.first <= line.number <= episode.last for episode in facts.episodes):
            continue  # what a traceback shows was not printed by the program
        if CRASHES.search(text[:MOST_OF_LINE]):
            continue  # the C library printed it
        if len(_WORDS.findall(text[:MOST_OF_LINE])) > 1 and not _BAR.search(text[: 4 * MOST_OF_LINE]):
            return line
    return None


def zero_size(cited: Citation, facts: Facts) -> str:
    """Return what is printed as 0 before a crash although it counts things or is an extent; empty where nothing is."""
    if cited.file != "job.log":
        return ""
    first: Line | None = None
    names: list[str] = []
    for line in facts.between(max(1, cited.line - 10 * LINES_BEFORE), cited.line):
        matches = [match["name"].strip() for match in _ZERO.finditer(line.text[:MOST_OF_LINE])]
        if matches and facts.before_leg(line.number) == facts.before_leg(cited.line):
            first = first or line
            names += [name for name in matches if name not in names]
    if first is None:
        return ""
    return (
        f"Before it the program prints {' and '.join(f'{name} = 0' for name in names[:MOST_PLACES])} (job.log:{first.number}): see "
        "where that is worked out, for what is made of it is empty."
    )


def came_again(cited: Citation, facts: Facts) -> str:
    """Return that a request failed several times in a program that went on behind each; empty where it did not."""
    if cited.file != "job.log":
        return ""
    stream, key = facts.streams.body(cited.text).stream, _key(facts.streams.body(cited.text).text)
    if len(key) < SHORTEST_KEY or _TRIES.search(cited.text) or any(e.first <= cited.line <= e.last for e in facts.episodes):
        return ""
    apart: list[Line] = []
    between = 0
    for line in facts.lines:
        body = facts.streams.body(line.text)
        if facts.before_leg(line.number) or body.stream != stream:
            continue
        if _key(body.text) == key:
            apart = [*apart, line] if not apart or between >= LINES_APART else apart
            between = 0
        elif not _FAILS.search(line.text[:MOST_OF_LINE]) and len(_WORDS.findall(line.text[:MOST_OF_LINE])) > 1:
            between += 1
    if len(apart) < LEAST_OFTEN:
        return ""
    listed = ", ".join(f"job.log:{line.number}" for line in apart[:MOST_PLACES])
    more = f" and {len(apart) - MOST_PLACES} more" if len(apart) > MOST_PLACES else ""
    return (
        f"It came {len(apart)} times ({listed}{more}), and the program went on behind each: the next start meets such breaks, too. "
        "Let the call itself be tried again, with a pause that grows, let the script stop (or note it) where it still fails, and "
        "do again only what failed at those lines."
    )


def _plain(text: str, facts: Facts) -> str:
    """Return the words of a line without the marks that colour it."""
    return _COLOURS.sub("", facts.streams.body(text[:MOST_OF_LINE]).text).strip()


def _key(text: str) -> str:
    return _NUMBER.sub("0", text.strip())[:LENGTH_OF_KEY]


def same_of_others(cited: Citation, facts: Facts) -> str:
    """Return of which other files the log says the same as the cited line; empty where of none."""
    if cited.file != "job.log":
        return ""
    own = _PATH.findall(cited.text[:MOST_OF_LINE])
    form = _PATH.sub("/", _plain(cited.text, facts))
    if len(own) != 1 or len(form) < SHORTEST_KEY:
        return ""
    places: dict[str, int] = {}
    for line in facts.lines:
        if line.number == cited.line or facts.before_leg(line.number) or len(line.text) > MOST_OF_LINE or "/" not in line.text:
            continue
        paths = _PATH.findall(line.text)
        if len(paths) == 1 and paths != own and _PATH.sub("/", _plain(line.text, facts)) == form:
            places.setdefault(paths[0], line.number)
    if not places:
        return ""
    folder = own[0].rpartition("/")[0]
    folder_words = f", all in {folder}" if folder and all(path.rpartition("/")[0] == folder for path in places) else ""
    listed = ", ".join(f"{path.rpartition('/')[2]} (job.log:{number})" for path, number in [*places.items()][:MOST_PLACES])
    more = f" and {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
    return f"The same is said of {len(places)} other file{'s' if len(places) > 1 else ''}{folder_words}: {listed}{more}."


def last_words_of_program(facts: Facts) -> str:
    """Return what a program printed last before its launcher said that it failed, how often, and where; empty without launcher."""
    lines = [line for line in facts.lines if line.text.strip()]
    end = len(lines)
    while end and _LAUNCHER.search(facts.streams.body(lines[end - 1].text[:MOST_OF_LINE]).text.strip()):
        end -= 1
    if end in (0, len(lines)):
        return ""
    marked = [line for line in lines[:end] if not facts.before_leg(line.number) and _UNFORESEEN.search(line.text[:MOST_OF_LINE])]
    last = marked[-1] if marked else lines[end - 1]
    if marked:
        following = next((line.text for line in facts.between(last.number + 1, last.number + 1)), "")
        words = cut(f"{_plain(last.text, facts)} {_plain(following, facts)}".strip(), 2 * MOST_SHOWN).rstrip(".")
        return f"{OWN_WORDS[1]} (job.log:{last.number}): {words}. Look at the values there first."
    place = native_place(Citation("job.log", last.number, last.text, ""), facts)
    at = f" {place.sentence}" if place is not None else ""
    count = sum(_key(line.text) == _key(last.text) for line in lines[:end])
    times = f", {count} times" if count > 1 else ""
    words = cut(facts.streams.body(last.text).text.strip(), MOST_SHOWN).rstrip(".")
    return f"{OWN_WORDS[0]}: {words} (job.log:{last.number}{times}).{at}"


def handed_over_as(cited: Citation, path: str, facts: Facts) -> str:
    """Return which argument of the printed command line a refused file was, and which other one has its name; empty without one."""
    name = path.rstrip("/").rpartition("/")[2]
    if len(name) < SHORTEST_NAME:
        return ""
    for line in facts.lines:
        if line.number >= cited.line:
            break
        match = _ARGUMENTS.match(line.text[: 4 * MOST_OF_LINE]) if path in line.text else None
        if match is None or not (match["prompt"] or match["launcher"] or "/" in match["program"]):
            continue
        arguments = match["arguments"].split()
        at = next((at for at, argument in enumerate(arguments, 1) if argument.strip("'\"") == path), 0)
        if not at:
            continue
        option = arguments[at - 2] if at > 1 else ""
        place = option if option.startswith("-") and "=" not in option else f"argument {at}"
        twins = [twin for twin, argument in enumerate(arguments, 1) if twin != at and argument.rstrip("/").endswith(f"/{name}")]
        same = f", and argument {twins[0]} has the same name: see whether they are meant to be two kinds of file" if twins else ""
        return f"It was handed to {match['program'].rpartition('/')[2]} as {place} (job.log:{line.number}){same}."
    return ""
