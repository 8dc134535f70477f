"""What only the living job shows: logs and folders under computed names, who cancelled it, what a requeue by Slurm cost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assistant.engine import Engine
from assistant.engine.ownership import owner_name
from assistant.records import Incident, IncidentState, JobSpec, JobState
from assistant.recover.joblog import log_lines, logs_of
from assistant.schedulers.slurm_jobs import killer_in
from assistant.tooling import Context, find_tool
from tests.live import strangers
from tests.live.conftest import TORCH, DevCluster, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(280)]
PYTHON = f"{TORCH}/bin/python3 -u"
ENDED = (IncidentState.RECOVERED, IncidentState.ESCALATED, IncidentState.CLOSED)


def test_a_job_with_computed_log_and_folder_is_diagnosed_and_resumed(engine: Engine, devcluster: DevCluster) -> None:
    folder, elsewhere = devcluster.shared / "computed", devcluster.shared / "elsewhere"
    folder.mkdir()
    (folder / "train.py").write_text(strangers.COMPUTED.replace("ELSEWHERE", str(elsewhere)))
    script = f"#!/bin/bash\n#SBATCH --nodes=1 --output=/dev/null\nset -e\ncd {folder}\nsrun {PYTHON} train.py\n"
    job = engine.scheduler.submit(JobSpec("computed", script, nodes=1, work_dir=folder))
    incidents: list[Incident] = []

    def looked() -> bool:
        engine.tick(owner=owner_name("test"))
        incidents[:] = engine.store.incidents(job=job)
        return engine.scheduler.job(job).state.ended and bool(incidents) and incidents[0].state is not IncidentState.OPEN

    until(looked, 120, pause_s=0.5)
    failed = engine.scheduler.job(job)
    assert failed.processes is not None
    (log,) = logs_of(failed).readable
    assert log.path.parent.parent == elsewhere
    assert log.how.startswith("open file of process ")
    context = Context(engine.scheduler, None, engine.clock, None, engine.store)  # type: ignore[arg-type]
    choice = find_tool("choose_checkpoint").run(context, job)
    assert (choice["step"], Path(choice["path"]).parents[2]) == (60, elsewhere)
    diagnosis = engine.store.diagnosis(incidents[0].id)
    assert diagnosis is not None
    assert diagnosis.reason == "nccl_timeout_error", diagnosis.summary

    def ended() -> bool:
        engine.tick(owner=owner_name("test"))
        incidents[:] = engine.store.incidents(job=job)
        return incidents[0].state in ENDED

    until(ended, 120, pause_s=0.5)
    assert incidents[0].state is IncidentState.RECOVERED, incidents[0].note
    (again,) = [one for one in engine.scheduler.jobs() if one.name == "computed" and one.id != job]
    lines = [line.text for line in log_lines(engine.scheduler.job(again.id))]
    assert any("resumed from" in line and "step_60" in line for line in lines)


def test_two_jobs_of_one_user_on_one_node_are_told_apart(engine: Engine, devcluster: DevCluster) -> None:
    folder = devcluster.shared / "two"
    folder.mkdir()
    program = "import os, time; f = open(os.environ['WHERE'], 'w'); f.write('x'); f.flush(); time.sleep(90)"
    options = ("--oversubscribe", "--nodelist=gpu001", "--ntasks=1", "--cpus-per-task=1", "--mem=2000")
    scripts = [f'#!/bin/bash\nexport WHERE={folder}/{name}.txt\nsrun {PYTHON} -c "{program}"\n' for name in ("one", "two")]
    jobs = [engine.scheduler.submit(JobSpec("two", script, nodes=1, work_dir=folder, options=options)) for script in scripts]
    until(lambda: all(engine.scheduler.job(job).state is JobState.RUNNING for job in jobs), 30)
    until(lambda: (folder / "one.txt").exists() and (folder / "two.txt").exists(), 30)
    for job, own, other in ((jobs[0], "one.txt", "two.txt"), (jobs[1], "two.txt", "one.txt")):
        told = engine.gate.call("job_processes", {"job": job}, why="test", by="cli:test").value
        names = {Path(file["path"]).name for file in told["files"]}
        assert own in names, told["text"]
        assert other not in names
    devcluster.run("scancel", *jobs)


def test_who_cancelled_a_job_is_named(engine: Engine, devcluster: DevCluster) -> None:
    job = engine.scheduler.submit(JobSpec("cancelled", "#!/bin/bash\nsleep 60\n", nodes=1, work_dir=devcluster.shared))
    until(lambda: engine.scheduler.job(job).state is JobState.RUNNING, 30)
    devcluster.run("scancel", job)
    until(lambda: engine.scheduler.job(job).state is JobState.CANCELLED, 30)
    until(lambda: engine.scheduler.job(job).ended_by == "root", 30)
    by_log = killer_in(devcluster.controller_log.read_text(), engine.scheduler.job(job))
    assert by_log == "root"


def test_a_requeue_after_a_node_failure_is_recorded_with_node_and_cost(engine: Engine, devcluster: DevCluster) -> None:
    folder = devcluster.shared / "requeued"
    folder.mkdir()
    source = strangers.COMPUTED.replace("ELSEWHERE", str(folder / "runs")).replace(", file=log)", ", flush=True)")
    (folder / "train.py").write_text(source)
    (folder / "died").touch()
    script = f"#!/bin/bash\n#SBATCH --requeue --gres=gpu:8 --output={folder}/job.log\ncd {folder}\nsrun -N1 -n1 {PYTHON} train.py\n"
    job = engine.scheduler.submit(JobSpec("requeued", script, nodes=2, work_dir=folder))

    def step() -> int:
        engine.tick(owner=owner_name("test"))
        attempt = engine.scheduler.job(job).attempt
        view = engine.watcher.view(job, attempt)
        return view.last.step + 1000 * attempt if view is not None and view.last is not None else 0

    until(lambda: step() >= 30, 60, pause_s=0.5)
    failing = engine.scheduler.job(job).nodes[1]
    devcluster.fault(failing, "power")
    try:
        until(lambda: step() > 1000, 120, pause_s=0.5)
        notes: list[str] = []

        def told() -> bool:
            step()
            notes[:] = [one.note for one in engine.store.incidents(job=job) if one.attempt == 0]
            return bool(notes) and "lost:" in notes[0]

        until(told, 90, pause_s=0.5)
        assert f"after the failure of node {failing}" in notes[0]
        assert re.search(r"its last step was \d+; lost: \d+ steps, \d\.\d min, \d\.\d GPU hours$", notes[0]), notes
    finally:
        devcluster.run("scancel", job)
        devcluster.heal(failing)
