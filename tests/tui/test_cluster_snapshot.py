"""What the scheduler says, ordered and counted for the screens."""

from __future__ import annotations

from datetime import UTC, datetime

from assistant.records import Job, JobState, Node, NodeState
from assistant.tui.snapshot import cluster_snapshot_of

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def job(number: int, state: JobState) -> Job:
    return Job(str(number), "llm", "ada", state, "gpu", (), None, None, None, None, None, None, None)


def node(name: str, state: NodeState, reason: str = "") -> Node:
    return Node(name, state, "gpu", reason=reason)


def test_jobs_stand_as_an_operator_wants_them() -> None:
    states = (
        JobState.COMPLETED, JobState.PENDING, JobState.RUNNING, JobState.CANCELLED, JobState.FAILED, JobState.UNKNOWN,
        JobState.OUT_OF_MEMORY, JobState.RUNNING,
    )  # fmt: skip
    seen = cluster_snapshot_of(NOW, [job(number, state) for number, state in enumerate(states)], [])
    assert [one.id for one in seen.foremost] == ["4", "6", "2", "5", "7", "1", "3", "0"]
    assert [one.id for one in seen.jobs] == [str(number) for number in range(8)]
    assert seen.states == {
        JobState.COMPLETED: 1, JobState.PENDING: 1, JobState.RUNNING: 2, JobState.CANCELLED: 1, JobState.FAILED: 1,
        JobState.UNKNOWN: 1, JobState.OUT_OF_MEMORY: 1,
    }  # fmt: skip


def test_nodes_are_grouped_by_state_and_reason_what_is_out_first() -> None:
    nodes = [
        node("n1", NodeState.IDLE),
        node("n2", NodeState.ALLOCATED),
        node("n3", NodeState.DRAINED, "disk"),
        node("n4", NodeState.DRAINED, "gpu"),
        node("n5", NodeState.DRAINED, "gpu"),
        node("n6", NodeState.UNKNOWN),
        node("n7", NodeState.DOWN),
        node("n8", NodeState.DRAINING, "gpu"),
    ]
    seen = cluster_snapshot_of(NOW, [], nodes)
    assert list(seen.groups.items()) == [
        ((NodeState.DOWN, ""), ("n7",)),
        ((NodeState.DRAINED, "gpu"), ("n4", "n5")),
        ((NodeState.DRAINED, "disk"), ("n3",)),
        ((NodeState.DRAINING, "gpu"), ("n8",)),
        ((NodeState.UNKNOWN, ""), ("n6",)),
        ((NodeState.ALLOCATED, ""), ("n2",)),
        ((NodeState.IDLE, ""), ("n1",)),
    ]
    assert seen.out == 5
