"""`nightshift watch` as a real process: signals, what systemd hears of it, a bad reload, a second watch that takes over."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assistant.ports import SystemClock
from assistant.store import Store

CONFIG = """\
scheduler = "local"
state_folder = "{folder}/state"
store = "{folder}/state/nightshift.db"
log = "text"
[commands]
kernel_log = ["cat", "kernel.log"]
[watch]
poll_s = {poll_s}
"""
PATIENCE_S = 40.0
HARDENED = "import ctypes, os, sys; ctypes.CDLL(None).prctl(65, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
"""MemoryDenyWriteExecute=yes of the unit, by prctl(PR_SET_MDWE); kernels before 6.3 know it not, and go on without."""


class Watch:
    """A watch in a process of its own."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.log = folder / f"watch-{time.monotonic_ns()}.log"
        own = {name: value for name, value in os.environ.items() if not name.startswith(("NIGHTSHIFT", "NOTIFY", "JOURNAL"))}
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    HARDENED,
                    sys.executable,
                    "-m",
                    "assistant",
                    "--config",
                    str(folder / "config.toml"),
                    "watch",
                ],
                stdout=out,
                stderr=out,
                env={**own, "XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder), **environment},
            )

    def says(self, text: str, times: int = 1) -> None:
        until(lambda: self.log.read_text().count(text) >= times, lambda: f"{text!r} in:\n{self.log.read_text()}")

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def until(holds: Callable[[], object], what: Callable[[], str]) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < ends, f"waited {PATIENCE_S:g} s in vain for {what()}"
        time.sleep(0.05)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.toml").write_text(CONFIG.format(folder=tmp_path, poll_s=0.2))
    return tmp_path


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    with Store(folder / "state" / "nightshift.db", SystemClock()) as opened:
        yield opened


@pytest.fixture
def watches(folder: Path) -> Iterator[Callable[..., Watch]]:
    begun: list[Watch] = []

    def begin(**environment: str) -> Watch:
        begun.append(Watch(folder, **environment))
        return begun[-1]

    yield begin
    for one in begun:
        one.end()


def leader_of(store: Store) -> str:
    led = store.leader()
    return led.owner if led is not None and led.until > store.clock.now() else ""


@pytest.mark.slow
def test_it_leads_until_it_is_told_to_end_and_gives_leadership_back(watches: Callable[[], Watch], store: Store) -> None:
    watch = watches()
    until(lambda: leader_of(store), lambda: "a leader")
    assert f":{watch.process.pid}." in leader_of(store)
    watch.process.send_signal(signal.SIGTERM)
    assert watch.process.wait(PATIENCE_S) == 0
    assert leader_of(store) == ""
    assert "the watch has ended" in watch.log.read_text()


@pytest.mark.slow
def test_a_reload_takes_right_settings_and_leaves_wrong_ones(watches: Callable[[], Watch], store: Store, folder: Path) -> None:
    watch = watches()
    watch.says("watches every 0.2 s")
    until(lambda: leader_of(store), lambda: "a leader")
    led = store.leader()
    (folder / "config.toml").write_text('schedule = "local"\n')
    watch.process.send_signal(signal.SIGHUP)
    watch.says("the new settings are wrong, the old ones stay")
    watch.says("did you mean")
    assert watch.process.poll() is None
    (folder / "config.toml").write_text(CONFIG.format(folder=folder, poll_s=0.3))
    watch.process.send_signal(signal.SIGHUP)
    watch.says("watches every 0.3 s")
    until(lambda: leader_of(store), lambda: "a leader")
    now = store.leader()
    assert led is not None
    assert now is not None
    # the same process under new settings: nobody else led meanwhile
    assert (now.owner, now.token) == (led.owner, led.token)
    watch.process.send_signal(signal.SIGTERM)
    assert watch.process.wait(PATIENCE_S) == 0


@pytest.mark.slow
def test_another_watch_takes_over_from_one_that_was_killed(watches: Callable[[], Watch], store: Store) -> None:
    first = watches()
    until(lambda: leader_of(store), lambda: "a leader")
    second = watches()
    second.says("watches every")
    first.process.kill()
    first.process.wait()
    until(lambda: f":{second.process.pid}." in leader_of(store), lambda: "the second to lead")


