"""Read what one line says about where a rank ran: NCCL, mpirun, srun, Ray, Slurm's lists, and the words of any program.

A program says it by keys (`rank=3 host=n7`), or by a sentence whose subject is the rank (`rank 3 on n7`). A local rank is no rank,
and a line that names two ranks says nothing of either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from assistant.diagnose.places import ADDRESS, Communicator, Places
from assistant.diagnose.readers.streams import Exit, NumberedLine, Streams, TaskExit, expand, host_like, numbers
from assistant.diagnose.rosters import Rosters

_NCCL = re.compile(r"(?:^|[> ])([A-Za-z][\w.-]*):\d+:\d+ \[(\d{1,18})\] ")
_NCCL_RANK = re.compile(r"\brank (\d{1,9}) nranks (\d{1,9})(?: cudaDev (\d{1,4}))?(?:.{0,24} busId ([0-9a-f]{1,12}))?")
_NCCL_OWN = re.compile(r"(?<![\d.])(\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})<0>")
_MARKED = re.compile(r"^\[rank(\d{1,9})\]")
_RANK = re.compile(r"(?<!local[ _-])(?<!local)(?<![A-Za-z_-])(?:[Gg]lobal[ _-]?)?[Rr](?:ank|ANK)[ =:#]{0,3}(\d{1,9})\b")
_LOCAL = re.compile(r"[Ll]ocal[ _-]?rank[ =:#]{0,3}(\d{1,4})\b", re.IGNORECASE)
_HOST_KEY = re.compile(
    r"\b(?:host(?:name)?|node(?:[ _-]?name)?|NodeName)\b[ \"']{0,2}[=:| ][ \"']{0,3}([A-Za-z][\w.-]*\w)", re.IGNORECASE
)
_SUBJECT = re.compile(
    r"(?<![A-Za-z_-])[Rr](?:ank|ANK)[ =:#]{0,3}\d{1,9}[ ,:]{0,2}"
    r"(?:\(|(?:is |was |now )?(?:running |started |launched |placed |pid \d+ )*(?:on|at) |PID \d+ RUNNING AT )"
    r"(?:node |host )?([A-Za-z][\w.-]*\w)"
)
_RANGE = re.compile(r"\branks?[ =:\[]{1,3}(\d{1,9}) ?(?:-|to|\.\.+) ?(\d{1,9})\b")
_LAUNCHED = re.compile(r"\bon host ([\w.-]+), \d{1,9} tasks?: \[?([\d,-]+)")
_OPENMPI = re.compile(r"\[([A-Za-z][\w.-]*):(\d{2,8})\] (?:\*\*\*|\[ ?\d+\]|Signal|MCW rank (\d{1,9})|Rank (\d{1,9}))")
_PER_NODE = re.compile(
    r"(?:nproc[_-]per[_-]node|n?tasks[_-]per[_-]node|local_world_size|LOCAL_WORLD_SIZE|gpus[_-]per[_-]node)[ =:]+(\d{1,18})",
    re.IGNORECASE,
)
_LISTS = re.compile(r"(?:NODELIST|nodelist|NodeList|hosts|Nodes|nodes)(?:\(s\))?\s*[=:]\s*([A-Za-z][\w.-]*[\d\[][\w.,\[\]-]*)")
_WHOLE_LIST = re.compile(r"\bSLURM_(?:JOB_)?NODELIST=|^\s*NodeList=")
"""Slurm's own list of the nodes of a job; that of a step may hold fewer."""
MOST_RANKS = 1_000_000


def read_places(lines: Iterable[NumberedLine], streams: Streams, exits: Sequence[Exit], tasks: Sequence[TaskExit]) -> Places:
    """Return what a log tells about where its ranks ran."""
    places = Places()
    rosters = Rosters(places)
    for line in lines:
        rosters.read(line.text, line.number)
        _read_line(line.text, line.number, streams, places)
    for told in exits:
        if told.host is None or told.rank is None:
            continue
        places.place(told.rank, told.host, told.line, told.local_rank)
        if told.local_rank is not None:
            places.add_base(told.rank, told.local_rank, told.host)
    for report in tasks:
        for task in report.tasks:
            places.add_task(task, report.host, report.line)
    ended = {report.host for report in tasks if report.how.startswith("Exited with")}
    places.own_exit = ended.pop() if len(ended) == 1 else None
    places.settle()
    return places


