"""How often to save: the formulas, and where cost and failures are read from."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.recover.checkpoints.interval import SaveCost, advise, daly, lost_share, of_cluster, of_task, save_cost, young
from assistant.recover.checkpoints.inventory import inventory

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

COSTS = st.floats(0.01, 3_600)
BETWEEN = st.floats(3_600, 3e6)


@given(cost=COSTS, between=BETWEEN, factor=st.floats(0.2, 5))
def test_no_other_interval_loses_less_than_youngs(cost: float, between: float, factor: float) -> None:
    best = young(cost, between)
    if lost_share(best, cost, between) < 1:
        assert lost_share(best, cost, between) <= lost_share(best * factor, cost, between) + 1e-12


def test_the_formulas_give_what_their_papers_do() -> None:
    assert young(300, 86_400) == pytest.approx(7200)
    share = 300 / (2 * 86_400)
    assert daly(300, 86_400) == pytest.approx(7200 * (1 + math.sqrt(share) / 3 + share / 9) - 300)
    assert daly(7200, 3600) == 3600


@given(cost=st.floats(0.01, 1), between=BETWEEN)
def test_young_and_daly_agree_where_saves_are_cheap(cost: float, between: float) -> None:
    assert daly(cost, between) == pytest.approx(young(cost, between), rel=0.02)


def test_a_minute_and_a_save_cost_gpu_hours() -> None:
    failures = of_task([NOON + timedelta(hours=12 * number) for number in range(5)], "llm")
    assert failures is not None
    assert (failures.between_s, failures.how) == (43_200, "5 failures of llm since 2026-03-01")
    advice = advise(SaveCost(9.0, 0.0, None, ""), failures, gpus=1000)
    assert advice.gpu_hours_a_save == pytest.approx(2.5)
    assert advice.gpu_hours_a_minute == pytest.approx(2 * 1000 * 0.5 / 60), "two failures a day, half a minute more each"
    assert advice.gpu_hours_a_day(advice.every_s) == pytest.approx(24_000 * 2 * 9 / advice.every_s)


def test_the_interval_is_never_shorter_than_a_save_takes_in_the_background() -> None:
    failures = of_task([NOON, NOON + timedelta(hours=1), NOON + timedelta(hours=2)], "llm")
    assert failures is not None
    assert advise(SaveCost(0.01, 120.0, None, ""), failures, 8).every_s == 120.0


def test_too_few_failures_tell_nothing() -> None:
    assert of_task([NOON, NOON + timedelta(days=1)], "llm") is None
    assert of_task([NOON] * 3, "llm") is None
    assert of_cluster([NOON] * 2, now=NOON + timedelta(days=1), nodes=1, cluster_nodes=9) is None


def test_a_wider_job_fails_more_often() -> None:
    times = [NOON, NOON, NOON, NOON]
    narrow, wide = (of_cluster(times, now=NOON + timedelta(days=4), nodes=nodes, cluster_nodes=64) for nodes in (4, 32))
    assert narrow is not None
    assert wide is not None
    assert narrow.between_s == 8 * wide.between_s == 16 * 86_400


def checkpoint(root: Path, step: int, save: object) -> None:
    folder = root / f"iter_{step:07}"
    folder.mkdir(parents=True)
    said = {"format": "nightshift", "version": 2, "step": step, "world": 1, "files": {}, "save": save}
    (folder / "manifest.json").write_text(json.dumps(said))


def test_the_cost_is_read_off_manifests_without_the_wait_for_the_save_before(tmp_path: Path) -> None:
    for step, blocked, wait in ((1, 0.5, 0.0), (2, 9.0, 8.6), (3, 0.3, 0.0)):
        checkpoint(tmp_path, step, {"blocked_s": blocked, "wait_s": wait, "persist_s": 7.0})
    checkpoint(tmp_path, 4, "nonsense")
    cost = save_cost(inventory(tmp_path, now=NOON), tmp_path / "metrics.jsonl", ())
    assert cost is not None
    assert (round(cost.blocked_s, 6), cost.persist_s, cost.how) == (0.4, 7.0, "the median of 3 saves, from their manifests")


def test_else_off_metrics_and_else_off_the_log(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text('{"step": 1, "save_s": 0.0}\n{"step": 2, "save_s": 4.0}\n{"save_s"\n{"step": 3, "save_s": 6.0}\n')
    log = [
        "[2026-03-01 12:00:00] saving checkpoint at iteration 100 to /ckpt",
        "[2026-03-01 12:00:42] successfully saved checkpoint at iteration 100 to /ckpt",
        "[2026-03-01 12:05:42] iteration 101 | lm loss 2.0",
    ]
    of_metrics, of_log = save_cost(None, metrics, log), save_cost(None, None, log)
    assert of_metrics is not None
    assert of_log is not None
    assert (of_metrics.blocked_s, of_metrics.how) == (5.0, "the median of 2 saves, from metrics.jsonl")
    assert (of_log.blocked_s, of_log.how) == (42.0, "the median of 1 saves, from the times in its log")
    assert save_cost(None, None, log[2:]) is None
