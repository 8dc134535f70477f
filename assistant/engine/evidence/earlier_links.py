"""What the earlier links of a chain of jobs tell of a failure: each link resumes what the link before has saved last.

Where the loss went off in one link, the next ones resume weights that hold the damage and fail at once: their logs show neither the
step at which it went off nor a healthy loss. The cause is that of the earliest link, and only what was saved before it helps. A
chain of which a later link went off at the same step from a healthy save meets there what comes again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from assistant.errors import NightshiftError
from assistant.logs.spikes import MIN_POINTS, RISEN, Spike, find_spike, is_no_number
from assistant.records import Action, Category, Diagnosis, Incident, IncidentState, Job, MetricPoint
from assistant.recover.advised_way import SPIKE_MARGIN, damaged_from, newest_before
from assistant.recover.checkpoints.search import search_checkpoints
from assistant.recover.directives import SPIKE_SLACK
from assistant.recover.identity import restart_of
from assistant.recover.joblog import log_lines, log_points, marks_before
from assistant.recover.loaded import loaded_checkpoint
from assistant.recover.runs import SaveFolders, is_of_run
from assistant.recover.situation import AVOIDED
from assistant.redact import head_of
from assistant.untrusted import reading_as
from assistant.watch.progress import loss_in_words

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

MOST_LINKS = 16
"""Earlier jobs of one run that are read, the newest first."""
MOST_NAMED = 4
MOST_OF_SUMMARY = 200
LOSS_SPIKE = "loss_spike"


class ChainLink(NamedTuple):
    """A job of a run, with the losses that it logged."""

    job: Job
    points: Sequence[MetricPoint]


class Damage(NamedTuple):
    """Where the loss of a run went off, as a later link met it."""

    link: ChainLink
    spike: Spike
    repeated: bool = False
    """Whether the later link went on from before it and went off there again; else it resumed what was saved behind it."""


def earlier_links(engine: EnginePort, job: Job, counts: Callable[[Job], bool] = lambda _: True) -> list[Job]:
    """Return the jobs of the same run that had ended when a job began, newest first; at most `MOST_LINKS`.

    Args:
        engine: Everything.
        job: A later job of the run; other tasks of its array are no links of it.
        counts: Tells which jobs are looked at, before anything of them is read.

    Raises:
        NightshiftError: The scheduler, or a storage, did not answer.
    """
    if job.started is None:
        return []
    over = [
        entry
        for entry in engine.scheduler.user_jobs(job.user)
        if entry.id != job.id
        and entry.work_dir == job.work_dir
        and entry.started is not None
        and entry.ended is not None
        and entry.ended <= job.started
        and not ("_" in job.id and entry.id.partition("_")[0] == job.id.partition("_")[0])
        and counts(entry)
    ]
    began = job.started
    over.sort(key=lambda entry: entry.started or began, reverse=True)
    own = SaveFolders(job, engine.checkpoint_folders)
    return [entry for entry in over[:MOST_LINKS] if is_of_run(engine.scheduler, engine.checkpoint_folders, job, entry, own=own)]


def damage_before(own: Sequence[MetricPoint], first_step: int | None, links: Sequence[ChainLink]) -> Damage | None:
    """Return where the loss of a run went off before a job resumed it, or also went off; None where no link shows that.

    Args:
        own: Losses of the job.
        first_step: The first that it made, or would have made; None where that is not known.
        links: The earlier jobs of its run, newest first.
    """
    start, between = first_step, list(own)
    for link in links:
        spike = find_spike(link.points)
        if not link.points:
            continue  # it ended before its first step
        if start is not None and start - 1 > link.points[-1].step + max(1, _interval(link.points)):
            return None  # it never came as far as what was resumed
        well = [point for point in link.points if spike is None or point.step < spike.step]
        if spike is None and len(well) >= MIN_POINTS:
            return None
        if spike is None or spike.counted or len(well) < MIN_POINTS or not math.isfinite(spike.level):
            between += link.points  # too short to tell, or off from its first step on: it may have resumed the damage as well
            start = link.points[0].step
            continue
        if start is not None and spike.step < start:
            return Damage(link, spike) if _is_off(between, spike) else None
        return Damage(link, spike, repeated=True) if _goes_off_there(own, spike) else None
    return None


def _interval(points: Sequence[MetricPoint]) -> int:
    return points[-1].step - points[-2].step if len(points) > 1 else 1


def _goes_off_there(own: Sequence[MetricPoint], spike: Spike) -> bool:
    """Tell whether losses that began as well as those of an earlier link go off where these did."""
    own_spike = find_spike(own)
    if own_spike is None or not math.isfinite(own_spike.level) or abs(own_spike.step - spike.step) > SPIKE_SLACK:
        return False
    return own_spike.level <= RISEN * spike.level


def _is_off(points: Sequence[MetricPoint], spike: Spike) -> bool:
    """Tell whether all losses stand where a spike has thrown them; what came back since was no damage."""
    losses = [point for point in points if point.loss is not None]
    return all(is_no_number(point) or (point.loss or 0.0) > RISEN * spike.level for point in losses)


def with_earlier_links(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return the diagnosis of a link of a chain with what the earlier links show of its cause; any other as it is."""
    if job is None or job.started is None or incident.parent is not None or restart_of(engine.store, job) is not None:
        return diagnosis
    try:
        with reading_as(job.account):
            own, first_step = _points(engine, job), _first_step(engine, job)
            off = diagnosis.reason == LOSS_SPIKE or (bool(own) and all(is_no_number(point) for point in own))
            jobs = earlier_links(engine, job, lambda entry: off or _closed_before(engine, incident, entry) is not None)
            links = [ChainLink(entry, _points(engine, entry)) for entry in jobs] if off else []
            damage = damage_before(own, first_step, links) if off else None
            newest = _newest_before(engine, jobs, damage) if damage is not None else ""
    except (NightshiftError, OSError):
        return diagnosis
    if damage is not None:
        changed = _of_damage(diagnosis, job, damage, [entry.id for entry in reversed(jobs)], first_step)
        places = (*changed.where, damaged_from(damage.spike.step - SPIKE_MARGIN + 1))
        return replace(changed, advice=f"{changed.advice} {newest}".strip(), where=places)
    return _with_story(engine, incident, diagnosis, job, jobs)


