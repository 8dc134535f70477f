"""What one node alone lacks, on real Slurm: a file system, an environment, a port; jobs unknown to Nightshift go on elsewhere."""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from assistant.config import SlurmSettings, WatchSettings
from assistant.engine import Engine
from assistant.engine.outages import OutageLimits
from assistant.engine.ownership import owner_name
from assistant.policy import Mode, load_policy
from assistant.ports import SystemClock
from assistant.records import EventKind, IncidentState, JobState
from assistant.recover import verify
from assistant.wiring import build
from tests.live.conftest import DevCluster, until
from tests.live.test_strangers_submission import Owner, ended, over, restarted, watched

pytestmark = pytest.mark.live
ADA = "games"
"""A user that this machine and the nodes have alike, and who may not write where programs are installed."""
READS = """import os, sys, time, traceback
from pathlib import Path
rank = int(os.environ["SLURM_PROCID"])
for step in range(1, 121):
    data = open("/lustre/pile/shard-%02d.bin" % (step % 4), "rb").read()
    if rank == 0:
        print(f"step {step} loss {3.0 - step / 1000:.4f}", flush=True)
    time.sleep(0.1)
print("done", flush=True)
"""
HOOKS = (
    "# as srun leaves it\n",
    """# all of it
def hook(*raised):
    traceback.print_exception(*raised)
    sys.stderr.flush()
    time.sleep(1)
sys.excepthook = hook
""",
    """# cut behind the frame
def hook(kind, error, trace):
    sys.stderr.write("Traceback (most recent call last):\\n" + traceback.format_tb(trace)[0].split("\\n")[0] + "\\n")
    sys.stderr.flush()
    time.sleep(1)
sys.excepthook = hook
""",
    """# none of it
sys.excepthook = lambda *raised: None
""",
)
"""What srun leaves of an exception is chance: the last of these bring each end about."""
EVALUATES = """set -e
. /opt/lmeval/env/bin/activate   # on the disk of each node
python3 -u x.py --output result-$SLURM_ARRAY_TASK_ID.json
"""
SCORES = """import sys, time
for batch in range(1, 31):
    print(f"step {batch} loss {3.0 - batch / 100:.3f}", flush=True)
    time.sleep(0.2)
open(sys.argv[2], "w").write("{}")
print("done")
"""
MODULES = """module() {
  [ "$1" = load ] || return 0
  case "$2" in
    augsuite/2.3) export AUGSUITE_HOME=/opt/augsuite/2.3; PATH=$AUGSUITE_HOME/bin:$PATH;;
  esac
  echo "Loading $2"
}
"""
LISTENS = """import socket, sys, time
try:
    listener = socket.create_server(("0.0.0.0", 29617))
except OSError:
    print("torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. The server "
          "socket has failed to bind to 0.0.0.0:29617 (errno: 98 - Address already in use).", flush=True)
    sys.exit(1)
for step in range(1, int(sys.argv[1])):
    print(f"step {step} loss {3.0 - step / 1000:.4f}", flush=True)
    time.sleep(0.1)
print("done")
"""


class User(Owner):
    """A user without any rights beside those to a folder of their own."""

    def __init__(self, cluster: DevCluster, folder: Path) -> None:
        super().__init__(cluster, folder)
        self.own()

    def own(self) -> None:
        """Give all that lies in the folder to the user."""
        account = pwd.getpwnam(ADA)
        for path in (self.folder, *self.folder.iterdir()):
            os.chown(path, account.pw_uid, account.pw_gid)

    def sbatch(self, *words: str, **environment: str) -> str:
        """Submit as that user and return the id."""
        self.own()
        command = ["runuser", "-u", ADA, "--", "env", f"SLURM_CONF={self.cluster.conf}", "sbatch", "--parsable", *words]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr
        return done.stdout.strip()


