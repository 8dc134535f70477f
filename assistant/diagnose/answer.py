"""What a diagnosis is shown as: JSON, words, the place of a line in a rotated log, and evidence that fits a number of tokens.

Evidence is packed for a reader who cannot read all of a case, a model or a person in a hurry. What says most comes first: in which
phase the job was and how its metrics went, every episode once with how far it spread and what stood before it, what kernels and
scheduler said, lines that no good run of the task ever printed. What room is left shows the log in its own order, routine folded
with counts. The last step checks that every cited line stands in the case, word for word; what does not is taken out.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from assistant.content.reasons import Reason
from assistant.diagnose.case import Case
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.rounds import last_count
from assistant.diagnose.readers.tracebacks import Episode
from assistant.diagnose.weighing.external_findings import OF_THE_JOB
from assistant.display import shorten
from assistant.logs.compress import compress, ranges
from assistant.logs.lines import Line
from assistant.logs.phases import learn_series
from assistant.logs.prefix import masked, parse
from assistant.logs.reading import open_log
from assistant.logs.scan import Scan
from assistant.logs.templates import Baseline, novelty
from assistant.records import Action, Citation, Diagnosis, MetricPoint, NodeFinding
from assistant.redact import ends_of, head_of, line_texts, redact

SCHEMA = 1
"""Raised when a field changes its meaning; new fields do not raise it."""


def answer(path: str, case: Case, diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the object that is printed for a path.

    Args:
        path: As the person gave it.
        case: What was read; its name stands in for an empty path.
        diagnosis: Of that case.
    """
    return {
        "schema": SCHEMA,
        "path": path or case.name,
        "reason": diagnosis.reason,
        "category": str(diagnosis.category),
        "action": str(diagnosis.action),
        "root_cause": [_cited_line(citation) for citation in diagnosis.root_cause],
        "faulty_nodes": list(diagnosis.faulty_nodes),
        "confidence": diagnosis.confidence,
        "by": str(diagnosis.by),
        "step": diagnosis.step,
        "spike_step": diagnosis.spike_step,
        "nodes": [
            {"node": finding.node, "why": finding.why, "lines": [_cited_line(citation) for citation in finding.citations]}
            for finding in diagnosis.nodes
        ],
        "where": [
            {
                "node": place.node,
                "rank": place.rank,
                "task": place.task,
                "gpu": place.gpu,
                "why": place.why,
                "lines": [_cited_line(citation) for citation in place.citations],
            }
            for place in diagnosis.where
        ],
        "rivals": [
            {
                "reason": rival.reason,
                "confidence": rival.confidence,
                "for": rival.speaks_for,
                "against": rival.speaks_against,
                "test": rival.test,
            }
            for rival in diagnosis.rivals
        ],
        "summary": diagnosis.summary,
        "advice": diagnosis.advice,
    }


def _cited_line(citation: Citation) -> dict[str, Any]:
    return {"file": citation.file, "line": citation.line, "text": head_of(citation.text, 2000), "rule": citation.rule}


Value = TypeVar("Value")
Place = Callable[[int], tuple[str, int]]
"""Gives the file (empty for job.log itself) and the number in it for a line counted over all parts."""

JOB_LOG = "job.log"
"""What diagnosis calls the job's own output, whatever its file is called."""
_LINE_NAMED = re.compile(r"\bjob\.log:(\d{1,18})\b")


def placed(diagnosis: Diagnosis, place: Place, label_of: Callable[[int], str] = lambda _: "") -> Diagnosis:
    """Return the diagnosis with every line of job.log, cited or named in a sentence, given by its own file.

    Args:
        diagnosis: With lines counted over all files.
        place: Gives the file and the number in it.
        label_of: Gives what was put before a line and does not stand in the file.
    """
    changed = _placed(diagnosis, place, label_of)
    # several lines of one record stand in one line of the file
    cited = {(citation.file, citation.line): citation for citation in reversed(changed.root_cause)}
    return dataclasses.replace(changed, root_cause=tuple(reversed(cited.values())))


def own_place(citation: Citation, place: Place, label_of: Callable[[int], str]) -> Citation:
    """Return a citation of a line counted over all files by its own file."""
    return _placed(citation, place, label_of)


