"""Restarts of a shared cause have soft limits of their own where the policy names them; no hard limit is passed by them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assistant.errors import NightshiftError
from assistant.policy import ChangeLimits, KindTerms, Mode, Policy, Request, Situation, decide, hourly_hard_limit, load_policy_files
from assistant.records import Risk, Verdict

NOW = datetime(2026, 3, 10, 3, 0, tzinfo=UTC)
TERMS = KindTerms(
    soft=ChangeLimits(per_hour=6, per_day=20),
    hard=ChangeLimits(per_hour=20, per_day=60),
    shared_cause=ChangeLimits(per_hour=15, per_day=30),
)
POLICY = Policy(
    mode=Mode.ACT, soft=ChangeLimits(per_hour=12), hard=ChangeLimits(per_hour=18, per_day=120), kind={"resubmit": TERMS}
)
WITHOUT = replace(POLICY, kind={"resubmit": replace(TERMS, shared_cause=ChangeLimits())})
MEMBER = Request(Risk.CHANGE, "resubmit", "playbook:restart", shared_cause=7)


@dataclass
class Change:
    at: datetime
    kind: str = "resubmit"
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)


def after(count: int, *, apart_s: float = 20, kind: str = "resubmit") -> Situation:
    return Situation(NOW, past=[Change(NOW - timedelta(seconds=apart_s * (number + 1)), kind) for number in range(count)])


@pytest.mark.parametrize(
    ("request_", "policy", "done", "verdict", "rule"),
    [
        (MEMBER, POLICY, 5, Verdict.ALLOW, "mode.act"),
        (MEMBER, POLICY, 6, Verdict.ALLOW, "shared_cause"),
        (MEMBER, POLICY, 14, Verdict.ALLOW, "shared_cause"),  # beyond the soft limit over all classes, too
        (MEMBER, POLICY, 15, Verdict.ASK, "kind.resubmit.shared_cause.per_hour"),
        (MEMBER, POLICY, 18, Verdict.DENY, "hard.per_hour"),
        (MEMBER, POLICY, 20, Verdict.DENY, "kind.resubmit.hard.per_hour"),
        (replace(MEMBER, shared_cause=None), POLICY, 6, Verdict.ASK, "kind.resubmit.soft.per_hour"),
        (replace(MEMBER, kind="cancel"), POLICY, 12, Verdict.ASK, "soft.per_hour"),
        (replace(MEMBER, by="agent"), POLICY, 6, Verdict.ASK, "agent"),
        (MEMBER, replace(POLICY, mode=Mode.PROPOSE), 0, Verdict.ASK, "mode.propose"),
        (MEMBER, replace(POLICY, mode=Mode.OBSERVE), 0, Verdict.DENY, "mode.observe"),
        (MEMBER, WITHOUT, 6, Verdict.ASK, "kind.resubmit.soft.per_hour"),
    ],
)  # fmt: skip
def test_what_is_decided_about_one_more_restart(request_: Request, policy: Policy, done: int, verdict: Verdict, rule: str) -> None:
    situation = after(done, kind="resubmit" if request_.kind == "resubmit" else "other")
    decision = decide(request_, policy, situation)
    assert (decision.verdict, decision.rule) == (verdict, rule)


def test_what_stops_everything_stops_members_of_a_shared_cause() -> None:
    for stopped in (
        replace(after(6), stopped_by="/etc/nightshift/stop"),
        replace(after(6), breaker="open"),
        replace(after(6), policy_problem="cut off"),
    ):
        assert decide(MEMBER, POLICY, stopped).verdict is Verdict.DENY


def test_a_member_never_gets_what_a_hard_limit_refuses_anybody() -> None:
    for done in range(40):
        alone = decide(replace(MEMBER, shared_cause=None), POLICY, after(done, apart_s=60))
        member = decide(MEMBER, POLICY, after(done, apart_s=60))
        assert (alone.verdict is Verdict.DENY) == (member.verdict is Verdict.DENY), done


def test_the_hour_that_is_used_up_is_told() -> None:
    assert hourly_hard_limit("resubmit", POLICY, after(17)) == ""
    assert hourly_hard_limit("resubmit", POLICY, after(18)).startswith("hard.per_hour")


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ("{ per_hour = 15 }", "per_day is missing"),
        ("{ per_day = 15 }", "per_hour is missing"),
        ("{ per_hour = 21, per_day = 40 }", "hard.per_hour allows only 20"),
        ("{ per_hour = 20, per_day = 61 }", "hard.per_day allows only 60"),
        ("{ per_hour = -1, per_day = 40 }", "must not be negative"),
        ('{ per_hour = "many", per_day = 40 }', "per_hour"),
        ("{ an_hour = 20 }", "an_hour"),
        ("{ per_hour = 20, per_day = 40 }", ""),
    ],
)
def test_limits_for_a_shared_cause_that_mean_nothing_are_refused(tmp_path: Path, limits: str, words: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(f'extends = "shipped"\n[kind.resubmit]\nshared_cause = {limits}\n[end]\n')
    if words:
        with pytest.raises(NightshiftError, match=words):
            load_policy_files(path)
    else:
        shared = load_policy_files(path).policy.terms("resubmit").shared_cause
        assert (shared.per_hour, shared.per_day) == (20, 40)
