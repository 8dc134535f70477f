"""Whether a job that the scheduler queued again begins anew although its run had saved: nobody chose that.

It saves over its run. It is no restart of Nightshift's own, so it is never ended here (docs/decisions/0016): a person is told.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assistant.errors import ToolError, Unavailable
from assistant.logs.lines import Lines
from assistant.records import Checkpoint, Job, MetricPoint
from assistant.recover.checkpoints.search import search_checkpoints
from assistant.recover.joblog import log_lines
from assistant.recover.loaded import loaded_checkpoint
from assistant.recover.wrong_start import proof_of_wrong_start

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

__all__ = ["begins_anew", "newest_checkpoint"]

logger = logging.getLogger(__name__)

FEWEST_STEPS = 2
"""Distinct steps that tell where an attempt begins and how often it logs one."""


def newest_checkpoint(engine: Engine, job: Job, *, before: datetime | None) -> Checkpoint | None:
    """Return the newest checkpoint of a job's run that was saved before a time; None where there is none, or it is not known."""
    try:
        lines = (line.text for line in log_lines(job))
        found = search_checkpoints(job, engine.checkpoint_folders, lines, now=engine.clock.now()).inventory
    except (ToolError, Unavailable) as error:
        logger.info("job=%s whether it had saved before it was queued again is not known: %s", job.id, error)
        return None
    known = [one for one in found.checkpoints if before is None or one.saved_at < before] if found is not None else []
    return max(known, key=lambda one: (one.saved_at, one.step), default=None)


def noted(checkpoint: Checkpoint | None) -> dict[str, Any] | None:
    """Return a checkpoint as facts of evidence."""
    if checkpoint is None:
        return None
    at = checkpoint.saved_at.isoformat()
    return {"path": str(checkpoint.path), "step": checkpoint.step, "format": checkpoint.format, "saved_at": at}


def _of_facts(facts: Mapping[str, Any]) -> Checkpoint | None:
    saved = facts.get("saved")
    if not isinstance(saved, Mapping):
        return None
    at = datetime.fromisoformat(str(saved["saved_at"]))
    return Checkpoint(Path(str(saved["path"])), int(saved["step"]), str(saved["format"]), 0, at, healthy=True, problems=())


def begins_anew(engine: Engine, job: Job, facts: Mapping[str, Any], points: Sequence[MetricPoint], lines: Lines | None) -> str:
    """Return what shows that an attempt begins anew although its run had saved; empty where it does not, or that is not known.

    Args:
        engine: Everything.
        job: The attempt that runs.
        facts: Of the requeue's evidence: `last_step`, `first_loss`, `last_loss` and `saved` of the attempt before.
        points: The attempt's own, proven to be so.
        lines: All of its own lines; None where they are not known.
    """
    steps = list(dict.fromkeys(point.step for point in points))
    last = facts.get("last_step")
    if len(steps) < FEWEST_STEPS or last is None or lines is None or steps[0] >= int(last):
        return ""
    saved = _of_facts(facts) or newest_checkpoint(engine, job, before=job.started)
    if saved is None:
        return ""
    loaded = loaded_checkpoint(lines)
    proof = proof_of_wrong_start(saved, loaded, points, [], reached=int(last))
    if not proof and (loaded.loads or not _at_the_start(steps) or _loss_is_kept(points, facts)):
        return ""
    where = proof or f"its first step is {steps[0]}, and it says of no checkpoint that it loads it"
    before = f"the attempt before had come to step {last} and saved {saved.path.name} (in {saved.path.parent})"
    return f"it begins anew: {where}; {before}"


def _at_the_start(steps: Sequence[int]) -> bool:
    """Tell whether the first step that was logged is the first there is to be logged."""
    return steps[0] <= max(1, steps[1] - steps[0])


def _loss_is_kept(points: Sequence[MetricPoint], facts: Mapping[str, Any]) -> bool:
    """Tell whether the first loss is that of the end of the attempt before, not of its beginning: only the counter is new."""
    own = next((point.loss for point in points if point.loss is not None), None)
    first, last = facts.get("first_loss"), facts.get("last_loss")
    if own is None or first is None or last is None:
        return False
    return abs(own - float(last)) < abs(own - float(first)) / 2
