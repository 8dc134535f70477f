"""The watch over the development logs: it calls a loss lost where the label says so, and nothing else anything."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.logs.tail import LogFollower
from assistant.records import Job, JobState
from assistant.watch.hang import HangLimits
from assistant.watch.progress import PaceLimits, SaveLimits, SpikeLimits
from assistant.watch.view import View, ViewLimits

DEV = Path(__file__).parents[3] / "shared" / "bench" / "dev"
START = datetime(2026, 1, 5, tzinfo=UTC)
LIMITS = ViewLimits(HangLimits(1800, 5), SpikeLimits(50), PaceLimits())

pytestmark = pytest.mark.skipif(not DEV.is_dir(), reason="the labelled logs lie beside the checkout, in ../shared/bench/dev")


def _number(label: dict[str, Any]) -> str:
    return str(label["id"]).rpartition("/")[2]


def seen(log: Path) -> set[str]:
    job = Job("1", "x", "alice", JobState.RUNNING, "gpu", ("n",), log, None, START, START, None, None, None)
    view, now = View(job, LIMITS, _follower=LogFollower(log)), START + timedelta(seconds=60)
    view.read(now)
    later = now + timedelta(seconds=60)
    found = {"loss_spike": view.spike, "hang": view.suspicion(later), "slow": view.pace.slow(later)}
    found["late"] = view.saves.late(SaveLimits(), later)  # type: ignore[assignment]
    return {name for name, sign in found.items() if sign is not None}


@pytest.mark.parametrize("suite", ["infrastructure", "software"])
def test_only_losses_that_ran_away_are_called(suite: str) -> None:
    labels = [json.loads(line) for line in (DEV / suite / "labels.jsonl").read_text().splitlines()]
    logs = [(label, DEV / suite / _number(label) / "job.log") for label in labels]
    wrong = {
        label["id"]: (said, label["reason"])
        for label, log in logs
        if log.is_file() and (said := seen(log)) and not (said == {"loss_spike"} and label["reason"] == "loss_spike")
    }
    assert wrong == {}


def test_every_loss_that_ran_away_is_called() -> None:
    labels = [json.loads(line) for line in (DEV / "infrastructure" / "labels.jsonl").read_text().splitlines()]
    lost = [DEV / "infrastructure" / _number(label) / "job.log" for label in labels if label["reason"] == "loss_spike"]
    assert [log for log in lost if seen(log) != {"loss_spike"}] == []
