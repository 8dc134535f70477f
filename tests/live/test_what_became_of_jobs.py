"""What became of jobs that know nothing of Nightshift: failed behind exit code 0, waiting for another, queued again in vain."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from assistant.engine import Engine
from assistant.engine.ownership import owner_name
from assistant.records import IncidentState, JobSpec, JobState
from assistant.watch.hang import HangLimits
from assistant.watch.view import ViewLimits
from tests.live.conftest import DevCluster, until
from tests.live.test_strangers_checkpoints import worked
from tests.live.test_strangers_runs import NEWEST, PLAIN, trainer

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]
CRASH = 'raise RuntimeError("CUDA error: unspecified launch failure")'


def crashing(*, caught: bool = False) -> str:
    """Return the source of a trainer that dies once of an exception at step 70 of 80, or catches it and goes on."""
    source = trainer(PLAIN, NEWEST).replace("        sys.exit(1)\n", f"        {CRASH}\n")
    source = re.sub(r'^ *print\("RuntimeError.*\n', "", source, flags=re.MULTILINE)
    if caught:
        source = source.replace(CRASH, f"try: {CRASH}\n        except RuntimeError: import traceback; traceback.print_exc()")
    return source


def ended(engine: Engine, cluster: DevCluster, name: str, command: str, source: str) -> tuple[str, Path]:
    """Run a job to its end, and return its id and folder."""
    folder = cluster.shared / name
    folder.mkdir()
    (folder / "train.py").write_text(source)
    script = f"#!/bin/bash\n#SBATCH --nodes=1 --output=slurm-%j.out\ncd {folder}\n{command}\n"
    job = engine.scheduler.submit(JobSpec(name, script, nodes=1, work_dir=folder))
    until(lambda: engine.scheduler.job(job).state.ended, 60)
    assert engine.scheduler.job(job).state is JobState.COMPLETED
    return job, folder


@pytest.mark.parametrize(
    ("name", "command", "how"),
    [
        ("behind-tee", 'python3 -u train.py saves --max_steps 80 2>&1 | tee -a own.log\necho "job ended at $(date)"', "pipefail"),
        ("or-true", "python3 -u train.py saves --max_steps 80 || true", "|| true"),
        ("in-a-trap", "trap 'echo leaving; exit 0' EXIT\npython3 -u train.py saves --max_steps 80", "trap"),
    ],
)
def test_a_training_that_fails_behind_exit_code_0_is_brought_back(
    engine: Engine, devcluster: DevCluster, name: str, command: str, how: str
) -> None:
    job, folder = ended(engine, devcluster, name, command, crashing())
    incident = worked(engine, job)
    assert incident.state is IncidentState.RECOVERED, incident.note
    diagnosis = engine.store.diagnosis(incident.id)
    assert diagnosis is not None
    assert how in diagnosis.summary
    assert (folder / "saves/step_80.pt").exists()
    assert len([one for one in engine.scheduler.jobs() if one.name == name]) == 2


def test_an_exception_that_was_caught_is_no_incident(engine: Engine, devcluster: DevCluster) -> None:
    job, _ = ended(engine, devcluster, "caught", "python3 -u train.py saves --max_steps 80 | tee log", crashing(caught=True))
    for _ in range(3):
        engine.tick(owner=owner_name("test"))
    assert engine.store.incidents(job=job) == []


SERVER = """
import http.server, os, sys, time, threading
print("INFO starting server", flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"ok")
    def log_message(self, *words): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print("INFO serving", flush=True)
for _ in range(600):
    time.sleep(0.5)
    if os.path.exists("break"):
        os.unlink("break")
        print("ERROR EngineCore encountered a fatal error: CUDA error: unspecified launch failure", flush=True)
        os._exit(1)
"""
CLIENT = """
import glob, os, sys, time, urllib.request
os.makedirs("out", exist_ok=True)
step = 0
while step < 4000:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/", timeout=5).read()
    except OSError as error:
        print(f"WARNING Server is not up yet at http://127.0.0.1:{sys.argv[1]}/ ({error}). Retrying in 1 seconds...", flush=True)
        time.sleep(1)
        continue
    step += 1
    time.sleep(0.2)
    print(f"step {step} loss {2 + 1 / step:.4f}", flush=True)
    if step % 10 == 0:
        open(f"out/step_{step}.pt", "wb").write(b"\\x80" + b"%09d" % step + bytes(9000))
