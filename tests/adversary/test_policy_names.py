"""Names in a policy hold for what they name, or the policy is refused: partitions, nodes, action classes, kill switches."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from assistant.errors import ContentError
from assistant.gate.stops import lift_kill_switch, missing_folders, stopped_by
from assistant.gate.targets import reach_of
from assistant.policy import Policy, Request, Situation, decide, load_policy
from assistant.policy.terms import ChangeLimits, KindTerms, PlaceLimits, Targets
from assistant.records import Node, NodeState, Risk, Verdict
from tests.adversary.conftest import ACT, write
from tests.unit.gate_world import START, World

BOTH = "train,eval"
"""As Slurm shows the partitions of a node that is in two."""


@pytest.mark.parametrize(
    "terms",
    [
        '[[window]]\nname = "w"\ndays = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]\npartitions = ["eval"]\n',
        '[[window]]\nname = "w"\ndays = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]\npartitions = ["train"]\n',
        '[[protected]]\npartitions = ["train"]\nwhy = "x"\n',
        '[[protected]]\npartitions = ["eval"]\nwhy = "x"\n',
    ],
)
def test_what_holds_for_one_partition_holds_for_a_node_in_several(terms: str, site: Path, world: World) -> None:
    write(site, f'extends = "shipped"\n{terms}[end]\n')
    fleet = [replace(node, partition=BOTH) for node in world.cluster.nodes()]
    world.cluster.nodes = lambda: fleet  # type: ignore[method-assign]
    reach = reach_of({"node": "n1"}, world.cluster)
    request = Request(Risk.CHANGE, "cordon", "cli:root", reach.targets, "cli:root")
    decision = decide(request, load_policy(site), Situation(START, tuple(fleet)))
    assert decision.verdict is Verdict.DENY
    assert decision.rule.startswith(("window.", "protected."))


def test_the_last_node_of_a_small_partition_stays_though_a_large_one_has_others() -> None:
    fleet = [Node(f"n{number}", NodeState.IDLE, "train") for number in range(9)] + [Node("n9", NodeState.IDLE, BOTH)]
    request = Request(Risk.CHANGE, "cordon", "cli:root", Targets(nodes=("n9",), partitions=("train", "eval")), "cli:root")
    policy = load_policy()
    assert decide(request, policy, Situation(START, fleet)).rule == "min_healthy_share"
    spare = [*fleet, Node("n10", NodeState.IDLE, "eval")]
    assert decide(request, policy, Situation(START, spare)).verdict is Verdict.ALLOW


def test_a_limit_of_a_partition_counts_nodes_that_are_in_another_as_well() -> None:
    policy = replace(load_policy(), kind={"cordon": KindTerms(hard=ChangeLimits(partition=PlaceLimits(per_hour=1)))})
    fleet = [Node("n1", NodeState.IDLE, BOTH), *(Node(f"n{number}", NodeState.IDLE, "train") for number in range(2, 9))]
    past = SimpleNamespace(kind="cordon", targets={"nodes": ["n1"]}, at=START)
    request = Request(Risk.CHANGE, "cordon", "cli:root", Targets(nodes=("n2",)), "cli:root")
    decision = decide(request, policy, Situation(START + timedelta(minutes=1), fleet, [past]))
    assert (decision.verdict, decision.rule) == (Verdict.DENY, "kind.cordon.hard.partition.per_hour")


@pytest.mark.parametrize(
    "terms",
    [
        *(
            f'[[protected]]\nnodes = ["{name}"]\nwhy = "x"\n'
            for name in (
                "n2 ", " n2", "n2\\t", "n2\\n", "n1,n2", "n1 n2", "n{1,2}", "!n2", "^n2", "@train",
                "", "n\uff12", "n\u200b2", "\u043f2",
            )
        ),
        *(f'[[protected]]\npartitions = ["{name}"]\nwhy = "x"\n' for name in ("train,eval", "train ", "")),
        '[[window]]\nname = "w"\ndays = ["mon"]\nnodes = ["n1,n2"]\n',
        '[[window]]\nname = "w"\ndays = ["mon"]\npartitions = ["a b"]\n',
        '[[protected]]\nwhy = "x"\n',
        '[[protected]]\nnodes = []\nwhy = "x"\n',
        '[[protected]]\nnodes = ["n2"]\nkinds = []\nwhy = "x"\n',
        '[[protected]]\nnodes = ["n2"]\nkinds = ["cordn"]\nwhy = "x"\n',
        '[kind.cordn]\nmode = "observe"\n',
        '[kind.Cordon]\nmode = "observe"\n',
        "[breaker]\nfailed_actions = 0\n",
        'kill_switch = ["~bob/stop"]\n',
    ],
    ids=ascii,
)  # fmt: skip
def test_a_term_that_would_hold_for_nothing_is_refused_when_it_is_read(terms: str, tmp_path: Path) -> None:
    write(tmp_path, f'extends = "shipped"\n{terms}[end]\n')
    with pytest.raises(ContentError):
        load_policy(tmp_path)


def test_names_that_match_nothing_of_the_cluster_are_told(tmp_path: Path) -> None:
    terms = '[[protected]]\nnodes = ["N1", "n[01-02]", "n[1-2]", "login*"]\nwhy = "x"\n'
    terms += '[[window]]\nname = "w"\ndays = ["mon"]\npartitions = ["Eval"]\n'
    write(tmp_path, f'extends = "shipped"\n{terms}[end]\n')
    fleet = [Node("n1", NodeState.IDLE, BOTH), Node("n2", NodeState.IDLE, "train")]
    lines = load_policy(tmp_path).unmatched(fleet)
    assert [line.rpartition(" ")[2] for line in lines] == ["N1", "n[01-02]", "Eval"]
    assert load_policy(tmp_path).unmatched([]) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder away")
def test_dots_in_a_path_hide_no_folder_of_somebody_else(site: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "in").mkdir(parents=True)
    path = theirs / "in" / ".." / ".." / "site"
    assert load_policy(path).mode == "act"
    os.chown(theirs, 12345, 12345)
    with pytest.raises(ContentError, match="belongs to"):
        load_policy(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder away")
@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_a_kill_switch_that_others_could_lift_is_none(mode: int, site: Path, tmp_path: Path) -> None:
    folder = tmp_path / "switches"
    folder.mkdir()
    write(site, ACT.format(stop=folder / "stop"))
    assert load_policy(site).mode == "act"
    folder.chmod(mode)
    os.chown(folder, 12345 if mode == 0o755 else 0, 0)
    with pytest.raises(ContentError, match="others could remove"):
        load_policy(site)
    # with the sticky bit they may make the file first, which is theirs to lift then, also in a folder that they make there
    os.chown(folder, 0, 0)
    folder.chmod(0o1777)
    for switch in (folder / "stop", folder / "missing" / "stop"):
        write(site, ACT.format(stop=switch))
        with pytest.raises(ContentError, match=r"others may write it.* make the file first"):
            load_policy(site)
    write(site, ACT.format(stop=folder / "stop"))
    (folder / "stop").touch()
    assert load_policy(site).mode == "act", "nobody else can lift it now"
    os.chown(folder / "stop", 12345, 12345)
    with pytest.raises(ContentError, match="others may write it"):
        load_policy(site)


@pytest.mark.parametrize("make", ["file", "link to nothing", "link to itself"])
def test_a_switch_whose_folder_was_replaced_counts_as_set_and_is_not_said_to_be_lifted(
    make: str, tmp_path: Path, world: World
) -> None:
    folder = tmp_path / "mount"
    if make == "file":
        folder.write_text("")
    else:
        folder.symlink_to(tmp_path / "away" if make == "link to nothing" else folder)
    switch = folder / "deep" / "stop"
    assert (stopped_by((switch,)) or "").endswith("so it counts as set)")
    lifted = lift_kill_switch(world.store, Policy(kill_switch=(switch,)), by="cli:root")
    assert (lifted.lifted, [path for path, _ in lifted.still_set]) == ((), [switch])
    assert stopped_by((tmp_path / "never made" / "stop",)) is None
    assert missing_folders((tmp_path / "never made" / "stop", tmp_path / "stop")) == [tmp_path / "never made" / "stop"]