def _placed(value: Value, place: Place, label_of: Callable[[int], str]) -> Value:
    changed: Any = value
    if isinstance(value, Citation):
        if value.file == JOB_LOG:
            file, line = place(value.line)
            text = value.text.removeprefix(label_of(value.line))
            changed = dataclasses.replace(value, file=file or JOB_LOG, line=line, text=text)
    elif isinstance(value, str):
        changed = type(value)(_LINE_NAMED.sub(lambda match: _line_named(match, place), value)) if type(value) is str else value
    elif isinstance(value, tuple):
        changed = tuple(_placed(item, place, label_of) for item in value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: _placed(getattr(value, field.name), place, label_of) for field in dataclasses.fields(value)}
        changed = dataclasses.replace(value, **fields)
    return changed  # type: ignore[no-any-return]


def _line_named(match: re.Match[str], place: Place) -> str:
    file, line = place(int(match.group(1)))
    return f"{file or JOB_LOG}:{line}"


DEEDS = {
    Action.RESTART_SAME_NODES: "Restart from the last healthy checkpoint on the same nodes.",
    Action.CORDON_AND_RESTART: "Set the node aside and restart from the last healthy checkpoint without it.",
    Action.ROLLBACK_AND_SKIP_DATA: "Go back to a checkpoint before the spike and skip the data in between.",
    Action.WAIT_AND_RETRY: "Wait until what it needs is there again, then restart from the last healthy checkpoint.",
    Action.FIX_AND_RESUBMIT: "Do not restart: the owner has to change something first.",
    Action.NONE: "",
}
NO_HELP = "A restart alone does not help."
"""Behind what has to be changed, in place of the deed in front of it."""


def summary(
    reason: Reason, why: str, nodes: Sequence[NodeFinding], cited: Sequence[Citation], facts: Facts, step: int | None
) -> str:
    """Return one sentence, and a second where the log could be read only in part."""
    on_nodes = f" on {', '.join(node.node for node in nodes)}" if nodes else ""
    text = shorten(redact(cited[0].text.strip()), MOST_OF_LINE) if cited else ""
    quoted = f": {text} ({cited[0].file}:{cited[0].line})" if text else ""
    reached = f"step {step}" if step is not None else _reached(cited, facts)
    after = f" after {reached}" if reached and reason.category != "none" else ""
    sentence = f"{reason.title}{on_nodes}{after}{quoted}"
    if why and not quoted:
        sentence += f": {why}"
    if facts.truncated:
        sentence += f". The log is a gzip that ends early, or longer than can be read: {facts.lines_total} lines of it were"
    decides = f". This would decide it: {reason.tests[0]}" if reason.undecided and reason.tests else ""
    return f"{sentence.rstrip('.')}{decides}".rstrip(".") + "."


MOST_COUNTED = 2_000
"""Last lines before a failure of which it is learnt what a job counts."""


def _reached(cited: Sequence[Citation], facts: Facts) -> str:
    """Return how far the job came in what it counts itself up to the failure; empty where it counts nothing."""
    end = next((citation.line - 1 for citation in cited if citation.file == "job.log"), facts.lines_total)
    lines = facts.between(max(1, facts.progress.leg), end)
    if (count := last_count(lines)) is not None:
        return str(count)
    series = learn_series(lines[-MOST_COUNTED:])
    return f"{series.form.unit} {series.points[-1].step}" if series is not None else ""


def advice(reason: Reason, action: Action, nodes: Sequence[NodeFinding]) -> str:
    """Return what to do: the deed with its nodes, then the reason's remedy."""
    deed = DEEDS[action]
    if action is Action.CORDON_AND_RESTART:
        names = ", ".join(node.node for node in nodes)
        deed = (
            f"Set {names} aside and restart from the last healthy checkpoint without {'it' if len(nodes) == 1 else 'them'}."
            if nodes
            else "Find the node by test first (pairwise collective test, GPU diagnostics), set it aside, then restart."
        )
    return f"{deed} {reason.remedy}".strip()


def cut(text: str, most: int) -> str:
    """Return a text of at most `most` characters: the middle is left out, for the end of a message often says what to do.

    Secrets are replaced before: half of one is not known for what it is any more.
    """
    if len(text) <= most or len(text := redact(text)) <= most:
        return text
    half = (most - 3) // 2
    return ends_of(text, most - 3 - half, half)


