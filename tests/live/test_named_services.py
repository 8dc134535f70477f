"""A service that a job names in its script and that is away: nothing starts before it accepts connections from real nodes again."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from ipaddress import ip_address, ip_interface
from pathlib import Path

import pytest

from assistant.engine import Engine
from assistant.engine.outages import OutageLimits
from assistant.engine.ownership import owner_name
from assistant.records import IncidentState
from tests.live.conftest import DevCluster
from tests.live.test_strangers_submission import TRAINER, Owner, ended, engine, over, restarted, watched

__all__ = ["engine"]

pytestmark = pytest.mark.live
REFUSED = (
    "requests.exceptions.ConnectionError: HTTPConnectionPool(host='{host}', port={port}): Max retries exceeded with url: /v1 "
    "(Caused by NewConnectionError('[Errno 111] Connection refused'))"
)


def host_of(cluster: DevCluster) -> str:
    """Return the address by which nodes reach this machine."""
    match = re.search(r"NodeAddr=([\d.]+)", cluster.run("scontrol", "show", "node", cluster.nodes[0]))
    assert match is not None
    links = json.loads(subprocess.run(["ip", "-j", "-4", "addr"], capture_output=True, text=True, check=True).stdout)
    own = [ip_interface(f"{one['local']}/{one['prefixlen']}") for link in links for one in link.get("addr_info", ())]
    return next(str(one.ip) for one in own if ip_address(match[1]) in one.network)


def test_a_job_waits_for_the_service_that_it_lost(engine: Engine, devcluster: DevCluster, tmp_path: Path) -> None:
    engine.outages.limits = OutageLimits(settle_s=1.0)
    owner = Owner(devcluster, devcluster.shared / tmp_path.name)
    host = host_of(devcluster)
    with socket.create_server((host, 0)) as free:
        port = free.getsockname()[1]
    line = REFUSED.format(host=host, port=port)
    first_print = TRAINER.index('        print("[rank1]')
    trainer = TRAINER[:first_print] + f"        print({line!r}, flush=True)\n        sys.exit(1)\n" + 'print("done")\n'
    (owner.folder / "x.py").write_text(trainer)
    owner.script("run.sh", f"export FEATURES=http://{host}:{port}/v1", "srun python3 x.py")
    first = owner.sbatch("run.sh")
    ended(engine, first)
    watched(engine, first, lambda incident: "waits for" in incident.note and incident.state is IncidentState.RECOVERING)
    for _ in range(4):
        engine.tick(owner=owner_name("test"))
        time.sleep(1)
    (incident,) = engine.store.incidents(job=first)
    assert f"waits for {host}:{port}: {host}:{port} from" in incident.note
    assert "Connection refused" in incident.note
    assert not [call for call in engine.store.calls(incident.id) if call.tool == "resubmit_job"]
    with socket.create_server((host, port), backlog=16):
        assert watched(engine, first, over, 120).state is IncidentState.RECOVERED
    assert restarted(engine, first) != first
