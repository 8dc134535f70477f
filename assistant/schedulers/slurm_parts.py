"""Heterogeneous jobs: how many components one has, and the text of its script as its owner wrote it.

sbatch cuts the script at its `#SBATCH hetjob` lines and leaves out the blank ones. The first component gets all the rest, each
other one its own `#SBATCH` lines only (sbatch.c of 22.05, `_get_next_opt` and `env_merge`; seen with `sacct -B`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path

from assistant.errors import NightshiftError
from assistant.untrusted import LOOK_S, read_whole, reading_as, status_of, within

SEPARATOR = re.compile(r"^#SBATCH\s+(?:hetjob|packjob)\b", re.MULTILINE)
MOST_FILES = 8
"""Words of a submission that may name its script."""
CLOCK_S = 1.0
"""Slurm keeps the time of a submission in whole seconds."""


def component_count(script: str, line: str) -> int:
    """Return how many components a job has; 1 for one that is not heterogeneous.

    Args:
        script: Of its first component.
        line: By which it was submitted, as typed; empty where nobody keeps it.
    """
    return 1 + max(len(SEPARATOR.findall(script)), line.split().count(":"))


def leader_of(job_id: str) -> str:
    """Return the id of the component that runs the batch script: `12+0` of `12+1`; of any other job its own."""
    base, plus, _ = job_id.partition("+")
    return f"{base}+0" if plus else job_id


def are_components(job_id: str, other_id: str) -> bool:
    """Tell whether two ids are of different components of one heterogeneous job: one job, and no second of its run."""
    return job_id != other_id and "+" in job_id and leader_of(job_id) == leader_of(other_id)


def script_paths(command: str, line: str, folder: Path | None) -> Iterator[Path]:
    """Yield the paths that may be the script of a submission, the surest first.

    Args:
        command: Path and arguments of the script, as the controller shows them; empty where it has forgotten the job.
        line: By which it was submitted, as typed.
        folder: In which it was submitted.
    """
    words = [command.partition(" ")[0], *(word for word in line.split()[1:] if not word.startswith("-"))]
    for word in dict.fromkeys(filter(None, words)):
        if word.startswith("/") or folder is not None:
            yield Path(word) if folder is None else folder / word


def script_with_blank_lines(script: str, paths: Iterable[Path], *, submitted: datetime | None, account: str) -> str:
    """Return the file by which a job was submitted, where it is its script but for blank lines and was not changed since.

    Args:
        script: As Slurm keeps it.
        paths: From `script_paths`.
        submitted: When the job was.
        account: Whose rights the files are read with.

    Returns:
        The script as Slurm keeps it where no file is.
    """
    if submitted is None:
        return script
    expected = _without_blank_lines(script)

    def look(path: Path) -> str | None:
        if status_of(path).st_mtime >= submitted.timestamp() + CLOCK_S:
            return None
        text = read_whole(path).decode("utf-8", "surrogateescape")
        return text if _without_blank_lines(text) == expected else None

    for path, _ in zip(paths, range(MOST_FILES), strict=False):
        try:
            with reading_as(account):
                text = within(LOOK_S, partial(look, path), f"{path}")
        except (OSError, NightshiftError):
            continue
        if text is not None:
            return text
    return script


def _without_blank_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]
