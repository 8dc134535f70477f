"""A data file that another job writes: the job that died of reading it waits until it is whole, then starts again once."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from assistant.ports import Reply
from assistant.records import IncidentState, JobSpec
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tools.holders import _CHANGED, _WRITERS
from tests.scenarios.scene import Scene

TOKENS = "/data/corpus/tokens.bin"
BUS = "srun: error: node02: task 0: Bus error (core dumped)"
REFUSED = f"ValueError: {TOKENS} holds 750 tokens, and its index says 4000"


class Programs(dict[str, Callable[[str], Reply]]):
    """What nodes answer to a program, whatever its arguments are."""

    def __init__(self, *answers: tuple[str, Callable[[str, list[str]], str]]) -> None:
        super().__init__()
        self.programs = answers

    def __contains__(self, typed: object) -> bool:
        return any(shlex.quote(program) in str(typed) for program, _ in self.programs) or super().__contains__(typed)

    def __getitem__(self, typed: str) -> Callable[[str], Reply]:
        for program, answer in self.programs:
            if shlex.quote(program) in typed:
                words = shlex.split(typed)[4:]
                return lambda node: Reply(node, True, 0, answer(node, words), "")
        return super().__getitem__(typed)


class World:
    """A job that reads a file, and another one of bob that writes it from second 40 on."""

    def __init__(
        self, folder: Path, error: str, *, owner: str = "bob", writes_s: float = 600, seen: bool = True, fails_at: int = 50
    ) -> None:
        self.scene = Scene(folder)
        saves = folder / "checkpoints"
        self.scene.cluster.plan(
            "llm", SimulatedRun(fails_at=fails_at, lines=(error,), checkpoints=saves), SimulatedRun(checkpoints=saves)
        )
        self.owner, self.writes_s, self.seen = owner, writes_s, seen
        self.scene.cluster.answers = Programs((_CHANGED, self.changed), (_WRITERS, self.writers))
        self.scene.cluster.submit(replace(self.scene.spec, user="ada", script=f"{self.scene.spec.script}# --data {TOKENS}\n"))
        self.began: datetime | None = None
        self.writer = ""

    def write(self) -> None:
        """Let bob's job begin to write."""
        run = SimulatedRun(steps=int(self.writes_s))
        self.scene.cluster.plan("prepare", run)
        folder = self.scene.folder / "prepare"
        spec = JobSpec("prepare", "srun python prepare.py\n", nodes=1, work_dir=folder, log="job-%j.log", user=self.owner)
        self.writer = self.scene.cluster.submit(spec)
        self.began = self.scene.clock.now()

    @property
    def now(self) -> int:
        return int(self.scene.clock.now().timestamp())

    @property
    def modified(self) -> int:
        """When the file was modified last."""
        if self.began is None:
            return self.now - 86_400
        return min(self.now, int(self.began.timestamp() + self.writes_s))

    def changed(self, node: str, words: list[str]) -> str:
        del node
        row = f"file 750 {self.modified}.5 {self.owner} {TOKENS}\0" if self.modified > int(words[0]) else ""
        return f"now {self.now}\0{row}end\0"

    def writers(self, node: str, words: list[str]) -> str:
        job = self.scene.cluster.job(self.writer) if self.writer else None
        writes = job is not None and not job.state.ended and node in job.nodes and self.seen
        row = f"process 1:2 71 {self.writer} -\t{self.owner}\tpython prepare.py\n" if writes else ""
        return f"now {self.now}\nfile 1:2 750 {self.modified} {self.owner} {words[0]}\n{row}end\n"


@pytest.mark.parametrize("error", [BUS, REFUSED])
def test_a_job_waits_until_the_file_that_it_reads_is_written_no_more(error: str, tmp_path: Path) -> None:
    world = World(tmp_path, error)
    scene = world.scene
    scene.watch(40)
    world.write()
    scene.watch(240)
    (incident,) = [one for one in scene.engine.store.incidents() if one.job == "1"]
    found = scene.engine.store.diagnosis(incident.id)
    assert found is not None
    assert f"{TOKENS} of bob, which the job reads" in found.summary
    assert f"job {world.writer} (prepare) of bob" in found.summary
    assert found.advice.startswith(f"Start again when {TOKENS} is written no more")
    assert "ada and bob should know" in found.advice
    assert f"job {world.writer} (prepare) of bob still writes {TOKENS}" in incident.note
    assert scene.cluster.changes == ["submit 1", "submit 2"]  # nothing but the job of bob
    scene.watch(3000)
    (after,) = [one for one in scene.engine.store.incidents() if one.job == "1"]
    assert after.state is IncidentState.RECOVERED, after.note
    assert scene.cluster.changes == ["submit 1", "submit 2", "submit 3"]
    restart, writer = scene.cluster.job("3"), scene.cluster.job("2")
    assert restart.started is not None
    assert writer.ended is not None
    assert restart.started > writer.ended
    assert any(TOKENS in remark.text for remark in scene.engine.good_runs.taken_remarks())


def test_what_nobody_is_seen_to_write_any_more_costs_one_restart(tmp_path: Path) -> None:
    world = World(tmp_path, REFUSED, writes_s=10, seen=False, fails_at=90)
    scene = world.scene
    world.write()
    scene.watch(3000)
    (incident,) = [one for one in scene.engine.store.incidents() if one.job == "1"]
    found = scene.engine.store.diagnosis(incident.id)
    assert found is not None
    assert found.advice.startswith("Restart from the last healthy checkpoint")
    assert incident.state is IncidentState.RECOVERED, incident.note


@pytest.mark.parametrize("error", [BUS, REFUSED])
def test_a_file_that_nobody_else_has_written_is_no_cause(error: str, tmp_path: Path) -> None:
    for name, world in {
        "unchanged": World(tmp_path / "a", error),
        "its own": World(tmp_path / "b", error, owner="ada", seen=False),
    }.items():
        if name == "its own":
            world.scene.watch(40)
            world.write()
        world.scene.watch(200)
        (incident,) = [one for one in world.scene.engine.store.incidents() if one.job == "1"]
        found = world.scene.engine.store.diagnosis(incident.id)
        assert found is not None
        assert "was modified" not in found.summary
        assert found.reason == ("os_error" if error is BUS else "value_error")
        if error is REFUSED:
            assert incident.state is IncidentState.ESCALATED, incident.note
