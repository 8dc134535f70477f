"""Evidence of a heterogeneous job lies on the nodes of all its parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assistant.engine.gather import with_all_parts
from assistant.records import Job, JobState

FAILED = Job("7+0", "rl", "ada", JobState.FAILED, "", ("n1",), None, Path("/w"), None, None, None, 1, None)
JOBS = (
    FAILED,
    replace(FAILED, id="7+1", nodes=("n2", "n3")),
    replace(FAILED, id="7+2", nodes=("n9",), attempt=4),
    replace(FAILED, id="70+1", nodes=("n4",)),
    replace(FAILED, id="7", nodes=("n5",)),
    replace(FAILED, id="7_1", nodes=("n6",)),
)


@pytest.mark.parametrize(
    ("job", "nodes"),
    [("7+0", ("n1", "n2", "n3")), ("7+1", ("n2", "n3", "n1")), ("70+1", ("n4",)), ("7", ("n5",)), ("7_1", ("n6",))],
)
def test_a_part_is_looked_at_with_the_nodes_of_all_parts_of_its_attempt(job: str, nodes: tuple[str, ...]) -> None:
    [part] = [one for one in JOBS if one.id == job]
    whole = with_all_parts(part, JOBS)
    assert whole is not None
    assert whole.nodes == nodes


def test_an_incident_about_a_node_has_no_job() -> None:
    assert with_all_parts(None, JOBS) is None
