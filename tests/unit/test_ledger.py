"""The ledger of nodes: what counts as more than chance, what fades, what never speaks."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assistant.diagnose.learning.ledger import HALF_LIFE, RARE, patterns, scores
from assistant.engine.node_ledger import traits_of
from assistant.ports import JumpingClock
from assistant.records import Event, EventKind, Node, NodeState, PatternKind, Sighting
from assistant.store import Store

NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
FLEET = {f"gpu{n:03}": {"rack": f"rack{n // 16}", "partition": "train"} for n in range(128)}
NODES = sorted(FLEET)


def job(
    incident: int, nodes: Sequence[str], blamed: Sequence[str] = (), *, days: float = 1, heat: dict[str, float] | None = None
) -> list[Sighting]:
    at, heat = NOW - timedelta(days=days), heat or {}
    return [
        Sighting(
            node,
            incident,
            at,
            "ecc_error" if node in blamed else "nccl_timeout_error",
            node in blamed,
            len(nodes),
            FLEET[node],
            {"gpu": heat[node]} if node in heat else {},
        )
        for node in nodes
    ]


def kinds(sightings: Sequence[Sighting], nodes: Sequence[str], incident: int | None = None) -> set[tuple[PatternKind, str]]:
    found = patterns(sightings, nodes, FLEET, NOW, incident)
    return {(one.kind, node) for one in found for node in one.nodes}


def test_a_blame_counts_half_after_each_half_life_and_the_worst_node_comes_first() -> None:
    seen = [*job(1, NODES[:4], NODES[:1], days=28), *job(2, NODES[:4], NODES[1:2], days=0), *job(3, NODES[:4], days=0)]
    worst, second, *rest = scores(seen, NOW)
    assert (worst.node, worst.score, worst.present) == ("gpu001", 1.0, 3)
    assert second.node == "gpu000"
    assert second.score == pytest.approx(0.5 ** (timedelta(days=28) / HALF_LIFE))
    assert [score.score for score in rest] == [0, 0]


def test_a_clock_that_jumped_back_makes_no_blame_weigh_more_than_one() -> None:
    assert scores(job(1, NODES[:2], NODES[:1], days=-40), NOW)[0].score == 1.0


def test_a_node_that_was_to_blame_before_is_named_with_its_incidents_unless_it_is_long_ago_or_not_of_this_job() -> None:
    seen = [*job(4, NODES[:8], NODES[3:4], days=5), *job(9, NODES[:8], NODES[3:4], days=2)]
    [found] = patterns(seen, NODES[:16], FLEET, NOW)
    assert (found.kind, found.nodes, found.incidents) == (PatternKind.REPEAT, ("gpu003",), (4, 9))
    assert "to blame in 2 incidents of the last 60 days (ecc_error x 2), last 2 days ago; no node has a worse record" in found.text
    assert patterns(seen, NODES[16:], FLEET, NOW) == ()
    assert patterns(job(4, NODES[:8], NODES[3:4], days=30), NODES[:16], FLEET, NOW) == ()


def test_an_incident_is_no_repeat_of_itself() -> None:
    assert patterns(job(4, NODES[:8], NODES[3:4]), NODES[:8], FLEET, NOW, incident=4) == ()


def test_a_node_that_is_part_of_every_unexplained_failure_is_to_be_tested_first() -> None:
    draw = random.Random(7)
    seen = [one for n in range(6) for one in job(n, ["gpu100", *draw.sample(NODES[:100], 7)])]
    assert (PatternKind.SUSPECT, "gpu100") in kinds(seen, ["gpu100", "gpu101"])
    [found] = [one for one in patterns(seen, ["gpu100"], FLEET, NOW) if one.kind is PatternKind.SUSPECT]
    assert found.chance is not None
    assert found.chance < RARE
    assert "part of 6 of the 6 failed jobs for which no node was named, where 0.4 would be usual" in found.text


def test_being_in_jobs_that_span_the_whole_cluster_says_nothing() -> None:
    seen = [one for n in range(20) for one in job(n, NODES)]
    assert kinds(seen, NODES) == set()


def test_chance_alone_makes_hardly_any_suspect() -> None:
    accused = 0
    for seed in range(40):
        draw = random.Random(seed)
        seen = [one for n in range(8) for one in job(n, draw.sample(NODES, 16))]
        accused += bool(kinds(seen, NODES))
    assert accused <= 2


def test_guilty_nodes_of_one_rack_point_at_the_rack() -> None:
    seen = [one for n in range(4) for one in job(n, NODES[32:64], [NODES[40 + n]], days=n)]
    shared = [one for one in patterns(seen, NODES[32:64], FLEET, NOW) if one.kind is PatternKind.SHARED]
    assert [one.nodes for one in shared] == [("gpu040", "gpu041", "gpu042", "gpu043")]
    assert (
        "4 of the 4 nodes to blame in the last 60 days have rack rack2 (gpu[040-043]), which 16 of 128 nodes have" in shared[0].text
    )


def test_guilty_nodes_of_many_racks_share_nothing_and_what_all_have_is_no_trait() -> None:
    seen = [one for n in range(6) for one in job(n, NODES, [NODES[n * 20]], days=n)]
    assert PatternKind.SHARED not in {kind for kind, _ in kinds(seen, NODES)}


def test_nodes_to_blame_that_are_the_hottest_of_their_jobs_point_at_cooling() -> None:
    hot = {node: 60.0 + n % 7 for n, node in enumerate(NODES)}
    seen = [one for n in range(5) for one in job(n, NODES[:16], [NODES[n]], heat={**hot, NODES[n]: 84.0}, days=n)]
    heat = [one for one in patterns(seen, NODES[:16], FLEET, NOW) if one.kind is PatternKind.HEAT]
    assert [one.nodes for one in heat] == [tuple(NODES[:5])]
    cool = [one for n in range(5) for one in job(n, NODES[:16], [NODES[n]], heat=hot, days=n)]
    assert not [one for one in patterns(cool, NODES[:16], FLEET, NOW) if one.kind is PatternKind.HEAT]


def test_traits_come_from_the_partition_the_sites_features_and_the_network() -> None:
    nodes = [
        Node("a", NodeState.IDLE, "train", features=("a100", "rack7", "driver-550.54.15")),
        Node("b", NodeState.IDLE, features=("leaf-3",)),
    ]
    assert traits_of(nodes, {"b": "s1"}) == {
        "a": {"partition": "train", "rack": "rack7", "driver": "driver-550.54.15"},
        "b": {"switch": "s1"},
    }


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "s.db", JumpingClock(NOW)) as store:
        yield store


def test_the_store_keeps_what_an_incident_said_last(store: Store) -> None:
    incident = store.open_incident(Event(EventKind.JOB_ENDED, "7", None, NOW, {}))[0].id
    store.keep_sightings(incident, job(incident, NODES[:3], NODES[:1]))
    store.keep_sightings(incident, job(incident, NODES[:3], NODES[1:2], heat={"gpu001": 71.5}))
    assert store.sightings(NOW - timedelta(days=2)) == job(incident, NODES[:3], NODES[1:2], heat={"gpu001": 71.5})
    assert [one.node for one in store.sightings(NOW - timedelta(days=2), "gpu002")] == ["gpu002"]
    assert store.sightings(NOW) == []
