"""Ask the nodes of a job that stands still, beside the watch: GPU counters and the stacks of all ranks, by reading calls.

A watch that looks again and again does not wait for it: a question is put in a thread of its own, and its answer is there at one of
the next looks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from assistant.errors import NightshiftError
from assistant.gate import Gate
from assistant.ports import Clock
from assistant.records import Job
from assistant.watch.hang import Suspicion
from assistant.watch.witness import Witness, WitnessVote, witness_of

logger = logging.getLogger(__name__)

AT_MOST = 4
"""Jobs that are asked at once; more than that at a time is an outage, and they come in turn."""
PATIENCE = timedelta(minutes=3)
"""After so long without an answer nobody has seen anything."""
KEPT = 512
MOST_NODES = 16
"""Nodes whose processes are asked for."""


@dataclass
class _Asked:
    at: datetime
    thread: threading.Thread | None = None
    witness: Witness | None = None


class NodeLook:
    """A `SecondLook` by the tools `gpu_activity` and `stack_classes`."""

    def __init__(self, gate: Gate, clock: Clock, *, beside: bool = False) -> None:
        """Ask through a gate.

        Args:
            gate: Every question is a call, on the record.
            clock: For patience.
            beside: Whether to ask in a thread; False waits for each answer, for single passes and where time jumps.
        """
        self._gate, self._clock, self.beside = gate, clock, beside
        self._asked: dict[tuple[str, int, datetime, bool], _Asked] = {}

    def ask(self, job: Job, suspicion: Suspicion) -> Witness | None:
        """Return what was seen; None while the answer is under way.

        It is asked when a job is suspected, and again when its hang would be certain without an answer.
        """
        key, now = (job.id, job.attempt, suspicion.since, suspicion.certain), self._clock.now()
        asked = self._asked.get(key)
        if asked is None:
            if sum(one.thread is not None and one.thread.is_alive() for one in self._asked.values()) >= AT_MOST:
                return None
            asked = self._asked[key] = _Asked(now)
            while len(self._asked) > KEPT:
                del self._asked[next(iter(self._asked))]
            if self.beside:
                asked.thread = threading.Thread(target=self._look, args=(asked, job), daemon=True, name=f"second look at {job.id}")
                asked.thread.start()
            else:
                self._look(asked, job)
        if asked.witness is None and now - asked.at > PATIENCE:
            return Witness(WitnessVote.UNKNOWN, "its nodes did not answer in time")
        return asked.witness

    def _look(self, asked: _Asked, job: Job) -> None:
        processes = self._tool("job_processes", job, most_nodes=MOST_NODES)
        found = witness_of(self._tool("gpu_activity", job), self._tool("stack_classes", job), processes)
        logger.info("job=%s stands still; second look: %s, %s", job.id, found.vote, found.text)
        asked.witness = found

    def _tool(self, name: str, job: Job, **more: int) -> Mapping[str, Any] | None:
        try:
            outcome = self._gate.call(name, {"job": job.id, **more}, why="the job stands still: does it work or wait?", by="watch")
        except NightshiftError as error:
            logger.info("job=%s %s could not be asked: %s", job.id, name, error)
            return None
        return outcome.value if outcome.ok and isinstance(outcome.value, Mapping) else None
