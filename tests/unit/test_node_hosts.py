"""A host that is out of reach: which one, and whether of single nodes or of all; cases as files."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.engine.evidence.remote_hosts import UNREACHED, host_fault, hosts_of, names_unresolved
from assistant.watch.outages import awaited_by

FOLDER = Path(__file__).parents[1] / "cases" / "node_hosts"
CASES = tomllib.loads((FOLDER / "cases.toml").read_text())["case"]
LINES = tomllib.loads((FOLDER / "lines.toml").read_text())["case"]
WORDS = {"yes": True, "no": False, "?": None}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_node_is_at_fault_only_where_it_alone_does_not_reach_a_host(case: dict[str, Any]) -> None:
    for answers in (case["answers"], dict(reversed(case["answers"].items()))):
        fault = host_fault({node: WORDS[word] for node, word in answers.items()}, case.get("nodes", ["n1"]))
        assert sorted(fault.nodes if fault is not None else ()) == case.get("bad", [])
        assert (fault is not None and not fault.nodes) is case.get("everywhere", False)
        assert fault is None or not {*fault.nodes} & {*fault.fine}


@pytest.mark.parametrize("case", LINES, ids=lambda case: case["name"])
def test_which_host_is_asked_about(case: dict[str, Any]) -> None:
    lines = case["lines"]
    by_name = names_unresolved(lines)
    about = "name" if by_name else "connection" if any(UNREACHED.search(line) for line in lines) else ""
    assert about == case["about"]
    hosts = hosts_of(lines, case.get("texts", ())) if by_name else (awaited_by("connection_error", lines).cause,)
    assert [host for host in hosts if about] == case.get("hosts", [])
