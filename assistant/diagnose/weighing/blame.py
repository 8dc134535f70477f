"""Name the node at fault, or nobody, and say on which ranks and hosts a failure showed itself.

A healthy node that is set aside by mistake costs more than a second look. A node is named only where evidence of the chosen reason
blames it: a signature or XID that says `blames_node`, and a host that the line names, that printed it, or that the rank ran on.
Several hosts with the same evidence are no verdict but an outage, unless their own kernels say it. A collective time-out names a
node only with two signals: its rank alone is behind, and something else calls it slow.

Where a failure showed itself (the rank that raised the error, the process that failed first, the member that did not join) is for a
person to look at. It accuses no node: a bug shows on some rank, too, and a rank that is absent from a collective may wait for its
data.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.kernel import event_of, named_gpu
from assistant.diagnose.readers.streams import ProcessExit, host_like, stamp
from assistant.diagnose.weighing.external_findings import borne_out
from assistant.diagnose.weighing.findings import Finding
from assistant.logs.lines import Line
from assistant.records import Category, Citation, Diagnosis, NodeFinding, Whereabouts
from assistant.redact import head_of

JUST_BEFORE = timedelta(minutes=2)
RECORD_LINES = 40
"""Lines within which the head of a record is looked for."""
FEWEST_REPORTERS = 2
MOST_HOSTS = 3
"""More hosts with a hardware fault at once are one outage, not so many broken nodes."""
_WORD = re.compile(r"[A-Za-z][\w.-]*")
_PEER = re.compile(r"\bpeer ([\w.:-]{1,80}?)<\d{1,6}>")
_ADDRESS = re.compile(r"^\d+\.\d+\.\d+\.\d+$")
_DOWN = re.compile(
    r"\b(?:NodeName=|[Nn]odes?[/= ]|[Hh]ost[/= ])([\w.-]{1,255}+)(?<=\w).{0,80}?"
    r"(?:\bDOWN\b|[Nn]ot ?[Rr]e(?:sponding|ady)|[Uu]nreachable|\blost\b|\bdied\b|has failed)"
    r"|(?:[Ll]ost (?:contact|connection) (?:to|with)|[Nn]o (?:response|heartbeat) from)(?: node| host)? ([\w.-]+)"
)
_LOST_BELOW = re.compile(r"\blost (?:communication|contact|connection)\b.{0,60}\b(?:node|host):\s*$")
_HOST_FIELD = re.compile(r"\s{0,12}(?:host ?name|node ?name|host|node)\s{0,12}[:=]\s{0,12}([\w.-]{1,255})\s*$", re.IGNORECASE)
BELOW, LONGEST = 4, 400
"""Lines below a notice of Open MPI in which its fields stand, and characters of a line that are read for them."""
_LAST_WORK = re.compile(r"[Ll]ast enqueued (?:NCCL )?work: (\d{1,18})")
_WORK = re.compile(r"SeqNum=(\d{1,18})")
_RANK_OF_NCCL = re.compile(r"\[(?:PG [^\]]{0,100}?)?Rank (\d{1,18})\]|\[rank(\d{1,18})\]")
_SLOW = re.compile(
    r"slow|straggl|throttl|behind|lag|median|thermal|power brake|degraded|stuck|missing|absent|did not (?:join|call|reach)",
    re.IGNORECASE,
)


def blame(cause: Finding, findings: Sequence[Finding], facts: Facts) -> tuple[NodeFinding, ...]:
    """Return the nodes to blame for the chosen finding's reason, best evidence first; empty when that is not certain.

    Args:
        cause: The cause.
        findings: All weighed findings.
        facts: For ranks, hosts and launchers.
    """
    evidence: dict[str, list[Finding]] = defaultdict(list)
    for finding in (cause, *findings):
        if finding.reason != cause.reason or not finding.blames or finding.factor < 0.15:
            continue
        if not borne_out(finding, findings, facts):
            continue
        host = host_of(finding, facts)
        if host is not None and not facts.places.foreign(host) and finding not in evidence[host]:
            evidence[host].append(finding)
    evidence = {host: against for host, against in evidence.items() if against}
    if not evidence and cause.reason == "node_failure":
        return _called_down(facts)
    if not evidence and cause.reason == "network_error":
        return _named_by_all(findings, facts)
    if len(evidence) > 1:
        evidence = _surest(evidence, cause, facts)
    if not evidence or len(evidence) > MOST_HOSTS:
        return ()
    ordered = sorted(evidence.items(), key=lambda item: (-max(f.strength for f in item[1]), min(f.line for f in item[1])))
    return tuple(NodeFinding(host, _why(against), tuple(_cite(f) for f in against[:3])) for host, against in ordered)


def _called_down(facts: Facts) -> tuple[NodeFinding, ...]:
    """Return the one node that a line after the last step calls down, in whatever words; empty when there are several."""
    nodes: dict[str, Citation] = {}
    for file, lines in (("job.log", facts.lines), ("slurmctld.log", facts.scheduler)):
        for line in lines:
            if file == "job.log" and line.number <= facts.progress.last_line:
                continue
            match = _DOWN.search(line.text)
            host = (match.group(1) or match.group(2)).rstrip(".,:;") if match else _named_below(line, lines)
            if (
                host
                and host_like(host)
                and not facts.places.foreign(host)
                and (file == "job.log" or facts.places.knows(host) or _ended_us(line.text, facts))
            ):
                nodes.setdefault(host, Citation(file, line.number, line.text, "called down"))
    if len(nodes) != 1:
        return ()
    host, citation = next(iter(nodes.items()))
    return (NodeFinding(host, f"{citation.file} calls it down: {head_of(citation.text.strip(), 160)}", (citation,)),)


def _named_below(line: Line, lines: Sequence[Line]) -> str:
    """Return the host that the lines below name, where a line says that a node's daemon is lost and ends with a colon; or empty."""
    if not _LOST_BELOW.search(line.text[-LONGEST:]):
        return ""
    place = bisect_left(lines, line.number, key=lambda entry: entry.number)
    match = next((m for entry in lines[place + 1 : place + 1 + BELOW] if (m := _HOST_FIELD.match(entry.text[:LONGEST]))), None)
    return match[1] if match is not None else ""


