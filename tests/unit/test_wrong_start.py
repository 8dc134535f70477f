"""What proves that a restart is at a wrong start, what does not, and what is said of the checkpoints afterwards."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assistant.engine.outcomes.restart_verdict import restarted_job
from assistant.errors import ToolError
from assistant.logs.lines import Line
from assistant.logs.metrics import MetricReader
from assistant.ports import JumpingClock
from assistant.records import (
    Call,
    CallStatus,
    Checkpoint,
    IncidentState,
    Job,
    JobSpec,
    JobState,
    MetricPoint,
    Outcome,
    hold_comment,
    run_of,
)
from assistant.recover.checkpoints.own_folders import new_checkpoints
from assistant.recover.loaded import loaded_checkpoint
from assistant.recover.playbook import Ended
from assistant.recover.wrong_start import Saves, proof_of_lost_numbers, proof_of_wrong_start, saves_since, unwritten_words
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tooling import Context
from assistant.tools.jobs import is_over, stop_restart, stopping, was_stopped
from tests.no_history import MadeCalls

NOW = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)
STEP_40 = Checkpoint(Path("/ckpt/step_40"), 40, "", 1, NOW, healthy=True, problems=())
BASE_AT_0 = (
    " loading checkpoint from /base/llm at iteration 5000\n"
    "  successfully loaded checkpoint from /base/llm [ t 0, p 0 ] at iteration 0"
)
SCRATCH = "could not find the metadata file /ckpt/latest, will start from random"


def points(text: str) -> list[MetricPoint]:
    reader = MetricReader()
    for number, line in enumerate(text.splitlines(), 1):
        reader.take(Line(number, line))
    return reader.points


def counted(first: int, last: int, *, every: int = 1, base: float = 3.0) -> str:
    return "\n".join(f"step {step} loss {base - step / 100:.4f}" for step in range(first, last + 1, every))


BEFORE = counted(1, 50)


def proof(text: str, *, before: str = BEFORE, chosen: Checkpoint | None = STEP_40, **more: Any) -> str:
    lines = [Line(number, line) for number, line in enumerate(text.splitlines(), 1)]
    return proof_of_wrong_start(chosen, loaded_checkpoint(lines), points(text), points(before), **more)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{SCRATCH}\n{counted(1, 2)}", "it began at the start"),
        (f"{SCRATCH}\n{counted(1, 1)}", "it began at the start"),
        (f"{SCRATCH}\n{counted(10, 20, every=10)}", "its own steps are 10, 20"),
        (counted(1, 2), "by the counter that had come to step 50"),
        (f"resuming from /ckpt/step_20\n{counted(21, 22)}", "it loaded step 20"),
        (f"loading checkpoint from /ckpt/step_20/model.pt\n{counted(30, 40, every=10)}", "it loaded step 20"),
        (f"{BASE_AT_0}\n{counted(1, 1)}", "it loaded step 0: 'successfully loaded checkpoint from /base"),
        (f"{BASE_AT_0}\n{counted(5, 10, every=5)}", "its own steps are 5, 10"),
        (f"{BASE_AT_0}\n{counted(0, 10, every=5)}", "it loaded step 0"),
        (f"Loading checkpoint from /base/7b\n{counted(1, 2)}", "lies in another folder: 'Loading checkpoint from /base/7b'"),
        (f"resuming from /ckpt-other/step_20\n{counted(21, 22)}", "lies in another folder"),
        (f"Loading checkpoint from /base/7b\n{SCRATCH}\n{counted(1, 2)}", "it began at the start"),
    ],
)
def test_a_wrong_start_is_proven_by_its_own_words_and_its_own_counter(text: str, said: str) -> None:
    assert said in proof(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (SCRATCH, "it has logged no step: what is loaded next is not known"),
        (f"{SCRATCH}\nstep 0 loss 2.6", "step 0 may be an evaluation"),
        (f"{SCRATCH}\nstep 0 loss 2.6\n{counted(41, 42)}", "an evaluation as step 0, then the steps behind the checkpoint"),
        (f"{SCRATCH}\n{counted(41, 42)}", "it says so and goes on behind the checkpoint"),
        (f"Building the index from scratch\n{counted(41, 42)}", "of an index"),
        (f"resuming from /ckpt/step_40\n{counted(41, 42)}", "the chosen one"),
        (f"resuming from /ckpt/step_40\n{counted(1, 2)}", "the chosen one, and a counter that begins anew: a person judges"),
        (f"resuming from /ckpt/step_20\nresuming from /ckpt/step_40\n{counted(41, 42)}", "another one first, the chosen one then"),
        (f"resuming from /ckpt/step_20\n{counted(41, 42)}", "an older one for a part, and the steps behind the chosen one"),
        ("resuming from /ckpt/step_20\nstep 20 loss 2.8", "its step may be an evaluation of a part"),
        (f"loading weights from /base/step_20\n{counted(41, 42)}", "a base model of its own folder"),
        (f"resuming from /ckpt/step_45\n{counted(46, 47)}", "a later one that nobody refused"),
        (BASE_AT_0, "it has logged no step"),
        (f"{BASE_AT_0}\nstep 0 loss 2.6", "step 0 may be an evaluation"),
        (f"{BASE_AT_0}\nstep 0 loss 2.6\n{counted(41, 42)}", "an evaluation as step 0, then the steps behind the checkpoint"),
        (f"{BASE_AT_0}\n{counted(1, 3, base=2.6)}", "a counter that began anew with the loss at the checkpoint"),
        (f"{BASE_AT_0}\nresuming from /ckpt/step_40\n{counted(1, 2)}", "the chosen one behind the base model"),
        (f"{BASE_AT_0}\nloading optimizer state from /ckpt/last.pt\n{counted(1, 2)}", "something of the run's own folder, too"),
        (f"Loading checkpoint from /base/7b\n{counted(1, 1)}", "one step alone"),
        (f"Loading checkpoint from /base/7b\n{counted(1, 3, base=2.6)}", "a counter that began anew, with its loss"),
        (f"resuming from /local/copy/step_40\n{counted(1, 2)}", "the chosen one by another path"),
        (f"loading checkpoint from /ckpt\n{counted(1, 2)}", "the folder of the checkpoint, and which one is not said"),
        (f"{BASE_AT_0}\n  0%|  | 1/360 [00:01<01:00, 5.0it/s]\n  0%|  | 2/360 [00:02<01:00, 5.0it/s]", "a bar over what is left"),
        (counted(41, 42), "silence, and the steps behind the checkpoint"),
        (counted(41, 42, base=9.0), "a loss that jumped is a doubt, no proof"),
        (counted(1, 1), "one step alone, without a word"),
        ("  0%|  | 1/360 [00:01<01:00, 5.0it/s]\n  0%|  | 2/360 [00:02<01:00, 5.0it/s]", "a bar over what is left to do"),
        (counted(1, 3, base=2.6), "a counter that began anew with the loss at the checkpoint"),
        (counted(1, 39, base=2.6), "the same, a while later"),
        (f"Building the index from scratch\n{counted(0, 0)}\n{counted(41, 42)}", "of an index, and an evaluation as step 0"),
    ],
)
def test_a_doubt_is_no_proof(text: str, why: str) -> None:
    assert proof(text) == "", why


def without(first: int, last: int) -> str:
    return "\n".join(f"step {step} loss nan" for step in range(first, last + 1))


@pytest.mark.parametrize(
    ("text", "at_once"),
    [
        (without(41, 45), True),
        (f"{counted(41, 44)}\n{without(45, 49)}", True),
        (f"{counted(41, 46)}\n{without(47, 51)}", False),
        (f"{counted(41, 46)}\n{without(47, 66)}", True),
    ],
)
def test_a_loss_that_stays_no_number_is_proven_by_five_steps(text: str, at_once: bool) -> None:
    lost = proof_of_lost_numbers(points(text), points(BEFORE))
    assert lost is not None
    assert lost.at_once is at_once
    assert "the attempt before had 2.5 at step 50" in lost.sentence


@pytest.mark.parametrize(
    ("text", "before"),
    [
        (without(41, 44), BEFORE),
        (f"{without(41, 45)}\n{counted(46, 46)}", BEFORE),
        (without(41, 50), ""),
        (without(41, 50), without(1, 50)),
        ("\n".join(["step 41 loss nan"] * 9), BEFORE),  # one step of many ranks
        (counted(41, 50), BEFORE),
    ],
)
def test_no_numbers_are_proven_to_be_lost_where_they_may_come_back_or_never_were(text: str, before: str) -> None:
    assert proof_of_lost_numbers(points(text), points(before)) is None


def test_a_counter_that_is_another_than_that_of_the_checkpoints_proves_nothing() -> None:
    per_epoch = counted(1, 30)
    assert proof(counted(1, 2), before=per_epoch) == ""
    assert proof(f"{SCRATCH}\n{counted(1, 2)}", before=per_epoch) == ""
    assert proof(f"{BASE_AT_0}\n{counted(1, 2)}", before=per_epoch) == ""
    assert proof(f"Loading checkpoint from /base/7b\n{counted(1, 2)}", before="") == ""
    assert proof(counted(1, 2), before="") == ""
    assert proof(f"{SCRATCH}\n{counted(1, 2)}", before="", reached=30) == ""
    assert proof(f"{SCRATCH}\n{counted(1, 2)}", before="") != "", "its own words, and nothing speaks against them"
    epochs = replace(STEP_40, path=Path("/ckpt/epoch_40.pt"))
    assert proof(f"{SCRATCH}\n{counted(1, 2)}", chosen=epochs) == ""


def test_a_later_checkpoint_is_wrong_only_where_it_was_refused() -> None:
    text = f"resuming from /ckpt/step_45\n{counted(46, 47)}"
    assert "it loaded step 45" in proof(text, refused=[45])
    assert proof(text, refused=[44]) == ""


def test_a_start_from_the_beginning_that_was_meant_is_never_wrong() -> None:
    assert proof(f"{SCRATCH}\n{counted(1, 9)}", chosen=None) == ""


def saved(step: int, minutes: float) -> Checkpoint:
    at = NOW + timedelta(minutes=minutes)
    return replace(STEP_40, path=Path(f"/ckpt/step_{step}"), step=step, saved_at=at)


OLD = {f"step_{step}": (NOW + timedelta(minutes=-step)).isoformat() for step in (10, 20, 40)}


@pytest.mark.parametrize(
    ("before", "now", "saves"),
    [
        (OLD, [saved(10, -10), saved(20, -20), saved(40, -40)], Saves((), (), ())),
        (OLD, [saved(10, 5), saved(20, -20), saved(40, -40)], Saves((), ("step_10",), ())),
        (OLD, [saved(5, 3), saved(10, 5), saved(40, -40)], Saves(("step_5",), ("step_10",), ("step_20",))),
        (None, [saved(10, 5), saved(20, -20)], Saves(("step_10",), (), (), known=False)),
    ],
)
def test_what_was_saved_over_is_told_from_what_lay_there_before(
    before: dict[str, str] | None, now: list[Checkpoint], saves: Saves
) -> None:
    assert saves_since(before, now, NOW) == saves
    assert ("OVERWRITTEN: step_10" in saves.sentence) == bool(saves.overwritten)
    assert ("is not known" in saves.sentence) == (before is None)


TAG = "nightshift:teststore:3:17"


class World:
    """A running job that a call of this store submitted."""

    def __init__(self, folder: Path, *, comment: str = TAG, tool: str = "resubmit_job", incident: int = 3) -> None:
        self.clock = JumpingClock(NOW)
        self.cluster = SimulatedCluster(self.clock, folder, nodes=2)
        self.cluster.plan("llm", SimulatedRun(steps=100_000))
        self.job = self.cluster.submit(JobSpec("llm", "", work_dir=folder, comment=comment, user="ada"))
        self.clock.sleep(30)
        call = Call(17, 3, tool, {"job": "0"}, "", "playbook:p", NOW, CallStatus.DONE)
        outcome = Outcome(17, True, {"job": self.job}, "", NOW)
        history = MadeCalls(call, ends=[outcome], runs={17: [run_of(self.cluster.job(self.job))]})
        self.context = Context(self.cluster, self.cluster, self.clock, random.Random(1), history, incident=incident, tag=TAG)


def test_only_the_very_attempt_that_this_store_started_is_stopped(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert is_over(world.context, world.job, 0) is None
    assert stopping(world.context, world.job, 0).commands == (f"scancel {world.job}",)
    assert was_stopped(world.context, TAG, world.job, 0) is None
    assert stop_restart(world.context, world.job, 0)["stopped"]
    assert world.cluster.job(world.job).state is JobState.CANCELLED
    assert was_stopped(world.context, TAG, world.job, 0) is not None
    assert stop_restart(world.context, world.job, 0)["stopped"] is False


@pytest.mark.parametrize(
    ("comment", "tool", "incident", "attempt"),
    [
        ("", "resubmit_job", 3, 0),  # of somebody else
        ("nightshift:otherstore:3:17", "resubmit_job", 3, 0),
        ("nightshift:teststore:3:18", "resubmit_job", 3, 0),
        (TAG, "cordon_node", 3, 0),
        (TAG, "resubmit_job", 4, 0),  # the restart of another incident
        (TAG, "resubmit_job", 3, 1),  # another attempt than the one that was judged
        (TAG, "requeue_ended_job", 3, 0),  # without the mark of the attempt that the call queued
        (hold_comment("", TAG, 1), "requeue_ended_job", 3, 0),
    ],
)
def test_any_other_job_is_left_alone(tmp_path: Path, comment: str, tool: str, incident: int, attempt: int) -> None:
    world = World(tmp_path, comment=comment, tool=tool, incident=incident)
    for call in (is_over, stop_restart):
        with pytest.raises(ToolError, match="left alone"):
            call(world.context, world.job, attempt)
    assert world.cluster.job(world.job).state is JobState.RUNNING


def test_an_attempt_that_its_owner_queued_again_is_left_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.cluster.set_cancelled(world.job)
    world.cluster.set_requeued(world.job)
    world.clock.sleep(30)
    with pytest.raises(ToolError, match="queued again since"):
        stop_restart(world.context, world.job, 0)
    assert was_stopped(world.context, TAG, world.job, 0) == {
        "job": world.job, "attempt": 0, "state_before": "unknown", "stopped": False,
    }  # fmt: skip


def past(wanted: str, returned: object) -> Any:
    """Return an engine whose incident 3 chose step 40 and then started a job again."""
    choice = Call(1, 3, "choose_checkpoint", {"job": "7"}, "", "playbook:p", NOW, CallStatus.DONE)
    restart = Call(2, 3, "requeue_ended_job", {"job": "7", "checkpoint": wanted}, "", "playbook:p", NOW, CallStatus.DONE)
    values = {1: {"path": "/ckpt/model-a.pt", "step": 40}, 2: returned}
    outcomes = {call: Outcome(call, True, value, "", NOW) for call, value in values.items()}
    return SimpleNamespace(store=SimpleNamespace(calls=lambda *_, **__: [choice, restart], outcome=outcomes.get))


@pytest.mark.parametrize(
    ("wanted", "returned", "step", "checkpoint"),
    [
        ("/ckpt/model-a.pt", {"checkpoint": "/ckpt/model-a.pt", "step": 40}, 40, "/ckpt/model-a.pt"),
        ("/ckpt/model-a.pt", {"checkpoint": None, "step": 0}, 40, "/ckpt/model-a.pt"),  # the scheduler forgot its variables
        ("/ckpt/model-a.pt", {"checkpoint": "/ckpt/model-b.pt", "step": 60}, 40, "/ckpt/model-a.pt"),
        ("/ckpt/step_20", {"checkpoint": "", "step": 0}, 20, "/ckpt/step_20"),
        ("/ckpt/model-z.pt", {"checkpoint": "", "step": 0}, 0, None),  # of unknown step: nothing is compared
        ("none", {"checkpoint": "", "step": 0}, 0, ""),
        ("last_healthy", {"checkpoint": "/ckpt/step_40", "step": 40}, 40, "/ckpt/step_40"),
        ("last_healthy", {"checkpoint": None, "step": 0}, 0, None),
        ("", {"checkpoint": None, "step": 0}, 0, None),
    ],
)
def test_what_a_restart_was_to_go_on_from_is_what_its_call_was_given(
    wanted: str, returned: dict[str, object], step: int, checkpoint: str | None
) -> None:
    incident: Any = SimpleNamespace(id=3)
    ended = Ended(IncidentState.VERIFYING, "", {})
    restarted = restarted_job(past(wanted, {"job": "7", **returned}), incident, ended)
    assert restarted is not None
    assert (restarted.step, restarted.checkpoint) == (step, checkpoint)


@pytest.mark.parametrize(
    ("seconds", "present", "nothing"),
    [
        ({"a/step_20": -50, "b/step_40": -51}, {}, True),  # two runs were written right before it began
        ({"a/step_20": -50, "b/step_40": 8}, {}, False),
        ({"a/step_20": 30}, {"step_20": 30}, True),  # the clock of the file server is ahead: it was there before
        ({"a/step_20": 30, "b/step_40": 31}, {"step_20": 30}, False),
        ({}, {}, True),
    ],
)
def test_what_was_there_before_a_wrong_start_began_is_not_what_it_may_have_saved(
    seconds: dict[str, int], present: dict[str, int], nothing: bool, tmp_path: Path
) -> None:
    for name, after in seconds.items():
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"x" * 3000)
        for path in (folder / "model.safetensors", folder):
            os.utime(path, (NOW.timestamp() + after,) * 2)
    job = Job("4", "a", "", JobState.CANCELLED, "", (), None, tmp_path, NOW, NOW, NOW + timedelta(seconds=9), 1, None)
    before = {name: (NOW + timedelta(seconds=after)).isoformat() for name, after in present.items()}
    words = unwritten_words(before, new_checkpoints(tmp_path, NOW), job)
    assert bool(words) is nothing
    if nothing:
        assert words.startswith(f"no checkpoint below {tmp_path} was written after it began at 03:00:00")
