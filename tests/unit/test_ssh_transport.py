"""The SSH transport against a real sshd on this machine: what comes back, who is let in, and what is said when nobody answers."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.ports import Failure, Reply
from assistant.transports.local import OutputRoom
from assistant.transports.ssh import SshTransport
from assistant.transports.ssh_command import Tunnel
from assistant.transports.ssh_hosts import Me
from tests.unit.sshd_here import SSHD, SshdHere, free_port, keygen, make

pytestmark = pytest.mark.skipif(SSHD is None, reason="sshd is missing: apt-get install openssh-server")


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[SshdHere]:
    found = make(tmp_path / "home")
    found.start()
    yield found
    found.stop()


def ask(transport: SshTransport, *command: str, node: str = "here", timeout_s: float = 10) -> Reply:
    return transport.run([node], command or ("true",), timeout_s=timeout_s)[node]


def test_a_command_answers_with_status_output_and_errors(sshd: SshdHere) -> None:
    reply = ask(sshd.transport(), "sh", "-c", "echo out; echo err >&2; exit 3")
    assert reply == Reply("here", True, 3, "out\n", "err\n")


def test_no_banner_and_nothing_of_the_start_up_files_gets_into_the_output(sshd: SshdHere) -> None:
    reply = ask(sshd.transport("Host here\n  SetEnv X=1\n"), "printf", "only this")
    assert (reply.out, reply.err) == ("only this", "")


def test_a_shell_that_runs_something_else_is_no_answer(tmp_path: Path) -> None:
    found = make(tmp_path / "home", "ForceCommand echo This account is currently not available.")
    found.start()
    try:
        reply = ask(found.transport())
    finally:
        found.stop()
    assert (reply.reached, reply.failure) == (False, Failure.PROTOCOL)
    assert "currently not available" in reply.err


def test_what_start_up_files_print_is_none_of_the_output(tmp_path: Path) -> None:
    found = make(tmp_path / "home", 'ForceCommand echo Welcome to node03; sh -c "$SSH_ORIGINAL_COMMAND"')
    found.start()
    try:
        assert ask(found.transport(), "printf", "only this").out == "only this"
    finally:
        found.stop()


def test_words_are_not_interpreted_on_the_way(sshd: SshdHere) -> None:
    words = ["a b", "$HOME", "`id`", "';'", '"', "\\", "*", "a\nb", "ü"]
    assert ask(sshd.transport(), "printf", "%s|", *words).out == "|".join(words) + "|"


def test_the_language_is_c_and_there_is_no_terminal_and_no_input(sshd: SshdHere) -> None:
    transport = sshd.transport()
    assert ask(transport, "sh", "-c", "echo $LC_ALL; test -t 0 || echo no terminal; cat").out == "C\nno terminal\n"


def test_a_missing_program_is_an_answer_with_status_127(sshd: SshdHere) -> None:
    reply = ask(sshd.transport(), "no-such-program")
    assert (reply.reached, reply.status) == (True, 127)
    assert "not found" in reply.err


def test_bytes_that_are_no_text_are_replaced(sshd: SshdHere) -> None:
    assert ask(sshd.transport(), "printf", r"a\377\000b").out == "a\ufffd\0b"


def test_a_command_that_dies_by_a_signal_says_which(sshd: SshdHere) -> None:
    assert ask(sshd.transport(), "sh", "-c", "kill -9 $$").status == 128 + signal.SIGKILL


def test_much_output_on_both_channels_comes_whole(sshd: SshdHere) -> None:
    script = "head -c 3000000 /dev/zero | tr '\\0' e >&2; head -c 5000000 /dev/zero | tr '\\0' o"
    reply = ask(sshd.transport(), "sh", "-c", script, timeout_s=30)
    assert (len(reply.out), len(reply.err)) == (5_000_000, 3_000_000)


@pytest.mark.parametrize("where", ["1", "2"])
def test_a_command_that_never_stops_talking_is_ended_at_the_limit(where: str, sshd: SshdHere) -> None:
    began = time.monotonic()
    reply = ask(sshd.transport(output_limit_bytes=200_000), "sh", "-c", f"yes >&{where}", timeout_s=20)
    assert (reply.reached, reply.failure, reply.out) == (False, Failure.OUTPUT, "")
    assert "said more than 200,000 bytes" in reply.err
    assert time.monotonic() - began < 5


def test_a_command_that_does_not_end_costs_its_deadline_and_is_ended_there(sshd: SshdHere) -> None:
    mark = f"98{os.getpid()}"
    transport = sshd.transport()
    began = time.monotonic()
    reply = ask(transport, "sh", "-c", f"echo begun >&2; sleep {mark} & sleep {mark}", timeout_s=1)
    assert time.monotonic() - began < 2
    assert (reply.reached, reply.status, reply.failure) == (False, None, Failure.TIMEOUT)
    assert "did not end within 1 s" in reply.err
    assert "begun" in reply.err
    until = time.monotonic() + 5
    while running(mark) and time.monotonic() < until:
        time.sleep(0.05)
    assert not running(mark), "it and its children are gone"
    assert ask(transport).reached, "and the connection is still of use"


def running(argument: str) -> bool:
    return subprocess.run(["pgrep", "-f", f"sleep {argument}"], capture_output=True, check=False).returncode == 0


def test_a_child_in_the_background_does_not_hold_up_the_answer(sshd: SshdHere) -> None:
    began = time.monotonic()
    reply = ask(sshd.transport(), "sh", "-c", "sleep 7 & echo done", timeout_s=20)
    assert (reply.reached, reply.out) == (True, "done\n")
    assert time.monotonic() - began < 4


def test_one_connection_is_kept_and_used_again(sshd: SshdHere) -> None:
    transport = sshd.transport()
    ports = {ask(transport, "sh", "-c", "echo $SSH_CLIENT").out for _ in range(3)}
    assert len(ports) == 1
    transport.close()
    assert ask(transport, "sh", "-c", "echo $SSH_CLIENT").out not in ports


def test_many_calls_at_once_share_it_beyond_what_sshd_allows_a_connection(sshd: SshdHere) -> None:
    transport = sshd.transport()
    replies: list[Reply] = []
    threads = [threading.Thread(target=lambda: replies.append(ask(transport, "sleep", "0.3"))) for _ in range(14)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [reply.reached for reply in replies] == [True] * 14


def test_an_idle_connection_is_closed(sshd: SshdHere) -> None:
    transport = sshd.transport(idle_close_s=0.2)
    assert ask(transport).reached
    assert transport._pool is not None
    until = time.monotonic() + 5
    while transport._pool.size and time.monotonic() < until:
        time.sleep(0.05)
    assert transport._pool.size == 0
    assert ask(transport).reached


def test_a_connection_that_died_is_replaced(sshd: SshdHere) -> None:
    transport = sshd.transport()
    assert ask(transport).reached
    assert sshd.daemon is not None
    for child in sshd.children(sshd.daemon.pid):
        os.kill(child, signal.SIGKILL)
    assert ask(transport).reached


def test_a_connection_that_breaks_in_the_middle_is_no_answer(sshd: SshdHere) -> None:
    transport = sshd.transport()
    found: list[Reply] = []
    thread = threading.Thread(target=lambda: found.append(ask(transport, "sleep", "9")))
    thread.start()
    time.sleep(0.7)
    assert sshd.daemon is not None
    for child in sshd.children(sshd.daemon.pid):
        os.kill(child, signal.SIGKILL)
    thread.join(5)
    assert (found[0].reached, found[0].failure) == (False, Failure.LOST)


def test_an_unknown_key_is_refused_never_added_and_the_answer_says_how_to_mend_it(sshd: SshdHere) -> None:
    sshd.trust("# nobody\n")
    reply = ask(sshd.transport("Host *\n  StrictHostKeyChecking no\n"))
    assert (reply.reached, reply.failure) == (False, Failure.UNKNOWN_KEY)
    assert f"ssh-keyscan -t ed25519 -p {sshd.port} 127.0.0.1 >> {sshd.ssh}/known_hosts" in reply.err
    assert (sshd.ssh / "known_hosts").read_text() == "# nobody\n"
    sshd.trust()
    assert ask(sshd.opened[-1]).reached, "the same transport sees that it was mended"


def test_another_key_than_the_known_one_is_refused(sshd: SshdHere) -> None:
    sshd.trust(f"[127.0.0.1]:{sshd.port} {(sshd.ssh / 'id_ed25519.pub').read_text()}")
    reply = ask(sshd.transport())
    assert (reply.reached, reply.failure) == (False, Failure.KEY_MISMATCH)
    assert "ssh-keygen -R" in reply.err


def test_a_revoked_key_is_refused(sshd: SshdHere) -> None:
    key = (sshd.home / "host_ed25519.pub").read_text()
    sshd.trust(f"[127.0.0.1]:{sshd.port} {key}@revoked * {key}")
    assert ask(sshd.transport()).failure == Failure.KEY_REVOKED


def test_a_name_that_is_hidden_in_known_hosts_is_found(sshd: SshdHere) -> None:
    keygen("-t", "ed25519", "-H", "-f", sshd.ssh / "known_hosts")
    assert "127.0.0.1" not in (sshd.ssh / "known_hosts").read_text()
    assert ask(sshd.transport()).reached


@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
def test_of_several_host_keys_the_known_kind_is_asked_for(kind: str, tmp_path: Path) -> None:
    found = make(tmp_path / "home", f"HostKey {tmp_path}/home/host_other")
    keygen("-t", kind, "-f", found.home / "host_other", "-N", "")
    found.trust(f"[127.0.0.1]:{found.port} {(found.home / 'host_other.pub').read_text()}")
    found.start()
    try:
        assert ask(found.transport()).reached
    finally:
        found.stop()


@pytest.mark.parametrize(("names", "failure"), [("127.0.0.1", ""), ("elsewhere", Failure.KEY_MISMATCH)])
def test_a_host_certificate_of_a_trusted_authority_is_enough(names: str, failure: str, tmp_path: Path) -> None:
    found = make(tmp_path / "home", f"HostCertificate {tmp_path}/home/host_ed25519-cert.pub")
    keygen("-f", found.home / "authority", "-N", "")
    keygen("-s", found.home / "authority", "-I", "host", "-h", "-n", names, found.home / "host_ed25519.pub")
    found.trust(f"@cert-authority [127.0.0.1]:* {(found.home / 'authority.pub').read_text()}")
    found.start()
    try:
        assert ask(found.transport()).failure == failure
    finally:
        found.stop()


def test_a_wrong_user_is_not_let_in_and_the_answer_names_the_keys_shown(sshd: SshdHere) -> None:
    reply = ask(sshd.transport("Host *\n  User nobody-of-this-name\n"))
    assert (reply.reached, reply.failure) == (False, Failure.AUTHENTICATION)
    assert "nobody-of-this-name" in reply.err
    assert "id_ed25519" in reply.err


def test_without_a_key_that_fits_nobody_is_asked_for_a_password(sshd: SshdHere) -> None:
    keygen("-f", sshd.ssh / "stranger", "-N", "")
    reply = ask(sshd.transport(f"Host *\n  IdentityFile {sshd.ssh}/missing\n  IdentityFile {sshd.ssh}/stranger\n"))
    assert reply.failure == Failure.AUTHENTICATION
    assert "missing is missing" in reply.err


def test_a_locked_key_is_passed_over_and_named(sshd: SshdHere) -> None:
    keygen("-f", sshd.ssh / "locked", "-N", "secret words")
    reply = ask(sshd.transport(f"Host *\n  IdentityFile {sshd.ssh}/locked\n"))
    assert reply.failure == Failure.AUTHENTICATION
    assert "locked is locked by a passphrase: ssh-add it" in reply.err


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
def test_every_common_kind_of_key_logs_in(kind: str, sshd: SshdHere) -> None:
    keygen("-t", kind, "-f", sshd.ssh / "mine", "-N", "")
    (sshd.home / "authorized_keys").write_text((sshd.ssh / "mine.pub").read_text())
    assert ask(sshd.transport(f"Host *\n  IdentityFile {sshd.ssh}/mine\n")).reached


def test_a_users_certificate_logs_in(tmp_path: Path) -> None:
    found = make(tmp_path / "home", f"TrustedUserCAKeys {tmp_path}/home/authority.pub")
    keygen("-f", found.home / "authority", "-N", "")
    keygen("-s", found.home / "authority", "-I", "me", "-n", found.me.user, found.ssh / "id_ed25519.pub")
    (found.home / "authorized_keys").write_text("")
    found.start()
    try:
        assert ask(found.transport()).reached
        (found.ssh / "id_ed25519-cert.pub").rename(found.ssh / "elsewhere.pub")
        assert ask(found.transport()).failure == Failure.AUTHENTICATION
        assert ask(found.transport(f"Host *\n  CertificateFile {found.ssh}/elsewhere.pub\n")).reached
    finally:
        found.stop()


@pytest.mark.skipif(shutil.which("ssh-agent") is None, reason="ssh-agent is missing")
@pytest.mark.parametrize("certified", [False, True])
def test_a_key_in_an_agent_logs_in(certified: bool, tmp_path: Path) -> None:
    found = make(tmp_path / "home", f"TrustedUserCAKeys {tmp_path}/home/authority.pub")
    keygen("-f", found.home / "authority", "-N", "")
    if certified:
        keygen("-s", found.home / "authority", "-I", "me", "-n", found.me.user, found.ssh / "id_ed25519.pub")
        (found.home / "authorized_keys").write_text("")
    found.start()
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", f"{tmp_path}/agent"], stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 5
        while not (tmp_path / "agent").exists() and time.monotonic() < until:
            time.sleep(0.01)
        environment = {**os.environ, "SSH_AUTH_SOCK": f"{tmp_path}/agent"}
        subprocess.run(["ssh-add", "-q", found.ssh / "id_ed25519"], env=environment, check=True, capture_output=True)
        for path in found.ssh.glob("id_ed25519*"):
            path.unlink()
        found.me = Me(user=found.me.user, home=found.home, environment={"SSH_AUTH_SOCK": f"{tmp_path}/agent"})
        assert ask(found.transport()).reached
        assert ask(found.transport("Host *\n  IdentityAgent none\n")).failure == Failure.AUTHENTICATION
        assert ask(found.transport("Host *\n  IdentitiesOnly yes\n")).failure == Failure.AUTHENTICATION
    finally:
        agent.kill()
        agent.wait()
        found.stop()


def test_a_port_on_which_nobody_listens_is_refused(sshd: SshdHere) -> None:
    reply = ask(sshd.transport(f"Host *\n  Port {free_port()}\n"))
    assert (reply.reached, reply.failure) == (False, Failure.REFUSED)
    assert "no sshd listens" in reply.err


def test_a_name_without_an_address_is_unresolved(sshd: SshdHere) -> None:
    reply = ask(sshd.transport("Host nowhere\n  HostName nowhere.invalid\n"), node="nowhere")
    assert (reply.reached, reply.failure) == (False, Failure.UNRESOLVED)


def test_a_hung_sshd_costs_the_deadline_only(sshd: SshdHere) -> None:
    assert sshd.daemon is not None
    os.kill(sshd.daemon.pid, signal.SIGSTOP)
    began = time.monotonic()
    reply = ask(sshd.transport(), timeout_s=1)
    assert (reply.reached, reply.failure) == (False, Failure.SILENT)
    assert time.monotonic() - began < 3


def test_a_kept_connection_to_a_hung_session_costs_the_deadline_and_another_one_is_tried(sshd: SshdHere) -> None:
    transport = sshd.transport()
    assert ask(transport).reached
    assert sshd.daemon is not None
    for child in sshd.children(sshd.daemon.pid):
        os.kill(child, signal.SIGSTOP)
    began = time.monotonic()
    assert ask(transport, timeout_s=4).reached, "sshd itself still takes new connections"
    assert time.monotonic() - began < 4


def test_what_speaks_no_ssh_is_told_apart(sshd: SshdHere) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"220 mail.example.org ESMTP\r\n" * 120)

        thread = threading.Thread(target=talk)
        thread.start()
        reply = ask(sshd.transport(f"Host *\n  Port {server.getsockname()[1]}\n"), timeout_s=5)
        thread.join()
    assert (reply.reached, reply.failure) == (False, Failure.PROTOCOL)


def test_over_a_jump_host_and_over_two(sshd: SshdHere) -> None:
    jumps = "Host far\n  ProxyJump here\nHost further\n  ProxyJump here,other\nHost *\n  HostName 127.0.0.1\n"
    transport = sshd.transport(f"{jumps}  Port {sshd.port}\n")
    assert ask(transport, "echo", "hello", node="far").out == "hello\n"
    assert ask(transport, "echo", "hello", node="further").out == "hello\n"
    assert ask(transport, "echo", "again", node="far").out == "again\n"
    assert transport._pool is not None
    assert transport._pool.size == 4, "here; far over here; other over here; further over other"


def test_a_jump_host_that_cannot_be_reached_says_so_of_itself(sshd: SshdHere) -> None:
    config = f"Host far\n  ProxyJump gone\n  HostName 127.0.0.1\nHost gone\n  HostName 127.0.0.1\n  Port {free_port()}\n"
    reply = ask(sshd.transport(config), node="far")
    assert (reply.reached, reply.failure) == (False, Failure.PROXY)
    assert "leads through gone" in reply.err


def test_what_a_jump_host_cannot_reach_is_unreachable(sshd: SshdHere) -> None:
    config = f"Host far\n  ProxyJump here\n  HostName 127.0.0.1\n  Port {free_port()}\n"
    reply = ask(sshd.transport(config), node="far")
    assert (reply.reached, reply.failure) == (False, Failure.UNREACHABLE)
    assert "cannot reach far" in reply.err


def test_over_a_proxy_command(sshd: SshdHere, tmp_path: Path) -> None:
    program = tmp_path / "pipe.py"
    program.write_text(
        "import os, socket, sys, threading\n"
        "line = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "def up():\n"
        "    while block := os.read(0, 65536):\n"
        "        line.sendall(block)\n"
        "    os._exit(0)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while block := line.recv(65536):\n"
        "    os.write(1, block)\n"
    )
    transport = sshd.transport(f"Host *\n  ProxyCommand python3 {program} %h %p\n")
    assert ask(transport, "echo", "hello").out == "hello\n"
    assert ask(transport, "echo", "again").out == "again\n"


def test_a_proxy_command_that_fails_is_named_with_its_words(sshd: SshdHere) -> None:
    reply = ask(sshd.transport("Host *\n  ProxyCommand sh -c 'echo no such gateway >&2; exit 1'\n"))
    assert (reply.reached, reply.failure) == (False, Failure.PROXY)
    assert "no such gateway" in reply.err


def test_wrong_settings_are_the_answer_of_every_node(sshd: SshdHere) -> None:
    replies = sshd.transport("Port http\n").run(["here", "other"], ["true"], timeout_s=5)
    assert {reply.failure for reply in replies.values()} == {Failure.CONFIG}
    assert "config:1: port 'http'" in replies["here"].err


def test_dead_nodes_do_not_hold_up_the_living(sshd: SshdHere) -> None:
    with socket.socket() as silent:  # listens, and nobody ever takes the call
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        config = f"Host dead*\n  HostName 127.0.0.1\n  Port {silent.getsockname()[1]}\n"
        transport = sshd.transport(config, fan_out=4)
        done: dict[str, float] = {}
        began = time.monotonic()
        original = transport._ask

        def timed(node: str, typed: str, timeout_s: float, room: OutputRoom) -> Reply:
            reply = original(node, typed, timeout_s, room)
            done[node] = time.monotonic() - began
            return reply

        transport._ask = timed  # type: ignore[method-assign]
        replies = transport.run([*(f"dead{n}" for n in range(8)), "here", "other"], ["true"], timeout_s=4)
    assert replies["here"].reached
    assert replies["other"].reached
    assert max(done["here"], done["other"]) < 3.5, "they were asked while the dead ones were waited for"
    assert {replies[f"dead{n}"].failure for n in range(8)} == {Failure.SILENT}


def test_when_it_is_closed_no_thread_and_no_socket_is_left(sshd: SshdHere) -> None:
    before, files = set(threading.enumerate()), len(list(Path("/proc/self/fd").iterdir()))
    transport = sshd.transport()
    transport.run(["here", "other"], ["true"], timeout_s=10)
    transport.close()
    until = time.monotonic() + 5
    while set(threading.enumerate()) - before and time.monotonic() < until:
        time.sleep(0.02)
    assert not set(threading.enumerate()) - before
    assert len(list(Path("/proc/self/fd").iterdir())) == files


def test_a_tunnel_whose_host_hung_up_first_ends_quietly() -> None:
    class HungUp:
        closed = False

        def close(self) -> None:
            raise EOFError

    tunnel = Tunnel(HungUp())
    tunnel.close()
    assert not tunnel.closed
