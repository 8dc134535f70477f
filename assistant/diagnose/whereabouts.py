"""Say where a failure showed itself: the rank that raised the error, the process that failed first, the member that did not join.

These are places for a person to look at. They accuse no node: a bug shows on some rank, too, and a rank that is absent from a
collective may wait for its data. Who is at fault is told by `blame`, from evidence against hardware or host.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from assistant.diagnose.blame import behind, enclosing_host, peer_of
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.kernel import event_of
from assistant.records import Category, Citation, Diagnosis, Whereabouts

MOST = 4
_NCCL = re.compile(r"^([A-Za-z][\w.-]*):\d+:\d+ \[(\d{1,4})\] ")
_RANK = re.compile(r"\[(?:PG [^\]]{0,100}?)?Rank (\d{1,9})\]|(?<!local[ _])\brank[ =:]+(\d{1,9})\b", re.IGNORECASE)
_ABSENT = re.compile(
    r"\b(?:missing|absent|unjoined|lagging) ranks?\b[^\d\n]{0,12}(\d[\d, ]{0,200})"
    r"|\branks? (\d[\d, ]{0,200}?) (?:never|failed to|(?:has|have|had|did|do|does|is|are|was|were)(?: not|n't)|(?:has|have) yet to)"
    r" (?:yet )?(?:join|enter|reach|call|arriv|pass|respond)"
    r"|/(?:task|process)[:=](\d{1,6})\b.{0,40}(?:unhealthy|heartbeat|unreachable)"
    r"|stopped sending heartbeats\D{0,80}task[:=](\d{1,6})",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d{1,9}")
_REASONS = frozenset(
    {"nccl_timeout_error", "nccl_remote_error", "hang", "node_failure", "connection_error", "network_error", "unknown"}
)
"""Reasons for which it matters who was absent or lost."""


def with_places(found: Diagnosis, facts: Facts) -> Diagnosis:
    """Return a diagnosis with where it happened; as it is where nothing failed."""
    if found.category is Category.NONE and found.reason not in ("unknown", "hang"):
        return found
    places: list[Whereabouts] = []
    for place in (*_absent(found, facts), *_raised(found, facts), *_first_failed(facts), *_lost(found, facts)):
        known = {(other.rank, other.task, other.node) for other in places}
        told = place.rank is not None or place.task is not None or place.node is not None
        if told and (place.rank, place.task, place.node) not in known:
            places.append(place)
    return replace(found, where=tuple(places[:MOST]))


def _raised(found: Diagnosis, facts: Facts) -> Iterator[Whereabouts]:
    """Yield where the first cited line of the job and of a kernel was printed."""
    seen: set[str] = set()
    for cited in found.root_cause:
        if cited.file in seen or cited.file not in ("job.log", "dmesg.log"):
            continue
        seen.add(cited.file)
        yield _of_kernel(cited, facts) if cited.file == "dmesg.log" else _of_job(cited, facts)


def _of_job(cited: Citation, facts: Facts) -> Whereabouts:
    body = facts.streams.body(cited.text)
    nccl, word = _NCCL.match(body.text), _RANK.search(body.text)
    rank = body.rank if body.rank is not None else int(word[1] or word[2]) if word else None
    host = nccl[1] if nccl else body.host or enclosing_host(cited.line, facts)
    gpu = int(nccl[2]) if nccl else body.local_rank
    if rank is None and body.task is None and host is None and not facts.exits:
        host = facts.places.only_host()
    return _placed(f"it raised the {_title(cited)}", rank, body.task, host, gpu, cited, facts)


def _of_kernel(cited: Citation, facts: Facts) -> Whereabouts:
    at = cited.line - facts.case.kernel_from
    line = facts.kernel[at] if 0 <= at < len(facts.kernel) else None
    event = event_of(cited.text)
    device = event.device if event is not None else None
    host = line.host if line is not None and line.host else facts.places.host_with(device) if device else None
    return Whereabouts("its kernel says so", facts.places.node_of(host) if host else None, citations=(cited,))


def _title(cited: Citation) -> str:
    return "error" if cited.role == "root" else "first error that is told"


def _first_failed(facts: Facts) -> Iterator[Whereabouts]:
    for told in facts.exits:
        if told.first and not told.victim:
            line = facts.line(told.line)
            cited = Citation("job.log", told.line, line.text if line else "", "first observed failure")
            yield _placed("the launcher saw it fail first", told.rank, None, told.host, told.local_rank, cited, facts)


def _absent(found: Diagnosis, facts: Facts) -> Iterator[Whereabouts]:
    """Yield the ranks that a line calls absent, and the one that is behind in a collective."""
    if found.reason not in _REASONS:
        return
    if (late := behind(facts)) is not None:
        yield _placed(
            "it alone is behind in the collective",
            late[0],
            None,
            None,
            None,
            Citation("job.log", late[1], late[2], "behind"),
            facts,
        )
    for hit in facts.lines:
        if ("ank" in hit.text or "task" in hit.text) and (match := _ABSENT.search(hit.text)):
            named = next(group for group in match.groups() if group)
            cited = Citation("job.log", hit.number, hit.text, "absent")
            for number in _NUMBER.findall(named)[:MOST]:
                yield _placed("it did not join or answer", int(number), None, None, None, cited, facts)


def _lost(found: Diagnosis, facts: Facts) -> Iterator[Whereabouts]:
    """Yield the one peer that all reports of a broken connection name."""
    if found.reason not in _REASONS:
        return
    named: Counter[str] = Counter()
    cited: dict[str, Citation] = {}
    for line in facts.lines:
        if "peer " in line.text and (peer := peer_of(line.text, facts)) is not None:
            named[peer] += 1
            cited.setdefault(peer, Citation("job.log", line.number, line.text, "peer"))
    if len(named) == 1:
        peer = next(iter(named))
        yield Whereabouts("its peers lost the connection to it", peer, citations=(cited[peer],))


def _placed(
    why: str, rank: int | None, task: int | None, host: str | None, gpu: int | None, cited: Citation, facts: Facts
) -> Whereabouts:
    """Return a place with all that the map of the job adds, and the line that it rests on."""
    node = facts.places.node_of(host) if host else facts.places.host_of(rank=rank, task=task) or facts.places.only_host()
    citations: tuple[Citation, ...] = (cited,)
    number = facts.places.line_of(rank) if rank is not None and node is not None else 0
    line = facts.line(number) if number and number != cited.line else None
    if line is not None:
        citations = (cited, Citation("job.log", number, line.text, "places the rank"))
    known_gpu = facts.places.gpu_of(rank) if rank is not None and gpu is None else gpu
    return Whereabouts(why, node, rank, task, known_gpu, citations)
