"""Refused checkpoints are moved out of the way and trackers set: through the gate, frozen, audited, and taken back."""

from __future__ import annotations

import random
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import ToolError
from assistant.gate import AnswersFrom, Gate
from assistant.policy import Mode, Policy
from assistant.ports import JumpingClock
from assistant.records import Event, EventKind, Job, JobSpec, JobState
from assistant.recover.checkpoints.search import SaveState, folder_moves, search_checkpoints
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.store import Store
from assistant.tooling import Context
from assistant.tools.aside import set_aside_checkpoints
from assistant.tools.checkpoints import choose_checkpoint
from assistant.tools.resubmit import resubmit_job


class World:
    """A job whose newest checkpoint is damaged, and whose script takes what it finds by itself."""

    def __init__(self, folder: Path, resumes: str) -> None:
        self.saved = folder / "ckpt"
        self.clock = JumpingClock(datetime(2026, 3, 10, 12, 0, tzinfo=UTC))
        self.cluster = SimulatedCluster(self.clock, folder)
        self.cluster.plan("llm", SimulatedRun(fails_at=70), SimulatedRun())
        script = f"#NIGHTSHIFT checkpoints={self.saved} resumes={resumes}\nsrun python train.py\n"
        self.job = self.cluster.submit(JobSpec("llm", script, work_dir=folder))
        self.clock.sleep(3600)
        assert self.cluster.job(self.job).state.ended
        for step in (20, 40, 60):
            part = self.saved / f"iter_{step:07}" / "mp_rank_00" / "model_optim_rng.pt"
            part.parent.mkdir(parents=True)
            part.write_bytes(b"\x80" + bytes(9000) if step < 60 else b"")
        (self.saved / "latest_checkpointed_iteration.txt").write_text("60")
        self.newest = self.saved / "iter_0000060"
        self.store = Store(folder / "s.db", self.clock)
        self.gate = Gate(self.store, self.context, Policy(mode=Mode.ACT), AnswersFrom([]))
        self.incident, _ = self.store.open_incident(Event(EventKind.JOB_ENDED, self.job, None, self.clock.now()))

    def context(self, incident: int | None = None, tag: str = "") -> Context:
        return Context(self.cluster, self.cluster, self.clock, random.Random(0), self.store, incident=incident, tag=tag)

    def call(self, tool: str, **arguments: Any) -> Any:
        return self.gate.call(tool, {"job": self.job, **arguments}, why="it failed", by="playbook:x", incident=self.incident.id)


def test_a_refused_checkpoint_is_moved_aside_before_the_job_comes_back_and_put_back_by_undo(tmp_path: Path) -> None:
    world = World(tmp_path, "newest")
    choice = choose_checkpoint(world.context(), world.job)
    assert (choice["step"], choice["set_aside"]) == (40, [str(world.newest)])
    assert "resumes by itself from the newest" in choice["note"]
    with pytest.raises(ToolError, match=f"would load or meet {world.newest.name}"):
        resubmit_job(world.context(), world.job)
    made = world.call("set_aside_checkpoints", paths=choice["set_aside"])
    assert made.ok, made.error
    assert (world.saved / "nightshift-refused" / world.newest.name).is_dir()
    assert not world.newest.exists()
    [call] = world.store.calls()
    assert call.preview.startswith(f"mv -nT {world.newest} {world.saved}/nightshift-refused/{world.newest.name}")
    again = choose_checkpoint(world.context(), world.job)
    assert (again["step"], again["set_aside"]) == (40, [])
    back = world.gate.undo(made.call, "cli:alice")
    assert back.ok, back.error
    assert world.newest.is_dir()


def test_a_tracker_is_set_to_the_chosen_one_and_taken_back(tmp_path: Path) -> None:
    world = World(tmp_path, "tracker")
    tracker = world.saved / "latest_checkpointed_iteration.txt"
    tracker.write_text("60\n")
    choice = choose_checkpoint(world.context(), world.job)
    assert (choice["step"], choice["tracker"], choice["tracker_text"]) == (40, str(tracker), "40")
    assert choice["set_aside"] == [str(world.newest)], "its step is saved again"
    assert world.call("set_aside_checkpoints", paths=choice["set_aside"]).ok
    with pytest.raises(ToolError, match="does not name the chosen checkpoint"):
        resubmit_job(world.context(), world.job)
    made = world.call("set_tracker", tracker=choice["tracker"], text=choice["tracker_text"])
    assert made.ok, made.error
    assert tracker.read_text() == "40"
    assert choose_checkpoint(world.context(), world.job)["tracker"] == ""
    assert world.gate.undo(made.call, "cli:alice").ok
    assert tracker.read_text() == "60\n"


