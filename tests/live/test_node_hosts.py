"""A name that does not resolve on one node of a real cluster: the job comes back on another one, and nothing is drained."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from assistant.engine import Engine
from assistant.records import IncidentState
from tests.live.conftest import DevCluster
from tests.live.test_strangers_submission import Owner, ended, engine, over, owner, restarted, watched

__all__ = ["engine", "owner"]

pytestmark = pytest.mark.live
HOST = "metrics.lab.test"
PROGRAM = """import os, socket, time, urllib.parse

host = urllib.parse.urlparse(os.environ["TRACKING"]).hostname
print("tracking", socket.getaddrinfo(host, 5000)[0][4], flush=True)
for step in range(1, 101):
    print(f"step {step} loss {3.0 - step / 1000:.4f}", flush=True)
    time.sleep(0.05)
print("done")
"""
KNOWN = f"cp /etc/hosts /run/hosts.before; cp /etc/resolv.conf /run/resolv.before; echo 10.203.0.9 {HOST} >> /etc/hosts"
LOST = "cp /run/hosts.before /etc/hosts; printf 'nameserver 10.203.255.1\\noptions timeout:1 attempts:1\\n' > /etc/resolv.conf"
BACK = "cp /run/hosts.before /etc/hosts; cp /run/resolv.before /etc/resolv.conf"


@pytest.fixture
def lost_on(devcluster: DevCluster) -> Iterator[str]:
    """A node on which a name does not resolve that all others know."""
    for node in devcluster.nodes:
        devcluster.on(node, "sh", "-c", KNOWN)
    devcluster.on(devcluster.nodes[0], "sh", "-c", LOST)
    yield devcluster.nodes[0]
    for node in devcluster.nodes:
        devcluster.on(node, "sh", "-c", BACK)


def test_a_job_leaves_the_node_that_does_not_resolve_a_name(engine: Engine, owner: Owner, lost_on: str) -> None:
    (owner.folder / "train.py").write_text(PROGRAM)
    owner.script("train.sh", f"export TRACKING=http://{HOST}:5000", "srun python3 train.py")
    first = owner.sbatch("train.sh")
    ended(engine, first)
    assert engine.scheduler.job(first).nodes == (lost_on,)
    incident = watched(engine, first, over, 120)
    found = engine.store.diagnosis(incident.id)
    assert found is not None
    assert f"{HOST} cannot be resolved on {lost_on}, and can be on" in found.summary
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert engine.scheduler.job(restarted(engine, first)).nodes != (lost_on,)
    assert not [call for call in engine.store.calls(incident.id) if call.tool == "cordon_node"]
    assert any(lost_on in remark.text and HOST in remark.text for remark in engine.good_runs.taken_remarks())