def _points(engine: EnginePort, job: Job) -> list[MetricPoint]:
    full = engine.scheduler.job(job.id)
    return [point for point in log_points(full, marks=marks_before(engine.store, full), sure=True) if point.loss is not None]


def _first_step(engine: EnginePort, job: Job) -> int | None:
    """Return the first step of a job: as it logs it, else the one behind the checkpoint that it says it has loaded."""
    loaded = loaded_checkpoint(log_lines(job, marks=marks_before(engine.store, job), sure=True))
    if loaded.first_step is not None:
        return loaded.first_step
    return next((load.step + 1 for load in reversed(loaded.loads) if load.step is not None), None)


def _newest_before(engine: EnginePort, jobs: Sequence[Job], damage: Damage) -> str:
    """Return the newest checkpoint from before a loss went off, by where the earlier links say that they save; else empty."""
    for entry in jobs:
        full = engine.scheduler.job(entry.id)
        texts = (line.text for line in log_lines(full))
        search = search_checkpoints(full, engine.checkpoint_folders, texts, now=engine.clock.now())
        if search.inventory is not None and (words := newest_before(search.inventory.checkpoints, damage.spike.step)):
            return words
    return ""


def _of_damage(diagnosis: Diagnosis, job: Job, damage: Damage, links: Sequence[str], first_step: int | None) -> Diagnosis:
    origin, step = damage.link.job, damage.spike.step
    rose = f"the loss of job {origin.id}, an earlier link of the same run, {_course(damage.spike)}"
    since = links[links.index(origin.id) + 1 :]
    addition = f" So did job{'s' * (len(since) > 1)} {_listed(since)}." if since else ""
    if damage.repeated:
        sentence = f"It went off there before: {rose}.{addition}"
        remedy = (
            f"What it meets about step {step} comes again at each start: look at the data of these steps and at the settings "
            "before it starts once more."
        )
    else:
        resumed = f"job {job.id} went on behind that, at step {first_step}"
        sentence = f"Its cause lies in an earlier job: {rose}, and {resumed}, from weights that hold the damage.{addition}"
        remedy = (
            f"Whatever was saved from step {step} on holds the damage, and each start from it fails: go back to a checkpoint from "
            f"before step {step}, move the later ones aside, and leave out or mend the data of that step, for it comes again. See "
            f"the log of job {origin.id}."
        )
    blamed = {*diagnosis.faulty_nodes, *(place.node for place in diagnosis.where if place.why.startswith(AVOIDED))}
    of_gpu = diagnosis.reason == LOSS_SPIKE and bool(blamed & {*origin.nodes})
    changed = replace(
        diagnosis,
        action=diagnosis.action if of_gpu else Action.FIX_AND_RESUBMIT,
        summary=f"{diagnosis.summary} {sentence}",
        advice=f"{sentence} {diagnosis.advice}" if of_gpu else f"{sentence} {remedy}",
        spike_step=step if diagnosis.spike_step is None else min(step, diagnosis.spike_step),
    )
    if diagnosis.reason != LOSS_SPIKE and diagnosis.category is not Category.INFRASTRUCTURE:
        return replace(changed, reason=LOSS_SPIKE)
    return changed


def _course(spike: Spike) -> str:
    if spike.rise is None:
        return f"stood {loss_in_words(spike)}"
    lost = f"is no number from step {spike.rise.lost_step} on"
    return f"has risen since step {spike.step} (from {spike.level:.4g} to {spike.rise.last_loss:.4g}) and {lost}"


def _with_story(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job, links: Sequence[Job]) -> Diagnosis:
    """Return a diagnosis with the earlier links whose incidents were closed since a later link was to go on."""
    sentences = []
    for link in reversed(links):
        before = _closed_before(engine, incident, link)
        earlier = engine.store.diagnosis(before.id) if before is not None and link.ended_badly else None
        if before is not None and earlier is not None:
            words = head_of(earlier.summary, MOST_OF_SUMMARY)
            sentences.append(f"job {link.id} {link.state} (incident {before.id}, {earlier.reason}): {words}")
    if not sentences:
        return diagnosis
    remainder = f"; and {len(sentences) - MOST_NAMED} more" if len(sentences) > MOST_NAMED else ""
    story = f"Earlier links of its run failed, too: {'; '.join(sentences[:MOST_NAMED]).rstrip('.')}{remainder}."
    return replace(diagnosis, summary=f"{diagnosis.summary} {story}")


def _closed_before(engine: EnginePort, incident: Incident, link: Job) -> Incident | None:
    """Return the incident of an earlier link that is older than one and was closed; None where it has none, or a person has it."""
    before = next((entry for entry in engine.store.incidents(job=link.id) if entry.id < incident.id), None)
    return before if before is not None and before.state is IncidentState.CLOSED else None


def _listed(jobs: Sequence[str]) -> str:
    return ", ".join(jobs[:MOST_NAMED]) + (f" and {len(jobs) - MOST_NAMED} more" if len(jobs) > MOST_NAMED else "")
