"""What the files beside a script say on how its run is carried on: `make resume`, `RUN_ID=x ./launch.sh`, `CKPT=40 sbatch run.sh`.

A line is told to people as it stands there, and nothing is ever run by it: what it says is untrusted text. Only of a plain `sbatch`
of the very same script the variables are taken, as a way that a trial start in the sandbox has to prove before it counts.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from assistant.records import Job
from assistant.recover.job_program import FileReader
from assistant.recover.restart import NOT_SAFE
from assistant.recover.script_variable import is_harmless
from assistant.recover.shell.folders import listed_folder
from assistant.schedulers.slurm_spec import exports_plainly

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
    folder = job.work_dir or (job.spec.work_dir if job.spec is not None else None)
    if job.spec is None or folder is None or not Path(folder).is_absolute():
        return DocumentedWay()
    texts = dict(texts_of(job, Path(folder), read))
    targets = {name: lines for text in texts if text in MAKEFILES for name, lines in _targets(texts[text])}
    lines: list[str] = []
    variables: list[str] = []
    for name, text in texts.items():
        for number, line, about in _telling_lines(name, text):
            lines.append(f"{name}:{number} says: {line[:LONGEST_LINE]}{_warning(line, targets)}")
            variables += _assignments(job, Path(folder), line, read) if about else []
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
    words = ", ".join(f"`make {name}` runs `{command[:80]}`" for name, command in harmful.items() if command)
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
        if equals and job.spec is not None and is_harmless(name) and exports_plainly(job.spec, name):
            yield from map(partial("{}={}".format, name), _templates(value))


def _templates(value: str) -> tuple[str, ...]:
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
