"""What the commands of a batch script remove before its work begins: by `rm`, `mv`, `find -delete` and their like. Pure.

Only what a path of the command names for sure counts. A `find` that chooses by age or size is retention, and what it takes is not
known; `git clean` counts for its folder as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import PurePosixPath

from assistant.recover.batch_script import Launch
from assistant.recover.shell.folders import UNRESOLVED

PREPARES = frozenset(
    "[ [[ (( : . cat cd chmod chown command cp date declare df du echo env eval exit export false find free git hostname id "
    "install let ln local ls lscpu mkdir module ml mv nproc nvidia-smi popd printenv printf pushd pwd read readonly rm rmdir rsync "
    "sed set shift shopt shred sleep source stat sync tar test touch trap true truncate type ulimit umask uname unlink unset wc "
    "which".split()
)
"""Commands that make ready for the work of a script and are none of it."""
NAMED_ONLY = frozenset("rm mv unlink shred".split())
"""Commands whose operands are what they take away; of `mv` but the last."""
_BY_CHOICE = frozenset(
    "-mtime -mmin -ctime -cmin -atime -amin -newer -newermt -size -empty -user -group -perm -links -used -not ! -o -or -regex "
    "-iregex -path -ipath -wholename -prune".split()
)
"""Tests of `find` by which it is not known what is chosen."""
_REMOVERS = frozenset("rm unlink shred".split())


def removed_by_command(launch: Launch) -> Iterator[str]:
    """Yield what a command of a script takes away, as absolute paths or patterns, where it is known."""
    command, words = PurePosixPath(launch.words[0]).name, launch.words[1:]
    for name in _names_of(command, words):
        path = launch.outside(name)
        if path is not None and UNRESOLVED not in str(path):
            yield str(path)


def removed_at_start(launches: Iterable[Launch]) -> tuple[str, ...]:
    """Return what a script takes away before the first command that does its work, whatever that is."""
    removed: list[str] = []
    for launch in launches:
        removed += removed_by_command(launch)
        if launch.program or PurePosixPath(launch.words[0]).name not in PREPARES:
            break
    return tuple(dict.fromkeys(removed))


def _names_of(command: str, words: tuple[str, ...] | list[str]) -> list[str]:
    operands = [word for word in words if not word.startswith("-")]
    match command:
        case "mv":
            return operands[:-1] if not any(word.startswith(("-t", "--target-directory")) for word in words) else []
        case _ if command in NAMED_ONLY:
            return operands
        case "truncate":
            emptied = any(word in ("-s0", "--size=0") for word in words) or ("-s", "0") in pairwise(words)
            return [word for word in operands if word != "0"] if emptied else []
        case "find":
            return _found_names(list(words))
        case "rsync" if any(word.startswith("--delete") for word in words):
            return operands[-1:] if len(operands) > 1 else []
        case "git" if operands[:1] == ["clean"] and any(word.startswith("-") and "f" in word for word in words):
            return operands[1:] or ["."]
    return []


def _found_names(words: list[str]) -> list[str]:
    """Return the folders, or the patterns in them, of which `find` removes all; none where it chooses otherwise than by name."""
    roots: list[str] = []
    for word in words:
        if word.startswith(("-", "(", "!", "\\")) and word not in ("-H", "-L", "-P"):
            break
        roots += [word] if not word.startswith("-") else []
    tests = words[words.index(roots[-1]) + 1 :] if roots else words
    removes = "-delete" in tests or any(
        word in ("-exec", "-execdir") and tests[place + 1 : place + 2] and PurePosixPath(tests[place + 1]).name in _REMOVERS
        for place, word in enumerate(tests)
    )
    if not removes or _BY_CHOICE & set(tests):
        return []
    names = [tests[place + 1] for place, word in enumerate(tests[:-1]) if word in ("-name", "-iname")]
    if len(names) > 1:
        return []
    return [f"{root.rstrip('/')}/{names[0]}" if names else root for root in roots or ["."]]
