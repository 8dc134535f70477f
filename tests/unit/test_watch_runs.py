"""The watch beside whole training runs, hour by hour: nothing is said of healthy ones, and each fault is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench._training_runs import PROGRAMS, Plan, Replay, healthy
from bench.watch_detectors import watcher_of

STEADY = Plan("megatron", 2.0, 1, 60.0, 120.0, 2.5, save_every=100, save_s=5.0)


def test_nothing_is_said_of_healthy_runs(tmp_path: Path) -> None:
    plans = [replace(plan, hours=min(plan.hours, 3.0)) for plan in healthy(16, seed=11)]
    assert [(event.kind, dict(event.detail)) for event, _ in Replay(tmp_path, plans, watcher_of).run()] == []


FAULTS: dict[str, tuple[dict[str, object], str, float]] = {
    "silent": ({"hangs_at": 500}, "hang", 32),
    "chatter": ({"hangs_at": 500, "chatters": True}, "hang", 32),
    "heartbeat": ({"hangs_at": 550, "chatters": True, "beats": True}, "hang", 12),
    "spike": ({"spikes_at": 500, "height": 3.0}, "loss_spike", 4),
    "nan": ({"spikes_at": 500, "not_a_number": True}, "loss_spike", 1),
    "slow": ({"slow_at": 900, "slow_by": 2.5}, "slow_job", 30),
    "unsaved": ({"no_saves_after": 500}, "checkpoints_late", 20),
}


def faults_of_programs() -> Iterator[object]:
    """Yield every fault with every program; every third pair, with each fault and each program, is among the fast tests."""
    for number, program in enumerate(PROGRAMS):
        for fault, (place, case) in zip(FAULTS, enumerate(FAULTS.values()), strict=True):
            marks = [pytest.mark.slow] if (number + place) % 3 else []
            yield pytest.param(program, *case, id=f"{program}-{fault}", marks=marks)


@pytest.mark.parametrize(("program", "changes", "kind", "within_min"), list(faults_of_programs()))
def test_a_fault_is_noticed_in_every_program_s_log(
    tmp_path: Path, program: str, changes: dict[str, object], kind: str, within_min: float
) -> None:
    plan = replace(STEADY, program=program, **changes)  # type: ignore[arg-type]
    replay = Replay(tmp_path, [plan], watcher_of)
    replay.run()
    ((seen_s, event),) = replay.seen
    assert event.kind == kind
    assert 0 <= (seen_s - replay.began[0][0]) / 60 <= within_min
