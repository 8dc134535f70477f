"""The tools that list, judge and choose checkpoints, on the simulated cluster."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assistant.errors import ToolError
from assistant.records import Checkpoint
from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.resume.means import ResumeMeans, ResumeWay
from assistant.recover.trial.trial import spec_digest
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tools import checkpoints
from assistant.tools.checkpoints import choose_checkpoint, list_checkpoints, verify_checkpoint
from assistant.tools.report import escalate
from assistant.tools.restart_prospects import removes_saves, restart_prospect
from assistant.tools.resubmit import resubmit_job
from tests.unit.failed_job import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path).passes(60)


def test_the_newest_healthy_checkpoint_is_chosen(world: World) -> None:
    chosen = choose_checkpoint(world.context, world.job)
    assert (chosen["step"], chosen["refused"], chosen["fallback"]) == (40, [], "")
    assert chosen["restart_from"] == chosen["path"] == str(world.saved / "iter_0000040")


def test_a_cut_newest_checkpoint_is_refused_with_the_reason(tmp_path: Path) -> None:
    world = World(tmp_path, SimulatedRun(fails_at=50, cut=(40,))).passes(60)
    chosen = choose_checkpoint(world.context, world.job)
    assert chosen["step"] == 20
    assert chosen["note"] == (
        "checkpoint of step 20; iter_0000040 refused: has no manifest.json: the save did not finish, it is written last; "
        "this script resumes from the checkpoint that it is given, by $NIGHTSHIFT_RESUME_FROM"
    )
    assert chosen["fallback"] == chosen["path"]


@pytest.mark.parametrize(
    ("first", "loss", "norm", "step", "said"),
    [
        (25, "0.0", "nan", 20, True),
        (25, "nan", "0.3", 20, True),
        (45, "nan", "nan", 40, True),
        (25, "0.0", "0.3", 40, False),
        (49, "nan", "nan", 40, False),  # a loss scaler may have skipped two
        (60, "nan", "nan", 40, False),
    ],
)
def test_what_was_saved_after_the_loss_was_lost_is_refused_whatever_ended_the_job(
    world: World, first: int, loss: str, norm: str, step: int, *, said: bool
) -> None:
    log = world.cluster.job(world.job).log
    assert log is not None
    shown = [(2.0, "0.3") if at < first else (loss, norm) for at in range(1, 51)]
    log.write_text("".join(f"step {at} loss {one} grad_norm {two}\n" for at, (one, two) in enumerate(shown, 1)))
    chosen = choose_checkpoint(world.context, world.job)
    assert (chosen["step"], len(chosen["refused"])) == (step, step == 20)
    listed = list_checkpoints(world.context, world.job)
    assert [one["healthy"] for one in listed["checkpoints"]] == [True, step == 40]
    assert ("is no number from step" in listed["doubt"]) is said


def test_of_a_living_job_that_trains_on_without_a_loss_the_command_that_ends_it_is_told(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "living"
    folder.mkdir()
    living = World(folder, SimulatedRun(steps=500)).passes(60)
    log = living.cluster.job(living.job).log
    assert log is not None
    assert not living.cluster.job(living.job).state.ended
    healthy = restart_prospect(living.context, living.job)["waste"]
    lost = log.read_text() + "".join(f"step {at} loss nan grad_norm nan\n" for at in range(1000, 1020))
    log.write_text(lost)
    waste = restart_prospect(living.context, living.job)["waste"]
    assert healthy == ""
    assert "trains on with NaN since step 1000, and each checkpoint that it saves from there on is worthless" in waste
    assert waste.endswith(f"to end it: {'; '.join(living.cluster.command_lines('cancel', living.job))}")
    assert restart_prospect(world.context, world.job)["waste"] == "", "one that has ended wastes nothing"


def test_a_job_with_lost_weights_that_nothing_starts_again_is_known_while_it_lives(tmp_path: Path) -> None:
    living = World(tmp_path, SimulatedRun(steps=500)).passes(60)
    log = living.cluster.job(living.job).log
    assert log is not None
    healthy = restart_prospect(living.context, living.job)
    log.write_text(log.read_text() + "".join(f"step {at} loss nan grad_norm nan\n" for at in range(1000, 1020)))
    startable = restart_prospect(living.context, living.job)
    assert (healthy["lost"], startable["lost"]) == ("", ""), "what can be started again is ended by the playbook anyway"
    assert startable["restart_from"]
    living.cluster.cancel(living.job)
    living.passes(2)
    ended = restart_prospect(living.context, living.job)
    assert ended["lost"] == ""
    assert ended["standing"].startswith("it has ended (")
    assert startable["standing"] == "it was not ended"
    assert "on to its end" in ended["waste"]
    assert "to end it" not in ended["waste"]


def test_what_a_message_says_of_a_job_and_its_checkpoint_is_read_again_before_it_is_sent(tmp_path: Path) -> None:
    living = World(tmp_path, SimulatedRun(steps=500)).passes(60)
    choice = choose_checkpoint(living.context, living.job)
    words = f"checkpoint of step {choice['step']} ({choice['path']}); this script does not resume"
    assert escalate(living.context, "why", words, alive=living.job)["note"] == f"why: {words}", "all is as it was"
    unseen = "checkpoint of step 7 (/nowhere/at/all/step_7)"
    assert "no more there" not in escalate(living.context, "why", unseen, alive=living.job)["note"], (
        "what cannot be seen is not gone"
    )
    shutil.rmtree(choice["path"])
    living.cluster.cancel(living.job)
    living.passes(2)
    note = escalate(living.context, "why", words, alive=living.job)["note"]
    assert note.startswith(
        f"job {living.job} has ended meanwhile (cancelled); no more there: {Path(choice['path']).name}; before that: why"
    )


def test_a_job_that_never_saved_begins_at_the_start(tmp_path: Path) -> None:
    world = World(tmp_path, SimulatedRun(fails_at=10), SimulatedRun()).passes(30)
    assert choose_checkpoint(world.context, world.job)["restart_from"] == "none"
    assert resubmit_job(world.context, world.job)["step"] == 0


def test_checkpoints_of_runs_that_nothing_tells_apart_are_no_reason_to_restart(tmp_path: Path) -> None:
    world = World(tmp_path, SimulatedRun(fails_at=10), SimulatedRun()).passes(30)
    for name in ("lr1e-3_step000010.pt", "lr3e-4_step000010.pt"):
        (world.saved / name).write_bytes(b"\x80" + bytes(9000))
    chosen = choose_checkpoint(world.context, world.job)
    assert (chosen["restart_from"], chosen["path"]) == ("", "")
    assert "of several runs ('lr 1e-3', 'lr 3e-4')" in chosen["note"]
    listing = list_checkpoints(world.context, world.job)
    assert [Path(row["path"]).name for row in listing["checkpoints"]] == ["lr1e-3_step000010.pt", "lr3e-4_step000010.pt"]
    assert "of several runs" in listing["doubt"]
    with pytest.raises(ToolError, match="cannot be restarted from a checkpoint: which checkpoints are of job"):
        resubmit_job(world.context, world.job)
    with pytest.raises(ToolError, match="not started from the beginning"):
        resubmit_job(world.context, world.job, checkpoint="none")


def test_checkpoints_that_are_all_damaged_are_no_reason_to_begin_at_the_start(tmp_path: Path) -> None:
    world = World(tmp_path, SimulatedRun(fails_at=50, cut=(20, 40))).passes(60)
    chosen = choose_checkpoint(world.context, world.job)
    assert (chosen["restart_from"], len(chosen["refused"])) == ("", 2)
    with pytest.raises(ToolError, match="cannot be restarted from a checkpoint: none of 2 checkpoints"):
        resubmit_job(world.context, world.job)


@pytest.mark.parametrize("left", [True, False])
def test_checkpoints_that_vanished_are_said_and_nothing_starts_at_zero(world: World, left: bool) -> None:
    world.saved.rename(world.saved.with_name("elsewhere"))
    if left:
        world.saved.mkdir()
    chosen = choose_checkpoint(world.context, world.job)
    assert (chosen["restart_from"], chosen["state"]) == ("", "saved, and where is not known")
    assert "says that it saved" in chosen["note"]
    assert "#NIGHTSHIFT checkpoints=" in chosen["note"]
    with pytest.raises(ToolError, match="says that it saved"):
        resubmit_job(world.context, world.job)
    with pytest.raises(ToolError, match="not started from the beginning"):
        resubmit_job(world.context, world.job, checkpoint="none")


@pytest.mark.parametrize(("step", "margin", "expected"), [(41, 0, 40), (41, 5, 20), (40, 1, 20), (10, 0, 0)])
def test_before_a_step(world: World, step: int, margin: int, expected: int) -> None:
    assert choose_checkpoint(world.context, world.job, which="before_step", step=step, margin=margin)["step"] == expected


@pytest.mark.parametrize(("which", "words"), [("newest", "which must be one of"), ("before_step", "needs the step")])
def test_a_wrong_choice_is_said(world: World, which: str, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        choose_checkpoint(world.context, world.job, which=which)


def test_checkpoints_are_listed_and_judged_one_by_one(world: World) -> None:
    listed = list_checkpoints(world.context, world.job)
    assert [(one["step"], one["healthy"]) for one in listed["checkpoints"]] == [(20, True), (40, True)]
    assert listed["found_by"] == "#NIGHTSHIFT checkpoints= in the script"
    (world.saved / "iter_0000040" / "model.bin").write_bytes(b"parameters of step 99\n")
    judged = verify_checkpoint(world.context, str(world.saved / "iter_0000040"))
    assert judged["problems"] == ["model.bin is damaged: its CRC-32 is not the one in the manifest"]


def test_what_is_no_checkpoint_is_said(world: World, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ToolError, match="is no checkpoint of a known format"):
        verify_checkpoint(world.context, str(tmp_path / "empty"))


def test_a_file_of_no_known_layout_in_the_folder_is_no_proof_that_nothing_was_saved(tmp_path: Path) -> None:
    world = World(tmp_path, SimulatedRun(fails_at=10), SimulatedRun()).passes(30)
    (world.saved / "events.out.tfevents.step_5").write_bytes(b"scalars")
    (world.saved / "loss_step_5.csv").write_text("5,2.1")
    assert choose_checkpoint(world.context, world.job)["restart_from"] == "none"
    (world.saved / "step_5.weights").write_bytes(bytes(900))
    started = world.cluster.job(world.job).started
    assert started is not None
    for age_s, begins in ((5.0, ""), (-3600.0, "none")):
        at = started.timestamp() + age_s
        os.utime(world.saved / "step_5.weights", (at, at))
        chosen = choose_checkpoint(world.context, world.job)
        assert chosen["restart_from"] == begins, chosen["note"]
        assert ("step_5.weights" in chosen["note"]) is (begins == "")


@pytest.fixture
def home_made(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A job of which only its own source says that it takes the newest, on a cluster whose nodes can start its script."""
    way = ResumeWay(ResumeMeans.NEWEST, "glob() in x.py, line 3", home_made=True)
    monkeypatch.setattr(checkpoints, "read_way", lambda job, search: way)
    monkeypatch.setattr(checkpoints, "TRIAL_TRANSPORTS", (world.context.transport.name,))
    return world


