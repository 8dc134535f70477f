"""Which arguments of a job's own script its owner documents for going on: `sbatch run.sh resume=saves/checkpoint-XX`.

Taken from README, NOTES, Makefile and comments of scripts, where a line submits the very same script. What stands for the
checkpoint there, a placeholder or an example, becomes one; all else that the line gives stays as the job was submitted. A trial
start has to prove it. The file must be the owner's own, and nobody else may write it: what others wrote is quoted to people and
never tried.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from assistant.records import Job
from assistant.recover.documented_ways import BOOKS, MAKEFILES, SPEAKS_OF_IT, YES, is_the_script, texts_of
from assistant.recover.job_program import FileReader
from assistant.recover.owner_commands import is_owners_own
from assistant.recover.restart import NOT_SAFE
from assistant.recover.resume_means import SWITCH, ScriptArguments

MOST_DOCUMENTED = 2
LONGEST_LINE = 1000
MOST_WORDS = 12
OPEN_PLACE = re.compile(
    r"<(?P<angle>[\w ./-]{1,60})>|\$\$?(?:\{(?P<brace>\w{1,40})\}|\((?P<make>\w{1,40})\)|(?P<plain>\w{1,40}))"
    r"|\{(?P<format>\w{1,40})\}"
)
"""What a reader fills in, as documentation and makefiles write it."""
PLACE, STEP_PLACE = "\ue000", "\ue001"
"""Characters that stand for such a place: of a path or a name, and of a number."""
NUMBER_NAME = re.compile(r"(?:global_?)?(?:step|iter|iteration|epoch|num|number|n)s?", re.IGNORECASE)
LETTERS = re.compile(r"(?<![A-Za-z])(?:X{2,}|N{1,8}|Y{2,}|#{2,}|\?{2,}|\*|x{3,})(?![A-Za-z])")
"""Letters that stand for a number: `checkpoint-XX`."""
CAPITALS = re.compile(r"[A-Z]*_?(?:PATH|CKPT|CHECKPOINT|FILE|DIR|FOLDER)(?:_[A-Z]+)?|path|ckpt|checkpoint", re.ASCII)
LOADED_NAME = re.compile(
    r"ckpt|chkpt|check_?point|snapshot|resum|restor|restart|contin|(?:^|[._-])(?:load|from)(?:$|[._-])|load_from", re.IGNORECASE
)
"""Names of arguments that choose what is loaded, where a line gives them a place to fill in."""
OTHER_NAME = re.compile(
    r"save|every|interval|freq|max|limit|total|out(?:put)?_|pretrain|teacher|optim|strict|format|wandb|run_id", re.IGNORECASE
)
"""Names of arguments that say something else of saving and loading."""
ASSIGNED = re.compile(r"(?P<key>-{0,2}[A-Za-z_+~][\w.@/-]{0,80})=(?P<value>.*)", re.DOTALL)
GOES_ON = frozenset("resume continue restart".split())
ENDS = re.compile(r"\s{2,}|\t|\s#|\s\(|\s[-\u2013\u2014]{1,2}\s")
"""What ends a command in a line of prose."""
CHANGED_BY_SHELL = re.compile(r"[|;&<>$`\\(){}!]")


def documented_arguments(job: Job, read: FileReader) -> tuple[ScriptArguments, ...]:
    """Return the arguments by which a job's owner documents that its script goes on, the likeliest first.

    Args:
        job: With its spec.
        read: Reads with its owner's rights.

    Raises:
        Unavailable: The storage did not answer.
    """
    folder = job.work_dir or (job.spec.work_dir if job.spec is not None else None)
    if job.spec is None or folder is None or not Path(folder).is_absolute():
        return ()
    lines = [(f"line {number} of its script", before, line) for number, before, line in _comments(job.spec.script)]
    for name, text in texts_of(job, Path(folder), read):
        if is_owners_own(job.account, Path(folder), name):
            is_read_whole = BOOKS.fullmatch(name) is not None or name in MAKEFILES
            numbered = _lines(text) if is_read_whole else _comments(text)
            lines += [(f"{name}:{number}", before, line) for number, before, line in numbered]
    choices: list[list[ScriptArguments]] = [_of_line(job, Path(folder), read, *line) for line in lines if "sbatch" in line[2]]
    first = [templates[0] for templates in choices if templates]
    alternatives = [template for templates in choices for template in templates[1:]]
    by_words = {template.words: template for template in reversed((*first, *alternatives))}
    return tuple(reversed(by_words.values()))[:MOST_DOCUMENTED]


def _lines(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield number, the line before, and text of each line; one that ends with a backslash goes on in the next."""
    before, joined, begin = "", "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()[:LONGEST_LINE]
        begin = begin if joined else number
        if line.endswith("\\") and len(joined) < LONGEST_LINE:
            joined += f"{line[:-1].rstrip()} "
            continue
        yield begin, before, f"{joined}{line}"
        before, joined = f"{joined}{line}", ""


def _comments(script: str) -> Iterator[tuple[int, str, str]]:
    """Yield the same of the comments of a script."""
    for number, before, line in _lines(script):
        if line.startswith("#") and not line.startswith(("#!", "#SBATCH")):
            yield number, before if before.startswith("#") else "", line


