"""The evidence of a case in a given number of tokens, for a reader who cannot read all of it: a model, or a person in a hurry.

What says most comes first: in which phase the job was and how its metrics went, every episode once with how far it spread and what
stood before it, what kernels and scheduler said, lines that no good run of the task ever printed. What room is left shows the log
in its own order, routine folded with counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from assistant.diagnose.facts import Facts
from assistant.diagnose.tracebacks import Episode
from assistant.logs.compress import compress, ranges
from assistant.logs.lines import Line
from assistant.logs.prefix import masked, parse
from assistant.logs.scan import Scan
from assistant.logs.templates import Baseline, novelty
from assistant.records import MetricPoint

BEFORE = 4
"""Lines shown before an episode."""
FRAMES = (3, 8)
"""Lines of a long traceback that are shown from its start and its end."""
NEW = 40
"""Lines that no good run printed, at most."""
WIDTH = 400
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
    shown: list[str]
    times: int = 1
    ranks: set[int] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)

    def text(self, brief: bool = False) -> str:
        """Return how often and where it was, and its lines; of a brief one the last, which says most."""
        spread = [f"×{self.times:,}"] if self.times > 1 else []
        spread += [f"ranks {ranges(sorted(self.ranks))}"] if self.ranks else []
        spread += [f"on {', '.join(sorted(self.hosts)[:8])}{' …' if len(self.hosts) > 8 else ''}"] if self.hosts else []
        return "\n".join(
            [f"- line {self.first}" + (f" ({'; '.join(spread)})" if spread else ""), *self.shown[-1 if brief else 0 :]]
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
    behind = facts.lines_total - progress.last_line
    again = f"; it had started again at line {progress.leg}" if progress.leg else ""
    return f"training; last step {progress.steps[-1]:g} at line {progress.last_line}, {behind:,} lines before the end{again}"


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
    told = {number for episode in facts.episodes for number in episode.lines}
    if baseline is not None and baseline.runs:
        runs = "the last good run" if baseline.runs == 1 else f"any of the last {baseline.runs} good runs"
        yield _Section(f"Lines unlike {runs}", NEW_UP_TO, _new(facts, baseline, told))
    yield _Section("Episodes in the job's log, each once", EPISODES_UP_TO, _episodes(facts))
    for title, hits in (("Kernel", facts.kernel_hits), ("Scheduler", facts.scheduler_hits), ("Job", facts.hits)):
        outside = ((hit.line, hit.text) for hit in hits if title != "Job" or hit.line not in told)
        yield _Section(f"{title}: lines that tell of something", HITS_UP_TO, _grouped(outside))


def _episodes(facts: Facts) -> list[_Item]:
    """Return tracebacks, each chain once, earliest first."""
    found: dict[tuple[str, ...], _Item] = {}
    for episode in facts.episodes:
        key = tuple(f"{raised.short}: {masked(raised.message)}" for raised in episode.raised) or (str(episode.kind),)
        item = found.get(key)
        if item is None:
            item = found[key] = _Item(episode.first, _shown(facts, episode), times=0)
        item.times += 1
        item.ranks |= {episode.rank} if episode.rank is not None else set()
        item.hosts |= {episode.host} if episode.host else set()
    return list(found.values())


def _shown(facts: Facts, episode: Episode) -> list[str]:
    """Return the lines of an episode's own stream, a long one without its middle, and what stood before it."""
    before = [line for line in facts.between(episode.first - BEFORE, episode.first - 1) if line.text.strip()]
    own = [line for line in facts.between(episode.first, episode.last) if _is_of(facts, line, episode.stream)]
    first, last = FRAMES
    if len(own) > first + last + 1:
        own = [*own[:first], Line(0, f"… {len(own) - first - last} lines …"), *own[-last:]]
    return [_line(line) for line in [*before, *own]]


def _is_of(facts: Facts, line: Line, stream: str) -> bool:
    return facts.streams.body(line.text).stream == stream


def _grouped(lines: Iterable[tuple[int, str]]) -> list[_Item]:
    """Return lines without those that differ in their values only, earliest first."""
    found: dict[str, _Item] = {}
    for number, text in dict(lines).items():
        prefix = parse(text)
        key = masked(prefix.rest)
        item = found.get(key)
        if item is None:
            item = found[key] = _Item(number, [_line(Line(number, text))], times=0)
        item.times += 1
        item.ranks |= {prefix.rank} if prefix.rank is not None else set()
        item.hosts |= {prefix.host} if prefix.host else set()
    return list(found.values())


def _new(facts: Facts, baseline: Baseline, told: set[int]) -> list[_Item]:
    """Return uncovered lines that no good run had, the latest first because a failure stands at the end."""
    if facts.scan is None:
        return []
    runs = facts.scan.uncovered.runs
    lines: list[Line] = []
    for first, last in reversed(runs):
        lines += reversed(facts.scan.lines.window(first, last))
        if len(lines) >= _LOOKED_AT:
            break
    lines = [line for line in lines if line.number not in told]
    new = zip(lines, novelty([line.text for line in lines], baseline), strict=True)
    return _grouped((line.number, line.text) for line, how in new if how == 1.0)[:NEW]


def _line(line: Line) -> str:
    text = line.text if len(line.text) <= WIDTH else f"{line.text[: WIDTH - 60]} … {line.text[-50:]}"
    return f"{line.number:>7}  {text}" if line.number else f"{'':>7}  {text}"