@pytest.mark.parametrize("resumes", ["tracker", "newest"])
def test_a_link_to_the_newest_is_set_as_a_link_and_taken_back(tmp_path: Path, resumes: str) -> None:
    world = World(tmp_path, resumes)
    (world.saved / "latest_checkpointed_iteration.txt").unlink()
    link = world.saved / "latest"
    link.symlink_to(world.newest.name)
    choice = choose_checkpoint(world.context(), world.job)
    assert (choice["step"], choice["tracker"], choice["tracker_text"]) == (40, str(link), "iter_0000040")
    assert world.call("set_aside_checkpoints", paths=choice["set_aside"]).ok
    again = choose_checkpoint(world.context(), world.job)
    assert (again["tracker"], again["tracker_text"]) == (str(link), "iter_0000040"), "it leads nowhere now"
    with pytest.raises(ToolError, match="does not name the chosen checkpoint"):
        resubmit_job(world.context(), world.job)
    made = world.call("set_tracker", tracker=again["tracker"], text=again["tracker_text"])
    assert made.ok, made.error
    assert link.is_symlink()
    assert link.resolve() == world.saved / "iter_0000040"
    assert world.store.calls()[-1].preview.startswith(f"ln -sfnT iter_0000040 {link}")
    assert choose_checkpoint(world.context(), world.job)["tracker"] == ""
    assert world.gate.undo(made.call, "cli:alice").ok
    assert str(link.readlink()) == "iter_0000060"


def test_a_link_that_does_not_name_the_newest_is_left_to_a_person(tmp_path: Path) -> None:
    world = World(tmp_path, "newest")
    (world.saved / "best").symlink_to(world.newest.name)
    choice = choose_checkpoint(world.context(), world.job)
    assert choice["restart_from"] == ""
    assert "point it there by hand" in choice["note"]


def test_a_link_leads_to_nothing_outside_its_folder(tmp_path: Path) -> None:
    world = World(tmp_path, "tracker")
    link = world.saved / "latest"
    link.symlink_to(world.newest.name)
    answer = world.call("set_tracker", tracker=str(link), text="../../elsewhere")
    assert not answer.ok
    assert str(link.readlink()) == world.newest.name


def test_a_script_that_does_not_resume_is_not_started_over_its_checkpoints(tmp_path: Path) -> None:
    world = World(tmp_path, "no")
    choice = choose_checkpoint(world.context(), world.job)
    assert choice["restart_from"] == ""
    assert "does not resume: it would start at 0" in choice["note"]
    for checkpoint in ("last_healthy", "none"):
        with pytest.raises(ToolError, match="would start at 0"):
            resubmit_job(world.context(), world.job, checkpoint=checkpoint)


@pytest.mark.parametrize("path", ["{folder}/train.py", "/etc/passwd", "relative/iter_0000040", "{folder}"])
def test_nothing_but_a_checkpoint_is_moved(tmp_path: Path, path: str) -> None:
    world = World(tmp_path, "newest")
    (tmp_path / "train.py").write_text("x")
    with pytest.raises(ToolError):
        set_aside_checkpoints(world.context(), world.job, [path.format(folder=tmp_path)])


def test_a_second_one_of_the_same_name_keeps_the_first(tmp_path: Path) -> None:
    world = World(tmp_path, "newest")
    assert world.call("set_aside_checkpoints", paths=[str(world.newest)]).ok
    (world.newest / "mp_rank_00").mkdir(parents=True)
    (world.newest / "mp_rank_00" / "model_optim_rng.pt").write_bytes(b"\x80again")
    assert world.call("set_aside_checkpoints", paths=[str(world.newest)]).ok
    aside = world.saved / "nightshift-refused"
    assert (aside / world.newest.name).is_dir()
    assert (aside / "2" / world.newest.name).is_dir()