def of_trial(world: World, *answers: dict[str, str], fails: bool = False) -> World:
    """Return the same world, in whose incident trial starts were made with these answers."""
    calls = [SimpleNamespace(id=number, tool="trial_start", arguments={"job": world.job}) for number, _ in enumerate(answers)]
    outcomes = [SimpleNamespace(ok=not fails, value=answer) for answer in answers]
    history: Any = SimpleNamespace(calls=lambda incident: calls, outcome=lambda number: outcomes[number], diagnosis=lambda _: None)
    world.context = replace(world.context, incident=1, history=history)
    return world


def test_a_home_made_way_is_tried_before_it_counts(home_made: World) -> None:
    chosen = choose_checkpoint(of_trial(home_made).context, home_made.job, try_first=True)
    assert (chosen["restart_from"], chosen["trial"], chosen["set_aside"]) == ("", "yes", [])
    assert "tried in a sandbox first" in chosen["note"]
    plain = choose_checkpoint(home_made.context, home_made.job)
    assert (plain["restart_from"], plain["trial"]) == (plain["path"], ""), "who does not ask for it gets what was read"


@pytest.mark.parametrize(
    ("answer", "fails", "starts"),
    [({"proven": "yes"}, False, True), ({"refuted": "yes"}, False, False), ({"note": "no GPU"}, False, True), ({}, True, True)],
    ids=["proven", "refuted", "it came to nothing", "it could not be made"],
)
def test_after_the_trial_its_word_counts_else_what_was_read(
    home_made: World, answer: dict[str, str], *, fails: bool, starts: bool
) -> None:
    spec = home_made.context.scheduler.job(home_made.job).spec
    assert spec is not None
    world = of_trial(home_made, {**answer, "submission": spec_digest(spec)}, fails=fails)
    chosen = choose_checkpoint(world.context, world.job, try_first=True)
    assert (bool(chosen["restart_from"]), chosen["trial"]) == (starts, ""), chosen["note"]


@pytest.mark.parametrize(
    ("steps", "removes"),
    [((112, 140, 168), True), ((20, 40, 60), False), ((40,), True), ((), True), ((40, 60, 80), True), ((25, 50), False)],
)
def test_a_run_that_keeps_the_newest_checkpoints_alone_is_known_by_their_steps(steps: tuple[int, ...], *, removes: bool) -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    saved = tuple(Checkpoint(Path(f"/w/out/step_{step}"), step, "torch", 1, at, True, ()) for step in steps)
    assert removes_saves(Inventory(Path("/w/out"), saved, ())) is removes
