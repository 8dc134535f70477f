"""Read the line by which a job was submitted (`SubmitLine`): its options, its script and the script's arguments. Pure.

Slurm joins the words of that line with single blanks and keeps no quotes. What another source keeps whole decides where a value
ends: the text of `--wrap` stands in the batch script, the script's path and arguments stand behind `Command=`, a job's name,
comment and folders have fields of their own. Where nothing decides, `TypedSubmission.doubt` says why: such a line is not repeated.

Source: sbatch(1) and slurm_opt.c of 22.05, verified with the cluster of tests/live.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

__all__ = [
    "NEW_ARGUMENTS",
    "ONE_TIME",
    "OWN_OPTIONS",
    "VALUE_LETTERS",
    "WRAPPED",
    "TypedSubmission",
    "arguments_digest",
    "exact_arguments",
    "exact_words",
    "read_line",
    "wrapped_text",
]

WRAPPED = "#!/bin/sh\n# This script was created by sbatch --wrap.\n\n"
"""How sbatch begins the script that it makes of `--wrap`."""
READS_ARGUMENTS = re.compile(r"(?<!\\)\$(?:[1-9@*#]|\{#?[1-9@*])")
"""How a script takes its arguments, `$1`; functions do so, too."""
VALUE_LETTERS = "ABCDFGLJMNSabcdeimnopqtwx"
"""Short options of sbatch that take a value."""
_LONG = {
    name[0]: name[2:]
    for name in (
        "A=account a=array b=begin D=chdir M=clusters C=constraint S=core-spec c=cpus-per-task d=dependency m=distribution e=error "
        "x=exclude B=extra-node-info G=gpus h=help H=hold i=input J=job-name k=no-kill L=licenses F=nodefile w=nodelist N=nodes "
        "n=ntasks o=output O=overcommit s=oversubscribe p=partition q=qos Q=quiet t=time v=verbose V=version W=wait"
    ).split()
}
"""Long names of the short options."""
_FLAGS = frozenset(
    "contiguous exclusive get-user-env help hold ignore-pbs nice no-kill no-requeue overcommit oversubscribe share parsable "
    "propagate quiet reboot requeue spread-job stepmgr test-only usage use-min-nodes verbose version wait".split()
)
"""Long options without a value, or with one only behind `=`."""
_VALUES = frozenset(
    "account acctg-freq array batch bb bbf begin chdir workdir cluster-constraint clusters cluster comment constraint container "
    "container-id core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency distribution "
    "error exclude export export-file extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket "
    "gpus-per-task gres gres-flags hint input job-name kill-on-invalid-dep licenses mail-type mail-user mcs-label mem mem-bind "
    "mem-per-cpu mem-per-gpu mincpus network nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node "
    "ntasks-per-socket ntasks-per-tres open-mode output partition power prefer priority profile qos reservation resv-ports "
    "segment signal sockets-per-node switches thread-spec threads-per-core time time-min tmp tres-bind tres-per-task uid "
    "wait-all-nodes wckey wrap".split()
)
"""Long options with a value."""
OWN_OPTIONS = frozenset("job-name nodes chdir output partition exclude time comment parsable".split())
"""Options that `JobSpec` has a field for, or that Nightshift sets."""
ONE_TIME = frozenset(
    "array dependency begin wait test-only hold uid gid wrap help usage version quiet verbose deadline bb bbf export-file "
    "kill-on-invalid-dep".split()
)
"""Options that made sense for the first submission only."""


PAIRS = re.compile(r"(?:(?:--?[A-Za-z][\w.-]{0,99}(?:=\S+| (?!-[A-Za-z-])\S+)?|\+{0,2}[A-Za-z_][\w.@/-]{0,99}=[^\s=]\S*)(?: |\Z))+")
"""Arguments of which each is an option, alone or with one value, or a setting `key=value`."""
NEW_ARGUMENTS = "NIGHTSHIFT_ARGUMENTS"
"""Holds the digest of the arguments of its script, where a restart changed them (`recover/restart.py`)."""


def arguments_digest(arguments: Sequence[str]) -> str:
    """Return what stands for the arguments of a script in a variable, which could not hold blanks and commas itself."""
    return hashlib.sha256("\0".join(arguments).encode("utf-8", "surrogateescape")).hexdigest()[:16]


class TypedSubmission(NamedTuple):
    """A submission as typed, as far as it can be told."""

    options: tuple[str, ...] | None = None
    """Those to be kept for another submission, each one word: `--mem=0`, `-Ateam`; None where the line is not known."""
    arguments: tuple[str, ...] = ()
    """Of the script."""
    doubt: str = ""
    """Why the words cannot be told for sure, for people; empty where they can."""
    values: Mapping[str, str] = MappingProxyType({})
    """The last value of every option by its long name, also of those that are not kept."""


def wrapped_text(script: str) -> str | None:
    """Return the text that was given to `--wrap`, None for a script that sbatch did not make."""
    return script[len(WRAPPED) :].removesuffix("\n") if script.startswith(WRAPPED) else None


def read_line(line: str, *, command: str | None, script: str, fields: Mapping[str, str]) -> TypedSubmission:
    """Return options and arguments of a submission.

    Args:
        line: As the accounting keeps it, with all its blanks.
        command: The script's path and arguments as the controller shows them, empty where the script had no file; None where the
            controller has forgotten the job.
        script: Text of the batch script.
        fields: Values by long option that Slurm keeps elsewhere: `job-name`, `comment`, `chdir`; `export NAME` for a variable.
    """
    digest = fields.get(f"export {NEW_ARGUMENTS}", "")
    if not line.strip():
        if command is None and wrapped_text(script) is None and READS_ARGUMENTS.search(script):
            return TypedSubmission(doubt="its script takes arguments, and neither the accounting nor the controller keeps them")
        return TypedSubmission(None, *exact_arguments(_behind_path(command or ""), script, digest))
    head, tail = line, ""
    wrapped = wrapped_text(script)
    if wrapped is not None:
        unwrapped = _without_wrap(line, wrapped)
        if unwrapped is None:
            return TypedSubmission(doubt="its --wrap text does not stand in the line that the accounting keeps")
        head = unwrapped
    elif command:
        parts = _split_by_command(line, command)
        if parts is None:
            return TypedSubmission(
                doubt="the script that the controller shows does not stand in the line that the accounting keeps"
            )
        head, tail = parts
    elif command is None:
        head, tail, doubt = _split_by_options(line, fields)
        if doubt:
            return TypedSubmission(doubt=doubt)
    submission = _options(head, fields)
    arguments, unclear = exact_arguments(tail, script, digest)
    return submission._replace(arguments=arguments, doubt=submission.doubt or unclear)


def exact_words(words: Sequence[str]) -> tuple[dict[str, str], int] | None:
    """Return the options of sbatch by their long names, from words that are known whole, and where its script stands.

    Args:
        words: Behind `sbatch`.

    Returns:
        None where an option is not known; behind the last word where no script is named.
    """
    values: dict[str, str] = {}
    place = 0
    while place < len(words) and words[place].startswith("-") and words[place] != "-":
        name, text, takes = _option_word(words[place])
        if name not in _VALUES | _FLAGS or (takes and text is None and place + 1 >= len(words)):
            return None
        takes_next = takes and text is None
        values[name] = words[place + 1] if takes_next else text or ""
        place += 2 if takes_next else 1
    return values, place


def exact_arguments(text: str, script: str, digest: str = "") -> tuple[tuple[str, ...], str]:
    """Return the arguments of a script from their text, and why they cannot be told; empty where they can.

    A blank in the text stood between two arguments or inside one. It makes no difference to a script that uses no argument, or that
    hands them on unquoted. With `"$@"` alone options and their values count as separate: a program that got `--lr 1` as one word
    would have refused it. Else the text must have no blank.

    Args:
        text: Everything behind the script's path, with the blank before it.
        script: Of the batch script.
        digest: Of its arguments, where a restart knew them (`NEW_ARGUMENTS`).
    """
    if not text:
        return (), ""
    words = text.removeprefix(" ").split(" ")
    if digest and arguments_digest(words) == digest:
        return tuple(words), ""
    if len(words) == 1 and words[0] and not re.search(r"\s", words[0]):
        return (words[0],), ""
    listed = text.removeprefix(" ")
    code, foreign = _code(script), _foreign(script)
    singly = re.search(r"\$(?:[1-9#]|\{#|\{[1-9@*][^}]+\}|\{[1-9]\})|\b(?:shift|getopts?|argv|BASH_ARGV)\b|\bset\s+--", code)
    odd = re.search(r"\s\s|[^\S ]|\A\s|\s\Z|[*?\[\]]", listed)
    if not singly and not odd:
        uses_arguments = foreign or re.search(r"\$\{?[@*]", code)
        quoted = foreign or re.search(r'"[^"\n]*\$\{?@', code)
        if not uses_arguments or not quoted or PAIRS.fullmatch(listed):
            return tuple(words), ""
    quote = text.strip() if text.strip() else "one or more empty ones"
    return (), (
        f"Slurm keeps the arguments of its script joined by blanks and without their quotes ({quote!r}), so where one ends cannot "
        "be told"
    )


def _code(script: str) -> str:
    return "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("#"))


def _foreign(script: str) -> bool:
    """Return whether something else than a shell reads the script."""
    first = script.partition("\n")[0]
    return first.startswith("#!") and not re.search(r"\b(?:ba|da|k|z|a)?sh\b", first)


def _behind_path(command: str) -> str:
    path, blank, arguments = command.partition(" ")
    return f"{blank}{arguments}" if path else ""


def _without_wrap(line: str, wrapped: str) -> str | None:
    """Return a line without its `--wrap` and the text of it, None where they do not stand there."""
    for match in re.finditer(r"(?<=\s)--wra?p?[= ]", line):
        if line.startswith(wrapped, match.end()) and line[match.end() + len(wrapped) :][:1] in ("", " "):
            return line[: match.start()].removesuffix(" ") + line[match.end() + len(wrapped) :]
    return None


def _split_by_command(line: str, command: str) -> tuple[str, str] | None:
    """Return a line's part before the script, and the arguments with the blank before them; None where it does not hold them.

    The path that the controller shows is absolute, the one in the line as typed: both end with the same name.
    """
    for place in [*(match.start() for match in re.finditer(" ", command)), len(command)]:
        path, arguments = command[:place], command[place:]
        if not line.endswith(arguments):
            continue
        before = line[: len(line) - len(arguments)]
        name = PurePosixPath(path).name
        if not name or not before.endswith(name):
            continue
        begin = before.rfind(" ", 0, len(before) - len(name))
        typed = before[begin + 1 :]
        if typed == name or (typed.endswith(f"/{name}") and path.endswith(typed.lstrip("./"))):
            return before[:begin], arguments
    return None


def _split_by_options(line: str, fields: Mapping[str, str]) -> tuple[str, str, str]:
    """Return a line's part before the script and the part behind it, with only the options to tell where the script stands."""
    place, free = _program_end(line), ""
    while place < len(line):
        word = _word(line, place)
        if not word.startswith("-") or word == "-":
            if free:
                why = f"where the value of {free} ends and the script begins cannot be told: the controller has forgotten the job"
                return line, "", why
            return line[:place].rstrip(" "), line[place + len(word) :], ""
        end, name = _option_end(line, place, fields, until_option=False)
        if not name or name not in _VALUES | _FLAGS:
            free = word
        elif name in ("comment", "export", "begin", "mail-user", "extra") and end > place + len(word):
            free = "" if line.startswith(fields.get(name, "\0"), end - len(fields.get(name, "\0"))) else word
        else:
            free = ""
        place = end + 1
    return line, "", ""  # the script came from standard input