def _ended_us(text: str, facts: Facts) -> bool:
    """Tell whether the scheduler set a node down in the minutes in which it ended this job over a failed node."""
    notice = next((line.text for line in reversed(facts.lines[-200:]) if "DUE TO NODE FAILURE" in line.text), None)
    ended, down = (stamp(notice), stamp(text)) if notice is not None else (None, None)
    return ended is not None and down is not None and timedelta() <= ended - down <= JUST_BEFORE


def _surest(evidence: dict[str, list[Finding]], cause: Finding, facts: Facts) -> dict[str, list[Finding]]:
    """Of several hosts keep those that their kernel or the scheduler accuses, else the chosen one's if it came first alone."""
    own = host_of(cause, facts)
    accused = {host: against for host, against in evidence.items() if any(f.external or f.file != "job.log" for f in against)}
    if accused:
        return accused
    if own in evidence and all(min(f.line for f in against) > cause.line for host, against in evidence.items() if host != own):
        most = max(len(against) for against in evidence.values())
        return {own: evidence[own]} if len(evidence) <= MOST_HOSTS and len(evidence[own]) >= most else {}
    return {}


def host_of(finding: Finding, facts: Facts) -> str | None:
    """Return the host that a finding is about, None where the case does not tell."""
    host = facts.places.node_of(finding.host) if finding.host is not None else None
    if host is not None and host in facts.streams.pods:
        return None  # a pod is no node, and nothing tells on which node it ran
    is_named = host is not None and _is_name(host, facts)
    if is_named and not (finding.file == "job.log" and _collector(str(host), facts)):
        return host
    if (spoken := _spoken_of(finding, facts)) is not None:
        return spoken
    if finding.reason == "node_failure" and finding.file != "dmesg.log":
        return None  # it is told by others: who printed it is not who is gone
    placed = facts.places.host_of(rank=finding.rank, task=finding.task)
    if placed is not None:
        return placed
    if finding.file != "job.log":
        return facts.places.only_host() or _with_device(finding, facts)
    return enclosing_host(finding.line, facts) or _first_to_fail(finding, facts) or facts.places.only_host()


