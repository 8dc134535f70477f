"""Two watches as two processes, as on two hosts: one is lost or sleeps in the middle of a change, the other ends it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assistant.demo.rehearsal import demo_settings
from assistant.ports import SystemClock
from assistant.records import CallStatus, IncidentState, JobState
from assistant.schedulers.local import LocalScheduler
from assistant.store import Store
from assistant.wiring import local_folder

ROOT = Path(__file__).parents[2]
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""OpenBLAS waits for its threads by spinning: where other processes have the cores, a diagnosis took 70 s instead of 2."""
PATIENCE_S = 90.0


def _own_host_names() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--uts", "hostname", "login9"], capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not _own_host_names(), reason="a process may have no host name of its own here (unshare --uts, root)"),
]


class Watch:
    """A watch that believes itself on a host of its own, so that nobody can tell by its process id whether it is gone."""

    def __init__(self, folder: Path, host: str, *, sleeps_at: int = 0) -> None:
        self.host, self.log = host, folder / f"{host}.log"
        command = [sys.executable, "-m", "tests.scenarios.sleeper", str(folder), str(sleeps_at)]
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host, *command],
                cwd=ROOT,
                env={**os.environ, **ONE_THREAD},
                stdout=out,
                stderr=out,
            )

    @property
    def asleep(self) -> bool:
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def says(self, text: str) -> bool:
        return text in self.log.read_text()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()


def until(holds: Callable[[], object], what: str) -> float:
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < PATIENCE_S, f"waited {PATIENCE_S:g} s in vain for {what}"
        time.sleep(0.1)
    return time.monotonic() - began


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(demo_settings(tmp_path / "state").store, SystemClock()) as opened:
        yield opened


@pytest.fixture
def watches(tmp_path: Path, store: Store) -> Iterator[Callable[..., Watch]]:
    begun: list[Watch] = []

    def begin(host: str, **more: int) -> Watch:
        begun.append(Watch(tmp_path, host, **more))
        return begun[-1]

    yield begin
    for one in begun:
        one.end()


def leads(store: Store, host: str) -> bool:
    led = store.leader()
    return led is not None and f"@{host}:" in led.owner and led.until > store.clock.now()


def recovered(store: Store) -> bool:
    return [one.state for one in store.incidents()] == [IncidentState.RECOVERED]


def in_the_middle_of(watch: Watch, store: Store, tool: str) -> None:
    """Wait until it has written what it is about to do and sleeps before doing it."""
    until(lambda: watch.asleep, "the first watch to fall asleep")
    assert [call.tool for call in store.calls(status=CallStatus.INTENT)] == [tool]
    assert leads(store, watch.host)


def one_restart_and_one_cordon(folder: Path, store: Store) -> None:
    cluster = LocalScheduler(local_folder(demo_settings(folder / "state")), SystemClock())
    until(lambda: all(job.state.ended for job in cluster.jobs()), "all jobs to end")
    assert [job.state for job in cluster.jobs()] == [JobState.FAILED, JobState.COMPLETED]
    assert len([node for node in cluster.nodes() if node.reason]) == 1
    assert store.verify() is None


@pytest.mark.timeout(200)
def test_a_leader_that_is_killed_in_a_change_is_followed_within_thirty_seconds_and_nothing_is_done_twice(
    tmp_path: Path, watches: Callable[..., Watch], store: Store
) -> None:
    first = watches("login1", sleeps_at=1)
    in_the_middle_of(first, store, "cordon_node")
    watches("login2")
    os.kill(first.process.pid, signal.SIGKILL)
    assert until(lambda: leads(store, "login2"), "the second to lead") <= 30
    until(lambda: recovered(store), "the second to end it")
    one_restart_and_one_cordon(tmp_path, store)


@pytest.mark.timeout(200)
def test_a_leader_that_wakes_in_a_change_cannot_make_it_any_more(
    tmp_path: Path, watches: Callable[..., Watch], store: Store
) -> None:
    first = watches("login1", sleeps_at=2)
    in_the_middle_of(first, store, "resubmit_job")
    watches("login2")
    until(lambda: leads(store, "login2"), "the second to lead")
    until(lambda: recovered(store), "the second to end it")
    newest = store.newest_row()
    first.process.send_signal(signal.SIGCONT)
    until(lambda: first.says("led and leads no more"), "the first to find out")
    until(lambda: first.says("stands by"), "the first to stand by")
    assert [row for row in store.audit_after(newest, 1_000) if "@login1:" in row.by] == []
    assert leads(store, "login2")
    one_restart_and_one_cordon(tmp_path, store)
