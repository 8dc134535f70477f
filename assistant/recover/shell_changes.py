"""Which commands of a script may create or delete a file before the script tests for it; such a test is not answered. Pure.

`mkdir ckpt` makes no `ckpt/last.pt`, and `python prepare.py` whose text names neither the file nor its folder makes none either; a
program that is given a folder above the file, or cannot be read, may.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assistant.recover.batch_script import Launch

UNRESOLVED = "\ufffc"
"""As in `shell_words`, which imports this file."""
READERS = frozenset(
    (
        "ls du df stat head tail grep egrep wc file cat less diff cmp readlink realpath sort awk sed md5sum sha256sum "
        "tree chmod chown chgrp echo printf test [ [[ cd pushd popd export source . module ml conda mamba nvidia-smi "
        "ulimit set unset trap wait sleep date hostname which type command true false exit return read mapfile "
        "readarray let (( shift eval squeue scontrol sacct sinfo scancel sbatch git pip pip3 nproc free env uname id "
        "whoami logger wandb shopt umask local declare readonly typeset kill"
    ).split()
)
"""Commands that make and delete no file that a script would test for."""
WRAPPERS = frozenset("srun mpirun mpiexec env timeout nice numactl time nohup exec sudo stdbuf setsid command".split())
QUIET_MODULES = frozenset("pip venv ensurepip compileall site json.tool torch.utils.collect_env".split())
CONFIGS = (".yaml", ".yml", ".toml", ".json")
MOST_LAUNCHES = 400
"""Commands before a test that are looked at; before more of them nothing is known."""

Read = Callable[[str], str | None]


def may_have_changed(launches: Iterable[Launch], path: str, read: Read) -> bool:
    """Tell whether one of the commands before a test may have created or deleted what lies at an absolute path."""
    held = list(launches)
    tested = PurePosixPath(path)
    return len(held) > MOST_LAUNCHES or any(_may_change(launch, tested, read) for launch in held)


def _may_change(launch: Launch, tested: PurePosixPath, read: Read) -> bool:
    if any(target == tested for target in _paths(launch, launch.writes)):
        return True
    words = list(launch.words)
    while words and (PurePosixPath(words[0]).name in WRAPPERS or words[0].startswith("-")):
        words = words[1:]
    name = PurePosixPath(words[0]).name if words else ""
    rest = [word for word in words[1:] if not word.startswith("-")]
    if launch.program or name.startswith("python"):
        return _program_may(launch, tested, read)
    if name in ("mkdir", "touch", "tee", "truncate"):
        return any(path == tested or tested in path.parents for path in _paths(launch, rest))
    if name in ("rm", "rmdir", "unlink") or (name == "find" and ("-delete" in words or "-exec" in words)):
        return _covered(launch, rest, tested)
    if name in ("mv", "cp", "ln", "install"):
        return _copied(launch, rest, tested, moves=name == "mv", whole=any(re.match(r"-\w*[anrRT]", word) for word in words[1:]))
    if not name or name in READERS or name == "find" or "=" in name:
        return False
    return _covered(launch, words[1:], tested)


def _paths(launch: Launch, words: Iterable[str]) -> Iterator[PurePosixPath]:
    """Yield the absolute paths that words of a command name, also behind the sign of an option."""
    for word in words:
        for text in {word, word.partition("=")[2]} - {""}:
            path = launch.outside(text)
            if path is not None and UNRESOLVED not in str(path):
                yield PurePosixPath(path)


def _covered(launch: Launch, words: Iterable[str], tested: PurePosixPath) -> bool:
    """Tell whether a word names the tested path, a pattern of it, or a folder above it: not all that the command runs in counts."""
    around = {str(one) for one in PurePosixPath(launch.folder).parents} | ({launch.folder} - {str(tested.parent)})
    parents = {str(one) for one in (tested, *tested.parents)} - around
    named = [str(path) for path in _paths(launch, words)]
    if any(re.search(r"[*?\[]", path) and fnmatch.fnmatchcase(one, path) for path in named for one in parents):
        return True
    return not parents.isdisjoint(named)


def _copied(launch: Launch, words: list[str], tested: PurePosixPath, *, moves: bool, whole: bool) -> bool:
    if moves and _covered(launch, words[:-1], tested):
        return True
    targets = list(_paths(launch, words[-1:]))
    bases = [PurePosixPath(word).name for word in words[:-1]]
    for target in targets:
        if target == tested or (whole and target in tested.parents):
            return True
        if target in tested.parents:
            below = tested.relative_to(target).parts[0]
            if any(below == base or (re.search(r"[*?\[]", base) and fnmatch.fnmatchcase(below, base)) for base in bases):
                return True
    return False


def _program_may(launch: Launch, tested: PurePosixPath, read: Read) -> bool:
    if launch.module and launch.program in QUIET_MODULES:
        return False
    if _covered(launch, launch.words, tested):
        return True
    texts = list(_texts(launch, read))
    if any(text is None for text in texts) or not texts:
        return not any(word in ("--version", "-V") for word in launch.words)
    names = [name for name in (tested.name, tested.parent.name) if len(name) > 2]
    return any(name in text for text in texts if text is not None for name in names)


def _texts(launch: Launch, read: Read) -> Iterator[str | None]:
    """Yield the text of a program and of the configurations that it is given; None for one that cannot be read."""
    if launch.stdin:
        yield launch.stdin
    elif "-c" in launch.words:
        yield " ".join(launch.words)
    elif launch.program:
        base = launch.program.replace(".", "/") if launch.module else ""
        names = [f"{base}.py", f"{base}/__main__.py"] if base else [launch.program]
        paths = [path for name in names if (path := launch.outside(name)) is not None]
        yield next((text for path in paths if (text := read(str(path))) is not None), None)
    for word in launch.arguments:
        value = word.partition("=")[2] or word
        if value.endswith(CONFIGS):
            path = launch.outside(value)
            yield read(str(path)) if path is not None else None