def _program_end(line: str) -> int:
    return line.find(" ") + 1 if " " in line else len(line)


def _word(line: str, place: int) -> str:
    return line[place:].split(" ", 1)[0]


def _option_end(line: str, place: int, fields: Mapping[str, str], *, until_option: bool) -> tuple[int, str]:
    """Return where the option that begins at a place ends, and its long name; empty for one that nobody knows.

    Args:
        line: Of the submission.
        place: Of its first dash.
        fields: As `read_line` takes them.
        until_option: Whether words without a dash belong to it: no script can follow.
    """
    word = _word(line, place)
    name, glued, takes = _option_word(word)
    end = place + len(word)
    if not takes and glued is None:
        return end, name
    begin = end - len(glued) if glued is not None else end + 1
    expected = fields.get(name, "") if name != "export" else _export_text(line, begin, fields)
    if expected and line.startswith(expected, begin) and line[begin + len(expected) :][:1] in ("", " "):
        return begin + len(expected), name
    if glued is None:
        end = begin + len(_word(line, begin))
    while until_option and end < len(line) and not line.startswith("-", end + 1) and _word(line, end + 1) != ":":
        end += 1 + len(_word(line, end + 1))
    return end, name


def _export_text(line: str, begin: int, fields: Mapping[str, str]) -> str:
    """Return the whole text of an `--export`, where the environment tells how far its last variable goes."""
    items = _word(line, begin).split(",")
    name, equals, text = items[-1].partition("=")
    expected = fields.get(f"export {name}", "")
    return ",".join([*items[:-1], f"{name}={expected}"]) if equals and expected.startswith(text) and " " in expected else ""


