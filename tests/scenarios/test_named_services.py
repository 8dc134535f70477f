"""A job that lost a service or a file system starts again when that answers, and only what may be asked is asked."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from assistant.policy import load_policy
from assistant.ports import Reply
from assistant.records import IncidentState
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tooling import Context, find_tool
from assistant.tools.causes import _CONNECT
from assistant.watch.outages import awaited_by
from tests.scenarios.scene import Scene

REFUSED = (1, "Connection refused")
SILENT = (124, "")
OWN = (42, "node02")
PROXY = (43, "")
UP = (0, "")


@dataclass(frozen=True)
class Service:
    """What a failure names, what nodes say of it, and what has to come of it."""

    line: str
    script: str = ""
    """More of the job's script."""
    name: str = "features.example:8123"
    """As it is connected to."""
    says: tuple[int, str] = REFUSED
    back_after_s: float = 600.0
    waits: bool = True
    """Whether the restart waits until it is back."""
    connects: bool = True
    """Whether anything is connected to."""


FEATURES = "RuntimeError: feature store http://features.example:8123/v1 unreachable after 5 tries"
HUB = "huggingface_hub.errors.HfHubHTTPError: 503 Server Error: Service Unavailable for url: https://huggingface.co/api/x"
CONFIGURED = "export FEATURES=http://features.example:8123/v1\n"
CASES = {
    "its script names it": Service(FEATURES, CONFIGURED),
    "a database": Service(
        'psycopg2.OperationalError: connection to server at "db.example" (10.1.2.3), port 5432 failed: Connection refused',
        "export PGHOST=db.example PGPORT=5432\n",
        "db.example:5432",
    ),
    "a tracking server": Service(
        "mlflow.exceptions.MlflowException: API request to http://mlflow.example:5000/api/2.0/mlflow failed with exception "
        "HTTPConnectionPool(host='mlflow.example', port=5000): Max retries exceeded with url: /api/2.0",
        "MLFLOW_TRACKING_URI=http://mlflow.example:5000 srun true\n",
        "mlflow.example:5000",
    ),
    "a registry": Service(
        "slurmstepd: error: pyxis: curl: (7) Failed to connect to registry.example port 5000: Connection refused",
        "# --container-image=registry.example:5000#llm/train:24.09\n",
        "registry.example:5000",
    ),
    "a cache": Service(
        "redis.exceptions.ConnectionError: Error 111 connecting to 10.0.0.9:6379. Connection refused.",
        "export REDIS=10.0.0.9:6379\n",
        "10.0.0.9:6379",
    ),
    "a mirror": Service(
        "aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host mirror.example:8080 ssl:default "
        "[Connect call failed ('10.4.4.4', 8080)]",
        "export MIRROR=https://mirror.example:8080\n",
        "mirror.example:8080",
    ),
    "it gives no answer in time": Service(FEATURES, CONFIGURED, says=SILENT),
    "the policy lists it": Service(
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='api.wandb.ai', port=443): Max retries exceeded with url: "
        "/graphql (Caused by NewConnectionError('[Errno 111] Connection refused'))",
        name="api.wandb.ai:443",
    ),
    "nothing but the log names it": Service(FEATURES, waits=False, connects=False),
    "the script names another port": Service(FEATURES, "export F=http://features.example:81/\n", waits=False, connects=False),
    "the script names a longer host": Service(
        FEATURES, "export F=http://features.example.org:8123 G=my-features.example:8123\n", waits=False, connects=False
    ),
    "the policy lists it for the web only": Service(
        FEATURES.replace("features.example:8123", "huggingface.co:22"), name="huggingface.co:22", waits=False, connects=False
    ),
    "metadata of a cloud": Service(
        FEATURES.replace("features.example:8123", "169.254.169.254"), "# 169.254.169.254\n", "169.254.169.254:80", waits=False,
        connects=False,
    ),
    "a node of the job itself": Service(FEATURES, CONFIGURED, says=OWN, waits=False),
    "the web through a proxy of the node": Service(HUB, name="huggingface.co:443", says=PROXY, waits=False),
    "the web through a proxy of the job": Service(
        HUB, "export https_proxy=http://proxy:3128\n", "huggingface.co:443", waits=False, connects=False
    ),
    "it had answered, and is silent to a connection of its own": Service(HUB, name="huggingface.co:443", says=SILENT, waits=False),
    "it had answered, and refuses now": Service(HUB, name="huggingface.co:443"),
    "it answers": Service(FEATURES, CONFIGURED, says=UP, waits=False),
    "no node can be asked": Service(FEATURES, CONFIGURED, says=(127, "bash: No such file or directory"), waits=False),
}  # fmt: skip


def scene_of(folder: Path, line: str, script: str) -> Scene:
    scene = Scene(folder)
    scene.cluster.plan("llm", SimulatedRun(fails_at=50, lines=(line,), checkpoints=folder / "checkpoints"), SimulatedRun())
    scene.spec = replace(scene.spec, script=scene.spec.script + script)
    return scene