MOST_OF_LINE = 180
"""Characters of a cited line that a summary shows."""
LINES_BEFORE = 4
"""Lines shown before an episode."""
LINES_OF_TRACEBACK = (3, 8)
"""Lines of a long traceback that are shown from its start and its end."""
MOST_NEW = 40
"""Lines that no good run printed, at most."""
PACKED_WIDTH = 400
NEW_UP_TO, EPISODES_UP_TO, HITS_UP_TO = 0.3, 0.6, 0.75
"""Share of the tokens that may be spent when each section ends; the rest is for the log in its own order."""
_LOOKED_AT = 60_000
"""Uncovered lines that are held against the good runs: the latest."""


def approximate_tokens(text: str) -> int:
    """Return about how many tokens a model makes of a text: a quarter of its characters."""
    return math.ceil(len(text) / 4)


@dataclass(frozen=True)
class Pack:
    """Evidence within its bound."""

    text: str
    tokens: int
    """As counted; never above what was asked for."""
    left_out: int
    """Episodes and other items that did not fit."""


class _Section(NamedTuple):
    title: str
    up_to: float
    items: list[_Item]


@dataclass
class _Item:
    """Something that happened once or many times."""

    first: int
    """Line of its first occurrence."""
    lines: list[Line]
    times: int = 1
    ranks: set[int] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)

    def text(self, brief: bool = False) -> str:
        """Return how often and where it was, and its lines; of a brief one the last, which says most."""
        spread = [f"×{self.times:,}"] if self.times > 1 else []
        spread += [f"ranks {ranges(sorted(self.ranks))}"] if self.ranks else []
        spread += [f"on {', '.join(sorted(self.hosts)[:8])}{' …' if len(self.hosts) > 8 else ''}"] if self.hosts else []
        return "\n".join(
            [
                f"- line {self.first}" + (f" ({'; '.join(spread)})" if spread else ""),
                *map(_shortened, self.lines[-1 if brief else 0 :]),
            ]
        )


def pack(facts: Facts, tokens: int, *, baseline: Baseline | None = None, count: Callable[[str], int] = approximate_tokens) -> Pack:
    """Return the evidence of a case in at most `tokens` tokens.

    Args:
        facts: Of the case.
        tokens: Upper bound; below 100 it is taken as 100.
        baseline: Of the good runs of the same task; what they never printed is shown by itself.
        count: Tells how many tokens a text has.
    """
    tokens = max(tokens, 100)
    text = _clipped(_head(facts), tokens, count)
    left_out, base = 0, count(text)
    for title, share, items in _sections(facts, baseline):
        written, room = f"\n\n## {title}", base + share * (tokens - base) if facts.scan is not None else tokens
        for item in items:
            fits = (longer for brief in (False, True) if count(text + (longer := f"{written}\n{item.text(brief)}")) <= room)
            written, left_out = next(((longer, left_out) for longer in fits), (written, left_out + 1))
        if "\n- " in written:
            text += written
    if facts.scan is not None:
        text += _log(facts.scan, tokens, text, count)
    return Pack(text, count(text), left_out)


def _log(scan: Scan, tokens: int, text: str, count: Callable[[str], int]) -> str:
    """Return the log in its own order, in what room is left."""
    title = "\n\n## The log in order, routine folded\n"
    characters = 4 * (tokens - count(text + title))
    while characters >= 200:
        section = title + compress(scan, characters)
        if count(text + section) <= tokens:
            return section
        characters = characters * 3 // 4
    return ""