def _of_line(job: Job, folder: Path, read: FileReader, place: str, before: str, line: str) -> list[ScriptArguments]:
    """Return the arguments that a line documents, what stands for the checkpoint read in up to two ways; none where it does not."""
    begin = line.index("sbatch")
    words = _words(line[begin:])
    leading = line[:begin].split()[-1:]
    if not words or words[0] != "sbatch" or (leading and ASSIGNED.fullmatch(leading[0].lstrip("`"))):
        return []
    at = next((at for at, word in enumerate(words) if at and is_the_script(job, _text_of(read, folder, word))), 0)
    if not at or job.spec is None:
        return []
    speaks = SPEAKS_OF_IT.search(f"{before} {line}") is not None
    choices = _choices(words[at + 1 :], job.spec.arguments, speaks=speaks)
    if not choices or any(NOT_SAFE.search(re.sub(r"\{\w+\}", "", text)) for choice in choices for text in choice):
        return []
    command = f"sbatch {words[at]}"
    ways = (tuple(choice[min(way, len(choice) - 1)] for choice in choices) for way in range(2))
    return [ScriptArguments(texts, place, command) for texts in dict.fromkeys(ways)]


def _text_of(read: FileReader, folder: Path, word: str) -> str:
    is_name = not word.startswith("-") and PLACE not in word and STEP_PLACE not in word
    return (read(str(folder / word)) or "") if is_name else ""


def _words(text: str) -> list[str]:
    """Return the words of a command in a line, each place to fill in as one character; nothing of what a shell would change."""
    marked = OPEN_PLACE.sub(lambda match: STEP_PLACE if NUMBER_NAME.fullmatch(match[match.lastgroup or 0]) else PLACE, text)
    code = ENDS.split(marked.partition("`")[0].strip())[0]
    if CHANGED_BY_SHELL.search(code):
        return []
    try:
        words = shlex.split(code.replace("[", " ").replace("]", " "))
    except ValueError:
        return []
    return [word if word.endswith("...") else word.rstrip(".,;:") for word in words[:MOST_WORDS]]


def _choices(words: Sequence[str], own: Sequence[str], *, speaks: bool) -> list[tuple[str, ...]]:
    """Return what each argument of a documented command that makes a run go on may be, in its order.

    Args:
        words: Behind the script.
        own: The arguments of the job: they stay, whatever the line shows for them.
        speaks: Whether the line says that it is about going on, so that a place without a name counts.
    """
    choices: list[tuple[str, ...]] = []
    pending = list(words)
    while pending:
        word = pending.pop(0)
        match = ASSIGNED.fullmatch(word)
        if match is not None and _chooses(match["key"], match["value"]):
            choices.append(tuple(f"{match['key']}={text}" for text in _templates(match["value"])))
        elif match is not None or word in own or word == "...":
            continue
        elif word.startswith("-"):
            value = pending[0] if pending and not pending[0].startswith("-") and ASSIGNED.fullmatch(pending[0]) is None else ""
            if value and _chooses(word, value) and (_is_place(value) or "/" in value or value.isdecimal()):
                choices += [(word,), _templates(pending.pop(0))]
            elif SWITCH.search(word) and not OTHER_NAME.search(word):
                choices.append((word,))
        elif speaks and (_is_place(word) or ("/" in word and LOADED_NAME.search(word))):
            choices.append(_templates(word))
        elif word in GOES_ON and not choices:
            choices.append((word,))
        elif not re.search(r"[\d/.]", word):
            break  # prose
    return choices


def _chooses(key: str, value: str) -> bool:
    """Tell whether an argument chooses what is loaded."""
    if OTHER_NAME.search(key):
        return False
    return bool(
        SWITCH.search(key) or ((LOADED_NAME.search(key) or LOADED_NAME.search(value)) and (_is_place(value) or "/" in value))
    )


def _is_place(value: str) -> bool:
    """Tell whether a text stands for something that a reader fills in."""
    return bool(
        PLACE in value
        or STEP_PLACE in value
        or LETTERS.search(value)
        or "..." in value
        or "path/to" in value
        or CAPITALS.fullmatch(value)
        or (value.isupper() and NUMBER_NAME.fullmatch(value))
    )


def _templates(value: str) -> tuple[str, ...]:
    """Return what stands for the value that a line shows, the likelier first."""
    if value.lower() in YES:
        return (value,)
    if value.isdecimal() or value == STEP_PLACE or LETTERS.fullmatch(value) or NUMBER_NAME.fullmatch(value):
        return ("{step}",)
    if value == PLACE or CAPITALS.fullmatch(value):
        return ("{checkpoint}", "{name}")
    if "/" not in value:
        return ("{name}", "{checkpoint}")
    path = PurePosixPath(value)
    numbered = re.search(rf"\d|{STEP_PLACE}|{PLACE}", path.parent.name) or LETTERS.search(path.parent.name)
    is_inside = numbered and not _is_place(path.name) and not re.search(r"\d", path.stem)
    return (f"{{checkpoint}}/{path.name}", "{checkpoint}") if is_inside else ("{checkpoint}",)
