"""Say how a name that was not found has to be written: a path, key, option or command that is misspelt, broken or unfilled.

A path that is missing and one that the same log lists differ mostly in one part, and there by a hyphen, a capital or a letter. What
differs in numbers only (a step, a shard) is another thing and no slip. Where no name is near, the folder up to which the log shows
files tells from where on something is missing.

A name of which a part was lost, two that were run together, or a pattern that nobody replaced (`misnamed`) is nothing that could be
installed or fetched, as a template would say: it has to be written otherwise.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.circumstances import option_with
from assistant.diagnose.readers.origin import message_of
from assistant.diagnose.readers.streams import host_like
from assistant.records import Citation

MOST_LINES, MOST_OF_LINE, LINES_BEHIND = 4000, 2000, 30
"""Lines of the attempt that are read for names, the first of them; characters of each; lines behind the cited one."""
SLIP, SHORTEST = 0.8, 4
"""Likeness of two names, 0 to 1, from which on one is taken for a slip of the other, and letters that it takes."""
MOST_ALIKE, WORD_SLIP = 3, 0.6
"""Words of a name from which on two names may be like each other by the others, and likeness of the one that differs."""
SHORTEST_HEAD = 3
"""Characters of the first folder of a path, with its signs, by which others below it are looked for."""
LEAST_SHARED = 1
"""Folders that a relative path has to share with another one; an absolute one shares its root besides."""
LINES_OF_KEYS = 60
"""Lines before a refused key among which the keys that there are may be printed."""
_MISSING = re.compile(
    r"(?:No such file or directory|Errno 2\]|not found|does not exist|doesn't exist|cannot open|can't open|Not a directory)\b"
)
_QUOTED_PATH = re.compile(r"['\"`]((?:/|~/|\.{1,2}/)?[\w.@+=~%-]+(?:/[\w.@+=~%-]+)+/?)['\"`]")
_PATH = re.compile(r"[\w.@+=~/-]{1,400}")
_BARE_PATH = re.compile(r"(?:^|[\s:=(])((?:/|~/)[\w.@+=~-]+(?:/[\w.@+=~-]+)+)")
_HOST = re.compile(r"^(?!(?:INFO|WARN|WARNING|DEBUG|ERROR|Error|Warning)\b)([\w.-]{2,80}): ")
"""What pdsh and launchers of several nodes put before each line."""
_OPENS = re.compile(r"\b(?:load|read|open|sav|wr[io]t|creat|buil[dt]|us(?:e|ing)\b|found|cached?)", re.IGNORECASE)
_FAILS = re.compile(r"[Nn]o such file|[Nn]ot found|[Nn]ot exist|n't exist|n't open|[Cc]annot|[Ff]ailed|rror\b|[Mm]issing")
_WORDS = re.compile(r"[^\W_]+")
_NORMAL = re.compile(r"[\W_]+")
_DIGITS = re.compile(r"\d+")
_REFUSED = (
    re.compile(r"KeyError: ['\"](?P<name>[\w./ -]{2,80})['\"]"),
    re.compile(r"Key ['\"](?P<name>[\w.-]{2,80})['\"] (?:is )?not (?:in struct|found)"),
    re.compile(r"invalid choice: ['\"]?(?P<name>[\w.-]{2,80})['\"]? \(choose from "),
    re.compile(r"[Cc]ould not (?:find|load) ['\"](?:[\w.-]+/)+(?P<name>[\w.-]{2,80})['\"]"),
    re.compile(r"[Nn]o such option:? ['\"]?-{0,2}(?P<name>[\w-]{2,80})"),
    re.compile(r"Could not override ['\"](?:[\w-]+\.)*(?P<name>[\w-]{2,80})['\"]"),
    re.compile(
        r"(?:no|unknown|unexpected|invalid|missing) (?:attribute|key|field|column|option|setting|argument|parameter|variable|"
        r"keyword argument)s?:? ['\"](?P<name>[\w.-]{2,80})['\"]",
        re.IGNORECASE,
    ),
    re.compile(r"['\"](?P<name>[\w.-]{2,80})['\"] (?:is not in|not in|does not exist in|is not a (?:valid|known))", re.IGNORECASE),
)
"""Forms in which a name is refused that is looked up among others."""
_KEY_LINE = re.compile(r"^[\s>|-]{0,30}['\"]?([A-Za-z_][\w.-]{1,60})['\"]?\s{0,2}[:=]")
_QUOTED_KEY = re.compile(r"['\"]([A-Za-z_][\w.-]{1,60})['\"]")
_CHOICES = re.compile(r"\((?:choose from|Possible options:?|Did you mean) (.{1,1600})\)|Did you mean (.{1,200})\?")
_LISTED = re.compile(r"^[\t >*-]{1,12}([A-Za-z_][\w.-]{1,60})$")
"""One of the options that a program lists, each on a line."""
_CHOICE = re.compile(r"\w[\w.-]{1,80}")
_OPTION_KEY = re.compile(r"(?<![\w-])--?([A-Za-z][\w-]{2,60})|(?<![\w.])([A-Za-z_]\w{2,60})=")


class _Near(NamedTuple):
    listed: str
    """What the log has, up to the part that differs."""
    part: str
    missing_part: str
    line: int


def near_name(cited: Citation, facts: Facts) -> str:
    """Return what the log has in place of a missing path or a refused name; empty where nothing in it is near."""
    if cited.file != "job.log":
        return ""
    message = " ".join(message_of(cited, facts)[:4])[:MOST_OF_LINE]
    if (path := missing_path(message)) and (near := _near_path(path, cited, facts)) is not None:
        return f"The log has {near.listed} (job.log:{near.line}), with `{near.part}` for `{near.missing_part}`: correct that name."
    if (name := _refused(message)) and (key := _near_key(name, cited, facts)) is not None:
        return f"The log has `{key[0]}` (job.log:{key[1]}) where `{name}` is asked for: write it so."
    return ""


def known_folder(cited: Citation, facts: Facts) -> tuple[str, str]:
    """Return up to which folder the log shows other files beside a missing one, and where it shows them; two empty texts without.

    It is the longest folder that the missing path shares with a path in a line that tells of no failure.
    """
    path = missing_path(" ".join(message_of(cited, facts)[:4])[:MOST_OF_LINE]) if cited.file == "job.log" else ""
    if not path:
        return "", ""
    parts = path.split("/")
    longest, example = LEAST_SHARED + path.startswith("/"), ""
    inside = [episode for episode in facts.episodes if episode.first <= cited.line]
    for number, parts_there in _paths_below(parts, cited, facts):
        shared = next((place for place, (a, b) in enumerate(zip(parts, parts_there, strict=False)) if a != b), 0)
        if longest <= shared < len(parts_there) and number < cited.line and not any(number in episode.lines for episode in inside):
            longest, example = shared + 1, f"{'/'.join(parts_there)} (job.log:{number})"
    return ("/".join(parts[: longest - 1]), example) if example else ("", "")


def on_other_host(cited: Citation, facts: Facts) -> str:
    """Return on which host the log shows the file that is missing on another one; empty where it does not tell hosts apart."""
    path = missing_path(" ".join(message_of(cited, facts)[:4])[:MOST_OF_LINE]) if cited.file == "job.log" else ""
    host = _HOST.match(cited.text)
    if not path or host is None or not path.startswith("/"):
        return ""
    lines = facts.between(max(facts.progress.leg, cited.line - MOST_LINES), cited.line - 1)
    if not host_like(host[1]) and not any("Traceback" in line.text and line.text.startswith(f"{host[1]}: ") for line in lines):
        return ""
    for line in lines:
        other_host = _HOST.match(line.text) if path in line.text else None
        if other_host is None or other_host[1] == host[1] or _FAILS.search(line.text) or _OPENS.search(line.text) is None:
            continue
        return (
            f"{path} is missing on {host[1]} only: {other_host[1]} (job.log:{line.number}) has it, so make or copy it there, too, "
            f"or put it on "
            "storage that all nodes share; where the program makes it itself, let one process of each node do that, and the "
            "others wait."
        )
    return ""


def missing_path(message: str) -> str:
    """Return the path of at least two parts that a message says is not there; empty where it names none."""
    if _MISSING.search(message) is None:
        return ""
    match = _QUOTED_PATH.search(message) or _BARE_PATH.search(message)
    return match[1].rstrip("/.") if match is not None else ""


def _near_path(path: str, cited: Citation, facts: Facts) -> _Near | None:
    """Return the path of the log that differs from a missing one in one part, by a slip; None where none does."""
    parts = path.split("/")
    for number, parts_there in _paths_below(parts, cited, facts):
        place = next((at for at, (a, b) in enumerate(zip(parts, parts_there, strict=False)) if a != b), -1)
        if place > 0 and is_slip_of(parts[place], parts_there[place]):
            return _Near("/".join(parts_there[: place + 1]), parts_there[place], parts[place], number)
    return None


def _paths_below(parts: Sequence[str], cited: Citation, facts: Facts) -> Iterator[tuple[int, list[str]]]:
    """Yield the parts of the paths in the lines of the attempt that begin with the same folder and tell of no failure."""
    head = "/".join(parts[: 1 + (not parts[0])]) + "/"
    if len(head) < SHORTEST_HEAD:
        return
    for line in facts.between(facts.progress.leg, cited.line + LINES_BEHIND)[:MOST_LINES]:
        text = line.text[:MOST_OF_LINE]
        at = text.find(head)
        if at < 0 or line.number == cited.line or _FAILS.search(text):
            continue
        while at >= 0:
            if at == 0 or not (text[at - 1].isalnum() or text[at - 1] in "./-_~"):
                match = _PATH.match(text, at)
                if match is not None:
                    yield line.number, match[0].rstrip("/.").split("/")
            at = text.find(head, at + len(head))


def is_slip_of(name: str, listed: str) -> bool:
    """Tell whether two names differ by a slip: in signs and capitals, or in few letters; numbers that differ are none."""
    if _NORMAL.sub("", name.lower()) == _NORMAL.sub("", listed.lower()):
        return name != listed
    if min(len(name), len(listed)) < SHORTEST or _DIGITS.findall(name) != _DIGITS.findall(listed):
        return False
    if difflib.SequenceMatcher(None, name.lower(), listed.lower()).ratio() < SLIP:
        return False
    words, words_listed = _WORDS.findall(name.lower()), _WORDS.findall(listed.lower())
    apart = [(a, b) for a, b in zip(words, words_listed, strict=False) if a != b]
    if len(words) != len(words_listed) or len(words) < MOST_ALIKE or len(apart) != 1:
        return True
    return difflib.SequenceMatcher(None, *apart[0]).ratio() >= WORD_SLIP  # of a row of names one word is meant to differ


def _refused(message: str) -> str:
    match = next((match for pattern in _REFUSED if (match := pattern.search(message))), None)
    return match["name"] if match is not None else ""


def _near_key(name: str, cited: Citation, facts: Facts) -> tuple[str, int] | None:
    """Return the key that the log prints around a refused one and that is nearest to it, with its line; None without one."""
    keys: dict[str, int] = {}
    first, last = max(facts.progress.leg, cited.line - LINES_OF_KEYS), cited.line + LINES_BEHIND
    near = [episode for episode in facts.episodes if episode.first <= last and episode.last >= first]
    for line in facts.between(first, last):
        text = line.text[:MOST_OF_LINE]
        if line.number != cited.line and any(line.number in episode.lines for episode in near):
            continue  # lines of source, of which the refused one is mostly one
        names = [*_KEY_LINE.findall(text), *_QUOTED_KEY.findall(text)]
        names += [first or second for first, second in _OPTION_KEY.findall(text)] if line.number != cited.line else []
        names += _LISTED.findall(text) if line.number > cited.line else []
        names += _CHOICE.findall(match[1] or match[2]) if line.number == cited.line and (match := _CHOICES.search(text)) else []
        for key in names:
            keys.setdefault(key, line.number)
    alike = [key for key in keys if is_slip_of(name, key)]
    best = max(alike, key=lambda key: difflib.SequenceMatcher(None, name, key).ratio(), default=None)
    return (best, keys[best]) if best is not None else None


MOST_OF_MESSAGE, MESSAGE_LINES, SHOWN_OF_COMMAND = 2000, 4, 120
LEAST_LOST, MOST_LOST, LEAST_LEFT = 1, 2, 2
"""Characters that a command may have lost at its beginning, and those that have to be left of it."""
LEAST_GLUED, ADVISED_WITHIN = 3, 40
_COMMAND = re.compile(
    r"(?:(?P<script>[\w.~/-]{1,200}): )?(?:line (?P<line>\d{1,6}): )?(?<![\w./-])"
    r"(?P<command>[A-Za-z_][\w.+/-]{1,119}): (?:command )?not found\b"
)
_COMMON = frozenset(
    "echo python python3 module source export conda mamba srun sbatch mpirun mpiexec torchrun accelerate deepspeed bash cat "
    "cp mv rm "
    "mkdir cd ls sed awk grep head tail sleep date wget curl tar unzip gzip gunzip git pip make cmake gcc singularity "
    "apptainer docker "
    "nextflow snakemake samtools bedtools bcftools java perl ruby Rscript julia matlab node npm unset printf exit done else "
    "elif then "
    "while function return local declare eval exec trap ulimit chmod chown find sort uniq touch rsync ssh scp time nohup tee xargs "
    "sudo apt-get yum set true false test".split()
)
"""Commands and words of a shell that a script is full of."""
_GLUED = (
    "python3",
    "python",
    "module",
    "source",
    "export",
    "conda",
    "srun",
    "sbatch",
    "mpirun",
    "torchrun",
    "bash",
    "Rscript",
    "echo",
)
"""Commands behind which a blank is forgotten; none of them is the beginning of another program's usual name."""
_ABSENT = re.compile(
    r"[Nn]o such (?:file|host|container)|[Nn]ot found|does not exist|doesn't exist|cannot (?:open|stat|access|find)"
    r"|can't open|[Ff]ail(?:ed)? to open"
    r"|[Cc]ould(?: not|n't) (?:open|find|resolve|read|connect)|not a local folder|valid model identifier"
    r"|[Nn]ame or service not known"
    r"|not a (?:valid )?(?:directory|file|path)|[Ii]nvalid|[Ii]ncorrect|[Uu]nauthorized|denied|[Uu]nable to (?:open|find|read"
    r"|locate)|Errno 2\b"
    r"|[Nn]ot a directory|[Mm]issing|[Uu]nknown"
)
_PLACEHOLDERS = (
    re.compile(
        r"<[A-Za-z][A-Za-z0-9]{0,30}(?:[_ -][A-Za-z0-9]{1,30}){1,5}>|(?<=/)<[A-Za-z][\w-]{0,40}>|<[A-Za-z][\w-]{0,40}>(?=/)"
    ),
    re.compile(r"\*{2,3}[A-Za-z][\w-]{1,40}\*{2,3}"),
    re.compile(r"\{\{ ?[A-Za-z_][\w.]{0,40} ?\}\}"),
    re.compile(r"(?<![A-Za-z])(?:[Yy]our|YOUR)[-_](?:[A-Za-z]+[-_]?){1,4}(?![A-Za-z])|(?<=/)your(?=/)"),
    re.compile(r"(?<![\w])/?path[/_-]to[/_-][\w./-]{0,80}", re.IGNORECASE),
    re.compile(
        r"(?<![A-Za-z])(?:CHANGE_?ME|REPLACE_?(?:ME|THIS|WITH_\w{1,30})|INSERT_\w{1,40}|FILL_?ME(?:_IN)?|PLACEHOLDER)(?![A-Za-z])"
    ),
)
_VARIABLE = re.compile(r"\$\{[A-Za-z_]\w{0,40}\}|\$[A-Z_][A-Z0-9_]{1,40}\b")
_BRACED = re.compile(r"(?<=[/'\"_.-])\{[A-Za-z_][\w.]{0,40}\}")
_HOME = re.compile(r"['\"](?P<path>~/[^'\"\s]{1,200})['\"]")
_GLUED_OUTPUT = re.compile(
    r"Cannot find primary config ['\"]?(?P<name>[\w./-]{1,80}?(?P<output>(?:>{1,2}[^'\"\s]{1,80})"
    r"|(?:[\d@][\w@.-]{0,80})?\.(?:out|log|err|txt)))['\"]?(?=[.,;'\"\s]|$)"
)
_SENTENCE = re.compile(r"(?<=[\w)\]'\"`])[.!?;](?: |$)|\n")
"""What a message says besides, such as how a command is to be written, holds placeholders that are meant."""
_ADVISED = re.compile(
    r"\b(?:e\.g|like|such as|for example|use|using|run|pass(?:ing)?|set|add|provide|call|try|by)\b", re.IGNORECASE
)
_STATUS = re.compile(
    r"Command ['\"]?(?P<command>.{1,2000}?)['\"]? (?:returned non-zero exit status (?P<code>\d{1,3})"
    r"|died with <Signals\.(?P<signal>SIG\w{2,8}))"
)
_SIGNALS = {"137": "SIGKILL", "139": "SIGSEGV", "134": "SIGABRT", "132": "SIGILL", "135": "SIGBUS", "143": "SIGTERM"}
_SHELL = re.compile(r"[|;&<>`$(]|\bset -")
_WORD = re.compile(r"[\w./+~-]{1,200}")
_ENDS = {
    "127": "{program} is not found: status 127 is what the shell gives for a program that is not on its PATH. Install it, "
    "load its module "
    "or activate its environment where `{command}` is started, or write its whole path there.",
    "126": "{program} is there and may not be run (status 126): make it executable (chmod +x), and see that its first line "
    "names a program "
    "that exists and that it was built for this kind of machine. It is started as `{command}`.",
    "124": "`timeout` ended `{command}` (status 124): allow it more time, or find out what it waits for.",
    "SIGSEGV": "`{command}` crashed by itself (a segmentation fault), and printed nothing of it here: run that command by "
    "hand on the same "
    "node, with a core file (ulimit -c unlimited) or under gdb.",
    "SIGILL": "`{command}` was built for another kind of processor than that of this node (SIGILL): build or install it on "
    "this kind of "
    "node, or ask for nodes of the kind that it was built for.",
}


