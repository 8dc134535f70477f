"""Turn facts into findings: lines that speak for a reason, each with its role, its weight and where it happened.

Signatures are matched everywhere, so much is left out here: herrings, the insides of tracebacks (source code quotes error texts),
what is printed while objects are torn down, the launcher's own traceback, and of a scheduler's log what concerns other jobs. A
traceback gives one finding, for the exception of its chain that an expert would name (see `exceptions`).

What the reasons have to do with one another stands here too: which are symptoms, which are told by how a job ends, which explain
which; and kernel lines that mean one thing or another by what stands around them (boots, and whom the OOM killer took).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from assistant.content.reasons import Herring, Role, Signature, SignatureSource
from assistant.diagnose.facts import Facts
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.readers.exceptions import Judged, bare, judge, meaning, network_disk
from assistant.diagnose.readers.kernel import CodeMeaning, event_of, meaning_of
from assistant.diagnose.readers.streams import Body
from assistant.diagnose.readers.tracebacks import ORPHAN, Episode, EpisodeKind, Raised, orphans
from assistant.logs.scan import Hit
from assistant.records import Action
from assistant.rules.matching import groups


@dataclass(slots=True)
class Finding:
    """A line that speaks for a reason."""

    reason: str
    role: Role
    weight: float
    """0..1, as the signature or the class says."""
    file: str
    line: int
    text: str
    rule: str
    rank: int | None = None
    task: int | None = None
    host: str | None = None
    """Host that printed it or that it names, where it says so itself."""
    blames: bool = False
    """Whether that host is at fault."""
    action: Action | None = None
    episode: Episode | None = None
    stream: str = ""
    external: bool = False
    """Out-of-band: from the kernel or the scheduler, wherever it was printed."""
    more: tuple[tuple[int, str], ...] = ()
    """Further lines of the same episode that say it too: (number, text)."""
    orphan: bool = False
    """Whether it is an exception line whose traceback is missing."""
    factor: float = 1.0
    """What surroundings make of the weight, see `weighing`."""
    note: str = ""
    """Why the factor is what it is."""
    survived: bool = False
    """Whether training, or the process that printed it, went on after it."""

    @property
    def strength(self) -> float:
        """Weight times factor."""
        return self.weight * self.factor


_CODE_GROUPS = ("(?P<xid>", "(?P<sxid>", "(?P<ascend>")
"""A signature with one of them finds a device code; what the code means is told by its table."""
_CHECKS_CLOSED = ", in _check_closed"
"""The frame in which `multiprocessing.connection` refuses what its own side has closed; a peer that is gone shows as EOFError."""
NEXT_LINES = 2
"""From the end of the traceback of a side thread to the beginning of the one that it made the main thread raise."""
NO_FAILURE = "no_failure"
"""The reason whose herrings only take back that all is well."""
LAST_LINES = 5
"""Lines behind a traceback at most, where it is the last that a log says."""
_NCCL_HOST = re.compile(r"^([A-Za-z][\w.-]*):\d+:\d+ \[\d+\] ")
_SPEAKER = re.compile(
    r"\[(?:epilog|prolog|health\w*|node\w*|gpu\w*|dmesg|kernel|syslog)[ :@/]+([A-Za-z](?=[A-Za-z_.-]{0,254}\d)[\w.-]{1,255}+)\]"
)
_RANK_WORD = re.compile(r"\[(?:PG [^\]]{0,100}?)?Rank (\d{1,18})\]|\brank[ =:]+(\d{1,18})\b", re.IGNORECASE)


def split(hits: Iterable[Hit]) -> tuple[dict[int, list[Signature]], dict[int, list[Herring]], dict[int, str]]:
    """Return the signatures, the herrings and the text of each line that anything matches."""
    signatures: dict[int, list[Signature]] = {}
    herrings: dict[int, list[Herring]] = {}
    texts: dict[int, str] = {}
    for hit in hits:
        texts.setdefault(hit.line, hit.text)
        if isinstance(hit.entry, Signature):
            entries = signatures.setdefault(hit.line, [])
            if hit.entry not in entries:
                entries.append(hit.entry)
        else:
            herrings.setdefault(hit.line, []).append(hit.entry)
    return signatures, herrings, texts


def reason_of(entry: Signature | Herring) -> str:
    """Return the reason that a signature speaks for: its id begins with it."""
    return entry.id.partition(".")[0]


def episodes_to_weigh(signatures: Sequence[Signature], herrings: Sequence[Herring]) -> list[Signature]:
    """Drop what a herring of the same reason takes back."""
    names = {reason_of(herring) for herring in herrings}
    return [signature for signature in signatures if reason_of(signature) not in names]


def of_job(facts: Facts, knowledge: Knowledge) -> Iterator[Finding]:
    """Yield what the job log says: tracebacks first, then plain lines, then exception lines without a traceback."""
    signatures, herrings, texts = split(facts.hits)
    signatures = {n: hits for n, entries in signatures.items() if (hits := episodes_to_weigh(entries, herrings.get(n, ())))}
    coded = {n: code for n, entries in signatures.items() if (code := _code_of(entries, texts[n], knowledge))}
    signatures = {n: [s for s in entries if reason_of(s) != "unknown" or n in coded] for n, entries in signatures.items()}
    signatures = {n: entries for n, entries in signatures.items() if entries}
    inside: dict[int, Episode] = {}
    for episode in facts.episodes:
        inside |= dict.fromkeys((number for number in episode.lines if _belongs(number, episode, facts)), episode)
    by_text: dict[str, Finding] = {}
    for episode in facts.episodes:
        finding = _of_episode(episode, signatures, knowledge, facts)
        if finding is not None and finding.line in coded:
            finding = by_code(finding, coded[finding.line])
        if finding is not None:
            by_text.setdefault(facts.streams.body(finding.text).text, finding)
            yield finding
    spoken = {number for e in facts.episodes for raised in e.raised for number in (raised.line, *(n for n, _ in raised.more))}
    for number in sorted(signatures):
        around = inside.get(number)
        line = facts.line(number)
        text = line.text if line is not None else texts[number]
        if number in spoken or (around is not None and _quoted(text, around, facts)) or _ignored(number, facts):
            continue
        if all(bare(signature) for signature in signatures[number]) and ORPHAN.match(facts.streams.body(text).text):
            continue
        if number in coded:
            yield by_code(of_line(signatures[number][0], number, text, facts), coded[number])
            continue
        for signature in strongest(signatures[number]):
            yield of_line(signature, number, text, facts)
    for orphan in _orphans(facts, signatures, herrings, inside, spoken, knowledge):
        same = by_text.get(facts.streams.body(orphan.text).text)
        if same is not None:  # the same exception with its traceback tells more
            orphan.reason, orphan.role, orphan.weight, orphan.rule, orphan.action = (
                same.reason,
                same.role,
                same.weight,
                same.rule,
                same.action,
            )
        yield orphan


def _code_of(signatures: Sequence[Signature], text: str, knowledge: Knowledge) -> CodeMeaning | None:
    """Return what the device code means that a signature found in a line, None where it found none that a table knows."""
    if not any(group in signature.pattern for signature in signatures for group in _CODE_GROUPS):
        return None
    event = event_of(text)
    meaning = meaning_of(event, knowledge.site) if event is not None else None
    return meaning if meaning is not None and meaning.reason in knowledge.reasons.keys() - knowledge.hidden else None


def by_code(finding: Finding, meaning: CodeMeaning) -> Finding:
    """Return a finding as the table of its device code has it."""
    return replace(
        finding,
        reason=meaning.reason,
        role=meaning.role,
        weight=meaning.weight,
        rule=meaning.rule,
        blames=meaning.blames,
        action=meaning.action,
    )


def _belongs(number: int, episode: Episode, facts: Facts) -> bool:
    """Tell whether a line between the ends of an episode is of its stream."""
    line = facts.line(number)
    return line is not None and facts.streams.body(line.text).stream == episode.stream


def _quoted(text: str, episode: Episode, facts: Facts) -> bool:
    """Tell whether a line inside a traceback is source code, or part of one that counts for nothing."""
    body = facts.streams.body(text).text
    return body[:1].isspace() or episode.kind in (EpisodeKind.IGNORED, EpisodeKind.ATEXIT)


def _ignored(number: int, facts: Facts) -> bool:
    """Tell whether the line before says that Python ignores this exception, as it does while objects are torn down."""
    before = facts.line(number - 1)
    return before is not None and "Exception ignored in" in before.text


def strongest(signatures: Sequence[Signature]) -> list[Signature]:
    """Return one signature for each reason: the heaviest."""
    best: dict[str, Signature] = {}
    for signature in signatures:
        reason = reason_of(signature)
        if reason not in best or signature.weight > best[reason].weight:
            best[reason] = signature
    return list(best.values())


def of_line(signature: Signature, number: int, text: str, facts: Facts, file: str = "job.log") -> Finding:
    """Return what one signature says on one line."""
    body = facts.streams.body(text)
    fields = groups(signature, text)
    is_external = SignatureSource.JOB not in signature.where
    return Finding(
        reason_of(signature),
        signature.role,
        signature.weight,
        file,
        number,
        text,
        signature.id,
        rank=_number(fields.get("rank")) if fields.get("rank") else _rank(body),
        task=body.task,
        host=_host(fields, body, lost=reason_of(signature) == "node_failure"),
        blames=signature.blames_node,
        action=signature.action,
        stream=body.stream,
        external=is_external,
        orphan=bool(ORPHAN.match(body.text)),
    )


def _host(fields: Mapping[str, str], body: Body, *, lost: bool) -> str | None:
    if fields.get("node"):
        return fields["node"].strip("[](),:;'\"")
    if match := _NCCL_HOST.match(body.text):
        return match.group(1)
    if match := _SPEAKER.match(body.text):
        return match.group(1)
    return None if lost and body.stream.startswith("[") else body.host  # a pod that tells of a lost node is not that node


def _rank(body: Body) -> int | None:
    if body.rank is not None:
        return body.rank
    match = _RANK_WORD.search(body.text)
    return int(match.group(1) or match.group(2)) if match else None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _of_episode(
    episode: Episode, signatures: Mapping[int, Sequence[Signature]], knowledge: Knowledge, facts: Facts
) -> Finding | None:
    if episode.kind in (EpisodeKind.IGNORED, EpisodeKind.ATEXIT, EpisodeKind.LAUNCHER):
        return None
    judged = judge(episode, signatures, knowledge.reasons)
    judged = _placed(judged, episode, facts)
    signature = judged.signature
    fields = groups(signature, judged.text) if signature is not None else {}
    finding = Finding(
        judged.reason,
        judged.role,
        judged.weight,
        "job.log",
        judged.line,
        judged.text,
        judged.rule,
        rank=episode.rank,
        task=episode.task,
        host=fields.get("node") or episode.host,
        blames=signature.blames_node if signature is not None else False,
        action=signature.action if signature is not None else None,
        episode=episode,
        stream=episode.stream,
        more=judged.more,
    )
    if episode.kind is EpisodeKind.THREAD and closed_under(episode, facts):
        finding.factor, finding.note = 0.15, "a side thread read on from what its program had closed as it ended"
    elif episode.kind is EpisodeKind.THREAD and not (_last_words(episode, facts) or _ends_program(episode, facts)):
        finding.factor, finding.note = 0.4, "raised in a side thread"
    return finding


def closed_under(episode: Episode, facts: Facts) -> bool:
    """Tell whether a thread died of a connection that its own process had closed: that one was on its way out."""
    return any(_CHECKS_CLOSED in line.text for line in facts.between(episode.first, episode.last))


def _last_words(episode: Episode, facts: Facts) -> bool:
    """Tell whether a log ends with a traceback: after a side thread died nothing else did or said anything."""
    return facts.lines_total - episode.last <= LAST_LINES and not facts.later_steps(episode.last)


def _ends_program(episode: Episode, facts: Facts) -> bool:
    """Tell whether the main thread raises right behind a side thread that died: it waited for what that one was to bring."""
    later = (candidate for candidate in facts.episodes if candidate.stream == episode.stream and candidate.first > episode.last)
    following = next(later, None)
    return following is not None and following.kind is EpisodeKind.MAIN and following.first <= episode.last + NEXT_LINES


def _placed(judged: Judged, episode: Episode, facts: Facts) -> Judged:
    """An I/O error is the shared file system's where the last path spoken of lies on one."""
    if judged.reason != "os_error" or "errno 5" not in f"{judged.rule} {judged.text}".lower().replace("[errno 5]", "errno 5"):
        return judged
    around = " ".join(line.text for line in facts.between(max(1, episode.first - 6), episode.last))
    return (
        judged._replace(reason="s3_storage_error", rule=f"{judged.rule} on a shared file system")
        if network_disk(around)
        else judged
    )