def test_the_checkpoints_of_a_job_that_runs_are_left_alone(tmp_path: Path) -> None:
    world = World(tmp_path, "newest")
    world.cluster.plan("llm", SimulatedRun(steps=10**6))
    world.cluster.submit(JobSpec("llm", "#!/bin/sh\n", work_dir=tmp_path))
    world.clock.sleep(5)
    made = world.call("set_aside_checkpoints", paths=[str(world.newest)])
    assert not made.ok
    assert "is of the same run" in made.error


@pytest.mark.parametrize(("folder", "moves"), [("ckpt/$SLURM_JOB_ID", True), ("ckpt/7", False), ("ckpt/${SLURM_JOB_NAME}", False)])
def test_a_folder_named_by_the_jobs_id_is_another_one_for_a_new_job(tmp_path: Path, folder: str, moves: bool) -> None:
    script = f"#!/bin/bash\necho $SLURM_JOB_ID\nsrun python train.py --save {folder}\n"
    spec = JobSpec("gpt", script, work_dir=tmp_path)
    began = datetime(2026, 3, 10, tzinfo=UTC)
    job = Job("7", "gpt", "", JobState.FAILED, "", (), None, tmp_path, began, began, began, 1, None, spec=spec)
    saved = tmp_path / folder.replace("$SLURM_JOB_ID", "7").replace("${SLURM_JOB_NAME}", "gpt")
    part = saved / "iter_0000020/mp_rank_00/model_optim_rng.pt"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"\x80" + bytes(100))
    search = search_checkpoints(job, {}, (), now=began)
    assert search.state is SaveState.FOUND
    assert bool(folder_moves(job, search)) is moves


def of_ranks(world: World, *leads: int) -> Path:
    """Let the world's folder be Composer's: a file a rank at three steps, and a link a rank, each to the step that is given."""
    for child in world.saved.iterdir():
        shutil.rmtree(child) if child.is_dir() else child.unlink()
    for step in (20, 40, 60):
        for rank in range(len(leads)):
            (world.saved / f"ep0-ba{step}-rank{rank}.pt").write_bytes(b"\x80" + bytes(9000) if step < 60 else b"")
    for rank, step in enumerate(leads):
        (world.saved / f"latest-rank{rank}.pt").symlink_to(f"ep0-ba{step}-rank{rank}.pt")
    return world.saved / "latest-rank0.pt"


def test_the_links_of_all_ranks_are_set_with_one_and_taken_back(tmp_path: Path) -> None:
    world = World(tmp_path, "newest")
    link, second = of_ranks(world, 60, 60), world.saved / "latest-rank1.pt"
    choice = choose_checkpoint(world.context(), world.job)
    assert (choice["step"], choice["tracker"], choice["tracker_text"]) == (40, str(link), "ep0-ba40-rank0.pt"), choice["note"]
    assert world.call("set_aside_checkpoints", paths=choice["set_aside"]).ok
    made = world.call("set_tracker", tracker=choice["tracker"], text=choice["tracker_text"])
    assert made.ok, made.error
    assert [str(one.readlink()) for one in (link, second)] == ["ep0-ba40-rank0.pt", "ep0-ba40-rank1.pt"]
    call = world.store.calls()[-1]
    assert call.preview.startswith(f"ln -sfnT ep0-ba40-rank1.pt {second}")
    assert f"ln -sfnT ep0-ba40-rank0.pt {link}" in call.preview
    again = choose_checkpoint(world.context(), world.job)
    assert (again["step"], again["tracker"], again["set_aside"]) == (40, "", [])
    undone = world.gate.undo(made.call, "cli:alice")
    assert undone.ok, undone.error
    assert [str(one.readlink()) for one in (link, second)] == ["ep0-ba60-rank0.pt", "ep0-ba60-rank1.pt"]


def test_links_of_ranks_that_a_crash_left_half_set_are_set_to_the_end(tmp_path: Path) -> None:
    world = World(tmp_path, "newest")
    link = of_ranks(world, 60, 60, 60)
    (world.saved / "latest-rank2.pt").unlink()
    (world.saved / "latest-rank2.pt").symlink_to("ep0-ba40-rank2.pt")
    made = world.call("set_tracker", tracker=str(link), text="ep0-ba40-rank0.pt")
    assert made.ok, made.error
    assert {str((world.saved / f"latest-rank{rank}.pt").readlink()) for rank in range(3)} == {
        f"ep0-ba40-rank{rank}.pt" for rank in range(3)
    }


