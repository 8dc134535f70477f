"""Cases about where a job failed: no healthy node is ever named, and the places of bugs and absent ranks are told without blame."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from assistant.records import Diagnosis

CASES = Path(__file__).parent.parent / "cases"
SUITES = ("where", "where_held", "where_third", "where_fourth")
LEAST_FOUND = 0.9
"""Share of the nodes at fault that are named."""
OPEN = {
    "where_held/jax_process_addresses": "a log that ends in a lost task of JAX is taken for one that goes on",
}
"""Places that are missed, and why."""


def labels() -> Iterator[dict[str, Any]]:
    for suite in SUITES:
        yield from (json.loads(line) for line in (CASES / suite / "labels.jsonl").read_text(encoding="utf-8").splitlines())


LABELS = list(labels())


@cache
def found(case: str) -> Diagnosis:
    return diagnose(Case.from_path(CASES / case), Knowledge.load())


@pytest.mark.parametrize("label", LABELS, ids=lambda label: label["id"])
def test_no_node_is_named_that_is_not_to_blame(label: dict[str, Any]) -> None:
    assert set(found(label["id"]).faulty_nodes) <= set(label["faulty_nodes"])


def test_the_nodes_to_blame_are_found() -> None:
    wanted = [(label["id"], node) for label in LABELS for node in label["faulty_nodes"]]
    missed = [(case, node) for case, node in wanted if node not in found(case).faulty_nodes]
    assert len(missed) <= (1 - LEAST_FOUND) * len(wanted), missed


@pytest.mark.parametrize(
    "label", [label for label in LABELS if label["place"] and label["id"] not in OPEN], ids=lambda label: label["id"]
)
def test_the_place_is_told(label: dict[str, Any]) -> None:
    speaker, node = label["place"]
    told = [(place.rank if place.rank is not None else place.task, place.node) for place in found(label["id"]).where]
    assert any((speaker in (None, who)) and (node in (None, where)) for who, where in told), told


@pytest.mark.parametrize("label", LABELS, ids=lambda label: label["id"])
def test_each_line_of_a_place_stands_in_the_case(label: dict[str, Any]) -> None:
    for place in found(label["id"]).where:
        for cited in place.citations:
            lines = (CASES / label["id"] / cited.file).read_text(encoding="utf-8").splitlines()
            assert lines[cited.line - 1] == cited.text