@pytest.fixture
def engine(devcluster: DevCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(verify, "CONFIRM_S", 2.0)
    clock = SystemClock()
    slurm = SlurmSettings(
        conf=devcluster.conf, users=("*",), controller_log=devcluster.controller_log, timeout_s=10.0, lowest_uid=1
    )
    settings = devcluster.settings(tmp_path, watch=WatchSettings(poll_s=1), slurm=slurm)
    policy = replace(load_policy(), mode=Mode.ACT, kill_switch=(tmp_path / "stop",))
    made = build(settings, clock=clock, policy=policy, since=clock.now())
    made.outages.limits = OutageLimits(settle_s=4.0, apart_s=1.0)
    yield made
    made.store.close()
    devcluster.settle()


@pytest.fixture
def owner(devcluster: DevCluster, tmp_path: Path) -> User:
    return User(devcluster, devcluster.shared / tmp_path.name)


@pytest.fixture
def pile(devcluster: DevCluster, owner: User) -> Iterator[Path]:
    """Files of data, mounted at /lustre/pile on each node."""
    folder = devcluster.shared / f"{owner.folder.name}-pile"
    folder.mkdir()
    for number in range(4):
        (folder / f"shard-{number:02}.bin").write_bytes(b"x" * 1000)
    for node in devcluster.nodes:
        devcluster.on(node, "sh", "-c", f"mkdir -p /lustre/pile && mount --bind {folder} /lustre/pile")
    yield folder
    for node in devcluster.nodes:
        devcluster.on(node, "sh", "-c", "umount -l /lustre/pile; rmdir /lustre/pile; true")


def without_pile(engine: Engine, devcluster: DevCluster, owner: User, program: str) -> tuple[str, str, str]:
    """Let one of a job's two nodes lose the mount while a program reads from it; return the job, the node, and the log."""
    (owner.folder / "x.py").write_text(program)
    owner.script("run.sh", "#SBATCH --nodes=2 --ntasks-per-node=1", "srun --kill-on-bad-exit=1 python3 x.py")
    job = owner.sbatch("run.sh")
    log = owner.folder / f"slurm-{job}.out"
    until(lambda: log.exists() and "step 20 " in log.read_text(), 60)
    bad = engine.scheduler.job(job).nodes[-1]
    devcluster.on(bad, "umount", "-l", "/lustre/pile")
    ended(engine, job)
    return job, bad, log.read_text()


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.split("\n")[0].removeprefix("# "))
def test_a_job_goes_on_without_the_node_that_lost_a_file_system(
    hook: str, engine: Engine, devcluster: DevCluster, owner: User, pile: Path
) -> None:
    del pile
    first, bad, log = without_pile(engine, devcluster, owner, READS.replace("rank =", f"{hook}rank =", 1))
    incident = watched(engine, first, over, 120)
    found = engine.store.diagnosis(incident.id)
    assert found is not None
    words = (incident.note, found.summary, found.advice, log)
    if 'x.py", line' not in log:
        # all that the rank said is lost: a person is told what is known
        assert (found.reason, incident.state) == ("unknown", IncidentState.ESCALATED), words
        assert f"task 1 on {bad} exited first, with exit code 1" in found.summary, words
        assert found.step is not None
        assert not found.faulty_nodes
        return
    assert incident.state is IncidentState.RECOVERED, words
    assert f"/lustre/pile is not mounted on {bad}" in found.summary, words
    assert ("exception itself was lost" in found.summary) is not ("FileNotFoundError" in log), words
    assert bad not in engine.scheduler.job(restarted(engine, first)).nodes
    assert [node.name for node in engine.scheduler.nodes() if "file_not_found" in node.reason] == [bad]


