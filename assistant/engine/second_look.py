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
from assistant.watch.slowdown import SlowNodes
from assistant.watch.witness import Witness, WitnessVote, witness_of

logger = logging.getLogger(__name__)

AT_MOST = 4
"""Jobs that are asked at once; more than that at a time is an outage, and they come in turn."""
PATIENCE = timedelta(minutes=3)
"""After so long without an answer nobody has seen anything."""
KEPT = 512
MOST_NODES = 16
"""Nodes whose processes are asked for."""
MOST_PROBED = 128
"""Nodes of a slow job that are probed beside the watch."""
PROBED_EVERY = timedelta(minutes=10)
"""Nodes of a job that stays slow are asked once more after so long: heat comes and goes."""
TIMES = 3


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


@dataclass
class _Probed:
    at: datetime
    times: int = 0
    thread: threading.Thread | None = None
    nodes: SlowNodes | None = None


class PaceNodeLook:
    """A `PaceLook` by the tool `check_nodes`; a few jobs at once, each a few times."""

    def __init__(self, gate: Gate, clock: Clock, *, threaded: bool = False) -> None:
        """Ask through a gate; in a thread where `threaded`."""
        self._gate, self._clock, self.threaded = gate, clock, threaded
        self._probed: dict[tuple[str, int, datetime], _Probed] = {}

    def ask(self, job: Job, since: datetime, lasted_s: float) -> SlowNodes | None:
        """Return what the nodes of a slow job show; None while the answer is under way. What does not answer shows nothing."""
        if not 0 < len(job.nodes) <= MOST_PROBED:
            return SlowNodes(unanswered=f"{len(job.nodes)} nodes were not asked")
        now, probed = self._clock.now(), self._probed.get((job.id, job.attempt, since))
        is_due = probed is None or (probed.nodes is not None and probed.times < TIMES and now - probed.at > PROBED_EVERY)
        if is_due and sum(entry.thread is not None and entry.thread.is_alive() for entry in self._probed.values()) < AT_MOST:
            probed = self._probed.setdefault((job.id, job.attempt, since), _Probed(now))
            probed.at, probed.times = now, probed.times + 1
            while len(self._probed) > KEPT:
                del self._probed[next(iter(self._probed))]
            if self.threaded:
                probed.thread = threading.Thread(
                    target=self._look, args=(probed, job), daemon=True, name=f"look at the pace of {job.id}"
                )
                probed.thread.start()
            else:
                self._look(probed, job)
        if probed is None:
            return None
        if probed.nodes is None and now - probed.at > PATIENCE:
            return SlowNodes(unanswered="its nodes did not answer in time")
        return probed.nodes

    def _look(self, probed: _Probed, job: Job) -> None:
        arguments: dict[str, Any] = {"nodes": list(job.nodes)}
        if job.started is not None:
            arguments["job_started"] = job.started.isoformat()
        try:
            outcome = self._gate.call("check_nodes", arguments, why="the job became several times slower: why?", by="watch")
            value = outcome.value if outcome.ok and isinstance(outcome.value, Mapping) else {}
        except NightshiftError as error:
            logger.info("job=%s its nodes could not be asked: %s", job.id, error)
            value = {}
        status_by_node = {node: answer.get("status") for node, answer in value.get("nodes", {}).items()}
        silent = [node for node in job.nodes if status_by_node.get(node, "unknown") == "unknown"]
        unanswered = f"{', '.join(silent[:4])}: no answer" if silent else ""
        probed.nodes = SlowNodes(dict(value.get("slowed_words", {})), dict(value.get("link_words", {})), unanswered)
        logger.info(
            "job=%s is slow; its nodes: %s",
            job.id,
            dict(value.get("slowed_words", {})) or unanswered or "nothing is wrong with them",
        )