def _option_word(word: str) -> tuple[str, str | None, bool]:
    """Return the long name of an option word, its value where it stands in the word, and whether else the next word is it."""
    if word.startswith("--"):
        typed, equals, text = word[2:].partition("=")
        candidates = sorted(name for name in _VALUES | _FLAGS if name == typed or name.startswith(typed))
        name = typed if typed in candidates or len(candidates) != 1 else candidates[0]
        takes = name in _VALUES or (name not in _FLAGS and not equals)
        return name, text if equals else None, takes
    name = _LONG.get(word[1:2], "")
    if word[1:2] in VALUE_LETTERS:
        return name, word[2:] or None, True
    # flags may stand together: -Hv
    return name, None, False


def _options(head: str, fields: Mapping[str, str]) -> TypedSubmission:
    """Return the options of a line without script."""
    options: list[str] = []
    values: dict[str, str] = {}
    place = _program_end(head)
    while place < len(head):
        word = _word(head, place)
        if word == ":":
            return TypedSubmission(doubt="it is a heterogeneous job")
        if not word.startswith("-"):
            if word:
                return TypedSubmission(
                    doubt=f"{word!r} in the line that the accounting keeps belongs to no option: a quote or a blank is lost"
                )
            place += 1
            continue
        end, name = _option_end(head, place, fields, until_option=True)
        text, (_, glued, _) = head[place:end], _option_word(word)
        values[name] = text[len(word) + 1 :] if glued is None else text[len(word) - len(glued) :]
        if name not in OWN_OPTIONS and name not in ONE_TIME:
            options += _one_word(text, word)
        place = end + 1
    return TypedSubmission(tuple(options), values=values)


def _one_word(text: str, word: str) -> list[str]:
    """Return an option with its value as one word, so that no value is taken for an option."""
    is_separate, value = text != word, text[len(word) :].removeprefix(" ")
    if word.startswith("--"):
        return [f"{word}={value}" if is_separate and "=" not in word else text]
    if word[1:2] not in VALUE_LETTERS:
        return [f"-{letter}" for letter in word[1:] if _LONG.get(letter, "") not in OWN_OPTIONS | ONE_TIME]
    if len(word) > 2:
        return [text]
    return [f"{word}{value}" if value else f"--{_LONG[word[1]]}="]