"""


def test_a_server_is_brought_back_and_the_trainer_that_waits_for_it_is_left_running(engine: Engine, devcluster: DevCluster) -> None:
    folder = devcluster.shared / "served"
    folder.mkdir()
    (folder / "serve.py").write_text(SERVER)
    (folder / "rollout.py").write_text(CLIENT)
    node = devcluster.nodes[0]
    limits = engine.watcher._limits
    engine.watcher._limits = ViewLimits(HangLimits(silent_s=20, factor=3), limits.spike, limits.pace)
    head = f"#!/bin/bash\n#SBATCH --nodes=1 --nodelist={node} --oversubscribe --ntasks=1 --output=%x-%j.out\ncd {folder}\n"
    server, client = (
        engine.scheduler.submit(JobSpec(name, f"{head}python3 -u {name}.py 8123\n", nodes=1, work_dir=folder))
        for name in ("serve", "rollout")
    )

    def steps() -> list[str]:
        engine.tick(owner=owner_name("test"))
        log = folder / f"rollout-{client}.out"
        return [line for line in log.read_text().splitlines() if line.startswith("step")] if log.exists() else []

    until(lambda: len(steps()) > 30, 60, pause_s=1, state=lambda: devcluster.run("squeue"))
    (folder / "break").touch()
    until(lambda: engine.scheduler.job(server).state.ended, 30)

    def again() -> list[str]:
        engine.tick(owner=owner_name("test"))
        return [one.id for one in engine.scheduler.jobs() if one.name == "serve" and one.state is JobState.RUNNING]

    until(lambda: bool(again()), 120, pause_s=1, state=lambda: [one.note for one in engine.store.incidents()])
    stood = len(steps())
    until(lambda: len(steps()) > stood + 10, 60, pause_s=1)
    assert engine.scheduler.job(client).state is JobState.RUNNING
    assert [one.id for one in engine.scheduler.jobs() if one.name == "rollout"] == [client]
    own = engine.store.incidents(job=server)[-1]
    words = f"{own.note} {getattr(engine.store.diagnosis(own.id), 'advice', '')}"
    assert "step_" not in words
    assert f"{folder}/out" not in words


def test_a_trainer_that_waits_for_a_server_that_stays_away_is_told_of_and_not_ended(engine: Engine, devcluster: DevCluster) -> None:
    folder = devcluster.shared / "waits"
    folder.mkdir()
    (folder / "serve.py").write_text(SERVER)
    (folder / "rollout.py").write_text(CLIENT)
    limits = engine.watcher._limits
    engine.watcher._limits = ViewLimits(HangLimits(silent_s=15, factor=3), limits.spike, limits.pace)
    head = f"#!/bin/bash\n#SBATCH --nodes=1 --output=slurm-%j.out\ncd {folder}\n"
    command = "python3 -u serve.py 8124 > serve.log 2>&1 &\nsleep 2\npython3 -u rollout.py 8124\n"
    job = engine.scheduler.submit(JobSpec("rollout", head + command, nodes=1, work_dir=folder))
    log = folder / f"slurm-{job}.out"

    def told() -> bool:
        engine.tick(owner=owner_name("test"))
        if log.exists() and "step 40 " in log.read_text():
            (folder / "break").touch()
        incidents = engine.store.incidents(job=job)
        return bool(incidents) and incidents[0].state.ended

    until(told, 120, pause_s=1)
    (incident,) = engine.store.incidents(job=job)
    assert incident.state is IncidentState.ESCALATED
    assert "it waits, and says so" in incident.note, incident.note
    assert "http://127.0.0.1:8124/" in incident.note
    assert engine.scheduler.job(job).state is JobState.RUNNING


def test_a_job_that_was_queued_again_and_waits_for_a_dead_node_is_told_of(engine: Engine, devcluster: DevCluster) -> None:
    folder = devcluster.shared / "pinned"
    folder.mkdir()
    nodes = ",".join(devcluster.nodes[2:])
    (folder / "train.py").write_text(trainer(PLAIN, NEWEST).replace("step < 80", "step < 8000").replace("step == 70", "step == 0"))
    script = (
        f"#!/bin/bash\n#SBATCH --nodes=2 --requeue --nodelist={nodes} --output=slurm-%j.out\ncd {folder}\npython3 train.py saves\n"
    )
    job = engine.scheduler.submit(JobSpec("pinned", script, nodes=2, work_dir=folder))
    until(lambda: (folder / "saves/step_40.pt").exists(), 60)
    engine.tick(owner=owner_name("test"))
    devcluster.fault(devcluster.nodes[3], "power")
    try:

        def waits() -> bool:
            engine.tick(owner=owner_name("test"))
            shown = engine.scheduler.job(job)
            return shown.state is JobState.PENDING and (job, shown.attempt) in engine.requeues.stuck.since

        until(waits, 120, pause_s=1, state=lambda: devcluster.run("squeue", "-o", "%i %T %r"))
        incident = engine.store.incidents(job=job)[0]
        assert incident.state is IncidentState.CLOSED
        assert "no step" not in incident.note
        stuck = engine.requeues.stuck
        stuck.since = {key: since - timedelta(minutes=15) for key, since in stuck.since.items()}
        engine.tick(owner=owner_name("test"))
        incident = engine.store.incident(incident.id)
        assert incident.state is IncidentState.ESCALATED, incident.note
        assert f"node {devcluster.nodes[3]} is down" in incident.note
        assert "ReqNodeList=" in incident.note
    finally:
        devcluster.heal(devcluster.nodes[3])
    devcluster.run("scontrol", "update", f"NodeName={devcluster.nodes[3]}", "State=RESUME", check=False)

    def back() -> bool:
        engine.tick(owner=owner_name("test"))
        return engine.store.incident(incident.id).state is IncidentState.CLOSED

    until(back, 120, pause_s=1, state=lambda: devcluster.run("squeue", "-o", "%i %T %r"))
    assert "has begun since" in engine.store.incident(incident.id).note