def _with_device(finding: Finding, facts: Facts) -> str | None:
    """Return the only host of the job that has the device of a kernel's line, where the kernel does not name itself."""
    event = event_of(finding.text)
    return facts.places.host_with(event.device) if event is not None and event.device is not None else None


def enclosing_host(number: int, facts: Facts) -> str | None:
    """Return the only host that the head of a record names, `node-42 restart 0 fails: {`, for a line inside its braces."""
    depth = 0
    for line in reversed(facts.between(max(1, number - RECORD_LINES), number - 1)):
        depth += line.text.count("{") - line.text.count("}")
        if depth <= 0 or line.text[:1].isspace() or not line.text.rstrip().endswith("{"):
            continue
        hosts = {word for match in _WORD.finditer(line.text) if host_like(word := match.group(0).rstrip(".:-"))}
        closed = _closed_by(line.number, facts)
        return facts.places.node_of(hosts.pop()) if len(hosts) == 1 and closed is not None and closed >= number else None
    return None


def _closed_by(head: int, facts: Facts) -> int | None:
    """Return the line that closes the braces of a record, None where none does: its end would be a guess."""
    depth = 0
    for line in facts.between(head, head + 2 * RECORD_LINES):
        depth += line.text.count("{") - line.text.count("}")
        if depth <= 0:
            return line.number
    return None


def _named_by_all(findings: Sequence[Finding], facts: Facts) -> tuple[NodeFinding, ...]:
    """Return the one node that all others who report cannot reach, and several do: the two ends of one link are equal."""
    reports: dict[str, dict[str, Finding]] = defaultdict(dict)
    for finding in findings:
        if finding.reason == "network_error" and finding.file == "job.log" and (peer := peer_of(finding.text, facts)):
            reporter = (
                facts.places.node_of(finding.host) if finding.host else facts.places.host_of(rank=finding.rank, task=finding.task)
            )
            if reporter is not None and reporter != peer:
                reports[peer].setdefault(reporter, finding)
    for peer, reporters in reports.items():
        accusers = {reporter for by_reporter in reports.values() for reporter in by_reporter if reporter != peer}
        if len(reporters) >= FEWEST_REPORTERS and accusers == set(reporters) and not _names_another(peer, reports):
            why = f"the job log says: {', '.join(sorted(reporters))} cannot reach it, and reach all others"
            return (NodeFinding(peer, why, tuple(_cite(finding) for finding in list(reporters.values())[:3])),)
    return ()


def _names_another(peer: str, reports: Mapping[str, Mapping[str, Finding]]) -> bool:
    """Tell whether a host that cannot reach a peer cannot reach another one either: then its own end may be broken."""
    return any(set(reports[peer]) & set(by_reporter) for peer_named, by_reporter in reports.items() if peer_named != peer)


def peer_of(text: str, facts: Facts) -> str | None:
    """Return the node of the peer that a line names with its port, None where no node is known by that name."""
    match = _PEER.search(text)
    node = facts.places.node_of(match.group(1)) if match is not None else None
    return node if node is not None and not _ADDRESS.match(node) and facts.places.knows(node) else None


def _is_name(host: str, facts: Facts) -> bool:
    """Tell whether the word is a node's name; an address is one only where the job's own workers go by addresses."""
    if _ADDRESS.match(host):
        return host in facts.places.addresses and not facts.places.hosts
    return host_like(host) or facts.places.knows(host)


def _spoken_of(finding: Finding, facts: Facts) -> str | None:
    """Return the one host of the job that the text of a line names, wherever it stands; `ON host` is who runs the batch script."""
    text = facts.streams.body(finding.text).text
    words = {match.group(0).rstrip(".:-") for match in _WORD.finditer(text) if not text[: match.start()].endswith(" ON ")}
    hosts = {word for word in words if word in facts.places.hosts and not _ADDRESS.match(word)}
    return hosts.pop() if len(hosts) == 1 else None


