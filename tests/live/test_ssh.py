"""SSH to real nodes with real failures: each has its own answer, costs its deadline and holds up nobody."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from assistant.config import SshSettings
from assistant.nodeset import expand, fold, node_groups
from assistant.ports import Failure, Reply
from assistant.transports.local import OutputRoom
from assistant.transports.ssh import SshTransport
from tests.live.conftest import SCRIPT, DevCluster, running, skip_reason

pytestmark = pytest.mark.live

TIMEOUT_S = 4.0


@pytest.fixture
def transport(devcluster: DevCluster) -> Iterator[SshTransport]:
    for node in devcluster.nodes:
        devcluster.heal(node)
    with SshTransport(SshSettings(config=devcluster.ssh_config)) as found:
        yield found
    for node in devcluster.nodes:
        devcluster.heal(node)


Ask = Callable[[str, str, float, OutputRoom], Reply]


def timed(transport: SshTransport, nodes: tuple[str, ...], *command: str) -> tuple[Mapping[str, Reply], float]:
    began = time.monotonic()
    replies = transport.run(nodes, command or ("hostname",), timeout_s=TIMEOUT_S)
    return replies, time.monotonic() - began


def test_every_node_answers_for_itself(devcluster: DevCluster, transport: SshTransport) -> None:
    replies, _ = timed(transport, devcluster.nodes)
    assert {node: reply.out for node, reply in replies.items()} == {node: f"{node}\n" for node in devcluster.nodes}


@pytest.mark.parametrize(
    ("how", "failures"),
    [
        ("link", {Failure.UNREACHABLE}),
        ("power", {Failure.UNREACHABLE}),
        ("hang", {Failure.SILENT}),
        ("sshd", {Failure.REFUSED}),
    ],
)
@pytest.mark.parametrize("kept", [False, True])
def test_a_dead_node_costs_its_deadline_and_the_others_answer(
    how: str, failures: set[Failure], kept: bool, devcluster: DevCluster, transport: SshTransport
) -> None:
    victim, *others = devcluster.nodes
    if kept:
        timed(transport, devcluster.nodes)
    devcluster.fault(victim, how)
    replies, seconds = timed(transport, devcluster.nodes)
    if kept and how == "sshd":
        assert replies[victim].reached, "a session that stands does not need sshd's listener"
    else:
        assert not replies[victim].reached
        assert replies[victim].failure in failures, replies[victim].err
    assert seconds < 2 * TIMEOUT_S
    assert [node for node in others if replies[node].out != f"{node}\n"] == []
    alive, seconds = timed(transport, tuple(others))
    assert all(reply.reached for reply in alive.values())
    assert seconds < TIMEOUT_S, "the living are not held up by the dead"


@pytest.mark.parametrize("how", ["link", "power", "hang", "sshd"])
def test_a_node_that_is_back_is_reached_again(how: str, devcluster: DevCluster, transport: SshTransport) -> None:
    victim = devcluster.nodes[1]
    timed(transport, devcluster.nodes)
    devcluster.fault(victim, how)
    timed(transport, (victim,))
    devcluster.heal(victim)
    until = time.monotonic() + 20
    while not (reply := timed(transport, (victim,))[0][victim]).reached and time.monotonic() < until:
        time.sleep(0.2)
    assert reply.out == f"{victim}\n", reply.err


def test_a_node_with_another_host_key_is_refused(devcluster: DevCluster, tmp_path: Path) -> None:
    first, second = devcluster.nodes[:2]
    known = (devcluster.home / "ssh" / "known_hosts").read_text().splitlines()
    keys = {line.split()[0].split(",")[0]: line.split() for line in known}
    swapped = tmp_path / "known_hosts"
    swapped.write_text(f"{keys[first][0]} {' '.join(keys[second][1:])}\n")
    config = tmp_path / "config"
    config.write_text(f"Host *\n  UserKnownHostsFile {swapped}\nInclude {devcluster.ssh_config}\n")
    with SshTransport(SshSettings(config=config)) as transport:
        replies, _ = timed(transport, (first, second))
    assert (replies[first].failure, replies[second].failure) == (Failure.KEY_MISMATCH, Failure.UNKNOWN_KEY)
    assert str(swapped) in replies[first].err


def test_a_wrong_user_is_not_let_in(devcluster: DevCluster, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(f"User nobody-here\nInclude {devcluster.ssh_config}\n")
    with SshTransport(SshSettings(config=config)) as transport:
        assert timed(transport, devcluster.nodes[:1])[0][devcluster.nodes[0]].failure == Failure.AUTHENTICATION


def test_over_a_jump_host_and_what_happens_when_it_dies(devcluster: DevCluster, tmp_path: Path) -> None:
    jump, *others = devcluster.nodes
    config = tmp_path / "config"
    config.write_text(f"Host {' '.join(others)}\n  ProxyJump {jump}\nHost *\n  Include {devcluster.ssh_config}\n")
    with SshTransport(SshSettings(config=config)) as transport:
        replies, _ = timed(transport, tuple(others), "sh", "-c", "echo $SSH_CLIENT")
        assert len({reply.out.split()[0] for reply in replies.values()}) == 1, "all come from the jump host"
        devcluster.fault(jump, "power")
        try:
            replies, seconds = timed(transport, tuple(others))
            assert {reply.failure for reply in replies.values()} <= {Failure.PROXY, Failure.SILENT}
            assert not any(reply.reached for reply in replies.values())
            assert seconds < 2 * TIMEOUT_S
        finally:
            devcluster.heal(jump)


def test_groups_of_slurm_are_asked(devcluster: DevCluster, transport: SshTransport) -> None:
    nodes = expand("@train,@state:idle", groups=node_groups(devcluster.scheduler().nodes()))
    assert fold(nodes) == fold(devcluster.nodes)
    replies = transport.run(nodes, ["uname", "-s"], timeout_s=TIMEOUT_S)
    assert {node: reply.out.strip() for node, reply in replies.items()} == dict.fromkeys(devcluster.nodes, "Linux")


@pytest.fixture
def sixty_four() -> Iterator[Path]:
    if reason := skip_reason():
        pytest.skip(reason)
    with (
        tempfile.TemporaryDirectory(prefix="ns-", dir="/tmp") as folder,
        running(Path(folder) / "c", "--ssh-only", "--nodes", "64"),
    ):
        yield Path(folder) / "c"


def test_sixty_four_nodes_of_which_eight_are_dead(sixty_four: Path) -> None:
    nodes = expand("gpu[001-064]")
    dead = nodes[::8]
    for node in dead:
        subprocess.run(
            [str(SCRIPT), "--home", str(sixty_four), "fail-node", node, "--how", "link"],
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
    done: dict[str, float] = {}
    with SshTransport(SshSettings(config=sixty_four / "ssh" / "config", fan_out=16)) as transport:
        began = time.monotonic()
        transport._ask = noting(transport._ask, done, began)  # type: ignore[method-assign,assignment]
        replies = transport.run(nodes, ["true"], timeout_s=TIMEOUT_S)
    assert {node for node, reply in replies.items() if not reply.reached} == set(dead)
    assert max(done[node] for node in nodes if node not in dead) < TIMEOUT_S, "nobody waits for the dead ones"
    assert max(done.values()) < TIMEOUT_S + 3


def noting(
    ask: Callable[[str, str, float, OutputRoom], Reply], done: dict[str, float], began: float
) -> Callable[[str, str, float, OutputRoom], Reply]:
    def noted(node: str, typed: str, timeout_s: float, room: OutputRoom) -> Reply:
        reply = ask(node, typed, timeout_s, room)
        done[node] = time.monotonic() - began
        return reply

    return noted
