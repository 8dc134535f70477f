"""A real SIGKILL of a real process, real jobs on the embedded scheduler, and another process that goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from assistant.demo.rehearsal import demo_settings
from assistant.ports import SystemClock
from assistant.records import IncidentState, JobState
from assistant.schedulers.local import LocalScheduler
from assistant.store import Store
from assistant.wiring import local_folder


def look_after(folder: Path, write: int) -> int:
    command = [sys.executable, "-m", "tests.scenarios.mortal", str(folder), str(write)]
    return subprocess.run(command, cwd=Path(__file__).parents[2], timeout=110, check=False, capture_output=True).returncode


@pytest.mark.slow
@pytest.mark.parametrize("write", [3, 14, 19, 22, 25, 29, 34])
def test_another_process_goes_on_after_a_sigkill(tmp_path: Path, write: int) -> None:
    assert look_after(tmp_path, write) == -signal.SIGKILL
    assert look_after(tmp_path, 0) == 0
    settings, clock = demo_settings(tmp_path / "state"), SystemClock()
    with Store(settings.store, clock) as store:
        (incident,) = store.incidents()
        assert incident.state is IncidentState.RECOVERED, incident.note
        assert store.verify() is None
    cluster = LocalScheduler(local_folder(settings), clock)
    assert [job.state for job in cluster.jobs()] == [JobState.FAILED, JobState.COMPLETED]
    assert len([node for node in cluster.nodes() if node.reason]) == 1