def _collector(host: str, facts: Facts) -> bool:
    """Tell whether a host stands before the lines of all ranks: whoever collected the log, not whoever wrote the line."""
    launched = {exit.host for exit in facts.exits} | {task.host for task in facts.tasks}
    return facts.streams.hosts == {host} and host not in launched and len(facts.places.hosts) > 1


def _first_to_fail(finding: Finding, facts: Facts) -> str | None:
    """Return the one host whose processes failed by themselves, where launchers agree on one."""
    if finding.rank is not None or finding.task is not None:
        return None
    first = _earliest([exit for exit in facts.exits if exit.first and exit.host and not exit.victim])
    if len(first) == 1:
        return first.pop()
    failed = {task.host for task in facts.tasks if not task.victim}
    return failed.pop() if len(failed) == 1 and not first else None


def _earliest(exits: Sequence[ProcessExit]) -> set[str]:
    """Return the hosts of the processes that failed first: by the times of all blocks, of all blocks where one has no time."""
    times = [exit.at for exit in exits if exit.at is not None]
    lead = min(times) if times and len(times) == len(exits) else None
    return {exit.host for exit in exits if exit.host and (lead is None or exit.at == lead)}


def _why(findings: Sequence[Finding]) -> str:
    best = max(findings, key=lambda finding: finding.strength)
    sources = {"dmesg.log": "its kernel says", "slurmctld.log": "the scheduler says", "job.log": "the job log says"}
    return f"{sources.get(best.file, best.file)}: {head_of(best.text.strip(), 160)} ({best.rule})"


def _cite(finding: Finding) -> Citation:
    return Citation(finding.file, finding.line, finding.text, finding.rule)


def straggler(facts: Facts) -> NodeFinding | None:
    """Return the node whose rank alone is behind in a collective and that something else calls slow.

    Two signals are asked for: a rank stuck in its data loader is behind as well, on a healthy node.
    """
    place = rank_behind(facts)
    if place is None:
        return None
    rank, line, text = place
    host = facts.places.host_of(rank=rank, task=None)
    if host is None:
        return None
    name_pattern = re.compile(rf"\brank[ =:]*{rank}\b|{re.escape(host.split('.')[0])}\b", re.IGNORECASE)
    for line_about in (*facts.lines, *facts.scheduler):
        if (
            line_about.number != line
            and _SLOW.search(line_about.text)
            and name_pattern.search(line_about.text)
            and not _LAST_WORK.search(line_about.text)
            and "Watchdog" not in line_about.text
        ):
            citations = (
                Citation("job.log", line, text, "rank behind"),
                Citation("job.log", line_about.number, line_about.text, "slow"),
            )
            return NodeFinding(
                host, f"rank {rank} alone is behind in the collective, and: {head_of(line_about.text.strip(), 120)}", citations
            )
    return None


def rank_behind(facts: Facts) -> tuple[int, int, str] | None:
    """Return the only rank that enqueued less work than all others, which agree: the rank, and the number and text of its line."""
    reached: dict[int, tuple[int, int, str]] = {}
    for pattern in (_LAST_WORK, _WORK):
        reached = {}
        for line in facts.lines:
            if (match := pattern.search(line.text)) and (rank := _RANK_OF_NCCL.search(line.text)):
                reached.setdefault(int(rank.group(1) or rank.group(2)), (int(match.group(1)), line.number, line.text))
        highest = max((count for count, _, _ in reached.values()), default=0)
        late = [rank for rank, (count, _, _) in reached.items() if count < highest]
        if len(reached) >= 3 and len(late) == 1:
            _, number, text = reached[late[0]]
            return late[0], number, text
    return None


MOST_PLACES = 4
_NCCL_LINE = re.compile(r"^([A-Za-z][\w.-]*):\d+:\d+ \[(\d{1,4})\] ")
_RANK_NAMED = re.compile(r"\[(?:PG [^\]]{0,100}?)?Rank (\d{1,9})\]|(?<!local[ _])\brank[ =:]+(\d{1,9})\b", re.IGNORECASE)
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


