"""What a look makes of what it saw of a job: an event where it is somebody's incident, a remark where it may pass. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from assistant.records import Event, EventKind, Job, JobState
from assistant.watch.attempts import Remark, about
from assistant.watch.hang import WAITS, OutsideWait, Still, Suspicion
from assistant.watch.pace import Slow
from assistant.watch.saves import SaveLimits
from assistant.watch.view import View
from assistant.watch.witness import READ_UP_TO, Witness, proofs_of_hang, unobserved

__all__ = ["failed_steps", "hang_of", "late_saves_of", "remark_on", "slowness_of", "spike_of", "wait_of"]

RESTART_S = 300.0
"""What a job takes to its first step where that was not seen."""
TOLD_AFTER_S = 4 * 3600.0
"""After so long a person is told of a slow job even where a restart does not pay."""


def failed_steps(jobs: Sequence[Job], since: datetime) -> list[Remark]:
    """Return a remark for each job that completed although a step of it failed: its script may have meant to go on."""
    return [
        Remark(f"job {job.id}.{job.attempt} step", f"job {job.id} completed, but a step of it ended with {job.step_exit_code}")
        for job in jobs
        if job.state is JobState.COMPLETED and job.step_exit_code and job.ended is not None and job.ended >= since
    ]


def remark_on(view: View, topic: str, text: str) -> Remark:
    """Return a remark on a job; `topic` tells it from others on the same."""
    return Remark(f"job {view.job.id}.{view.job.attempt} {topic}", f"job {view.job.id} {text}")


def wait_of(view: View, waiting: OutsideWait, limit_s: float, now: datetime) -> Event:
    """Return the event of a job that waits and says for what: nothing proves a hang."""
    still_s = (now - waiting.since).total_seconds()
    event = hang_of(view, Suspicion(Still.NO_STEPS, waiting.since, still_s, limit_s, view.phase, certain=True), None)
    return replace(event, detail={**event.detail, "proofs": [], WAITS: waiting.line, "waits_count": waiting.count})


def hang_of(view: View, suspicion: Suspicion, witness: Witness | None) -> Event:
    """Return the event of a job that stands still."""
    job = view.job
    detail: dict[str, Any] = {
        **about(job),
        "silent_s": round(suspicion.still_s, 1),
        "step": view.last_step if view.last is not None else (view.beat.step if view.beat is not None else None),
        "how": str(suspicion.how),
        "phase": str(suspicion.phase),
        "limit_s": round(suspicion.limit_s, 1),
        "longest_s": dict(view.cadence.longest_by_phase()),
    }
    detail |= {READ_UP_TO: view.read_up_to()}
    if view.beat is not None and view.heart is not None:
        detail |= {"heartbeat": str(view.heart), "beat_step": view.beat.step}
    detail |= {"proofs": list(proofs_of_hang(suspicion, witness)), "unseen": unobserved(witness)}
    if witness is not None:
        detail |= {"vote": str(witness.vote), "witness": witness.text, "suspects": list(witness.suspects), **witness.facts}
    return Event(EventKind.HANG, job.id, None, suspicion.since, detail, job.attempt)


def spike_of(view: View, now: datetime) -> Event | None:
    """Return the event of a loss that ran away and stays away; None where there is none."""
    spike, job = view.spike, view.job
    if spike is None:
        return None
    detail = {
        **about(job),
        "step": spike.step if view.last_step is not None else None,
        "level": spike.level,
        "height": str(spike.height),
        "grad_norm_rose": spike.grad_norm_rose,
    }
    return Event(EventKind.LOSS_SPIKE, job.id, None, view.onset or now, detail, job.attempt)


def slowness_of(view: View, now: datetime, peers: Sequence[float], remarks: list[Remark]) -> Event | None:
    """Return the event of a slow job once a restart pays or a person should know; before that it is a remark."""
    slow, job = view.pace.slow(now, peers), view.job
    if slow is None:
        return None
    restart_s = _restart_s(view)
    pays = slow.worth_restarting(restart_s)
    lost_h = slow.lost_s * max(1, len(job.nodes)) / 3600
    if not pays and (now - slow.since).total_seconds() < TOLD_AFTER_S:
        text = f"is {slow.ratio:.1f} times slower than {_comparison(slow)} since {slow.since:%H:%M}"
        remarks.append(remark_on(view, "slow", text))
        return None
    detail = {
        **about(job),
        "ratio": round(slow.ratio, 2),
        "usual_s": slow.usual_s,
        "against": slow.against,
        "since": slow.since.isoformat(),
        "lost_s": round(slow.lost_s),
        "lost_node_h": round(lost_h, 2),
        "restart_s": round(restart_s),
        "restart_pays": pays,
        "step": view.last_step,
    }
    return Event(EventKind.SLOW_JOB, job.id, None, slow.since, detail, job.attempt)


def _comparison(slow: Slow) -> str:
    return "before" if slow.against == "itself" else "its peers"


def _restart_s(view: View) -> float:
    """Return what a restart costs: the way to the first step, and the steps since the last checkpoint once more."""
    start_s = view.first_step_s if view.first_step_s is not None else RESTART_S
    usual = view.cadence.usual_step_s
    saves = view.saves
    since = saves.newest_step - saves.steps[-1] if saves.steps else 0
    return start_s + since * usual


def late_saves_of(view: View, limits: SaveLimits, now: datetime) -> Event | None:
    """Return the event of checkpoints that stay away; None while they come."""
    late, job = view.saves.late(limits, now), view.job
    if late is None:
        return None
    detail = {
        **about(job),
        "last_step": late.last_step,
        "every_steps": late.every_steps,
        "steps_since": late.steps_since,
        "last_at": late.last_at.isoformat(),
    }
    return Event(EventKind.CHECKPOINTS_LATE, job.id, None, now, detail, job.attempt)
