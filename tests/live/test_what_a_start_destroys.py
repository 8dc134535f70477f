"""A program that empties its folder at each start and never loads: nothing is started, nothing lost, and people read why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assistant.config import Settings, SshSettings, WatchSettings
from assistant.daemon.notifications import notices
from assistant.engine.ownership import owner_name
from assistant.policy import KindTerms, Mode, load_policy
from assistant.records import IncidentState, JobSpec
from assistant.transports.ssh import SshTransport
from assistant.wiring import build
from tests.live.conftest import DevCluster, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]
PROGRAM = """import configparser, os, shutil, sys, time, zipfile
parser = configparser.ConfigParser()
parser.read("atelier.ini")
toile = parser.get("peinture", "toile")
if os.path.isdir(toile):
    shutil.rmtree(toile)
os.makedirs(toile)
journal = open(toile + "/journal.txt", "w", 1)
print("Atelier ouvert,", toile, flush=True)
for couche in range(1, 200):
    time.sleep(0.2)
    journal.write("couche %d\\n" % couche)
    if couche % 10 == 0:
        with open(toile + "/TOILE_%04d.bin.part" % couche, "wb") as file:
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr("t/data.pkl", b"\\x80\\x02}q\\x00.")
                archive.writestr("t/version", "3\\n")
                archive.writestr("t/data/0", bytes(3000))
        os.rename(toile + "/TOILE_%04d.bin.part" % couche, toile + "/TOILE_%04d.pth" % couche)
    if couche == 45:
        print("RuntimeError: NCCL error: remote process exited or there was a network error, NCCL version 2.19.3", flush=True)
        sys.exit(1)
"""


def test_nothing_is_started_over_what_a_program_removes_and_the_message_names_the_line(
    devcluster: DevCluster, tmp_path: Path
) -> None:
    shipped = load_policy()
    kinds = {kind: KindTerms(takes_nodes=terms.takes_nodes, cooldown_min=0) for kind, terms in shipped.kind.items()}
    policy = replace(shipped, mode=Mode.ACT, kill_switch=(), kind=kinds, min_healthy_share=0.0)
    settings = Settings(state_folder=tmp_path, store=tmp_path / "nightshift.db", watch=WatchSettings(poll_s=2, hang_after_s=30))
    devcluster.settle()
    with SshTransport(SshSettings(config=devcluster.ssh_config)) as transport:
        engine = build(settings, scheduler=devcluster.scheduler(), transport=transport, policy=policy)
        folder, results = devcluster.shared / "atelier", devcluster.shared / "galerie/courante"
        folder.mkdir()
        results.parent.mkdir()
        (folder / "peindre.py").write_text(PROGRAM)
        (folder / "atelier.ini").write_text(f"[peinture]\ntoile = {results}\n")
        script = f"#!/bin/bash\n#SBATCH --nodes=1 --no-requeue --output=slurm-%j.out\ncd {folder}\nsrun python3 -u peindre.py\n"
        job = engine.scheduler.submit(JobSpec("atelier", script, nodes=1, work_dir=folder))
        store = engine.store

        def done() -> bool:
            engine.tick(owner=owner_name("test"))
            return any(incident.state is IncidentState.ESCALATED for incident in store.incidents(job=job))

        until(done, 90, pause_s=1.0, state=lambda: [f"{one.state}: {one.note}" for one in store.incidents(job=job)])
        (message,) = [notice.text for notice in notices(store.audit(), store) if "needs a person" in notice.title]
        print(message)
        assert "peindre.py saves TOILE_0040.pth and has no way to go on from it" in message
        assert f"{folder}/peindre.py:6 removes {results} when it starts" in message
        assert f"{results}/TOILE_0040.pth" in message
        assert "#NIGHTSHIFT" not in message
        assert sorted(path.name for path in results.iterdir()) == [
            *(f"TOILE_{step:04}.pth" for step in (10, 20, 30, 40)),
            "journal.txt",
        ]
        assert [one.id for one in engine.scheduler.jobs() if one.name == "atelier" and not one.state.ended] == []
    devcluster.settle()
