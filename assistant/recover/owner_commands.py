"""Which command of its owner's own carries a run on: `make resume`, `bin/titan resume RUN`, `./go.sh --continue`.

Found in README, Makefile and the scripts beside the job's own, where a line speaks of going on. Its program has to be a file of the
owner's own, in the folder of the job, that nobody else may write, and so has the file that names it; its words hold nothing that a
shell would change. Nothing is run by it here: a trial start lets it say in the sandbox what it would submit.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath

from assistant.accounts import account_of
from assistant.errors import InputError
from assistant.records import Job
from assistant.recover.documented_ways import BOOKS, MAKEFILES, SPEAKS_OF_IT, TARGET, texts_of
from assistant.recover.job_program import FileReader
from assistant.recover.joblog import log_lines
from assistant.recover.restart import NOT_SAFE
from assistant.recover.resume_means import OwnerCommand
from assistant.recover.script_variable import is_harmless
from assistant.untrusted import LOOK_S, reading_as, within

SCRIPT_FOLDERS = ("bin", "scripts", "tools", "sbin")
"""Folders below that of a job in which its owner's commands lie."""
SHELLS = frozenset(("bash", "sh", "dash", "python3", "python"))
SCRIPT, LOG = "its script", "its log"
MOST_COMMANDS = 2
MOST_WORDS = 8
QUOTED = re.compile(r"`(?P<tick>[^`\n]{3,200})`|\"(?P<double>[^\"\n]{3,200})\"|'(?P<single>[^'\n]{3,200})'")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=\S*")
BEGINS = re.compile(
    r"(?<![\w/.-])(?:[A-Z_][A-Z0-9_]*=\S+\s+)*(?:make|(?:ba|da)?sh|python3?|(?:\.{1,2}/)?[\w.-]*/?[\w./-]*/[\w.-]+)\s"
)
SPEAKS = re.compile(r"resum|continu|restart|again|go[-_]?on|carry[-_]?on|pick[-_]?up", re.IGNORECASE)
"""Words of a command that say themselves that it goes on."""
PLACE = re.compile(r"<(?P<angle>[\w -]{1,40})>|\{(?P<brace>\w{1,40})\}|(?P<capitals>[A-Z][A-Z0-9_]{1,40})")
"""What stands for something that its caller fills in."""


def owner_commands(job: Job, read: FileReader) -> tuple[OwnerCommand, ...]:
    """Return the commands by which the owner of a job carries its run on, the likeliest first.

    Args:
        job: With its spec.
        read: Reads with its owner's rights.

    Raises:
        Unavailable: The storage did not answer.
    """
    folder = job.work_dir or (job.spec.work_dir if job.spec is not None else None)
    if job.spec is None or folder is None or not Path(folder).is_absolute():
        return ()
    own_script = "\n".join(line for line in job.spec.script.splitlines() if not line.startswith(("#!", "#SBATCH")))
    log = "\n".join(line.text for line in log_lines(job))
    named_texts = texts_of(job, Path(folder), read, SCRIPT_FOLDERS)
    texts = [(name, text) for name, text in named_texts if is_owners_own(job.account, Path(folder), name)]
    commands = [
        *(command for name, text in texts for command in _of_text(job, Path(folder), name, _lines(name, text))),
        *_of_text(job, Path(folder), SCRIPT, _lines(SCRIPT, own_script)),
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
