"""Tell the ranks of one log apart: what launchers put before each line, and what the rank itself wrote.

A job log is many programs at once. `[rank3]: `, `3: ` (srun -l), `[1,9]<stderr>:` (mpirun), `node07: `, `worker-0 | `,
`(Worker pid=7, ip=10.0.0.4) ` (Ray) and time stamps are peeled off one after the other; what is left is the body of the line, and
what was peeled off names its stream. Whether `gpu-12: ` is a host or a word of the program cannot be told from one line, so hosts
are learned from the whole log first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

_RANK = re.compile(r"\[(?:rank|RANK|Rank)[ :=]?(\d{1,6})\]:? ?")
_MPI = re.compile(r"\[\d+,(\d{1,6})\](?:<std(?:out|err|diag)>)?: ?")
_TASK = re.compile(r" {0,5}(\d{1,6}): ?")
_LOCAL = re.compile(r"\[(?:default)?(\d{1,4})\]: ?(?=\S)")
"""torchrun writes its role and the local rank, which every node has."""
_RAY = re.compile(r"(?:\x1b\[\d+m)?\((?:[\w.]+,? )?pid=\d+(?:, ip=([\d.]+))?\)(?:\x1b\[0m)? ?")
_POD = re.compile(r"\[(?:pod/)?([a-z0-9][\w.-]*)/[\w.-]+\] ")
_BRACKET = re.compile(r"\[([A-Za-z][\w.-]*):\d{1,5}\] ")
_TIME = re.compile(
    r"\[?\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?(?: (?:stdout|stderr) [FP])?:? "
)
_HOST = re.compile(r"([A-Za-z][\w.-]{1,62})(: ?| \| ?)")
_HOST_LIKE = re.compile(r"^(?=.*\d)[a-z][a-zA-Z0-9-]*(?:\.[a-z0-9-]+)*$|^[A-Z][A-Z0-9]*(?:-[A-Za-z0-9]+)+$")
_NO_HOST = re.compile(
    r"(?:Error|Exception|Warning|Interrupt)$|^(?:line|epoch|step|iter|rank|stage|cuda|torch)\d*$|^gpu(?:\d|1[0-5])?$", re.IGNORECASE
)


class NumberedLine(Protocol):
    """A line of a log."""

    @property
    def number(self) -> int:
        """1-based."""
        ...

    @property
    def text(self) -> str:
        """Without its end."""
        ...


@dataclass(frozen=True, slots=True)
class Body:
    """One line without what launchers put before it."""

    text: str
    stream: str
    """Everything that was peeled off but time stamps; empty for a line of the launcher or of a log without marks."""
    rank: int | None = None
    """Global rank, where a mark says so."""
    task: int | None = None
    """Slurm task, where a mark says so: a rank or a node, depending on the launcher."""
    host: str | None = None
    local_rank: int | None = None
    """Rank on its own node, where a mark says so."""


class Streams:
    """Peels lines of one log."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.hosts = _learned(texts)
        self.pods: set[str] = set()
        """Pods that kubectl put before lines, as far as lines were peeled."""

    def body(self, text: str) -> Body:
        """Return the line's own text and where it comes from."""
        marks: list[str] = []
        rank = task = host = local = None
        for _ in range(5):
            if (match := _RANK.match(text)) or (match := _MPI.match(text)):
                rank = int(match.group(1))
            elif match := _RAY.match(text):
                host = match.group(1) or host
            elif ((match := _BRACKET.match(text)) and host_like(match.group(1))) or (match := _POD.match(text)):
                host = match.group(1)
                if text.startswith("[pod/"):
                    self.pods.add(host)
            elif (match := _TASK.match(text)) and rank is None:
                task = int(match.group(1))
            elif match := _LOCAL.match(text):
                local = int(match.group(1))
            elif (match := _HOST.match(text)) and match.group(1) in self.hosts:
                host = match.group(1)
            elif match := _TIME.match(text):
                text = text[match.end() :]
                continue
            else:
                break
            marks.append(match.group(0).strip())
            text = text[match.end() :]
        return Body(text, " ".join(marks), rank, task, host, local)


def host_like(name: str) -> bool:
    """Tell whether a word may be the name of a machine or pod: it holds a digit, and is no exception class."""
    return bool(_HOST_LIKE.match(name)) and not _NO_HOST.search(name)


def _learned(texts: Iterable[str]) -> frozenset[str]:
    """Return the words before `: ` or ` | ` that stand there often, or before the start of a traceback."""
    often: Counter[str] = Counter()
    for text in texts:
        match = _HOST.match(text)
        if match is None or not host_like(match.group(1)):
            continue
        often[match.group(1)] += 3 if text.startswith(("Traceback", "[rank"), match.end()) else 1
    return frozenset(name for name, count in often.items() if count >= 3)