def misnamed(cited: Citation, facts: Facts) -> str:
    """Return how a name that is not there has to be written, where the message shows what is wrong with it; else an empty text."""
    message = " ".join(message_of(cited, facts)[:MESSAGE_LINES])[:MOST_OF_MESSAGE]
    if command := _COMMAND.search(message):
        return _broken_command(command["command"], command["script"] or "", command["line"] or "")
    if status := _STATUS.search(message):
        return _by_status(status)
    if glued := _GLUED_OUTPUT.search(message):
        return (
            f"`{glued['name']}` is no name of a configuration: the end of it, `{glued['output']}`, is the file that the "
            f"output was to go "
            "to. A blank and the > are missing between the two in the command: write NAME > OUTPUT."
        )
    sentence = next((part for part in _SENTENCE.split(message) if _ABSENT.search(part)), "")
    return (_unfilled(sentence, cited, facts) or on_other_host(cited, facts)) if sentence else ""


def _broken_command(command: str, script: str, line: str) -> str:
    """Return of which command one is the end, or which two words it is run together of; empty of any other name."""
    place = f"line {line} of {script or 'the script'}" if line else "the script"
    candidates = [name for name in _COMMON if LEAST_LOST <= len(name) - len(command) <= MOST_LOST and name.endswith(command)]
    if command not in _COMMON and len(command) >= LEAST_LEFT and candidates:
        names = " or ".join(f"`{name}`" for name in sorted(candidates, key=lambda name: (len(name), name))[:2])
        return (
            f"`{command}` is no program to be installed but what is left of {names}: correct {place}, where the beginning of "
            f"the word is "
            "missing. Where the file has the whole word, the script was changed while the shell was reading it: start it "
            "again, and "
            "change only a copy of a script that runs."
        )
    for name in _GLUED:
        remainder = command.removeprefix(name)
        if remainder != command and len(remainder) >= LEAST_GLUED and not remainder[0].isdigit() and remainder[0] not in "._-+":
            return f"A blank is missing in {place}: `{command}` is to be `{name} {remainder}`, and no program has that name."
    return ""