def answering(scene: Scene, service: Service, asked: list[float]) -> Callable[[str], Reply]:
    began = scene.clock.now()

    def answer(node: str) -> Reply:
        passed_s = (scene.clock.now() - began).total_seconds()
        asked.append(passed_s)
        status, words = service.says if passed_s < service.back_after_s else UP
        return Reply(node, True, status, words, "")

    return answer


def looked(scene: Scene, service: Service) -> Mapping[str, Any]:
    """Return what one look at a service says, as a playbook asks for it."""
    job = scene.cluster.submit(scene.spec)
    scene.clock.sleep(60)
    awaited = awaited_by("connection_error", (service.line,))
    context = Context(
        scene.cluster, scene.cluster, scene.clock, Random(1), scene.engine.store, services=load_policy().services
    )  # fmt: skip
    answered = "yes" if awaited.answered else ""
    value = find_tool("wait_named").run(context, job=job, cause=awaited.cause, paths=list(awaited.paths), answered=answered)
    assert isinstance(value, Mapping)
    return value


@pytest.mark.parametrize("name", CASES)
def test_only_what_policy_or_configuration_name_is_asked_and_only_silence_that_counts_is_waited_for(
    name: str, tmp_path: Path
) -> None:
    service = CASES[name]
    scene = scene_of(tmp_path, service.line, service.script)
    asked: list[float] = []
    scene.cluster.services[service.name] = answering(scene, service, asked)
    value = looked(scene, service)
    assert value["status"] == ("waiting" if service.waits else "may_restart"), value
    assert bool(asked) is service.connects, value
    assert value["note"]


@pytest.mark.parametrize("name", ["its script names it", "a node of the job itself", "nothing but the log names it"])
def test_a_job_starts_again_when_the_service_that_it_lost_answers(name: str, tmp_path: Path) -> None:
    service = CASES[name]
    scene = scene_of(tmp_path, service.line, service.script)
    asked: list[float] = []
    scene.cluster.services[service.name] = answering(scene, service, asked)
    scene.cluster.submit(scene.spec)
    scene.watch(300)
    assert scene.cluster.changes == (["submit 1"] if service.waits else ["submit 1", "submit 2"])
    if service.waits:
        (incident,) = scene.engine.store.incidents()
        assert f"waits for {service.name}" in incident.note
        (after,) = scene.watch(1500)
        assert after.state is IncidentState.RECOVERED, after.note
        assert scene.cluster.changes == ["submit 1", "submit 2"]


def test_a_service_that_stays_away_is_asked_the_rarer_the_longer_it_lasts_and_goes_to_a_person(tmp_path: Path) -> None:
    service = replace(CASES["its script names it"], back_after_s=1e9)
    scene = scene_of(tmp_path, service.line, service.script)
    asked: list[float] = []
    scene.cluster.services[service.name] = answering(scene, service, asked)
    scene.cluster.submit(scene.spec)
    (incident,) = scene.watch(9000, every=30)
    assert incident.state is IncidentState.ESCALATED
    assert "not may_restart within 120 min: waits for features.example:8123: features.example:8123 from node01" in incident.note
    assert scene.cluster.changes == ["submit 1"]
    times = sorted(set(asked))
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert len(times) < 80
    assert pauses[-1] >= 300 > 30 >= pauses[0]


@pytest.mark.parametrize(
    "host", ["$(touch${IFS}x)", "-oProxyCommand=x", "a;b", "a b", "x" * 300, "features.example:99999", "0x7f000001"]
)
def test_what_is_no_name_of_a_host_is_never_handed_to_a_node(host: str, tmp_path: Path) -> None:
    service = Service(f"RuntimeError: feature store http://{host}:8123/ unreachable after 5 tries", f"# {host} {host}:8123\n")
    scene = scene_of(tmp_path, service.line, service.script)
    handed: list[str] = []
    scene.cluster.answers = Recording(handed)
    value = looked(scene, service) if awaited_by("connection_error", (service.line,)).cause else {"status": "may_restart"}
    assert value["status"] == "may_restart"
    assert not handed


class Recording(dict[str, Callable[[str], Reply]]):
    """Answers no command, and keeps those that would connect."""

    def __init__(self, handed: list[str]) -> None:
        super().__init__()
        self.handed = handed

    def __contains__(self, typed: object) -> bool:
        self.handed += [str(typed)] if "/dev/tcp" in str(typed) else []
        return False


def test_the_program_that_connects_tells_open_refused_and_own_apart() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        assert ran("127.0.0.1", port) == 0
    assert ran("127.0.0.1", port) == 1
    assert ran("127.0.0.1", port, "localhost") == OWN[0]
    assert ran("no-such-host.invalid", "") == 1
    assert ran("no-such-host.invalid", "", "localhost") == 1


def ran(*words: str) -> int:
    return subprocess.run(["bash", "-c", _CONNECT, *words], capture_output=True, timeout=30, check=False).returncode
