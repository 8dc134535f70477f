"""The lines of a case that may tell why it failed, in the form in which memory and learning compare them.

A line counts whether a signature knows it or not. For a pattern, what differs from run to run becomes a bounded class (numbers,
addresses, paths, hosts); words stay. Of several occurrences what varies between them is widened too. Classes hold no nested repeat,
so no pattern made here can take long in `re`, and all of them compile in Hyperscan. Lines that a person points at are looked up
here, so that what is learned from them stands in the case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import chain, islice
from typing import NamedTuple

from assistant.content.reasons import Herring, Role, Signature
from assistant.diagnose.facts import Facts
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.readers.exceptions import bare
from assistant.diagnose.readers.streams import Streams, host_like
from assistant.diagnose.readers.tracebacks import TEARDOWN_KINDS
from assistant.errors import InputError
from assistant.llm.embedded import words_of
from assistant.logs.prefix import parse
from assistant.records import Citation

MOST_WORDS = 14
"""Words of a line that a pattern keeps; what stands behind is detail."""
WORDS_OF_PHRASE = 6
"""Words that make a phrase, plain ones included."""
MOST_OF_LINE = 600
"""Of a line that are looked at."""
_HOST = r"[\w.\-]{1,64}"
_GAP = r".{0,120}"
_PATH_OR_URL = r"(?:[a-z][a-z0-9+.-]*://[^\s'\"]+|(?:[\w.~-]*/)+[\w.@%+-]*)"
_TOKEN = re.compile(
    rf"""
    (?P<path>{_PATH_OR_URL}(?::\d+)?)
  | (?P<address>0x[0-9a-fA-F]+|\b[0-9a-fA-F]{{8}}-(?:[0-9a-fA-F]{{4}}-){{3}}[0-9a-fA-F]{{12}}
      |\b[0-9a-fA-F]{{2,4}}(?::[0-9a-fA-F]{{2,4}})+(?:\.\d)?\b|\b\d{{1,3}}(?:\.\d{{1,3}}){{3}}\b|\b[0-9a-f]*\d[0-9a-f]{{7,}}\b)
  | (?P<number>(?<![\w.])[-+]?\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?(?![\w]))
  | (?P<word>\w(?:[\w.-]*\w)?)
  | (?P<space>\s+)
  | (?P<other>.)
    """,
    re.VERBOSE,
)
_CLASSES = {
    "path": r"[^\s'\"]{1,300}",
    "address": r"[0-9a-fA-Fx:.\-]{2,64}",
    "number": r"[-+]?\d[\d.,eE+\-]{0,28}",
    "space": r"\s+",
}
_MARKS = re.compile(
    r"""
    \[?[IWEFD]\d{3,4}\ [\d:.]{1,32}\s{1,16}(?:\d{1,16}+\s)?[\w./-]{1,255}:\d{1,9}\]\s  # glog: [E0313 02:11:09 File.cpp:607]
  | [\w.-]{1,255}+:\d{1,16}+:\d{1,16}+\ \[\d{1,9}\]\ (?:[\w./-]{1,255}:\d{1,9}\ )?  # NCCL: host:pid:thread [gpu] file.cc:123
  | (?:[A-Z][a-z]{2}\s)?[A-Z][a-z]{2}\s+\d{1,2}\ \d\d:\d\d:\d\d(?:\.\d{1,9})?\ [\w.-]{1,255}+\ (?=[\w.()/-]{1,255}+  # syslog
    (?:\[\d{1,9}\])?:\ )
  | \[\s{0,16}\d{1,12}\.\d{1,12}\]\s                                           # dmesg: seconds since boot
  | \[[A-Z][a-z]{2}\ [A-Z][a-z]{2}\s+\d+\ [\d:]{1,16}\ \d{4}\]\s        # dmesg -T
  | kernel:\s | [A-Z]\ [\w./-]+\.(?:cc|cpp|h):\d+\]\s
  | (?=[A-Za-z_.-]{0,254}\d)[\w.-]{1,255}+:\s(?=\[|kernel:)
    """,
    re.VERBOSE,
)
"""What loggers and kernels put before a message; see `streams` and `logs.prefix` for launchers and clocks."""
_COUNTED = frozenset({"errno", "xid", "signal", "status", "code", "rc", "http", "exitcode"})
"""A number behind such a word says what happened."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_LETTERS = re.compile(r"[^\W\d_]{3,}")
_PLAIN = """
error errors exception failed failure fail failing fatal critical warning warn info debug the and for are was were not from with
this that has have had while during after before file line rank node host process pid job task step runtime python torch value
type key index name attribute assertion import object none null true false main train training caught raised call last most
recent traceback cannot could unable can will does did its into than then get got set run running worker user system time data
code exit status killed exited terminated signal srun slurmstepd torchrun child unexpectedly
abnormally aborted received sending sigterm sigkill shutting closing launching started stopped aborting terminating
"""
PLAIN = frozenset(_PLAIN.split())
"""Words that stand in lines of every kind: a pattern of nothing else says nothing."""

_PEEL = Streams()


class Part(NamedTuple):
    """One piece of a pattern."""

    kind: str
    """`word` and `other` stand for themselves; the rest are classes."""
    pattern: str
    text: str
    """As it stood in the line."""

    @property
    def firm(self) -> bool:
        """Whether it stands for itself."""
        return self.kind in ("word", "other")


def message_of(text: str) -> str:
    """Return a line without what launchers, clocks, loggers and kernels put before it."""
    text = text.strip()
    for _ in range(4):
        body = _PEEL.body(text).text
        marks = parse(body)
        message = marks.rest if marks.host is None or host_like(marks.host) else body
        match = _MARKS.match(message)
        message = (message[match.end() :] if match is not None else message).strip()
        if message == text or not message:
            break
        text = message
    return text


def pattern_of(lines: Sequence[str], *, hosts: Iterable[str] = ()) -> str:
    """Return a pattern that matches each of some lines and others like them; empty where nothing firm is left.

    Args:
        lines: Without the marks of launchers; at least one.
        hosts: Names of machines, which are never kept.
    """
    names = frozenset(hosts)
    parts = parts_of(lines[0], names)
    for line in lines[1:]:
        parts = _merged(parts, parts_of(line, names))
    parts = _trimmed(parts)
    if not parts:
        return ""
    return r"\b" + "".join(part.pattern for part in parts) + r"\b"


class Words(NamedTuple):
    """What words of a line a pattern keeps."""

    distinctive: tuple[str, ...]
    """Those that are not plain, each once, in order."""
    words: int
    """How many there are in all."""

    @property
    def specific(self) -> bool:
        """Whether they are enough to know a failure by: three telling ones, two long ones, or a long one in a whole phrase."""
        letters = sum(map(len, self.distinctive))
        return (
            len(self.distinctive) >= 3
            or (len(self.distinctive) == 2 and letters >= 16)
            or (self.words >= WORDS_OF_PHRASE and letters >= 6)
        )


def words_kept(lines: Sequence[str], *, hosts: Iterable[str] = ()) -> Words:
    """Return the words that a pattern of these lines keeps."""
    names = frozenset(hosts)
    parts = parts_of(lines[0], names)
    for line in lines[1:]:
        parts = _merged(parts, parts_of(line, names))
    words = [
        word.lower() for part in _trimmed(parts) if part.kind == "word" for word in _LETTERS.findall(_CAMEL.sub(" ", part.text))
    ]
    return Words(tuple(dict.fromkeys(word for word in words if word not in PLAIN)), len(words))


def parts_of(line: str, hosts: frozenset[str] = frozenset()) -> list[Part]:
    """Return a line in pieces, what differs from run to run as classes."""
    parts: list[Part] = []
    before = ""
    for match in _TOKEN.finditer(line.strip()[:MOST_OF_LINE]):
        kind, text = match.lastgroup or "other", match.group()
        if kind == "number" and before in _COUNTED and len(text) <= 4:
            parts.append(Part("word", re.escape(text), text))
            continue
        if kind == "word":
            before = text.lower()
            parts.append(_word(text, hosts))
        elif kind == "other":
            parts.append(Part(kind, re.escape(text), text))
        else:
            parts.append(Part(kind, _CLASSES[kind], text))
    return parts


def _word(text: str, hosts: frozenset[str]) -> Part:
    if text in hosts or text.partition(".")[0] in hosts:
        return Part("host", _HOST, text)
    if any(sign.isdigit() for sign in text):
        digits = re.compile(r"\d+")
        pattern = r"\d{1,12}".join(re.escape(piece) for piece in digits.split(text))
        return Part("word", pattern, digits.sub("0", text))
    return Part("word", re.escape(text), text)


def _merged(first: Sequence[Part], second: Sequence[Part]) -> list[Part]:
    """Return what two lines have in common, with a class or a gap where they differ."""
    merged: list[Part] = []
    matcher = SequenceMatcher(None, [p.pattern for p in first], [p.pattern for p in second], autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            merged += first[a:b]
        elif b - a == d - c == 1 and first[a].kind != "gap" and "" not in (first[a].text, second[c].text):
            merged.append(Part("host", r"\S{1,120}", ""))
        elif not merged or merged[-1].kind != "gap":
            merged.append(Part("gap", _GAP, ""))
    return merged


def _trimmed(parts: Sequence[Part]) -> list[Part]:
    """Return parts from the first to the last word, at most so many words."""
    words = [place for place, part in enumerate(parts) if part.kind == "word"]
    return list(parts[words[0] : words[min(len(words), MOST_WORDS) - 1] + 1]) if words else []


MOST_LINES = 160
"""Lines of one case that are looked at."""
_BEFORE_END = 3
"""Proofs of progress before the last whose surroundings are looked at as well: an error may be printed just before a step."""
_JOB_LINES = 400
LONGEST_ROW = 1000
_ROW = re.compile(
    r"\s{0,80}\S(?:[^|\t ]| (?! )){0,120}(?:(?: {2,80}|\t{1,9}| {0,80}\| {0,80})[-+]?\d[\d.,]{0,20}(?:[eE][-+]?\d{1,3})?"
    r" ?(?:%|[a-zµ]{1,3}|[KMGT]i?B)?(?=[ \t|]|$)){3}"
)
_SIDE_LINES = 80


class CandidateLine(NamedTuple):
    """A line that may tell why."""

    file: str
    line: int
    text: str
    message: str
    """Without the marks of launchers and loggers."""

    def cite(self, rule: str) -> Citation:
        """Return the line as a citation."""
        return Citation(self.file, self.line, self.text, rule)


def candidate_lines(facts: Facts, cited: tuple[Citation, ...] = ()) -> list[CandidateLine]:
    """Return the lines of a case that may tell why it failed, each wording once, cited ones first, then in the order of files.

    Left out are routine lines, lines known to be harmless, source code and frames of tracebacks.
    """
    first = (CandidateLine(c.file, c.line, c.text, message_of(c.text)) for c in cited)
    lines: dict[tuple[str, ...], CandidateLine] = {}
    for line in chain(first, _of_job(facts), _of_kernel(facts), _of_scheduler(facts)):
        words = tuple(words_of(line.message))
        if len(words) > 1 and words not in lines:
            lines[words] = line
            if len(lines) == MOST_LINES:
                break
    return list(lines.values())


def harmless(facts: Facts) -> set[int]:
    """Return the lines of the job log that are known to be no failure."""
    return {
        hit.line
        for hit in facts.hits
        if isinstance(hit.entry, Herring) or (isinstance(hit.entry, Signature) and hit.entry.role is Role.BENIGN)
    }


def spared(facts: Facts) -> set[int]:
    """Return the lines that a signature calls benign and none takes for a failure; a herring speaks of one reason only."""
    signed = [(hit.line, hit.entry.role is Role.BENIGN) for hit in facts.hits if isinstance(hit.entry, Signature)]
    return {line for line, benign in signed if benign} - {line for line, benign in signed if not benign}


def of_table(text: str) -> bool:
    """Tell whether a line is a row of a table, a name and at least three numbers in columns: names of errors stand there, too."""
    return len(text) < LONGEST_ROW and _ROW.match(text) is not None


def spoken_for(facts: Facts) -> dict[tuple[str, int], frozenset[str]]:
    """Return the reasons that signatures with more than a class's name take a line for, by its file and number."""
    reasons: dict[tuple[str, int], frozenset[str]] = {}
    for file, hits in (("job.log", facts.hits), ("dmesg.log", facts.kernel_hits), ("slurmctld.log", facts.scheduler_hits)):
        for hit in hits:
            if isinstance(hit.entry, Signature) and not bare(hit.entry):
                reasons[file, hit.line] = reasons.get((file, hit.line), frozenset()) | {hit.entry.id.partition(".")[0]}
    return reasons


def end_of_health(facts: Facts) -> int:
    """Return the last line of the job log up to which it surely trained; 0 where it never did."""
    proofs = (facts.progress.lines, *(counter.lines for counter in facts.progress.counters))
    return max((lines[-_BEFORE_END] for lines in proofs if len(lines) >= _BEFORE_END), default=0)


def _of_job(facts: Facts) -> Iterator[CandidateLine]:
    if facts.scan is None:
        return
    torn_down = {number for episode in facts.episodes if episode.kind in TEARDOWN_KINDS for number in episode.lines}
    left_out = harmless(facts) | set(facts.progress.lines) | torn_down
    begin = end_of_health(facts)
    runs = [(max(first, begin + 1), last) for first, last in facts.scan.uncovered.runs if last > begin]
    early = islice((n for first, last in runs for n in range(first, last + 1)), _JOB_LINES // 2)
    late = islice((n for first, last in reversed(runs) for n in range(last, first - 1, -1)), _JOB_LINES // 2)
    for number in sorted({*early, *late}):
        line = facts.line(number)
        if line is None or number in left_out or of_table(line.text):
            continue
        if not _is_code(facts.streams.body(line.text).text):
            yield CandidateLine("job.log", number, line.text, message_of(line.text))


def _is_code(body: str) -> bool:
    return body.startswith((" ", "\t", "Traceback (most recent", "File "))


def _of_kernel(facts: Facts) -> Iterator[CandidateLine]:
    for line in facts.kernel[-_SIDE_LINES:]:
        if not line.text.startswith("# ") and line.number not in facts.foreign and not _elsewhere(line.host, facts):
            yield CandidateLine("dmesg.log", line.number, line.text, message_of(line.text))


def _elsewhere(host: str | None, facts: Facts) -> bool:
    return host is not None and facts.places.foreign(host)


def _of_scheduler(facts: Facts) -> Iterator[CandidateLine]:
    for line in facts.scheduler[-_SIDE_LINES:]:
        yield CandidateLine("slurmctld.log", line.number, line.text, message_of(line.text))


_WORDS_OF_TROUBLE = """
rror ERROR ail FAIL xception atal FATAL lost refused denied abort ABORT anic expired invalid unable cannot found timed exceeded
mismatch corrupt broken killed gone
"""
_ALARMS = tuple(_WORDS_OF_TROUBLE.split())
"""Pieces of words that stand in lines of trouble."""


def cited_lines(facts: Facts, places: Iterable[str], rule: str) -> tuple[Citation, ...]:
    """Return the lines that a person names.

    Args:
        facts: Of the case.
        places: Each `file:line`, a line number of job.log, or a piece of the line itself.
        rule: What makes them count.

    Raises:
        InputError: One of them does not stand in the case.
    """
    return tuple(_cited(facts, place, rule) for place in places)


def guessed_line(facts: Facts, reason: str, knowledge: Knowledge) -> tuple[Citation, ...]:
    """Return the line that most likely shows a reason that nobody recognised: the first alarming one that nothing explains.

    None where every line that alarms is known to speak for another reason.
    """
    for alarmed in (True, False):
        for line in candidate_lines(facts):
            if alarmed and not any(word in line.message for word in _ALARMS):
                continue
            if words_kept([line.message]).specific and not _explained(line, reason, knowledge):
                return (line.cite("guessed: the first line that nothing explains"),)
    return ()


def _explained(line: CandidateLine, reason: str, knowledge: Knowledge) -> bool:
    """Tell whether a line is known to mean something else."""
    entries = knowledge.patterns.match_line(line.text)
    return any(not isinstance(e, Signature) or e.role is not Role.ROOT or e.id.partition(".")[0] != reason for e in entries)


def _cited(facts: Facts, place: str, rule: str) -> Citation:
    file, _, number = place.rpartition(":")
    if number.strip().isdigit() and facts.combined is not None and (at := facts.combined.line_of(file or "job.log", int(number))):
        file, number = "job.log", str(at)
    if number.strip().isdigit() and file in ("", "job.log", "dmesg.log", "slurmctld.log"):
        file, line = file or "job.log", int(number)
        text = next((text for line_number, text in _lines(facts, file) if line_number == line), None)
        if text is None:
            raise InputError(
                f"{file} of {facts.case.name} has no line {line} that is kept; wanted file:line, or a piece of the line"
            )
        return Citation(file, line, text, rule)
    if len(place.strip()) < 4:
        raise InputError(f"wanted file:line or a piece of a line, found {place!r}")
    for file in ("job.log", "dmesg.log", "slurmctld.log"):
        for line, text in _lines(facts, file):
            if place.strip() in text:
                return Citation(file, line, text, rule)
    raise InputError(f"no line of {facts.case.name} holds {place!r}")


def _lines(facts: Facts, file: str) -> Sequence[tuple[int, str]]:
    if file == "dmesg.log":
        return [(line.number, line.text) for line in facts.kernel]
    if file == "slurmctld.log":
        return [(line.number, line.text) for line in facts.scheduler]
    return [(line.number, line.text) for line in facts.lines]
