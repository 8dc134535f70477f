"""Look once more for a file that a job did not find, after a while: one that is there now was away, and its path is right."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from assistant.engine.evidence.missing_data import MISSING_DATA, with_file_back
from assistant.engine.gather import ask
from assistant.records import Action, Diagnosis, Incident, Job
from assistant.watch.outages import NOT_THERE, SETTLING, paths_of

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

logger = logging.getLogger(__name__)

MOST_NODES = 64
"""Nodes that are asked; of a larger job it stays open whether all have the file."""


def with_returned_file(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return the diagnosis of a job that goes on once more where its missing file is back, and keep it; else the one given.

    It is asked once, when the wait for other failures of the same cause is over. What `with_file_back` wants is wanted here.
    """
    texts = [cited.text for cited in diagnosis.root_cause]
    missing = job is not None and diagnosis.reason in MISSING_DATA and any(NOT_THERE.search(text) for text in texts)
    is_open = diagnosis.action is Action.FIX_AND_RESUBMIT and incident.parent is None
    if job is None or not missing or not is_open or len(job.nodes) > MOST_NODES or SETTLING not in engine.store.stages(incident.id):
        return diagnosis
    paths = paths_of(diagnosis.reason, texts)
    if not paths:
        return diagnosis
    answer = ask(engine.store, engine.gate, incident, "storage_state", {"nodes": list(job.nodes), "paths": list(paths[:1])})
    rows = (answer or {}).get("states") or ()
    fresh = with_file_back(diagnosis, rows, job) if rows else None
    if fresh is None:
        return diagnosis
    engine.store.add_diagnosis(incident.id, fresh)
    engine.outages.forget(incident.id)
    logger.info("incident=%s judged anew: %s is there again", incident.id, paths[0])
    return fresh
