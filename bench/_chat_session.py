"""The chat on a large cluster in memory, for bench/chat.py: `python -m bench._chat_session FOLDER`. Not a benchmark by itself."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from assistant.config import Settings
from assistant.engine import Engine
from assistant.ports import SystemClock
from assistant.process_memory import Garbage, give_back
from assistant.records import (
    Action,
    Category,
    Citation,
    DecidedBy,
    Diagnosis,
    Event,
    EventKind,
    IncidentState,
    Job,
    JobState,
    Node,
    NodeFinding,
    NodeState,
)
from assistant.schedulers.simulated import SimulatedCluster
from assistant.store import Store
from assistant.tui.app import ChatApp
from assistant.tui.backend import ChatBackend
from assistant.tui.launch import FromSettings
from assistant.wiring import build

NODES, JOBS, INCIDENTS = 2_000, 5_000, 200
CHANGED = 50
"""Jobs that change between two looks."""
LOGS, LOG = 1, "job.log"
"""Which job has a log, and how its file is called."""


class Busy(SimulatedCluster):
    """A cluster that shows many nodes and jobs, of which some change with every look."""

    def __init__(self, folder: Path) -> None:
        super().__init__(SystemClock(), folder, nodes=2)
        self._looks = 0
        self._began = self.clock.now() - timedelta(hours=5)
        self._many = tuple(
            Node(f"node{n:04}", NodeState.DRAINED if n % 97 == 0 else NodeState.ALLOCATED if n % 3 else NodeState.IDLE, "train")
            for n in range(1, NODES + 1)
        )

    def nodes(self) -> Sequence[Node]:
        """Return all nodes."""
        return self._many

    def jobs(self) -> Sequence[Job]:
        """Return all jobs; of some the state is another than at the last look."""
        self._looks += 1
        return [self._one(number) for number in range(JOBS)]

    def _one(self, number: int) -> Job:
        place = number * 2 % NODES
        turned = (number + self._looks) % (JOBS // CHANGED) == 0
        state = JobState.FAILED if turned else JobState.RUNNING if number % 4 else JobState.PENDING
        nodes = tuple(node.name for node in self._many[place : place + 2]) if state is JobState.RUNNING else ()
        began = self._began + timedelta(seconds=number)
        log = self.folder / LOG if number == LOGS else None
        return Job(str(10_000 + number), f"llm-{number}", "alice", state, "train", nodes, log, None, began, began, None, None, None)


def fill(store: Store) -> None:
    """Write incidents with diagnoses, most of them over."""
    clock = SystemClock()
    for number in range(INCIDENTS):
        event = Event(EventKind.JOB_ENDED, str(10_000 + number), None, clock.now() - timedelta(hours=number))
        incident, _ = store.open_incident(event)
        cited = (Citation("job.log", 120, "CUDA error: uncorrectable ECC error encountered", "ecc_error.1"),)
        finding = (NodeFinding(f"node{number + 1:04}", "named by the kernel", cited),)
        found = Diagnosis(
            "ecc_error",
            Category.INFRASTRUCTURE,
            Action.CORDON_AND_RESTART,
            0.97,
            DecidedBy.RULE,
            cited,
            finding,
            (),
            "A GPU has an uncorrectable ECC error.",
            "",
        )
        store.add_diagnosis(incident.id, found)
        if number >= 3:
            store.set_state(incident.id, IncidentState.RECOVERED, note="runs again")


class OnBusyCluster(FromSettings):
    """Builds the engine of the settings on the large cluster."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        super().__init__(settings, model=False)
        self._folder, self._own = folder, settings

    def engine(self) -> Engine:
        """Return it."""
        cluster = Busy(self._folder)
        return build(self._own, scheduler=cluster, transport=cluster)


def main(folder: Path) -> None:
    """Run the chat until it is left."""
    settings = Settings(state_folder=folder, store=folder / "nightshift.db")
    starts = OnBusyCluster(settings, folder)
    give_back()
    clock = SystemClock()
    ChatApp(
        lambda post: ChatBackend(starts, post, by="chat:bench", owner="chat:bench@here:1.1", clock=clock), garbage=Garbage()
    ).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
