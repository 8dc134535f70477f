"""Node sets: what operators write comes out as names, and names fold back."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from assistant.errors import UsageError
from assistant.nodeset import expand, fold, node_groups
from assistant.records import Node, NodeState

CASES = Path(__file__).parents[1] / "cases" / "nodeset"


def cases(name: str) -> list[Any]:
    return [pytest.param(case, id=case["text"] or "empty") for case in tomllib.loads((CASES / name).read_text())["case"]]


@pytest.mark.parametrize("case", cases("good.toml"))
def test_an_expression_gives_its_names_in_order(case: dict[str, Any]) -> None:
    assert expand(case["text"]) == case["names"]


@pytest.mark.parametrize("case", cases("good.toml"))
def test_names_fold_to_the_short_form(case: dict[str, Any]) -> None:
    assert fold(case["names"]) == case.get("folded", case["text"])


@pytest.mark.parametrize("case", cases("bad.toml"))
def test_a_malformed_expression_is_refused_with_the_reason(case: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=case["says"]):
        expand(case["text"])


def test_no_names_fold_to_nothing() -> None:
    assert fold([]) == ""


@given(some.sets(some.from_regex(r"[a-z]{1,3}[0-9]{0,3}(-[a-z]{1,2}[0-9]{0,2})?", fullmatch=True), min_size=1, max_size=30))
def test_what_is_folded_expands_to_the_same_set(names: set[str]) -> None:
    folded = expand(fold(names))
    assert set(folded) == names
    assert len(folded) == len(names)


_NUMBER = some.integers(0, 30)
_RANGE = some.builds(
    lambda first, count, width: f"{first:0{width}d}-{first + count:0{width}d}", _NUMBER, _NUMBER, some.integers(1, 4)
)
_BRACKET = some.lists(_RANGE | _NUMBER.map(str), min_size=1, max_size=3).map(lambda ranges: f"[{','.join(ranges)}]")
_PART = some.lists(some.sampled_from(["gpu", "r", "-ib", "n0", "."]) | _BRACKET, min_size=1, max_size=4).map(
    lambda pieces: "a" + "".join(pieces)
)


@given(some.lists(_PART, min_size=1, max_size=3).map(",".join))
def test_clustershell_reads_the_same_names(text: str) -> None:
    """The peer that operators know: what it reads, we read alike, and it reads what we fold."""
    peer = pytest.importorskip("ClusterShell.NodeSet")
    try:
        names = set(peer.NodeSet(text, resolver=peer.RESOLVER_NOGROUP))
    except peer.NodeSetParseError:
        return  # it refuses ranges such as 9-010, and names that end in what it takes for an operator
    assert set(expand(text)) == names
    assert set(peer.NodeSet(fold(names), resolver=peer.RESOLVER_NOGROUP)) == names


CLUSTER = [
    Node("gpu01", NodeState.IDLE, "train,eval", features=("a100", "rack1")),
    Node("gpu02", NodeState.DRAINED, "train", features=("a100",)),
    Node("gpu03", NodeState.IDLE, "train", features=("h100", "idle")),
    Node("cpu01", NodeState.ALLOCATED, "eval"),
]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("@train", "gpu[01-03]"),
        ("@eval", "cpu01,gpu01"),
        ("@a100", "gpu[01-02]"),
        ("@drained", "gpu02"),
        ("@idle", "gpu03"),  # a feature goes before a state of the same name
        ("@state:idle", "gpu[01,03]"),
        ("@feature:rack1,cpu01", "cpu01,gpu01"),
        ("@partition:eval,@feature:h100", "cpu01,gpu[01,03]"),
        ("@all", "cpu01,gpu[01-03]"),
        ("@*", "cpu01,gpu[01-03]"),
        ("@state:down", ""),
    ],
)
def test_a_group_is_a_partition_a_feature_or_a_state(text: str, names: str) -> None:
    assert fold(expand(text, groups=node_groups(CLUSTER))) == names


@pytest.mark.parametrize("text", ["@trian", "@rack:1", "@partition:a100", "@"])
def test_an_unknown_group_is_refused_and_the_known_ones_are_listed(text: str) -> None:
    with pytest.raises(UsageError, match="known: @all, @train, @eval, @a100"):
        expand(text, groups=node_groups(CLUSTER))


def test_a_group_needs_a_scheduler() -> None:
    with pytest.raises(UsageError, match="only the scheduler knows groups"):
        expand("gpu01,@train")
