"""Read the block of lines in which a program tells of one failure: its message, what stands beside it, and what it was doing.

Programs spread what they say over several lines: the place above, the refused names, the known ones or a hint below, and before all
that the file which they opened. Lines belong to a block by their form (indented, announced by a colon, the words of a detail) or
because they share a name with it; frames, launchers, schedulers and rules of signs end it. Nothing here knows any program.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.weighing.outcome import tells_failure
from assistant.logs.lines import Line

BELOW, ABOVE, BEFORE = 10, 5, 15
"""Lines below and above that may belong to a block, and lines before it in which it is looked for what the program was doing."""
MOST_OF_LINE, MOST_SHOWN, SHOWN_OF_COMMAND = 600, 160, 80
SHORTEST_NAME, SHORTEST_TWIN, MOST_TWINS = 4, 12, 8
LIKE = 0.7
_LEAD = re.compile(
    r"^(?:[EWIF]\d{4} \d\d:\d\d:\d\d\.\d{1,9} +\d{1,20} [\w./-]{1,80}:\d{1,6}\] ?"
    r"|\W{0,2}\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d)?\S{0,8}\s{1,3}"
    r"|\[?\d\d:\d\d:\d\d\S{0,6}\s{1,3}"
    r"|#\d{1,4} (?:\d{1,6}\.\d{1,4} )?"
    r"|(?:FATAL|ERROR|WARNING|NOTE) from \w{1,12} {1,6}\d{1,7}: ?"
    r"|\[(?!\d{1,3}\] )[\w:./-]{1,40}\]\s{1,3}"
    r"|\[\d{1,6}\][A-Z]{0,8} ?ERROR: "
    r"|(?:Chain|Rank|Worker|Process|Thread|Task|PE|Proc) {1,3}\d{1,6}:? {1,3}"
    r"|[\[<(]?(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL|SEVERE)[\])>]?:?\s{1,4}){1,4}"
)
"""Time, level, process and place in the source that a logger puts before its words."""
_STOPS = re.compile(
    r"^(?:srun|slurmstepd|mpirun|mpiexec|prterun|orterun|jsrun|aprun|torchrun|sbatch|MPI_ABORT|make(?:\[\d+\])?): "
    r"|^MPI_ABORT|^={5,}"
    r"|^-{5,}|^\*{5,}|^%{5,}|^\s*at [\w.$<>/@]{2,200}\(|^\s*File \"|^Traceback|^#\d{1,3} |^\s*@ +0x|^\s*\[\d{1,3}\] |^Stack ?trace"
    r"|^Execution halted|^Calls: |^(?:For|See) (?:more|further) (?:information|details)|^\*\*\* (?:JOB|STEP)|^Backtrace|^goroutine "
    r"|^#(?:SBATCH|PBS|BSUB|\$)|core dumped|^[+$>] |^exit status|^with errorcode",
    re.IGNORECASE,
)
"""What is no part of a message: frames, launchers, rules of signs, standing words."""
_DETAIL = re.compile(
    r"^\W{0,4}(?:hint|note|help|tip|reason|details?|cause|caused by|missing|present|known|allowed|available|valid"
    r"|expected|got|found"
    r"|did you mean|perhaps|try|use|set|please|because|while|line|file|in|on|at|from|unknown|code|status|what\(\))\b",
    re.IGNORECASE,
)
"""How a line begins that goes on with what the one before it says."""
_ECHO = re.compile(r"^\d{1,6} ?[:|] |^\|")
"""A line of source, as programs show it below a message."""
_MARK = re.compile(r"^(?:[^\w\s]{2,4}(?= )|[\w.-]{2,30}:(?= ))")
"""What a program puts before each of its lines: signs, or its name."""
MOST_OF_MARK = 2
_CORRECTION = re.compile(r"\b(?:[Dd]id you mean|[Pp]erhaps you meant|instead of|not expected here)\b")
_ACTS = re.compile(
    r"\b(?!(?:[Ww]arn|[Ss]tr|[Nn]oth|[Dd]ur|[Mm]iss|[Aa]nyth|[Ss]ometh|[Ss]ett|[Aa]ccord|[Ff]ollow|[Ee]xist|[Bb]e|[Tt]h"
    r"|[Uu]s|[Rr]|[Bb]r|[Aa]bort"
    r"|[Ee]xit|[Ss]topp|[Ll]eav|[Gg]iv)ing\b)[A-Za-z][a-z]{1,12}ing\b(?! up\b)"
    r"|\b(?:[Cc]onfig(?:uration)?|[Ii]nput|[Pp]arameters?|[Pp]arams|[Ll]icen[cs]e|extended by|[Oo]pened|[Rr]ead|grid"
    r"|table|launch|asked for|loader)\b"
)
"""What a program says that it does, or goes by."""
_COMMAND = re.compile(
    r"^(?:\++ |\$ |> |(?:\S{1,40} )?(?:CMD|[Cc]ommand(?: line)?|[Rr]unning|[Ee]xecuting|[Cc]alled? as): {0,4}"
    r"|(?=(?:srun|mpirun|mpiexec|python3?|java|sbatch|apptainer"
    r"|singularity|docker|podman|launch:?|torchrun|nextflow|snakemake) ))(?P<command>\S.{2,400})$"
)
_COMMAND_BELOW = re.compile(r"^(?:[Cc]ommand(?: line)?|[Ii]nvoked as|[Cc]alled? as):$")
_FILE = re.compile(r"(?<![\w/.@:=-])(?P<quote>['\"‘`(]?)(?P<file>(?:~|\.{1,2})?/?(?:[\w.+@=*~-]{1,120}/){0,12}[\w.+@=*~-]{1,120})")
_HAS_END = re.compile(r"[A-Za-z_*][\w*+@~-]{0,80}\.[A-Za-z][\w]{0,9}$|/")
_NO_FILE = re.compile(
    r"\.(?:c|cc|cpp|cxx|C|cu|h|hpp|java|go|rs|scala|so(?:\.\d+)*|com|org|net|io|example|local|py)$|^\W*\d|^\w+/\w{1,4}$"
    r"|^[./~]+$|^https?:"
    r"|^[A-Z]\w+\.[A-Z]\w+$|^\w+\.(?:load|read|open|get|set|run|main|cfg\.\w+)$"
)
"""Names with a dot or a slash that are no file which a person gave: sources of the program, libraries, hosts, shares, calls."""
_PLACES = (
    re.compile(r"(?:[Ee]rror )?in file \"?(?P<file>[^\s\",]{2,240}?)\"?,? (?:at |on )?line (?P<line>\d{1,7})"),
    re.compile(r"\b(?:on|in|at|of) (?P<file>[\w./+~-]{2,240}\.[A-Za-z]\w{0,9}),? line (?P<line>\d{1,7})"),
    re.compile(r"[Ff]ile:? \"?(?P<file>[^\s\",]{2,240}?)\"?,? (?:from |at |on )?line (?P<line>\d{1,7})"),
    re.compile(r"-- ?[Cc]heck (?:the )?script ['\"](?P<file>[^'\"]{2,240})['\"] at line:? (?P<line>\d{1,7})"),
    re.compile(r"['\"](?P<file>[^'\"\s]{2,240}\.[A-Za-z]\w{0,9})['\"],? (?:at |on )?line:? (?P<line>\d{1,7})"),
    re.compile(r"\bline (?P<line>\d{1,7}) (?:of|in) (?:file )?['\"]?(?P<file>[\w./+~-]{2,240}\.[A-Za-z]\w{0,9})"),
    re.compile(r"(?<![\w/.-])(?P<file>(?:[\w.+~-]{0,80}/)*[\w+~-]{1,80}\.(?!\d)[A-Za-z]\w{0,9}):(?P<line>\d{1,7})(?::\d{1,5})?: "),
    re.compile(r"(?<![\w/.-])(?P<file>[\w./+~-]{1,200}\.(?:sh|ksh|bash|csh|pl|R|m|jl))\[(?P<line>\d{1,6})\]"),
)
"""Places in a file that a person wrote, as programs print them."""
_BARE_PLACE = re.compile(r"[\[(]line (?P<line>\d{1,7})[\])]|\bline (?P<at>\d{1,7})\b")
_LISTED = re.compile(
    r"(?:known|valid|allowed|supported|available|present|possible|accepted|existing|defined|expected|[Cc]hoose from"
    r"|one of|[Cc]andidates|[Oo]ptions)"
    r"(?: \w{1,20}){0,2}(?: are)? ?[:=] {0,4}[\[({]?(?P<names>[\w.'\"<>-]{1,60}(?:(?:, ?| \| |/)[\w.'\"<>-]{1,60}){0,60})",
    re.IGNORECASE,
)
_NAME_FORMS = re.compile(
    r"(?<![\w-])(?P<option>--?[A-Za-z][\w-]{1,60})|['\"`‘](?P<quoted>[^'\"`‘’\s]{2,120})['\"`’]"
    r"|(?<![\w.-])(?P<host>(?!\d{1,2}:\d\d)[\w.-]{0,80}:\d{2,5})(?![\w:])|\b(?P<key>[A-Za-z]\w{0,60}_\w{1,60})\b"
)


FOLLOWS = re.compile(
    r"\b(?:parent|upstream|prerequisite|predecessor|dependenc(?:y|ies)|depends on|dependent)\b.{0,80}\b(?:not|fail"
    r"|error|did|never|skip)",
    re.IGNORECASE,
)
"""What tells of a part that did not run because another one had failed."""


class MessageLine(NamedTuple):
    """What a line says, without what its logger puts before it."""

    number: int
    text: str


class MessageBlock(NamedTuple):
    """The lines in which a program tells of one failure."""

    root: MessageLine
    below: tuple[MessageLine, ...]
    above: tuple[MessageLine, ...]
    """Nearest first."""
    before: tuple[MessageLine, ...]
    """What stands before the block in the same attempt, nearest first."""

    @property
    def lines(self) -> tuple[MessageLine, ...]:
        """The root, what is below it, what is above it."""
        return (self.root, *self.below, *self.above)

    @property
    def first(self) -> int:
        """Line with which the block begins."""
        return min(words.number for words in self.lines)


def block_of(line: Line, facts: Facts) -> MessageBlock:
    """Return the block that a line belongs to; where several ranks print the same line, the block of whichever says most."""
    block = _block(line, facts)
    if block.below or len(block.root.text) < SHORTEST_TWIN:
        return block
    twins = [
        twin for twin in facts.lines if twin.text == line.text and twin.number != line.number and not facts.before_leg(twin.number)
    ]
    fullest = max((_block(twin, facts) for twin in twins[:MOST_TWINS]), key=lambda twin: len(twin.below), default=block)
    return fullest if len(fullest.below) > len(block.below) else block


def _block(line: Line, facts: Facts) -> MessageBlock:
    root = _words(line, facts)
    stream = facts.streams.body(line.text).stream
    lines_below = [
        neighbour for neighbour in facts.between(line.number + 1, line.number + BELOW) if _fits(neighbour, stream, facts)
    ]
    below: list[MessageLine] = []
    gap = 0
    for neighbour in lines_below:
        words = _words(neighbour, facts)
        if not words.text:
            gap += 1
            if gap > 1:
                break
            continue
        block_text = " ".join((root.text, *(is_known.text for is_known in below)))
        ended = (below[-1] if below else root).text.endswith((":", ",", "\\"))
        previous = (below[-1] if below else root).text
        goes_on = not gap and words.text[:1].islower() and not previous.endswith((".", "!")) and not _MARK.match(words.text)
        shaped = (
            neighbour.text[:1].isspace()
            or goes_on
            or (ended and not gap)
            or bool(_DETAIL.match(words.text) or _ECHO.match(words.text))
        )
        failed_with_it = not gap and len(below) < MOST_OF_MARK and tells_failure(neighbour.text[:MOST_OF_LINE])
        belongs = shaped or failed_with_it or _CORRECTION.search(words.text) is not None or _shares(words.text, block_text)
        if _STOPS.search(neighbour.text[:MOST_OF_LINE].strip()) or not belongs:
            break
        below.append(words)
        gap = 0
    episode = next((chain for chain in facts.episodes if chain.first <= line.number <= chain.last), None)
    above = _above(line, root, stream, facts) if episode is None else []
    first = min([line.number, *(words.number for words in above)]) if episode is None else episode.first
    leg = facts.progress.leg
    before = [
        _words(neighbour, facts)
        for neighbour in reversed(facts.between(max(leg, first - BEFORE), first - 1))
        if neighbour.text.strip() and facts.streams.body(neighbour.text[:MOST_OF_LINE]).stream in ("", stream)
    ]
    return MessageBlock(root, tuple(below), tuple(above), tuple(before))


def _above(line: Line, root: MessageLine, stream: str, facts: Facts) -> list[MessageLine]:
    above: list[MessageLine] = []
    mark = _MARK.match(root.text)
    for neighbour in reversed(facts.between(max(facts.progress.leg, line.number - ABOVE), line.number - 1)):
        if not _fits(neighbour, stream, facts):
            continue
        words = _words(neighbour, facts)
        is_known = " ".join((root.text, *(upper.text for upper in above)))
        belongs = (
            words.text.endswith(":")
            or any(pattern.search(words.text) for pattern in _PLACES)
            or (tells_failure(neighbour.text[:MOST_OF_LINE]) and not _STOPS.search(neighbour.text.strip()))
            or _shares(words.text, is_known)
            or (mark is not None and words.text.startswith(mark[0]) and len(above) < MOST_OF_MARK)
        )
        if not words.text or _STOPS.search(neighbour.text[:MOST_OF_LINE].strip()) or not belongs:
            break
        above.append(words)
    return above


def _fits(line: Line, stream: str, facts: Facts) -> bool:
    return facts.streams.body(line.text[:MOST_OF_LINE]).stream == stream


def _words(line: Line, facts: Facts) -> MessageLine:
    body = facts.streams.body(line.text[:MOST_OF_LINE])
    text = _LEAD.sub("", body.text, count=1).strip()
    return MessageLine(line.number, text)


def names_in(text: str) -> set[str]:
    """Return what a text calls by name: options, quoted words, hosts with a port, identifiers, files."""
    setting_hit = {match[match.lastgroup or 0] for match in _NAME_FORMS.finditer(text)}
    return {name.strip(":") for name in setting_hit if len(name.strip("-")) >= SHORTEST_NAME} | set(files_in(text))


def _shares(text: str, block_text: str) -> bool:
    return not names_in(text).isdisjoint(names_in(block_text))


def files_in(text: str) -> list[str]:
    """Return the files and folders that a text names, but for sources of programs, libraries and hosts."""
    files = [match["file"].rstrip(".,:") for match in _FILE.finditer(text)]
    return [file for file in files if _HAS_END.search(file) and not _NO_FILE.search(file) and len(file) >= SHORTEST_NAME]


def file_about(block: MessageBlock) -> tuple[str, int]:
    """Return the file that a block is about, and the line that names it; an empty name where no line does.

    The message itself says it, or what the program was doing before it; of several, the one that it touched last.
    """
    program = _program_of(block)
    acts = (
        row
        for row in block.before
        if _ACTS.search(row.text) or command_in(row.text) or (program and row.text.startswith(f"{program} "))
    )
    for words in (*block.lines, *acts):
        files = files_in(words.text)
        if files:
            return files[-1], words.number
    return "", 0


def place_in(block: MessageBlock) -> tuple[str, int]:
    """Return the place in a file of the job that a block names, `file:line`, and the line that names it; or an empty place."""
    for words in block.lines:
        for pattern in _PLACES:
            match = pattern.search(words.text)
            if match is not None and not _NO_FILE.search(match["file"]):
                return f"{match['file']}:{match['line']}", words.number
    bare = next((match for words in block.lines if (match := _BARE_PLACE.search(words.text)) is not None), None)
    file, number = file_about(block)
    return (f"{file}:{bare['line'] or bare['at']}", number) if bare is not None and file else ("", 0)


def work_before(block: MessageBlock) -> MessageLine | None:
    """Return the last line before a block in which the program says what it works on, with a name in it; None without one."""
    program = _program_of(block)
    for words in block.before:
        if tells_failure(words.text):
            continue
        if program and words.text.startswith(f"{program} ") and (names_in(words.text) or files_in(words.text)):
            return words
        if (_ACTS.search(words.text) or command_in(words.text)) and (names_in(words.text) or files_in(words.text)):
            return words
    return None


def _program_of(block: MessageBlock) -> str:
    """Return the name of the program that puts it before each of its lines; empty where none does."""
    mark = _MARK.match(block.root.text)
    name = mark[0].rstrip(":") if mark is not None else ""
    return name if name[:1].isalnum() and name.lower() not in _NO_PROGRAM else ""


_NO_PROGRAM = frozenset({"error", "fatal", "warning", "note", "hint", "info", "exception", "reason", "line", "config", "cfg"})


def command_in(text: str) -> str:
    """Return the command that a line shows; empty where it shows none."""
    match = _COMMAND.match(text)
    return match["command"] if match is not None else ""


def commands_before(block: MessageBlock, facts: Facts) -> Iterator[MessageLine]:
    """Yield the commands that the attempt shows before a block, the last one first."""
    lines, program = facts.between(max(1, facts.progress.leg), block.first), _program_of(block)
    for at in range(len(lines) - 1, -1, -1):
        text = facts.streams.body(lines[at].text[:MOST_OF_LINE]).text.strip()
        if (command := command_in(text)) or (program and text.startswith(f"{program} ") and (command := text)):
            yield MessageLine(lines[at].number, command)
        elif at and _COMMAND_BELOW.match(facts.streams.body(lines[at - 1].text[:MOST_OF_LINE]).text.strip()) and " " in text:
            yield MessageLine(lines[at].number, text)


def command_with(number: str, block: MessageBlock, facts: Facts) -> MessageLine | None:
    """Return the last command before a block in which a number stands by itself; None without one."""
    standing = re.compile(rf"(?<!\d){re.escape(number)}(?!\d)")
    return next((command for command in commands_before(block, facts) if standing.search(command.text)), None)


def start_words(command: MessageLine | None) -> str:
    """Return the sentence that quotes a command by which the program was started, with a blank before it; empty for None."""
    return f" It was started as `{cut(command.text, SHOWN_OF_COMMAND)}` (job.log:{command.number})." if command is not None else ""


def listed_in(block: MessageBlock) -> list[str]:
    """Return the names that a block lists as those that there are; empty where it lists none."""
    for words in block.lines:
        match = _LISTED.search(words.text)
        names = [name.strip("'\"<> ") for name in re.split(r", ?| \| |/", match["names"])] if match is not None else []
        if match is not None and (len(names) > 1 or words is not block.root):
            return [name for name in names if name]
    return []


def nearest_of(name: str, names: Sequence[str]) -> str:
    """Return which of some names one was most likely meant to be; empty where none is near."""
    bare = name.strip("-")
    return next(iter(difflib.get_close_matches(bare, [candidate for candidate in names if candidate != bare], 1, LIKE)), "")


def line_quote(words: MessageLine, most: int = MOST_SHOWN) -> str:
    """Return where a line stands with its words."""
    return f"job.log:{words.number}: {cut(words.text, most).rstrip('.;: ')}"


def block_text(block: MessageBlock) -> str:
    """Return what a block says, in the order of its lines, without what only follows from it, and the lines that it stands in."""
    ordered = sorted({words.number: words for words in block.lines if words.text}.values())
    ordered = [words for words in ordered if not FOLLOWS.search(words.text)] or ordered
    texts = list(dict.fromkeys(words.text for words in ordered if words.text))
    last = ordered[-1].number
    at = f"job.log:{ordered[0].number}" + (f" to {last}" if last != ordered[0].number else "")
    sentence = texts[0]
    for text in texts[1:]:
        wrapped = text[:1].islower() and not _MARK.match(text) and not sentence.endswith((".", "!"))
        sentence += f" {text}" if wrapped or sentence.endswith((":", ",", ";", ".")) else f"; {text}"
    return f"{cut(sentence, 3 * MOST_SHOWN).rstrip('.;')} ({at})"
