"""An attempt that was queued again under the same id and fails at once has its own cause: what ended the one before is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.records import EventKind
from assistant.schedulers.simulated_run import SimulatedRun
from tests.scenarios.scene import XID, Scene

TORN = (
    "Traceback (most recent call last):",
    '  File "/opt/train/pretrain.py", line 88, in load',
    "    raise ValueError(f'The following zero checkpoints paths are missing: {missing}')",
    "ValueError: The following zero checkpoints paths are missing: "
    "['checkpoints/global_step80/bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt']",
)
SHAPES = (
    "Traceback (most recent call last):",
    '  File "/opt/train/train.py", line 31, in <module>',
    "    model.load_state_dict(state)",
    "RuntimeError: Error(s) in loading state_dict for Encoder: size mismatch for embed.out.0.weight: copying a param with shape "
    "torch.Size([256]) from checkpoint, the shape in current model is torch.Size([512]).",
)


def failed_again(folder: Path, lines: tuple[str, ...], *, kernel: bool) -> Scene:
    """Let a node fail under a job, Slurm queue it again, and the new attempt fail at its start by its own lines."""
    scene = Scene(folder, run=SimulatedRun(steps=400))
    again = SimulatedRun(steps=400, fails_at=0, lines=lines)
    scene.cluster.plan("llm", SimulatedRun(steps=400, checkpoints=folder / "checkpoints"), again)
    job = scene.cluster.submit(scene.spec)
    scene.watch(100)
    log = scene.cluster.job(job).log
    assert log is not None
    scene.cluster.set_down("node02")
    log.write_text("")  # as Slurm does when an attempt begins
    at = scene.clock.now()
    if kernel:
        scene.cluster.kernel["node02"] = [f"{at:%Y-%m-%dT%H:%M:%S},000000+00:00 {XID[0]}"]
    scene.cluster.controller += [
        f"[{at:%Y-%m-%dT%H:%M:%S}.111] requeue job JobId={job} due to failure of node node02",
        f"[{at:%Y-%m-%dT%H:%M:%S}.112] Requeuing JobId={job}",
    ]
    scene.clock.sleep(5)
    scene.cluster.set_requeued(job)
    for _ in range(20):
        scene.clock.sleep(10)
        scene.engine.tick(owner="watch")
    return scene


@pytest.mark.parametrize("kernel", [False, True], ids=["", "kernel"])
@pytest.mark.parametrize("lines", [TORN, SHAPES], ids=["torn", "shapes"])
def test_its_cause_is_looked_for_in_its_own_lines(tmp_path: Path, lines: tuple[str, ...], *, kernel: bool) -> None:
    scene = failed_again(tmp_path, lines, kernel=kernel)
    incident = next(one for one in scene.engine.store.incidents() if one.attempt == 1 and one.kind is EventKind.JOB_ENDED)
    found = scene.engine.store.diagnosis(incident.id)
    assert found is not None
    assert found.reason not in ("node_failure", "ecc_error"), found.summary
    assert found.faulty_nodes == ()
    assert any(lines[-1][:40] in cited.text for cited in found.root_cause), found.root_cause
    for call in scene.engine.store.calls(incident.id):
        assert not call.arguments.get("exclude"), call
        assert call.tool not in ("cordon_node", "two_round_test")


def test_the_attempt_that_the_node_ended_keeps_its_cause_although_the_next_one_runs(tmp_path: Path) -> None:
    scene = failed_again(tmp_path, TORN, kernel=False)
    first = next(one for one in scene.engine.store.incidents() if one.attempt == 0)
    found = scene.engine.store.diagnosis(first.id)
    assert found is None or found.reason == "node_failure"