def _read_line(text: str, number: int, streams: Streams, places: Places) -> None:
    if text.startswith("[rank") and (match := _MARKED.match(text)):
        places.highest_rank = max(places.highest_rank, int(match[1]))
    if " [" in text and (match := _NCCL.search(text)) and ("NCCL" in text or " INFO " in text or " WARN " in text):
        _read_nccl(match, text, number, streams, places)
        return
    if "ip=" in text[:80] and (address := streams.body(text).host):
        places.addresses.add(address)
    if "ank" in text or "ANK" in text:
        _read_rank(text, number, streams, places)
    if "[" in text[:48] and (match := _OPENMPI.search(text)):
        rank = streams.body(text).rank if not (match[3] or match[4]) else int(match[3] or match[4])
        places.place(rank, match[1], number) if rank is not None else places.name(match[1])
    if " on host " in text and (match := _LAUNCHED.search(text)):
        for task in numbers(match[2]):
            places.add_task(task, match[1], number)
    if ("per" in text or "LOCAL" in text or "local_w" in text or "PER" in text) and (match := _PER_NODE.search(text)):
        places.per_node = places.per_node or int(match.group(1)) or None
    if ("ode" in text or "NODE" in text or "host" in text) and (match := _LISTS.search(text)):
        for host in expand(match.group(1)):
            places.name(host)
        places.complete = places.complete or _WHOLE_LIST.search(text) is not None
    _read_mark(text, number, streams, places)


def _read_mark(text: str, number: int, streams: Streams, places: Places) -> None:
    """Take the host that a mark before the line names, and `3: node07`, which `srun -l hostname` prints."""
    if text[:1].isdigit() or text[:1] == " ":
        body = streams.body(text) if len(text) < 80 else None
        if body is not None and body.task is not None and host_like(body.text.strip()) and " " not in body.text.strip():
            places.add_task(body.task, body.text.strip(), number)
    for host in streams.hosts:
        if text.startswith(host):
            body = streams.body(text)
            places.place(body.rank, host, number) if body.rank is not None else places.name(host)


def _read_nccl(match: re.Match[str], text: str, number: int, streams: Streams, places: Places) -> None:
    host = match[1]
    body = streams.body(text)
    if told := _NCCL_RANK.search(text):
        bus = int(told[4], 16) if told[4] else None
        gpu = int(told[3] or match[2])
        places.add_communicator(Communicator(int(told[2]), int(told[1]), host, gpu, number), bus)
    else:
        places.name(host)
    if body.rank is not None:
        places.place(body.rank, host, number, int(match[2]))
    if " Using " in text or "OOB" in text:
        for address in _NCCL_OWN.findall(text):
            places.also_called(address, host, number)


def _read_rank(text: str, number: int, streams: Streams, places: Places) -> None:
    """Take `rank` and `host` of one line; a line that names several ranks says nothing of one of them."""
    if (match := _RANGE.search(text)) and (host := _host_in(text, streams)):
        first, last = int(match[1]), int(match[2])
        for rank in range(first, min(last, first + MOST_RANKS) + 1 if last - first < MOST_RANKS else first):
            places.place(rank, host, number)
        return
    ranks = {int(found) for found in _RANK.findall(text)}
    if len(ranks) != 1:
        return
    named = _SUBJECT.search(text) or _HOST_KEY.search(text)
    if named is not None and host_like(named[1]) and not ADDRESS.match(named[1]):
        local = _LOCAL.search(text)
        places.place(ranks.pop(), named[1], number, int(local[1]) if local else None)


def _host_in(text: str, streams: Streams) -> str | None:
    """Return the host that a line names by a key, or that stands before it."""
    if (named := _HOST_KEY.search(text)) and host_like(named[1]):
        return named[1]
    before, colon, _ = text.partition(":")
    return streams.body(text).host or (before if colon and host_like(before) else None)
