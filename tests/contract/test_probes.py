"""One body over every probe: it is complete, it judges its recorded cases, and it never calls a node bad for want of an answer."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from assistant.ports import Reply
from assistant.tooling import Probe
from assistant.tools.probes import probes

CASES = Path(__file__).parent.parent / "cases" / "probes"
STATUSES = ("ok", "warning", "critical", "unknown")


@pytest.mark.parametrize("probe", probes(), ids=lambda probe: probe.name)
def test_a_probe_says_what_it_runs_needs_and_rests_on(probe: Probe) -> None:
    assert probe.command
    assert probe.needs == probe.command[0]
    assert probe.source
    assert list((CASES / probe.name).glob("*.toml")), f"probe {probe.name} has no case in {CASES / probe.name}"


@pytest.mark.parametrize("path", sorted(CASES.glob("*/*.toml")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recorded_answer_is_judged_as_it_should_be(path: Path) -> None:
    case = tomllib.loads(path.read_text(encoding="utf-8"))
    probe = next(probe for probe in probes() if probe.name == path.parent.name)
    found = probe.parse(Reply("node01", True, 0, case["out"].lstrip("\n"), ""))
    assert found["status"] == case["expect"]["status"], found
    assert case["expect"].get("text", "") in found["text"]


@pytest.mark.parametrize(
    "probe", [probe for probe in probes() if probe.name not in ("reachable", "kernel_log")], ids=lambda p: p.name
)
@pytest.mark.parametrize("out", ["", "\n", "garbage \x00 \ufffd", "1 2 3"])
def test_an_answer_that_cannot_be_read_is_unknown_never_bad(probe: Probe, out: str) -> None:
    assert probe.parse(Reply("node01", True, 0, out, ""))["status"] == "unknown"


def test_reachable_comes_first() -> None:
    assert probes()[0].name == "reachable"
