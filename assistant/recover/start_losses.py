"""What a start of a job's script would destroy of what lies there now: each place with the line that does it, for people.

Read are the commands of the script and the sources of its programs; of each place only names and sizes are looked at, and whether
a small file holds nothing but an address, with the rights of the job's owner.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from assistant.errors import InputError
from assistant.records import Job
from assistant.recover.job_program import JobProgram
from assistant.recover.source.start_files import removals_of
from assistant.untrusted import LOOK_S, list_folder, read_whole, reading_as, status_of, within

__all__ = ["DESTROYS", "StartLoss", "loss_words", "start_losses"]

MOST_ENTRIES = 2_000
MOST_PLACES = 40
MOST_NAMED = 3
DESTROYS = "A start destroys what lies there:"
"""How the warning begins."""
PASSING = re.compile(r"^/(?:dev|proc|run)/|/(?:__pycache__|\.?cache|core(?:\.\d+)?)(?:/|$)|\.(?:pid|lock|sock|tmp)$", re.IGNORECASE)
"""Places whose loss harms nobody."""
ADDRESS = re.compile(rb"\s*(?:[a-z]{2,10}://)?(?:\[[0-9a-fA-F:]+\]|[\w.-]+):\d{2,5}(?:/[^\s]*)?\s*")
LONGEST_ADDRESS = 300
"""What a server leaves behind so that others find it: of one that has ended it is stale, and its next start writes it anew."""
OF_A_NODE = ("/tmp", "/var/tmp")
"""Folders that each node has for itself: what lies there here is another machine's, unless the job works there."""


class StartLoss(NamedTuple):
    """A place that a start removes or moves away, and that holds something now."""

    path: str
    """Absolute; a folder, a file, or a pattern."""
    origin: str
    """The line that does it: `train.py:14`, `line 9 of its script`; `its script` where the line is not known."""
    names: tuple[str, ...]
    """Names that lie there, sorted."""
    is_file: bool = False
    """Whether the place itself is one file."""

    @property
    def sentence(self) -> str:
        """What is destroyed, as part of a sentence."""
        if self.is_file:
            return f"{self.origin} removes {self.path} when it starts"
        examples = self.names if len(self.names) <= MOST_NAMED else (*self.names[: MOST_NAMED - 1], "…", self.names[-1])
        count = f"{len(self.names)}{' or more' if len(self.names) >= MOST_ENTRIES else ''}"
        entries = f"{count} {'entries lie' if len(self.names) != 1 else 'entry lies'} there now: {', '.join(examples)}"
        return f"{self.origin} removes {self.path} when it starts ({entries})"


def start_losses(job: Job, programs: Sequence[JobProgram]) -> list[StartLoss]:
    """Return what a start of a job's script would remove of what is there now, each place once, in the order of the script.

    Args:
        job: With its spec.
        programs: What its script would start, from `programs_of` or `programs_now`.
    """
    losses: dict[str, StartLoss] = {}
    for path, origin in list(dict.fromkeys(_removed(job, programs)))[:MOST_PLACES]:
        if path in losses or PASSING.search(path) or len(PurePosixPath(path).parts) < 3 or _is_of_node(job, path):
            continue
        loss = _loss(job.account, path, origin)
        if loss is not None:
            losses[path] = loss
    inner = [path for path in losses if any(str(parent) in losses for parent in PurePosixPath(path).parents)]
    return [loss for path, loss in losses.items() if path not in inner]


def loss_words(losses: Sequence[StartLoss]) -> str:
    """Return a warning for whoever may start a job again; empty where nothing would be lost."""
    if not losses:
        return ""
    more = f"; and {len(losses) - MOST_NAMED} places more" if len(losses) > MOST_NAMED else ""
    return f"{DESTROYS} {'; '.join(loss.sentence for loss in losses[:MOST_NAMED])}{more}. Move it away first."


def _is_of_node(job: Job, path: str) -> bool:
    work = job.work_dir or Path("/")
    return any(PurePosixPath(path).is_relative_to(top) and not work.is_relative_to(top) for top in OF_A_NODE)


def _removed(job: Job, programs: Sequence[JobProgram]) -> Iterator[tuple[str, str]]:
    script = job.spec.script if job.spec is not None else ""
    for program in programs:
        for path in program.removed:
            yield path, _line_of_script(script, path)
        for removal in removals_of(program):
            name = PurePosixPath(removal.source).name
            yield removal.path, f"{removal.source if removal.source.startswith('/') else name}:{removal.line}"


def _line_of_script(script: str, path: str) -> str:
    """Return where a script removes a path, by its words; the line is not known where several may be meant."""
    lines = [(number, line) for number, line in enumerate(script.splitlines(), 1) if re.search(r"(?:^|[\s;&|({])(?:rm|mv)\s", line)]
    lines = [(number, line) for number, line in lines if not line.lstrip().startswith("#")]
    last = PurePosixPath(path).name.strip("*?")
    matching = [number for number, line in lines if last and last in line]
    numbers = matching if len(matching) == 1 else [number for number, _ in lines]
    return f"line {numbers[0]} of its script" if len(numbers) == 1 else "its script"


def _loss(account: str, path: str, origin: str) -> StartLoss | None:
    def look() -> StartLoss | None:
        pure = PurePosixPath(path)
        if any(letter in path for letter in "*?["):
            if any(letter in str(pure.parent) for letter in "*?["):
                return None
            children = list_folder(Path(pure.parent), MOST_ENTRIES)
            names = sorted(child.name for child in children if fnmatchcase(child.name, pure.name))
            return StartLoss(path, origin, tuple(names)) if names else None
        status = status_of(Path(path))
        mode = status.st_mode
        if stat.S_ISREG(mode) and status.st_size <= LONGEST_ADDRESS and ADDRESS.fullmatch(read_whole(path, LONGEST_ADDRESS)):
            return None
        if stat.S_ISDIR(mode):
            names = sorted(child.name for child in list_folder(Path(path), MOST_ENTRIES))
            return StartLoss(path, origin, tuple(names)) if names else None
        return StartLoss(path, origin, (), True) if stat.S_ISREG(mode) else None

    try:
        with reading_as(account):
            return within(LOOK_S, look, path)
    except (OSError, InputError, ValueError):
        return None