def with_places(diagnosis: Diagnosis, facts: Facts) -> Diagnosis:
    """Return a diagnosis with where it happened; as it is where nothing failed."""
    if diagnosis.category is Category.NONE and diagnosis.reason not in ("unknown", "hang"):
        return diagnosis
    places: list[Whereabouts] = []
    for place in (*_absent(diagnosis, facts), *_raised(diagnosis, facts), *_first_failed(facts), *_lost(diagnosis, facts)):
        listed = {(entry.rank, entry.task, entry.node) for entry in places}
        says_place = place.rank is not None or place.task is not None or place.node is not None
        if says_place and (place.rank, place.task, place.node) not in listed:
            places.append(place)
    return replace(diagnosis, where=tuple(places[:MOST_PLACES]))


def _raised(diagnosis: Diagnosis, facts: Facts) -> Iterator[Whereabouts]:
    """Yield where the first cited line of the job and of a kernel was printed."""
    files: set[str] = set()
    for cited in diagnosis.root_cause:
        if cited.file in files or cited.file not in ("job.log", "dmesg.log"):
            continue
        files.add(cited.file)
        yield _of_kernel(cited, facts) if cited.file == "dmesg.log" else _of_job(cited, facts)


def _of_job(cited: Citation, facts: Facts) -> Whereabouts:
    body = facts.streams.body(cited.text)
    nccl, word = _NCCL_LINE.match(body.text), _RANK_NAMED.search(body.text)
    rank = body.rank if body.rank is not None else int(word[1] or word[2]) if word else None
    host = nccl[1] if nccl else body.host or enclosing_host(cited.line, facts)
    gpu = int(nccl[2]) if nccl else body.local_rank if (index := named_gpu(body.text)) is None else index
    if rank is None and body.task is None and host is None and not facts.exits:
        host = facts.places.only_host()
    return _placed(f"it raised the {_title(cited)}", rank, body.task, host, gpu, cited, facts)


def _of_kernel(cited: Citation, facts: Facts) -> Whereabouts:
    at = cited.line - facts.case.kernel_from
    line = facts.kernel[at] if 0 <= at < len(facts.kernel) else None
    event = event_of(cited.text)
    device = event.device if event is not None else None
    host = line.host if line is not None and line.host else facts.places.host_with(device) if device else None
    node = facts.places.node_of(host) if host else None
    return Whereabouts("its kernel says so", node, gpu=named_gpu(cited.text), citations=(cited,))


def _title(cited: Citation) -> str:
    return "error" if cited.role == "root" else "first error that is told"


def _first_failed(facts: Facts) -> Iterator[Whereabouts]:
    for exit in facts.exits:
        if exit.first and not exit.victim:
            line = facts.line(exit.line)
            cited = Citation("job.log", exit.line, line.text if line else "", "first observed failure")
            yield _placed("the launcher saw it fail first", exit.rank, None, exit.host, exit.local_rank, cited, facts)


def _absent(diagnosis: Diagnosis, facts: Facts) -> Iterator[Whereabouts]:
    """Yield the ranks that a line calls absent, and the one that is behind in a collective."""
    if diagnosis.reason not in _REASONS:
        return
    if (late := rank_behind(facts)) is not None:
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
            members = next(group for group in match.groups() if group)
            cited = Citation("job.log", hit.number, hit.text, "absent")
            for number in _NUMBER.findall(members)[:MOST_PLACES]:
                yield _placed("it did not join or answer", int(number), None, None, None, cited, facts)


def _lost(diagnosis: Diagnosis, facts: Facts) -> Iterator[Whereabouts]:
    """Yield the one peer that all reports of a broken connection name."""
    if diagnosis.reason not in _REASONS:
        return
    hosts: Counter[str] = Counter()
    cited: dict[str, Citation] = {}
    for line in facts.lines:
        if "peer " in line.text and (peer := peer_of(line.text, facts)) is not None:
            hosts[peer] += 1
            cited.setdefault(peer, Citation("job.log", line.number, line.text, "peer"))
    if len(hosts) == 1:
        peer = next(iter(hosts))
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