def _by_status(status: re.Match[str]) -> str:
    """Return what the status of a command that a program had started tells; empty of one that only says that it failed."""
    command = " ".join(_listed(status["command"]).split())
    words = [word for word in _WORD.findall(command) if "=" not in word]
    text = _ENDS.get(status["signal"] or _SIGNALS.get(status["code"] or "", status["code"] or ""))
    if text is None or not words:
        return ""
    program = "A program in it" if _SHELL.search(command) else words[0]
    return text.format(program=program, command=cut(command, SHOWN_OF_COMMAND))


def _listed(command: str) -> str:
    """Return a command as it is typed, where it is given as a list of Python."""
    return re.sub(r"['\"],? ?['\"]?", " ", command.strip("[]'\" ")) if command.startswith("[") else command


def _unfilled(message: str, cited: Citation, facts: Facts) -> str:
    """Return which placeholder or variable a missing name still holds; empty where it holds none."""
    for pattern in _PLACEHOLDERS:
        if (match := pattern.search(message)) is not None and not _ADVISED.search(message[: match.start()][-ADVISED_WITHIN:]):
            name = _around(message, match)
            option_given = option_with(facts, name, cited.line) if name else ""
            option_words = f" (it was given by {option_given})" if option_given else ""
            return (
                f"`{name}` still holds the placeholder `{match[0]}` of an example or a template{option_words}: write there what it "
                f"stands for, in "
                "the script or the configuration that names it. Nothing has to be made or fetched under that name."
            )
    if (match := _VARIABLE.search(message)) is not None:
        name = _around(message, match)
        return (
            f"`{name}` reached the program with `{match[0]}` as it is written: nothing replaced the variable. A shell does it "
            f"outside of "
            "single quotes only, and a configuration file or Python does not by itself (os.path.expandvars): write the value, "
            "or set the "
            "variable and have it expanded."
        )
    if (match := _BRACED.search(message)) is not None:
        name = _around(message, match)
        return (
            f"`{name}` still holds `{match[0]}`: nothing filled it in. In Python the f before the quote (or .format) is "
            f"missing; in a "
            "template or a configuration that name is not defined."
        )
    if (match := _HOME.search(message)) is not None:
        return (
            f"`{match['path']}` begins with ~, which only a shell replaces by the home folder: write the whole path, or take "
            "os.path.expanduser() where it is read."
        )
    return ""


def _around(message: str, match: re.Match[str]) -> str:
    """Return the whole name in which a placeholder stands: up to blanks and quotes on both sides."""
    first, last = match.span()
    while first > 0 and message[first - 1] not in " '\"`(=,;":
        first -= 1
    while last < len(message) and message[last] not in " '\"`),;":
        last += 1
    return message[first:last].rstrip(".:")