def _orphans(
    facts: Facts,
    signatures: Mapping[int, Sequence[Signature]],
    herrings: Mapping[int, Sequence[Herring]],
    inside: Mapping[int, Episode],
    spoken: set[int],
    knowledge: Knowledge,
) -> Iterator[Finding]:
    def is_spoken_for(number: int) -> bool:
        if number in spoken or number in inside or any(reason_of(herring) != NO_FAILURE for herring in herrings.get(number, ())):
            return True
        return not all(bare(s) for s in signatures.get(number, ())) or _ignored(number, facts)

    for orphan in orphans(facts.lines, facts.streams, is_spoken_for):
        (number, text), body = orphan.line, orphan.body
        class_meaning = meaning(Raised(orphan.name, orphan.message, number, text, []), knowledge.reasons)
        yield Finding(
            class_meaning.reason,
            class_meaning.role,
            class_meaning.weight * 0.9,
            "job.log",
            number,
            text,
            class_meaning.rule,
            body.rank,
            body.task,
            body.host,
            stream=body.stream,
        )


SYMPTOMS = frozenset({"nccl_timeout_error", "nccl_remote_error"})
"""Reasons that are never more than a symptom."""
HARDWARE = frozenset({"ecc_error", "nvlink_error", "node_failure", "network_error", "cuda_error"})
SPECIFIC = frozenset({"ecc_error", "nvlink_error", "node_failure"})
"""Hardware reasons that a more general text of the same failure often hides."""
EXTERNAL = frozenset({"preempted", "time_limit", "cancelled"})
ENDINGS = EXTERNAL | {"no_failure", "hang", "slow_job", "loss_spike", "unknown"}
"""Reasons that are told by how the job ended, not by an error; see `termination`."""
ROLES = {Role.ROOT: 1.0, Role.SYMPTOM: 0.5, Role.CASCADE: 0.22, Role.CONFIRMATION: 0.0}
_GPU_LIKE = ("CUDA", "NCCL", "nccl", "Cuda", "cuda", "XID", "Xid", "SIGABRT", "SIGBUS", "Aborted", "AcceleratorError", "Bus error")