def _clipped(text: str, tokens: int, count: Callable[[str], int]) -> str:
    while text and count(text) > tokens:
        text = text[: len(text) * 3 // 4]
    return text


def _head(facts: Facts) -> str:
    size = f"{facts.lines_total:,} lines" + (", the file is cut short" if facts.truncated else "")
    lines = [f"# {Path(facts.case.name).name}: {size}", f"Phase: {_phase(facts)}"]
    if facts.span.start and facts.span.end:
        lines.append(f"Time: {facts.span.start:%Y-%m-%d %H:%M:%S} to {facts.span.end:%Y-%m-%d %H:%M:%S} UTC")
    if facts.points:
        lines.append(f"Metrics: {_trend(facts.points)}")
    return "\n".join(lines)


def _phase(facts: Facts) -> str:
    progress = facts.progress
    if not progress.lines:
        return "no training step was logged: the job was starting, or it does not train"
    lines_after = facts.lines_total - progress.last_line
    restart = f"; it had started again at line {progress.leg}" if progress.leg else ""
    return f"training; last step {progress.steps[-1]:g} at line {progress.last_line}, {lines_after:,} lines before the end{restart}"


def _trend(points: Sequence[MetricPoint]) -> str:
    """Return how the loss went: start, lowest, the last ones; and the last norms."""
    losses = [(point.step, point.loss) for point in points if point.loss is not None]
    finite = [pair for pair in losses if math.isfinite(pair[1])]
    parts = ["steps are counted log lines"] if any(point.counted for point in points) else []
    if finite:
        lowest = min(finite, key=lambda pair: pair[1])
        parts.append(f"loss {finite[0][1]:.4g} at step {finite[0][0]}, lowest {lowest[1]:.4g} at step {lowest[0]}")
    parts.append(f"last {', '.join(f'{step}: {loss:.4g}' for step, loss in losses[-6:])}" if losses else "no loss")
    odd = [step for step, loss in losses if not math.isfinite(loss)]
    parts += [f"no number from step {odd[0]} on ({len(odd)} times)"] if odd else []
    norms = [f"{point.grad_norm:.3g}" for point in points[-4:] if point.grad_norm is not None]
    return "; ".join(parts + ([f"last gradient norms {', '.join(norms)}"] if norms else []))


def _sections(facts: Facts, baseline: Baseline | None) -> Iterator[_Section]:
    traceback_lines = {number for episode in facts.episodes for number in episode.lines}
    if baseline is not None and baseline.runs:
        runs = "the last good run" if baseline.runs == 1 else f"any of the last {baseline.runs} good runs"
        yield _Section(f"Lines unlike {runs}", NEW_UP_TO, _new(facts, baseline, traceback_lines))
    yield _Section("Episodes in the job's log, each once", EPISODES_UP_TO, _episodes(facts))
    for title, hits in (("Kernel", facts.kernel_hits), ("Scheduler", facts.scheduler_hits), ("Job", facts.hits)):
        outside = ((hit.line, hit.text) for hit in hits if title != "Job" or hit.line not in traceback_lines)
        yield _Section(f"{title}: lines that tell of something", HITS_UP_TO, _grouped(outside))


def _episodes(facts: Facts) -> list[_Item]:
    """Return tracebacks, each chain once, earliest first."""
    items: dict[tuple[str, ...], _Item] = {}
    for episode in facts.episodes:
        key = tuple(f"{raised.short}: {masked(raised.message)}" for raised in episode.raised) or (str(episode.kind),)
        item = items.get(key)
        if item is None:
            item = items[key] = _Item(episode.first, _episode_lines(facts, episode), times=0)
        item.times += 1
        item.ranks |= {episode.rank} if episode.rank is not None else set()
        item.hosts |= {episode.host} if episode.host else set()
    return list(items.values())


def _episode_lines(facts: Facts, episode: Episode) -> list[Line]:
    """Return the lines of an episode's own stream, a long one without its middle, and what stood before it."""
    before = [line for line in facts.between(episode.first - LINES_BEFORE, episode.first - 1) if line.text.strip()]
    own = [line for line in facts.between(episode.first, episode.last) if _is_of(facts, line, episode.stream)]
    first, last = LINES_OF_TRACEBACK
    if len(own) > first + last + 1:
        own = [*own[:first], Line(0, f"… {len(own) - first - last} lines …"), *own[-last:]]
    return _redacted(facts, [*before, *own])


def _redacted(facts: Facts, lines: Sequence[Line]) -> list[Line]:
    """Return lines of the job's log less what only the lines beside them tell to be a secret."""
    numbers = sorted({line.number for line in lines if line.number})
    texts = line_texts(numbers, lambda number: line.text if (line := facts.by_number.get(number)) is not None else None)
    return [Line(line.number, texts.get(line.number, line.text)) for line in lines]


def _is_of(facts: Facts, line: Line, stream: str) -> bool:
    return facts.streams.body(line.text).stream == stream


def _grouped(lines: Iterable[tuple[int, str]]) -> list[_Item]:
    """Return lines without those that differ in their values only, earliest first."""
    items: dict[str, _Item] = {}
    for number, text in dict(lines).items():
        prefix = parse(text)
        key = masked(prefix.rest)
        item = items.get(key)
        if item is None:
            item = items[key] = _Item(number, [Line(number, text)], times=0)
        item.times += 1
        item.ranks |= {prefix.rank} if prefix.rank is not None else set()
        item.hosts |= {prefix.host} if prefix.host else set()
    return list(items.values())


def _new(facts: Facts, baseline: Baseline, traceback_lines: set[int]) -> list[_Item]:
    """Return uncovered lines that no good run had, the latest first because a failure stands at the end."""
    if facts.scan is None:
        return []
    runs = facts.scan.uncovered.runs
    lines: list[Line] = []
    for first, last in reversed(runs):
        lines += reversed(facts.scan.lines.window(first, last))
        if len(lines) >= _LOOKED_AT:
            break
    lines = [line for line in lines if line.number not in traceback_lines]
    new = zip(lines, novelty([line.text for line in lines], baseline), strict=True)
    items = _grouped((line.number, line.text) for line, how in new if how == 1.0)[:MOST_NEW]
    for item in items:
        item.lines = _redacted(facts, item.lines)
    return items


def _shortened(line: Line) -> str:
    text = ends_of(line.text, PACKED_WIDTH - 60, 50)
    return f"{line.number:>7}  {text}" if line.number else f"{'':>7}  {text}"


def checked(diagnosis: Diagnosis, facts: Facts) -> Diagnosis:
    """Return the diagnosis with the citations that hold; a node with no line left against it is not named."""
    source = _Source(facts)
    checked_nodes = [dataclasses.replace(node, citations=source.verified(node.citations)) for node in diagnosis.nodes]
    nodes = tuple(node for node in checked_nodes if node.citations)
    return dataclasses.replace(diagnosis, root_cause=source.verified(diagnosis.root_cause), nodes=nodes)


class _Source:
    """Looks cited lines up."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._hits: dict[int, str] | None = None
        self._metrics: list[str] | None = None

    def verified(self, citations: Sequence[Citation]) -> tuple[Citation, ...]:
        texts = ((citation, self._text(citation)) for citation in citations)
        return tuple(
            citation if citation.text else dataclasses.replace(citation, text=text)
            for citation, text in texts
            if text is not None and citation.text in ("", text)
        )

    def _text(self, citation: Citation) -> str | None:
        facts, number = self._facts, citation.line
        if citation.file == "job.log":
            line = facts.line(number)
            return line.text if line is not None else self._hit(number)
        if citation.file == "dmesg.log":
            at = number - facts.case.kernel_from
            return facts.kernel[at].text if 0 <= at < len(facts.kernel) else None
        if citation.file == "slurmctld.log":
            at = number - facts.case.scheduler_from
            return facts.scheduler[at].text if 0 <= at < len(facts.scheduler) else None
        if citation.file == OF_THE_JOB:
            return facts.case.job.reason if facts.case.job is not None and number == 1 else None
        if citation.file == "probes.log":
            lines = facts.case.probes.split("\n")
            return lines[number - 1] if 0 < number <= len(lines) else None
        return self._metric(number) if citation.file == facts.metric_file else None

    def _hit(self, number: int) -> str | None:
        """Return a line that matched something but was not kept whole."""
        if self._hits is None:
            self._hits = {hit.line: hit.text for hit in self._facts.hits}
        return self._hits.get(number)

    def _metric(self, number: int) -> str | None:
        if self._metrics is None:
            path = self._facts.case.metrics
            text = b""
            if path is not None:
                with open_log(path) as stream:
                    text = stream.read(64 << 20)
            self._metrics = [line.rstrip("\r") for line in text.decode("utf-8", "replace").split("\n")]
        return self._metrics[number - 1] if 0 < number <= len(self._metrics) else None
