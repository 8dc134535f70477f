"""The first line in the cells that there are: what is wrong is never left out, what can be spared goes in a sensible order."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from assistant.overall_state import OverallState, SchedulerFacts, StoreFacts, SystemFacts, judge, longest_gap
from assistant.records import Job, JobState, Node, NodeState
from assistant.tui.first_line import first_line
from assistant.tui.snapshot import ClusterSnapshot, StoreSnapshot, cluster_snapshot_of

NOW = datetime(2026, 3, 1, 6, 0, tzinfo=UTC)
GAP = longest_gap(30.0)
FACTS = StoreFacts(
    leader="watch@login1:1.1",
    watch="watch@login1:1.1",
    since=NOW - timedelta(hours=2),
    last_look=NOW,
    last_whole_look=NOW,
    mode="propose",
    mode_now="propose",
    policy="3fa9c1d2" + "0" * 56,
    policy_now="3fa9c1d2" + "0" * 56,
)
JOB = Job("7", "llm", "ada", JobState.RUNNING, "gpu", (), None, None, None, None, None, None, None)
CLUSTER = cluster_snapshot_of(NOW, [JOB], [Node(f"n{n}", NodeState.IDLE, "gpu") for n in range(128)], name="hpc1")
ANSWERS = "embedded model, no language model"


def drawn(width: int, facts: StoreFacts = FACTS, cluster: ClusterSnapshot = CLUSTER, trouble: str = "") -> str:
    return first_line(
        judged(facts, cluster, trouble),
        cluster,
        StoreSnapshot(NOW, facts=facts),
        now=NOW,
        account="alice",
        mode="observe",
        answers=ANSWERS,
        width=width,
    ).content.plain


def judged(facts: StoreFacts, cluster: ClusterSnapshot, trouble: str = "") -> OverallState:
    scheduler = SchedulerFacts(cluster.at, cluster.trouble)
    return judge(SystemFacts(NOW, GAP, facts, trouble, scheduler, cluster.configured))


def test_with_room_all_of_it_stands_there() -> None:
    text = drawn(200)
    for words in (" Nightshift  hpc1  alice  nothing is wrong  1 running  128 nodes  watch asks first  since ", "policy 3fa9c1d2"):
        assert words in text
    assert text.endswith(ANSWERS)


def test_at_80_columns_cluster_account_watch_and_its_age_stand_there() -> None:
    text = drawn(80)
    for words in ("hpc1", "alice", "nothing is wrong", "1 running", "128 nodes", "watch asks first"):
        assert words in text
    assert ANSWERS not in text


def test_what_can_be_spared_goes_in_this_order() -> None:
    words = [ANSWERS, "Nightshift", "policy 3fa9c1d2", "since ", "alice", "128 nodes", "1 running", "watch asks first", "hpc1"]
    gone = [[word for word in words if word not in drawn(width)] for width in range(200, 15, -1)]
    for narrower, wider in zip(gone[1:], gone, strict=False):
        assert narrower[: len(wider)] == wider or set(wider) <= set(narrower)
    first_gone = sorted(words, key=lambda word: next((at for at, missing in enumerate(gone) if word in missing), 999))
    assert first_gone == words
    assert drawn(16) == "nothing is wrong"


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_what_is_wrong_is_never_left_out(width: int) -> None:
    silent = replace(CLUSTER, trouble="squeue: did not answer")
    text = drawn(width, replace(FACTS, unacknowledged=1), silent)
    assert "! scheduler silent" in text
    assert "handed over" in text
    assert "nothing is wrong" not in text
    assert "128 nodes" not in text, "counts of a scheduler that is silent are not current"


def test_a_long_trouble_is_cut_at_its_end_and_the_line_stays_one() -> None:
    text = drawn(80, trouble=f"/var/lib/{'a' * 90}/nightshift.db: the store is gone; bring {'b' * 90} back")
    assert text.startswith("! the store is gone; bring bbb"), "what is wrong, before where"
    assert len(text) <= 80
    assert "nothing is wrong" not in text


def test_an_old_answer_of_the_scheduler_has_its_age() -> None:
    assert "! scheduler's answer 45 s old" in drawn(80, cluster=replace(CLUSTER, at=NOW - timedelta(seconds=45)))
    assert "old" not in drawn(80, cluster=replace(CLUSTER, at=NOW - timedelta(seconds=12)))


def test_a_watch_that_is_dead_is_no_watch() -> None:
    dead = replace(FACTS, leader=None, last_look=NOW - timedelta(hours=3), last_whole_look=NOW - timedelta(hours=3))
    text = drawn(120, dead)
    assert "! no watch for 3 h" in text
    assert "watch asks first" not in text
    assert "this chat observes" in text


def test_no_cluster_has_no_name_and_no_nodes() -> None:
    text = drawn(120, cluster=cluster_snapshot_of(NOW, [], CLUSTER.nodes, name="local", configured=False))
    assert "no cluster yet" in text
    for words in ("nothing is wrong", "local", "nodes"):
        assert words not in text


def test_a_click_leads_to_what_is_counted() -> None:
    facts = replace(FACTS, open_incidents=1, approvals=2)
    line = first_line(
        judged(facts, CLUSTER), CLUSTER, StoreSnapshot(NOW, facts=facts), now=NOW, account="a", mode="", answers="", width=160
    )
    words = {place.panel: line.content.plain[place.first : place.end] for place in line.places}
    assert words["incidents"] == "1 incident"
    assert words["approvals"] == "2 wait for you"
