"""The lines of a case that may tell why it failed, whether anything knows them or not: what memory and learning look at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice
from typing import NamedTuple

from assistant.content.reasons import Herring, Role, Signature
from assistant.diagnose.facts import Facts
from assistant.diagnose.generalise import message_of
from assistant.diagnose.readers.exceptions import bare
from assistant.diagnose.readers.tracebacks import TEARDOWN_KINDS
from assistant.llm.embedded import words_of
from assistant.records import Citation

MOST = 160
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


class Told(NamedTuple):
    """A line that may tell why."""

    file: str
    line: int
    text: str
    message: str
    """Without the marks of launchers and loggers."""

    def cite(self, rule: str) -> Citation:
        """Return the line as a citation."""
        return Citation(self.file, self.line, self.text, rule)


def telling(facts: Facts, cited: tuple[Citation, ...] = ()) -> list[Told]:
    """Return the lines of a case that may tell why it failed, each wording once, cited ones first, then in the order of files.

    Left out are routine lines, lines known to be harmless, source code and frames of tracebacks.
    """
    first = (Told(c.file, c.line, c.text, message_of(c.text)) for c in cited)
    found: dict[tuple[str, ...], Told] = {}
    for told in chain(first, _of_job(facts), _of_kernel(facts), _of_scheduler(facts)):
        words = tuple(words_of(told.message))
        if len(words) > 1 and words not in found:
            found[words] = told
            if len(found) == MOST:
                break
    return list(found.values())


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
    found: dict[tuple[str, int], frozenset[str]] = {}
    for file, hits in (("job.log", facts.hits), ("dmesg.log", facts.kernel_hits), ("slurmctld.log", facts.scheduler_hits)):
        for hit in hits:
            if isinstance(hit.entry, Signature) and not bare(hit.entry):
                found[file, hit.line] = found.get((file, hit.line), frozenset()) | {hit.entry.id.partition(".")[0]}
    return found


def end_of_health(facts: Facts) -> int:
    """Return the last line of the job log up to which it surely trained; 0 where it never did."""
    proofs = (facts.progress.lines, *(counter.lines for counter in facts.progress.counters))
    return max((lines[-_BEFORE_END] for lines in proofs if len(lines) >= _BEFORE_END), default=0)


def _of_job(facts: Facts) -> Iterator[Told]:
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
            yield Told("job.log", number, line.text, message_of(line.text))


def _is_code(body: str) -> bool:
    return body.startswith((" ", "\t", "Traceback (most recent", "File "))


def _of_kernel(facts: Facts) -> Iterator[Told]:
    for line in facts.kernel[-_SIDE_LINES:]:
        if not line.text.startswith("# ") and line.number not in facts.foreign and not _elsewhere(line.host, facts):
            yield Told("dmesg.log", line.number, line.text, message_of(line.text))


def _elsewhere(host: str | None, facts: Facts) -> bool:
    return host is not None and facts.places.foreign(host)


def _of_scheduler(facts: Facts) -> Iterator[Told]:
    for line in facts.scheduler[-_SIDE_LINES:]:
        yield Told("slurmctld.log", line.number, line.text, message_of(line.text))