@pytest.mark.slow
def test_one_that_was_stopped_for_longer_than_its_lease_stands_by_when_it_wakes(watches: Callable[[], Watch], store: Store) -> None:
    first = watches()
    until(lambda: leader_of(store), lambda: "a leader")
    second = watches()
    second.says("watches every")
    first.process.send_signal(signal.SIGSTOP)
    until(lambda: f":{second.process.pid}." in leader_of(store), lambda: "the second to lead")
    first.process.send_signal(signal.SIGCONT)
    first.says("stands by")
    assert f":{second.process.pid}." in leader_of(store)


class Systemd:
    """The socket on which a service manager listens; like it, it takes the word of the main process only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.bind(str(path))
        self.pids: set[int] = set()
        self.last: list[str] = []

    def hears(self, word: str, within_s: float = PATIENCE_S) -> list[str]:
        """Return the datagram that holds a line; what comes before it is dropped."""
        ends = time.monotonic() + within_s
        while (left := ends - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                said, ancillary, *_ = self.socket.recvmsg(65_536, socket.CMSG_SPACE(12))
            except TimeoutError:
                break
            self.pids |= {struct.unpack("iII", data)[0] for _, kind, data in ancillary if kind == socket.SCM_CREDENTIALS}
            self.last = said.decode().splitlines()
            if word in self.last:
                return self.last
        raise AssertionError(f"{word} was not said within {within_s:g} s")

    def forget(self) -> None:
        """Drop all that was said so far."""
        self.socket.setblocking(False)
        try:
            while self.socket.recv(65_536):
                pass
        except BlockingIOError:
            return

    def hears_nothing(self, for_s: float) -> None:
        self.forget()
        self.socket.settimeout(for_s)
        with pytest.raises(TimeoutError):
            self.socket.recv(65_536)


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    made = Systemd(tmp_path / "notify")
    yield made
    made.socket.close()


@pytest.mark.slow
def test_systemd_hears_that_it_is_ready_alive_reloads_and_ends_and_nothing_of_one_that_is_stopped(
    watches: Callable[..., Watch], systemd: Systemd
) -> None:
    watch = watches(NOTIFY_SOCKET=str(systemd.path), WATCHDOG_USEC="600000000")
    first = systemd.hears("READY=1")
    assert "WATCHDOG=1" in first
    assert any(line.startswith("STATUS=leads; last pass ") for line in first)
    for _ in range(3):
        assert "READY=1" not in systemd.hears("WATCHDOG=1", 10), "it is said once"
    watch.process.send_signal(signal.SIGSTOP)
    systemd.hears_nothing(2.0)
    watch.process.send_signal(signal.SIGCONT)
    systemd.hears("WATCHDOG=1", 10)
    watch.process.send_signal(signal.SIGHUP)
    reloading = systemd.hears("RELOADING=1")
    assert any(line.startswith("MONOTONIC_USEC=") for line in reloading)
    systemd.hears("READY=1")
    watch.process.send_signal(signal.SIGTERM)
    systemd.hears("STOPPING=1")
    assert watch.process.wait(PATIENCE_S) == 0
    assert systemd.pids == {watch.process.pid}, "NotifyAccess=main"


@pytest.mark.slow
def test_systemd_hears_no_sign_of_life_of_a_watch_whose_scheduler_does_not_answer(
    watches: Callable[..., Watch], systemd: Systemd, folder: Path
) -> None:
    watches(NOTIFY_SOCKET=str(systemd.path))
    systemd.hears("WATCHDOG=1")
    cluster = folder / "state" / "local" / "cluster.json"
    before = cluster.read_bytes()
    cluster.write_text("damaged")
    time.sleep(1.0)
    systemd.forget()
    with pytest.raises(AssertionError, match="was not said"):
        systemd.hears("WATCHDOG=1", 2.0)
    assert any("degraded: " in line and "is damaged" in line for line in systemd.last), systemd.last
    cluster.write_bytes(before)
    systemd.hears("WATCHDOG=1", 10)
