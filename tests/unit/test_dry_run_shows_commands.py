"""A dry run shows each command as it would be run and how the script resumes, and does none of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.engine.dry_runs import Plan, plan
from assistant.engine.intake import requested_incident
from assistant.records import JobSpec
from assistant.schedulers.simulated_run import SimulatedRun
from tests.scenarios.scene import ECC, XID, Scene

MEGATRON = "python pretrain_gpt.py --save ckpt --load ckpt --num-layers 2\n"
NEWEST = "#NIGHTSHIFT checkpoints=ckpt resumes=newest\npython train.py\n"
FORGOT = "python pretrain_gpt.py --save ckpt --num-layers 2\n"
UNSAVED = 'echo started\nprintf "%s\\n" step\n'


def dry_run(folder: Path, script: str, *, steps: tuple[int, ...], damaged: int = 0, tracker: str = "") -> Plan:
    scene = Scene(folder, run=SimulatedRun(fails_at=50, lines=ECC, kernel={"node02": XID}, only_on="node02"))
    scene.cluster.plan("llm", SimulatedRun(fails_at=50, lines=ECC, kernel={"node02": XID}, only_on="node02"))
    job = scene.cluster.submit(JobSpec("llm", script, nodes=2, work_dir=folder, log="job-%j.log"))
    scene.clock.sleep(3600)
    assert scene.cluster.job(job).state.ended
    for step in steps:
        part = folder / "ckpt" / f"iter_{step:07}" / "mp_rank_00" / "model_optim_rng.pt"
        part.parent.mkdir(parents=True)
        part.write_bytes(b"" if step == damaged else b"\x80" + bytes(9000))
    if tracker:
        (folder / "ckpt" / "latest_checkpointed_iteration.txt").write_text(tracker)
    before = sorted(str(path) for path in folder.rglob("*") if "ckpt" in path.parts)
    planned = plan(scene.engine, requested_incident(scene.engine, job, by="cli:ada", repeat=False).id, by="cli:ada")
    assert sorted(str(path) for path in folder.rglob("*") if "ckpt" in path.parts) == before
    assert [one.id for one in scene.cluster.jobs()] == [job]
    scene.engine.store.close()
    return planned


CASES = [
    ("moved aside", NEWEST, {"steps": (20, 40), "damaged": 40}, {"set_aside_checkpoints": "mv -nT ", "resubmit_job": "sbatch "}),
    (
        "tracker set",
        MEGATRON,
        {"steps": (20, 40), "damaged": 40, "tracker": "40"},
        {"set_aside_checkpoints": "mv -nT ", "set_tracker": "printf %s 20 > ", "resubmit_job": "sbatch "},
    ),
    ("loaded as it is", MEGATRON, {"steps": (20, 40), "tracker": "40"}, {"resubmit_job": "sbatch "}),
    ("would start over", FORGOT, {"steps": (20, 40), "tracker": "40"}, {}),
    ("never saved", UNSAVED, {"steps": ()}, {"resubmit_job": "sbatch "}),
]


@pytest.mark.parametrize(("script", "world", "wanted"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_dry_run_shows_each_command_and_does_none(
    script: str, world: dict[str, object], wanted: dict[str, str], tmp_path: Path
) -> None:
    planned = dry_run(tmp_path, script, **world)  # type: ignore[arg-type]
    changes = {step.tool: step.preview for step in planned.steps if step.change}
    for tool in ("set_aside_checkpoints", "set_tracker", "resubmit_job"):
        assert (tool in changes) is (tool in wanted), (changes, planned.note)
    for tool, words in wanted.items():
        assert words in changes[tool], changes[tool]
    assert planned.resumes.startswith(("this script ", "whether this script "))
    if not wanted:
        assert "would start at 0" in planned.resumes + planned.note
