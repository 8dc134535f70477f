"""`nightshift watch` as a real process: signals, a bad reload, a second watch that takes over, and what it leaves behind."""

from __future__ import annotations

import os
import signal
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


class Watch:
    """A watch in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / f"watch-{time.monotonic_ns()}.log"
        own = {name: value for name, value in os.environ.items() if not name.startswith(("NIGHTSHIFT", "NOTIFY", "JOURNAL"))}
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "assistant", "--config", str(folder / "config.toml"), "watch"],
                stdout=out,
                stderr=out,
                env={**own, "XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)},
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
def watches(folder: Path) -> Iterator[Callable[[], Watch]]:
    begun: list[Watch] = []

    def begin() -> Watch:
        begun.append(Watch(folder))
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