def role_factor(finding: Finding) -> float:
    """Return what the role leaves of the weight: all of a root, half of a symptom, little of a cascade."""
    if finding.role is Role.ROOT and (
        finding.reason in SYMPTOMS or (finding.reason == "connection_error" and finding.weight < 0.6)
    ):
        return ROLES[Role.SYMPTOM]
    return ROLES[finding.role]


def symptomatic(finding: Finding) -> bool:
    """Tell whether a finding is no more than a symptom or cascade."""
    return role_factor(finding) < 1.0


def explains(reason: str, finding: Finding) -> bool:
    """Tell whether a fault of this kind can make a job print that finding."""
    if finding.reason == reason or finding.reason in SYMPTOMS or finding.reason in ("connection_error", "hang", "killed"):
        return True
    if reason in ("ecc_error", "nvlink_error", "cuda_error"):
        return finding.reason in HARDWARE or any(word in finding.text for word in _GPU_LIKE)
    if reason == "s3_storage_error":
        return finding.reason in (
            "os_error",
            "file_not_found_error",
            "dataset_loading_error",
            "model_loading_error",
            "dataloader_killed",
            "permission_error",
        )
    if reason == "out_of_memory_error":
        return finding.reason in ("dataloader_killed", "runtime_error", "cuda_error", "os_error")
    if reason == "node_failure":
        return finding.reason in HARDWARE or finding.reason in ("os_error", "s3_storage_error")
    if reason == "network_error":
        return finding.reason in ("s3_storage_error", "network_error")
    return False


