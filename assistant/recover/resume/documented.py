"""What the owner documents on how a run is carried on: `make resume`, `CKPT=40 sbatch run.sh`, `bin/titan resume RUN`.

Lines of the files beside a script are quoted to people as they stand there; nothing is ever run by them: they are untrusted text.
Only of a plain `sbatch` of the very same script the variables are taken, as a way that a trial start in the sandbox has to prove
before it counts.

The program of an owner's command has to be a file of the owner's own, in the folder of the job, that nobody else may write, and so
has the file that names it; its words hold nothing that a shell would change. A trial start lets it say in the sandbox what it would
submit.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from assistant.accounts import account_of
from assistant.errors import InputError
from assistant.records import Job
from assistant.recover.job_program import FileReader
from assistant.recover.joblog import log_lines
from assistant.recover.restart import NOT_SAFE
from assistant.recover.resume.means import OwnerCommand
from assistant.recover.resume.script_variable import counts_for_a_step, is_harmless, names_a_checkpoint
from assistant.recover.shell.folders import listed_folder
from assistant.redact import head_of
from assistant.schedulers.slurm_spec import exports_plainly
from assistant.untrusted import LOOK_S, reading_as, within

BOOKS = re.compile(r"(?:read_?me|how_?to|usage|running|notes?|instructions)(?:\.(?:md|txt|rst|org))?", re.IGNORECASE)
MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
SHELL_FILES = (".sh", ".bash", ".sbatch", ".slurm", ".job", "")
MOST_BOOKS = 6
MOST_BOOK_BYTES = 64 << 10
MOST_LINES = 3
"""Lines that are told."""
LONGEST_LINE = 160
SPEAKS_OF_IT = re.compile(
    r"(?:resum|continu|restart|re-start)(?![\w.]*/)|go(?:es|ing)? on\b|pick(?:s|ing)? up|carr(?:y|ies|ying) (?:\w+ )?on"
    r"|same run|again"
    r"|from (?:a |the )?(?:last |newest |latest |old )?(?:checkpoint|run)",
    re.IGNORECASE,
)
COMMAND = re.compile(
    r"\bsbatch\s+\S|\bmake\s+[\w-]+|(?<![\w/])\./[\w./-]+|\b(?:bash|sh|python3?)\s+[\w./-]+|\b[A-Z][A-Z0-9_]+=\S+\s+\S"
)
TARGET = re.compile(r"(?P<name>[\w-]*(?:resum|continu|restart)[\w-]*)\s*:(?!=)", re.IGNORECASE)
MAKES = re.compile(r"\bmake\s+(?:-\S+\s+)*(?P<name>[\w-]+)")
REMOVES = re.compile(r"\brm\s|\brmdir\s|\bunlink\s|-delete\b|\brmtree\b|\bmv\s|\btruncate\s|>\s*[\w./$]")
NAMED_PLACE = re.compile(
    r"[<\[{(]?\$?\{?(?:[A-Z_]*(?:PATH|CKPT|CHECKPOINT|FILE|DIR|FOLDER)|path\S*|checkpoint\S*|ckpt\S*)\}?[>\])}]?|\.\.\."
)
YES = frozenset(("1", "true", "yes", "on", "auto", "latest", "last", "newest", "resume"))
OPPOSITE = re.compile(
    r"\b(?:never|not|no|cannot|\w+n't|without|instead|scratch|anew|afresh|fresh|clean\w*|remov\w+|delet\w+|discard\w*|ignor\w+|"
    r"disabl\w+|except|unless|begins? again|start(?:s|ing)? over|from (?:the )?(?:start|beginning|zero)|empty|broken|debug\w*|"
    r"evaluat\w+)\b",
    re.IGNORECASE,
)
"""Words of lines that speak of the opposite, or of something else: no variable is taken from them."""
VALUED_OPTION = re.compile(r"-[a-zA-Z]|--[\w-]+")


class DocumentedWay(NamedTuple):
    """What the files beside a script say on how its run goes on."""

    usage: str = ""
    """The lines, each with its file and number, for people; empty where none does."""
    variables: tuple[str, ...] = ()
    """Assignments of a documented submission of the same script, as of `ResumeWay.trial_variables`."""


def documented_way(job: Job, read: FileReader) -> DocumentedWay:
    """Return what README, Makefile and launching scripts of a job's folder say on how its run is carried on.

    Args:
        job: With its spec.
        read: Reads with its owner's rights.

    Raises:
        Unavailable: The storage did not answer.
    """
    folder = folder_of_documents(job)
    if job.spec is None or folder is None:
        return DocumentedWay()
    texts = dict(texts_of(job, folder, read))
    targets = {name: lines for text in texts if text in MAKEFILES for name, lines in _targets(texts[text])}
    lines: list[str] = []
    variables: list[str] = []
    for name, text in texts.items():
        for number, line, about in _telling_lines(name, text):
            lines.append(f"{name}:{number} says: {head_of(line, LONGEST_LINE)}{_warning(line, targets)}")
            variables += _assignments(job, folder, line, read) if about and not OPPOSITE.search(line) else []
    lines = list(dict.fromkeys(lines))[:MOST_LINES]
    return DocumentedWay("; ".join(lines), tuple(dict.fromkeys(variables)))


def texts_of(job: Job, folder: Path, read: FileReader, script_folders: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield name and text of the files that may tell: books first, then makefiles, then scripts that submit or start something.

    Args:
        job: With its spec.
        folder: Of the job.
        read: Reads with its owner's rights.
        script_folders: Names of folders in it in which scripts lie as well.
    """
    names = _names(job, folder)
    books = [name for name in names if BOOKS.fullmatch(name)][:MOST_BOOKS]
    makefiles = [name for name in MAKEFILES if name in names][:1]
    names += [f"{inner}/{name}" for inner in script_folders for name in _names(job, folder / inner)]
    scripts = [name for name in names if PurePosixPath(name).suffix in SHELL_FILES and name not in (*books, *MAKEFILES)]
    for name in (*books, *makefiles, *scripts[: MOST_BOOKS * 2]):
        text = read(str(folder / name))
        is_script = name in scripts
        if text and (not is_script or (text.startswith("#!") and "sbatch" in text and not is_the_script(job, text))):
            yield name, text


