"""The policy decides as the cases in tests/cases/policy say; each file is one policy and the questions asked of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.content.reading import build, read_toml
from assistant.errors import ContentError
from assistant.policy import Mode, Policy, Request, Situation, Targets, decide, load_policy
from assistant.records import Node, NodeState, Risk, Verdict

CASES = Path(__file__).parent.parent / "cases" / "policy"


@dataclass(frozen=True)
class PastChange:
    kind: str
    minutes_ago: float
    nodes: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    now: datetime = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)

    @property
    def at(self) -> datetime:
        return self.now - timedelta(minutes=self.minutes_ago)

    @property
    def targets(self) -> Mapping[str, Sequence[str]]:
        return {"nodes": self.nodes, "jobs": self.jobs}


@dataclass(frozen=True)
class Case:
    name: str
    verdict: Verdict
    rule: str
    kind: str = "cordon"
    risk: str = "change"
    by: str = "playbook:ecc_error"
    approved_by: str | None = None
    targets: Targets = field(default_factory=Targets)
    now: datetime = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
    """A Tuesday."""
    past: tuple[PastChange, ...] = ()
    stopped_by: str | None = None
    breaker: str = ""
    why: str = ""
    """Words that the reason must hold."""
    out: tuple[str, ...] = ()
    """Nodes that are down."""


@dataclass(frozen=True)
class CaseFile:
    policy: Policy
    case: tuple[Case, ...]
    fleet: Mapping[str, Any] = field(default_factory=dict)
    """Number of nodes by partition, named <partition>01, …"""
    per_rack: int = 0
    """Nodes of a partition that stand in one rack, named <partition>-rack1, …; 0: no rack is known."""


def cases() -> list[Any]:
    found = []
    for path in sorted(CASES.glob("*.toml")):
        file = build(CaseFile, read_toml(path), path)
        found += [pytest.param(file, case, id=f"{path.stem}: {case.name}") for case in file.case]
    return found


def fleet(file: CaseFile, case: Case) -> list[Node]:
    names = [(f"{partition}{number:02}", partition) for partition, size in file.fleet.items() for number in range(1, size + 1)]
    return [Node(name, NodeState.DOWN if name in case.out else NodeState.IDLE, partition) for name, partition in names]


def racks(file: CaseFile) -> dict[str, str]:
    sizes = {partition: int(size) for partition, size in file.fleet.items()} if file.per_rack else {}
    return {
        f"{partition}{number:02}": f"{partition}-rack{(number - 1) // file.per_rack + 1}"
        for partition, size in sizes.items()
        for number in range(1, size + 1)
    }


@pytest.mark.parametrize(("file", "case"), cases())
def test_the_policy_decides_as_the_case_says(file: CaseFile, case: Case) -> None:
    request = Request(Risk[case.risk.upper()], case.kind, case.by, case.targets, case.approved_by)
    situation = Situation(case.now, fleet(file, case), case.past, case.stopped_by, case.breaker or None, racks(file))
    decision = decide(request, file.policy, situation)
    assert (decision.verdict, decision.rule) == (case.verdict, case.rule), decision.why
    assert case.why in decision.why
    assert decision.at == case.now


def test_the_shipped_policy_observes_and_can_be_read() -> None:
    policy = load_policy()
    assert policy.mode == "observe"
    assert all(policy.mode_of(kind) == "observe" for kind in policy.kind)
    assert policy.kill_switch


def test_a_site_without_extends_replaces_the_policy_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "knowledge").mkdir()
    (tmp_path / "knowledge" / "policy.toml").write_text('mode = "propose"\n[end]\n')
    assert load_policy(tmp_path) == Policy(mode=Mode.PROPOSE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('mode = "acts"', "1: mode: 'acts' is none of: observe, propose, act; did you mean 'act'?"),
        ("min_healthy_share = 70", "min_healthy_share is a share, 0 to 1, not 70"),
        ("[kind.cordon]\nhard = { per_hours = 3 }", "2: per_hours: unknown key; did you mean 'per_hour'?"),
        ("[kind.cordon]\nhard = { per_hour = -3 }", "per_hour must not be negative"),
        ('[[window]]\nname = "a"', "window 'a' needs either start and end, or days"),
        ('[[window]]\nname = "a"\ndays = ["tuesday"]', "'tuesday' is no day"),
        ('[[window]]\nname = "a"\ndays = ["tue"]\nopens = "25:00"', "'25:00' is no time of day"),
        ('[[window]]\nname = "a"\nstart = 2026-01-01T00:00:00\nend = 2026-01-02T00:00:00', "write the time with its offset"),
        ('[[window]]\nname = "a"\nstart = 2026-01-02T00:00:00Z\nend = 2026-01-01T00:00:00Z', "ends before it starts"),
        (
            '[[window]]\nname = "a"\nstart = 0001-01-01T00:00:00+23:59\nend = 9999-12-31T23:59:59-23:59',
            "wanted a year from 1970 to 9998, found 1",
        ),
        ('[[protected]]\nwhy = "x"\nnodes = ["gpu[1-"]', "a bracket is not closed"),
        ('[[protected]]\nnodes = ["a"]', "key 'why' is missing"),
    ],
)
def test_a_mistake_in_the_policy_names_its_place(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "knowledge").mkdir()
    (tmp_path / "knowledge" / "policy.toml").write_text(f"{text}\n[end]\n")
    with pytest.raises(ContentError) as caught:
        load_policy(tmp_path)
    assert message in str(caught.value)
    assert "policy.toml" in str(caught.value)