_BOOT = re.compile(r"Linux version \d|Command line: (?:BOOT_IMAGE|root)=|Booting (?:Linux|paravirtualized kernel)")
BACK_UP = timedelta(minutes=45)
"""A big server is up again by then; who boots it later does so for another reason."""
RECENT_BOOT = timedelta(minutes=30)
_VICTIM = re.compile(r"Killed process (\d{1,18}) \(([^)]{1,60})\)|\btask=([^,]{1,60}),pid=(\d{1,18})")
_WORKER_PIDS = re.compile(r"\bpid(?:s|\(s\))?:? ?(\d[\d, ]*)")
_WORKER_NAMES = ("pt_data_worker", "data_worker", "dataloader", "tf_data_", "DataLoader")


def is_boot(text: str) -> bool:
    """Tell whether a kernel line is the banner of a boot."""
    return _BOOT.search(text) is not None


def booted_within(finding: Finding, at: datetime | None, facts: Facts) -> bool:
    """Tell whether a boot lies after the first output of the attempt, so that the node went down under it.

    Every kernel log begins with a boot. Where the job printed no time, only a boot right at the end counts, of a log that knew the
    machine before.
    """
    start = facts.span.start
    if at is not None and start is not None:
        return start < at <= (facts.span.end or start) + BACK_UP
    own = [line for line in facts.kernel if line.host == finding.host]
    if not any(line.number < finding.line and not is_boot(line.text) and line.text.strip(" #=-") for line in own[1:]):
        return False
    latest = max((line.at for line in own if line.at), default=None)
    return at is None or latest is None or latest - at <= RECENT_BOOT


def confirm_workers(findings: Sequence[Finding]) -> None:
    """Let the OOM killer's records speak for a killed data worker where a data worker is all that it took."""
    killed = [finding for finding in findings if finding.reason == "dataloader_killed" and finding.factor > 0.1]
    records = [f for f in findings if f.reason == "out_of_memory_error" and f.file == "dmesg.log"]
    pids = {
        pid for finding in killed for process_list in _WORKER_PIDS.findall(finding.text) for pid in re.findall(r"\d+", process_list)
    }
    victims = {victim for record in records for victim in _victims(record.text)}
    if not killed or not victims or not all(pid in pids or name.startswith(_WORKER_NAMES) for pid, name in victims):
        return
    for record in records:
        record.reason, record.role, record.factor = "dataloader_killed", Role.CONFIRMATION, 0.8
        record.note = "the kernel killed the data worker"


def _victims(text: str) -> list[tuple[str, str]]:
    return [(m.group(1) or m.group(4), m.group(2) or m.group(3)) for m in _VICTIM.finditer(text)]
