"""How often a root cause may be answered with a restart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from assistant.content.playbooks import PlaybookLimits
from assistant.records import Action, Category, Citation, DecidedBy, Diagnosis
from assistant.recover.directives import Directives, failing_step, fingerprint, made_progress, normalised, restart_budget

NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Restart:
    """As the store keeps one."""

    step: int | None
    at: datetime


def diagnosis(line: str = "CUDA error: ECC", step: int | None = 900, category: Category = Category.INFRASTRUCTURE) -> Diagnosis:
    root = (Citation("job.log", 12, line, "ecc_error.cuda"),)
    action = Action.CORDON_AND_RESTART
    return Diagnosis("ecc_error", category, action, 0.9, DecidedBy.RULE, root, (), (), "ECC", "swap it", step=step)


def past(*steps: int | None, hours_ago: float = 1.0) -> list[Restart]:
    return [Restart(step, NOW - timedelta(hours=hours_ago)) for step in steps]


@pytest.mark.parametrize(
    ("before", "onset", "allowed"),
    [(1000, 1000, False), (985, 1000, False), (1015, 1000, False), (700, 1000, True), (None, 1000, True)],
)
def test_a_loss_that_jumps_again_at_the_same_step_is_for_a_person(before: int | None, onset: int, allowed: bool) -> None:
    spiked = replace(diagnosis(step=1060, category=Category.NONE), reason="loss_spike", spike_step=onset)
    assert failing_step(spiked) == onset
    budget = restart_budget(spiked, past(before), PlaybookLimits(attempts=2, within_h=72), now=NOW)
    assert budget.allowed is allowed, budget.why


@pytest.mark.parametrize(
    ("restarts", "limits", "said", "allowed", "words"),
    [
        (past(), PlaybookLimits(), Directives(), True, "restart 1 of 3"),
        (past(100, 500), PlaybookLimits(), Directives(), True, "restart 3 of 3"),
        (past(100, 300, 500), PlaybookLimits(), Directives(), False, "its playbook allows 3"),
        (past(100, 300, 500, hours_ago=25), PlaybookLimits(), Directives(), True, "restart 1 of 3"),
        (past(100), PlaybookLimits(), Directives(restarts=1), False, "the job's script allows 1"),
        (past(100, 200, 300), PlaybookLimits(), Directives(restarts=10), False, "its playbook allows 3"),
        (past(), PlaybookLimits(), Directives(act="never"), False, "act=never"),
        (past(100), PlaybookLimits(attempts=1), Directives(), False, "1 restart for this root cause"),
        (past(900, 900), PlaybookLimits(), Directives(), False, "crash loop: ecc_error at step 900 for the third time"),
        (past(900), PlaybookLimits(), Directives(), True, "restart 2 of 3"),
        (past(None, None), PlaybookLimits(), Directives(), True, "restart 3 of 3"),
    ],
)
def test_a_restart_is_allowed_while_the_budget_lasts(
    restarts: list[Restart], limits: PlaybookLimits, said: Directives, allowed: bool, words: str
) -> None:
    budget = restart_budget(diagnosis(), restarts, limits, now=NOW, directives=said)
    assert budget.allowed is allowed
    assert words in budget.why


def test_what_the_jobs_own_code_does_twice_at_a_step_is_a_crash_loop() -> None:
    budget = restart_budget(diagnosis(category=Category.FRAMEWORK), past(900), PlaybookLimits(), now=NOW)
    assert (budget.allowed, budget.why) == (False, "crash loop: ecc_error at step 900 for the second time")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("[rank3]: RuntimeError: CUDA error: ECC", "[rank11]: RuntimeError: CUDA error: ECC"),
        ("node02: NVRM: Xid (PCI:0000:0f:00): 48, pid=123", "gpu-17: NVRM: Xid (PCI:0000:3b:00): 48, pid=99"),
        ("2026-02-11 03:12:44,120 worker died", "2026-03-01 11:00:01,007 worker died"),
        ("FileNotFoundError: /data/a/shard_001.bin", "FileNotFoundError: /data/b/shard_002.bin"),
        ("connect to node01:29500 failed", "connect to node09:29512 failed"),
        ("bad address 0x7f001122", "bad address 0x7fffaa10"),
    ],
)
def test_the_same_cause_elsewhere_has_the_same_fingerprint(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)
    assert fingerprint(diagnosis(one)) == fingerprint(diagnosis(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [("CUDA error: ECC", "CUDA error: launch failure"), ("KeyError: 'loss'", "KeyError: 'tokens'"), ("out of memory", "")],
)
def test_another_cause_has_another_fingerprint(one: str, other: str) -> None:
    assert fingerprint(diagnosis(one)) != fingerprint(diagnosis(other))


def test_another_reason_has_another_fingerprint() -> None:
    assert fingerprint(diagnosis()) != fingerprint(replace(diagnosis(), reason="nvlink_error"))


@pytest.mark.parametrize(
    ("failed", "reached", "made"), [(100, 110, True), (100, 109, False), (None, 500, False), (100, None, False), (0, 10, True)]
)
def test_progress_is_a_step_well_past_the_failing_one(failed: int | None, reached: int | None, made: bool) -> None:
    assert made_progress(failed, reached) is made
