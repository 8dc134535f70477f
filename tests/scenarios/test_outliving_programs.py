"""A program that outlives its job, since only the daemon of its node died: nothing is started beside it, it is looked at again."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

import pytest

from assistant.ports import Reply
from assistant.records import IncidentState
from assistant.records.jobs import NONE_THERE
from assistant.schedulers.simulated_run import SimulatedRun, write_checkpoint
from assistant.tools import _processes
from tests.scenarios.scene import Scene

NODE = "node01"
NONE_SEEN = f"{NONE_THERE}, or its processes may not be looked at"


def processes(*states: tuple[int, str, str]) -> str:
    """Return what a node prints about processes of a job, each by its number, program and state."""
    links, stats, commands = [], [], []
    for pid, program, state in states:
        folder = f"/proc/{pid}"
        links += [f"{folder}/cwd", "/work", f"{folder}/ns/mnt", "mnt:[1]", f"{folder}/exe", f"/usr/bin/{program}"]
        stats += [f"{folder}/stat", f"{pid} ({program}) {state} 1 1 1"]
        commands += [f"{folder}/cmdline", program, f"{folder}/cmdline", "train.py"]
    words = ["link", *links, "state", *stats, "command", *commands] if states else []
    return "\n" + "\0".join([_processes.MARK, "", "mnt:[1]", *words, "end", ""])


def none(why: str) -> str:
    return f"\n{_processes.MARK}\0{why}\0"


class Outliving:
    """A job whose node loses its daemon at step 50, and what the node says of its processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said = processes((4711, "python3.11", "S"), (4700, "slurmstepd", "S"))
        first = SimulatedRun(fails_at=50, downs=NODE)
        self.scene = Scene(folder, run=first)
        checkpoints = folder / "checkpoints"
        self.scene.cluster.plan("llm", dataclasses.replace(first, checkpoints=checkpoints), SimulatedRun(checkpoints=checkpoints))
        self.scene.cluster.reachable.add(NODE)
        typed = shlex.join(_processes.command(["1"], ""))
        self.scene.cluster.answers[typed] = lambda node: Reply(node, True, 0, self.said, "")
        self.scene.cluster.submit(self.scene.spec)

    def goes_on_to(self, step: int, *lines: str) -> None:
        """Let the program save a step and say lines, long after its job."""
        write_checkpoint(self.folder / "checkpoints", step)
        with (self.folder / "job-1.log").open("a", encoding="utf-8") as log:
            at = f" iteration {step:8d}/     100 | elapsed time per iteration (ms): 1000.0 | lm loss: 2.0E+00 |"
            log.writelines(f"{line}\n" for line in (at, *lines))

    @property
    def changes(self) -> list[str]:
        return self.scene.cluster.changes


def test_a_program_that_lives_on_is_told_of_and_nothing_is_started_beside_it(tmp_path: Path) -> None:
    job = Outliving(tmp_path)
    (incident,) = job.scene.watch(900)
    assert (incident.state, job.changes) == (IncidentState.ESCALATED, ["submit 1"])
    assert incident.note.startswith(f"the program of job 1 still runs on {NODE} (python3.11 train.py, pid 4711)")
    for words in ("saved step 40", "second writer", "slurmd"):
        assert words in incident.note
    for _ in range(20):
        job.scene.watch(60)
    assert job.changes == ["submit 1"]


def test_once_it_has_finished_by_itself_the_incident_is_settled(tmp_path: Path) -> None:
    job = Outliving(tmp_path)
    job.scene.watch(300)
    job.goes_on_to(100, "finished")
    job.said = none(NONE_THERE)
    for _ in range(4):
        job.scene.watch(10)
    (incident,) = job.scene.engine.store.incidents()
    assert (incident.state, job.changes) == (IncidentState.CLOSED, ["submit 1"]), incident.note
    assert "finished by itself" in incident.note


def test_one_that_says_it_is_through_without_a_known_save_is_not_started_again(tmp_path: Path) -> None:
    job = Outliving(tmp_path)
    job.scene.watch(300)
    with (tmp_path / "job-1.log").open("a", encoding="utf-8") as log:
        log.write(" iteration       90/     100 | elapsed time per iteration (ms): 1000.0 | lm loss: 2.0E+00 |\nfinished\n")
    job.said = none(NONE_THERE)
    for _ in range(20):
        job.scene.watch(60)
    (incident,) = job.scene.engine.store.incidents()
    assert (incident.state, job.changes) == (IncidentState.ESCALATED, ["submit 1"])
    assert "its log says that it is through" in incident.note
    assert "'finished'" in incident.note


def test_once_it_has_died_the_restart_goes_on_from_its_newest_save(tmp_path: Path) -> None:
    job = Outliving(tmp_path)
    job.scene.watch(300)
    job.goes_on_to(60)
    job.said = none(NONE_THERE)
    for _ in range(4):
        job.scene.watch(300)
    (incident,) = job.scene.engine.store.incidents()
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert job.changes == ["submit 1", f"cordon {NODE}", "submit 2"]
    again = job.scene.cluster.job("2")
    assert again.spec is not None
    assert again.spec.environment["NIGHTSHIFT_STEP"] == "60"
    assert NODE not in again.nodes


@pytest.mark.parametrize(
    "said",
    [
        none(NONE_THERE),
        none(NONE_SEEN),
        processes((4700, "slurmstepd", "S")),
        processes((4711, "python3.11", "Z")),
        processes((4800, "raylet", "S")),
    ],
    ids=["none of the job", "it may not be looked", "only Slurm's own", "only a dead one", "only a daemon"],
)
def test_what_is_no_living_program_of_the_job_keeps_no_restart(said: str, tmp_path: Path) -> None:
    job = Outliving(tmp_path)
    job.said = said
    (incident,) = job.scene.watch(900)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert "submit 2" in job.changes


def test_a_node_that_does_not_answer_keeps_no_restart(tmp_path: Path) -> None:
    job = Outliving(tmp_path)
    job.scene.cluster.reachable.clear()
    (incident,) = job.scene.watch(900)
    assert incident.state is IncidentState.RECOVERED, incident.note


def test_a_node_that_falls_silent_later_proves_no_death(tmp_path: Path) -> None:
    job = Outliving(tmp_path)
    job.scene.watch(300)
    job.scene.cluster.reachable.clear()
    for _ in range(10):
        job.scene.watch(60)
    (incident,) = job.scene.engine.store.incidents()
    assert (incident.state, job.changes) == (IncidentState.ESCALATED, ["submit 1"])


def test_what_a_person_has_taken_stays_theirs(tmp_path: Path) -> None:
    job = Outliving(tmp_path)
    (incident,) = job.scene.watch(300)
    job.scene.engine.store.acknowledge(incident.id, by="cli:ada")
    job.said = none(NONE_THERE)
    for _ in range(4):
        job.scene.watch(300)
    assert (job.scene.engine.store.incident(incident.id).state, job.changes) == (IncidentState.ESCALATED, ["submit 1"])
