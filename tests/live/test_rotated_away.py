"""A stranger's job diverges, trains on and keeps its twelve newest saves: the last healthy one outlives them on real Slurm."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from assistant.config import SshSettings
from assistant.engine import Engine
from assistant.policy import KindTerms, Mode, load_policy
from assistant.records import CallStatus, JobSpec
from assistant.transports.ssh import SshTransport
from assistant.wiring import build
from tests.live.conftest import DevCluster, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(280)]

OWNER = "daemon"
"""A user that this machine and the nodes have alike."""
TRAINER = """
import os, re, shutil, sys, time
step, folder = 0, "checkpoints"
os.makedirs(folder, exist_ok=True)
if len(sys.argv) > 2 and sys.argv[1] == "--resume":
    step = int(open(f"{sys.argv[2]}/model.bin", "rb").read(10)[1:])
    print(f"resumed from {sys.argv[2]} at step {step}", flush=True)
while step < 4000:
    step += 1
    time.sleep(0.3)
    loss = float("nan") if step > 110 else 2 + 1 / step
    print(f"step {step} loss {loss:.4f}", flush=True)
    if step % 20 == 0:
        new = f"{folder}/.new"
        os.makedirs(new)
        with open(f"{new}/model.bin", "wb") as file:
            file.write(b"\\x80" + b"%09d" % step + bytes(9000))
        os.rename(new, f"{folder}/step_{step}")
        print(f"saved {folder}/step_{step}", flush=True)
        for old in sorted(os.listdir(folder), key=lambda name: int(name.split("_")[1]))[:-12]:
            shutil.rmtree(f"{folder}/{old}")
"""


@pytest.fixture
def engine(devcluster: DevCluster, tmp_path: Path) -> Iterator[Engine]:
    """An engine that may do everything but end a job, about which it asks."""
    shipped = load_policy()
    kinds = {kind: KindTerms(takes_nodes=terms.takes_nodes, cooldown_min=0) for kind, terms in shipped.kind.items()}
    kinds["cancel"] = replace(kinds["cancel"], mode=Mode.PROPOSE)
    policy = replace(shipped, mode=Mode.ACT, kill_switch=(), kind=kinds, min_healthy_share=0.0)
    devcluster.settle()
    with SshTransport(SshSettings(config=devcluster.ssh_config)) as transport:
        yield build(devcluster.settings(tmp_path), scheduler=devcluster.scheduler(lowest_uid=1), transport=transport, policy=policy)
    devcluster.settle()


def test_the_last_healthy_checkpoint_outlives_the_rotation_of_its_job(engine: Engine, devcluster: DevCluster) -> None:
    folder = devcluster.shared / "rotates"
    folder.mkdir()
    (folder / "train.py").write_text(TRAINER)
    uid = pwd.getpwnam(OWNER).pw_uid
    for path in (folder, folder / "train.py"):
        os.chown(path, uid, pwd.getpwnam(OWNER).pw_gid)
    script = "#!/bin/bash\n#SBATCH --output=%x-%j.log\nexec python3 -u train.py --resume ${RESUME:-}\n"
    engine.scheduler.submit(JobSpec("rotates", script, work_dir=folder, user=OWNER))
    saved = folder / "checkpoints"
    until(lambda: (saved / "step_120").is_dir(), 60, state=lambda: list(folder.iterdir()))
    second = folder / "nightshift-secured/checkpoints/of-step_100/step_100/model.bin"

    def secured() -> bool:
        engine.tick(owner="watch")
        return second.is_file()

    until(secured, 30, pause_s=1.0, state=lambda: (engine.store.incidents(), engine.store.calls()))
    until(lambda: not (saved / "step_100").exists(), 90)
    assert second.read_bytes()[1:10] == b"000000100", "the program has removed its own name, and the data are there"
    assert {path.lstat().st_uid for path in (folder / "nightshift-secured").rglob("*")} == {uid}
    assert all(int(path.name.split("_")[1]) > 110 for path in saved.glob("step_*")), "each that it kept is worthless"
    [call] = [call for call in engine.store.calls() if call.tool == "secure_checkpoint"]
    assert call.status is CallStatus.DONE
    back = engine.gate.undo(call.id, "cli:root")
    assert "is the only name of its data now" in back.error
    assert second.is_file()