def test_tasks_that_a_node_without_their_environment_ate_are_run_elsewhere(
    engine: Engine, devcluster: DevCluster, owner: User
) -> None:
    bad = devcluster.nodes[-1]
    for node in devcluster.nodes[:-1]:
        devcluster.on(node, "sh", "-c", "mkdir -p /opt/lmeval/env/bin && touch /opt/lmeval/env/bin/activate")
    try:
        (owner.folder / "x.py").write_text(SCORES)
        owner.script("eval.sh", "#SBATCH --array=0-7 --exclusive", EVALUATES)
        array = owner.sbatch("eval.sh")
        names = [f"{array}_{task}" for task in range(8)]
        until(lambda: all(engine.scheduler.job(name).state.ended for name in names), 60)
        time.sleep(1.5)
        failed = [name for name in names if engine.scheduler.job(name).state is JobState.FAILED]
        assert len(failed) >= 2
        assert {engine.scheduler.job(name).nodes for name in failed} == {(bad,)}
        for name in failed:
            incident = watched(engine, name, over, 120)
            assert incident.state is IncidentState.RECOVERED, incident.note
        engine.tick(owner=owner_name("test"))
        (shared,) = [one for one in engine.store.incidents() if one.kind is EventKind.OUTAGE]
        assert shared.service == f"node {bad}"
        for name in failed:
            ended(engine, restarted(engine, name))  # recovered is who trains on, too
            again = engine.scheduler.job(restarted(engine, name))
            assert (again.nodes != (bad,), again.state) == (True, JobState.COMPLETED)
        assert sorted(path.name for path in owner.folder.glob("result-*.json")) == [f"result-{task}.json" for task in range(8)]
        assert not [node for node in engine.scheduler.nodes() if "nightshift" in node.reason]
        assert any(bad in remark.text for remark in engine.good_runs.taken_remarks())
    finally:
        for node in devcluster.nodes:
            devcluster.on(node, "rm", "-rf", "/opt/lmeval")


def test_a_job_goes_on_without_the_node_that_lacks_a_program_of_its_module(
    engine: Engine, devcluster: DevCluster, owner: User
) -> None:
    bad = devcluster.nodes[0]
    program = "/opt/augsuite/2.3/bin/augment"
    for node in devcluster.nodes[1:]:
        command = f"mkdir -p {Path(program).parent}; printf '#!/bin/sh\\necho shard > \\$2\\n' > {program}; chmod 755 {program}"
        devcluster.on(node, "sh", "-c", command)
    try:
        (owner.folder / "init.sh").write_text(MODULES)
        (owner.folder / "x.py").write_text(SCORES)
        script = (
            f"set -e\n. {owner.folder}/init.sh\nmodule load augsuite/2.3\naugment --out part.rec\npython3 -u x.py --output r.json"
        )
        owner.script("det.sh", "#SBATCH -N1 -n1", script)
        first = owner.sbatch("det.sh")
        ended(engine, first)
        assert engine.scheduler.job(first).nodes == (bad,)
        incident = watched(engine, first, over, 120)
        found = engine.store.diagnosis(incident.id)
        assert found is not None
        assert f"{program} is missing on {bad}" in found.summary, found.summary
        assert incident.state is IncidentState.RECOVERED, incident.note
        ended(engine, restarted(engine, first))
        again = engine.scheduler.job(restarted(engine, first))
        assert (again.nodes != (bad,), again.state) == (True, JobState.COMPLETED)
        assert not [node for node in engine.scheduler.nodes() if "nightshift" in node.reason]
        assert any(program in remark.text and bad in remark.text for remark in engine.good_runs.taken_remarks())
    finally:
        for node in devcluster.nodes:
            devcluster.on(node, "rm", "-rf", "/opt/augsuite")


def test_a_job_whose_port_another_job_of_its_node_holds_goes_on_elsewhere(
    engine: Engine, devcluster: DevCluster, owner: User
) -> None:
    node = devcluster.nodes[0]
    (owner.folder / "x.py").write_text(LISTENS)
    owner.script("run.sh", "#SBATCH --ntasks=1 --cpus-per-task=1 --mem=100", 'python3 -u x.py "$@"')
    holder = owner.sbatch("--job-name=alpaca", f"--nodelist={node}", "run.sh", "1500")
    log = owner.folder / f"slurm-{holder}.out"
    until(lambda: log.exists() and "step 5 " in log.read_text(), 30)
    for other in devcluster.nodes[1:]:
        devcluster.run("scontrol", "update", f"NodeName={other}", "State=DRAIN", "Reason=test")
    second = owner.sbatch("--job-name=dolly", "run.sh", "60")
    ended(engine, second)
    for other in devcluster.nodes[1:]:
        devcluster.run("scontrol", "update", f"NodeName={other}", "State=RESUME")
    incident = watched(engine, second, over, 120)
    found = engine.store.diagnosis(incident.id)
    assert found is not None
    assert f"Port 29617 of {node} is held by job {holder} (alpaca) of {ADA}, process" in found.summary
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert engine.scheduler.job(restarted(engine, second)).nodes != (node,)
    assert engine.scheduler.job(holder).state is JobState.RUNNING
