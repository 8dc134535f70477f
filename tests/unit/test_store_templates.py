"""Templates of good runs in the store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assistant.logs.templates import Miner, templates_of
from assistant.ports import JumpingClock
from assistant.store import Store
from assistant.store.past_runs import KEPT_RUNS

AT = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "s.db", JumpingClock(AT)) as store:
        yield store


def state(text: str) -> dict[str, object]:
    miner = Miner()
    miner.add([text])
    return miner.to_json()


def test_the_last_runs_of_a_task_are_kept(store: Store) -> None:
    for run in range(KEPT_RUNS + 3):
        store.keep_templates("ada/llm", str(run), state(f"run{run}"), at=AT + timedelta(hours=run))
    store.keep_templates("bob/llm", "0", state("other"))
    kept = [templates_of(found)[0].examples for found in store.templates("ada/llm")]
    assert kept == [(f"run{run}",) for run in range(KEPT_RUNS + 2, 2, -1)]
    assert store.template_tasks() == {"ada/llm": KEPT_RUNS, "bob/llm": 1}
    assert store.templates("nobody") == []


def test_the_same_run_is_kept_once(store: Store) -> None:
    store.keep_templates("t", "7", state("first"))
    store.keep_templates("t", "7", state("second"))
    assert [templates_of(found)[0].examples for found in store.templates("t")] == [("second",)]


def test_secrets_of_example_lines_do_not_reach_the_disk(store: Store) -> None:
    store.keep_templates("t", "7", state("using HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345"))
    assert "abcdefghijklmnopqrstuvwxyz" not in str(store.templates("t"))
