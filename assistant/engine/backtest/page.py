"""A replay for people: sections of names and values, and the same as a page of Markdown with what it assumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from assistant.display import markdown as escaped
from assistant.engine.backtest.attempts import AT_ONCE_S, HORIZON
from assistant.engine.backtest.tally import LONGEST_WAIT_S, WELL_S, Rate, Tally
from assistant.recover.identity import HOURS

SHOWN = 12
"""Lines of a list that are shown."""


class Section(NamedTuple):
    """Some figures that belong together."""

    title: str
    pairs: list[tuple[str, str]]


def sections(tally: Tally) -> list[Section]:
    """Return the figures in the order in which people ask for them."""
    all_sections = [
        Section("history", list(_history(tally))),
        Section("what Nightshift would have done", list(_changes_made(tally))),
        Section("GPU-hours lost to waiting", list(_waiting(tally))),
        Section("what a person would have been asked", list(_questions(tally))),
        Section("what might have done harm", list(_harm(tally))),
        Section("nodes", list(_nodes(tally))),
        Section("what nobody can know from these files", [(name, f"{count:,}") for name, count in tally.unknown.items()]),
    ]
    return [section for section in all_sections if section.pairs]


def _history(tally: Tally) -> Iterator[tuple[str, str]]:
    if tally.first is not None and tally.last is not None:
        yield "from, to", f"{tally.first:%Y-%m-%d %H:%M} to {tally.last:%Y-%m-%d %H:%M} UTC, {tally.days:g} days"
    yield "jobs that ended", f"{tally.jobs:,}, {tally.failed:,} failed; {tally.gpu_hours_run:,.0f} GPU-hours"
    yield "states", _listed(tally.states)
    yield "failures replayed", f"{tally.replayed:,}"
    yield "diagnosed", _listed(tally.reasons)


def _changes_made(tally: Tally) -> Iterator[tuple[str, str]]:
    yield "restarts", _rate(tally.restarts)
    yield "drains of nodes", _rate(tally.drains)
    yield "playbooks", _listed(tally.playbooks)
    yield "incidents ended", _listed(tally.ends)
    for kind, answers in tally.changes.items():
        yield f"policy on {kind}", _listed({_ANSWERS.get(answer, answer): count for answer, count in answers.items()})
    if tally.refused_by:
        yield "refused by rule", _listed(tally.refused_by)
    if tally.not_made:
        yield "restart not made", _listed(tally.not_made)


_ANSWERS = {"allow": "done alone", "ask": "after a question", "deny": "refused by policy", "not_made": "could not be made"}


def _waiting(tally: Tally) -> Iterator[tuple[str, str]]:
    waiting = tally.waiting
    if waiting.progress_told:
        lost = f"{waiting.progress_gpu_hours:,.1f} GPU-hours since the last checkpoint"
        yield "training lost", f"{lost} in the {waiting.progress_told:,} logs that tell; a restart by Nightshift loses the same"
    if not waiting.answered:
        yield "answered failures", "0: no later submission of the same run could be told from others, so nothing was compared"
        return
    yield "answered failures", f"{waiting.answered:,}, half of them within {waiting.median_min:,.0f} min"
    yield "as it was", f"{waiting.gpu_hours:,.1f} GPU-hours until somebody submitted the run again"
    yield "saved alone", f"{waiting.saved_alone:,.1f} GPU-hours; restarts without a question: {waiting.restarts_alone:,}"
    yield "saved after a yes", f"{waiting.saved_asked:,.1f} GPU-hours; restarts that were asked about: {waiting.restarts_asked:,}"
    hours_left = waiting.gpu_hours - waiting.saved_alone - waiting.saved_asked
    yield (
        "as it would have been",
        f"{hours_left:,.1f} GPU-hours: bugs that a person must fix, unknown reasons, what nobody restarts",
    )
    yield "in the queue", f"{waiting.queue_gpu_hours:,.1f} GPU-hours from submission to start, which nobody could have saved"


def _questions(tally: Tally) -> Iterator[tuple[str, str]]:
    yield "questions", _rate(tally.asked)
    yield "handed over", f"{_rate(tally.handed_over)}; with the diagnosis, to fix or to decide"
    if not tally.asked.count:
        return
    yield "by rule", _listed(tally.asked_by)
    hours = [f"{hour:02d}h {count}" for hour, count in enumerate(tally.asked_at) if count]
    yield "by hour, local", ", ".join(hours)
    yield "at night", f"{tally.asked_at_night:,} between 22:00 and 07:00, {tally.asked_at_weekends:,} at weekends"


def _harm(tally: Tally) -> Iterator[tuple[str, str]]:
    restarts = [suspect for suspect in tally.suspects if suspect.kind == "resubmit"]
    spent = sum(suspect.gpu_hours or 0.0 for suspect in restarts)
    yield "restarts for nothing", f"{len(restarts):,} of {tally.restarts.count:,}; about {spent:,.1f} GPU-hours"
    yield "restarts nobody made", f"{tally.unwanted:,}: the run was not started again within {HORIZON.days} days"
    yield "drains of good nodes", f"{tally.nodes_after.well:,} of {tally.drains.count:,}"
    for suspect in tally.suspects[:SHOWN]:
        about = f"job {suspect.job}" + (f", node {suspect.node}" if suspect.node else "")
        yield f"  {suspect.at:%Y-%m-%d %H:%M}", f"{suspect.kind} after {suspect.reason}, {about}: {suspect.why}"
    if len(tally.suspects) > SHOWN:
        yield "  …", f"{len(tally.suspects) - SHOWN:,} more; --details lists every failure"


def _nodes(tally: Tally) -> Iterator[tuple[str, str]]:
    after = tally.nodes_after
    if tally.drains.count:
        yield (
            "after a drain",
            (
                f"{after.again:,} failed again of the node, {after.drained:,} were really taken out within {HOURS:g} h, "
                f"{after.unused:,} had no job for so long, {after.well:,} were well, {after.unclear:,} unclear"
            ),
        )
    if tally.repeated_nodes:
        yield "to blame repeatedly", _listed(tally.repeated_nodes)
    if tally.met_cordoned:
        yield "failures avoided", f"{tally.met_cordoned:,}: of a node that a cordon would have kept the job away from"


def assumptions(notice_s: float, answer_s: float) -> list[str]:
    """Return what the figures rest on, a sentence each."""
    return [
        f"A failure is noticed {notice_s:g} s after the accounting says that the job ended, and a restart is submitted at once.",
        f"Whatever the policy asks about, a person says yes to after {answer_s / 60:g} min, by day and by night.",
        "The next attempt of the same user, name, work folder and array task answers a failure; where others of that name ran "
        "beside, or it was queued before, nothing is compared.",
        "A restart would have waited in the queue as long as the real one, and its GPUs stood idle meanwhile; on a full "
        "cluster other jobs have used them.",
        f"A wait counts up to {LONGEST_WAIT_S / 3600:g} h. What failed again within {AT_ONCE_S / 60:g} min counts as no saving, "
        "and as a restart for nothing; perhaps the person had changed something as well.",
        "A restart that waits for a storage or a service saves nothing here: when that was back is not in the files.",
        "A healthy checkpoint is there and training goes on behind it. Steps since the last checkpoint are lost in either case: "
        "they are shown, and are no saving.",
        f"A cordon stands for {HOURS:g} h. A node was well when its next job ran {WELL_S / 3600:g} h or longer.",
        "Every failure is judged in the history as it really was: what Nightshift would have changed counts for limits, "
        "cooldowns and budgets, but does not change which jobs failed later.",
        "Probes cannot be asked about the past: a node is to blame only where logs or kernel lines say so. Hangs, loss spikes "
        "and slow jobs that a watch sees while a job runs are not replayed.",
        "Nodes are those that the accounting names, usable but for our cordons and what --events tells; learned rules, "
        "memory and directives of job scripts (act=never, restarts=) are not known.",
        "Times without a zone are read in the zone of this machine (of kernel logs: UTC).",
    ]


def markdown(tally: Tally, *, source: str, mode: str, notice_s: float, answer_s: float, notes: Mapping[str, str]) -> str:
    """Return the page.

    Args:
        tally: The figures.
        source: The files.
        mode: The policy that was replayed.
        notice_s: As in `tally`.
        answer_s: As in `tally`.
        notes: Further lines about the input, by name.
    """
    lines = ["# What Nightshift would have done", "", f"From {escaped(source)}, with policy {escaped(mode)}.", ""]
    for section in sections(tally):
        lines += [f"## {section.title[0].upper()}{section.title[1:]}", "", "| | |", "|---|---|"]
        lines += [f"| {escaped(name.strip())} | {escaped(value)} |" for name, value in section.pairs]
        lines.append("")
    if notes:
        lines += ["## Input", ""] + [f"- {escaped(name)}: {escaped(value)}" for name, value in notes.items()] + [""]
    lines += ["## What this assumes", ""] + [f"- {text}" for text in assumptions(notice_s, answer_s)]
    return "\n".join(lines) + "\n"


def _rate(rate: Rate) -> str:
    return f"{rate.count:,}: {rate.per_day:g} a day, {rate.per_week:g} a week, {rate.per_1000_jobs:g} per 1,000 jobs"


def _listed(counts: Mapping[str, int]) -> str:
    entries = [f"{name} {count:,}" for name, count in list(counts.items())[:SHOWN]]
    return ", ".join(entries) + (f", {len(counts) - SHOWN} more" if len(counts) > SHOWN else "")