def _names(job: Job, folder: Path) -> list[str]:
    entries = listed_folder(job.account, str(folder)) or ()
    return sorted(entry.name for entry in entries if not entry.folder and not entry.link and 0 < entry.size <= MOST_BOOK_BYTES)


def _telling_lines(name: str, text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield number and text of the lines that tell, and whether they show a submission."""
    comments_only = not BOOKS.fullmatch(name) and name not in MAKEFILES
    before = ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()[:2000]
        spoken = line.lstrip("#>*-$ `").strip("` ")
        if name in MAKEFILES and (match := TARGET.match(raw)) is not None:
            yield number, f"the target {match['name']}", False
        elif (not comments_only or line.startswith("#")) and COMMAND.search(spoken) and SPEAKS_OF_IT.search(f"{before} {spoken}"):
            yield number, spoken, "sbatch" in spoken
        before = spoken if not COMMAND.search(spoken) or comments_only else ""


def _targets(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the targets of a makefile with the lines of their recipes."""
    name, recipe = "", list[str]()
    for line in text.splitlines():
        head = re.match(r"([\w.-]+)\s*:(?!=)", line)
        if head is not None:
            if name:
                yield name, recipe
            name, recipe = head[1], []
        elif line.startswith("\t") and name:
            recipe.append(line.strip())
    if name:
        yield name, recipe


def _warning(line: str, targets: Mapping[str, Sequence[str]]) -> str:
    """Return which commands of the targets that a line names remove something or write over it; empty where none is seen to."""
    names = [match["name"] for match in MAKES.finditer(line)] or re.findall(r"^the target ([\w-]+)", line)
    harmful = {name: next((command for command in targets.get(name, ()) if REMOVES.search(command)), "") for name in names}
    words = ", ".join(f"`make {name}` runs `{head_of(command, 80)}`" for name, command in harmful.items() if command)
    return f" ({words}: look before it is run)" if words else ""


def _assignments(job: Job, folder: Path, line: str, read: FileReader) -> Iterator[str]:
    """Yield the assignments of a line that plainly submits the very same script, with a template for the checkpoint."""
    code = line.partition(" #")[0].partition("`")[0]
    try:
        words = shlex.split(code[code.index("sbatch") :]) if "sbatch" in code else []
        leading = shlex.split(code[: code.index("sbatch")]) if words else []
    except ValueError:
        return
    if not words or words[0] != "sbatch" or any(mark in code for mark in ("|", ";", "&", "$(", ">", "<(")):
        return
    script = next(
        (word for word in words[1:] if not word.startswith("-") and is_the_script(job, read(str(folder / word)) or "")), ""
    )
    if not script or words[-1] != script:
        return  # arguments behind the script are its owner's to give
    for word in leading:
        name, equals, value = word.partition("=")
        is_number = value.isdecimal() and value not in YES
        if not names_a_checkpoint(name) or (is_number and not counts_for_a_step(name)):
            continue
        if equals and job.spec is not None and exports_plainly(job.spec, name):
            yield from map(partial("{}={}".format, name), templates_of_example(value))


def templates_of_example(value: str) -> tuple[str, ...]:
    """Return what stands for the value that a line shows as an example."""
    if value.lower() in YES:
        return (value,)
    if value.isdecimal():
        return ("{step}",)
    if "/" in value or NAMED_PLACE.fullmatch(value):
        return ("{checkpoint}", "{name}")
    return ("{name}", "{checkpoint}") if not NOT_SAFE.search(value) else ()


def is_the_script(job: Job, text: str) -> bool:
    """Tell whether a text is that of a job's own script, but for lines that say nothing to a shell."""

    def code(script: str) -> list[str]:
        return [line.strip() for line in script.splitlines() if line.strip() and not line.lstrip().startswith("#")]

    return job.spec is not None and bool(code(text)) and code(text) == code(job.spec.script.replace(" ${NIGHTSHIFT_ARGS:-}", ""))


SCRIPT_FOLDERS = ("bin", "scripts", "tools", "sbin")
"""Folders below that of a job in which its owner's commands lie."""
SHELLS = frozenset(("bash", "sh", "dash", "python3", "python"))
SCRIPT, LOG = "its script", "its log"
MOST_COMMANDS = 2
MOST_WORDS = 8
QUOTED = re.compile(r"`(?P<tick>[^`\n]{3,200})`|\"(?P<double>[^\"\n]{3,200})\"|'(?P<single>[^'\n]{3,200})'")
WRAPPED = re.compile(r"--wrap[= ]\s*(?:\"[^\"\n]*\"|'[^'\n]*'|\S+)")
"""What `sbatch --wrap` submits: it is the run, and submits nothing itself."""
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=\S*")
BEGINS = re.compile(
    r"(?<![\w/.-])(?:[A-Z_][A-Z0-9_]*=\S+\s+)*(?:make|(?:ba|da)?sh|python3?|(?:\.{1,2}/)?[\w.-]*/?[\w./-]*/[\w.-]+)\s"
)
SPEAKS = re.compile(r"resum|continu|restart|again|go[-_]?on|carry[-_]?on|pick[-_]?up", re.IGNORECASE)
"""Words of a command that say themselves that it goes on."""
PLACE = re.compile(r"<(?P<angle>[\w -]{1,40})>|\{(?P<brace>\w{1,40})\}|(?P<capitals>[A-Z][A-Z0-9_]{1,40})")
"""What stands for something that its caller fills in."""


def folder_of_documents(job: Job) -> Path | None:
    """Return the folder in which a job's owner documents it; None where no absolute path of it is known."""
    folder = job.work_dir or (job.spec.work_dir if job.spec is not None else None)
    return Path(folder) if folder is not None and Path(folder).is_absolute() else None


def owner_commands(job: Job, read: FileReader) -> tuple[OwnerCommand, ...]:
    """Return the commands by which the owner of a job carries its run on, the likeliest first.

    Args:
        job: With its spec.
        read: Reads with its owner's rights.

    Raises:
        Unavailable: The storage did not answer.
    """
    folder = folder_of_documents(job)
    if job.spec is None or folder is None:
        return ()
    own_script = "\n".join(line for line in job.spec.script.splitlines() if not line.startswith(("#!", "#SBATCH")))
    log = "\n".join(line.text for line in log_lines(job))
    named_texts = texts_of(job, folder, read, SCRIPT_FOLDERS)
    texts = [(name, text) for name, text in named_texts if is_owners_own(job.account, folder, name)]
    commands = [
        *(command for name, text in texts for command in _of_text(job, folder, name, _lines(name, text))),
        *_of_text(job, folder, SCRIPT, _lines(SCRIPT, own_script)),
        *said_commands(job, log, LOG),
    ]
    return _distinct(commands)[:MOST_COMMANDS]


def said_commands(job: Job, text: str, place: str) -> tuple[OwnerCommand, ...]:
    """Return the commands that a program itself names as the way to go on, in quotes: "use `bin/titan resume`".

    Args:
        job: With its spec.
        text: What it printed.
        place: Where, for people.
    """
    folder = Path(job.work_dir or (job.spec.work_dir if job.spec is not None else "/"))
    lines = ((number, line.strip()[:1000]) for number, line in enumerate(text.splitlines(), 1) if SPEAKS_OF_IT.search(line))
    return _distinct(_of_text(job, folder, place, ((number, line) for number, line in lines if QUOTED.search(line))))


def _distinct(commands: Iterable[OwnerCommand]) -> tuple[OwnerCommand, ...]:
    by_words: dict[tuple[str, ...], OwnerCommand] = {}
    for command in commands:
        by_words.setdefault(command.words, command)
    return tuple(by_words.values())


def _of_text(job: Job, folder: Path, place: str, lines: Iterable[tuple[int, str]]) -> Iterator[OwnerCommand]:
    """Yield the commands of the lines of one text whose program is the owner's own."""
    is_own = partial(is_owners_own, job.account, folder)
    for number, line in lines:
        for words in _commands_in(line):
            filled = _filled(job, words)
            program = _program(filled) if filled else ""
            program = next((item for item in MAKEFILES if is_own(item)), "") if program == "make" else program
            if program and is_own(program):
                yield OwnerCommand(filled, f"{place}:{number}", str(folder / program))


def is_owners_own(account: str, folder: Path, name: str) -> bool:
    """Tell whether a file of a folder is its owner's own and nobody else may write it or put another one into its place."""
    owner = account_of(account)

    def look() -> bool:
        path = folder / name
        uid, gid = (owner.uid, owner.gid) if owner is not None else (os.geteuid(), os.getegid())
        inner = [parent for parent in path.parents if parent == folder or folder in parent.parents]
        checked = [path.lstat(), *(parent.lstat() for parent in inner)]
        is_plain = stat.S_ISREG(checked[0].st_mode) and path.resolve(strict=True) == path and folder in path.parents
        return is_plain and all(
            about.st_uid == uid and not about.st_mode & stat.S_IWOTH and (not about.st_mode & stat.S_IWGRP or about.st_gid == gid)
            for about in checked
        )

    try:
        with reading_as(account):
            return ".." not in PurePosixPath(name).parts and within(LOOK_S, look, str(folder / name))
    except (OSError, InputError, ValueError):
        return False


def _lines(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that speak of going on, a makefile's targets as commands; of a script its comments alone."""
    is_book, before = BOOKS.fullmatch(name) is not None, ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()[:1000]
        if name in MAKEFILES and (match := TARGET.match(raw)) is not None:
            yield number, f"`make {match['name']}`"
        elif is_book or line.startswith("#"):
            line = line.lstrip("#>*- ").removeprefix("$ ")
            is_command = BEGINS.match(f"{line} ") is not None or QUOTED.search(line) is not None
            if SPEAKS_OF_IT.search(line) or (is_command and SPEAKS_OF_IT.search(before)):
                yield number, line
            before = line if line and not is_command else ""


def _commands_in(line: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of the commands that a line shows; where it quotes several, of those that say themselves that they go on."""
    line = WRAPPED.sub("", line)
    quoted = [match[match.lastgroup or 0] for match in QUOTED.finditer(line)]
    quoted = [text for text in quoted if BEGINS.match(f"{text} ")]
    if quoted:
        spoken = [text for text in quoted if SPEAKS.search(text)]
        for text in spoken or (quoted if len(quoted) == 1 else []):
            yield tuple(_command_text(text).split())
        return
    match = BEGINS.search(f"{line} ")
    if match is None:
        return
    command_text = _command_text(line[match.start() :])
    words = command_text.split()
    is_usage = match.start() == 0 and (command_text != line or bool(SPEAKS.search(" ".join(words[:MOST_WORDS]))))
    yield tuple(words if is_usage and len(words) <= MOST_WORDS else _plain(words))


def _command_text(text: str) -> str:
    """Return a command without what is said behind it in columns, in brackets or as a comment."""
    return re.split(r"\s{2,}|\t|\s#|\s\[|\s\(|\s[-\u2013\u2014:]\s", text.strip())[0].rstrip(" .,;:")


def _plain(words: list[str]) -> list[str]:
    """Return the words of a command in the middle of a sentence, as far as they look like such."""
    begin = next((place for place, word in enumerate(words) if not ASSIGNMENT.fullmatch(word)), 0)
    count = begin + (2 if words[begin] in {"make", *SHELLS} else 1)
    for word in words[count:]:
        is_argument = word.startswith("-") or SPEAKS.fullmatch(word) or PLACE.fullmatch(word) or re.search(r"[\d/=.]", word[:-1])
        if not is_argument:
            break
        count += 1
    return words[:count]


def _filled(job: Job, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a command with its places filled from the job's own variables and name; nothing where one stays open."""
    variables = {name.lower(): text for name, text in (job.spec.environment if job.spec is not None else {}).items()}
    out: list[str] = []
    for word in words:
        match = PLACE.fullmatch(word)
        value = word if match is None else _value(job, next(filter(None, match.groups())), variables)
        if not value or NOT_SAFE.search(value) or (ASSIGNMENT.fullmatch(value) and not is_harmless(value.partition("=")[0])):
            return ()
        out.append(value)
    return tuple(out) if len(out) <= MOST_WORDS else ()


def _value(job: Job, name: str, variables: Mapping[str, str]) -> str:
    """Return what a place of a command stands for: the job's variable of that name, else what the name of the job ends with."""
    own = variables.get(name.lower().replace(" ", "_"), "")
    if own:
        return own
    is_run = re.fullmatch(r"(?:run|exp|experiment|name|job)(?:[_ -]?(?:name|id|dir))?", name, re.IGNORECASE)
    log = PurePosixPath(str(job.log or ""))
    parts = [part for part in log.parts[1:-1] if len(part) > 2 and job.name.endswith(part)] if is_run else []
    return max(parts, key=len, default="")


def _program(words: tuple[str, ...]) -> str:
    """Return the program that a command runs: a relative path, `make`, or empty for one that may be anybody's."""
    program_words = [word for word in words if not ASSIGNMENT.fullmatch(word)]
    if not program_words:
        return ""
    if program_words[0] == "make":
        return "make" if len(program_words) == 2 and re.fullmatch(r"[\w-]+", program_words[1]) else ""
    program = program_words[1] if program_words[0] in SHELLS and len(program_words) > 1 else program_words[0]
    return program.removeprefix("./") if "/" in program or program_words[0] in SHELLS else ""