@pytest.mark.parametrize("leads", [(60, 20), (60, 20, 60)])
def test_links_of_ranks_that_lead_to_different_saves_are_left_to_a_person(leads: tuple[int, ...], tmp_path: Path) -> None:
    world = World(tmp_path, "newest")
    link = of_ranks(world, *leads)
    answer = world.call("set_tracker", tracker=str(link), text="ep0-ba40-rank0.pt")
    assert not answer.ok
    assert "of another save" in answer.error
    assert [str((world.saved / f"latest-rank{rank}.pt").readlink()) for rank in range(len(leads))] == [
        f"ep0-ba{step}-rank{rank}.pt" for rank, step in enumerate(leads)
    ]


def test_a_link_of_a_rank_that_leads_elsewhere_sets_no_other(tmp_path: Path) -> None:
    world = World(tmp_path, "newest")
    link = of_ranks(world, 60, 60)
    answer = world.call("set_tracker", tracker=str(link), text="ep0-ba40-rank1.pt")
    assert not answer.ok
    assert "set them by hand" in answer.error
    link.unlink()
    link.symlink_to(world.saved / "ep0-ba60-rank0.pt")
    answer = world.call("set_tracker", tracker=str(link), text="ep0-ba40-rank0.pt")
    assert not answer.ok, "one by its name and one by its whole path are not set alike"
    assert str((world.saved / "latest-rank1.pt").readlink()) == "ep0-ba60-rank1.pt"


def test_a_rank_without_its_file_is_left_to_a_person(tmp_path: Path) -> None:
    world = World(tmp_path, "newest")
    of_ranks(world, 60, 60)
    (world.saved / "ep0-ba40-rank1.pt").unlink()
    choice = choose_checkpoint(world.context(), world.job)
    assert choice["tracker_text"] in ("", "ep0-ba20-rank0.pt")


class OwnWorld(World):
    """A job whose program saves `stand_0060/` through a function of its own, takes the last, and whose newest one is empty."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "newest")
        (folder / "lernen.py").write_text(
            "import glob, os, pickle\n"
            "def lege(p, d):\n    os.makedirs(p, exist_ok=True)\n"
            "    with open(p + '/gewichte.dat', 'wb') as f:\n        pickle.dump(d, f)\n"
            "def hole(p):\n    with open(p + '/gewichte.dat', 'rb') as f:\n        return pickle.load(f)\n"
            "da = sorted(glob.glob('modelle/stand_*'))\n"
            "s = hole(da[-1])['s'] if da else 0\n"
            "while s < 100:\n    s += 1\n    lege(f'modelle/stand_{s:04d}', {'s': s})\n"
        )
        self.cluster.plan("own", SimulatedRun(fails_at=70), SimulatedRun())
        self.job = self.cluster.submit(JobSpec("own", "srun python lernen.py\n", work_dir=folder))
        self.clock.sleep(3600)
        self.saved = folder / "modelle"
        for step in (20, 40, 60):
            part = self.saved / f"stand_{step:04}" / "gewichte.dat"
            part.parent.mkdir(parents=True)
            part.write_bytes(b"\x80" + bytes(9000) if step < 60 else b"")
        self.newest = self.saved / "stand_0060"


def test_names_that_only_its_program_gives_are_chosen_moved_aside_and_gone_on_from(tmp_path: Path) -> None:
    world = OwnWorld(tmp_path)
    choice = choose_checkpoint(world.context(), world.job)
    assert (choice["path"], choice["set_aside"]) == (str(world.saved / "stand_0040"), [str(world.newest)]), choice
    world.call("set_aside_checkpoints", paths=choice["set_aside"])
    assert not world.newest.exists()
    choice = choose_checkpoint(world.context(), world.job)
    assert (choice["restart_from"], choice["set_aside"]) == (str(world.saved / "stand_0040"), [])
    assert resubmit_job(world.context(), world.job, checkpoint=choice["path"])["step"] == 40


def test_a_numbered_file_beside_them_is_not_moved(tmp_path: Path) -> None:
    world = OwnWorld(tmp_path)
    (tmp_path / "tabelle_0060.dat").write_bytes(bytes(9000))
    with pytest.raises(ToolError, match="no checkpoint of a known form"):
        set_aside_checkpoints(world.context(), world.job, [str(tmp_path / "tabelle_0060.dat")])
